
/*
 * libFuzzer: a whole answer of a messages upstream.  The first byte of the
 * input is the client's options, the rest the answer.  The codec's output must
 * be JSON with the members that clients rely on; if the input is not a
 * message, nothing may be written.
 */


#define _GNU_SOURCE

#include "unit.h"
#include "answer.h"

#define MUTATE_OPTIONS  1

#include "mutate.h"


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("id"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("object"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("created"), NGX_MODELGW_SCAN_COUNT },
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("choices"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("usage"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_KEYS
                           |NGX_MODELGW_SCAN_NULL },
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


static void
check_message(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *choice)
{
    ngx_modelgw_node_t  *message, *calls, *call, *node;

    node = ngx_modelgw_tape_member(tape, choice, "finish_reason");
    check(ngx_modelgw_tape_is(tape, node, "stop")
          || ngx_modelgw_tape_is(tape, node, "length")
          || ngx_modelgw_tape_is(tape, node, "tool_calls")
          || ngx_modelgw_tape_is(tape, node, "content_filter"));

    message = ngx_modelgw_tape_member(tape, choice, "message");
    check(message != NULL && message->type == NGX_MODELGW_TAPE_OBJECT);

    node = ngx_modelgw_tape_member(tape, message, "role");
    check(ngx_modelgw_tape_is(tape, node, "assistant"));

    node = ngx_modelgw_tape_member(tape, message, "content");
    check(node != NULL && (node->type == NGX_MODELGW_TAPE_STRING
                           || node->type == NGX_MODELGW_TAPE_NULL));

    calls = ngx_modelgw_tape_member(tape, message, "tool_calls");

    for (call = ngx_modelgw_tape_first(tape, calls);
         call;
         call = ngx_modelgw_tape_next(tape, calls, call))
    {
        node = ngx_modelgw_tape_member(tape, call, "id");
        check(node != NULL && node->type == NGX_MODELGW_TAPE_STRING);

        node = ngx_modelgw_tape_member(tape, call, "function");
        check(node != NULL);

        node = ngx_modelgw_tape_member(tape, node, "arguments");
        check(node != NULL && node->type == NGX_MODELGW_TAPE_STRING);
    }
}


static void
check_output(answer_t *a)
{
    ngx_uint_t                i;
    ngx_modelgw_node_t       *node;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_tape_t        tape;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.watches = watches;
    conf.nwatches = NWATCHES;
    conf.check = 1;
    conf.skip = a->skip;

    s = ngx_modelgw_scan_create(a->pool, &conf);
    check(s != NULL);
    check(ngx_modelgw_scan_feed(s, a->text, a->len) == NGX_OK);
    check(ngx_modelgw_scan_done(s) == NGX_OK);

    for (i = 0; i < NWATCHES - 1; i++) {
        check(ngx_modelgw_scan_value(s, i)->type != NGX_MODELGW_SCAN_ABSENT);
    }

    ngx_modelgw_tape_init(&tape, a->pool, a->skip);
    check(ngx_modelgw_tape_feed(&tape, a->text, a->len) == NGX_OK);
    check(ngx_modelgw_tape_done(&tape, a->text) == NGX_OK);

    node = ngx_modelgw_tape_member(&tape, ngx_modelgw_tape_root(&tape),
                                   "choices");
    check(node->count == 1);
    check_message(&tape, ngx_modelgw_tape_first(&tape, node));
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t       len;
    u_char      *doc;
    answer_t     a;
    ngx_int_t    rc;
    ngx_pool_t  *pool;

    if (size < MUTATE_OPTIONS) {
        return 0;
    }

    pool = unit_pool_create();
    len = size - MUTATE_OPTIONS;
    doc = unit_dup(data + MUTATE_OPTIONS, len);

    answer_init(&a, pool, (data[0] & 3) % 3, 0, 65536);
    a.usage.input_has_cache = data[0] >> 2 & 1;

    rc = answer_message(&a, doc, len);

    check(rc == NGX_OK || rc == NGX_DECLINED);
    check(a.out.failed == 0);

    if (rc == NGX_OK) {
        check_output(&a);

    } else {
        check(a.len == 0);
    }

    answer_free(&a);
    unit_free(doc);
    ngx_destroy_pool(pool);

    return 0;
}
