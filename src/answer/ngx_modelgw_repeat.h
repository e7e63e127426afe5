
/*
 * Events of a stream that differ from the one before in nothing but their text:
 * as most do, while an answer comes word by word.
 */


#ifndef _NGX_MODELGW_REPEAT_H_INCLUDED_
#define _NGX_MODELGW_REPEAT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_sse.h"
#include "ngx_modelgw_text.h"


#define NGX_MODELGW_REPEAT_STRINGS  2    /* the text, and noise behind it */


typedef struct {
    ngx_pool_t           *pool;
    ngx_modelgw_skip_pt   skip;
    size_t                max;           /* bytes of an event */

    /* the event: what stands before, between and behind its strings */
    u_char               *bytes;
    size_t                room;          /* for them */
    size_t                len[NGX_MODELGW_REPEAT_STRINGS + 1];
    ngx_uint_t            strings;       /* that may differ; 0: none is known */

    off_t                 from;          /* as below; if the model id is behind
                                            the text, from the text's end */
    off_t                 to;
    ngx_uint_t            behind;
    size_t                beside;        /* bytes of the answer beside it */
} ngx_modelgw_repeat_t;


typedef struct {
    ngx_str_t             raw;
    ngx_str_t             text;          /* as in ngx_modelgw_text_t: "last" */
    off_t                 from;          /* of the model id, in raw */
    off_t                 to;            /* 0: it has none */
} ngx_modelgw_repeat_event_t;


/*
 * No event is known; bytes are taken from the pool when there is one.  max: as
 * in ngx_modelgw_sse_init().
 */
void ngx_modelgw_repeat_init(ngx_modelgw_repeat_t *rp, ngx_pool_t *pool,
    ngx_modelgw_skip_pt skip, size_t max);

/*
 * Keeps an event whose data is JSON and that may be left out when it comes once
 * more with another text: all it brings is that text, its model id, which is
 * from from to to in its raw bytes (nowhere, if to is 0), and usage, which says
 * the same when it is merged a second time.  One that cannot be kept is
 * forgotten, and no fault.
 *     NGX_OK, NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_repeat_keep(ngx_modelgw_repeat_t *rp,
    ngx_modelgw_sse_event_t *ev, ngx_modelgw_text_t *text, off_t from,
    off_t to);

void ngx_modelgw_repeat_forget(ngx_modelgw_repeat_t *rp);

/*
 * Takes an event at *pos, where one begins, if it is the one kept but for the
 * inside of its strings, and that is a JSON string's, too.
 *     NGX_OK        *ev is set, *pos is behind it
 *     NGX_DECLINED  it is another one, does not end before last, or is longer
 *                   than an event may be
 */
ngx_int_t ngx_modelgw_repeat_next(ngx_modelgw_repeat_t *rp, u_char **pos,
    u_char *last, ngx_modelgw_repeat_event_t *ev);


/* The n of ngx_modelgw_text_t of an event that was taken last. */

static ngx_inline size_t
ngx_modelgw_repeat_len(ngx_modelgw_repeat_t *rp,
    ngx_modelgw_repeat_event_t *ev)
{
    return rp->beside + ngx_modelgw_text_len(&ev->text);
}


#endif /* _NGX_MODELGW_REPEAT_H_INCLUDED_ */
