
/*
 * Members that the caller counts, wherever they stand.  Every key of a document
 * may be one, so it costs a look into a table by its length, first and last
 * byte; only what is in the same slot is compared.  Nearly all keys are whole
 * in the chunk, ASCII, and without escapes; the few others are captured like
 * watched ones, which are captured anyway.
 *
 * A key counts in any letter case, too, since an upstream may read it so (Go's
 * encoding/json does, see scan_watch.c).  That costs a key nothing that is not
 * counted: its slot does not depend on the case, and where a letter is
 * expected, its byte is compared with the bit set that tells lower case.  What
 * is not ASCII but folds to it, U+017F and U+212A, is folded when captured.
 *
 * A value is looked at only if its key asks for it: most begin with none of
 * the openings asked for, of some the rest tells, the others are captured.  The
 * text goes where the key was, which nobody needs any more.
 *
 * Rejected: to look for the names in the raw bytes.  A name may be written with
 * escapes, stand in somebody's text, or be cut in two.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


/* backslashes in eight bytes: 0x80 at the first, or more; 0: none */

#define NGX_MODELGW_SCAN_SLASHES  (NGX_MODELGW_SKIP_ONES * '\\')


/* 6 bits of an opening, and 6 others */

#define ngx_modelgw_scan_mark_hash(w)  (((w) * NGX_MODELGW_SCAN_GOLDEN) >> 52)
#define ngx_modelgw_scan_mark_bit(h, i)  ((uint64_t) 1 << ((h) >> 6 * (i) & 63))


static ngx_uint_t ngx_modelgw_scan_mark_valid(ngx_modelgw_scan_mark_t *mark);
static ngx_uint_t ngx_modelgw_scan_mark_lower(ngx_str_t *name);
static void ngx_modelgw_scan_mark_name(ngx_modelgw_scan_plan_t *plan,
    ngx_uint_t i, ngx_uint_t *n);
static void ngx_modelgw_scan_mark_filter(ngx_modelgw_scan_plan_t *plan,
    ngx_modelgw_scan_count_t *count);
static ngx_uint_t ngx_modelgw_scan_mark_may(ngx_str_t *value, u_char *p,
    u_char *last);
static ngx_modelgw_scan_count_t *ngx_modelgw_scan_mark_find(
    ngx_modelgw_scan_plan_t *plan, u_char *p, size_t len, u_char *last,
    ngx_uint_t n);


ngx_int_t
ngx_modelgw_scan_mark_plan(ngx_modelgw_scan_plan_t *plan, ngx_pool_t *pool)
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

        if (!ngx_modelgw_scan_mark_valid(mark)) {
            return NGX_DECLINED;
        }

        ngx_modelgw_scan_mark_name(plan, i, &n);

        plan->value_room = ngx_max(plan->value_room, mark->value.len);
    }

    for ( /* void */ ; n; n--) {
        ngx_modelgw_scan_mark_filter(plan, &plan->counts[n]);
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_modelgw_scan_mark_valid(ngx_modelgw_scan_mark_t *mark)
{
    size_t  i;

    if (mark->name.len == 0
        || mark->name.len > NGX_MODELGW_SCAN_MARK_LEN
        || mark->value.len > NGX_MODELGW_SCAN_MARK_LEN
        || !ngx_modelgw_scan_mark_lower(&mark->name))
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


/* the name is what all spellings of it fold to */

static ngx_uint_t
ngx_modelgw_scan_mark_lower(ngx_str_t *name)
{
    u_char  folded[NGX_MODELGW_SCAN_MARK_LEN];

    return ngx_modelgw_scan_watch_fold(folded, name->data, name->len)
           == name->len
           && ngx_memcmp(folded, name->data, name->len) == 0;
}


/* adds the i-th mark to its name, which may be new: n are there */

static void
ngx_modelgw_scan_mark_name(ngx_modelgw_scan_plan_t *plan, ngx_uint_t i,
    ngx_uint_t *n)
{
    size_t                     head, k;
    u_char                    *slot;
    ngx_str_t                 *name, *value;
    ngx_modelgw_scan_count_t  *count;

    name = &plan->conf.marks[i].name;
    value = &plan->conf.marks[i].value;

    slot = &plan->slots[ngx_modelgw_scan_slot_of(name->data, name->len)];

    count = *slot ? ngx_modelgw_scan_mark_find(plan, name->data, name->len,
                                               name->data + name->len, *slot)
                  : NULL;

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


/* the filter of a name: made when all its values are known */

static void
ngx_modelgw_scan_mark_filter(ngx_modelgw_scan_plan_t *plan,
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

    ngx_memset(&count->opening, 0xff, len);

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
 * The first eight bytes are compared at once, if so many can be read.  With the
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


void
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
        return;                          /* it is watched, too */
    }

    if (last - p >= (ssize_t) sizeof(uint64_t)) {
        ngx_memcpy(&w, p, sizeof(uint64_t));

        slash = w ^ NGX_MODELGW_SCAN_SLASHES;
        slash = (slash - NGX_MODELGW_SKIP_ONES) & ~slash
                & NGX_MODELGW_SKIP_HIGH;

        w = ngx_modelgw_scan_mark_hash(w & s->counted->opening);

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


/* whether the string may begin so, as far as it is here and has no escape */

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

    /* a lone surrogate is no character, but what stands before it counts */

    len = s->lone ? s->sound : s->len;

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


uint32_t *
ngx_modelgw_scan_marks(ngx_modelgw_scan_t *s)
{
    return s->marks;
}
