
/*
 * The plan, which is what scanners with the same tables share, and scanners.
 *
 * The paths of watches become a tree: each watch has the index of its parent
 * and the bits of all watches below.  Names that keys are compared with are in
 * one table, by the slot of their folded form: so one look-up finds a name,
 * another spelling of it, and a denied name.
 *
 * All memory that a scan may need is allocated at once with the scanner, so
 * that a scan does not fail for memory, and a reset is a few assignments: for a
 * stream of small documents this matters most.
 *
 *     scanner | values of watches | hashes of keys | frames | key
 *     | with check or marks: folded key | texts of values
 *
 * Rejected: comparing whole paths, which would have to be joined for each key.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


/* buffers of keys, and bytes of each */

#define ngx_modelgw_scan_keys(plan)                                           \
    (((plan)->conf.check || (plan)->conf.nmarks) ? 2 : 1)
#define ngx_modelgw_scan_room(plan)                                           \
    ngx_align((plan)->key_room + sizeof(uint64_t), sizeof(uint64_t))


static ngx_int_t ngx_modelgw_scan_plan_names(ngx_modelgw_scan_plan_t *plan);
static ngx_int_t ngx_modelgw_scan_plan_name(ngx_modelgw_scan_plan_t *plan,
    ngx_uint_t i);
static ngx_int_t ngx_modelgw_scan_plan_slots(ngx_modelgw_scan_plan_t *plan,
    ngx_pool_t *pool);
static ngx_int_t ngx_modelgw_scan_plan_marks(ngx_modelgw_scan_plan_t *plan,
    ngx_pool_t *pool);
static ngx_uint_t ngx_modelgw_scan_plan_mark_valid(
    ngx_modelgw_scan_mark_t *mark);
static ngx_uint_t ngx_modelgw_scan_plan_mark_lower(ngx_str_t *name);
static void ngx_modelgw_scan_plan_mark_name(ngx_modelgw_scan_plan_t *plan,
    ngx_uint_t i, ngx_uint_t *n);
static ngx_modelgw_scan_count_t *ngx_modelgw_scan_plan_mark_find(
    ngx_modelgw_scan_plan_t *plan, ngx_str_t *name, ngx_uint_t n);
static void ngx_modelgw_scan_plan_mark_filter(ngx_modelgw_scan_plan_t *plan,
    ngx_modelgw_scan_count_t *count);
static void ngx_modelgw_scan_plan_room(ngx_modelgw_scan_plan_t *plan);
static void ngx_modelgw_scan_plan_text(ngx_modelgw_scan_plan_t *plan,
    ngx_uint_t i);
static void ngx_modelgw_scan_lay(ngx_modelgw_scan_t *s);


/* the value of a watch that was not found */

static ngx_modelgw_scan_value_t  ngx_modelgw_scan_absent;


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
        || ngx_modelgw_scan_plan_marks(plan, pool) != NGX_OK)
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


/* splits the path of a watch into its parent and its own name */

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


/* from the last name on: so in a slot denied names come last */


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


