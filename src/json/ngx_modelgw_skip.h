
/*
 * Skipping the plain bytes of a JSON string, as fast as the processor can.
 */


#ifndef _NGX_MODELGW_SKIP_H_INCLUDED_
#define _NGX_MODELGW_SKIP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif


/* the same in each byte of a word */

#define NGX_MODELGW_SKIP_ONES  0x0101010101010101ULL
#define NGX_MODELGW_SKIP_HIGH  0x8080808080808080ULL


/*
 * Returns how many of the len bytes at p, the inside of a string, are plain
 * (0x20 to 0x7f without '"' and '\\') or in whole escapes of two bytes
 * (\" \\ \/ \b \f \n \r \t).  It stops before the closing quote, a control
 * byte, a byte of 0x80 or above, and a backslash of any other escape, or of one
 * that is cut by p + len; without any of these, the result is len.  Bytes
 * outside of [p, p + len) are not read.
 */
typedef size_t (*ngx_modelgw_skip_pt)(u_char *p, size_t len);


typedef struct {
    ngx_str_t             name;          /* "avx2", "sse2", "neon", "scalar" */
    ngx_modelgw_skip_pt   skip;
} ngx_modelgw_skip_variant_t;


/*
 * Returns the variants that this processor can run, the fastest first, and
 * "scalar" last: a static array of *n elements.
 */
ngx_modelgw_skip_variant_t *ngx_modelgw_skip_variants(ngx_uint_t *n);

/* Returns 1 if the variant is that of AVX2, which the processor has then. */
ngx_uint_t ngx_modelgw_skip_wide(ngx_modelgw_skip_pt skip);


/*
 * ngx_modelgw_skip_short() returns how many plain bytes are at p, at most 16,
 * where 16 may be read: most keys, and many values, end within them, and
 * are not worth a call.
 */

#define NGX_MODELGW_SKIP_SHORT  16

#define ngx_modelgw_skip_plain(ch)                                            \
    ((ch) >= 0x20 && (ch) < 0x80 && (ch) != '"' && (ch) != '\\')


#if defined(__x86_64__)

/* returns a bit for each of the 16 bytes at p that is not plain */

static ngx_inline unsigned
ngx_modelgw_skip_sse2_special(u_char *p)
{
    __m128i  v, m;

    v = _mm_loadu_si128((__m128i *) p);

    m = _mm_cmpgt_epi8(_mm_set1_epi8(0x20), v);
    m = _mm_or_si128(m, _mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
    m = _mm_or_si128(m, _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));

    return _mm_movemask_epi8(m);
}

#endif


static ngx_inline size_t
ngx_modelgw_skip_short(u_char *p)
{
#if defined(__x86_64__)

    return __builtin_ctz(ngx_modelgw_skip_sse2_special(p)
                         | 1 << NGX_MODELGW_SKIP_SHORT);

#else

    size_t  n;

    for (n = 0; n < NGX_MODELGW_SKIP_SHORT; n++) {

        if (!ngx_modelgw_skip_plain(p[n])) {
            break;
        }
    }

    return n;

#endif
}


/*
 * Returns the length of the string whose inside is at p, if its plain bytes are
 * fewer than NGX_MODELGW_SKIP_SHORT and followed by a quote; else, or if [p,
 * last) is too short, NGX_MODELGW_SKIP_SHORT.
 */

static ngx_inline size_t
ngx_modelgw_skip_string(u_char *p, u_char *last)
{
    size_t  len;

    if (last - p <= NGX_MODELGW_SKIP_SHORT) {
        return NGX_MODELGW_SKIP_SHORT;
    }

    len = ngx_modelgw_skip_short(p);

    return (p[len] == '"') ? len : NGX_MODELGW_SKIP_SHORT;
}


#endif /* _NGX_MODELGW_SKIP_H_INCLUDED_ */
