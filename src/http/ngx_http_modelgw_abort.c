
/*
 * A client that closes its connection before its answer has ended.
 *
 * Its call goes on upstream and is billed there, and what it cost is known only
 * at its end.  So a call is either cut, which saves what the upstream has not
 * generated yet, or drained: its answer is read to the end for its usage, and
 * dropped.  proxy_ignore_client_abort alone does not drain: the first write
 * that fails ends the upstream.  Nor does it notice a client that had stopped
 * reading and then closes.
 *
 *     watched   from the verdict on, or while it waits for credit, in a
 *               cluster; ctx->abort is NULL.  nginx's handlers for this are off
 *               (proxy_ignore_client_abort is set as the configuration is
 *               read), the read event's is ours.  A failed write counts as a
 *               close, too: filter.c calls abort_drain()
 *     drained   ctx->abort.  connection->error is set, so that the connection
 *               ends with the request.  filter.c sends nothing and marks all
 *               of it as sent: the upstream's loop never waits for the client.
 *               Ends as any answer; the timer, or too many bytes, cut it
 *     cut       the request is finalized, the upstream's connection closed
 *
 * A request that the upstream cannot have read yet is always cut: it costs
 * nothing.  A client that shuts down its side for writing has left, as in
 * nginx.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_stream.h"


/* bytes of an answer that are drained, at most; embeddings are the largest */

#define NGX_HTTP_MODELGW_ABORT_BYTES             (32 * 1024 * 1024)
#define NGX_HTTP_MODELGW_ABORT_EMBEDDINGS_BYTES  (128 * 1024 * 1024)


struct ngx_http_modelgw_abort_s {
    ngx_event_t   timer;
    off_t         bytes;                 /* drained */
};


