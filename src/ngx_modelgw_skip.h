
/*
 * Skipping over what needs no look inside of a JSON string, as fast as the
 * processor allows.
 */


#ifndef _NGX_MODELGW_SKIP_H_INCLUDED_
#define _NGX_MODELGW_SKIP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Returns how many of the len bytes at p, the inside of a string, need no look:
 * plain bytes (0x20 to 0x7f but '"' and '\\'), and whole escapes of two bytes
 * (\" \\ \/ \b \f \n \r \t).  It stops before the closing quote, a control
 * byte, a byte of 0x80 and up, and a backslash whose escape is another one or
 * has its second byte outside of [p, p + len).  Returns len if nothing stops
 * it.  Reads nothing outside of [p, p + len).
 */
typedef size_t (*ngx_modelgw_skip_pt)(u_char *p, size_t len);


typedef struct {
    ngx_str_t             name;          /* "avx2", "sse2", "neon", "scalar" */
    ngx_modelgw_skip_pt   skip;
} ngx_modelgw_skip_variant_t;


/*
 * The variants that this processor can run, best first; the last one is
 * always "scalar".  The array is static; *n is the number of its elements.
 */
ngx_modelgw_skip_variant_t *ngx_modelgw_skip_variants(ngx_uint_t *n);


#endif /* _NGX_MODELGW_SKIP_H_INCLUDED_ */
