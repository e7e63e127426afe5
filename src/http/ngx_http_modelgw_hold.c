
/*
 * What is set aside for a call before it is sent: an upper bound of its tokens
 * and of its cost.
 *
 * The bound of the input is the size of the body: a token is at least a byte.
 * Pictures by address, documents, and tools that the vendor describes to the
 * model have more tokens than bytes: the scanner counts them, wherever they are
 * in the body, and they raise the bound.
 *
 * What the vendor bills beside tokens, or at another price than the model's, is
 * refused where credit is kept, unless the model's line has "extras=included":
 * a charge that we cannot compute is the operator's loss.
 *
 * ngx_http_modelgw_hold() is called once for a request, after the checks of the
 * body and before it is rewritten; but a responses call is translated before.
 * ngx_http_modelgw_settle() gives back what was taken, however the call ends.
 *
 * In a cluster only what is lent to this node can be held.  A call that it does
 * not cover makes a claim, and waits for more (wait.c): the exchanger holds its
 * cost, or refuses it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_headers.h"
#include "ngx_http_modelgw_zone.h"


/* tokens; _EST is used for the estimate, the others are upper bounds */

#define NGX_HTTP_MODELGW_HOLD_MEDIA         16384
#define NGX_HTTP_MODELGW_HOLD_MEDIA_EST     1600
#define NGX_HTTP_MODELGW_HOLD_DOCUMENT      1000000
#define NGX_HTTP_MODELGW_HOLD_DOCUMENT_EST  50000
#define NGX_HTTP_MODELGW_HOLD_TOOLS         1000
#define NGX_HTTP_MODELGW_HOLD_MAX           999999999

/* bytes of a text about credit or a budget */

#define NGX_HTTP_MODELGW_HOLD_TEXT          192

#define NGX_HTTP_MODELGW_HOLD_AWAY                                            \
    " euro are held by a node that does not answer"


/* what a member of the body means for the price */

typedef enum {
    NGX_HTTP_MODELGW_MARK_MEDIA = 0,
    NGX_HTTP_MODELGW_MARK_DOCUMENT,
    NGX_HTTP_MODELGW_MARK_TOOLS,         /* the vendor describes to the model;
                                            responses.c counts more */
    NGX_HTTP_MODELGW_MARK_LONG_CACHE,
    NGX_HTTP_MODELGW_MARK_BILLED,        /* beside tokens; responses.c finds
                                            these in its bodies by itself */
    NGX_HTTP_MODELGW_MARK_AUDIO,         /* is billed, too */
    NGX_HTTP_MODELGW_MARK_ITEM,          /* may be for responses.c */
    NGX_HTTP_MODELGW_MARK_KINDS
} ngx_http_modelgw_mark_e;


typedef struct {
    ngx_modelgw_scan_mark_t   mark;
    ngx_http_modelgw_mark_e   kind;
} ngx_http_modelgw_mark_t;


typedef struct {
    ngx_str_t                 name;
    ngx_str_t                 part;      /* of its value */
    const char               *text;      /* for the error message */
} ngx_http_modelgw_billed_header_t;


struct ngx_http_modelgw_bound_s {
    int64_t                   input;     /* tokens, at most */
    int64_t                   output;    /* tokens of all choices, at most */
    int64_t                   estimate;  /* tokens of the input */
    int64_t                   cost;      /* nano-euro, at most */
    ngx_uint_t                long_cache;
};


/* what a 402 says */

typedef struct {
    int64_t                   left;      /* nano-euro; may be negative */
    const char               *code;
    const char               *what;
    u_char                   *state;     /* what there is */
    const char               *action;    /* what helps */
} ngx_http_modelgw_shortage_t;


static ngx_uint_t ngx_http_modelgw_hold_needed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_hold_count(ngx_http_modelgw_ctx_t *ctx,
    int64_t *n);
static ngx_int_t ngx_http_modelgw_hold_extras(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n);
static ngx_uint_t ngx_http_modelgw_hold_plain(ngx_modelgw_scan_value_t *v);
static ngx_int_t ngx_http_modelgw_hold_billed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_mark_e kind);
static ngx_int_t ngx_http_modelgw_hold_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_hold_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_hold_bound(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n, ngx_http_modelgw_bound_t *b);
static int64_t ngx_http_modelgw_hold_output(ngx_http_modelgw_ctx_t *ctx);
static int64_t ngx_http_modelgw_hold_limit(ngx_http_modelgw_ctx_t *ctx,
    ngx_uint_t watch);
