
/*
 * Service keys.  Only the SHA-256 of a key is stored: keys are random and long,
 * so a slow hash would add nothing but time.  The secret in a request is hashed
 * once, and its digest is looked up.
 *
 * The table uses open addressing with linear probing, one pointer per slot, two
 * slots of three in use.  A digest is uniform, so its first bytes are the hash:
 * no second hash function is needed, and a client cannot choose its slot.
 * Records are compared by 8 bytes first, which reveal nothing about the other
 * 24; these are compared in constant time.
 *
 * Records are in a list, so they do not move while the table grows; the table
 * that finds duplicate ids exists only while keys are added.
 *
 * Rejected: ngx_hash_t (built at once from an array of keys, and it compares
 * byte by byte), a tree (12 cache misses for a million keys, and timing), and a
 * sorted array.
 */


/* for SHA256_Init() etc., see ngx_modelgw_key_digest() */
#define OPENSSL_SUPPRESS_DEPRECATED

#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "ngx_modelgw_key.h"


#define NGX_MODELGW_KEY_PART   256       /* records allocated at a time */
#define NGX_MODELGW_KEY_SLOTS  1024      /* initially */


typedef struct {
    ngx_modelgw_key_t  **elts;
    ngx_uint_t           n;
} ngx_modelgw_key_slots_t;


struct ngx_modelgw_keys_s {
    ngx_list_t                records;   /* of ngx_modelgw_key_t */
    ngx_uint_t                count;
    ngx_modelgw_key_slots_t   digests;
    ngx_modelgw_key_slots_t   ids;       /* until _ready(), after _index() */
    ngx_pool_t               *pool;
    ngx_pool_t               *temp;
};


static ngx_uint_t ngx_modelgw_key_slot(ngx_modelgw_key_slots_t *slots,
    uint32_t hash);
static ngx_modelgw_key_t **ngx_modelgw_key_digest_slot(
    ngx_modelgw_key_slots_t *slots, u_char *digest);
static ngx_modelgw_key_t **ngx_modelgw_key_id_slot(
    ngx_modelgw_key_slots_t *slots, ngx_str_t *id);
static ngx_int_t ngx_modelgw_keys_layout(ngx_modelgw_keys_t *keys,
    ngx_uint_t n);
static void ngx_modelgw_keys_place(ngx_modelgw_keys_t *keys);


/* the overhead of OpenSSL's EVP functions equals the hash of a key */

