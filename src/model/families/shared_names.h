/* SPDX-License-Identifier: Apache-2.0 */
/* shared_names.h - switches, fields and tensor names that several families share. */
#ifndef FL_MODEL_FAMILIES_SHARED_NAMES_H
#define FL_MODEL_FAMILIES_SHARED_NAMES_H

#include "model/family.h"

/* Post-norm with biases everywhere; BERT has learned positions besides. */
#define FL_BIASED                                                                                  \
    .embed_norm = true, .qkv_bias = true, .out_bias = true, .up_bias = true, .down_bias = true,    \
    .norm_bias = true, .mlm_bias = true, .mlm_decoder_bias = true
#define FL_BERT_FIXED .position = FL_POSITION_LEARNED, FL_BIASED
#define FL_LLAMA_FIXED                                                                             \
    .norm = FL_NORM_RMS, .norm_place = FL_NORM_PRE, .final_norm = true, .mlp = FL_MLP_GLU

#define FL_BERT_FIELDS                                                                             \
    FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),                             \
        FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),                    \
        FL_VOCAB("vocab_size", 30522), FL_POSITIONS("max_position_embeddings", 512),               \
        FL_TYPES("type_vocab_size", 2, 1), FL_EPS("layer_norm_eps", 1e-12),                        \
        FL_ACTIVATION("hidden_act", "gelu"), FL_MLM_ACTIVATION("hidden_act"), FL_MLM_TIED
#define FL_BERT_EMBEDDINGS                                                                         \
    FL_AT("embeddings.word_embeddings.weight", FL_SLOT_WORD),                                      \
        FL_AT("embeddings.token_type_embeddings.weight", FL_SLOT_TYPE),                            \
        FL_AT("embeddings.LayerNorm.", FL_SLOT_EMBED_NORM_W)
#define FL_BERT_POSITIONS FL_AT("embeddings.position_embeddings.weight", FL_SLOT_POSITION)
#define FL_BERT_HEADS                                                                              \
    FL_AT("encoder.layer.*.attention.self.query.", FL_LAYER_Q_W),                                  \
        FL_AT("encoder.layer.*.attention.self.key.", FL_LAYER_K_W),                                \
        FL_AT("encoder.layer.*.attention.self.value.", FL_LAYER_V_W),                              \
        FL_AT("encoder.layer.*.attention.output.dense.", FL_LAYER_O_W)
#define FL_BERT_ATTENTION                                                                          \
    FL_BERT_HEADS, FL_AT("encoder.layer.*.attention.output.LayerNorm.", FL_LAYER_ATTENTION_NORM_W)
#define FL_BERT_MLP                                                                                \
    FL_AT("encoder.layer.*.intermediate.dense.", FL_LAYER_UP_W),                                   \
        FL_AT("encoder.layer.*.output.dense.", FL_LAYER_DOWN_W),                                   \
        FL_AT("encoder.layer.*.output.LayerNorm.", FL_LAYER_MLP_NORM_W)

/* Of both, in the order in which wrong ones are told; what differs are the defaults. */
#define FL_DECODER_FIELDS(kv_heads, head_dim, mlp, vocab, positions)                               \
    FL_HIDDEN("hidden_size", 4096), FL_LAYERS("num_hidden_layers", 32),                            \
        FL_HEADS("num_attention_heads", 32), FL_KV_HEADS("num_key_value_heads", kv_heads),         \
        FL_HEAD_DIM("head_dim", head_dim), FL_MLP("intermediate_size", mlp),                       \
        FL_VOCAB("vocab_size", vocab), FL_POSITIONS("max_position_embeddings", positions),         \
        FL_EPS("rms_norm_eps", 1e-6), FL_ACTIVATION("hidden_act", "silu"),                         \
        FL_ATTENTION_BIASES("attention_bias")
