
/*
 * The table of keys that operators make.
 *
 * Records never move.  Two indices, by digest and by id, use open addressing
 * with linear probing, a number of a record per slot, two slots of three in
 * use.  A deletion shifts the slots after it back, so there are no tombstones,
 * and a search stays short whatever was deleted before.  Several records may
 * have one id, as a key that is rotated works beside the new one for a while.
 *
 * There is one writer, and its changes are rare: a sequence number is odd while
 * it changes something, and a reader that finds it odd, or another one after it
 * has copied a record, starts again.  So readers take no lock, and write
 * nothing.  What they read meanwhile may be torn: numbers of records are
 * checked before use, and probing ends after all slots.
 *
 * Keys that were revoked are kept, to be told from those that were never made,
 * until their records are needed.
 *
 * A writer that is killed in a change leaves the number odd.  The next one
 * fills the table again from the ledger's file.
 *
 * Rejected: a sequence number per record (a search that passes slots that are
 * being shifted may miss a key), a lock (each call would take it).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_managed.h"


#define NGX_MODELGW_MANAGED_SPINS   1000
#define NGX_MODELGW_MANAGED_SLEEPS  1050 /* then a millisecond passes first: the
                                            writer may not have a processor */


typedef struct {
    uint32_t                    *slots;  /* 1 plus the number of a record; 0:
                                            free */
} ngx_modelgw_managed_index_t;


struct ngx_modelgw_managed_s {
    uint64_t                     seq;
    uint64_t                     filling; /* 1: between _begin() and _end() */
    uint64_t                     n;      /* keys that are not revoked */
    uint64_t                     max;
    uint64_t                     fresh;  /* records from here on were never
                                            used */
    uint64_t                     free;   /* 1 plus the first of a list; 0: it
                                            is empty */
    uint64_t                     reused; /* the last record of a revoked key
                                            that was */
    uint64_t                     nslots;
    ngx_modelgw_managed_index_t  digests;
    ngx_modelgw_managed_index_t  ids;
    ngx_modelgw_managed_key_t   *records;
};


/* looks for a record while nothing is known to be consistent */

typedef ngx_modelgw_managed_key_t *(*ngx_modelgw_managed_search_pt)(
    ngx_modelgw_managed_t *m, void *data);


static ngx_int_t ngx_modelgw_managed_read(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_search_pt search, void *data,
    ngx_modelgw_managed_key_t *key);
static ngx_modelgw_managed_key_t *ngx_modelgw_managed_by_digest(
    ngx_modelgw_managed_t *m, void *data);
static ngx_modelgw_managed_key_t *ngx_modelgw_managed_by_id(
    ngx_modelgw_managed_t *m, void *data);
static ngx_modelgw_managed_key_t *ngx_modelgw_managed_by_number(
    ngx_modelgw_managed_t *m, void *data);
static ngx_modelgw_managed_key_t *ngx_modelgw_managed_of_id(
    ngx_modelgw_managed_t *m, ngx_str_t *id, uint64_t *slot);
static ngx_uint_t ngx_modelgw_managed_is(ngx_modelgw_managed_key_t *key,
    ngx_str_t *id);
static void ngx_modelgw_managed_open(ngx_modelgw_managed_t *m);
static void ngx_modelgw_managed_close(ngx_modelgw_managed_t *m);
static ngx_int_t ngx_modelgw_managed_add(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key);
static void ngx_modelgw_managed_reuse(ngx_modelgw_managed_t *m);
static void ngx_modelgw_managed_retire_id(ngx_modelgw_managed_t *m,
    ngx_modelgw_ledger_name_t *name);
static void ngx_modelgw_managed_retire(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key);
static void ngx_modelgw_managed_delete(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key);
static void ngx_modelgw_managed_link(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_index_t *index, ngx_modelgw_managed_key_t *key);
static void ngx_modelgw_managed_unlink(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_index_t *index, ngx_modelgw_managed_key_t *key);
static uint64_t ngx_modelgw_managed_slot(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_index_t *index, ngx_modelgw_managed_key_t *key);
static uint64_t ngx_modelgw_managed_digest_slot(ngx_modelgw_managed_t *m,
    u_char *digest);
static uint64_t ngx_modelgw_managed_id_slot(ngx_modelgw_managed_t *m,
    ngx_str_t *id);


