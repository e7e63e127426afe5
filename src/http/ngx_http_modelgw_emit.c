
/*
 * Output of a stream: a chain made of the upstream's bytes and of ours, and the
 * memory for it.
 *
 * Bytes of the upstream's buffer are borrowed: our bufs point to them, and the
 * upstream's buf counts as read when the last of our bufs made from it is sent
 * (buf->shadow, as in ngx_http_sub_filter_module).  So a slow client stops the
 * reading, and nothing is copied without need.  Events that are changed, and
 * short, are written into one buf with its own memory: many events of one read
 * are few bufs in one writev().
 *
 * A chunked answer has a buf for each chunk, and so, with most vendors, for
 * each event.  Our buf takes the events of all of them: an upstream's buf that
 * was only copied counts as read when the next one is, and the last one of a
 * read when the copies are sent.
 *
 * A buf is on one of three lists: out (made in this call of the filter), busy
 * (passed on, not sent yet), free.  A free one has no memory: most streams wait
 * for their next event, and there may be many of them.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_emit.h"


/* bytes: borrowed ones up to this are copied if there is room */

#define NGX_HTTP_MODELGW_EMIT_SMALL  2048

/* bytes of a buf: a page, which no pool has in a block, so it can be freed */

#define NGX_HTTP_MODELGW_EMIT_MIN    4096


static ngx_int_t ngx_http_modelgw_emit_new(ngx_http_modelgw_emit_t *em,
    u_char *p, size_t len, ngx_uint_t borrowed);
static ngx_buf_t *ngx_http_modelgw_emit_buf(ngx_http_modelgw_emit_t *em,
    size_t size);
static void ngx_http_modelgw_emit_release(ngx_http_modelgw_emit_t *em);


void
ngx_http_modelgw_emit_begin(ngx_http_modelgw_emit_t *em, ngx_chain_t *in)
{
    em->out = NULL;
    em->last_out = &em->out;
    em->tail = NULL;
    em->borrowed = 0;
    em->ahead = 0;

    for ( /* void */ ; in; in = in->next) {
        em->ahead += in->buf->last - in->buf->pos;
    }
}


void
ngx_http_modelgw_emit_at(ngx_http_modelgw_emit_t *em, ngx_buf_t *b)
{
    em->ahead -= b->last - b->pos;
}


ngx_int_t
ngx_http_modelgw_emit(ngx_http_modelgw_emit_t *em, u_char *p, size_t len,
    ngx_uint_t borrowed)
{
    ngx_buf_t  *b;

    if (len == 0) {
        return NGX_OK;
    }

    b = em->tail;

    if (b && b->temporary) {

        if ((size_t) (b->end - b->last) >= len
            && (!borrowed || len <= NGX_HTTP_MODELGW_EMIT_SMALL))
        {
            b->last = ngx_cpymem(b->last, p, len);
            return NGX_OK;
        }

    } else if (b && borrowed && b->last == p) {
        b->last += len;
        return NGX_OK;
    }

    return ngx_http_modelgw_emit_new(em, p, len, borrowed);
}


