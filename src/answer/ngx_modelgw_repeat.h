
/*
 * Events of a stream that differ from the previous one in their text only, and
 * perhaps in their number, as most do while an answer is streamed word by word.
 */


#ifndef _NGX_MODELGW_REPEAT_H_INCLUDED_
#define _NGX_MODELGW_REPEAT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_splice.h"
#include "ngx_modelgw_sse.h"
#include "ngx_modelgw_text.h"


#define NGX_MODELGW_REPEAT_HOLES  3      /* the text, noise after it, and a
                                            number */


/* an event without its holes */

typedef struct {
    u_char               *bytes;         /* before, between and after the holes,
                                            and those before once more */
    size_t                len[NGX_MODELGW_REPEAT_HOLES + 1];  /* the last one
                                            with those before */
    size_t                room;          /* for all but those before, when holes
                                            are short and vectors go beyond */
} ngx_modelgw_repeat_form_t;


typedef struct {
    ngx_pool_t           *pool;
    ngx_modelgw_skip_pt   skip;
    size_t                max;           /* bytes of an event */

    u_char               *memory;        /* of in and out */
    size_t                size;          /* allocated bytes */
    ngx_modelgw_repeat_form_t  in;       /* the event */
    ngx_modelgw_repeat_form_t  out;      /* with the model id replaced */
    ngx_uint_t            holes;         /* that may differ; 0: no event */
    ngx_uint_t            text;          /* index of the text */
    ngx_uint_t            number;        /* of the number; NGX_MODELGW_REPEAT_
                                            HOLES: there is none */
    ngx_uint_t            value;         /* number of the event that was read
                                            last, if it has one */

    off_t                 from;          /* of the model id, as below; counted
                                            from the end of the text if it is
                                            after the text */
    off_t                 to;
    ngx_uint_t            after_text;
    size_t                other;         /* bytes of the answer besides the
                                            text */
    ngx_uint_t            wide;          /* the processor has AVX2 */
} ngx_modelgw_repeat_t;


typedef struct {
    ngx_str_t             raw;
    ngx_str_t             text;          /* "last" of ngx_modelgw_text_t */
    size_t                n;             /* that of ngx_modelgw_text_t */
    off_t                 from;          /* of the model id, in raw */
    off_t                 to;            /* 0: no model id */
} ngx_modelgw_repeat_event_t;


/*
 * Initializes rp without an event; the first one is copied to memory from pool.
 * max is that of ngx_modelgw_sse_init().
 */
void ngx_modelgw_repeat_init(ngx_modelgw_repeat_t *rp, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip, size_t max);

/*
 * Keeps an event so that repetitions of it with another text need not be
 * scanned.  Its data must be JSON and have nothing but the text, a model id, a
 * number, and usage, which can be merged again without effect.  model is where
 * the model id is in the raw bytes, and what replaces it, always the same bytes
 * for one rp; NULL, or with to 0, if nothing is replaced.  An event of another
 * form is not kept, which is no error; nor is one with both a model id and a
 * number.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_repeat_keep(ngx_modelgw_repeat_t *rp,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_text_t *text,
    ngx_modelgw_cut_t *model);

/* Drops the event that is kept. */
void ngx_modelgw_repeat_forget(ngx_modelgw_repeat_t *rp);

/*
 * Reads the event that begins at *pos if it is the one that is kept except for
 * the contents of its strings, and its number, and these are valid.
 *     NGX_OK        *ev is set, *pos is the end of the event
 *     NGX_DECLINED  it differs, does not end before last, or is longer than max
 */
ngx_int_t ngx_modelgw_repeat_next(ngx_modelgw_repeat_t *rp, u_char **pos,
    u_char *last, ngx_modelgw_repeat_event_t *ev);

/*
 * Reads such events, and writes them at b->last with the model id replaced, up
 * to the first one that differs, has a long text, or ends near last or b->end;
 * moves *pos and b->last.  The bytes from b->last to b->end are overwritten.
 * Returns the sum of n of the events.
 */
size_t ngx_modelgw_repeat_copy(ngx_modelgw_repeat_t *rp, u_char **pos,
    u_char *last, ngx_buf_t *b);


#endif /* _NGX_MODELGW_REPEAT_H_INCLUDED_ */
