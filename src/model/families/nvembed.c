/* SPDX-License-Identifier: Apache-2.0 */
/* nvembed.c - nvidia/NV-Embed-v1 and -v2, by code of the Hub: Mistral that looks both ways, then latent attention.
 *
 *     x = norm(last layer);  x = x + attention(LN(x) to LN(latents));  x = x + down(gelu(gate(LN(x))) up(LN(x)))
 *
 * The code makes no window of sliding_window, and appends the end token to each text. */
#include "model/families/shared_names.h"

#define FL_BLOCK(name) "latent_attention_model.cross_attend_blocks." name

const fl_family fl_family_nvembed = {
    .name           = "nvembed",
    .model_types    = {"nvembed"},
    .remote_code    = {"nvidia/NV-Embed-v2--modeling_nvembed.NVEmbedModel",
                       "nvidia/NV-Embed-v1--modeling_nvembed.NVEmbedModel"},
    .only_remote    = true,
    .prefixes       = {"embedding_model."},
    .old_tokenizers = {"LlamaTokenizer"},

    .tokenizer_class    = "LlamaTokenizer",
    .tokenizer_as_saved = true,

    .below = "text_config",
    .above = {"mask_type", "b"},
    .fixed = {FL_LLAMA_FIXED},

    .fields = {FL_HIDDEN("hidden_size", 4096), FL_LAYERS("num_hidden_layers", 32),
               FL_HEADS("num_attention_heads", 32), FL_KV_HEADS("num_key_value_heads", 8),
               FL_HEAD_DIM("head_dim", 0), FL_MLP("intermediate_size", 14336),
               FL_VOCAB("vocab_size", 32000), FL_POSITIONS("max_position_embeddings", 131072),
               FL_EPS("rms_norm_eps", 1e-6), FL_ACTIVATION("hidden_act", "silu")},
    .only   = {{"model_type", "bidir_mistral"}},
    .rope   = {.theta = "rope_theta", .fallback = 10000},

    .latent   = {.object         = "latent_attention_config",
                 .count          = "num_latents_value",
                 .heads          = "num_cross_heads",
                 .dims           = "cross_dim_head",
                 .count_fallback = 512,
                 .heads_fallback = 8,
                 .dims_fallback  = 4096},
    .ends_key = "add_eos",

    .tensors = {FL_LLAMA_ATTENTION, FL_LLAMA_NORM, FL_LLAMA_MLP,
                FL_AT("latent_attention_model.latents", FL_SLOT_LATENTS),
                FL_AT(FL_BLOCK("0.norm_context."), FL_SLOT_LATENT_NORM_W),
                FL_AT(FL_BLOCK("0.norm."), FL_SLOT_LATENT_Q_NORM_W),
                FL_AT(FL_BLOCK("0.fn.to_q.weight"), FL_SLOT_LATENT_Q_W),
                FL_AT(FL_BLOCK("0.fn.to_kv.weight"), FL_SLOT_LATENT_K_W, FL_SLOT_LATENT_V_W),
                FL_AT(FL_BLOCK("0.fn.to_out.weight"), FL_SLOT_LATENT_O_W),
                FL_AT(FL_BLOCK("1.norm."), FL_SLOT_LATENT_MLP_NORM_W),
                FL_AT(FL_BLOCK("1.fn.net.0."), FL_SLOT_LATENT_UP_W, FL_SLOT_LATENT_GATE_W),
                FL_AT(FL_BLOCK("1.fn.net.2."), FL_SLOT_LATENT_DOWN_W)},
};