#define FL_LLAMA_FIELDS FL_DECODER_FIELDS(0, 0, 11008, 32000, 2048), FL_MLP_BIASES("mlp_bias")
#define FL_QWEN3_FIELDS FL_DECODER_FIELDS(32, 128, 22016, 151936, 32768)
#define FL_EUROBERT_FIELDS                                                                         \
    FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),                             \
        FL_HEADS("num_attention_heads", 12), FL_KV_HEADS("num_key_value_heads", 0),                \
        FL_HEAD_DIM("head_dim", 0), FL_MLP("intermediate_size", 3072),                             \
        FL_VOCAB("vocab_size", 128256), FL_POSITIONS("max_position_embeddings", 8192),             \
        FL_EPS("rms_norm_eps", 1e-5), FL_ACTIVATION("hidden_act", "silu"),                         \
        FL_ATTENTION_BIASES("attention_bias"), FL_MLP_BIASES("mlp_bias")
/* JinaBERT: post-norm, ALiBi instead of positions, a gated MLP. */
#define FL_JINA_FIXED                                                                              \
    .embed_norm = true, .qkv_bias = true, .out_bias = true, .down_bias = true, .norm_bias = true,  \
    .mlp = FL_MLP_GLU, .distance = {{.bias = FL_BIAS_ALIBI}}
/* Jina v5: a network of transformers', an adapter of peft's for each task, and the last token. */
#define FL_JINA5                                                                                   \
    .model_types = {"jina_embeddings_v5"}, .prefixes = {"model."},                                 \
    .module = "custom_st.Transformer", .own_pooling = "lasttoken",                                 \
    .tasks = {.names = "task_names", .folder = "adapters"}
#define FL_LLAMA_ATTENTION                                                                         \
    FL_AT("embed_tokens.weight", FL_SLOT_WORD), FL_AT("norm.", FL_SLOT_FINAL_NORM_W),              \
        FL_AT("layers.*.input_layernorm.", FL_LAYER_ATTENTION_NORM_W),                             \
        FL_AT("layers.*.self_attn.q_proj.", FL_LAYER_Q_W),                                         \
        FL_AT("layers.*.self_attn.k_proj.", FL_LAYER_K_W),                                         \
        FL_AT("layers.*.self_attn.v_proj.", FL_LAYER_V_W),                                         \
        FL_AT("layers.*.self_attn.o_proj.", FL_LAYER_O_W)
#define FL_LLAMA_QK_NORM                                                                           \
    FL_AT("layers.*.self_attn.q_norm.", FL_LAYER_Q_NORM_W),                                        \
        FL_AT("layers.*.self_attn.k_norm.", FL_LAYER_K_NORM_W)
#define FL_LLAMA_MLP                                                                               \
    FL_AT("layers.*.mlp.gate_proj.", FL_LAYER_GATE_W),                                             \
        FL_AT("layers.*.mlp.up_proj.", FL_LAYER_UP_W),                                             \
        FL_AT("layers.*.mlp.down_proj.", FL_LAYER_DOWN_W)
#define FL_LLAMA_NORM FL_AT("layers.*.post_attention_layernorm.", FL_LAYER_MLP_NORM_W)

/* T5 and UMT5: defaults of layers, heads, the MLP's width and word, and the vocabulary. */
#define FL_T5_FIXED                                                                                \
    .norm = FL_NORM_RMS, .norm_place = FL_NORM_PRE, .final_norm = true, .attention_scale = 1,      \
    .distance = {{.bias = FL_BIAS_T5_BUCKETS}}
#define FL_T5_FIELDS(layers, heads, mlp, vocab, word)                                              \
    FL_HIDDEN("d_model hidden_size", 512), FL_LAYERS("num_layers num_hidden_layers", layers),      \
        FL_HEADS("num_heads num_attention_heads", heads), FL_HEAD_DIM("d_kv", 64),                 \
        FL_MLP("d_ff", mlp), FL_VOCAB("vocab_size", vocab),                                        \
        FL_POSITIONS("max_position_embeddings", 512), FL_EPS("layer_norm_epsilon", 1e-6),          \
        FL_SIZE(distance[0].buckets, "relative_attention_num_buckets", 32, 4, 4096),               \
        FL_SIZE(distance[0].max_distance, "relative_attention_max_distance", 128, 2, 65536),       \
        FL_GATED_WORD("feed_forward_proj", word)