static ngx_int_t
ngx_modelgw_scan_plan_marks(ngx_modelgw_scan_plan_t *plan, ngx_pool_t *pool)
{
    ngx_uint_t                i, n;
    ngx_modelgw_scan_mark_t  *mark;

    if (plan->conf.nmarks > NGX_MODELGW_SCAN_MAX_MARKS) {
        return NGX_DECLINED;
    }

    plan->counts = ngx_pcalloc(pool, (plan->conf.nmarks + 1)
                                     * sizeof(ngx_modelgw_scan_count_t));
    if (plan->counts == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    for (i = 0; i < plan->conf.nmarks; i++) {
        mark = &plan->conf.marks[i];

        if (!ngx_modelgw_scan_plan_mark_valid(mark)) {
            return NGX_DECLINED;
        }

        ngx_modelgw_scan_plan_mark_name(plan, i, &n);

        plan->value_room = ngx_max(plan->value_room, mark->value.len);
    }

    for ( /* void */ ; n; n--) {
        ngx_modelgw_scan_plan_mark_filter(plan, &plan->counts[n]);
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_modelgw_scan_plan_mark_valid(ngx_modelgw_scan_mark_t *mark)
{
    size_t  i;

    if (mark->name.len == 0
        || mark->name.len > NGX_MODELGW_SCAN_MARK_LEN
        || mark->value.len > NGX_MODELGW_SCAN_MARK_LEN
        || !ngx_modelgw_scan_plan_mark_lower(&mark->name))
    {
        return 0;
    }

    for (i = 0; i < mark->name.len; i++) {

        if (mark->name.data[i] < 0x20
            || ngx_strchr("\"\\/", mark->name.data[i]))
        {
            return 0;
        }
    }

    return 1;
}


/* whether the name is in its folded form */

static ngx_uint_t
ngx_modelgw_scan_plan_mark_lower(ngx_str_t *name)
{
    u_char  folded[NGX_MODELGW_SCAN_MARK_LEN];

    return ngx_modelgw_scan_watch_fold(folded, name->data, name->len)
           == name->len
           && ngx_memcmp(folded, name->data, name->len) == 0;
}


/* adds the i-th mark to its name, which may be a new one, the n-th */

static void
ngx_modelgw_scan_plan_mark_name(ngx_modelgw_scan_plan_t *plan, ngx_uint_t i,
    ngx_uint_t *n)
{
    size_t                     head, k;
    u_char                    *slot;
    ngx_str_t                 *name, *value;
    ngx_modelgw_scan_count_t  *count;

    name = &plan->conf.marks[i].name;
    value = &plan->conf.marks[i].value;

    slot = &plan->slots[ngx_modelgw_scan_slot_of(name->data, name->len)];

    count = ngx_modelgw_scan_plan_mark_find(plan, name, *slot);

    if (count == NULL) {
        *n += 1;

        count = &plan->counts[*n];
        count->name = *name;
        count->next = *slot;
        *slot = (u_char) *n;

        head = ngx_min(name->len, sizeof(uint64_t));

        ngx_memcpy(&count->head, name->data, head);
        ngx_memset(&count->mask, 0xff, head);

        for (k = 0; k < head; k++) {

            if (name->data[k] >= 'a' && name->data[k] <= 'z') {
                ((u_char *) &count->lower)[k] = 0x20;
            }
        }
    }

    if (value->len == 0) {
        count->any |= (uint32_t) 1 << i;
        return;
    }

    count->valued |= (uint32_t) 1 << i;
}


/*
 * Returns the name of a slot, whose first one is the n-th; NULL: it is new.
 * Names of marks are in their folded form, so they are compared as they are.
 */

static ngx_modelgw_scan_count_t *
ngx_modelgw_scan_plan_mark_find(ngx_modelgw_scan_plan_t *plan,
    ngx_str_t *name, ngx_uint_t n)
{
    ngx_modelgw_scan_count_t  *count;

    for ( /* void */ ; n; n = count->next) {
        count = &plan->counts[n];

        if (count->name.len == name->len
            && ngx_memcmp(count->name.data, name->data, name->len) == 0)
        {
            return count;
        }
    }

    return NULL;
}


/* hashes the prefixes of all values of a name */

static void
ngx_modelgw_scan_plan_mark_filter(ngx_modelgw_scan_plan_t *plan,
    ngx_modelgw_scan_count_t *count)
{
    size_t       len;
    uint64_t     w;
    ngx_str_t   *value;
    ngx_uint_t   i;

    len = sizeof(uint64_t);

    for (i = 0; i < plan->conf.nmarks; i++) {

        if (count->valued & ((uint32_t) 1 << i)) {
            len = ngx_min(len, plan->conf.marks[i].value.len);
        }
    }

    ngx_memset(&count->prefix, 0xff, len);

    for (i = 0; i < plan->conf.nmarks; i++) {

        if (count->valued & ((uint32_t) 1 << i)) {
            value = &plan->conf.marks[i].value;

            w = 0;
            ngx_memcpy(&w, value->data, len);

            w = ngx_modelgw_scan_mark_hash(w);

            count->filter[0] |= ngx_modelgw_scan_mark_bit(w, 0);
            count->filter[1] |= ngx_modelgw_scan_mark_bit(w, 1);
        }
    }
}


/*
 * Sizes: a key that folds to a name is kept whole; the root, and each watched
 * container that can be open at the same time, has a frame, and hashes if its
 * keys are checked.
 */

static void
ngx_modelgw_scan_plan_room(ngx_modelgw_scan_plan_t *plan)
{
    size_t      longest;
    ngx_uint_t  i, frames, checked, parent;

    /* names and values of marks are shorter */

    longest = NGX_MODELGW_SCAN_QUOTED_KEY;

    for (i = 0; i < plan->nnames; i++) {
        longest = ngx_max(longest, plan->names[i].name.len);
    }

    /* U+212A, three bytes, folds to one */

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


/* of a value that is BRIEF, or no text but a COUNT, nothing longer is kept */

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
    ngx_modelgw_scan_t  *s;

    s = ngx_palloc(pool, ngx_modelgw_scan_size(plan));
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

    ngx_modelgw_scan_lay(s);
    ngx_modelgw_scan_reset(s);

    return s;
}


size_t
ngx_modelgw_scan_size(ngx_modelgw_scan_plan_t *plan)
{
    return sizeof(ngx_modelgw_scan_t)
           + plan->conf.nwatches * sizeof(ngx_modelgw_scan_value_t)
           + plan->nhashes * sizeof(uint64_t)
           + plan->nframes * sizeof(ngx_modelgw_scan_frame_t)
           + ngx_modelgw_scan_keys(plan) * ngx_modelgw_scan_room(plan)
           + plan->text_room;
}


ngx_modelgw_scan_plan_t *
ngx_modelgw_scan_plan_of(ngx_modelgw_scan_t *s)
{
    return s->plan;
}


void
ngx_modelgw_scan_copy(ngx_modelgw_scan_t *dst, ngx_modelgw_scan_t *src)
{
    ngx_uint_t  i;

    ngx_memcpy(dst, src, ngx_modelgw_scan_size(src->plan));

    ngx_modelgw_scan_lay(dst);

    dst->start = NULL;
    dst->frame = dst->frames + (src->frame - src->frames);

    if (src->text) {
        dst->text = (u_char *) dst + (src->text - (u_char *) src);
    }

    for (i = 0; i < dst->conf->nwatches; i++) {
        dst->values[i].text = dst->texts + dst->names[i].text;
    }
}


/* the parts of a scanner's memory */

static void
ngx_modelgw_scan_lay(ngx_modelgw_scan_t *s)
{
    size_t                    room;
    ngx_modelgw_scan_plan_t  *plan;

    plan = s->plan;
    room = ngx_modelgw_scan_room(plan);

    s->values = (ngx_modelgw_scan_value_t *) (s + 1);
    s->hashes = (uint64_t *) (s->values + plan->conf.nwatches);
    s->frames = (ngx_modelgw_scan_frame_t *) (s->hashes + plan->nhashes);
    s->key = (u_char *) (s->frames + plan->nframes);
    s->folded = s->key + (ngx_modelgw_scan_keys(plan) - 1) * room;
    s->texts = s->folded + room;
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
    s->tape = NULL;
    s->fault = NGX_MODELGW_SCAN_OK;

    s->frame = s->frames;
    s->frame->watch = NGX_MODELGW_SCAN_NONE;
    s->frame->depth = 1;
    s->frame->elements = 0;
    s->frame->first = 0;
    s->frame->entered = 1;
    s->frame->checked = s->conf->check;

    ngx_memzero(s->marks, s->conf->nmarks * sizeof(uint32_t));
}


void
ngx_modelgw_scan_tape(ngx_modelgw_scan_t *s, ngx_modelgw_tape_t *tape)
{
    s->tape = tape;
}


ngx_modelgw_scan_value_t *
ngx_modelgw_scan_value(ngx_modelgw_scan_t *s, ngx_uint_t i)
{
    return (s->found & ((uint32_t) 1 << i)) ? &s->values[i]
                                            : &ngx_modelgw_scan_absent;
}
