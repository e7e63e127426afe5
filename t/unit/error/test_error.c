
/*
 * Errors: for statuses of nginx and of upstreams, what is removed from an
 * upstream's text and what must pass, and the forms.
 */


#include "unit.h"

#include "ngx_modelgw_error.h"
#include "ngx_modelgw_usage.h"


#define CHAT      NGX_MODELGW_CHAT
#define MESSAGES  NGX_MODELGW_MESSAGES


static ngx_modelgw_error_mask_t  mask = {
    ngx_string("vendor-large-1"),
    ngx_string("eu/large"),
    ngx_string("api.upstream.net"),
    ngx_string("topsecret-credential")
};


static void
test_nginx(void **state)
{
    ngx_uint_t            i;
    ngx_modelgw_error_t   e;

    static struct {
        ngx_uint_t   status;
        ngx_uint_t   connected;
        ngx_uint_t   answer;
        const char  *code;
        const char  *type;
    } c[] = {
        { 400, 0, 400, "INVALID_REQUEST", "invalid_request_error" },
        { 401, 0, 401, "INVALID_API_KEY", "authentication_error" },
        { 403, 0, 403, "FORBIDDEN", "permission_error" },
        { 404, 0, 404, "NOT_FOUND", "not_found_error" },
        { 405, 0, 405, "METHOD_NOT_ALLOWED", "invalid_request_error" },
        { 408, 0, 408, "INVALID_REQUEST", "timeout_error" },
        { 409, 0, 409, "INVALID_REQUEST", "invalid_request_error" },
        { 411, 0, 411, "INVALID_REQUEST", "invalid_request_error" },
        { 412, 0, 412, "INVALID_REQUEST", "invalid_request_error" },
        { 413, 0, 413, "REQUEST_TOO_LARGE", "request_too_large" },
        { 414, 0, 414, "REQUEST_TOO_LARGE", "request_too_large" },
        { 415, 0, 415, "UNSUPPORTED_ENCODING", "invalid_request_error" },
        { 416, 0, 416, "INVALID_REQUEST", "invalid_request_error" },
        { 421, 0, 421, "INVALID_REQUEST", "invalid_request_error" },
        { 425, 0, 425, "INVALID_REQUEST", "invalid_request_error" },
        { 429, 0, 429, "RATE_LIMITED", "rate_limit_error" },
        { 431, 0, 400, "INVALID_REQUEST", "invalid_request_error" },
        { 494, 0, 400, "INVALID_REQUEST", "invalid_request_error" },
        { 495, 0, 400, "INVALID_REQUEST", "invalid_request_error" },
        { 496, 0, 400, "INVALID_REQUEST", "invalid_request_error" },
        { 497, 0, 400, "INVALID_REQUEST", "invalid_request_error" },
        { 500, 0, 500, "INTERNAL_ERROR", "api_error" },
        { 501, 0, 501, "INVALID_REQUEST", "api_error" },
        { 502, 1, 502, "UPSTREAM_ERROR", "api_error" },
        { 502, 0, 503, "UPSTREAM_UNAVAILABLE", "overloaded_error" },
        { 503, 0, 503, "SERVICE_UNAVAILABLE", "overloaded_error" },
        { 504, 0, 504, "UPSTREAM_TIMEOUT", "timeout_error" },
        { 504, 1, 504, "UPSTREAM_TIMEOUT", "timeout_error" },
        { 505, 0, 505, "INVALID_REQUEST", "api_error" },
        { 507, 0, 503, "SERVICE_UNAVAILABLE", "overloaded_error" },
        { 418, 0, 418, "INVALID_REQUEST", "invalid_request_error" },
        { 599, 0, 500, "INTERNAL_ERROR", "api_error" },
        { 200, 0, 500, "INTERNAL_ERROR", "api_error" },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        memset(&e, 0xa5, sizeof(e));

        ngx_modelgw_error_nginx(c[i].status, c[i].connected, &e);

        assert_int_equal(e.status, c[i].answer);
        unit_assert_str(e.code.data, e.code.len, c[i].code);
        unit_assert_str(e.type.data, e.type.len, c[i].type);
        assert_true(e.message.len != 0);
        assert_int_equal(e.log_error, 0);
    }

    ngx_modelgw_error_nginx(401, 0, &e);
    unit_assert_str(e.message.data, e.message.len, "Invalid API key");
}


