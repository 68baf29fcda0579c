/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_numbers.c - tensors, rounding and batches of fl-cuda-kernels.
 *
 * Method  Rounding to 16 bits is written here from the formats' definition (a quantum per binade,
 *         nearest, ties to even), not taken from what is being tested. Random numbers are a fixed
 *         sequence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engines/cuda/tile_lists.h"
#include "kernels.h"

const char *const type_name[TYPES] = {"f32", "f16", "bf16"};
const size_t      type_size[TYPES] = {4, 2, 2};
const double      type_unit[TYPES] = {0x1p-24, 0x1p-11, 0x1p-8};

type     types_tested = TYPES;
uint32_t longest_text = UINT32_MAX;

static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

double uniform(void) {
    return (double)(int64_t)next() * 0x1p-63;
}

uint32_t below(uint32_t limit) {
    return (uint32_t)(next() % limit);
}

/* bits: of the fraction; least: exponent of the smallest normal number. */
static double round_to(double value, int bits, int least, double most) {
    if (value == 0.0 || !isfinite(value))
        return value;
    int exponent;
    frexp(value, &exponent); /* value = m 2^exponent, m in [0.5, 1) */
    int    place   = exponent - 1 < least ? least : exponent - 1;
    double quantum = ldexp(1.0, place - bits), r = nearbyint(value / quantum) * quantum;
    return fabs(r) > most ? copysign(INFINITY, r) : r;
}

double rounded(type t, double value) {
    switch (t) {
    case F16: return round_to(value, 10, -14, 65504.0);
    case BF16: return round_to(value, 7, -126, 0x1.fep127);
    default: return (double)(float)value;
    }
}

double e4m3_rounded(double value) {
    double r = round_to(value, 3, -6, 448.0);
    return isinf(r) ? copysign(448.0, r) : r;
}

double e4m3_value(uint8_t code) {
    int    exponent = code >> 3 & 15, fraction = code & 7;
    double a = exponent == 0 ? fraction * 0x1p-9 : ldexp(8 + fraction, exponent - 10);
    a        = (code & 0x7f) == 0x7f ? (double)NAN : a;
    return code & 0x80 ? -a : a;
}

static uint16_t half_bits(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return 0x7e00;
    if (isinf(value))
        return sign | 0x7c00;
    double a = fabs(value);
    if (a < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)(a * 0x1p24));
    int    exponent;
    double m = frexp(a, &exponent);
    return (uint16_t)(sign | (exponent + 14) << 10 | ((int)(m * 2048.0) - 1024));
}

static double half_value(uint16_t bits) {
    int    exponent = bits >> 10 & 31, fraction = bits & 1023;
    double a = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
               : exponent == 0 ? fraction * 0x1p-24
                               : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -a : a;
}

static void encode(type t, double value, void *at) {
    float    f = (float)value;
    uint32_t word;
    uint16_t bits;
    memcpy(&word, &f, sizeof word);
    bits = t == F16 ? half_bits(value) : (uint16_t)(word >> 16);
    if (t == F32)
        memcpy(at, &word, sizeof word);
    else
        memcpy(at, &bits, sizeof bits);
}

static double decode(type t, const void *at) {
    uint32_t word = 0;
    uint16_t bits = 0;
    float    f;
    if (t == F32) {
        memcpy(&word, at, sizeof word);
    } else {
        memcpy(&bits, at, sizeof bits);
        word = (uint32_t)bits << 16;
    }
    memcpy(&f, &word, sizeof f);
    return t == F16 ? half_value(bits) : (double)f;
}

void send(tensor *t) {
    char *data = malloc(t->count * type_size[t->type] + 1);
    for (size_t i = 0; i < t->count; i++) {
        t->v[i] = rounded(t->type, t->v[i]);
        encode(t->type, t->v[i], data + i * type_size[t->type]);
    }
    t->device = upload(data, t->count * type_size[t->type]);
    free(data);
}

void fetch(tensor *t) {
    size_t bytes = t->count * type_size[t->type];
    char  *data  = malloc(bytes + 1);
    download(data, t->device, bytes);
    for (size_t i = 0; i < t->count; i++)
        t->v[i] = decode(t->type, data + i * type_size[t->type]);
    free(data);
}