ngx_int_t
ngx_http_modelgw_emit_replaced(ngx_http_modelgw_emit_t *em, ngx_str_t *raw,
    ngx_modelgw_cut_t *cut, ngx_uint_t borrowed)
{
    size_t      len, rest;
    u_char     *p, *to;
    ngx_buf_t  *b;

    b = em->tail;
    len = raw->len + cut->text.len;

    to = raw->data + cut->to;
    rest = raw->len - cut->to;

    /* most are short and fit into the buf of those before */

    if (raw->len <= NGX_HTTP_MODELGW_EMIT_SMALL) {

        if (b == NULL || !b->temporary || (size_t) (b->end - b->last) < len) {
            b = ngx_http_modelgw_emit_buf(em, len);
            if (b == NULL) {
                return NGX_ERROR;
            }

            em->tail = b;
        }

        p = ngx_cpymem(b->last, raw->data, cut->from);
        p = ngx_cpymem(p, cut->text.data, cut->text.len);
        b->last = ngx_cpymem(p, to, rest);

        return NGX_OK;
    }

    /* borrowed bytes are not copied after the text: it needs no more room */

    em->hint = borrowed ? 0 : em->hint + len;

    if (ngx_http_modelgw_emit(em, raw->data, cut->from, borrowed) != NGX_OK
        || ngx_http_modelgw_emit(em, cut->text.data, cut->text.len, 0)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_emit(em, to, rest, borrowed);
}


void
ngx_http_modelgw_emit_read(ngx_http_modelgw_emit_t *em, ngx_buf_t *b)
{
    ngx_buf_t  *tail;

    tail = em->tail;

    if (tail == NULL) {
        b->pos = b->last;
        return;
    }

    /* the buf before was only copied */

    if (tail->shadow) {
        tail->shadow->pos = tail->shadow->last;
    }

    tail->shadow = b;

    if (em->borrowed) {
        em->borrowed = 0;
        em->tail = NULL;
    }
}


ngx_int_t
ngx_http_modelgw_emit_last(ngx_http_modelgw_emit_t *em)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(em->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;

    cl = ngx_alloc_chain_link(em->pool);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    cl->buf = b;
    cl->next = NULL;

    *em->last_out = cl;
    em->last_out = &cl->next;

    return NGX_OK;
}


void
ngx_http_modelgw_emit_drop(ngx_http_modelgw_emit_t *em)
{
    ngx_chain_t  *cl;

    for (cl = em->busy; cl; cl = cl->next) {
        if (cl->buf->shadow) {
            cl->buf->shadow->pos = cl->buf->shadow->last;
        }
    }

    em->busy = NULL;
}


ngx_int_t
ngx_http_modelgw_emit_send(ngx_http_request_t *r, ngx_http_modelgw_emit_t *em)
{
    ngx_int_t     rc;
    ngx_chain_t  *cl, **ll;

    for (ll = &em->busy; *ll; ll = &(*ll)->next) { /* void */ }

    *ll = em->out;

    /* streams are not buffered */

    for (cl = em->out; cl; cl = cl->next) {
        if (cl->next == NULL) {
            cl->buf->flush = 1;
        }
    }

    rc = ngx_http_modelgw_filter_body(r, em->out);

    em->out = NULL;

    ngx_http_modelgw_emit_release(em);

    return rc;
}


static ngx_int_t
ngx_http_modelgw_emit_new(ngx_http_modelgw_emit_t *em, u_char *p, size_t len,
    ngx_uint_t borrowed)
{
    ngx_buf_t  *b;

    b = ngx_http_modelgw_emit_buf(em, borrowed ? 0 : len);
    if (b == NULL) {
        return NGX_ERROR;
    }

    if (borrowed) {
        b->memory = 1;
        b->pos = p;
        b->last = p + len;

        em->borrowed = 1;

    } else {
        b->last = ngx_cpymem(b->last, p, len);
    }

    em->tail = b;

    return NGX_OK;
}


/* a new buf at the end of out, with memory for size bytes, if not 0; or NULL */

static ngx_buf_t *
ngx_http_modelgw_emit_buf(ngx_http_modelgw_emit_t *em, size_t size)
{
    size_t        room;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    cl = ngx_chain_get_free_buf(em->pool, &em->free);
    if (cl == NULL) {
        return NULL;
    }

    b = cl->buf;
    ngx_memzero(b, sizeof(ngx_buf_t));

    if (size) {
        room = ngx_max(size + em->hint, NGX_HTTP_MODELGW_EMIT_MIN);

        b->start = ngx_palloc(em->pool, room);
        if (b->start == NULL) {
            return NULL;
        }

        b->pos = b->start;
        b->last = b->start;
        b->end = b->start + room;
        b->temporary = 1;
    }

    *em->last_out = cl;
    em->last_out = &cl->next;

    return b;
}


static void
ngx_http_modelgw_emit_release(ngx_http_modelgw_emit_t *em)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    while (em->busy) {

        cl = em->busy;
        b = cl->buf;

        if (ngx_buf_size(b) != 0) {
            break;
        }

        if (b->shadow) {
            b->shadow->pos = b->shadow->last;
        }

        em->busy = cl->next;

        if (b->start) {
            (void) ngx_pfree(em->pool, b->start);
        }

        if (!b->last_buf) {
            cl->next = em->free;
            em->free = cl;
        }
    }
}
