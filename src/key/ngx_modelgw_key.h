
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
    ngx_str_t             account;       /* the id, if none was given */
    void                 *group;
    ngx_array_t          *models;        /* of ngx_str_t; NULL: all of the
                                            group */
    time_t                expires;       /* first second it is refused;
                                            0: never */
    uint32_t              rpm;           /* requests a minute; 0: no limit */
    uint32_t              tpm;           /* tokens a minute; 0: no limit */
    uint32_t              concurrency;   /* calls in flight; 0: no limit */
    uint32_t              slot;          /* of its limits, in the ledger */
    uint32_t              account_index; /* likewise */
} ngx_modelgw_key_t;


typedef struct ngx_modelgw_keys_s  ngx_modelgw_keys_t;


/*
 * digest has room for NGX_MODELGW_KEY_DIGEST bytes.
 *     NGX_OK, NGX_ERROR (OpenSSL failed)
 */
ngx_int_t ngx_modelgw_key_digest(ngx_str_t *secret, u_char *digest);

/*
 * Finds the secret in the value of an Authorization header (bearer set: after
 * the scheme "Bearer" in any case and blanks, RFC 6750 2.1, RFC 7235 2.1) or of
 * x-api-key (bearer 0).  Blanks around it are dropped.
 *     NGX_OK        *secret is a part of value and not empty
 *     NGX_DECLINED  there is none: another scheme, or nothing behind it
 */
ngx_int_t ngx_modelgw_key_secret(ngx_str_t *value, ngx_uint_t bearer,
    ngx_str_t *secret);

/*
 * A table with room to grow, in the pool.  temp is used for what is needed only
 * until ngx_modelgw_keys_ready().  NULL: no memory.
 */
ngx_modelgw_keys_t *ngx_modelgw_keys_create(ngx_pool_t *pool, ngx_pool_t *temp);

/*
 * Adds a key: returns its record, with digest and id set and the rest zero, for
 * the caller to fill.  id.data must live as long as the table.
 *     NULL  *twin says why: the record that has the same digest or id already,
 *           or NULL: no memory
 */
ngx_modelgw_key_t *ngx_modelgw_keys_add(ngx_modelgw_keys_t *keys,
    u_char *digest, ngx_str_t *id, ngx_modelgw_key_t **twin);

/* Lays out the table for ngx_modelgw_keys_find(): NGX_OK, NGX_ERROR. */
ngx_int_t ngx_modelgw_keys_ready(ngx_modelgw_keys_t *keys);

/*
 * Returns the key with the digest, NULL if there is none.  The time it takes
 * does not tell how many bytes of the digest were right.
 */
ngx_modelgw_key_t *ngx_modelgw_keys_find(ngx_modelgw_keys_t *keys,
    u_char *digest);

/*
 * Reads "2027-01-01" as the first second of that day, UTC.
 *     NGX_OK        *time is set; years 1970 to 9999
 *     NGX_DECLINED  there is no such day
 */
ngx_int_t ngx_modelgw_key_date(ngx_str_t *text, time_t *time);

/*
 * Reads the 64 hex digits of a digest; digest has room for
 * NGX_MODELGW_KEY_DIGEST bytes.
 *     NGX_OK, NGX_DECLINED
 */
ngx_int_t ngx_modelgw_key_hex(ngx_str_t *text, u_char *digest);

ngx_uint_t ngx_modelgw_keys_count(ngx_modelgw_keys_t *keys);

/* The next key, in the order in which they were added; pos is zero at first. */

typedef struct {
    ngx_list_part_t      *part;
    ngx_uint_t            i;
} ngx_modelgw_keys_pos_t;

ngx_modelgw_key_t *ngx_modelgw_keys_next(ngx_modelgw_keys_t *keys,
    ngx_modelgw_keys_pos_t *pos);


#endif /* _NGX_MODELGW_KEY_H_INCLUDED_ */
