/* SPDX-License-Identifier: Apache-2.0 */
/* plain/immintrin.h - AVX-512, VNNI and AMX in plain C, for a machine that lacks them.
 *
 * Found before the compiler's own header, which it takes in first. SIMDe says what the AVX-512
 * intrinsics do; what it lacks, the assembly of the kernels, and the tiles of AMX (from the pseudo
 * code of Intel's manual) are here. A kernel that conforms with these is right as it is written;
 * what the processor makes of its instructions is another question. */
#ifndef FL_TESTS_PLAIN_IMMINTRIN_H
#define FL_TESTS_PLAIN_IMMINTRIN_H

#include_next <immintrin.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/avx512/dpbusd.h>

/* acc += x y, whatever the numbers are; acc, x and y are vectors of floats to the kernels. */
#define FL_PLAIN_FMA(acc, x, y)  (acc = _mm512_fmadd_ps(x, y, acc))
#define FL_PLAIN_BF16(acc, x, y) (acc = plain_pairs(acc, x, y))
#define FL_PLAIN_DOT16(acc, x, y)                                                                  \
    (acc = (__m512)simde_mm512_dpbusd_epi32((__m512i)acc, (__m512i)x, (__m512i)y))
#define FL_PLAIN_DOT8(acc, x, y)                                                                   \
    (acc = (__m256)simde_mm256_dpbusd_epi32((__m256i)acc, (__m256i)x, (__m256i)y))
#define FL_PLAIN_PAIR16(acc, x, y)                                                                 \
    (acc = (__m512)_mm512_add_epi32((__m512i)acc, _mm512_madd_epi16((__m512i)x, (__m512i)y)))
#define FL_PLAIN_PAIR8(acc, x, y)                                                                  \
    (acc = (__m256)_mm256_add_epi32((__m256i)acc, _mm256_madd_epi16((__m256i)x, (__m256i)y)))

/* A function of 16 numbers x, each by itself. */
#define PLAIN_EACH(name, OUT, to_type, IN, from_type, y)                                           \
    static inline OUT name(IN a) {                                                                 \
        from_type from[16];                                                                        \
        to_type   to[16];                                                                          \
        OUT       out;                                                                             \
        memcpy(from, &a, sizeof from);                                                             \
        for (int i = 0; i < 16; i++) {                                                             \
            const from_type x = from[i];                                                           \
            to[i]             = (to_type)(y);                                                      \
        }                                                                                          \
        memcpy(&out, to, sizeof out);                                                              \
        return out;                                                                                \
    }

PLAIN_EACH(plain_to_int, __m512i, int32_t, __m512, float, isnan(x) ? INT32_MIN : (int32_t)rintf(x))
PLAIN_EACH(plain_to_float, __m512, float, __m512i, int32_t, x)

static inline float plain_sum(__m512 a) {
    float v[16];
    memcpy(v, &a, sizeof v);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] += v[i + half];
    return v[0];
}

static inline float plain_highest(__m512 a) {
    float v[16];
    memcpy(v, &a, sizeof v);
    for (int i = 1; i < 16; i++)
        v[0] = v[i] > v[0] ? v[i] : v[0];
    return v[0];
}

