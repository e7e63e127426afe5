
/*
 * The text of a string or number that somebody watches: captured as it passes,
 * unescaped.  Two \u escapes may make one character (RFC 8259, section 7); a
 * surrogate without its other half is no character, which is no fault of the
 * JSON: the text is marked, and such text equals nothing.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_scan_private.h"


#define NGX_MODELGW_SCAN_FNV_BASIS  0xcbf29ce484222325ULL
#define NGX_MODELGW_SCAN_FNV_PRIME  0x00000100000001b3ULL


#define ngx_modelgw_scan_unsound(s)                                           \
    if (!(s)->lone) {                                                         \
        (s)->lone = 1;                                                        \
        (s)->sound = (s)->len;                                                \
    }


/* the other half of a pair is not what came next */

#define ngx_modelgw_scan_alone(s)                                             \
    if ((s)->pending) {                                                       \
        (s)->pending = 0;                                                     \
        ngx_modelgw_scan_unsound(s);                                          \
    }


static void ngx_modelgw_scan_text_hash(ngx_modelgw_scan_t *s, u_char *p,
    size_t n);
static uint64_t ngx_modelgw_scan_text_fnv(uint64_t hash, u_char *p, size_t n);
static void ngx_modelgw_scan_text_code(ngx_modelgw_scan_t *s, uint32_t code);


void
ngx_modelgw_scan_text_capture(ngx_modelgw_scan_t *s, u_char *text,
    size_t room)
{
    s->capture = 1;
    s->lone = 0;
    s->text = text;
    s->room = room;
    s->len = 0;
    s->pending = 0;
}


void
ngx_modelgw_scan_text_append(ngx_modelgw_scan_t *s, u_char *p, size_t n)
{
    if (n == 0) {
        return;
    }

    ngx_modelgw_scan_alone(s);

    if (s->hashing && n > s->room - ngx_min(s->len, s->room)) {
        ngx_modelgw_scan_text_hash(s, p, n);
    }

    if (s->len < s->room) {
        ngx_memcpy(s->text + s->len, p, ngx_min(n, s->room - s->len));
    }

    s->len += n;
}


void
ngx_modelgw_scan_text_end(ngx_modelgw_scan_t *s)
{
    ngx_modelgw_scan_alone(s);
}


/* what is longer than its room, whose beginning is there, is known by a hash */

static void
ngx_modelgw_scan_text_hash(ngx_modelgw_scan_t *s, u_char *p, size_t n)
{
    if (s->len <= s->room) {
        s->hash = ngx_modelgw_scan_text_fnv(NGX_MODELGW_SCAN_FNV_BASIS,
                                              s->text, s->len);
    }

    s->hash = ngx_modelgw_scan_text_fnv(s->hash, p, n);
}


static uint64_t
ngx_modelgw_scan_text_fnv(uint64_t hash, u_char *p, size_t n)
{
    for ( /* void */ ; n; p++, n--) {
        hash = (hash ^ *p) * NGX_MODELGW_SCAN_FNV_PRIME;
    }

    return hash;
}


void
ngx_modelgw_scan_text_unit(ngx_modelgw_scan_t *s)
{
    uint32_t  high;

    if (s->unit < 0xd800 || s->unit > 0xdfff) {
        ngx_modelgw_scan_text_code(s, s->unit);
        return;
    }

    if (s->unit < 0xdc00) {
        ngx_modelgw_scan_alone(s);
        s->pending = s->unit;
        return;
    }

    if (s->pending == 0) {
        ngx_modelgw_scan_unsound(s);
        return;
    }

    high = s->pending - 0xd800;
    s->pending = 0;

    ngx_modelgw_scan_text_code(s, 0x10000 + (high << 10)
                                    + (s->unit - 0xdc00));
}


static void
ngx_modelgw_scan_text_code(ngx_modelgw_scan_t *s, uint32_t code)
{
    u_char  *last, utf8[4];

    last = utf8;

    if (code < 0x80) {
        *last++ = (u_char) code;

    } else if (code < 0x800) {
        *last++ = (u_char) (0xc0 | (code >> 6));
        *last++ = (u_char) (0x80 | (code & 0x3f));

    } else if (code < 0x10000) {
        *last++ = (u_char) (0xe0 | (code >> 12));
        *last++ = (u_char) (0x80 | ((code >> 6) & 0x3f));
        *last++ = (u_char) (0x80 | (code & 0x3f));

    } else {
        *last++ = (u_char) (0xf0 | (code >> 18));
        *last++ = (u_char) (0x80 | ((code >> 12) & 0x3f));
        *last++ = (u_char) (0x80 | ((code >> 6) & 0x3f));
        *last++ = (u_char) (0x80 | (code & 0x3f));
    }

    ngx_modelgw_scan_text_append(s, utf8, last - utf8);
}
