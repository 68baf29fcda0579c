/* SPDX-License-Identifier: Apache-2.0 */
/* test_model.c - what must never break: each slot of the encoder holds the tensor of that name, every
 * shape is checked against config.json, modules.json becomes the right stages, and a file that lies or
 * is missing is named. Values follow from the files written here; what sentence-transformers makes of
 * such folders is in tests/golden/test_folders.py. */
#include <errno.h>

#include "base/mem.h"
#include "folder.h"
#include "model/model.h"

static void write_bert(void);
TestSuite(model, .init = write_bert, .fini = folder_drop);

enum { HIDDEN = 4, MLP = 6, VOCAB = 5, POSITIONS = 8 };

/* Each tensor counts up from its own thousand, so a slot tells which tensor it got. */
static const struct {
    const char *name;
    size_t      rows, columns;
} bert_globals[] =
    {
        {"embeddings.word_embeddings.weight", VOCAB, HIDDEN},
        {"embeddings.position_embeddings.weight", POSITIONS, HIDDEN},
        {"embeddings.token_type_embeddings.weight", 2, HIDDEN},
        {"embeddings.LayerNorm.weight", HIDDEN, 0},
        {"embeddings.LayerNorm.bias", HIDDEN, 0},
},
  bert_layer[] = {
      {"attention.self.query.weight", HIDDEN, HIDDEN},
      {"attention.self.query.bias", HIDDEN, 0},
      {"attention.self.key.weight", HIDDEN, HIDDEN},
      {"attention.self.key.bias", HIDDEN, 0},
      {"attention.self.value.weight", HIDDEN, HIDDEN},
      {"attention.self.value.bias", HIDDEN, 0},
      {"attention.output.dense.weight", HIDDEN, HIDDEN},
      {"attention.output.dense.bias", HIDDEN, 0},
      {"attention.output.LayerNorm.weight", HIDDEN, 0},
      {"attention.output.LayerNorm.bias", HIDDEN, 0},
      {"intermediate.dense.weight", MLP, HIDDEN},
      {"intermediate.dense.bias", MLP, 0},
      {"output.dense.weight", HIDDEN, MLP},
      {"output.dense.bias", HIDDEN, 0},
      {"output.LayerNorm.weight", HIDDEN, 0},
      {"output.LayerNorm.bias", HIDDEN, 0},
};
enum {
    GLOBALS   = sizeof bert_globals / sizeof *bert_globals,
    PER_LAYER = sizeof bert_layer / sizeof *bert_layer
};

static const char config_start[] =
    "{\"model_type\":\"bert\",\"hidden_size\":4,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"intermediate_size\":6,\"vocab_size\":5,"
    "\"max_position_embeddings\":8,\"layer_norm_eps\":1e-5";

/* config.json with more keys after the usual ones (",\"key\":value"); the last of two equal keys counts. */
static void write_config(const char *more) {
    char text[1024];
    snprintf(text, sizeof text, "%s%s}", config_start, more);
    folder_write("config.json", text);
}

/* `left_out` is a tensor that is not written; NULL for none. Names get `prefix`. */
static void write_weights(const char *prefix, const char *left_out) {
    tensors t;
    char    name[128];
    tensors_begin(&t);
    for (size_t i = 0; i < GLOBALS; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, bert_globals[i].name);
        if (left_out == NULL || strcmp(left_out, bert_globals[i].name) != 0)
            tensor_add_counting(&t, name, bert_globals[i].rows, bert_globals[i].columns,
                                1000 * (float)i);
    }
    for (size_t layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < PER_LAYER; i++) {
            snprintf(name, sizeof name, "%sencoder.layer.%zu.%s", prefix, layer,
                     bert_layer[i].name);
            if (left_out == NULL || strstr(name, left_out) == NULL)
                tensor_add_counting(&t, name, bert_layer[i].rows, bert_layer[i].columns,
                                    1000 * (float)(GLOBALS + layer * PER_LAYER + i));
        }
    tensor_add_counting(&t, "pooler.dense.weight", 1, 1, 0);
    tensors_end(&t, "model.safetensors");
}

