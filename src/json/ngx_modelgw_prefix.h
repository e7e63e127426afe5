
/*
 * A keyed hash of the prefixes of a document, of 128 bits.
 *
 * The document is the coefficients of a polynomial over GF(2^128), the secret
 * is where it is evaluated.  Two documents that differ, in length or in a byte,
 * have the same hash for at most n of all 2^128 secrets, if the longer one has
 * n blocks of 16 bytes (Wegman and Carter, "New hash functions and their use in
 * authentication and set equality", 1981).  Without the
 * secret there is no better way than to guess, as long as hashes are not shown.
 */


#ifndef _NGX_MODELGW_PREFIX_H_INCLUDED_
#define _NGX_MODELGW_PREFIX_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MODELGW_PREFIX_KEY    16         /* bytes of a secret */
#define NGX_MODELGW_PREFIX_UNIT   512        /* bytes */


typedef struct ngx_modelgw_prefix_key_s  ngx_modelgw_prefix_key_t;


typedef struct {
    uint64_t    low;
    uint64_t    high;
} ngx_modelgw_prefix_hash_t;


typedef struct {
    ngx_modelgw_prefix_key_t   *key;
    ngx_modelgw_prefix_hash_t   hash;        /* of all units so far */
    size_t                      len;         /* bytes of part */
    u_char                      part[NGX_MODELGW_PREFIX_UNIT];
} ngx_modelgw_prefix_t;


typedef void (*ngx_modelgw_prefix_pt)(ngx_modelgw_prefix_key_t *key,
    ngx_modelgw_prefix_hash_t *hash, u_char *p, size_t len);


typedef struct {
    ngx_str_t                name;
    ngx_modelgw_prefix_pt    units;  /* hashes len bytes, whole units */
} ngx_modelgw_prefix_variant_t;


/*
 * Returns the variants of the hash that this processor can run, the fastest one
 * first, which all give the same hashes; *n is set to their number, 0 if it has
 * no instructions for them.
 */
ngx_modelgw_prefix_variant_t *ngx_modelgw_prefix_variants(ngx_uint_t *n);

/*
 * Returns a key for a secret of NGX_MODELGW_PREFIX_KEY bytes; NULL if there is
 * no memory.
 */
ngx_modelgw_prefix_key_t *ngx_modelgw_prefix_key(ngx_pool_t *pool,
    ngx_modelgw_prefix_variant_t *variant, u_char *secret);

/*
 * Begins the hash of a document.  The label, of at most
 * NGX_MODELGW_PREFIX_UNIT - 32 bytes, and the number are hashed before it.
 */
void ngx_modelgw_prefix_begin(ngx_modelgw_prefix_t *h,
    ngx_modelgw_prefix_key_t *key, uint64_t number, ngx_str_t *label);

/*
 * The next bytes.  h->hash is that of all bytes so far if they are a multiple
 * of NGX_MODELGW_PREFIX_UNIT.
 */
void ngx_modelgw_prefix_update(ngx_modelgw_prefix_t *h, u_char *p, size_t len);


#endif /* _NGX_MODELGW_PREFIX_H_INCLUDED_ */