ngx_int_t
ngx_modelgw_key_digest(ngx_str_t *secret, u_char *digest)
{
    SHA256_CTX  sha;

    if (SHA256_Init(&sha) != 1
        || SHA256_Update(&sha, secret->data, secret->len) != 1
        || SHA256_Final(digest, &sha) != 1)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_key_code(u_char *secret, size_t secret_len, u_char *text,
    size_t len, u_char *code)
{
    unsigned int  n;

    return (HMAC(EVP_sha256(), secret, (int) secret_len, text, len, code, &n)
            != NULL
            && n == NGX_MODELGW_KEY_DIGEST)
           ? NGX_OK : NGX_ERROR;
}


ngx_uint_t
ngx_modelgw_key_equal(u_char *one, u_char *two)
{
    return CRYPTO_memcmp(one, two, NGX_MODELGW_KEY_DIGEST) == 0;
}


ngx_int_t
ngx_modelgw_key_random(u_char *bytes, size_t len)
{
    return RAND_bytes(bytes, (int) len) == 1 ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_modelgw_key_secret(ngx_str_t *value, ngx_uint_t bearer, ngx_str_t *secret)
{
    u_char  *p, *last;

    p = value->data;
    last = p + value->len;

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    while (p < last && (last[-1] == ' ' || last[-1] == '\t')) {
        last--;
    }

    if (bearer) {

        if ((size_t) (last - p) <= sizeof("Bearer") - 1
            || ngx_strncasecmp(p, (u_char *) "Bearer", sizeof("Bearer") - 1)
               != 0)
        {
            return NGX_DECLINED;
        }

        p += sizeof("Bearer") - 1;

        if (*p != ' ' && *p != '\t') {
            return NGX_DECLINED;
        }

        while (*p == ' ' || *p == '\t') {
            p++;
        }
    }

    if (p == last) {
        return NGX_DECLINED;
    }

    secret->data = p;
    secret->len = last - p;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_key_hex(ngx_str_t *text, u_char *digest)
{
    ngx_int_t   n;
    ngx_uint_t  i;

    if (text->len != NGX_MODELGW_KEY_DIGEST * 2) {
        return NGX_DECLINED;
    }

    for (i = 0; i < NGX_MODELGW_KEY_DIGEST; i++) {

        n = ngx_hextoi(&text->data[i * 2], 2);
        if (n == NGX_ERROR) {
            return NGX_DECLINED;
        }

        digest[i] = (u_char) n;
    }

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_key_date(ngx_str_t *text, time_t *time)
{
    u_char            *p;
    ngx_int_t          y, m, d, days;

    static ngx_int_t   length[] = { 31, 28, 31, 30, 31, 30,
                                    31, 31, 30, 31, 30, 31 };

    p = text->data;

    if (text->len != sizeof("2027-01-01") - 1 || p[4] != '-' || p[7] != '-') {
        return NGX_DECLINED;
    }

    y = ngx_atoi(p, 4);
    m = ngx_atoi(p + 5, 2);
    d = ngx_atoi(p + 8, 2);

    if (y < 1970 || m < 1 || m > 12 || d < 1) {
        return NGX_DECLINED;
    }

    days = length[m - 1];

    if (m == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0)) {
        days++;
    }

    if (d > days) {
        return NGX_DECLINED;
    }

    /* Gauss' formula, as in ngx_parse_http_time(): a year begins in March */

    m -= 2;

    if (m <= 0) {
        m += 12;
        y--;
    }

    /* 719527 days were between March 1, 1 BC and March 1, 1970 */

    days = 365 * y + y / 4 - y / 100 + y / 400 + 367 * m / 12 - 30 + d - 1
           - 719527 + 31 + 28;

    *time = (time_t) days * 86400;

    return NGX_OK;
}


ngx_modelgw_keys_t *
ngx_modelgw_keys_create(ngx_pool_t *pool, ngx_pool_t *temp)
{
    ngx_modelgw_keys_t  *keys;

    keys = ngx_pcalloc(pool, sizeof(ngx_modelgw_keys_t));
    if (keys == NULL) {
        return NULL;
    }

    if (ngx_list_init(&keys->records, pool, NGX_MODELGW_KEY_PART,
                      sizeof(ngx_modelgw_key_t))
        != NGX_OK)
    {
        return NULL;
    }

    keys->pool = pool;
    keys->temp = temp;

    if (ngx_modelgw_keys_layout(keys, NGX_MODELGW_KEY_SLOTS) != NGX_OK) {
        return NULL;
    }

    return keys;
}


ngx_modelgw_key_t *
ngx_modelgw_keys_add(ngx_modelgw_keys_t *keys, u_char *digest, ngx_str_t *id,
    ngx_modelgw_key_t **twin)
{
    ngx_modelgw_key_t  *key, **by_digest, **by_id;

    *twin = NULL;

    if (keys->count >= keys->digests.n / 3 * 2
        && ngx_modelgw_keys_layout(keys, keys->digests.n * 2) != NGX_OK)
    {
        return NULL;
    }

    by_id = ngx_modelgw_key_id_slot(&keys->ids, id);
    by_digest = ngx_modelgw_key_digest_slot(&keys->digests, digest);

    if (*by_id || *by_digest) {
        *twin = *by_id ? *by_id : *by_digest;
        return NULL;
    }

    key = ngx_list_push(&keys->records);
    if (key == NULL) {
        return NULL;
    }

    ngx_memzero(key, sizeof(ngx_modelgw_key_t));
    ngx_memcpy(key->digest, digest, NGX_MODELGW_KEY_DIGEST);
    key->id = *id;

    *by_id = key;
    *by_digest = key;
    keys->count++;

    return key;
}


ngx_int_t
ngx_modelgw_keys_ready(ngx_modelgw_keys_t *keys)
{
    keys->digests.n = keys->count + keys->count / 2 + 1;
    keys->digests.elts = ngx_pcalloc(keys->pool, keys->digests.n
                                                 * sizeof(ngx_modelgw_key_t *));
    if (keys->digests.elts == NULL) {
        return NGX_ERROR;
    }

    keys->ids.n = 0;
    keys->ids.elts = NULL;
    keys->temp = NULL;

    ngx_modelgw_keys_place(keys);

    return NGX_OK;
}


ngx_modelgw_key_t *
ngx_modelgw_keys_find(ngx_modelgw_keys_t *keys, u_char *digest)
{
    return *ngx_modelgw_key_digest_slot(&keys->digests, digest);
}


ngx_int_t
ngx_modelgw_keys_index(ngx_modelgw_keys_t *keys)
{
    keys->ids.n = keys->digests.n;
    keys->ids.elts = ngx_pcalloc(keys->pool, keys->ids.n
                                             * sizeof(ngx_modelgw_key_t *));
    if (keys->ids.elts == NULL) {
        return NGX_ERROR;
    }

    ngx_modelgw_keys_place(keys);

    return NGX_OK;
}


ngx_modelgw_key_t *
ngx_modelgw_keys_named(ngx_modelgw_keys_t *keys, ngx_str_t *id)
{
    return *ngx_modelgw_key_id_slot(&keys->ids, id);
}


ngx_uint_t
ngx_modelgw_keys_count(ngx_modelgw_keys_t *keys)
{
    return keys->count;
}


ngx_modelgw_key_t *
ngx_modelgw_keys_next(ngx_modelgw_keys_t *keys, ngx_modelgw_keys_pos_t *pos)
{
    ngx_modelgw_key_t  *key;

    if (pos->part == NULL) {
        pos->part = &keys->records.part;
    }

    while (pos->i == pos->part->nelts) {

        if (pos->part->next == NULL) {
            return NULL;
        }

        pos->part = pos->part->next;
        pos->i = 0;
    }

    key = pos->part->elts;

    return &key[pos->i++];
}


/* Allocates new tables of n slots in temp, and fills them. */

static ngx_int_t
ngx_modelgw_keys_layout(ngx_modelgw_keys_t *keys, ngx_uint_t n)
{
    ngx_modelgw_key_slots_t  *slots[2];
    ngx_uint_t                i;

    slots[0] = &keys->digests;
    slots[1] = &keys->ids;

    for (i = 0; i < 2; i++) {

        if (slots[i]->elts) {
            ngx_pfree(keys->temp, slots[i]->elts);
        }

        slots[i]->n = n;
        slots[i]->elts = ngx_pcalloc(keys->temp,
                                     n * sizeof(ngx_modelgw_key_t *));
        if (slots[i]->elts == NULL) {
            return NGX_ERROR;
        }
    }

    ngx_modelgw_keys_place(keys);

    return NGX_OK;
}


/* Adds all records to the tables; what is there stays where it is. */

static void
ngx_modelgw_keys_place(ngx_modelgw_keys_t *keys)
{
    ngx_uint_t          i;
    ngx_list_part_t    *part;
    ngx_modelgw_key_t  *key;

    for (part = &keys->records.part; part; part = part->next) {
        key = part->elts;

        for (i = 0; i < part->nelts; i++) {
            *ngx_modelgw_key_digest_slot(&keys->digests, key[i].digest)
                = &key[i];

            if (keys->ids.n) {
                *ngx_modelgw_key_id_slot(&keys->ids, &key[i].id) = &key[i];
            }
        }
    }
}


/* The slot of the record with this digest, or an empty one for it. */

static ngx_modelgw_key_t **
ngx_modelgw_key_digest_slot(ngx_modelgw_key_slots_t *slots, u_char *digest)
{
    uint32_t             hash;
    ngx_uint_t           i;
    ngx_modelgw_key_t  **slot;

    ngx_memcpy(&hash, digest, sizeof(uint32_t));

    i = ngx_modelgw_key_slot(slots, hash);

    for ( ;; ) {
        slot = &slots->elts[i];

        if (*slot == NULL
            || (ngx_memcmp((*slot)->digest, digest, sizeof(uint64_t)) == 0
                && ngx_modelgw_key_equal((*slot)->digest, digest)))
        {
            return slot;
        }

        i = (i + 1 == slots->n) ? 0 : i + 1;
    }
}


/* The same by id. */

static ngx_modelgw_key_t **
ngx_modelgw_key_id_slot(ngx_modelgw_key_slots_t *slots, ngx_str_t *id)
{
    ngx_uint_t           i;
    ngx_modelgw_key_t  **slot;

    i = ngx_modelgw_key_slot(slots, ngx_murmur_hash2(id->data, id->len));

    for ( ;; ) {
        slot = &slots->elts[i];

        if (*slot == NULL
            || ((*slot)->id.len == id->len
                && ngx_memcmp((*slot)->id.data, id->data, id->len) == 0))
        {
            return slot;
        }

        i = (i + 1 == slots->n) ? 0 : i + 1;
    }
}


/* Scales a hash to the number of slots, which need not be a power of 2. */

static ngx_uint_t
ngx_modelgw_key_slot(ngx_modelgw_key_slots_t *slots, uint32_t hash)
{
    return (ngx_uint_t) (((uint64_t) hash * slots->n) >> 32);
}
