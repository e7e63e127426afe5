
/*
 * The zone of keys that operators make while nginx runs, see
 * ngx_modelgw_managed.h: kept over a reload, filled from the store when nginx
 * starts, changed by the writer.
 *
 * The configuration wins over an id or a digest that it has, too.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_managed.h"
#include "ngx_modelgw_store.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_MANAGED_MAX  1000000


static ngx_int_t ngx_http_modelgw_zone_keys_init(ngx_shm_zone_t *zone,
    void *data);
static ngx_int_t ngx_http_modelgw_zone_keys_add(void *data,
    ngx_modelgw_managed_key_t *key);


char *
ngx_http_modelgw_set_managed(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_int_t   n;
    ngx_str_t  *value;

    if (mmcf->managed_place.file) {
        return "is duplicate";
    }

    value = cf->args->elts;

    n = ngx_atoi(value[1].data, value[1].len);

    if (n < 0 || n > NGX_HTTP_MODELGW_MANAGED_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number of keys \"%V\": it is at most %d",
                           &value[1], NGX_HTTP_MODELGW_MANAGED_MAX);
        return NGX_CONF_ERROR;
    }

    mmcf->managed_max = n;
    mmcf->managed_place.file = cf->conf_file->file.name.data;
    mmcf->managed_place.line = cf->conf_file->line;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_modelgw_zone_keys_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    size_t     size;
    ngx_str_t  name = ngx_string("modelgw_keys");

    if (mmcf->managed_max == 0) {
        return NGX_OK;
    }

    if (mmcf->ledger_path.len == 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_managed_keys\" but no \"modelgw_ledger\" in "
                      "http, in %s:%ui", mmcf->managed_place.file,
                      mmcf->managed_place.line);
        return NGX_ERROR;
    }

    if (mmcf->keys == NULL) {
        mmcf->keys = ngx_modelgw_keys_create(cf->pool, cf->temp_pool);

        if (mmcf->keys == NULL
            || ngx_modelgw_keys_ready(mmcf->keys) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_modelgw_keys_index(mmcf->keys) != NGX_OK) {
        return NGX_ERROR;
    }

    /* with what the slab pool itself needs */

    size = ngx_modelgw_managed_size(mmcf->managed_max);
    size = ngx_align(size + size / 64, ngx_pagesize) + 8 * ngx_pagesize;

    mmcf->managed_zone = ngx_shared_memory_add(cf, &name, size,
                                               &ngx_http_modelgw_module);
    if (mmcf->managed_zone == NULL) {
        return NGX_ERROR;
    }

    mmcf->managed_zone->init = ngx_http_modelgw_zone_keys_init;
    mmcf->managed_zone->data = mmcf;

    return NGX_OK;
}


/* nginx creates this zone before "modelgw", which is filled from the store */

static ngx_int_t
ngx_http_modelgw_zone_keys_init(ngx_shm_zone_t *zone, void *data)
{
    u_char                        *p;
    ngx_slab_pool_t               *shpool;
    ngx_http_modelgw_main_conf_t  *mmcf, *old;

    old = data;
    mmcf = zone->data;

    if (old) {
        mmcf->managed = old->managed;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    p = ngx_slab_calloc(shpool, ngx_modelgw_managed_size(mmcf->managed_max));
    if (p == NULL) {
        return NGX_ERROR;
    }

    mmcf->managed = ngx_modelgw_managed_create(p, mmcf->managed_max);

    return NGX_OK;
}


ngx_int_t
ngx_http_modelgw_zone_keys_same(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log)
{
    if (mmcf->managed == mmcf->shared->managed) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, log, 0,
                  "\"modelgw_managed_keys\" cannot be added, removed or "
                  "changed by a reload: stop nginx, then start it");

    return NGX_ERROR;
}


