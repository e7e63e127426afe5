
/*
 * What the fuzzers of requests share: an input is read, translated whole and in
 * pieces, and the result checked.
 *
 * The program includes mutate.h before, and has codec() and check_written().
 */


#ifndef _REQUEST_H_INCLUDED_
#define _REQUEST_H_INCLUDED_


#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_usage.h"

#include "rules.h"


typedef struct {
    ngx_int_t                      rc;
    u_char                        *text;
    size_t                         len;
    ngx_modelgw_caps_t             caps;
    ngx_modelgw_tape_t             tape;
    ngx_modelgw_request_t          rq;
    ngx_uint_t                     protocol;     /* the upstream's */
    ngx_modelgw_responses_call_t   call;
} result_t;


/* the codec, and checks of what it has written, by the program */

static ngx_int_t codec(result_t *r, ngx_modelgw_out_t *out);
static void check_written(ngx_modelgw_tape_t *tape, result_t *r);


static ngx_modelgw_scan_watch_t  watches[] = {
    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("max_tokens"), NGX_MODELGW_SCAN_NUMBER },
    { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("system"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("tools"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("tool_choice"), NGX_MODELGW_SCAN_STRING
                                 |NGX_MODELGW_SCAN_OBJECT
                                 |NGX_MODELGW_SCAN_KEYS },
    { ngx_string("stop_sequences"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL },
    { ngx_string("temperature"), NGX_MODELGW_SCAN_NUMBER },
    { ngx_string("top_p"), NGX_MODELGW_SCAN_NUMBER },
    { ngx_string("top_k"), NGX_MODELGW_SCAN_NUMBER },
    { ngx_string("metadata"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("thinking"), NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("output_config"),
      NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_KEYS }
};

#define NWATCHES  (sizeof(watches) / sizeof(watches[0]))


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
set_caps(result_t *r, const uint8_t *p)
{
    ngx_modelgw_caps_t  *caps;

    caps = &r->caps;

    caps->sampling = (p[0] & 3) % 3;
    caps->thinking = p[0] >> 2 & 3;
    caps->structured = p[0] >> 4 & 1;
    caps->strict = p[0] >> 5 & 1;
    caps->prefill = p[0] >> 6 & 1;
    caps->forced_tool_choice = p[0] >> 7;
    caps->effort = p[1] & 0x3f;
    caps->default_max_tokens = (p[2] & 0x80) ? 1 : 4096;

    r->rq.caps = caps;
    r->rq.strict = p[1] >> 6 & 1;
    r->rq.max_output = (p[1] >> 7) ? 5000 : 0;
    r->protocol = NGX_MODELGW_MESSAGES;

#if (MUTATE_OPTIONS > 3)

    if (p[3] & 1) {
        r->protocol = NGX_MODELGW_CHAT;
    }

    caps->auto_cache = (p[3] >> 1 & 3) % 3;
    caps->chat_limit = p[3] >> 3 & 1;

#endif
}


/* the document is read from in one piece; seed 0: fed in one, too */

static ngx_int_t
read_doc(ngx_pool_t *pool, ngx_modelgw_tape_t *tape, ngx_modelgw_skip_pt skip,
    u_char *doc, size_t len, uint32_t seed)
{
    size_t                    at, n;
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.check = 1;
    conf.skip = skip;

    s = ngx_modelgw_scan_create(pool, &conf);
    check(s != NULL);

    ngx_modelgw_tape_init(tape, pool, skip);

    for (at = 0; at < len; at += n) {
        n = len - at;

        if (seed) {
            seed = seed * 1103515245 + 12345;
            n = ngx_min(n, 1 + (seed >> 16) % 40);
        }

        if (ngx_modelgw_scan_feed(s, doc + at, n) != NGX_OK
            || ngx_modelgw_tape_feed(tape, doc + at, n) != NGX_OK)
        {
            return NGX_DECLINED;
        }
    }

    if (ngx_modelgw_scan_done(s) != NGX_OK) {
        return NGX_DECLINED;
    }

    check(ngx_modelgw_tape_done(tape, doc) == NGX_OK);

    return NGX_OK;
}


static void
collect(result_t *r, ngx_modelgw_out_chain_t *chain)
{
    u_char       *p;
    ngx_chain_t  *cl;

    r->text = malloc(ngx_max(chain->size, 1));
    check(r->text != NULL);

    p = r->text;

    for (cl = chain->first; cl; cl = cl->next) {
        check(cl->buf->last > cl->buf->pos);
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    r->len = p - r->text;
    check((off_t) r->len == chain->size);
}


/* NGX_DECLINED if it is not a JSON object */

static ngx_int_t
translate(ngx_pool_t *pool, result_t *r, const uint8_t *options, u_char *doc,
    size_t len, ngx_modelgw_skip_pt skip, uint32_t seed)
{
    ngx_modelgw_out_t        out;
    ngx_modelgw_out_chain_t  chain;

    ngx_memzero(r, sizeof(result_t));
    set_caps(r, options);

    if (read_doc(pool, &r->tape, skip, doc, len, seed) != NGX_OK) {
        return NGX_DECLINED;
    }

    r->rq.pool = pool;
    r->rq.tape = &r->tape;
    r->rq.skip = skip;
    ngx_str_set(&r->rq.model, "large");

    ngx_modelgw_out_chain(&out, &chain, pool, 64);

    r->rc = codec(r, &out);
    check(out.failed == 0);

    collect(r, &chain);

    return NGX_OK;
}


/* the message must be valid UTF-8 for the error's JSON */

static void
check_refusal(ngx_pool_t *pool, result_t *r)
{
    ngx_uint_t                n;
    ngx_modelgw_out_t         out;
    ngx_modelgw_tape_t        tape;
    ngx_modelgw_out_chain_t   chain;

    check(r->rc == NGX_DECLINED);
    check(r->len == 0);
    check(r->rq.code != NULL);
    check(strcmp(r->rq.code, "INVALID_REQUEST") == 0
          || strcmp(r->rq.code, "UNSUPPORTED_FIELD") == 0);
    check(r->rq.message.len > 0
          && r->rq.message.len <= NGX_MODELGW_REQUEST_MESSAGE);
    check(r->rq.message.data[r->rq.message.len - 1] != '.');

    ngx_modelgw_out_chain(&out, &chain, pool, 4096);
    ngx_modelgw_out_text(&out, "{\"m\":\"");
    ngx_modelgw_out_escaped(&out, r->rq.message.data, r->rq.message.len);
    ngx_modelgw_out_text(&out, "\"}");

    free(r->text);
    collect(r, &chain);

    check(read_doc(pool, &tape, ngx_modelgw_skip_variants(&n)[0].skip, r->text,
                   r->len, 0)
          == NGX_OK);
}


/* the output may be deeper than the input: arguments were a string */

static ngx_int_t
scan_output(ngx_pool_t *pool, result_t *r)
{
    u_char                     text[NGX_MODELGW_SCAN_FAULT_LEN];
    ngx_str_t                  fault;
    ngx_modelgw_scan_t        *s;
    ngx_modelgw_scan_conf_t    conf;
    ngx_modelgw_scan_value_t  *v;

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.watches = watches;
    conf.nwatches = NWATCHES;
    conf.check = 1;
    conf.skip = r->rq.skip;

    s = ngx_modelgw_scan_create(pool, &conf);
    check(s != NULL);

    if (ngx_modelgw_scan_feed(s, r->text, r->len) != NGX_OK
        || ngx_modelgw_scan_done(s) != NGX_OK)
    {
        fault.data = text;
        (void) ngx_modelgw_scan_fault(s, &fault);
        check(memmem(text, fault.len, "deep", 4) != NULL);
        return NGX_DECLINED;
    }

    v = ngx_modelgw_scan_value(s, 0);
    check(v->len == 5 && memcmp(v->text, "large", 5) == 0);

    if (r->protocol == NGX_MODELGW_MESSAGES) {
        v = ngx_modelgw_scan_value(s, 1);
        check(ngx_atoi(v->text, v->len) == (ngx_int_t) r->rq.max_tokens);
        check(r->rq.max_tokens > 0);
    }

    v = ngx_modelgw_scan_value(s, 2);
    check(v->elements > 0);

    return NGX_OK;
}


static void
check_output(ngx_pool_t *pool, result_t *r)
{
    ngx_modelgw_node_t  *root, *tools;
    ngx_modelgw_tape_t   tape;

    check(r->rc == NGX_OK);

    if (scan_output(pool, r) != NGX_OK) {
        return;
    }

    ngx_modelgw_tape_init(&tape, pool, r->rq.skip);
    check(ngx_modelgw_tape_feed(&tape, r->text, r->len) == NGX_OK);
    check(ngx_modelgw_tape_done(&tape, r->text) == NGX_OK);

    root = ngx_modelgw_tape_root(&tape);
    tools = ngx_modelgw_tape_member(&tape, root, "tools");

    check(tools == NULL || tools->count > 0);
    check(tools != NULL
          || ngx_modelgw_tape_member(&tape, root, "tool_choice") == NULL);

    if (r->protocol == NGX_MODELGW_MESSAGES) {
        check_members(&tape, root);
        check_turns(&tape, ngx_modelgw_tape_member(&tape, root, "messages"));
        check_tools(&tape, tools);
        check_stop(&tape, ngx_modelgw_tape_member(&tape, root,
                                                  "stop_sequences"));
    }

    check_written(&tape, r);
}


static void
check_same(result_t *a, result_t *b)
{
    check(a->rc == b->rc);
    check(a->len == b->len && memcmp(a->text, b->text, a->len) == 0);
    check(a->rq.code == b->rq.code);
    check(a->rq.message.len == b->rq.message.len);
    check(a->rq.message.len == 0
          || memcmp(a->rq.message.data, b->rq.message.data,
                    a->rq.message.len) == 0);
    check(a->rq.ignored.len == b->rq.ignored.len);
    check(a->rq.max_tokens == b->rq.max_tokens);
    check(a->rq.include_usage == b->rq.include_usage);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t                       i, len;
    u_char                      *doc;
    result_t                     a, b;
    ngx_pool_t                  *pool;
    ngx_uint_t                   n;
    ngx_modelgw_skip_variant_t  *variants;

    if (size < MUTATE_OPTIONS) {
        return 0;
    }

    pool = unit_pool_create();
    len = size - MUTATE_OPTIONS;
    doc = unit_dup(data + MUTATE_OPTIONS, len);
    variants = ngx_modelgw_skip_variants(&n);

    if (translate(pool, &a, data, doc, len, variants[0].skip, 0) == NGX_OK) {

        check(translate(pool, &b, data, doc, len, variants[n - 1].skip,
                        1 + (data[2] & 0x7f))
              == NGX_OK);
        check_same(&a, &b);
        free(b.text);

        for (i = 0; i < a.rq.ignored.len; i++) {
            check(a.rq.ignored.data[i] > ' ' && a.rq.ignored.data[i] < 0x7f);
        }

        if (a.rc == NGX_OK) {
            check_output(pool, &a);

        } else {
            check_refusal(pool, &a);
        }

        free(a.text);
    }

    unit_free(doc);
    ngx_destroy_pool(pool);

    return 0;
}


#endif /* _REQUEST_H_INCLUDED_ */