#define FL_T5_TENSORS                                                                              \
    FL_AT("shared.weight", FL_SLOT_WORD), FL_AT("encoder.embed_tokens.weight", FL_SLOT_WORD),      \
        FL_AT("encoder.final_layer_norm.", FL_SLOT_FINAL_NORM_W),                                  \
        FL_AT("encoder.block.*.layer.0.layer_norm.", FL_LAYER_ATTENTION_NORM_W),                   \
        FL_AT("encoder.block.*.layer.0.SelfAttention.q.", FL_LAYER_Q_W),                           \
        FL_AT("encoder.block.*.layer.0.SelfAttention.k.", FL_LAYER_K_W),                           \
        FL_AT("encoder.block.*.layer.0.SelfAttention.v.", FL_LAYER_V_W),                           \
        FL_AT("encoder.block.*.layer.0.SelfAttention.o.", FL_LAYER_O_W),                           \
        FL_AT("encoder.block.*.layer.1.layer_norm.", FL_LAYER_MLP_NORM_W),                         \
        FL_AT("encoder.block.*.layer.1.DenseReluDense.wi.", FL_LAYER_UP_W),                        \
        FL_AT("encoder.block.*.layer.1.DenseReluDense.wi_0.", FL_LAYER_GATE_W),                    \
        FL_AT("encoder.block.*.layer.1.DenseReluDense.wi_1.", FL_LAYER_UP_W),                      \
        FL_AT("encoder.block.*.layer.1.DenseReluDense.wo.", FL_LAYER_DOWN_W)

/* NomicBERT with and without experts: GPT-2's words on the Hub, transformers 5's own. */
#define FL_NOMIC_FIELDS                                                                            \
    FL_HIDDEN("hidden_size n_embd", 768), FL_LAYERS("num_hidden_layers n_layer", 12),              \
        FL_HEADS("num_attention_heads n_head", 12), FL_HEAD_DIM("head_dim", 0),                    \
        FL_MLP("intermediate_size n_inner", 3072),                                                 \
        FL_POSITIONS("n_positions max_position_embeddings", 2048), FL_VOCAB("vocab_size", 30528),  \
        FL_TYPES("type_vocab_size", 2, 0), FL_EPS("layer_norm_eps layer_norm_epsilon", 1e-12),     \
        FL_ATTENTION_BIASES("qkv_proj_bias"), FL_BOOL(up_bias, "mlp_fc1_bias", false),             \
        FL_BOOL(down_bias, "mlp_fc2_bias", false)
#define FL_NOMIC_ONLY                                                                              \
    {"prenorm", "false"}, {"use_rms_norm", "false"}, {"rotary_emb_interleaved", "false"},          \
        {"rotary_emb_scale_base", "absent"}, {"parallel_block", "false"}, {                        \
        "position_embedding_type", "absolute|rope|rotary"                                          \
    }
#define FL_NOMIC_TENSORS                                                                           \
    FL_AT("embeddings.word_embeddings.weight", FL_SLOT_WORD),                                      \
        FL_AT("embeddings.token_type_embeddings.weight", FL_SLOT_TYPE),                            \
        FL_AT("emb_ln.", FL_SLOT_EMBED_NORM_W),                                                    \
        FL_AT("encoder.layers.*.attn.Wqkv.", FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_V_W),            \
        FL_AT("encoder.layers.*.attn.out_proj.", FL_LAYER_O_W),                                    \
        FL_AT("encoder.layers.*.norm1.", FL_LAYER_ATTENTION_NORM_W),                               \
        FL_AT("encoder.layers.*.norm2.", FL_LAYER_MLP_NORM_W),                                     \
        FL_AT("encoder.layers.*.mlp.fc2.", FL_LAYER_DOWN_W)

