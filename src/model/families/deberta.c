/* SPDX-License-Identifier: Apache-2.0 */
/* deberta.c - DeBERTa v2 and v3: mxbai-rerank-v1, nli-deberta-v3, mDeBERTa.
 *
 *     x = LN(word[id])
 *     score[h, i, j] = (q_i k_j + q_i KP[r] + k_j QP[r]) / sqrt(3 d),  r the row of distance i - j
 *     KP, QP = LN(table) Wk + bk, LN(table) Wq + bq, or with projections of their own
 *
 * The rest as BERT. Rows of the table stand for single steps up to half the buckets, then for steps that grow with
 * the logarithm. The convolution of v2-xlarge is refused. */
#include "model/families/shared_names.h"

const fl_family fl_family_deberta = {
    .name        = "deberta-v2",
    .model_types = {"deberta-v2"},
    .prefixes    = {"deberta."},

    .old_tokenizers = {"DebertaV2Tokenizer"},

    .fixed = {FL_BIASED, .relative_norm = true, .distance = {{.bias = FL_BIAS_DISENTANGLED}}},

    .fields = {FL_HIDDEN("hidden_size", 1536), FL_LAYERS("num_hidden_layers", 24),
               FL_HEADS("num_attention_heads", 24), FL_HEAD_DIM("attention_head_size", 0),
               FL_MLP("intermediate_size", 6144), FL_VOCAB("vocab_size", 128100),
               FL_POSITIONS("max_position_embeddings", 512), FL_TYPES("type_vocab_size", 0, 0),
               FL_EPS("layer_norm_eps", 1e-7), FL_ACTIVATION("hidden_act", "gelu"),
               FL_SIZE(distance[0].buckets, "position_buckets", 0, -1, 65536),
               FL_SIZE(distance[0].max_distance, "max_relative_positions", 0, -1, 65536),
               FL_BOOL(relative_shared, "share_att_key", false),
               FL_WORDS("pos_att_type", "c2p|p2c")},
    .only   = {{"relative_attention", "=true"},
               {"position_biased_input", "=false"},
               {"norm_rel_ebd", "=layer_norm"},
               {"conv_kernel_size", "0"},
               {"embedding_size", "absent"}},

    .tensors = {FL_BERT_EMBEDDINGS, FL_AT("encoder.rel_embeddings.weight", FL_SLOT_RELATIVE),
                FL_AT("encoder.LayerNorm.", FL_SLOT_RELATIVE_NORM_W),
                FL_AT("encoder.layer.*.attention.self.query_proj.", FL_LAYER_Q_W),
                FL_AT("encoder.layer.*.attention.self.key_proj.", FL_LAYER_K_W),
                FL_AT("encoder.layer.*.attention.self.value_proj.", FL_LAYER_V_W),
                FL_AT("encoder.layer.*.attention.self.pos_query_proj.", FL_LAYER_RELATIVE_Q_W),
                FL_AT("encoder.layer.*.attention.self.pos_key_proj.", FL_LAYER_RELATIVE_K_W),
                FL_AT("encoder.layer.*.attention.output.dense.", FL_LAYER_O_W),
                FL_AT("encoder.layer.*.attention.output.LayerNorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_BERT_MLP},
    .head    = {.layers = {{.name           = "pooler.dense.",
                            .activation     = FL_DENSE_GELU,
                            .activation_key = "pooler_hidden_act"},
                           {.name = "classifier."}}},
};