static void
test_type(void **state)
{
    ngx_str_t   type;
    ngx_uint_t  i;

    static struct {
        ngx_uint_t   status;
        const char  *type;
    } c[] = {
        { 400, "invalid_request_error" },
        { 401, "authentication_error" },
        { 402, "billing_error" },
        { 403, "permission_error" },
        { 404, "not_found_error" },
        { 405, "invalid_request_error" },
        { 413, "request_too_large" },
        { 422, "invalid_request_error" },
        { 429, "rate_limit_error" },
        { 500, "api_error" },
        { 502, "api_error" },
        { 503, "overloaded_error" },
        { 504, "timeout_error" },
        { 529, "overloaded_error" },
        { 600, "api_error" },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        ngx_modelgw_error_type(c[i].status, &type);
        unit_assert_str(type.data, type.len, c[i].type);
    }
}


#define INVALID   "The upstream refused the request as invalid"
#define SERVE     "The upstream could not serve this model"
#define LIMIT     "The upstream is rate limiting this gateway, retry later"
#define TIMEOUT   "The upstream timed out"
#define OVERLOAD  "The upstream is overloaded, retry later"
#define FAILED    "The upstream failed"
#define STRANGE   "The upstream gave an unexpected answer"

#define MSG(type)                                                             \
    "{\"type\":\"error\",\"error\":{\"type\":\"" type "\","                   \
    "\"message\":\"Up text.\"},\"request_id\":\"req_011\"}"

#define CHATMSG(type, code)                                                   \
    "{\"error\":{\"message\":\"Up text.\",\"type\":" type ",\"param\":null,"  \
    "\"code\":" code "}}"


typedef struct {
    ngx_uint_t   status;
    const char  *body;
    ngx_uint_t   protocol;
    ngx_uint_t   answer;
    const char  *code;
    const char  *message;
    ngx_uint_t   log_error;
} upstream_case_t;


