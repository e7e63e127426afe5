
/*
 * A slow check of a tape: a recursive walk over a document that is known to be
 * strict JSON, which determines what each node must be.  For the unit tests
 * and the fuzzer.
 */


#ifndef _UNIT_TAPE_H_INCLUDED_
#define _UNIT_TAPE_H_INCLUDED_


#include "ngx_modelgw_tape.h"


typedef struct {
    ngx_modelgw_tape_t  *tape;
    const u_char        *doc;
    size_t               len;
    size_t               at;
    ngx_uint_t           node;           /* the next one */
} unit_tape_t;


static ngx_uint_t unit_tape_value(unit_tape_t *w, ngx_uint_t depth);


static ngx_inline void
unit_tape_space(unit_tape_t *w)
{
    while (w->at < w->len && strchr(" \t\r\n,:", w->doc[w->at])) {
        w->at++;
    }
}


static ngx_inline void
unit_tape_string(unit_tape_t *w)
{
    for (w->at++; w->doc[w->at] != '"'; w->at++) {
        if (w->doc[w->at] == '\\') {
            w->at++;
        }
    }

    w->at++;
}


static ngx_inline void
unit_tape_bare(unit_tape_t *w)
{
    while (w->at < w->len && !strchr(" \t\r\n,:]}", w->doc[w->at])) {
        w->at++;
    }
}


/* the names of members are values, too */

static ngx_inline ngx_uint_t
unit_tape_container(unit_tape_t *w, ngx_uint_t depth, ngx_uint_t *n)
{
    w->at++;
    *n = 0;

    for ( ;; ) {
        unit_tape_space(w);

        if (w->doc[w->at] == ']' || w->doc[w->at] == '}') {
            w->at++;
            return 1;
        }

        (*n)++;

        if (!unit_tape_value(w, depth + 1)) {
            return 0;
        }
    }
}


static ngx_inline ngx_uint_t
unit_tape_type(u_char ch)
{
    return (ch == '{') ? NGX_MODELGW_TAPE_OBJECT
           : (ch == '[') ? NGX_MODELGW_TAPE_ARRAY
           : (ch == '"') ? NGX_MODELGW_TAPE_STRING
           : (ch == 'n') ? NGX_MODELGW_TAPE_NULL
           : (ch == 't') ? NGX_MODELGW_TAPE_TRUE
           : (ch == 'f') ? NGX_MODELGW_TAPE_FALSE
           : NGX_MODELGW_TAPE_NUMBER;
}


/* depth is the number of containers around the value */

static ngx_uint_t
unit_tape_value(unit_tape_t *w, ngx_uint_t depth)
{
    size_t               from;
    ngx_uint_t           i, n, type;
    ngx_modelgw_node_t  *node;

    n = 0;
    i = w->node;

    unit_tape_space(w);

    from = w->at;
    type = unit_tape_type(w->doc[from]);

    if (depth <= NGX_MODELGW_TAPE_MAX_DEPTH && w->node++ == w->tape->n) {
        return 0;
    }

    if (type == NGX_MODELGW_TAPE_STRING) {
        unit_tape_string(w);

    } else if (type < NGX_MODELGW_TAPE_STRING) {
        unit_tape_bare(w);

    } else if (!unit_tape_container(w, depth, &n)) {
        return 0;
    }

    if (depth > NGX_MODELGW_TAPE_MAX_DEPTH) {
        return 1;
    }

    node = &w->tape->nodes[i];

    if (type == NGX_MODELGW_TAPE_OBJECT) {
        n /= 2;
    }

    return node->from == from
           && node->to == w->at
           && node->after == w->node
           && node->type == type
           && (depth < NGX_MODELGW_TAPE_MAX_DEPTH ? node->count == n
                                                  : !node->count == !n);
}


/* whether the tape is that of the document */

static ngx_inline ngx_uint_t
unit_tape_sound(ngx_modelgw_tape_t *tape, const u_char *doc, size_t len)
{
    unit_tape_t  w;

    w.tape = tape;
    w.doc = doc;
    w.len = len;
    w.at = 0;
    w.node = 0;

    return unit_tape_value(&w, 0) && w.node == tape->n;
}


#endif /* _UNIT_TAPE_H_INCLUDED_ */
