/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - fl-cuda-kernels: every CUDA kernel against plain loops in double precision.
 *
 *   fl-cuda-kernels test [WORD]                on the simulated device; WORD: embed, pool …
 *   fl-cuda-kernels test [WORD] --device IMAGE on the first GPU, kernels from the fatbin IMAGE
 *                                              than 129 tokens, three blocks of keys: for races
 *   fl-cuda-kernels perf --device IMAGE        how long each takes: kernels_perf.c
 *
 * Role    The proof that the kernels do what kernels.h says, without a GPU and with one: the same
 *         cases, the same bounds. Widths are odd multiples of 8 up to beyond what stays in
 *         registers, texts are of 1 to 512 tokens around every border, grids are larger than the
 *         batch, and what stands behind the batch is NaN.
 * Bounds  Sums in float: a few units of float times the largest term. 16-bit results: their own
 *         rounding, and for attention that of the probabilities.
 * Proof   Each kernel was broken once to see its case fail. */
#include "kernels.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engines/cuda/convert.h"
#include "model/encoder.h"

static const uint32_t widths[] = {8, 16, 40, 256, 264, 384, 768, 1024, 1032, 2056};
enum { WIDTHS = sizeof widths / sizeof *widths };

static char     case_name[160];
static unsigned cases, checks, failures, failures_of_case;

void begin(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(case_name, sizeof case_name, format, list);
    va_end(list);
    cases++;
    failures_of_case = 0;
}

void expect(bool truth, const char *format, ...) {
    checks++;
    if (truth)
        return;
    failures++;
    if (failures_of_case++ >= 3)
        return;
    va_list list;
    va_start(list, format);
    printf("FAILED %s: ", case_name);
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

void expect_near(double got, double want, double allowed, const char *what, size_t row,
                 size_t column) {
    expect(fabs(got - want) <= allowed, "%s[%zu][%zu] is %.9g, not %.9g (allowed: %.2g)", what, row,
           column, got, want, allowed);
}

void expect_untouched(const tensor *t, const batch *b, size_t width) {
    for (size_t i = b->tokens * width; i < b->rows * width; i++)
        expect(isnan(t->v[i]), "row %zu behind the batch was written", i / width);
}

static uint32_t row_blocks(const batch *b) {
    return (b->rows + FL_CUDA_ROW_ROWS - 1) / FL_CUDA_ROW_ROWS;
}

static bool launch_rows(const char *kernel, type t, const batch *b, uint32_t grid_y,
                        const void *param, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "%s_%s", kernel, type_name[t]);
    return launch(name, row_blocks(b), grid_y, FL_CUDA_ROW_THREADS, param, size);
}

/* LayerNorm or RMS norm of `v` compared with a row of the result. */
void expect_norm(const double *v, const tensor *w, const tensor *bias, double eps, size_t width,
                 bool rms, const tensor *out, size_t row) {
    double mean = 0.0, variance = 0.0, top = 0.0;
    for (size_t i = 0; i < width; i++) {
        mean += rms ? 0.0 : v[i] / (double)width;
        top = fmax(top, fabs(v[i]));
    }
    for (size_t i = 0; i < width; i++)
        variance += (v[i] - mean) * (v[i] - mean) / (double)width;
    double factor = 1.0 / sqrt(variance + eps);
    for (size_t i = 0; i < width; i++) {
        double want    = (v[i] - mean) * factor * w->v[i] + bias->v[i];
        double allowed = 4e-7 * (fabs(want) + top * factor * fabs(w->v[i]) + 1.0) +
                         type_unit[out->type] * fabs(want) * 1.01;
        expect_near(out->v[row * width + i], want, allowed, "out", row, i);
    }
}

/* 8-bit floats beside a norm's float rows: the same numbers times `factor`. */
static void expect_e4m3(const fl_cuda_e4m3 *e4m3, const batch *b, size_t width, const tensor *out) {
    uint8_t *codes = scratch(b->rows * width);
    download(codes, e4m3->rows, b->rows * width);
    for (size_t i = 0; i < b->tokens * width; i++) {
        double got  = e4m3_value(codes[i]);
        double want = e4m3_rounded((double)((float)out->v[i] * e4m3->factor));
        expect(got == want || (isnan(got) && isnan(want)), "%.9g * %g became %g in e4m3, not %g",
               out->v[i], (double)e4m3->factor, got, want);
    }
}

