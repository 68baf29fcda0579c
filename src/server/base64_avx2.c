/* SPDX-License-Identifier: Apache-2.0 */
/* base64_avx2.c - bytes to base64 text, 24 at a time.
 *
 * Role    base64.h on processors with AVX2; compiled with its own flags.
 * Method  Each half of the register takes 12 bytes. A shuffle gives every digit's 16 bits to one lane
 *         pair (bytes b a c b), two multiplications shift the four 6-bit fields into four bytes (W. Mula's
 *         arrangement), and the digit becomes a letter by adding an offset that a 16-entry table holds:
 *         0..25 -> 'A', 26..51 -> 'a' - 26, 52..61 -> '0' - 52, 62 -> '+' - 62, 63 -> '/' - 63. The table's
 *         index is max(0, v - 51), or 13 for v < 26.
 * Memory  reads 32 bytes per step of 24, so the last steps are left to the plain form.
 * Threads any.
 * Proof   tests/unit/test_server_out.c: equal to base64.c on every length and random bytes. */
#include <immintrin.h>
#include <stdint.h>

#include "server/base64.h"

/* 32 digits of 6 bits, one per byte, from two groups of 12 bytes. */
static inline __m256i split(__m256i in) {
    const __m256i order = _mm256_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10, 1, 0,
                                           2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
    __m256i       v     = _mm256_shuffle_epi8(in, order);
    __m256i       ac    = _mm256_and_si256(v, _mm256_set1_epi32(0x0FC0FC00));
    __m256i       bd    = _mm256_and_si256(v, _mm256_set1_epi32(0x003F03F0));
    ac                  = _mm256_mulhi_epu16(ac, _mm256_set1_epi32(0x04000040));
    bd                  = _mm256_mullo_epi16(bd, _mm256_set1_epi32(0x01000010));
    return _mm256_or_si256(ac, bd);
}

static inline __m256i letters(__m256i digits) {
    const __m256i offset =
        _mm256_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                         '0' - 52, '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 'A', 0, 0,
                         'a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                         '0' - 52, '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 'A', 0, 0);
    __m256i index = _mm256_subs_epu8(digits, _mm256_set1_epi8(51));
    __m256i upper = _mm256_cmpgt_epi8(_mm256_set1_epi8(26), digits);
    index         = _mm256_or_si256(index, _mm256_and_si256(upper, _mm256_set1_epi8(13)));
    return _mm256_add_epi8(digits, _mm256_shuffle_epi8(offset, index));
}

void fl_base64_avx2(char *out, const void *data, size_t size) {
    const unsigned char *p = data;
    for (; size >= 32; size -= 24, p += 24, out += 32) {
        __m128i low  = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(p + 12));
        __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
        _mm256_storeu_si256((__m256i *)(void *)out, letters(split(both)));
    }
    fl_base64_ref(out, p, size);
}
