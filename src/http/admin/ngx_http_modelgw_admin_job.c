
/*
 * Jobs of the admin interface: each has a thread, which the event loop polls
 * every few milliseconds until it is done.
 *
 *     created   owned by the request; freed with it if not started
 *     running   owned by the thread; if the request is closed, the store is
 *               interrupted and the response dropped
 *     done      owned by the event loop, which joins the thread.  Freed with
 *               the request, whose response is in the job's pool, or at once
 *               if the request is closed; or runs again, for the next part of
 *               a CSV
 *
 * When a worker exits, the cycle's pool is destroyed and the module's code
 * unloaded: a cleanup of that pool waits for the threads.
 *
 * Rejected: nginx's thread pools; they need nginx to be built with
 * "--with-threads" and to be sized by the operator, and a query of minutes
 * would delay the sending of files.  These jobs are few and rare.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>

#include "ngx_modelgw_store_cluster.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_zone.h"


/* a kind of jobs, which takes no places of the others */

typedef struct {
    ngx_uint_t  flag;                    /* of a route; 0: all others */
    ngx_uint_t  max;                     /* per worker, at a time */
    ngx_uint_t  created;                 /* and not yet freed */
} ngx_http_modelgw_job_kind_t;


static ngx_http_modelgw_job_kind_t *ngx_http_modelgw_job_kind(
    ngx_uint_t flags);
static void ngx_http_modelgw_job_gone(void *data);
static void ngx_http_modelgw_job_interrupt(ngx_http_modelgw_job_t *job);
static void ngx_http_modelgw_job_free(ngx_http_modelgw_job_t *job);
static ngx_int_t ngx_http_modelgw_job_thread(ngx_http_modelgw_job_t *job);
static void *ngx_http_modelgw_job_run(void *data);
static ngx_int_t ngx_http_modelgw_job_read(ngx_http_modelgw_job_t *job);
static ngx_modelgw_store_t *ngx_http_modelgw_job_open(
    ngx_http_modelgw_job_t *job);
static void ngx_http_modelgw_job_poll(ngx_event_t *ev);
static void ngx_http_modelgw_job_answer(ngx_http_modelgw_job_t *job);
static void ngx_http_modelgw_job_send(ngx_http_modelgw_job_t *job);
static ngx_int_t ngx_http_modelgw_job_header(ngx_http_modelgw_job_t *job);
static void ngx_http_modelgw_job_writable(ngx_http_request_t *r);
static void ngx_http_modelgw_job_sent(ngx_http_modelgw_job_t *job,
    ngx_int_t rc);
static ngx_int_t ngx_http_modelgw_job_at_exit(void);
static void ngx_http_modelgw_job_exit(void *data);


/*
 * No question can fail a scrape, those of the store wait for the disk, and a
 * slow client keeps a download for long.  Holders of keys are clients of the
 * gateway: their questions leave the places of operators alone.
 */

static ngx_http_modelgw_job_kind_t  ngx_http_modelgw_jobs[] = {
    { NGX_HTTP_MODELGW_ADMIN_SCRAPE, 2, 0 },
    { NGX_HTTP_MODELGW_ADMIN_HOLDER, 6, 0 },
    { NGX_HTTP_MODELGW_ADMIN_CSV, 2, 0 },
    { NGX_HTTP_MODELGW_ADMIN_STORE, 4, 0 },
    { 0, 4, 0 }
};

static ngx_queue_t  ngx_http_modelgw_jobs_running;
static ngx_uint_t   ngx_http_modelgw_jobs_ready;     /* queue initialized */


ngx_int_t
ngx_http_modelgw_job_create(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t flags, ngx_http_modelgw_job_t **created)
{
    ngx_pool_t                   *pool;
    ngx_pool_cleanup_t           *cln;
    ngx_http_modelgw_job_t       *job;
    ngx_http_modelgw_job_kind_t  *kind;

    kind = ngx_http_modelgw_job_kind(flags);

    if (kind->created >= kind->max) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "%ui requests are being processed, "
                                      "try again", kind->max);
    }

    if (ngx_http_modelgw_job_at_exit() != NGX_OK) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    job = ngx_pcalloc(pool, sizeof(ngx_http_modelgw_job_t));

    if (job == NULL || pthread_mutex_init(&job->mutex, NULL) != 0) {
        ngx_destroy_pool(pool);
        return NGX_ERROR;
    }

    job->pool = pool;
    job->flags = flags;
    job->request = r;
    job->ctx = ctx;
    job->status = NGX_HTTP_OK;
    job->mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    cln->handler = ngx_http_modelgw_job_gone;
    cln->data = job;

    kind->created++;

    *created = job;

    return NGX_OK;
}


