/* SPDX-License-Identifier: Apache-2.0 */
/* test_output.c - the last steps of a row must never change: stages in order, cut, unit length,
 * packing. Expected values: numpy (float64 arithmetic rounded to float32; numpy.packbits for the
 * bits). */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "requests/open_model.h"
#include "requests/texts.h"
#include "results/row_stages.h"

static float        line_a[16], line_b[16];
static float *const line[2] = {line_a, line_b};

static fl_model model_of(uint32_t width, fl_stage *stages, uint32_t count) {
    fl_model model;
    memset(&model, 0, sizeof model);
    model.encoder.desc.hidden   = width;
    model.encoder.pooling_count = 1;
    model.stages                = stages;
    model.stage_count           = count;
    model.dimensions            = count ? stages[count - 1].out : width;
    return model;
}

static bool finish(const fl_model *model, const fl_plan *plan, const float *pooled, void *row) {
    return fl_row_stages(model, plan, pooled, fl_encoder_width(&model->encoder), line, row);
}

Test(output, unit_length_and_zero_row) {
    fl_model model  = model_of(2, NULL, 0);
    fl_plan  plan   = {.columns = 2, .normalize = true};
    float    row[2] = {3.0f, 4.0f};
    finish(&model, &plan, row, row);
    cr_assert_float_eq(row[0], 0.6f, 1e-7);
    cr_assert_float_eq(row[1], 0.8f, 1e-7);
    float zero[2] = {0.0f, 0.0f};
    finish(&model, &plan, zero, zero);
    cr_assert_eq(zero[0], 0.0f); /* sentence-transformers' floor: no NaN */
}

Test(output, cut_by_user_is_renormalised_cut_by_folder_is_not) {
    fl_stage stage  = {.kind = FL_STAGE_NORMALIZE, .in = 4, .out = 4};
    fl_model model  = model_of(4, &stage, 1);
    float    row[4] = {1.0f, 1.0f, 1.0f, 1.0f}, out[2];
    fl_plan  plan   = {.columns = 2, .normalize = true};
    finish(&model, &plan, row, out);
    cr_assert_float_eq(out[0], 0.5f, 1e-7);
    plan.renormalize = true;
    finish(&model, &plan, row, out);
    cr_assert_float_eq(out[0], 0.70710678f, 1e-7);
}

Test(output, raw_leaves_out_the_folders_normalize) {
    fl_stage stage  = {.kind = FL_STAGE_NORMALIZE, .in = 2, .out = 2};
    fl_model model  = model_of(2, &stage, 1);
    fl_plan  plan   = {.columns = 2, .raw = true};
    float    row[2] = {3.0f, 4.0f};
    finish(&model, &plan, row, row);
    cr_assert_eq(row[0], 3.0f);
    cr_assert_eq(row[1], 4.0f);
}

Test(output, a_normalize_in_front_of_another_stage_is_part_of_the_network) {
    float    weight[2] = {10.0f, 0.0f};
    fl_stage stages[3] = {{.kind = FL_STAGE_NORMALIZE, .in = 2, .out = 2},
                          {.kind = FL_STAGE_DENSE, .in = 2, .out = 1, .weight = weight},
                          {.kind = FL_STAGE_NORMALIZE, .in = 1, .out = 1}};
    fl_model model     = model_of(2, stages, 2);
    float    row[2]    = {3.0f, 4.0f}, out[1];
    fl_plan  plan      = {.columns = 1};
    finish(&model, &plan, row, out);
    cr_assert_float_eq(out[0], 6.0f, 1e-6);
    model    = model_of(2, stages, 3);
    plan.raw = true; /* only the last one is left out */
    finish(&model, &plan, row, out);
    cr_assert_float_eq(out[0], 6.0f, 1e-6);
}

Test(output, a_stage_that_makes_nan_or_infinity_is_told) {
    static const float bad[]  = {NAN, INFINITY, -INFINITY, 3e38f}; /* 3e38 + 3e38 overflows */
    float              row[2] = {1.0f, 1.0f}, out[2];
    for (size_t i = 0; i < 4; i++) {
        float    weight[4] = {1.0f, 0.0f, bad[i], bad[i]};
        fl_stage stage     = {.kind = FL_STAGE_DENSE, .in = 2, .out = 2, .weight = weight};
        fl_model model     = model_of(2, &stage, 1);
        fl_plan  plan      = {.columns = 1, .normalize = true};
        stage.activation   = FL_DENSE_IDENTITY;
        cr_expect_not(finish(&model, &plan, row, out));
        weight[2] = weight[3] = 1.0f;
        cr_expect(finish(&model, &plan, row, out));
    }
}

