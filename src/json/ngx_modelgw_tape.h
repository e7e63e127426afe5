
/*
 * A tape: where the values of a JSON document lie.  For documents whose shape
 * is translated: values are found by name and copied as the bytes they are.
 *
 * The document must have been found to be strict JSON by the scanner; a tape
 * that is fed anything else is nonsense, but stays within its bounds.
 */


#ifndef _NGX_MODELGW_TAPE_H_INCLUDED_
#define _NGX_MODELGW_TAPE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"


#define NGX_MODELGW_TAPE_MAX_NODES  (1024 * 1024)
#define NGX_MODELGW_TAPE_MAX_SIZE   0x7fffffff

#define NGX_MODELGW_TAPE_KEEP       4096

/* what lies deeper in containers than this is not on the tape */
#define NGX_MODELGW_TAPE_MAX_DEPTH  7

/* types of nodes, by the first byte of the value */

#define NGX_MODELGW_TAPE_NULL    1
#define NGX_MODELGW_TAPE_FALSE   2
#define NGX_MODELGW_TAPE_TRUE    3
#define NGX_MODELGW_TAPE_NUMBER  4
#define NGX_MODELGW_TAPE_STRING  5
#define NGX_MODELGW_TAPE_OBJECT  6
#define NGX_MODELGW_TAPE_ARRAY   7


/*
 * One value.  The nodes stand in the order of the document: a container before
 * what is in it, the name of a member (a string) before its value.
 */
typedef struct {
    uint32_t              from;          /* quotes and brackets included */
    uint32_t              to;
    uint32_t              after;         /* index of the node behind this value
                                            and all that is in it */
    unsigned              type:4;
    unsigned              count:28;      /* members or elements; of a container
                                            whose content is too deep for the
                                            tape only 0 (empty) or not */
} ngx_modelgw_node_t;


typedef struct {
    ngx_pool_t           *pool;
    ngx_modelgw_skip_pt   skip;
    ngx_modelgw_node_t   *nodes;
    ngx_uint_t            n;
    ngx_uint_t            size;          /* nodes there is room for */
    ngx_uint_t            first;         /* nodes of the first allocation */
    u_char               *base;          /* the document, once it is whole */

    /* the state between two pieces; see tape.c */
    ngx_int_t             rc;            /* what feed said, and will say */
    u_char               *piece;
    uint32_t              pos;           /* of the piece */
    ngx_uint_t            state;
    ngx_uint_t            depth;         /* containers open */
    uint32_t              open[NGX_MODELGW_TAPE_MAX_DEPTH + 1];
                                         /* their nodes, the outermost first */
    uint32_t              counts[NGX_MODELGW_TAPE_MAX_DEPTH + 2];
                                         /* values in them so far; the first is
                                            of the document */
} ngx_modelgw_tape_t;


/* Makes the tape ready for a first document. */
void ngx_modelgw_tape_init(ngx_modelgw_tape_t *tape, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip);

/*
 * Makes it ready for the next one; its memory is used again, unless it is more
 * than NGX_MODELGW_TAPE_KEEP nodes.
 */
void ngx_modelgw_tape_reset(ngx_modelgw_tape_t *tape);

/*
 * Takes the next len bytes of the document, in any split.
 *     NGX_OK
 *     NGX_DECLINED  more than NGX_MODELGW_TAPE_MAX_NODES values, or 2 GB; it
 *                   stays so
 *     NGX_ERROR     no memory; it stays so, too
 */
ngx_int_t ngx_modelgw_tape_feed(ngx_modelgw_tape_t *tape, u_char *p,
    size_t len);

/*
 * Says that the document has ended and lies at base, which the functions below
 * read.
 *     NGX_OK        the tape has at least one node, and nothing is open
 *     NGX_DECLINED  it has not
 */
ngx_int_t ngx_modelgw_tape_done(ngx_modelgw_tape_t *tape, u_char *base);


/* The root value. */
#define ngx_modelgw_tape_root(tape)  (tape)->nodes

/*
 * The value of the object's member of that name (compared after unescaping; of
 * equal names the last counts), NULL if it has none or obj is NULL or no
 * object.  name is ASCII without a backslash, and so is text below.
 */
static ngx_inline ngx_modelgw_node_t *ngx_modelgw_tape_member(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *obj, const char *name);

/*
 * Walks over what is in a container: the first node in it, and the node after
 * one.  In an object each member is two nodes, the name and the value.  NULL
 * behind the last, and for NULL or what is no container.
 */
ngx_modelgw_node_t *ngx_modelgw_tape_first(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *container);
ngx_modelgw_node_t *ngx_modelgw_tape_next(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *container, ngx_modelgw_node_t *node);

/*
 * Whether node is a string equal to the text, after unescaping; node may be
 * NULL.
 */
static ngx_inline ngx_uint_t ngx_modelgw_tape_is(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node, const char *text);

/* The bytes of the value as written, brackets and quotes included. */
void ngx_modelgw_tape_raw(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    ngx_str_t *raw);

/* The bytes between the quotes of a string, as written. */
void ngx_modelgw_tape_inside(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node, ngx_str_t *inside);

/*
 * The string unescaped, as UTF-8: in place if it has no escapes, else in memory
 * of the pool.  A lone surrogate becomes U+FFFD.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_tape_text(ngx_modelgw_tape_t *tape, ngx_pool_t *pool,
    ngx_modelgw_node_t *node, ngx_str_t *text);

/*
 * Whether a string is blank: empty, or nothing but white space (space, \t, \n,
 * \r, \v, \f; as written or as an escape), which a messages upstream refuses.
 */
ngx_uint_t ngx_modelgw_tape_blank(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node);

/*
 * Whether node is an integer of 1 to 9 digits without sign, fraction and
 * exponent; *n is it.
 */
ngx_uint_t ngx_modelgw_tape_count(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node, ngx_uint_t *n);


/*
 * The same for a value that is an object, and for one that is a string.  The
 * functions above are inline for the length of their text, which the compiler
 * knows then.
 */

ngx_modelgw_node_t *ngx_modelgw_tape_find(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *obj, const char *name, size_t len);
ngx_uint_t ngx_modelgw_tape_equal(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node, const char *text, size_t len);


static ngx_inline ngx_modelgw_node_t *
ngx_modelgw_tape_member(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *obj,
    const char *name)
{
    if (obj == NULL || obj->type != NGX_MODELGW_TAPE_OBJECT) {
        return NULL;
    }

    return ngx_modelgw_tape_find(tape, obj, name, ngx_strlen(name));
}


static ngx_inline ngx_uint_t
ngx_modelgw_tape_is(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    const char *text)
{
    if (node == NULL || node->type != NGX_MODELGW_TAPE_STRING) {
        return 0;
    }

    return ngx_modelgw_tape_equal(tape, node, text, ngx_strlen(text));
}


#endif /* _NGX_MODELGW_TAPE_H_INCLUDED_ */
