
/*
 * The JSON scanner: strict (RFC 8259, RFC 3629), one pass, incremental at any
 * split, no allocation while it runs, byte offsets out.  It validates the whole
 * document and reports the values that the caller watches.
 */


#ifndef _NGX_MODELGW_SCAN_H_INCLUDED_
#define _NGX_MODELGW_SCAN_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"


#define NGX_MODELGW_SCAN_MAX_DEPTH    64
#define NGX_MODELGW_SCAN_MAX_KEYS     256    /* of one checked object */
#define NGX_MODELGW_SCAN_MAX_WATCHES  32
#define NGX_MODELGW_SCAN_TEXT         256    /* bytes kept of a watched value */
#define NGX_MODELGW_SCAN_MAX_MARKS    32
#define NGX_MODELGW_SCAN_MARK_LEN     63     /* of a mark's name, or value */


/* what a watched value turned out to be */

#define NGX_MODELGW_SCAN_ABSENT   0x0000
#define NGX_MODELGW_SCAN_NULL     0x0001
#define NGX_MODELGW_SCAN_FALSE    0x0002
#define NGX_MODELGW_SCAN_TRUE     0x0004
#define NGX_MODELGW_SCAN_NUMBER   0x0008     /* any JSON number */
#define NGX_MODELGW_SCAN_COUNT    0x0010     /* a number of 1 to 9 digits and
                                                nothing else; type of a value
                                                is NUMBER|COUNT then */
#define NGX_MODELGW_SCAN_STRING   0x0020
#define NGX_MODELGW_SCAN_OBJECT   0x0040
#define NGX_MODELGW_SCAN_ARRAY    0x0080

#define NGX_MODELGW_SCAN_BOOL     (NGX_MODELGW_SCAN_FALSE                      \
                                   |NGX_MODELGW_SCAN_TRUE)
#define NGX_MODELGW_SCAN_ANY      0x00ff

/* flags of a watch */

#define NGX_MODELGW_SCAN_KEYS     0x0100     /* an object whose keys are checked
                                                as the root's are (see below) */
#define NGX_MODELGW_SCAN_BRIEF    0x0200     /* no text is kept that is longer
                                                than a COUNT */


/*
 * One watched value.  The path is made of member names from the root object
 * joined by '.', "stream_options.include_usage"; a container that is passed on
 * the way must be watched itself and stand before its members in the table.
 * Values inside arrays cannot be watched.
 */
typedef struct {
    ngx_str_t             path;
    ngx_uint_t            types;         /* bits above that are accepted */
} ngx_modelgw_scan_watch_t;


typedef struct {
    ngx_uint_t            type;          /* one of the bits above */
    ngx_uint_t            elements;      /* members of a watched container */

    /* the raw token: quotes and brackets included; offsets from the first byte
       of the document */
    off_t                 from;
    off_t                 to;

    /* STRING: unescaped, as UTF-8; NUMBER: as written.  If the value is longer
       than NGX_MODELGW_SCAN_TEXT (of a BRIEF watch: than a COUNT can be), len
       is NGX_MODELGW_SCAN_TEXT + 1, and text is not to be read.  A lone
       surrogate in a string makes it so, too: such text equals no text of
       ours. */
    size_t                len;
    u_char               *text;          /* the scanner's */
} ngx_modelgw_scan_value_t;


/*
 * A member that is counted wherever it stands in the document, inside of arrays
 * and of watched values, too.  Keys and values are compared after unescaping,
 * keys after folding (ASCII case, U+017F, U+212A), too.
 * A name is no part of JSON that has an escape of its own: it is not empty and
 * has no '"', '\\', '/' and control bytes; and it is in lower case.
 */
typedef struct {
    ngx_str_t             name;
    ngx_str_t             value;         /* len 0: any value; else: a string
                                            that begins so */
} ngx_modelgw_scan_mark_t;


/* what kind of fault it was */

#define NGX_MODELGW_SCAN_JSON     1          /* not JSON, or not an object */
#define NGX_MODELGW_SCAN_FIELD    2          /* JSON, but a field is refused */


typedef struct ngx_modelgw_scan_s       ngx_modelgw_scan_t;
typedef struct ngx_modelgw_scan_plan_s  ngx_modelgw_scan_plan_t;


