/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_perf.c - fl-cuda-kernels perf: what each kernel takes on a GPU, beside what it moves.
 *
 * Method  The shapes of MiniLM, BERT-base and BERT-large over 16,384 tokens of texts of one length;
 *         a kernel is launched many times behind each other and the clock is read once. GB/s is the
 *         rows that must be read and written at least once, TFLOP/s the products over true keys:
 *         small batches stay in the L2, so that GB/s may exceed the memory's.
 * Limits  No warm clock is enforced and no other kernel runs between: for choosing between two
 *         versions of a kernel, not for a table. */
#include <stdio.h>
#include <string.h>

#include "kernels.h"

enum { TOKENS = 16384, REPEATS = 100 };

typedef struct shape {
    const char *name;
    uint32_t    hidden, heads, mlp;
} shape;

typedef struct bench {
    const shape *s;
    type         t;
    uint32_t     length;
    batch        b;
    tensor       wide, x, y, norm;
} bench;

/* Random numbers, the same 65,536 again and again: made quickly, and no device finds them
 * easier. */
static tensor filled(type t, size_t count, double spread) {
    tensor pattern = numbers(t, 65536, spread), made = {t, count, NULL, NULL};
    size_t bytes = count * type_size[t], step = 65536 * type_size[t];
    char  *data = scratch(bytes);
    download(data, pattern.device, bytes < step ? bytes : step);
    for (size_t at = step; at < bytes; at += step)
        memcpy(data + at, data, bytes - at < step ? bytes - at : step);
    made.device = upload(data, bytes);
    return made;
}

static void report(const bench *n, const char *kernel, double seconds, double bytes, double flops) {
    printf("%-6s %-4s %4u tokens  %-16s %8.1f us %8.0f GB/s", n->s->name, type_name[n->t],
           n->length, kernel, seconds * 1e6, bytes / seconds * 1e-9);
    printf(flops > 0.0 ? " %7.1f TFLOP/s\n" : "\n", flops / seconds * 1e-12);
}

static double time_rows(const bench *n, const char *kernel, uint32_t grid_y, const void *param) {
    char name[64];
    snprintf(name, sizeof name, "%s_%s", kernel, type_name[n->t]);
    return launch_many(name, TOKENS / FL_CUDA_ROW_ROWS, grid_y, FL_CUDA_ROW_THREADS, param,
                       REPEATS);
}

/* What layers that do not see every key cost; bytes and operations as if they did. */
static void time_rules(const bench *n, fl_cuda_attention *p, const fl_cuda_tile *list,
                       uint32_t tiles, uint32_t d) {
    static const struct {
        const char *name;
        int32_t     before, after;
    } rules[] = {{"  causal", FL_CUDA_EVERY, 0}, {"  window of 64", 64, 64}};
    char   name[64];
    double bytes = 4.0 * TOKENS * n->s->hidden * (double)type_size[n->t];
    p->tiles     = list;
    snprintf(name, sizeof name, "fl_attention_%s_ruled_%s_%u",
             n->length > FL_CUDA_SHORT_TOKENS ? "long" : "short", type_name[n->t], d);
    for (int i = 0; i < 2; i++) {
        p->before = rules[i].before;
        p->after  = rules[i].after;
        report(n, rules[i].name,
               launch_many(name, tiles, n->s->heads, FL_CUDA_ATTENTION_THREADS, p, REPEATS), bytes,
               4.0 * TOKENS * n->length * n->s->hidden);
    }
}

static void time_attention(const bench *n) {
    uint32_t            d = n->s->hidden / n->s->heads, shorts = fl_cuda_short_capacity(TOKENS);
    uint32_t            longs    = fl_cuda_long_capacity(TOKENS);
    const fl_cuda_tile *lists[2] = {n->b.short_tiles, n->b.long_tiles};
    fl_cuda_attention   p        = {.meta     = n->b.meta_device,
                                    .cu       = n->b.cu_device,
                                    .qkv      = n->wide.device,
                                    .out      = n->y.device,
                                    .heads    = n->s->heads,
                                    .kv_heads = n->s->heads,
                                    .before   = FL_CUDA_EVERY,
                                    .after    = FL_CUDA_EVERY,
                                    .scale    = 0.1f};
    double              bytes    = 4.0 * TOKENS * n->s->hidden * (double)type_size[n->t];
    double              flops    = 4.0 * TOKENS * n->length * n->s->hidden, seconds[2];
    static const char  *kinds[]  = {"attention_short", "attention_long"};
    for (int i = 0; i < 2; i++) {
        char name[64];
        p.tiles = lists[i];
        snprintf(name, sizeof name, "fl_%s_%s_%u", kinds[i], type_name[n->t], d);
        seconds[i] = launch_many(name, i ? longs : shorts, n->s->heads, FL_CUDA_ATTENTION_THREADS,
                                 &p, REPEATS);
    }
    int works = n->length > FL_CUDA_SHORT_TOKENS;
    report(n, kinds[works], seconds[works], bytes, flops);
    report(n, "  other, empty", seconds[!works], 0.0, 0.0);
    time_rules(n, &p, lists[works], works ? longs : shorts, d);
}

