
/*
 * The verdict on a request whose body was scanned: checks the fields, finds the
 * model, checks that the key may use it, and rewrites the body.
 *
 * The body is not parsed into a tree: the scanner has values and their offsets.
 * The rewrite replaces the model id, and makes a chat stream report its usage,
 * which the call is metered by.  If the upstream has the messages API only, a
 * chat body is translated instead (translate.c).
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_scan.h"
#include "ngx_modelgw_splice.h"
#include "ngx_modelgw_usage.h"
#include "ngx_http_modelgw.h"


#define NGX_HTTP_MODELGW_USAGE_MEMBER    "\"include_usage\":true"

/* rows of all APIs */

#define ngx_http_modelgw_verdict_extras                                       \
    [NGX_HTTP_MODELGW_WATCH_SERVICE_TIER] =                                   \
        { ngx_string("service_tier"), NGX_MODELGW_SCAN_ANY },                 \
    [NGX_HTTP_MODELGW_WATCH_PREDICTION] =                                     \
        { ngx_string("prediction"), NGX_MODELGW_SCAN_ANY },                   \
    [NGX_HTTP_MODELGW_WATCH_AUDIO] =                                          \
        { ngx_string("audio"), NGX_MODELGW_SCAN_ANY },                        \
    [NGX_HTTP_MODELGW_WATCH_WEB_SEARCH_OPTIONS] =                             \
        { ngx_string("web_search_options"), NGX_MODELGW_SCAN_ANY },           \
    [NGX_HTTP_MODELGW_WATCH_SPEED] =                                          \
        { ngx_string("speed"), NGX_MODELGW_SCAN_ANY },                        \
    [NGX_HTTP_MODELGW_WATCH_INFERENCE_GEO] =                                  \
        { ngx_string("inference_geo"), NGX_MODELGW_SCAN_ANY }


/* the API of an endpoint */

typedef struct {
    ngx_uint_t                 protocol;
    const char                *name;
    ngx_uint_t                 upstream[4];  /* protocols it can be forwarded
                                                in, best first; 0: no more */
    ngx_modelgw_scan_watch_t  *watches;
    ngx_uint_t                 nwatches;
} ngx_http_modelgw_api_t;


static ngx_uint_t ngx_http_modelgw_verdict_upstream(ngx_http_modelgw_api_t *api,
    ngx_uint_t protocols);
static void ngx_http_modelgw_verdict_conf(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_api_t *api,
    ngx_modelgw_scan_conf_t *conf);
