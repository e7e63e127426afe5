
/*
 * A call whose upstream lacks its API: a chat call becomes a messages request,
 * a responses call a messages or chat request; the answer, or the event stream,
 * is made one of the client's API.  The codecs are in src/translate/; this file
 * feeds them and takes what they write.
 *
 * A body is translated from one piece of memory, since its last member may
 * decide how the result begins.  It is in one piece if it fits
 * client_body_buffer_size; else it is read back from its file.  The result
 * points into it: images and long texts are not copied.
 *
 * A stream is translated event by event.  The codec writes into the output of
 * the stream (emit.c), texts stay in the upstream's buffer where they can.  A
 * stream takes the memory of one event, at most modelgw_max_event_size, and
 * of the codec's state.
 *
 * A worker has one tape for all of its calls: a document on it is needed no
 * longer than one function runs.  Rejected: a tape for each call, an allocation
 * of a size that malloc() returns to the kernel, and takes from it again, each
 * time.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_stream.h"
#include "ngx_modelgw_completion.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_request.h"
#include "ngx_modelgw_response.h"
#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_stream.h"
#include "ngx_modelgw_tape.h"


/* bytes that a request or an answer has more after it was translated */

#define NGX_HTTP_MODELGW_TRANSLATE_HINT    2048

/* bytes of a request's texts that are copied, about; most are borrowed */

#define NGX_HTTP_MODELGW_TRANSLATE_COPY    65536

/* bytes that are said to follow an event in a stream, at most */

#define NGX_HTTP_MODELGW_TRANSLATE_STREAM  65536


/* one of the codecs is NULL */

struct ngx_http_modelgw_translate_s {
    ngx_modelgw_completion_t        completion;
    ngx_modelgw_response_t          response;
    ngx_modelgw_out_t               out;
    ngx_modelgw_stream_t           *chat;
    ngx_modelgw_response_stream_t  *responses;
};


static ngx_int_t ngx_http_modelgw_translate_responses(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_request_t *rq,
    ngx_modelgw_out_t *out);
static void ngx_http_modelgw_translate_completion(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_completion_t *c);
static void ngx_http_modelgw_translate_response(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_response_t *rs);
static void ngx_http_modelgw_translate_hint(ngx_http_modelgw_stream_t *st,
    size_t len);
static void ngx_http_modelgw_translate_out(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_out_t *out);
static ngx_int_t ngx_http_modelgw_translate_write(void *data, u_char *p,
    size_t len, ngx_uint_t borrowed);
static ngx_int_t ngx_http_modelgw_translate_copy(ngx_buf_t *b, u_char *p,
    size_t size, ngx_log_t *log);
static ngx_modelgw_tape_t *ngx_http_modelgw_translate_tape(
    ngx_http_request_t *r);


ngx_int_t
ngx_http_modelgw_translate_request(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_str_t                      doc;
    ngx_modelgw_out_t              out;
    ngx_modelgw_tape_t            *tape;
    ngx_modelgw_request_t          rq;
    ngx_modelgw_out_chain_t        chain;
    ngx_http_modelgw_loc_conf_t   *mlcf;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    if (ngx_http_modelgw_translate_whole(r, r->request_body->bufs,
                                         r->headers_in.content_length_n, &doc)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_translate_body(r, ctx, &doc, &tape);

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_REQUEST",
                                      "The body has too many values");
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_memzero(&rq, sizeof(ngx_modelgw_request_t));

    rq.pool = r->pool;
    rq.tape = tape;
    rq.skip = mmcf->skip;
    rq.caps = &ctx->call.model->caps;
    rq.max_output = ctx->call.model->max_output;
    rq.model = ctx->call.upstream_id;
    rq.strict = mlcf->translate_strict;

    /* a body of short texts is copied, long texts are borrowed */

    ngx_modelgw_out_chain(&out, &chain, r->pool,
                          ngx_min(doc.len, NGX_HTTP_MODELGW_TRANSLATE_COPY)
                          + NGX_HTTP_MODELGW_TRANSLATE_HINT);

    rc = (ctx->request.endpoint->protocol == NGX_MODELGW_RESPONSES)
         ? ngx_http_modelgw_translate_responses(r, ctx, &rq, &out)
         : ngx_modelgw_request(&rq, &out);

    if (rc == NGX_DECLINED) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST, rq.code,
                                      "%V", &rq.message);
    }

    if (rc != NGX_OK || out.failed) {
        return NGX_ERROR;
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "modelgw translate: %O bytes to %O, ignored \"%V\"",
                   r->headers_in.content_length_n, chain.size, &rq.ignored);

    ctx->call.ignored = rq.ignored;
    ctx->call.usage_asked = rq.include_usage;

    ctx->call.grown = (off_t) chain.size - r->headers_in.content_length_n;

    r->request_body->bufs = chain.first;
    r->headers_in.content_length_n = chain.size;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_translate_responses(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_request_t *rq,
    ngx_modelgw_out_t *out)
{
    ctx->call.responses = ngx_pcalloc(r->pool,
                                      sizeof(ngx_modelgw_responses_call_t));
    if (ctx->call.responses == NULL) {
        return NGX_ERROR;
    }

    return ngx_modelgw_responses(rq, ctx->call.protocol, ctx->call.responses,
                                 out);
}


