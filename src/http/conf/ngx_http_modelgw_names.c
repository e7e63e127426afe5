
/* Sets of header names, exact ones and prefixes. */


#include "ngx_http_modelgw_conf.h"


#define ngx_http_modelgw_names_slot(names, name)                              \
    (&(names)->first[(name)->data[0] & 0x1f])


void
ngx_http_modelgw_names_index(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *list)
{
    ngx_memzero(names, sizeof(ngx_http_modelgw_names_t));

    for ( /* void */ ; list->name.len; list++) {
        (void) ngx_http_modelgw_names_insert(names, list);
    }
}


ngx_int_t
ngx_http_modelgw_names_insert(ngx_http_modelgw_names_t *names,
    ngx_http_modelgw_name_t *name)
{
    ngx_http_modelgw_name_t  **first, **next;

    first = ngx_http_modelgw_names_slot(names, &name->name);

    for (next = first; *next; next = &(*next)->next) {

        if ((*next)->prefix == name->prefix
            && ngx_http_modelgw_names_same(&(*next)->name, &name->name))
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
ngx_http_modelgw_names_find(ngx_http_modelgw_names_t *names,
    ngx_str_t *name)
{
    ngx_str_t                 begin;
    ngx_http_modelgw_name_t  *n;

    if (name->len == 0) {
        return NULL;
    }

    begin.data = name->data;

    for (n = *ngx_http_modelgw_names_slot(names, name); n; n = n->next) {

        begin.len = n->prefix ? ngx_min(name->len, n->name.len) : name->len;

        if (begin.len == n->name.len
            && ngx_http_modelgw_names_same(&n->name, &begin))
        {
            return n;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_modelgw_names_same(ngx_str_t *lowcase, ngx_str_t *name)
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
ngx_http_modelgw_names_overlap(ngx_http_modelgw_name_t *a,
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

    return ngx_http_modelgw_names_same(&s, &t);
}
