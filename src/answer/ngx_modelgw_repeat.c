
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
 *
 * Of several such events in a row, the bytes after the last hole of one and
 * before the first hole of the next are compared, and written, as one piece: in
 * whole vectors, which may go beyond its end.  So there must be room, and the
 * last event of a row, whose end is not followed by the beginning of another,
 * is left to _next().
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_repeat.h"
#include "ngx_modelgw_string.h"


#define NGX_MODELGW_REPEAT_MAX     1024  /* bytes without the holes */
#define NGX_MODELGW_REPEAT_DIGITS  9     /* of the number, at most */
#define NGX_MODELGW_REPEAT_LONG    1024  /* bytes of a hole that is copied */

/* bytes of a vector; the compiler makes several of it if there is no such */

#define NGX_MODELGW_REPEAT_VECTOR  32

/* two of them, in each step of a loop */

#define NGX_MODELGW_REPEAT_STEP    64

/* bytes of a form, at most, besides what replaces the model id */

#define NGX_MODELGW_REPEAT_FORM                                               \
    (2 * NGX_MODELGW_REPEAT_MAX + NGX_MODELGW_REPEAT_STEP)


typedef long long  ngx_modelgw_repeat_vector_t
    __attribute__((vector_size(NGX_MODELGW_REPEAT_VECTOR), aligned(1),
                   may_alias));


#define ngx_modelgw_repeat_vector(p)                                          \
    (*(ngx_modelgw_repeat_vector_t *) (p))

#define ngx_modelgw_repeat_second(p)                                          \
    (*(ngx_modelgw_repeat_vector_t *) ((p) + NGX_MODELGW_REPEAT_VECTOR))


static ngx_int_t ngx_modelgw_repeat_forms(ngx_modelgw_repeat_t *rp,
    ngx_str_t *raw, ngx_str_t **holes, ngx_uint_t n, ngx_modelgw_cut_t *cut);
static void ngx_modelgw_repeat_form(ngx_modelgw_repeat_form_t *form,
    u_char *dst, ngx_str_t *raw, ngx_str_t **holes, ngx_uint_t n,
    ngx_modelgw_cut_t *cut);
#if defined(__x86_64__)
static size_t ngx_modelgw_repeat_avx2(ngx_modelgw_repeat_t *rp, u_char **pos,
    u_char *last, ngx_buf_t *b);
#endif
static size_t ngx_modelgw_repeat_events(ngx_modelgw_repeat_t *rp, u_char **pos,
    u_char *last, ngx_buf_t *b);
static u_char *ngx_modelgw_repeat_event(ngx_modelgw_repeat_t *rp, u_char *p,
    u_char *last, u_char **dst, u_char *end, size_t *text);
static ngx_uint_t ngx_modelgw_repeat_same(u_char *p, u_char *bytes,
    size_t len);
static void ngx_modelgw_repeat_write(u_char *dst, u_char *bytes, size_t len);
static u_char *ngx_modelgw_repeat_string(ngx_modelgw_repeat_t *rp, u_char *p,
    u_char *last, size_t *n);
static u_char *ngx_modelgw_repeat_long(ngx_modelgw_repeat_t *rp, u_char *p,
    u_char *last, size_t *n);
static u_char *ngx_modelgw_repeat_number(u_char *p, u_char *last,
    ngx_uint_t *number);


/* the last bytes of a piece, from 0 to 63, are compared under a part of it */

static const u_char  ngx_modelgw_repeat_mask[2 * NGX_MODELGW_REPEAT_STEP] = {
    [0 ... NGX_MODELGW_REPEAT_STEP - 1] = 0xff
};


void
ngx_modelgw_repeat_init(ngx_modelgw_repeat_t *rp, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip, size_t max)
{
    ngx_memzero(rp, sizeof(ngx_modelgw_repeat_t));

    rp->pool = pool;
    rp->skip = skip;
    rp->max = max;
    rp->wide = ngx_modelgw_skip_wide(skip);
}


