
/*
 * Events that repeat the previous one.
 *
 * An event has 200 to 400 bytes around a word of an answer, and they are the
 * same each time.  The results of the reader of events and of the scanner
 * depend on the bytes and on their own state only, which is the same at the
 * beginning of each event, and the contents of a string that is not watched do
 * not change it.  So if an event has the bytes of another one before and after
 * such a string, everything is known: where it ends, that it is JSON, where its
 * model id is, and its usage.  Only the contents of the string are to be read.
 *
 * This is true if the text is within one line, as in JSON, if the event ends
 * with LF (after a final CR it depends on the next byte), and if there is no
 * BOM before it, which only the first event of a stream may have.
 *
 * Some upstreams add noise of any length to each event: that is a second
 * string.  Those of responses are numbered: that is a hole, too, for the digits
 * of a count.  Rejected: searching for differences anywhere; an event that
 * differs in another way is left to the scanner.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_repeat.h"
#include "ngx_modelgw_string.h"


#define NGX_MODELGW_REPEAT_MAX     1024  /* bytes without the holes */
#define NGX_MODELGW_REPEAT_DIGITS  9     /* of the number, at most */


static ngx_int_t ngx_modelgw_repeat_pieces(ngx_modelgw_repeat_t *rp,
    ngx_str_t *raw, ngx_str_t **holes, ngx_uint_t n);
