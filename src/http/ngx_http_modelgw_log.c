
/*
 * What is logged of a request beside its own messages: an end of each line of
 * the error log, and $modelgw_log, one line of an access log.
 *
 * nginx appends client, server and request to a line by r->log_handler, which
 * is replaced: so lines of nginx itself, such as those about an upstream that
 * does not answer, have the ids too.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"


/* bytes */

#define NGX_HTTP_MODELGW_LOG_IDS   512
#define NGX_HTTP_MODELGW_LOG_SIZE  1024  /* of most lines, at most */


static u_char *ngx_http_modelgw_log_handler(ngx_http_request_t *r,
    ngx_http_request_t *sr, u_char *buf, size_t len);
static u_char *ngx_http_modelgw_log_ids(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, u_char *p, u_char *last);
static ngx_int_t ngx_http_modelgw_log_id(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);
static void ngx_http_modelgw_log_request(ngx_modelgw_out_t *out,
    ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_log_path(ngx_modelgw_out_t *out,
    ngx_http_request_t *r);
static void ngx_http_modelgw_log_call(ngx_modelgw_out_t *out,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_log_tokens(ngx_modelgw_out_t *out,
    ngx_modelgw_usage_t *u);
static void ngx_http_modelgw_log_money(ngx_modelgw_out_t *out,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_log_answer(ngx_modelgw_out_t *out,
    ngx_http_modelgw_ctx_t *ctx);
static void ngx_http_modelgw_log_upstream(ngx_modelgw_out_t *out,
    ngx_http_request_t *r);
static void ngx_http_modelgw_log_response(ngx_modelgw_out_t *out,
    ngx_http_request_t *r);
static void ngx_http_modelgw_log_name(ngx_modelgw_out_t *out, const char *name);
static void ngx_http_modelgw_log_text(ngx_modelgw_out_t *out, const char *name,
    ngx_str_t *text);
static void ngx_http_modelgw_log_word(ngx_modelgw_out_t *out, const char *name,
    const char *word);
static void ngx_http_modelgw_log_bool(ngx_modelgw_out_t *out, const char *name,
    ngx_uint_t set);
static void ngx_http_modelgw_log_number(ngx_modelgw_out_t *out,
    const char *name, int64_t n);
static void ngx_http_modelgw_log_seconds(ngx_modelgw_out_t *out,
    const char *name, ngx_msec_t ms);


/*
 * A variable that has no index is evaluated again each time, and each value of
 * this one is another.
 */

ngx_int_t
ngx_http_modelgw_log_init(ngx_conf_t *cf)
{
    ngx_str_t  name;

    ngx_str_set(&name, "request_id");

    return (ngx_http_get_variable_index(cf, &name) == NGX_ERROR)
           ? NGX_ERROR : NGX_OK;
}


void
ngx_http_modelgw_log_begin(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    if (r->log_handler != ngx_http_modelgw_log_handler) {
        ctx->log_handler = r->log_handler;
        r->log_handler = ngx_http_modelgw_log_handler;
    }
}


/*
 * The room of the ids is kept free: a long request line must not displace them.
 * The last byte of buf becomes the line feed.  Without memory for an id nginx
 * logs that, which calls this again.
 */

static u_char *
ngx_http_modelgw_log_handler(ngx_http_request_t *r, ngx_http_request_t *sr,
    u_char *buf, size_t len)
{
    size_t                   n;
    u_char                  *last, ids[NGX_HTTP_MODELGW_LOG_IDS];
    ngx_http_modelgw_ctx_t  *ctx;

    ctx = ngx_http_modelgw_get_ctx(r);

    if (ctx == NULL || ctx->log_handler == NULL) {
        return buf;
    }

    if (r != sr || ctx->logging) {
        return ctx->log_handler(r, sr, buf, len);
    }

    ctx->logging = 1;
    n = ngx_http_modelgw_log_ids(r, ctx, ids, ids + sizeof(ids)) - ids;
    ctx->logging = 0;

    last = buf + len;

    if (n < len) {
        buf = ctx->log_handler(r, sr, buf, len - n - 1);
    }

    return ngx_cpymem(buf, ids, ngx_min(n, (size_t) (last - buf)));
}


/* A byte of an upstream's id may be any but CR, LF and NUL. */

static u_char *
ngx_http_modelgw_log_ids(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    u_char *p, u_char *last)
{
    size_t     i;
    ngx_str_t  id;

    if (ctx->money.id) {
        p = ngx_slprintf(p, last, ", call: %uL", ctx->money.id);
    }

    if (ctx->request.found) {
        p = ngx_slprintf(p, last, ", key: %V", &ctx->request.found->id);
    }

    if (ngx_http_modelgw_log_id(r, ctx, &id) != NGX_OK) {
        return p;
    }

    p = ngx_slprintf(p, last, ", request_id: ");

    for (i = 0; i < id.len && p < last; i++) {
        *p++ = (id.data[i] > 0x20 && id.data[i] < 0x7f) ? id.data[i] : '?';
    }

    return p;
}


/*
 * The id that the client was told; before that the one that it will be told,
 * unless the upstream sends another.
 */

static ngx_int_t
ngx_http_modelgw_log_id(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_str_t *id)
{
    if (ctx && ctx->answer.request_id.len) {
        *id = ctx->answer.request_id;
        return NGX_OK;
    }

    return ngx_http_modelgw_reply_own_id(r, id);
}


/*
 * $modelgw_log: a JSON object of the request, final in the access log.  What is
 * not known is left out.
 */

ngx_int_t
ngx_http_modelgw_log_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                 text;
    ngx_time_t               *tp;
    ngx_modelgw_out_t         out;
    ngx_http_modelgw_ctx_t   *ctx;
    ngx_modelgw_out_piece_t   piece;

    r = r->main;
    ctx = ngx_http_modelgw_get_ctx(r);
    tp = ngx_timeofday();

    ngx_modelgw_out_piece(&out, &piece, r->pool, NGX_HTTP_MODELGW_LOG_SIZE);

    ngx_modelgw_out_text(&out, "{\"time\":");
    ngx_modelgw_out_time(&out, (int64_t) tp->sec * 1000 + tp->msec);

    ngx_http_modelgw_log_request(&out, r, ctx);

    if (ctx) {
        ngx_http_modelgw_log_call(&out, ctx);
        ngx_http_modelgw_log_tokens(&out, &ctx->answer.usage);
        ngx_http_modelgw_log_money(&out, ctx);
        ngx_http_modelgw_log_answer(&out, ctx);
    }

    ngx_http_modelgw_log_upstream(&out, r);
    ngx_http_modelgw_log_response(&out, r);

    ngx_modelgw_out_text(&out, "}");

    if (ngx_modelgw_out_piece_done(&out, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    v->len = text.len;
    v->data = text.data;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}


static void
ngx_http_modelgw_log_request(ngx_modelgw_out_t *out, ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_str_t  id;

    if (ngx_http_modelgw_log_id(r, ctx, &id) == NGX_OK) {
        ngx_http_modelgw_log_text(out, "request_id", &id);
    }

    ngx_http_modelgw_log_number(out, "connection", r->connection->number);
    ngx_http_modelgw_log_text(out, "client", &r->connection->addr_text);
    ngx_http_modelgw_log_text(out, "protocol", &r->http_protocol);
    ngx_http_modelgw_log_text(out, "method", &r->method_name);

    ngx_http_modelgw_log_path(out, r);

    ngx_http_modelgw_log_number(out, "status",
                                r->err_status ? r->err_status
                                              : r->headers_out.status);
}


/* Other paths may contain anything, and are not named. */

static void
ngx_http_modelgw_log_path(ngx_modelgw_out_t *out, ngx_http_request_t *r)
{
    ngx_str_t                     id;
    ngx_http_modelgw_endpoint_t  *e;

    ngx_http_modelgw_log_name(out, "path");
    ngx_modelgw_out_text(out, "\"");

    e = ngx_http_modelgw_endpoint(r, &id);

    if (e) {
        ngx_modelgw_out(out, e->uri.data, e->uri.len);

        if (e->flags & NGX_HTTP_MODELGW_PREFIX) {
            ngx_modelgw_out_text(out, "*");
        }

    } else {
        ngx_modelgw_out_text(out, "other");
    }

    ngx_modelgw_out_text(out, "\"");
}


static void
ngx_http_modelgw_log_call(ngx_modelgw_out_t *out, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_key_t         *key;
    ngx_http_modelgw_group_t  *group;

    ngx_http_modelgw_log_text(out, "code", &ctx->error.code);
    ngx_http_modelgw_log_text(out, "reason", ngx_http_modelgw_reason(ctx));

    key = ctx->request.found;

    if (key) {
        group = key->group;

        ngx_http_modelgw_log_text(out, "key", &key->id);
        ngx_http_modelgw_log_text(out, "account", &key->account);
        ngx_http_modelgw_log_text(out, "group", group ? &group->name : NULL);
    }

    ngx_http_modelgw_log_text(out, "model", &ctx->call.service_id);
    ngx_http_modelgw_log_text(out, "upstream_model", &ctx->call.upstream_id);

    if (ctx->call.choices) {
        ngx_http_modelgw_log_bool(out, "stream", ctx->call.streaming);
        ngx_http_modelgw_log_bool(out, "translated", ctx->call.translate);
    }
}


static void
ngx_http_modelgw_log_tokens(ngx_modelgw_out_t *out, ngx_modelgw_usage_t *u)
{
    ngx_http_modelgw_log_number(out, "input_tokens", u->input);
    ngx_http_modelgw_log_number(out, "output_tokens", u->output);
    ngx_http_modelgw_log_number(out, "cached_tokens", u->cache_read);
    ngx_http_modelgw_log_number(out, "cache_write_tokens", u->cache_write);
    ngx_http_modelgw_log_number(out, "cache_write_1h_tokens",
                                u->cache_write_1h);
    ngx_http_modelgw_log_number(out, "reasoning_tokens", u->reasoning);
}


static void
ngx_http_modelgw_log_money(ngx_modelgw_out_t *out, ngx_http_modelgw_ctx_t *ctx)
{
    u_char  buf[NGX_MODELGW_AMOUNT_LEN];

    if (ctx->money.id) {
        ngx_http_modelgw_log_number(out, "call", ctx->money.id);
    }

    if (!ctx->money.settled) {
        return;
    }

    ngx_http_modelgw_log_name(out, "cost");
    ngx_modelgw_out(out, buf,
                    ngx_modelgw_amount(buf, ctx->money.charge.cost) - buf);

    ngx_http_modelgw_log_word(out, "outcome",
                         ngx_modelgw_outcome_name(ctx->money.charge.outcome));
    ngx_http_modelgw_log_word(out, "end",
                              ngx_modelgw_end_name(ctx->money.end));
}


static void
ngx_http_modelgw_log_answer(ngx_modelgw_out_t *out,
    ngx_http_modelgw_ctx_t *ctx)
{
    if (ctx->answer.json || ctx->answer.stream) {
        ngx_http_modelgw_log_bool(out, "complete", ctx->answer.complete);
    }

    if (ctx->answer.first_byte != (ngx_msec_t) -1) {
        ngx_http_modelgw_log_number(out, "first_byte_ms",
                                    ctx->answer.first_byte);
    }

    ngx_http_modelgw_log_seconds(out, "first_byte_time",
                                 ctx->answer.first_byte);
}


/* the last try; others have lines in the error log */

static void
ngx_http_modelgw_log_upstream(ngx_modelgw_out_t *out, ngx_http_request_t *r)
{
    ngx_http_upstream_state_t  *us;

    if (r->upstream_states == NULL || r->upstream_states->nelts == 0) {
        return;
    }

    us = r->upstream_states->elts;
    us += r->upstream_states->nelts - 1;

    ngx_http_modelgw_log_number(out, "upstream_tries",
                                r->upstream_states->nelts);
    ngx_http_modelgw_log_text(out, "upstream_addr", us->peer);

    if (us->status) {
        ngx_http_modelgw_log_number(out, "upstream_status", us->status);
    }

    ngx_http_modelgw_log_seconds(out, "upstream_connect_time",
                                 us->connect_time);
    ngx_http_modelgw_log_seconds(out, "upstream_time", us->response_time);
}


static void
ngx_http_modelgw_log_response(ngx_modelgw_out_t *out, ngx_http_request_t *r)
{
    ngx_msec_t  ms;

    ms = ngx_http_modelgw_elapsed(r);

    if (r->request_complete) {
        ngx_http_modelgw_log_word(out, "completion", "OK");
    }

    ngx_http_modelgw_log_number(out, "request_length", r->request_length);
    ngx_http_modelgw_log_number(out, "bytes_sent", r->connection->sent);
    ngx_http_modelgw_log_number(out, "duration_ms", ms);
    ngx_http_modelgw_log_seconds(out, "request_time", ms);
}


/* a member that is not the first one, without its value */

static void
ngx_http_modelgw_log_name(ngx_modelgw_out_t *out, const char *name)
{
    ngx_modelgw_out_text(out, ",\"");
    ngx_modelgw_out(out, (u_char *) name, ngx_strlen(name));
    ngx_modelgw_out_text(out, "\":");
}


/* NULL or empty: unknown */

static void
ngx_http_modelgw_log_text(ngx_modelgw_out_t *out, const char *name,
    ngx_str_t *text)
{
    if (text && text->len) {
        ngx_http_modelgw_log_name(out, name);
        ngx_modelgw_out_string(out, text);
    }
}


static void
ngx_http_modelgw_log_word(ngx_modelgw_out_t *out, const char *name,
    const char *word)
{
    ngx_str_t  text;

    text.len = ngx_strlen(word);
    text.data = (u_char *) word;

    ngx_http_modelgw_log_text(out, name, &text);
}


static void
ngx_http_modelgw_log_bool(ngx_modelgw_out_t *out, const char *name,
    ngx_uint_t set)
{
    ngx_http_modelgw_log_name(out, name);

    if (set) {
        ngx_modelgw_out_text(out, "true");

    } else {
        ngx_modelgw_out_text(out, "false");
    }
}


/* negative: unknown */

static void
ngx_http_modelgw_log_number(ngx_modelgw_out_t *out, const char *name, int64_t n)
{
    if (n >= 0) {
        ngx_http_modelgw_log_name(out, name);
        ngx_modelgw_out_number(out, n);
    }
}


/* (ngx_msec_t) -1: unknown */

static void
ngx_http_modelgw_log_seconds(ngx_modelgw_out_t *out, const char *name,
    ngx_msec_t ms)
{
    u_char  *last, buf[NGX_TIME_T_LEN + 4];

    if (ms != (ngx_msec_t) -1) {
        last = ngx_sprintf(buf, "%T.%03M", (time_t) (ms / 1000), ms % 1000);

        ngx_http_modelgw_log_name(out, name);
        ngx_modelgw_out(out, buf, last - buf);
    }
}
