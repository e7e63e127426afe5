
/*
 * The tape of a JSON document: one node for each value, 16 bytes, in the order
 * of the document, so that walking over a container is adding indices, and
 * copying a value is copying bytes.
 *
 * The scanner refuses all that is not strict JSON, so this is only a tokenizer:
 * it looks for quotes, brackets and first bytes of values, and ignores commas,
 * colons and white space.  Pieces may have any size.  Strings, most of a
 * document, are skipped by ngx_modelgw_skip.h.  The scanner writes a tape
 * itself where it is known that one is wanted.
 *
 * Nodes have offsets, not pointers: a body is at another address when it is
 * complete.  The inside of a string is read only when it is needed.
 *
 * Objects are searched from the first member to the last one each time: those
 * of the two protocols have a dozen members, and nodes are adjacent in memory.
 * A comparison ends at the first byte that differs, mostly the very first; it
 * unescapes, so that "\u0074ype" is "type".
 *
 * Reading stays inside of [base, base + size) whatever the document was.
 *
 * Rejected: a tree of values (an allocation for each, and numbers converted to
 * double are not the client's numbers any more); a hash of each object's names
 * (costs more than it saves below some hundred members); yajl, which would copy
 * every string.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_string.h"
#include "ngx_modelgw_tape_private.h"


#define NGX_MODELGW_TAPE_FIRST  64       /* nodes of a new tape */
#define NGX_MODELGW_TAPE_AGAIN  256      /* nodes after a large document; so
                                            many that ngx_pfree() frees them */

#define NGX_MODELGW_TAPE_CLOSE  8        /* a closing bracket */
#define NGX_MODELGW_TAPE_ENDS   16       /* flag: ends a bare literal */


/*
 * The state between two bytes:
 *
 * sw_outside  of strings and bare literals; '"' -> sw_string, the first byte
 *             of a bare literal -> sw_bare; brackets change the depth
 * sw_string   '"' -> sw_outside, '\' -> sw_escape
 * sw_escape   after a backslash; any byte -> sw_string
 * sw_bare     in a number, true, false or null; a delimiter -> sw_outside,
 *             which reads it
 */

enum {
    sw_outside = 0,
    sw_string,
    sw_escape,
    sw_bare
};


/* bytes outside of strings: the type of the value that begins, and flags */

static const u_char  ngx_modelgw_tape_bytes[256] = {
    [' '] = NGX_MODELGW_TAPE_ENDS,
    ['\t'] = NGX_MODELGW_TAPE_ENDS,
    ['\n'] = NGX_MODELGW_TAPE_ENDS,
    ['\r'] = NGX_MODELGW_TAPE_ENDS,
    [','] = NGX_MODELGW_TAPE_ENDS,
    [':'] = NGX_MODELGW_TAPE_ENDS,

    ['"'] = NGX_MODELGW_TAPE_ENDS|NGX_MODELGW_TAPE_STRING,
    ['{'] = NGX_MODELGW_TAPE_ENDS|NGX_MODELGW_TAPE_OBJECT,
    ['['] = NGX_MODELGW_TAPE_ENDS|NGX_MODELGW_TAPE_ARRAY,
    ['}'] = NGX_MODELGW_TAPE_ENDS|NGX_MODELGW_TAPE_CLOSE,
    [']'] = NGX_MODELGW_TAPE_ENDS|NGX_MODELGW_TAPE_CLOSE,

    ['n'] = NGX_MODELGW_TAPE_NULL,
    ['f'] = NGX_MODELGW_TAPE_FALSE,
    ['t'] = NGX_MODELGW_TAPE_TRUE,

    ['-'] = NGX_MODELGW_TAPE_NUMBER,
    ['0'] = NGX_MODELGW_TAPE_NUMBER,
    ['1'] = NGX_MODELGW_TAPE_NUMBER,
    ['2'] = NGX_MODELGW_TAPE_NUMBER,
    ['3'] = NGX_MODELGW_TAPE_NUMBER,
    ['4'] = NGX_MODELGW_TAPE_NUMBER,
    ['5'] = NGX_MODELGW_TAPE_NUMBER,
    ['6'] = NGX_MODELGW_TAPE_NUMBER,
    ['7'] = NGX_MODELGW_TAPE_NUMBER,
    ['8'] = NGX_MODELGW_TAPE_NUMBER,
    ['9'] = NGX_MODELGW_TAPE_NUMBER
};


