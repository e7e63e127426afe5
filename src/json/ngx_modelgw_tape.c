
/*
 * The tape of a JSON document: one node for each value, 16 bytes, in the order
 * of the document, so that walking over a container is adding indices, and
 * copying a value is copying bytes.
 *
 * The scanner has refused all that is not strict JSON; so this is a tokenizer
 * only: it looks for quotes, brackets and first bytes of values, and takes
 * commas, colons and white space for nothing.  It takes pieces in any split, so
 * it could run beside the scanner.  Strings are most of a document, and are
 * skipped at the speed of ngx_modelgw_skip.h.
 *
 * Nodes hold offsets, not pointers: the pieces of a body lie elsewhere when it
 * is whole.  What a string holds is only looked at when somebody asks for it:
 * see tape_read.c.
 *
 * Rejected: a tree of values (an allocation for each of them, and numbers that
 * pass through doubles are not the client's numbers any more); making the tape
 * in the scanner's own loop (most documents are scanned only, and the scanner
 * knows more of keys and numbers than we need).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_tape.h"


#define NGX_MODELGW_TAPE_FIRST  64       /* nodes of a new tape */
#define NGX_MODELGW_TAPE_AGAIN  256      /* of one whose nodes were given back:
                                            enough for a pool to take them back
                                            once more */

#define NGX_MODELGW_TAPE_CLOSE  8        /* a closing bracket */
#define NGX_MODELGW_TAPE_ENDS   16       /* flag: ends a bare literal */


/*
 * The state between two bytes:
 *
 * sw_outside  of strings and bare literals; '"' -> sw_string, the first byte
 *             of a bare literal -> sw_bare; brackets change the depth
 * sw_string   '"' -> sw_outside, '\' -> sw_escape
 * sw_escape   behind a backslash; any byte -> sw_string
 * sw_bare     in a number, true, false or null; a delimiter -> sw_outside,
 *             where it is looked at
 */

enum {
    sw_outside = 0,
    sw_string,
    sw_escape,
    sw_bare
};


/* what a byte outside of strings begins: a type of node, or nothing */

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
static ngx_inline ngx_int_t ngx_modelgw_tape_begin(ngx_modelgw_tape_t *tape,
    ngx_uint_t type, u_char *p);
static ngx_int_t ngx_modelgw_tape_grow(ngx_modelgw_tape_t *tape);
static void ngx_modelgw_tape_close(ngx_modelgw_tape_t *tape, u_char *p);


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


/* to the end of the piece, unless a string or a bare literal goes on there */

static u_char *
ngx_modelgw_tape_outside(ngx_modelgw_tape_t *tape, u_char *p, u_char *last)
{
    ngx_int_t   rc;
    ngx_uint_t  type;

    while (p < last) {

        type = ngx_modelgw_tape_bytes[*p++] & ~NGX_MODELGW_TAPE_ENDS;

        if (type == 0) {
            continue;
        }

        if (type == NGX_MODELGW_TAPE_CLOSE) {
            ngx_modelgw_tape_close(tape, p);
            continue;
        }

        rc = ngx_modelgw_tape_begin(tape, type, p - 1);

        if (rc != NGX_OK) {
            tape->rc = rc;
            return p;
        }

        /* these end before last, or leave the state in which the piece ends */

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

    if (tape->depth <= NGX_MODELGW_TAPE_MAX_DEPTH) {
        tape->nodes[tape->n - 1].to = ngx_modelgw_tape_offset(tape, p);
    }

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

    if (tape->depth <= NGX_MODELGW_TAPE_MAX_DEPTH) {
        tape->nodes[tape->n - 1].to = ngx_modelgw_tape_offset(tape, p);
    }

    return p;
}


/*
 * A value begins at p.  In open[] are the nodes of the open containers; what
 * is in the innermost one that has a node is not on the tape.
 */

static ngx_inline ngx_int_t
ngx_modelgw_tape_begin(ngx_modelgw_tape_t *tape, ngx_uint_t type, u_char *p)
{
    ngx_int_t            rc;
    ngx_modelgw_node_t  *node;

    if (tape->depth > NGX_MODELGW_TAPE_MAX_DEPTH) {

        if (tape->depth == NGX_MODELGW_TAPE_MAX_DEPTH + 1) {
            tape->counts[tape->depth] = 2;
        }

        if (type > NGX_MODELGW_TAPE_STRING) {
            tape->depth++;
        }

        return NGX_OK;
    }

    if (tape->n == tape->size) {
        rc = ngx_modelgw_tape_grow(tape);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    tape->counts[tape->depth]++;

    node = &tape->nodes[tape->n];
    node->from = ngx_modelgw_tape_offset(tape, p);
    node->to = node->from + 1;
    node->after = tape->n + 1;
    node->type = type;
    node->count = 0;

    if (type > NGX_MODELGW_TAPE_STRING) {
        tape->open[tape->depth++] = tape->n;
        tape->counts[tape->depth] = 0;
    }

    tape->n++;

    return NGX_OK;
}


static ngx_int_t
ngx_modelgw_tape_grow(ngx_modelgw_tape_t *tape)
{
    ngx_uint_t           size;
    ngx_modelgw_node_t  *nodes;

    if (tape->size == NGX_MODELGW_TAPE_MAX_NODES) {
        return NGX_DECLINED;
    }

    size = tape->size ? tape->size * 2 : tape->first;

    nodes = ngx_palloc(tape->pool, size * sizeof(ngx_modelgw_node_t));
    if (nodes == NULL) {
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


/* the names of members were counted, too */

static void
ngx_modelgw_tape_close(ngx_modelgw_tape_t *tape, u_char *p)
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
    node->to = ngx_modelgw_tape_offset(tape, p);
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
