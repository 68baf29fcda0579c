/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_long.c - texts that are longer than what every thread has room for: a split group runs them, one at a
 * time, in scratch that is taken when the first one comes.
 *
 * Role    cpu_engine.c reserves for each thread what texts of the usual length need (model.max_length);
 *         a call may allow longer ones, up to the model's positions, which can be 60 times as many.
 * Method  x, z, context and joint_qk are there once, each rank has its own heads and scores. What does not grow
 *         with the text is the threads' own. cpu_plan.c puts such texts in front of all others.
 * Memory  One block, which grows with the longest text so far and stays: later ones take nothing. When it
 *         cannot be had the text fails with ENOMEM, and the others go on. Threads: who calls forward.
 * Proof   tests/unit/test_engine_long.c, tests/unit/test_prediction.c. */
#include <assert.h>

#include "base/error.h"
#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"

/* Heads that a rank has at a time: none, where there are more ranks than heads. */
static size_t heads_of(const fl_engine *e, unsigned rank) {
    assert(rank < e->long_ranks);
    size_t first = (size_t)e->desc.heads * rank / e->long_ranks;
    size_t own   = (size_t)e->desc.heads * (rank + 1) / e->long_ranks - first;
    return own < e->q_run ? own : e->q_run;
}

/* What a text of `length` tokens needs; `base` NULL only counts. */
static size_t lay_out(const fl_engine *e, size_t length, char *base, fl_cpu_scratch *out) {
    size_t         used = 0, real = sizeof(float);
    fl_cpu_scratch s = {0};
    s.x              = fl_cpu_place(base, &used, length * e->hidden16, real);
    s.z              = fl_cpu_place(base, &used, e->pre_norm ? length * e->hidden16 : 0, real);
    s.context        = fl_cpu_place(base, &used, length * e->inner, real);
    s.joint_qk       = fl_cpu_place(base, &used, length * (e->q_joint + e->k_joint), real);
    if (e->format != FL_CPU_FP32)
        s.x_narrow = fl_cpu_place_rows(e, base, &used, length, e->hidden16);
    for (unsigned i = 0; i < e->long_ranks; i++) {
        size_t heads = heads_of(e, i);
        size_t rows  = heads > 0 ? (2 + heads) * length : 0;
        size_t plain = fl_cpu_attention_scratch(heads, length, length, e->head16);
        s.head       = fl_cpu_place(base, &used, rows * e->head16, real);
        s.attention  = fl_cpu_place(base, &used, heads > 0 ? plain : 0, real);
        s.relative =
            fl_cpu_place(base, &used, heads > 0 ? fl_cpu_disentangled_scratch(e, length) : 0, real);
        if (out != NULL) {
            out[i]           = e->scratch[i];
            out[i].x         = s.x;
            out[i].z         = s.z;
            out[i].context   = s.context;
            out[i].joint_qk  = s.joint_qk;
            out[i].x_narrow  = s.x_narrow;
            out[i].head      = s.head;
            out[i].attention = s.attention;
            out[i].relative  = s.relative;
        }
    }
    return used;
}

size_t fl_cpu_long_bytes(const fl_engine *e, size_t length) {
    return length > e->block_max ? lay_out(e, length, NULL, NULL) : 0;
}

int fl_cpu_long_reserve(fl_engine *e, size_t length, fletch_error *error) {
    assert(length > 0);
    fl_cpu_long *l = &e->longer;
    if (length <= e->block_max || length <= l->length)
        return FLETCH_OK;
    size_t bytes = fl_cpu_long_bytes(e, length);
    fl_cpu_long_close(e); /* first: the next one is larger */
    if (l->scratch == NULL)
        l->scratch = fl_alloc_zero(e->threads, sizeof *l->scratch);
    l->arena = l->scratch ? fl_big_alloc(bytes) : NULL;
    if (l->arena == NULL) {
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                       "out of memory: %zu bytes for a text of %zu tokens; lower max_length or "
                       "cpu.intra_op_threads (%u)",
                       bytes, length, e->threads);
    }
    l->bytes  = bytes;
    l->length = length;
    lay_out(e, length, l->arena, l->scratch);
    return FLETCH_OK;
}

void fl_cpu_long_close(fl_engine *e) {
    fl_cpu_long *l = &e->longer;
    fl_big_free(l->arena, l->bytes);
    fl_free(l->scratch);
    *l = (fl_cpu_long){0};
}
