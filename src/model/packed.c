/* SPDX-License-Identifier: Apache-2.0 */
/* packed.c - matrices that quantisers saved as integers and scales: compressed-tensors, GPTQ, AWQ.
 *
 * Role    model.c has them gathered with config.json, before any tensor is looked for: each appears under the name
 *         of the matrix that it was ("….weight"), and nobody else knows of its parts. tensor.c widens ranges of it;
 *         the cpu engine keeps the integers (its groups.c).
 * In/Out  "quantization_config" and the tensors of M -> M.weight:
 *         compressed-tensors  M.weight_packed, or M.weight of I8 or F8_E4M3; M.weight_scale, M.weight_shape,
 *                             M.weight_zero_point, M.weight_g_idx
 *         gptq, awq           M.qweight, M.qzeros, M.scales, M.g_idx
 * Method  w = (q - zero) scale, rounded to the type of the scale, as those who save them make it again (the difference
 *         is exact in every type). Bits and groups follow from the shapes; config.json says what layout they are of.
 *         What quantised activations are is ignored: products take them as they are.
 *         GPTQ's first format has its zero points less one, taken off whole words: added to them, carries and all.
 * Memory  nothing is copied. Threads: gathered when opening; reading is pure.
 * Proof   tests/golden/test_packed_weights.py: against compressed-tensors, GPTQModel and AutoAWQ. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/mem.h"
#include "model/model_private.h"

/* ---- Reading --------------------------------------------------------------------------------- */

static const unsigned char awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* where row 0 … 7 lies */

static unsigned cut(const fl_packed_matrix *p, uint32_t word, uint64_t place) {
    return word >> place * p->bits & ((1U << p->bits) - 1);
}

static uint32_t word_at(const unsigned char *words, uint64_t index) {
    uint32_t word;
    memcpy(&word, words + index * sizeof word, sizeof word);
    return word;
}

static uint64_t group_at(const fl_packed_matrix *p, uint64_t column) {
    assert(column < p->columns);
    int32_t group;
    if (p->group_of == NULL)
        return column / p->run;
    memcpy(&group, p->group_of + column * sizeof group, sizeof group);
    return (uint64_t)group;
}

/* Scales lie turned where q does. */
static bool is_turned(const fl_packed_matrix *p) {
    return p->layout == FL_PACKED_STEPS || p->layout == FL_PACKED_AWQ;
}

static void read_scale(const fl_packed_matrix *p, uint64_t row, uint64_t group,
                       fl_packed_part *out) {
    uint64_t at =
        is_turned(p) ? group * p->rows + row : (p->one_scale ? 0 : row) * p->groups + group;
    if (p->scale_dtype == FL_DTYPE_F32) {
        memcpy(&out->scale, p->scales + at * sizeof out->scale, sizeof out->scale);
        return;
    }
    memcpy(&out->scale_bits, p->scales + at * sizeof out->scale_bits, sizeof out->scale_bits);
    out->scale = p->scale_dtype == FL_DTYPE_F16 ? fl_half_to_f32(out->scale_bits)
                                                : fl_bfloat16_to_f32(out->scale_bits);
}

/* Where there are none, the middle of what integers without a sign can be. */
static int read_zero(const fl_packed_matrix *p, uint64_t row, uint64_t group) {
    assert(row < p->rows && group < p->groups);
    const uint64_t per = 32 / p->bits, in = row % per;
    const bool     is_signed = p->layout == FL_PACKED_BYTES || p->layout == FL_PACKED_FLOAT8;
    if (p->zeros == NULL)
        return is_signed ? 0 : 1 << (p->bits - 1);
    if (is_signed)
        return (signed char)p->zeros[(p->one_scale ? 0 : row) * p->groups + group];
    if (p->layout == FL_PACKED_ROWS)
        return (int)cut(p, word_at(p->zeros, row / per * p->groups + group), in);
    return (int)cut(p, word_at(p->zeros, (group * p->rows + row) / per) + p->zeros_less,
                    p->layout == FL_PACKED_AWQ ? awq_nibble[in] : in);
}

/* `count` integers from place `place` of a word on, the next words `stride` apart. */
static void read_words(const fl_packed_matrix *p, uint64_t at, uint64_t stride, uint64_t place,
                       uint64_t count, int16_t *q) {
    const uint64_t per = 32 / p->bits;
    for (uint64_t i = 0; i < count; place = 0, at += stride) {
        const uint32_t word = word_at(p->q, at);
        for (; place < per && i < count; place++)
            q[i++] = (int16_t)cut(p, word, place);
    }
}