tensor numbers(type t, size_t count, double spread) {
    tensor made = {t, count, scratch(count * sizeof(double)), NULL};
    for (size_t i = 0; i < count; i++)
        made.v[i] = uniform() * spread;
    send(&made);
    return made;
}

tensor constants(type t, size_t count, double value) {
    tensor made = {t, count, scratch(count * sizeof(double)), NULL};
    for (size_t i = 0; i < count; i++)
        made.v[i] = value;
    send(&made);
    return made;
}

tensor poison(type t, size_t count) {
    tensor made = {t, count, scratch(count * sizeof(double)), NULL};
    made.device = upload(NULL, count * type_size[t]);
    return made;
}

float *floats(const tensor *t) {
    return t->device;
}

batch batch_of(const uint32_t *lengths, uint32_t texts, uint32_t spare_rows) {
    batch b = {.texts = texts, .cu = scratch((texts + 1) * sizeof(uint32_t))};
    for (uint32_t i = 0; i < texts; i++)
        b.cu[i + 1] = b.cu[i] + lengths[i];
    b.tokens = b.cu[texts];
    b.rows   = b.tokens + spare_rows;

    size_t        shorts      = fl_cuda_short_capacity(b.tokens) * sizeof(fl_cuda_tile);
    size_t        longs       = fl_cuda_long_capacity(b.tokens) * sizeof(fl_cuda_tile);
    fl_cuda_tile *short_tiles = scratch(shorts), *long_tiles = scratch(longs);
    fl_cuda_meta  meta = fl_cuda_list_tiles(b.cu, texts, short_tiles, long_tiles);
    b.meta_device      = upload(&meta, sizeof meta);
    b.cu_device        = upload(b.cu, (texts + 1) * sizeof(uint32_t));
    b.short_tiles      = upload(short_tiles, shorts);
    b.long_tiles       = upload(long_tiles, longs);
    return b;
}

batch mixed_batch(uint32_t most) {
    static const uint32_t odd[] = {16, 1, 63, 2,  128, 15,  511, 17, 255, 31,  3,
                                   64, 7, 65, 32, 257, 127, 33,  8,  512, 129, 256};
    uint32_t              lengths[sizeof odd / sizeof *odd], texts = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        if (odd[i] <= most && odd[i] <= longest_text)
            lengths[texts++] = odd[i];
    return batch_of(lengths, texts, 21);
}

batch reversed(const batch *b) {
    uint32_t *lengths = scratch(b->texts * sizeof *lengths);
    for (uint32_t i = 0; i < b->texts; i++) {
        uint32_t from = b->texts - 1 - i;
        lengths[i]    = b->cu[from + 1] - b->cu[from];
    }
    return batch_of(lengths, b->texts, 5);
}

tensor activations(type t, const batch *b, size_t width, double spread) {
    tensor made = {t, b->rows * width, scratch(b->rows * width * sizeof(double)), NULL};
    for (size_t i = 0; i < made.count; i++)
        made.v[i] = i < b->tokens * width ? uniform() * spread : (double)NAN;
    send(&made);
    return made;
}

tensor reversed_rows(const tensor *t, const batch *from, const batch *to, size_t width) {
    tensor made = {t->type, to->rows * width, scratch(to->rows * width * sizeof(double)), NULL};
    for (size_t i = 0; i < made.count; i++)
        made.v[i] = (double)NAN;
    for (uint32_t i = 0; i < from->texts; i++) {
        uint32_t there = from->texts - 1 - i;
        memcpy(made.v + to->cu[there] * width, t->v + from->cu[i] * width,
               (from->cu[i + 1] - from->cu[i]) * width * sizeof(double));
    }
    send(&made);
    return made;
}

void expect_same_rows(const tensor *one, const batch *b, const tensor *other, const batch *back,
                      size_t width, const char *what) {
    for (uint32_t i = 0; i < b->texts; i++) {
        const double *x = one->v + b->cu[i] * width;
        const double *y = other->v + back->cu[b->texts - 1 - i] * width;
        size_t        n = (b->cu[i + 1] - b->cu[i]) * width;
        expect(memcmp(x, y, n * sizeof(double)) == 0,
               "%s: text %u of %u tokens has other bytes in another batch", what, i,
               b->cu[i + 1] - b->cu[i]);
    }
}
