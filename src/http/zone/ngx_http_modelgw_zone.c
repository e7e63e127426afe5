
/*
 * The zone: shared memory of limits and credit, and what of it the
 * configuration names.
 *
 * A reload goes on with the memory that is there: balances, holds and limits
 * stay.  What cannot go on (another size, another ledger) is refused, and
 * nginx keeps the configuration that it has.  A zone of another size is made
 * anew by nginx, so the one in force is looked for by its name.
 *
 * nginx calls us twice: as the zone is made or found again, when the reload may
 * still fail, and as the configuration takes force.  So only the latter changes
 * what others see.
 */


#include "ngx_http_modelgw.h"
#include "ngx_http_modelgw_ledger.h"
#include "ngx_http_modelgw_zone.h"


typedef struct {
    ngx_http_modelgw_main_conf_t  *mmcf;
    ngx_modelgw_key_t             *before;   /* whose account was found last */
    ngx_uint_t                     refused;  /* keys that found no room */
    ngx_log_t                     *log;
} ngx_http_modelgw_zone_ctx_t;


static ngx_int_t ngx_http_modelgw_zone_create(ngx_shm_zone_t *zone);
static ngx_int_t ngx_http_modelgw_zone_adopt(ngx_shm_zone_t *zone,
    ngx_http_modelgw_main_conf_t *old);
static void ngx_http_modelgw_zone_key(ngx_http_modelgw_zone_ctx_t *ctx,
    ngx_modelgw_key_t *key);
static void ngx_http_modelgw_zone_account(ngx_http_modelgw_zone_ctx_t *ctx,
    ngx_modelgw_key_t *key);


ngx_int_t
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
    ngx_slab_pool_t               *shpool;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = zone->data;
    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    /* all of it in one block: the ledger has its own layout */

    size = shpool->pfree * ngx_pagesize;

    p = ngx_slab_alloc(shpool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

#if (NGX_DEBUG_MALLOC)
    ngx_memzero(p, size);
#endif

    mmcf->shared = (ngx_http_modelgw_shared_t *) p;

    p += ngx_pagesize;
    size -= ngx_pagesize;

    if (mmcf->ledger_path.len) {
        return ngx_http_modelgw_zone_load(mmcf, zone->shm.log, p, size);
    }

    id = ngx_http_modelgw_zone_first_id(0);

    mmcf->ledger = ngx_modelgw_ledger_create(p, size, id, 0);

    if (mmcf->ledger == NULL) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "\"modelgw_zone\" of %uzk cannot be laid out",
                      zone->shm.size / 1024);
        return NGX_ERROR;
    }

    return NGX_OK;
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

    mmcf->ledger = old->ledger;
    mmcf->shared = old->shared;

    if (ngx_http_modelgw_zone_check_more(mmcf, zone->shm.log) != NGX_OK) {
        return NGX_ERROR;
    }

    /* there is one process in all if that is one that has joined already */

    mmcf->worker = old->worker;

    return ngx_http_modelgw_zone_relock(mmcf, old);
}


ngx_shm_zone_t *
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
 * Above all ids of the store and, as calls that were not sent leave no trace
 * there, all that an nginx before this one has given out.
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
    ngx_modelgw_key_t             *key;
    ngx_modelgw_keys_pos_t         pos;
    ngx_http_modelgw_zone_ctx_t    ctx;
    ngx_http_modelgw_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_modelgw_module);

    if (mmcf == NULL || mmcf->ledger == NULL || ngx_test_config) {
        return NGX_OK;
    }

    mmcf->shared->flush = mmcf->ledger_flush;
    mmcf->shared->keep = mmcf->ledger_keep;

    if (mmcf->keys == NULL) {
        return NGX_OK;
    }

    ngx_memzero(&ctx, sizeof(ngx_http_modelgw_zone_ctx_t));
    ngx_memzero(&pos, sizeof(ngx_modelgw_keys_pos_t));

    ctx.mmcf = mmcf;
    ctx.log = cycle->log;

    ngx_modelgw_ledger_generation(mmcf->ledger);

    for ( ;; ) {
        key = ngx_modelgw_keys_next(mmcf->keys, &pos);
        if (key == NULL) {
            break;
        }

        ngx_http_modelgw_zone_key(&ctx, key);
    }

    if (ctx.refused) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                      "\"modelgw_zone\" has no room for %ui keys or their "
                      "accounts: their calls are refused", ctx.refused);
    }

    ngx_modelgw_ledger_wake(mmcf->ledger);

    return NGX_OK;
}


static void
ngx_http_modelgw_zone_key(ngx_http_modelgw_zone_ctx_t *ctx,
    ngx_modelgw_key_t *key)
{
    ngx_modelgw_ledger_t  *ledger;

    ledger = ctx->mmcf->ledger;

    key->slot = NGX_MODELGW_LEDGER_NONE;
    key->account_index = NGX_MODELGW_LEDGER_NONE;

    if (ngx_http_modelgw_zone_limited(key)
        && ngx_modelgw_ledger_key(ledger, &key->id, &key->slot) != NGX_OK)
    {
        key->slot = NGX_MODELGW_LEDGER_NONE;
        ctx->refused++;
        return;
    }

    if (ngx_modelgw_ledger_credit(ledger)) {
        ngx_http_modelgw_zone_account(ctx, key);
    }
}


ngx_uint_t
ngx_http_modelgw_zone_limited(ngx_modelgw_key_t *key)
{
    ngx_http_modelgw_group_t  *group;

    group = key->group;

    return key->rpm || key->tpm || key->concurrency
           || group->rpm || group->tpm || group->concurrency;
}


/* The keys of an account mostly stand together. */

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
                      "account \"%V\" opened with %*s euro founding credit",
                      &key->account, p - amount, amount);
    }
}