/* The text towers of CLIP and SigLIP. */
#define FL_CLIP_FIXED                                                                              \
    .position = FL_POSITION_LEARNED, .norm_place = FL_NORM_PRE, .final_norm = true,                \
    .qkv_bias = true, .out_bias = true, .up_bias = true, .down_bias = true, .norm_bias = true
#define FL_CLIP_TENSORS                                                                            \
    FL_AT("embeddings.token_embedding.weight", FL_SLOT_WORD),                                      \
        FL_AT("embeddings.position_embedding.weight", FL_SLOT_POSITION),                           \
        FL_AT("final_layer_norm.", FL_SLOT_FINAL_NORM_W),                                          \
        FL_AT("encoder.layers.*.layer_norm1.", FL_LAYER_ATTENTION_NORM_W),                         \
        FL_AT("encoder.layers.*.self_attn.q_proj.", FL_LAYER_Q_W),                                 \
        FL_AT("encoder.layers.*.self_attn.k_proj.", FL_LAYER_K_W),                                 \
        FL_AT("encoder.layers.*.self_attn.v_proj.", FL_LAYER_V_W),                                 \
        FL_AT("encoder.layers.*.self_attn.out_proj.", FL_LAYER_O_W),                               \
        FL_AT("encoder.layers.*.layer_norm2.", FL_LAYER_MLP_NORM_W),                               \
        FL_AT("encoder.layers.*.mlp.fc1.", FL_LAYER_UP_W),                                         \
        FL_AT("encoder.layers.*.mlp.fc2.", FL_LAYER_DOWN_W)

/* LFM2, whichever way its tokens look. */
#define FL_LFM2_FIXED FL_LLAMA_FIXED, .qk_norm = FL_QK_NORM_HEAD, .activation = FL_ACT_SILU
#define FL_LFM2_FIELDS                                                                             \
    FL_HIDDEN("hidden_size", 2560), FL_LAYERS("num_hidden_layers", 32),                            \
        FL_HEADS("num_attention_heads", 32), FL_KV_HEADS("num_key_value_heads", 8),                \
        FL_MLP("block_ff_dim intermediate_size", 12288), FL_VOCAB("vocab_size", 65536),            \
        FL_POSITIONS("max_position_embeddings", 128000), FL_EPS("norm_eps", 1e-5),                 \
        FL_SIZE(taps, "conv_L_cache", 3, 1, 64), FL_BOOL(conv_bias, "conv_bias", false)
#define FL_LFM2_LAYERS                                                                             \
    .rope      = {.theta = "rope_theta", .fallback = 1000000, .yarn = true},                       \
    .attending = "full_attn_idxs",                                                                 \
    .narrowed  = {"block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of"}
#define FL_LFM2_TENSORS                                                                            \
    FL_AT("embed_tokens.weight", FL_SLOT_WORD), FL_AT("embedding_norm.", FL_SLOT_FINAL_NORM_W),    \
        FL_AT("layers.*.operator_norm.", FL_LAYER_ATTENTION_NORM_W),                               \
        FL_AT("layers.*.self_attn.q_proj.", FL_LAYER_Q_W),                                         \
        FL_AT("layers.*.self_attn.k_proj.", FL_LAYER_K_W),                                         \
        FL_AT("layers.*.self_attn.v_proj.", FL_LAYER_V_W),                                         \
        FL_AT("layers.*.self_attn.out_proj.", FL_LAYER_O_W),                                       \
        FL_AT("layers.*.self_attn.q_layernorm.", FL_LAYER_Q_NORM_W),                               \
        FL_AT("layers.*.self_attn.k_layernorm.", FL_LAYER_K_NORM_W),                               \
        FL_AT("layers.*.conv.in_proj.", FL_LAYER_K_W, FL_LAYER_Q_W, FL_LAYER_V_W),                 \
        FL_AT("layers.*.conv.conv.", FL_LAYER_CONV_W),                                             \
        FL_AT("layers.*.conv.out_proj.", FL_LAYER_O_W),                                            \
        FL_AT("layers.*.ffn_norm.", FL_LAYER_MLP_NORM_W),                                          \
        FL_AT("layers.*.feed_forward.w1.", FL_LAYER_GATE_W),                                       \
        FL_AT("layers.*.feed_forward.w3.", FL_LAYER_UP_W),                                         \
        FL_AT("layers.*.feed_forward.w2.", FL_LAYER_DOWN_W)

