/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h - what forward.c and layers.c share: one member's view of the block under way, and the
 * steps that are float32 in every precision. */
#ifndef FL_ENGINES_CPU_CREW_H
#define FL_ENGINES_CPU_CREW_H

#include "engines/cpu/cpu_engine.h"

/* x, context, y and their bytes are the crew's, the rest is the member's own. */
typedef struct fl_cpu_crew {
    fl_engine          *engine;
    const fl_cpu_block *block;
    fl_cpu_scratch      at;
    unsigned            member, members;
} fl_cpu_crew;

static inline void fl_cpu_wait(const fl_cpu_crew *c) {
    if (c->members > 1) {
        fl_barrier_wait(&c->engine->barrier);
    }
}

/* A member's share of `count` things begins here; the next member's beginning is its end. */
static inline size_t fl_cpu_share(const fl_cpu_crew *c, size_t count, unsigned member) {
    return count * member / c->members;
}

static inline size_t fl_cpu_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* forward.c: attention of one head over the block's texts, from at.head to context. */
void fl_cpu_attend(const fl_cpu_crew *c, size_t head, size_t tokens);

/* forward.c: x[row …] = norm(y) for this member's share of the rows. */
void fl_cpu_norm_rows(const fl_cpu_crew *c, size_t row, size_t rows, const float *weight,
                      const float *bias);

/* layers.c: the block through all layers; x holds the embedded tokens, this member's share of them. */
void fl_cpu_layers(const fl_cpu_crew *c);

#endif
