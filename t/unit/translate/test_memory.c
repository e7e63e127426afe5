
/*
 * The codecs without memory: each of the vectors in t/vectors and
 * t/vectors-responses is translated, as it is and with long texts, with each
 * allocation and each write failing in turn.
 */


#include "unit_memory.h"
#include "answer.h"

#include <glob.h>


#define VECTORS  "t/vectors{,/own,-responses,-responses/own}/*-*.json"
#define CAPS     2                       /* models a request is for */


typedef struct {
    ngx_pool_t          *pool;
    ngx_modelgw_tape_t   tape;
    ngx_modelgw_node_t  *root;

    const char          *file;
    u_char              *body;           /* of unit_dup() */
    size_t               len;
    ngx_uint_t           responses;      /* of that API, else of chat */
    ngx_uint_t           protocol;       /* the upstream's */
    ngx_uint_t           caps;

    ngx_modelgw_responses_call_t   call;
} vector_t;


static ngx_modelgw_skip_pt
skip_variant(void)
{
    ngx_uint_t  n;

    return ngx_modelgw_skip_variants(&n)[0].skip;
}


/* the second model has what the first one has not */

static void
set_request(ngx_modelgw_request_t *rq, ngx_modelgw_caps_t *caps,
    ngx_pool_t *pool, ngx_modelgw_tape_t *tape, ngx_uint_t which)
{
    ngx_memzero(rq, sizeof(ngx_modelgw_request_t));
    ngx_memzero(caps, sizeof(ngx_modelgw_caps_t));

    caps->thinking = which ? NGX_MODELGW_THINKING_ADAPTIVE
                           : NGX_MODELGW_THINKING_BUDGET;
    caps->effort = which ? 0x3f : 0;
    caps->auto_cache = which;
    caps->structured = 1;
    caps->strict = !which;
    caps->prefill = 1;
    caps->forced_tool_choice = 1;
    caps->default_max_tokens = 4096;

    rq->pool = pool;
    rq->tape = tape;
    rq->skip = skip_variant();
    rq->caps = caps;
    ngx_str_set(&rq->model, "upstream-id");
}


static ngx_int_t
translate_request(void *data, ngx_pool_t *pool)
{
    vector_t *v = data;

    ngx_int_t                      rc;
    ngx_modelgw_out_t              out;
    ngx_modelgw_caps_t             caps;
    ngx_modelgw_tape_t             tape;
    ngx_modelgw_request_t          rq;
    ngx_modelgw_out_chain_t        chain;
    ngx_modelgw_responses_call_t   call;

    ngx_modelgw_tape_init(&tape, pool, skip_variant());

    rc = ngx_modelgw_tape_feed(&tape, v->body, v->len);

    if (rc != NGX_OK) {
        return rc;
    }

    assert_int_equal(ngx_modelgw_tape_done(&tape, v->body), NGX_OK);

    set_request(&rq, &caps, pool, &tape, v->caps);
    ngx_modelgw_out_chain(&out, &chain, pool, 1);

    rc = v->responses ? ngx_modelgw_responses(&rq, v->protocol, &call, &out)
                      : ngx_modelgw_request(&rq, &out);

    /* of a request that cannot be translated nothing is written */

    assert_true(rc == NGX_OK || chain.size == 0);

    return out.failed ? NGX_ERROR : rc;
}


static void
init_answer(vector_t *v, ngx_pool_t *pool, answer_t *a)
{
    answer_init(a, pool, NGX_MODELGW_REASONING_FULL, 1, 1024 * 1024);

    if (v->responses && a->rc == NGX_OK) {
        answer_responses(a, v->protocol, 1024 * 1024);
        a->call = v->call;
    }

    a->drop = 1;
}


static ngx_int_t
translate_stream(void *data, ngx_pool_t *pool)
{
    vector_t *v = data;

    answer_t  a;

    init_answer(v, pool, &a);
    (void) answer_stream(&a, v->body, v->len, ngx_max(v->len, 1));
    answer_free(&a);

    return a.out.failed ? NGX_ERROR : a.rc;
}


static ngx_int_t
translate_whole(void *data, ngx_pool_t *pool)
{
    vector_t *v = data;

    answer_t  a;

    init_answer(v, pool, &a);

    if (a.rc == NGX_OK) {
        (void) answer_message(&a, v->body, v->len);
    }

    answer_free(&a);

    return a.out.failed ? NGX_ERROR : a.rc;
}


static ngx_modelgw_node_t *
member(vector_t *v, ngx_modelgw_node_t *obj, const char *name)
{
    return ngx_modelgw_tape_member(&v->tape, obj, name);
}


static ngx_uint_t
is(vector_t *v, ngx_modelgw_node_t *node, const char *text)
{
    return ngx_modelgw_tape_is(&v->tape, node, text);
}


/* a value, or the text that a string has */

static void
vector_body(vector_t *v, ngx_modelgw_node_t *node)
{
    ngx_str_t  s;

    if (node->type == NGX_MODELGW_TAPE_STRING) {
        assert_int_equal(ngx_modelgw_tape_text(&v->tape, v->pool, node, &s),
                         NGX_OK);

    } else {
        ngx_modelgw_tape_raw(&v->tape, node, &s);
    }

    v->body = unit_dup(s.data, s.len);
    v->len = s.len;
}


