
/*
 * Service keys: the secret in a request, its digest, the table of keys.
 */


#ifndef _NGX_MODELGW_KEY_H_INCLUDED_
#define _NGX_MODELGW_KEY_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MODELGW_KEY_DIGEST  32       /* SHA-256, FIPS 180-4 */


typedef struct {
    u_char                digest[NGX_MODELGW_KEY_DIGEST];
    ngx_str_t             id;
    ngx_str_t             account;       /* the id, if not configured */
    void                 *group;
    ngx_array_t          *models;        /* of ngx_str_t; NULL: all of the
                                            group */
    time_t                expires;       /* the first second when it is refused;
                                            0: never */
    uint32_t              rpm;           /* requests per minute; 0: no limit */
    uint32_t              tpm;           /* tokens per minute; 0: no limit */
    uint32_t              concurrency;   /* calls in flight; 0: no limit */
    uint32_t              window;        /* of the budget */
    int64_t               budget;        /* nano-euro; 0: none */
    uint32_t              slot;          /* index of its limits in the ledger */
    uint32_t              account_index; /* of its account there */
    uint32_t              cell;          /* of it in the metrics; 0: none */
    unsigned              managed:1;     /* made while nginx runs: digest is in
                                            the table of these */
    unsigned              revoked:1;     /* it is refused */
} ngx_modelgw_key_t;


typedef struct ngx_modelgw_keys_s  ngx_modelgw_keys_t;


/*
 * SHA-256 of the secret; digest has room for NGX_MODELGW_KEY_DIGEST bytes.
 *     NGX_OK, NGX_ERROR (OpenSSL failed)
 */
ngx_int_t ngx_modelgw_key_digest(ngx_str_t *secret, u_char *digest);

/*
 * HMAC-SHA256 (RFC 2104) of the text of len bytes; code has room for
 * NGX_MODELGW_KEY_DIGEST bytes.
 *     NGX_OK, NGX_ERROR (OpenSSL failed)
 */
ngx_int_t ngx_modelgw_key_code(u_char *secret, size_t secret_len, u_char *text,
    size_t len, u_char *code);

/* Whether two digests are equal, in constant time. */
ngx_uint_t ngx_modelgw_key_equal(u_char *one, u_char *two);

/* Fills bytes of a new secret: NGX_OK, NGX_ERROR (OpenSSL failed). */
ngx_int_t ngx_modelgw_key_random(u_char *bytes, size_t len);

/*
 * Finds the secret in the value of an Authorization header (bearer is 1: after
 * the scheme "Bearer" in any case and blanks, RFC 6750 2.1, RFC 7235 2.1) or of
 * x-api-key (bearer is 0).  Surrounding blanks are dropped.
 *     NGX_OK        *secret is a part of value and not empty
 *     NGX_DECLINED  there is none: another scheme, or nothing after it
 */
ngx_int_t ngx_modelgw_key_secret(ngx_str_t *value, ngx_uint_t bearer,
    ngx_str_t *secret);

/*
 * Creates an empty table in pool.  temp is used for what is needed only until
 * ngx_modelgw_keys_ready().
 *     NULL  no memory
 */
ngx_modelgw_keys_t *ngx_modelgw_keys_create(ngx_pool_t *pool, ngx_pool_t *temp);

/*
 * Adds a key: returns its record, with digest and id set and the rest zero, for
 * the caller to fill.  id->data must live as long as the table.
 *     NULL  *twin is the record that has the same id or digest already, or
 *           NULL: no memory
 */
ngx_modelgw_key_t *ngx_modelgw_keys_add(ngx_modelgw_keys_t *keys,
    u_char *digest, ngx_str_t *id, ngx_modelgw_key_t **twin);

/*
 * Prepares the table for ngx_modelgw_keys_find(); no key may be added after it.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_keys_ready(ngx_modelgw_keys_t *keys);

/*
 * Returns the key with the digest, or NULL.  The time it takes does not reveal
 * how many bytes of the digest match.
 */
ngx_modelgw_key_t *ngx_modelgw_keys_find(ngx_modelgw_keys_t *keys,
    u_char *digest);

/*
 * Prepares the table for ngx_modelgw_keys_named(), which returns the key with
 * the id, or NULL.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_keys_index(ngx_modelgw_keys_t *keys);
ngx_modelgw_key_t *ngx_modelgw_keys_named(ngx_modelgw_keys_t *keys,
    ngx_str_t *id);

/*
 * Reads a date, "2027-01-01", as the first second of that day, UTC.
 *     NGX_OK        *time is set; years 1970 to 9999
 *     NGX_DECLINED  no such day
 */
ngx_int_t ngx_modelgw_key_date(ngx_str_t *text, time_t *time);

/*
 * Reads the 64 hex digits of a digest; digest has room for
 * NGX_MODELGW_KEY_DIGEST bytes.
 *     NGX_OK        digest is set
 *     NGX_DECLINED  another length, or no hex digits
 */
ngx_int_t ngx_modelgw_key_hex(ngx_str_t *text, u_char *digest);

/* Returns the number of keys in the table. */
ngx_uint_t ngx_modelgw_keys_count(ngx_modelgw_keys_t *keys);

/*
 * The next key in the order of adding; NULL: no more.  *pos is zeroed before
 * the first call.
 */

typedef struct {
    ngx_list_part_t      *part;
    ngx_uint_t            i;
} ngx_modelgw_keys_pos_t;

ngx_modelgw_key_t *ngx_modelgw_keys_next(ngx_modelgw_keys_t *keys,
    ngx_modelgw_keys_pos_t *pos);


#endif /* _NGX_MODELGW_KEY_H_INCLUDED_ */
