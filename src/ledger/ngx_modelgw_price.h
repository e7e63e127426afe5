
/*
 * Prices: decimal text in the configuration, integers everywhere else.
 */


#ifndef _NGX_MODELGW_PRICE_H_INCLUDED_
#define _NGX_MODELGW_PRICE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/* pico-euro a token */

typedef struct {
    uint64_t              input;
    uint64_t              output;
    uint64_t              cache_read;
    uint64_t              cache_write;
    uint64_t              cache_write_1h;
} ngx_modelgw_price_t;


/*
 * Reads euro per million tokens, "3", "0.0125", as pico-euro a token.  At most
 * 6 digits on either side of the point, nothing else, no sign, no exponent.
 *     NGX_OK        *price is set
 *     NGX_DECLINED  text is no such number
 */
ngx_int_t ngx_modelgw_price_parse(ngx_str_t *text, uint64_t *price);


#endif /* _NGX_MODELGW_PRICE_H_INCLUDED_ */
