/* SPDX-License-Identifier: Apache-2.0 */
/* arch_mpnet.c - MPNet: all-mpnet-base-v2, multi-qa-mpnet, paraphrase-mpnet.
 *
 *     x = LN(word[id] + position[2 .. n+1])
 *     score[h, i, j] = q_i · k_j / √d + table[bucket(j - i), h], one table for all layers
 *     the rest as BERT
 *
 * Role    One entry of arch.c. In/Out: config.json -> descriptor; names of the tensors.
 * Method  Position rows 0 and 1 are never used by a token that counts (row 1 is padding), so the
 *         usable length is max_position_embeddings - 2. The buckets are T5's, both directions: 32
 *         rows, the last ones for distances of 128 and more. transformers fixes padding row 1 and
 *         32 buckets in code, whatever config.json says; another number of buckets is therefore
 *         refused.
 * Memory  none. Threads: constants. Proof: tests/golden/test_folders.py, test_vectors.py. */
#include "base/error.h"
#include "model/arch.h"

enum { PADDING_ROW = 1, FIRST_ROW = PADDING_ROW + 1, BUCKETS = 32, MAX_DISTANCE = 128 };

static void describe(fl_encoder_desc *desc, fl_json_reader *config) {
    static const fl_arch_sizes defaults = {768, 12, 12, 3072, 30527, 512};
    fl_arch_common(desc, config, &defaults);
    int64_t buckets = fl_json_int(config, "relative_attention_num_buckets", BUCKETS, 1, 1 << 16);
    if (buckets != BUCKETS)
        fl_arch_refuse(config, "relative_attention_num_buckets", "other than 32");
    if (config->status == 0 && desc->positions <= FIRST_ROW)
        config->status = fl_fail(config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: max_position_embeddings %u leaves no usable position.",
                                 config->source, desc->positions);
    desc->position           = FL_POSITION_LEARNED;
    desc->position_offset    = FIRST_ROW;
    desc->position_skips_pad = true;
    desc->pad_token          = PADDING_ROW;
    desc->positions          = desc->positions - FIRST_ROW;
    desc->norm               = FL_NORM_LAYER;
    desc->norm_place         = FL_NORM_POST;
    desc->attention_bias     = FL_BIAS_T5_BUCKETS;
    desc->bias_buckets       = BUCKETS;
    desc->bias_max_distance  = MAX_DISTANCE;
    desc->attention_mask     = FL_MASK_FULL;
    desc->mlp                = FL_MLP_PLAIN;
}

static const fl_slot_name globals[] = {
    {FL_SLOT_WORD, "embeddings.word_embeddings.weight"},
    {FL_SLOT_POSITION, "embeddings.position_embeddings.weight"},
    {FL_SLOT_EMBED_NORM_W, "embeddings.LayerNorm.weight"},
    {FL_SLOT_EMBED_NORM_B, "embeddings.LayerNorm.bias"},
    {FL_SLOT_ATTENTION_BIAS, "encoder.relative_attention_bias.weight"},
};

static const fl_slot_name layers[] = {
    {FL_LAYER_Q_W, "encoder.layer.*.attention.attn.q.weight"},
    {FL_LAYER_Q_B, "encoder.layer.*.attention.attn.q.bias"},
    {FL_LAYER_K_W, "encoder.layer.*.attention.attn.k.weight"},
    {FL_LAYER_K_B, "encoder.layer.*.attention.attn.k.bias"},
    {FL_LAYER_V_W, "encoder.layer.*.attention.attn.v.weight"},
    {FL_LAYER_V_B, "encoder.layer.*.attention.attn.v.bias"},
    {FL_LAYER_O_W, "encoder.layer.*.attention.attn.o.weight"},
    {FL_LAYER_O_B, "encoder.layer.*.attention.attn.o.bias"},
    {FL_LAYER_ATTENTION_NORM_W, "encoder.layer.*.attention.LayerNorm.weight"},
    {FL_LAYER_ATTENTION_NORM_B, "encoder.layer.*.attention.LayerNorm.bias"},
    {FL_LAYER_UP_W, "encoder.layer.*.intermediate.dense.weight"},
    {FL_LAYER_UP_B, "encoder.layer.*.intermediate.dense.bias"},
    {FL_LAYER_DOWN_W, "encoder.layer.*.output.dense.weight"},
    {FL_LAYER_DOWN_B, "encoder.layer.*.output.dense.bias"},
    {FL_LAYER_MLP_NORM_W, "encoder.layer.*.output.LayerNorm.weight"},
    {FL_LAYER_MLP_NORM_B, "encoder.layer.*.output.LayerNorm.bias"},
};

const fl_arch fl_arch_mpnet = {
    .model_type   = "mpnet",
    .prefix       = "mpnet.",
    .describe     = describe,
    .globals      = globals,
    .global_count = sizeof globals / sizeof *globals,
    .layers       = layers,
    .layer_count  = sizeof layers / sizeof *layers,
};
