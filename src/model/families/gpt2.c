/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c - GPT-2 and classifiers made from it.
 *
 * Pre-norm with layer norms and biases, learnt positions, causal; q, k and v are one matrix. */
#include "model/families/shared_names.h"

const fl_family fl_family_gpt2 = {
    .name        = "gpt2",
    .model_types = {"gpt2"},
    .prefixes    = {"transformer."},

    .tokenizer_class = "GPT2Tokenizer",

    .across = true,
    .fixed  = {FL_CLIP_FIXED, .distance = {{.causal = true}}},

    .fields = {FL_HIDDEN("n_embd hidden_size", 768), FL_LAYERS("n_layer num_hidden_layers", 12),
               FL_HEADS("n_head num_attention_heads", 12), FL_MLP("n_inner", 0),
               FL_VOCAB("vocab_size", 50257),
               FL_POSITIONS("n_positions max_position_embeddings", 1024),
               FL_EPS("layer_norm_epsilon", 1e-5),
               FL_ACTIVATION("activation_function", "gelu_new")},
    .only   = {{"scale_attn_weights", "true"},
               {"scale_attn_by_inverse_layer_idx", "false"},
               {"add_cross_attention", "false"},
               {"is_causal", "true"}},

    .tensors = {FL_AT("wte.weight", FL_SLOT_WORD), FL_AT("wpe.weight", FL_SLOT_POSITION),
                FL_AT("ln_f.", FL_SLOT_FINAL_NORM_W), FL_AT("h.*.ln_1.", FL_LAYER_ATTENTION_NORM_W),
                FL_AT("h.*.attn.c_attn.", FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_V_W),
                FL_AT("h.*.attn.c_proj.", FL_LAYER_O_W), FL_AT("h.*.ln_2.", FL_LAYER_MLP_NORM_W),
                FL_AT("h.*.mlp.c_fc.", FL_LAYER_UP_W), FL_AT("h.*.mlp.c_proj.", FL_LAYER_DOWN_W)},
    .head    = FL_LAST_TOKEN_HEAD(-1),
};
