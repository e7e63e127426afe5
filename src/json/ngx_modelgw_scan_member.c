
/*
 * Members, as most programs write them: keys are short and have no escapes,
 * white space is one blank after ':' and ',' or none, values are strings and
 * objects.  These are read without the machine's table, which reads all other
 * JSON and finds the faults.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


/* bytes that the loop reads without a check: a key and what is around it */

#define NGX_MODELGW_SCAN_AHEAD   (NGX_MODELGW_SKIP_SHORT + 8)


/* compiled for each caller: most documents have no tape, and must not ask */

#define ngx_modelgw_scan_member_inline  inline __attribute__((always_inline))

#define ngx_modelgw_scan_member_begin(s, tape, type, p)                       \
    if (tape) {                                                               \
        ngx_modelgw_tape_begin(tape, type, ngx_modelgw_scan_offset(s, p), 0); \
    }

#define ngx_modelgw_scan_member_end(s, tape, p)                               \
    if (tape) {                                                               \
        ngx_modelgw_tape_end(tape, ngx_modelgw_scan_offset(s, p));            \
    }


#define ngx_modelgw_scan_blank(p, last)                                       \
    (((p) < (last) && *(p) == ' ') ? (p) + 1 : (p))


static u_char *ngx_modelgw_scan_member_watched(ngx_modelgw_scan_t *s,
    u_char *from, u_char *last);
static u_char *ngx_modelgw_scan_member_any(ngx_modelgw_scan_t *s,
    u_char *from, u_char *last);
static void ngx_modelgw_scan_member_marked(ngx_modelgw_scan_t *s,
    u_char *from, ssize_t len, u_char *last);
static ngx_modelgw_scan_member_inline u_char *ngx_modelgw_scan_member_loop(
    ngx_modelgw_scan_t *s, u_char *p, u_char *last, ngx_modelgw_tape_t *tape);
static __attribute__((noinline)) u_char *ngx_modelgw_scan_member_taped(
    ngx_modelgw_scan_t *s, u_char *p, u_char *last);
static ngx_modelgw_scan_member_inline u_char *ngx_modelgw_scan_member_inside(
    ngx_modelgw_scan_t *s, u_char *p, u_char *last,
    ngx_modelgw_scan_state_e next, ngx_modelgw_tape_t *tape);


u_char *
ngx_modelgw_scan_member_comma(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    p = ngx_modelgw_scan_blank(p + 1, last);

    if (p < last && *p == '"') {
        return ngx_modelgw_scan_member_key(s, p, last);
    }

    s->state = sw_key;

    return p;
}


u_char *
ngx_modelgw_scan_member_key(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    if (!ngx_modelgw_scan_watched(s) && last - p >= NGX_MODELGW_SCAN_AHEAD) {
        return s->tape ? ngx_modelgw_scan_member_taped(s, p, last)
                       : ngx_modelgw_scan_member_loop(s, p, last, NULL);
    }

    ngx_modelgw_scan_begin(s, NGX_MODELGW_TAPE_STRING, p);

    p = ngx_modelgw_scan_watched(s)
        ? ngx_modelgw_scan_member_watched(s, p + 1, last)
        : ngx_modelgw_scan_member_any(s, p + 1, last);

    if (p == NULL || p == last || s->state != sw_colon || *p != ':') {
        return p;
    }

    s->state = sw_value;
    p = ngx_modelgw_scan_blank(p + 1, last);

    if (p < last && *p == '"') {
        return ngx_modelgw_scan_member_text(s, p, last);
    }

    return p;
}


static u_char *
ngx_modelgw_scan_member_watched(ngx_modelgw_scan_t *s, u_char *from,
    u_char *last)
{
    size_t  len;

    if (!s->frame->entered) {
        return ngx_modelgw_scan_member_any(s, from, last);
    }

    len = ngx_modelgw_skip_string(from, last);

    if (len < NGX_MODELGW_SKIP_SHORT) {
        ngx_modelgw_scan_end(s, from + len + 1);

        s->state = sw_colon;
        return ngx_modelgw_scan_watch_key_short(s, from, len);
    }

    s->state = sw_string;
    s->next = sw_colon;

    ngx_modelgw_scan_watch_key(s);

    return ngx_modelgw_scan_string(s, from, last);
}


/*
 * Any key that is not watched: long, cut by the end of the chunk, or near it.
 * It may be a mark: one that is whole and has no escapes of its own is compared
 * in place, any other is captured.
 */

static u_char *
ngx_modelgw_scan_member_any(ngx_modelgw_scan_t *s, u_char *from, u_char *last)
{
    u_char  *p;

    if (s->slots) {
        p = from + s->skip(from, last - from);

        if (p < last && *p == '"') {
            ngx_modelgw_scan_member_marked(s, from, p - from, last);
            ngx_modelgw_scan_end(s, p + 1);

            s->state = sw_colon;
            return p + 1;
        }

        ngx_modelgw_scan_text_capture(s, s->key, s->key_room);
    }

    s->state = sw_string;
    s->next = sw_colon;

    return ngx_modelgw_scan_string(s, from, last);
}


