/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - a float32 row in the element types that clients ask for.
 *
 * Role    and In/Out: convert.h.
 * Method  int8 is round-to-even of 127 x with x clamped to [-1, 1], uint8 the same plus 128; a bit is 1
 *         for x > 0, the first dimension in the highest bit, and binary is ubinary minus 128.
 * Memory  none. Threads: any.
 * Proof   tests/unit/test_server_json.c. */
#include "server/convert.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

static int8_t to_int8(float x) {
    float clamped = x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x;
    return (int8_t)lrintf(clamped * 127.0f);
}

/* `flip` makes ubinary into binary: minus 128 is the other sign bit. */
static void pack_bits(uint8_t *out, const float *row, size_t count, uint8_t flip) {
    for (size_t i = 0; i < count; i += 8) {
        unsigned byte = 0;
        for (size_t j = 0; j < 8; j++) {
            byte = byte << 1 | (i + j < count && row[i + j] > 0.0f);
        }
        out[i / 8] = (uint8_t)(byte ^ flip);
    }
}

bool fl_convert(void *out, const float *row, size_t count, fletch_dtype dtype) {
    if (!fl_all_finite(row, count)) {
        return false;
    }
    uint8_t *bytes = out;
    switch (dtype) {
    case FLETCH_FLOAT32: memcpy(out, row, count * sizeof *row); return true;
    case FLETCH_INT8:
        for (size_t i = 0; i < count; i++) {
            bytes[i] = (uint8_t)to_int8(row[i]);
        }
        return true;
    case FLETCH_UINT8:
        for (size_t i = 0; i < count; i++) {
            bytes[i] = (uint8_t)(to_int8(row[i]) + 128);
        }
        return true;
    case FLETCH_BINARY: pack_bits(bytes, row, count, 0x80); return true;
    case FLETCH_UBINARY: pack_bits(bytes, row, count, 0); return true;
    }
    return false;
}

const char *fl_convert_name(fletch_dtype dtype) {
    static const char *const name[] = {"float32", "int8", "uint8", "binary", "ubinary"};
    return name[dtype];
}