#define ngx_modelgw_managed_slots(n)  ((n) + (n) / 2 + 2)


size_t
ngx_modelgw_managed_size(ngx_uint_t n)
{
    return sizeof(ngx_modelgw_managed_t)
           + n * sizeof(ngx_modelgw_managed_key_t)
           + 2 * ngx_modelgw_managed_slots(n) * sizeof(uint32_t);
}


ngx_modelgw_managed_t *
ngx_modelgw_managed_create(void *memory, ngx_uint_t n)
{
    ngx_modelgw_managed_t  *m;

    m = memory;

    m->max = n;
    m->nslots = ngx_modelgw_managed_slots(n);

    m->records = (ngx_modelgw_managed_key_t *) &m[1];
    m->digests.slots = (uint32_t *) &m->records[n];
    m->ids.slots = m->digests.slots + m->nslots;

    return m;
}


ngx_int_t
ngx_modelgw_managed_find(ngx_modelgw_managed_t *m, u_char *digest,
    ngx_modelgw_managed_key_t *key)
{
    return ngx_modelgw_managed_read(m, ngx_modelgw_managed_by_digest, digest,
                                    key);
}


ngx_int_t
ngx_modelgw_managed_get(ngx_modelgw_managed_t *m, ngx_str_t *id,
    ngx_modelgw_managed_key_t *key)
{
    return ngx_modelgw_managed_read(m, ngx_modelgw_managed_by_id, id, key);
}


ngx_int_t
ngx_modelgw_managed_at(ngx_modelgw_managed_t *m, ngx_uint_t i,
    ngx_modelgw_managed_key_t *key)
{
    return ngx_modelgw_managed_read(m, ngx_modelgw_managed_by_number, &i, key);
}


static ngx_int_t
ngx_modelgw_managed_read(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_search_pt search, void *data,
    ngx_modelgw_managed_key_t *key)
{
    uint64_t                    seq;
    ngx_uint_t                  i;
    ngx_modelgw_managed_key_t  *found;

    for (i = 0; i < NGX_MODELGW_MANAGED_SLEEPS; i++) {

        if (i >= NGX_MODELGW_MANAGED_SPINS) {

            if (__atomic_load_n(&m->filling, __ATOMIC_RELAXED)) {
                break;
            }

            ngx_msleep(1);
        }

        seq = __atomic_load_n(&m->seq, __ATOMIC_ACQUIRE);

        if (seq & 1) {
            ngx_cpu_pause();
            continue;
        }

        found = search(m, data);

        if (found) {
            ngx_memcpy(key, found, sizeof(ngx_modelgw_managed_key_t));
        }

        __atomic_thread_fence(__ATOMIC_ACQUIRE);

        if (__atomic_load_n(&m->seq, __ATOMIC_RELAXED) == seq) {
            return found ? NGX_OK : NGX_DECLINED;
        }
    }

    return NGX_BUSY;
}


/* the first 8 bytes tell nothing of the others: see ngx_modelgw_key.c */

static ngx_modelgw_managed_key_t *
ngx_modelgw_managed_by_digest(ngx_modelgw_managed_t *m, void *data)
{
    uint32_t                    number;
    uint64_t                    i, probes;
    ngx_modelgw_managed_key_t  *key;

    i = ngx_modelgw_managed_digest_slot(m, data);

    for (probes = 0; probes < m->nslots; probes++) {
        number = m->digests.slots[i];

        if (number == 0) {
            return NULL;
        }

        if (number <= m->max) {
            key = &m->records[number - 1];

            if (ngx_memcmp(key->digest, data, sizeof(uint64_t)) == 0
                && ngx_modelgw_key_equal(key->digest, data))
            {
                return key;
            }
        }

        i = (i + 1 == m->nslots) ? 0 : i + 1;
    }

    return NULL;
}


static ngx_modelgw_managed_key_t *
ngx_modelgw_managed_by_id(ngx_modelgw_managed_t *m, void *data)
{
    uint64_t                    slot;
    ngx_str_t                  *id = data;
    ngx_modelgw_managed_key_t  *key;

    slot = m->nslots;

    do {
        key = ngx_modelgw_managed_of_id(m, id, &slot);

    } while (key && key->state != NGX_MODELGW_KEY_ACTIVE);

    return key;
}