static ngx_http_modelgw_job_kind_t *
ngx_http_modelgw_job_kind(ngx_uint_t flags)
{
    ngx_http_modelgw_job_kind_t  *kind;

    for (kind = ngx_http_modelgw_jobs; kind->flag; kind++) {

        if (flags & kind->flag) {
            break;
        }
    }

    return kind;
}


/* the request is closed */

static void
ngx_http_modelgw_job_gone(void *data)
{
    ngx_http_modelgw_job_t  *job = data;

    job->request = NULL;

    if (!job->timer.timer_set) {
        ngx_http_modelgw_job_free(job);
        return;
    }

    ngx_http_modelgw_job_interrupt(job);
}


/*
 * To be repeated until the job is done: an interrupt between two statements of
 * the store has no effect.
 */

static void
ngx_http_modelgw_job_interrupt(ngx_http_modelgw_job_t *job)
{
    (void) pthread_mutex_lock(&job->mutex);

    job->gone = 1;

    if (job->store) {
        ngx_modelgw_store_interrupt(job->store);
    }

    (void) pthread_mutex_unlock(&job->mutex);
}


static void
ngx_http_modelgw_job_free(ngx_http_modelgw_job_t *job)
{
    ngx_http_modelgw_job_kind(job->flags)->created--;

    (void) pthread_mutex_destroy(&job->mutex);

    if (job->part) {
        ngx_destroy_pool(job->part);
    }

    ngx_destroy_pool(job->pool);
}


