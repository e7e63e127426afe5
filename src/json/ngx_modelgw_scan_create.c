
/*
 * Making a scanner from a plan.  Everything that a scan may need is allocated
 * here, at once, so that a document cannot make it run out of memory half-way,
 * and a scanner is reset in a few steps: for a stream of small documents that
 * is what counts.
 *
 *     scanner | frames | values of watches | hashes of keys | the key
 *     | with check or marks: the same, folded | texts of values
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


/* what no document has brought */

static ngx_modelgw_scan_value_t  ngx_modelgw_scan_absent;


ngx_modelgw_scan_t *
ngx_modelgw_scan_create(ngx_pool_t *pool, ngx_modelgw_scan_conf_t *conf)
{
    ngx_modelgw_scan_plan_t  *plan;

    plan = ngx_modelgw_scan_plan(pool, conf);

    return plan ? ngx_modelgw_scan_make(pool, plan) : NULL;
}


ngx_modelgw_scan_t *
ngx_modelgw_scan_make(ngx_pool_t *pool, ngx_modelgw_scan_plan_t *plan)
{
    size_t               room;
    ngx_uint_t           n, keys;
    ngx_modelgw_scan_t  *s;

    n = plan->conf.nwatches;
    keys = (plan->conf.check || plan->conf.nmarks) ? 2 : 1;
    room = ngx_align(plan->key_room + sizeof(uint64_t), sizeof(uint64_t));

    s = ngx_palloc(pool, sizeof(ngx_modelgw_scan_t)
                         + n * sizeof(ngx_modelgw_scan_value_t)
                         + plan->nhashes * sizeof(uint64_t)
                         + plan->nframes * sizeof(ngx_modelgw_scan_frame_t)
                         + keys * room
                         + plan->text_room);
    if (s == NULL) {
        return NULL;
    }

    ngx_memzero(s, sizeof(ngx_modelgw_scan_t));

    s->plan = plan;
    s->conf = &plan->conf;
    s->skip = plan->conf.skip;
    s->names = plan->names;
    s->slots = plan->conf.nmarks ? plan->slots : NULL;
    s->key_room = plan->key_room;

    s->values = (ngx_modelgw_scan_value_t *) (s + 1);
    s->hashes = (uint64_t *) (s->values + n);
    s->frames = (ngx_modelgw_scan_frame_t *) (s->hashes + plan->nhashes);
    s->key = (u_char *) (s->frames + plan->nframes);
    s->folded = s->key + (keys - 1) * room;
    s->texts = s->folded + room;

    ngx_modelgw_scan_reset(s);

    return s;
}


void
ngx_modelgw_scan_reset(ngx_modelgw_scan_t *s)
{
    s->state = sw_begin;
    s->depth = 0;
    s->objects = 0;
    s->base = 0;
    s->capture = 0;
    s->hashing = 0;
    s->target = NGX_MODELGW_SCAN_NONE;
    s->found = 0;
    s->nhashes = 0;
    s->due = 0;
    s->fault = NGX_MODELGW_SCAN_SOUND;

    s->frame = s->frames;
    s->frame->watch = NGX_MODELGW_SCAN_NONE;
    s->frame->depth = 1;
    s->frame->elements = 0;
    s->frame->first = 0;
    s->frame->entered = 1;
    s->frame->checked = s->conf->check;

    ngx_memzero(s->marks, s->conf->nmarks * sizeof(uint32_t));
}


ngx_modelgw_scan_value_t *
ngx_modelgw_scan_value(ngx_modelgw_scan_t *s, ngx_uint_t i)
{
    return (s->found & ((uint32_t) 1 << i)) ? &s->values[i]
                                            : &ngx_modelgw_scan_absent;
}