ngx_int_t
ngx_http_modelgw_zone_keys_load(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_store_t *store, ngx_modelgw_store_error_t *error,
    ngx_log_t *log)
{
    u_char      *p;
    ngx_uint_t   n;

    if (ngx_modelgw_store_keys_count(store, time(NULL), &n) != NGX_OK) {
        return NGX_ERROR;
    }

    if (mmcf->managed == NULL) {

        if (n) {
            ngx_log_error(NGX_LOG_WARN, log, 0,
                          "the ledger has %ui keys that are refused: they need "
                          "\"modelgw_managed_keys\"", n);
        }

        return NGX_OK;
    }

    if (n > mmcf->managed_max) {
        p = ngx_snprintf(error->data, NGX_MODELGW_STORE_ERROR,
                         "the ledger has %ui keys, more than "
                         "\"modelgw_managed_keys %ui\"",
                         n, mmcf->managed_max);

        error->len = p - error->data;

        return NGX_ERROR;
    }

    return ngx_http_modelgw_zone_keys_fill(mmcf->managed, store);
}


ngx_int_t
ngx_http_modelgw_zone_keys_fill(ngx_modelgw_managed_t *m,
    ngx_modelgw_store_t *store)
{
    ngx_int_t  rc;

    ngx_modelgw_managed_begin(m);

    rc = ngx_modelgw_store_keys(store, NULL, time(NULL),
                                ngx_http_modelgw_zone_keys_add, m);

    if (rc == NGX_OK) {
        ngx_modelgw_managed_end(m);
    }

    return rc;
}


/* revoked ones come last, as many as there is room for */

static ngx_int_t
ngx_http_modelgw_zone_keys_add(void *data, ngx_modelgw_managed_key_t *key)
{
    if (ngx_modelgw_managed_put(data, key) == NGX_OK) {
        return NGX_OK;
    }

    return (key->state == NGX_MODELGW_KEY_REVOKED) ? NGX_DONE : NGX_ERROR;
}


void
ngx_http_modelgw_zone_keys_in_force(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_http_modelgw_pending_t *pending, ngx_log_t *log)
{
    ngx_uint_t                  i;
    ngx_modelgw_managed_key_t   key;

    if (mmcf->managed == NULL) {
        return;
    }

    for (i = 0; i < mmcf->managed_max; i++) {
        if (ngx_modelgw_managed_at(mmcf->managed, i, &key) == NGX_OK) {
            (void) ngx_http_modelgw_zone_keys_use(mmcf, &key, pending, log);
        }
    }
}


/*
 * Its record of limits, if it has any, is kept while the configuration is in
 * force.
 */

ngx_int_t
ngx_http_modelgw_zone_keys_use(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_modelgw_managed_key_t *key, ngx_http_modelgw_pending_t *pending,
    ngx_log_t *log)
{
    uint32_t                   slot;
    ngx_str_t                  id;
    ngx_modelgw_key_t         *twin, own;
    ngx_modelgw_budget_t       budget;
    ngx_http_modelgw_group_t  *group;

    id.len = key->id.len;
    id.data = key->id.data;

    twin = ngx_modelgw_keys_named(mmcf->keys, &id);

    if (twin == NULL) {
        twin = ngx_modelgw_keys_find(mmcf->keys, key->digest);
    }

    if (twin && log == NULL) {
        return NGX_DECLINED;
    }

    if (twin) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "key \"%V\" of the ledger is not used: the configuration "
                      "has its %s", &id,
                      (twin->id.len == id.len
                       && ngx_memcmp(twin->id.data, id.data, id.len) == 0)
                      ? "id" : "hash");
        return NGX_DECLINED;
    }

    group = ngx_http_modelgw_group_find(mmcf, key->group.data, key->group.len);

    if (group == NULL) {
        return NGX_OK;
    }

    own.group = group;
    own.rpm = key->rpm;
    own.tpm = key->tpm;
    own.concurrency = key->concurrency;
    own.budget = key->budget;
    own.window = key->window;

    if (!ngx_http_modelgw_keys_limited(&own)
        || ngx_modelgw_ledger_key(mmcf->ledger, &id, &slot) != NGX_OK)
    {
        return NGX_OK;
    }

    ngx_http_modelgw_keys_budget(&own, &budget);

    if (budget.limit) {
        ngx_http_modelgw_budget_window(mmcf->ledger, slot, budget.window,
                                       pending);
    }

    return NGX_OK;
}
