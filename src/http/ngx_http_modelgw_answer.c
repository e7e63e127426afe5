
/*
 * An upstream's JSON answer, and an upstream's error.
 *
 * Both are collected while the header is held.  An answer is scanned as it
 * comes; at its end the model id is mapped back, then header and body leave
 * together, with a Content-Length.  Collecting costs one copy of a body that is
 * small compared to the request's, frees the upstream's connection early, and
 * turns each way an answer can break into a status.  Rejected: to pass it on as
 * it comes, since the length of the model id changes that of the body.
 *
 * An answer of another type is an error of the upstream, but may hold usage: it
 * is scanned if its status is one of success, up to 64 KB of it.
 *
 *     collecting   until the end, a fault of the scan, or too many bytes
 *     last_buf     the upstream has ended; or upstream.rc says why not
 *     finished     the response is sent, the mode is ENDED
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_splice.h"
#include "ngx_modelgw_text.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"


/* bytes: of an answer; of one of embeddings that is collected; of the first
   buf, if no length is announced; of a buf */

#define NGX_HTTP_MODELGW_ANSWER_MAX   (32 * 1024 * 1024)
#define NGX_HTTP_MODELGW_ANSWER_EMBEDDINGS  (256 * 1024)
#define NGX_HTTP_MODELGW_ANSWER_BUF   4096
#define NGX_HTTP_MODELGW_ANSWER_GROW  (1024 * 1024)


struct ngx_http_modelgw_json_s {
    ngx_modelgw_scan_t       *scan;      /* NULL if the status is an error */
    ngx_chain_t              *first;
    ngx_chain_t             **last;
    ngx_buf_t                *buf;       /* the last one */
    size_t                    size;      /* bytes collected */
    size_t                    max;       /* bytes */
    unsigned                  full:1;    /* more is dropped */
    unsigned                  read:1;    /* its usage, or text, was read */
};


