/* SPDX-License-Identifier: Apache-2.0 */
/* test_quant.c - panels of narrow numbers: near their weights, within the bounds that kernels rely on, and
 * honest about damage. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engines/cpu/cpu_engine.h"

enum { K = 96, LANES = FL_CPU_LANES };

static uint64_t state = 7;

static float draw(void) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (float)(state >> 40) / 8388608.0f - 1.0f;
}

typedef struct panel {
    uint8_t bytes[K * LANES + LANES * 8];
    float   scale[LANES];
    int32_t sum[LANES];
} panel;

static int weight(const panel *p, size_t k, size_t lane) {
    return (int8_t)p->bytes[(k / 4 * LANES + lane) * 4 + k % 4];
}

static void quantize(const float *columns, int group, panel *p) {
    cr_assert_eq(sizeof p->bytes, fl_cpu_narrow_panel(FL_CPU_INT8, K));
    fl_cpu_quantize_panel(columns, K, group, p->bytes);
    memcpy(p->scale, p->bytes + K * LANES, sizeof p->scale);
    memcpy(p->sum, p->bytes + K * LANES + sizeof p->scale, sizeof p->sum);
}

/* Sums over steps `a` … `d` of eight; a pair has c = d = a, counted once. */
static void check_bound(const panel *p, size_t lane, size_t first, const size_t *at, size_t count) {
    int up = 0, down = 0;
    for (size_t i = 0; i < count; i++) {
        int w = weight(p, first + at[i], lane);
        up += w > 0 ? w : 0;
        down += w < 0 ? w : 0;
    }
    cr_assert(up <= 128 && down >= -128, "column %zu, step %zu: %d and %d", lane, first, up, down);
    cr_assert(255 * up <= 32767 && 255 * down >= -32768);
}