static upstream_case_t  upstream_cases[] = {

    /* by status; text passes where the fault is the client's */

    { 400, MSG("invalid_request_error"), MESSAGES, 400, "INVALID_REQUEST",
      "Up text.", 0 },
    { 422, MSG("x"), MESSAGES, 400, "INVALID_REQUEST", "Up text.", 0 },
    { 413, MSG("request_too_large"), MESSAGES, 413, "REQUEST_TOO_LARGE",
      "Up text.", 0 },
    { 401, MSG("authentication_error"), MESSAGES, 502, "UPSTREAM_ERROR",
      SERVE, 1 },
    { 402, MSG("billing_error"), MESSAGES, 502, "UPSTREAM_ERROR", SERVE, 1 },
    { 403, MSG("some_future_type"), MESSAGES, 502, "UPSTREAM_ERROR", SERVE, 1 },
    { 404, MSG("not_found_error"), CHAT, 502, "UPSTREAM_ERROR", SERVE, 1 },
    { 409, "", CHAT, 502, "UPSTREAM_ERROR", SERVE, 1 },
    { 429, MSG("rate_limit_error"), MESSAGES, 429, "RATE_LIMITED", LIMIT, 0 },
    { 408, "", CHAT, 504, "UPSTREAM_TIMEOUT", TIMEOUT, 0 },
    { 504, MSG("timeout_error"), CHAT, 504, "UPSTREAM_TIMEOUT", TIMEOUT, 0 },
    { 500, MSG("api_error"), CHAT, 502, "UPSTREAM_ERROR", FAILED, 0 },
    { 502, "<html>", CHAT, 502, "UPSTREAM_ERROR", FAILED, 0 },
    { 520, "", CHAT, 502, "UPSTREAM_ERROR", FAILED, 0 },
    { 999, "", CHAT, 502, "UPSTREAM_ERROR", FAILED, 0 },
    { 503, "Service Unavailable", CHAT, 503, "UPSTREAM_OVERLOADED", OVERLOAD,
      0 },
    { 529, MSG("overloaded_error"), CHAT, 503, "UPSTREAM_OVERLOADED",
      OVERLOAD, 0 },
    { 529, MSG("overloaded_error"), MESSAGES, 529, "UPSTREAM_OVERLOADED",
      OVERLOAD, 0 },
    { 301, "", CHAT, 502, "UPSTREAM_ERROR", STRANGE, 1 },
    { 304, "", MESSAGES, 502, "UPSTREAM_ERROR", STRANGE, 1 },
    { 101, "", MESSAGES, 502, "UPSTREAM_ERROR", STRANGE, 1 },
    { 405, MSG("x"), MESSAGES, 502, "UPSTREAM_ERROR", STRANGE, 1 },
    { 418, "", MESSAGES, 502, "UPSTREAM_ERROR", STRANGE, 1 },

    /* the shapes of a 400 */

    { 400, CHATMSG("\"invalid_request_error\"", "null"), CHAT, 400,
      "INVALID_REQUEST", "Up text.", 0 },
    { 400, "{\"error\":\"Up text.\"}", CHAT, 400, "INVALID_REQUEST",
      "Up text.", 0 },
    { 400, "{\"code\":\"X\",\"message\":\"Up text.\"}", CHAT, 400,
      "INVALID_REQUEST", "Up text.", 0 },
    { 400, "{\"object\":\"error\",\"message\":\"Up text.\",\"type\":\"B\","
      "\"param\":null,\"code\":400}", CHAT, 400, "INVALID_REQUEST",
      "Up text.", 0 },
    { 422, "{\"detail\":\"Up text.\"}", CHAT, 400, "INVALID_REQUEST",
      "Up text.", 0 },
    { 422, "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"x\"}]}", CHAT, 400,
      "INVALID_REQUEST", INVALID, 0 },
    { 400, "{\"error\":{\"message\":\"\"},\"message\":\"Up text.\"}", CHAT,
      400, "INVALID_REQUEST", "Up text.", 0 },
    { 400, "{\"error\":{\"message\":\"a\\nb \\\"c\\\"\"}}", CHAT, 400,
      "INVALID_REQUEST", "a\nb \"c\"", 0 },

    /* and what is not */

    { 400, "", CHAT, 400, "INVALID_REQUEST", INVALID, 0 },
    { 400, "<html><body>400 Bad Request</body></html>", CHAT, 400,
      "INVALID_REQUEST", INVALID, 0 },
    { 400, "Bad Request", CHAT, 400, "INVALID_REQUEST", INVALID, 0 },
    { 400, "{\"error\":{\"message\":\"Up te", CHAT, 400, "INVALID_REQUEST",
      INVALID, 0 },
    { 400, "{\"error\":{\"message\":\"Up text.\"}}{", CHAT, 400,
      "INVALID_REQUEST", INVALID, 0 },
    { 400, "[]", CHAT, 400, "INVALID_REQUEST", INVALID, 0 },
    { 400, "{}", CHAT, 400, "INVALID_REQUEST", INVALID, 0 },
    { 400, "{\"error\":null,\"message\":7}", CHAT, 400, "INVALID_REQUEST",
      "7", 0 },
    { 400, "{\"error\":{\"message\":\" \\n<!DOCTYPE html><html>\"}}", CHAT,
      400, "INVALID_REQUEST", INVALID, 0 },
    { 400, "{\"error\":{\"message\":\"<HTML>x</HTML>\"}}", CHAT, 400,
      "INVALID_REQUEST", INVALID, 0 },
    { 400, "{\"error\":{\"message\":\"<tool> is wrong\"}}", CHAT, 400,
      "INVALID_REQUEST", "<tool> is wrong", 0 },
    { 413, "<html>", CHAT, 413, "REQUEST_TOO_LARGE",
      "The request is too large for the upstream", 0 },

    /* the context */

    { 400, "{\"error\":{\"message\":\"Up text.\",\"code\":"
      "\"context_length_exceeded\"}}", CHAT, 400, "CONTEXT_LENGTH_EXCEEDED",
      "Up text.", 0 },
    { 400, "{\"code\":\"context_length_exceeded\"}", CHAT, 400,
      "CONTEXT_LENGTH_EXCEEDED", INVALID, 0 },
    { 400, "{\"error\":{\"message\":\"Prompt is too long: 200001 tokens > "
      "200000 maximum\"}}", MESSAGES, 400, "CONTEXT_LENGTH_EXCEEDED",
      "Prompt is too long: 200001 tokens > 200000 maximum", 0 },
    { 400, "{\"error\":{\"message\":\"This model's maximum context length is "
      "8192 tokens.\"}}", CHAT, 400, "CONTEXT_LENGTH_EXCEEDED",
      "This model's maximum context length is 8192 tokens.", 0 },
    { 400, "{\"error\":{\"message\":\"input length and `max_tokens` exceed "
      "context limit: 1 + 2 > 2\"}}", MESSAGES, 400,
      "CONTEXT_LENGTH_EXCEEDED",
      "input length and `max_tokens` exceed context limit: 1 + 2 > 2", 0 },
    { 422, "{\"message\":\"PROMPT IS TOO LONG\"}", CHAT, 400,
      "CONTEXT_LENGTH_EXCEEDED", "PROMPT IS TOO LONG", 0 },
    { 413, "{\"message\":\"prompt is too long\"}", CHAT, 413,
      "REQUEST_TOO_LARGE", "prompt is too long", 0 },
    { 500, "{\"message\":\"prompt is too long\"}", CHAT, 502,
      "UPSTREAM_ERROR", FAILED, 0 },
    { 400, "{\"message\":\"prompt is too lone\"}", CHAT, 400,
      "INVALID_REQUEST", "prompt is too lone", 0 },

    /* inside a 200 or a stream: by the object; its text passes */

    { 200, MSG("invalid_request_error"), MESSAGES, 400, "INVALID_REQUEST",
      "Up text.", 0 },
    { 200, MSG("authentication_error"), MESSAGES, 502, "UPSTREAM_ERROR",
      SERVE, 1 },
    { 200, MSG("billing_error"), MESSAGES, 502, "UPSTREAM_ERROR", SERVE, 1 },
    { 200, MSG("permission_error"), MESSAGES, 502, "UPSTREAM_ERROR", SERVE, 1 },
    { 200, MSG("not_found_error"), MESSAGES, 502, "UPSTREAM_ERROR", SERVE, 1 },
    { 200, MSG("request_too_large"), MESSAGES, 413, "REQUEST_TOO_LARGE",
      "Up text.", 0 },
    { 200, MSG("rate_limit_error"), MESSAGES, 429, "RATE_LIMITED", LIMIT, 0 },
    { 200, MSG("api_error"), MESSAGES, 502, "UPSTREAM_ERROR", "Up text.", 0 },
    { 200, MSG("timeout_error"), MESSAGES, 504, "UPSTREAM_TIMEOUT", "Up text.",
      0 },
    { 200, MSG("overloaded_error"), MESSAGES, 529, "UPSTREAM_OVERLOADED",
      "Up text.", 0 },
    { 200, MSG("overloaded_error"), CHAT, 503, "UPSTREAM_OVERLOADED",
      "Up text.", 0 },
    { 200, MSG("unheard_of"), MESSAGES, 502, "UPSTREAM_ERROR", "Up text.", 0 },
    { 200, CHATMSG("\"server_error\"", "null"), CHAT, 502, "UPSTREAM_ERROR",
      "Up text.", 0 },
    { 200, CHATMSG("null", "429"), CHAT, 429, "RATE_LIMITED", LIMIT, 0 },
    { 200, CHATMSG("null", "\"503\""), CHAT, 503, "UPSTREAM_OVERLOADED",
      "Up text.", 0 },
    { 200, CHATMSG("\"invalid_request_error\"", "\"invalid_api_key\""), CHAT,
      502, "UPSTREAM_ERROR", SERVE, 1 },
    { 200, CHATMSG("\"requests\"", "\"rate_limit_exceeded\""), CHAT, 429,
      "RATE_LIMITED", LIMIT, 0 },
    { 200, CHATMSG("\"invalid_request_error\"",
      "\"context_length_exceeded\""), CHAT, 400, "CONTEXT_LENGTH_EXCEEDED",
      "Up text.", 0 },
    { 200, CHATMSG("null", "42"), CHAT, 502, "UPSTREAM_ERROR", "Up text.", 0 },
    { 200, "{\"error\":\"boom\"}", CHAT, 502, "UPSTREAM_ERROR", "boom", 0 },
    { 200, "{invalid", MESSAGES, 502, "UPSTREAM_ERROR", FAILED, 0 },
    { 200, "", CHAT, 502, "UPSTREAM_ERROR", FAILED, 0 },

    { 0, NULL, 0, 0, NULL, NULL, 0 }
};


