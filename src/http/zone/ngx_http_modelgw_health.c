
/*
 * Whether calls are admitted, and how the upstreams of the groups answer.
 *
 * Answers are counted by all workers without a lock: the counts of a minute are
 * one word, of which the first one to count in another minute makes that
 * minute's.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_modelgw_ledger.h"
#include "ngx_http_modelgw_zone.h"


/* the fields of a word: 24 bits, and 20 of each count */

#define NGX_HTTP_MODELGW_MINUTE_MASK   0xffffff
#define NGX_HTTP_MODELGW_MINUTE_SHIFT  40
#define NGX_HTTP_MODELGW_CALLS_SHIFT   20
#define NGX_HTTP_MODELGW_COUNT_MASK    0xfffff


static void ngx_http_modelgw_health_groups(ngx_http_modelgw_main_conf_t *mmcf);
static ngx_http_modelgw_health_t *ngx_http_modelgw_health_find(
    ngx_http_modelgw_main_conf_t *mmcf, ngx_atomic_uint_t name);
static ngx_http_modelgw_health_t *ngx_http_modelgw_health_unused(
    ngx_http_modelgw_main_conf_t *mmcf);
static ngx_atomic_uint_t ngx_http_modelgw_health_name(
    ngx_http_modelgw_group_t *group);
static ngx_atomic_uint_t ngx_http_modelgw_health_minute(void);


/* inherited by workers, and kept over reloads */

static time_t  ngx_http_modelgw_health_start;


const char *
ngx_http_modelgw_health_refuses(ngx_http_modelgw_main_conf_t *mmcf)
{
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
        return "The ledger cannot be written";
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

    if (mmcf->ledger) {
        ngx_http_modelgw_health_groups(mmcf);
    }
}


/* A group keeps its place over a reload; old workers may still count there. */

static void
ngx_http_modelgw_health_groups(ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_group_t  **group;

    group = mmcf->groups.elts;

    for (i = 0; i < mmcf->groups.nelts; i++) {
        group[i]->health = ngx_http_modelgw_health_find(mmcf,
                                      ngx_http_modelgw_health_name(group[i]));
    }

    for (i = 0; i < mmcf->groups.nelts; i++) {

        if (group[i]->health) {
            continue;
        }

        group[i]->health = ngx_http_modelgw_health_unused(mmcf);

        if (group[i]->health) {
            ngx_memzero(group[i]->health, sizeof(ngx_http_modelgw_health_t));
            group[i]->health->name = ngx_http_modelgw_health_name(group[i]);
        }
    }
}


static ngx_http_modelgw_health_t *
ngx_http_modelgw_health_find(ngx_http_modelgw_main_conf_t *mmcf,
    ngx_atomic_uint_t name)
{
    ngx_uint_t                  i;
    ngx_http_modelgw_health_t  *health;

    health = mmcf->shared->groups;

    for (i = 0; i < NGX_HTTP_MODELGW_HEALTH_GROUPS; i++) {
        if (health[i].name == name) {
            return &health[i];
        }
    }

    return NULL;
}


/* a place that no group of the configuration has; NULL: there is none */

static ngx_http_modelgw_health_t *
ngx_http_modelgw_health_unused(ngx_http_modelgw_main_conf_t *mmcf)
{
    ngx_uint_t                  i, k;
    ngx_http_modelgw_group_t  **group;
    ngx_http_modelgw_health_t  *health;

    group = mmcf->groups.elts;

    for (i = 0; i < NGX_HTTP_MODELGW_HEALTH_GROUPS; i++) {
        health = &mmcf->shared->groups[i];

        for (k = 0; k < mmcf->groups.nelts; k++) {
            if (group[k]->health == health) {
                break;
            }
        }

        if (k == mmcf->groups.nelts) {
            return health;
        }
    }

    return NULL;
}


/* not 0 */

static ngx_atomic_uint_t
ngx_http_modelgw_health_name(ngx_http_modelgw_group_t *group)
{
    return ((ngx_atomic_uint_t) 1 << 32)
           | ngx_murmur_hash2(group->name.data, group->name.len);
}


void
ngx_http_modelgw_health_count(ngx_http_modelgw_group_t *group,
    ngx_uint_t error)
{
    ngx_atomic_t               *word;
    ngx_atomic_uint_t           minute, old, set;
    ngx_http_modelgw_health_t  *health;

    health = group->health;

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
