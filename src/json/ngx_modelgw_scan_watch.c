
/*
 * Keys and values that the caller watches.  Only objects on the way to a watch
 * are looked at: for each one that is open there is a frame; what lies deeper
 * is never compared with anything.
 *
 * Whoever comes behind us may take the first of two equal keys, or the last,
 * or one in other letter case (Go's encoding/json folds ASCII, U+017F and
 * U+212A).  So they are refused instead of resolved: with check, a name in
 * other letter case wherever it is watched, equal keys in checked objects.  For
 * equal keys a hash of each is enough: two keys that differ and share it
 * are refused as well, which nobody meets by chance.  Names are compared by
 * their bytes, those of one slot of the plan's table only.
 *
 * A key that is kept is hashed and folded by words of eight bytes; only one
 * that is not ASCII is folded by bytes.
 *
 * Rejected: a set of seen keys that would have to be cleared for each document.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


static size_t ngx_modelgw_scan_watch_words(ngx_modelgw_scan_t *s);
static u_char *ngx_modelgw_scan_watch_check(ngx_modelgw_scan_t *s, u_char *p);
static u_char *ngx_modelgw_scan_watch_find(ngx_modelgw_scan_t *s, u_char *p,
    u_char *key, size_t len);
static u_char *ngx_modelgw_scan_watch_name(ngx_modelgw_scan_t *s, u_char *p,
    ngx_uint_t i);
static ngx_uint_t ngx_modelgw_scan_watch_count(ngx_modelgw_scan_t *s);


void
ngx_modelgw_scan_watch_key(ngx_modelgw_scan_t *s)
{
    ngx_modelgw_scan_text_capture(s, s->key, s->key_room);
    s->hashing = s->frame->checked;
}


u_char *
ngx_modelgw_scan_watch_key_short(ngx_modelgw_scan_t *s, u_char *from,
    size_t len)
{
    if (!s->conf->check && s->slots == NULL) {
        s->target = NGX_MODELGW_SCAN_NONE;

        return ngx_modelgw_scan_watch_find(s, from + len + 1, from, len);
    }

    ngx_memcpy(s->key, from, NGX_MODELGW_SKIP_SHORT);

    s->len = len;
    s->lone = 0;

    return ngx_modelgw_scan_watch_key_end(s, from + len + 1);
}


u_char *
ngx_modelgw_scan_watch_key_end(ngx_modelgw_scan_t *s, u_char *p)
{
    size_t  len;

    s->capture = 0;
    s->hashing = 0;

    len = s->len;

    if (len <= s->key_room && (s->conf->check || s->slots)) {
        len = ngx_modelgw_scan_watch_words(s);
    }

    if (s->slots) {
        ngx_modelgw_scan_mark_key_end(s, len);
    }

    if (!ngx_modelgw_scan_watched(s)) {
        return p;
    }

    s->target = NGX_MODELGW_SCAN_NONE;
    s->parent = s->frame->watch;

    if (s->frame->checked && ngx_modelgw_scan_watch_check(s, p) == NULL) {
        return NULL;
    }

    /* no name is longer than there is room for */

    if (s->len > s->key_room || s->lone) {
        return p;
    }

    return s->conf->check
           ? ngx_modelgw_scan_watch_find(s, p, s->folded, len)
           : ngx_modelgw_scan_watch_find(s, p, s->key, s->len);
}


/* hashes the key that is kept, and folds it; returns how long it then is */

static size_t
ngx_modelgw_scan_watch_words(ngx_modelgw_scan_t *s)
{
    size_t    n;
    uint64_t  w, low, upper, all, hash;

    ngx_memzero(s->key + s->len, sizeof(uint64_t));

    all = 0;
    hash = s->len * NGX_MODELGW_SCAN_GOLDEN;

    for (n = 0; n < s->len; n += sizeof(uint64_t)) {
        ngx_memcpy(&w, s->key + n, sizeof(uint64_t));

        hash = (hash ^ w) * NGX_MODELGW_SCAN_GOLDEN;
        hash ^= hash >> 32;

        all |= w;

        /* adding carries into the high bit of what is 'A' or more; 'Z' */

        low = w & ~NGX_MODELGW_SKIP_HIGH;
        upper = (low + NGX_MODELGW_SKIP_ONES * (0x80 - 'A'))
                & ~(low + NGX_MODELGW_SKIP_ONES * (0x80 - 'Z' - 1))
                & NGX_MODELGW_SKIP_HIGH;

        w |= upper >> 2;                 /* 0x20 */
        ngx_memcpy(s->folded + n, &w, sizeof(uint64_t));
    }

    s->hash = hash;

    if (all & NGX_MODELGW_SKIP_HIGH) {
        return ngx_modelgw_scan_watch_fold(s->folded, s->key, s->len);
    }

    return s->len;
}


/* may one more key be here, and this one? */

static u_char *
ngx_modelgw_scan_watch_check(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_uint_t  i;

    if (s->lone) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_SURROGATE, p);
    }

    for (i = s->frame->first; i < s->nhashes; i++) {

        if (s->hashes[i] == s->hash) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_TWICE, p);
        }
    }

    if (s->nhashes - s->frame->first == NGX_MODELGW_SCAN_MAX_KEYS) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_CROWDED, p);
    }

    s->hashes[s->nhashes++] = s->hash;

    return p;
}


/* Finds the names that the key, which is folded with check, may stand for. */