ngx_int_t
ngx_http_modelgw_translate_answer(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_chain_t *in, size_t size,
    ngx_chain_t **out, off_t *length)
{
    ngx_int_t                  rc;
    ngx_str_t                  doc;
    ngx_modelgw_out_t          o;
    ngx_modelgw_tape_t        *tape;
    ngx_modelgw_response_t     rs;
    ngx_modelgw_out_chain_t    chain;
    ngx_modelgw_completion_t   c;

    if (ngx_http_modelgw_translate_whole(r, in, size, &doc) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_translate_index(r, &doc, &tape);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_modelgw_out_chain(&o, &chain, r->pool,
                          size + NGX_HTTP_MODELGW_TRANSLATE_HINT);

    if (ctx->call.responses) {
        ngx_http_modelgw_translate_response(ctx, &rs);
        rc = ngx_modelgw_response(&rs, r->pool, tape, &o);

    } else {
        ngx_http_modelgw_translate_completion(ctx, &c);
        rc = ngx_modelgw_completion(&c, tape, &o);
    }

    if (rc != NGX_OK) {
        return rc;
    }

    *out = chain.first;
    *length = chain.size;

    return o.failed ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_http_modelgw_translate_stream_init(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_tape_t            *tape;
    ngx_http_modelgw_loc_conf_t   *mlcf;
    ngx_http_modelgw_translate_t  *t;

    tape = ngx_http_modelgw_translate_tape(r);
    if (tape == NULL) {
        return NGX_ERROR;
    }

    t = ngx_pcalloc(r->pool, sizeof(ngx_http_modelgw_translate_t));
    if (t == NULL) {
        return NGX_ERROR;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_modelgw_module);

    ngx_http_modelgw_translate_out(ctx, &t->out);

    if (ctx->call.responses) {
        ngx_http_modelgw_translate_response(ctx, &t->response);

        t->responses = ngx_modelgw_response_stream_create(r->pool, &t->response,
                                                          tape,
                                                          mlcf->max_event_size,
                                                          &t->out);

    } else {
        ngx_http_modelgw_translate_completion(ctx, &t->completion);

        t->chat = ngx_modelgw_stream_create(r->pool, &t->completion, tape,
                                            mlcf->max_event_size, &t->out);
    }

    ctx->answer.stream->translate = t;

    return (t->responses || t->chat) ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_modelgw_translate_event(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_sse_event_t *ev, ngx_str_t *data)
{
    u_char                        *text;
    ngx_int_t                      rc;
    ngx_uint_t                     borrowed;
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_translate_t  *t;

    st = ctx->answer.stream;
    t = st->translate;
    borrowed = ev->borrowed && ev->lines == 1;

    ngx_http_modelgw_translate_hint(st, ev->raw.len);

    if (t->responses) {
        t->response.now = ngx_time();
        rc = ngx_modelgw_response_stream_event(t->responses, data, &ev->name,
                                               borrowed);
        text = ngx_modelgw_response_stream_text(t->responses);

    } else {
        rc = ngx_modelgw_stream_event(t->chat, data, &ev->name, borrowed);
        text = ngx_modelgw_stream_text(t->chat);
    }

    if (rc == NGX_OK
        && text == st->text.last.data
        && ngx_modelgw_repeat_keep(&st->repeat, ev, &st->text, NULL) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return t->out.failed ? NGX_ERROR : rc;
}


ngx_int_t
ngx_http_modelgw_translate_repeat(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *text)
{
    ngx_int_t                      rc;
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_translate_t  *t;

    st = ctx->answer.stream;
    t = st->translate;

    ngx_http_modelgw_translate_hint(st, text->len);

    rc = t->responses
         ? ngx_modelgw_response_stream_repeat(t->responses, text, 1)
         : ngx_modelgw_stream_repeat(t->chat, text, 1);

    return t->out.failed ? NGX_ERROR : rc;
}


ngx_int_t
ngx_http_modelgw_translate_end(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_http_modelgw_translate_t  *t;

    t = ctx->answer.stream->translate;

    if (t->responses) {
        t->response.now = ngx_time();
        rc = ngx_modelgw_response_stream_end(t->responses);

    } else {
        rc = ngx_modelgw_stream_end(t->chat);
    }

    return t->out.failed ? NGX_ERROR : rc;
}


ngx_int_t
ngx_http_modelgw_translate_error(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                     seq;
    ngx_modelgw_out_t              out;
    ngx_modelgw_response_t         rs;
    ngx_http_modelgw_stream_t     *st;
    ngx_http_modelgw_translate_t  *t;

    st = ctx->answer.stream;
    t = st->translate;

    if (t) {
        ngx_modelgw_response_stream_error(t->responses, &ctx->error.code,
                                          &ctx->error.message);

        return t->out.failed ? NGX_ERROR : NGX_OK;
    }

    /* events may have had no numbers */

    seq = (st->begun || st->emit.out) ? ngx_max(st->responses.next, 1) : 0;

    ngx_http_modelgw_translate_response(ctx, &rs);
    ngx_http_modelgw_translate_out(ctx, &out);

    if (ngx_modelgw_response_error(&rs, st->emit.pool, &st->responses.id, seq,
                                   &ctx->error.code, &ctx->error.message, &out)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return out.failed ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_http_modelgw_translate_ping(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_translate_t  *t;

    t = ctx->answer.stream->translate;

    if (t == NULL || t->responses == NULL) {
        return NGX_DECLINED;
    }

    ngx_modelgw_response_stream_ping(t->responses);

    return t->out.failed ? NGX_ERROR : NGX_OK;
}


/* what the codecs of answers must know of the call */

static void
ngx_http_modelgw_translate_completion(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_completion_t *c)
{
    c->model = ctx->call.service_json;
    c->created = ngx_time();
    c->reasoning = ctx->call.model->caps.reasoning_output;
    c->include_usage = ctx->call.usage_asked;
    c->usage = &ctx->answer.usage;
}


static void
ngx_http_modelgw_translate_response(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_response_t *rs)
{
    rs->model = ctx->call.service_json;
    rs->created = ngx_time();
    rs->now = rs->created;
    rs->protocol = ctx->call.protocol;
    rs->usage = &ctx->answer.usage;
    rs->call = ctx->call.responses;
}


/* a translated event is about twice as long */

static void
ngx_http_modelgw_translate_hint(ngx_http_modelgw_stream_t *st, size_t len)
{
    st->emit.hint = ngx_min(2 * (st->emit.hint + len),
                            NGX_HTTP_MODELGW_TRANSLATE_STREAM);
}


static void
ngx_http_modelgw_translate_out(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_out_t *out)
{
    out->write = ngx_http_modelgw_translate_write;
    out->data = &ctx->answer.stream->emit;
    out->failed = 0;
}


static ngx_int_t
ngx_http_modelgw_translate_write(void *data, u_char *p, size_t len,
    ngx_uint_t borrowed)
{
    ngx_http_modelgw_emit_t *em = data;

    return ngx_http_modelgw_emit(em, p, len, borrowed);
}


ngx_int_t
ngx_http_modelgw_translate_whole(ngx_http_request_t *r, ngx_chain_t *in,
    size_t size, ngx_str_t *doc)
{
    off_t         n;
    u_char       *p;
    ngx_chain_t  *cl;

    doc->len = size;

    if (in && ngx_buf_in_memory(in->buf)
        && (size_t) (in->buf->last - in->buf->pos) == size)
    {
        doc->data = in->buf->pos;
        return NGX_OK;
    }

    doc->data = ngx_pnalloc(r->pool, size);
    if (doc->data == NULL) {
        return NGX_ERROR;
    }

    p = doc->data;

    for (cl = in; cl; cl = cl->next) {

        n = ngx_buf_size(cl->buf);

        /* the last buf of a chunked body has neither memory nor a file */

        if (n == 0) {
            continue;
        }

        if (n > doc->data + size - p
            || ngx_http_modelgw_translate_copy(cl->buf, p, n,
                                               r->connection->log)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        p += n;
    }

    return (p == doc->data + size) ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_modelgw_translate_copy(ngx_buf_t *b, u_char *p, size_t size,
    ngx_log_t *log)
{
    ssize_t  n;

    if (ngx_buf_in_memory(b)) {
        ngx_memcpy(p, b->pos, size);
        return NGX_OK;
    }

    n = ngx_read_file(b->file, p, size, b->file_pos);

    if (n == (ssize_t) size) {
        return NGX_OK;
    }

    if (n != NGX_ERROR) {
        ngx_log_error(NGX_LOG_CRIT, log, 0,
                      "file \"%V\" of a request body is shorter than it was",
                      &b->file->name);
    }

    return NGX_ERROR;
}


ngx_int_t
ngx_http_modelgw_translate_index(ngx_http_request_t *r, ngx_str_t *doc,
    ngx_modelgw_tape_t **tape)
{
    ngx_int_t  rc;

    *tape = ngx_http_modelgw_translate_tape(r);
    if (*tape == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_tape_feed(*tape, doc->data, doc->len);

    return (rc == NGX_OK) ? ngx_modelgw_tape_done(*tape, doc->data) : rc;
}


/* without memory for a tape the body is scanned only */

ngx_int_t
ngx_http_modelgw_translate_scan(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_buf_t *b)
{
    ngx_int_t            rc;
    ngx_modelgw_tape_t  *tape;

    tape = ngx_http_modelgw_translate_tape(r);

    ngx_modelgw_scan_tape(ctx->request.scan, tape);

    rc = ngx_modelgw_scan_feed(ctx->request.scan, b->pos, b->last - b->pos);

    /* from here on it may be another request's */

    ngx_modelgw_scan_tape(ctx->request.scan, NULL);

    ctx->request.document = tape ? tape->documents : 0;

    return rc;
}


ngx_int_t
ngx_http_modelgw_translate_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *doc, ngx_modelgw_tape_t **tape)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (ctx->request.document
        && ctx->request.document == mmcf->tape->documents
        && doc->len == mmcf->tape->pos
        && ngx_modelgw_tape_done(mmcf->tape, doc->data) == NGX_OK)
    {
        *tape = mmcf->tape;
        return NGX_OK;
    }

    return ngx_http_modelgw_translate_index(r, doc, tape);
}


/* The worker's tape, empty; NULL: no memory. */

static ngx_modelgw_tape_t *
ngx_http_modelgw_translate_tape(ngx_http_request_t *r)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (mmcf->tape == NULL) {
        mmcf->tape = ngx_palloc(ngx_cycle->pool, sizeof(ngx_modelgw_tape_t));
        if (mmcf->tape == NULL) {
            return NULL;
        }

        ngx_modelgw_tape_init(mmcf->tape, ngx_cycle->pool, mmcf->skip);
    }

    ngx_modelgw_tape_reset(mmcf->tape);

    return mmcf->tape;
}