static void read_integers(const fl_packed_matrix *p, uint64_t row, uint64_t column, uint64_t count,
                          int16_t *q) {
    const uint64_t per = 32 / p->bits, words = (p->columns + per - 1) / per;
    switch (p->layout) {
    case FL_PACKED_BYTES:
    case FL_PACKED_FLOAT8:
        for (uint64_t i = 0; i < count; i++)
            q[i] = (signed char)p->q[row * p->columns + column + i];
        break;
    case FL_PACKED_ROWS:
        read_words(p, row * words + column / per, 1, column % per, count, q);
        break;
    case FL_PACKED_STEPS:
        read_words(p, column / per * p->rows + row, p->rows, column % per, count, q);
        break;
    case FL_PACKED_AWQ:
        for (uint64_t i = 0; i < count; i++)
            q[i] = (int16_t)cut(p, word_at(p->q, ((column + i) * p->rows + row) / per),
                                awq_nibble[row % per]);
        break;
    }
}

uint64_t fl_packed_read(const fl_tensor *tensor, uint64_t row, uint64_t column, uint64_t most,
                        fl_packed_part *out) {
    const fl_packed_matrix *p     = tensor->packed;
    const uint64_t          group = group_at(p, column), end = p->columns - column;
    uint64_t                count = 1;
    row += tensor->packed_row;
    most = most < end ? most : end;
    most = most < FL_PACKED_RUN ? most : FL_PACKED_RUN;
    if (p->group_of == NULL)
        count = most < p->run - column % p->run ? most : p->run - column % p->run;
    else
        while (count < most && group_at(p, column + count) == group)
            count++;
    read_scale(p, row, group, out);
    out->zero = read_zero(p, row, group);
    read_integers(p, row, column, count, out->q);
    return count;
}

/* 4 bits of exponent with bias 7 and 3 of mantissa; no infinity, and NaN alone at the end. */
static float float8(unsigned byte) {
    const uint32_t size = byte & 0x7FU, bits = (size << 20) + ((127U - 7U) << 23);
    float          value = (float)size * 0x1p-9f;
    if (size >= 8)
        memcpy(&value, &bits, sizeof value);
    if (size == 0x7F)
        value = NAN;
    return byte & 0x80U ? -value : value;
}

static float rounded(fl_dtype dtype, float value) {
    if (dtype == FL_DTYPE_F32)
        return value;
    if (dtype == FL_DTYPE_F16)
        return fl_half_to_f32(fl_half_of(value));
    return fl_bfloat16_to_f32(fl_bfloat16_of(value));
}

static float value_of(const fl_packed_matrix *p, const fl_packed_part *part, int q) {
    float exact =
        p->layout == FL_PACKED_FLOAT8 ? float8((unsigned char)q) : (float)(q - part->zero);
    return rounded(p->scale_dtype, exact * part->scale);
}

void fl_packed_to_f32(const fl_tensor *tensor, uint64_t first, uint64_t count, float *out) {
    assert(tensor->packed && out);
    const fl_packed_matrix *p = tensor->packed;
    fl_packed_part          part;
    float                   value[16]; /* of the integers of 4 bits, so that each is rounded once */
    for (uint64_t done = 0, n; done < count; done += n) {
        n = fl_packed_read(tensor, (first + done) / p->columns, (first + done) % p->columns,
                           count - done, &part);
        for (int q = 0; p->bits == 4 && q < 16; q++)
            value[q] = value_of(p, &part, q);
        for (uint64_t i = 0; i < n; i++)
            out[done + i] = p->bits == 4 ? value[part.q[i]] : value_of(p, &part, part.q[i]);
    }
}

/* Scales of 16 bits, each with its integers side by side. Of what is float8, or has them scattered, the 16 bits. */
fl_groups fl_packed_groups(const fl_packed_matrix *p) {
    const bool half = p->scale_dtype == FL_DTYPE_F16;
    uint64_t   run  = 128;
    if (p->scale_dtype == FL_DTYPE_F32)
        return (fl_groups){0};
    while (run > 16 && p->groups > 1 && p->run % run != 0)
        run /= 2;
    if (p->layout == FL_PACKED_FLOAT8 || p->group_of != NULL ||
        (p->groups > 1 && p->run % run != 0))
        return (fl_groups){.bits = 16, .half = half};
    return (fl_groups){.bits    = (uint8_t)p->bits,
                       .run     = (uint8_t)run,
                       .rounded = true,
                       .zero    = p->zeros != NULL,
                       .half    = half};
}

