
/*
 * The request codec, over two pipes, for vectors and properties: without nginx,
 * but after the strict scanner and the tape, as there.
 *
 * in:   a chat request on stdin; as arguments capabilities of the model, as
 *       the model line has them: sampling=one_of effort=low,high strict=off;
 *       besides model=..., the upstream's id of it (default: the request's, if
 *       it is a string); max_output=...; translate_strict=on; feed=..., the
 *       bytes that the scanner and the tape are given at once;
 *       responses=messages or =chat: a responses request for that upstream
 * out:  the upstream's request, or "error CODE message"
 * err:  "max_tokens=... include_usage=... ignored=..."
 *
 * Exit status: 0 translated, 1 refused, 2 bad arguments, 3 something is broken.
 */


#include "stub.h"

#include "ngx_modelgw_responses.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_usage.h"


#define MAX_BODY  (64 * 1024 * 1024)


typedef struct {
    const char     *name;
    size_t          offset;              /* in the capabilities */
    const char     *words[7];            /* their positions are the values */
} option_t;


#define SWITCH  { "off", "on" }

static option_t  options[] = {
    { "sampling", offsetof(ngx_modelgw_caps_t, sampling),
      { "both", "one_of", "none" } },
    { "thinking", offsetof(ngx_modelgw_caps_t, thinking),
      { "none", "budget", "adaptive", "adaptive_only" } },
    { "structured", offsetof(ngx_modelgw_caps_t, structured),
      { "none", "native" } },
    { "strict", offsetof(ngx_modelgw_caps_t, strict), SWITCH },
    { "prefill", offsetof(ngx_modelgw_caps_t, prefill), SWITCH },
    { "forced_tool_choice",
      offsetof(ngx_modelgw_caps_t, forced_tool_choice), SWITCH },
    { "auto_cache", offsetof(ngx_modelgw_caps_t, auto_cache),
      { "off", "on", "auto" } },
    { "chat_limit", offsetof(ngx_modelgw_caps_t, chat_limit),
      { "max_completion_tokens", "max_tokens" } },
    { "default_max_tokens",
      offsetof(ngx_modelgw_caps_t, default_max_tokens), { NULL } }
};

static const char  *efforts[] = {
    "minimal", "low", "medium", "high", "xhigh", "max"
};


static size_t              feed;
static ngx_uint_t          responses;    /* the upstream's protocol */
static ngx_modelgw_caps_t  caps;


static ngx_uint_t
set_effort(char *value)
{
    char        *word;
    ngx_uint_t   i;

    for (word = strtok(value, ","); word; word = strtok(NULL, ",")) {

        for (i = 0; strcmp(efforts[i], word) != 0; i++) {

            if (i == sizeof(efforts) / sizeof(efforts[0]) - 1) {
                return 0;
            }
        }

        caps.effort |= (ngx_uint_t) 1 << i;
    }

    return 1;
}


static ngx_uint_t
set_option(char *name, char *value)
{
    option_t    *o, *last;
    ngx_uint_t   i, *field;

    last = options + sizeof(options) / sizeof(options[0]);

    for (o = options; o < last; o++) {

        if (strcmp(o->name, name) != 0) {
            continue;
        }

        field = (ngx_uint_t *) ((char *) &caps + o->offset);

        if (o->words[0] == NULL) {
            *field = strtoul(value, NULL, 10);
            return 1;
        }

        for (i = 0; o->words[i]; i++) {

            if (strcmp(o->words[i], value) == 0) {
                *field = i;
                return 1;
            }
        }
    }

    return 0;
}


static ngx_uint_t
set(ngx_modelgw_request_t *rq, char *arg)
{
    char  *value;

    value = strchr(arg, '=');

    if (value == NULL) {
        return 0;
    }

    *value++ = '\0';

    if (strcmp(arg, "model") == 0) {
        rq->model.data = (u_char *) value;
        rq->model.len = strlen(value);

    } else if (strcmp(arg, "max_output") == 0) {
        rq->max_output = strtoul(value, NULL, 10);

    } else if (strcmp(arg, "translate_strict") == 0) {
        rq->strict = strcmp(value, "on") == 0;

    } else if (strcmp(arg, "feed") == 0) {
        feed = ngx_max(strtoul(value, NULL, 10), 1);

    } else if (strcmp(arg, "responses") == 0) {
        responses = strcmp(value, "chat") == 0 ? NGX_MODELGW_CHAT
                                               : NGX_MODELGW_MESSAGES;

    } else if (strcmp(arg, "effort") == 0) {
        return set_effort(value);

    } else {
        return set_option(arg, value);
    }

    return 1;
}


