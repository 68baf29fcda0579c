/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_decoders.c - Qwen 2 and 3, Llama, EuroBERT and EmbeddingGemma as llama.cpp writes them. */
#include "model/families/gguf_names.h"

#define FL_GGUF_DECODER                                                                            \
    FL_AT("token_embd.weight", FL_SLOT_WORD), FL_GGUF_PRE_NORMS, FL_GGUF_ATTENTION, FL_GGUF_MLP
#define FL_GGUF_CAUSAL_LLAMA FL_GGUF_LLAMA("10000"), FL_GGUF_CAUSAL

const fl_gguf_arch fl_gguf_arch_qwen3 = {
    .name    = "qwen3",
    .fields  = {FL_GGUF_IS("qwen3"),
                FL_GGUF_CAUSAL_LLAMA,
                {"head_dim", "attention.key_length", NULL}},
    .tensors = {FL_GGUF_DECODER, FL_GGUF_QK_NORMS},
};

const fl_gguf_arch fl_gguf_arch_qwen2 = {
    .name    = "qwen2",
    .fields  = {FL_GGUF_IS("qwen2"),
                FL_GGUF_CAUSAL_LLAMA,
                {"head_dim", "attention.key_length", "null"}},
    .tensors = {FL_GGUF_DECODER},
};

const fl_gguf_arch fl_gguf_arch_llama = {
    .name    = "llama",
    .fields  = {FL_GGUF_IS("llama"),
                FL_GGUF_CAUSAL_LLAMA,
                {"head_dim", "attention.key_length", "null"}},
    .tensors = {FL_GGUF_DECODER},
    .turned  = true,
};

const fl_gguf_arch fl_gguf_arch_eurobert = {
    .name    = "eurobert",
    .fields  = {FL_GGUF_IS("eurobert"),
                FL_GGUF_LLAMA(NULL),
                FL_GGUF_BOTH_WAYS,
                {"head_dim", "attention.key_length", "null"}},
    .tensors = {FL_GGUF_DECODER},
};

const fl_gguf_arch fl_gguf_arch_gemma = {
    .name    = "gemma-embedding",
    .fields  = {FL_GGUF_IS("gemma3_text"),
                FL_GGUF_LLAMA(NULL),
                FL_GGUF_BOTH_WAYS,
                {"head_dim", "attention.key_length", NULL},
                {"query_pre_attn_scalar", "attention.key_length", NULL},
                {"rope_local_base_freq", "rope.freq_base_swa", "10000"},
                {"sliding_window", "attention.sliding_window", NULL},
                {"sliding_window_pattern", "attention.sliding_window_pattern", "6"},
                {"use_bidirectional_attention", NULL, "true"}},
    .tensors = {FL_GGUF_DECODER, FL_GGUF_QK_NORMS,
                FL_AT("blk.*.post_attention_norm.", FL_LAYER_ATTENTION_EXTRA_W),
                FL_AT("blk.*.post_ffw_norm.", FL_LAYER_MLP_EXTRA_W)},
    .shifted = true,
    .dense   = true,
};
