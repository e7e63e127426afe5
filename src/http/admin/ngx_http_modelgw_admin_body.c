
/*
 * The body of a request that changes something: one small JSON object with
 * known fields, each at most once, and nothing else.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_scan.h"

#include "ngx_http_modelgw_admin.h"
#include "ngx_http_modelgw_conf.h"


static ngx_int_t ngx_http_modelgw_admin_body_text(
    ngx_http_modelgw_change_t *c);
static ngx_int_t ngx_http_modelgw_admin_body_check(
    ngx_http_modelgw_change_t *c);
static ngx_uint_t ngx_http_modelgw_admin_body_known(
    ngx_http_modelgw_change_kind_t *kind, ngx_str_t *name);
static ngx_int_t ngx_http_modelgw_admin_body_required(
    ngx_http_modelgw_change_t *c);


ngx_int_t
ngx_http_modelgw_admin_body(ngx_http_modelgw_change_t *c)
{
    u_char                     buf[NGX_MODELGW_SCAN_FAULT_LEN];
    ngx_int_t                  rc;
    ngx_str_t                  fault;
    const char                *code;
    ngx_http_request_t        *r;
    ngx_modelgw_scan_conf_t    conf;

    r = c->request;

    rc = ngx_http_modelgw_admin_body_text(c);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_memzero(&conf, sizeof(ngx_modelgw_scan_conf_t));

    conf.watches = c->kind->fields;
    conf.nwatches = c->kind->nfields;
    conf.check = 1;
    conf.skip = c->mmcf->skip;

    c->scan = ngx_modelgw_scan_create(r->pool, &conf);
    if (c->scan == NULL) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_scan_feed(c->scan, c->body.data, c->body.len) == NGX_OK
        && ngx_modelgw_scan_done(c->scan) == NGX_OK)
    {
        rc = ngx_http_modelgw_admin_body_check(c);

        return (rc == NGX_OK) ? ngx_http_modelgw_admin_body_required(c) : rc;
    }

    fault.data = buf;
    code = "INVALID_JSON";

    if (ngx_modelgw_scan_fault(c->scan, &fault) == NGX_MODELGW_SCAN_FIELD) {
        code = "INVALID_FIELD";
    }

    return ngx_http_modelgw_error(r, c->ctx, NGX_HTTP_BAD_REQUEST, code, "%V",
                                  &fault);
}


/* the limits of the location keep the body small and in memory */

static ngx_int_t
ngx_http_modelgw_admin_body_text(ngx_http_modelgw_change_t *c)
{
    size_t               len;
    u_char              *p;
    ngx_chain_t         *cl, *bufs;
    ngx_http_request_t  *r;

    r = c->request;

    len = 0;
    bufs = r->request_body ? r->request_body->bufs : NULL;

    for (cl = bufs; cl; cl = cl->next) {

        if (cl->buf->in_file) {
            return NGX_ERROR;
        }

        len += cl->buf->last - cl->buf->pos;
    }

    if (len == 0 && c->kind->required == 0) {
        ngx_str_set(&c->body, "{}");
        return NGX_OK;
    }

    if (len == 0) {
        return ngx_http_modelgw_error(r, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_JSON", "The body is empty");
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    c->body.data = p;
    c->body.len = len;

    for (cl = bufs; cl; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    return NGX_OK;
}


/*
 * The scanner ignores fields that it does not watch; here they are refused.
 * The text is one valid object, so its keys are the strings before ":" at depth
 * 1; a key written with escapes is refused, too.
 */

static ngx_int_t
ngx_http_modelgw_admin_body_check(ngx_http_modelgw_change_t *c)
{
    u_char      *p, *last;
    ngx_str_t    string;
    ngx_uint_t   depth;

    depth = 0;
    ngx_str_null(&string);

    last = c->body.data + c->body.len;

    for (p = c->body.data; p < last; p++) {

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
                && !ngx_http_modelgw_admin_body_known(c->kind, &string))
            {
                string.len = ngx_min(string.len, 64);

                return ngx_http_modelgw_error(c->request, c->ctx,
                                              NGX_HTTP_BAD_REQUEST,
                                              "INVALID_FIELD",
                                              "Unknown field \"%V\"",
                                              &string);
            }

            break;
        }
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_modelgw_admin_body_known(ngx_http_modelgw_change_kind_t *kind,
    ngx_str_t *name)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_watch_t  *field;

    field = kind->fields;

    for (i = 0; i < kind->nfields; i++) {

        if (field[i].path.len == name->len
            && ngx_memcmp(field[i].path.data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_modelgw_admin_body_required(ngx_http_modelgw_change_t *c)
{
    ngx_uint_t                 i;
    ngx_modelgw_scan_value_t  *v;

    for (i = 0; i < c->kind->required; i++) {
        v = ngx_modelgw_scan_value(c->scan, i);

        if (v->type == NGX_MODELGW_SCAN_ABSENT) {
            return ngx_http_modelgw_error(c->request, c->ctx,
                                          NGX_HTTP_BAD_REQUEST,
                                          "MISSING_FIELD", "\"%V\" is required",
                                          &c->kind->fields[i].path);
        }
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_modelgw_admin_field(ngx_http_modelgw_change_t *c, ngx_uint_t i,
    ngx_str_t *text)
{
    ngx_modelgw_scan_value_t  *v;

    v = ngx_modelgw_scan_value(c->scan, i);

    if (v->type != NGX_MODELGW_SCAN_STRING) {
        ngx_str_null(text);
        return 0;
    }

    text->len = v->len;
    text->data = v->text;

    return 1;
}


ngx_int_t
ngx_http_modelgw_admin_note(ngx_http_modelgw_change_t *c, ngx_uint_t i)
{
    ngx_str_t  text;

    if (!ngx_http_modelgw_admin_field(c, i, &text)) {
        return NGX_OK;
    }

    if (text.len > NGX_MODELGW_LEDGER_NOTE) {
        return ngx_http_modelgw_error(c->request, c->ctx, NGX_HTTP_BAD_REQUEST,
                                      "INVALID_FIELD",
                                      "\"%V\" must be at most %d bytes",
                                      &c->kind->fields[i].path,
                                      NGX_MODELGW_LEDGER_NOTE);
    }

    c->asked.note_len = (uint32_t) text.len;
    ngx_memcpy(c->asked.note, text.data, text.len);

    c->asked.sets |= NGX_MODELGW_CHANGE_NOTE;

    return NGX_OK;
}