/* 0 and the reason on stdout, if the body is not a JSON object */

static ngx_uint_t
read_body(ngx_modelgw_request_t *rq, ngx_modelgw_tape_t *tape, u_char *body,
    size_t len)
{
    u_char                    text[NGX_MODELGW_SCAN_FAULT_LEN];
    size_t                    at, n;
    ngx_str_t                 fault;
    ngx_modelgw_scan_t       *s;

    static ngx_modelgw_scan_conf_t  conf;

    conf.skip = rq->skip;
    conf.check = 1;

    s = ngx_modelgw_scan_create(rq->pool, &conf);
    if (s == NULL) {
        exit(3);
    }

    ngx_modelgw_tape_init(tape, rq->pool, rq->skip);

    for (at = 0; at < len; at += n) {
        n = ngx_min(feed, len - at);

        if (ngx_modelgw_scan_feed(s, body + at, n) != NGX_OK) {
            break;
        }

        if (ngx_modelgw_tape_feed(tape, body + at, n) != NGX_OK) {
            exit(3);
        }
    }

    if (ngx_modelgw_scan_done(s) != NGX_OK) {
        fault.data = text;
        ngx_modelgw_scan_fault(s, &fault);
        printf("error INVALID_REQUEST %.*s\n", (int) fault.len, fault.data);
        return 0;
    }

    if (ngx_modelgw_tape_done(tape, body) != NGX_OK) {
        exit(3);
    }

    return 1;
}


static void
print(ngx_modelgw_request_t *rq, ngx_modelgw_out_chain_t *chain)
{
    ngx_chain_t  *cl;

    for (cl = chain->first; cl; cl = cl->next) {
        fwrite(cl->buf->pos, 1, cl->buf->last - cl->buf->pos, stdout);
    }

    printf("\n");

    fprintf(stderr, "max_tokens=%lu include_usage=%lu ignored=%.*s\n",
            (unsigned long) rq->max_tokens, (unsigned long) rq->include_usage,
            (int) rq->ignored.len, (char *) rq->ignored.data);
}


static int
translate(ngx_modelgw_request_t *rq, u_char *body, size_t len)
{
    ngx_int_t                      rc;
    ngx_modelgw_out_t              out;
    ngx_modelgw_node_t            *model;
    ngx_modelgw_tape_t             tape;
    ngx_modelgw_out_chain_t        chain;
    ngx_modelgw_responses_call_t   call;

    if (!read_body(rq, &tape, body, len)) {
        return 1;
    }

    rq->tape = &tape;
    model = ngx_modelgw_tape_member(&tape, ngx_modelgw_tape_root(&tape),
                                    "model");

    if (rq->model.len == 0 && model
        && model->type == NGX_MODELGW_TAPE_STRING)
    {
        ngx_modelgw_tape_inside(&tape, model, &rq->model);
    }

    ngx_modelgw_out_chain(&out, &chain, rq->pool, 1024);

    rc = responses ? ngx_modelgw_responses(rq, responses, &call, &out)
                   : ngx_modelgw_request(rq, &out);

    if (rc == NGX_DECLINED) {
        printf("error %s %.*s\n", rq->code, (int) rq->message.len,
               rq->message.data);
        return 1;
    }

    if (rc != NGX_OK || out.failed) {
        return 3;
    }

    print(rq, &chain);

    return 0;
}


int
main(int argc, char **argv)
{
    int                          i, rc;
    u_char                      *body;
    size_t                       len;
    ngx_uint_t                   n;
    ngx_modelgw_request_t        rq;
    ngx_modelgw_skip_variant_t  *variants;

    ngx_memzero(&rq, sizeof(ngx_modelgw_request_t));

    /* the defaults of a model line */

    caps.thinking = NGX_MODELGW_THINKING_BUDGET;
    caps.structured = 1;
    caps.strict = 1;
    caps.prefill = 1;
    caps.forced_tool_choice = 1;
    caps.default_max_tokens = 4096;
    feed = MAX_BODY;

    for (i = 1; i < argc; i++) {

        if (!set(&rq, argv[i])) {
            fprintf(stderr, "bad argument \"%s\"\n", argv[i]);
            return 2;
        }
    }

    body = malloc(MAX_BODY);
    if (body == NULL) {
        return 3;
    }

    len = fread(body, 1, MAX_BODY, stdin);
    variants = ngx_modelgw_skip_variants(&n);

    rq.pool = stub_pool_create();
    if (rq.pool == NULL) {
        return 3;
    }

    rq.skip = variants[0].skip;
    rq.caps = &caps;

    rc = translate(&rq, body, len);

    ngx_destroy_pool(rq.pool);
    free(body);

    return rc;
}
