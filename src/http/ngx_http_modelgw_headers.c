
/*
 * Lists of headers.  They are walked rather than read by headers_in.X: nginx
 * links only some of several headers of one name, depending on its version, and
 * a few, like Connection, not at all.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_headers.h"


ngx_uint_t
ngx_http_modelgw_headers_equal(u_char *text, u_char *lowcase, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {

        if (text[i] != lowcase[i] && ngx_tolower(text[i]) != lowcase[i]) {
            return 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_http_modelgw_headers_add(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key.len = ngx_strlen(name);
    h->key.data = (u_char *) name;
    h->value = *value;

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_headers_no_store(ngx_http_request_t *r)
{
    ngx_str_t  value = ngx_string("no-store");

    return ngx_http_modelgw_headers_add(r, "Cache-Control", &value);
}


void
ngx_http_modelgw_headers_take(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    size_t                       len;
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    len = ngx_strlen(name);
    ngx_str_null(value);

    ngx_http_modelgw_headers_init(&hs, &r->headers_out.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (h->hash
            && ngx_http_modelgw_headers_text_is(&h->key, (u_char *) name, len))
        {
            *value = h->value;
            h->hash = 0;
        }
    }
}


ngx_uint_t
ngx_http_modelgw_headers_holds(ngx_str_t *value, ngx_str_t *secret)
{
    size_t  i;

    for (i = 0; i + secret->len <= value->len && secret->len; i++) {
        if (value->data[i] == secret->data[0]
            && ngx_memcmp(value->data + i, secret->data, secret->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}