static void write_modules(const char *after) {
    char text[1024];
    snprintf(
        text, sizeof text,
        "[{\"idx\":0,\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"},"
        "{\"idx\":1,\"path\":\"1_Pooling\",\"type\":\"sentence_transformers.models.Pooling\"}%s]",
        after);
    folder_write("modules.json", text);
}

static void write_bert(void) {
    folder_make();
    write_config("");
    write_weights("", NULL);
    write_modules("");
    folder_write("1_Pooling/config.json",
                 "{\"word_embedding_dimension\":4,\"pooling_mode_mean_tokens\":true}");
    folder_write("tokenizer.json", "{}");
}

static fl_model *open_with(const fl_model_options *options) {
    fl_model    *model;
    fletch_error error = {0};
    cr_assert_eq(fl_model_open(&model, folder, options, &error), 0, "%s", error.message);
    return model;
}

/* Opening fails with that code and the message holds `because`. */
static void fails(int code, const char *because) {
    fl_model    *model = (fl_model *)1;
    fletch_error error = {0};
    cr_expect_eq(fl_model_open(&model, folder, NULL, &error), code, "%s: %s", because,
                 error.message);
    cr_expect_null(model);
    cr_expect_not_null(strstr(error.message, because), "\"%s\" is not in: %s", because,
                       error.message);
    if (code == FLETCH_EMODEL)
        cr_expect_not_null(strstr(error.message, "fletch model verify"), "%s", error.message);
}

static float first_of(const fl_tensor *tensor) {
    float value = -1;
    if (tensor->data != NULL)
        fl_tensor_to_f32(tensor, 0, 1, &value);
    return value;
}

/* ---- Weights --------------------------------------------------------------------------------- */

static void check_slots(const fl_model *model) {
    static const fl_slot       globals[GLOBALS]  = {FL_SLOT_WORD, FL_SLOT_POSITION, FL_SLOT_TYPE,
                                                    FL_SLOT_EMBED_NORM_W, FL_SLOT_EMBED_NORM_B};
    static const fl_layer_slot layers[PER_LAYER] = {FL_LAYER_Q_W,
                                                    FL_LAYER_Q_B,
                                                    FL_LAYER_K_W,
                                                    FL_LAYER_K_B,
                                                    FL_LAYER_V_W,
                                                    FL_LAYER_V_B,
                                                    FL_LAYER_O_W,
                                                    FL_LAYER_O_B,
                                                    FL_LAYER_ATTENTION_NORM_W,
                                                    FL_LAYER_ATTENTION_NORM_B,
                                                    FL_LAYER_UP_W,
                                                    FL_LAYER_UP_B,
                                                    FL_LAYER_DOWN_W,
                                                    FL_LAYER_DOWN_B,
                                                    FL_LAYER_MLP_NORM_W,
                                                    FL_LAYER_MLP_NORM_B};
    for (size_t i = 0; i < GLOBALS; i++)
        cr_expect_eq(first_of(&model->encoder.global[globals[i]]), 1000 * (float)i);
    for (size_t layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < PER_LAYER; i++)
            cr_expect_eq(first_of(&model->encoder.layer[layer][layers[i]]),
                         1000 * (float)(GLOBALS + layer * PER_LAYER + i));
    cr_expect_null(model->encoder.global[FL_SLOT_ATTENTION_BIAS].data);
    cr_expect_null(model->encoder.layer[0][FL_LAYER_GATE_W].data);
}

Test(model, each_slot_holds_the_tensor_of_its_name) {
    fl_model              *model = open_with(NULL);
    const fl_encoder_desc *d     = &model->encoder.desc;
    check_slots(model);
    cr_expect_str_eq(d->architecture, "bert");
    cr_expect_eq(d->head_dim, 2);
    cr_expect_eq(d->positions, POSITIONS);
    cr_expect_eq(d->position_offset, 0);
    cr_expect_eq(d->types, 2);
    cr_expect_float_eq(d->attention_scale, 0.70710678F, 1e-7);
    cr_expect_float_eq(d->norm_eps, 1e-5F, 1e-12);
    cr_expect_eq(d->activation, FL_ACT_GELU_ERF);
    cr_expect_str_eq(model->weights_dtype, "F32");
    cr_expect_eq(model->weights_bytes, 4 * (uint64_t)(60 + 8 + 2 * (4 * 20 + 8 + 30 + 28 + 8)));
    fl_model_close(model);
}