static void
read_body(ngx_pool_t *pool, ngx_uint_t status, const char *body, size_t len,
    ngx_uint_t protocol, ngx_modelgw_error_t *e)
{
    ngx_str_t  s;

    s.len = len;
    s.data = unit_dup(body, len);

    memset(e, 0xa5, sizeof(*e));

    /* 200 is that of a stream whose event it is, unless a test says so */

    assert_int_equal(ngx_modelgw_error_upstream(pool, status, &s, protocol,
                                                status == 200, &mask, e),
                     NGX_OK);
    unit_free(s.data);
}


/* an error object that becomes a status has the text of the status */

static void
test_upstream_status(void **state)
{
    ngx_uint_t           i;
    ngx_str_t            s;
    ngx_pool_t          *pool;
    ngx_modelgw_error_t  e;

    static struct {
        const char  *type;
        ngx_uint_t   status;
        const char  *message;
    } cases[] = {
        { "api_error", 502, "The upstream failed" },
        { "timeout_error", 504, "The upstream timed out" },
        { "overloaded_error", 503, "The upstream is overloaded, retry later" },
        { "invalid_request_error", 400, "secret text" },
        { NULL, 0, NULL }
    };
    char  body[256];

    pool = *state;

    for (i = 0; cases[i].type; i++) {
        s.len = sprintf(body, "{\"type\":\"error\",\"error\":{\"type\":"
                        "\"%s\",\"message\":\"secret text\"}}",
                        cases[i].type);
        s.data = (u_char *) body;

        assert_int_equal(ngx_modelgw_error_upstream(pool, 200, &s,
                                                    NGX_MODELGW_CHAT, 0, &mask,
                                                    &e),
                         NGX_OK);
        assert_int_equal(e.status, cases[i].status);
        assert_int_equal(e.message.len, strlen(cases[i].message));
        assert_memory_equal(e.message.data, cases[i].message, e.message.len);
    }
}


