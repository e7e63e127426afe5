
/*
 * The request codec in the unit tests of all fields but "messages".
 *
 * A case is the members of a chat request after "model" and "messages", and the
 * result: the members after "messages" of the messages request, or code and
 * message of the refusal.  The model's capabilities are in the variables.
 */


#ifndef _UNIT_REQUEST_H_INCLUDED_
#define _UNIT_REQUEST_H_INCLUDED_


#include "unit.h"

#include "ngx_modelgw_request.h"


#define CHAT  "{\"model\":\"chat-id\",\"messages\":[{\"role\":\"user\","      \
              "\"content\":\"hi\"}]"

#define MESSAGES  ",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":" \
                  "\"text\",\"text\":\"hi\"}]}]"

#define TOOL(name)                                                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

#define TOOL_OUT(name)                                                        \
    "{\"name\":\"" name "\",\"input_schema\":{\"type\":\"object\","           \
    "\"properties\":{}}}"

#define TOOLS      "\"tools\":[" TOOL("f") "," TOOL("g") "]"
#define TOOLS_OUT  ",\"tools\":[" TOOL_OUT("f") "," TOOL_OUT("g") "]"

#define CHOICE(json)  TOOLS ",\"tool_choice\":" json
#define CHOSEN(json)  TOOLS_OUT ",\"tool_choice\":{" json "}"

#define EFFORT(level)  "\"reasoning_effort\":\"" level "\""
#define BUDGET(n)                                                             \
    ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":" n "}"

#define INVALID      "INVALID_REQUEST "
#define UNSUPPORTED  "UNSUPPORTED_FIELD "


typedef struct {
    const char  *in;
    const char  *out;
} case_t;


/* where a request is written to; fails from the write of that number on */

typedef struct {
    u_char      *data;
    size_t       len;
    ngx_uint_t   writes;
    ngx_uint_t   fail;
} sink_t;


static ngx_modelgw_caps_t  caps;
static ngx_uint_t          max_output;
static ngx_uint_t          strict;


/* the defaults of a model line */

static ngx_inline void
set_defaults(void)
{
    ngx_memzero(&caps, sizeof(ngx_modelgw_caps_t));

    caps.thinking = NGX_MODELGW_THINKING_BUDGET;
    caps.structured = 1;
    caps.strict = 1;
    caps.prefill = 1;
    caps.forced_tool_choice = 1;
    caps.default_max_tokens = 4096;

    max_output = 0;
    strict = 0;
}


static ngx_inline int
setup(void **state)
{
    set_defaults();

    return unit_setup(state);
}


#define request_case(f)                                                       \
    cmocka_unit_test_setup_teardown(f, setup, unit_teardown)


static ngx_inline ngx_int_t
sink_write(void *data, u_char *p, size_t len, ngx_uint_t borrowed)
{
    sink_t  *sink = data;

    if (sink->fail && ++sink->writes >= sink->fail) {
        return NGX_ERROR;
    }

    sink->data = realloc(sink->data, sink->len + len + 1);
    assert_non_null(sink->data);

    ngx_memcpy(sink->data + sink->len, p, len);
    sink->len += len;

    return NGX_OK;
}


/* translates the text; *sink is what was written */

