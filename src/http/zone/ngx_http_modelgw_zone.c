
/*
 * The zone: shared memory of limits and credit, with the keys and accounts of
 * the configuration.
 *
 * A reload keeps the memory, and with it balances, holds and limits.  A change
 * that is not possible by a reload (another size, another ledger) is refused,
 * and nginx keeps its configuration.  nginx creates a new zone if the size
 * changes, so the current one is searched for by its name.
 *
 * nginx calls this file twice: when the zone is created or found again, while
 * the reload may still fail, and when the configuration takes effect.  Only
 * then is anything changed that others see.
 *
 * The size of the zone is checked when the configuration is read, not when the
 * zone is filled: keys without a place would be refused while nginx runs.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_cost.h"
#include "ngx_modelgw_key.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_modelgw_redo.h"
#include "ngx_http_modelgw_writer.h"
#include "ngx_http_modelgw_zone.h"


#define NGX_HTTP_MODELGW_ZONE_MIN      (64 * 1024)
#define NGX_HTTP_MODELGW_ZONE_DEFAULT  (32 * 1024 * 1024)

#define NGX_HTTP_MODELGW_ZONE_MAX      ((size_t) 1 << 40)

#define NGX_HTTP_MODELGW_FLUSH_MAX     1000
#define NGX_HTTP_MODELGW_KEEP_MIN      (24 * 60 * 60)


typedef struct {
    ngx_http_modelgw_main_conf_t  *mmcf;
    ngx_modelgw_key_t             *before;   /* the last with an account */
    ngx_http_modelgw_pending_t     pending;
    ngx_uint_t                     refused;  /* keys without a place */
    ngx_log_t                     *log;
} ngx_http_modelgw_zone_ctx_t;