static void
test_upstream(void **state)
{
    upstream_case_t      *c;
    ngx_modelgw_error_t   e;

    for (c = upstream_cases; c->status; c++) {
        read_body(*state, c->status, c->body, strlen(c->body), c->protocol, &e);

        assert_int_equal(e.status, c->answer);
        unit_assert_str(e.code.data, e.code.len, c->code);
        unit_assert_str(e.message.data, e.message.len, c->message);
        assert_int_equal(e.log_error, c->log_error);
    }
}


static void
test_upstream_type(void **state)
{
    ngx_uint_t            i;
    ngx_modelgw_error_t   e;

    static struct {
        ngx_uint_t   status;
        const char  *body;
        ngx_uint_t   protocol;
        const char  *type;
    } c[] = {
        { 200, MSG("overloaded_error"), MESSAGES, "overloaded_error" },
        { 200, MSG("some_new_error"), MESSAGES, "some_new_error" },
        { 200, MSG("Some_new_error"), MESSAGES, "api_error" },
        { 200, MSG("some new error"), MESSAGES, "api_error" },
        { 200, MSG("e2"), MESSAGES, "api_error" },
        { 200, MSG(""), MESSAGES, "api_error" },
        { 200, MSG("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaaa"), MESSAGES,
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaaa" },
        { 200, MSG("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaaaaaa"), MESSAGES, "api_error" },
        { 200, MSG("authentication_error"), MESSAGES, "api_error" },
        { 200, MSG("some_new_error"), CHAT, "api_error" },
        { 400, MSG("some_new_error"), MESSAGES, "invalid_request_error" },
        { 401, MSG("authentication_error"), MESSAGES, "api_error" },
        { 529, MSG("x"), MESSAGES, "overloaded_error" },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        read_body(*state, c[i].status, c[i].body, strlen(c[i].body),
                  c[i].protocol, &e);
        unit_assert_str(e.type.data, e.type.len, c[i].type);
    }
}


static void
scrub_is(ngx_pool_t *pool, const char *text, const char *expected)
{
    ngx_str_t  s, out;

    s.len = strlen(text);
    s.data = unit_dup(text, s.len);

    assert_int_equal(ngx_modelgw_scrub(pool, &mask, &s,
                                       NGX_MODELGW_ERROR_MAX_MESSAGE, &out),
                     NGX_OK);

    unit_assert_str(out.data, out.len, expected);
    unit_free(s.data);
}


#define R  "[redacted]"


static void
test_scrub_takes(void **state)
{
    ngx_uint_t  i;

    static struct {
        const char  *text;
        const char  *expected;
    } c[] = {

        /* names */

        { "topsecret-credential", R },
        { "xtopsecret-credentialx", "x" R "x" },
        { "vendor-large-1", "eu/large" },
        { "The model `vendor-large-1` does not exist.",
          "The model `eu/large` does not exist." },
        { "no model vendor-large-1.", "no model eu/large." },
        { "vendor-large-1: no", "eu/large: no" },
        { "(vendor-large-1)", "(eu/large)" },
        { "\"model\":\"vendor-large-1\"", "\"model\":\"eu/large\"" },
        { "models/vendor-large-1", "models/eu/large" },
        { "model:vendor-large-1", "model:eu/large" },
        { "Vendor-Large-1", "eu/large" },
        { "vendor-large-1 vendor-large-1", "eu/large eu/large" },
        { "api.upstream.net", R },
        { "connect to API.Upstream.NET:443 failed",
          "connect to " R " failed" },
        { "api.upstream.net/v1/messages.", R "." },

        /* credentials */

        { "key sk-abc123 is bad", "key " R " is bad" },
        { "sk-proj-****************abcd.", R "." },
        { "sk-eu-abcdefghijkl", R },
        { "\"sk-upstream-secret\"", "\"" R "\"" },
        { "Authorization: Bearer abc123def", "Authorization: " R },
        { "BEARER  AbCdEfGh", R },
        { "bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", R },
        { "x-goog-api-key: AIzaSyA1234567890abcdefgh", "x-goog-api-key: " R },
        { "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", R },
        { "0123456789abcdef0123456789abcdef", R },
        { "key=0123456789abcdef0123456789abcdef;", "key=" R ";" },
        { "dGhpcyBpcyBhIHNlY3JldCBrZXkgb2YgMzIgYnl0ZXM9", R },
        { "q8Zx+3/Tb7Lk2Pw9Rs4Vy6Nd1Hj5Fg0Mc8Xa==", R },
        { "aB3-dE6_fG9-hJ2_kL5-mN8_pQ1-rS4_tU7", R },
        { "abcdefghijklmnop1234567890qrstuvwxyz", R },
        { "123e4567-e89b-12d3-a456-426614174000", R },

        /* URLs and hosts */

        { "see https://docs.vendor.com/errors#x.", "see " R "." },
        { "(see http://10.0.0.1:8080/v1?key=1)", "(see " R ")" },
        { "<a href=\"https://x/y\">", "<a href=\"" R "\">" },
        { "wss://x", R },
        { "postgres+ssl://u:p@h/d", R },
        { "https://", R },
        { "a://b", R },
        { "host vendor.com said", "host " R " said" },
        { "mail support@vendor.com", "mail support@" R },
        { "backend-3.eu-west.compute.internal:8443 refused", R " refused" },
        { "llm.default.svc.cluster.local", R },
        { "a.b.co.uk", R },
        { "localhost:11434/api", R },
        { "dial 10.1.2.3:443", "dial " R },
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        scrub_is(*state, c[i].text, c[i].expected);
    }
}


static void
test_scrub_leaves(void **state)
{
    ngx_uint_t  i;

    static const char  *c[] = {
        "",
        "messages.0.content: Input should be a valid list",
        "tools.0.input_schema.type: Field required",
        "tools.12.custom.name: String should match pattern "
            "'^[a-zA-Z0-9_-]{1,64}$'",
        "messages[3].content[0].image_url.url is not allowed",
        "response_format.json_schema.schema",
        "messages.0.to, user.id, message.name, data.app, tools.0.com",
        "tools.io_config and net.com_x",
        "main.py, index.html, README.md, lib.rs, run.sh, node.js, data.json",
        "version 1.22.1, v2.0, 2023-06-01, 3.14 and 1.2.3.4.5 or 300.1.1.1",
        "e.g. this, i.e. that, etc. And so on...",
        "max_tokens: 200001 > 200000, which is the maximum allowed number of "
            "output tokens for eu/large",
        "`temperature` and `top_p` cannot both be specified for this model.",
        "req_011CSHoEeqs5C35K2UUqR7Fy and msg_01XFDUDYJgAACzvnptvVoYEL",
        "`tool_use` ids were found without `tool_result` blocks: "
            "toolu_01A09q90qw90lq917835lq9toolu01A09q90qw90lq917835lq9",
        "call_abcdefghij0123456789abcdefghij0123456789",
        "chatcmpl-0123456789abcdef0123456789abcdef",
        "mcp__files__read_multiple_files_and_directories_v2",
        "claude-style-name-with-20250929-and-a-suffix-v1",
        "averyveryveryveryverylongwordwithoutanydigitsatall",
        "12345678901234567890123456789012345678901234567890",
        "/usr/share/some/quite/long/path/of/words/with/one2",
        "a bearer token is needed; Bearer authentication",
        "sk-learn, task-force-10, risk-free, desk-1234",
        "vendor-large-1-mini vendor-large-1.5 vendor-large-12 "
            "xvendor-large-1 my-vendor-large-1 vendor-large-1_x "
            "vendor-large-1:free x@vendor-large-1 x+vendor-large-1",
        "api.upstream.networks_x",
        "caf\xc3\xa9 \xe2\x80\x9c" "quoted\xe2\x80\x9d \xf0\x9f\x98\x80",
        "ratio 3:4, http:, ://, //x, C:\\dir",
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        scrub_is(*state, c[i], c[i]);
    }
}


static void
test_scrub_hosts(void **state)
{
    ngx_str_t                  s, out;
    ngx_uint_t                 i;
    ngx_modelgw_error_mask_t   m;

    static struct {
        const char  *name;
        const char  *text;
        const char  *expected;
    } c[] = {
        { "mock", "mock overloaded", "mock overloaded" },
        { "mock", "The Mock: no, mock.", "The Mock: no, mock." },
        { "mock", "mock:", "mock:" },
        { "mock", "mock:x mock/8 mock-8:80", "mock:x mock/8 mock-8:80" },
        { "mock", "to mock:8080/v1 and mock:80.", "to " R " and " R "." },
        { "mock", "see http://mock/ or mock.", "see " R " or mock." },
        { "vendor-a", "vendor-a is down", "vendor-a is down" },
        { "the.vendor", "the.vendor is down", R " is down" },
        { "mock:81", "mock mock:81 mock:812", "mock " R " mock:812" },
        { "10.1.2.3", "10.1.2.3 is down", R " is down" },
        { "[fd00::1]", "[fd00::1]:80, [fd00::1] is down",
          R ", " R " is down" },
        { "fd00::1", "at fd00::1, down", "at " R ", down" }
    };

    for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        ngx_memzero(&m, sizeof(m));
        m.upstream_host = unit_str(c[i].name);
        s = unit_str(c[i].text);

        assert_int_equal(ngx_modelgw_scrub(*state, &m, &s, 512, &out), NGX_OK);
        unit_assert_str(out.data, out.len, c[i].expected);
    }
}


