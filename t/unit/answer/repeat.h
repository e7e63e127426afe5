
/*
 * A stream as floor 1 reads it, with and without the fast paths for events that
 * repeat: what is emitted for them, and all that is known of them, must be the
 * same after each read.  For tests and for fuzz_repeat.c; the program includes
 * unit.h before.
 */


#ifndef _REPEAT_H_INCLUDED_
#define _REPEAT_H_INCLUDED_


#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_stream.h"
#include "ngx_modelgw_repeat.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_text.h"
#include "ngx_modelgw_usage.h"


#define REPEAT_MAX_EVENT  4096
#define REPEAT_READERS    8


typedef struct {
    ngx_uint_t                protocol;
    ngx_uint_t                translate; /* messages for a chat client */
    ngx_uint_t                on;        /* the fast paths */
    ngx_str_t                 model;     /* instead of the model id */
    uint32_t                  seed;      /* of the room for copies; 0: enough */
    ngx_uint_t                taken;     /* how often */
    ngx_uint_t                copied;    /* of these, by _copy() */

    ngx_uint_t                number;    /* of the last event */
    size_t                    text;
    size_t                    finished;

    ngx_pool_t               *pool;
    ngx_modelgw_sse_t         sse;
    ngx_modelgw_scan_t       *scan;
    ngx_modelgw_repeat_t      repeat;
    ngx_modelgw_usage_t       usage;

    /* of messages, translated for chat clients */
    ngx_modelgw_completion_t  c;
    ngx_modelgw_out_t         out;
    ngx_modelgw_tape_t        tape;
    ngx_modelgw_stream_t     *stream;

    u_char                   *log;
    size_t                    len;
    size_t                    size;
    ngx_int_t                 rc;        /* NGX_OK: the stream goes on */
} repeat_t;


static ngx_inline ngx_int_t
repeat_put(void *data, u_char *p, size_t len, ngx_uint_t borrowed)
{
    repeat_t *r = data;

    if (len > r->size - r->len) {
        r->size = 2 * (r->size + len);
        r->log = realloc(r->log, r->size);

        if (r->log == NULL) {
            abort();
        }
    }

    if (len) {
        ngx_memcpy(r->log + r->len, p, len);
        r->len += len;
    }

    return NGX_OK;
}


static ngx_inline void
repeat_init(repeat_t *r, ngx_uint_t protocol, ngx_uint_t translate,
    ngx_modelgw_skip_pt skip, uint32_t seed)
{
    ngx_modelgw_scan_conf_t  conf;

    ngx_memzero(r, sizeof(repeat_t));

    r->protocol = protocol;
    r->translate = translate;
    r->seed = seed;
    r->pool = unit_pool_create();

    if (seed & 1) {
        ngx_str_set(&r->model, "\"a-model-id-that-is-longer-than-the-vectors-"
                               "that-are-written-at-once-or-two-of-them\"");
    } else {
        ngx_str_set(&r->model, "\"s\"");
    }

    ngx_modelgw_usage_conf(&conf, protocol, skip);
    ngx_modelgw_usage_init(&r->usage);
    r->usage.events = 1;
    ngx_modelgw_sse_init(&r->sse, r->pool, REPEAT_MAX_EVENT);
    ngx_modelgw_repeat_init(&r->repeat, r->pool, skip, REPEAT_MAX_EVENT);

    ngx_str_set(&r->c.model, "\"m\"");
    r->c.created = 1;
    r->c.reasoning = NGX_MODELGW_REASONING_FULL;
    r->c.usage = &r->usage;

    r->out.write = repeat_put;
    r->out.data = r;

    ngx_modelgw_tape_init(&r->tape, r->pool, skip);

    r->scan = ngx_modelgw_scan_create(r->pool, &conf);
    r->stream = ngx_modelgw_stream_create(r->pool, &r->c, &r->tape,
                                          REPEAT_MAX_EVENT, &r->out);

    if (r->scan == NULL || r->stream == NULL) {
        abort();
    }
}


static ngx_inline void
repeat_free(repeat_t *r)
{
    free(r->log);
    ngx_destroy_pool(r->pool);
}


/* an event as it is emitted, and its results */

static ngx_inline void
repeat_log(repeat_t *r, ngx_str_t *raw, off_t from, off_t to, size_t text,
    ngx_uint_t finished)
{
    r->text += text;
    r->finished += finished;

    if (to) {
        (void) repeat_put(r, raw->data, from, 0);
        (void) repeat_put(r, r->model.data, r->model.len, 0);
    }

    (void) repeat_put(r, raw->data + to, raw->len - to, 0);
}


