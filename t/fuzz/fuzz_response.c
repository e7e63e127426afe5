
/*
 * libFuzzer: a stream for a client of the responses API.  The first byte of the
 * input seeds the cuts, the second one has the protocol and the client's
 * options, the rest is the upstream's stream.  Read whole and in pieces, with
 * events that differ in their text only given as repetitions, it must give the
 * same events; response_events.h says what these must be like.
 */


#define _GNU_SOURCE

#include "unit.h"
#include "answer.h"
#include "response_events.h"

#define MUTATE_OPTIONS  2
#define MUTATE_STREAM   1

#include "mutate.h"


typedef struct {
    answer_t       a;
    ngx_uint_t     repeat;
    u_char        *last;                 /* the data of the last event */
    size_t         before;               /* bytes of it around its text */
    size_t         after;
    size_t         len;
    ngx_str_t      name;                 /* of its "event:" line */
} run_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static u_char *
text_end(u_char *p, u_char *last)
{
    while (p < last && *p != '"') {
        p += (*p == '\\') ? 2 : 1;
    }

    return p;
}


/* the text of an event that differs from the last one in nothing else */

static ngx_uint_t
repeated(run_t *r, ngx_modelgw_sse_event_t *ev, ngx_str_t *data,
    ngx_str_t *text)
{
    if (r->last == NULL
        || ev->name.len != r->name.len
        || (ev->name.len
            && ngx_memcmp(ev->name.data, r->name.data, ev->name.len) != 0)
        || ngx_strlchr(ev->raw.data, ev->raw.data + ev->raw.len, '\\')
        || data->len <= r->before + r->after
        || ngx_memcmp(data->data, r->last, r->before) != 0
        || ngx_memcmp(data->data + data->len - r->after,
                      r->last + r->len - r->after, r->after)
           != 0)
    {
        return 0;
    }

    text->data = data->data + r->before;
    text->len = data->len - r->before - r->after;

    return ngx_strlchr(text->data, text->data + text->len, '"') == NULL;
}


static void
forget(run_t *r)
{
    unit_free(r->last);
    unit_free(r->name.data);

    r->last = NULL;
    ngx_str_null(&r->name);
}


static void
keep(run_t *r, ngx_modelgw_sse_event_t *ev, ngx_str_t *data)
{
    u_char  *p, *end;

    forget(r);

    p = ngx_modelgw_response_stream_text(r->a.response);

    if (p == NULL || r->a.rc != NGX_OK) {
        return;
    }

    end = data->data + data->len;

    r->last = unit_dup(data->data, data->len);
    r->len = data->len;
    r->before = p - data->data;
    r->after = end - text_end(p, end);

    if (ev->name.len) {
        r->name.len = ev->name.len;
        r->name.data = unit_dup(ev->name.data, ev->name.len);
    }
}


static void
event(run_t *r, ngx_modelgw_sse_event_t *ev)
{
    size_t      before;
    u_char     *state;
    answer_t   *a;
    ngx_str_t   data, text, line;

    a = &r->a;
    state = NULL;

    if (!r->repeat
        || ngx_modelgw_sse_data(ev, &state, &data) != NGX_OK
        || data.len == 0
        || ngx_modelgw_sse_data(ev, &state, &line) == NGX_OK)
    {
        forget(r);

        before = a->len;
        answer_event(a, ev);

        response_check(a->rc == NGX_OK || a->rc == NGX_DONE
                       || a->len == before);

    } else if (repeated(r, ev, &data, &text)
               && answer_scan(a, data.data, data.len) == NGX_OK)
    {
        a->rc = ngx_modelgw_response_stream_repeat(a->response, &text, 0);

    } else {
        answer_event(a, ev);
        keep(r, ev, &data);
    }

    response_check(a->rc != NGX_ERROR);
    response_check(a->out.failed == 0);
}


/* seed 0: whole; else in pieces of 1 to 64 bytes, which are freed */

static void
run(run_t *r, ngx_pool_t *pool, const uint8_t *data, size_t len,
    uint32_t seed)
{
    size_t                    at, n;
    u_char                   *piece, *p;
    answer_t                 *a;
    ngx_int_t                 rc;
    ngx_modelgw_sse_event_t   ev;

    ngx_memzero(r, sizeof(run_t));

    a = &r->a;
    r->repeat = (seed != 0);

    answer_init(a, pool, 0, 0, 65536);
    answer_responses(a, (data[1] & 1) ? NGX_MODELGW_CHAT
                                      : NGX_MODELGW_MESSAGES, 65536);

    a->call.encrypted = data[1] >> 1 & 1;
    a->call.show = data[1] >> 2 & 1;
    a->call.json = data[1] >> 3 & 1;

    answer_tool(a, NGX_MODELGW_RESPONSES_FUNCTION, "mcp__demo__add",
                "mcp__demo", "add");
    answer_tool(a, NGX_MODELGW_RESPONSES_CUSTOM, "apply_patch", "",
                "apply_patch");
    answer_tool(a, NGX_MODELGW_RESPONSES_SEARCH, "tool_search", "",
                "tool_search");

    for (at = 0; at < len; at += n) {
        n = len - at;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = ngx_min(n, 1 + (seed >> 16) % 64);
        }

        piece = unit_dup(data + MUTATE_OPTIONS + at, n);
        p = piece;

        while (a->rc == NGX_OK) {
            rc = ngx_modelgw_sse_next(&a->sse, &p, piece + n, &ev);

            if (rc == NGX_AGAIN) {
                break;
            }

            response_check(rc == NGX_OK);
            event(r, &ev);
        }

        unit_free(piece);
    }

    (void) answer_end(a);

    response_check(a->rc != NGX_OK && a->rc != NGX_ERROR);

    forget(r);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t              len;
    run_t               x, y;
    ngx_str_t           code, message;
    ngx_pool_t         *pool;
    response_events_t   v;

    if (size < MUTATE_OPTIONS) {
        return 0;
    }

    pool = unit_pool_create();
    len = size - MUTATE_OPTIONS;

    run(&x, pool, data, len, 0);
    run(&y, pool, data, len, 1 + data[0]);

    response_check(x.a.rc == y.a.rc);
    response_check(x.a.len == y.a.len);
    response_check(x.a.len == 0
                   || memcmp(x.a.text, y.a.text, x.a.len) == 0);

    if (x.a.rc != NGX_DONE) {
        ngx_str_set(&code, "UPSTREAM_ERROR");
        ngx_str_set(&message, "a \"b\"");

        ngx_modelgw_response_stream_ping(x.a.response);
        ngx_modelgw_response_stream_error(x.a.response, &code, &message);
    }

    response_events(&v, pool, x.a.skip, x.a.text, x.a.len);
    response_check(v.ended);
    response_events_free(&v);

    answer_free(&x.a);
    answer_free(&y.a);
    ngx_destroy_pool(pool);

    return 0;
}
