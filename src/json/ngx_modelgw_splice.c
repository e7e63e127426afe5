
/*
 * A body with some bytes replaced.  The scanner has the offsets of a value in
 * the document; they are applied to the chain of the request, so that a body of
 * 32 MB in a temporary file costs a few bufs: nothing is read, little is
 * copied, and no byte outside of the cuts can change.
 *
 * The walk has one position, the offset of the next byte in the document.
 * Inside of a cut, bytes are dropped, and the text of the cut is written once,
 * at its first byte; before the next cut, bytes are kept, as a buf that refers
 * to a part of the original.  A cut may begin and end in different bufs, and an
 * insertion may be at the end of the document.
 *
 * The bytes before the first cut are copied, with its text after them, if they
 * are few: in most documents they are a few bytes and the model.  One more buf
 * costs nginx and the kernel as much as copying a kilobyte.
 *
 * Rejected: changing the bufs of the request in place: nginx frees their memory
 * by them, and sends them again to another peer.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_splice.h"


#define NGX_MODELGW_SPLICE_SHORT  256    /* bytes that are copied */


typedef struct {
    ngx_pool_t         *pool;
    ngx_chain_t       **last;            /* where the next link goes */
    off_t               offset;          /* of the next byte in the document */
    ngx_modelgw_cut_t  *cut;             /* the current one, or the next */
    ngx_uint_t          left;            /* cuts, with this one */
    ngx_buf_t          *copy;            /* of the first bytes; NULL: none */
    size_t              room;            /* bytes free in it; 0: complete */
} ngx_modelgw_splice_walk_t;


static ngx_int_t ngx_modelgw_splice_buf(ngx_modelgw_splice_walk_t *w,
    ngx_buf_t *b);
static off_t ngx_modelgw_splice_cut(ngx_modelgw_splice_walk_t *w, off_t rest);
static off_t ngx_modelgw_splice_keep(ngx_modelgw_splice_walk_t *w,
    ngx_buf_t *b, off_t from, off_t rest);
static ngx_int_t ngx_modelgw_splice_text(ngx_modelgw_splice_walk_t *w);
static ngx_int_t ngx_modelgw_splice_copy(ngx_modelgw_splice_walk_t *w,
    u_char *p, size_t len);
static ngx_buf_t *ngx_modelgw_splice_link(ngx_modelgw_splice_walk_t *w);


