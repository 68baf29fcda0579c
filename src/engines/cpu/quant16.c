/* SPDX-License-Identifier: Apache-2.0 */
/* quant16.c - sixteen columns of weights become one panel of 16-bit numbers.
 *
 * Role     pack.c hands over every panel of precision=int16 and bf16; kernels.h says what a panel is.
 * int16    Symmetric, one scale a column: q = rint(w / scale). Activations are at most FL_CPU_Q16_MOST
 *          in size, so a sum of products stays within 32 bits, in whatever order it is formed, when
 *          the column's sum of |q| is at most FL_CPU_Q16_SUM. The scale is the smallest that keeps
 *          that with every weight rounded away from zero, and every |q| within 16 bits. A column of
 *          384 weights like those of trained models reaches some 4,000 at its largest: 13 bits.
 * bf16     To the nearest, ties to even.
 * Damage   A column that holds NaN or infinity gets scale NaN (bf16: NaN or infinity): its
 *          products show it.
 * Memory   Nothing of its own. Threads: any. Proof: tests/unit/test_quant.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "engines/cpu/cpu_engine.h"

enum { LANES = FL_CPU_LANES };

static void find_scales(const float *columns, size_t k, float *scale) {
    double sum[LANES]  = {0.0};
    float  most[LANES] = {0.0f};
    int    bad[LANES]  = {0};
    for (size_t i = 0; i < k; i++) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            float size = fabsf(columns[i * LANES + lane]);
            bad[lane] |= !(size <= FLT_MAX);
            most[lane] = size > most[lane] ? size : most[lane];
            sum[lane] += (double)size;
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        double one = (double)most[lane] / (INT16_MAX - 1);
        double all =
            sum[lane] / (double)(FL_CPU_Q16_SUM - k); /* rounding adds one a step at most */
        scale[lane] = bad[lane] ? NAN : (float)(one > all ? one : all);
    }
}

void fl_cpu_quantize_panel16(const float *columns, size_t k, uint8_t *panel) {
    float scale[LANES], inverse[LANES];
    find_scales(columns, k, scale);
    for (unsigned lane = 0; lane < LANES; lane++)
        inverse[lane] = scale[lane] >= FLT_MIN ? 1.0f / scale[lane] : 0.0f;
    for (size_t i = 0; i < k; i++) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            float   exact = inverse[lane] > 0.0f ? columns[i * LANES + lane] * inverse[lane] : 0.0f;
            int16_t q     = (int16_t)(exact + copysignf(0.5f, exact));
            memcpy(panel + ((i / 2 * LANES + lane) * 2 + i % 2) * sizeof q, &q, sizeof q);
        }
    }
    memcpy(panel + k * LANES * sizeof(int16_t), scale, sizeof scale);
}

void fl_cpu_round_panel16(const float *columns, size_t k, uint8_t *panel) {
    for (size_t i = 0; i < k * LANES; i++) {
        size_t   lane = i % LANES, step = i / LANES;
        uint16_t half = fl_bfloat16_of(columns[i]);
        memcpy(panel + ((step / 2 * LANES + lane) * 2 + step % 2) * sizeof half, &half,
               sizeof half);
    }
}
