
/*
 * What the files of the codec of responses requests share; most of what they
 * use is in ngx_modelgw_request_private.h.
 *
 *     responses.c        the fields of the top level, the prompt cache
 *     responses_items.c  the input as turns
 *     responses_seal.c   thinking that comes back
 *     responses_tools.c  tools and their names, the choice among them
 *     responses_chat.c   the output for a chat upstream
 */


#ifndef _NGX_MODELGW_RESPONSES_PRIVATE_H_INCLUDED_
#define _NGX_MODELGW_RESPONSES_PRIVATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_request_private.h"
#include "ngx_modelgw_usage.h"


/* ngx_modelgw_responses_items.c */

/* Reads "instructions" and "input": a step, see ngx_modelgw_request_field_t. */
ngx_int_t ngx_modelgw_responses_input(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);


/* ngx_modelgw_responses_seal.c */

/*
 * Sets *doc to the blocks that are sealed in the text, with commas between
 * them.  *tape is created for the first call, if it is NULL.
 *     NGX_OK
 *     NGX_DECLINED  it is none of our seals, or broken
 *     NGX_ERROR     no memory
 */
ngx_int_t ngx_modelgw_responses_unseal(ngx_modelgw_request_walk_t *w,
    ngx_modelgw_tape_t **tape, ngx_str_t *text, ngx_str_t *doc);


/* ngx_modelgw_responses_tools.c */

/* Reads the tools of the request, wherever they are: a step. */
ngx_int_t ngx_modelgw_responses_tools(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *value);

/* Reads the field. */
ngx_int_t ngx_modelgw_responses_choice(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_request_field_t *field,
    ngx_modelgw_node_t *choice);

/*
 * Sets *name to the name upstream of what "name" and "namespace" of obj name.
 *     NGX_OK
 *     NGX_DECLINED  they are not strings or too long, or the name is empty
 *     NGX_ERROR     no memory, or OpenSSL failed
 */
ngx_int_t ngx_modelgw_responses_name(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *obj,
    ngx_str_t *name);

/*
 * Sets *text to {"tools":[names upstream]} of the item, which has been read
 * with the other tools, as the inside of a string.
 *     NGX_OK, NGX_DECLINED (refused), NGX_ERROR (no memory)
 */
ngx_int_t ngx_modelgw_responses_found(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_node_t *item,
    ngx_str_t *text);


/* ngx_modelgw_responses_chat.c */

/* Writes the chat request. */
void ngx_modelgw_responses_chat_write(ngx_modelgw_request_t *rq,
    ngx_modelgw_request_plan_t *plan, ngx_modelgw_out_t *out);


#endif /* _NGX_MODELGW_RESPONSES_PRIVATE_H_INCLUDED_ */
