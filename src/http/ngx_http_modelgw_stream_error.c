
/*
 * Errors in event streams: an upstream's error event, and ours when a stream
 * breaks off, in the form that clients of the protocol raise on.
 *
 * In responses these are two events, since no client reads both: some take the
 * message from response.failed, some raise on "error" only, which has its
 * members at the root for some and in "error" for others.  The code of
 * response.failed is one that Codex knows: it decides whether to ask again.
 *
 * The upstream's own response.failed is passed on if it shows what a client may
 * see.  If its message had to be changed, or is about the operator's account,
 * ours takes its place.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"
#include "ngx_http_modelgw_stream.h"


/* bytes of both events, about */

#define NGX_HTTP_MODELGW_STREAM_ERROR_SIZE  2048


typedef struct {
    ngx_str_t   ours;
    ngx_str_t   theirs;
} ngx_http_modelgw_stream_code_t;


static ngx_int_t ngx_http_modelgw_stream_take(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body);
static ngx_uint_t ngx_http_modelgw_stream_shows(ngx_str_t *data,
    ngx_str_t *text);
static ngx_int_t ngx_http_modelgw_stream_frames(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *event);
static void ngx_http_modelgw_stream_frame(ngx_modelgw_out_t *out,
    const char *type, ngx_uint_t n);
static ngx_str_t *ngx_http_modelgw_stream_code(ngx_str_t *ours);


/* the codes of response.failed; the last one is for all others */

static ngx_http_modelgw_stream_code_t  ngx_http_modelgw_stream_codes[] = {
    { ngx_string("RATE_LIMITED"), ngx_string("rate_limit_exceeded") },
    { ngx_string("CONTEXT_LENGTH_EXCEEDED"),
      ngx_string("context_length_exceeded") },
    { ngx_string("INVALID_REQUEST"), ngx_string("invalid_prompt") },
    { ngx_string("INSUFFICIENT_CREDIT"), ngx_string("insufficient_quota") },
    { ngx_null_string, ngx_string("server_error") }
};


ngx_int_t
ngx_http_modelgw_stream_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_stream_take(r, ctx, data);

    return (rc == NGX_DECLINED) ? ngx_http_modelgw_stream_emit_error(r, ctx)
                                : rc;
}


ngx_int_t
ngx_http_modelgw_stream_failed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *data)
{
    ngx_int_t                  rc;
    ngx_str_t                  error;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_usage_part(&ctx->answer.usage, ctx->answer.stream->scan,
                               NGX_MODELGW_PART_ERROR);

    ngx_str_null(&error);

    if (v->type != NGX_MODELGW_SCAN_ABSENT) {
        error.data = data->data + v->from;
        error.len = v->to - v->from;
    }

    rc = ngx_http_modelgw_stream_take(r, ctx, &error);

    if (rc == NGX_DECLINED
        && !ngx_http_modelgw_stream_shows(&error, &ctx->error.message))
    {
        rc = ngx_http_modelgw_stream_emit_error(r, ctx);
    }

    return rc;
}


/*
 *     NGX_OK        it becomes the status
 *     NGX_DECLINED  ctx->error is set, an event is to be emitted
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_stream_take(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *body)
{
    ngx_uint_t                  first, early;
    ngx_http_modelgw_stream_t  *st;

    st = ctx->answer.stream;

    first = (!st->begun && st->emit.out == NULL);
    early = (first && ctx->answer.header_held);

    if (ngx_http_modelgw_upstream_error(r, ctx, NGX_HTTP_OK, !early, body)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (first) {
        ngx_http_modelgw_settle_status(ctx, ctx->error.status);
    }

    st->state = early ? NGX_HTTP_MODELGW_STREAM_REFUSED
                      : NGX_HTTP_MODELGW_STREAM_FAILED;

    return early ? NGX_OK : NGX_DECLINED;
}


/* whether the text, as a client may see it, is in the data as it came */

static ngx_uint_t
ngx_http_modelgw_stream_shows(ngx_str_t *data, ngx_str_t *text)
{
    return text->len && data->len
           && memmem(data->data, data->len, text->data, text->len) != NULL;
}


