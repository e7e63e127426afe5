
/*
 * A request of the responses API as a messages or a chat request; see
 * docs/responses.md.
 */


#ifndef _NGX_MODELGW_RESPONSES_H_INCLUDED_
#define _NGX_MODELGW_RESPONSES_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request.h"


/* what encrypted reasoning of ours begins with */

#define NGX_MODELGW_RESPONSES_SEAL  "mgw1."

/* kinds of tools */

#define NGX_MODELGW_RESPONSES_FUNCTION  0
#define NGX_MODELGW_RESPONSES_CUSTOM    1
#define NGX_MODELGW_RESPONSES_SEARCH    2    /* tool_search of the client */


/* a tool: its name upstream, and what the client calls it */

typedef struct {
    ngx_str_t             upstream;      /* characters [A-Za-z0-9_-] */
    ngx_str_t             name;          /* inside of a JSON string */
    ngx_str_t             space;         /* its namespace, the same; len 0:
                                            none */
    ngx_uint_t            kind;
} ngx_modelgw_responses_tool_t;


/*
 * What the answer to a call depends on.  Strings are borrowed from the tape's
 * document or from memory of the pool.
 */
typedef struct {
    ngx_array_t           tools;         /* of ngx_modelgw_responses_tool_t, in
                                            order; all that were declared */

    /* values that the answer repeats, raw JSON; len 0: absent or null */

    ngx_str_t             metadata;
    ngx_str_t             parallel_tool_calls;
    ngx_str_t             temperature;
    ngx_str_t             top_p;
    ngx_str_t             tool_choice;
    ngx_str_t             max_output_tokens;
    ngx_str_t             effort;        /* of "reasoning" */
    ngx_str_t             summary;       /* of "reasoning" */
    ngx_str_t             format;        /* of "text" */

    unsigned              encrypted:1;   /* include: encrypted reasoning */
    unsigned              show:1;        /* a summary was asked for */
    unsigned              json:1;        /* text.format asks for JSON */
} ngx_modelgw_responses_call_t;


/*
 * Writes the request for an upstream of that protocol, NGX_MODELGW_MESSAGES or
 * NGX_MODELGW_CHAT, and fills call.  Members of rq are set as by
 * ngx_modelgw_request(); texts, schemas, arguments and images are borrowed like
 * there.
 *     NGX_OK        complete; a failed write is in out->failed
 *     NGX_DECLINED  refused, see rq->code and rq->message; nothing is written
 *     NGX_ERROR     no memory; nothing is written
 */
ngx_int_t ngx_modelgw_responses(ngx_modelgw_request_t *rq, ngx_uint_t protocol,
    ngx_modelgw_responses_call_t *call, ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_RESPONSES_H_INCLUDED_ */
