/* SPDX-License-Identifier: Apache-2.0 */
/* bloom.c - Bloom: sgpt-bloom-7b1-msmarco, udever-bloom.
 *
 * Pre-norm with layer norms and biases, causal, ALiBi in the place of positions (transformers adds slope · key, which
 * of a causal query is as -slope · distance); q, k and v are one matrix, head by head. Of any length. */
#include "model/families/shared_names.h"

const fl_family fl_family_bloom = {
    .name        = "bloom",
    .model_types = {"bloom"},
    .prefixes    = {"transformer."},

    .by_heads = true,
    .fixed    = {FL_BIASED, .norm_place = FL_NORM_PRE, .final_norm = true,
                 .activation = FL_ACT_GELU_TANH,
                 .distance   = {{.causal = true, .bias = FL_BIAS_ALIBI}}},

    .fields = {FL_HIDDEN("hidden_size n_embed", 64), FL_LAYERS("n_layer num_hidden_layers", 2),
               FL_HEADS("n_head num_attention_heads", 8), FL_MLP("n_inner", 0),
               FL_VOCAB("vocab_size", 250880), FL_POSITIONS("seq_length", 2048),
               FL_EPS("layer_norm_epsilon", 1e-5)},
    .only   = {{"apply_residual_connection_post_layernorm", "false"}, {"n_inner", "absent"}},

    .tensors = {FL_AT("word_embeddings.weight", FL_SLOT_WORD),
                FL_AT("word_embeddings_layernorm.", FL_SLOT_EMBED_NORM_W),
                FL_AT("ln_f.", FL_SLOT_FINAL_NORM_W),
                FL_AT("h.*.input_layernorm.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("h.*.self_attention.query_key_value.", FL_LAYER_Q_W, FL_LAYER_K_W,
                      FL_LAYER_V_W),
                FL_AT("h.*.self_attention.dense.", FL_LAYER_O_W),
                FL_AT("h.*.post_attention_layernorm.", FL_LAYER_MLP_NORM_W),
                FL_AT("h.*.mlp.dense_h_to_4h.", FL_LAYER_UP_W),
                FL_AT("h.*.mlp.dense_4h_to_h.", FL_LAYER_DOWN_W)},
    .head    = FL_LAST_TOKEN_HEAD(-1),
};
