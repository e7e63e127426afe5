
/*
 * A request of the responses API: the fields of the top level.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"
#include "ngx_modelgw_responses.h"


ngx_int_t
ngx_modelgw_responses(ngx_modelgw_request_t *rq, ngx_uint_t protocol,
    ngx_modelgw_responses_call_t *call, ngx_modelgw_out_t *out)
{
    return ngx_modelgw_request_unsupported(rq, "responses are not translated");
}
