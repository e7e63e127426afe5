
/*
 * Server-sent events: where they end, and which of their lines have data.
 *
 * Events are passed on as received, so nothing is decoded or copied without
 * need: an event that is wholly in the caller's bytes is a pair of pointers
 * into them.  Only an event that continues after them is copied to memory of
 * the reader.  The search for its end is resumed where it stopped, so the cost
 * is linear in the bytes, however they are split.
 *
 * Blank lines before an event belong to no event (WHATWG HTML, section 9.2.6:
 * with an empty data buffer nothing is dispatched).  They are returned with the
 * next event: the events and the rest, joined, are the stream, byte for byte.
 *
 * Rejected: decoding lines as they arrive; that needs a second buffer for
 * lines, and the rewriting of a model id needs offsets in the raw bytes anyway.
 * Rejected: one memchr() for LF up to the end of the bytes; in a stream with CR
 * alone it would read the whole rest for each line.  Hence the window.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_sse.h"


#define NGX_MODELGW_SSE_WINDOW  256      /* bytes */

#define NGX_MODELGW_SSE_SMALL   4096     /* bytes, a page: larger than what a
                                            pool's block holds, so that it can
                                            be freed */


/*
 * What precedes the next byte:
 *
 *     START    nothing; EF -> BOM_EF, else as in LEAD
 *     BOM_EF   EF; BB -> BOM_BB, else as in LINE
 *     BOM_BB   EF BB; BF -> LEAD, else as in LINE
 *     LEAD     no line but blank ones; CR, LF -> LEAD, else -> LINE
 *     LINE     part of a line; CR -> HEAD_CR, LF -> HEAD, else -> LINE
 *     HEAD_CR  a line that ended with CR; LF -> HEAD, else as in HEAD
 *     HEAD     a line with its end; CR, CR LF, LF end the event -> LEAD,
 *              else -> LINE
 *     FAULT    an event was too long; final
 *
 * If CR LF after an event is split, LF is read in LEAD, where it is ignored.
 */
typedef enum {
    sw_start = 0,                        /* set by ngx_modelgw_sse_init() */
    sw_bom_ef,
    sw_bom_bb,
    sw_lead,
    sw_line,
    sw_head_cr,
    sw_head,
    sw_fault
} ngx_modelgw_sse_state_e;


