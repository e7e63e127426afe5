
/*
 * Reading from a tape whose document is whole: going through containers,
 * finding members by name, comparing and unescaping strings.
 *
 * Objects are searched from their first member to their last one each time: the
 * objects of the two protocols have a dozen members, and nodes lie side by side
 * in memory.  Comparing stops at the first byte that differs, which is mostly
 * the first one; it unescapes as it goes, so that "\u0074ype" is "type".
 *
 * All of this stays inside of [base, base + size) whatever the document was,
 * but what it finds makes sense for strict JSON only.
 *
 * Rejected: a hash of each object's names (costs more than it saves below some
 * hundred members); yajl, which would copy every string.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_tape.h"


static ngx_inline ngx_uint_t ngx_modelgw_tape_read_equal(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node, const char *text,
    size_t len);
static ngx_uint_t ngx_modelgw_tape_read_unescaped(u_char *p, u_char *last,
    const char *text);
static ngx_inline u_char *ngx_modelgw_tape_read_escape(u_char *p,
    u_char *last, uint32_t *code);
static u_char *ngx_modelgw_tape_read_unit(u_char *p, u_char *last,
    uint32_t *code);
static ngx_inline u_char *ngx_modelgw_tape_read_utf8(u_char *dst,
    uint32_t code);
static ngx_inline size_t ngx_modelgw_tape_read_plain(u_char *dst, u_char *p,
    u_char *last);


/* what the letters behind a backslash stand for; all others are themselves */

static const u_char  ngx_modelgw_tape_read_letters[256] = {
    ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'
};


ngx_modelgw_node_t *
ngx_modelgw_tape_first(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *container)
{
    ngx_uint_t  i;

    if (container == NULL) {
        return NULL;
    }

    i = container - tape->nodes + 1;

    return (i < container->after) ? &tape->nodes[i] : NULL;
}


ngx_modelgw_node_t *
ngx_modelgw_tape_next(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *container,
    ngx_modelgw_node_t *node)
{
    return (node->after < container->after) ? &tape->nodes[node->after] : NULL;
}


ngx_modelgw_node_t *
ngx_modelgw_tape_find(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *obj,
    const char *name, size_t len)
{
    ngx_modelgw_node_t  *node, *value, *found, *last;

    found = NULL;
    last = tape->nodes + obj->after;

    for (node = obj + 1; node < last; node = tape->nodes + value->after) {
        value = node + 1;

        if (value >= last) {
            break;
        }

        /* it is anything in a document that the scanner has not seen */

        if (ngx_modelgw_tape_read_equal(tape, node, name, len)
            && node->type == NGX_MODELGW_TAPE_STRING)
        {
            found = value;
        }
    }

    return found;
}


ngx_uint_t
ngx_modelgw_tape_equal(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    const char *text, size_t len)
{
    return ngx_modelgw_tape_read_equal(tape, node, text, len);
}


/*
 * Most names differ in length or in the first byte; only escapes make one
 * longer than its text.
 */

static ngx_inline ngx_uint_t
ngx_modelgw_tape_read_equal(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    const char *text, size_t len)
{
    u_char  *p;
    size_t   n;

    n = node->to - node->from;

    if (n < len + 2) {
        return 0;
    }

    n -= 2;
    p = tape->base + node->from + 1;

    if (n == len) {
        return len == 0
               || (*p == (u_char) *text && ngx_memcmp(p, text, len) == 0);
    }

    return (*p == (u_char) *text || *p == '\\')
           && ngx_modelgw_tape_read_unescaped(p, p + n, text);
}


static ngx_uint_t
ngx_modelgw_tape_read_unescaped(u_char *p, u_char *last, const char *text)
{
    uint32_t  code;

    for ( /* void */ ; *text; text++) {

        if (p == last) {
            return 0;
        }

        code = *p++;

        if (code == '\\') {
            p = ngx_modelgw_tape_read_escape(p, last, &code);
        }

        if (code != (u_char) *text) {
            return 0;
        }
    }

    return p == last;
}


void
ngx_modelgw_tape_raw(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    ngx_str_t *raw)
{
    raw->data = tape->base + node->from;
    raw->len = node->to - node->from;
}


void
ngx_modelgw_tape_inside(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    ngx_str_t *inside)
{
    inside->data = tape->base + node->from + 1;
    inside->len = node->to - node->from - 2;
}


ngx_int_t
ngx_modelgw_tape_text(ngx_modelgw_tape_t *tape, ngx_pool_t *pool,
    ngx_modelgw_node_t *node, ngx_str_t *text)
{
    u_char    *p, *q, *last, *dst;
    size_t     n;
    uint32_t   code;

    ngx_modelgw_tape_inside(tape, node, text);

    p = text->data;
    last = p + text->len;

    q = memchr(p, '\\', last - p);

    if (q == NULL) {
        return NGX_OK;
    }

    /* no escape is shorter than what it stands for */

    dst = ngx_pnalloc(pool, text->len);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    text->data = dst;

    dst = ngx_cpymem(dst, p, q - p);

    for (p = q; p < last; /* void */ ) {

        if (*p == '\\') {
            p = ngx_modelgw_tape_read_escape(p + 1, last, &code);
            dst = ngx_modelgw_tape_read_utf8(dst, code);
            continue;
        }

        n = ngx_modelgw_tape_read_plain(dst, p, last);

        dst += n;
        p += n;
    }

    text->len = dst - text->data;

    return NGX_OK;
}