static fl_cuda_e4m3 wanted_e4m3(type t, const batch *b, size_t width, float factor) {
    bool wanted = t == F32 && device_e4m3();
    return (fl_cuda_e4m3){wanted ? upload(NULL, b->rows * width) : NULL, factor};
}

/* Embedding. */

typedef struct embedding {
    tensor          word, position, type_row, w, b;
    uint32_t        vocab, offset;
    int32_t         pad;
    bool            bare;    /* no norm */
    const uint32_t *segment; /* [texts], or NULL */
} embedding;

static const uint32_t *upload_segments(const embedding *e, const batch *b) {
    return e->segment != NULL ? upload(e->segment, b->texts * sizeof *e->segment) : NULL;
}

static void run_embed(const embedding *e, type t, size_t width, const batch *b, const int32_t *ids,
                      tensor *out) {
    uint32_t     *places = scratch(b->rows * sizeof *places);
    fl_cuda_e4m3  none   = {0};
    fl_cuda_embed p      = {.meta            = b->meta_device,
                            .ids             = upload(ids, b->tokens * sizeof *ids),
                            .cu              = b->cu_device,
                            .word            = e->word.device,
                            .position        = e->position.device,
                            .type            = e->type_row.device,
                            .segment         = upload_segments(e, b),
                            .norm_w          = e->bare ? NULL : floats(&e->w),
                            .norm_b          = e->bare ? NULL : floats(&e->b),
                            .places          = upload(NULL, b->rows * sizeof *places),
                            .e4m3            = e->bare ? none : wanted_e4m3(t, b, width, 100.0f),
                            .hidden          = (uint32_t)width,
                            .position_offset = e->offset,
                            .pad_token       = e->pad,
                            .eps             = 1e-12f};
    *out                 = poison(t, b->rows * width);
    p.x                  = out->device;
    launch_rows("fl_embed", t, b, 1, &p, sizeof p);
    fetch(out);
    if (p.e4m3.rows != NULL)
        expect_e4m3(&p.e4m3, b, width, out);
    download(places, p.places, b->rows * sizeof *places);
    for (uint32_t text = 0; text < b->texts; text++) {
        for (uint32_t token = b->cu[text]; token < b->cu[text + 1]; token++) {
            expect(places[token] == token - b->cu[text], "token %u has place %u", token,
                   places[token]);
        }
    }
}

static void expect_embedded(const embedding *e, size_t width, const batch *b, const int32_t *ids,
                            const tensor *out) {
    double *v = scratch(width * sizeof *v);
    for (uint32_t text = 0; text < b->texts; text++) {
        uint32_t counted = 0;
        for (uint32_t token = b->cu[text]; token < b->cu[text + 1]; token++) {
            bool     pad    = e->pad >= 0 && ids[token] == e->pad;
            uint32_t row    = pad ? (uint32_t)e->pad : e->offset + counted++;
            size_t   second = e->segment != NULL && token - b->cu[text] >= e->segment[text];
            for (size_t i = 0; i < width; i++) {
                v[i] = e->word.v[(size_t)ids[token] * width + i];
                v[i] += e->position.v ? e->position.v[row * width + i] : 0.0;
                v[i] += e->type_row.v ? e->type_row.v[second * width + i] : 0.0;
            }
            if (!e->bare)
                expect_norm(v, &e->w, &e->b, 1e-12, width, false, out, token);
            for (size_t i = 0; e->bare && i < width; i++) {
                expect_near(out->v[token * width + i], v[i],
                            type_unit[out->type] * fabs(v[i]) * 1.01 + 1e-6, "row", token, i);
            }
        }
    }
    expect_untouched(out, b, width);
}

static void embed_case(type t, size_t width, bool rule, bool tables) {
    begin("fl_embed_%s width %zu%s%s", type_name[t], width, rule ? ", padding row" : "",
          tables ? "" : ", no positions");
    embedding e = {.vocab = 50, .offset = rule ? 2 : 0, .pad = rule ? 1 : -1};
    batch     b = mixed_batch(width <= 64 ? 129 : 17), back = reversed(&b);
    e.word = numbers(t, e.vocab * width, 1.0);
    e.w    = numbers(F32, width, 2.0);
    e.b    = numbers(F32, width, 0.5);
    if (tables) {
        e.position = numbers(t, 140 * width, 0.5);
        e.type_row = numbers(t, width, 0.2);
    }
    int32_t *ids = scratch(b.tokens * sizeof *ids), *ids_back = scratch(b.tokens * sizeof *ids);
    for (uint32_t i = 0; i < b.tokens; i++)
        ids[i] = below(6) == 0 ? 1 : (int32_t)below(e.vocab);
    for (uint32_t i = 0; i < b.texts; i++) {
        memcpy(ids_back + back.cu[b.texts - 1 - i], ids + b.cu[i],
               (b.cu[i + 1] - b.cu[i]) * sizeof *ids);
    }
    tensor out, other;
    run_embed(&e, t, width, &b, ids, &out);
    expect_embedded(&e, width, &b, ids, &out);
    run_embed(&e, t, width, &back, ids_back, &other);
    expect_same_rows(&out, &b, &other, &back, width, "out");
    release_all();
}

