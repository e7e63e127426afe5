
/*
 * Prices.  An operator writes euro per million tokens, as the vendors' price
 * lists do; inside, a price is an integer of pico-euro a token.  The two differ
 * by exactly 10^6: so a number of up to 6 digits behind the point is an integer
 * with its point moved, and nothing is ever rounded.
 *
 * Floating point and strtod() were rejected: 0.1 has no exact double, and the
 * result would depend on the locale.  A sign, an exponent, ".5" and "5." are
 * refused: a price that looks odd is more likely a slip than a wish.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_price.h"


#define NGX_MODELGW_PRICE_DIGITS  6


ngx_int_t
ngx_modelgw_price_parse(ngx_str_t *text, uint64_t *price)
{
    u_char      *p, *last;
    uint64_t     n;
    ngx_uint_t   digits;

    n = 0;
    digits = 0;
    last = text->data + text->len;

    for (p = text->data; p < last && *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (*p - '0');

        if (++digits > NGX_MODELGW_PRICE_DIGITS) {
            return NGX_DECLINED;
        }
    }

    if (digits == 0) {
        return NGX_DECLINED;
    }

    digits = 0;

    if (p < last && *p == '.') {

        for (p++; p < last && *p >= '0' && *p <= '9'; p++) {
            n = n * 10 + (*p - '0');

            if (++digits > NGX_MODELGW_PRICE_DIGITS) {
                return NGX_DECLINED;
            }
        }

        if (digits == 0) {
            return NGX_DECLINED;
        }
    }

    if (p < last) {
        return NGX_DECLINED;
    }

    for ( /* void */ ; digits < NGX_MODELGW_PRICE_DIGITS; digits++) {
        n *= 10;
    }

    *price = n;

    return NGX_OK;
}