static void check_bounds(const panel *p, int group) {
    static const size_t fours[2][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
    static const size_t pairs[4][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
    for (size_t lane = 0; lane < LANES; lane++) {
        for (size_t first = 0; first < K; first += 8) {
            for (size_t g = 0; group == 4 && g < 2; g++)
                check_bound(p, lane, first, fours[g], 4);
            for (size_t g = 0; group == 2 && g < 4; g++)
                check_bound(p, lane, first, pairs[g], 2);
        }
    }
}

static void check_near(const panel *p, const float *columns, double steps) {
    for (size_t lane = 0; lane < LANES; lane++) {
        int32_t sum = 0;
        for (size_t k = 0; k < K; k++) {
            double exact = (double)columns[k * LANES + lane], scale = (double)p->scale[lane];
            cr_assert(fabs(exact - scale * weight(p, k, lane)) <= steps * scale * 1.0001,
                      "column %zu, step %zu: %g is %d times %g", lane, k, exact, weight(p, k, lane),
                      scale);
            sum += weight(p, k, lane);
        }
        cr_assert_eq(sum, p->sum[lane]);
    }
}

static void fill(float *columns, int how) {
    for (size_t i = 0; i < K * LANES; i++) {
        float value = draw();
        columns[i]  = how == 0   ? value
                      : how == 1 ? fabsf(value)                       /* all of one sign */
                      : how == 2 ? value * value * value              /* few are large */
                      : how == 3 ? (i / LANES % 8 < 6 ? 1.0f : -1.0f) /* every group at its bound */
                                 : value * powf(10.0f, (float)(i % LANES) * 4.0f - 26.0f);
    }
}

Test(quant, weights_stay_near_and_within_the_bounds_of_their_group) {
    float columns[K * LANES];
    panel p;
    for (int group = 1; group <= 4; group *= 2) {
        for (int how = 0; how < 5; how++) {
            fill(columns, how);
            quantize(columns, group, &p);
            check_bounds(&p, group);
            /* half a step, and one or two units that a full group gives up */
            check_near(&p, columns, group == 1 ? 0.5 : 1.5);
        }
    }
}

Test(quant, the_scale_is_no_larger_than_it_must_be) {
    float columns[K * LANES];
    panel p;
    fill(columns, 0);
    quantize(columns, 1, &p);
    for (size_t lane = 0; lane < LANES; lane++) {
        int most = 0;
        for (size_t k = 0; k < K; k++)
            most = abs(weight(&p, k, lane)) > most ? abs(weight(&p, k, lane)) : most;
        cr_assert_eq(most, 127);
    }
}

Test(quant, zeros_stay_zero_and_damage_shows_in_its_column_alone) {
    float columns[K * LANES] = {0.0f};
    panel p;
    quantize(columns, 4, &p);
    for (size_t lane = 0; lane < LANES; lane++)
        cr_assert(p.sum[lane] == 0 && isfinite(p.scale[lane]));
    fill(columns, 0);
    columns[5 * LANES + 3]  = NAN;
    columns[7 * LANES + 11] = -INFINITY;
    quantize(columns, 4, &p);
    for (size_t lane = 0; lane < LANES; lane++)
        cr_assert_eq(isnan(p.scale[lane]) != 0, lane == 3 || lane == 11);
}

/* ---- int16 ----------------------------------------------------------------------------------- */

typedef struct panel16 {
    int16_t q[K / 2][LANES][2];
    float   scale[LANES];
} panel16;

/* Whatever the activations are, and in whatever order: the sums of products fit into 32 bits. */
Test(quant16, weights_stay_near_and_no_sum_of_products_can_overflow) {
    float   columns[K * LANES];
    panel16 p;
    cr_assert_eq(sizeof p, fl_cpu_narrow_panel(FL_CPU_INT16, K));
    for (int how = 0; how < 5; how++) {
        fill(columns, how);
        fl_cpu_quantize_panel16(columns, K, (uint8_t *)&p);
        for (size_t lane = 0; lane < LANES; lane++) {
            int64_t sum = 0;
            for (size_t k = 0; k < K; k++) {
                double  exact = (double)columns[k * LANES + lane], scale = (double)p.scale[lane];
                int16_t q = p.q[k / 2][lane][k % 2];
                sum += abs(q);
                cr_assert(fabs(exact - scale * q) <= 0.501 * scale, "way %d, column %zu", how,
                          lane);
            }
            cr_assert(sum * FL_CPU_Q16_MOST <= INT32_MAX, "way %d, column %zu: %ld", how, lane,
                      sum);
            cr_assert(sum >= FL_CPU_Q16_SUM / 100 * 99 - K, "steps are larger than they must be");
        }
    }
}

Test(quant16, zeros_stay_zero_and_damage_shows_in_its_column_alone) {
    float   columns[K * LANES] = {0.0f};
    panel16 p;
    fl_cpu_quantize_panel16(columns, K, (uint8_t *)&p);
    for (size_t lane = 0; lane < LANES; lane++)
        cr_assert(p.q[K / 2 - 1][lane][1] == 0 && isfinite(p.scale[lane]));
    fill(columns, 0);
    columns[5 * LANES + 3]  = NAN;
    columns[7 * LANES + 11] = -INFINITY;
    fl_cpu_quantize_panel16(columns, K, (uint8_t *)&p);
    for (size_t lane = 0; lane < LANES; lane++)
        cr_assert_eq(isnan(p.scale[lane]) != 0, lane == 3 || lane == 11);
}

/* Where vdpbf16ps takes two cycles the set without it is the faster one; by name it can still be had. */
Test(dispatch, bfloat16_at_half_speed_is_passed_over) {
    fl_cpu                cpu = {.avx2        = true,
                                 .fma         = true,
                                 .bmi2        = true,
                                 .avx_vnni    = true,
                                 .avx512f     = true,
                                 .avx512bw    = true,
                                 .avx512dq    = true,
                                 .avx512vl    = true,
                                 .avx512_vnni = true,
                                 .avx512_bf16 = true};
    const fl_cpu_kernels *kernels;
    fletch_error          error;
    if (fl_cpu_kernels_choose("avx512bf16", &cpu, &kernels, NULL, 0, &error) < 0)
        cr_skip_test("%s", error.message);
    cr_assert_eq(fl_cpu_kernels_choose("auto", &cpu, &kernels, NULL, 0, &error), FLETCH_OK);
    cr_expect_str_eq(kernels->isa, "avx512bf16");
    cpu.bf16_halved = true;
    cr_assert_eq(fl_cpu_kernels_choose("auto", &cpu, &kernels, NULL, 0, &error), FLETCH_OK);
    cr_expect_str_eq(kernels->isa, "avx512vnni");
    cr_assert_eq(fl_cpu_kernels_choose("avx512bf16", &cpu, &kernels, NULL, 0, &error), FLETCH_OK);
    cr_expect_str_eq(kernels->isa, "avx512bf16");
}