static ngx_int_t ngx_http_modelgw_zone_flush(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_zone_keep(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field);
static ngx_int_t ngx_http_modelgw_zone_check_none(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_zone_check_models(ngx_conf_t *cf,
    ngx_array_t *models);
static ngx_int_t ngx_http_modelgw_zone_check_room(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_uint_t ngx_http_modelgw_zone_fits(
    ngx_http_modelgw_main_conf_t *mmcf, size_t size, ngx_uint_t keys,
    ngx_uint_t accounts);
static ngx_uint_t ngx_http_modelgw_zone_count_keys(ngx_modelgw_keys_t *keys);
static ngx_int_t ngx_http_modelgw_zone_count_accounts(ngx_modelgw_keys_t *keys,
    ngx_modelgw_ledger_t *ledger, ngx_log_t *log, ngx_uint_t *count);
static ngx_int_t ngx_http_modelgw_zone_add(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_http_modelgw_main_conf_t *ngx_http_modelgw_zone_old(
    ngx_cycle_t *cycle);
static ngx_int_t ngx_http_modelgw_zone_init(ngx_shm_zone_t *zone, void *data);
static ngx_int_t ngx_http_modelgw_zone_create(ngx_shm_zone_t *zone);
static ngx_int_t ngx_http_modelgw_zone_adopt(ngx_shm_zone_t *zone,
    ngx_http_modelgw_main_conf_t *old);
static ngx_int_t ngx_http_modelgw_zone_check_more(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_log_t *log);
static ngx_shm_zone_t *ngx_http_modelgw_zone_known(void);
static void ngx_http_modelgw_zone_keys(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log);
static void ngx_http_modelgw_zone_key(ngx_http_modelgw_zone_ctx_t *ctx,
    ngx_modelgw_key_t *key);
static void ngx_http_modelgw_zone_account(ngx_http_modelgw_zone_ctx_t *ctx,
    ngx_modelgw_key_t *key);


static ngx_http_modelgw_option_t  ngx_http_modelgw_zone_options[] = {
    { ngx_string("flush="), ngx_http_modelgw_zone_flush,
      offsetof(ngx_http_modelgw_main_conf_t, ledger_flush),
      "a time from 1ms to 1s", NULL },
    { ngx_string("keep="), ngx_http_modelgw_zone_keep,
      offsetof(ngx_http_modelgw_main_conf_t, ledger_keep),
      "a time of at least 1d", NULL },
    { ngx_null_string, NULL, 0, NULL, NULL }
};


char *
ngx_http_modelgw_set_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char       *rv;
    size_t     *size;
    ngx_str_t  *value;

    rv = ngx_conf_set_size_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    size = (size_t *) ((char *) conf + cmd->offset);

    if (*size < NGX_HTTP_MODELGW_ZONE_MIN) {
        value = cf->args->elts;
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone too small: \"%V\", it needs at least %dk",
                           &value[1], NGX_HTTP_MODELGW_ZONE_MIN / 1024);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_modelgw_set_ledger(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_str_t  *value;

    if (mmcf->ledger_path.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return "has an empty path";
    }

    mmcf->ledger_path = value[1];

    if (ngx_conf_full_name(cf->cycle, &mmcf->ledger_path, 0) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_modelgw_option_directive(cf, 2,
                                             ngx_http_modelgw_zone_options,
                                             mmcf)
           == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_modelgw_zone_flush(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    ngx_int_t    time;
    ngx_msec_t  *flush = field;

    time = ngx_parse_time(value, 0);

    if (time < 1 || time > NGX_HTTP_MODELGW_FLUSH_MAX) {
        return NGX_DECLINED;
    }

    *flush = (ngx_msec_t) time;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_zone_keep(ngx_http_modelgw_option_t *option,
    ngx_str_t *value, void *field)
{
    time_t     *keep = field;
    ngx_int_t   time;

    time = ngx_parse_time(value, 1);

    if (time < NGX_HTTP_MODELGW_KEEP_MIN) {
        return NGX_DECLINED;
    }

    *keep = time;

    return NGX_OK;
}


char *
ngx_http_modelgw_set_founding(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_modelgw_main_conf_t *mmcf = conf;

    ngx_str_t  *value;

    if (mmcf->founding_place.file) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_modelgw_amount_parse(&value[1], &mmcf->founding) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid founding credit \"%V\": it is an amount of "
                           "euro as \"10\" or \"0.50\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    mmcf->founding_place.file = cf->conf_file->file.name.data;
    mmcf->founding_place.line = cf->conf_file->line;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_modelgw_zone_check(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **group;

    if (mmcf->ledger_path.len == 0) {

        if (ngx_http_modelgw_zone_check_none(cf, mmcf) != NGX_OK) {
            return NGX_ERROR;
        }

        if (mmcf->keys == NULL) {
            return NGX_OK;
        }

    } else {
        group = mmcf->groups.elts;

        for (i = 0; i < mmcf->groups.nelts; i++) {

            if (ngx_http_modelgw_zone_check_models(cf, &group[i]->models)
                != NGX_OK
                || ngx_http_modelgw_zone_check_models(cf, &group[i]->patterns)
                   != NGX_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    ngx_conf_init_size_value(mmcf->zone_size, NGX_HTTP_MODELGW_ZONE_DEFAULT);

    if (ngx_http_modelgw_zone_keys_check(cf, mmcf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_zone_check_room(cf, mmcf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_modelgw_zone_add(cf, mmcf);
}


/* Checks of a configuration without a ledger. */

static ngx_int_t
ngx_http_modelgw_zone_check_none(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_shm_zone_t                *zone;
    ngx_http_modelgw_main_conf_t  *old;

    if (mmcf->founding_place.file) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_founding_credit\" but no \"modelgw_ledger\" "
                      "in http, in %s:%ui", mmcf->founding_place.file,
                      mmcf->founding_place.line);
        return NGX_ERROR;
    }

    if (mmcf->budget_place.file) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"%V\" has a budget, but there is no "
                      "\"modelgw_ledger\" in http, in %s:%ui",
                      &mmcf->budget_name, mmcf->budget_place.file,
                      mmcf->budget_place.line);
        return NGX_ERROR;
    }

    if (mmcf->cluster) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_cluster\" but no \"modelgw_ledger\" in http, "
                      "in which the node keeps what it has borrowed, in %s:%ui",
                      mmcf->cluster_place.file, mmcf->cluster_place.line);
        return NGX_ERROR;
    }

    zone = ngx_http_modelgw_zone_known();
    old = zone ? zone->data : NULL;

    if (old && old->ledger_path.len) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"modelgw_ledger %V\" cannot be removed by a reload: "
                      "stop nginx, then start it", &old->ledger_path);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* A model that is charged needs prices, and a limit of output for holds. */

static ngx_int_t
ngx_http_modelgw_zone_check_models(ngx_conf_t *cf, ngx_array_t *models)
{
    ngx_uint_t                 i;
    ngx_http_modelgw_model_t  *model;

    model = models->elts;

    for (i = 0; i < models->nelts; i++) {

        if (model[i].free) {
            continue;
        }

        if (!model[i].priced) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" has no prices: with a "
                          "\"modelgw_ledger\" give %s, or free, in %s:%ui",
                          &model[i].id,
                          model[i].embedding ? "input=" : "input= and output=",
                          model[i].place.file, model[i].place.line);
            return NGX_ERROR;
        }

        if (model[i].max_output == 0 && model[i].context == 0
            && !model[i].embedding)
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "model \"%V\" has no bound of its output: with a "
                          "\"modelgw_ledger\" give max_output= or context=, "
                          "in %s:%ui", &model[i].id,
                          model[i].place.file, model[i].place.line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_zone_check_room(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    size_t      size, low, high;
    ngx_uint_t  keys, accounts;

    keys = 0;
    accounts = 0;

    if (mmcf->keys) {
        keys = ngx_http_modelgw_zone_count_keys(mmcf->keys)
               + mmcf->managed_max;

        if (mmcf->ledger_path.len
            && ngx_http_modelgw_zone_count_accounts(mmcf->keys, NULL, cf->log,
                                                    &accounts)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_http_modelgw_zone_fits(mmcf, mmcf->zone_size, keys, accounts)) {
        return NGX_OK;
    }

    low = mmcf->zone_size / ngx_pagesize;
    high = low * 2;

    while (high < NGX_HTTP_MODELGW_ZONE_MAX / ngx_pagesize
           && !ngx_http_modelgw_zone_fits(mmcf, high * ngx_pagesize, keys,
                                          accounts))
    {
        low = high;
        high *= 2;
    }

    while (high - low > 1) {
        size = low + (high - low) / 2;

        if (ngx_http_modelgw_zone_fits(mmcf, size * ngx_pagesize, keys,
                                       accounts))
        {
            high = size;

        } else {
            low = size;
        }
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "zone too small: \"modelgw_zone\" of %uzk for %ui keys with "
                  "limits and %ui accounts, it needs at least %uzk",
                  mmcf->zone_size / 1024, keys, accounts,
                  high * ngx_pagesize / 1024);

    return NGX_ERROR;
}


/*
 * The slab pool uses a record for each page, and the zone one page of its own.
 */

static ngx_uint_t
ngx_http_modelgw_zone_fits(ngx_http_modelgw_main_conf_t *mmcf, size_t size,
    ngx_uint_t keys, ngx_uint_t accounts)
{
    size_t                     pages;
    ngx_modelgw_ledger_room_t  room;

    pages = size / (ngx_pagesize + sizeof(ngx_slab_page_t));

    ngx_memzero(&room, sizeof(ngx_modelgw_ledger_room_t));

    if (pages > 3) {
        ngx_modelgw_ledger_room((pages - 3) * ngx_pagesize,
                                mmcf->cluster ? NGX_MODELGW_LEDGER_CLUSTER
                                              : NGX_MODELGW_LEDGER_CREDIT,
                                &room);
    }

    return room.keys >= keys && room.accounts >= accounts && room.calls;
}


static ngx_uint_t
ngx_http_modelgw_zone_count_keys(ngx_modelgw_keys_t *keys)
{
    ngx_uint_t               n;
    ngx_modelgw_key_t       *key;
    ngx_modelgw_keys_pos_t   pos;

    n = 0;
    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for ( ;; ) {
        key = ngx_modelgw_keys_next(keys, &pos);
        if (key == NULL) {
            return n;
        }

        n += ngx_http_modelgw_keys_limited(key);
    }
}


/*
 * Counts distinct names of accounts by a temporary hash table; with a ledger,
 * only those that are not in it.
 */

static ngx_int_t
ngx_http_modelgw_zone_count_accounts(ngx_modelgw_keys_t *keys,
    ngx_modelgw_ledger_t *ledger, ngx_log_t *log, ngx_uint_t *count)
{
    uint32_t                  index;
    ngx_str_t               **names;
    ngx_uint_t                i, n;
    ngx_modelgw_key_t        *key;
    ngx_modelgw_keys_pos_t    pos;

    n = ngx_modelgw_keys_count(keys) * 2 + 1;

    names = ngx_calloc(n * sizeof(ngx_str_t *), log);
    if (names == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    for ( ;; ) {
        key = ngx_modelgw_keys_next(keys, &pos);
        if (key == NULL) {
            break;
        }

        i = ngx_murmur_hash2(key->account.data, key->account.len) % n;

        while (names[i]
               && (names[i]->len != key->account.len
                   || ngx_memcmp(names[i]->data, key->account.data,
                                 key->account.len)
                      != 0))
        {
            i = (i + 1 == n) ? 0 : i + 1;
        }

        if (names[i]) {
            continue;
        }

        names[i] = &key->account;

        if (ledger == NULL
            || ngx_modelgw_ledger_account(ledger, &key->account, 0, 0, 0, 0,
                                          &index)
               != NGX_OK)
        {
            (*count)++;
        }
    }

    ngx_free(names);

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_zone_add(ngx_conf_t *cf, ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_str_t  name = ngx_string("modelgw");

    mmcf->zone = ngx_shared_memory_add(cf, &name, mmcf->zone_size,
                                       &ngx_http_modelgw_module);
    if (mmcf->zone == NULL) {
        return NGX_ERROR;
    }

    mmcf->zone->init = ngx_http_modelgw_zone_init;
    mmcf->zone->data = mmcf;

    mmcf->cycle = cf->cycle;
    mmcf->ledger_lock = NGX_INVALID_FILE;
    mmcf->ledger_file = NGX_INVALID_FILE;
    mmcf->worker = NGX_MODELGW_LEDGER_NONE;

    return NGX_OK;
}


static ngx_int_t
ngx_http_modelgw_zone_init(ngx_shm_zone_t *zone, void *data)
{
    if (data) {
        return ngx_http_modelgw_zone_adopt(zone, data);
    }

    if (ngx_http_modelgw_zone_known()) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "\"modelgw_zone\" or the module cannot be changed by a "
                      "reload: stop nginx, then start it");
        return NGX_ERROR;
    }

    return ngx_http_modelgw_zone_create(zone);
}


static ngx_int_t
ngx_http_modelgw_zone_create(ngx_shm_zone_t *zone)
{
    size_t                         size;
    u_char                        *p;
    uint64_t                       id;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = zone->data;

    p = ngx_http_modelgw_zone_memory(zone, &size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    mmcf->shared = (ngx_http_modelgw_shared_t *) p;
    mmcf->shared->managed = mmcf->managed;

    if (ngx_http_modelgw_node_start(mmcf, zone->shm.log) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_modelgw_redo_mutex_init(&mmcf->shared->budgets) != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "robust mutexes are not supported");
        return NGX_ERROR;
    }

    p += ngx_pagesize;
    size -= ngx_pagesize;

    if (mmcf->ledger_path.len) {
        return ngx_http_modelgw_zone_load(mmcf, zone->shm.log, p, size);
    }

    id = ngx_http_modelgw_zone_first_id(0);

    mmcf->ledger = ngx_modelgw_ledger_create(p, size, id,
                                             NGX_MODELGW_LEDGER_LIMITS);

    if (mmcf->ledger == NULL) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "\"modelgw_zone\" of %uzk cannot be laid out",
                      zone->shm.size / 1024);
        return NGX_ERROR;
    }

    return NGX_OK;
}


u_char *
ngx_http_modelgw_zone_memory(ngx_shm_zone_t *zone, size_t *size)
{
    u_char           *p;
    ngx_slab_pool_t  *shpool;

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    *size = shpool->pfree * ngx_pagesize;

    p = ngx_slab_alloc(shpool, *size);
    if (p == NULL) {
        return NULL;
    }

    /* else they are zero, as pages of a new zone are */

#if (NGX_DEBUG_MALLOC)
    ngx_memzero(p, *size);
#endif

    return p;
}


static ngx_int_t
ngx_http_modelgw_zone_adopt(ngx_shm_zone_t *zone,
    ngx_http_modelgw_main_conf_t *old)
{
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = zone->data;

    if (mmcf->ledger_path.len != old->ledger_path.len
        || ngx_memcmp(mmcf->ledger_path.data, old->ledger_path.data,
                      old->ledger_path.len)
           != 0)
    {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "\"modelgw_ledger\" cannot be added, removed or moved by "
                      "a reload: stop nginx, then start it");
        return NGX_ERROR;
    }

    if ((mmcf->cluster == NULL) != (old->cluster == NULL)) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "\"modelgw_cluster\" cannot be added or removed by a "
                      "reload: stop nginx, then start it");
        return NGX_ERROR;
    }

    mmcf->ledger = old->ledger;
    mmcf->shared = old->shared;

    if (ngx_http_modelgw_node_start(mmcf, zone->shm.log) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_modelgw_zone_keys_same(mmcf, zone->shm.log) != NGX_OK
        || ngx_http_modelgw_zone_check_more(mmcf, zone->shm.log) != NGX_OK) {
        return NGX_ERROR;
    }

    /* in single process mode this process has joined the ledger already */

    mmcf->worker = old->worker;

    return ngx_http_modelgw_zone_relock(mmcf, old);
}


static ngx_int_t
ngx_http_modelgw_zone_check_more(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_log_t *log)
{
    ngx_uint_t  more, room;

    if (mmcf->keys == NULL || !ngx_modelgw_ledger_credit(mmcf->ledger)) {
        return NGX_OK;
    }

    more = 0;
    room = ngx_modelgw_ledger_accounts_free(mmcf->ledger);

    if (ngx_http_modelgw_zone_count_accounts(mmcf->keys, mmcf->ledger, log,
                                             &more)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (more <= room) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, log, 0,
                  "zone too small: \"modelgw_zone\" of %uzk has %uD accounts, "
                  "all that the ledger ever had, and room for %ui more, not "
                  "for %ui: make it larger, stop nginx, then start it",
                  mmcf->zone_size / 1024,
                  ngx_modelgw_ledger_accounts(mmcf->ledger), room, more);

    return NGX_ERROR;
}


static ngx_shm_zone_t *
ngx_http_modelgw_zone_known(void)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_shm_zone_t   *zone;

    for (part = (ngx_list_part_t *) &ngx_cycle->shared_memory.part;
         part;
         part = part->next)
    {
        zone = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (zone[i].shm.name.len == sizeof("modelgw") - 1
                && ngx_strncmp(zone[i].shm.name.data, "modelgw",
                               sizeof("modelgw") - 1)
                   == 0)
            {
                return &zone[i];
            }
        }
    }

    return NULL;
}


/*
 * Greater than all ids in the store, and than all ids that an earlier nginx
 * gave to calls that were never sent: those are not stored.
 */

uint64_t
ngx_http_modelgw_zone_first_id(uint64_t last)
{
    uint64_t     id;
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    id = (uint64_t) tp->sec * 1000000 + (uint64_t) tp->msec * 1000;

    return id > last ? id : last + 1;
}


ngx_int_t
ngx_http_modelgw_zone_in_force(ngx_cycle_t *cycle)
{
    ngx_http_modelgw_main_conf_t  *mmcf, *old;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    if (mmcf == NULL || ngx_test_config) {
        return NGX_OK;
    }

    ngx_http_modelgw_health_in_force(mmcf);

    if (mmcf->ledger == NULL) {
        return NGX_OK;
    }

    mmcf->shared->flush = mmcf->ledger_flush;
    mmcf->shared->keep = mmcf->ledger_keep;
    mmcf->shared->configuration++;

    if (mmcf->cluster) {
        mmcf->shared->exchange = mmcf->cluster->exchange;
        mmcf->shared->offline = mmcf->cluster->offline;
        mmcf->shared->lost = mmcf->cluster->lost;

        ngx_http_modelgw_node_check(mmcf, cycle->log);
    }

    old = ngx_http_modelgw_zone_old(cycle);

    if (old) {
        ngx_http_modelgw_prices_changed(mmcf, old, cycle->log);
    }

    if (mmcf->keys) {
        ngx_modelgw_redo_mutex_lock(&mmcf->shared->budgets);
        ngx_http_modelgw_zone_keys(mmcf, cycle->log);
        ngx_modelgw_redo_mutex_unlock(&mmcf->shared->budgets);

        ngx_modelgw_ledger_wake(mmcf->ledger);
    }

    return NGX_OK;
}


static void
ngx_http_modelgw_zone_keys(ngx_http_modelgw_main_conf_t *mmcf, ngx_log_t *log)
{
    ngx_uint_t                    max;
    ngx_modelgw_key_t            *key;
    ngx_modelgw_keys_pos_t        pos;
    ngx_http_modelgw_zone_ctx_t   ctx;

    ngx_memzero(&ctx, sizeof(ngx_http_modelgw_zone_ctx_t));
    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    ctx.mmcf = mmcf;
    ctx.log = log;

    max = ngx_modelgw_keys_count(mmcf->keys) + mmcf->managed_max;

    ctx.pending.slots = ngx_alloc(max * sizeof(uint32_t), log);
    if (ctx.pending.slots != NULL) {
        ctx.pending.max = max;
    }

    ngx_modelgw_ledger_generation(mmcf->ledger);

    for ( ;; ) {
        key = ngx_modelgw_keys_next(mmcf->keys, &pos);
        if (key == NULL) {
            break;
        }

        ngx_http_modelgw_zone_key(&ctx, key);
    }

    ngx_http_modelgw_zone_keys_in_force(mmcf, &ctx.pending, log);

    if (ctx.refused) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "\"modelgw_zone\" has no room for %ui keys or their "
                      "accounts: their calls are refused", ctx.refused);
    }

    if (ctx.pending.n) {
        ngx_http_modelgw_budget_in_force(mmcf, &ctx.pending, log);
    }

    if (ctx.pending.slots) {
        ngx_free(ctx.pending.slots);
    }
}