/*
 * Copies bytes that are no backslash, at least one, up to a vector of them, and
 * returns how many.  Code has an escape every few words, which is too often for
 * memchr().  What is written behind them is written again: no more than what is
 * left to read, and there is room for that.
 */

#if defined(__x86_64__)

static ngx_inline size_t
ngx_modelgw_tape_read_plain(u_char *dst, u_char *p, u_char *last)
{
    __m128i  v;

    if (last - p < (ssize_t) sizeof(__m128i)) {
        *dst = *p;
        return 1;
    }

    v = _mm_loadu_si128((__m128i *) p);
    _mm_storeu_si128((__m128i *) dst, v);

    v = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));

    return __builtin_ctz(_mm_movemask_epi8(v) | 1 << sizeof(__m128i));
}

#else

static ngx_inline size_t
ngx_modelgw_tape_read_plain(u_char *dst, u_char *p, u_char *last)
{
    uint64_t  word, found;

    if (last - p < (ssize_t) sizeof(uint64_t)) {
        *dst = *p;
        return 1;
    }

    ngx_memcpy(&word, p, sizeof(uint64_t));
    ngx_memcpy(dst, &word, sizeof(uint64_t));

    /* the lowest byte that is 0 has its top bit set then, none below it has */

    word ^= 0x5c5c5c5c5c5c5c5cULL;
    found = (word - 0x0101010101010101ULL) & ~word & 0x8080808080808080ULL;

    if (found == 0) {
        return sizeof(uint64_t);
    }

#if (NGX_HAVE_LITTLE_ENDIAN)
    return __builtin_ctzll(found) / 8;
#else
    return 1;
#endif
}

#endif


ngx_uint_t
ngx_modelgw_tape_blank(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node)
{
    u_char    *p, *last;
    uint32_t   code;
    ngx_str_t  inside;

    ngx_modelgw_tape_inside(tape, node, &inside);

    p = inside.data;
    last = p + inside.len;

    while (p < last) {
        code = *p++;

        if (code == '\\') {
            p = ngx_modelgw_tape_read_escape(p, last, &code);
        }

        if (code != ' ' && (code < '\t' || code > '\r')) {
            return 0;
        }
    }

    return 1;
}


ngx_uint_t
ngx_modelgw_tape_count(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    ngx_uint_t *n)
{
    size_t     len;
    ngx_int_t  value;

    if (node == NULL || node->type != NGX_MODELGW_TAPE_NUMBER) {
        return 0;
    }

    len = node->to - node->from;

    if (len > 9) {
        return 0;
    }

    value = ngx_atoi(tape->base + node->from, len);

    if (value == NGX_ERROR) {
        return 0;
    }

    *n = value;

    return 1;
}


/*
 * Reads what stands behind a backslash: RFC 8259, section 7.  Returns where it
 * ends.
 */

static ngx_inline u_char *
ngx_modelgw_tape_read_escape(u_char *p, u_char *last, uint32_t *code)
{
    u_char  ch;

    if (p == last) {
        *code = '\\';
        return p;
    }

    if (*p == 'u' && last - p >= 5) {
        return ngx_modelgw_tape_read_unit(p, last, code);
    }

    ch = ngx_modelgw_tape_read_letters[*p];
    *code = ch ? ch : *p;

    return p + 1;
}


/* "uhhhh", and the second half of a pair */

static u_char *
ngx_modelgw_tape_read_unit(u_char *p, u_char *last, uint32_t *code)
{
    uint32_t   low;
    ngx_int_t  unit;

    *code = 0xfffd;
    unit = ngx_hextoi(p + 1, 4);
    p += 5;

    if (unit < 0xd800 || unit > 0xdfff) {
        *code = (unit == NGX_ERROR) ? 0xfffd : unit;
        return p;
    }

    /* a pair is one character, a lone surrogate is none */

    if (unit > 0xdbff || last - p < 6 || p[0] != '\\' || p[1] != 'u') {
        return p;
    }

    low = ngx_hextoi(p + 2, 4);

    if (low < 0xdc00 || low > 0xdfff) {
        return p;
    }

    *code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);

    return p + 6;
}


static ngx_inline u_char *
ngx_modelgw_tape_read_utf8(u_char *dst, uint32_t code)
{
    if (code < 0x80) {
        *dst++ = code;
        return dst;
    }

    if (code < 0x800) {
        *dst++ = 0xc0 | (code >> 6);

    } else if (code < 0x10000) {
        *dst++ = 0xe0 | (code >> 12);
        *dst++ = 0x80 | ((code >> 6) & 0x3f);

    } else {
        *dst++ = 0xf0 | (code >> 18);
        *dst++ = 0x80 | ((code >> 12) & 0x3f);
        *dst++ = 0x80 | ((code >> 6) & 0x3f);
    }

    *dst++ = 0x80 | (code & 0x3f);

    return dst;
}
