
/*
 * A stream as floor 1 reads it, with and without the fast path for events that
 * repeat: the results of each event are recorded, and must be the same.  For
 * tests and for fuzz_repeat.c; the program includes unit.h before.
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


typedef struct {
    ngx_uint_t                protocol;
    ngx_uint_t                on;        /* the fast path */
    ngx_uint_t                taken;     /* how often */
    ngx_uint_t                number;    /* of the last event */

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
repeat_init(repeat_t *r, ngx_uint_t protocol, ngx_uint_t on)
{
    ngx_uint_t                n;
    ngx_modelgw_skip_pt       skip;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(r, sizeof(repeat_t));

    r->protocol = protocol;
    r->on = on;
    r->pool = unit_pool_create();

    skip = ngx_modelgw_skip_variants(&n)[0].skip;

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


/* an event and its results */

static ngx_inline void
repeat_log(repeat_t *r, ngx_str_t *raw, off_t from, off_t to, size_t text,
    ngx_uint_t finished)
{
    int64_t  known[4];

    known[0] = from;
    known[1] = to;
    known[2] = text;
    known[3] = finished;

    (void) repeat_put(r, raw->data, raw->len, 0);
    (void) repeat_put(r, (u_char *) known, sizeof(known), 0);
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

    if (r->protocol == NGX_MODELGW_MESSAGES) {
        r->rc = ngx_modelgw_stream_event(r->stream, &ev->data, &ev->name, 0);

        if (ngx_modelgw_stream_text(r->stream) != text.last.data) {
            return;
        }
    }

    if (r->on && r->rc == NGX_OK
        && (kind == NGX_MODELGW_DOC_OTHER || kind == NGX_MODELGW_DOC_DELTA)
        && ngx_modelgw_repeat_keep(&r->repeat, ev, &text, from, to) != NGX_OK)
    {
        abort();
    }
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
            r->number = ev.number;
        }

        repeat_log(r, &ev.raw, ev.from, ev.to,
                   ngx_modelgw_repeat_len(&r->repeat, &ev), 0);

        if (r->protocol == NGX_MODELGW_MESSAGES) {
            r->rc = ngx_modelgw_stream_repeat(r->stream, &ev.text, 0);
        }
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


/*
 * Reads the stream both ways, cut at the same places: pieces of chunk bytes,
 * or of any size up to that, by the seed.  Returns how often the fast path was
 * taken; aborts if the results differ.
 */

static ngx_inline ngx_uint_t
repeat_compare(ngx_uint_t protocol, const u_char *p, size_t len, size_t chunk,
    uint32_t seed)
{
    size_t      n, done;
    repeat_t    r[2];
    ngx_uint_t  taken;

    repeat_init(&r[0], protocol, 0);
    repeat_init(&r[1], protocol, 1);

    for (done = 0; done < len; done += n) {
        n = chunk;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = 1 + (seed >> 16) % chunk;
        }

        n = ngx_min(n, len - done);

        repeat_feed(&r[0], p + done, n);
        repeat_feed(&r[1], p + done, n);
    }

    taken = r[1].taken;

    if (r[0].rc != r[1].rc
        || r[0].number != r[1].number
        || r[0].len != r[1].len
        || (r[0].len && ngx_memcmp(r[0].log, r[1].log, r[0].len) != 0)
        || ngx_memcmp(&r[0].usage, &r[1].usage, sizeof(ngx_modelgw_usage_t))
           != 0)
    {
        abort();
    }

    repeat_free(&r[0]);
    repeat_free(&r[1]);

    return taken;
}


#endif /* _REPEAT_H_INCLUDED_ */
