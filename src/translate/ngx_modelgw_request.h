
/*
 * A chat completions request as a messages request; see docs/translation.md.
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
    /* set by the caller; must live as long as the output */

    ngx_pool_t           *pool;
    ngx_modelgw_tape_t   *tape;          /* of the request, a JSON object */
    ngx_modelgw_skip_pt   skip;
    ngx_modelgw_caps_t   *caps;
    ngx_uint_t            max_output;    /* tokens; 0: not known */
    ngx_str_t             model;         /* upstream id, needs no escapes */
    ngx_uint_t            strict;        /* refuse ignored fields */

    /* set by ngx_modelgw_request() */

    ngx_str_t             ignored;       /* "seed,logit_bias" */
    ngx_uint_t            max_tokens;    /* as sent to the upstream */
    ngx_uint_t            include_usage; /* client wants usage in the stream */

    /*
     * Set if the request is refused: UNSUPPORTED_FIELD (valid chat that cannot
     * be translated) or INVALID_REQUEST, and a sentence with the path of the
     * field, without a full stop.  It may quote the client: UTF-8, not escaped
     * for JSON.
     */

    const char           *code;
    ngx_str_t             message;
} ngx_modelgw_request_t;


/*
 * Writes the messages request for a chat request.  Texts, schemas, arguments
 * and images are borrowed from the tape's document or from memory of the pool.
 *     NGX_OK        complete; a failed write is in out->failed
 *     NGX_DECLINED  refused, see code and message; nothing is written
 *     NGX_ERROR     no memory; nothing is written
 */
ngx_int_t ngx_modelgw_request(ngx_modelgw_request_t *rq,
    ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_REQUEST_H_INCLUDED_ */
