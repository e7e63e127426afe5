
/*
 * Whole messages answers as chat completions; see docs/translation.md, Answers.
 * Streams are in ngx_modelgw_stream.h.
 */


#ifndef _NGX_MODELGW_COMPLETION_H_INCLUDED_
#define _NGX_MODELGW_COMPLETION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_usage.h"


/* what the answer depends on, apart from the upstream's */

typedef struct {
    ngx_str_t             model;         /* the id the client sent, a JSON
                                            string with quotes */
    time_t                created;
    ngx_uint_t            reasoning;     /* NGX_MODELGW_REASONING_* */
    ngx_uint_t            include_usage; /* streams only */
    ngx_modelgw_usage_t  *usage;         /* merged by the caller before each
                                            call */
} ngx_modelgw_completion_t;


/*
 * Writes the chat completion for a messages answer.
 *     NGX_OK        complete; a failed write is in out->failed
 *     NGX_DECLINED  not a message; nothing is written
 */
ngx_int_t ngx_modelgw_completion(ngx_modelgw_completion_t *c,
    ngx_modelgw_tape_t *tape, ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_COMPLETION_H_INCLUDED_ */