static inline float plain_wide(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Intel's manual: the odd product first, then the even one, each fused. */
static inline __m512 plain_pairs(__m512 acc, __m512 x, __m512 y) {
    uint16_t a[32], b[32];
    float    sum[16];
    memcpy(a, &x, sizeof a), memcpy(b, &y, sizeof b), memcpy(sum, &acc, sizeof sum);
    for (int i = 0; i < 16; i++) {
        sum[i] = fmaf(plain_wide(a[2 * i + 1]), plain_wide(b[2 * i + 1]), sum[i]);
        sum[i] = fmaf(plain_wide(a[2 * i]), plain_wide(b[2 * i]), sum[i]);
    }
    memcpy(&acc, sum, sizeof sum);
    return acc;
}

/* Ties to even, NaN stays NaN; the processor takes denormals for 0. */
static inline uint16_t plain_rounded(uint32_t x) {
    uint32_t size = x & 0x7fffffffU;
    uint16_t near = (uint16_t)((x + 0x7fffU + (x >> 16 & 1)) >> 16);
    return size > 0x7f800000U ? 0x7fc0 : size < 0x800000U ? 0 : near;
}
PLAIN_EACH(plain_half, __m256bh, uint16_t, __m512, uint32_t, plain_rounded(x))

static inline __m256 plain_pairs8(__m256 acc, __m256bh x, __m256bh y) {
    uint16_t a[16], b[16];
    float    sum[8];
    memcpy(a, &x, sizeof a), memcpy(b, &y, sizeof b), memcpy(sum, &acc, sizeof sum);
    for (int i = 0; i < 8; i++) {
        sum[i] = fmaf(plain_wide(a[2 * i + 1]), plain_wide(b[2 * i + 1]), sum[i]);
        sum[i] = fmaf(plain_wide(a[2 * i]), plain_wide(b[2 * i]), sum[i]);
    }
    memcpy(&acc, sum, sizeof sum);
    return acc;
}

static inline __m512 plain_longer(__m256 a) {
    __m512 out;
    memset(&out, 0, sizeof out);
    memcpy(&out, &a, sizeof a);
    return out;
}

PLAIN_EACH(plain_words, __m512i, uint32_t, __m256i, uint16_t, x)

/* What is left of a when it is rounded down; 0 of infinity. */
PLAIN_EACH(plain_rest, __m512, float, __m512, float, isinf(x) ? 0.0f : x - floorf(x))

/* a 2^floor(b) where `kept` has a bit, 0 elsewhere. */
static inline __m512 plain_scale(uint16_t kept, __m512 a, __m512 b) {
    float v[16], n[16];
    memcpy(v, &a, sizeof v), memcpy(n, &b, sizeof n);
    for (int i = 0; i < 16; i++) {
        float power = isnan(n[i]) ? n[i] : n[i] < -200.0f ? 0.0f : ldexpf(v[i], (int)floorf(n[i]));
        v[i]        = kept >> i & 1 ? power : 0.0f;
    }
    memcpy(&a, v, sizeof v);
    return a;
}

static inline uint32_t plain_topmost(__m512i a) {
    uint32_t v[16], most = 0;
    memcpy(v, &a, sizeof v);
    for (int i = 0; i < 16; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}
static inline int32_t plain_largest(__m512i a) {
    return (int32_t)(plain_topmost(_mm512_xor_si512(a, _mm512_set1_epi32(INT32_MIN))) ^
                     0x80000000U);
}

/* The lower halves; bytes of what is more than 255 as unsigned are 255. */
PLAIN_EACH(plain_halves, __m256i, uint16_t, __m512i, uint32_t, x)
PLAIN_EACH(plain_bytes, __m128i, uint8_t, __m512i, uint32_t, x > 255 ? 255 : x)

#undef _mm512_reduce_max_epi32
#undef _mm512_reduce_max_epu32
#undef _mm512_cvtepi32_epi16
#undef _mm512_cvtusepi32_epi8
#define _mm512_reduce_max_epi32 plain_largest
#define _mm512_reduce_max_epu32 plain_topmost
#define _mm512_cvtepi32_epi16   plain_halves
#define _mm512_cvtusepi32_epi8  plain_bytes
#undef _mm512_cvtneps_pbh
#undef _mm512_reduce_ps
#undef _mm512_maskz_scalef_ps
#define _mm512_cvtneps_pbh       plain_half
#define _mm512_reduce_ps(a, how) plain_rest(a)
#define _mm512_maskz_scalef_ps   plain_scale
#undef _mm256_dpbf16_ps
#undef _mm512_zextps256_ps512
#undef _mm512_cvtepu16_epi32
#define _mm256_dpbf16_ps       plain_pairs8
#define _mm512_zextps256_ps512 plain_longer
#define _mm512_cvtepu16_epi32  plain_words

#undef _mm512_madd_epi16 /* SIMDe 0.7.4 gives it the arguments of the masked one */
#define _mm512_madd_epi16 simde_mm512_madd_epi16
#undef _mm512_cvtps_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_reduce_add_ps
#undef _mm512_reduce_max_ps
#define _mm512_cvtps_epi32   plain_to_int
#define _mm512_cvtepi32_ps   plain_to_float
#define _mm512_reduce_add_ps plain_sum
#define _mm512_reduce_max_ps plain_highest

/* ---- tiles ----------------------------------------------------------------------------------- */

typedef struct plain_tiles {
    uint16_t row_bytes[8];
    uint8_t  rows[8];
    uint8_t  byte[8][16][64];
} plain_tiles;

static plain_tiles plain_tile;

/* A shape that the processor would refuse ends the test. */
static inline void plain_load_shape(const void *config) {
    const uint8_t *bytes = config;
    memset(&plain_tile, 0, sizeof plain_tile);
    for (int i = 0; i < 8; i++) {
        memcpy(&plain_tile.row_bytes[i], bytes + 16 + 2 * i, 2);
        plain_tile.rows[i] = bytes[48 + i];
        if (bytes[0] != 1 || plain_tile.row_bytes[i] > 64 || plain_tile.rows[i] > 16)
            __builtin_trap();
    }
}

static inline void plain_load(int tile, const void *from, size_t stride) {
    memset(plain_tile.byte[tile], 0, sizeof plain_tile.byte[tile]);
    for (size_t r = 0; r < plain_tile.rows[tile]; r++) {
        memcpy(plain_tile.byte[tile][r], (const char *)from + r * stride,
               plain_tile.row_bytes[tile]);
    }
}

static inline void plain_store(int tile, void *to, size_t stride) {
    for (size_t r = 0; r < plain_tile.rows[tile]; r++)
        memcpy((char *)to + r * stride, plain_tile.byte[tile][r], plain_tile.row_bytes[tile]);
}

/* sums[m][n] += Σ_k Σ_i a[m][4k + i] b[k][4n + i], a unsigned and b signed bytes. */
static inline void plain_multiply(int sums, int a, int b) {
    int depth = plain_tile.row_bytes[a] / 4;
    if (plain_tile.rows[a] != plain_tile.rows[sums] || plain_tile.rows[b] != depth)
        __builtin_trap();
    for (int m = 0; m < plain_tile.rows[sums]; m++) {
        for (int n = 0; n < plain_tile.row_bytes[sums] / 4; n++) {
            int32_t sum;
            memcpy(&sum, &plain_tile.byte[sums][m][4 * n], sizeof sum);
            for (int k = 0; k < 4 * depth; k++)
                sum += plain_tile.byte[a][m][k] * (int8_t)plain_tile.byte[b][k / 4][4 * n + k % 4];
            memcpy(&plain_tile.byte[sums][m][4 * n], &sum, sizeof sum);
        }
    }
}

/* sums[m][n] += Σ_k a[m][k] b[k/2][2n + k%2] in float32: the even products and the odd ones apart. */
static inline void plain_multiply_bf16(int sums, int a, int b) {
    int depth = plain_tile.row_bytes[a] / 4;
    if (plain_tile.rows[a] != plain_tile.rows[sums] || plain_tile.rows[b] != depth)
        __builtin_trap();
    for (int m = 0; m < plain_tile.rows[sums]; m++) {
        for (int n = 0; n < plain_tile.row_bytes[sums] / 4; n++) {
            float sum, part[2] = {0.0f, 0.0f};
            memcpy(&sum, &plain_tile.byte[sums][m][4 * n], sizeof sum);
            for (int k = 0; k < 2 * depth; k++) {
                uint16_t x, y;
                memcpy(&x, &plain_tile.byte[a][m][2 * k], sizeof x);
                memcpy(&y, &plain_tile.byte[b][k / 2][4 * n + k % 2 * 2], sizeof y);
                part[k % 2] = fmaf(plain_wide(x), plain_wide(y), part[k % 2]);
            }
            sum += part[0] + part[1];
            memcpy(&plain_tile.byte[sums][m][4 * n], &sum, sizeof sum);
        }
    }
}

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_release
#undef _tile_dpbusd
#define _tile_loadconfig plain_load_shape
#define _tile_loadd      plain_load
#define _tile_stored     plain_store
#undef _tile_dpbf16ps
#define _tile_dpbusd     plain_multiply
#define _tile_dpbf16ps   plain_multiply_bf16
#define _tile_zero(tile) memset(plain_tile.byte[tile], 0, sizeof plain_tile.byte[tile])
#define _tile_release()  memset(&plain_tile, 0, sizeof plain_tile)

#endif
