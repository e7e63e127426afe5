
/*
 * A client that leaves before all of its answer has come.
 *
 * Its call goes on upstream, is billed, and tells what it has cost only at its
 * end.  So a call is either cut, which saves what the upstream has not made
 * yet, or drained: its answer is read to the end for the usage in it, and goes
 * nowhere.  proxy_ignore_client_abort alone drains nothing: the first write
 * that fails ends the upstream.  And it is as good as never noticed that a
 * client is gone which had stopped to read before.
 *
 *     watched   from the verdict on; ctx->abort is NULL.  nginx's own handlers
 *               for this are off (lint.c), the one for reading is ours.  A
 *               failed write is the client's leaving, too: filter.c asks
 *     drained   ctx->abort.  connection->error is set, so that the connection
 *               ends with the request.  filter.c passes nothing on and lets all
 *               of it count as sent: so the upstream's loop never waits for the
 *               client.  It ends as any answer, or by the timer, or beyond so
 *               many bytes, which are cuts
 *     cut       the request is over, and the upstream's connection with it
 *
 * What the upstream cannot have read yet is always cut: it costs nothing.  A
 * client that shuts down its side for writing counts as gone, as for nginx.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_stream.h"


#define NGX_HTTP_MODELGW_ABORT_BYTES  (32 * 1024 * 1024)


struct ngx_http_modelgw_abort_s {
    ngx_event_t   timer;
    off_t         bytes;                 /* read since the client has left */
};


static void ngx_http_modelgw_abort_read(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_abort_gone(ngx_http_request_t *r);
static ngx_uint_t ngx_http_modelgw_abort_peek(ngx_connection_t *c);
static ngx_uint_t ngx_http_modelgw_abort_wanted(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_abort_forget(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_abort_timeout(ngx_event_t *ev);
static void ngx_http_modelgw_abort_cleanup(void *data);


static ngx_conf_enum_t  ngx_http_modelgw_abort_modes[] = {
    { ngx_string("auto"), NGX_HTTP_MODELGW_ABORT_AUTO },
    { ngx_string("cut"), NGX_HTTP_MODELGW_ABORT_CUT },
    { ngx_string("drain"), NGX_HTTP_MODELGW_ABORT_DRAIN },
    { ngx_null_string, 0 }
};


char *
ngx_http_modelgw_set_abort(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_str_t        *value;
    ngx_conf_enum_t  *mode;

    if (mlcf->abort != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (mode = ngx_http_modelgw_abort_modes; mode->name.len; mode++) {

        if (mode->name.len == value[1].len
            && ngx_memcmp(mode->name.data, value[1].data, value[1].len) == 0)
        {
            mlcf->abort = mode->value;
            return NGX_CONF_OK;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\": it is \"auto\", \"cut\" or "
                       "\"drain\"", &value[1]);

    return NGX_CONF_ERROR;
}


/* as ngx_http_upstream_init_request() has it */

void
ngx_http_modelgw_abort_watch(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_event_t  *rev;

    r->read_event_handler = ngx_http_modelgw_abort_read;

    rev = r->connection->read;

    if (rev->ready) {

        /* the client may have left already */

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
    if (!ngx_http_modelgw_abort_gone(r)) {
        return;
    }

    if (ngx_http_modelgw_abort_drain(r, ngx_http_modelgw_get_ctx(r))
        != NGX_OK)
    {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "client has left, its call is cut");

        ngx_http_modelgw_abort_cut(r);
        return;
    }

    /* the upstream may have waited for the client */

    ngx_post_event(r->connection->write, &ngx_posted_events);
}


/*
 * As ngx_http_upstream_check_broken_connection(); connection->error is set if
 * so.  Bytes of a next request are none of its business.
 */

static ngx_uint_t
ngx_http_modelgw_abort_gone(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (c->error) {
        return 1;
    }

    /* of HTTP/2, and HTTP/3, the connection is a fake one */

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

    /* what nobody reads yet must not be told again and again */

    if ((ngx_event_flags & NGX_USE_LEVEL_EVENT) && rev->active
        && ngx_del_event(rev, NGX_READ_EVENT, 0) != NGX_OK)
    {
        return 1;
    }

    return 0;
}


/*
 * Among the request's cleanups is the upstream's, which finalizes the request:
 * without a reference more that would free it under them.
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

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "client has left, the answer is read for its usage");

    ngx_http_modelgw_abort_forget(r, ctx);

    return NGX_OK;
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

    /* "close" is that of a worker that has to stop */

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
        return !ctx->streaming || ctx->finishing;
    }
}


/* what was passed on counts as sent, and writing is never waited for again */

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

    if (ctx->stream) {
        ngx_http_modelgw_emit_drop(&ctx->stream->emit);
    }
}


ngx_int_t
ngx_http_modelgw_abort_count(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {
        ctx->abort->bytes += ngx_buf_size(in->buf);
    }

    if (ctx->abort->bytes <= NGX_HTTP_MODELGW_ABORT_BYTES) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "an answer that is read for its usage is too long, "
                  "its call is cut");

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
                  "an answer that is read for its usage takes longer than "
                  "\"modelgw_abort_timeout\", its call is cut");

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