/* A class of Jina's XLM-RoBERTa. */
#define FL_FLASH_CODE(class) "jinaai/xlm-roberta-flash-implementation--" class
/* Jina v3 as transformers has it and as the Hub has it, with adapters. */
#define FL_JINA3_FIELDS                                                                            \
    FL_HIDDEN("hidden_size", 1024), FL_LAYERS("num_hidden_layers", 24),                            \
        FL_HEADS("num_attention_heads", 16), FL_MLP("intermediate_size", 4096),                    \
        FL_VOCAB("vocab_size", 250002), FL_POSITIONS("max_position_embeddings", 8194),             \
        FL_TYPES("type_vocab_size", 1, 1), FL_EPS("layer_norm_eps", 1e-5),                         \
        FL_ACTIVATION("hidden_act", "gelu")
#define FL_FLASH_LAYERS                                                                            \
    FL_AT("encoder.layers.*.mixer.Wqkv.", FL_LAYER_Q_W, FL_LAYER_K_W, FL_LAYER_V_W),               \
        FL_AT("encoder.layers.*.mixer.out_proj.", FL_LAYER_O_W),                                   \
        FL_AT("encoder.layers.*.mlp.fc1.", FL_LAYER_UP_W),                                         \
        FL_AT("encoder.layers.*.mlp.fc2.", FL_LAYER_DOWN_W)
#define FL_JINA3_NORMS                                                                             \
    FL_AT("emb_ln.", FL_SLOT_EMBED_NORM_W),                                                        \
        FL_AT("encoder.layers.*.norm1.", FL_LAYER_ATTENTION_NORM_W),                               \
        FL_AT("encoder.layers.*.norm2.", FL_LAYER_MLP_NORM_W)

/* Heads of classifiers: BERT's pooler and a linear layer; RoBERTa's module of two. */
#define FL_POOLER_HEAD                                                                             \
    {                                                                                              \
        .layers = {                                                                                \
            {.name = "pooler.dense.", .activation = FL_DENSE_TANH},                                \
            {.name = "classifier."}                                                                \
        }                                                                                          \
    }
#define FL_LAST_TOKEN_HEAD(padding_id)                                                             \
    {                                                                                              \
        .last_token = true, .padding = (padding_id), .layers = {                                   \
            {.name = "score.", .unbiased = true}                                                   \
        }                                                                                          \
    }
#define FL_CLASSIFIER_HEAD(of_dense)                                                               \
    {                                                                                              \
        .layers = {                                                                                \
            {.name = "classifier.dense.", .activation = (of_dense)},                               \
            {.name = "classifier.out_proj."}                                                       \
        }                                                                                          \
    }

/* The vocabulary head of masked language models. Untied, the decoder has a bias of its own. */
#define FL_BERT_MLM                                                                                \
    FL_AT("cls.predictions.transform.dense.", FL_SLOT_MLM_W),                                      \
        FL_AT("cls.predictions.transform.LayerNorm.", FL_SLOT_MLM_NORM_W),                         \
        FL_AT("cls.predictions.decoder.", FL_SLOT_MLM_DECODER),                                    \
        FL_AT("cls.predictions.bias", FL_SLOT_MLM_BIAS)
#define FL_ROBERTA_MLM                                                                             \
    FL_AT("lm_head.dense.", FL_SLOT_MLM_W), FL_AT("lm_head.layer_norm.", FL_SLOT_MLM_NORM_W),      \
        FL_AT("lm_head.decoder.", FL_SLOT_MLM_DECODER), FL_AT("lm_head.bias", FL_SLOT_MLM_BIAS),   \
        FL_AT("lm_head.decoder.bias", FL_SLOT_MLM_BIAS)

#endif
