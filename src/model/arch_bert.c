/* SPDX-License-Identifier: Apache-2.0 */
/* arch_bert.c - BERT: MiniLM, bge, e5, gte, mxbai, arctic-embed and the others of that shape.
 *
 *     x = LN(word[id] + position[0 .. n-1] + type[0])
 *     per layer: x = LN(x + attention(x)); x = LN(x + down(act(up(x))))
 *
 * Role    One entry of arch.c. In/Out: config.json -> descriptor; names of the tensors.
 * Method  Layer norm after each half, eps inside the root; positions start at row 0; single texts
 *         have token type 0. The pooler is not used for embeddings.
 * Memory  none. Threads: constants. Proof: tests/golden/test_folders.py, test_vectors.py. */
#include "model/arch.h"

static void describe(fl_encoder_desc *desc, fl_json_reader *config) {
    static const fl_arch_sizes defaults = {768, 12, 12, 3072, 30522, 512};
    enum { TYPES_MAX = 65536 };
    fl_arch_common(desc, config, &defaults);
    desc->position       = FL_POSITION_LEARNED;
    desc->token_type     = true;
    desc->types          = (uint32_t)fl_json_int(config, "type_vocab_size", 2, 1, TYPES_MAX);
    desc->norm           = FL_NORM_LAYER;
    desc->norm_place     = FL_NORM_POST;
    desc->attention_bias = FL_BIAS_NONE;
    desc->attention_mask = FL_MASK_FULL;
    desc->mlp            = FL_MLP_PLAIN;
}

static const fl_slot_name globals[] = {
    {FL_SLOT_WORD, "embeddings.word_embeddings.weight"},
    {FL_SLOT_POSITION, "embeddings.position_embeddings.weight"},
    {FL_SLOT_TYPE, "embeddings.token_type_embeddings.weight"},
    {FL_SLOT_EMBED_NORM_W, "embeddings.LayerNorm.weight"},
    {FL_SLOT_EMBED_NORM_B, "embeddings.LayerNorm.bias"},
};

static const fl_slot_name layers[] = {
    {FL_LAYER_Q_W, "encoder.layer.*.attention.self.query.weight"},
    {FL_LAYER_Q_B, "encoder.layer.*.attention.self.query.bias"},
    {FL_LAYER_K_W, "encoder.layer.*.attention.self.key.weight"},
    {FL_LAYER_K_B, "encoder.layer.*.attention.self.key.bias"},
    {FL_LAYER_V_W, "encoder.layer.*.attention.self.value.weight"},
    {FL_LAYER_V_B, "encoder.layer.*.attention.self.value.bias"},
    {FL_LAYER_O_W, "encoder.layer.*.attention.output.dense.weight"},
    {FL_LAYER_O_B, "encoder.layer.*.attention.output.dense.bias"},
    {FL_LAYER_ATTENTION_NORM_W, "encoder.layer.*.attention.output.LayerNorm.weight"},
    {FL_LAYER_ATTENTION_NORM_B, "encoder.layer.*.attention.output.LayerNorm.bias"},
    {FL_LAYER_UP_W, "encoder.layer.*.intermediate.dense.weight"},
    {FL_LAYER_UP_B, "encoder.layer.*.intermediate.dense.bias"},
    {FL_LAYER_DOWN_W, "encoder.layer.*.output.dense.weight"},
    {FL_LAYER_DOWN_B, "encoder.layer.*.output.dense.bias"},
    {FL_LAYER_MLP_NORM_W, "encoder.layer.*.output.LayerNorm.weight"},
    {FL_LAYER_MLP_NORM_B, "encoder.layer.*.output.LayerNorm.bias"},
};

const fl_arch fl_arch_bert = {
    .model_type   = "bert",
    .prefix       = "bert.",
    .describe     = describe,
    .globals      = globals,
    .global_count = sizeof globals / sizeof *globals,
    .layers       = layers,
    .layer_count  = sizeof layers / sizeof *layers,
};