static ngx_modelgw_managed_key_t *
ngx_modelgw_managed_by_number(ngx_modelgw_managed_t *m, void *data)
{
    ngx_uint_t *i = data;

    if (*i >= m->max
        || m->records[*i].state == NGX_MODELGW_KEY_FREE
        || m->records[*i].state == NGX_MODELGW_KEY_REVOKED)
    {
        return NULL;
    }

    return &m->records[*i];
}


/*
 * The next record of the id, after the slot; m->nslots: the first one.  If the
 * slots are torn, the search ends with the last one.
 */

static ngx_modelgw_managed_key_t *
ngx_modelgw_managed_of_id(ngx_modelgw_managed_t *m, ngx_str_t *id,
    uint64_t *slot)
{
    uint32_t                    number;
    uint64_t                    i, home;
    ngx_modelgw_managed_key_t  *key;

    home = ngx_modelgw_managed_id_slot(m, id);

    i = (*slot == m->nslots) ? home : *slot + 1;

    for ( ;; ) {

        if (i == m->nslots) {
            i = 0;
        }

        if (*slot != m->nslots && i == home) {
            return NULL;
        }

        number = m->ids.slots[i];

        if (number == 0) {
            return NULL;
        }

        *slot = i;
        key = (number <= m->max) ? &m->records[number - 1] : NULL;

        if (key && ngx_modelgw_managed_is(key, id)) {
            return key;
        }

        i++;
    }
}


static ngx_uint_t
ngx_modelgw_managed_is(ngx_modelgw_managed_key_t *key, ngx_str_t *id)
{
    return key->id.len == id->len && id->len <= NGX_MODELGW_LEDGER_NAME
           && ngx_memcmp(key->id.data, id->data, id->len) == 0;
}


ngx_uint_t
ngx_modelgw_managed_max(ngx_modelgw_managed_t *m)
{
    return m->max;
}


ngx_uint_t
ngx_modelgw_managed_free(ngx_modelgw_managed_t *m)
{
    return m->max - __atomic_load_n(&m->n, __ATOMIC_ACQUIRE);
}


ngx_int_t
ngx_modelgw_managed_put(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key)
{
    ngx_int_t                   rc;
    ngx_modelgw_managed_key_t  *old;

    old = ngx_modelgw_managed_by_digest(m, key->digest);

    ngx_modelgw_managed_open(m);

    if (old) {
        ngx_modelgw_managed_delete(m, old);
    }

    rc = ngx_modelgw_managed_add(m, key);

    ngx_modelgw_managed_close(m);

    return rc;
}


void
ngx_modelgw_managed_update(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key)
{
    uint64_t                    slot;
    ngx_str_t                   id;
    ngx_modelgw_managed_key_t   changed, *old;

    id.len = key->id.len;
    id.data = key->id.data;

    slot = m->nslots;

    ngx_modelgw_managed_open(m);

    while ((old = ngx_modelgw_managed_of_id(m, &id, &slot)) != NULL) {
        changed = *key;
        changed.state = old->state;
        changed.next = old->next;

        if (old->state == NGX_MODELGW_KEY_ROTATED
            && (key->expires == 0 || key->expires > old->expires))
        {
            changed.expires = old->expires;
        }

        ngx_memcpy(changed.digest, old->digest, NGX_MODELGW_KEY_DIGEST);

        *old = changed;
    }

    ngx_modelgw_managed_close(m);
}


ngx_int_t
ngx_modelgw_managed_rotate(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key, uint64_t until)
{
    uint64_t                    slot;
    ngx_int_t                   rc;
    ngx_str_t                   id;
    ngx_modelgw_managed_key_t  *old;

    if (ngx_modelgw_managed_by_digest(m, key->digest)) {
        return NGX_OK;
    }

    if (until == 0) {
        ngx_modelgw_managed_revoke(m, &key->id);
    }

    id.len = key->id.len;
    id.data = key->id.data;

    slot = m->nslots;

    ngx_modelgw_managed_open(m);

    while ((old = ngx_modelgw_managed_of_id(m, &id, &slot)) != NULL) {

        if (old->state == NGX_MODELGW_KEY_REVOKED) {
            continue;
        }

        old->state = NGX_MODELGW_KEY_ROTATED;
        old->version = key->version;

        if (old->expires == 0 || old->expires > until) {
            old->expires = until;
        }
    }

    rc = ngx_modelgw_managed_add(m, key);

    ngx_modelgw_managed_close(m);

    return rc;
}


