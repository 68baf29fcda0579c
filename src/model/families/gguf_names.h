/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_names.h - keys and tensor names that several architectures of GGUF share. */
#ifndef FL_MODEL_FAMILIES_GGUF_NAMES_H
#define FL_MODEL_FAMILIES_GGUF_NAMES_H

#include "model/gguf_arch.h"

#define FL_GGUF_IS(model_type)                                                                     \
    { "model_type", NULL, "\"" model_type "\"" }
#define FL_GGUF_SIZES                                                                              \
    {"hidden_size", "embedding_length", NULL}, {"num_hidden_layers", "block_count", NULL},         \
        {"num_attention_heads", "attention.head_count", NULL},                                     \
        {"intermediate_size", "feed_forward_length", NULL}, {                                      \
        "max_position_embeddings", "context_length", NULL                                          \
    }
#define FL_GGUF_LAYER_NORM                                                                         \
    { "layer_norm_eps", "attention.layer_norm_epsilon", NULL }
#define FL_GGUF_TYPES                                                                              \
    { "type_vocab_size", "tokenizer.ggml.token_type_count", NULL }
#define FL_GGUF_BOTH_WAYS                                                                          \
    { "is_decoder", "attention.causal", "false" }
/* Llama and what came of it. */
#define FL_GGUF_LLAMA(theta)                                                                       \
    FL_GGUF_SIZES, {"num_key_value_heads", "attention.head_count_kv", NULL},                       \
        {"rms_norm_eps", "attention.layer_norm_rms_epsilon", NULL}, {                              \
        "rope_theta", "rope.freq_base", theta                                                      \
    }
#define FL_GGUF_CAUSAL                                                                             \
    { "is_causal", "attention.causal", "true" }

#define FL_GGUF_EMBEDDINGS                                                                         \
    FL_AT("token_embd.weight", FL_SLOT_WORD), FL_AT("token_types.weight", FL_SLOT_TYPE),           \
        FL_AT("token_embd_norm.", FL_SLOT_EMBED_NORM_W)
#define FL_GGUF_POSITIONS FL_AT("position_embd.weight", FL_SLOT_POSITION)
/* Of several names of a tensor the first is written, all are read. */
#define FL_GGUF_APART                                                                              \
    FL_AT("blk.*.attn_q.", FL_LAYER_Q_W), FL_AT("blk.*.attn_k.", FL_LAYER_K_W),                    \
        FL_AT("blk.*.attn_v.", FL_LAYER_V_W)
#define FL_GGUF_FUSED           FL_AT("blk.*.attn_qkv.", FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_V_W)
#define FL_GGUF_OUTPUT          FL_AT("blk.*.attn_output.", FL_LAYER_O_W)
#define FL_GGUF_ATTENTION       FL_GGUF_APART, FL_GGUF_FUSED, FL_GGUF_OUTPUT
#define FL_GGUF_ATTENTION_FUSED FL_GGUF_FUSED, FL_GGUF_APART, FL_GGUF_OUTPUT
#define FL_GGUF_MLP                                                                                \
    FL_AT("blk.*.ffn_up.", FL_LAYER_UP_W), FL_AT("blk.*.ffn_gate.", FL_LAYER_GATE_W),              \
        FL_AT("blk.*.ffn_down.", FL_LAYER_DOWN_W)
#define FL_GGUF_POST_NORMS                                                                         \
    FL_AT("blk.*.attn_output_norm.", FL_LAYER_ATTENTION_NORM_W),                                   \
        FL_AT("blk.*.layer_output_norm.", FL_LAYER_MLP_NORM_W)
#define FL_GGUF_PRE_NORMS                                                                          \
    FL_AT("output_norm.", FL_SLOT_FINAL_NORM_W),                                                   \
        FL_AT("blk.*.attn_norm.", FL_LAYER_ATTENTION_NORM_W),                                      \
        FL_AT("blk.*.ffn_norm.", FL_LAYER_MLP_NORM_W)
#define FL_GGUF_QK_NORMS                                                                           \
    FL_AT("blk.*.attn_q_norm.", FL_LAYER_Q_NORM_W), FL_AT("blk.*.attn_k_norm.", FL_LAYER_K_NORM_W)

#endif
