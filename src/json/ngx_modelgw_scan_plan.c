
/*
 * What a scanner knows of its caller's tables, worked out once for all that
 * read with the same tables.
 *
 * The paths of watches are split into a tree: each watch knows the one above
 * it and, as a word of bits, all below.  Rejected: comparing whole paths, which
 * would have to be put together again for each key.
 *
 * Names that a key is compared with are in one table, by the slot of what they
 * fold to: so one look tells a name, another spelling of it, and a denied name.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


static ngx_int_t ngx_modelgw_scan_plan_names(ngx_modelgw_scan_plan_t *plan);
static ngx_int_t ngx_modelgw_scan_plan_name(ngx_modelgw_scan_plan_t *plan,
    ngx_uint_t i);
static ngx_int_t ngx_modelgw_scan_plan_slots(ngx_modelgw_scan_plan_t *plan,
    ngx_pool_t *pool);
static void ngx_modelgw_scan_plan_room(ngx_modelgw_scan_plan_t *plan);
static void ngx_modelgw_scan_plan_text(ngx_modelgw_scan_plan_t *plan,
    ngx_uint_t i);


ngx_modelgw_scan_plan_t *
ngx_modelgw_scan_plan(ngx_pool_t *pool, ngx_modelgw_scan_conf_t *conf)
{
    ngx_modelgw_scan_plan_t  *plan;

    if (conf->nwatches > NGX_MODELGW_SCAN_MAX_WATCHES) {
        return NULL;
    }

    plan = ngx_pcalloc(pool, sizeof(ngx_modelgw_scan_plan_t));
    if (plan == NULL) {
        return NULL;
    }

    plan->conf = *conf;
    plan->nnames = conf->nwatches + (conf->check ? conf->ndenied : 0);

    plan->names = ngx_pcalloc(pool, (plan->nnames + 1)
                                    * sizeof(ngx_modelgw_scan_name_t));
    if (plan->names == NULL) {
        return NULL;
    }

    if (ngx_modelgw_scan_plan_names(plan) != NGX_OK
        || ngx_modelgw_scan_plan_slots(plan, pool) != NGX_OK
        || ngx_modelgw_scan_mark_plan(plan, pool) != NGX_OK)
    {
        return NULL;
    }

    ngx_modelgw_scan_plan_room(plan);

    return plan;
}


ngx_modelgw_scan_conf_t *
ngx_modelgw_scan_conf(ngx_modelgw_scan_plan_t *plan)
{
    return &plan->conf;
}


static ngx_int_t
ngx_modelgw_scan_plan_names(ngx_modelgw_scan_plan_t *plan)
{
    ngx_uint_t                i, parent;
    ngx_modelgw_scan_name_t  *name;

    for (i = 0; i < plan->conf.nwatches; i++) {

        if (ngx_modelgw_scan_plan_name(plan, i) != NGX_OK) {
            return NGX_DECLINED;
        }

        name = &plan->names[i];

        if (plan->conf.watches[i].types & NGX_MODELGW_SCAN_KEYS) {
            name->entered = 1;
        }

        for (parent = name->parent;
             parent != NGX_MODELGW_SCAN_NONE;
             parent = plan->names[parent].parent)
        {
            plan->names[parent].entered = 1;
            plan->names[parent].below |= (uint32_t) 1 << i;
        }
    }

    return NGX_OK;
}


/* splits the path of a watch into the watch above it and its own name */