static u_char *ngx_modelgw_tape_outside(ngx_modelgw_tape_t *tape, u_char *p,
    u_char *last);
static ngx_inline u_char *ngx_modelgw_tape_string(ngx_modelgw_tape_t *tape,
    u_char *p, u_char *last);
static u_char *ngx_modelgw_tape_long(ngx_modelgw_tape_t *tape, u_char *p,
    u_char *last);
static u_char *ngx_modelgw_tape_bare(ngx_modelgw_tape_t *tape, u_char *p,
    u_char *last);
static ngx_inline ngx_uint_t ngx_modelgw_tape_same(u_char *p, size_t n,
    const char *text, size_t len);
static ngx_uint_t ngx_modelgw_tape_unescaped(u_char *p, u_char *last,
    const char *text);
static ngx_inline size_t ngx_modelgw_tape_plain(u_char *dst, u_char *p,
    u_char *last);
static ngx_inline u_char *ngx_modelgw_tape_escape(u_char *p, u_char *last,
    uint32_t *code);
static u_char *ngx_modelgw_tape_unit(u_char *p, u_char *last, uint32_t *code);


/* the offset in the document of a byte of the piece */

#define ngx_modelgw_tape_offset(tape, p)                                      \
    ((tape)->pos + (uint32_t) ((p) - (tape)->piece))


void
ngx_modelgw_tape_init(ngx_modelgw_tape_t *tape, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip)
{
    tape->pool = pool;
    tape->skip = skip;
    tape->nodes = NULL;
    tape->size = 0;
    tape->first = NGX_MODELGW_TAPE_FIRST;
    tape->documents = 0;

    ngx_modelgw_tape_reset(tape);
}


void
ngx_modelgw_tape_reset(ngx_modelgw_tape_t *tape)
{
    if (tape->size > NGX_MODELGW_TAPE_KEEP) {
        (void) ngx_pfree(tape->pool, tape->nodes);

        tape->nodes = NULL;
        tape->size = 0;
        tape->first = NGX_MODELGW_TAPE_AGAIN;
    }

    tape->documents++;
    tape->n = 0;
    tape->base = NULL;
    tape->rc = NGX_OK;
    tape->pos = 0;
    tape->state = sw_outside;
    tape->depth = 0;
    tape->counts[0] = 0;
}


ngx_int_t
ngx_modelgw_tape_feed(ngx_modelgw_tape_t *tape, u_char *p, size_t len)
{
    u_char  *last;

    if (tape->rc != NGX_OK) {
        return tape->rc;
    }

    if (len > NGX_MODELGW_TAPE_MAX_SIZE - tape->pos) {
        tape->rc = NGX_DECLINED;
        return NGX_DECLINED;
    }

    last = p + len;
    tape->piece = p;

    while (p < last && tape->rc == NGX_OK) {

        switch (tape->state) {

        case sw_string:
            p = ngx_modelgw_tape_string(tape, p, last);
            break;

        case sw_escape:
            p++;
            tape->state = sw_string;
            break;

        case sw_bare:
            p = ngx_modelgw_tape_bare(tape, p, last);
            break;

        default: /* sw_outside */
            p = ngx_modelgw_tape_outside(tape, p, last);
            break;
        }
    }

    tape->pos += len;

    return tape->rc;
}


/* reads to the end of the piece, with the strings and literals in it */

static u_char *
ngx_modelgw_tape_outside(ngx_modelgw_tape_t *tape, u_char *p, u_char *last)
{
    uint32_t    from;
    ngx_uint_t  type;

    while (p < last) {

        type = ngx_modelgw_tape_bytes[*p++] & ~NGX_MODELGW_TAPE_ENDS;

        if (type == 0) {
            continue;
        }

        if (type == NGX_MODELGW_TAPE_CLOSE) {
            ngx_modelgw_tape_close(tape, ngx_modelgw_tape_offset(tape, p));
            continue;
        }

        from = ngx_modelgw_tape_offset(tape, p - 1);

        ngx_modelgw_tape_begin(tape, type, from, from + 1);

        if (tape->rc != NGX_OK) {
            return p;
        }

        /* these set the state, if they end after the piece */

        if (type == NGX_MODELGW_TAPE_STRING) {
            p = ngx_modelgw_tape_string(tape, p, last);

        } else if (type < NGX_MODELGW_TAPE_STRING) {
            p = ngx_modelgw_tape_bare(tape, p, last);
        }
    }

    return p;
}


