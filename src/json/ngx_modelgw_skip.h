
/*
 * Skipping over what needs no look inside of a JSON string, as fast as the
 * processor allows.
 */


#ifndef _NGX_MODELGW_SKIP_H_INCLUDED_
#define _NGX_MODELGW_SKIP_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif


/* the bytes of a word */

#define NGX_MODELGW_SKIP_ONES  0x0101010101010101ULL
#define NGX_MODELGW_SKIP_HIGH  0x8080808080808080ULL


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


/*
 * Returns how many of the 16 bytes at p are plain before the first one that is
 * not: most keys, and many values, end within them, and are not worth a call.
 */

#define NGX_MODELGW_SKIP_SHORT  16

#define ngx_modelgw_skip_plain(ch)                                            \
    ((ch) >= 0x20 && (ch) < 0x80 && (ch) != '"' && (ch) != '\\')


#if defined(__x86_64__)

/* a bit for each of the 16 bytes at p that is not plain */

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
 * The length of a string whose inside is at p, if it is whole before last,
 * plain, and shorter than NGX_MODELGW_SKIP_SHORT; else NGX_MODELGW_SKIP_SHORT.
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