/* Rows as they are, and pairs: the first token of the second text is somewhere, or nowhere. */
static void bare_case(type t, size_t width) {
    begin("fl_embed_%s width %zu, pairs, no norm", type_name[t], width);
    batch     b       = mixed_batch(33);
    uint32_t *segment = scratch(b.texts * sizeof *segment);
    embedding e       = {.vocab = 50, .pad = -1, .bare = true, .segment = segment};
    for (uint32_t i = 0; i < b.texts; i++)
        segment[i] = i % 3 == 0 ? UINT32_MAX : below(b.cu[i + 1] - b.cu[i] + 1);
    e.word       = numbers(t, e.vocab * width, 1.0);
    e.type_row   = numbers(t, 2 * width, 0.5);
    int32_t *ids = scratch(b.tokens * sizeof *ids);
    for (uint32_t i = 0; i < b.tokens; i++)
        ids[i] = (int32_t)below(e.vocab);
    tensor out;
    run_embed(&e, t, width, &b, ids, &out);
    expect_embedded(&e, width, &b, ids, &out);
    release_all();
}

/* The search of cu by 32 probes, with texts by the thousand. */
static void many_texts_case(uint32_t texts) {
    begin("fl_embed_f32, %u texts", texts);
    uint32_t *lengths = scratch(texts * sizeof *lengths);
    for (uint32_t i = 0; i < texts; i++)
        lengths[i] = 1 + below(2);
    batch     b  = batch_of(lengths, texts, 3);
    embedding e  = {.vocab = 4, .pad = -1};
    e.word       = numbers(F32, 4 * 8, 1.0);
    e.position   = numbers(F32, 2 * 8, 1.0); /* another text's place is another row */
    e.w          = numbers(F32, 8, 1.0);
    e.b          = numbers(F32, 8, 1.0);
    int32_t *ids = scratch(b.tokens * sizeof *ids);
    tensor   out;
    run_embed(&e, F32, 8, &b, ids, &out);
    expect_embedded(&e, 8, &b, ids, &out);
    release_all();
}

static void test_embed(void) {
    for (type t = 0; t < types_tested; t++) {
        for (int i = 0; i < WIDTHS; i++)
            embed_case(t, widths[i], i % 2 == 1, true);
        embed_case(t, 40, true, false);
        embed_case(t, 64, false, true);
        bare_case(t, 40);
        bare_case(t, 1032);
    }
    many_texts_case(1);
    many_texts_case(33);
    many_texts_case(1025);
    many_texts_case(2000);
}

/* Residual and norm. */

static void residual_case(type t, size_t width, bool adds, bool in_place, bool rms) {
    begin("fl_residual_norm_%s width %zu%s%s%s", type_name[t], width, adds ? ", adds" : "",
          in_place ? ", in place" : "", rms ? ", RMS" : "");
    batch  b = mixed_batch(17);
    tensor x = activations(t, &b, width, 3.0), y = activations(t, &b, width, 1.0);
    tensor w = numbers(F32, width, 2.0), norm_b = numbers(F32, width, 1.0);
    /* In place: over x alone, or over y with the sum over x, as a pre-norm layer has it. */
    tensor out              = !in_place ? poison(t, b.rows * width) : adds ? y : x;
    tensor sum              = !in_place ? poison(t, b.rows * width) : x;
    bool   sums             = adds;
    out.v                   = scratch(out.count * sizeof(double));
    sum.v                   = scratch(sum.count * sizeof(double));
    fl_cuda_residual_norm p = {.meta   = b.meta_device,
                               .x      = x.device,
                               .y      = adds ? y.device : NULL,
                               .sum    = sums ? sum.device : NULL,
                               .norm_w = floats(&w),
                               .norm_b = floats(&norm_b),
                               .out    = out.device,
                               .e4m3   = wanted_e4m3(t, &b, width, 0.03f),
                               .hidden = (uint32_t)width,
                               .rms    = rms,
                               .eps    = 1e-5f};
    launch_rows("fl_residual_norm", t, &b, 1, &p, sizeof p);
    fetch(&out);
    fetch(&sum);
    if (p.e4m3.rows != NULL)
        expect_e4m3(&p.e4m3, &b, width, &out);
    double *v = scratch(width * sizeof *v);
    for (uint32_t row = 0; row < b.tokens; row++) {
        for (size_t i = 0; i < width; i++) {
            v[i] = x.v[row * width + i] + (adds ? y.v[row * width + i] : 0.0);
            if (sums) {
                expect_near(sum.v[row * width + i], v[i], type_unit[t] * fabs(v[i]) * 1.01 + 1e-30,
                            "sum", row, i);
            }
        }
        expect_norm(v, &w, &norm_b, 1e-5, width, rms, &out, row);
    }
    expect_untouched(&out, &b, width);
    release_all();
}