Test(model, a_prefix_and_old_norm_names_are_known) {
    write_weights("bert.", NULL);
    fl_model *model = open_with(NULL);
    check_slots(model);
    fl_model_close(model);

    tensors t;
    tensors_begin(&t);
    tensor_add_counting(&t, "embeddings.LayerNorm.gamma", HIDDEN, 0, 1);
    tensors_end(&t, "model.safetensors");
    fails(FLETCH_EMODEL,
          "36 tensors of the bert architecture are missing: embeddings.word_embeddings.weight");
}

Test(model, missing_tensors_are_named) {
    write_weights("", "layer.1.output.dense.bias");
    fails(FLETCH_EMODEL, "encoder.layer.1.output.dense.bias");
    write_weights("", "embeddings.position_embeddings.weight");
    fails(FLETCH_EMODEL, "embeddings.position_embeddings.weight");
}

Test(model, shapes_follow_from_the_configuration) {
    write_config(",\"num_hidden_layers\":3");
    fails(FLETCH_EMODEL, "encoder.layer.2.attention.self.query.weight");
    write_config(",\"vocab_size\":6");
    fails(FLETCH_EMODEL,
          "embeddings.word_embeddings.weight has shape [5, 4] but config.json asks for [6, 4]");
    write_config(",\"max_position_embeddings\":7");
    fails(FLETCH_EMODEL, "position_embeddings");
    write_config(",\"intermediate_size\":4");
    fails(FLETCH_EMODEL, "intermediate.dense.weight");
    write_config(",\"type_vocab_size\":3");
    fails(FLETCH_EMODEL, "token_type_embeddings");
    write_config(",\"hidden_size\":8");
    fails(FLETCH_EMODEL, "but the encoder's 8");
}

Test(model, dtypes_other_than_floats_are_refused) {
    tensors t;
    tensors_begin(&t);
    tensor_add(&t, "embeddings.word_embeddings.weight", "I32", "[5, 4]", (char[80]){0}, 80);
    tensors_end(&t, "model.safetensors");
    fails(FLETCH_EUNSUPPORTED, "embeddings.word_embeddings.weight has dtype I32");
}

/* ---- Architectures --------------------------------------------------------------------------- */