ngx_int_t
ngx_modelgw_repeat_keep(ngx_modelgw_repeat_t *rp, ngx_modelgw_sse_event_t *ev,
    ngx_modelgw_text_t *text, ngx_modelgw_cut_t *model)
{
    off_t        from, to, end;
    ngx_str_t   *holes[NGX_MODELGW_REPEAT_HOLES];
    ngx_uint_t   n, i;

    rp->holes = 0;

    from = model ? model->from : 0;
    to = model ? model->to : 0;

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

    if (ngx_modelgw_repeat_forms(rp, &ev->raw, holes, n, to ? model : NULL)
        != NGX_OK)
    {
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


/*
 * Copies the bytes around n holes of an event; cut is what to replace in them,
 * or NULL.
 *     NGX_OK, NGX_ERROR (no memory)
 */

static ngx_int_t
ngx_modelgw_repeat_forms(ngx_modelgw_repeat_t *rp, ngx_str_t *raw,
    ngx_str_t **holes, ngx_uint_t n, ngx_modelgw_cut_t *cut)
{
    size_t       len, size, need, more;
    ngx_uint_t   i;

    len = raw->len;

    for (i = 0; i < n; i++) {
        len -= holes[i]->len;
    }

    if (len > NGX_MODELGW_REPEAT_MAX) {
        return NGX_OK;
    }

    size = len + (holes[0]->data - raw->data) + NGX_MODELGW_REPEAT_STEP;
    more = cut ? 2 * cut->text.len : 0;
    need = cut ? 2 * size + more : size;

    if (need > rp->size) {

        /* the rest of an event usually has the same length each time */

        rp->size = rp->size ? 2 * NGX_MODELGW_REPEAT_FORM + more
                            : ngx_align(need, 64);

        rp->memory = ngx_pnalloc(rp->pool, rp->size);
        if (rp->memory == NULL) {
            rp->size = 0;
            return NGX_ERROR;
        }
    }

    ngx_modelgw_repeat_form(&rp->in, rp->memory, raw, holes, n, NULL);

    rp->out = rp->in;

    if (cut) {
        ngx_modelgw_repeat_form(&rp->out, rp->memory + size, raw, holes, n,
                                cut);
    }

    rp->holes = n;

    return NGX_OK;
}


static void
ngx_modelgw_repeat_form(ngx_modelgw_repeat_form_t *form, u_char *dst,
    ngx_str_t *raw, ngx_str_t **holes, ngx_uint_t n, ngx_modelgw_cut_t *cut)
{
    u_char      *p, *from, *end, *piece;
    ngx_uint_t   i;

    p = raw->data;
    from = cut ? raw->data + cut->from : NULL;

    form->bytes = dst;

    for (i = 0; i <= n; i++) {
        piece = dst;
        end = (i < n) ? holes[i]->data : raw->data + raw->len;

        if (cut && from >= p && from < end) {
            dst = ngx_cpymem(dst, p, from - p);
            dst = ngx_cpymem(dst, cut->text.data, cut->text.len);
            p = raw->data + cut->to;
        }

        dst = ngx_cpymem(dst, p, end - p);

        form->len[i] = dst - piece;

        p = (i < n) ? end + holes[i]->len : end;
    }

    ngx_memcpy(dst, form->bytes, form->len[0]);

    form->len[n] += form->len[0];

    form->room = dst - form->bytes + n * NGX_MODELGW_REPEAT_VECTOR
                 + NGX_MODELGW_REPEAT_STEP;
}


ngx_int_t
ngx_modelgw_repeat_next(ngx_modelgw_repeat_t *rp, u_char **pos, u_char *last,
    ngx_modelgw_repeat_event_t *ev)
{
    off_t        end;
    size_t       n, len;
    u_char      *p, *bytes, *hole;
    ngx_uint_t   i, number;

    if (rp->holes == 0) {
        return NGX_DECLINED;
    }

    n = 0;
    number = 0;

    p = *pos;
    last = p + ngx_min((size_t) (last - p), rp->max);
    bytes = rp->in.bytes;

    for (i = 0; /* void */ ; i++) {
        len = rp->in.len[i];

        if (i == rp->holes) {
            len -= rp->in.len[0];
        }

        if ((size_t) (last - p) < len || ngx_memcmp(p, bytes, len) != 0) {
            return NGX_DECLINED;
        }

        p += len;
        bytes += len;

        if (i == rp->holes) {
            break;
        }

        hole = p;

        p = (i == rp->number) ? ngx_modelgw_repeat_number(p, last, &number)
                              : ngx_modelgw_repeat_string(rp, p, last, &n);
        if (p == NULL) {
            return NGX_DECLINED;
        }

        if (i == rp->text) {
            ev->text.data = hole;
            ev->text.len = p - hole;
            ev->n = rp->other + n;
        }
    }

    ev->raw.data = *pos;
    ev->raw.len = p - *pos;

    end = rp->after_text ? ev->text.data + ev->text.len - ev->raw.data : 0;

    ev->from = rp->from + end;
    ev->to = rp->to + end;

    rp->value = number;

    *pos = p;

    return NGX_OK;
}


size_t
ngx_modelgw_repeat_copy(ngx_modelgw_repeat_t *rp, u_char **pos, u_char *last,
    ngx_buf_t *b)
{
    if (rp->holes == 0) {
        return 0;
    }

#if defined(__x86_64__)

    if (rp->wide) {
        return ngx_modelgw_repeat_avx2(rp, pos, last, b);
    }

#endif

    return ngx_modelgw_repeat_events(rp, pos, last, b);
}


#if defined(__x86_64__)

__attribute__((target("avx2")))
static size_t
ngx_modelgw_repeat_avx2(ngx_modelgw_repeat_t *rp, u_char **pos, u_char *last,
    ngx_buf_t *b)
{
    return ngx_modelgw_repeat_events(rp, pos, last, b);
}

#endif


__attribute__((always_inline))
static ngx_inline size_t
ngx_modelgw_repeat_events(ngx_modelgw_repeat_t *rp, u_char **pos, u_char *last,
    ngx_buf_t *b)
{
    size_t   n, head, head_out;
    u_char  *p, *dst;

    n = 0;
    p = *pos;
    dst = b->last;

    head = rp->in.len[0];
    head_out = rp->out.len[0];

    if ((size_t) (last - p) < head + rp->in.room
        || (size_t) (b->end - dst) < head_out + rp->out.room
        || !ngx_modelgw_repeat_same(p, rp->in.bytes, head))
    {
        return 0;
    }

    ngx_modelgw_repeat_write(dst, rp->out.bytes, head_out);

    p += head;
    dst += head_out;

    while ((size_t) (last - p) >= rp->in.room
           && (size_t) (b->end - dst) >= rp->out.room)
    {
        p = ngx_modelgw_repeat_event(rp, p, last, &dst, b->end, &n);
        if (p == NULL) {
            break;
        }

        *pos = p - head;
        b->last = dst - head_out;
    }

    return n;
}


/*
 * Writes the event whose first hole is at p to *dst, and what is before that of
 * the next one; adds its n.  Returns the first hole of the next event, or NULL.
 */

__attribute__((always_inline))
static ngx_inline u_char *
ngx_modelgw_repeat_event(ngx_modelgw_repeat_t *rp, u_char *p, u_char *last,
    u_char **dst, u_char *end, size_t *text)
{
    size_t       n, len, sum;
    u_char      *in, *out, *to, *hole;
    ngx_uint_t   i, number;

    n = 0;
    sum = rp->other;
    number = 0;

    to = *dst;
    in = rp->in.bytes + rp->in.len[0];
    out = rp->out.bytes + rp->out.len[0];

    for (i = 0; i < rp->holes; i++) {

        ngx_modelgw_repeat_vector(to) = ngx_modelgw_repeat_vector(p);

        hole = p;

        p = (i == rp->number) ? ngx_modelgw_repeat_number(p, last, &number)
                              : ngx_modelgw_repeat_string(rp, p, last, &n);
        if (p == NULL) {
            return NULL;
        }

        if (i == rp->text) {
            sum += n;
        }

        len = p - hole;

        if (len > NGX_MODELGW_REPEAT_VECTOR) {

            if (len > NGX_MODELGW_REPEAT_LONG
                || (size_t) (last - p) < rp->in.room
                || (size_t) (end - to) < rp->out.room + len)
            {
                return NULL;
            }

            ngx_memcpy(to, hole, len);
        }

        to += len;
        len = rp->in.len[i + 1];

        if (!ngx_modelgw_repeat_same(p, in, len)) {
            return NULL;
        }

        p += len;
        in += len;
        len = rp->out.len[i + 1];

        ngx_modelgw_repeat_write(to, out, len);

        to += len;
        out += len;
    }

    *dst = to;
    *text += sum;
    rp->value = number;

    return p;
}


/* whether len bytes are the same; up to a step more are read at both places */

__attribute__((always_inline))
static ngx_inline ngx_uint_t
ngx_modelgw_repeat_same(u_char *p, u_char *bytes, size_t len)
{
    size_t                        i, n;
    const u_char                 *mask;
    ngx_modelgw_repeat_vector_t   diff = { 0 };

    n = len & ~(NGX_MODELGW_REPEAT_STEP - 1);

    for (i = 0; i < n; i += NGX_MODELGW_REPEAT_STEP) {
        diff |= (ngx_modelgw_repeat_vector(p + i)
                 ^ ngx_modelgw_repeat_vector(bytes + i))
                | (ngx_modelgw_repeat_second(p + i)
                   ^ ngx_modelgw_repeat_second(bytes + i));
    }

    mask = ngx_modelgw_repeat_mask + NGX_MODELGW_REPEAT_STEP - (len - n);

    diff |= ((ngx_modelgw_repeat_vector(p + n)
              ^ ngx_modelgw_repeat_vector(bytes + n))
             & ngx_modelgw_repeat_vector(mask))
            | ((ngx_modelgw_repeat_second(p + n)
                ^ ngx_modelgw_repeat_second(bytes + n))
               & ngx_modelgw_repeat_second(mask));

    return (diff[0] | diff[1] | diff[2] | diff[3]) == 0;
}


/* copies len bytes, and up to a step more */

__attribute__((always_inline))
static ngx_inline void
ngx_modelgw_repeat_write(u_char *dst, u_char *bytes, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i += NGX_MODELGW_REPEAT_STEP) {
        ngx_modelgw_repeat_vector(dst + i)
                                       = ngx_modelgw_repeat_vector(bytes + i);
        ngx_modelgw_repeat_second(dst + i)
                                       = ngx_modelgw_repeat_second(bytes + i);
    }
}


/*
 * Returns the closing quote of the string whose contents are at p, and their
 * length after unescaping; NULL if there is none or the contents are invalid
 * (RFC 8259, section 7; RFC 3629).
 */

static ngx_inline u_char *
ngx_modelgw_repeat_string(ngx_modelgw_repeat_t *rp, u_char *p, u_char *last,
    size_t *n)
{
    u_char  *end;
    size_t   escapes;

    /* almost always one word, perhaps with escapes of two bytes */

    escapes = 0;

    for (end = p; last - end > NGX_MODELGW_SKIP_SHORT + 1; end += 2) {
        end += ngx_modelgw_skip_short(end);

        if (*end == '"') {
            *n = end - p - escapes;
            return end;
        }

        if (*end != '\\'
            || end[1] == 'u'
            || !ngx_modelgw_string_escapes[end[1]])
        {
            break;
        }

        escapes++;
    }

    return ngx_modelgw_repeat_long(rp, p, last, n);
}


static u_char *
ngx_modelgw_repeat_long(ngx_modelgw_repeat_t *rp, u_char *p, u_char *last,
    size_t *n)
{
    size_t      len;
    ngx_str_t   text;

    text.data = p;

    for ( ;; ) {
        p += rp->skip(p, last - p);

        if (p == last) {
            return NULL;
        }

        if (*p == '"') {
            text.len = p - text.data;
            *n = ngx_modelgw_text_len(&text);
            return p;
        }

        len = 0;

        if (*p >= 0x80) {
            len = ngx_modelgw_string_utf8(p, last);

        } else if (last - p > 5
                   && p[0] == '\\'
                   && p[1] == 'u'
                   && ngx_hextoi(p + 2, 4) != NGX_ERROR)
        {
            len = 6;
        }

        if (len == 0) {
            return NULL;
        }

        p += len;
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
