
/*
 * Keys that operators make while nginx runs: a table in shared memory of its
 * own, found by digest or by id.  The ledger's file has them, too; the writer
 * alone changes the table, as it makes changes durable.
 */


#ifndef _NGX_MODELGW_MANAGED_H_INCLUDED_
#define _NGX_MODELGW_MANAGED_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"


typedef struct ngx_modelgw_managed_s  ngx_modelgw_managed_t;


/* The bytes that a table of n keys needs, and at most that many keys. */
size_t ngx_modelgw_managed_size(ngx_uint_t n);

/*
 * Lays out a table of n keys in that much memory, which is zeroed and aligned
 * to 8 bytes.
 */
ngx_modelgw_managed_t *ngx_modelgw_managed_create(void *memory, ngx_uint_t n);

/*
 * Copies a key, in any process, without a lock.  _find() finds one that was
 * revoked, too, by its state, as long as its record was not reused; _get() the
 * one of an id that is active; _at() the i-th record, unless it was revoked.
 *     NGX_OK
 *     NGX_DECLINED  there is none
 *     NGX_BUSY      the table is being changed all the time, or its writer was
 *                   killed in a change: it is to be tried again
 */
ngx_int_t ngx_modelgw_managed_find(ngx_modelgw_managed_t *m, u_char *digest,
    ngx_modelgw_managed_key_t *key);
ngx_int_t ngx_modelgw_managed_get(ngx_modelgw_managed_t *m, ngx_str_t *id,
    ngx_modelgw_managed_key_t *key);
ngx_int_t ngx_modelgw_managed_at(ngx_modelgw_managed_t *m, ngx_uint_t i,
    ngx_modelgw_managed_key_t *key);

/*
 * The size of the table, and how many more keys it has room for: those that
 * were revoked make room.
 */
ngx_uint_t ngx_modelgw_managed_max(ngx_modelgw_managed_t *m);
ngx_uint_t ngx_modelgw_managed_free(ngx_modelgw_managed_t *m);


/*
 * For the writer, or a process that is alone.  Each may be repeated.  _put()
 * adds a key, or replaces the one with its digest.  _update() changes all keys
 * of its id, but for their digests; those that were rotated expire no later
 * than the key, and no later than before.  _rotate() adds a key, and lets the
 * others of its id expire at "until", seconds since the Epoch; 0: at once.
 * _replace() puts n keys of one id, of which each is "stride" bytes after the
 * one before, and revokes the others of the id, all at once: a search finds
 * what was there before, or what is there then.  _revoke() revokes all of an
 * id.  A key that is put as revoked takes only a record that is free.
 *     NGX_OK
 *     NGX_DECLINED  no room; _replace() has put what there is room for
 */
ngx_int_t ngx_modelgw_managed_put(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key);
void ngx_modelgw_managed_update(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key);
ngx_int_t ngx_modelgw_managed_rotate(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *key, uint64_t until);
ngx_int_t ngx_modelgw_managed_replace(ngx_modelgw_managed_t *m,
    ngx_modelgw_managed_key_t *keys, size_t stride, ngx_uint_t n);
void ngx_modelgw_managed_revoke(ngx_modelgw_managed_t *m,
    ngx_modelgw_ledger_name_t *id);

/*
 * Revokes keys that were rotated and expired before "now", seconds since the
 * Epoch.
 */
void ngx_modelgw_managed_expire(ngx_modelgw_managed_t *m, uint64_t now);

/*
 * Whether a writer was killed in a change.  Then the table is to be filled
 * again, between _begin(), which empties it, and _end(): until then all
 * searches return NGX_BUSY.
 */
ngx_uint_t ngx_modelgw_managed_damaged(ngx_modelgw_managed_t *m);
void ngx_modelgw_managed_begin(ngx_modelgw_managed_t *m);
void ngx_modelgw_managed_end(ngx_modelgw_managed_t *m);


#endif /* _NGX_MODELGW_MANAGED_H_INCLUDED_ */