static void
test_scrub_masks(void **state)
{
    ngx_str_t                  s, out;
    ngx_modelgw_error_mask_t   m;

    /* nothing to look for */

    ngx_memzero(&m, sizeof(m));

    s = unit_str("a vendor-large-1 b");
    assert_int_equal(ngx_modelgw_scrub(*state, &m, &s, 512, &out), NGX_OK);
    unit_assert_str(out.data, out.len, "a vendor-large-1 b");

    /* a short credential, a name that is a word, an id like a credential */

    m.credential = unit_str("abc");
    m.upstream_host = unit_str("model");
    m.upstream_model = unit_str("up");
    m.service_model = unit_str("a.vendor.com/0123456789abcdef0123456789abcdef");

    s = unit_str("abc abcd model models model:80 x up");
    assert_int_equal(ngx_modelgw_scrub(*state, &m, &s, 512, &out), NGX_OK);
    unit_assert_str(out.data, out.len, R " abcd model models " R " x "
                    "a.vendor.com/0123456789abcdef0123456789abcdef");

    /* the same id on both sides is protected */

    m.upstream_model = m.service_model;
    s = m.service_model;
    assert_int_equal(ngx_modelgw_scrub(*state, &m, &s, 512, &out), NGX_OK);
    unit_assert_str(out.data, out.len,
                    "a.vendor.com/0123456789abcdef0123456789abcdef");
}


