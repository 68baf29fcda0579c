/* SPDX-License-Identifier: Apache-2.0 */
/* test_results.c - kinds of results by themselves: every head and kind has a table that resolves or says why
 * not, and whatever a result depends on changes the plan, whose bytes are the key of cached results. */
#include <criterion/criterion.h>
#include <string.h>

#include "results/result.h"

static const char          *text = "a";
static float                row[8];
static fletch_embed_options options;
static fl_stage             layer = {.kind = FL_STAGE_DENSE, .in = 8, .out = 1, .weight = row};
static fletch_request       asked;

static fl_model model_of(fl_head head) {
    fl_model model                   = {.head = head, .dimensions = 8};
    model.encoder.desc.hidden        = 8;
    model.encoder.pooling_count      = 1;
    model.label_count                = 1;
    model.late.length[FL_SIDE_QUERY] = 32;
    options                          = (fletch_embed_options)FLETCH_EMBED_OPTIONS_INIT;
    asked                            = (fletch_request)FLETCH_REQUEST_INIT;
    asked.texts                      = fletch_texts_from_strings(&text, 1);
    asked.options                    = &options;
    asked.out                        = fletch_matrix_f32(row, 1, 8);
    return model;
}

static int resolve(fl_answer *answer, const fl_model *model, fletch_error *error) {
    fl_results results = {.model = model, .dimensions = 8, .side = FL_SIDE_NONE};
    *answer            = (fl_answer){0};
    int status         = fl_answer_resolve(answer, &results, &asked, error);
    answer->of         = NULL;
    fl_answer_drop(answer);
    return status;
}

static fl_plan plan_of(const fl_model *model) {
    fl_answer    answer;
    fletch_error error = {0};
    cr_assert_eq(resolve(&answer, model, &error), FLETCH_OK, "%s", error.message);
    return answer.plan;
}

static bool equal(fl_plan a, fl_plan b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static fletch_output two[2] = {
    {.size = sizeof(fletch_output), .out = {.data = row, .rows = 1, .cols = 8, .stride = 32}},
    {.size = sizeof(fletch_output), .kind = FLETCH_KIND_TOKENS}};

Test(results, every_head_and_kind_resolves_or_says_why_not) {
    static const bool given[FL_HEAD_LATE + 1][FLETCH_KIND_SEVERAL + 1] = {
        [FL_HEAD_EMBEDDING] =
            {[FLETCH_KIND_DENSE] = true, [FLETCH_KIND_TOKENS] = true, [FLETCH_KIND_SEVERAL] = true},
        [FL_HEAD_SCORES] = {[FLETCH_KIND_SCORES] = true},
        [FL_HEAD_SPARSE] = {[FLETCH_KIND_SPARSE] = true},
        [FL_HEAD_LATE]   = {[FLETCH_KIND_TOKENS]  = true,
                            [FLETCH_KIND_SCORES]  = true,
                            [FLETCH_KIND_COLBERT] = true}};
    for (int head = 0; head <= FL_HEAD_LATE; head++)
        for (int kind = 0; kind <= FLETCH_KIND_SEVERAL; kind++) {
            fl_model     model = model_of((fl_head)head);
            fletch_error error = {0};
            fl_answer    answer;
            asked.kind = (fletch_kind)kind;
            if (kind == FLETCH_KIND_SCORES) {
                asked.query = "q";
                asked.out   = fletch_matrix_f32(row, 1, 1);
            }
            if (kind == FLETCH_KIND_SEVERAL) {
                asked.outputs      = two;
                asked.output_count = 2;
            }
            int status = resolve(&answer, &model, &error);
            cr_expect_eq(status, given[head][kind] ? FLETCH_OK : FLETCH_EUNSUPPORTED,
                         "head %d, kind %d: %d %s", head, kind, status, error.message);
            cr_expect(status < 0 || answer.ops->finish != NULL);
        }
}

Test(results, a_model_gives_its_native_kind) {
    for (int head = 0; head <= FL_HEAD_LATE; head++) {
        fl_model model = model_of((fl_head)head);
        cr_expect_not_null(fl_result_of(&model, fl_result_native(&model))->finish);
    }
}

Test(results, what_rows_depend_on_is_in_the_plan) {
    fl_model model = model_of(FL_HEAD_EMBEDDING);
    fl_plan  plain = plan_of(&model);
    cr_expect(equal(plain, plan_of(&model)));
    options.normalize = 1;
    cr_expect_not(equal(plain, plan_of(&model)));
    options.normalize  = 0;
    options.dimensions = 4;
    asked.out          = fletch_matrix_f32(row, 1, 4);
    cr_expect_not(equal(plain, plan_of(&model)));
    model           = model_of(FL_HEAD_EMBEDDING);
    asked.out.dtype = FLETCH_INT8;
    cr_expect_not(equal(plain, plan_of(&model)));
    model      = model_of(FL_HEAD_EMBEDDING);
    asked.kind = FLETCH_KIND_TOKENS;
    cr_expect_not(equal(plain, plan_of(&model)));
}

Test(results, what_sparse_weights_depend_on_is_in_the_plan) {
    fl_model model   = model_of(FL_HEAD_SPARSE);
    asked.kind       = FLETCH_KIND_SPARSE;
    fl_plan plain    = plan_of(&model);
    options.top_k    = 3;
    fl_plan heaviest = plan_of(&model);
    cr_expect_not(equal(plain, heaviest));
    options.threshold = 0.5f;
    cr_expect_not(equal(heaviest, plan_of(&model)));
}

Test(results, what_scores_depend_on_is_in_the_plan) {
    fl_model model     = model_of(FL_HEAD_SCORES);
    asked.kind         = FLETCH_KIND_SCORES;
    asked.out          = fletch_matrix_f32(row, 1, 1);
    fl_plan plain      = plan_of(&model);
    options.activation = FLETCH_ACTIVATION_SOFTMAX;
    fl_plan softmax    = plan_of(&model);
    options.activation = FLETCH_ACTIVATION_SIGMOID;
    cr_expect_not(equal(plain, softmax));
    cr_expect_not(equal(plain, plan_of(&model)));
    cr_expect_not(equal(softmax, plan_of(&model)));
}

Test(results, the_side_of_a_text_is_in_the_plan) {
    fl_model model      = model_of(FL_HEAD_LATE);
    asked.kind          = FLETCH_KIND_TOKENS;
    fl_plan plain       = plan_of(&model);
    options.prompt_name = "query";
    cr_expect_not(equal(plain, plan_of(&model)));
}

Test(results, a_layer_of_weights_makes_an_embedding_model_sparse_too) {
    fl_model model = model_of(FL_HEAD_EMBEDDING);
    model.weigher  = layer;
    asked.kind     = FLETCH_KIND_SPARSE;
    cr_expect_eq(plan_of(&model).kind, FLETCH_KIND_SPARSE);
}
