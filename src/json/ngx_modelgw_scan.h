
/*
 * The JSON scanner: strict (RFC 8259, RFC 3629), one pass, incremental at any
 * split, without allocations while it runs.  It validates the whole document,
 * reports values that the caller watches, with their byte offsets, and counts
 * members that the caller has marked.
 */


#ifndef _NGX_MODELGW_SCAN_H_INCLUDED_
#define _NGX_MODELGW_SCAN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_tape.h"


#define NGX_MODELGW_SCAN_MAX_DEPTH    64     /* containers, with the root */
#define NGX_MODELGW_SCAN_MAX_KEYS     256    /* of one checked object */
#define NGX_MODELGW_SCAN_MAX_WATCHES  32
#define NGX_MODELGW_SCAN_TEXT         256    /* bytes kept of a watched value */
#define NGX_MODELGW_SCAN_MAX_MARKS    32
#define NGX_MODELGW_SCAN_MARK_LEN     63     /* bytes of a mark's name, value */


/* types of values, as bits */

#define NGX_MODELGW_SCAN_ABSENT   0x0000
#define NGX_MODELGW_SCAN_NULL     0x0001
#define NGX_MODELGW_SCAN_FALSE    0x0002
#define NGX_MODELGW_SCAN_TRUE     0x0004
#define NGX_MODELGW_SCAN_NUMBER   0x0008     /* any JSON number */
#define NGX_MODELGW_SCAN_COUNT    0x0010     /* a number of 1 to 9 digits and
                                                nothing else; the type of such
                                                a value is NUMBER|COUNT */
#define NGX_MODELGW_SCAN_STRING   0x0020
#define NGX_MODELGW_SCAN_OBJECT   0x0040
#define NGX_MODELGW_SCAN_ARRAY    0x0080

#define NGX_MODELGW_SCAN_BOOL     (NGX_MODELGW_SCAN_FALSE                      \
                                   |NGX_MODELGW_SCAN_TRUE)
#define NGX_MODELGW_SCAN_ANY      0x00ff

/* flags of a watch */

#define NGX_MODELGW_SCAN_KEYS     0x0100     /* of an object: its keys are
                                                checked like the root's */
#define NGX_MODELGW_SCAN_BRIEF    0x0200     /* text longer than a COUNT is not
                                                kept */


/*
 * One watched value.  The path is the names of members from the root object,
 * joined by '.': "stream_options.include_usage".  Each container on the way
 * must be watched, too, by an earlier row of the table.  Values inside arrays
 * cannot be watched.
 */
typedef struct {
    ngx_str_t             path;
    ngx_uint_t            types;         /* accepted types, and flags */
} ngx_modelgw_scan_watch_t;


typedef struct {
    ngx_uint_t            type;
    ngx_uint_t            elements;      /* of a container: its members */

    /* bytes [from, to) of the document, with quotes and brackets */
    off_t                 from;
    off_t                 to;

    /*
     * STRING: unescaped, as UTF-8; NUMBER: as written.  If it is longer than
     * NGX_MODELGW_SCAN_TEXT bytes (with BRIEF: than a COUNT can be), or has a
     * lone surrogate, then len is NGX_MODELGW_SCAN_TEXT + 1 and text must not
     * be read.
     */
    size_t                len;
    u_char               *text;          /* memory of the scanner */
} ngx_modelgw_scan_value_t;


/*
 * A member that is counted anywhere in the document, inside of arrays and of
 * watched values, too.  Keys and values are compared after unescaping, keys
 * also after folding (ASCII case, U+017F, U+212A).  A name is in lower case,
 * not empty, and has no '"', '\\', '/' and control bytes.
 */
typedef struct {
    ngx_str_t             name;
    ngx_str_t             value;         /* empty: any value; else strings with
                                            this prefix */
} ngx_modelgw_scan_mark_t;


/* kinds of faults */

#define NGX_MODELGW_SCAN_JSON     1          /* not JSON, or not an object */
#define NGX_MODELGW_SCAN_FIELD    2          /* JSON, but a field is refused */


typedef struct ngx_modelgw_scan_s       ngx_modelgw_scan_t;
typedef struct ngx_modelgw_scan_plan_s  ngx_modelgw_scan_plan_t;


typedef struct {
    ngx_modelgw_scan_watch_t  *watches;
    ngx_uint_t                 nwatches;

    /*
     * With check, the keys of the root and of the objects watched with
     * NGX_MODELGW_SCAN_KEYS are checked.  Refused are: a key that occurs twice,
     * after unescaping; a key with a lone surrogate; more than
     * NGX_MODELGW_SCAN_MAX_KEYS keys; in the root, a key that folds (ASCII
     * case, U+017F, U+212A) to a denied name.  In all objects are refused: a
     * key that folds to the name of a watch, but is written differently; a
     * watched value of a type that is not accepted.
     *
     * Without check nothing of this is refused: of equal keys the last one
     * counts, a watched value of a wrong type is taken for absent.
     */
    unsigned                   check:1;

    ngx_str_t                 *denied;   /* names; with check only */
    ngx_uint_t                 ndenied;

    ngx_modelgw_skip_pt        skip;

    ngx_modelgw_scan_mark_t   *marks;
    ngx_uint_t                 nmarks;
} ngx_modelgw_scan_conf_t;


