
/*
 * The loop in which a scan of a body spends most of its time: to the end of a
 * string.  As a signed number, a byte that is not plain is less than 0x20
 * (control bytes; 0x80 and above are negative), or it is '"' or '\\': three
 * vector compares for 16 or 32 bytes.
 *
 * Text and code have an escape every 30 to 60 bytes; to stop at each would cost
 * more than the bytes between, because the branch cannot be predicted.  With
 * AVX2 the escapes in 64 bytes are found at once, without branches: a byte
 * after an odd number of backslashes is escaped, and a subtraction that carries
 * through runs of backslashes finds these bytes (Langdale and Lemire, "Parsing
 * Gigabytes of JSON per Second", 2019, section 3.1.1).
 *
 * The variant is chosen at run time, because the module is built on one machine
 * and runs on another: with function attributes, not with compiler flags.
 *
 * Rejected: AVX-512 (a vector is longer than most strings); SSE4.2 string
 * instructions (slower than the compares); skipping \uhhhh here (its digits
 * would have to be checked, too).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_skip.h"
#include "ngx_modelgw_string.h"

#if defined(__x86_64__)
#include <immintrin.h>

#elif defined(__aarch64__)
#include <arm_neon.h>
#endif


#define NGX_MODELGW_SKIP_ODD  0xaaaaaaaaaaaaaaaaULL


/* an escape of two bytes is at p + n */

#define ngx_modelgw_skip_escape(p, n, len)                                    \
    ((p)[n] == '\\'                                                           \
     && (n) + 1 < (len)                                                       \
     && (p)[(n) + 1] != 'u'                                                   \
     && ngx_modelgw_string_escapes[(p)[(n) + 1]])


/*
 * Whether eight bytes are plain.  Subtracting 1, or 0x20, from each byte sets
 * its high bit if the byte is less.  A borrow may flag the next byte, too, but
 * hides none.
 */

static ngx_inline ngx_uint_t
ngx_modelgw_skip_word(u_char *p)
{
    uint64_t  w, quote, slash;

    ngx_memcpy(&w, p, sizeof(uint64_t));

    quote = w ^ (NGX_MODELGW_SKIP_ONES * '"');
    slash = w ^ (NGX_MODELGW_SKIP_ONES * '\\');

    w |= (w - NGX_MODELGW_SKIP_ONES * 0x20)
         | (quote - NGX_MODELGW_SKIP_ONES)
         | (slash - NGX_MODELGW_SKIP_ONES);

    return (w & NGX_MODELGW_SKIP_HIGH) == 0;
}


static size_t
ngx_modelgw_skip_scalar(u_char *p, size_t len)
{
    size_t  n;

    n = 0;

    for ( ;; ) {

        while (len - n >= sizeof(uint64_t) && ngx_modelgw_skip_word(p + n)) {
            n += sizeof(uint64_t);
        }

        while (n < len && ngx_modelgw_skip_plain(p[n])) {
            n++;
        }

        if (n == len || !ngx_modelgw_skip_escape(p, n, len)) {
            return n;
        }

        n += 2;
    }
}


#if defined(__x86_64__)

static size_t
ngx_modelgw_skip_sse2(u_char *p, size_t len)
{
    size_t    n;
    unsigned  mask;

    n = 0;

    while (len - n >= 16) {
        mask = ngx_modelgw_skip_sse2_special(p + n);

        if (mask == 0) {
            n += 16;
            continue;
        }

        n += __builtin_ctz(mask);

        if (!ngx_modelgw_skip_escape(p, n, len)) {
            return n;
        }

        n += 2;
    }

    return n + ngx_modelgw_skip_scalar(p + n, len - n);
}


__attribute__((target("avx2")))
static ngx_inline __m256i
ngx_modelgw_skip_avx2_special(__m256i v)
{
    __m256i  m;

    m = _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), v);
    m = _mm256_or_si256(m, _mm256_cmpeq_epi8(v, _mm256_set1_epi8('"')));

    return _mm256_or_si256(m, _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\\')));
}


/*
 * The letters of ngx_modelgw_string_escapes[] but 'u'.  Each high half of a
 * byte has a bit; the tables have, for each low half, the bits of such bytes.
 */

__attribute__((target("avx2")))
static ngx_inline __m256i
ngx_modelgw_skip_avx2_escapes(__m256i v)
{
    __m256i        low, high;
    const __m256i  lows = _mm256_broadcastsi128_si256(
        /* 0x22 0x62 0x72, 0x74, 0x66, 0x5c, 0x6e, 0x2f */
        _mm_setr_epi8(0, 0, 1|4|8, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 1));
    const __m256i  highs = _mm256_broadcastsi128_si256(
        /* 0x2., 0x5., 0x6., 0x7. */
        _mm_setr_epi8(0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0));

    low = _mm256_shuffle_epi8(lows, v);
    high = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(0x0f));
    high = _mm256_shuffle_epi8(highs, high);

    return _mm256_cmpgt_epi8(_mm256_and_si256(low, high),
                             _mm256_setzero_si256());
}