typedef struct {
    ngx_modelgw_scan_watch_t  *watches;
    ngx_uint_t                 nwatches;

    /*
     * With check set, the keys of the root and of the objects watched with
     * NGX_MODELGW_SCAN_KEYS are checked.  Refused are: a key that occurs twice
     * (compared after unescaping); a denied name (root only), and a key that
     * folds to one (fold: ASCII case, U+017F, U+212A); a key with a lone
     * surrogate; more than NGX_MODELGW_SCAN_MAX_KEYS keys.  Of any watch, in
     * these objects and in others, are refused: a key that folds to its name,
     * but is written otherwise; a value of another type than it accepts.
     * Without check nothing of this is refused; of equal keys the last counts,
     * a watched value of another type is as good as absent.
     */
    unsigned                   check:1;

    ngx_str_t                 *denied;
    ngx_uint_t                 ndenied;

    ngx_modelgw_skip_pt        skip;

    ngx_modelgw_scan_mark_t   *marks;
    ngx_uint_t                 nmarks;
} ngx_modelgw_scan_conf_t;


/*
 * All that depends on nothing but conf, for any number of scanners; NULL if
 * there is no memory or a table of conf is not as said above.  It lives in the
 * pool; conf is copied, what it points to must live as long.
 */
ngx_modelgw_scan_plan_t *ngx_modelgw_scan_plan(ngx_pool_t *pool,
    ngx_modelgw_scan_conf_t *conf);

/*
 * Returns a scanner that reads one document, NULL if there is no memory.  It
 * lives in the pool, the plan must live as long.
 */
ngx_modelgw_scan_t *ngx_modelgw_scan_make(ngx_pool_t *pool,
    ngx_modelgw_scan_plan_t *plan);

/* The plan's copy of conf. */
ngx_modelgw_scan_conf_t *ngx_modelgw_scan_conf(ngx_modelgw_scan_plan_t *plan);

/* Both at once, where a conf makes one scanner only. */
ngx_modelgw_scan_t *ngx_modelgw_scan_create(ngx_pool_t *pool,
    ngx_modelgw_scan_conf_t *conf);

/*
 * Makes a used scanner ready for the next document.
 */
void ngx_modelgw_scan_reset(ngx_modelgw_scan_t *s);

/*
 * Reads the next len bytes of the document.
 *     NGX_OK        no fault so far
 *     NGX_DECLINED  a fault, see ngx_modelgw_scan_fault(); it stays so
 */
ngx_int_t ngx_modelgw_scan_feed(ngx_modelgw_scan_t *s, u_char *p, size_t len);

/*
 * Says that the document has ended.
 *     NGX_OK        it is one JSON object and nothing else
 *     NGX_DECLINED  a fault, see ngx_modelgw_scan_fault()
 */
ngx_int_t ngx_modelgw_scan_done(ngx_modelgw_scan_t *s);

/*
 * The value of the i-th watch, as of now: it is to be asked for again behind
 * _feed() and _reset().  Its type is NGX_MODELGW_SCAN_ABSENT until its last
 * byte was read (containers: until the closing bracket).
 */
ngx_modelgw_scan_value_t *ngx_modelgw_scan_value(ngx_modelgw_scan_t *s,
    ngx_uint_t i);

/*
 * How often the i-th mark has occurred so far: counted at the end of the key,
 * with a value of its own at the end of the value.
 */
ngx_uint_t ngx_modelgw_scan_mark(ngx_modelgw_scan_t *s, ngx_uint_t i);

/* The same of all marks, in the order of the table. */
uint32_t *ngx_modelgw_scan_marks(ngx_modelgw_scan_t *s);

/*
 * Returns NGX_MODELGW_SCAN_JSON or NGX_MODELGW_SCAN_FIELD after a fault and
 * writes a sentence fit for the client, without a full stop, into text: "byte
 * 17: invalid escape in string", "\"model\" is given twice",
 * "\"max_tokens\" must be an integer of at most 9 digits".  Offsets count from
 * 0.  A key quoted from the document is cut to 64 bytes and is JSON-safe.
 * text.data has room for NGX_MODELGW_SCAN_FAULT_LEN bytes.
 */
#define NGX_MODELGW_SCAN_FAULT_LEN  256

ngx_uint_t ngx_modelgw_scan_fault(ngx_modelgw_scan_t *s, ngx_str_t *text);


#endif /* _NGX_MODELGW_SCAN_H_INCLUDED_ */