static ngx_inline u_char *
ngx_modelgw_tape_string(ngx_modelgw_tape_t *tape, u_char *p, u_char *last)
{
    if (last - p > NGX_MODELGW_SKIP_SHORT) {
        p += ngx_modelgw_skip_short(p);
    }

    if (p == last || *p != '"') {
        p = ngx_modelgw_tape_long(tape, p, last);

        if (p == last) {
            return p;
        }
    }

    p++;

    ngx_modelgw_tape_end(tape, ngx_modelgw_tape_offset(tape, p));
    tape->state = sw_outside;

    return p;
}


/* to the closing quote, or last */

static u_char *
ngx_modelgw_tape_long(ngx_modelgw_tape_t *tape, u_char *p, u_char *last)
{
    tape->state = sw_string;

    while (p < last) {

        p += tape->skip(p, last - p);

        while (p < last && *p >= 0x80) {
            p++;
        }

        if (p == last || *p == '"') {
            return p;
        }

        if (*p++ == '\\') {

            if (p == last) {
                tape->state = sw_escape;
                return p;
            }

            p++;
        }
    }

    return p;
}


static u_char *
ngx_modelgw_tape_bare(ngx_modelgw_tape_t *tape, u_char *p, u_char *last)
{
    tape->state = sw_bare;

    while (p < last) {

        if (ngx_modelgw_tape_bytes[*p] & NGX_MODELGW_TAPE_ENDS) {
            tape->state = sw_outside;
            break;
        }

        p++;
    }

    /* the document may end here, too */

    ngx_modelgw_tape_end(tape, ngx_modelgw_tape_offset(tape, p));

    return p;
}


ngx_int_t
ngx_modelgw_tape_grow(ngx_modelgw_tape_t *tape)
{
    ngx_uint_t           size;
    ngx_modelgw_node_t  *nodes;

    if (tape->rc != NGX_OK) {
        return tape->rc;
    }

    if (tape->size == NGX_MODELGW_TAPE_MAX_NODES) {
        tape->rc = NGX_DECLINED;
        return NGX_DECLINED;
    }

    size = tape->size ? tape->size * 2 : tape->first;

    nodes = ngx_palloc(tape->pool, size * sizeof(ngx_modelgw_node_t));
    if (nodes == NULL) {
        tape->rc = NGX_ERROR;
        return NGX_ERROR;
    }

    if (tape->nodes) {
        ngx_memcpy(nodes, tape->nodes, tape->n * sizeof(ngx_modelgw_node_t));
        (void) ngx_pfree(tape->pool, tape->nodes);
    }

    tape->nodes = nodes;
    tape->size = size;

    return NGX_OK;
}


/* the names of members have been counted, too */

void
ngx_modelgw_tape_close(ngx_modelgw_tape_t *tape, uint32_t end)
{
    ngx_modelgw_node_t  *node;

    if (tape->depth == 0) {
        return;
    }

    tape->depth--;

    if (tape->depth > NGX_MODELGW_TAPE_MAX_DEPTH) {
        return;
    }

    node = &tape->nodes[tape->open[tape->depth]];
    node->to = end;
    node->after = tape->n;
    node->count = tape->counts[tape->depth + 1];

    if (node->type == NGX_MODELGW_TAPE_OBJECT) {
        node->count /= 2;
    }
}


ngx_int_t
ngx_modelgw_tape_done(ngx_modelgw_tape_t *tape, u_char *base)
{
    tape->base = base;

    if (tape->rc != NGX_OK
        || tape->n == 0
        || tape->depth != 0
        || tape->state == sw_string
        || tape->state == sw_escape)
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


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

        /* a name is a string, unless the document is not strict JSON */

        if (node->type == NGX_MODELGW_TAPE_STRING
            && ngx_modelgw_tape_same(tape->base + node->from + 1,
                                     node->to - node->from - 2, name, len))
        {
            found = value;
        }
    }

    return found;
}


