/* SPDX-License-Identifier: Apache-2.0 */
/* jina_qk.c - JinaBERT v2 with norms of queries and keys: jina-embeddings-v2-base-code, -de, -es,
 * -zh.
 *
 * As jina.c, but q and k are normed over all heads, the input is added twice around the attention,
 *     x = LN1(x + LN(x + attention(x)));  x = LN2(x + down(up(x) * act(gate(x)))),
 * and the gate is the second half. Only the repository of its code, or its tensors, tell it
 * apart. */
#include "model/families/shared_names.h"

const fl_family fl_family_jina_qk = {
    .name        = "jina_bert with q/k norm",
    .model_types = {"bert", "jina_bert"},
    .mark_key    = "position_embedding_type",
    .mark_value  = "alibi",
    .mark_tensor = "encoder.layer.0.attention.self.layer_norm_q.weight",
    .remote_code = {"jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"},
    .prefixes    = {"bert."},

    .fixed = {FL_JINA_FIXED, .qk_norm = FL_QK_NORM_WIDE, .extra_norm = FL_EXTRA_NORM_RESIDUAL},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 30528), FL_POSITIONS("max_position_embeddings", 512),
               FL_TYPES("type_vocab_size", 2, 1), FL_EPS("layer_norm_eps", 1e-12),
               FL_FEED_FORWARD("feed_forward_type")},
    .only   = {{"position_embedding_type", "alibi"}, {"feed_forward_type", "geglu|reglu"}},

    .tensors = {FL_BERT_EMBEDDINGS, FL_BERT_ATTENTION,
                FL_AT("encoder.layer.*.attention.self.layer_norm_q.", FL_LAYER_Q_NORM_W),
                FL_AT("encoder.layer.*.attention.self.layer_norm_k.", FL_LAYER_K_NORM_W),
                FL_AT("encoder.layer.*.layer_norm_1.", FL_LAYER_ATTENTION_EXTRA_W),
                FL_AT("encoder.layer.*.mlp.up_gated_layer.", FL_LAYER_UP_W, FL_LAYER_GATE_W),
                FL_AT("encoder.layer.*.mlp.down_layer.", FL_LAYER_DOWN_W),
                FL_AT("encoder.layer.*.layer_norm_2.", FL_LAYER_MLP_NORM_W)},
};
