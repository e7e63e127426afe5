
/*
 * The inside of strings, where nearly all bytes of a body are.  Plain ASCII is
 * left to a vector loop, whole characters of UTF-8 to a loop that never keeps
 * a state; what a chunk's end cuts in two, and every fault, is read byte by
 * byte with bounds for the next one (RFC 3629, section 4), so that the verdict
 * is the same for any split.
 *
 * Rejected: validating UTF-8 with vectors.  It pays for pure CJK text only,
 * and costs a second variant of everything for each processor.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


static u_char *ngx_modelgw_scan_string_keep(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_pass(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_units(u_char *p, u_char *last);
static u_char *ngx_modelgw_scan_string_chars(u_char *p, u_char *last);
static u_char *ngx_modelgw_scan_string_lead(ngx_modelgw_scan_t *s, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_scan_string_end(ngx_modelgw_scan_t *s, u_char *p);


/*
 * The first character of four bytes, which are a word with the first byte on
 * top.  Three: not E0 80..9F (overlong), not ED A0..BF (surrogates).  Two: not
 * C0, C1 (overlong).  Four: F0 90 (U+10000) to F4 8F (U+10FFFF).
 */

#define ngx_modelgw_scan_three(w)                                             \
    (((w) & 0xf0c0c000) == 0xe0808000                                         \
     && ((w) & 0x0f200000) != 0 && ((w) & 0x0f200000) != 0x0d200000)

#define ngx_modelgw_scan_two(w)                                               \
    (((w) & 0xe0c00000) == 0xc0800000 && ((w) & 0x1e000000) != 0)

#define ngx_modelgw_scan_four(w)                                              \
    (((w) & 0xf8c0c0c0) == 0xf0808080                                         \
     && ((w) & 0x07300000) - 0x00100000 < 0x04000000)


/* what is longer than its room is known to be: only its hash may matter */

#define ngx_modelgw_scan_kept(s)                                              \
    ((s)->capture && ((s)->hashing || (s)->len <= (s)->room))


/* what a byte behind a backslash stands for; 0: no such escape */

static const u_char  ngx_modelgw_scan_escapes[256] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f',
    ['n'] = LF, ['r'] = CR, ['t'] = '\t', ['u'] = 'u'
};


/* the value of a hex digit, plus one; 0: none */

static const u_char  ngx_modelgw_scan_hex[256] = {
    ['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5, ['5'] = 6,
    ['6'] = 7, ['7'] = 8, ['8'] = 9, ['9'] = 10,
    ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16
};


/*
 * The first bytes of characters: up to which one, how many bytes follow, and
 * the bounds of the second byte, which exclude overlong forms, surrogates and
 * what is above U+10FFFF (RFC 3629, section 4).
 */

static const struct {
    u_char  upto;
    u_char  left;
    u_char  low;
    u_char  high;
} ngx_modelgw_scan_leads[] = {
    { 0xc1, 0, 0x00, 0x00 },
    { 0xdf, 1, 0x80, 0xbf },
    { 0xe0, 2, 0xa0, 0xbf },
    { 0xec, 2, 0x80, 0xbf },
    { 0xed, 2, 0x80, 0x9f },
    { 0xef, 2, 0x80, 0xbf },
    { 0xf0, 3, 0x90, 0xbf },
    { 0xf3, 3, 0x80, 0xbf },
    { 0xf4, 3, 0x80, 0x8f },
    { 0xff, 0, 0x00, 0x00 }
};


u_char *
ngx_modelgw_scan_string(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    do {
        p = ngx_modelgw_scan_kept(s)
            ? ngx_modelgw_scan_string_keep(s, p, last)
            : ngx_modelgw_scan_string_pass(s, p, last);

        if (p == last) {
            return p;
        }

        if (*p == '"') {
            return ngx_modelgw_scan_string_end(s, p + 1);
        }

        if (*p == '\\') {
            s->state = sw_escape;
            p = ngx_modelgw_scan_string_escape(s, p + 1, last);

        } else if (*p < 0x20) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_CONTROL, p);

        } else {
            p = ngx_modelgw_scan_string_lead(s, p, last);
        }

    } while (p && s->state == sw_string);

    return p;
}


/* over plain bytes and whole characters, which are captured */

static u_char *
ngx_modelgw_scan_string_keep(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    size_t   n;
    u_char  *from;

    from = p;

    while (last - p >= NGX_MODELGW_SKIP_SHORT) {
        n = ngx_modelgw_skip_short(p);

        if (n == 0 && *p >= 0x80) {
            n = ngx_modelgw_scan_string_chars(p, last) - p;
        }

        if (n == 0) {
            break;
        }

        p += n;
    }

    while (p < last && ngx_modelgw_skip_plain(*p)) {
        p++;
    }

    ngx_modelgw_scan_text_append(s, from, p - from);

    return p;
}