uint64_t fl_packed_checksum(const fl_packed_matrix *p) {
    const uint64_t rows = p->one_scale ? 1 : p->rows, bits = p->bits * p->groups;
    const uint64_t width = p->scale_dtype == FL_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    const bool     by_rows =
        p->layout == FL_PACKED_ROWS; /* each column of zeros ends in a whole word */
    const uint64_t facts[] = {
        p->layout,
        p->bits,
        p->rows,
        p->columns,
        p->groups,
        p->run,
        p->scale_dtype,
        p->one_scale,
        p->zeros_less,
        fl_checksum(p->scales, rows * p->groups * width),
        p->zeros == NULL ? 0
        : by_rows        ? fl_checksum(p->zeros, (p->rows * p->bits + 31) / 32 * 4 * p->groups)
                         : fl_checksum(p->zeros, rows * bits / 8),
        p->group_of == NULL ? 0 : fl_checksum(p->group_of, p->columns * sizeof(int32_t))};
    return fl_checksum(facts, sizeof facts);
}

/* ---- Gathering ------------------------------------------------------------------------------- */

enum { NAME_BYTES = 256 };

/* What config.json says, and the matrix in hand. */
typedef struct gathering {
    fl_model       *model;
    fl_json_reader *config;
    char            base[NAME_BYTES]; /* "layers.0.mlp.up_proj." */
    bool            asymmetric;       /* all of compressed-tensors' groups are */
    bool            first_format;     /* of GPTQ */
    bool            awq;
} gathering;

static int wrong(gathering *g, const char *tensor, const char *why) {
    assert(why);
    return fl_fail(g->config->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: tensor %s%s %s.",
                   g->model->own->base, g->base, tensor, why);
}

