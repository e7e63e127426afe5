
/*
 * A key that operators have made, for a request: copied from shared memory,
 * with what the configuration in force has for it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_MANAGED_LOG  60        /* seconds */


static ngx_uint_t ngx_http_modelgw_managed_late(
    ngx_http_modelgw_main_conf_t *mmcf);
static void ngx_http_modelgw_managed_limits(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_key_t *key);
static void ngx_http_modelgw_managed_log(ngx_http_request_t *r,
    ngx_modelgw_managed_key_t *managed);


ngx_int_t
ngx_http_modelgw_managed(ngx_http_request_t *r,
    ngx_http_modelgw_main_conf_t *mmcf, u_char *digest,
    ngx_modelgw_key_t **key)
{
    ngx_int_t                    rc;
    ngx_str_t                    id;
    ngx_modelgw_managed_key_t   *managed;

    managed = ngx_palloc(r->pool, sizeof(ngx_modelgw_managed_key_t));
    if (managed == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_modelgw_managed_find(mmcf->managed, digest, managed);

    if (rc != NGX_OK) {
        return (rc == NGX_DECLINED && ngx_http_modelgw_managed_late(mmcf))
               ? NGX_BUSY : rc;
    }

    id.len = managed->id.len;
    id.data = managed->id.data;

    /* the configuration wins */

    if (ngx_modelgw_keys_named(mmcf->keys, &id)) {
        return NGX_DECLINED;
    }

    *key = ngx_http_modelgw_managed_key(r->pool, mmcf, managed);
    if (*key == NULL) {
        return NGX_ERROR;
    }

    if ((*key)->revoked) {
        return NGX_OK;
    }

    if ((*key)->group == NULL) {
        ngx_http_modelgw_managed_log(r, managed);
        return NGX_OK;
    }

    ngx_http_modelgw_managed_limits(mmcf, *key);

    (*key)->cell = ngx_http_modelgw_zone_metrics_key(mmcf, &(*key)->id);

    return NGX_OK;
}


/* whether a key that is not known here may be one that the cluster has */

static ngx_uint_t
ngx_http_modelgw_managed_late(ngx_http_modelgw_main_conf_t *mmcf)
{
    return mmcf->cluster
           && !__atomic_load_n(&ngx_modelgw_node(mmcf->ledger)->current,
                               __ATOMIC_ACQUIRE);
}


ngx_int_t
ngx_http_modelgw_managed_again(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_key_t *key)
{
    ngx_int_t                  rc;
    ngx_modelgw_managed_key_t  managed;

    rc = ngx_modelgw_managed_find(mmcf->managed, key->digest, &managed);

    if (rc != NGX_OK) {
        return rc;
    }

    key->expires = managed.expires;

    return (managed.state == NGX_MODELGW_KEY_REVOKED) ? NGX_DECLINED : NGX_OK;
}


ngx_modelgw_key_t *
ngx_http_modelgw_managed_key(ngx_pool_t *pool,
    ngx_http_modelgw_main_conf_t *mmcf, ngx_modelgw_managed_key_t *managed)
{
    ngx_str_t           models;
    ngx_modelgw_key_t  *key;

    key = ngx_pcalloc(pool, sizeof(ngx_modelgw_key_t));
    if (key == NULL) {
        return NULL;
    }

    key->id.len = managed->id.len;
    key->id.data = managed->id.data;
    key->account.len = managed->account.len;
    key->account.data = managed->account.data;
    key->expires = managed->expires;
    key->rpm = managed->rpm;
    key->tpm = managed->tpm;
    key->concurrency = managed->concurrency;
    key->budget = managed->budget;
    key->window = managed->window;
    key->managed = 1;
    key->revoked = (managed->state == NGX_MODELGW_KEY_REVOKED);

    ngx_memcpy(key->digest, managed->digest, NGX_MODELGW_KEY_DIGEST);

    if (managed->models_len) {
        models.len = managed->models_len;
        models.data = managed->models;

        key->models = ngx_http_modelgw_keys_models(pool, &models);
        if (key->models == NULL) {
            return NULL;
        }
    }

    key->slot = NGX_MODELGW_LEDGER_NONE;
    key->account_index = NGX_MODELGW_LEDGER_NONE;

    key->group = ngx_http_modelgw_group_find(mmcf, managed->group.data,
                                             managed->group.len);

    return key;
}


/* As ngx_http_modelgw_zone_key() does it for keys of the configuration. */

static void
ngx_http_modelgw_managed_limits(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_key_t *key)
{
    if (ngx_http_modelgw_keys_limited(key)
        && ngx_modelgw_ledger_key(mmcf->ledger, &key->id, &key->slot)
           != NGX_OK)
    {
        key->slot = NGX_MODELGW_LEDGER_NONE;
    }

    if (ngx_modelgw_ledger_account(mmcf->ledger, &key->account, 0, 0, 0, 0,
                                   &key->account_index)
        != NGX_OK)
    {
        key->account_index = NGX_MODELGW_LEDGER_NONE;
    }
}


/* once a minute and worker */

static void
ngx_http_modelgw_managed_log(ngx_http_request_t *r,
    ngx_modelgw_managed_key_t *managed)
{
    ngx_str_t      id, group;

    static time_t  next;

    if (ngx_time() < next) {
        return;
    }

    next = ngx_time() + NGX_HTTP_MODELGW_MANAGED_LOG;

    id.len = managed->id.len;
    id.data = managed->id.data;
    group.len = managed->group.len;
    group.data = managed->group.data;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "group \"%V\" of key \"%V\" is not configured", &group, &id);
}