ngx_int_t
ngx_http_modelgw_stream_emit_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t   rc;
    ngx_str_t   event;

    rc = ngx_http_modelgw_translate_error(ctx);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (ctx->request.endpoint->protocol) {

    case NGX_MODELGW_RESPONSES:
        rc = ngx_http_modelgw_stream_frames(r, ctx, &event);
        break;

    case NGX_MODELGW_MESSAGES:
        rc = ngx_modelgw_error_render(r->pool, &ctx->error,
                                      NGX_MODELGW_ERROR_MESSAGES, &event);
        break;

    default: /* NGX_MODELGW_CHAT */
        rc = ngx_modelgw_error_render(r->pool, &ctx->error,
                                      NGX_MODELGW_ERROR_CHAT, &event);
        break;
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit(&ctx->answer.stream->emit, event.data,
                                 event.len, 0);
}


/* the events of responses; NGX_OK, NGX_ERROR (no memory) */

static ngx_int_t
ngx_http_modelgw_stream_frames(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *event)
{
    ngx_str_t                      id, *code;
    ngx_modelgw_out_t              out;
    ngx_modelgw_error_t           *e;
    ngx_modelgw_out_piece_t        piece;
    ngx_http_modelgw_responses_t  *rs;

    e = &ctx->error;
    rs = &ctx->answer.stream->responses;
    code = ngx_http_modelgw_stream_code(&e->code);

    id = rs->id.len ? rs->id : ctx->answer.request_id;

    ngx_modelgw_out_piece(&out, &piece, r->pool,
                          NGX_HTTP_MODELGW_STREAM_ERROR_SIZE);

    ngx_http_modelgw_stream_frame(&out, "response.failed", rs->next);
    ngx_modelgw_out_text(&out, ",\"response\":{\"id\":");
    ngx_modelgw_out_string(&out, &id);
    ngx_modelgw_out_text(&out, ",\"object\":\"response\",\"created_at\":");
    ngx_modelgw_out_number(&out, ngx_time());
    ngx_modelgw_out_text(&out, ",\"status\":\"failed\",\"error\":{\"code\":");
    ngx_modelgw_out_string(&out, code);
    ngx_modelgw_out_text(&out, ",\"message\":");
    ngx_modelgw_out_string(&out, &e->message);
    ngx_modelgw_out_text(&out, "},\"incomplete_details\":null,"
                               "\"instructions\":null,\"metadata\":{},"
                               "\"model\":");
    ngx_modelgw_out(&out, ctx->call.service_json.data,
                    ctx->call.service_json.len);
    ngx_modelgw_out_text(&out, ",\"output\":[],\"parallel_tool_calls\":true,"
                               "\"temperature\":null,\"tool_choice\":\"auto\","
                               "\"tools\":[],\"top_p\":null,\"store\":false,"
                               "\"usage\":null}}\n\n");

    ngx_http_modelgw_stream_frame(&out, "error", rs->next + 1);
    ngx_modelgw_out_text(&out, ",\"code\":");
    ngx_modelgw_out_string(&out, &e->code);
    ngx_modelgw_out_text(&out, ",\"message\":");
    ngx_modelgw_out_string(&out, &e->message);
    ngx_modelgw_out_text(&out, ",\"param\":null,\"error\":{\"type\":");
    ngx_modelgw_out_string(&out, &e->type);
    ngx_modelgw_out_text(&out, ",\"code\":");
    ngx_modelgw_out_string(&out, &e->code);
    ngx_modelgw_out_text(&out, ",\"message\":");
    ngx_modelgw_out_string(&out, &e->message);
    ngx_modelgw_out_text(&out, ",\"param\":null}}\n\n");

    return ngx_modelgw_out_piece_done(&out, event);
}


static void
ngx_http_modelgw_stream_frame(ngx_modelgw_out_t *out, const char *type,
    ngx_uint_t n)
{
    size_t  len;

    len = ngx_strlen(type);

    ngx_modelgw_out_text(out, "event: ");
    ngx_modelgw_out(out, (u_char *) type, len);
    ngx_modelgw_out_text(out, "\ndata: {\"type\":\"");
    ngx_modelgw_out(out, (u_char *) type, len);
    ngx_modelgw_out_text(out, "\",\"sequence_number\":");
    ngx_modelgw_out_number(out, n);
}


static ngx_str_t *
ngx_http_modelgw_stream_code(ngx_str_t *ours)
{
    ngx_http_modelgw_stream_code_t  *row;

    row = ngx_http_modelgw_stream_codes;

    while (row->ours.len
           && (row->ours.len != ours->len
               || ngx_memcmp(row->ours.data, ours->data, ours->len) != 0))
    {
        row++;
    }

    return &row->theirs;
}