Test(model, what_would_change_the_maths_is_refused_by_name) {
    static const char *const cases[][2] = {
        {",\"model_type\":\"xlnet\"", "model_type \"xlnet\""},
        {",\"hidden_act\":\"mish\"", "hidden_act \"mish\""},
        {",\"position_embedding_type\":\"relative_key_query\"", "relative_key_query"},
        {",\"is_decoder\":true", "is_decoder"},
        {",\"add_cross_attention\":true", "add_cross_attention"},
        {",\"pruned_heads\":{\"1\":[0]}", "pruned_heads"},
        {",\"quantization_config\":{}", "quantization_config"},
        {",\"auto_map\":{\"AutoConfig\":\"a/b--c.D\"}", "a/b--c.D"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config(cases[i][0]);
        fails(FLETCH_EUNSUPPORTED, cases[i][1]);
    }
    write_config(
        ",\"position_embedding_type\":\"absolute\",\"is_decoder\":false,\"pruned_heads\":{},"
        "\"chunk_size_feed_forward\":3,\"auto_map\":null");
    fl_model_close(open_with(NULL));
}

Test(model, sizes_are_bounded) {
    static const char *const cases[][2] = {
        {",\"hidden_size\":0", "hidden_size"},
        {",\"hidden_size\":1e300", "hidden_size"},
        {",\"hidden_size\":\"4\"", "hidden_size"},
        {",\"num_hidden_layers\":-1", "num_hidden_layers"},
        {",\"num_attention_heads\":3", "num_attention_heads 3"},
        {",\"intermediate_size\":4294967302", "intermediate_size"},
        {",\"layer_norm_eps\":-1e-5", "layer_norm_eps"},
        {",\"layer_norm_eps\":2", "layer_norm_eps"},
        {",\"model_type\":null", "model_type"},
        {",\"model_type\":7", "model_type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config(cases[i][0]);
        fails(FLETCH_EMODEL, cases[i][1]);
    }
}

Test(model, activations_have_their_exact_meaning) {
    static const struct {
        const char   *name;
        fl_activation activation;
    } cases[] = {{"gelu", FL_ACT_GELU_ERF},
                 {"gelu_new", FL_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", FL_ACT_GELU_TANH},
                 {"gelu_fast", FL_ACT_GELU_TANH},
                 {"silu", FL_ACT_SILU},
                 {"relu", FL_ACT_RELU},
                 {"quick_gelu", FL_ACT_QUICK_GELU}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[64];
        snprintf(more, sizeof more, ",\"hidden_act\":\"%s\"", cases[i].name);
        write_config(more);
        fl_model *model = open_with(NULL);
        cr_expect_eq(model->encoder.desc.activation, cases[i].activation, "%s", cases[i].name);
        fl_model_close(model);
    }
}

Test(model, mpnet_positions_start_behind_the_padding_row) {
    fl_model        *model;
    fletch_error     error;
    fl_model_options options = {.without_weights = true};
    write_config(",\"model_type\":\"mpnet\"");
    cr_assert_eq(fl_model_open(&model, folder, &options, &error), 0, "%s", error.message);
    const fl_encoder_desc *d = &model->encoder.desc;
    cr_expect_eq(d->positions, POSITIONS - 2);
    cr_expect_eq(d->position_offset, 2);
    cr_expect(d->position_skips_pad && d->pad_token == 1);
    cr_expect_eq(d->distance[0].bias, FL_BIAS_T5_BUCKETS);
    cr_expect(d->distance[0].buckets == 32 && d->distance[0].max_distance == 128);
    cr_expect_not(d->token_type);
    cr_expect_eq(model->max_length, POSITIONS - 2);
    fl_model_close(model);
    write_config(",\"model_type\":\"mpnet\",\"relative_attention_num_buckets\":16");
    fails(FLETCH_EUNSUPPORTED, "relative_attention_num_buckets");
    write_config(",\"model_type\":\"mpnet\",\"max_position_embeddings\":2");
    fails(FLETCH_EMODEL, "max_position_embeddings");
    write_config(",\"model_type\":\"mpnet\"");
    fails(FLETCH_EMODEL, "encoder.relative_attention_bias.weight");
}

/* ---- Modules --------------------------------------------------------------------------------- */

static void check_pooling(const char *config, const char *expected) {
    char text[256] = "";
    folder_write("1_Pooling/config.json", config);
    fl_model *model = open_with(NULL);
    for (uint32_t i = 0; i < model->encoder.pooling_count; i++) {
        strcat(text, i == 0 ? "" : " ");
        strcat(text, fl_pooling_name(model->encoder.pooling[i]));
    }
    cr_expect_str_eq(text, expected, "%s: %s", config, text);
    cr_expect_eq(model->dimensions, HIDDEN * model->encoder.pooling_count);
    cr_expect_str_eq(model->pooling_source.origin, "1_Pooling/config.json");
    fl_model_close(model);
}

Test(model, both_spellings_of_pooling_give_the_order_of_sentence_transformers) {
    check_pooling(
        "{\"pooling_mode_lasttoken\":true,\"pooling_mode_mean_tokens\":true,"
        "\"pooling_mode_weightedmean_tokens\":true,\"pooling_mode_mean_sqrt_len_tokens\":true,"
        "\"pooling_mode_max_tokens\":true,\"pooling_mode_cls_token\":true}",
        "cls max mean mean_sqrt_len weightedmean lasttoken");
    check_pooling("{\"pooling_mode_mean_tokens\":false}", "mean");
    check_pooling("{\"pooling_mode\":\"weightedmean\",\"pooling_mode_cls_token\":true}",
                  "weightedmean");
    check_pooling(
        "{\"pooling_mode\":[\"mean\",\"mean_sqrt_len_tokens\",\"cls\"],\"embedding_dimension\":4}",
        "mean mean_sqrt_len cls");
}

Test(model, pooling_that_is_not_known_is_refused) {
    folder_write("1_Pooling/config.json", "{\"pooling_mode\":\"attention\"}");
    fails(FLETCH_EUNSUPPORTED, "\"attention\"");
    folder_write("1_Pooling/config.json", "{\"pooling_mode_other_tokens\":true}");
    fails(FLETCH_EUNSUPPORTED, "pooling_mode_other_tokens");
    folder_write("1_Pooling/config.json", "{\"pooling_mode\":7}");
    fails(FLETCH_EMODEL, "pooling_mode");
    folder_write("1_Pooling/config.json", "{\"pooling_mode_mean_tokens\":\"yes\"}");
    fails(FLETCH_EMODEL, "pooling_mode_mean_tokens");
    folder_write("1_Pooling/config.json", "{\"word_embedding_dimension\":5}");
    fails(FLETCH_EMODEL, "5 dimensions");
    cr_assert_eq(remove(folder_path("1_Pooling/config.json")), 0);
    fails(FLETCH_EMODEL, "1_Pooling/config.json is missing");
}

Test(model, the_callers_pooling_wins) {
    fl_model_options options = {.pooling = "cls,max"};
    fl_model        *model   = open_with(&options);
    fletch_error     error;
    cr_expect(model->encoder.pooling_count == 2 && model->encoder.pooling[0] == FL_POOL_CLS &&
              model->encoder.pooling[1] == FL_POOL_MAX);
    cr_expect_str_eq(model->pooling_source.origin, "model.pooling");
    cr_expect_eq(model->dimensions, 2 * HIDDEN);
    fl_model_close(model);
    options.pooling = "middle";
    cr_expect_eq(fl_model_open(&model, folder, &options, &error), FLETCH_EUNSUPPORTED);
}

static void write_dense(size_t in, size_t out, const char *more) {
    tensors t;
    char    text[512];
    snprintf(text, sizeof text, "{\"in_features\":%zu,\"out_features\":%zu%s}", in, out, more);
    folder_write("2_Dense/config.json", text);
    tensors_begin(&t);
    tensor_add_counting(&t, "linear.weight", 3, 4, 10);
    tensor_add_counting(&t, "linear.bias", 3, 0, 90);
    tensors_end(&t, "2_Dense/model.safetensors");
    write_modules(",{\"path\":\"2_Dense\",\"type\":\"sentence_transformers.models.Dense\"},"
                  "{\"path\":\"3\",\"type\":\"sentence_transformers.models.Dropout\"},"
                  "{\"path\":\"4_Normalize\",\"type\":\"sentence_transformers.base.modules."
                  "normalize.Normalize\"}");
}

Test(model, modules_become_stages_in_their_order) {
    write_dense(4, 3, ",\"activation_function\":\"torch.nn.modules.activation.Sigmoid\"");
    fl_model *model = open_with(NULL);
    cr_assert_eq(model->stage_count, 2);
    cr_expect(model->stages[0].kind == FL_STAGE_DENSE && model->stages[0].in == 4 &&
              model->stages[0].out == 3);
    cr_expect(model->stages[0].weight[11] == 21 && model->stages[0].bias[2] == 92);
    cr_expect_eq(model->stages[0].activation, FL_DENSE_SIGMOID);
    cr_expect(model->stages[1].kind == FL_STAGE_NORMALIZE && model->stages[1].in == 3);
    cr_expect(model->normalize && model->dimensions == 3);
    cr_expect_str_eq(model->normalize_source.origin, "modules.json (4_Normalize)");
    fl_model_close(model);
    write_dense(4, 3, ",\"bias\":false");
    model = open_with(NULL);
    cr_expect_null(model->stages[0].bias);
    cr_expect_eq(model->stages[0].activation, FL_DENSE_TANH);
    fl_model_close(model);
}

Test(model, a_dense_layer_that_does_not_fit_is_refused) {
    write_dense(5, 3, "");
    fails(FLETCH_EMODEL, "takes 5 dimensions");
    write_dense(4, 2, "");
    fails(FLETCH_EMODEL, "linear.weight");
    write_dense(4, 70000, "");
    fails(FLETCH_EMODEL, "out_features");
    write_dense(4, 3, ",\"activation_function\":\"torch.nn.modules.activation.Mish\"");
    fails(FLETCH_EUNSUPPORTED, "Mish");
    write_dense(4, 3, ",\"activation_function\":\"mine.Tanh\"");
    fails(FLETCH_EUNSUPPORTED, "mine.Tanh");
    write_dense(4, 3, ",\"activation_function\":\"torch.nn.\"");
    fails(FLETCH_EUNSUPPORTED, "torch.nn.");
    write_dense(4, 3, ",\"use_residual\":true");
    fails(FLETCH_EMODEL, "residual.weight");
    write_dense(4, 3, ",\"module_input_name\":\"token_embeddings\"");
    fails(FLETCH_EUNSUPPORTED, "token_embeddings");
    write_dense(4, 3, "");
    cr_assert_eq(
        rename(folder_path("2_Dense/model.safetensors"), folder_path("2_Dense/pytorch_model.bin")),
        0);
    fails(FLETCH_EUNSUPPORTED, "torch.save");
}

Test(model, modules_that_are_not_known_are_refused_by_name) {
    static const char *const cases[][2] = {
        {",{\"path\":\"2\",\"type\":\"sentence_transformers.models.LSTM\"}", "models.LSTM"},
        {",{\"path\":\"2\",\"type\":\"sentence_transformers.models.Pooling\"}", "models.Pooling"},
        {",{\"path\":\"2\",\"type\":\"custom_st.Normalize\"}", "custom_st.Normalize"},
        {",{\"path\":\"2\",\"type\":\"Normalize\"}", "\"Normalize\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_modules(cases[i][0]);
        fails(FLETCH_EUNSUPPORTED, cases[i][1]);
    }
    write_modules(",{\"path\":\"../2\",\"type\":\"sentence_transformers.models.Normalize\"}");
    fails(FLETCH_EMODEL, "leaves the folder");
    write_modules(",{\"path\":\"2\"}");
    fails(FLETCH_EMODEL, "has no type");
    write_modules(",7");
    fails(FLETCH_EMODEL, "modules.json");
    folder_write("modules.json", "[]");
    fails(FLETCH_EMODEL, "modules.json");
    folder_write("modules.json",
                 "[{\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"}]");
    fails(FLETCH_EUNSUPPORTED, "Pooling");
}

/* ---- Lengths, prompts, tokenizer ------------------------------------------------------------- */

static void check_length(const char *sentence, const char *tokenizer, uint32_t expected,
                         const char *origin) {
    folder_write("sentence_bert_config.json", sentence);
    folder_write("tokenizer_config.json", tokenizer);
    fl_model *model = open_with(NULL);
    cr_expect_eq(model->max_length, expected, "%s %s: %u", sentence, tokenizer, model->max_length);
    cr_expect_not_null(strstr(model->max_length_source.origin, origin), "%s",
                       model->max_length_source.origin);
    fl_model_close(model);
}

Test(model, the_length_is_the_folders_within_the_positions) {
    check_length("{\"max_seq_length\":6}", "{\"model_max_length\":4}", 6,
                 "sentence_bert_config.json");
    check_length("{\"max_seq_length\":600}", "{\"model_max_length\":4}", POSITIONS, "config.json");
    check_length("{\"max_seq_length\":null}", "{\"model_max_length\":4}", 4,
                 "tokenizer_config.json");
    check_length("{}", "{\"model_max_length\":1000000000000000019884624838656}", POSITIONS,
                 "config.json");
    check_length("{}", "{\"model_max_length\":1e30}", POSITIONS, "config.json");
    check_length("{}", "{}", POSITIONS, "config.json");
    check_length("{\"max_seq_length\":6,\"tokenizer_args\":{\"model_max_length\":5}}", "{}", 5,
                 "sentence_bert");
    folder_write("sentence_roberta_config.json", "{\"max_seq_length\":3}");
    check_length("{}", "{}", 3, "sentence_roberta_config.json");
    folder_write("sentence_bert_config.json", "{\"max_seq_length\":0}");
    fails(FLETCH_EMODEL, "max_seq_length");
    folder_write("sentence_bert_config.json", "{\"config_kwargs\":{\"num_hidden_layers\":1}}");
    fails(FLETCH_EUNSUPPORTED, "num_hidden_layers");
}

static void note_warning(void *user, int level, const char *message) {
    if (level == FL_LOG_WARNING && strstr(message, "mean pooling") != NULL)
        ++*(int *)user;
}

Test(model, without_modules_it_is_mean_pooling_and_a_warning) {
    int              warnings = 0;
    fl_log           log      = {.fn = note_warning, .user = &warnings};
    fl_model_options options  = {.log = &log};
    cr_assert_eq(remove(folder_path("modules.json")), 0);
    folder_write("sentence_bert_config.json", "{\"max_seq_length\":3}");
    folder_write("config_sentence_transformers.json", "{\"prompts\":{\"a\":\"b\"}}");
    fl_model *model = open_with(&options);
    cr_expect_eq(warnings, 1);
    cr_expect(model->encoder.pooling_count == 1 && model->encoder.pooling[0] == FL_POOL_MEAN);
    cr_expect(!model->normalize && model->stage_count == 0 && model->prompt_count == 0);
    cr_expect_eq(model->max_length, POSITIONS,
                 "sentence-transformers reads no file of its own then");
    cr_expect(model->include_prompt);
    fl_model_close(model);
}

Test(model, prompts_are_read_and_checked) {
    folder_write(
        "config_sentence_transformers.json",
        "{\"prompts\":{\"query\":\"find: \",\"document\":null},\"default_prompt_name\":\"query\","
        "\"similarity_fn_name\":\"dot\",\"truncate_dim\":2}");
    fl_model *model = open_with(NULL);
    cr_assert_eq(model->prompt_count, 2);
    cr_expect_str_eq(model->prompts[0].name, "query");
    cr_expect_str_eq(model->prompts[0].text, "find: ");
    cr_expect_str_eq(model->prompts[1].text, "");
    cr_expect_str_eq(model->default_prompt_name, "query");
    cr_expect_str_eq(model->similarity, "dot");
    cr_expect_eq(model->truncate_dim, 2);
    fl_model_close(model);
    folder_write("config_sentence_transformers.json",
                 "{\"prompts\":{\"a\":\"b\"},\"default_prompt_name\":\"c\"}");
    fails(FLETCH_EMODEL, "default_prompt_name \"c\"");
    folder_write("config_sentence_transformers.json", "{\"prompts\":{\"a\":3}}");
    fails(FLETCH_EMODEL, "\"a\"");
    folder_write("config_sentence_transformers.json", "{\"model_type\":\"SparseEncoder\"}");
    fails(FLETCH_EUNSUPPORTED, "SparseEncoder");
}

Test(model, a_broken_link_is_damage_not_a_file_left_out) {
    static const char *const files[] = {"sentence_bert_config.json",
                                        "tokenizer_config.json",
                                        "config_sentence_transformers.json",
                                        "modules.json",
                                        "tokenizer.json",
                                        "model.safetensors"};
    folder_write("vocab.txt", "[PAD]\n");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)rename(folder_path(files[i]), folder_path("kept"));
        if (symlink("../blobs/gone", folder_path(files[i])) != 0 && errno == EPERM)
            cr_skip_test("this system makes no links");
        fails(FLETCH_EMODEL, files[i]);
        fails(FLETCH_EMODEL, "dangling symbolic link");
        cr_assert_eq(remove(folder_path(files[i])), 0);
        (void)rename(folder_path("kept"), folder_path(files[i]));
    }
    fl_model_close(open_with(NULL));
}

Test(model, a_file_of_absurd_size_is_damage) {
    FILE *file = fopen(folder_path("config.json"), "w");
    cr_assert_not_null(file);
    cr_assert_eq(ftruncate(fileno(file), (off_t)1 << 32), 0);
    fclose(file);
    fails(FLETCH_EMODEL, "larger than");
}

Test(model, a_vocabulary_alone_is_enough_for_bert) {
    cr_assert_eq(remove(folder_path("tokenizer.json")), 0);
    fails(FLETCH_EMODEL, "neither tokenizer.json nor vocab.txt");
    folder_write("sentencepiece.bpe.model", "x");
    fails(FLETCH_EUNSUPPORTED, "has sentencepiece.bpe.model and no tokenizer.json. Write it once");
    folder_write("vocab.txt", "[PAD]\n");
    folder_write("tokenizer_config.json", "{\"do_lower_case\":false,\"strip_accents\":null}");
    fl_model *model = open_with(NULL);
    cr_expect(model->tokenizer_is_vocab && strstr(model->tokenizer_path, "vocab.txt") != NULL);
    cr_expect(!model->bert_lowercase && !model->bert_strip_accents && model->bert_chinese_chars);
    fl_model_close(model);
    folder_write("tokenizer_config.json", "{\"tokenizer_class\":\"BertJapaneseTokenizer\"}");
    fails(FLETCH_EUNSUPPORTED, "BertJapaneseTokenizer");
}

Test(model, a_tokenizer_needs_no_weights_and_no_known_architecture) {
    fl_model_options options = {.without_weights = true};
    cr_assert_eq(remove(folder_path("model.safetensors")), 0);
    write_config(",\"model_type\":\"xlnet\"");
    folder_write("sentence_bert_config.json", "{\"max_seq_length\":300,\"do_lower_case\":true}");
    fl_model *model = open_with(&options);
    cr_expect(model->max_length == 300 && model->lowercase);
    fl_model_close(model);
    cr_assert_eq(remove(folder_path("config.json")), 0);
    fl_model_close(open_with(&options));
    fails(FLETCH_EMODEL, "config.json is missing");
}

Test(model, a_transformer_may_live_in_a_subfolder) {
    static const char *const moved[] = {"config.json", "model.safetensors", "tokenizer.json"};
    for (size_t i = 0; i < 3; i++) {
        char to[64];
        snprintf(to, sizeof to, "0_Transformer/%s", moved[i]);
        cr_assert_eq(rename(folder_path(moved[i]), folder_path(to)), 0);
    }
    folder_write("modules.json", "[{\"path\":\"0_Transformer\",\"type\":\"sentence_transformers."
                                 "base.modules.transformer.Transformer\"},"
                                 "{\"path\":\"1_Pooling\",\"type\":\"sentence_transformers."
                                 "sentence_transformer.modules.pooling.Pooling\"}]");
    fl_model *model = open_with(NULL);
    check_slots(model);
    fl_model_close(model);
}

Test(model, each_allocation_may_fail) {
    fletch_error error;
    tensors      t;
    write_dense(4, 3, "");
    write_config(",\"tokenizer_class\":\"BertTokenizer\"");
    folder_write("config_sentence_transformers.json", "{\"prompts\":{\"a\":\"b\"}}");
    tensors_begin(&t);
    tensor_add_counting(&t, "weight", 1, 4, 10);
    tensor_add_counting(&t, "bias", 1, 0, 90);
    tensors_end(&t, "sparse_linear.safetensors");
    for (uint64_t n = 1;; n++) {
        fl_model *model;
        uint64_t  before = fl_alloc_count();
        fl_alloc_fail_after(n);
        int status = fl_model_open(&model, folder, NULL, &error);
        fl_alloc_fail_after(0);
        if (status == 0) {
            bool whole = model->model_type && model->config_class && model->weigher.weight;
            cr_assert(whole, "allocation %d", (int)n); /* what need not be had is no failure */
            fl_model_close(model);
            if (fl_alloc_count() - before < n)
                break;
            continue;
        }
        cr_assert_eq(status, FLETCH_ENOMEM, "allocation %d: %s", (int)n, error.message);
        cr_assert_null(model);
        cr_assert_lt(n, 1000);
    }
}

Test(model, a_folder_that_is_none_is_not_found) {
    fl_model    *model;
    fletch_error error;
    cr_expect_eq(fl_model_open(&model, "/no/such/folder", NULL, &error), FLETCH_ENOTFOUND);
    cr_expect_null(model);
    fl_model_close(NULL);
}
