/* SPDX-License-Identifier: Apache-2.0 */
/* deberta_v1.c - DeBERTa v1: deberta-base, nli-deberta-base, USER-base, Serafim 100m.
 *
 * DeBERTa v2 with a row of the table for every distance, which is not normed; q, k and v are one matrix, head by head,
 * and no bias makes keys. Talking heads and an input with positions are refused. */
#include "model/families/shared_names.h"

const fl_family fl_family_deberta_v1 = {
    .name        = "deberta",
    .model_types = {"deberta"},
    .prefixes    = {"deberta."},

    .tokenizer_class = "DebertaTokenizer",
    .old_tokenizers  = {"DebertaTokenizer"},

    .by_heads = true,
    .fixed    = {FL_BIASED, .keys_unbiased = true, .distance = {{.bias = FL_BIAS_DISENTANGLED}}},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 50265), FL_POSITIONS("max_position_embeddings", 512),
               FL_TYPES("type_vocab_size", 0, 0), FL_EPS("layer_norm_eps", 1e-7),
               FL_ACTIVATION("hidden_act", "gelu"),
               FL_SIZE(distance[0].max_distance, "max_relative_positions", 0, -1, 65536),
               FL_WORDS("pos_att_type", "c2p|p2c")},
    .only   = {{"relative_attention", "=true"},
               {"position_biased_input", "=false"},
               {"talking_head", "false"},
               {"embedding_size", "absent"}},

    .tensors = {FL_BERT_EMBEDDINGS, FL_AT("encoder.rel_embeddings.weight", FL_SLOT_RELATIVE),
                FL_AT("encoder.layer.*.attention.self.in_proj.", FL_LAYER_Q_W, FL_LAYER_K_W,
                      FL_LAYER_V_W),
                FL_AT("encoder.layer.*.attention.self.q_bias", FL_LAYER_Q_B),
                FL_AT("encoder.layer.*.attention.self.v_bias", FL_LAYER_V_B),
                FL_AT("encoder.layer.*.attention.self.pos_proj.", FL_LAYER_RELATIVE_K_W),
                FL_AT("encoder.layer.*.attention.self.pos_q_proj.", FL_LAYER_RELATIVE_Q_W),
                FL_AT("encoder.layer.*.attention.output.dense.", FL_LAYER_O_W),
                FL_AT("encoder.layer.*.attention.output.LayerNorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_BERT_MLP},
    .head    = {.layers = {{.name           = "pooler.dense.",
                            .activation     = FL_DENSE_GELU,
                            .activation_key = "pooler_hidden_act"},
                           {.name = "classifier."}}},
};