/* to what ends the string, is a fault, or is cut from the rest of it */

static u_char *
ngx_modelgw_scan_string_pass(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char  *from;

    do {
        p += s->skip(p, last - p);
        from = p;

        if (p == last) {
            break;
        }

        if (*p == '\\') {
            p = ngx_modelgw_scan_string_units(p, last);

        } else if (*p >= 0x80) {
            p = ngx_modelgw_scan_string_chars(p, last);
        }

    } while (p != from);

    return p;
}


/* over whole \uhhhh; what they make matters to nobody here */

static u_char *
ngx_modelgw_scan_string_units(u_char *p, u_char *last)
{
    while (last - p >= 6
           && p[0] == '\\'
           && p[1] == 'u'
           && ngx_modelgw_scan_hex[p[2]]
           && ngx_modelgw_scan_hex[p[3]]
           && ngx_modelgw_scan_hex[p[4]]
           && ngx_modelgw_scan_hex[p[5]])
    {
        p += 6;
    }

    return p;
}


/*
 * Over whole and valid characters of two to four bytes, and blanks between.
 * Each kind has its own step: were the length a value, one step would have to
 * wait for the one before.
 */

static u_char *
ngx_modelgw_scan_string_chars(u_char *p, u_char *last)
{
    uint32_t  w;

    while (last - p >= 4) {
        w = ((uint32_t) p[0] << 24) | (p[1] << 16) | (p[2] << 8) | p[3];

        if (ngx_modelgw_scan_three(w)) {
            p += 3;
            continue;
        }

        if (ngx_modelgw_scan_two(w)) {
            p += 2;
            continue;
        }

        if (ngx_modelgw_scan_four(w)) {
            p += 4;
            continue;
        }

        if (*p != ' ') {
            break;
        }

        p++;
    }

    return p;
}


static u_char *
ngx_modelgw_scan_string_lead(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    ngx_uint_t  i;

    for (i = 0; *p > ngx_modelgw_scan_leads[i].upto; i++) { /* void */ }

    if (ngx_modelgw_scan_leads[i].left == 0) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_UTF8, p);
    }

    s->state = sw_utf8;
    s->left = ngx_modelgw_scan_leads[i].left;
    s->low = ngx_modelgw_scan_leads[i].low;
    s->high = ngx_modelgw_scan_leads[i].high;

    if (s->capture) {
        ngx_modelgw_scan_text_append(s, p, 1);
    }

    return ngx_modelgw_scan_string_utf8(s, p + 1, last);
}


u_char *
ngx_modelgw_scan_string_utf8(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    while (p < last) {

        if (*p < s->low || *p > s->high) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_UTF8, p);
        }

        if (s->capture) {
            ngx_modelgw_scan_text_append(s, p, 1);
        }

        p++;

        if (--s->left == 0) {
            s->state = sw_string;
            break;
        }

        s->low = 0x80;
        s->high = 0xbf;
    }

    return p;
}


u_char *
ngx_modelgw_scan_string_escape(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    u_char  ch;

    if (p == last) {
        return p;
    }

    ch = ngx_modelgw_scan_escapes[*p];

    if (ch == 0) {
        return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_ESCAPE, p);
    }

    p++;

    if (ch == 'u') {
        s->state = sw_hex;
        s->left = 4;
        s->unit = 0;

        return ngx_modelgw_scan_string_hex(s, p, last);
    }

    if (s->capture) {
        ngx_modelgw_scan_text_append(s, &ch, 1);
    }

    s->state = sw_string;

    return p;
}


u_char *
ngx_modelgw_scan_string_hex(ngx_modelgw_scan_t *s, u_char *p, u_char *last)
{
    ngx_uint_t  digit;

    while (p < last) {
        digit = ngx_modelgw_scan_hex[*p];

        if (digit == 0) {
            return ngx_modelgw_scan_stop(s, NGX_MODELGW_SCAN_ESCAPE, p);
        }

        s->unit = (s->unit << 4) | (digit - 1);
        p++;

        if (--s->left == 0) {
            s->state = sw_string;

            if (s->capture) {
                ngx_modelgw_scan_text_unit(s);
            }

            break;
        }
    }

    return p;
}


static u_char *
ngx_modelgw_scan_string_end(ngx_modelgw_scan_t *s, u_char *p)
{
    s->state = s->next;

    if (!s->capture) {
        return p;
    }

    ngx_modelgw_scan_text_end(s);

    if (s->next == sw_colon) {
        return ngx_modelgw_scan_watch_key_end(s, p);
    }

    if (s->due) {
        ngx_modelgw_scan_mark_text_end(s);
    }

    return ngx_modelgw_scan_watch_value_end(s, p);
}
