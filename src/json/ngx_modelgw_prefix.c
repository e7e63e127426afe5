
/*
 * The keyed hash of prefixes: Horner's rule over GF(2^128), 32 blocks of 16
 * bytes at a time by the powers of the secret, with one reduction for all.
 *
 * A bit is a coefficient, the lowest one that of x^0; the polynomial that
 * reduces is x^128 + x^7 + x^2 + x + 1, as in GHASH, whose order of bits is
 * another one.
 *
 * The first coefficient is 1, so documents of different lengths are different
 * polynomials.
 *
 * Rejected: a MAC of OpenSSL's (GHASH and Poly1305 take as long as the scan);
 * AES rounds as a hash (as fast, but there is no proof of how often two
 * documents collide).
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_modelgw_prefix.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif


#define NGX_MODELGW_PREFIX_BLOCK   16
#define NGX_MODELGW_PREFIX_BLOCKS  (NGX_MODELGW_PREFIX_UNIT                    \
                                    / NGX_MODELGW_PREFIX_BLOCK)


struct ngx_modelgw_prefix_key_s {
    /* the powers of the secret, from the highest one to the first */
    ngx_modelgw_prefix_hash_t  powers[NGX_MODELGW_PREFIX_BLOCKS];
    ngx_modelgw_prefix_pt      units;
};


static void ngx_modelgw_prefix_multiply(ngx_modelgw_prefix_hash_t *a,
    ngx_modelgw_prefix_hash_t *b);


/* a = a * b, bit by bit: for the powers, once */

static void
ngx_modelgw_prefix_multiply(ngx_modelgw_prefix_hash_t *a,
    ngx_modelgw_prefix_hash_t *b)
{
    uint64_t                   carry, bit;
    ngx_int_t                  i;
    ngx_modelgw_prefix_hash_t  product;

    product.low = 0;
    product.high = 0;

    for (i = 127; i >= 0; i--) {

        carry = product.high >> 63;
        product.high = product.high << 1 | product.low >> 63;
        product.low = product.low << 1 ^ (carry ? 0x87 : 0);

        bit = (i < 64) ? b->low >> i : b->high >> (i - 64);

        if (bit & 1) {
            product.low ^= a->low;
            product.high ^= a->high;
        }
    }

    *a = product;
}


#if defined(__x86_64__)

/* the sum of products, of up to 255 bits, reduced */

__attribute__((target("pclmul,sse4.1")))
static ngx_inline __m128i
ngx_modelgw_prefix_reduce(__m128i low, __m128i mid, __m128i high)
{
    __m128i        t;
    const __m128i  poly = _mm_cvtsi32_si128(0x87);

    low = _mm_xor_si128(low, _mm_slli_si128(mid, 8));
    high = _mm_xor_si128(high, _mm_srli_si128(mid, 8));

    /* its upper half reaches above x^128 by 7 bits again */

    t = _mm_clmulepi64_si128(high, poly, 0x01);
    low = _mm_xor_si128(low, _mm_slli_si128(t, 8));
    high = _mm_xor_si128(high, _mm_srli_si128(t, 8));

    return _mm_xor_si128(low, _mm_clmulepi64_si128(high, poly, 0x00));
}


__attribute__((target("pclmul,sse4.1")))
static void
ngx_modelgw_prefix_clmul(ngx_modelgw_prefix_key_t *key,
    ngx_modelgw_prefix_hash_t *hash, u_char *p, size_t len)
{
    u_char      *last;
    __m128i      acc, m, k, low, mid, high;
    ngx_uint_t   i;

    acc = _mm_loadu_si128((__m128i *) hash);

    for (last = p + len; p < last; p += NGX_MODELGW_PREFIX_UNIT) {

        low = _mm_setzero_si128();
        mid = _mm_setzero_si128();
        high = _mm_setzero_si128();

        for (i = 0; i < NGX_MODELGW_PREFIX_BLOCKS; i++) {
            m = _mm_loadu_si128((__m128i *) p + i);
            k = _mm_loadu_si128((__m128i *) key->powers + i);

            if (i == 0) {
                m = _mm_xor_si128(m, acc);
            }

            low = _mm_xor_si128(low, _mm_clmulepi64_si128(m, k, 0x00));
            high = _mm_xor_si128(high, _mm_clmulepi64_si128(m, k, 0x11));
            mid = _mm_xor_si128(mid, _mm_clmulepi64_si128(m, k, 0x01));
            mid = _mm_xor_si128(mid, _mm_clmulepi64_si128(m, k, 0x10));
        }

        acc = ngx_modelgw_prefix_reduce(low, mid, high);
    }

    _mm_storeu_si128((__m128i *) hash, acc);
}


__attribute__((target("avx512f")))
static ngx_inline __m128i
ngx_modelgw_prefix_fold(__m512i v)
{
    __m256i  half;

    half = _mm256_xor_si256(_mm512_castsi512_si256(v),
                            _mm512_extracti64x4_epi64(v, 1));

    return _mm_xor_si128(_mm256_castsi256_si128(half),
                         _mm256_extracti128_si256(half, 1));
}


