
/*
 * A tape: the places of all values of a JSON document, for documents that are
 * translated: values are found by name and copied as the bytes they are.
 *
 * The scanner must have found the document to be strict JSON.  The tape of
 * anything else has no meaning, but stays within its bounds.
 */


#ifndef _NGX_MODELGW_TAPE_H_INCLUDED_
#define _NGX_MODELGW_TAPE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"


#define NGX_MODELGW_TAPE_MAX_NODES  (1024 * 1024)
#define NGX_MODELGW_TAPE_MAX_SIZE   0x7fffffff   /* bytes of a document */

#define NGX_MODELGW_TAPE_KEEP       4096         /* nodes */

/* values in more containers than this are not on the tape */
#define NGX_MODELGW_TAPE_MAX_DEPTH  8

/* types of nodes, by the first byte of the value */

#define NGX_MODELGW_TAPE_NULL    1
#define NGX_MODELGW_TAPE_FALSE   2
#define NGX_MODELGW_TAPE_TRUE    3
#define NGX_MODELGW_TAPE_NUMBER  4
#define NGX_MODELGW_TAPE_STRING  5
#define NGX_MODELGW_TAPE_OBJECT  6
#define NGX_MODELGW_TAPE_ARRAY   7


/*
 * One value.  Nodes are in the order of the document: a container is before its
 * contents, the name of a member (a string) before its value.
 */
typedef struct {
    uint32_t              from;          /* bytes [from, to) of the document, */
    uint32_t              to;            /* with quotes and brackets */
    uint32_t              after;         /* index of the first node after this
                                            value and its contents */
    unsigned              type:4;
    unsigned              count:28;      /* members or elements; if they are too
                                            deep for the tape: 0 if there are
                                            none, else 1 or more */
} ngx_modelgw_node_t;


typedef struct {
    ngx_pool_t           *pool;
    ngx_modelgw_skip_pt   skip;
    ngx_modelgw_node_t   *nodes;
    ngx_uint_t            n;             /* nodes in use */
    ngx_uint_t            size;          /* nodes allocated */
    ngx_uint_t            first;         /* nodes to allocate first */
    ngx_uint_t            documents;     /* so far: _init(), _reset() */
    u_char               *base;          /* the document, when it is complete */

    /* the state between two pieces */
    ngx_int_t             rc;            /* of ngx_modelgw_tape_feed() */
    u_char               *piece;
    uint32_t              pos;           /* offset of the piece; bytes that
                                            were read */
    ngx_uint_t            state;
    ngx_uint_t            depth;         /* open containers */
    uint32_t              open[NGX_MODELGW_TAPE_MAX_DEPTH + 1];
                                         /* their nodes, the outermost first */
    uint32_t              counts[NGX_MODELGW_TAPE_MAX_DEPTH + 2];
                                         /* values at each depth so far */
} ngx_modelgw_tape_t;


/* Makes the tape ready for a first document. */
void ngx_modelgw_tape_init(ngx_modelgw_tape_t *tape, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip);

/*
 * Makes the tape ready for the next document.  Its memory is reused, unless it
 * is more than NGX_MODELGW_TAPE_KEEP nodes.
 */
void ngx_modelgw_tape_reset(ngx_modelgw_tape_t *tape);

/*
 * Reads the next len bytes of the document, in any split.
 *     NGX_OK
 *     NGX_DECLINED  more than NGX_MODELGW_TAPE_MAX_NODES values or
 *                   NGX_MODELGW_TAPE_MAX_SIZE bytes; so are all calls after it
 *     NGX_ERROR     no memory; so are all calls after it
 */
ngx_int_t ngx_modelgw_tape_feed(ngx_modelgw_tape_t *tape, u_char *p,
    size_t len);

/*
 * Ends the document.  The functions below read it at base.
 *     NGX_OK        there is at least one value, and all are complete
 *     NGX_DECLINED  not so
 */
ngx_int_t ngx_modelgw_tape_done(ngx_modelgw_tape_t *tape, u_char *base);


/* the root value */
#define ngx_modelgw_tape_root(tape)  (tape)->nodes

/*
 * Returns the value of the member of that name (compared after unescaping; the
 * last one of equal names); NULL if there is none, or obj is NULL or no object.
 * name is ASCII without a backslash, and so is text below.
 */
static ngx_inline ngx_modelgw_node_t *ngx_modelgw_tape_member(
    ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *obj, const char *name);

/*
 * Sets values[i] to what _member() would return for names[i], n of them, in one
 * pass over obj.  The names differ.
 */
void ngx_modelgw_tape_members(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *obj, ngx_str_t *names, ngx_uint_t n,
    ngx_modelgw_node_t **values);

/*
 * Return the first node in a container, and the one after a node; NULL after
 * the last one, and if container is NULL or no container.  In an object a
 * member is two nodes, the name and the value.
 */
ngx_modelgw_node_t *ngx_modelgw_tape_first(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *container);
ngx_modelgw_node_t *ngx_modelgw_tape_next(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *container, ngx_modelgw_node_t *node);

/*
 * Returns 1 if node is a string that is equal to the text after unescaping,
 * else 0; node may be NULL.
 */
static ngx_inline ngx_uint_t ngx_modelgw_tape_is(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node, const char *text);

/* Sets *raw to the bytes of the value as written, with brackets and quotes. */
void ngx_modelgw_tape_raw(ngx_modelgw_tape_t *tape, ngx_modelgw_node_t *node,
    ngx_str_t *raw);

/* Sets *inside to the bytes between the quotes of a string, as written. */
void ngx_modelgw_tape_inside(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node, ngx_str_t *inside);

/*
 * Sets *text to the unescaped string, as UTF-8: in place if it has no escapes,
 * else in memory of the pool.  A lone surrogate becomes U+FFFD.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_tape_text(ngx_modelgw_tape_t *tape, ngx_pool_t *pool,
    ngx_modelgw_node_t *node, ngx_str_t *text);

/*
 * Returns 1 if the string is empty or only white space (space, \t, \n, \r, \v,
 * \f, also as escapes), else 0.
 */
ngx_uint_t ngx_modelgw_tape_blank(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node);

/*
 * Returns 1 and sets *n if node is an integer of 1 to 9 digits without sign,
 * fraction and exponent, else 0; node may be NULL.
 */
ngx_uint_t ngx_modelgw_tape_count(ngx_modelgw_tape_t *tape,
    ngx_modelgw_node_t *node, ngx_uint_t *n);


/*
 * Like _member() for an object, and like _is() for a string.  Those are inline
 * so that the compiler computes the length of a literal.
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
