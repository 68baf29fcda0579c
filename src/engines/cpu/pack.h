/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - what pack.c and pack_latent.c share: matrices of the files, cut into panels of float32. */
#ifndef FL_ENGINES_CPU_PACK_H
#define FL_ENGINES_CPU_PACK_H

#include "engines/cpu/cpu_engine.h"

/* A matrix of the files and the part of it that goes into a run of panels. */
typedef struct fl_cpu_source {
    const fl_tensor *w;    /* [·, in] */
    size_t           in;   /* columns of w */
    size_t           row;  /* first row, column 0 of the first panel */
    size_t           rows; /* rows there are; panels past them are zero */
    size_t           col;  /* first column */
    size_t           cols; /* columns there are; steps of k past them are zero */
    float            scale;
    bool turned; /* w is [in, ·]: panels are cut from its columns, steps of k are rows */
    /* narrow formats */
    size_t       runs; /* of k/runs steps each, with `cols` columns; 0 is 1 */
    const float *gain; /* [k] or NULL: what the activations are multiplied by */
} fl_cpu_source;

/* Panels [panels][k][16] of float32 from s. */
void fl_cpu_pack_floats(const fl_cpu_source *s, size_t panels, size_t k, float *out);

/* Elements [first, first + count) of a vector, scaled; what is not there stays zero. */
void fl_cpu_pack_vector(const fl_tensor *v, size_t first, size_t count, float scale, float *out);

void fl_cpu_pack_norm(const fl_tensor *weight, const fl_tensor *bias, bool plus_one, size_t width,
                      float scale, const fl_cpu_norm *out);

/* Panels are written here and read-only ever after. */
static inline float *fl_cpu_mutable(const float *place) {
    return (float *)(uintptr_t)place;
}

/* Room to fold one head in, all of it for rows padded to lanes. */
typedef struct fl_cpu_folding {
    float *rows;   /* [width16, hidden16] the latents, normed */
    float *inner;  /* [width16, dims16] their keys, or values, of a head */
    float *outer;  /* [width16, hidden16] what is folded */
    float *panels; /* of one matrix of a head */
    float *norm;   /* [2][hidden16] */
    size_t floats, dims16;
} fl_cpu_folding;

/* False: out of memory. */
bool fl_cpu_folding_open(const fl_engine *e, fl_cpu_folding *f);
void fl_cpu_folding_close(fl_cpu_folding *f); /* of one that was never opened: a no-op */
void fl_cpu_pack_latents(const fl_engine *e, const fl_tensor *global, fl_cpu_folding *f);

#endif
