
/*
 * Writing JSON: text, numbers, strings.  Writers need not look at a return code
 * after each call, because a failure is kept and looked at once, at the end.
 *
 * The chain is for bodies that are translated.  Short pieces are copied
 * together, which is cheaper than a buf for each of them; long ones, which are
 * most of a body, are not copied.  So the memory it takes is about what is
 * added to the document, which the caller can estimate.
 *
 * One piece of memory is for the module's own answers, which are small.
 *
 * Rejected: to measure first and write then, as nginx does for headers: every
 * decision of a writer would be made twice, and they would differ some day; one
 * piece for bodies: a body of 30 MB with images would be copied whole.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_string.h"


#define NGX_MODELGW_OUT_BORROW  1024     /* bytes; shorter pieces are copied */
#define NGX_MODELGW_OUT_FIRST   4096     /* bytes of a chain's first memory */
#define NGX_MODELGW_OUT_LAST    65536    /* and at most */
#define NGX_MODELGW_OUT_REST    256      /* less memory is not worth a buf */

#define NGX_MODELGW_OUT_ESCAPE  256      /* bytes escaped at once */

#define NGX_MODELGW_OUT_TIME    sizeof("\"-2147483648-11-22T06:47:00.123Z\"")


static ngx_int_t ngx_modelgw_out_chain_write(void *data, u_char *p,
    size_t len, ngx_uint_t borrowed);
static ngx_int_t ngx_modelgw_out_chain_room(ngx_modelgw_out_chain_t *chain);
static ngx_buf_t *ngx_modelgw_out_chain_buf(ngx_modelgw_out_chain_t *chain,
    u_char *p, u_char *last);
static ngx_int_t ngx_modelgw_out_piece_write(void *data, u_char *p,
    size_t len, ngx_uint_t borrowed);


/* RFC 8259, section 7: the byte after the backslash; 0: no escape */

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
    u_char  *p, *last, buf[NGX_INT64_LEN];

    last = buf + NGX_INT64_LEN;

    p = ngx_modelgw_out_digits(last, (n < 0) ? 0 - (uint64_t) n : (uint64_t) n);

    if (n < 0) {
        *--p = '-';
    }

    ngx_modelgw_out(out, p, last - p);
}


void
ngx_modelgw_out_escaped(ngx_modelgw_out_t *out, u_char *p, size_t len)
{
    u_char  *dst, *last, *piece, esc;
    u_char   buf[NGX_MODELGW_OUT_ESCAPE * (sizeof("\\u0000") - 1)];

    last = p + len;

    while (p < last) {
        piece = p + ngx_min(NGX_MODELGW_OUT_ESCAPE, last - p);
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
ngx_modelgw_out_string(ngx_modelgw_out_t *out, ngx_str_t *s)
{
    size_t   n;
    u_char  *p, *from, *last;

    ngx_modelgw_out_text(out, "\"");

    from = s->data;
    last = from + s->len;

    for (p = from; p < last; p += n) {
        n = (*p < 0x80) ? 1 : ngx_modelgw_string_utf8(p, last);

        if (n == 0) {
            ngx_modelgw_out_escaped(out, from, p - from);
            ngx_modelgw_out_text(out, "\xef\xbf\xbd");

            n = 1;
            from = p + 1;
        }
    }

    ngx_modelgw_out_escaped(out, from, last - from);
    ngx_modelgw_out_text(out, "\"");
}


void
ngx_modelgw_out_time(ngx_modelgw_out_t *out, int64_t ms)
{
    time_t      sec;
    u_char     *last, buf[NGX_MODELGW_OUT_TIME];
    struct tm   tm;

    sec = ms / 1000;
    ngx_memzero(&tm, sizeof(struct tm));
    (void) gmtime_r(&sec, &tm);

    last = ngx_sprintf(buf, "\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"",
                       tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                       tm.tm_hour, tm.tm_min, tm.tm_sec, (int) (ms % 1000));

    ngx_modelgw_out(out, buf, last - buf);
}


void
ngx_modelgw_out_day(ngx_modelgw_out_t *out, time_t sec)
{
    u_char     *last, buf[NGX_MODELGW_OUT_TIME];
    struct tm   tm;

    ngx_memzero(&tm, sizeof(struct tm));
    (void) gmtime_r(&sec, &tm);

    last = ngx_sprintf(buf, "\"%04d-%02d-%02d\"", tm.tm_year + 1900,
                       tm.tm_mon + 1, tm.tm_mday);

    ngx_modelgw_out(out, buf, last - buf);
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


void
ngx_modelgw_out_piece(ngx_modelgw_out_t *out, ngx_modelgw_out_piece_t *piece,
    ngx_pool_t *pool, size_t hint)
{
    out->write = ngx_modelgw_out_piece_write;
    out->data = piece;
    out->failed = 0;

    piece->pool = pool;

    piece->start = ngx_pnalloc(pool, hint);
    if (piece->start == NULL) {
        out->failed = 1;
        return;
    }

    piece->last = piece->start;
    piece->end = piece->start + hint;
}


static ngx_int_t
ngx_modelgw_out_piece_write(void *data, u_char *p, size_t len,
    ngx_uint_t borrowed)
{
    ngx_modelgw_out_piece_t *piece = data;

    u_char  *new;
    size_t   used, size;

    if (len > (size_t) (piece->end - piece->last)) {
        used = piece->last - piece->start;
        size = 2 * ngx_max((size_t) (piece->end - piece->start), len);

        new = ngx_pnalloc(piece->pool, size);
        if (new == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(new, piece->start, used);
        (void) ngx_pfree(piece->pool, piece->start);

        piece->start = new;
        piece->last = new + used;
        piece->end = new + size;
    }

    piece->last = ngx_cpymem(piece->last, p, len);

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_out_piece_done(ngx_modelgw_out_t *out, ngx_str_t *text)
{
    ngx_modelgw_out_piece_t *piece = out->data;

    if (out->failed) {
        return NGX_ERROR;
    }

    text->data = piece->start;
    text->len = piece->last - piece->start;

    return NGX_OK;
}
