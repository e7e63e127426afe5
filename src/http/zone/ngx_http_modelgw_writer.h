
/*
 * The writer's thread and its batches, between the files writer*.c.
 */


#ifndef _NGX_HTTP_MODELGW_WRITER_H_INCLUDED_
#define _NGX_HTTP_MODELGW_WRITER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_BATCH_ACCOUNTS  10000  /* at most */
#define NGX_HTTP_MODELGW_BATCH_CALLS     1000

#define NGX_HTTP_MODELGW_WRITER_NONE    0    /* there is no thread */
#define NGX_HTTP_MODELGW_WRITER_WAITS   1    /* another one is the writer */
#define NGX_HTTP_MODELGW_WRITER_WRITES  2
#define NGX_HTTP_MODELGW_WRITER_ENDED   3

#define NGX_HTTP_MODELGW_WRITER_STOP    1    /* when all is written */
#define NGX_HTTP_MODELGW_WRITER_GONE    2    /* at once */


typedef struct {
    ngx_modelgw_ledger_t       *ledger;
    ngx_http_modelgw_shared_t  *shared;
    char                       *path;        /* of the store, a copy */
    uint64_t                    done;        /* calls to be durable before the
                                                thread stops */
    ngx_atomic_t                stop;        /* set by the worker; 0: no */
    ngx_atomic_t                state;       /* set by the thread */
    pthread_t                   thread;

    /* the thread's own */

    ngx_modelgw_store_t        *store;       /* NULL: not open */
    ngx_uint_t                  lost;        /* its path leads elsewhere, or
                                                to no WAL: it stays open */
    uint64_t                    look;        /* when that is next looked at */
    ngx_modelgw_store_error_t   error;       /* of the batch that failed */
    ngx_uint_t                  due;         /* holds that were there at the
                                                flush before */
    ngx_msec_t                  retry;       /* milliseconds; 0: all is well */
    time_t                      roll_up;     /* when it is next due */
} ngx_http_modelgw_writer_t;


/* writer.c */

/* For the thread: what of it, with the text of w->error. */
void ngx_http_modelgw_writer_say(ngx_http_modelgw_writer_t *w,
    ngx_http_modelgw_line_e what);


/* writer_batch.c */

/*
 * Writes what there is, as much of it as fits one batch, and tells the ledger
 * when it is durable.  now: milliseconds.
 *     NGX_OK
 *     NGX_ERROR  nothing was written, w->error says why; all of it stays to be
 *                written
 */
ngx_int_t ngx_http_modelgw_batch(ngx_http_modelgw_writer_t *w, uint64_t now);

/* Top-ups that are asked for are answered FAILED, save what may be durable. */
void ngx_http_modelgw_batch_failed(ngx_http_modelgw_writer_t *w);

/* Whether there is enough for a batch that is full. */
ngx_uint_t ngx_http_modelgw_batch_more(ngx_http_modelgw_writer_t *w);


#endif /* _NGX_HTTP_MODELGW_WRITER_H_INCLUDED_ */
