
/*
 * Taking out of an upstream's text what clients must not see.
 */


#ifndef _NGX_MODELGW_SCRUB_H_INCLUDED_
#define _NGX_MODELGW_SCRUB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_error.h"


/*
 * Makes *out a copy of the text, in the pool, scrubbed with the mask and cut to
 * max bytes at a character.
 *     NGX_OK     *out is set
 *     NGX_ERROR  no memory
 */
ngx_int_t ngx_modelgw_scrub(ngx_pool_t *pool, ngx_modelgw_error_mask_t *mask,
    ngx_str_t *text, size_t max, ngx_str_t *out);


#endif /* _NGX_MODELGW_SCRUB_H_INCLUDED_ */