/*
 * Cut at a character, before or after a replacement, never with a part of what
 * was removed.
 */

static void
test_scrub_cut(void **state)
{
    size_t     max;
    ngx_str_t  s, whole, out;

    s = unit_str("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 "
                 "topsecret-credential and vendor-large-1 "
                 "\xf0\x9f\x98\x80\xf0\x9f\x98\x80");

    assert_int_equal(ngx_modelgw_scrub(*state, &mask, &s, 512, &whole),
                     NGX_OK);

    for (max = 0; max <= whole.len; max++) {
        assert_int_equal(ngx_modelgw_scrub(*state, &mask, &s, max, &out),
                         NGX_OK);

        assert_true(out.len <= max && out.len + 3 >= max);
        assert_memory_equal(out.data, whole.data, out.len);

        assert_true(out.len == whole.len
                    || (whole.data[out.len] & 0xc0) != 0x80);
    }

    assert_int_equal(out.len, whole.len);
}


static void
test_scrub_cut_binary(void **state)
{
    u_char     text[1024];
    ngx_str_t  s, out;

    memset(text, 0x80, sizeof(text));

    s.len = sizeof(text);
    s.data = text;

    assert_int_equal(ngx_modelgw_scrub(*state, &mask, &s, 512, &out), NGX_OK);
    assert_true(out.len <= 512 && out.len >= 509);
}