static ngx_int_t
ngx_modelgw_scan_plan_name(ngx_modelgw_scan_plan_t *plan, ngx_uint_t i)
{
    u_char                   *p;
    ngx_str_t                *path;
    ngx_uint_t                n;
    ngx_modelgw_scan_name_t  *name;

    path = &plan->conf.watches[i].path;
    name = &plan->names[i];

    for (p = path->data + path->len; p > path->data && p[-1] != '.'; p--) {
        /* void */
    }

    name->name.data = p;
    name->name.len = path->data + path->len - p;
    name->parent = NGX_MODELGW_SCAN_NONE;

    if (p == path->data) {
        return NGX_OK;
    }

    p--;

    for (n = 0; n < i; n++) {

        if (plan->conf.watches[n].path.len == (size_t) (p - path->data)
            && ngx_memcmp(plan->conf.watches[n].path.data, path->data,
                          p - path->data)
               == 0)
        {
            name->parent = n;
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


/*
 * Fills the table from its end, so that names of one slot come in the order of
 * the watches, denied ones last.
 */

static ngx_int_t
ngx_modelgw_scan_plan_slots(ngx_modelgw_scan_plan_t *plan, ngx_pool_t *pool)
{
    u_char                   *p;
    uint32_t                 *slot;
    ngx_uint_t                i;
    ngx_modelgw_scan_name_t  *name;

    for (i = plan->nnames; i--; /* void */ ) {
        name = &plan->names[i];

        if (i >= plan->conf.nwatches) {
            name->name = plan->conf.denied[i - plan->conf.nwatches];
            name->parent = NGX_MODELGW_SCAN_NONE;
        }

        name->folded = name->name;

        if (plan->conf.check) {
            p = ngx_pnalloc(pool, name->name.len + 1);
            if (p == NULL) {
                return NGX_ERROR;
            }

            name->folded.len = ngx_modelgw_scan_watch_fold(p, name->name.data,
                                                           name->name.len);
            name->folded.data = p;
        }

        slot = &plan->named[ngx_modelgw_scan_slot_of(name->folded.data,
                                                     name->folded.len)];
        name->next = *slot;
        *slot = (uint32_t) i + 1;
    }

    return NGX_OK;
}


/*
 * Room for what may come: a key is kept as long as one that folds to a name
 * can be; each watched container that can be open at a time, and the root, has
 * its frame, and its hashes if its keys are checked.
 */

static void
ngx_modelgw_scan_plan_room(ngx_modelgw_scan_plan_t *plan)
{
    size_t      longest;
    ngx_uint_t  i, frames, checked, parent;

    /* a mark's name and value are shorter */

    longest = NGX_MODELGW_SCAN_QUOTED_KEY;

    for (i = 0; i < plan->nnames; i++) {
        longest = ngx_max(longest, plan->names[i].name.len);
    }

    /* three bytes of U+212A may stand for one */

    plan->key_room = 3 * longest;

    plan->nframes = 1;
    plan->nhashes = NGX_MODELGW_SCAN_MAX_KEYS;

    for (i = 0; i < plan->conf.nwatches; i++) {
        ngx_modelgw_scan_plan_text(plan, i);

        frames = 1;
        checked = 1;

        for (parent = i;
             parent != NGX_MODELGW_SCAN_NONE;
             parent = plan->names[parent].parent)
        {
            frames++;

            if (plan->conf.watches[parent].types & NGX_MODELGW_SCAN_KEYS) {
                checked++;
            }
        }

        plan->nframes = ngx_max(plan->nframes, frames);
        plan->nhashes = ngx_max(plan->nhashes,
                                checked * NGX_MODELGW_SCAN_MAX_KEYS);
    }

    if (!plan->conf.check) {
        plan->nhashes = 0;
    }
}


/* what may only be a COUNT need not be kept if it is longer */

static void
ngx_modelgw_scan_plan_text(ngx_modelgw_scan_plan_t *plan, ngx_uint_t i)
{
    ngx_uint_t                types;
    ngx_modelgw_scan_name_t  *name;

    name = &plan->names[i];
    types = plan->conf.watches[i].types;

    if ((types & (NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_NUMBER))
        && !(types & NGX_MODELGW_SCAN_BRIEF))
    {
        name->room = NGX_MODELGW_SCAN_TEXT;

    } else if (types & NGX_MODELGW_SCAN_COUNT) {
        name->room = NGX_MODELGW_SCAN_DIGITS;
    }

    name->text = plan->text_room;
    plan->text_room += name->room;
}
