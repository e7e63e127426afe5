
/*
 * Keys and values that the caller watches.  Only objects on the way to a watch
 * are looked at: for each one that is open there is a frame; what lies deeper
 * is never compared with anything.
 *
 * Whoever comes behind us may take the first of two equal keys, or the last,
 * or one in other letter case (Go's encoding/json folds ASCII, U+017F and
 * U+212A).  So such keys are refused in checked objects instead of resolved.
 * For equal keys a hash of each is enough: two keys that differ and share it
 * are refused as well, which nobody meets by chance.  Names are compared by
 * their bytes.
 *
 * Rejected: a hash table of names (a few dozen comparisons of lengths for each
 * of the few keys in such objects are as fast), and a set of seen keys that
 * would have to be cleared for each document.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


static u_char *ngx_modelgw_scan_watch_check(ngx_modelgw_scan_t *s, u_char *p);
static u_char *ngx_modelgw_scan_watch_spelling(ngx_modelgw_scan_t *s,
    u_char *p);
static void ngx_modelgw_scan_watch_find(ngx_modelgw_scan_t *s);
static ngx_uint_t ngx_modelgw_scan_watch_exact(ngx_modelgw_scan_t *s,
    ngx_str_t *name);
static ngx_uint_t ngx_modelgw_scan_watch_folds(ngx_modelgw_scan_t *s,
    ngx_str_t *name);
static u_char ngx_modelgw_scan_watch_fold(u_char **p, u_char *last);
static ngx_uint_t ngx_modelgw_scan_watch_count(ngx_modelgw_scan_t *s);


void
ngx_modelgw_scan_watch_key(ngx_modelgw_scan_t *s)
{
    if (s->frame->entered) {
        ngx_modelgw_scan_string_capture(s, s->key, s->key_room);
        s->hashing = s->frame->checked;
    }
}


u_char *
ngx_modelgw_scan_watch_key_end(ngx_modelgw_scan_t *s, u_char *p)
{
    s->capture = 0;
    s->hashing = 0;

    if (s->frame->checked && ngx_modelgw_scan_watch_check(s, p) == NULL) {
        return NULL;
    }

    ngx_modelgw_scan_watch_find(s);

    return p;
}


/* may this key be here at all? */

static u_char *
ngx_modelgw_scan_watch_check(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_uint_t  i;

    s->parent = s->frame->watch;

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

    return ngx_modelgw_scan_watch_spelling(s, p);
}


static u_char *
ngx_modelgw_scan_watch_spelling(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_uint_t  i;

    for (i = 0; i < s->conf->nwatches; i++) {

        if (s->names[i].parent == s->frame->watch
            && ngx_modelgw_scan_watch_folds(s, &s->names[i].name)
            && !ngx_modelgw_scan_watch_exact(s, &s->names[i].name))
        {
            s->subject = i;
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_VARIANT, p);
        }
    }

    if (s->frame->watch != NGX_MODELGW_SCAN_NONE) {
        return p;
    }

    for (i = 0; i < s->conf->ndenied; i++) {

        if (ngx_modelgw_scan_watch_folds(s, &s->conf->denied[i])) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_DENIED, p);
        }
    }

    return p;
}


/*
 * Makes the watch of the key, if there is one, the target.  What an equal key
 * has brought before is forgotten.
 */

static void
ngx_modelgw_scan_watch_find(ngx_modelgw_scan_t *s)
{
    ngx_uint_t  i, n;

    s->target = NGX_MODELGW_SCAN_NONE;

    for (i = 0; i < s->conf->nwatches; i++) {

        if (s->names[i].parent == s->frame->watch
            && ngx_modelgw_scan_watch_exact(s, &s->names[i].name))
        {
            break;
        }
    }

    if (i == s->conf->nwatches) {
        return;
    }

    s->target = i;
    s->values[i].type = NGX_MODELGW_SCAN_ABSENT;

    for (n = i + 1; n < s->conf->nwatches; n++) {

        if (s->names[i].below & ((uint32_t) 1 << n)) {
            s->values[n].type = NGX_MODELGW_SCAN_ABSENT;
        }
    }
}


static ngx_uint_t
ngx_modelgw_scan_watch_exact(ngx_modelgw_scan_t *s, ngx_str_t *name)
{
    return s->len == name->len
           && !s->lone
           && ngx_memcmp(s->key, name->data, name->len) == 0;
}


static ngx_uint_t
ngx_modelgw_scan_watch_folds(ngx_modelgw_scan_t *s, ngx_str_t *name)
{
    u_char  *p, *q, *plast, *qlast;

    if (s->len > s->room) {
        return 0;
    }

    p = s->key;
    plast = p + s->len;

    q = name->data;
    qlast = q + name->len;

    while (p < plast && q < qlast) {

        if (ngx_modelgw_scan_watch_fold(&p, plast)
            != ngx_modelgw_scan_watch_fold(&q, qlast))
        {
            return 0;
        }
    }

    return p == plast && q == qlast;
}


/* takes a character that folds, or a byte */

static ngx_inline u_char
ngx_modelgw_scan_watch_fold(u_char **p, u_char *last)
{
    u_char  *c;

    c = *p;

    if (*c == 0xc5 && last - c >= 2 && c[1] == 0xbf) {
        *p += 2;
        return 's';                      /* U+017F */
    }

    if (*c == 0xe2 && last - c >= 3 && c[1] == 0x84 && c[2] == 0xaa) {
        *p += 3;
        return 'k';                      /* U+212A */
    }

    *p += 1;

    return ngx_tolower(*c);
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

    s->type = type;

    if (type & (NGX_MODELGW_SCAN_STRING|NGX_MODELGW_SCAN_NUMBER)) {
        ngx_modelgw_scan_string_capture(s, v->text, NGX_MODELGW_SCAN_TEXT);
    }

    return p;
}


u_char *
ngx_modelgw_scan_watch_value_end(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_modelgw_scan_value_t  *v;

    if (s->target == NGX_MODELGW_SCAN_NONE) {
        return p;
    }

    s->subject = s->target;
    s->target = NGX_MODELGW_SCAN_NONE;

    v = &s->values[s->subject];

    if (s->capture) {
        s->capture = 0;
        v->len = (s->lone || s->len > s->room) ? s->room + 1 : s->len;
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

    return p;
}


static ngx_uint_t
ngx_modelgw_scan_watch_count(ngx_modelgw_scan_t *s)
{
    size_t  i;

    if (s->len > 9) {
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

    s->nhashes = frame->first;
    s->frame--;
}
