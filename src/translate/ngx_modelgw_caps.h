
/*
 * What a model can do, for the translation of requests.  Set by options of the
 * configuration: the code knows no vendor's model names.
 */


#ifndef _NGX_MODELGW_CAPS_H_INCLUDED_
#define _NGX_MODELGW_CAPS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MODELGW_SAMPLING_BOTH           0
#define NGX_MODELGW_SAMPLING_ONE_OF         1
#define NGX_MODELGW_SAMPLING_NONE           2

#define NGX_MODELGW_THINKING_NONE           0
#define NGX_MODELGW_THINKING_BUDGET         1
#define NGX_MODELGW_THINKING_ADAPTIVE       2
#define NGX_MODELGW_THINKING_ADAPTIVE_ONLY  3

#define NGX_MODELGW_EFFORT_MINIMAL  0x01
#define NGX_MODELGW_EFFORT_LOW      0x02
#define NGX_MODELGW_EFFORT_MEDIUM   0x04
#define NGX_MODELGW_EFFORT_HIGH     0x08
#define NGX_MODELGW_EFFORT_XHIGH    0x10
#define NGX_MODELGW_EFFORT_MAX      0x20

#define NGX_MODELGW_REASONING_OFF      0
#define NGX_MODELGW_REASONING_CONTENT  1
#define NGX_MODELGW_REASONING_FULL     2

#define NGX_MODELGW_AUTO_CACHE_OFF   0
#define NGX_MODELGW_AUTO_CACHE_ON    1
#define NGX_MODELGW_AUTO_CACHE_AUTO  2

#define NGX_MODELGW_CHAT_LIMIT_COMPLETION  0
#define NGX_MODELGW_CHAT_LIMIT_TOKENS      1


/* members of one type: a table of options sets them by offset */

typedef struct {
    ngx_uint_t            sampling;
    ngx_uint_t            thinking;
    ngx_uint_t            effort;        /* NGX_MODELGW_EFFORT_*, bits */
    ngx_uint_t            structured;    /* has output_config.format */
    ngx_uint_t            strict;
    ngx_uint_t            prefill;
    ngx_uint_t            forced_tool_choice;
    ngx_uint_t            default_max_tokens;
    ngx_uint_t            reasoning_output;
    ngx_uint_t            usage_input_includes_cache;
    ngx_uint_t            auto_cache;    /* NGX_MODELGW_AUTO_CACHE_* */
    ngx_uint_t            chat_limit;    /* NGX_MODELGW_CHAT_LIMIT_* */
} ngx_modelgw_caps_t;


#endif /* _NGX_MODELGW_CAPS_H_INCLUDED_ */