Test(output, dense_tanh_then_layer_norm) {
    float    weight[6] = {1, 0, 0, 1, 1, 1}, bias[3] = {0, 0, -1}, gain[3] = {1, 2, 1};
    fl_stage stages[2] = {
        {.kind       = FL_STAGE_DENSE,
         .in         = 2,
         .out        = 3,
         .weight     = weight,
         .bias       = bias,
         .activation = FL_DENSE_TANH},
        {.kind = FL_STAGE_LAYER_NORM, .in = 3, .out = 3, .weight = gain, .eps = 1e-5f}};
    fl_model model  = model_of(2, stages, 2);
    fl_plan  plan   = {.columns = 3};
    float    row[2] = {0.5f, 1.0f}, out[3];
    finish(&model, &plan, row, out);
    /* numpy: t = tanh([.5, 1, .5]); (t - t.mean()) / sqrt(t.var() + 1e-5) * [1, 2, 1] */
    cr_assert_float_eq(out[0], -0.70692945f, 2e-6);
    cr_assert_float_eq(out[1], 2.82771781f, 4e-6);
    cr_assert_float_eq(out[2], -0.70692945f, 2e-6);
}

/* pplx-embed: numpy.round(numpy.tanh(x) * 127), ties to even; int8 are these numbers, not 127 times them. */
Test(output, whole_numbers) {
    fl_stage     stage    = {.kind = FL_STAGE_WHOLE, .in = 6, .out = 6};
    fl_model     model    = model_of(6, &stage, 1);
    fl_plan      plan     = {.columns = 6};
    float        row[6]   = {0.0f, 0.5f, -0.5f, 9.0f, -9.0f, 0.01f}, out[6];
    const float  want[6]  = {0.0f, 59.0f, -59.0f, 127.0f, -127.0f, 1.0f};
    const int8_t bytes[6] = {0, 59, -59, 127, -127, 1};
    int8_t       made[6];
    finish(&model, &plan, row, out);
    cr_assert_arr_eq(out, want, sizeof want);
    plan.dtype = FLETCH_INT8;
    finish(&model, &plan, row, made);
    cr_assert_arr_eq(made, bytes, sizeof bytes);
    plan.normalize = true; /* then as any row of unit length */
    finish(&model, &plan, row, made);
    cr_assert_eq(made[3], 81); /* 127 * 127 / sqrt(59² + 59² + 127² + 127² + 1) */
}

Test(output, packed_types) {
    fl_model model  = model_of(9, NULL, 0);
    fl_plan  plan   = {.columns = 9, .dtype = FLETCH_UBINARY};
    float    row[9] = {1, -1, 0.5f, 0, -0.25f, 2, -3, 0.1f, 0.7f};
    uint8_t  bits[2];
    finish(&model, &plan, row, bits);
    cr_assert_eq(bits[0], 165); /* numpy.packbits(row > 0) */
    cr_assert_eq(bits[1], 128);
    plan.dtype = FLETCH_BINARY;
    int8_t signed_bits[2];
    finish(&model, &plan, row, signed_bits);
    cr_assert_eq(signed_bits[0], 37); /* 165 - 128 */
    cr_assert_eq(signed_bits[1], 0);
    plan.dtype = FLETCH_INT8;
    int8_t bytes[9];
    finish(&model, &plan, row, bytes);
    const int8_t expected[9] = {127, -127, 64, 0, -32, 127, -127, 13, 89};
    cr_assert_arr_eq(bytes, expected, 9);
    plan.dtype = FLETCH_UINT8;
    uint8_t unsigned_bytes[9];
    finish(&model, &plan, row, unsigned_bytes);
    cr_assert_eq(unsigned_bytes[1], 1);
    cr_assert_eq(unsigned_bytes[3], 128);
}

Test(output, in_place_only_for_whole_float_rows) {
    fl_stage      dense = {.kind = FL_STAGE_DENSE, .in = 4, .out = 4};
    fl_model      model = model_of(4, NULL, 0);
    float         data[8];
    fletch_matrix out  = fletch_matrix_f32(data, 2, 4);
    fl_plan       plan = {.columns = 4};
    cr_assert(fl_row_in_place(&model, &plan, &out));
    plan.columns = 3;
    cr_assert_not(fl_row_in_place(&model, &plan, &out));
    plan.columns = 4;
    out.stride   = 18;
    cr_assert_not(fl_row_in_place(&model, &plan, &out));
    out.stride     = 16;
    fl_model other = model_of(4, &dense, 1);
    cr_assert_not(fl_row_in_place(&other, &plan, &out));
}

Test(output, texts_of_each_form) {
    const char  *strings[2] = {"ab", "c"};
    fletch_texts texts      = fletch_texts_from_strings(strings, 2);
    const char  *text;
    size_t       size;
    fletch_error error;
    cr_assert_eq(fl_texts_at(&texts, 1, &text, &size, &error), 0);
    cr_assert_eq(size, 1);
    int64_t offsets[3] = {0, 2, 2};
    texts              = fletch_texts_from_offsets("abc", offsets, 2);
    cr_assert_eq(fl_texts_at(&texts, 0, &text, &size, &error), 0);
    cr_assert_eq(size, 2);
    offsets[2] = 1; /* the second runs backwards, and the first ends beyond the last offset */
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(fl_texts_at(&texts, i, &text, &size, &error), FLETCH_EINVAL);
        cr_assert_eq(error.where, i);
    }
}
