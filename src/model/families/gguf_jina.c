/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_jina.c - JinaBERT v2 as llama.cpp writes it: with and without norms of queries and keys, the MLP's two
 * halves in one tensor or, in older files, in two. In one tensor they lie as in the repository, where with these
 * norms the second half is the gate; llama.cpp computes with the first, so that what a file means is open. */
#include "model/families/gguf_names.h"

#define FL_GGUF_JINA                                                                               \
    FL_GGUF_IS("bert"), FL_GGUF_SIZES, FL_GGUF_LAYER_NORM, FL_GGUF_TYPES, FL_GGUF_BOTH_WAYS,       \
        {"position_embedding_type", NULL, "\"alibi\""}, {                                          \
        "feed_forward_type", NULL, "\"geglu\""                                                     \
    }
#define FL_GGUF_JINA_QK                                                                            \
    {                                                                                              \
        "auto_map", NULL,                                                                          \
            "{\"AutoModel\":\"jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel\"}"    \
    }
#define FL_GGUF_JINA_EXTRA FL_AT("blk.*.attn_norm_2.", FL_LAYER_ATTENTION_EXTRA_W)
#define FL_GGUF_DOWN       FL_AT("blk.*.ffn_down.", FL_LAYER_DOWN_W)

const fl_gguf_arch fl_gguf_arch_jina = {
    .name    = "jina-bert-v2",
    .without = "blk.0.ffn_gate.weight",
    .fields  = {FL_GGUF_JINA},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_ATTENTION, FL_GGUF_POST_NORMS, FL_GGUF_DOWN,
                FL_AT("blk.*.ffn_up.", FL_LAYER_GATE_W, FL_LAYER_UP_W)},
};

const fl_gguf_arch fl_gguf_arch_jina_split = {
    .name    = "jina-bert-v2",
    .with    = "blk.0.ffn_gate.weight",
    .fields  = {FL_GGUF_JINA},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_ATTENTION, FL_GGUF_POST_NORMS, FL_GGUF_MLP},
};

const fl_gguf_arch fl_gguf_arch_jina_qk = {
    .name    = "jina-bert-v2",
    .without = "blk.0.ffn_gate.weight",
    .with    = "blk.0.attn_q_norm.weight",
    .refusal =
        "the MLP of a JinaBERT with norms of queries and keys lies in one tensor, and llama.cpp, "
        "which wrote it, takes the other half for the gate than the model does; take the "
        "model's safetensors",
};

const fl_gguf_arch fl_gguf_arch_jina_qk_split = {
    .name    = "jina-bert-v2",
    .with    = "blk.0.attn_q_norm.weight",
    .fields  = {FL_GGUF_JINA, FL_GGUF_JINA_QK},
    .tensors = {FL_GGUF_EMBEDDINGS, FL_GGUF_ATTENTION, FL_GGUF_QK_NORMS, FL_GGUF_JINA_EXTRA,
                FL_GGUF_POST_NORMS, FL_GGUF_MLP},
};
