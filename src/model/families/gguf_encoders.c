/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_encoders.c - BERT and ModernBERT as llama.cpp writes them.
 *
 * "bert" is RoBERTa and XLM-RoBERTa too, whose padding rows the converter cuts off, and, without token types,
 * DistilBERT. What a file does not say is what the reference computes: BERT's GELU is the exact one. */
#include "model/families/gguf_names.h"

const fl_gguf_arch fl_gguf_arch_bert = {
    .name    = "bert",
    .with    = "token_types.weight",
    .fields  = {FL_GGUF_IS("bert"), FL_GGUF_SIZES, FL_GGUF_LAYER_NORM, FL_GGUF_TYPES,
                FL_GGUF_BOTH_WAYS},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_POSITIONS, FL_GGUF_ATTENTION, FL_GGUF_MLP,
                FL_GGUF_POST_NORMS},
};

const fl_gguf_arch fl_gguf_arch_bert_untyped = {
    .name    = "bert",
    .without = "token_types.weight",
    .fields  = {FL_GGUF_IS("distilbert"),
                FL_GGUF_SIZES,
                FL_GGUF_LAYER_NORM,
                FL_GGUF_TYPES,
                FL_GGUF_BOTH_WAYS,
                {"hidden_dim", "feed_forward_length", NULL}},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_POSITIONS, FL_GGUF_ATTENTION, FL_GGUF_MLP,
                FL_GGUF_POST_NORMS},
};

const fl_gguf_arch fl_gguf_arch_modernbert = {
    .name    = "modern-bert",
    .fields  = {FL_GGUF_IS("modernbert"),
                FL_GGUF_SIZES,
                FL_GGUF_BOTH_WAYS,
                {"norm_eps", "attention.layer_norm_epsilon", NULL},
                {"hidden_activation", "hidden_activation", "\"gelu\""},
                {"global_rope_theta", "rope.freq_base", NULL},
                {"local_rope_theta", "rope.freq_base_swa", NULL},
                {"local_attention", "attention.sliding_window", NULL},
                {"global_attn_every_n_layers", "attention.sliding_window_pattern", "3"}},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_PRE_NORMS, FL_GGUF_ATTENTION_FUSED,
                FL_AT("blk.*.ffn_up.", FL_LAYER_GATE_W, FL_LAYER_UP_W),
                FL_AT("blk.*.ffn_down.", FL_LAYER_DOWN_W)},
};