/* NGX_OK, NGX_AGAIN (no data), NGX_DECLINED */

static ngx_inline ngx_int_t
repeat_scan(repeat_t *r, ngx_modelgw_sse_event_t *ev, off_t *from, off_t *to)
{
    u_char     *state;
    ngx_str_t   line;

    *from = 0;
    *to = 0;
    state = NULL;

    ngx_modelgw_scan_reset(r->scan);

    /* several lines are not tested here */

    if (ev->lines > 1 || ngx_modelgw_sse_data(ev, &state, &line) != NGX_OK
        || line.len == 0)
    {
        return NGX_AGAIN;
    }

    if (ngx_modelgw_scan_feed(r->scan, line.data, line.len) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (ngx_modelgw_usage_model(&r->usage, r->protocol, r->scan, from, to)
        == NGX_OK)
    {
        *from += line.data - ev->raw.data;
        *to += line.data - ev->raw.data;
    }

    return ngx_modelgw_scan_done(r->scan);
}


static ngx_inline void
repeat_event(repeat_t *r, ngx_modelgw_sse_event_t *ev)
{
    off_t                      from, to;
    ngx_uint_t                 kind;
    ngx_modelgw_cut_t          model;
    ngx_modelgw_text_t         text;
    ngx_modelgw_scan_value_t  *v;

    ngx_modelgw_repeat_forget(&r->repeat);

    r->rc = repeat_scan(r, ev, &from, &to);

    if (r->rc == NGX_AGAIN) {
        repeat_log(r, &ev->raw, 0, 0, 0, 0);
        r->rc = NGX_OK;
        return;
    }

    if (r->rc != NGX_OK) {
        return;
    }

    kind = ngx_modelgw_usage_merge(&r->usage, r->protocol, r->scan);
    ngx_modelgw_text(&text, ev->data.data, ev->data.len);

    if (r->protocol == NGX_MODELGW_RESPONSES) {
        v = ngx_modelgw_usage_part(&r->usage, r->scan,
                                   NGX_MODELGW_PART_SEQUENCE);

        if (v->type != NGX_MODELGW_SCAN_ABSENT) {
            text.number.data = ev->data.data + v->from;
            text.number.len = v->to - v->from;
            r->number = ngx_atoi(v->text, v->len);
        }
    }

    repeat_log(r, &ev->raw, from, to, text.n, text.finished);

    if (kind == NGX_MODELGW_DOC_ERROR) {
        r->rc = NGX_ABORT;
        return;
    }

    if (r->translate) {
        r->rc = ngx_modelgw_stream_event(r->stream, &ev->data, &ev->name, 0);

        if (ngx_modelgw_stream_text(r->stream) != text.last.data) {
            return;
        }
    }

    model.from = from;
    model.to = to;
    model.text = r->model;

    if (r->on && r->rc == NGX_OK
        && (kind == NGX_MODELGW_DOC_OTHER || kind == NGX_MODELGW_DOC_DELTA)
        && ngx_modelgw_repeat_keep(&r->repeat, ev, &text, &model) != NGX_OK)
    {
        abort();
    }
}


/* to a block of exactly the size that _copy() may use */

static ngx_inline void
repeat_copy(repeat_t *r, u_char **pos, u_char *last)
{
    u_char     *p;
    size_t      size;
    ngx_buf_t   b;

    size = 2 * (last - *pos) + 100 * (last - *pos) / 20 + 1024;

    if (r->seed) {
        r->seed = r->seed * 1103515245 + 12345;
        size = (r->seed >> 16) % size;
    }

    ngx_memzero(&b, sizeof(ngx_buf_t));

    b.start = malloc(size + 1);

    if (b.start == NULL) {
        abort();
    }

    /* the first byte is before the room */

    b.start[0] = 'x';
    b.pos = b.start + 1;
    b.last = b.pos;
    b.end = b.pos + size;

    p = *pos;

    r->text += ngx_modelgw_repeat_copy(&r->repeat, pos, last, &b);

    if (b.start[0] != 'x' || (b.last == b.pos) != (*pos == p)) {
        abort();
    }

    if (*pos != p && r->repeat.number < NGX_MODELGW_REPEAT_HOLES) {
        r->number = r->repeat.value;
    }

    (void) repeat_put(r, b.pos, b.last - b.pos, 0);

    for (p += 2; p < *pos; p++) {

        if (*p == LF && (p[-1] == LF || (p[-1] == CR && p[-2] == LF))) {
            r->copied++;
        }
    }

    free(b.start);
}


static ngx_inline void
repeat_short(repeat_t *r, u_char **pos, u_char *last)
{
    ngx_modelgw_repeat_event_t  ev;

    while (r->rc == NGX_OK
           && ngx_modelgw_repeat_next(&r->repeat, pos, last, &ev) == NGX_OK)
    {
        r->taken++;

        if (r->repeat.number < NGX_MODELGW_REPEAT_HOLES) {
            r->number = r->repeat.value;
        }

        repeat_log(r, &ev.raw, ev.from, ev.to, ev.n, 0);

        if (r->translate) {
            r->rc = ngx_modelgw_stream_repeat(r->stream, &ev.text, 0);
            continue;
        }

        repeat_copy(r, pos, last);
    }
}


/* the bytes of one read, in a block of exactly that size */

static ngx_inline void
repeat_feed(repeat_t *r, const u_char *p, size_t len)
{
    u_char                   *copy, *pos;
    ngx_int_t                 rc;
    ngx_modelgw_sse_event_t   ev;

    copy = unit_dup(p, len);
    pos = copy;

    while (r->rc == NGX_OK) {

        if (ngx_modelgw_sse_between(&r->sse)) {
            repeat_short(r, &pos, copy + len);

            if (r->rc != NGX_OK) {
                break;
            }
        }

        rc = ngx_modelgw_sse_next(&r->sse, &pos, copy + len, &ev);

        if (rc == NGX_AGAIN) {
            break;
        }

        if (rc == NGX_OK) {
            repeat_event(r, &ev);

        } else {
            r->rc = rc;
        }
    }

    unit_free(copy);
}


/* what must be the same after each read */

static ngx_inline void
repeat_same(repeat_t *a, repeat_t *b)
{
    if (a->rc != b->rc
        || a->number != b->number
        || a->text != b->text
        || a->finished != b->finished
        || a->len != b->len
        || (a->len && ngx_memcmp(a->log, b->log, a->len) != 0)
        || ngx_memcmp(&a->usage, &b->usage, sizeof(ngx_modelgw_usage_t)) != 0)
    {
        abort();
    }
}


/*
 * Reads the stream without the fast paths, and with them for each variant of
 * vectors, translated where that can be, and not; cut at the same places:
 * pieces of chunk bytes, or of any size up to that, by the seed.  Returns how
 * often the fast paths were taken in the first of these; aborts if the results
 * differ.  *copied, if not NULL, is set to how many events _copy() has read.
 */

static ngx_inline ngx_uint_t
repeat_compare_copied(ngx_uint_t protocol, const u_char *p, size_t len,
    size_t chunk, uint32_t seed, ngx_uint_t *copied)
{
    size_t                       n, done;
    repeat_t                     r[REPEAT_READERS];
    ngx_uint_t                   i, k, nvariants, translate, taken;
    ngx_modelgw_skip_variant_t  *variants;

    variants = ngx_modelgw_skip_variants(&nvariants);
    translate = (protocol == NGX_MODELGW_MESSAGES);

    n = 0;

    for (i = 0; i <= translate; i++) {

        for (k = 0; k <= nvariants; k++) {
            repeat_init(&r[n], protocol, translate - i,
                        variants[k ? k - 1 : 0].skip, seed);
            r[n++].on = (k != 0);
        }
    }

    k = n;

    for (done = 0; done < len; done += n) {
        n = chunk;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = 1 + (seed >> 16) % chunk;
        }

        n = ngx_min(n, len - done);

        for (i = 0; i < k; i++) {
            repeat_feed(&r[i], p + done, n);

            if (r[i].on) {
                repeat_same(&r[i - i % (nvariants + 1)], &r[i]);
            }
        }
    }

    taken = r[1].taken + r[1].copied;

    if (copied) {
        *copied = r[k - nvariants].copied;
    }

    for (i = 0; i < k; i++) {
        repeat_free(&r[i]);
    }

    return taken;
}


static ngx_inline ngx_uint_t
repeat_compare(ngx_uint_t protocol, const u_char *p, size_t len, size_t chunk,
    uint32_t seed)
{
    return repeat_compare_copied(protocol, p, len, chunk, seed, NULL);
}


#endif /* _REPEAT_H_INCLUDED_ */
