
/*
 * libFuzzer: a messages stream.  The first byte of the input seeds the cuts,
 * the second one is the client's options, the rest is the stream, which goes
 * through the reader of events, the scanner, the usage and the codec.  Read
 * whole and in pieces it must give the same chunks; these must be JSON in the
 * order that accumulators rely on, and end with "[DONE]" if and only if the
 * stream has ended properly.
 */


#define _GNU_SOURCE

#include "unit.h"
#include "answer.h"

#define MUTATE_OPTIONS  2
#define MUTATE_STREAM   1

#include "mutate.h"


typedef struct {
    answer_t              *a;
    ngx_uint_t             chunks;
    ngx_uint_t             finished;
    ngx_uint_t             usage;
    ngx_uint_t             tools;
    ngx_modelgw_tape_t     tape;
} order_t;


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("id"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("object"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("created"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("choices"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_NULL
                           |NGX_MODELGW_SCAN_KEYS }
};

#define NWATCHES  (sizeof(watches) / sizeof(watches[0]))


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
check(int ok)
{
    if (!ok) {
        abort();
    }
}


/* nothing is written for an event that is refused */

static void
feed(answer_t *a, u_char *p, size_t len)
{
    size_t                    before;
    u_char                   *last;
    ngx_int_t                 rc;
    ngx_modelgw_sse_event_t   ev;

    last = p + len;

    while (a->rc == NGX_OK) {
        rc = ngx_modelgw_sse_next(&a->sse, &p, last, &ev);

        if (rc == NGX_AGAIN) {
            break;
        }

        check(rc == NGX_OK);

        before = a->len;
        answer_event(a, &ev);

        check(a->rc == NGX_OK || a->rc == NGX_DONE || a->len == before);
        check(a->rc != NGX_ERROR);
        check(a->out.failed == 0);
    }
}


/* seed 0: whole; else in pieces of 1 to 64 bytes, which are freed */

static void
run(answer_t *a, ngx_pool_t *pool, const uint8_t *data, size_t len,
    uint32_t seed)
{
    size_t   at, n;
    u_char  *piece;

    static size_t  kept[2] = { 65536, 24 };

    answer_init(a, pool, (data[1] & 3) % 3, data[1] >> 2 & 1,
                kept[data[1] >> 3 & 1]);
    a->usage.input_has_cache = data[1] >> 4 & 1;

    for (at = 0; at < len; at += n) {
        n = len - at;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = ngx_min(n, 1 + (seed >> 16) % 64);
        }

        piece = unit_dup(data + MUTATE_OPTIONS + at, n);
        feed(a, piece, n);
        unit_free(piece);
    }

    (void) answer_end(a);

    check(a->rc != NGX_OK && a->rc != NGX_ERROR);
}


static void
check_calls(order_t *o, ngx_modelgw_node_t *calls)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *call, *node;

    for (call = ngx_modelgw_tape_first(&o->tape, calls);
         call;
         call = ngx_modelgw_tape_next(&o->tape, calls, call))
    {
        node = ngx_modelgw_tape_member(&o->tape, call, "index");
        check(ngx_modelgw_tape_count(&o->tape, node, &i));

        /* indices have no gaps; the id comes with the first delta only */

        if (ngx_modelgw_tape_member(&o->tape, call, "id")) {
            check(i == o->tools++);
        }

        check(i < o->tools);

        node = ngx_modelgw_tape_member(&o->tape, call, "function");
        node = ngx_modelgw_tape_member(&o->tape, node, "arguments");
        check(node != NULL && node->type == NGX_MODELGW_TAPE_STRING);
    }
}


static void
check_choice(order_t *o, ngx_modelgw_node_t *choice)
{
    ngx_uint_t           role;
    ngx_modelgw_node_t  *delta, *finish;

    check(!o->finished && !o->usage);

    delta = ngx_modelgw_tape_member(&o->tape, choice, "delta");
    check(delta != NULL && delta->type == NGX_MODELGW_TAPE_OBJECT);

    role = (ngx_modelgw_tape_member(&o->tape, delta, "role") != NULL);
    check(role == (o->chunks == 0));

    check_calls(o, ngx_modelgw_tape_member(&o->tape, delta, "tool_calls"));

    finish = ngx_modelgw_tape_member(&o->tape, choice, "finish_reason");
    check(finish != NULL);

    if (finish->type == NGX_MODELGW_TAPE_STRING) {
        o->finished = 1;
        check(delta->count == 0);

    } else {
        check(finish->type == NGX_MODELGW_TAPE_NULL);
        check(delta->count > 0);
    }
}


