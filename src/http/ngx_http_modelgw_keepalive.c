
/*
 * Streams that are silent: a model that thinks may say nothing for minutes,
 * and clients and proxies hang up on a connection without a byte, many after 30
 * to 120 seconds, node's fetch after 300.
 *
 *     held     the upstream has answered with a header, but no event has come:
 *              ours is held back, so that an error can be the status.  Two
 *              intervals after the call was sent upstream it leaves with a
 *              keep-alive; an error is a frame then
 *     begun    a keep-alive follows when nothing was passed on for an interval
 *
 * It is a comment in a chat stream (WHATWG HTML, 9.2.6) and the "ping" event of
 * the messages API in one of messages.  Events are passed on whole: between
 * two calls of the body filter the output is between two events.  As long as
 * some of it waits for the client nothing is added, so that send_timeout is
 * what it was.
 *
 * The timer is not set again for each event.  It fires once an interval, and is
 * then set for what is left of one since something was passed on.
 *
 * A keep-alive is no part of the answer: it is neither its first byte nor text
 * that is charged.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_stream.h"


#define NGX_HTTP_MODELGW_KEEPALIVE_MAX  (60 * 60 * 1000)


static void ngx_http_modelgw_keepalive_handler(ngx_event_t *ev);
static ngx_msec_int_t ngx_http_modelgw_keepalive_left(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_msec_t interval);
static ngx_int_t ngx_http_modelgw_keepalive_send(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_keepalive_cleanup(void *data);


static ngx_str_t  ngx_http_modelgw_keepalive_chat =
    ngx_string(": keep-alive\n\n");

static ngx_str_t  ngx_http_modelgw_keepalive_messages =
    ngx_string("event: ping\ndata: {\"type\":\"ping\"}\n\n");


char *
ngx_http_modelgw_set_keepalive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_loc_conf_t *mlcf = conf;

    ngx_int_t   n;
    ngx_str_t  *value;

    if (mlcf->keepalive != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        mlcf->keepalive = 0;
        return NGX_CONF_OK;
    }

    n = ngx_parse_time(&value[1], 0);

    if (n == NGX_ERROR || n == 0 || n > NGX_HTTP_MODELGW_KEEPALIVE_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"modelgw_keepalive\", it "
                           "must be a time of 1ms to 1h, or \"off\"",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    mlcf->keepalive = n;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_modelgw_keepalive_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_event_t                  *ev;
    ngx_msec_int_t                left;
    ngx_http_cleanup_t           *cln;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (mlcf->keepalive == 0) {
        return NGX_OK;
    }

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    ev = &ctx->stream->keepalive;

    cln->handler = ngx_http_modelgw_keepalive_cleanup;
    cln->data = ev;

    ev->handler = ngx_http_modelgw_keepalive_handler;
    ev->data = r;
    ev->log = r->connection->log;
    ev->cancelable = 1;

    left = ngx_http_modelgw_keepalive_left(r, ctx, mlcf->keepalive);

    ngx_add_timer(ev, (ngx_msec_t) ngx_max(left, 0));

    return NGX_OK;
}


static void
ngx_http_modelgw_keepalive_handler(ngx_event_t *ev)
{
    ngx_msec_int_t                left;
    ngx_connection_t             *c;
    ngx_http_request_t           *r;
    ngx_http_modelgw_ctx_t       *ctx;
    ngx_http_modelgw_loc_conf_t  *mlcf;

    r = ev->data;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ctx = ngx_http_modelgw_get_ctx(r);

    /* all of it has come, or goes nowhere */

    if (ctx->stream->state != NGX_HTTP_MODELGW_STREAM_OPEN
        || ctx->upstream_rc != NGX_AGAIN
        || ctx->abort)
    {
        return;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    left = ngx_http_modelgw_keepalive_left(r, ctx, mlcf->keepalive);

    if (left <= 0) {

        if (ngx_http_modelgw_keepalive_send(r, ctx) != NGX_OK) {
            ngx_http_modelgw_abort_cut(r);
            ngx_http_run_posted_requests(c);
            return;
        }

        left = mlcf->keepalive;
    }

    ngx_add_timer(ev, (ngx_msec_t) left);
}


/*
 * Milliseconds until a keep-alive is due, 0 or less: it is.  At most an
 * interval, as the first event may come and turn "held" into "begun" meanwhile.
 */

static ngx_msec_int_t
ngx_http_modelgw_keepalive_left(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_msec_t interval)
{
    ngx_msec_t      due;
    ngx_msec_int_t  left;

    due = ctx->header_held ? r->upstream->start_time + 2 * interval
                           : ctx->stream->passed + interval;

    left = (ngx_msec_int_t) (due - ngx_current_msec);

    return ngx_min(left, (ngx_msec_int_t) interval);
}


/* NGX_OK, NGX_ERROR: the client is to be given up */

static ngx_int_t
ngx_http_modelgw_keepalive_send(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_str_t                  *text;
    ngx_connection_t           *c;
    ngx_http_modelgw_stream_t  *st;

    c = r->connection;
    st = ctx->stream;

    if (st->emit.busy || c->buffered) {
        return NGX_OK;
    }

    text = (ctx->endpoint->protocol == NGX_MODELGW_CHAT)
           ? &ngx_http_modelgw_keepalive_chat
           : &ngx_http_modelgw_keepalive_messages;

    ngx_http_modelgw_emit_begin(&st->emit, NULL);

    if (ngx_http_modelgw_emit(&st->emit, text->data, text->len, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_stream_output(r, ctx, NULL);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    /* nginx, which waits for the upstream only, is to wait for the client */

    if (c->buffered) {
        ngx_post_event(c->write, &ngx_posted_events);
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_keepalive_cleanup(void *data)
{
    ngx_event_t *ev = data;

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }
}
