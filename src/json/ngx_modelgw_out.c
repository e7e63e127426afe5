
/*
 * What codecs write with: they name text, bytes of the document and numbers,
 * and need not look at a return code after each, because a sink that has failed
 * once stays so and is asked once, at the end.
 *
 * The chain sink copies the short pieces together, which is cheaper than a buf
 * for each of them, and does not copy the long ones, which are most of a body.
 * So the memory it takes is about what the codec adds to the document, which
 * the caller can guess.
 *
 * Rejected: counting first and writing then (as nginx does for headers): every
 * decision of a codec would be made twice and once would be wrong; one buf that
 * grows by copying: a body of 30 MB with images would be copied whole.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"


#define NGX_MODELGW_OUT_BORROW  1024     /* shorter pieces are copied */
#define NGX_MODELGW_OUT_FIRST   4096     /* sizes of bufs */
#define NGX_MODELGW_OUT_LAST    65536
#define NGX_MODELGW_OUT_REST    256      /* less of a buf is not worth one */

#define NGX_MODELGW_OUT_PIECE   256      /* bytes escaped at once */


static ngx_int_t ngx_modelgw_out_chain_write(void *data, u_char *p,
    size_t len, ngx_uint_t borrowed);
static ngx_int_t ngx_modelgw_out_chain_room(ngx_modelgw_out_chain_t *chain);
static ngx_buf_t *ngx_modelgw_out_chain_buf(ngx_modelgw_out_chain_t *chain,
    u_char *p, u_char *last);


/*
 * What stands behind the backslash of an escape, 0: no escape; RFC 8259,
 * section 7.
 */

static const u_char  ngx_modelgw_out_escapes[256] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    ['"'] = '"', ['\\'] = '\\'
};


void
ngx_modelgw_out(ngx_modelgw_out_t *out, u_char *p, size_t len)
{
    if (len == 0 || out->failed) {
        return;
    }

    if (out->write(out->data, p, len, 0) != NGX_OK) {
        out->failed = 1;
    }
}


void
ngx_modelgw_out_borrowed(ngx_modelgw_out_t *out, u_char *p, size_t len)
{
    if (len == 0 || out->failed) {
        return;
    }

    if (out->write(out->data, p, len, 1) != NGX_OK) {
        out->failed = 1;
    }
}


void
ngx_modelgw_out_number(ngx_modelgw_out_t *out, int64_t n)
{
    u_char  *last, buf[NGX_INT64_LEN];

    last = ngx_sprintf(buf, "%L", n);

    ngx_modelgw_out(out, buf, last - buf);
}


void
ngx_modelgw_out_escaped(ngx_modelgw_out_t *out, u_char *p, size_t len)
{
    u_char  *dst, *last, *piece, esc;
    u_char   buf[NGX_MODELGW_OUT_PIECE * (sizeof("\\u0000") - 1)];

    last = p + len;

    while (p < last) {
        piece = p + ngx_min(NGX_MODELGW_OUT_PIECE, last - p);
        dst = buf;

        for ( /* void */ ; p < piece; p++) {
            esc = ngx_modelgw_out_escapes[*p];

            if (esc == 0) {
                *dst++ = *p;
                continue;
            }

            *dst++ = '\\';
            *dst++ = esc;

            if (esc == 'u') {
                dst = ngx_sprintf(dst, "%04xd", (int) *p);
            }
        }

        ngx_modelgw_out(out, buf, dst - buf);
    }
}


void
ngx_modelgw_out_chain(ngx_modelgw_out_t *out, ngx_modelgw_out_chain_t *chain,
    ngx_pool_t *pool, size_t hint)
{
    chain->pool = pool;
    chain->first = NULL;
    chain->last = &chain->first;
    chain->buf = NULL;
    chain->free = NULL;
    chain->end = NULL;
    chain->next = ngx_max(hint, NGX_MODELGW_OUT_FIRST);
    chain->size = 0;

    out->write = ngx_modelgw_out_chain_write;
    out->data = chain;
    out->failed = 0;
}


static ngx_int_t
ngx_modelgw_out_chain_write(void *data, u_char *p, size_t len,
    ngx_uint_t borrowed)
{
    ngx_modelgw_out_chain_t *chain = data;

    size_t      n;
    ngx_buf_t  *b;

    chain->size += len;

    if (borrowed && len >= NGX_MODELGW_OUT_BORROW) {
        b = ngx_modelgw_out_chain_buf(chain, p, p + len);
        if (b == NULL) {
            return NGX_ERROR;
        }

        b->memory = 1;
        chain->buf = NULL;

        return NGX_OK;
    }

    while (len) {

        if (chain->buf == NULL || chain->free == chain->end) {

            if (ngx_modelgw_out_chain_room(chain) != NGX_OK) {
                return NGX_ERROR;
            }
        }

        n = ngx_min(len, (size_t) (chain->end - chain->free));

        chain->free = ngx_cpymem(chain->free, p, n);
        chain->buf->last = chain->free;
        chain->buf->end = chain->free;

        p += n;
        len -= n;
    }

    return NGX_OK;
}


/* a new buf to copy to: in what is left of the memory, or in new memory */

static ngx_int_t
ngx_modelgw_out_chain_room(ngx_modelgw_out_chain_t *chain)
{
    u_char  *p;

    if (chain->end - chain->free < NGX_MODELGW_OUT_REST) {
        p = ngx_pnalloc(chain->pool, chain->next);
        if (p == NULL) {
            return NGX_ERROR;
        }

        chain->free = p;
        chain->end = p + chain->next;
        chain->next = ngx_min(chain->next * 2, NGX_MODELGW_OUT_LAST);
    }

    chain->buf = ngx_modelgw_out_chain_buf(chain, chain->free, chain->free);
    if (chain->buf == NULL) {
        return NGX_ERROR;
    }

    chain->buf->temporary = 1;

    return NGX_OK;
}


static ngx_buf_t *
ngx_modelgw_out_chain_buf(ngx_modelgw_out_chain_t *chain, u_char *p,
    u_char *last)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(chain->pool);
    if (b == NULL) {
        return NULL;
    }

    cl = ngx_alloc_chain_link(chain->pool);
    if (cl == NULL) {
        return NULL;
    }

    b->start = p;
    b->pos = p;
    b->last = last;
    b->end = last;

    cl->buf = b;
    cl->next = NULL;

    *chain->last = cl;
    chain->last = &cl->next;

    return b;
}
