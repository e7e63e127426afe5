
/*
 * The verdict on a request whose body has been scanned: are the fields right,
 * which model is it, may this key use it; then the rewrite of the body.
 *
 * The body is never parsed into anything: the scanner tells values and byte
 * offsets, the rewrite replaces the model id by offset, and makes chat streams
 * report their usage, which is what we meter by.  A chat body whose upstream
 * speaks only messages is translated instead: translate.c.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_verdict.h"


#define NGX_HTTP_MODELGW_USAGE_MEMBER    "\"include_usage\":true"


static void ngx_http_modelgw_verdict_conf(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_group_t *group, ngx_uint_t protocol,
    ngx_modelgw_scan_conf_t *conf);
static ngx_int_t ngx_http_modelgw_verdict_body(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_required(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_model(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_int_t ngx_http_modelgw_verdict_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id);
static ngx_int_t ngx_http_modelgw_verdict_rewrite(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx);
static ngx_uint_t ngx_http_modelgw_verdict_usage(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_cut_t *cut, ngx_str_t *behind_model);


/* values that are null count as absent, as the chat API has it */

static ngx_modelgw_scan_watch_t  ngx_http_modelgw_chat_watches[] = {

    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    { ngx_string("max_tokens"), NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },

    { ngx_string("service_tier"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("prediction"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("audio"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("web_search_options"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("speed"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("inference_geo"), NGX_MODELGW_SCAN_ANY },

    { ngx_string("stream_options"),
      NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS },
    { ngx_string("stream_options.include_usage"),
      NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    { ngx_string("max_completion_tokens"),
      NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    { ngx_string("n"), NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },
    { ngx_string("thinking"),
      NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS }
};


static ngx_modelgw_scan_watch_t  ngx_http_modelgw_messages_watches[] = {

    { ngx_string("model"), NGX_MODELGW_SCAN_STRING },
    { ngx_string("messages"), NGX_MODELGW_SCAN_ARRAY },
    { ngx_string("stream"), NGX_MODELGW_SCAN_BOOL|NGX_MODELGW_SCAN_NULL },
    { ngx_string("max_tokens"), NGX_MODELGW_SCAN_COUNT|NGX_MODELGW_SCAN_NULL },

    { ngx_string("service_tier"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("prediction"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("audio"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("web_search_options"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("speed"), NGX_MODELGW_SCAN_ANY },
    { ngx_string("inference_geo"), NGX_MODELGW_SCAN_ANY },

    { ngx_string("thinking"),
      NGX_MODELGW_SCAN_OBJECT|NGX_MODELGW_SCAN_NULL|NGX_MODELGW_SCAN_KEYS }
};


ngx_int_t
ngx_http_modelgw_verdict_scan(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_modelgw_scan_plan_t  *plan;

    if (ctx->endpoint->protocol == NGX_MODELGW_MESSAGES
        && !(ctx->group->protocol & NGX_MODELGW_MESSAGES))
    {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_FORBIDDEN,
                                      "PROVIDER_MISMATCH",
                                      "The messages API is not available for "
                                      "this key");
    }

    ctx->protocol = ctx->endpoint->protocol;

    if (!(ctx->group->protocol & ctx->protocol)) {
        ctx->protocol = NGX_MODELGW_MESSAGES;
        ctx->translate = 1;
    }

    plan = ngx_http_modelgw_plan(ctx->group->plans, ctx->endpoint->protocol);

    ctx->scan_conf = ngx_modelgw_scan_conf(plan);
    ctx->scan = ngx_modelgw_scan_make(r->pool, plan);

    return ctx->scan ? NGX_OK : NGX_ERROR;
}


/* what scanners depend on is known when the configuration is read */

ngx_int_t
ngx_http_modelgw_verdict_plans(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i, n;
    ngx_modelgw_scan_conf_t     conf;
    ngx_http_modelgw_group_t  **groups;

    static ngx_uint_t  protocols[] = { NGX_MODELGW_CHAT, NGX_MODELGW_MESSAGES };

    groups = mmcf->groups.elts;

    for (n = 0; n < 2; n++) {
        ngx_modelgw_usage_conf(&conf, protocols[n], mmcf->skip);

        mmcf->plans[n] = ngx_modelgw_scan_plan(cf->pool, &conf);
        if (mmcf->plans[n] == NULL) {
            return NGX_ERROR;
        }

        for (i = 0; i < mmcf->groups.nelts; i++) {
            ngx_http_modelgw_verdict_conf(mmcf, groups[i], protocols[n], &conf);

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
    ngx_http_modelgw_group_t *group, ngx_uint_t protocol,
    ngx_modelgw_scan_conf_t *conf)
{
    ngx_memzero(conf, sizeof(ngx_modelgw_scan_conf_t));

    conf->check = 1;
    conf->denied = group->denied.elts;
    conf->ndenied = group->denied.nelts;
    conf->skip = mmcf->skip;

    if (mmcf->zone) {
        ngx_http_modelgw_extras_marks(conf);
    }

    if (protocol == NGX_MODELGW_CHAT) {
        conf->watches = ngx_http_modelgw_chat_watches;
        conf->nwatches = sizeof(ngx_http_modelgw_chat_watches)
                         / sizeof(ngx_modelgw_scan_watch_t);
        return;
    }

    conf->watches = ngx_http_modelgw_messages_watches;
    conf->nwatches = sizeof(ngx_http_modelgw_messages_watches)
                     / sizeof(ngx_modelgw_scan_watch_t);
}


ngx_int_t
ngx_http_modelgw_verdict(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_modelgw_verdict_body(r, ctx);

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_verdict_model(r, ctx);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_hold(r, ctx);
    }

    if (rc == NGX_OK) {
        rc = ctx->translate ? ngx_http_modelgw_translate_request(r, ctx)
                            : ngx_http_modelgw_verdict_rewrite(r, ctx);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_modelgw_forward_headers_in(r, ctx);
    }

    if (rc == NGX_OK) {
        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "modelgw verdict: \"%V\" as \"%V\"",
                       &ctx->service_id, &ctx->upstream_id);
        ctx->verdict = 1;
        ngx_http_modelgw_abort_watch(r, ctx);
    }

    /* large as it is, a stream must not keep it: what it has told is copied */

    (void) ngx_pfree(r->pool, ctx->scan);
    ctx->scan = NULL;

    return rc;
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

    if (ngx_modelgw_scan_done(ctx->scan) == NGX_OK) {
        return ngx_http_modelgw_verdict_required(r, ctx);
    }

    text.data = buf;
    code = "INVALID_JSON";

    if (ngx_modelgw_scan_fault(ctx->scan, &text) == NGX_MODELGW_SCAN_FIELD) {
        code = "INVALID_FIELD";
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST, code, "%V",
                                  &text);
}


static ngx_int_t
ngx_http_modelgw_verdict_required(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx)
{
    ngx_uint_t                 i, last;
    ngx_modelgw_scan_value_t  *v;

    last = NGX_HTTP_MODELGW_MESSAGES;

    if (ctx->endpoint->flags & NGX_HTTP_MODELGW_MAX_TOKENS) {
        last = NGX_HTTP_MODELGW_LIMIT;
    }

    for (i = 0; i <= last; i++) {

        if (i == NGX_HTTP_MODELGW_STREAMING) {
            continue;
        }

        v = ngx_modelgw_scan_value(ctx->scan, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT
            || v->type == NGX_MODELGW_SCAN_NULL)
        {
            return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                          "MISSING_FIELD", "\"%V\" is required",
                                          &ctx->scan_conf->watches[i].path);
        }
    }

    v = ngx_modelgw_scan_value(ctx->scan, NGX_HTTP_MODELGW_STREAMING);
    ctx->streaming = (v->type == NGX_MODELGW_SCAN_TRUE
                      && !(ctx->endpoint->flags & NGX_HTTP_MODELGW_COUNT));

    ctx->choices = 1;

    if (ctx->endpoint->protocol == NGX_MODELGW_CHAT) {
        v = ngx_modelgw_scan_value(ctx->scan, NGX_HTTP_MODELGW_CHOICES);

        if (v->type & NGX_MODELGW_SCAN_COUNT) {
            ctx->choices = ngx_max(ngx_atoi(v->text, v->len), 1);
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

    v = ngx_modelgw_scan_value(ctx->scan, NGX_HTTP_MODELGW_MODEL);

    id.data = v->text;
    id.len = v->len;

    if (id.len == 0 || id.len > NGX_MODELGW_SCAN_TEXT) {
        return ngx_http_modelgw_verdict_unknown(r, ctx, NULL);
    }

    rc = ngx_http_modelgw_model_find(r->pool, ctx->group, &id, &ctx->model,
                                     &ctx->upstream_id);
    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_DECLINED || !ngx_http_modelgw_model_enabled(ctx->key, &id)) {
        return ngx_http_modelgw_verdict_unknown(r, ctx, &id);
    }

    ctx->usage.input_has_cache = ctx->model->caps.usage_input_includes_cache;

    /* the id as JSON; ids need no escapes */

    p = ngx_pnalloc(r->pool, id.len + 2);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ctx->service_json.data = p;
    ctx->service_json.len = id.len + 2;
    ctx->service_id.data = p + 1;
    ctx->service_id.len = id.len;

    *p++ = '"';
    p = ngx_cpymem(p, id.data, id.len);
    *p = '"';

    return NGX_OK;
}


/*
 * One answer for what does not exist and what is not enabled; only that an id
 * belongs to another group's family is said, which its prefix tells anyway.
 */

static ngx_int_t
ngx_http_modelgw_verdict_unknown(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *id)
{
    ngx_http_modelgw_group_t      *group;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ctx->model = NULL;

    group = id ? ngx_http_modelgw_group_of_family(mmcf, id) : NULL;

    if (group != NULL && group != ctx->group) {
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
    ngx_str_t                  behind;
    ngx_uint_t                 n;
    ngx_chain_t               *out;
    ngx_modelgw_cut_t          cuts[2], model, *cut;
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(ctx->scan, NGX_HTTP_MODELGW_MODEL);

    n = ngx_http_modelgw_verdict_usage(ctx, &cuts[0], &behind);

    model.from = v->from;
    model.to = v->to;

    model.text.len = ctx->upstream_id.len + 2 + behind.len;
    model.text.data = ngx_pnalloc(r->pool, model.text.len);
    if (model.text.data == NULL) {
        return NGX_ERROR;
    }

    p = model.text.data;

    *p++ = '"';
    p = ngx_cpymem(p, ctx->upstream_id.data, ctx->upstream_id.len);
    *p++ = '"';
    ngx_memcpy(p, behind.data, behind.len);

    cut = &cuts[n];

    if (n && cuts[0].from > model.from) {
        cuts[1] = cuts[0];
        cut = &cuts[0];
    }

    *cut = model;
    n++;

    if (ngx_modelgw_splice(r->pool, r->request_body->bufs, cuts, n, &out,
                           &grown)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    r->request_body->bufs = out;
    r->headers_in.content_length_n += grown;

    return NGX_OK;
}


/*
 * A chat stream tells its usage only if asked to.  What is missing for that is
 * put where the client wrote "stream_options", or behind the model.  Returns
 * the number of cuts used, 0 or 1.
 */

static ngx_uint_t
ngx_http_modelgw_verdict_usage(ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_cut_t *cut, ngx_str_t *behind_model)
{
    ngx_modelgw_scan_value_t  *options, *usage;

    ngx_str_null(behind_model);

    if (ctx->protocol != NGX_MODELGW_CHAT || !ctx->streaming) {
        return 0;
    }

    options = ngx_modelgw_scan_value(ctx->scan,
                                     NGX_HTTP_MODELGW_STREAM_OPTIONS);
    usage = ngx_modelgw_scan_value(ctx->scan, NGX_HTTP_MODELGW_INCLUDE_USAGE);

    if (usage->type == NGX_MODELGW_SCAN_TRUE) {
        ctx->usage_asked = 1;
        return 0;
    }

    if (usage->type != NGX_MODELGW_SCAN_ABSENT) {
        cut->from = usage->from;
        cut->to = usage->to;
        ngx_str_set(&cut->text, "true");
        return 1;
    }

    if (options->type == NGX_MODELGW_SCAN_ABSENT) {
        ngx_str_set(behind_model, ",\"stream_options\":{"
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
