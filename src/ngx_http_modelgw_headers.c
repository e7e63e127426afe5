
/*
 * Walking over lists of headers.  We walk ourselves where it matters: of
 * several headers of one name nginx has only some at hand, which ones depends
 * on its version, and a few, like Connection, it does not keep at all.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_headers.h"


void
ngx_http_modelgw_headers_init(ngx_http_modelgw_headers_t *hs, ngx_list_t *list)
{
    hs->part = &list->part;
    hs->i = 0;
}


ngx_table_elt_t *
ngx_http_modelgw_headers_next(ngx_http_modelgw_headers_t *hs)
{
    ngx_table_elt_t  *h;

    while (hs->i >= hs->part->nelts) {

        if (hs->part->next == NULL) {
            return NULL;
        }

        hs->part = hs->part->next;
        hs->i = 0;
    }

    h = hs->part->elts;

    return &h[hs->i++];
}


ngx_uint_t
ngx_http_modelgw_headers_is(ngx_table_elt_t *h, const char *name)
{
    size_t  len;

    len = ngx_strlen(name);

    return h->key.len == len
           && ngx_strncasecmp(h->key.data, (u_char *) name, len) == 0;
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


void
ngx_http_modelgw_headers_take(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    ngx_table_elt_t             *h;
    ngx_http_modelgw_headers_t   hs;

    ngx_str_null(value);

    ngx_http_modelgw_headers_init(&hs, &r->headers_out.headers);

    while ((h = ngx_http_modelgw_headers_next(&hs)) != NULL) {

        if (h->hash && ngx_http_modelgw_headers_is(h, name)) {
            *value = h->value;
            h->hash = 0;
        }
    }
}


ngx_uint_t
ngx_http_modelgw_headers_listed(ngx_str_t *list, ngx_str_t *name)
{
    ngx_str_t  begin;

    for ( /* void */ ; list->len; list++) {

        begin = *name;

        if (list->data[list->len - 1] == '-') {
            begin.len = ngx_min(begin.len, list->len);
        }

        if (ngx_http_modelgw_headers_same(list, &begin)) {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_http_modelgw_headers_same(ngx_str_t *lowcase, ngx_str_t *name)
{
    u_char      c;
    ngx_uint_t  i;

    if (name->len != lowcase->len) {
        return 0;
    }

    for (i = 0; i < name->len; i++) {
        c = ngx_tolower(name->data[i]);

        if (c == '_') {
            c = '-';
        }

        if (c != lowcase->data[i]
            && (c != '-' || lowcase->data[i] != '_'))
        {
            return 0;
        }
    }

    return 1;
}


ngx_uint_t
ngx_http_modelgw_headers_holds(ngx_str_t *value, ngx_str_t *secret)
{
    size_t  i;

    for (i = 0; i + secret->len <= value->len && secret->len; i++) {
        if (ngx_memcmp(value->data + i, secret->data, secret->len) == 0) {
            return 1;
        }
    }

    return 0;
}