static u_char *
ngx_modelgw_scan_watch_find(ngx_modelgw_scan_t *s, u_char *p, u_char *key,
    size_t len)
{
    uint32_t                  n;
    ngx_modelgw_scan_name_t  *name;

    n = s->plan->named[ngx_modelgw_scan_slot_of(key, len)];

    for ( /* void */ ; n; n = name->next) {
        name = &s->names[n - 1];

        if (name->folded.len == len
            && name->parent == s->frame->watch
            && ngx_memcmp(name->folded.data, key, len) == 0
            && ngx_modelgw_scan_watch_name(s, p, n - 1) == NULL)
        {
            return NULL;
        }
    }

    return p;
}


/*
 * The key folds to this name; without check it is the name.  Makes the watch of
 * the key the target; what an equal key has brought before is forgotten.
 */

static u_char *
ngx_modelgw_scan_watch_name(ngx_modelgw_scan_t *s, u_char *p, ngx_uint_t i)
{
    ngx_modelgw_scan_name_t  *name;

    name = &s->names[i];

    if (i >= s->conf->nwatches) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_DENIED, p);
    }

    if (!s->conf->check
        || (name->name.len == s->len
            && ngx_memcmp(name->name.data, s->key, s->len) == 0))
    {
        s->target = i;
        s->found &= ~(name->below | ((uint32_t) 1 << i));

        return p;
    }

    s->subject = i;

    return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_VARIANT, p);
}


size_t
ngx_modelgw_scan_watch_fold(u_char *dst, u_char *p, size_t len)
{
    u_char  *from, *last;

    from = dst;
    last = p + len;

    while (p < last) {

        if (*p == 0xc5 && last - p >= 2 && p[1] == 0xbf) {
            *dst++ = 's';                /* U+017F */
            p += 2;

        } else if (*p == 0xe2 && last - p >= 3 && p[1] == 0x84
                   && p[2] == 0xaa)
        {
            *dst++ = 'k';                /* U+212A */
            p += 3;

        } else {
            *dst++ = ngx_tolower(*p);
            p++;
        }
    }

    return dst - from;
}


u_char *
ngx_modelgw_scan_watch_value(ngx_modelgw_scan_t *s, ngx_uint_t type, u_char *p)
{
    ngx_uint_t                types;
    ngx_modelgw_scan_value_t  *v;

    s->frame->elements++;

    if (s->target == NGX_MODELGW_SCAN_NONE) {
        return p;
    }

    types = s->conf->watches[s->target].types;

    /* whether it is a COUNT is seen at its end */

    if (types & NGX_MODELGW_SCAN_COUNT) {
        types |= NGX_MODELGW_SCAN_NUMBER;
    }

    if (!(types & type)) {
        s->subject = s->target;
        s->target = NGX_MODELGW_SCAN_NONE;

        return s->conf->check
               ? ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_TYPE, p)
               : p;
    }

    v = &s->values[s->target];

    v->elements = 0;
    v->from = ngx_modelgw_scan_offset(s, p);
    v->len = 0;
    v->text = s->texts + s->names[s->target].text;

    s->type = type;

    if (type & (NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_NUMBER)) {
        ngx_modelgw_scan_text_capture(s, v->text, s->names[s->target].room);
    }

    return p;
}


u_char *
ngx_modelgw_scan_watch_value_end(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_modelgw_scan_value_t  *v;

    if (s->target == NGX_MODELGW_SCAN_NONE) {
        s->capture = 0;
        return p;
    }

    s->subject = s->target;
    s->target = NGX_MODELGW_SCAN_NONE;

    v = &s->values[s->subject];

    if (s->capture) {
        s->capture = 0;
        v->len = (s->lone || s->len > s->room) ? NGX_MODELGW_SCAN_TEXT + 1
                                               : s->len;
    }

    if (s->type == NGX_MODELGW_SCAN_NUMBER) {

        if (ngx_modelgw_scan_watch_count(s)) {
            s->type |= NGX_MODELGW_SCAN_COUNT;
        }

        if (!(s->conf->watches[s->subject].types & s->type)) {
            return s->conf->check
                   ? ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_TYPE, p)
                   : p;
        }
    }

    v->type = s->type;
    v->to = ngx_modelgw_scan_offset(s, p);

    s->found |= (uint32_t) 1 << s->subject;

    return p;
}


static ngx_uint_t
ngx_modelgw_scan_watch_count(ngx_modelgw_scan_t *s)
{
    size_t  i;

    if (s->len > NGX_MODELGW_SCAN_DIGITS) {
        return 0;
    }

    for (i = 0; i < s->len; i++) {

        if (s->text[i] < '0' || s->text[i] > '9') {
            return 0;
        }
    }

    return 1;
}


void
ngx_modelgw_scan_watch_open(ngx_modelgw_scan_t *s)
{
    ngx_modelgw_scan_frame_t  *frame;

    frame = ++s->frame;

    frame->watch = s->target;
    frame->depth = s->depth;
    frame->elements = 0;
    frame->first = s->nhashes;
    frame->entered = s->names[s->target].entered;
    frame->checked = s->conf->check
                     && (s->conf->watches[s->target].types
                         & NGX_MODELGW_SCAN_KEYS);

    s->target = NGX_MODELGW_SCAN_NONE;
}


void
ngx_modelgw_scan_watch_close(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_modelgw_scan_frame_t  *frame;
    ngx_modelgw_scan_value_t  *v;

    frame = s->frame;

    if (frame == s->frames) {
        return;
    }

    v = &s->values[frame->watch];

    v->type = (s->objects & 1) ? NGX_MODELGW_SCAN_OBJECT
                               : NGX_MODELGW_SCAN_ARRAY;
    v->elements = frame->elements;
    v->to = ngx_modelgw_scan_offset(s, p);

    s->found |= (uint32_t) 1 << frame->watch;

    s->nhashes = frame->first;
    s->frame--;
}