static void ngx_http_modelgw_abort_read(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_abort_gone(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_abort_peek(ngx_connection_t *c);
static ngx_uint_t ngx_http_modelgw_abort_premature(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_abort_wanted(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_abort_forget(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_abort_timeout(ngx_event_t *ev);
static void ngx_http_modelgw_abort_cleanup(void *data);


/* as in ngx_http_upstream_init_request() */

void
ngx_http_modelgw_abort_watch(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_event_t  *rev;

    r->read_event_handler = ngx_http_modelgw_abort_read;

    rev = r->connection->read;

    if (rev->ready) {

        /* the client may already have closed */

        ngx_post_event(rev, &ngx_posted_events);
        return;
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        r->connection->error = 1;
        ngx_post_event(rev, &ngx_posted_events);
    }
}


static void
ngx_http_modelgw_abort_read(ngx_http_request_t *r)
{
    ngx_http_modelgw_ctx_t  *ctx;

    if (!ngx_http_modelgw_abort_gone(r)) {
        return;
    }

    ctx = ngx_http_modelgw_get_ctx(r);

    if (ngx_http_modelgw_abort_drain(r, ctx) != NGX_OK) {

        if (ngx_http_modelgw_abort_premature(r, ctx)) {
            ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                          "client prematurely closed connection%s",
                          r->upstream ? ", upstream request canceled" : "");
        }

        ngx_http_modelgw_abort_cut(r);
        return;
    }

    /* the upstream may be waiting for the client */

    ngx_post_event(r->connection->write, &ngx_posted_events);
}


/*
 * Sets connection->error if the client has closed its connection, as
 * ngx_http_upstream_check_broken_connection() does.  A pipelined request is no
 * close.
 */

static ngx_uint_t
ngx_http_modelgw_abort_gone(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (c->error) {
        return 1;
    }

    /* in HTTP/2 the connection is a fake one */

    if (r->stream) {
        return 0;
    }

#if (nginx_version >= 1025000 && (NGX_QUIC || NGX_COMPAT))

    if (c->quic) {
        c->error = c->write->error;
        return c->error;
    }

#endif

    if (!ngx_http_modelgw_abort_peek(c)) {
        return 0;
    }

    c->read->eof = 1;
    c->error = 1;

    return 1;
}


static ngx_uint_t
ngx_http_modelgw_abort_peek(ngx_connection_t *c)
{
    char          buf[1];
    ssize_t       n;
    ngx_event_t  *rev;

    rev = c->read;

    if (ngx_event_flags & NGX_USE_KQUEUE_EVENT) {
        return rev->pending_eof;
    }

#if (NGX_HAVE_EPOLLRDHUP)

    if ((ngx_event_flags & NGX_USE_EPOLL_EVENT) && ngx_use_epoll_rdhup) {
        return rev->pending_eof;
    }

#endif

    n = recv(c->fd, buf, 1, MSG_PEEK);

    if (n == 0) {
        return 1;
    }

    if (n == -1) {
        return ngx_socket_errno != NGX_EAGAIN;
    }

    /* bytes that are not read yet must not be reported again and again */

    if ((ngx_event_flags & NGX_USE_LEVEL_EVENT) && rev->active
        && ngx_del_event(rev, NGX_READ_EVENT, 0) != NGX_OK)
    {
        return 1;
    }

    return 0;
}


/*
 * A cleanup of the request is the upstream's, which finalizes the request: one
 * more reference, or that would free it while its cleanups run.
 */

void
ngx_http_modelgw_abort_cut(ngx_http_request_t *r)
{
    r->main->count++;

    ngx_http_finalize_request(r, NGX_HTTP_CLIENT_CLOSED_REQUEST);
}


ngx_int_t
ngx_http_modelgw_abort_drain(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_cleanup_t           *cln;
    ngx_http_modelgw_abort_t     *a;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    if (ctx->abort) {
        return NGX_OK;
    }

    if (!ngx_http_modelgw_abort_wanted(r, ctx)) {
        return NGX_DECLINED;
    }

    a = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_abort_t));
    if (a == NULL) {
        return NGX_ERROR;
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_modelgw_abort_cleanup;
    cln->data = a;

    a->timer.handler = ngx_http_modelgw_abort_timeout;
    a->timer.data = r;
    a->timer.log = r->connection->log;
    a->timer.cancelable = 1;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    ngx_add_timer(&a->timer, mlcf->abort_timeout);

    ctx->abort = a;

    if (ngx_http_modelgw_abort_premature(r, ctx)) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "client prematurely closed connection, "
                      "answer is read for its usage");
    }

    ngx_http_modelgw_abort_forget(r, ctx);

    return NGX_OK;
}


/*
 * Whether the client has not got its whole answer.  After that only the
 * upstream may be waited for, so that its connection can be used again.
 */

static ngx_uint_t
ngx_http_modelgw_abort_premature(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_stream_t  *st;

    if (r->connection->buffered) {
        return 1;
    }

    switch (ctx->answer.mode) {

    case NGX_HTTP_MODELGW_STREAM:
        st = ctx->answer.stream;

        return st->state == NGX_HTTP_MODELGW_STREAM_OPEN || st->emit.busy;

    case NGX_HTTP_MODELGW_ENDED:
        return 0;

    default:
        return 1;
    }
}


static ngx_uint_t
ngx_http_modelgw_abort_wanted(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_connection_t             *c;
    ngx_http_upstream_t          *u;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    c = r->connection;
    u = r->upstream;

    /* "close" is set in a worker that has to stop */

    if (!c->error || c->close
        || u == NULL || u->cleanup == NULL || !u->request_body_sent)
    {
        return 0;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    switch (mlcf->abort) {

    case NGX_HTTP_MODELGW_ABORT_CUT:
        return 0;

    case NGX_HTTP_MODELGW_ABORT_DRAIN:
        return 1;

    default: /* NGX_HTTP_MODELGW_ABORT_AUTO */
        return !ctx->call.streaming || ctx->answer.finishing;
    }
}


/* marks all output as sent; the request never waits for writing again */

static void
ngx_http_modelgw_abort_forget(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_event_t       *wev;
    ngx_connection_t  *c;

    c = r->connection;
    wev = c->write;

    r->read_event_handler = ngx_http_block_reading;

    if (wev->timer_set) {
        ngx_del_timer(wev);
    }

    wev->timedout = 0;
    wev->delayed = 0;
    wev->ready = 1;

    r->out = NULL;
    c->buffered &= ~NGX_HTTP_WRITE_BUFFERED;

    if (ctx->answer.stream) {
        ngx_http_modelgw_emit_drop(&ctx->answer.stream->emit);
    }

    if (ctx->answer.large) {
        ngx_http_modelgw_large_drop(ctx);
    }
}


ngx_int_t
ngx_http_modelgw_abort_count(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    off_t  max;

    for ( /* void */ ; in; in = in->next) {
        ctx->abort->bytes += ngx_buf_size(in->buf);
    }

    max = (ctx->call.protocol == NGX_MODELGW_EMBEDDINGS)
          ? NGX_HTTP_MODELGW_ABORT_EMBEDDINGS_BYTES
          : NGX_HTTP_MODELGW_ABORT_BYTES;

    if (ctx->abort->bytes <= max) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "answer read for its usage is too long, "
                  "upstream request canceled");

    if (r->connection->sent == 0) {
        r->headers_out.status = NGX_HTTP_CLIENT_CLOSED_REQUEST;
    }

    return NGX_DECLINED;
}


static void
ngx_http_modelgw_abort_timeout(ngx_event_t *ev)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = ev->data;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_error(NGX_LOG_INFO, c->log, 0,
                  "answer read for its usage takes longer than "
                  "\"modelgw_abort_timeout\", upstream request canceled");

    ngx_http_modelgw_abort_cut(r);

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_modelgw_abort_cleanup(void *data)
{
    ngx_http_modelgw_abort_t *a = data;

    if (a->timer.timer_set) {
        ngx_del_timer(&a->timer);
    }
}
