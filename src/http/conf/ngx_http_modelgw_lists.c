
/*
 * The models= lists of keys.
 *
 * Many keys have one of few lists, so equal lists of a group are kept once and
 * found again by their text.  A group may be declared behind its keys, so a
 * list is checked when all is read, and then once for all keys that share it;
 * the message names the first of them.
 *
 * The tree is in cf->temp_pool, which nginx throws away when the configuration
 * is loaded; what keys point to is in the pool of the cycle.
 */


#include "ngx_http_modelgw.h"


typedef struct ngx_http_modelgw_list_s  ngx_http_modelgw_list_t;

struct ngx_http_modelgw_list_s {
    ngx_str_node_t                    sn;    /* "GROUP a,b" */
    ngx_http_modelgw_group_t         *group;
    ngx_array_t                      *models;  /* of ngx_str_t */
    ngx_http_modelgw_place_t          place;
    ngx_http_modelgw_list_t          *next;
};


struct ngx_http_modelgw_lists_s {
    ngx_rbtree_t                      rbtree;
    ngx_rbtree_node_t                 sentinel;
    ngx_http_modelgw_list_t          *first;
    ngx_pool_t                       *pool;  /* for what is kept */
};


static ngx_http_modelgw_list_t *ngx_http_modelgw_lists_add(ngx_pool_t *temp,
    ngx_http_modelgw_lists_t *lists, ngx_str_t *text, uint32_t hash);
static ngx_array_t *ngx_http_modelgw_lists_split(ngx_pool_t *pool,
    ngx_str_t *text);
static ngx_int_t ngx_http_modelgw_lists_check_one(ngx_conf_t *cf,
    ngx_http_modelgw_list_t *list);


ngx_int_t
ngx_http_modelgw_lists_init(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_http_modelgw_lists_t  *lists;

    lists = ngx_palloc(cf->temp_pool, sizeof(ngx_http_modelgw_lists_t));
    if (lists == NULL) {
        return NGX_ERROR;
    }

    ngx_rbtree_init(&lists->rbtree, &lists->sentinel,
                    ngx_str_rbtree_insert_value);

    lists->first = NULL;
    lists->pool = cf->pool;

    mmcf->lists = lists;

    return NGX_OK;
}


ngx_array_t *
ngx_http_modelgw_lists_get(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_group_t *group, ngx_str_t *value,
    ngx_http_modelgw_place_t *place)
{
    uint32_t                   hash;
    ngx_str_t                  text;
    ngx_http_modelgw_list_t   *list;

    text.data = ngx_pnalloc(cf->pool, group->name.len + 1 + value->len);
    if (text.data == NULL) {
        return NULL;
    }

    text.len = ngx_sprintf(text.data, "%V %V", &group->name, value) - text.data;

    hash = ngx_murmur_hash2(text.data, text.len);

    list = (ngx_http_modelgw_list_t *)
               ngx_str_rbtree_lookup(&mmcf->lists->rbtree, &text, hash);

    if (list) {
        return list->models;
    }

    list = ngx_http_modelgw_lists_add(cf->temp_pool, mmcf->lists, &text, hash);
    if (list == NULL) {
        return NULL;
    }

    list->group = group;
    list->place = *place;
    list->models = ngx_http_modelgw_lists_split(mmcf->lists->pool, value);

    return list->models;
}


static ngx_http_modelgw_list_t *
ngx_http_modelgw_lists_add(ngx_pool_t *temp, ngx_http_modelgw_lists_t *lists,
    ngx_str_t *text, uint32_t hash)
{
    ngx_http_modelgw_list_t  *list;

    list = ngx_palloc(temp, sizeof(ngx_http_modelgw_list_t));
    if (list == NULL) {
        return NULL;
    }

    list->sn.node.key = hash;
    list->sn.str.len = text->len;
    list->sn.str.data = ngx_pstrdup(temp, text);
    if (list->sn.str.data == NULL) {
        return NULL;
    }

    ngx_rbtree_insert(&lists->rbtree, &list->sn.node);

    list->next = lists->first;
    lists->first = list;

    return list;
}


/* "a,b" as an array of ngx_str_t */

static ngx_array_t *
ngx_http_modelgw_lists_split(ngx_pool_t *pool, ngx_str_t *text)
{
    u_char       *p, *last;
    ngx_str_t    *name;
    ngx_uint_t    n;
    ngx_array_t  *names;

    n = 1;

    for (p = text->data; p < text->data + text->len; p++) {
        n += (*p == ',');
    }

    names = ngx_array_create(pool, n, sizeof(ngx_str_t));
    if (names == NULL) {
        return NULL;
    }

    p = ngx_pstrdup(pool, text);
    if (p == NULL) {
        return NULL;
    }

    last = p + text->len;

    while (n--) {
        name = ngx_array_push(names);
        if (name == NULL) {
            return NULL;
        }

        name->data = p;

        while (p < last && *p != ',') {
            p++;
        }

        name->len = p++ - name->data;
    }

    return names;
}


ngx_int_t
ngx_http_modelgw_lists_check(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_http_modelgw_list_t  *list;

    if (mmcf->lists == NULL) {
        return NGX_OK;
    }

    for (list = mmcf->lists->first; list; list = list->next) {
        if (ngx_http_modelgw_lists_check_one(cf, list) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    mmcf->lists = NULL;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_lists_check_one(ngx_conf_t *cf,
    ngx_http_modelgw_list_t *list)
{
    ngx_int_t                  rc;
    ngx_str_t                 *name, upstream_id;
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    name = list->models->elts;

    for (i = 0; i < list->models->nelts; i++) {

        rc = ngx_http_modelgw_model_find(cf->temp_pool, list->group, &name[i],
                                         &model, &upstream_id);
        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" in \"models=\" is not one of group "
                          "\"%V\", in %s:%ui", &name[i], &list->group->name,
                          list->place.file, list->place.line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
