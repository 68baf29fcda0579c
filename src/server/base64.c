/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c - bytes to base64 text: the plain form, and which form to use.
 *
 * Role    the definition that base64_avx2.c is tested against, and what runs elsewhere.
 * Method  three bytes are one number of 24 bits and four digits of 6.
 * Memory  none. Threads: any; nothing is cached here, callers keep the function.
 * Proof   tests/unit/test_server_out.c. */
#include "server/base64.h"

#include <stdint.h>

static const char digit[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void put4(char *out, uint32_t bits) {
    out[0] = digit[bits >> 18];
    out[1] = digit[bits >> 12 & 63];
    out[2] = digit[bits >> 6 & 63];
    out[3] = digit[bits & 63];
}

void fl_base64_ref(char *out, const void *data, size_t size) {
    const unsigned char *p = data;
    size_t               i = 0;
    for (; size - i >= 3; i += 3, out += 4)
        put4(out, (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2]);
    if (i == size)
        return;
    uint32_t two = size - i == 2 ? (uint32_t)p[i + 1] << 8 : 0;
    put4(out, (uint32_t)p[i] << 16 | two);
    out[3] = '=';
    if (size - i == 1)
        out[2] = '=';
}

fl_base64_fn fl_base64_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) /* asked once, before main: cpuid is slow in guests */
        return fl_base64_avx2;
#endif
    return fl_base64_ref;
}

void fl_base64_put(fl_buf *out, fl_base64_fn encode, const void *data, size_t size) {
    const size_t text = fl_base64_size(size);
    if (fl_buf_reserve(out, text + 2)) {
        char *p = out->data + out->size;
        p[0]    = '"';
        encode(p + 1, data, size);
        p[text + 1] = '"';
        p[text + 2] = '\0';
        out->size += text + 2;
    }
}
