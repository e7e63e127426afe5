
/*
 * A chat completions request as a messages request (translate.md, section 2).
 */


#ifndef _NGX_MODELGW_REQUEST_H_INCLUDED_
#define _NGX_MODELGW_REQUEST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_caps.h"
#include "ngx_modelgw_out.h"
#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_tape.h"


#define NGX_MODELGW_REQUEST_MESSAGE  512


typedef struct {
    /* set by the caller; all must live as long as the output */

    ngx_pool_t           *pool;
    ngx_modelgw_tape_t   *tape;          /* of the request, a JSON object */
    ngx_modelgw_skip_pt   skip;
    ngx_modelgw_caps_t   *caps;
    ngx_uint_t            max_output;    /* tokens; 0: not known */
    ngx_str_t             model;         /* the upstream's id of it; needs no
                                            escapes */
    ngx_uint_t            strict;        /* refuse what would be ignored */

    /* set by ngx_modelgw_request() */

    ngx_str_t             ignored;       /* "seed,logit_bias"; len 0: nothing */
    ngx_uint_t            max_tokens;    /* as sent to the upstream */
    ngx_uint_t            include_usage; /* the client asked for it */

    /* and if it was refused: UNSUPPORTED_FIELD (valid chat that cannot be
       expressed) or INVALID_REQUEST; a sentence that names the path, without
       a full stop; it may hold text of the client's, so is not JSON-safe */

    const char           *code;
    ngx_str_t             message;
} ngx_modelgw_request_t;


/*
 * Writes the messages request for a chat request.  Texts, schemas, arguments
 * and images are written as borrowed parts of the tape's document, or of
 * memory in the pool.
 *     NGX_OK        all is written; out->failed tells whether it could be
 *     NGX_DECLINED  refused, see code and message; nothing is written
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_request(ngx_modelgw_request_t *rq,
    ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_REQUEST_H_INCLUDED_ */