/* the configuration before a reload; NULL: none, or not of the gateway */

static ngx_http_modelgw_main_conf_t *
ngx_http_modelgw_zone_old(ngx_cycle_t *cycle)
{
    ngx_uint_t    i;
    ngx_cycle_t  *old;

    old = cycle->old_cycle;

    if (old == NULL || ngx_is_init_cycle(old)
        || old->conf_ctx[ngx_http_module.index] == NULL)
    {
        return NULL;
    }

    /* else the index of the module is one of another, or of none */

    for (i = 0; old->modules[i]; i++) {

        if (old->modules[i] == &ngx_http_modelgw_module) {
            return ngx_http_cycle_get_module_main_conf(old,
                                                   ngx_http_modelgw_module);
        }
    }

    return NULL;
}


static void
ngx_http_modelgw_zone_key(ngx_http_modelgw_zone_ctx_t *ctx,
    ngx_modelgw_key_t *key)
{
    ngx_modelgw_budget_t   budget;
    ngx_modelgw_ledger_t  *ledger;

    ledger = ctx->mmcf->ledger;

    key->slot = NGX_MODELGW_LEDGER_NONE;
    key->account_index = NGX_MODELGW_LEDGER_NONE;

    if (ngx_http_modelgw_keys_limited(key)
        && ngx_modelgw_ledger_key(ledger, &key->id, &key->slot) != NGX_OK)
    {
        key->slot = NGX_MODELGW_LEDGER_NONE;
        ctx->refused++;
        return;
    }

    ngx_http_modelgw_keys_budget(key, &budget);

    if (budget.limit) {
        ngx_http_modelgw_budget_window(ledger, key->slot, budget.window,
                                       &ctx->pending);
    }

    if (ngx_modelgw_ledger_credit(ledger)) {
        ngx_http_modelgw_zone_account(ctx, key);
    }
}


