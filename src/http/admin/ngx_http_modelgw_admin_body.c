
/*
 * The body of an admin request: one small JSON object with fields that are
 * known, each at most once, and nothing else.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_admin.h"


static ngx_int_t ngx_http_modelgw_admin_body_text(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *text);
static ngx_int_t ngx_http_modelgw_admin_body_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *text);
static ngx_uint_t ngx_http_modelgw_admin_body_known(
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *name);


ngx_int_t
ngx_http_modelgw_admin_body(ngx_http_request_t *r, ngx_http_modelgw_ctx_t *ctx,
    ngx_modelgw_scan_watch_t *fields, ngx_uint_t n)
{
    u_char                         buf[NGX_MODELGW_SCAN_FAULT_LEN];
    ngx_int_t                      rc;
    ngx_str_t                      text, fault;
    const char                    *code;
    ngx_modelgw_scan_conf_t        conf;
    ngx_modelgw_scan_plan_t       *plan;
    ngx_http_modelgw_main_conf_t  *mmcf;

    ngx_str_null(&text);

    rc = ngx_http_modelgw_admin_body_text(r, ctx, &text);
    if (rc != NGX_OK) {
        return rc;
    }

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_modelgw_module);

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));

    conf.watches = fields;
    conf.nwatches = n;
    conf.check = 1;
    conf.skip = mmcf->skip;

    plan = ngx_modelgw_scan_plan(r->pool, &conf);
    if (plan == NULL) {
        return NGX_ERROR;
    }

    ctx->scan_conf = ngx_modelgw_scan_conf(plan);

    ctx->scan = ngx_modelgw_scan_make(r->pool, plan);
    if (ctx->scan == NULL) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_scan_feed(ctx->scan, text.data, text.len) == NGX_OK
        && ngx_modelgw_scan_done(ctx->scan) == NGX_OK)
    {
        return ngx_http_modelgw_admin_body_check(r, ctx, &text);
    }

    fault.data = buf;
    code = "INVALID_JSON";

    if (ngx_modelgw_scan_fault(ctx->scan, &fault) == NGX_MODELGW_SCAN_FIELD) {
        code = "INVALID_FIELD";
    }

    return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST, code, "%V",
                                  &fault);
}


/* the location's limits keep it short, and in memory */

static ngx_int_t
ngx_http_modelgw_admin_body_text(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *text)
{
    size_t        len;
    u_char       *p;
    ngx_chain_t  *cl, *bufs;

    len = 0;
    bufs = r->request_body ? r->request_body->bufs : NULL;

    for (cl = bufs; cl; cl = cl->next) {

        if (cl->buf->in_file) {
            return NGX_ERROR;
        }

        len += cl->buf->last - cl->buf->pos;
    }

    if (len == 0) {
        return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_JSON", "The body is empty");
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;
    text->len = len;

    for (cl = bufs; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    return NGX_OK;
}


/*
 * The scanner lets fields pass that it does not watch; here nothing may.  The
 * text is one valid object, so its keys are the strings before a ":" at its own
 * level, written as we write them.
 */

static ngx_int_t
ngx_http_modelgw_admin_body_check(ngx_http_request_t *r,
    ngx_http_modelgw_ctx_t *ctx, ngx_str_t *text)
{
    u_char      *p, *last;
    ngx_str_t    string;
    ngx_uint_t   depth;

    depth = 0;
    ngx_str_null(&string);

    last = text->data + text->len;

    for (p = text->data; p < last; p++) {

        switch (*p) {

        case '{':
        case '[':
            depth++;
            break;

        case '}':
        case ']':
            depth--;
            break;

        case '"':
            string.data = ++p;

            while (*p != '"') {
                p += (*p == '\\') ? 2 : 1;
            }

            string.len = p - string.data;
            break;

        case ':':
            if (depth == 1
                && !ngx_http_modelgw_admin_body_known(ctx, &string))
            {
                string.len = ngx_min(string.len, 64);

                return ngx_http_modelgw_error(r, ctx, NGX_HTTP_BAD_REQUEST,
                                              "INVALID_FIELD",
                                              "\"%V\" is no field of this",
                                              &string);
            }

            break;
        }
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_modelgw_admin_body_known(ngx_http_modelgw_ctx_t *ctx, ngx_str_t *name)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_watch_t  *w;

    w = ctx->scan_conf->watches;

    for (i = 0; i < ctx->scan_conf->nwatches; i++) {

        if (w[i].path.len == name->len
            && ngx_memcmp(w[i].path.data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}