void
ngx_http_modelgw_job_start(ngx_http_modelgw_job_t *job)
{
    ngx_http_request_t  *r;

    r = job->request;

    if (job->flags & NGX_HTTP_MODELGW_ADMIN_CSV) {
        job->part = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    }

    if (((job->flags & NGX_HTTP_MODELGW_ADMIN_CSV) && job->part == NULL)
        || ngx_http_modelgw_job_thread(job) != NGX_OK)
    {
        ngx_http_finalize_request(r, job->begun
                                     ? NGX_ERROR
                                     : NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    ngx_queue_insert_tail(&ngx_http_modelgw_jobs_running, &job->queue);

    job->timer.handler = ngx_http_modelgw_job_poll;
    job->timer.data = job;
    job->timer.log = ngx_cycle->log;

    ngx_add_timer(&job->timer, NGX_HTTP_MODELGW_ADMIN_POLL);

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;
}


static ngx_int_t
ngx_http_modelgw_job_thread(ngx_http_modelgw_job_t *job)
{
    ngx_err_t  err;

    job->done = 0;

    err = ngx_http_modelgw_process_thread(&job->thread,
                                          ngx_http_modelgw_job_run, job);
    if (err) {
        ngx_log_error(NGX_LOG_ERR, job->request->connection->log, err,
                      "pthread_create() failed");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* runs in the thread, as the next function does */

static void *
ngx_http_modelgw_job_run(void *data)
{
    ngx_http_modelgw_job_t  *job = data;

    job->rc = (job->flags & NGX_HTTP_MODELGW_ADMIN_STORE)
              ? ngx_http_modelgw_job_read(job)
              : job->handler(job, NULL);

    __atomic_store_n(&job->done, 1, __ATOMIC_RELEASE);

    return NULL;
}


static ngx_int_t
ngx_http_modelgw_job_read(ngx_http_modelgw_job_t *job)
{
    ngx_int_t             rc;
    ngx_uint_t            gone;
    ngx_modelgw_store_t  *store;

    store = ngx_http_modelgw_job_open(job);
    if (store == NULL) {
        return NGX_ERROR;
    }

    (void) pthread_mutex_lock(&job->mutex);

    job->store = store;
    gone = job->gone;

    (void) pthread_mutex_unlock(&job->mutex);

    rc = gone ? NGX_ERROR : job->handler(job, store);

    if (rc != NGX_OK) {
        ngx_modelgw_store_error(store, &job->error);
    }

    (void) pthread_mutex_lock(&job->mutex);

    job->store = NULL;

    (void) pthread_mutex_unlock(&job->mutex);

    ngx_modelgw_store_close(store);

    return rc;
}


/* the ledger of all nodes, or the file of this one */

static ngx_modelgw_store_t *
ngx_http_modelgw_job_open(ngx_http_modelgw_job_t *job)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = job->mmcf;

    if (mmcf->cluster && !job->local) {
        return ngx_modelgw_store_open_cluster(&mmcf->cluster->pq, &job->error);
    }

    return ngx_modelgw_store_open_read((char *) mmcf->ledger_path.data,
                                       &mmcf->shared->file, &job->error);
}


static void
ngx_http_modelgw_job_poll(ngx_event_t *ev)
{
    ngx_connection_t        *c;
    ngx_http_modelgw_job_t  *job;

    job = ev->data;

    if (!__atomic_load_n(&job->done, __ATOMIC_ACQUIRE)) {

        if (job->request == NULL) {
            ngx_http_modelgw_job_interrupt(job);
        }

        ngx_add_timer(ev, NGX_HTTP_MODELGW_ADMIN_POLL);
        return;
    }

    (void) pthread_join(job->thread, NULL);

    ngx_queue_remove(&job->queue);

    if (job->request == NULL) {
        ngx_http_modelgw_job_free(job);
        return;
    }

    c = job->request->connection;

    ngx_http_set_log_request(c->log, job->request);

    ngx_http_modelgw_job_answer(job);

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_modelgw_job_answer(ngx_http_modelgw_job_t *job)
{
    ngx_int_t                rc;
    ngx_str_t                text;
    ngx_http_request_t      *r;
    ngx_http_modelgw_ctx_t  *ctx;

    r = job->request;
    ctx = job->ctx;

    if ((job->flags & NGX_HTTP_MODELGW_ADMIN_CSV)
        && (job->rc == NGX_OK || job->rc == NGX_AGAIN))
    {
        ngx_http_modelgw_job_send(job);
        return;
    }

    if (job->rc == NGX_OK && job->type.len) {
        (void) ngx_http_modelgw_reply_text(r, ctx, NGX_HTTP_OK, &job->type,
                                           &job->body);
        return;
    }

    if (job->rc == NGX_OK) {

        if (job->version
            && ngx_http_modelgw_admin_etag(r, job->version) != NGX_OK)
        {
            ngx_http_modelgw_admin_refuse(r, ctx, NGX_ERROR);
            return;
        }

        ngx_http_modelgw_admin_reply(r, ctx, job->status, &job->body);
        return;
    }

    if (job->rc == NGX_BUSY) {
        rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                    "INVALID_FIELD",
                                    "Too many rows, ask for a shorter time");
        ngx_http_modelgw_admin_refuse(r, ctx, rc);
        return;
    }

    if (job->rc == NGX_DECLINED) {
        rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_NOT_FOUND, "NOT_FOUND",
                                    "Not found: \"%V\"", &r->uri);
        ngx_http_modelgw_admin_refuse(r, ctx, rc);
        return;
    }

    text.len = job->error.len;
    text.data = job->error.data;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "the ledger could not be read: %V", &text);

    /* without its last chunk the client sees that the answer is not whole */

    if (job->begun) {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    rc = ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                "SERVICE_UNAVAILABLE", "%s cannot be read",
                                ngx_http_modelgw_admin_books(r));

    ngx_http_modelgw_admin_refuse(r, ctx, rc);
}


/*
 * Sends a part of an answer.  The next one is read when the client has taken
 * this one, so an answer of any size needs the memory of one part.
 */

static void
ngx_http_modelgw_job_send(ngx_http_modelgw_job_t *job)
{
    ngx_int_t            rc;
    ngx_buf_t           *b;
    ngx_chain_t          out;
    ngx_http_request_t  *r;

    r = job->request;

    if (!job->begun) {
        rc = ngx_http_modelgw_job_header(job);

        if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
            ngx_http_finalize_request(r, rc);
            return;
        }

        job->begun = 1;
    }

    /* filters may keep the buf when its bytes were sent, and read its tag */

    b = &job->buf;
    ngx_memzero(b, sizeof(ngx_buf_t));

    b->pos = job->body.data;
    b->last = job->body.data + job->body.len;
    b->memory = (job->body.len != 0);
    b->flush = 1;
    b->last_buf = (job->rc == NGX_OK);
    b->last_in_chain = b->last_buf;

    out.buf = b;
    out.next = NULL;

    ngx_http_modelgw_job_sent(job, ngx_http_output_filter(r, &out));
}


