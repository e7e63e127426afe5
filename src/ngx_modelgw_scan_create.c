
/*
 * Making a scanner from a table of watches.  Everything that a scan may need
 * is allocated here, once, so that a document cannot make it run out of memory
 * half-way, and a scanner is reset in as many steps as there are watches: for
 * a stream of small documents that is what counts.
 *
 * The paths of watches are split into a tree: each watch knows the one above
 * it and, as a word of bits, all below.  Rejected: comparing whole paths, which
 * would have to be put together again for each key.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


static ngx_int_t ngx_modelgw_scan_create_names(ngx_modelgw_scan_t *s);
static ngx_int_t ngx_modelgw_scan_create_name(ngx_modelgw_scan_t *s,
    ngx_uint_t i);
static ngx_int_t ngx_modelgw_scan_create_room(ngx_modelgw_scan_t *s,
    ngx_pool_t *pool);

ngx_modelgw_scan_t *
ngx_modelgw_scan_create(ngx_pool_t *pool, ngx_modelgw_scan_conf_t *conf)
{
    ngx_modelgw_scan_t  *s;

    if (conf->nwatches > NGX_MODELGW_SCAN_MAX_WATCHES) {
        return NULL;
    }

    s = ngx_pcalloc(pool, sizeof(ngx_modelgw_scan_t));
    if (s == NULL) {
        return NULL;
    }

    s->conf = conf;
    s->skip = conf->skip;

    s->names = ngx_pcalloc(pool, (conf->nwatches + 1)
                                 * sizeof(ngx_modelgw_scan_name_t));
    if (s->names == NULL) {
        return NULL;
    }

    s->values = ngx_palloc(pool, (conf->nwatches + 1)
                                 * sizeof(ngx_modelgw_scan_value_t));
    if (s->values == NULL) {
        return NULL;
    }

    if (ngx_modelgw_scan_create_names(s) != NGX_OK
        || ngx_modelgw_scan_create_room(s, pool) != NGX_OK)
    {
        return NULL;
    }

    ngx_modelgw_scan_reset(s);

    return s;
}


void
ngx_modelgw_scan_reset(ngx_modelgw_scan_t *s)
{
    ngx_uint_t  i;

    s->state = sw_begin;
    s->depth = 0;
    s->objects = 0;
    s->base = 0;
    s->capture = 0;
    s->hashing = 0;
    s->target = NGX_MODELGW_SCAN_NONE;
    s->nhashes = 0;
    s->fault = NGX_MODELGW_SCAN_SOUND;

    s->frame = s->frames;
    s->frame->watch = NGX_MODELGW_SCAN_NONE;
    s->frame->depth = 1;
    s->frame->elements = 0;
    s->frame->first = 0;
    s->frame->entered = 1;
    s->frame->checked = s->conf->check;

    for (i = 0; i < s->conf->nwatches; i++) {
        s->values[i].type = NGX_MODELGW_SCAN_ABSENT;
    }
}


ngx_modelgw_scan_value_t *
ngx_modelgw_scan_value(ngx_modelgw_scan_t *s, ngx_uint_t i)
{
    return &s->values[i];
}


static ngx_int_t
ngx_modelgw_scan_create_names(ngx_modelgw_scan_t *s)
{
    ngx_uint_t                i, parent;
    ngx_modelgw_scan_name_t  *name;

    for (i = 0; i < s->conf->nwatches; i++) {

        if (ngx_modelgw_scan_create_name(s, i) != NGX_OK) {
            return NGX_DECLINED;
        }

        name = &s->names[i];

        if (s->conf->watches[i].types & NGX_MODELGW_SCAN_KEYS) {
            name->entered = 1;
        }

        for (parent = name->parent;
             parent != NGX_MODELGW_SCAN_NONE;
             parent = s->names[parent].parent)
        {
            s->names[parent].entered = 1;
            s->names[parent].below |= (uint32_t) 1 << i;
        }
    }

    return NGX_OK;
}


/* splits the path of a watch into the watch above it and its own name */

static ngx_int_t
ngx_modelgw_scan_create_name(ngx_modelgw_scan_t *s, ngx_uint_t i)
{
    u_char                   *p;
    ngx_str_t                *path;
    ngx_uint_t                n;
    ngx_modelgw_scan_name_t  *name;

    path = &s->conf->watches[i].path;
    name = &s->names[i];

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

        if (s->conf->watches[n].path.len == (size_t) (p - path->data)
            && ngx_memcmp(s->conf->watches[n].path.data, path->data,
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
 * Memory for what may come: a key is kept as long as one that folds to a name
 * can be, each container that can be open at a time has its frame, each of
 * these that is checked has its hashes.
 */

static ngx_int_t
ngx_modelgw_scan_create_room(ngx_modelgw_scan_t *s, ngx_pool_t *pool)
{
    size_t      longest;
    ngx_uint_t  i, n;

    longest = NGX_MODELGW_SCAN_QUOTED_KEY;
    n = 1;

    for (i = 0; i < s->conf->nwatches; i++) {
        longest = ngx_max(longest, s->names[i].name.len);

        if (s->conf->watches[i].types & NGX_MODELGW_SCAN_KEYS) {
            n++;
        }
    }

    for (i = 0; i < s->conf->ndenied; i++) {
        longest = ngx_max(longest, s->conf->denied[i].len);
    }

    /* three bytes of U+212A may stand for one */

    s->key_room = 3 * longest;

    s->key = ngx_pnalloc(pool, s->key_room);
    if (s->key == NULL) {
        return NGX_ERROR;
    }

    s->frames = ngx_pcalloc(pool, (s->conf->nwatches + 1)
                                  * sizeof(ngx_modelgw_scan_frame_t));
    if (s->frames == NULL) {
        return NGX_ERROR;
    }

    if (!s->conf->check) {
        return NGX_OK;
    }

    s->hashes = ngx_palloc(pool, n * NGX_MODELGW_SCAN_MAX_KEYS
                                 * sizeof(uint64_t));
    if (s->hashes == NULL) {
        return NGX_ERROR;
    }

    return NGX_OK;
}
