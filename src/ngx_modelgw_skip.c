
/*
 * The one loop in which a scan of a body spends its time: finding the end of
 * a run of plain string bytes.  As a signed number a byte that ends a run is
 * less than 0x20 (control bytes, and 0x80 and up, which are negative), or it
 * is '"' or '\\': three vector compares for 16 or 32 bytes.
 *
 * The variant is chosen at run time, once, because the module is built on one
 * machine and runs on another: no compiler flags, just a function attribute.
 * Tails are read by a vector that overlaps the one before it, so nothing is
 * read outside the bytes given and no byte loop is left for long strings.
 *
 * Rejected: AVX-512 (a byte compare to a mask is one instruction less, but the
 * runs between two escapes are shorter than its vector), and SSE4.2 string
 * instructions (slower than the three compares).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"

#if defined(__x86_64__)
#include <immintrin.h>

#elif defined(__aarch64__)
#include <arm_neon.h>
#endif


#define ngx_modelgw_skip_plain(ch)                                            \
    ((ch) >= 0x20 && (ch) < 0x80 && (ch) != '"' && (ch) != '\\')


#define NGX_MODELGW_SKIP_ONES  0x0101010101010101ULL
#define NGX_MODELGW_SKIP_HIGH  0x8080808080808080ULL


/*
 * Eight bytes in one word: subtracting 1 from a byte, or 0x20, borrows into
 * its high bit if the byte was less.  A borrow may mark the byte above, too,
 * but never hides one: the first mark that matters is found by the byte loop.
 */

static size_t
ngx_modelgw_skip_scalar(u_char *p, size_t len)
{
    size_t    n;
    uint64_t  w, quote, slash;

    n = 0;

    while (len - n >= sizeof(uint64_t)) {
        ngx_memcpy(&w, p + n, sizeof(uint64_t));

        quote = w ^ (NGX_MODELGW_SKIP_ONES * '"');
        slash = w ^ (NGX_MODELGW_SKIP_ONES * '\\');

        w |= (w - NGX_MODELGW_SKIP_ONES * 0x20)
             | (quote - NGX_MODELGW_SKIP_ONES)
             | (slash - NGX_MODELGW_SKIP_ONES);

        if (w & NGX_MODELGW_SKIP_HIGH) {
            break;
        }

        n += sizeof(uint64_t);
    }

    while (n < len && ngx_modelgw_skip_plain(p[n])) {
        n++;
    }

    return n;
}


#if defined(__x86_64__)

static ngx_inline unsigned
ngx_modelgw_skip_sse2_mask(u_char *p)
{
    __m128i  v, m;

    v = _mm_loadu_si128((__m128i *) p);

    m = _mm_cmpgt_epi8(_mm_set1_epi8(0x20), v);
    m = _mm_or_si128(m, _mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
    m = _mm_or_si128(m, _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));

    return _mm_movemask_epi8(m);
}


static size_t
ngx_modelgw_skip_sse2(u_char *p, size_t len)
{
    size_t    n;
    unsigned  mask;

    if (len < 16) {
        return ngx_modelgw_skip_scalar(p, len);
    }

    for (n = 0; n + 16 <= len; n += 16) {
        mask = ngx_modelgw_skip_sse2_mask(p + n);

        if (mask) {
            return n + __builtin_ctz(mask);
        }
    }

    mask = ngx_modelgw_skip_sse2_mask(p + len - 16);

    return mask ? len - 16 + __builtin_ctz(mask) : len;
}


__attribute__((target("avx2")))
static ngx_inline __m256i
ngx_modelgw_skip_avx2_find(u_char *p)
{
    __m256i  v, m;

    v = _mm256_loadu_si256((__m256i *) p);

    m = _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), v);
    m = _mm256_or_si256(m, _mm256_cmpeq_epi8(v, _mm256_set1_epi8('"')));

    return _mm256_or_si256(m, _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\\')));
}


/* two vectors a turn: the loads and the branch are what costs */

