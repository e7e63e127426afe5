
/*
 * Keys as they are configured: what an operator must know to answer a customer,
 * and nothing that lets anybody in.  Not even the hash is told.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_document.h"

#include "ngx_http_modelgw_admin.h"


#define NGX_HTTP_MODELGW_KEYS_HEAD  "{\"keys\":["
#define NGX_HTTP_MODELGW_KEYS_TAIL  "]}"

/* of an object, but for its texts and models */
#define NGX_HTTP_MODELGW_KEY_LEN                                              \
    (sizeof("{'id':,'group':,'account':,'models':[],'rpm':,'tpm':,"           \
            "'concurrency':,'expires':'9999-12-31'},") - 1                    \
     + 3 * NGX_INT32_LEN)


static size_t ngx_http_modelgw_admin_key_len(ngx_modelgw_key_t *key);
static u_char *ngx_http_modelgw_admin_key_write(u_char *p,
    ngx_modelgw_key_t *key);
static u_char *ngx_http_modelgw_admin_key_models(u_char *p,
    ngx_array_t *models);
static u_char *ngx_http_modelgw_admin_key_limit(u_char *p, const char *name,
    uint32_t own, uint32_t group);


ngx_int_t
ngx_http_modelgw_admin_keys(ngx_http_modelgw_job_t *job,
    ngx_modelgw_store_t *store)
{
    size_t                    len;
    u_char                   *p;
    ngx_modelgw_key_t        *key;
    ngx_modelgw_keys_t       *keys;
    ngx_modelgw_keys_pos_t    pos;

    keys = job->mmcf->keys;

    len = sizeof(NGX_HTTP_MODELGW_KEYS_HEAD NGX_HTTP_MODELGW_KEYS_TAIL) - 1;

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    while (keys && (key = ngx_modelgw_keys_next(keys, &pos)) != NULL) {
        len += ngx_http_modelgw_admin_key_len(key);
    }

    p = ngx_pnalloc(job->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    job->body.data = p;

    p = ngx_cpymem(p, NGX_HTTP_MODELGW_KEYS_HEAD,
                   sizeof(NGX_HTTP_MODELGW_KEYS_HEAD) - 1);

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    while (keys && (key = ngx_modelgw_keys_next(keys, &pos)) != NULL) {

        if (p[-1] != '[') {
            *p++ = ',';
        }

        p = ngx_http_modelgw_admin_key_write(p, key);
    }

    p = ngx_cpymem(p, NGX_HTTP_MODELGW_KEYS_TAIL,
                   sizeof(NGX_HTTP_MODELGW_KEYS_TAIL) - 1);

    job->body.len = p - job->body.data;

    return NGX_OK;
}


static size_t
ngx_http_modelgw_admin_key_len(ngx_modelgw_key_t *key)
{
    size_t                     len;
    ngx_str_t                 *model;
    ngx_uint_t                 i;
    ngx_http_modelgw_group_t  *group;

    group = key->group;

    len = NGX_HTTP_MODELGW_KEY_LEN
          + ngx_modelgw_json_str_len(&key->id)
          + ngx_modelgw_json_str_len(&group->name)
          + ngx_modelgw_json_str_len(&key->account);

    if (key->models) {
        model = key->models->elts;

        for (i = 0; i < key->models->nelts; i++) {
            len += ngx_modelgw_json_str_len(&model[i]) + 1;
        }
    }

    return len;
}


static u_char *
ngx_http_modelgw_admin_key_write(u_char *p, ngx_modelgw_key_t *key)
{
    struct tm                  tm;
    ngx_http_modelgw_group_t  *group;

    group = key->group;

    p = ngx_sprintf(p, "{\"id\":");
    p = ngx_modelgw_json_str(p, &key->id);
    p = ngx_sprintf(p, ",\"group\":");
    p = ngx_modelgw_json_str(p, &group->name);
    p = ngx_sprintf(p, ",\"account\":");
    p = ngx_modelgw_json_str(p, &key->account);
    p = ngx_sprintf(p, ",\"models\":");
    p = ngx_http_modelgw_admin_key_models(p, key->models);

    p = ngx_http_modelgw_admin_key_limit(p, "rpm", key->rpm, group->rpm);
    p = ngx_http_modelgw_admin_key_limit(p, "tpm", key->tpm, group->tpm);
    p = ngx_http_modelgw_admin_key_limit(p, "concurrency", key->concurrency,
                                         group->concurrency);

    if (key->expires == 0 || gmtime_r(&key->expires, &tm) == NULL) {
        return ngx_sprintf(p, ",\"expires\":null}");
    }

    return ngx_sprintf(p, ",\"expires\":\"%04d-%02d-%02d\"}",
                       tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
}


/* null: all of the group */

static u_char *
ngx_http_modelgw_admin_key_models(u_char *p, ngx_array_t *models)
{
    ngx_str_t   *model;
    ngx_uint_t   i;

    if (models == NULL) {
        return ngx_cpymem(p, "null", sizeof("null") - 1);
    }

    model = models->elts;

    *p++ = '[';

    for (i = 0; i < models->nelts; i++) {

        if (i) {
            *p++ = ',';
        }

        p = ngx_modelgw_json_str(p, &model[i]);
    }

    *p++ = ']';

    return p;
}


/* as it is in force: the key's own, else its group's; null: none */

static u_char *
ngx_http_modelgw_admin_key_limit(u_char *p, const char *name, uint32_t own,
    uint32_t group)
{
    uint32_t  limit;

    limit = own ? own : group;

    if (limit == 0) {
        return ngx_sprintf(p, ",\"%s\":null", name);
    }

    return ngx_sprintf(p, ",\"%s\":%uD", name, limit);
}