__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))
static void
ngx_modelgw_prefix_avx512(ngx_modelgw_prefix_key_t *key,
    ngx_modelgw_prefix_hash_t *hash, u_char *p, size_t len)
{
    u_char      *last;
    __m128i      acc;
    __m512i      m, k, low, mid, other, high;
    ngx_uint_t   i;

    acc = _mm_loadu_si128((__m128i *) hash);

    for (last = p + len; p < last; p += NGX_MODELGW_PREFIX_UNIT) {

        low = _mm512_setzero_si512();
        mid = _mm512_setzero_si512();
        other = _mm512_setzero_si512();
        high = _mm512_setzero_si512();

        for (i = 0; i < NGX_MODELGW_PREFIX_UNIT / 64; i++) {
            m = _mm512_loadu_si512((__m512i *) p + i);
            k = _mm512_loadu_si512((__m512i *) key->powers + i);

            if (i == 0) {
                m = _mm512_xor_si512(m, _mm512_zextsi128_si512(acc));
            }

            low = _mm512_xor_si512(low,
                                   _mm512_clmulepi64_epi128(m, k, 0x00));
            high = _mm512_xor_si512(high,
                                    _mm512_clmulepi64_epi128(m, k, 0x11));
            mid = _mm512_xor_si512(mid,
                                   _mm512_clmulepi64_epi128(m, k, 0x01));
            other = _mm512_xor_si512(other,
                                     _mm512_clmulepi64_epi128(m, k, 0x10));
        }

        mid = _mm512_xor_si512(mid, other);

        acc = ngx_modelgw_prefix_reduce(ngx_modelgw_prefix_fold(low),
                                        ngx_modelgw_prefix_fold(mid),
                                        ngx_modelgw_prefix_fold(high));
    }

    _mm_storeu_si128((__m128i *) hash, acc);
}


static ngx_modelgw_prefix_variant_t  ngx_modelgw_prefix_table[] = {
    { ngx_string("avx512"), ngx_modelgw_prefix_avx512 },
    { ngx_string("clmul"), ngx_modelgw_prefix_clmul }
};


ngx_modelgw_prefix_variant_t *
ngx_modelgw_prefix_variants(ngx_uint_t *n)
{
    __builtin_cpu_init();

    if (!__builtin_cpu_supports("pclmul")
        || !__builtin_cpu_supports("sse4.1"))
    {
        *n = 0;
        return NULL;
    }

    if (!__builtin_cpu_supports("avx512f")
        || !__builtin_cpu_supports("vpclmulqdq"))
    {
        *n = 1;
        return &ngx_modelgw_prefix_table[1];
    }

    *n = 2;

    return ngx_modelgw_prefix_table;
}

#else

ngx_modelgw_prefix_variant_t *
ngx_modelgw_prefix_variants(ngx_uint_t *n)
{
    *n = 0;

    return NULL;
}

#endif


ngx_modelgw_prefix_key_t *
ngx_modelgw_prefix_key(ngx_pool_t *pool, ngx_modelgw_prefix_variant_t *variant,
    u_char *secret)
{
    ngx_uint_t                  i;
    ngx_modelgw_prefix_key_t   *key;
    ngx_modelgw_prefix_hash_t  *powers;

    key = ngx_palloc(pool, sizeof(ngx_modelgw_prefix_key_t));
    if (key == NULL) {
        return NULL;
    }

    key->units = variant->units;
    powers = key->powers;

    i = NGX_MODELGW_PREFIX_BLOCKS - 1;
    ngx_memcpy(&powers[i], secret, NGX_MODELGW_PREFIX_KEY);

    while (i) {
        powers[i - 1] = powers[i];
        i--;

        ngx_modelgw_prefix_multiply(&powers[i],
                                    &powers[NGX_MODELGW_PREFIX_BLOCKS - 1]);
    }

    return key;
}


void
ngx_modelgw_prefix_begin(ngx_modelgw_prefix_t *h,
    ngx_modelgw_prefix_key_t *key, uint64_t number, ngx_str_t *label)
{
    uint64_t  *head;

    h->key = key;
    h->hash.low = 0;
    h->hash.high = 0;
    h->len = 0;

    ngx_memzero(h->part, NGX_MODELGW_PREFIX_UNIT);

    head = (uint64_t *) h->part;
    head[0] = 1;
    head[2] = number;
    head[3] = label->len;

    ngx_memcpy(&head[4], label->data, label->len);

    key->units(key, &h->hash, h->part, NGX_MODELGW_PREFIX_UNIT);
}


void
ngx_modelgw_prefix_update(ngx_modelgw_prefix_t *h, u_char *p, size_t len)
{
    size_t  n;

    if (h->len) {
        n = ngx_min(len, NGX_MODELGW_PREFIX_UNIT - h->len);

        ngx_memcpy(h->part + h->len, p, n);

        h->len += n;
        p += n;
        len -= n;

        if (h->len < NGX_MODELGW_PREFIX_UNIT) {
            return;
        }

        h->key->units(h->key, &h->hash, h->part, NGX_MODELGW_PREFIX_UNIT);
        h->len = 0;
    }

    n = len & ~((size_t) NGX_MODELGW_PREFIX_UNIT - 1);

    h->key->units(h->key, &h->hash, p, n);

    h->len = len - n;
    ngx_memcpy(h->part, p + n, h->len);
}