ngx_int_t
ngx_modelgw_splice(ngx_pool_t *pool, ngx_chain_t *in, ngx_modelgw_cut_t *cuts,
    ngx_uint_t n, ngx_chain_t **out, off_t *grown)
{
    off_t                      at;
    ngx_uint_t                 i;
    ngx_modelgw_splice_walk_t  w;

    *out = NULL;
    *grown = 0;

    for (at = 0, i = 0; i < n; i++) {

        if (cuts[i].from < at || cuts[i].to < cuts[i].from) {
            return NGX_ERROR;
        }

        at = cuts[i].to;
        *grown += (off_t) cuts[i].text.len - (at - cuts[i].from);
    }

    w.pool = pool;
    w.last = out;
    w.offset = 0;
    w.cut = cuts;
    w.left = n;
    w.copy = NULL;
    w.room = n ? cuts[0].from + cuts[0].text.len : 0;

    if (w.room > NGX_MODELGW_SPLICE_SHORT) {
        w.room = 0;
    }

    for ( /* void */ ; in; in = in->next) {

        if (ngx_modelgw_splice_buf(&w, in->buf) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    /* insertions after the last byte */

    while (w.left && w.cut->to == w.offset) {

        if (ngx_modelgw_splice_cut(&w, 0) == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    return (w.left == 0) ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_modelgw_splice_buf(ngx_modelgw_splice_walk_t *w, ngx_buf_t *b)
{
    off_t  n, done, size;

    size = ngx_buf_size(b);

    for (done = 0; done < size; done += n) {

        if (w->left && w->cut->from <= w->offset) {
            n = ngx_modelgw_splice_cut(w, size - done);

        } else {
            n = ngx_modelgw_splice_keep(w, b, done, size - done);
        }

        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        w->offset += n;
    }

    return NGX_OK;
}


/* returns how many of the rest bytes of a buf are in the current cut */

static off_t
ngx_modelgw_splice_cut(ngx_modelgw_splice_walk_t *w, off_t rest)
{
    off_t  n;

    if (w->cut->from == w->offset && ngx_modelgw_splice_text(w) != NGX_OK) {
        return NGX_ERROR;
    }

    n = w->cut->to - w->offset;

    if (n <= rest) {
        w->cut++;
        w->left--;
        return n;
    }

    return rest;
}


/* keeps bytes up to the next cut, or the end of the buf; returns how many */

static off_t
ngx_modelgw_splice_keep(ngx_modelgw_splice_walk_t *w, ngx_buf_t *b,
    off_t from, off_t rest)
{
    off_t       n;
    ngx_int_t   rc;
    ngx_buf_t  *part;

    n = rest;

    if (w->left) {
        n = ngx_min(n, w->cut->from - w->offset);
    }

    rc = ngx_modelgw_splice_copy(w, ngx_buf_in_memory(b) ? b->pos + from : NULL,
                                 n);
    if (rc != NGX_DECLINED) {
        return (rc == NGX_OK) ? n : NGX_ERROR;
    }

    part = ngx_modelgw_splice_link(w);
    if (part == NULL) {
        return NGX_ERROR;
    }

    if (ngx_buf_in_memory(b)) {
        part->temporary = b->temporary;
        part->memory = b->memory;
        part->mmap = b->mmap;

        part->pos = b->pos + from;
        part->last = part->pos + n;
        part->start = part->pos;
        part->end = part->last;

        return n;
    }

    part->in_file = 1;
    part->file = b->file;
    part->file_pos = b->file_pos + from;
    part->file_last = part->file_pos + n;

    return n;
}


static ngx_int_t
ngx_modelgw_splice_text(ngx_modelgw_splice_walk_t *w)
{
    ngx_int_t   rc;
    ngx_buf_t  *b;
    ngx_str_t  *text;

    text = &w->cut->text;

    if (text->len == 0) {
        return NGX_OK;
    }

    rc = ngx_modelgw_splice_copy(w, text->data, text->len);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    b = ngx_modelgw_splice_link(w);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->memory = 1;
    b->pos = text->data;
    b->last = text->data + text->len;
    b->start = b->pos;
    b->end = b->last;

    return NGX_OK;
}


/*
 * Adds a piece to the copy of the first bytes; p is NULL if it is in a file.
 *     NGX_OK, NGX_ERROR (no memory)
 *     NGX_DECLINED  the copy is complete without it
 */

static ngx_int_t
ngx_modelgw_splice_copy(ngx_modelgw_splice_walk_t *w, u_char *p, size_t len)
{
    ngx_buf_t  *b;

    if (p == NULL || len > w->room) {
        w->room = 0;
        return NGX_DECLINED;
    }

    b = w->copy;

    if (b == NULL) {
        b = ngx_modelgw_splice_link(w);
        if (b == NULL) {
            return NGX_ERROR;
        }

        b->start = ngx_pnalloc(w->pool, w->room);
        if (b->start == NULL) {
            return NGX_ERROR;
        }

        b->pos = b->start;
        b->last = b->start;
        b->end = b->start + w->room;
        b->temporary = 1;

        w->copy = b;
    }

    b->last = ngx_cpymem(b->last, p, len);
    w->room -= len;

    return NGX_OK;
}


static ngx_buf_t *
ngx_modelgw_splice_link(ngx_modelgw_splice_walk_t *w)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(w->pool);
    if (b == NULL) {
        return NULL;
    }

    cl = ngx_alloc_chain_link(w->pool);
    if (cl == NULL) {
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    *w->last = cl;
    w->last = &cl->next;

    return b;
}
