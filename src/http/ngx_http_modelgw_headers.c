
/*
 * Walking over lists of headers.  We walk ourselves where it matters: of
 * several headers of one name nginx has only some at hand, which ones depends
 * on its version, and a few, like Connection, it does not keep at all.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_modelgw_headers.h"


#define ngx_http_modelgw_headers_slot(names, name)                            \
    (&(names)->first[(name)->data[0] & 0x1f])


ngx_uint_t
ngx_http_modelgw_headers_equal(u_char *text, u_char *lowcase, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {

        /* most bytes need no change */

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


void
ngx_http_modelgw_headers_index(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *list)
{
    ngx_memzero(names, sizeof(ngx_http_modelgw_names_t));

    for ( /* void */ ; list->name.len; list++) {
        (void) ngx_http_modelgw_headers_insert(names, list);
    }
}


ngx_int_t
ngx_http_modelgw_headers_insert(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *name)
{
    ngx_http_modelgw_name_t  **first, **next;

    first = ngx_http_modelgw_headers_slot(names, &name->name);

    for (next = first; *next; next = &(*next)->next) {

        if ((*next)->prefix == name->prefix
            && ngx_http_modelgw_headers_same(&(*next)->name, &name->name))
        {
            return NGX_DECLINED;
        }
    }

    if (name->prefix) {
        first = next;
    }

    name->next = *first;
    *first = name;

    return NGX_OK;
}


ngx_http_modelgw_name_t *
ngx_http_modelgw_headers_listed(ngx_http_modelgw_names_t *names,
    ngx_str_t *name)
{
    ngx_str_t                 begin;
    ngx_http_modelgw_name_t  *n;

    if (name->len == 0) {
        return NULL;
    }

    begin.data = name->data;

    for (n = *ngx_http_modelgw_headers_slot(names, name); n; n = n->next) {

        begin.len = n->prefix ? ngx_min(name->len, n->name.len) : name->len;

        if (begin.len == n->name.len
            && ngx_http_modelgw_headers_same(&n->name, &begin))
        {
            return n;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_modelgw_headers_overlap(ngx_http_modelgw_name_t *a,
    ngx_http_modelgw_name_t *b)
{
    ngx_str_t  s, t;

    s = a->name;
    t = b->name;

    if (b->prefix) {
        s.len = ngx_min(s.len, b->name.len);
    }

    if (a->prefix) {
        t.len = ngx_min(t.len, a->name.len);
    }

    return ngx_http_modelgw_headers_same(&s, &t);
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
        c = name->data[i];

        if (c == lowcase->data[i]) {
            continue;
        }

        c = ngx_tolower(c);

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
        if (value->data[i] == secret->data[0]
            && ngx_memcmp(value->data + i, secret->data, secret->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* RFC 6455, 4.1; in HTTP/1.0 and HTTP/2 the header means nothing */

ngx_uint_t
ngx_http_modelgw_headers_websocket(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = r->headers_in.upgrade;

    return r->method == NGX_HTTP_GET
           && r->http_version == NGX_HTTP_VERSION_11
           && h != NULL
           && ngx_strcasestrn(h->value.data, "websocket", 9 - 1) != NULL;
}