static ngx_int_t ngx_http_modelgw_answer_collect(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *in);
static ngx_int_t ngx_http_modelgw_answer_room(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, size_t size);
static ngx_uint_t ngx_http_modelgw_answer_large(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_answer_finish(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_answer_usage(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static size_t ngx_http_modelgw_answer_text(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_answer_send(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_answer_splice(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t **out, off_t *length);
static void ngx_http_modelgw_answer_replace(ngx_buf_t *b,
    ngx_modelgw_cut_t *cut);
static ngx_int_t ngx_http_modelgw_answer_broken(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason);
static ngx_int_t ngx_http_modelgw_answer_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_uint_t kind);


ngx_int_t
ngx_http_modelgw_answer_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_mode_e mode)
{
    ngx_http_modelgw_json_t       *a;
    ngx_http_modelgw_main_conf_t  *mmcf;

    a = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_json_t));
    if (a == NULL) {
        return NGX_ERROR;
    }

    a->last = &a->first;
    a->max = (mode == NGX_HTTP_MODELGW_ANSWER) ? NGX_HTTP_MODELGW_ANSWER_MAX
                                               : NGX_MODELGW_ERROR_MAX_BODY;

    ctx->answer.json = a;

    if (r->headers_out.status < NGX_HTTP_OK) {

        /* 1xx has no body (RFC 9110, 15.2) to wait for */

        a->full = 1;

        return NGX_OK;
    }

    if (r->headers_out.status >= NGX_HTTP_SPECIAL_RESPONSE) {
        return NGX_OK;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    a->scan = ngx_modelgw_scan_make(r->pool,
                                    ngx_http_modelgw_plan(mmcf->plans,
                                                          ctx->call.protocol));
    return a->scan ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_modelgw_answer_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_str_t     part;
    ngx_uint_t    last;
    ngx_chain_t  *cl;

    last = (ctx->upstream.rc != NGX_AGAIN);
    rc = NGX_OK;

    for (cl = in; cl; cl = cl->next) {

        if (rc == NGX_OK) {
            rc = ngx_http_modelgw_answer_collect(r, ctx, cl->buf);
        }

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (cl->buf->last_buf) {
            last = 1;
        }

        cl->buf->pos = cl->buf->last;

        if (rc == NGX_OK && !last && ngx_http_modelgw_answer_large(r, ctx)) {

            if (ngx_http_modelgw_translate_whole(r, ctx->answer.json->first,
                                                 ctx->answer.json->size, &part)
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            rc = ngx_http_modelgw_large_begin(r, ctx, ctx->answer.json->scan,
                                              &part);

            if ((rc != NGX_OK && rc != NGX_AGAIN) || cl->next == NULL) {
                return rc;
            }

            return ngx_http_modelgw_large_body(r, ctx, cl->next);
        }
    }

    if (rc == NGX_DECLINED && !last) {
        ngx_http_modelgw_upstream_stop(r);
        last = 1;
    }

    return last ? ngx_http_modelgw_answer_finish(r, ctx) : NGX_OK;
}


/*
 * Embeddings may have tens of megabytes, and nothing in them but the model id
 * is changed: more than a little is passed on as it comes.
 */

static ngx_uint_t
ngx_http_modelgw_answer_large(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    return ctx->call.protocol == NGX_MODELGW_EMBEDDINGS
           && ctx->answer.mode == NGX_HTTP_MODELGW_ANSWER
           && (r->upstream->headers_in.content_length_n
               > NGX_HTTP_MODELGW_ANSWER_EMBEDDINGS
               || ctx->answer.json->size > NGX_HTTP_MODELGW_ANSWER_EMBEDDINGS);
}


/*
 *     NGX_OK
 *     NGX_DECLINED  the rest of the answer is not needed
 *     NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_answer_collect(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *in)
{
    u_char                   *p;
    size_t                    size, n;
    ngx_int_t                 rc;
    ngx_http_modelgw_json_t  *a;

    a = ctx->answer.json;

    if (a->full) {
        return NGX_DECLINED;
    }

    size = in->last - in->pos;

    rc = a->scan ? ngx_modelgw_scan_feed(a->scan, in->pos, size) : NGX_OK;

    /* an error need not be JSON */

    if (ctx->answer.mode == NGX_HTTP_MODELGW_ERROR) {
        rc = NGX_OK;
    }

    if (size > a->max - a->size) {
        size = a->max - a->size;
        a->full = 1;
    }

    for (p = in->pos; size; p += n, size -= n) {

        if (ngx_http_modelgw_answer_room(r, ctx, size) != NGX_OK) {
            return NGX_ERROR;
        }

        n = ngx_min(size, (size_t) (a->buf->end - a->buf->last));

        a->buf->last = ngx_cpymem(a->buf->last, p, n);
        a->size += n;
    }

    return a->full ? NGX_DECLINED : rc;
}


/*
 * Adds a buf if there is no room in the last one, for size bytes at least.  The
 * first one has room for the announced length, within reason, and for a longer
 * model id.
 */

static ngx_int_t
ngx_http_modelgw_answer_room(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, size_t size)
{
    off_t                     length;
    size_t                    room;
    ngx_chain_t              *cl;
    ngx_http_modelgw_json_t  *a;

    a = ctx->answer.json;

    if (a->buf && a->buf->last < a->buf->end) {
        return NGX_OK;
    }

    length = r->upstream->headers_in.content_length_n;

    if (a->buf == NULL) {
        room = (length > 0) ? (size_t) ngx_min(length, (off_t) a->max)
                              + ctx->call.service_json.len
                            : NGX_HTTP_MODELGW_ANSWER_BUF;

    } else {
        room = 2 * (a->buf->end - a->buf->start);
    }

    room = ngx_max(size, ngx_min(room, NGX_HTTP_MODELGW_ANSWER_GROW));

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    a->buf = ngx_create_temp_buf(r->pool, room);
    if (a->buf == NULL) {
        return NGX_ERROR;
    }

    cl->buf = a->buf;
    cl->next = NULL;

    *a->last = cl;
    a->last = &cl->next;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_answer_finish(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                kind, status;
    ngx_http_modelgw_json_t  *a;

    a = ctx->answer.json;
    status = r->headers_out.status;

    kind = ngx_http_modelgw_answer_usage(r, ctx);

    /* an error is known by its status, even if its body broke off */

    if (status == NGX_HTTP_OK
        && ctx->upstream.rc != NGX_AGAIN && ctx->upstream.rc != NGX_OK)
    {
        return ngx_http_modelgw_answer_broken(r, ctx, "it broke off");
    }

    if (ctx->answer.mode == NGX_HTTP_MODELGW_ERROR) {
        return ngx_http_modelgw_answer_error(r, ctx, status, kind);
    }

    if (a->full) {
        return ngx_http_modelgw_answer_broken(r, ctx, "it is too large");
    }

    if (ngx_modelgw_scan_done(a->scan) != NGX_OK) {
        return ngx_http_modelgw_answer_broken(r, ctx, "it is not whole JSON");
    }

    if (kind == NGX_MODELGW_DOC_ERROR) {
        return ngx_http_modelgw_answer_error(r, ctx, NGX_HTTP_OK, kind);
    }

    return ngx_http_modelgw_answer_send(r, ctx);
}


void
ngx_http_modelgw_answer_cut(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    if ((ctx->answer.mode == NGX_HTTP_MODELGW_ANSWER
         || ctx->answer.mode == NGX_HTTP_MODELGW_ERROR)
        && !ctx->answer.json->read)
    {
        (void) ngx_http_modelgw_answer_usage(r, ctx);
    }

    if (ctx->answer.mode == NGX_HTTP_MODELGW_LARGE) {
        ngx_http_modelgw_large_cut(ctx);
    }
}


/*
 * Reads what the answer costs, complete or not: its usage, else the length of
 * its text.  Returns one of NGX_MODELGW_DOC_*.
 */

static ngx_uint_t
ngx_http_modelgw_answer_usage(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    size_t                    text;
    ngx_uint_t                kind;
    ngx_http_modelgw_json_t  *a;

    a = ctx->answer.json;
    a->read = 1;

    if (a->scan == NULL) {
        return NGX_MODELGW_DOC_OTHER;
    }

    kind = ngx_modelgw_usage_merge(&ctx->answer.usage, ctx->call.protocol,
                                   a->scan);
    ngx_modelgw_usage_end(&ctx->answer.usage, ctx->call.protocol);

    text = (ctx->money.slot && !ctx->answer.usage.final
            && ctx->call.protocol != NGX_MODELGW_EMBEDDINGS)
           ? ngx_http_modelgw_answer_text(r, ctx) : 0;

    ngx_http_modelgw_settle_seen(ctx, text);

    return kind;
}


/* bytes of text; 0, which is free, if there is no memory to count it */

static size_t
ngx_http_modelgw_answer_text(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    size_t                    n;
    ngx_str_t                 doc;
    ngx_http_modelgw_json_t  *a;

    a = ctx->answer.json;

    if (ngx_http_modelgw_translate_whole(r, a->first, a->size, &doc)
        != NGX_OK)
    {
        return 0;
    }

    n = ngx_modelgw_text_answer(ctx->call.protocol, doc.data, doc.len);

    if (a->first && doc.data != a->first->buf->pos) {
        (void) ngx_pfree(r->pool, doc.data);
    }

    return n;
}


static ngx_int_t
ngx_http_modelgw_answer_send(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    off_t                     length;
    ngx_int_t                 rc;
    ngx_chain_t              *out, *cl;
    ngx_http_modelgw_json_t  *a;

    a = ctx->answer.json;

    rc = ctx->call.translate
         ? ngx_http_modelgw_translate_answer(r, ctx, a->first, a->size, &out,
                                             &length)
         : ngx_http_modelgw_answer_splice(r, ctx, &out, &length);

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_answer_broken(r, ctx, "it is no message");
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->answer.mode = NGX_HTTP_MODELGW_ENDED;
    ctx->answer.complete = 1;

    ngx_http_modelgw_settle_first_byte(ctx);
    ngx_http_modelgw_settle(r, ctx);

    ngx_http_clear_content_length(r);
    r->headers_out.content_length_n = length;

    rc = ngx_http_modelgw_filter_header(r, ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    for (cl = out; cl->next; cl = cl->next) { /* void */ }

    cl->buf->last_buf = 1;
    cl->buf->last_in_chain = 1;

    return ngx_http_modelgw_filter_body(r, out);
}


/* the bytes as they came, with the model id mapped back */

static ngx_int_t
ngx_http_modelgw_answer_splice(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t **out, off_t *length)
{
    off_t                     grown;
    ngx_modelgw_cut_t         cut;
    ngx_http_modelgw_json_t  *a;

    a = ctx->answer.json;

    *out = a->first;
    *length = a->size;

    if (ngx_modelgw_usage_model(&ctx->answer.usage, ctx->call.protocol, a->scan,
                                &cut.from, &cut.to)
        != NGX_OK)
    {
        return NGX_OK;
    }

    cut.text = ctx->call.service_json;
    grown = (off_t) cut.text.len - (cut.to - cut.from);

    *length += grown;

    if (a->first->next == NULL && a->buf->end - a->buf->last >= grown) {
        ngx_http_modelgw_answer_replace(a->buf, &cut);
        return NGX_OK;
    }

    return ngx_modelgw_splice(r->pool, a->first, &cut, 1, out, &grown);
}


/* most answers are in one buf that has room for this */

static void
ngx_http_modelgw_answer_replace(ngx_buf_t *b, ngx_modelgw_cut_t *cut)
{
    u_char  *p, *rest;

    p = b->pos + cut->from;
    rest = b->pos + cut->to;

    ngx_memmove(p + cut->text.len, rest, b->last - rest);
    ngx_memcpy(p, cut->text.data, cut->text.len);

    b->last += (off_t) cut->text.len - (cut->to - cut->from);
}


static ngx_int_t
ngx_http_modelgw_answer_broken(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, const char *reason)
{
    ngx_uint_t  status;

    status = (ctx->upstream.rc == NGX_HTTP_GATEWAY_TIME_OUT)
             ? NGX_HTTP_GATEWAY_TIME_OUT : NGX_HTTP_BAD_GATEWAY;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "upstream of group \"%V\", model \"%V\": answer cannot be "
                  "passed on: %s", &ngx_http_modelgw_ctx_group(ctx)->name,
                  &ctx->call.upstream_id, reason);

    ngx_modelgw_error_nginx(status, 1, &ctx->error);

    return ngx_http_modelgw_filter_error(r, ctx);
}


static ngx_int_t
ngx_http_modelgw_answer_error(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_uint_t status, ngx_uint_t kind)
{
    u_char       *p;
    ngx_str_t     body;
    ngx_chain_t  *cl;

    body.len = ngx_min(ctx->answer.json->size, NGX_MODELGW_ERROR_MAX_BODY);
    body.data = ngx_pnalloc(r->pool, body.len + 1);
    if (body.data == NULL) {
        return NGX_ERROR;
    }

    p = body.data;

    for (cl = ctx->answer.json->first; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos,
                       ngx_min(cl->buf->last - cl->buf->pos,
                               body.data + body.len - p));
    }

    if (ngx_http_modelgw_upstream_error(r, ctx, status, 0, &body) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a 200 may hold an error */

    if (kind == NGX_MODELGW_DOC_ERROR) {
        ngx_http_modelgw_settle_status(ctx, ctx->error.status);
    }

    return ngx_http_modelgw_filter_error(r, ctx);
}