static const fl_tensor *part(const gathering *g, const char *name) {
    char full[2 * NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", g->base, name);
    return fl_safetensors_find(g->model->own->weights, full);
}

/* A tensor of the matrix with that shape; columns 0: of one dimension. Its data is checked by the reader of the file
 * to be as large. */
static int take(gathering *g, const char *name, fl_dtype dtype, uint64_t rows, uint64_t columns,
                const unsigned char **out) {
    const fl_tensor *t = part(g, name);
    if (t == NULL)
        return wrong(g, name, "is missing");
    if (t->dtype != dtype || t->rank != (columns > 0 ? 2 : 1) || t->shape[0] != rows ||
        (columns > 0 && t->shape[1] != columns))
        return wrong(g, name, "has another type or shape than the weights that it belongs to");
    *out = t->data;
    return 0;
}

/* Column -> group: gone where it says what is so without. */
static int take_order(gathering *g, const char *name, fl_packed_matrix *p) {
    bool plain = p->columns % p->groups == 0;
    p->run     = plain ? p->columns / p->groups : 0;
    if (part(g, name) == NULL)
        return plain ? 0 : wrong(g, name, "is missing, and the groups are not of equal size");
    FL_TRY(take(g, name, FL_DTYPE_I32, p->columns, 0, &p->group_of));
    for (uint64_t k = 0; k < p->columns; k++) {
        uint64_t group = group_at(p, k);
        if (group >= p->groups)
            return wrong(g, name, "names a missing group");
        plain = plain && group == k / p->run;
    }
    if (plain)
        p->group_of = NULL;
    return 0;
}

static bool is_scale(const fl_tensor *t) {
    return t != NULL &&
           (t->dtype == FL_DTYPE_F32 || t->dtype == FL_DTYPE_F16 || t->dtype == FL_DTYPE_BF16);
}

/* [rows, groups], [rows], or one number. */
static int take_scales(gathering *g, fl_packed_matrix *p) {
    const fl_tensor *t = part(g, "weight_scale");
    if (!is_scale(t) || t->rank > 2 || t->bytes == 0)
        return wrong(g, "weight_scale", "is missing, or not a matrix of F32, F16 or BF16");
    p->groups      = t->rank == 2 ? t->shape[1] : 1;
    p->one_scale   = t->rank == 0 || (t->shape[0] == 1 && p->groups == 1);
    p->scales      = t->data;
    p->scale_dtype = t->dtype;
    if ((!p->one_scale && t->shape[0] != p->rows) || p->groups > p->columns)
        return wrong(g, "weight_scale", "has another shape than the weights that it belongs to");
    return take_order(g, "weight_g_idx", p);
}

/* The sizes of what is packed stand in a tensor. */
static int take_shape(gathering *g, fl_packed_matrix *p) {
    const fl_tensor *t       = part(g, "weight_shape");
    int64_t          size[2] = {0};
    int32_t          small[2];
    if (t != NULL && t->rank == 1 && t->shape[0] == 2 && t->dtype == FL_DTYPE_I64) {
        memcpy(size, t->data, sizeof size);
    } else if (t != NULL && t->rank == 1 && t->shape[0] == 2 && t->dtype == FL_DTYPE_I32) {
        memcpy(small, t->data, sizeof small);
        size[0] = small[0], size[1] = small[1];
    }
    if (size[0] <= 0 || size[1] <= 0 || size[0] > INT32_MAX || size[1] > INT32_MAX)
        return wrong(g, "weight_shape", "is missing, or not two sizes");
    p->rows    = (uint64_t)size[0];
    p->columns = (uint64_t)size[1];
    return 0;
}

static int find_bits(gathering *g, const char *name, uint64_t words, fl_packed_matrix *p) {
    for (p->bits = 4; p->bits <= 8; p->bits += 4)
        if ((p->columns + 32 / p->bits - 1) / (32 / p->bits) == words)
            return 0;
    return wrong(g, name, "is packed in other than 4 or 8 bits, which fletch does not read");
}

static int gather_words(gathering *g, const fl_tensor *t, fl_packed_matrix *p) {
    p->layout = FL_PACKED_ROWS;
    FL_TRY(take_shape(g, p));
    if (t->dtype != FL_DTYPE_I32 || t->rank != 2 || t->shape[0] != p->rows)
        return wrong(g, "weight_packed", "has another type or shape than weight_shape says");
    FL_TRY(find_bits(g, "weight_packed", t->shape[1], p));
    FL_TRY(take_scales(g, p));
    const uint64_t per = 32 / p->bits;
    if (part(g, "weight_zero_point") != NULL || g->asymmetric)
        FL_TRY(take(g, "weight_zero_point", FL_DTYPE_I32, (p->rows + per - 1) / per, p->groups,
                    &p->zeros));
    return 0;
}

static int gather_bytes(gathering *g, const fl_tensor *t, fl_packed_matrix *p) {
    p->layout = t->dtype == FL_DTYPE_I8 ? FL_PACKED_BYTES : FL_PACKED_FLOAT8;
    p->bits   = 8;
    if (t->rank != 2 || t->shape[1] == 0)
        return wrong(g, "weight", "is not a matrix");
    p->rows    = t->shape[0];
    p->columns = t->shape[1];
    FL_TRY(take_scales(g, p));
    const fl_tensor *zero = part(g, "weight_zero_point");
    if (zero == NULL)
        return g->asymmetric ? wrong(g, "weight_zero_point", "is missing") : 0;
    if (p->layout == FL_PACKED_FLOAT8 || zero->dtype != FL_DTYPE_I8 ||
        zero->bytes != (p->one_scale ? 1 : p->rows) * p->groups)
        return wrong(g, "weight_zero_point", "has another type or shape than weight_scale");
    p->zeros = zero->data;
    return 0;
}

/* Zero points in the middle, which most have, are as none. */
static bool is_centred(const fl_packed_matrix *p) {
    for (uint64_t group = 0; group < p->groups; group++)
        for (uint64_t row = 0; row < p->rows; row++)
            if (read_zero(p, row, group) != 1 << (p->bits - 1))
                return false;
    return true;
}

static int gather_columns(gathering *g, const fl_tensor *t, fl_packed_matrix *p) {
    const fl_tensor *scales = part(g, "scales"), *order = part(g, "g_idx");
    if (t->dtype != FL_DTYPE_I32 || t->rank != 2 || t->bytes == 0)
        return wrong(g, "qweight", "is not a matrix of 32-bit words");
    if (!is_scale(scales) || scales->rank != 2 || scales->bytes == 0)
        return wrong(g, "scales", "is missing, or not a matrix of F32, F16 or BF16");
    p->layout      = g->awq ? FL_PACKED_AWQ : FL_PACKED_STEPS;
    p->groups      = scales->shape[0];
    p->rows        = scales->shape[1];
    p->scales      = scales->data;
    p->scale_dtype = scales->dtype;
    p->bits        = 4;
    if (g->awq) {
        p->columns = t->shape[0];
    } else {
        p->columns = order != NULL && order->rank == 1
                         ? order->shape[0]
                         : t->shape[0] * 32 / (uint64_t)fl_json_int(g->config, "bits", 4, 1, 8);
        FL_TRY(find_bits(g, "qweight", t->shape[0], p));
    }
    const uint64_t per = 32 / p->bits;
    p->zeros_less      = !g->first_format ? 0 : p->bits == 4 ? 0x11111111 : 0x01010101;
    if (t->shape[1] != (g->awq ? p->rows / per : p->rows) || p->rows % per != 0 ||
        p->groups > p->columns || (!g->awq && p->columns % per != 0))
        return wrong(g, "qweight", "has another shape than its scales");
    FL_TRY(take_order(g, "g_idx", p));
    FL_TRY(take(g, "qzeros", FL_DTYPE_I32, p->groups, p->rows / per, &p->zeros));
    if (is_centred(p))
        p->zeros = NULL;
    return 0;
}

/* The matrix that `name` is the integers of. */
static int gather_one(gathering *g, const char *name, size_t base,
                      int (*gather)(gathering *, const fl_tensor *, fl_packed_matrix *)) {
    const fl_tensor *t = fl_safetensors_find(g->model->own->weights, name);
    const char      *full;
    if (base >= NAME_BYTES)
        return 0; /* nobody asks for it */
    fl_packed_matrix *p = fl_alloc_zero(1, sizeof *p);
    if (p == NULL)
        return fl_fail_nomem(g->config->error, sizeof *p, "a quantised matrix");
    p->next               = g->model->own->packed;
    g->model->own->packed = p;
    snprintf(g->base, sizeof g->base, "%.*s", (int)base, name);
    FL_TRY(gather(g, t, p));
    p->q             = t->data;
    fl_tensor matrix = {.data   = t->data,
                        .bytes  = t->bytes,
                        .dtype  = FL_DTYPE_PACKED,
                        .rank   = 2,
                        .shape  = {p->rows, p->columns},
                        .map    = t->map,
                        .packed = p};
    FL_TRY(fl_model_keep(g->model, &full, "a name", g->config->error, "%sweight", g->base));
    return fl_safetensors_put(g->model->own->weights, (char *)(uintptr_t)full, &matrix,
                              g->config->error);
}

static bool ends(const char *name, const char *ending, size_t *base) {
    size_t size = strlen(name), last = strlen(ending);
    *base = size >= last ? size - last : 0;
    return size > last && name[*base - 1] == '.' && strcmp(name + *base, ending) == 0;
}

/* Bytes under the matrix's own name, with scales. */
static bool is_bytes(const gathering *g, const char *name, size_t base) {
    const fl_tensor *t = fl_safetensors_find(g->model->own->weights, name);
    char             scale[2 * NAME_BYTES];
    snprintf(scale, sizeof scale, "%.*sweight_scale", (int)base, name);
    return (t->dtype == FL_DTYPE_I8 || t->dtype == FL_DTYPE_F8) && base < NAME_BYTES &&
           fl_safetensors_find(g->model->own->weights, scale) != NULL;
}

static int gather_all(gathering *g, bool columns) {
    const fl_safetensors *file  = g->model->own->weights;
    const size_t          count = fl_safetensors_count(file); /* of those in the files */
    for (size_t i = 0, base; i < count; i++) {
        const char *name = fl_safetensors_name(file, i);
        if (columns && ends(name, "qweight", &base))
            FL_TRY(gather_one(g, name, base, gather_columns));
        else if (!columns && ends(name, "weight_packed", &base))
            FL_TRY(gather_one(g, name, base, gather_words));
        else if (!columns && ends(name, "weight", &base) && is_bytes(g, name, base))
            FL_TRY(gather_one(g, name, base, gather_bytes));
    }
    if (g->model->own->packed == NULL)
        return fl_fail(g->config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: quantization_config names a method, but no tensor is quantised by it.",
                       g->config->source);
    return 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* A word of `list`, which has '|' around each. */
static bool is_among(const char *word, const char *list) {
    char marked[64];
    snprintf(marked, sizeof marked, "|%s|", word);
    return strstr(list, marked) != NULL;
}

static void check_word(fl_json_reader *how, const char *key, const char *fallback,
                       const char *list) {
    const char *word = fl_json_string(how, key, fallback);
    if (!is_among(word, list))
        fl_family_refuse(how, key, word);
}

/* Scales of blocks or of scales, and rotations of activations, make other products. */
static void check_compressed(gathering *g) {
    fl_json_reader *how    = g->config;
    fl_json        *groups = fl_json_object(how, "config_groups");
    fl_json        *turns  = fl_json_get(how->object, "transform_config");
    fl_json_reader  sparse = fl_json_below(how, "sparsity_config");
    check_word(how, "format", "absent",
               "|pack-quantized|int-quantized|naive-quantized|float-quantized|");
    check_word(how, "quantization_status", "compressed", "|compressed|");
    if (sparse.object != NULL)
        check_word(&sparse, "format", "dense", "|dense|");
    fl_json_settle(how, &sparse);
    if (fl_json_count(turns) > 0 && fl_json_count(fl_json_get(turns, "config_groups")) > 0)
        fl_family_refuse(how, "transform_config", "set");
    g->asymmetric = fl_json_count(groups) > 0;
    FL_JSON_EACH(groups, name, group) {
        fl_json_reader inner   = fl_json_inside(how, group);
        fl_json_reader weights = fl_json_below(&inner, "weights");
        if (weights.object != NULL) {
            check_word(&weights, "type", "int", "|int|float|");
            check_word(&weights, "strategy", "tensor", "|tensor|channel|group|");
            g->asymmetric = g->asymmetric && !fl_json_bool(&weights, "symmetric", true);
        }
        fl_json_settle(&inner, &weights);
        fl_json_settle(how, &inner);
    }
}

static void check_gptq(gathering *g) {
    const char *format =
        fl_json_string(g->config, "checkpoint_format", fl_json_string(g->config, "format", "gptq"));
    if (!is_among(format, "|gptq|gptq_v2|"))
        fl_family_refuse(g->config, "checkpoint_format", format);
    check_word(g->config, "pack_dtype", "int32", "|int32|");
    g->first_format = strcmp(format, "gptq") == 0;
}

static void check_awq(gathering *g) {
    check_word(g->config, "version", fl_json_string(g->config, "format", "gemm"), "|gemm|GEMM|");
    g->awq = true;
}

int fl_packed_gather(fl_model *model, fl_json_reader *config) {
    static const struct {
        const char *name;
        void (*check)(gathering *g);
        bool columns;
    } methods[]        = {{"compressed-tensors", check_compressed, false},
                          {"gptq", check_gptq, true},
                          {"awq", check_awq, true}};
    fl_json_reader how = fl_json_below(config, "quantization_config");
    gathering      g   = {.model = model, .config = &how};
    bool           old =
        fl_json_bool(&how, "load_in_8bit", false) || fl_json_bool(&how, "load_in_4bit", false);
    const char *name =
        fl_json_string(&how, "quant_method", old ? "bitsandbytes" : "no known method");
    size_t i = 0, count = sizeof methods / sizeof *methods;
    while (i < count && strcmp(methods[i].name, name) != 0)
        i++;
    if (how.status == 0 && how.object != NULL && i == count)
        how.status = fl_fail(
            how.error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%s: quantization_config: the weights are quantised by %.60s, which fletch does "
            "not read. Take the model that they were made from (its card names it as "
            "base_model), in F32, F16 or BF16, and ask for --precision bf16 or int8.",
            how.source, name);
    if (how.status == 0 && how.object != NULL) {
        methods[i].check(&g);
        if (how.status == 0 && model->own->weights != NULL)
            how.status = gather_all(&g, methods[i].columns);
    }
    fl_json_settle(config, &how);
    return config->status;
}

void fl_packed_free(fl_model *model) {
    for (fl_packed_matrix *p = model->own->packed, *next; p != NULL; p = next) {
        next = p->next;
        fl_free(p);
    }
    model->own->packed = NULL;
}
