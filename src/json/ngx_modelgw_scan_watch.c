
/*
 * Watches: keys and values that the caller wants; and marks: members that are
 * counted.
 *
 * Only objects on the way to a watch are looked at: each open one has a frame.
 * Keys of deeper objects are not compared.
 *
 * An upstream may use the first of two equal keys, or the last, or one in
 * another letter case (Go's encoding/json folds ASCII, U+017F and U+212A).  So,
 * with check, a watched name in another letter case is refused, and so are
 * equal keys in checked objects.  Equal keys are found by a hash of each: two
 * different keys with one hash are refused as well, which does not happen by
 * chance.  Names of watches are compared by their bytes, and only those of the
 * key's slot in the plan's table.
 *
 * A captured key is hashed and folded by words of eight bytes; only one that is
 * not ASCII is folded by bytes.
 *
 * Every key of a document may be a mark, so it is looked up by its length,
 * first and last byte; only names of the same slot are compared.  Nearly all
 * keys are whole in the chunk, ASCII, and without escapes; the few others are
 * captured, like watched ones.
 *
 * A mark counts in any letter case, for the reason above.  The slot does not
 * depend on the case, and where the name has a letter the byte is compared with
 * the case bit set, so other keys cost nothing more.  U+017F and U+212A are
 * folded in captured keys.
 *
 * The value of a mark is looked at only if its key is that of a mark with a
 * value: most have none of the prefixes, which a filter finds out; some differ
 * from it in a later byte; the others are captured, to the memory of the key,
 * which is not needed any more.
 *
 * Rejected: a set of seen keys, which would have to be cleared for each
 * document; searching the raw bytes for the names of marks (a name may be
 * written with escapes, be a part of some text, or be cut in two).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


/* eight backslashes */

#define NGX_MODELGW_SCAN_SLASHES  (NGX_MODELGW_SKIP_ONES * '\\')


static size_t ngx_modelgw_scan_watch_words(ngx_modelgw_scan_t *s);
static u_char *ngx_modelgw_scan_watch_check(ngx_modelgw_scan_t *s, u_char *p);
static u_char *ngx_modelgw_scan_watch_find(ngx_modelgw_scan_t *s, u_char *p,
    u_char *key, size_t len);
static u_char *ngx_modelgw_scan_watch_name(ngx_modelgw_scan_t *s, u_char *p,
    ngx_uint_t i);
static ngx_uint_t ngx_modelgw_scan_watch_count(ngx_modelgw_scan_t *s);
static ngx_inline ngx_modelgw_scan_count_t *ngx_modelgw_scan_mark_find(
    ngx_modelgw_scan_plan_t *plan, u_char *p, size_t len, u_char *last,
    ngx_uint_t n);
static void ngx_modelgw_scan_mark_key_end(ngx_modelgw_scan_t *s, size_t len);
static ngx_inline ngx_uint_t ngx_modelgw_scan_mark_may(ngx_str_t *value,
    u_char *p, u_char *last);


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

    /* no name is so long, or has a lone surrogate */

    if (s->len > s->key_room || s->lone) {
        return p;
    }

    return s->conf->check
           ? ngx_modelgw_scan_watch_find(s, p, s->folded, len)
           : ngx_modelgw_scan_watch_find(s, p, s->key, s->len);
}


/* hashes and folds the captured key; returns the length of the folded one */

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

        /* adding carries to the high bit: of 'A' and above, not above 'Z' */

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


/* refuses a key that is not allowed in a checked object */

static u_char *
ngx_modelgw_scan_watch_check(ngx_modelgw_scan_t *s, u_char *p)
{
    ngx_uint_t  i;

    if (s->lone) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_SURROGATE, p);
    }

    for (i = s->frame->first; i < s->nhashes; i++) {

        if (s->hashes[i] == s->hash) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_DUPLICATE_KEY, p);
        }
    }

    if (s->nhashes - s->frame->first == NGX_MODELGW_SCAN_MAX_KEYS) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_TOO_MANY_KEYS, p);
    }

    s->hashes[s->nhashes++] = s->hash;

    return p;
}


/* finds the names that are equal to the key, which is folded with check */

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
 * The key folds to the i-th name; without check it is the name.  Its watch
 * becomes the target, the value of an equal key before it is dropped.
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

    return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_CASE_VARIANT, p);
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

    /* whether it is a COUNT is known at its end */

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


void
ngx_modelgw_scan_mark_key(ngx_modelgw_scan_t *s, u_char *p, size_t len,
    u_char *last, ngx_uint_t n)
{
    uint32_t                   bits;
    ngx_modelgw_scan_count_t  *count;

    count = ngx_modelgw_scan_mark_find(s->plan, p, len, last, n);

    if (count == NULL) {
        return;
    }

    s->counted = count;
    s->due = count->valued;

    for (bits = count->any; bits; bits &= bits - 1) {
        s->marks[__builtin_ctz(bits)]++;
    }
}