static ngx_int_t ngx_http_modelgw_hold_take(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_hold_full(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_hold_budget_locked(
    ngx_http_modelgw_ctx_t *ctx, ngx_modelgw_ledger_t *ledger);
static ngx_int_t ngx_http_modelgw_hold_wait(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_bound_t *b);
static ngx_int_t ngx_http_modelgw_hold_claim(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_hold_silent(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_hold_exceeded(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b, ngx_int_t rc,
    int64_t away);
static ngx_int_t ngx_http_modelgw_hold_insufficient(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    int64_t available, int64_t away);
static void ngx_http_modelgw_hold_away(u_char *p, int64_t away);
static ngx_int_t ngx_http_modelgw_hold_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    ngx_http_modelgw_shortage_t *shortage);
static void ngx_http_modelgw_hold_describe(ngx_http_modelgw_ctx_t *ctx);


/*
 * Members of both APIs, by name or by name and the beginning of the value.
 * Tools that run at the vendor are billed by use; those that run at the client
 * cost the tokens of their description.
 */

static ngx_http_modelgw_mark_t  ngx_http_modelgw_hold_table[] = {

    { { ngx_string("url"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_MEDIA },
    { { ngx_string("image_url"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_MEDIA },
    { { ngx_string("data"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_MEDIA },

    { { ngx_string("file_id"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_DOCUMENT },
    { { ngx_string("file_url"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_DOCUMENT },
    { { ngx_string("file_data"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_DOCUMENT },
    { { ngx_string("type"), ngx_string("document") },
      NGX_HTTP_MODELGW_MARK_DOCUMENT },

    { { ngx_string("tools"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_TOOLS },
    { { ngx_string("type"), ngx_string("bash_") },
      NGX_HTTP_MODELGW_MARK_TOOLS },
    { { ngx_string("type"), ngx_string("text_editor_") },
      NGX_HTTP_MODELGW_MARK_TOOLS },
    { { ngx_string("type"), ngx_string("computer_") },
      NGX_HTTP_MODELGW_MARK_TOOLS },
    { { ngx_string("type"), ngx_string("memory_") },
      NGX_HTTP_MODELGW_MARK_TOOLS },

    { { ngx_string("ttl"), ngx_string("1h") },
      NGX_HTTP_MODELGW_MARK_LONG_CACHE },

    { { ngx_string("type"), ngx_string("web_search_2") },
      NGX_HTTP_MODELGW_MARK_BILLED },
    { { ngx_string("type"), ngx_string("web_fetch_2") },
      NGX_HTTP_MODELGW_MARK_BILLED },
    { { ngx_string("type"), ngx_string("code_execution_2") },
      NGX_HTTP_MODELGW_MARK_BILLED },
    { { ngx_string("mcp_servers"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_BILLED },
    { { ngx_string("type"), ngx_string("mcp_toolset") },
      NGX_HTTP_MODELGW_MARK_BILLED },
    { { ngx_string("input_audio"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_AUDIO },

    /* of responses only */

    { { ngx_string("id"), ngx_null_string },
      NGX_HTTP_MODELGW_MARK_ITEM },
    { { ngx_string("type"), ngx_string("reasoning") },
      NGX_HTTP_MODELGW_MARK_ITEM }
};

#define NGX_HTTP_MODELGW_MARKS                                                \
    (sizeof(ngx_http_modelgw_hold_table) / sizeof(ngx_http_modelgw_mark_t))

#define NGX_HTTP_MODELGW_MARKS_OF_RESPONSES  2


/* the marks of the table, for the scanner; filled when first asked for */

static ngx_modelgw_scan_mark_t  ngx_http_modelgw_hold_marks[
    NGX_HTTP_MODELGW_MARKS];


/* values that do not change the price */

static ngx_str_t  ngx_http_modelgw_hold_plain_values[] = {
    ngx_string("auto"),
    ngx_string("default"),
    ngx_string("standard"),
    ngx_string("standard_only"),
    ngx_string("global"),
    ngx_null_string
};


static ngx_http_modelgw_billed_header_t
    ngx_http_modelgw_hold_billed_headers[] =
{
    { ngx_string("anthropic-beta"), ngx_string("context-1m"),
      "long contexts" },
    { ngx_null_string, ngx_null_string, NULL }
};


void
ngx_http_modelgw_hold_scan(ngx_modelgw_scan_conf_t *conf, ngx_uint_t protocol)
{
    ngx_uint_t  i;

    if (ngx_http_modelgw_hold_marks[0].name.len == 0) {

        for (i = 0; i < NGX_HTTP_MODELGW_MARKS; i++) {
            ngx_http_modelgw_hold_marks[i] =
                                           ngx_http_modelgw_hold_table[i].mark;
        }
    }

    conf->marks = ngx_http_modelgw_hold_marks;
    conf->nmarks = NGX_HTTP_MODELGW_MARKS;

    if (protocol != NGX_MODELGW_RESPONSES) {
        conf->nmarks -= NGX_HTTP_MODELGW_MARKS_OF_RESPONSES;
    }
}


ngx_uint_t
ngx_http_modelgw_hold_marked(ngx_http_modelgw_ctx_t *ctx)
{
    int64_t  n[NGX_HTTP_MODELGW_MARK_KINDS];

    ngx_http_modelgw_hold_count(ctx, n);

    return n[NGX_HTTP_MODELGW_MARK_TOOLS] || n[NGX_HTTP_MODELGW_MARK_ITEM];
}


ngx_uint_t
ngx_http_modelgw_hold_paid(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    return mmcf->ledger && ngx_modelgw_ledger_credit(mmcf->ledger)
           && !ctx->call.model->free;
}


ngx_int_t
ngx_http_modelgw_hold(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    int64_t                        n[NGX_HTTP_MODELGW_MARK_KINDS];
    ngx_int_t                      rc;
    ngx_http_modelgw_bound_t       bound;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    if (!ngx_http_modelgw_hold_needed(r, ctx, mmcf)) {
        return NGX_OK;
    }

    ngx_http_modelgw_hold_count(ctx, n);

    if (ngx_modelgw_ledger_credit(mmcf->ledger)) {

        if (!ctx->call.model->extras && !ctx->call.model->free) {
            rc = ngx_http_modelgw_hold_extras(r, ctx, n);
            if (rc != NGX_OK) {
                return rc;
            }
        }

        rc = ngx_http_modelgw_hold_check(r, ctx, mmcf);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    ngx_http_modelgw_hold_bound(r, ctx, n, &bound);

    return ngx_http_modelgw_hold_take(r, ctx, &bound, mmcf);
}


static ngx_uint_t
ngx_http_modelgw_hold_needed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_main_conf_t *mmcf)
{
    if (mmcf->ledger == NULL
        || (ctx->request.endpoint->flags & NGX_HTTP_MODELGW_COUNT))
    {
        return 0;
    }

    return ctx->money.slot
           || ctx->request.key->tpm || ngx_http_modelgw_ctx_group(ctx)->tpm
           || mmcf->metrics || ngx_modelgw_ledger_credit(mmcf->ledger);
}


/* how often each kind occurs */

static void
ngx_http_modelgw_hold_count(ngx_http_modelgw_ctx_t *ctx, int64_t *n)
{
    uint32_t    *marks;
    ngx_uint_t   i;

    ngx_memzero(n, NGX_HTTP_MODELGW_MARK_KINDS * sizeof(int64_t));

    marks = ngx_modelgw_scan_marks(ctx->request.scan);

    for (i = 0; i < ctx->request.scan_conf->nmarks; i++) {
        if (marks[i]) {
            n[ngx_http_modelgw_hold_table[i].kind] += marks[i];
        }
    }
}


/*
 * NGX_OK        all is billed by tokens, at the model's prices
 * NGX_DECLINED  ctx->error is set
 * NGX_ERROR     no memory
 */

static ngx_int_t
ngx_http_modelgw_hold_extras(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_conf_t   *conf;
    ngx_modelgw_scan_value_t  *v;

    conf = ctx->request.scan_conf;

    for (i = NGX_HTTP_MODELGW_WATCH_EXTRAS;
         i <= NGX_HTTP_MODELGW_WATCH_EXTRAS_LAST && i < conf->nwatches;
         i++)
    {

        v = ngx_modelgw_scan_value(ctx->request.scan, i);

        if (!ngx_http_modelgw_hold_plain(v)) {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "INVALID_FIELD",
                                          "\"%V\" has a price of its own and "
                                          "is not available for this model",
                                          &conf->watches[i].path);
        }
    }

    if (n[NGX_HTTP_MODELGW_MARK_AUDIO]) {
        return ngx_http_modelgw_hold_billed(r, ctx,
                                            NGX_HTTP_MODELGW_MARK_AUDIO);
    }

    if (n[NGX_HTTP_MODELGW_MARK_BILLED]
        && ctx->request.endpoint->protocol != NGX_MODELGW_RESPONSES)
    {
        return ngx_http_modelgw_hold_billed(r, ctx,
                                            NGX_HTTP_MODELGW_MARK_BILLED);
    }

    return ngx_http_modelgw_hold_headers(r, ctx);
}


static ngx_uint_t
ngx_http_modelgw_hold_plain(ngx_modelgw_scan_value_t *v)
{
    ngx_str_t  *word;

    if (v->type == NGX_MODELGW_SCAN_ABSENT || v->type == NGX_MODELGW_SCAN_NULL)
    {
        return 1;
    }

    if (v->type != NGX_MODELGW_SCAN_STRING) {
        return 0;
    }

    for (word = ngx_http_modelgw_hold_plain_values; word->len; word++) {

        if (word->len == v->len
            && ngx_memcmp(word->data, v->text, v->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* names the first row of the kind that occurs */

static ngx_int_t
ngx_http_modelgw_hold_billed(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_mark_e kind)
{
    ngx_uint_t                i;
    ngx_modelgw_scan_mark_t  *mark;

    i = 0;

    while (ngx_http_modelgw_hold_table[i].kind != kind
           || ngx_modelgw_scan_mark(ctx->request.scan, i) == 0)
    {
        i++;
    }

    mark = &ngx_http_modelgw_hold_marks[i];

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                  "INVALID_FIELD",
                                  "\"%V%s%V\" has a price of its own and is "
                                  "not available for this model", &mark->name,
                                  mark->value.len ? "\": \"" : "",
                                  &mark->value);
}


static ngx_int_t
ngx_http_modelgw_hold_headers(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_table_elt_t                   *h;
    ngx_http_modelgw_headers_t         hs;
    ngx_http_modelgw_billed_header_t  *billed;

    /* the headers of the messages API do not pass a translation */

    if (ctx->request.endpoint->protocol != NGX_MODELGW_MESSAGES) {
        return NGX_OK;
    }

    ngx_http_modelgw_headers_init(&hs, &r->headers_in.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        for (billed = ngx_http_modelgw_hold_billed_headers;
             billed->text;
             billed++)
        {

            if (ngx_http_modelgw_names_same(&billed->name, &h->key)
                && ngx_http_modelgw_headers_holds(&h->value, &billed->part))
            {
                return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                              "INVALID_FIELD",
                                              "\"%V: %V…\": %s have a price "
                                              "of their own and are not "
                                              "available for this model",
                                              &billed->name, &billed->part,
                                              billed->text);
            }
        }
    }

    return NGX_OK;
}


/* whether a ledger with credit can take the call */

static ngx_int_t
ngx_http_modelgw_hold_check(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    const char  *reason;

    if (!ngx_modelgw_ledger_writable(mmcf->ledger)) {
        reason = ngx_http_modelgw_node_refuses(mmcf);

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "%s, try again later",
                                      reason ? reason
                                             : "The ledger cannot be written");
    }

    if (ctx->request.key->account_index == NGX_MODELGW_LEDGER_NONE) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "\"modelgw_zone\" has no room for account \"%V\"",
                      &ctx->request.key->account);

        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "The gateway is full, try again later");
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_hold_bound(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, int64_t *n, ngx_http_modelgw_bound_t *b)
{
    int64_t  bytes, tools;

    bytes = r->headers_in.content_length_n - ctx->call.grown;

    tools = (n[NGX_HTTP_MODELGW_MARK_TOOLS] + (int64_t) ctx->call.tools)
            * NGX_HTTP_MODELGW_HOLD_TOOLS;

    /* a translation may write the name of a namespace before each tool */

    if (n[NGX_HTTP_MODELGW_MARK_TOOLS]) {
        tools = ngx_max(tools, ctx->call.grown);
    }

    b->input = bytes
               + n[NGX_HTTP_MODELGW_MARK_MEDIA] * NGX_HTTP_MODELGW_HOLD_MEDIA
               + n[NGX_HTTP_MODELGW_MARK_DOCUMENT]
                 * NGX_HTTP_MODELGW_HOLD_DOCUMENT
               + tools;

    b->input = ngx_min(b->input, NGX_HTTP_MODELGW_HOLD_MAX);

    /* each input of an embeddings call may have as much */

    if (ctx->call.model->context
        && ctx->request.endpoint->protocol != NGX_MODELGW_EMBEDDINGS)
    {
        b->input = ngx_min(b->input, (int64_t) ctx->call.model->context);
    }

    b->estimate = (bytes + 3) / 4
                  + n[NGX_HTTP_MODELGW_MARK_MEDIA]
                    * NGX_HTTP_MODELGW_HOLD_MEDIA_EST
                  + n[NGX_HTTP_MODELGW_MARK_DOCUMENT]
                    * NGX_HTTP_MODELGW_HOLD_DOCUMENT_EST;

    b->estimate = ngx_max(ngx_min(b->estimate, b->input), 1);

    b->long_cache = (n[NGX_HTTP_MODELGW_MARK_LONG_CACHE] != 0);
    b->output = ngx_http_modelgw_hold_output(ctx);

    b->cost = ngx_modelgw_cost_bound(&ctx->call.model->price, b->input,
                                     b->output, b->long_cache);
}


/*
 * The client's limit, for each of n choices; the larger one of two, since not
 * all upstreams know both.  Embeddings are no tokens.
 */

static int64_t
ngx_http_modelgw_hold_output(ngx_http_modelgw_ctx_t *ctx)
{
    int64_t  output, completion;

    if (ctx->request.endpoint->protocol == NGX_MODELGW_EMBEDDINGS) {
        return 0;
    }

    output = ngx_http_modelgw_hold_limit(ctx,
                                         NGX_HTTP_MODELGW_WATCH_MAX_TOKENS);

    if (ctx->request.endpoint->protocol == NGX_MODELGW_CHAT) {
        completion = ngx_http_modelgw_hold_limit(ctx,
                                NGX_HTTP_MODELGW_WATCH_MAX_COMPLETION_TOKENS);
        output = ngx_max(output, completion);
    }

    if (output == 0) {
        output = ctx->call.model->max_output ? ctx->call.model->max_output
                                             : ctx->call.model->context;
    }

    return ngx_min(output * (int64_t) ctx->call.choices,
                   NGX_HTTP_MODELGW_HOLD_MAX);
}


/* 0: none; some upstreams take a limit of 0 as none, too */

static int64_t
ngx_http_modelgw_hold_limit(ngx_http_modelgw_ctx_t *ctx, ngx_uint_t watch)
{
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(ctx->request.scan, watch);

    return (v->type & NGX_MODELGW_SCAN_COUNT) ? ngx_atoi(v->text, v->len) : 0;
}


/*
 * Takes a slot, tokens and money under one lock.  The call has its slot already
 * if the key has a limit of calls in flight.
 */

static ngx_int_t
ngx_http_modelgw_hold_take(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_bound_t *b, ngx_http_modelgw_main_conf_t *mmcf)
{
    int64_t                available;
    ngx_int_t              tokens, budget, credit;
    ngx_modelgw_ledger_t  *ledger;

    ledger = mmcf->ledger;
    tokens = NGX_OK;
    budget = NGX_OK;
    credit = NGX_OK;
    available = 0;

    ngx_modelgw_ledger_lock(ledger);

    if (ctx->money.slot == NULL && mmcf->worker != NGX_MODELGW_LEDGER_NONE) {
        (void) ngx_modelgw_ledger_open_locked(ledger, mmcf->worker,
                                              ctx->request.key->slot, 0,
                                              &ctx->money.slot);
    }

    if (ctx->money.slot) {
        ctx->money.slot->cell = ctx->call.model->cell;
        ctx->money.slot->hold = b->cost;
        ctx->money.slot->estimate = b->estimate;

        tokens = ngx_http_modelgw_limit_tokens_locked(ctx, mmcf,
                                                      b->estimate + b->output);

        if (tokens == NGX_OK) {
            budget = ngx_http_modelgw_hold_budget_locked(ctx, ledger);
        }

        if (tokens == NGX_OK && budget == NGX_OK) {
            credit = ngx_modelgw_ledger_hold_locked(ledger, ctx->money.slot,
                                            ctx->request.key->account_index,
                                            &available);
        }
    }

    ngx_modelgw_ledger_unlock(ledger);

    if (ctx->money.slot == NULL) {
        return ngx_http_modelgw_hold_full(r, ctx, mmcf);
    }

    if (mmcf->cluster) {
        ngx_http_modelgw_limit_wake(ledger);
    }

    if (tokens == NGX_AGAIN) {
        return ngx_http_modelgw_wait_limit(r, ctx);
    }

    if (tokens != NGX_OK) {
        return ngx_http_modelgw_limit_refuse_tokens(r, ctx);
    }

    if (budget != NGX_OK) {
        return (mmcf->cluster && budget == NGX_DECLINED)
               ? ngx_http_modelgw_hold_wait(r, ctx, mmcf, b)
               : ngx_http_modelgw_hold_exceeded(r, ctx, b, budget, 0);
    }

    if (credit != NGX_OK) {
        return mmcf->cluster
               ? ngx_http_modelgw_hold_wait(r, ctx, mmcf, b)
               : ngx_http_modelgw_hold_insufficient(r, ctx, b, available, 0);
    }

    if (ctx->money.met) {
        ctx->money.left.amount -= b->cost;
    }

    ngx_http_modelgw_hold_describe(ctx);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_hold_wait(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_http_modelgw_bound_t *b)
{
    ctx->money.bound = ngx_palloc(r->pool, sizeof(ngx_http_modelgw_bound_t));
    if (ctx->money.bound == NULL) {
        return NGX_ERROR;
    }

    *ctx->money.bound = *b;

    return ngx_http_modelgw_hold_claim(r, ctx, mmcf);
}


/*
 * The call was declined.  The lock was released meanwhile, so that a call that
 * is not declined does nothing for this: if there is enough by now, the
 * exchanger finds it.
 */

static ngx_int_t
ngx_http_modelgw_hold_claim(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_int_t             rc;
    ngx_time_t           *tp;
    ngx_modelgw_claim_t  *claim;

    rc = NGX_BUSY;
    claim = NULL;
    tp = ngx_timeofday();

    if (!ngx_http_modelgw_wait_behind(ctx)) {
        ngx_modelgw_ledger_lock(mmcf->ledger);

        rc = ngx_modelgw_claim_locked(mmcf->ledger, ctx->money.slot,
                                      ctx->request.key->account_index,
                                      &ctx->money.budget,
                                      (uint64_t) tp->sec * 1000 + tp->msec,
                                      mmcf->cluster->wait, &claim);

        ngx_modelgw_ledger_unlock(mmcf->ledger);
    }

    if (rc == NGX_OK) {
        ngx_modelgw_exchange_wake(mmcf->ledger);

        return ngx_http_modelgw_wait(r, ctx, claim);
    }

    rc = ngx_http_modelgw_wait_place(r, ctx);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "more than %d calls wait for credit of the cluster",
                  NGX_MODELGW_CLAIMS);

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "Too many calls wait for credit, try again "
                                  "later");
}


ngx_int_t
ngx_http_modelgw_hold_again(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_claim_t            claim;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    switch (ngx_http_modelgw_wait_kind(ctx)) {

    case NGX_HTTP_MODELGW_WAIT_LIMIT:
        return ngx_http_modelgw_hold(r, ctx);

    case NGX_HTTP_MODELGW_WAIT_PLACE:
        return ngx_http_modelgw_hold_claim(r, ctx, mmcf);

    default: /* NGX_HTTP_MODELGW_WAIT_CLAIM */
        break;
    }

    if (ngx_http_modelgw_wait_result(ctx, &claim) != NGX_OK) {
        return NGX_AGAIN;
    }

    ctx->money.left = claim.left;
    ctx->money.met = 0;

    switch (claim.state) {

    case NGX_MODELGW_CLAIM_HELD:
        ngx_http_modelgw_hold_describe(ctx);
        return NGX_OK;

    case NGX_MODELGW_CLAIM_CREDIT:
        return ngx_http_modelgw_hold_insufficient(r, ctx, ctx->money.bound,
                                                  claim.available, claim.away);

    case NGX_MODELGW_CLAIM_BUDGET:
        ctx->money.left.amount = claim.available;
        ctx->money.met = 1;

        return ngx_http_modelgw_hold_exceeded(r, ctx, ctx->money.bound,
                                              NGX_DECLINED, claim.away);

    default: /* NGX_MODELGW_CLAIM_SILENT, NGX_MODELGW_CLAIM_GONE */
        return ngx_http_modelgw_hold_silent(r, ctx);
    }
}


/* It is not known whether there is credit: 503. */

static ngx_int_t
ngx_http_modelgw_hold_silent(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    const char                    *reason;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    reason = ngx_http_modelgw_node_refuses(mmcf);

    if (reason == NULL) {
        reason = (ngx_modelgw_node(mmcf->ledger)->state
                  == NGX_MODELGW_NODE_MEMBER)
                 ? "A node of the cluster that may have credit has not answered"
                 : "The cluster cannot be reached, and not enough credit is "
                   "lent to this node";
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE", "%s, try again later",
                                  reason);
}


static ngx_int_t
ngx_http_modelgw_hold_full(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  (mmcf->worker == NGX_MODELGW_LEDGER_NONE)
                  ? "too many nginx workers use \"modelgw_zone\""
                  : "\"modelgw_zone\" has no room for one more call");

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                  "SERVICE_UNAVAILABLE",
                                  "The gateway is full, try again later");
}


/* The same codes as ngx_modelgw_ledger_budget_locked(). */

static ngx_int_t
ngx_http_modelgw_hold_budget_locked(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_ledger_t *ledger)
{
    ngx_int_t    rc;
    ngx_time_t  *tp;

    if (ctx->money.budget.limit == 0) {
        return NGX_OK;
    }

    tp = ngx_timeofday();

    rc = ngx_modelgw_ledger_budget_locked(ledger, ctx->money.slot,
                                       &ctx->money.budget,
                                       (uint64_t) tp->sec * 1000 + tp->msec,
                                       &ctx->money.left);

    ctx->money.met = (rc != NGX_ERROR);

    return rc;
}


static ngx_int_t
ngx_http_modelgw_hold_exceeded(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b, ngx_int_t rc,
    int64_t away)
{
    u_char                       *p, *last, text[NGX_HTTP_MODELGW_HOLD_TEXT];
    ngx_tm_t                      tm;
    ngx_str_t                    *window;
    ngx_http_modelgw_shortage_t   shortage;

    if (rc == NGX_ERROR) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_SERVICE_UNAVAILABLE,
                                      "SERVICE_UNAVAILABLE",
                                      "The budget of the key is not known, "
                                      "try again later");
    }

    ctx->request.reason = NGX_HTTP_MODELGW_REASON_BUDGET;

    last = text + sizeof(text) - 1;
    window = &ngx_modelgw_windows[ctx->money.budget.window];

    p = ngx_modelgw_amount(text, ctx->money.budget.limit
                                 - ctx->money.left.amount);
    p = ngx_cpymem(p, " of ", sizeof(" of ") - 1);
    p = ngx_modelgw_amount(p, ctx->money.budget.limit);

    if (ctx->money.left.ends == (uint64_t) -1) {
        p = ngx_slprintf(p, last, " euro in %V are used", window);

    } else {
        ngx_gmtime((time_t) (ctx->money.left.ends / 1000), &tm);

        p = ngx_slprintf(p, last, " euro a %V are used until "
                                  "%4d-%02d-%02dT%02d:%02d:%02dZ", window,
                         tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                         tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec);
    }

    ngx_http_modelgw_hold_away(p, away);

    shortage.left = ctx->money.left.amount;
    shortage.code = "BUDGET_EXCEEDED";
    shortage.what = "Budget exceeded";
    shortage.state = text;
    shortage.action = (ctx->money.left.ends == (uint64_t) -1)
                      ? "ask for a larger budget" : "wait until then";

    return ngx_http_modelgw_hold_refuse(r, ctx, b, &shortage);
}


static ngx_int_t
ngx_http_modelgw_hold_insufficient(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    int64_t available, int64_t away)
{
    u_char                       *p, left[NGX_HTTP_MODELGW_HOLD_TEXT];
    ngx_http_modelgw_shortage_t   shortage;

    ctx->request.reason = NGX_HTTP_MODELGW_REASON_CREDIT;

    p = ngx_modelgw_amount(left, available);
    p = ngx_cpymem(p, " are left", sizeof(" are left") - 1);

    ngx_http_modelgw_hold_away(p, away);

    shortage.left = available;
    shortage.code = "INSUFFICIENT_CREDIT";
    shortage.what = "Insufficient credit";
    shortage.state = left;
    shortage.action = "add credit";

    return ngx_http_modelgw_hold_refuse(r, ctx, b, &shortage);
}


/* Ends the text, with what other nodes have that cannot be asked. */

static void
ngx_http_modelgw_hold_away(u_char *p, int64_t away)
{
    if (away > 0) {
        p = ngx_cpymem(p, ", ", sizeof(", ") - 1);
        p = ngx_modelgw_amount(p, away);
        p = ngx_cpymem(p, NGX_HTTP_MODELGW_HOLD_AWAY,
                       sizeof(NGX_HTTP_MODELGW_HOLD_AWAY) - 1);
    }

    *p = '\0';
}


/* 402 */

static ngx_int_t
ngx_http_modelgw_hold_refuse(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_http_modelgw_bound_t *b,
    ngx_http_modelgw_shortage_t *shortage)
{
    u_char                    need[NGX_MODELGW_AMOUNT_LEN + 1];
    int64_t                   fits;
    ngx_modelgw_scan_conf_t  *conf;

    conf = ctx->request.scan_conf;

    *ngx_modelgw_amount(need, b->cost) = '\0';

    fits = ngx_modelgw_cost_fits(&ctx->call.model->price, b->input,
                                 b->long_cache, ngx_max(shortage->left, 0))
           / (int64_t) ctx->call.choices;

    if (fits == 0
        || ctx->request.endpoint->protocol == NGX_MODELGW_EMBEDDINGS)
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_PAYMENT_REQUIRED,
                                      shortage->code,
                                      "%s: the call may cost up to %s euro, "
                                      "%s; %s", shortage->what, need,
                                      shortage->state, shortage->action);
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_PAYMENT_REQUIRED,
                                  shortage->code,
                                  "%s: the call may cost up to %s euro, %s; "
                                  "%s, or ask for less: %V of %L would fit",
                                  shortage->what, need, shortage->state,
                                  shortage->action,
                                  &conf->watches[
                                       NGX_HTTP_MODELGW_WATCH_MAX_TOKENS].path,
                                  fits);
}


/* fills the slot so that any process can settle the call once it is sent */

static void
ngx_http_modelgw_hold_describe(ngx_http_modelgw_ctx_t *ctx)
{
    ngx_time_t          *tp;
    ngx_modelgw_key_t   *key;
    ngx_modelgw_call_t  *call;

    key = ctx->request.key;
    call = ctx->money.slot;
    tp = ngx_timeofday();

    call->price = ctx->call.model->price;
    call->price_id = ctx->call.model->price_id;
    call->started = (uint64_t) tp->sec * 1000 + tp->msec;

    call->key_name.len = ngx_min(key->id.len, NGX_MODELGW_LEDGER_NAME);
    ngx_memcpy(call->key_name.data, key->id.data, call->key_name.len);

    call->model_len = ngx_min(ctx->call.service_id.len,
                              NGX_MODELGW_LEDGER_MODEL);
    ngx_memcpy(call->model, ctx->call.service_id.data, call->model_len);

    call->flags = (ctx->call.streaming ? NGX_MODELGW_CALL_STREAM : 0)
                  | (ctx->call.translate ? NGX_MODELGW_CALL_TRANSLATED : 0);
}


ngx_int_t
ngx_http_modelgw_hold_budget_header(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    u_char                         text[NGX_MODELGW_AMOUNT_LEN];
    ngx_str_t                      value;
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (!ctx->money.met) {
        return NGX_OK;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    /* what is left in all was told if it is why the call is refused, only */

    if (mmcf->cluster
        && ctx->request.reason != NGX_HTTP_MODELGW_REASON_BUDGET)
    {
        return NGX_OK;
    }

    value.len = ngx_modelgw_amount(text, ngx_max(ctx->money.left.amount, 0))
                - text;

    value.data = ngx_pnalloc(r->pool, value.len);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(value.data, text, value.len);

    return ngx_http_modelgw_headers_add(r, "x-modelgw-budget-remaining",
                                        &value);
}


void
ngx_http_modelgw_hold_sent(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    if (ctx->money.slot) {
        ctx->money.id = ctx->money.slot->id;

        mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);
        ngx_modelgw_ledger_sent(mmcf->ledger, ctx->money.slot);
    }
}