void
ngx_modelgw_tape_members(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *obj,
    ngx_str_t *names, ngx_uint_t n, ngx_modelgw_node_t **values)
{
    u_char              *p;
    size_t               len;
    ngx_uint_t           i;
    ngx_modelgw_node_t  *node, *value, *last;

    ngx_memzero(values, n * sizeof(ngx_modelgw_node_t *));

    if (obj == NULL || obj->type != NGX_MODELGW_TAPE_OBJECT) {
        return;
    }

    last = tape->nodes + obj->after;

    for (node = obj + 1; node + 1 < last; node = tape->nodes + value->after) {
        value = node + 1;

        /* a name is a string, see above */

        if (node->type != NGX_MODELGW_TAPE_STRING) {
            continue;
        }

        p = tape->base + node->from + 1;
        len = node->to - node->from - 2;

        for (i = 0; i < n; i++) {

            if (ngx_modelgw_tape_same(p, len, (char *) names[i].data,
                                      names[i].len))
            {
                values[i] = value;
                break;
            }
        }
    }
}


ngx_uint_t
ngx_modelgw_tape_equal(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    const char *text, size_t len)
{
    return ngx_modelgw_tape_same(tape->base + node->from + 1,
                                 node->to - node->from - 2, text, len);
}


/*
 * Most names differ in length or in the first byte.  A string that is longer
 * than an equal text has escapes.
 */

static ngx_inline ngx_uint_t
ngx_modelgw_tape_same(u_char *p, size_t n, const char *text, size_t len)
{
    if (n < len) {
        return 0;
    }

    if (n == len) {
        return len == 0
               || (*p == (u_char) *text && ngx_memcmp(p, text, len) == 0);
    }

    return (*p == (u_char) *text || *p == '\\')
           && ngx_modelgw_tape_unescaped(p, p + n, text);
}


static ngx_uint_t
ngx_modelgw_tape_unescaped(u_char *p, u_char *last, const char *text)
{
    uint32_t  code;

    for ( /* void */ ; *text; text++) {

        if (p == last) {
            return 0;
        }

        code = *p++;

        if (code == '\\') {
            p = ngx_modelgw_tape_escape(p, last, &code);
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

    /* no escape is shorter than its character */

    dst = ngx_pnalloc(pool, text->len);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    text->data = dst;

    dst = ngx_cpymem(dst, p, q - p);

    for (p = q; p < last; /* void */ ) {

        if (*p == '\\') {
            p = ngx_modelgw_tape_escape(p + 1, last, &code);
            dst = ngx_modelgw_string_encode(dst, code);
            continue;
        }

        n = ngx_modelgw_tape_plain(dst, p, last);

        dst += n;
        p += n;
    }

    text->len = dst - text->data;

    return NGX_OK;
}


/*
 * Copies one to 16 bytes that are no backslash, and returns how many.  Code has
 * an escape every few words, which is too often for memchr().  Bytes after them
 * are written, too, and overwritten later; never more than are left to read, so
 * there is room.
 */

#if defined(__x86_64__)

static ngx_inline size_t
ngx_modelgw_tape_plain(u_char *dst, u_char *p, u_char *last)
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
ngx_modelgw_tape_plain(u_char *dst, u_char *p, u_char *last)
{
    uint64_t  word, found;

    if (last - p < (ssize_t) sizeof(uint64_t)) {
        *dst = *p;
        return 1;
    }

    ngx_memcpy(&word, p, sizeof(uint64_t));
    ngx_memcpy(dst, &word, sizeof(uint64_t));

    /* the top bit is set in the lowest byte that is 0, and not below it */

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
            p = ngx_modelgw_tape_escape(p, last, &code);
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


/* reads the escape after a backslash; returns its end */

static ngx_inline u_char *
ngx_modelgw_tape_escape(u_char *p, u_char *last, uint32_t *code)
{
    u_char  ch;

    if (p == last) {
        *code = '\\';
        return p;
    }

    if (*p == 'u' && last - p >= 5) {
        return ngx_modelgw_tape_unit(p, last, code);
    }

    ch = ngx_modelgw_string_escapes[*p];
    *code = ch ? ch : *p;

    return p + 1;
}


/* "uhhhh", and "\uhhhh" of the second half of a pair */

static u_char *
ngx_modelgw_tape_unit(u_char *p, u_char *last, uint32_t *code)
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

    /* a pair is one character, a lone surrogate becomes U+FFFD */

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