/*
 * The first eight bytes are compared at once, if they can be read.  With the
 * bit 0x20 set, a byte equals the letter of a name only if it is that letter,
 * in lower or upper case.
 */

static ngx_inline ngx_modelgw_scan_count_t *
ngx_modelgw_scan_mark_find(ngx_modelgw_scan_plan_t *plan, u_char *p,
    size_t len, u_char *last, ngx_uint_t n)
{
    size_t                     head;
    uint64_t                   w;
    ngx_modelgw_scan_count_t  *count;

    w = 0;
    head = 0;

    if (last - p >= (ssize_t) sizeof(uint64_t)) {
        ngx_memcpy(&w, p, sizeof(uint64_t));
        head = sizeof(uint64_t);
    }

    do {
        count = &plan->counts[n];

        if (count->name.len == len
            && (head == 0
                || ((w | count->lower) & count->mask) == count->head)
            && (len <= head
                || ngx_strncasecmp(count->name.data + head, p + head,
                                   len - head)
                   == 0))
        {
            return count;
        }

        n = count->next;

    } while (n);

    return NULL;
}


static void
ngx_modelgw_scan_mark_key_end(ngx_modelgw_scan_t *s, size_t len)
{
    u_char      *p;
    ngx_uint_t   n;

    s->due = 0;

    if (len == 0 || len > NGX_MODELGW_SCAN_MARK_LEN || s->lone) {
        return;
    }

    p = s->folded;
    n = s->slots[ngx_modelgw_scan_slot(p[0], p[len - 1], len)];

    if (n) {
        ngx_modelgw_scan_mark_key(s, p, len, p + s->key_room, n);
    }
}


void
ngx_modelgw_scan_mark_text(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    uint32_t    bits;
    uint64_t    w, slash;
    ngx_uint_t  i;

    if (s->capture) {
        return;                          /* it is a watched value, too */
    }

    if (last - p >= (ssize_t) sizeof(uint64_t)) {
        ngx_memcpy(&w, p, sizeof(uint64_t));

        slash = w ^ NGX_MODELGW_SCAN_SLASHES;
        slash = (slash - NGX_MODELGW_SKIP_ONES) & ~slash
                & NGX_MODELGW_SKIP_HIGH;

        w = ngx_modelgw_scan_mark_hash(w & s->counted->prefix);

        if (slash == 0
            && !((s->counted->filter[0] & ngx_modelgw_scan_mark_bit(w, 0))
                 && (s->counted->filter[1] & ngx_modelgw_scan_mark_bit(w, 1))))
        {
            s->due = 0;
            return;
        }
    }

    for (bits = s->due; bits; bits &= bits - 1) {
        i = __builtin_ctz(bits);

        if (!ngx_modelgw_scan_mark_may(&s->conf->marks[i].value, p, last)) {
            s->due &= ~((uint32_t) 1 << i);
        }
    }

    if (s->due) {
        ngx_modelgw_scan_text_capture(s, s->key, s->plan->value_room);
    }
}


/* whether the string may have the prefix, up to an escape or to last */

static ngx_inline ngx_uint_t
ngx_modelgw_scan_mark_may(ngx_str_t *value, u_char *p, u_char *last)
{
    size_t  n;

    last = ngx_min(last, p + value->len);

    for (n = 0; p + n < last && p[n] != '\\'; n++) {

        if (p[n] != value->data[n]) {
            return 0;
        }
    }

    return 1;
}


void
ngx_modelgw_scan_mark_text_end(ngx_modelgw_scan_t *s)
{
    size_t      len;
    ngx_str_t  *value;
    ngx_uint_t  i;

    /* a lone surrogate is no character, but a prefix may be before it */

    len = s->lone ? s->valid : s->len;

    for (i = 0; i < s->conf->nmarks; i++) {
        value = &s->conf->marks[i].value;

        if ((s->due & ((uint32_t) 1 << i))
            && value->len <= len
            && ngx_memcmp(s->text, value->data, value->len) == 0)
        {
            s->marks[i]++;
        }
    }

    s->due = 0;
}


ngx_uint_t
ngx_modelgw_scan_mark(ngx_modelgw_scan_t *s, ngx_uint_t i)
{
    return s->marks[i];
}


off_t
ngx_modelgw_scan_root(ngx_modelgw_scan_t *s)
{
    return s->root;
}


uint32_t *
ngx_modelgw_scan_marks(ngx_modelgw_scan_t *s)
{
    return s->marks;
}
