
/*
 * Escapes and UTF-8 of JSON strings, for the scanner, which reads them in
 * pieces, and for those that have a string in memory.
 *
 * Rejected: ngx_utf8_decode(), which accepts surrogates and overlong forms.
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_string.h"


const u_char  ngx_modelgw_string_escapes[256] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f',
    ['n'] = LF, ['r'] = CR, ['t'] = '\t', ['u'] = 'u'
};


/* in the order of upto; the last one ends every search */

static const ngx_modelgw_string_lead_t  ngx_modelgw_string_leads[] = {
    { 0xc1, 0, 0x00, 0x00 },
    { 0xdf, 1, 0x80, 0xbf },
    { 0xe0, 2, 0xa0, 0xbf },
    { 0xec, 2, 0x80, 0xbf },
    { 0xed, 2, 0x80, 0x9f },
    { 0xef, 2, 0x80, 0xbf },
    { 0xf0, 3, 0x90, 0xbf },
    { 0xf3, 3, 0x80, 0xbf },
    { 0xf4, 3, 0x80, 0x8f },
    { 0xff, 0, 0x00, 0x00 }
};


const ngx_modelgw_string_lead_t *
ngx_modelgw_string_lead(u_char ch)
{
    const ngx_modelgw_string_lead_t  *lead;

    for (lead = ngx_modelgw_string_leads; ch > lead->upto; lead++) {
        /* void */
    }

    return lead;
}


size_t
ngx_modelgw_string_utf8(u_char *p, u_char *last)
{
    size_t                            i;
    const ngx_modelgw_string_lead_t  *lead;

    lead = ngx_modelgw_string_lead(*p);

    if (lead->left == 0
        || lead->left >= last - p
        || p[1] < lead->low
        || p[1] > lead->high)
    {
        return 0;
    }

    for (i = 2; i <= lead->left; i++) {

        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }

    return lead->left + 1;
}