__attribute__((target("avx2")))
static ngx_inline uint64_t
ngx_modelgw_skip_avx2_mask(__m256i a, __m256i b)
{
    return (uint32_t) _mm256_movemask_epi8(a)
           | ((uint64_t) (uint32_t) _mm256_movemask_epi8(b) << 32);
}


/*
 * Returns bits of the bytes, of 64, that are escaped; slashes are the bits of
 * backslashes.  *carry: the first byte is escaped; on return, the byte after
 * the last one is.
 */

static ngx_inline uint64_t
ngx_modelgw_skip_escaped(uint64_t slashes, uint64_t *carry)
{
    uint64_t  begin, codes, escaped;

    begin = slashes & ~*carry;
    codes = (((begin << 1) | NGX_MODELGW_SKIP_ODD) - begin)
            ^ NGX_MODELGW_SKIP_ODD;

    escaped = codes ^ (slashes | *carry);
    *carry = (codes & slashes) >> 63;

    return escaped;
}


__attribute__((target("avx2")))
static size_t
ngx_modelgw_skip_avx2(u_char *p, size_t len)
{
    size_t    n;
    __m256i   a, b, sa, sb;
    uint64_t  carry, special, slashes, escaped, wrong, stop;

    carry = 0;

    for (n = 0; len - n >= 64; n += 64) {
        a = _mm256_loadu_si256((__m256i *) (p + n));
        b = _mm256_loadu_si256((__m256i *) (p + n + 32));

        sa = ngx_modelgw_skip_avx2_special(a);
        sb = ngx_modelgw_skip_avx2_special(b);

        special = ngx_modelgw_skip_avx2_mask(sa, sb);

        if (carry == 0) {

            if (special == 0) {
                continue;
            }

            stop = __builtin_ctzll(special);

            if (p[n + stop] != '\\') {
                return n + stop;
            }
        }

        slashes = ngx_modelgw_skip_avx2_mask(
                             _mm256_cmpeq_epi8(a, _mm256_set1_epi8('\\')),
                             _mm256_cmpeq_epi8(b, _mm256_set1_epi8('\\')));

        escaped = ngx_modelgw_skip_escaped(slashes, &carry);

        wrong = escaped & ~ngx_modelgw_skip_avx2_mask(
                                          ngx_modelgw_skip_avx2_escapes(a),
                                          ngx_modelgw_skip_avx2_escapes(b));

        if (wrong & 1) {
            return n - 1;
        }

        stop = (special & ~slashes & ~escaped) | (wrong >> 1);

        if (stop) {
            return n + __builtin_ctzll(stop);
        }
    }

    /* an escape that begins in the last vector is read again */

    n -= carry;

    return n + ngx_modelgw_skip_sse2(p + n, len - n);
}


static ngx_uint_t
ngx_modelgw_skip_has_avx2(void)
{
    __builtin_cpu_init();

    return __builtin_cpu_supports("avx2") != 0;
}

#elif defined(__aarch64__)

/*
 * NEON has no movemask: a narrowing shift packs the result of each byte into
 * four bits of a 64-bit word.
 */

static size_t
ngx_modelgw_skip_neon(u_char *p, size_t len)
{
    size_t      n;
    uint64_t    mask;
    int8x16_t   v;
    uint8x16_t  m;

    n = 0;

    while (len - n >= 16) {
        v = vreinterpretq_s8_u8(vld1q_u8(p + n));

        m = vcltq_s8(v, vdupq_n_s8(0x20));
        m = vorrq_u8(m, vceqq_s8(v, vdupq_n_s8('"')));
        m = vorrq_u8(m, vceqq_s8(v, vdupq_n_s8('\\')));

        mask = vget_lane_u64(vreinterpret_u64_u8(
                             vshrn_n_u16(vreinterpretq_u16_u8(m), 4)), 0);

        if (mask == 0) {
            n += 16;
            continue;
        }

        n += __builtin_ctzll(mask) / 4;

        if (!ngx_modelgw_skip_escape(p, n, len)) {
            return n;
        }

        n += 2;
    }

    return n + ngx_modelgw_skip_scalar(p + n, len - n);
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


ngx_uint_t
ngx_modelgw_skip_wide(ngx_modelgw_skip_pt skip)
{
#if defined(__x86_64__)

    return skip == ngx_modelgw_skip_avx2;

#else

    return 0;

#endif
}
