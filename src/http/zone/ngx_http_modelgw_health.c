
/*
 * Whether calls are admitted, and how the upstreams of the groups answer.
 *
 * Answers are counted by all workers without a lock: the counts of a minute are
 * one word, of which the first one to count in another minute makes that
 * minute's.
 *
 * They are in a small zone of their own, as the ledger's cannot be changed by a
 * reload.  A zone of another size begins with nothing: five minutes are lost.
 * A group has the number of its place, not the address: with "master_process
 * off" requests of the former configuration end when its zone is unmapped.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_lease.h"
#include "ngx_modelgw_ledger.h"
#include "ngx_http_modelgw_zone.h"


/* the fields of a word: 24 bits, and 20 of each count */

#define NGX_HTTP_MODELGW_MINUTE_MASK   0xffffff
#define NGX_HTTP_MODELGW_MINUTE_SHIFT  40
#define NGX_HTTP_MODELGW_CALLS_SHIFT   20
#define NGX_HTTP_MODELGW_COUNT_MASK    0xfffff


static size_t ngx_http_modelgw_health_size(ngx_http_modelgw_main_conf_t *mmcf);
static ngx_int_t ngx_http_modelgw_health_init(ngx_shm_zone_t *zone, void *data);
static void ngx_http_modelgw_health_places(ngx_http_modelgw_main_conf_t *mmcf);
static ngx_uint_t ngx_http_modelgw_health_find(ngx_atomic_uint_t name);
static ngx_uint_t ngx_http_modelgw_health_used(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_uint_t place);
static ngx_atomic_uint_t ngx_http_modelgw_health_name(
    ngx_http_modelgw_group_t *group);
static ngx_atomic_uint_t ngx_http_modelgw_health_minute(void);


/* inherited by workers, and kept over reloads */

static time_t                      ngx_http_modelgw_health_start;

/* the places of groups, in the zone of the configuration in force */

static ngx_http_modelgw_health_t  *ngx_http_modelgw_health;
static ngx_uint_t                  ngx_http_modelgw_health_max;


ngx_int_t
ngx_http_modelgw_health_check(ngx_conf_t *cf,
    ngx_http_modelgw_main_conf_t *mmcf)
{
    size_t     size;
    ngx_str_t  name = ngx_string("modelgw_health");

    if (mmcf->groups.nelts == 0) {
        return NGX_OK;
    }

    /* with what the slab pool itself needs */

    size = ngx_http_modelgw_health_size(mmcf);
    size += ngx_align(size / 64, ngx_pagesize) + ngx_pagesize;

    mmcf->health_zone = ngx_shared_memory_add(cf, &name, size,
                                              &ngx_http_modelgw_module);
    if (mmcf->health_zone == NULL) {
        return NGX_ERROR;
    }

    mmcf->health_zone->init = ngx_http_modelgw_health_init;
    mmcf->health_zone->data = mmcf;

    return NGX_OK;
}


/* whole pages: most reloads that add groups need no other zone */

static size_t
ngx_http_modelgw_health_size(ngx_http_modelgw_main_conf_t *mmcf)
{
    return ngx_align(mmcf->groups.nelts * sizeof(ngx_http_modelgw_health_t),
                     ngx_pagesize);
}