static void ngx_modelgw_sse_drop(ngx_modelgw_sse_t *sse);
static u_char *ngx_modelgw_sse_start(ngx_modelgw_sse_t *sse, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_sse_end(ngx_modelgw_sse_t *sse, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_sse_blank(u_char *p, u_char *last);
static u_char *ngx_modelgw_sse_eol(u_char *p, u_char *last);
static ngx_int_t ngx_modelgw_sse_append(ngx_modelgw_sse_t *sse, u_char *p,
    size_t n);
static void ngx_modelgw_sse_event(ngx_modelgw_sse_t *sse,
    ngx_modelgw_sse_event_t *ev, u_char *p, size_t n);
static ngx_int_t ngx_modelgw_sse_line(ngx_modelgw_sse_event_t *ev,
    u_char **state, ngx_str_t *line);
static ngx_int_t ngx_modelgw_sse_field(ngx_str_t *line, ngx_str_t *name,
    ngx_str_t *value);


static ngx_str_t  ngx_modelgw_sse_field_data = ngx_string("data");
static ngx_str_t  ngx_modelgw_sse_field_event = ngx_string("event");


void
ngx_modelgw_sse_init(ngx_modelgw_sse_t *sse, ngx_pool_t *pool, size_t max_event)
{
    ngx_memzero(sse, sizeof(ngx_modelgw_sse_t));

    sse->pool = pool;
    sse->max_event = max_event;
}


ngx_int_t
ngx_modelgw_sse_next(ngx_modelgw_sse_t *sse, u_char **pos, u_char *last,
    ngx_modelgw_sse_event_t *ev)
{
    size_t   n;
    u_char  *p, *end;

    if (sse->state == sw_fault) {
        return NGX_DECLINED;
    }

    ngx_modelgw_sse_drop(sse);

    p = *pos;
    end = ngx_modelgw_sse_end(sse, p, last);
    n = (end ? end : last) - p;

    if (n > sse->max_event - sse->len) {
        sse->state = sw_fault;
        return NGX_DECLINED;
    }

    if (end && sse->len == 0) {
        *pos = end;

        ngx_modelgw_sse_event(sse, ev, p, n);
        ev->borrowed = 1;

        return NGX_OK;
    }

    if (ngx_modelgw_sse_append(sse, p, n) != NGX_OK) {
        return NGX_ERROR;
    }

    *pos = p + n;

    if (end == NULL) {
        return NGX_AGAIN;
    }

    ngx_modelgw_sse_event(sse, ev, sse->start, sse->len);
    sse->returned = 1;

    return NGX_OK;
}


ngx_uint_t
ngx_modelgw_sse_between(ngx_modelgw_sse_t *sse)
{
    return sse->state == sw_lead && (sse->len == 0 || sse->returned);
}


ngx_int_t
ngx_modelgw_sse_rest(ngx_modelgw_sse_t *sse, ngx_modelgw_sse_event_t *ev)
{
    ngx_modelgw_sse_drop(sse);

    if (sse->len == 0) {
        return NGX_DECLINED;
    }

    ngx_modelgw_sse_event(sse, ev, sse->start, sse->len);
    sse->returned = 1;

    return NGX_OK;
}


ngx_int_t
ngx_modelgw_sse_data(ngx_modelgw_sse_event_t *ev, u_char **state,
    ngx_str_t *line)
{
    ngx_str_t  l;

    /* the usual case */

    if (ev->lines < 2) {

        if (ev->lines == 0 || *state) {
            return NGX_DECLINED;
        }

        *line = ev->data;
        *state = ev->raw.data + ev->raw.len;

        return NGX_OK;
    }

    while (ngx_modelgw_sse_line(ev, state, &l) == NGX_OK) {

        if (ngx_modelgw_sse_field(&l, &ngx_modelgw_sse_field_data, line)
            == NGX_OK)
        {
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/*
 * Frees the event that was returned from the reader's memory: a stream may wait
 * long for its next event, which is rarely split.
 */

static void
ngx_modelgw_sse_drop(ngx_modelgw_sse_t *sse)
{
    if (!sse->returned) {
        return;
    }

    sse->returned = 0;
    sse->len = 0;

    (void) ngx_pfree(sse->pool, sse->start);

    sse->start = NULL;
    sse->size = 0;
}


/* skips a BOM (WHATWG Encoding, "UTF-8 decode": one, at the very start) */

static u_char *
ngx_modelgw_sse_start(ngx_modelgw_sse_t *sse, u_char *p, u_char *last)
{
    static u_char  bom[] = { 0xef, 0xbb, 0xbf };

    while (p < last) {

        if (*p != bom[sse->state]) {
            sse->state = (sse->state == sw_start) ? sw_lead : sw_line;
            return p;
        }

        p++;
        sse->state++;

        if (sse->state == sw_lead) {
            sse->bom = 1;
            return p;
        }
    }

    return p;
}


/* returns the end of the current event, or NULL if it is not in the bytes */

static u_char *
ngx_modelgw_sse_end(ngx_modelgw_sse_t *sse, u_char *p, u_char *last)
{
    if (sse->state < sw_lead) {
        p = ngx_modelgw_sse_start(sse, p, last);
    }

    while (p < last) {

        switch (sse->state) {

        case sw_lead:
            if (*p == CR || *p == LF) {
                p++;
                break;
            }

            sse->state = sw_line;
            break;

        case sw_line:
            p = ngx_modelgw_sse_eol(p, last);

            if (p < last) {
                sse->state = (*p++ == CR) ? sw_head_cr : sw_head;
            }

            break;

        case sw_head_cr:
            if (*p == LF) {
                p++;
            }

            sse->state = sw_head;
            break;

        default: /* sw_head */
            if (*p == CR || *p == LF) {
                sse->state = sw_lead;
                return ngx_modelgw_sse_blank(p, last);
            }

            sse->state = sw_line;
            break;
        }
    }

    return NULL;
}


/* skips the end of a line at p */

static u_char *
ngx_modelgw_sse_blank(u_char *p, u_char *last)
{
    if (*p++ == CR && p < last && *p == LF) {
        p++;
    }

    return p;
}


/* returns the first CR or LF, or last */

static u_char *
ngx_modelgw_sse_eol(u_char *p, u_char *last)
{
    u_char  *cr, *lf, *end;

    while (p < last) {

        end = p + ngx_min(last - p, NGX_MODELGW_SSE_WINDOW);

        lf = memchr(p, LF, end - p);

        if (lf) {
            end = lf;
        }

        cr = memchr(p, CR, end - p);

        if (cr) {
            return cr;
        }

        if (lf) {
            return lf;
        }

        p = end;
    }

    return last;
}


static ngx_int_t
ngx_modelgw_sse_append(ngx_modelgw_sse_t *sse, u_char *p, size_t n)
{
    size_t   size;
    u_char  *start;

    if (n > sse->size - sse->len) {

        size = ngx_max(sse->size, NGX_MODELGW_SSE_SMALL);

        while (size < sse->len + n) {
            size *= 2;
        }

        start = ngx_palloc(sse->pool, size);
        if (start == NULL) {
            return NGX_ERROR;
        }

        if (sse->start) {
            ngx_memcpy(start, sse->start, sse->len);
            (void) ngx_pfree(sse->pool, sse->start);
        }

        sse->start = start;
        sse->size = size;
    }

    if (n) {
        ngx_memcpy(sse->start + sse->len, p, n);
        sse->len += n;
    }

    return NGX_OK;
}


/* parses the n bytes at p, which are an event */

static void
ngx_modelgw_sse_event(ngx_modelgw_sse_t *sse, ngx_modelgw_sse_event_t *ev,
    u_char *p, size_t n)
{
    u_char     *state;
    ngx_str_t   line, value;

    ngx_memzero(ev, sizeof(ngx_modelgw_sse_event_t));

    ev->raw.len = n;
    ev->raw.data = p;

    ev->bom = sse->bom;
    sse->bom = 0;

    state = NULL;

    while (ngx_modelgw_sse_line(ev, &state, &line) == NGX_OK) {

        if (ngx_modelgw_sse_field(&line, &ngx_modelgw_sse_field_data, &value)
            == NGX_OK)
        {
            if (ev->lines++ == 0) {
                ev->data = value;
            }

            continue;
        }

        if (ngx_modelgw_sse_field(&line, &ngx_modelgw_sse_field_event, &value)
            == NGX_OK)
        {
            ev->name = value;
        }
    }
}


/* iterates over the lines of an event, including blank ones */

static ngx_int_t
ngx_modelgw_sse_line(ngx_modelgw_sse_event_t *ev, u_char **state,
    ngx_str_t *line)
{
    u_char  *p, *last, *eol;

    p = *state;
    last = ev->raw.data + ev->raw.len;

    if (p == NULL) {
        p = ev->raw.data + (ev->bom ? 3 : 0);
    }

    if (p == last) {
        *state = p;
        return NGX_DECLINED;
    }

    eol = ngx_modelgw_sse_eol(p, last);

    line->len = eol - p;
    line->data = p;

    *state = (eol < last) ? ngx_modelgw_sse_blank(eol, last) : last;

    return NGX_OK;
}


/*
 * WHATWG HTML, section 9.2.6: the name ends at the first colon or at the end of
 * the line; one space after the colon is not part of the value.
 */

static ngx_int_t
ngx_modelgw_sse_field(ngx_str_t *line, ngx_str_t *name, ngx_str_t *value)
{
    u_char  *p, *last;

    if (line->len < name->len
        || ngx_memcmp(line->data, name->data, name->len) != 0)
    {
        return NGX_DECLINED;
    }

    p = line->data + name->len;
    last = line->data + line->len;

    if (p < last) {

        if (*p++ != ':') {
            return NGX_DECLINED;
        }

        if (p < last && *p == ' ') {
            p++;
        }
    }

    value->len = last - p;
    value->data = p;

    return NGX_OK;
}