/* The same numbers as the host rounds weights to them, and with a scale. */
static void expect_host_e4m3(const tensor *t) {
    float   *in    = scratch(t->count * sizeof *in);
    uint8_t *codes = scratch(t->count);
    for (size_t i = 0; i < t->count; i++)
        in[i] = (float)t->v[i];
    for (float scale = 1.0f; scale < 9.0f; scale *= 4.0f) {
        fl_cuda_to_e4m3(in, t->count, scale, codes);
        for (size_t i = 0; i < t->count; i++) {
            double got = e4m3_value(codes[i]), want = e4m3_rounded(t->v[i] / (double)scale);
            expect(got == want || (isnan(got) && isnan(want)), "%.9g / %g became %g, not %g",
                   t->v[i], (double)scale, got, want);
        }
    }
}

/* A norm whose weights are 0 gives its bias: every e4m3 number, what lies between two, and beyond. */
static void e4m3_case(size_t width) {
    begin("e4m3, width %zu", width);
    uint32_t lengths[] = {3};
    batch    b         = batch_of(lengths, 1, 6);
    tensor   x = activations(F32, &b, width, 3.0), zero = constants(F32, width, 0.0);
    tensor   bias = numbers(F32, width, 500.0), out = poison(F32, b.rows * width);
    for (size_t i = 0; i < width; i++) {
        double code = e4m3_value((uint8_t)i), above = e4m3_value((uint8_t)(i + 1));
        bias.v[i] = i < 256 ? code : i < 512 ? (code + above) / 2.0 : bias.v[i];
        bias.v[i] = i >= 512 && i < 768 ? (double)nextafterf((float)(code + above) / 2.0f, 0.0f)
                                        : bias.v[i];
    }
    static const double edges[] = {448.1, 463.9, 464.0, 480.0, -1e30, 1e-30, -0x1p-10, 0x1.8p-10};
    memcpy(bias.v + width - 8, edges, sizeof edges);
    send(&bias);
    fl_cuda_residual_norm p = {.meta   = b.meta_device,
                               .x      = x.device,
                               .norm_w = floats(&zero),
                               .norm_b = floats(&bias),
                               .out    = out.device,
                               .e4m3   = wanted_e4m3(F32, &b, width, 1.0f),
                               .hidden = (uint32_t)width,
                               .eps    = 1e-5f};
    launch_rows("fl_residual_norm", F32, &b, 1, &p, sizeof p);
    fetch(&out);
    expect_e4m3(&p.e4m3, &b, width, &out);
    expect_host_e4m3(&bias);
    release_all();
}

static void test_residual_norm(void) {
    for (size_t width = 1024; width <= 2048 && device_e4m3(); width *= 2)
        e4m3_case(width);
    for (type t = 0; t < types_tested; t++) {
        for (int i = 0; i < WIDTHS; i++) {
            residual_case(t, widths[i], i % 2 == 0, i % 3 == 1, i % 4 >= 2);
            residual_case(t, widths[i], i % 2 == 1, i % 3 == 2, i % 4 < 2);
        }
    }
}

/* Activations. */

double activation_of(int kind, double x) {
    switch (kind) {
    case FL_ACT_GELU_ERF: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case FL_ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case FL_ACT_SILU: return x / (1.0 + exp(-x));
    case FL_ACT_RELU: return x < 0.0 ? 0.0 : x;
    default: return x;
    }
}