/*
 * Those that were revoked, or have no record, come last: records that are not
 * in use any more make room for those that are.
 */

ngx_int_t
ngx_modelgw_managed_replace(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *keys, size_t stride, ngx_uint_t n)
{
    ngx_int_t                   rc;
    ngx_uint_t                  i, revoked;
    ngx_modelgw_managed_key_t  *key, *old;

    rc = NGX_OK;

    ngx_modelgw_managed_open(m);

    ngx_modelgw_managed_retire_id(m, &keys->id);

    for (revoked = 0; revoked < 2; revoked++) {

        for (i = 0; i < n; i++) {
            key = (ngx_modelgw_managed_key_t *) ((u_char *) keys + i * stride);

            if ((key->state == NGX_MODELGW_KEY_REVOKED) != revoked) {
                continue;
            }

            old = ngx_modelgw_managed_by_digest(m, key->digest);

            if (old && revoked) {
                ngx_modelgw_managed_retire(m, old);
                continue;
            }

            if (old) {
                ngx_modelgw_managed_delete(m, old);
            }

            if (ngx_modelgw_managed_add(m, key) != NGX_OK && !revoked) {
                rc = NGX_DECLINED;
            }
        }
    }

    ngx_modelgw_managed_close(m);

    return rc;
}


void
ngx_modelgw_managed_revoke(ngx_modelgw_managed_t *m,
    ngx_modelgw_ledger_name_t *name)
{
    ngx_modelgw_managed_open(m);
    ngx_modelgw_managed_retire_id(m, name);
    ngx_modelgw_managed_close(m);
}


static void
ngx_modelgw_managed_retire_id(ngx_modelgw_managed_t *m,
    ngx_modelgw_ledger_name_t *name)
{
    uint64_t                    slot;
    ngx_str_t                   id;
    ngx_modelgw_managed_key_t  *key;

    id.len = name->len;
    id.data = name->data;

    slot = m->nslots;

    while ((key = ngx_modelgw_managed_of_id(m, &id, &slot)) != NULL) {
        ngx_modelgw_managed_retire(m, key);
    }
}


void
ngx_modelgw_managed_expire(ngx_modelgw_managed_t *m, uint64_t now)
{
    uint64_t                    i;
    ngx_modelgw_managed_key_t  *key;

    for (i = 0; i < m->fresh; i++) {
        key = &m->records[i];

        if (key->state == NGX_MODELGW_KEY_ROTATED && key->expires < now) {
            ngx_modelgw_managed_open(m);
            ngx_modelgw_managed_retire(m, key);
            ngx_modelgw_managed_close(m);
        }
    }
}


ngx_uint_t
ngx_modelgw_managed_damaged(ngx_modelgw_managed_t *m)
{
    return __atomic_load_n(&m->seq, __ATOMIC_ACQUIRE) & 1;
}


void
ngx_modelgw_managed_begin(ngx_modelgw_managed_t *m)
{
    if (!ngx_modelgw_managed_damaged(m)) {
        ngx_modelgw_managed_open(m);
    }

    m->filling = 1;

    ngx_memzero(m->digests.slots, 2 * m->nslots * sizeof(uint32_t));
    ngx_memzero(m->records, m->fresh * sizeof(ngx_modelgw_managed_key_t));

    m->fresh = 0;
    m->free = 0;

    __atomic_store_n(&m->n, 0, __ATOMIC_RELEASE);
}


void
ngx_modelgw_managed_end(ngx_modelgw_managed_t *m)
{
    m->filling = 0;

    ngx_modelgw_managed_close(m);
}