/*
 * Returns what any number of scanners with this conf share; NULL if there is no
 * memory or the tables break a rule above.  It is allocated from the pool; conf
 * is copied, what it points to must live as long.
 */
ngx_modelgw_scan_plan_t *ngx_modelgw_scan_plan(ngx_pool_t *pool,
    ngx_modelgw_scan_conf_t *conf);

/*
 * Returns a scanner for one document, allocated from the pool; NULL if there is
 * no memory.  The plan must live as long.
 */
ngx_modelgw_scan_t *ngx_modelgw_scan_make(ngx_pool_t *pool,
    ngx_modelgw_scan_plan_t *plan);

/* Returns the plan's copy of conf. */
ngx_modelgw_scan_conf_t *ngx_modelgw_scan_conf(ngx_modelgw_scan_plan_t *plan);

/*
 * Returns a scanner with a plan of its own, for a conf that is used once; NULL
 * as ngx_modelgw_scan_plan().
 */
ngx_modelgw_scan_t *ngx_modelgw_scan_create(ngx_pool_t *pool,
    ngx_modelgw_scan_conf_t *conf);

/* Returns the bytes that a scanner of the plan takes. */
size_t ngx_modelgw_scan_size(ngx_modelgw_scan_plan_t *plan);

/*
 * Puts all of src, in the middle of a document, into dst, which has as many
 * bytes and goes on from there: one _feed() later both are equal.  dst need not
 * be a scanner before.
 */
void ngx_modelgw_scan_copy(ngx_modelgw_scan_t *dst, ngx_modelgw_scan_t *src);

/* Returns the plan of a scanner. */
ngx_modelgw_scan_plan_t *ngx_modelgw_scan_plan_of(ngx_modelgw_scan_t *s);

/*
 * Before the first _feed(): puts the document on the tape, which is empty,
 * while it is scanned.  When it has passed, the tape is what
 * ngx_modelgw_tape_feed() makes of it, tape->rc included, and is ended as after
 * that; of a document that has a fault, or has more than
 * NGX_MODELGW_TAPE_MAX_SIZE bytes, it has no meaning.  Until all is fed, the
 * tape is the scanner's alone.  NULL, at any time, or _reset(): no tape.
 */
void ngx_modelgw_scan_tape(ngx_modelgw_scan_t *s, ngx_modelgw_tape_t *tape);

/* Makes a used scanner ready for the next document. */
void ngx_modelgw_scan_reset(ngx_modelgw_scan_t *s);

/*
 * Reads the next len bytes of the document.
 *     NGX_OK        no fault so far
 *     NGX_DECLINED  a fault, see ngx_modelgw_scan_fault(); it stays so
 */
ngx_int_t ngx_modelgw_scan_feed(ngx_modelgw_scan_t *s, u_char *p, size_t len);

/*
 * Ends the document.
 *     NGX_OK        it is one JSON object and nothing else
 *     NGX_DECLINED  a fault, see ngx_modelgw_scan_fault()
 */
ngx_int_t ngx_modelgw_scan_done(ngx_modelgw_scan_t *s);

/*
 * Returns the value of the i-th watch, never NULL; it is valid until the next
 * _feed() or _reset().  The type is NGX_MODELGW_SCAN_ABSENT until the last byte
 * of the value has been read; a number ends at the byte after it.
 */
ngx_modelgw_scan_value_t *ngx_modelgw_scan_value(ngx_modelgw_scan_t *s,
    ngx_uint_t i);

/* Returns the offset of the document's first bracket, once it was read. */
off_t ngx_modelgw_scan_root(ngx_modelgw_scan_t *s);

/*
 * Returns how often the i-th mark has occurred so far.  A mark without a value
 * is counted at the end of the key, one with a value at the end of the value.
 */
ngx_uint_t ngx_modelgw_scan_mark(ngx_modelgw_scan_t *s, ngx_uint_t i);

/* Returns the counts of all marks, in the order of the table. */
uint32_t *ngx_modelgw_scan_marks(ngx_modelgw_scan_t *s);

/*
 * Returns NGX_MODELGW_SCAN_JSON or NGX_MODELGW_SCAN_FIELD after a fault, and
 * writes a sentence for the client into text, without a full stop: "byte 17:
 * invalid escape in string", "\"model\" is given twice", "\"max_tokens\" must
 * be an integer of at most 9 digits".  Bytes count from 0.  A key from the
 * document is cut to 64 bytes and has nothing that JSON would escape.
 * text->data has room for NGX_MODELGW_SCAN_FAULT_LEN bytes; text->len is set.
 */
#define NGX_MODELGW_SCAN_FAULT_LEN  256

ngx_uint_t ngx_modelgw_scan_fault(ngx_modelgw_scan_t *s, ngx_str_t *text);


#endif /* _NGX_MODELGW_SCAN_H_INCLUDED_ */