static void bias_act_case(type t, size_t width, int kind, uint32_t grid_y) {
    begin("fl_bias_act_%s width %zu, activation %d, grid %u", type_name[t], width, kind, grid_y);
    static const double edges[] = {NAN, 0.0, 1e-30, 40.0, -40.0, 900.0, -900.0, -5.5};
    batch               b       = mixed_batch(17);
    tensor           x = activations(t, &b, width, 6.0), out = x, bias = numbers(F32, width, 1.0);
    bool             with_bias = kind != FL_ACT_SILU;
    fl_cuda_bias_act p         = {b.meta_device, x.device, with_bias ? floats(&bias) : NULL,
                                  (uint32_t)width, kind};
    memcpy(x.v, edges, sizeof edges);
    send(&x);
    out.device = p.x = x.device;
    launch_rows("fl_bias_act", t, &b, grid_y, &p, sizeof p);
    out.v = scratch(out.count * sizeof(double));
    fetch(&out);
    for (size_t i = 0; i < b.tokens * width; i++) {
        double in   = x.v[i] + (with_bias ? bias.v[i % width] : 0.0);
        double want = activation_of(kind, in), unit = t == F32 ? 0.0 : type_unit[t];
        if (isnan(want)) {
            expect(isnan(out.v[i]), "NaN became %g", out.v[i]);
            continue;
        }
        expect_near(out.v[i], want, unit * fabs(want) * 1.01 + 3e-7 * (1.0 + fabs(in)), "x",
                    i / width, i % width);
    }
    expect_untouched(&out, &b, width);
    release_all();
}

static void glu_case(type t, size_t width, int kind, uint32_t grid_y) {
    begin("fl_glu_%s width %zu, activation %d, grid %u", type_name[t], width, kind, grid_y);
    batch       b = mixed_batch(17);
    tensor      x = activations(t, &b, 2 * width, 4.0), out = x;
    tensor      bias      = numbers(F32, 2 * width, 1.0);
    bool        with_bias = grid_y != 2;
    fl_cuda_glu p = {b.meta_device, x.device, with_bias ? floats(&bias) : NULL, (uint32_t)width,
                     kind};
    launch_rows("fl_glu", t, &b, grid_y, &p, sizeof p);
    out.v = scratch(out.count * sizeof(double));
    fetch(&out);
    for (uint32_t row = 0; row < b.tokens; row++) {
        for (size_t i = 0; i < width; i++) {
            size_t at   = row * 2 * width + i;
            double gate = x.v[at] + (with_bias ? bias.v[i] : 0.0);
            double up   = x.v[at + width] + (with_bias ? bias.v[width + i] : 0.0);
            double want = activation_of(kind, gate) * up, unit = t == F32 ? 0.0 : type_unit[t];
            expect_near(out.v[at], want,
                        unit * fabs(want) * 1.01 + 3e-7 * (1.0 + fabs(gate)) * (1.0 + fabs(up)),
                        "x", row, i);
            expect(out.v[at + width] == x.v[at + width], "the other half was written");
        }
    }
    expect_untouched(&out, &b, 2 * width);
    release_all();
}