/* the first and last byte of an empty key are its quotes: it has no mark */

static ngx_inline void
ngx_modelgw_scan_member_marked(ngx_modelgw_scan_t *s, u_char *from, ssize_t len,
    u_char *last)
{
    ngx_uint_t  n;

    s->due = 0;

    n = s->slots[ngx_modelgw_scan_slot(from[0], from[len - 1], len)];

    if (n) {
        ngx_modelgw_scan_mark_key(s, from, len, last, n);
    }
}


/*
 * Members of objects that are not watched, which are most of a body.  The state
 * is the place in the code: keys, strings, and objects in such objects are read
 * as most programs write them, the rest is left to the table.  It is compiled
 * twice: tape is s->tape.
 */

static ngx_modelgw_scan_member_inline u_char *
ngx_modelgw_scan_member_loop(ngx_modelgw_scan_t *s, u_char *p, u_char *last,
    ngx_modelgw_tape_t *tape)
{
    size_t  len;

    do {
        ngx_modelgw_scan_member_begin(s, tape, NGX_MODELGW_TAPE_STRING, p);

        len = ngx_modelgw_skip_short(p + 1);

        if (p[len + 1] != '"') {
            return ngx_modelgw_scan_member_any(s, p + 1, last);
        }

        if (s->slots) {
            ngx_modelgw_scan_member_marked(s, p + 1, len, last);
        }

        p += len + 2;

        ngx_modelgw_scan_member_end(s, tape, p);

        if (*p != ':') {
            s->state = sw_colon;
            return p;
        }

        p += (p[1] == ' ') ? 2 : 1;

        if (*p == '{' && s->depth < NGX_MODELGW_SCAN_MAX_DEPTH) {
            ngx_modelgw_scan_member_begin(s, tape, NGX_MODELGW_TAPE_OBJECT, p);

            s->depth++;
            s->objects = (s->objects << 1) | 1;
            s->state = sw_first_key;
            p++;
            continue;
        }

        if (*p != '"') {
            s->state = sw_value;
            return p;
        }

        ngx_modelgw_scan_member_begin(s, tape, NGX_MODELGW_TAPE_STRING, p);

        p = ngx_modelgw_scan_member_inside(s, p + 1, last, sw_member, tape);

        if (p == NULL || s->state != sw_member) {
            return p;
        }

        while (last - p >= NGX_MODELGW_SCAN_AHEAD && *p == '}') {
            p++;

            if (tape) {
                ngx_modelgw_tape_close(tape, ngx_modelgw_scan_offset(s, p));
            }

            s->depth--;
            s->objects >>= 1;

            if (ngx_modelgw_scan_watched(s) || !(s->objects & 1)) {
                s->state = ngx_modelgw_scan_after(s);
                return p;
            }
        }

        if (last - p < NGX_MODELGW_SCAN_AHEAD || *p != ',') {
            return p;
        }

        p += (p[1] == ' ') ? 2 : 1;
        s->state = sw_key;

    } while (last - p >= NGX_MODELGW_SCAN_AHEAD && *p == '"');

    return p;
}


static u_char *
ngx_modelgw_scan_member_taped(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    return ngx_modelgw_scan_member_loop(s, p, last, s->tape);
}


u_char *
ngx_modelgw_scan_member_text(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    if (ngx_modelgw_scan_watched(s)
        && ngx_modelgw_scan_watch_value(s, NGX_MODELGW_SCAN_STRING, p) == NULL)
    {
        return NULL;
    }

    ngx_modelgw_scan_begin(s, NGX_MODELGW_TAPE_STRING, p);

    return ngx_modelgw_scan_member_inside(s, p + 1, last,
                                          ngx_modelgw_scan_after(s), s->tape);
}


/* reads the inside of a string that is a value */

static ngx_modelgw_scan_member_inline u_char *
ngx_modelgw_scan_member_inside(ngx_modelgw_scan_t *s, u_char *p, u_char *last,
    ngx_modelgw_scan_state_e next, ngx_modelgw_tape_t *tape)
{
    size_t  len;

    /* in an array, s->due is of a key before the array */

    if (s->due && next == sw_member) {
        ngx_modelgw_scan_mark_text(s, p, last);
    }

    if (!s->capture) {
        len = ngx_modelgw_skip_string(p, last);

        if (len < NGX_MODELGW_SKIP_SHORT) {
            p += len + 1;

            ngx_modelgw_scan_member_end(s, tape, p);

            s->state = next;
            return p;
        }

        p += s->skip(p, last - p);

        if (p < last && *p == '"') {
            p++;

            ngx_modelgw_scan_member_end(s, tape, p);

            s->state = next;
            return p;
        }
    }

    s->state = sw_string;
    s->next = next;

    return ngx_modelgw_scan_string(s, p, last);
}
