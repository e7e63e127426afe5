
/*
 * The admin interface, among its own files: routes, replies, and the jobs that
 * read the store on a thread.
 */


#ifndef _NGX_HTTP_MODELGW_ADMIN_H_INCLUDED_
#define _NGX_HTTP_MODELGW_ADMIN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"


#define NGX_HTTP_MODELGW_ADMIN_BODY    4096    /* bytes of a request's body */
#define NGX_HTTP_MODELGW_ADMIN_TOPUPS  100     /* shown of an account */
#define NGX_HTTP_MODELGW_ADMIN_POLL    5       /* milliseconds */


/* what query strings there may be */
#define NGX_HTTP_MODELGW_ADMIN_NO_QUERY  0
#define NGX_HTTP_MODELGW_ADMIN_QUERY     1
#define NGX_HTTP_MODELGW_ADMIN_BY        2     /* with by= */


/* characters of ids of keys, accounts and top-ups beside letters and digits */
#define NGX_HTTP_MODELGW_ADMIN_ID      "._@:-"


/*
 * A job: what is not for the event loop.  Its handler runs on a thread of its
 * own, and touches only the job, its pool, the configuration and the ledger.
 */

typedef struct ngx_http_modelgw_job_s  ngx_http_modelgw_job_t;

/*
 * store is NULL if the job does not want it.
 *     NGX_OK        job->body is the answer
 *     NGX_ERROR     no memory, or the store failed
 */
typedef ngx_int_t (*ngx_http_modelgw_job_pt)(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);

struct ngx_http_modelgw_job_s {
    ngx_http_modelgw_job_pt           handler;
    ngx_http_modelgw_main_conf_t     *mmcf;
    ngx_pool_t                       *pool;
    ngx_uint_t                        reads;       /* the store is wanted */

    /* for handlers */
    uint32_t                          account;
    ngx_modelgw_store_by_e            by;
    ngx_modelgw_store_filter_t        filter;

    ngx_str_t                         body;

    /* job.c's own */
    ngx_int_t                         rc;
    ngx_modelgw_store_error_t         error;       /* len 0: none */
    ngx_http_request_t               *request;     /* NULL: it has gone */
    ngx_http_modelgw_ctx_t           *ctx;
    ngx_event_t                       timer;
    pthread_t                         thread;
    pthread_mutex_t                   mutex;       /* of the two below */
    ngx_modelgw_store_t              *store;
    ngx_uint_t                        gone;        /* nobody waits for it */
    ngx_uint_t                        done;
    ngx_queue_t                       queue;
};


/* admin_conf.c: modelgw_admin */

/*
 * Checks and adjusts the location that cf->ctx is at, as it is merged.
 *     NGX_CONF_OK, or NGX_CONF_ERROR after a line in the log
 */
char *ngx_http_modelgw_admin_location(ngx_conf_t *cf,
    ngx_http_modelgw_loc_conf_t *parent, ngx_http_modelgw_loc_conf_t *conf);


/* admin_guard.c */

/*
 * Whether the request may use the interface at all.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error says why
 *     NGX_ERROR     no memory, or the kernel does not say
 */
ngx_int_t ngx_http_modelgw_admin_guard(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);


/* admin.c: routes and replies */

/* The content handler. */
ngx_int_t ngx_http_modelgw_admin_handler(ngx_http_request_t *r);

/*
 * Answer and finalize the request: with the JSON in body, or with what a
 * function said that set ctx->error (NGX_DECLINED; else it is a 500).
 */
void ngx_http_modelgw_admin_reply(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_str_t *body);
void ngx_http_modelgw_admin_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_int_t rc);


/*
 * admin_job.c.  job_create() has set ctx->error if it gives
 *     NGX_DECLINED  there are too many
 *     NGX_ERROR     no memory
 * job_start() takes the request over in any case: it is answered by then or
 * later.
 */

ngx_int_t ngx_http_modelgw_job_create(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t **job);
void ngx_http_modelgw_job_start(ngx_http_modelgw_job_t *job);


/* admin_accounts.c: balances as they stand in shared memory */

ngx_int_t ngx_http_modelgw_admin_accounts(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_account(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);

/*
 * The index of the account that a path names.
 *     NGX_OK
 *     NGX_DECLINED  there is none, ctx->error says so
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_account_find(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id, uint32_t *index);


/* admin_keys.c: keys as they are configured */

ngx_int_t ngx_http_modelgw_admin_keys(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);


/* admin_query.c: calls and usage */

/*
 * Reads the query string into job->filter and job->by; query is one of those
 * above.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_query(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_job_t *job,
    ngx_uint_t query);

ngx_int_t ngx_http_modelgw_admin_calls(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);
ngx_int_t ngx_http_modelgw_admin_usage(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store);


/*
 * admin_body.c: scans the body, which has been read, into ctx->scan; the fields
 * are all that it may have.
 *     NGX_OK
 *     NGX_DECLINED  refused, ctx->error says why
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_http_modelgw_admin_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_scan_watch_t *fields,
    ngx_uint_t n);


/* admin_topup.c */

/*
 * Takes the request over: reads the body, asks the writer, waits, answers.
 * Returns as a content handler does.
 */
ngx_int_t ngx_http_modelgw_admin_topup(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *account);


#endif /* _NGX_HTTP_MODELGW_ADMIN_H_INCLUDED_ */
