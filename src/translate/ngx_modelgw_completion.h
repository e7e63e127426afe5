
/*
 * Messages answers as chat completions (translate.md, sections 3, 4, 6): whole
 * ones here, streams in ngx_modelgw_stream.h.
 */


#ifndef _NGX_MODELGW_COMPLETION_H_INCLUDED_
#define _NGX_MODELGW_COMPLETION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_out.h"
#include "ngx_modelgw_tape.h"
#include "ngx_modelgw_usage.h"


/* what the client is told, whatever the upstream says */

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
 *     NGX_OK        all is written; out->failed tells whether it could be
 *     NGX_DECLINED  it is no message; nothing is written
 */
ngx_int_t ngx_modelgw_completion(ngx_modelgw_completion_t *c,
    ngx_modelgw_tape_t *tape, ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_COMPLETION_H_INCLUDED_ */
