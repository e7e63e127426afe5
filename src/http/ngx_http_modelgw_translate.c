
/*
 * A chat call whose upstream speaks only messages: the request becomes one, and
 * the answer a chat completion.  The codecs are on floor 0; here is what they
 * are fed and where it goes.  Streams are in translate_stream.c.
 *
 * Unlike a body that is passed on, one that is translated is needed in one
 * piece: what stands last in it may decide how it begins.  It is so already if
 * it fits client_body_buffer_size; else it is read back from its file.  What
 * comes out points into it, images and long texts are not copied.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_modelgw_completion.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_request.h"
#include "ngx_modelgw_tape.h"


/* of our own in a request or an answer, beside what is borrowed */

#define NGX_HTTP_MODELGW_TRANSLATE_HINT  2048
#define NGX_HTTP_MODELGW_TRANSLATE_COPY  65536


static ngx_int_t ngx_http_modelgw_translate_copy(ngx_buf_t *b, u_char *p,
    size_t size, ngx_log_t *log);


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

    rc = ngx_http_modelgw_tape_index(r, &doc, &tape);

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
    rq.caps = &ctx->model->caps;
    rq.max_output = ctx->model->max_output;
    rq.model = ctx->upstream_id;
    rq.strict = mlcf->translate_strict;

    /* a body of short texts is copied, one of long ones is referred to */

    ngx_modelgw_out_chain(&out, &chain, r->pool,
                          ngx_min(doc.len, NGX_HTTP_MODELGW_TRANSLATE_COPY)
                          + NGX_HTTP_MODELGW_TRANSLATE_HINT);

    rc = ngx_modelgw_request(&rq, &out);

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

    ctx->ignored = rq.ignored;
    ctx->usage_asked = rq.include_usage;

    r->request_body->bufs = chain.first;
    r->headers_in.content_length_n = chain.size;

    return NGX_OK;
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
    ngx_modelgw_out_chain_t    chain;
    ngx_modelgw_completion_t   c;

    if (ngx_http_modelgw_translate_whole(r, in, size, &doc) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_modelgw_tape_index(r, &doc, &tape);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_modelgw_translate_completion(ctx, &c);

    ngx_modelgw_out_chain(&o, &chain, r->pool,
                          size + NGX_HTTP_MODELGW_TRANSLATE_HINT);

    rc = ngx_modelgw_completion(&c, tape, &o);

    if (rc != NGX_OK) {
        return rc;
    }

    *out = chain.first;
    *length = chain.size;

    return o.failed ? NGX_ERROR : NGX_OK;
}


void
ngx_http_modelgw_translate_completion(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_completion_t *c)
{
    c->model = ctx->service_json;
    c->created = ngx_time();
    c->reasoning = ctx->model->caps.reasoning_output;
    c->include_usage = ctx->usage_asked;
    c->usage = &ctx->usage;
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

        /* what ends a chunked body has neither memory nor a file */

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