static u_char *ngx_modelgw_repeat_string(ngx_modelgw_repeat_t *rp, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_repeat_number(u_char *p, u_char *last,
    ngx_uint_t *number);


void
ngx_modelgw_repeat_init(ngx_modelgw_repeat_t *rp, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip, size_t max)
{
    ngx_memzero(rp, sizeof(ngx_modelgw_repeat_t));

    rp->pool = pool;
    rp->skip = skip;
    rp->max = max;
}


ngx_int_t
ngx_modelgw_repeat_keep(ngx_modelgw_repeat_t *rp, ngx_modelgw_sse_event_t *ev,
    ngx_modelgw_text_t *text, off_t from, off_t to)
{
    off_t        end;
    ngx_str_t   *holes[NGX_MODELGW_REPEAT_HOLES];
    ngx_uint_t   n, i;

    rp->holes = 0;

    if (text->last.data == NULL
        || text->finished
        || (text->number.len && to)
        || ev->lines != 1
        || ev->bom
        || ev->raw.data[ev->raw.len - 1] != LF)
    {
        return NGX_OK;
    }

    n = 0;
    holes[n++] = &text->last;

    if (text->noise.data > text->last.data
        && text->noise.data > ev->raw.data + to)
    {
        holes[n++] = &text->noise;
    }

    rp->text = 0;
    rp->number = NGX_MODELGW_REPEAT_HOLES;

    if (text->number.len) {

        for (i = n++; i && holes[i - 1]->data > text->number.data; i--) {
            holes[i] = holes[i - 1];
        }

        holes[i] = &text->number;

        rp->text = (i == 0);
        rp->number = i;
    }

    if (ngx_modelgw_repeat_pieces(rp, &ev->raw, holes, n) != NGX_OK) {
        return NGX_ERROR;
    }

    end = text->last.data + text->last.len - ev->raw.data;

    rp->after_text = (to > end);
    rp->from = from - (rp->after_text ? end : 0);
    rp->to = to - (rp->after_text ? end : 0);
    rp->other = text->n - ngx_modelgw_text_len(&text->last);

    return NGX_OK;
}


void
ngx_modelgw_repeat_forget(ngx_modelgw_repeat_t *rp)
{
    rp->holes = 0;
}


/* copies the bytes around n holes of an event */

static ngx_int_t
ngx_modelgw_repeat_pieces(ngx_modelgw_repeat_t *rp, ngx_str_t *raw,
    ngx_str_t **holes, ngx_uint_t n)
{
    size_t       len;
    u_char      *p, *dst;
    ngx_uint_t   i;

    len = raw->len;

    for (i = 0; i < n; i++) {
        len -= holes[i]->len;
    }

    if (len > NGX_MODELGW_REPEAT_MAX) {
        return NGX_OK;
    }

    if (len > rp->room) {

        /* the rest of an event usually has the same length each time */

        rp->room = rp->room ? NGX_MODELGW_REPEAT_MAX : ngx_align(len, 64);

        rp->bytes = ngx_pnalloc(rp->pool, rp->room);
        if (rp->bytes == NULL) {
            return NGX_ERROR;
        }
    }

    p = raw->data;
    dst = rp->bytes;

    for (i = 0; i < n; i++) {
        rp->len[i] = holes[i]->data - p;
        dst = ngx_cpymem(dst, p, rp->len[i]);
        p = holes[i]->data + holes[i]->len;
    }

    rp->len[n] = raw->data + raw->len - p;
    ngx_memcpy(dst, p, rp->len[n]);

    rp->holes = n;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_repeat_next(ngx_modelgw_repeat_t *rp, u_char **pos, u_char *last,
    ngx_modelgw_repeat_event_t *ev)
{
    off_t        end;
    u_char      *p, *piece, *hole;
    ngx_uint_t   i;

    if (rp->holes == 0) {
        return NGX_DECLINED;
    }

    p = *pos;
    last = p + ngx_min((size_t) (last - p), rp->max);
    piece = rp->bytes;

    for (i = 0; /* void */ ; i++) {

        if ((size_t) (last - p) < rp->len[i]
            || ngx_memcmp(p, piece, rp->len[i]) != 0)
        {
            return NGX_DECLINED;
        }

        p += rp->len[i];
        piece += rp->len[i];

        if (i == rp->holes) {
            break;
        }

        hole = p;

        p = (i == rp->number) ? ngx_modelgw_repeat_number(p, last, &ev->number)
                              : ngx_modelgw_repeat_string(rp, p, last);
        if (p == NULL) {
            return NGX_DECLINED;
        }

        if (i == rp->text) {
            ev->text.data = hole;
            ev->text.len = p - hole;
        }
    }

    ev->raw.data = *pos;
    ev->raw.len = p - *pos;

    end = rp->after_text ? ev->text.data + ev->text.len - ev->raw.data : 0;

    ev->from = rp->from + end;
    ev->to = rp->to + end;

    *pos = p;

    return NGX_OK;
}


/*
 * Returns the closing quote of the string whose contents are at p, or NULL if
 * there is none or the contents are invalid (RFC 8259, section 7; RFC 3629).
 */

static u_char *
ngx_modelgw_repeat_string(ngx_modelgw_repeat_t *rp, u_char *p, u_char *last)
{
    size_t  n;

    /* almost always one word */

    n = ngx_modelgw_skip_string(p, last);

    if (n < NGX_MODELGW_SKIP_SHORT) {
        return p + n;
    }

    for ( ;; ) {
        p += rp->skip(p, last - p);

        if (p == last) {
            return NULL;
        }

        if (*p == '"') {
            return p;
        }

        n = 0;

        if (*p >= 0x80) {
            n = ngx_modelgw_string_utf8(p, last);

        } else if (last - p > 5
                   && p[0] == '\\'
                   && p[1] == 'u'
                   && ngx_hextoi(p + 2, 4) != NGX_ERROR)
        {
            n = 6;
        }

        if (n == 0) {
            return NULL;
        }

        p += n;
    }
}


/* returns the end of the count at p, or NULL if there is none */

static u_char *
ngx_modelgw_repeat_number(u_char *p, u_char *last, ngx_uint_t *number)
{
    u_char     *first;
    ngx_uint_t  n;

    first = p;
    n = 0;

    while (p < last && *p >= '0' && *p <= '9') {
        n = n * 10 + (*p++ - '0');

        if (p - first > NGX_MODELGW_REPEAT_DIGITS) {
            return NULL;
        }
    }

    if (p == first || (*first == '0' && p - first > 1)) {
        return NULL;
    }

    *number = n;

    return p;
}
