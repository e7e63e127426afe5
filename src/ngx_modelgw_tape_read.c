
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


static u_char *ngx_modelgw_tape_read_escape(u_char *p, u_char *last,
    uint32_t *code);
static u_char *ngx_modelgw_tape_read_utf8(u_char *dst, uint32_t code);


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
ngx_modelgw_tape_member(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *obj,
    const char *name)
{
    ngx_modelgw_node_t  *node, *value, *found;

    if (obj == NULL || obj->type != NGX_MODELGW_TAPE_OBJECT) {
        return NULL;
    }

    found = NULL;
    node = ngx_modelgw_tape_first(tape, obj);

    while (node) {
        value = ngx_modelgw_tape_next(tape, obj, node);

        if (value == NULL) {
            break;
        }

        if (ngx_modelgw_tape_is(tape, node, name)) {
            found = value;
        }

        node = ngx_modelgw_tape_next(tape, obj, value);
    }

    return found;
}


ngx_uint_t
ngx_modelgw_tape_is(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    const char *text)
{
    u_char    *p, *last;
    uint32_t   code;
    ngx_str_t  inside;

    if (node == NULL || node->type != NGX_MODELGW_TAPE_STRING) {
        return 0;
    }

    ngx_modelgw_tape_inside(tape, node, &inside);

    p = inside.data;
    last = p + inside.len;

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

    while (q) {
        dst = ngx_cpymem(dst, p, q - p);
        p = ngx_modelgw_tape_read_escape(q + 1, last, &code);
        dst = ngx_modelgw_tape_read_utf8(dst, code);
        q = memchr(p, '\\', last - p);
    }

    dst = ngx_cpymem(dst, p, last - p);
    text->len = dst - text->data;

    return NGX_OK;
}


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

static u_char *
ngx_modelgw_tape_read_escape(u_char *p, u_char *last, uint32_t *code)
{
    u_char     ch;
    uint32_t   low;
    ngx_int_t  unit;

    if (p == last) {
        *code = '\\';
        return p;
    }

    if (*p != 'u' || last - p < 5) {
        ch = ngx_modelgw_tape_read_letters[*p];
        *code = ch ? ch : *p;
        return p + 1;
    }

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


static u_char *
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