static void time_row_kernels(const bench *n) {
    double                row  = (double)TOKENS * (double)type_size[n->t];
    fl_cuda_residual_norm norm = {.meta   = n->b.meta_device,
                                  .x      = n->x.device,
                                  .norm_w = floats(&n->norm),
                                  .norm_b = floats(&n->norm),
                                  .out    = n->y.device,
                                  .hidden = n->s->hidden,
                                  .eps    = 1e-12f};
    fl_cuda_bias_act      act  = {n->b.meta_device, n->wide.device, floats(&n->norm), n->s->mlp, 0};
    fl_cuda_quantize      quantize = {n->b.meta_device,
                                      n->x.device,
                                      floats(&n->norm),
                                      n->wide.device,
                                      upload(NULL, TOKENS * sizeof(float)),
                                      n->s->hidden};
    uint32_t              d        = n->s->hidden / n->s->heads;
    uint32_t             *places   = scratch(TOKENS * sizeof *places);
    for (uint32_t i = 0; i < TOKENS; i++)
        places[i] = i % n->length;
    fl_cuda_rotate rotate = {.meta     = n->b.meta_device,
                             .places   = upload(places, TOKENS * sizeof *places),
                             .qkv      = n->wide.device,
                             .cosines  = upload(NULL, TOKENS * sizeof(float)),
                             .sines    = upload(NULL, TOKENS * sizeof(float)),
                             .heads    = n->s->heads,
                             .kv_heads = n->s->heads,
                             .dims     = d};
    fl_cuda_glu    glu    = {n->b.meta_device, n->wide.device, NULL, n->s->mlp / 2, 2};
    char           name[64];
    report(n, "residual_norm", time_rows(n, "fl_residual_norm", 1, &norm), 2 * row * n->s->hidden,
           0);
    snprintf(name, sizeof name, "fl_rotate_%s_%u", type_name[n->t], d);
    report(n, "rotate",
           launch_many(name, TOKENS / FL_CUDA_ROW_ROWS, 1, FL_CUDA_ROW_THREADS, &rotate, REPEATS),
           4 * row * n->s->hidden, 0);
    report(n, "glu", time_rows(n, "fl_glu", 1, &glu), 1.5 * row * n->s->mlp, 0);
    report(n, "bias_act", time_rows(n, "fl_bias_act", 1, &act), 2 * row * n->s->mlp, 0);
    report(n, "quantize", time_rows(n, "fl_quantize", 1, &quantize), row * n->s->hidden, 0);
    fl_cuda_pool pool = {.meta   = n->b.meta_device,
                         .cu     = n->b.cu_device,
                         .x      = n->x.device,
                         .rows   = upload(NULL, n->b.texts * n->s->hidden * sizeof(float)),
                         .bad    = upload(NULL, n->b.texts * sizeof(uint32_t)),
                         .hidden = n->s->hidden,
                         .kinds  = 1,
                         .kind   = {2}};
    snprintf(name, sizeof name, "fl_pool_%s", type_name[n->t]);
    report(n, "pool", launch_many(name, n->b.texts, 1, FL_CUDA_POOL_THREADS, &pool, REPEATS),
           row * n->s->hidden, 0);
}

static void time_embed(const bench *n) {
    int32_t *ids = scratch(TOKENS * sizeof *ids);
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)below(TOKENS); /* scattered rows, as words are */
    fl_cuda_embed p = {.meta      = n->b.meta_device,
                       .ids       = upload(ids, TOKENS * sizeof *ids),
                       .cu        = n->b.cu_device,
                       .word      = n->wide.device,
                       .position  = n->x.device,
                       .norm_w    = floats(&n->norm),
                       .norm_b    = floats(&n->norm),
                       .x         = n->y.device,
                       .hidden    = n->s->hidden,
                       .pad_token = -1,
                       .eps       = 1e-12f};
    report(n, "embed", time_rows(n, "fl_embed", 1, &p),
           2.0 * TOKENS * n->s->hidden * (double)type_size[n->t], 0);
}

void perf(void) {
    static const shape shapes[] = {
        {"L6", 384, 12, 1536}, {"base", 768, 12, 3072}, {"large", 1024, 16, 4096}};
    static const uint32_t lengths[] = {16, 32, 64, 128, 512};
    for (size_t i = 0; i < 3; i++) {
        for (type t = F32; t <= BF16; t++) {
            for (size_t l = 0; l < 5 && (t != BF16 || device_bf16()); l++) {
                bench     n     = {.s = &shapes[i], .t = t, .length = lengths[l]};
                uint32_t  texts = TOKENS / n.length;
                uint32_t *all   = scratch(texts * sizeof *all);
                for (uint32_t k = 0; k < texts; k++)
                    all[k] = n.length;
                n.b    = batch_of(all, texts, 0);
                n.wide = filled(t, (size_t)TOKENS * n.s->mlp, 1.0);
                n.x    = filled(t, (size_t)TOKENS * n.s->hidden, 1.0);
                n.y    = filled(t, (size_t)TOKENS * n.s->hidden, 1.0);
                n.norm = filled(F32, n.s->mlp, 0.5);
                time_attention(&n);
                if (l == 1) {
                    time_row_kernels(&n);
                    time_embed(&n);
                }
                release_all();
            }
        }
    }
}