static void
check_chunk(order_t *o, ngx_modelgw_scan_t *s, u_char *p, size_t len)
{
    ngx_uint_t           i;
    ngx_modelgw_node_t  *choices;

    ngx_modelgw_scan_reset(s);
    check(ngx_modelgw_scan_feed(s, p, len) == NGX_OK);
    check(ngx_modelgw_scan_done(s) == NGX_OK);

    for (i = 0; i < NWATCHES - 1; i++) {
        check(ngx_modelgw_scan_value(s, i)->type != NGX_MODELGW_SCAN_ABSENT);
    }

    ngx_modelgw_tape_reset(&o->tape);
    check(ngx_modelgw_tape_feed(&o->tape, p, len) == NGX_OK);
    check(ngx_modelgw_tape_done(&o->tape, p) == NGX_OK);

    choices = ngx_modelgw_tape_member(&o->tape,
                                      ngx_modelgw_tape_root(&o->tape),
                                      "choices");

    if (choices->count == 0) {
        check(o->a->c.include_usage && o->finished && !o->usage);
        o->usage = 1;
        return;
    }

    check(choices->count == 1);
    check_choice(o, ngx_modelgw_tape_first(&o->tape, choices));

    o->chunks++;
}


static void
check_output(answer_t *a, ngx_pool_t *pool)
{
    u_char                   *p, *last, *end;
    order_t                   o;
    ngx_uint_t                done;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.watches = watches;
    conf.nwatches = NWATCHES;
    conf.check = 1;
    conf.skip = a->skip;

    s = ngx_modelgw_scan_create(pool, &conf);
    check(s != NULL);

    ngx_memzero(&o, sizeof(order_t));
    o.a = a;

    ngx_modelgw_tape_init(&o.tape, pool, a->skip);

    done = 0;
    last = a->len ? a->text + a->len : NULL;

    for (p = a->text; p < last; p = end + 2) {
        check(!done);

        end = memmem(p, last - p, "\n\n", 2);
        check(end != NULL);

        if (end - p == 6 && memcmp(p, ": ping", 6) == 0) {
            continue;
        }

        check(end - p > 6 && memcmp(p, "data: ", 6) == 0);
        p += 6;

        if (end - p == 6 && memcmp(p, "[DONE]", 6) == 0) {
            done = 1;
            continue;
        }

        check(memchr(p, '\n', end - p) == NULL);
        check(memchr(p, '\r', end - p) == NULL);
        check_chunk(&o, s, p, end - p);
    }

    check(done == (a->rc == NGX_DONE));
    check(o.finished == done);
    check(!done || o.usage == a->c.include_usage);
}


/* a broken stream does not end properly; escapes are not decoded here */

static void
check_end(answer_t *a, const uint8_t *p, size_t len)
{
    check(a->rc != NGX_DONE
          || memmem(p, len, "message_stop", 12) != NULL
          || memmem(p, len, "stop_reason", 11) != NULL
          || memmem(p, len, "\\u", 2) != NULL);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t       len;
    answer_t     a, b;
    ngx_pool_t  *pool;

    if (size < MUTATE_OPTIONS) {
        return 0;
    }

    pool = unit_pool_create();
    len = size - MUTATE_OPTIONS;

    run(&a, pool, data, len, 0);
    run(&b, pool, data, len, 1 + data[0]);

    check(a.rc == b.rc);
    check(a.len == b.len);
    check(a.len == 0 || memcmp(a.text, b.text, a.len) == 0);
    check(memcmp(&a.usage, &b.usage, sizeof(ngx_modelgw_usage_t)) == 0);

    check_output(&a, pool);
    check_end(&a, data + MUTATE_OPTIONS, len);

    answer_free(&a);
    answer_free(&b);
    ngx_destroy_pool(pool);

    return 0;
}