static ngx_int_t
ngx_http_modelgw_job_header(ngx_http_modelgw_job_t *job)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = job->request;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_modelgw_headers_no_store(r) != NGX_OK) {
        return NGX_ERROR;
    }

    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, "text/csv; charset=utf-8");
    r->headers_out.content_type_len = sizeof("text/csv") - 1;

    job->ctx->answer.mode = NGX_HTTP_MODELGW_OWN;
    r->disable_not_modified = 1;

    return ngx_http_send_header(r);
}


/* the client may take more */

static void
ngx_http_modelgw_job_writable(ngx_http_request_t *r)
{
    ngx_event_t               *wev;
    ngx_connection_t          *c;
    ngx_pool_cleanup_t        *cln;
    ngx_http_core_loc_conf_t  *clcf;

    c = r->connection;
    wev = c->write;

    if (wev->delayed) {
        clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

        if (ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_ERROR);
        }

        return;
    }

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, c->log, NGX_ETIMEDOUT,
                      "client timed out");
        c->timedout = 1;

        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    for (cln = r->pool->cleanup;
         cln->handler != ngx_http_modelgw_job_gone;
         cln = cln->next)
    {
        /* void */
    }

    ngx_http_modelgw_job_sent(cln->data, ngx_http_output_filter(r, NULL));
}


/* rc: of the filters */

static void
ngx_http_modelgw_job_sent(ngx_http_modelgw_job_t *job, ngx_int_t rc)
{
    ngx_event_t               *wev;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = job->request;
    wev = r->connection->write;

    if (rc == NGX_ERROR || job->rc == NGX_OK) {
        ngx_http_finalize_request(r, rc);
        return;
    }

    if (r->buffered || r->connection->buffered || wev->delayed) {
        clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

        r->write_event_handler = ngx_http_modelgw_job_writable;

        /* the timer is that of "limit_rate" */

        if (!wev->delayed) {
            ngx_add_timer(wev, clcf->send_timeout);
        }

        if (ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_ERROR);
        }

        return;
    }

    if (wev->timer_set) {
        ngx_del_timer(wev);
    }

    ngx_destroy_pool(job->part);
    job->part = NULL;

    ngx_http_modelgw_job_start(job);
}


/* once in a process */

static ngx_int_t
ngx_http_modelgw_job_at_exit(void)
{
    ngx_pool_cleanup_t  *cln;

    if (ngx_http_modelgw_jobs_ready) {
        return NGX_OK;
    }

    cln = ngx_pool_cleanup_add(ngx_cycle->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_modelgw_job_exit;

    ngx_queue_init(&ngx_http_modelgw_jobs_running);
    ngx_http_modelgw_jobs_ready = 1;

    return NGX_OK;
}


static void
ngx_http_modelgw_job_exit(void *data)
{
    ngx_queue_t             *q;
    ngx_http_modelgw_job_t  *job;

    while (!ngx_queue_empty(&ngx_http_modelgw_jobs_running)) {

        q = ngx_queue_head(&ngx_http_modelgw_jobs_running);
        ngx_queue_remove(q);

        job = ngx_queue_data(q, ngx_http_modelgw_job_t, queue);

        while (!__atomic_load_n(&job->done, __ATOMIC_ACQUIRE)) {
            ngx_http_modelgw_job_interrupt(job);
            ngx_msleep(1);
        }

        (void) pthread_join(job->thread, NULL);

        ngx_http_modelgw_job_free(job);
    }
}
