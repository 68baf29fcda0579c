/* SPDX-License-Identifier: Apache-2.0 */
/* quant.c - sixteen columns of weights become one panel of signed bytes with their scales and sums.
 *
 * Role     pack.c hands over every panel of precision=int8; kernels.h says what a panel is.
 * Method   Symmetric, one scale a column: q = rint(w / scale). The scale is the smallest at which no
 *          |q| passes 127 and at which the sums that a kernel forms in 16 bits hold whatever the
 *          activations are: 255 times the positive weights of one group, or the negative ones, must
 *          fit, so these sums stay within 128 (fl_gemm_q8.group). Rounding can lift such a sum past
 *          the bound by a unit or two; then the weight that was rounded up the most goes down.
 * Damage   A column that holds NaN or infinity gets scale NaN: its products show it.
 * Memory   Nothing of its own. Threads: any. Proof: tests/unit/test_quant.c. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "engines/cpu/cpu_engine.h"

enum { STEP = 8, SUM_MOST = 128, ONE_MOST = 127 };

/* Which of eight steps are added together: group 4 takes {0, 1, 4, 5} and {2, 3, 6, 7}. */
static unsigned group_of(int group, unsigned i) {
    return group == 4 ? i / 2 % 2 : i / 2;
}

static unsigned groups(int group) {
    return group == 4 ? 2 : STEP / 2;
}

/* To the nearest, ties to even, for |x| < 2^22; the compiler makes vectors of it on any machine. */
static float nearest(float x) {
    return x + 12582912.0f - 12582912.0f;
}

/* Largest sum of the positive or of the negative weights of one group. */
static float largest_sum(const float *w, size_t k, int group) {
    float most = 0.0f;
    for (size_t first = 0; first < k; first += STEP) {
        float up[STEP / 2] = {0.0f}, down[STEP / 2] = {0.0f};
        for (unsigned i = 0; i < STEP; i++) {
            float value = w[first + i];
            up[group_of(group, i)] += value > 0.0f ? value : 0.0f;
            down[group_of(group, i)] -= value < 0.0f ? value : 0.0f;
        }
        for (unsigned i = 0; i < groups(group); i++) {
            most = up[i] > most ? up[i] : most;
            most = down[i] > most ? down[i] : most;
        }
    }
    return most;
}

/* NaN when a weight is not finite. */
static float scale_of(const float *w, size_t k, int group) {
    float most = 0.0f;
    bool  good = true;
    for (size_t i = 0; i < k; i++) {
        float size = fabsf(w[i]);
        good       = good && size <= FLT_MAX;
        most       = size > most ? size : most;
    }
    float scale = most / ONE_MOST;
    if (group > 1 && good) {
        float sums = largest_sum(w, k, group) / SUM_MOST;
        scale      = sums > scale ? sums : scale;
    }
    return good ? scale : NAN;
}

/* Take units off the weights of one sign in one group until their sum is within the bound. */
static void lower(float *q, const float *exact, int group, unsigned which, float sign) {
    for (;;) {
        float    sum = 0.0f, most = -FLT_MAX;
        unsigned worst = 0;
        for (unsigned i = 0; i < STEP; i++) {
            float over = (q[i] - exact[i]) * sign;
            if (group_of(group, i) != which || q[i] * sign <= 0.0f) {
                continue;
            }
            sum += q[i] * sign;
            worst = over > most ? i : worst;
            most  = over > most ? over : most;
        }
        if (sum <= SUM_MOST) {
            return;
        }
        q[worst] -= sign;
    }
}

/* Eight weights of one column, divided by the scale already. */
static void round_step(const float *exact, int group, float *q) {
    for (unsigned i = 0; i < STEP; i++) {
        q[i] = nearest(exact[i]);
    }
    if (group == 1) {
        return;
    }
    for (unsigned which = 0; which < groups(group); which++) {
        lower(q, exact, group, which, 1.0f);
        lower(q, exact, group, which, -1.0f);
    }
}

static void quantize_column(const float *w, size_t k, int group, size_t lane, uint8_t *panel) {
    float   scale = scale_of(w, k, group), inverse = scale >= FL_CPU_Q8_TINY ? 1.0f / scale : 0.0f;
    int32_t sum = 0;
    for (size_t first = 0; first < k; first += STEP) {
        float exact[STEP], q[STEP];
        for (unsigned i = 0; i < STEP; i++) {
            exact[i] = inverse > 0.0f ? w[first + i] * inverse : 0.0f;
        }
        round_step(exact, group, q);
        for (unsigned i = 0; i < STEP; i++) {
            size_t at                                          = first + i;
            panel[(at / 4 * FL_CPU_LANES + lane) * 4 + at % 4] = (uint8_t)(int8_t)q[i];
            sum += (int32_t)q[i];
        }
    }
    uint8_t *tail = panel + k * FL_CPU_LANES;
    memcpy(tail + lane * sizeof scale, &scale, sizeof scale);
    memcpy(tail + (FL_CPU_LANES + lane) * sizeof sum, &sum, sizeof sum);
}

void fl_cpu_quantize_panel(const float *columns, size_t k, int group, uint8_t *panel) {
    for (size_t lane = 0; lane < FL_CPU_LANES; lane++) {
        quantize_column(columns + lane * k, k, group, lane, panel);
    }
}