static ngx_inline ngx_int_t
translate(ngx_pool_t *pool, const char *text, size_t chunk,
    ngx_modelgw_request_t *rq, sink_t *sink)
{
    u_char                      *doc;
    size_t                       at, n, len;
    ngx_int_t                    rc;
    ngx_uint_t                   nvariants;
    ngx_modelgw_out_t            out;
    ngx_modelgw_tape_t           tape;
    ngx_modelgw_skip_variant_t  *variants;

    variants = ngx_modelgw_skip_variants(&nvariants);

    len = ngx_strlen(text);
    doc = unit_dup(text, len);

    ngx_memzero(rq, sizeof(ngx_modelgw_request_t));
    rq->pool = pool;
    rq->tape = &tape;
    rq->skip = variants[0].skip;
    rq->caps = &caps;
    rq->max_output = max_output;
    rq->strict = strict;
    ngx_str_set(&rq->model, "upstream-id");

    ngx_modelgw_tape_init(&tape, pool, rq->skip);

    for (at = 0; at < len; at += n) {
        n = ngx_min(chunk, len - at);
        assert_int_equal(ngx_modelgw_tape_feed(&tape, doc + at, n), NGX_OK);
    }

    assert_int_equal(ngx_modelgw_tape_done(&tape, doc), NGX_OK);

    out.write = sink_write;
    out.data = sink;
    out.failed = 0;

    rc = ngx_modelgw_request(rq, &out);

    assert_int_equal(out.failed, sink->fail ? rc == NGX_OK : 0);

    unit_free(doc);

    return rc;
}


/* in the pool: the "out" of a case; rq is set accordingly */

static ngx_inline const char *
outcome(ngx_pool_t *pool, const char *members, ngx_modelgw_request_t *rq)
{
    char       *text, *result;
    size_t      len, size;
    sink_t      sink;
    ngx_int_t   rc;

    size = ngx_strlen(members) + sizeof(CHAT) + sizeof(MESSAGES) + 4096;
    text = ngx_palloc(pool, size);
    assert_non_null(text);

    result = ngx_palloc(pool, size);
    assert_non_null(result);

    snprintf(text, size, CHAT "%s%s}", *members ? "," : "", members);

    ngx_memzero(&sink, sizeof(sink_t));
    rc = translate(pool, text, size, rq, &sink);

    if (rc == NGX_DECLINED) {
        assert_int_equal(sink.len, 0);
        assert_true(rq->message.len <= NGX_MODELGW_REQUEST_MESSAGE);
        snprintf(result, size, "%s %.*s", rq->code, (int) rq->message.len,
                 rq->message.data);
        return result;
    }

    assert_int_equal(rc, NGX_OK);
    assert_null(rq->code);

    len = snprintf(text, size, "{\"model\":\"upstream-id\",\"max_tokens\":%lu"
                   MESSAGES, (unsigned long) rq->max_tokens);

    assert_true(sink.len > len);

    if (memcmp(sink.data, text, len) != 0) {
        unit_assert_str(sink.data, sink.len, text);
    }

    assert_int_equal(sink.data[sink.len - 1], '}');

    snprintf(result, size, "%.*s", (int) (sink.len - 1 - len),
             sink.data + len);
    free(sink.data);

    return result;
}


static ngx_inline void
check(ngx_pool_t *pool, const char *in, const char *out)
{
    const char             *got;
    ngx_modelgw_request_t   rq;

    got = outcome(pool, in, &rq);

    if (strcmp(got, out) != 0) {
        print_error("%s:\n", in);
        unit_assert_str((u_char *) got, strlen(got), out);
    }
}


static ngx_inline void
check_all(ngx_pool_t *pool, case_t *c)
{
    for ( /* void */ ; c->in; c++) {
        check(pool, c->in, c->out);
    }
}


/* max_tokens, and the list of what was ignored */

static ngx_inline void
check_tokens(ngx_pool_t *pool, const char *in, ngx_uint_t tokens)
{
    ngx_modelgw_request_t  rq;

    (void) outcome(pool, in, &rq);

    if (rq.max_tokens != tokens) {
        print_error("%s:\n", in);
        assert_int_equal(rq.max_tokens, tokens);
    }
}


static ngx_inline void
check_ignored(ngx_pool_t *pool, const char *in, const char *ignored)
{
    ngx_modelgw_request_t  rq;

    (void) outcome(pool, in, &rq);

    assert_null(rq.code);
    unit_assert_str(rq.ignored.len ? rq.ignored.data : (u_char *) "",
                    rq.ignored.len, ignored);
}


#endif /* _UNIT_REQUEST_H_INCLUDED_ */