static void
ngx_modelgw_managed_open(ngx_modelgw_managed_t *m)
{
    if (m->filling) {
        return;
    }

    __atomic_store_n(&m->seq, m->seq + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}


static void
ngx_modelgw_managed_close(ngx_modelgw_managed_t *m)
{
    if (m->filling) {
        return;
    }

    __atomic_store_n(&m->seq, m->seq + 1, __ATOMIC_RELEASE);
}


static ngx_int_t
ngx_modelgw_managed_add(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key)
{
    ngx_modelgw_managed_key_t  *k;

    if (m->free == 0 && m->fresh == m->max
        && key->state != NGX_MODELGW_KEY_REVOKED)
    {
        ngx_modelgw_managed_reuse(m);
    }

    if (m->free) {
        k = &m->records[m->free - 1];
        m->free = k->next;

    } else if (m->fresh < m->max) {
        k = &m->records[m->fresh++];

    } else {
        return NGX_DECLINED;
    }

    *k = *key;

    ngx_modelgw_managed_link(m, &m->digests, k);
    ngx_modelgw_managed_link(m, &m->ids, k);

    if (key->state != NGX_MODELGW_KEY_REVOKED) {
        __atomic_store_n(&m->n, m->n + 1, __ATOMIC_RELEASE);
    }

    return NGX_OK;
}


/* Frees the record of a revoked key, if there is one: each in turn. */

static void
ngx_modelgw_managed_reuse(ngx_modelgw_managed_t *m)
{
    uint64_t  i;

    for (i = 0; i < m->max; i++) {
        m->reused = (m->reused + 1) % m->max;

        if (m->records[m->reused].state == NGX_MODELGW_KEY_REVOKED) {
            ngx_modelgw_managed_delete(m, &m->records[m->reused]);
            return;
        }
    }
}


static void
ngx_modelgw_managed_retire(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key)
{
    if (key->state != NGX_MODELGW_KEY_REVOKED) {
        key->state = NGX_MODELGW_KEY_REVOKED;

        __atomic_store_n(&m->n, m->n - 1, __ATOMIC_RELEASE);
    }
}


static void
ngx_modelgw_managed_delete(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key)
{
    ngx_modelgw_managed_retire(m, key);

    ngx_modelgw_managed_unlink(m, &m->digests, key);
    ngx_modelgw_managed_unlink(m, &m->ids, key);

    key->state = NGX_MODELGW_KEY_FREE;
    key->next = m->free;

    m->free = key - m->records + 1;
}


static void
ngx_modelgw_managed_link(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_index_t *index, ngx_modelgw_managed_key_t *key)
{
    uint64_t  i;

    i = ngx_modelgw_managed_slot(m, index, key);

    while (index->slots[i]) {
        i = (i + 1 == m->nslots) ? 0 : i + 1;
    }

    index->slots[i] = key - m->records + 1;
}


/*
 * Frees the slot, then moves back what would not be found any more: a record
 * whose own slot is not between the free one and its place.
 */

static void
ngx_modelgw_managed_unlink(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_index_t *index, ngx_modelgw_managed_key_t *key)
{
    uint64_t  i, free, home;

    i = ngx_modelgw_managed_slot(m, index, key);

    while (index->slots[i] != key - m->records + 1) {
        i = (i + 1 == m->nslots) ? 0 : i + 1;
    }

    free = i;

    for ( ;; ) {
        index->slots[free] = 0;

        do {
            i = (i + 1 == m->nslots) ? 0 : i + 1;

            if (index->slots[i] == 0) {
                return;
            }

            home = ngx_modelgw_managed_slot(m, index,
                                          &m->records[index->slots[i] - 1]);

        } while ((free <= i) ? (free < home && home <= i)
                             : (free < home || home <= i));

        index->slots[free] = index->slots[i];
        free = i;
    }
}


static uint64_t
ngx_modelgw_managed_slot(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_index_t *index, ngx_modelgw_managed_key_t *key)
{
    ngx_str_t  id;

    if (index == &m->digests) {
        return ngx_modelgw_managed_digest_slot(m, key->digest);
    }

    id.len = key->id.len;
    id.data = key->id.data;

    return ngx_modelgw_managed_id_slot(m, &id);
}


static uint64_t
ngx_modelgw_managed_digest_slot(ngx_modelgw_managed_t *m, u_char *digest)
{
    uint32_t  hash;

    ngx_memcpy(&hash, digest, sizeof(uint32_t));

    return ((uint64_t) hash * m->nslots) >> 32;
}


static uint64_t
ngx_modelgw_managed_id_slot(ngx_modelgw_managed_t *m, ngx_str_t *id)
{
    return ((uint64_t) ngx_murmur_hash2(id->data, id->len) * m->nslots) >> 32;
}