/* what the scanner refuses does not come to the codec */

static ngx_uint_t
vector_strict(vector_t *v)
{
    ngx_modelgw_scan_t       *s;
    ngx_modelgw_scan_conf_t   conf;

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));
    conf.skip = skip_variant();
    conf.check = 1;

    s = ngx_modelgw_scan_create(v->pool, &conf);
    assert_non_null(s);

    return ngx_modelgw_scan_feed(s, v->body, v->len) == NGX_OK
           && ngx_modelgw_scan_done(s) == NGX_OK;
}


/* the record of the call is that of the vector's request */

static void
vector_call(vector_t *v)
{
    ngx_str_t                 s;
    ngx_modelgw_out_t         out;
    ngx_modelgw_caps_t        caps;
    ngx_modelgw_tape_t        tape;
    ngx_modelgw_request_t     rq;
    ngx_modelgw_out_chain_t   chain;

    ngx_modelgw_tape_raw(&v->tape, member(v, v->root, "request"), &s);
    ngx_modelgw_tape_init(&tape, v->pool, skip_variant());

    assert_int_equal(ngx_modelgw_tape_feed(&tape, s.data, s.len), NGX_OK);
    assert_int_equal(ngx_modelgw_tape_done(&tape, s.data), NGX_OK);

    set_request(&rq, &caps, v->pool, &tape, 0);
    ngx_modelgw_out_chain(&out, &chain, v->pool, 1);

    assert_int_equal(ngx_modelgw_responses(&rq, v->protocol, &v->call, &out),
                     NGX_OK);
}


/* requests are for two models, and those of responses for two upstreams */

static ngx_uint_t
vector_request(vector_t *v)
{
    ngx_uint_t  n, chat;

    if (!vector_strict(v)) {
        return 0;
    }

    n = 0;

    for (chat = 0; chat <= v->responses; chat++) {
        v->protocol = chat ? NGX_MODELGW_CHAT : NGX_MODELGW_MESSAGES;

        for (v->caps = 0; v->caps < CAPS; v->caps++) {
            n += unit_memory(translate_request, v, v->file);
        }
    }

    return n;
}


/* returns how many allocations have failed */

static ngx_uint_t
vector_check(vector_t *v)
{
    ngx_uint_t           n, stretched;
    unit_memory_pt       translate;
    ngx_modelgw_node_t  *in, *raw, *sse, *body;

    in = member(v, v->root, "in");
    raw = member(v, v->root, "in_raw");
    sse = member(v, in, "sse");
    body = member(v, in, "body");

    if (is(v, member(v, v->root, "kind"), "request")) {
        translate = NULL;
        body = raw ? raw : in;

    } else if (sse) {
        translate = translate_stream;
        body = sse;

    } else {
        translate = translate_whole;
    }

    if (body == NULL) {
        return 0;
    }

    if (translate && v->responses) {
        vector_call(v);
    }

    vector_body(v, body);

    n = 0;

    for (stretched = 0; stretched < 2; stretched++) {

        if (stretched) {
            unit_memory_lengthen(&v->body, &v->len);
        }

        n += translate ? unit_memory(translate, v, v->file)
                       : vector_request(v);
    }

    return n;
}


static ngx_uint_t
vector(const char *file)
{
    FILE                *f;
    size_t               len;
    vector_t             v;
    ngx_uint_t           n;
    ngx_modelgw_node_t  *upstream;

    static u_char  text[1024 * 1024];

    f = fopen(file, "r");
    assert_non_null(f);

    len = fread(text, 1, sizeof(text), f);
    assert_true(len < sizeof(text));
    fclose(f);

    ngx_memzero(&v, sizeof(vector_t));

    v.pool = unit_pool_create();
    v.file = file;
    v.responses = (strstr(file, "-responses/") != NULL);

    ngx_modelgw_tape_init(&v.tape, v.pool, skip_variant());
    assert_int_equal(ngx_modelgw_tape_feed(&v.tape, text, len), NGX_OK);
    assert_int_equal(ngx_modelgw_tape_done(&v.tape, text), NGX_OK);

    v.root = ngx_modelgw_tape_root(&v.tape);
    upstream = member(&v, member(&v, v.root, "opts"), "upstream");
    v.protocol = is(&v, upstream, "chat") ? NGX_MODELGW_CHAT
                                          : NGX_MODELGW_MESSAGES;

    /* some are passed on */

    n = (is(&v, upstream, "responses")
         || (v.protocol == NGX_MODELGW_CHAT && !v.responses))
        ? 0 : vector_check(&v);

    unit_free(v.body);
    ngx_destroy_pool(v.pool);

    return n;
}


static void
no_memory(void **state)
{
    glob_t      found;
    size_t      i;
    ngx_uint_t  n;

    assert_int_equal(glob(VECTORS, GLOB_BRACE, NULL, &found), 0);

    for (i = 0, n = 0; i < found.gl_pathc; i++) {
        n += vector(found.gl_pathv[i]);
    }

    globfree(&found);

    print_message("%lu failures\n", (unsigned long) n);
    assert_true(n > 1000);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
