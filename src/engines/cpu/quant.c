/* SPDX-License-Identifier: Apache-2.0 */
/* quant.c - sixteen columns of weights become one panel of signed bytes with their scales and sums.
 *
 * Role     pack.c hands over every panel of precision=int8; kernels.h says what a panel is.
 * Method   Symmetric, one scale a column: q = rint(w / scale). The scale is the smallest at which no
 *          |q| passes 127 and at which the sums that a kernel forms in 16 bits hold whatever the
 *          activations are: 255 times the positive weights of one group, or the negative ones, must
 *          fit, so these sums stay within 128 (fl_gemm.group). Rounding can lift such a sum past
 *          the bound by a unit or two; then the weight that was rounded up the most goes down.
 *          All loops run over the sixteen columns side by side, which compilers make vectors of.
 * Damage   A column that holds NaN or infinity gets scale NaN: its products show it.
 * Memory   Nothing of its own. Threads: any. Proof: tests/unit/test_quant.c. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "engines/cpu/cpu_engine.h"

enum { LANES = FL_CPU_LANES, STEP = 8, GROUPS_MOST = 4, SUM_MOST = 128, ONE_MOST = 127 };

/* Which of eight steps are added together: group 4 takes {0, 1, 4, 5} and {2, 3, 6, 7}, group 2
 * neighbours. */
static unsigned group_of(int group, unsigned i) {
    return group == 4 ? i / 2 % 2 : i / 2;
}

static unsigned groups(int group) {
    return group == 4 ? 2 : group == 2 ? 4 : 0;
}

/* To the nearest, ties to even, for |x| < 2^22; unlike rintf a vector on any machine. */
static float nearest(float x) {
    return x + 12582912.0f - 12582912.0f;
}

/* up[g][lane]: sum of the positive weights of group g among eight steps; down: of the negative
 * ones, as a positive number. */
typedef struct sums {
    float up[GROUPS_MOST][LANES], down[GROUPS_MOST][LANES];
} sums;

static void add_up(const float *step, int group, sums *s) {
    memset(s, 0, sizeof *s);
    for (unsigned i = 0; i < STEP; i++) {
        unsigned g = group_of(group, i);
        for (unsigned lane = 0; lane < LANES; lane++) {
            float value = step[i * LANES + lane];
            s->up[g][lane] += value > 0.0f ? value : 0.0f;
            s->down[g][lane] += value < 0.0f ? -value : 0.0f;
        }
    }
}

static void find_scales(const float *columns, size_t k, int group, float *scale) {
    float most[LANES] = {0.0f}, sum[LANES] = {0.0f};
    int   bad[LANES] = {0};
    for (size_t i = 0; i < k; i++) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            float size = fabsf(columns[i * LANES + lane]);
            bad[lane] |= !(size <= FLT_MAX);
            most[lane] = size > most[lane] ? size : most[lane];
        }
    }
    for (size_t i = 0; group > 1 && i < k; i += STEP) {
        sums s;
        add_up(columns + i * LANES, group, &s);
        for (unsigned g = 0; g < groups(group); g++) {
            for (unsigned lane = 0; lane < LANES; lane++) {
                sum[lane] = s.up[g][lane] > sum[lane] ? s.up[g][lane] : sum[lane];
                sum[lane] = s.down[g][lane] > sum[lane] ? s.down[g][lane] : sum[lane];
            }
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        float one = most[lane] / ONE_MOST, all = sum[lane] / SUM_MOST;
        scale[lane] = bad[lane] ? NAN : one > all ? one : all;
    }
}

/* Take units off the weights of one sign in one group until their sum is within the bound. */
static void lower(float *q, const float *exact, int group, unsigned which, float sign) {
    for (;;) {
        float    sum = 0.0f, most = -FLT_MAX;
        unsigned worst = 0;
        for (unsigned i = 0; i < STEP * LANES; i += LANES) {
            float over = (q[i] - exact[i]) * sign;
            if (group_of(group, i / LANES) != which || q[i] * sign <= 0.0f)
                continue;
            sum += q[i] * sign;
            worst = over > most ? i : worst;
            most  = over > most ? over : most;
        }
        if (sum <= SUM_MOST)
            return;
        q[worst] -= sign;
    }
}

/* Eight steps, divided by their scales already: rounded, and within the bounds. */
static void round_step(const float *exact, int group, float *q) {
    sums s;
    for (unsigned i = 0; i < STEP * LANES; i++)
        q[i] = nearest(exact[i]);
    add_up(q, group, &s);
    for (unsigned g = 0; g < groups(group); g++) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            if (s.up[g][lane] > SUM_MOST)
                lower(q + lane, exact + lane, group, g, 1.0f);
            if (s.down[g][lane] > SUM_MOST)
                lower(q + lane, exact + lane, group, g, -1.0f);
        }
    }
}

/* Eight steps -> two groups of [16][4] bytes, added to the columns' sums. */
static void store_step(const float *q, uint8_t *panel, int32_t *sum) {
    for (unsigned half = 0; half < STEP / 4; half++) {
        uint32_t     words[LANES] = {0};
        const float *four         = q + half * 4 * LANES;
        for (unsigned i = 0; i < 4; i++) {
            for (unsigned lane = 0; lane < LANES; lane++) {
                int32_t value = (int32_t)four[i * LANES + lane];
                words[lane] |= ((uint32_t)value & 255U) << (8 * i);
                sum[lane] += value;
            }
        }
        for (unsigned lane = 0; lane < LANES; lane++) {
            uint8_t bytes[4] = {(uint8_t)words[lane], (uint8_t)(words[lane] >> 8),
                                (uint8_t)(words[lane] >> 16), (uint8_t)(words[lane] >> 24)};
            memcpy(panel + (half * LANES + lane) * 4, bytes, sizeof bytes);
        }
    }
}

void fl_cpu_quantize_panel(const float *columns, size_t k, int group, uint8_t *panel) {
    assert(k > 0 && panel);
    float   scale[LANES], inverse[LANES];
    int32_t sum[LANES] = {0};
    find_scales(columns, k, group, scale);
    for (unsigned lane = 0; lane < LANES; lane++)
        inverse[lane] = scale[lane] >= FL_CPU_Q8_TINY ? 1.0f / scale[lane] : 0.0f;
    for (size_t first = 0; first < k; first += STEP) {
        float exact[STEP * LANES], q[STEP * LANES];
        for (unsigned i = 0; i < STEP * LANES; i++) {
            float factor = inverse[i % LANES];
            exact[i]     = factor > 0.0f ? columns[first * LANES + i] * factor : 0.0f;
        }
        round_step(exact, group, q);
        store_step(q, panel + first * LANES, sum);
    }
    memcpy(panel + k * LANES, scale, sizeof scale);
    memcpy(panel + k * LANES + sizeof scale, sum, sizeof sum);
}