static ngx_int_t ngx_http_modelgw_verdict_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_verdict_early(ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_again(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_required(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_model(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_kind(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);
static ngx_int_t ngx_http_modelgw_verdict_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);
static ngx_int_t ngx_http_modelgw_verdict_rewrite(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_verdict_usage(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_cut_t *cut, ngx_str_t *after_model);
static int ngx_libc_cdecl ngx_http_modelgw_verdict_cmp_cuts(const void *one,
    const void *two);


/*
 * The values that are checked, or read later; messages bodies have the first
 * rows only.  A null is as good as an absent value, as in the chat API.
 */

static ngx_modelgw_scan_watch_t  ngx_http_modelgw_verdict_watches[] = {

    [NGX_HTTP_MODELGW_WATCH_MODEL] =
        { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_WATCH_MESSAGES] =
        { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    [NGX_HTTP_MODELGW_WATCH_MAX_TOKENS] =
        { ngx_string("max_tokens"),
          NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    [NGX_HTTP_MODELGW_WATCH_STREAM] =
        { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },

    ngx_http_modelgw_verdict_extras,

    [NGX_HTTP_MODELGW_WATCH_THINKING] =
        { ngx_string("thinking"),
          NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS },

    [NGX_HTTP_MODELGW_WATCH_STREAM_OPTIONS] =
        { ngx_string("stream_options"),
          NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS },
    [NGX_HTTP_MODELGW_WATCH_INCLUDE_USAGE] =
        { ngx_string("stream_options.include_usage"),
          NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    [NGX_HTTP_MODELGW_WATCH_MAX_COMPLETION_TOKENS] =
        { ngx_string("max_completion_tokens"),
          NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    [NGX_HTTP_MODELGW_WATCH_N] =
        { ngx_string("n"), NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL }
};


static ngx_modelgw_scan_watch_t  ngx_http_modelgw_verdict_responses[] = {

    [NGX_HTTP_MODELGW_WATCH_MODEL] =
        { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_WATCH_MESSAGES] =
        { ngx_string("input"), NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_ARRAY
                               |NGX_MODELGW_SCAN_BRIEF },
    [NGX_HTTP_MODELGW_WATCH_MAX_TOKENS] =
        { ngx_string("max_output_tokens"),
          NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    [NGX_HTTP_MODELGW_WATCH_STREAM] =
        { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },

    ngx_http_modelgw_verdict_extras,

    [NGX_HTTP_MODELGW_WATCH_THINKING] =
        { ngx_string("reasoning"),
          NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_NULL },

    [NGX_HTTP_MODELGW_WATCH_STORE] =
        { ngx_string("store"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    [NGX_HTTP_MODELGW_WATCH_TOOLS] =
        { ngx_string("tools"), NGX_MODELGW_SCAN_ARRAY|NGX_MODELGW_SCAN_NULL },
    [NGX_HTTP_MODELGW_WATCH_INSTRUCTIONS] =
        { ngx_string("instructions"), NGX_MODELGW_SCAN_STRING
                                      |NGX_MODELGW_SCAN_NULL
                                      |NGX_MODELGW_SCAN_BRIEF },

    [NGX_HTTP_MODELGW_WATCH_PREVIOUS] =
        { ngx_string("previous_response_id"),
          NGX_MODELGW_SCAN_ANY|NGX_MODELGW_SCAN_BRIEF },
    [NGX_HTTP_MODELGW_WATCH_CONVERSATION] =
        { ngx_string("conversation"),
          NGX_MODELGW_SCAN_ANY|NGX_MODELGW_SCAN_BRIEF },
    [NGX_HTTP_MODELGW_WATCH_PROMPT] =
        { ngx_string("prompt"), NGX_MODELGW_SCAN_ANY|NGX_MODELGW_SCAN_BRIEF },
    [NGX_HTTP_MODELGW_WATCH_BACKGROUND] =
        { ngx_string("background"),
          NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL }
};


/* its array may have strings or tokens, which is left to the upstream */

static ngx_modelgw_scan_watch_t  ngx_http_modelgw_verdict_embeddings[] = {

    [NGX_HTTP_MODELGW_WATCH_MODEL] =
        { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    [NGX_HTTP_MODELGW_WATCH_INPUT] =
        { ngx_string("input"), NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_ARRAY }
};


static ngx_http_modelgw_api_t  ngx_http_modelgw_verdict_apis[] = {

    { NGX_MODELGW_CHAT, "chat",
      { NGX_MODELGW_CHAT, NGX_MODELGW_MESSAGES, 0 },
      ngx_http_modelgw_verdict_watches, NGX_HTTP_MODELGW_WATCHES_CHAT },

    { NGX_MODELGW_MESSAGES, "messages",
      { NGX_MODELGW_MESSAGES, 0 },
      ngx_http_modelgw_verdict_watches, NGX_HTTP_MODELGW_WATCHES_MESSAGES },

    { NGX_MODELGW_RESPONSES, "responses",
      { NGX_MODELGW_RESPONSES, NGX_MODELGW_MESSAGES, NGX_MODELGW_CHAT, 0 },
      ngx_http_modelgw_verdict_responses, NGX_HTTP_MODELGW_WATCHES_RESPONSES },

    { NGX_MODELGW_EMBEDDINGS, "embeddings",
      { NGX_MODELGW_EMBEDDINGS, 0 },
      ngx_http_modelgw_verdict_embeddings,
      sizeof(ngx_http_modelgw_verdict_embeddings)
      / sizeof(ngx_modelgw_scan_watch_t) }
};


ngx_int_t
ngx_http_modelgw_verdict_scan(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                 protocol;
    ngx_http_modelgw_api_t    *api;
    ngx_modelgw_scan_plan_t   *plan;
    ngx_http_modelgw_group_t  *group;

    group = ngx_http_modelgw_ctx_group(ctx);
    api = &ngx_http_modelgw_plan(ngx_http_modelgw_verdict_apis,
                                 ctx->request.endpoint->protocol);

    protocol = ngx_http_modelgw_verdict_upstream(api, group->protocol);

    if (protocol == 0) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN,
                                      "PROVIDER_MISMATCH",
                                      "The %s API is not available for "
                                      "this key", api->name);
    }

    ctx->call.protocol = protocol;
    ctx->call.translate = (protocol != api->protocol);

    plan = ngx_http_modelgw_plan(group->plans, api->protocol);

    ctx->request.scan_conf = ngx_modelgw_scan_conf(plan);
    ctx->request.scan = ngx_modelgw_scan_make(r->pool, plan);

    return ctx->request.scan ? NGX_OK : NGX_ERROR;
}


/* which of the protocols calls of the API are forwarded in; 0: none */

static ngx_uint_t
ngx_http_modelgw_verdict_upstream(ngx_http_modelgw_api_t *api,
    ngx_uint_t protocols)
{
    ngx_uint_t  *upstream;

    upstream = api->upstream;

    while (*upstream && !(protocols & *upstream)) {
        upstream++;
    }

    return *upstream;
}


const char *
ngx_http_modelgw_verdict_offers(ngx_uint_t protocols, ngx_uint_t n)
{
    ngx_http_modelgw_api_t  *api;

    api = &ngx_http_modelgw_verdict_apis[n];

    return ngx_http_modelgw_verdict_upstream(api, protocols) ? api->name : NULL;
}


ngx_int_t
ngx_http_modelgw_verdict_plans(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i, n;
    ngx_http_modelgw_api_t     *api;
    ngx_modelgw_scan_conf_t     conf;
    ngx_http_modelgw_group_t  **groups;

    groups = mmcf->groups.elts;

    for (n = 0; n < NGX_MODELGW_PROTOCOLS; n++) {

        api = &ngx_http_modelgw_verdict_apis[n];

        ngx_modelgw_usage_conf(&conf, api->protocol, mmcf->skip);

        mmcf->plans[n] = ngx_modelgw_scan_plan(cf->pool, &conf);
        if (mmcf->plans[n] == NULL) {
            return NGX_ERROR;
        }

        for (i = 0; i < mmcf->groups.nelts; i++) {
            ngx_http_modelgw_verdict_conf(mmcf, groups[i], api, &conf);

            groups[i]->plans[n] = ngx_modelgw_scan_plan(cf->pool, &conf);
            if (groups[i]->plans[n] == NULL) {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_verdict_conf(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_group_t *group, ngx_http_modelgw_api_t *api,
    ngx_modelgw_scan_conf_t *conf)
{
    ngx_memzero(conf, sizeof(ngx_modelgw_scan_conf_t));

    conf->check = 1;
    conf->denied = group->denied.elts;
    conf->ndenied = group->denied.nelts;
    conf->skip = mmcf->skip;

    if (mmcf->zone || api->protocol == NGX_MODELGW_RESPONSES) {
        ngx_http_modelgw_hold_scan(conf, api->protocol);
    }

    conf->watches = api->watches;
    conf->nwatches = api->nwatches;
}


ngx_int_t
ngx_http_modelgw_verdict(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = (ctx->state == NGX_HTTP_MODELGW_WAITING)
         ? ngx_http_modelgw_verdict_again(r, ctx)
         : ngx_http_modelgw_verdict_check(r, ctx);

    if (rc == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    if (rc == NGX_OK && !ngx_http_modelgw_verdict_early(ctx)) {
        rc = ctx->call.translate
             ? ngx_http_modelgw_translate_request(r, ctx)
             : ngx_http_modelgw_verdict_rewrite(r, ctx);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_forward_headers(r, ctx);
    }

    if (rc == NGX_OK) {
        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "modelgw verdict: \"%V\" as \"%V\"",
                       &ctx->call.service_id, &ctx->call.upstream_id);
        ctx->state = NGX_HTTP_MODELGW_READY;
        ngx_http_modelgw_abort_watch(r, ctx);
    }

    /* the scanner is large, a stream must not keep it for its lifetime */

    (void) ngx_pfree(r->pool, ctx->request.scan);
    ctx->request.scan = NULL;

    return rc;
}


/* All up to the hold; the codes of ngx_http_modelgw_hold(). */

static ngx_int_t
ngx_http_modelgw_verdict_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_verdict_body(r, ctx);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_verdict_model(r, ctx);
    }

    if (rc == NGX_OK
        && ctx->request.endpoint->protocol == NGX_MODELGW_RESPONSES)
    {
        rc = ngx_http_modelgw_responses(r, ctx);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_access_again(r, ctx);
    }

    if (rc == NGX_OK && ngx_http_modelgw_verdict_early(ctx)) {
        rc = ngx_http_modelgw_translate_request(r, ctx);
    }

    return (rc == NGX_OK) ? ngx_http_modelgw_hold(r, ctx) : rc;
}


/* The translation of a responses call may have many more tokens. */

static ngx_uint_t
ngx_http_modelgw_verdict_early(ngx_http_modelgw_ctx_t *ctx)
{
    return ctx->call.translate
           && ctx->request.endpoint->protocol == NGX_MODELGW_RESPONSES;
}


/* The key may have been revoked while the call has waited. */

static ngx_int_t
ngx_http_modelgw_verdict_again(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_hold_again(r, ctx);

    return (rc == NGX_OK) ? ngx_http_modelgw_access_again(r, ctx) : rc;
}


static ngx_int_t
ngx_http_modelgw_verdict_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    u_char       buf[NGX_MODELGW_SCAN_FAULT_LEN];
    ngx_str_t    text;
    const char  *code;

    if (r->headers_in.content_length_n <= 0) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_JSON", "The body is empty");
    }

    if (ngx_modelgw_scan_done(ctx->request.scan) == NGX_OK) {
        return ngx_http_modelgw_verdict_required(r, ctx);
    }

    text.data = buf;
    code = "INVALID_JSON";

    if (ngx_modelgw_scan_fault(ctx->request.scan, &text)
        == NGX_MODELGW_SCAN_FIELD)
    {
        code = "INVALID_FIELD";
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST, code, "%V",
                                  &text);
}


static ngx_int_t
ngx_http_modelgw_verdict_required(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t                  rc;
    ngx_uint_t                 i, last;
    ngx_modelgw_scan_conf_t   *conf;
    ngx_modelgw_scan_value_t  *v;

    conf = ctx->request.scan_conf;
    last = NGX_HTTP_MODELGW_WATCH_MESSAGES;

    if (ctx->request.endpoint->flags & NGX_HTTP_MODELGW_MAX_TOKENS) {
        last = NGX_HTTP_MODELGW_WATCH_MAX_TOKENS;
    }

    for (i = 0; i <= last; i++) {

        v = ngx_modelgw_scan_value(ctx->request.scan, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT
            || v->type == NGX_MODELGW_SCAN_NULL)
        {
            /* what refers to something stored may be in place of the input */

            if (ctx->request.endpoint->protocol == NGX_MODELGW_RESPONSES) {
                rc = ngx_http_modelgw_responses_state(r, ctx);

                if (rc != NGX_OK) {
                    return rc;
                }
            }

            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "MISSING_FIELD", "\"%V\" is required",
                                          &conf->watches[i].path);
        }
    }

    ctx->call.choices = 1;

    if (ctx->request.endpoint->protocol == NGX_MODELGW_EMBEDDINGS) {
        return NGX_OK;
    }

    v = ngx_modelgw_scan_value(ctx->request.scan,
                               NGX_HTTP_MODELGW_WATCH_STREAM);
    ctx->call.streaming =
        (v->type == NGX_MODELGW_SCAN_TRUE
         && !(ctx->request.endpoint->flags & NGX_HTTP_MODELGW_COUNT));

    if (ctx->request.endpoint->protocol == NGX_MODELGW_CHAT) {
        v = ngx_modelgw_scan_value(ctx->request.scan, NGX_HTTP_MODELGW_WATCH_N);

        if (v->type & NGX_MODELGW_SCAN_COUNT) {
            ctx->call.choices = ngx_max(ngx_atoi(v->text, v->len), 1);
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_verdict_model(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    u_char                    *p;
    ngx_int_t                  rc;
    ngx_str_t                  id;
    ngx_modelgw_scan_value_t  *v;
    ngx_http_modelgw_group_t  *group;

    v = ngx_modelgw_scan_value(ctx->request.scan, NGX_HTTP_MODELGW_WATCH_MODEL);

    id.data = v->text;
    id.len = v->len;

    if (id.len == 0 || id.len > NGX_MODELGW_SCAN_TEXT) {
        return ngx_http_modelgw_verdict_unknown(r, ctx, NULL);
    }

    group = ngx_http_modelgw_ctx_group(ctx);

    rc = ngx_http_modelgw_model_find(r->pool, group, &id, &ctx->call.model,
                                     &ctx->call.upstream_id);
    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_DECLINED
        || !ngx_http_modelgw_model_enabled(ctx->request.key, &id))
    {
        return ngx_http_modelgw_verdict_unknown(r, ctx, &id);
    }

    if (ctx->call.model->embedding
        != (ctx->request.endpoint->protocol == NGX_MODELGW_EMBEDDINGS))
    {
        return ngx_http_modelgw_verdict_kind(r, ctx, &id);
    }

    ctx->answer.usage.input_has_cache =
                               ctx->call.model->caps.usage_input_includes_cache;

    /* the id as JSON; no id needs escapes */

    p = ngx_pnalloc(r->pool, id.len + 2);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ctx->call.service_json.data = p;
    ctx->call.service_json.len = id.len + 2;
    ctx->call.service_id.data = p + 1;
    ctx->call.service_id.len = id.len;

    *p++ = '"';
    p = ngx_cpymem(p, id.data, id.len);
    *p = '"';

    return NGX_OK;
}


/* The key may use the model, but not in this API. */

static ngx_int_t
ngx_http_modelgw_verdict_kind(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id)
{
    ngx_uint_t                 embedding;
    const char                *use;
    ngx_http_modelgw_group_t  *group;

    group = ngx_http_modelgw_ctx_group(ctx);
    embedding = ctx->call.model->embedding;

    if (embedding) {
        use = "/v1/embeddings";

    } else if (group->protocol & (NGX_MODELGW_CHAT|NGX_MODELGW_MESSAGES)) {
        use = "/v1/chat/completions";

    } else {
        use = "/v1/responses";
    }

    ctx->call.model = NULL;

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST, "INVALID_MODEL",
                                  "\"%V\" is %s embedding model; use %s",
                                  id, embedding ? "an" : "no", use);
}


/*
 * The error is the same for a model that does not exist and one that is not
 * enabled.  A family of another group is named: the prefix of the id is public.
 */

static ngx_int_t
ngx_http_modelgw_verdict_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id)
{
    ngx_http_modelgw_group_t      *group;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ctx->call.model = NULL;

    group = id ? ngx_http_modelgw_group_of_family(mmcf, id) : NULL;

    if (group != NULL && group != ngx_http_modelgw_ctx_group(ctx)) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN,
                                      "PROVIDER_MISMATCH",
                                      "This key cannot be used for models of "
                                      "another provider");
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST, "INVALID_MODEL",
                                  "The model does not exist or is not enabled "
                                  "for this key");
}


static ngx_int_t
ngx_http_modelgw_verdict_rewrite(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    off_t                      grown;
    u_char                    *p;
    ngx_str_t                  after;
    ngx_uint_t                 n;
    ngx_array_t               *cuts;
    ngx_chain_t               *out;
    ngx_modelgw_cut_t         *cut;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(ctx->request.scan, NGX_HTTP_MODELGW_WATCH_MODEL);
    cuts = &ctx->call.cuts;

    if (cuts->elts == NULL
        && ngx_array_init(cuts, r->pool, 2, sizeof(ngx_modelgw_cut_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    cut = ngx_array_push_n(cuts, 2);
    if (cut == NULL) {
        return NGX_ERROR;
    }

    n = ngx_http_modelgw_verdict_usage(ctx, &cut[1], &after);

    cuts->nelts += n - 1;

    cut->from = v->from;
    cut->to = v->to;

    cut->text.len = ctx->call.upstream_id.len + 2 + after.len;
    cut->text.data = ngx_pnalloc(r->pool, cut->text.len);
    if (cut->text.data == NULL) {
        return NGX_ERROR;
    }

    p = cut->text.data;

    *p++ = '"';
    p = ngx_cpymem(p, ctx->call.upstream_id.data, ctx->call.upstream_id.len);
    *p++ = '"';
    ngx_memcpy(p, after.data, after.len);

    if (cuts->nelts > 1) {
        ngx_qsort(cuts->elts, cuts->nelts, sizeof(ngx_modelgw_cut_t),
                  ngx_http_modelgw_verdict_cmp_cuts);
    }

    if (ngx_modelgw_splice(r->pool, r->request_body->bufs, cuts->elts,
                           cuts->nelts, &out, &grown)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    r->request_body->bufs = out;
    r->headers_in.content_length_n += grown;

    return NGX_OK;
}


static int ngx_libc_cdecl
ngx_http_modelgw_verdict_cmp_cuts(const void *one, const void *two)
{
    const ngx_modelgw_cut_t  *a, *b;

    a = one;
    b = two;

    return (a->from > b->from) - (a->from < b->from);
}


/*
 * A chat stream reports its usage only on request.  What is missing for that is
 * added to the client's "stream_options", or after the model.  Returns the
 * number of cuts, 0 or 1.
 */

static ngx_uint_t
ngx_http_modelgw_verdict_usage(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_cut_t *cut, ngx_str_t *after_model)
{
    ngx_modelgw_scan_value_t  *options, *usage;

    ngx_str_null(after_model);

    if (ctx->call.protocol != NGX_MODELGW_CHAT || !ctx->call.streaming) {
        return 0;
    }

    options = ngx_modelgw_scan_value(ctx->request.scan,
                                     NGX_HTTP_MODELGW_WATCH_STREAM_OPTIONS);
    usage = ngx_modelgw_scan_value(ctx->request.scan,
                                   NGX_HTTP_MODELGW_WATCH_INCLUDE_USAGE);

    if (usage->type == NGX_MODELGW_SCAN_TRUE) {
        ctx->call.usage_asked = 1;
        return 0;
    }

    if (usage->type != NGX_MODELGW_SCAN_ABSENT) {
        cut->from = usage->from;
        cut->to = usage->to;
        ngx_str_set(&cut->text, "true");
        return 1;
    }

    if (options->type == NGX_MODELGW_SCAN_ABSENT) {
        ngx_str_set(after_model, ",\"stream_options\":{"
                                 NGX_HTTP_MODELGW_USAGE_MEMBER "}");
        return 0;
    }

    if (options->type == NGX_MODELGW_SCAN_NULL) {
        cut->from = options->from;
        cut->to = options->to;
        ngx_str_set(&cut->text, "{" NGX_HTTP_MODELGW_USAGE_MEMBER "}");
        return 1;
    }

    cut->from = options->from + 1;
    cut->to = cut->from;

    if (options->elements) {
        ngx_str_set(&cut->text, NGX_HTTP_MODELGW_USAGE_MEMBER ",");

    } else {
        ngx_str_set(&cut->text, NGX_HTTP_MODELGW_USAGE_MEMBER);
    }

    return 1;
}
