
/*
 * How a tape is written: by its own tokenizer (tape.c), and by the scanner, for
 * a document that is scanned anyway.  from, to and end are offsets in the
 * document, in bytes.
 */


#ifndef _NGX_MODELGW_TAPE_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_TAPE_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_tape.h"


/* makes room for a node; if there is none, sets tape->rc and returns it */
ngx_int_t ngx_modelgw_tape_grow(ngx_modelgw_tape_t *tape);

/* a container ends before "end"; there may be none */
void ngx_modelgw_tape_close(ngx_modelgw_tape_t *tape, uint32_t end);


/*
 * A value begins at "from"; "to" is its end, if it is known.  Below the maximal
 * depth it gets no node, but the innermost container with a node is marked as
 * not empty.
 */

static ngx_inline void
ngx_modelgw_tape_begin(ngx_modelgw_tape_t *tape, ngx_uint_t type, uint32_t from,
    uint32_t to)
{
    ngx_modelgw_node_t  *node;

    if (tape->depth > NGX_MODELGW_TAPE_MAX_DEPTH) {

        if (tape->depth == NGX_MODELGW_TAPE_MAX_DEPTH + 1) {
            tape->counts[tape->depth] = 2;
        }

        if (type > NGX_MODELGW_TAPE_STRING) {
            tape->depth++;
        }

        return;
    }

    if (tape->n == tape->size && ngx_modelgw_tape_grow(tape) != NGX_OK) {
        return;
    }

    tape->counts[tape->depth]++;

    node = &tape->nodes[tape->n];
    node->from = from;
    node->to = to;
    node->after = tape->n + 1;
    node->type = type;
    node->count = 0;

    if (type > NGX_MODELGW_TAPE_STRING) {
        tape->open[tape->depth++] = tape->n;
        tape->counts[tape->depth] = 0;
    }

    tape->n++;
}


/*
 * The string, number or literal that has begun last ends before "end".  If
 * tape->rc is set, it may have no node.
 */

static ngx_inline void
ngx_modelgw_tape_end(ngx_modelgw_tape_t *tape, uint32_t end)
{
    if (tape->depth <= NGX_MODELGW_TAPE_MAX_DEPTH && tape->rc == NGX_OK) {
        tape->nodes[tape->n - 1].to = end;
    }
}


#endif /* _NGX_MODELGW_TAPE_PRIVATE_H_INCLUDED_ */