static ngx_int_t
ngx_http_modelgw_health_init(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *shpool;

    if (data) {
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    shpool->data = ngx_slab_calloc(shpool,
                                   ngx_http_modelgw_health_size(zone->data));
    if (shpool->data == NULL) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


const char *
ngx_http_modelgw_health_refuses(ngx_http_modelgw_main_conf_t *mmcf)
{
    const char                *reason;
    ngx_modelgw_lease_node_t  *node;

    if (mmcf->ledger == NULL) {
        return NULL;
    }

    if (mmcf->worker == NGX_MODELGW_LEDGER_NONE
        || ngx_modelgw_ledger_full(mmcf->ledger))
    {
        return "The gateway is full";
    }

    if (ngx_modelgw_ledger_credit(mmcf->ledger)
        && !ngx_modelgw_ledger_writable(mmcf->ledger))
    {
        reason = ngx_http_modelgw_node_refuses(mmcf);

        return reason ? reason : "The ledger cannot be written";
    }

    /* calls with keys that are known here are admitted meanwhile */

    if (mmcf->cluster && mmcf->managed) {
        node = ngx_modelgw_node(mmcf->ledger);

        if (node->state == NGX_MODELGW_NODE_MEMBER && !node->current) {
            return "The keys are being loaded";
        }
    }

    return NULL;
}


time_t
ngx_http_modelgw_health_started(void)
{
    return ngx_http_modelgw_health_start;
}


void
ngx_http_modelgw_health_in_force(ngx_http_modelgw_main_conf_t *mmcf)
{
    mmcf->config_time = ngx_time();

    if (ngx_http_modelgw_health_start == 0) {
        ngx_http_modelgw_health_start = mmcf->config_time;
    }

    ngx_http_modelgw_health_places(mmcf);
}


/* A group keeps its place over a reload that keeps the zone. */

static void
ngx_http_modelgw_health_places(ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i, unused;
    ngx_slab_pool_t            *shpool;
    ngx_http_modelgw_group_t  **group;

    if (mmcf->health_zone == NULL) {
        ngx_http_modelgw_health_max = 0;
        return;
    }

    shpool = (ngx_slab_pool_t *) mmcf->health_zone->shm.addr;

    ngx_http_modelgw_health = shpool->data;
    ngx_http_modelgw_health_max = ngx_http_modelgw_health_size(mmcf)
                                  / sizeof(ngx_http_modelgw_health_t);

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {
        group[i]->health = ngx_http_modelgw_health_find(
                                      ngx_http_modelgw_health_name(group[i]));
    }

    unused = 0;

    for (i = 0; i < mmcf->groups.nelts; i++) {

        if (group[i]->health < ngx_http_modelgw_health_max) {
            continue;
        }

        while (ngx_http_modelgw_health_used(mmcf, unused)) {
            unused++;
        }

        ngx_memzero(&ngx_http_modelgw_health[unused],
                    sizeof(ngx_http_modelgw_health_t));

        ngx_http_modelgw_health[unused].name
                                     = ngx_http_modelgw_health_name(group[i]);

        group[i]->health = unused;
    }
}


/* returns the number of places if there is none of this name */

static ngx_uint_t
ngx_http_modelgw_health_find(ngx_atomic_uint_t name)
{
    ngx_uint_t  i;

    for (i = 0; i < ngx_http_modelgw_health_max; i++) {
        if (ngx_http_modelgw_health[i].name == name) {
            break;
        }
    }

    return i;
}


/* There are at least as many places as groups: one is unused. */

static ngx_uint_t
ngx_http_modelgw_health_used(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_uint_t place)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **group;

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {
        if (group[i]->health == place) {
            return 1;
        }
    }

    return 0;
}


/* not 0 */

static ngx_atomic_uint_t
ngx_http_modelgw_health_name(ngx_http_modelgw_group_t *group)
{
    return ((ngx_atomic_uint_t) 1 << 32)
           | ngx_murmur_hash2(group->name.data, group->name.len);
}


/* the place of an old worker's group may have become that of another */

ngx_http_modelgw_health_t *
ngx_http_modelgw_health_of(ngx_http_modelgw_group_t *group)
{
    ngx_http_modelgw_health_t  *health;

    if (group->health >= ngx_http_modelgw_health_max) {
        return NULL;
    }

    health = &ngx_http_modelgw_health[group->health];

    return (health->name == ngx_http_modelgw_health_name(group))
           ? health : NULL;
}


void
ngx_http_modelgw_health_count(ngx_http_modelgw_group_t *group,
    ngx_uint_t error)
{
    ngx_atomic_t               *word;
    ngx_atomic_uint_t           minute, old, set;
    ngx_http_modelgw_health_t  *health;

    health = ngx_http_modelgw_health_of(group);

    if (health == NULL) {
        return;
    }

    if (error) {
        health->last_error = ngx_time();

    } else {
        health->last_ok = ngx_time();
    }

    minute = ngx_http_modelgw_health_minute();
    word = &health->minutes[minute % NGX_HTTP_MODELGW_HEALTH_MINUTES];

    do {
        old = *word;

        set = (old >> NGX_HTTP_MODELGW_MINUTE_SHIFT == minute)
              ? old : minute << NGX_HTTP_MODELGW_MINUTE_SHIFT;

        if (((set >> NGX_HTTP_MODELGW_CALLS_SHIFT)
             & NGX_HTTP_MODELGW_COUNT_MASK)
            == NGX_HTTP_MODELGW_COUNT_MASK)
        {
            return;
        }

        set += ((ngx_atomic_uint_t) 1 << NGX_HTTP_MODELGW_CALLS_SHIFT)
               + (error ? 1 : 0);

    } while (!ngx_atomic_cmp_set(word, old, set));
}


void
ngx_http_modelgw_health_sum(ngx_http_modelgw_health_t *health,
    ngx_uint_t *calls, ngx_uint_t *errors)
{
    ngx_uint_t         i;
    ngx_atomic_uint_t  word, age;

    *calls = 0;
    *errors = 0;

    for (i = 0; i < NGX_HTTP_MODELGW_HEALTH_MINUTES; i++) {
        word = health->minutes[i];

        age = ngx_http_modelgw_health_minute()
              - (word >> NGX_HTTP_MODELGW_MINUTE_SHIFT);

        if (age < NGX_HTTP_MODELGW_HEALTH_MINUTES) {
            *calls += (word >> NGX_HTTP_MODELGW_CALLS_SHIFT)
                      & NGX_HTTP_MODELGW_COUNT_MASK;
            *errors += word & NGX_HTTP_MODELGW_COUNT_MASK;
        }
    }
}


static ngx_atomic_uint_t
ngx_http_modelgw_health_minute(void)
{
    return (ngx_atomic_uint_t) (ngx_time() / 60) & NGX_HTTP_MODELGW_MINUTE_MASK;
}