/* Every number of 16 bits goes through unchanged, and float is rounded to it exactly. */
static void rounding_case(type t) {
    begin("conversions of %s", type_name[t]);
    const size_t width     = 2048;
    uint32_t     lengths[] = {32};
    batch        b         = batch_of(lengths, 1, 0);
    uint16_t    *all = scratch(65536 * sizeof *all), *back = scratch(65536 * sizeof *back);
    for (size_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    tensor x = {t, 65536, scratch(65536 * sizeof(double)), upload(all, 65536 * sizeof *all)};
    fetch(&x);
    fl_cuda_bias_act p = {b.meta_device, x.device, NULL, (uint32_t)width, -1};
    launch_rows("fl_bias_act", t, &b, 2, &p, sizeof p);
    download(back, x.device, 65536 * sizeof *back);
    for (size_t i = 0; i < 65536; i++)
        expect(back[i] == all[i] || isnan(x.v[i]), "%04zx became %04x", i, back[i]);
    fetch(&x);
    for (size_t i = 0; i < 65536; i++) {
        bool nan = t == F16 ? (i & 0x7fff) > 0x7c00 : (i & 0x7fff) > 0x7f80;
        expect(isnan(x.v[i]) == nan, "%04zx became %g", i, x.v[i]);
    }
    tensor bias = {F32, width, scratch(width * sizeof(double)), NULL};
    for (size_t i = 0; i < width; i++) {
        bias.v[i] =
            (double)(float)ldexp(1.0 + (double)below(1 << 14) / 0x1p14, (int)below(50) - 32);
    }
    bias.v[0] = 65519.0;
    bias.v[1] = 65520.0;
    send(&bias);
    tensor zero = constants(t, b.rows * width, 0.0);
    p.x         = zero.device;
    p.bias      = floats(&bias);
    launch_rows("fl_bias_act", t, &b, 1, &p, sizeof p);
    fetch(&zero);
    for (size_t i = 0; i < width; i++) {
        expect(zero.v[i] == rounded(t, bias.v[i]), "%.9g was rounded to %.9g, not %.9g", bias.v[i],
               zero.v[i], rounded(t, bias.v[i]));
    }
    release_all();
}

static void test_bias_act(void) {
    rounding_case(F16);
    rounding_case(BF16);
    for (type t = 0; t < types_tested; t++) {
        for (int kind = -1; kind <= FL_ACT_RELU; kind++) {
            bias_act_case(t, widths[kind + 2], kind, 1);
            bias_act_case(t, 1536, kind, (uint32_t)(kind + 2));
        }
        for (int kind = 0; kind <= FL_ACT_RELU; kind++)
            glu_case(t, widths[kind + 2], kind, (uint32_t)kind + 1);
    }
}

/* int8. */

static void quantize_case(type t, size_t width, bool with_gain) {
    begin("fl_quantize_%s width %zu%s", type_name[t], width, with_gain ? ", gains" : "");
    batch  b = mixed_batch(17);
    tensor x = activations(t, &b, width, 4.0);
    for (size_t i = 0; i < width; i++) { /* a row of zeros, a tiny one, NaN, infinity, an outlier */
        x.v[i] = 0.0;
        x.v[width + i] *= 1e-39;
    }
    x.v[2 * width + 3] = (double)NAN;
    x.v[3 * width + 5] = -(double)INFINITY;
    x.v[4 * width + 7] = -900.0;
    send(&x);
    tensor           gain   = numbers(F32, width, 1.0);
    float           *scales = scratch(b.rows * sizeof *scales);
    int8_t          *q      = scratch(b.rows * width);
    fl_cuda_quantize p      = {b.meta_device,
                               x.device,
                          with_gain ? floats(&gain) : NULL,
                               upload(NULL, b.rows * width),
                               upload(NULL, b.rows * sizeof *scales),
                               (uint32_t)width};
    for (size_t i = 0; with_gain && i < b.rows * width; i++)
        x.v[i] *= gain.v[i % width]; /* what the kernel is to see */
    launch_rows("fl_quantize", t, &b, 1, &p, sizeof p);
    download(q, p.q, b.rows * width);
    download(scales, p.scales, b.rows * sizeof *scales);
    for (uint32_t row = 0; row < b.tokens; row++) {
        double top    = 0.0;
        bool   finite = true;
        for (size_t i = 0; i < width; i++) {
            top    = fmax(top, fabs(x.v[row * width + i]));
            finite = finite && isfinite(x.v[row * width + i]);
        }
        expect(finite ? fabs(scales[row] - top / 127.0) <= top / 127.0 * 1e-6 + 1e-44
                      : isnan(scales[row]),
               "scale of row %u is %g", row, (double)scales[row]);
        for (size_t i = 0; finite && i < width; i++) {
            double back = q[row * width + i] * (double)scales[row];
            expect_near(back, x.v[row * width + i], top / 254.0 * 1.0001 + 1e-38, "value", row, i);
        }
    }
    expect(q[b.tokens * width] == -1 && isnan(scales[b.tokens]),
           "a row behind the batch was written");
    release_all();
}

static void dequantize_case(type t, size_t width, int kind, uint32_t grid_y) {
    begin("fl_dequantize_%s width %zu, activation %d, grid %u", type_name[t], width, kind, grid_y);
    batch    b    = mixed_batch(17);
    int32_t *sums = scratch(b.rows * width * sizeof *sums);
    for (size_t i = 0; i < b.rows * width; i++)
        sums[i] = (int32_t)(uniform() * 2e6);
    tensor             rows = numbers(F32, b.rows, 1e-3), columns = numbers(F32, width, 2e-3);
    tensor             bias = numbers(F32, width, 1.0), out = poison(t, b.rows * width);
    bool               with_bias = grid_y != 2;
    fl_cuda_dequantize p         = {b.meta_device,
                                    upload(sums, b.rows * width * sizeof *sums),
                                    floats(&rows),
                                    floats(&columns),
                            with_bias ? floats(&bias) : NULL,
                                    out.device,
                                    (uint32_t)width,
                                    kind};
    launch_rows("fl_dequantize", t, &b, grid_y, &p, sizeof p);
    fetch(&out);
    for (size_t i = 0; i < b.tokens * width; i++) {
        double in   = sums[i] * rows.v[i / width] * columns.v[i % width];
        double sum  = in + (with_bias ? bias.v[i % width] : 0.0);
        double want = activation_of(kind, sum), unit = t == F32 ? 0.0 : type_unit[t];
        expect_near(out.v[i], want, unit * fabs(want) * 1.01 + 4e-7 * (1.0 + fabs(in)), "out",
                    i / width, i % width);
    }
    expect_untouched(&out, &b, width);
    release_all();
}

static void test_int8(void) {
    for (type t = 0; t < types_tested; t++) {
        for (int i = 0; i < WIDTHS; i++) {
            quantize_case(t, widths[i], false);
            quantize_case(t, widths[i], true);
            dequantize_case(t, widths[i], i % 5 - 1, (uint32_t)i % 3 + 1);
        }
    }
}

/* Pooling. */

static double pooled(int kind, const double *x, size_t width, uint32_t n, uint32_t skip) {
    double   sum = 0.0, top = -1e9, weights = 0.0, weighted = 0.0;
    uint32_t first = skip < n ? skip : 0;
    for (uint32_t i = skip; i < n; i++) {
        sum += x[i * width];
        top = fmax(top, x[i * width]);
        weighted += x[i * width] * (i + 1.0);
        weights += i + 1.0;
    }
    double count = n > skip ? n - skip : 1.0;
    switch (kind) {
    case FL_POOL_CLS: return x[first * width];
    case FL_POOL_MAX: return top;
    case FL_POOL_MEAN: return sum / count;
    case FL_POOL_MEAN_SQRT_LEN: return sum / sqrt(count);
    case FL_POOL_WEIGHTED_MEAN: return n > skip ? weighted / weights : 0.0;
    default: return n > skip ? x[(n - 1) * width] : 0.0;
    }
}

static void run_pool(fl_cuda_pool *p, type t, const batch *b, tensor *rows, uint32_t *bad) {
    char name[64];
    snprintf(name, sizeof name, "fl_pool_%s", type_name[t]);
    *rows   = poison(F32, (b->texts + 2) * p->kinds * p->hidden);
    p->meta = b->meta_device;
    p->cu   = b->cu_device;
    p->rows = rows->device;
    p->bad  = upload(NULL, (b->texts + 2) * sizeof *bad);
    launch(name, b->texts + 2, 1, FL_CUDA_POOL_THREADS, p, sizeof *p);
    fetch(rows);
    download(bad, p->bad, (b->texts + 2) * sizeof *bad);
    expect(isnan(rows->v[b->texts * p->kinds * p->hidden]) && bad[b->texts] == UINT32_MAX,
           "a text behind the batch was written");
}

static void pool_case(type t, size_t width, uint32_t most, bool with_skip) {
    begin("fl_pool_%s width %zu%s", type_name[t], width, with_skip ? ", skip" : "");
    batch     b = mixed_batch(most), back = reversed(&b);
    tensor    x    = activations(t, &b, width, 2.0), x_back, rows, rows_back;
    uint32_t *skip = scratch(b.texts * sizeof *skip), *skip_back = scratch(b.texts * sizeof *skip);
    uint32_t *bad = scratch((b.texts + 2) * sizeof *bad);
    for (uint32_t i = 0; i < b.texts; i++) {
        skip[i]                    = with_skip ? below(6) : 0;
        skip_back[b.texts - 1 - i] = skip[i];
    }
    x_back         = reversed_rows(&x, &b, &back, width);
    fl_cuda_pool p = {.x = x.device, .hidden = (uint32_t)width, .kinds = with_skip ? 6 : 5};
    for (uint32_t k = 0; k < p.kinds; k++)
        p.kind[k] = (int32_t)((k + 2) % FL_POOL_COUNT);
    p.skip = with_skip ? upload(skip, b.texts * sizeof *skip) : NULL;
    run_pool(&p, t, &b, &rows, bad);
    for (uint32_t i = 0; i < b.texts; i++) {
        uint32_t n = b.cu[i + 1] - b.cu[i], left_out = skip[i] < n ? skip[i] : n;
        expect(bad[i] == 0, "text %u is called bad", i);
        for (size_t c = 0; c < p.kinds * width; c++) {
            double want =
                pooled(p.kind[c / width], x.v + b.cu[i] * width + c % width, width, n, left_out);
            expect_near(rows.v[i * p.kinds * width + c], want, 2e-6 * (2.0 * sqrt(n) + fabs(want)),
                        "rows", i, c);
        }
    }
    p.x    = x_back.device;
    p.skip = with_skip ? upload(skip_back, b.texts * sizeof *skip) : NULL;
    run_pool(&p, t, &back, &rows_back, bad);
    for (uint32_t i = 0; i < b.texts; i++) {
        expect(memcmp(rows.v + i * p.kinds * width,
                      rows_back.v + (b.texts - 1 - i) * p.kinds * width,
                      p.kinds * width * sizeof(double)) == 0,
               "text %u has another row in another batch", i);
    }
    release_all();
}

/* A value that is not finite is told, of its own text alone, whatever the pooling. */
static void bad_case(type t, int kind, double value) {
    begin("fl_pool_%s, kind %d tells %g", type_name[t], kind, value);
    uint32_t lengths[] = {5, 7, 3};
    batch    b         = batch_of(lengths, 3, 4);
    size_t   width     = 40;
    tensor   x         = activations(t, &b, width, 1.0), rows;
    uint32_t bad[5], at = kind == FL_POOL_CLS ? 5 : kind == FL_POOL_LAST_TOKEN ? 11 : 8;
    x.v[at * width + 17] = value;
    send(&x);
    fl_cuda_pool p = {.x = x.device, .hidden = (uint32_t)width, .kinds = 1, .kind = {kind}};
    run_pool(&p, t, &b, &rows, bad);
    expect(bad[0] == 0 && bad[1] == 1 && bad[2] == 0, "told: %u %u %u", bad[0], bad[1], bad[2]);
    release_all();
}

static void test_pool(void) {
    for (type t = 0; t < types_tested; t++) {
        for (int i = 0; i < WIDTHS; i++)
            pool_case(t, widths[i], widths[i] <= 40 ? 257 : 33, i % 2 == 0);
        for (int kind = 0; kind < FL_POOL_COUNT; kind++) {
            bad_case(t, kind, (double)NAN);
            bad_case(t, kind, (double)INFINITY);
        }
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *word;
        void (*test)(void);
    } tests[] = {{"embed", test_embed},       {"residual_norm", test_residual_norm},
                 {"bias_act", test_bias_act}, {"int8", test_int8},
                 {"pool", test_pool},         {"tiles", test_tiles},
                 {"rotate", test_rotate},     {"attention", test_attention}};
    enum { TESTS = sizeof tests / sizeof *tests };
    bool        wanted[TESTS] = {false}, any = false, brief = false;
    const char *image = NULL;
    bool        times = argc >= 2 && strcmp(argv[1], "perf") == 0;
    bool        usage = argc < 2 || (!times && strcmp(argv[1], "test") != 0);
    for (int i = 2; i < argc; i++) {
        bool known = strcmp(argv[i], "--brief") == 0;
        brief      = brief || known;
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            image = argv[++i];
            known = true;
        }
        for (size_t t = 0; t < TESTS && !known; t++) {
            known = wanted[t] = strcmp(argv[i], tests[t].word) == 0;
            any               = any || known;
        }
        usage = usage || !known;
    }
    if (usage || (times && (any || image == NULL || brief))) {
        fprintf(stderr, "usage: fl-cuda-kernels test [WORD ...] [--brief] [--device IMAGE]\n"
                        "       fl-cuda-kernels perf --device IMAGE\n");
        return 2;
    }
    if (brief) {
        types_tested = BF16;
        longest_text = 129;
    }
    char why[200];
    if (!device_open(image, why, sizeof why)) {
        fprintf(stderr, "fl-cuda-kernels: %s\n", why);
        return 77;
    }
    if (times) {
        perf();
        return 0;
    }
    for (size_t i = 0; i < TESTS; i++)
        if (!any || wanted[i])
            tests[i].test();
    printf("fl-cuda-kernels: %u cases, %u checks, %u failures, on %s\n", cases, checks, failures,
           image ? "the first GPU" : "the simulated device");
    return failures == 0 && cases > 0 ? 0 : 1;
}