__attribute__((target("avx2")))
static size_t
ngx_modelgw_skip_avx2(u_char *p, size_t len)
{
    size_t    n;
    __m256i   a, b;
    uint32_t  mask;

    if (len < 32) {
        return ngx_modelgw_skip_sse2(p, len);
    }

    mask = _mm256_movemask_epi8(ngx_modelgw_skip_avx2_find(p));

    if (mask) {
        return __builtin_ctz(mask);
    }

    for (n = 32; n + 64 <= len; n += 64) {
        a = ngx_modelgw_skip_avx2_find(p + n);
        b = ngx_modelgw_skip_avx2_find(p + n + 32);

        if (_mm256_movemask_epi8(_mm256_or_si256(a, b))) {
            mask = _mm256_movemask_epi8(a);

            if (mask) {
                return n + __builtin_ctz(mask);
            }

            mask = _mm256_movemask_epi8(b);

            return n + 32 + __builtin_ctz(mask);
        }
    }

    if (n + 32 <= len) {
        mask = _mm256_movemask_epi8(ngx_modelgw_skip_avx2_find(p + n));

        if (mask) {
            return n + __builtin_ctz(mask);
        }
    }

    mask = _mm256_movemask_epi8(ngx_modelgw_skip_avx2_find(p + len - 32));

    return mask ? len - 32 + __builtin_ctz(mask) : len;
}


static ngx_uint_t
ngx_modelgw_skip_has_avx2(void)
{
    __builtin_cpu_init();

    return __builtin_cpu_supports("avx2") != 0;
}

#elif defined(__aarch64__)

/*
 * There is no movemask: a narrowing shift packs each byte's verdict into four
 * bits of one 64-bit word.
 */

static ngx_inline uint64_t
ngx_modelgw_skip_neon_mask(u_char *p)
{
    int8x16_t   v;
    uint8x16_t  m;
    uint8x8_t   packed;

    v = vreinterpretq_s8_u8(vld1q_u8(p));

    m = vcltq_s8(v, vdupq_n_s8(0x20));
    m = vorrq_u8(m, vceqq_s8(v, vdupq_n_s8('"')));
    m = vorrq_u8(m, vceqq_s8(v, vdupq_n_s8('\\')));

    packed = vshrn_n_u16(vreinterpretq_u16_u8(m), 4);

    return vget_lane_u64(vreinterpret_u64_u8(packed), 0);
}


static size_t
ngx_modelgw_skip_neon(u_char *p, size_t len)
{
    size_t    n;
    uint64_t  mask;

    if (len < 16) {
        return ngx_modelgw_skip_scalar(p, len);
    }

    for (n = 0; n + 16 <= len; n += 16) {
        mask = ngx_modelgw_skip_neon_mask(p + n);

        if (mask) {
            return n + __builtin_ctzll(mask) / 4;
        }
    }

    mask = ngx_modelgw_skip_neon_mask(p + len - 16);

    return mask ? len - 16 + __builtin_ctzll(mask) / 4 : len;
}

#endif


static ngx_modelgw_skip_variant_t  ngx_modelgw_skip_table[] = {
#if defined(__x86_64__)
    { ngx_string("avx2"), ngx_modelgw_skip_avx2 },
    { ngx_string("sse2"), ngx_modelgw_skip_sse2 },

#elif defined(__aarch64__)
    { ngx_string("neon"), ngx_modelgw_skip_neon },
#endif
    { ngx_string("scalar"), ngx_modelgw_skip_scalar }
};


ngx_modelgw_skip_variant_t *
ngx_modelgw_skip_variants(ngx_uint_t *n)
{
    ngx_uint_t  first;

    first = 0;

#if defined(__x86_64__)

    if (!ngx_modelgw_skip_has_avx2()) {
        first = 1;
    }

#endif

    *n = sizeof(ngx_modelgw_skip_table) / sizeof(ngx_modelgw_skip_variant_t)
         - first;

    return ngx_modelgw_skip_table + first;
}