/* Keys of one account are usually adjacent. */

static void
ngx_http_modelgw_zone_account(ngx_http_modelgw_zone_ctx_t *ctx,
    ngx_modelgw_key_t *key)
{
    u_char                        *p, amount[NGX_MODELGW_AMOUNT_LEN];
    ngx_int_t                      rc;
    ngx_modelgw_key_t             *before;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ctx->mmcf;
    before = ctx->before;

    if (before
        && before->account.len == key->account.len
        && ngx_memcmp(before->account.data, key->account.data,
                      key->account.len)
           == 0)
    {
        key->account_index = before->account_index;
        return;
    }

    rc = ngx_modelgw_ledger_account(mmcf->ledger, &key->account, 1,
                                    mmcf->founding, (uint64_t) ngx_time(), 0,
                                    &key->account_index);

    if (rc == NGX_ERROR) {
        key->account_index = NGX_MODELGW_LEDGER_NONE;
        ctx->refused++;
        return;
    }

    ctx->before = key;

    if (rc == NGX_DONE) {
        p = ngx_modelgw_amount(amount, mmcf->founding);

        ngx_log_error(NGX_LOG_NOTICE, ctx->log, 0,
                      mmcf->cluster
                      ? "account \"%V\" is opened by the cluster, with %*s "
                        "euro founding credit if it is new there"
                      : "account \"%V\" opened with %*s euro founding credit",
                      &key->account, p - amount, amount);
    }
}
