
/*
 * Escapes and UTF-8 of JSON strings: RFC 8259, section 7; RFC 3629, section 4.
 */


#ifndef _NGX_MODELGW_STRING_H_INCLUDED_
#define _NGX_MODELGW_STRING_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * What the first byte of a UTF-8 character says of those that follow.  The
 * bounds exclude overlong forms, surrogates and what is above U+10FFFF; bytes
 * after the second are 0x80 to 0xbf.
 */
typedef struct {
    u_char                upto;          /* first bytes up to this one */
    u_char                left;          /* bytes that follow; 0: it is no first
                                            byte of a longer character */
    u_char                low;           /* bounds of the second byte */
    u_char                high;
} ngx_modelgw_string_lead_t;


/*
 * By the byte after a backslash: the byte that the escape is for; 'u' for
 * \uhhhh; 0 if there is no such escape.
 */
extern const u_char  ngx_modelgw_string_escapes[256];


/* ch is 0x80 or above; never NULL. */
const ngx_modelgw_string_lead_t *ngx_modelgw_string_lead(u_char ch);

/*
 * Returns the length of the UTF-8 character at p, whose first byte is 0x80 or
 * above; 0 if it is none, or does not end before last.
 */
size_t ngx_modelgw_string_utf8(u_char *p, u_char *last);


/*
 * Writes the character as UTF-8, 1 to 4 bytes; returns the end.  code is at
 * most U+10FFFF and no surrogate.
 */

static ngx_inline u_char *
ngx_modelgw_string_encode(u_char *dst, uint32_t code)
{
    if (code < 0x80) {
        *dst++ = (u_char) code;
        return dst;
    }

    if (code < 0x800) {
        *dst++ = (u_char) (0xc0 | (code >> 6));

    } else if (code < 0x10000) {
        *dst++ = (u_char) (0xe0 | (code >> 12));
        *dst++ = (u_char) (0x80 | ((code >> 6) & 0x3f));

    } else {
        *dst++ = (u_char) (0xf0 | (code >> 18));
        *dst++ = (u_char) (0x80 | ((code >> 12) & 0x3f));
        *dst++ = (u_char) (0x80 | ((code >> 6) & 0x3f));
    }

    *dst++ = (u_char) (0x80 | (code & 0x3f));

    return dst;
}


#endif /* _NGX_MODELGW_STRING_H_INCLUDED_ */
