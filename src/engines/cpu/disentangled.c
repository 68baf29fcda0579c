/* SPDX-License-Identifier: Apache-2.0 */
/* disentangled.c - DeBERTa's attention: a score is made of three products, two of them with a distance.
 *
 *     s[i][j] = q[i] · k[j] + q[i] · pos_k[c] + k[j] · pos_q[c],  c = column[j - i]
 *
 * Role     cpu_layers.c calls it where other models call the attention kernel. pack.c made pos_k and pos_q, keys and
 *          queries of the table of distances, once: [heads][relative16 / 16 panels][head16][16] each.
 * Method   FL_CPU_RELATIVE_ROWS queries of a head at a time: what distance adds to their scores is written out, row
 *          by row, and the kernel takes it as bias. It comes from two products, of some queries, and of some keys,
 *          with the columns that distances between these can have; columns rise with the distance, so they are
 *          one range. Many keys meet few queries at a time: the fewer columns are computed in vain.
 * Bytes    A column's value is a row's own chain whatever the range (kernels.h), and each score adds the two in
 *          one order.
 * Narrow   float32 in every precision: q and k are float32 there too.
 * Proof    tests/golden/test_families.py; tests/unit/test_engine.c, test_engine_bytes.c. */
#include <assert.h>

#include "engines/cpu/split.h"

enum { QUERIES = 24, KEYS = 96 };

/* A range of columns, whole panels. */
typedef struct range {
    size_t first, width;
} range;

/* Those of distances `low` … `high` */
static range columns_of(const fl_engine *e, ptrdiff_t low, ptrdiff_t high) {
    assert(low <= high);
    const int32_t *column = e->column + e->max_length - 1;
    const size_t   first  = (size_t)column[low] / FL_CPU_LANES * FL_CPU_LANES;
    return (range){first, fl_cpu_pad((size_t)column[high] + 1) - first};
}

/* out[rows, width] = x[rows, head16] of a head with that range of `panels`. */
static void multiply(const fl_engine *e, const float *x, size_t stride, size_t rows,
                     const float *panels, size_t head, range of, float *out) {
    fl_gemm g = {.a        = x,
                 .a_stride = stride * sizeof *x,
                 .b        = panels + (head * e->relative16 + of.first) * e->head16,
                 .b_stride = e->head16 * FL_CPU_LANES * sizeof *panels,
                 .c        = out,
                 .c_stride = of.width,
                 .rows     = rows,
                 .panels   = of.width / FL_CPU_LANES,
                 .k        = e->head16};
    e->kernels->gemm(&g);
}

/* What one call of the kernel is given, and where in scratch it lies. */
typedef struct slice {
    const fl_attention *at;
    const fl_cpu_layer *layer;
    size_t              head, stride; /* of bias, from row to row */
    float              *bias, *products;
} slice;

/* bias[i] = q[i] · pos_k of every distance to a key, for `rows` queries from `row` on. */
static void write_queries(const fl_engine *e, const slice *s, size_t row, size_t rows) {
    const fl_attention *at    = s->at;
    const ptrdiff_t     first = (ptrdiff_t)(at->first + row), last = first + (ptrdiff_t)rows - 1;
    const range         of = columns_of(e, -last, (ptrdiff_t)at->n - 1 - first);
    multiply(e, at->q + row * at->q_stride, at->q_stride, rows, s->layer->pos_k, s->head, of,
             s->products);
    for (size_t r = 0; r < rows; r++) {
        const int32_t *column = e->column + e->max_length - 1 - (at->first + row + r);
        const float   *from   = s->products + r * of.width;
        float         *to     = s->bias + (row + r) * s->stride;
        for (size_t j = 0; j < at->n; j++)
            to[j] = from[(size_t)column[j] - of.first];
    }
}

/* bias[i][j] += k[j] · pos_q of their distance, for the same queries and `keys` keys from `key` on. */
static void add_keys(const fl_engine *e, const slice *s, size_t row, size_t rows, size_t key,
                     size_t keys) {
    const fl_attention *at    = s->at;
    const ptrdiff_t     first = (ptrdiff_t)(at->first + row), from = (ptrdiff_t)key;
    const range         of =
        columns_of(e, from - first - (ptrdiff_t)rows + 1, from + (ptrdiff_t)keys - 1 - first);
    multiply(e, at->k + key * at->kv_stride, at->kv_stride, keys, s->layer->pos_q, s->head, of,
             s->products);
    for (size_t r = 0; r < rows; r++) {
        const int32_t *column   = e->column + e->max_length - 1 + key - (at->first + row + r);
        const float   *products = s->products;
        float         *to       = s->bias + (row + r) * s->stride + key;
        for (size_t j = 0; j < keys; j++, products += of.width)
            to[j] += products[(size_t)column[j] - of.first];
    }
}

/* Distances between QUERIES queries and n keys, or KEYS keys; a range begins and ends within a panel. */
static size_t products_room(const fl_engine *e, size_t n) {
    size_t wide   = fl_cpu_min(e->relative16, fl_cpu_pad(n + QUERIES) + FL_CPU_LANES);
    size_t narrow = fl_cpu_min(e->relative16, fl_cpu_pad(KEYS + QUERIES) + FL_CPU_LANES);
    return fl_cpu_min(n, QUERIES) * wide > fl_cpu_min(n, KEYS) * narrow
               ? fl_cpu_min(n, QUERIES) * wide
               : fl_cpu_min(n, KEYS) * narrow;
}

static size_t bias_stride(size_t n) {
    return fl_cpu_pad(n) + FL_CPU_LANES;
}

size_t fl_cpu_disentangled_scratch(const fl_engine *e, size_t n) {
    return e->relative16 == 0 || n == 0
               ? 0
               : fl_cpu_min(n, FL_CPU_RELATIVE_ROWS) * bias_stride(n) + products_room(e, n);
}

void fl_cpu_attend_disentangled(const fl_engine *e, const fl_cpu_layer *layer, size_t head,
                                const fl_attention *all, void (*run)(const fl_attention *),
                                float              *scratch) {
    fl_attention at = *all;
    slice        s  = {&at, layer, head, bias_stride(all->n), scratch, NULL};
    at.heads        = 1;
    at.bias_row     = (ptrdiff_t)s.stride;
    for (size_t i = 0; i < all->heads; i++, s.head++) {
        for (size_t row = 0; row < all->rows; row += at.rows) {
            at.rows    = fl_cpu_min(all->rows - row, FL_CPU_RELATIVE_ROWS);
            at.first   = all->first + row;
            at.q       = all->q + i * all->q_head + row * all->q_stride;
            at.out     = all->out + i * all->out_head + row * all->out_stride;
            at.bias    = s.bias;
            s.products = s.bias + at.rows * s.stride;
            for (size_t some = 0, rows; some < at.rows; some += rows) {
                rows = fl_cpu_min(at.rows - some, QUERIES);
                write_queries(e, &s, some, rows);
                for (size_t key = 0, keys; key < at.n; key += keys) {
                    keys = fl_cpu_min(at.n - key, KEYS);
                    add_keys(e, &s, some, rows, key, keys);
                }
            }
            run(&at);
        }
    }
}
