
/*
 * The zone, between the files zone*.c and the writer.
 */


#ifndef _NGX_HTTP_MODELGW_ZONE_H_INCLUDED_
#define _NGX_HTTP_MODELGW_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"


#define NGX_HTTP_MODELGW_LINES  8    /* of the log, at a time */


/* what a writer has to say, with the text of an error */

typedef enum {
    NGX_HTTP_MODELGW_LINE_FAILED = 0,
    NGX_HTTP_MODELGW_LINE_WELL,          /* without a text */
    NGX_HTTP_MODELGW_LINE_SAVED
} ngx_http_modelgw_line_e;


typedef struct {
    ngx_http_modelgw_line_e    what;
    size_t                     len;
    u_char                     text[NGX_MODELGW_STORE_ERROR];
} ngx_http_modelgw_line_t;


/*
 * The first page of the zone: settings of the configuration that is in force,
 * for the writer, which may be of an older one; and what outlives a writer.
 */

struct ngx_http_modelgw_shared_s {
    ngx_atomic_t               flush;    /* milliseconds */
    ngx_atomic_t               keep;     /* seconds */

    ngx_atomic_t               doubt;    /* of a writer: what the WAL has may
                                            be in memory only */
    ngx_atomic_t               hung;     /* a worker has said so in its log */
    ngx_atomic_t               patience; /* of a writer: until then a lock of
                                            the file does not stop calls; 0:
                                            it does; milliseconds */

    /* a ring: the writer says, any worker logs */

    ngx_atomic_t               said;     /* how many, ever */
    ngx_atomic_t               logged;
    ngx_http_modelgw_line_t    lines[NGX_HTTP_MODELGW_LINES];

    ngx_modelgw_store_file_t   file;     /* that the memory belongs to */
};


/* zone.c: the init of ngx_shm_zone_t */

ngx_int_t ngx_http_modelgw_zone_init(ngx_shm_zone_t *zone, void *data);

/* The zone of the cycle that is in force; NULL: it has none. */
ngx_shm_zone_t *ngx_http_modelgw_zone_known(void);

/* The id of the first call, if "last" is the highest of the store. */
uint64_t ngx_http_modelgw_zone_first_id(uint64_t last);

/*
 * As a configuration comes by a reload: whether the accounts that the ledger
 * does not have yet find room in it.  The ledger keeps all that it ever had, so
 * what is in force decides, not the configuration.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_zone_check_more(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log);

/* Whether the key has limits, its own or its group's. */
ngx_uint_t ngx_http_modelgw_zone_limited(ngx_modelgw_key_t *key);


/* zone_store.c: from the store to shared memory, as nginx starts */

/*
 * Locks the ledger for this nginx, makes it in the memory given and fills it
 * from the store; under "nginx -t" nothing on disk is touched.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_zone_load(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log, u_char *memory, size_t size);

/*
 * The lock is kept as long as a cycle has it, or a worker of one, and so is the
 * file: each cycle has descriptors of its own, which are closed with its pool.
 *     NGX_OK, NGX_ERROR (logged)
 */
ngx_int_t ngx_http_modelgw_zone_relock(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_main_conf_t *old);


#endif /* _NGX_HTTP_MODELGW_ZONE_H_INCLUDED_ */