/* the cost of hostile text must not grow faster than the text */

static void
test_scrub_cost(void **state)
{
    size_t      i, len;
    char       *text;
    ngx_str_t   s, out;
    ngx_uint_t  n;

    static const char  *c[] = { "a.", "a-", "a/", "sk-", "bearer ", "a:", "_",
                                "http:", "vendor-large-", "topsecret-",
                                "a+", "aA1-", "1.", "eyJ", "sk-aaa.bbb-" };

    len = 256 * 1024;
    text = malloc(len);
    assert_non_null(text);

    for (n = 0; n < sizeof(c) / sizeof(c[0]); n++) {

        for (i = 0; i < len; i++) {
            text[i] = c[n][i % strlen(c[n])];
        }

        s.len = len;
        s.data = (u_char *) text;

        assert_int_equal(ngx_modelgw_scrub(*state, &mask, &s, 2 * len, &out),
                         NGX_OK);
    }

    free(text);
}


static void
test_message_cut(void **state)
{
    char                  body[4096];
    ngx_modelgw_error_t   e;

    sprintf(body, "{\"error\":{\"message\":\"%0*d\"}}", 3000, 0);

    read_body(*state, 400, body, strlen(body), CHAT, &e);
    assert_int_equal(e.message.len, NGX_MODELGW_ERROR_MAX_MESSAGE);
}


static void
test_render(void **state)
{
    ngx_str_t             out;
    ngx_uint_t            i;
    ngx_modelgw_error_t   e;

    static const char  *forms[] = {
        "{\"code\":\"C\",\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\"}",

        "{\"code\":\"C\",\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\","
        "\"type\":\"error\",\"error\":{\"type\":\"t\",\"code\":\"C\","
        "\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\"}}",

        "data: {\"code\":\"C\",\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\","
        "\"error\":{\"code\":\"C\",\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\"}}"
        "\n\n",

        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"t\","
        "\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\"}}\n\n",
    };

    ngx_memzero(&e, sizeof(e));
    e.code = unit_str("C");
    e.message = unit_str("a \"b\"\n\xff");
    e.type = unit_str("t");

    for (i = 0; i < 4; i++) {
        assert_int_equal(ngx_modelgw_error_render(*state, &e, i, &out), NGX_OK);
        unit_assert_str(out.data, out.len, forms[i]);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        unit_case(test_nginx),
        unit_case(test_type),
        unit_case(test_upstream),
        unit_case(test_upstream_status),
        unit_case(test_upstream_type),
        unit_case(test_scrub_takes),
        unit_case(test_scrub_leaves),
        unit_case(test_scrub_hosts),
        unit_case(test_scrub_masks),
        unit_case(test_scrub_cut),
        unit_case(test_scrub_cut_binary),
        unit_case(test_scrub_cost),
        unit_case(test_message_cut),
        unit_case(test_render),
    };

    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
