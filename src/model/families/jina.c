/* SPDX-License-Identifier: Apache-2.0 */
/* jina.c - JinaBERT v2, English: jina-embeddings-v2-base-en and its sizes, jina-reranker-v1. Its
 * model_type is BERT's.
 *
 * Post-norm, ALiBi instead of positions, gated MLP whose first half is activated. */
#include "model/families/shared_names.h"

const fl_family fl_family_jina = {
    .name        = "jina_bert",
    .model_types = {"bert", "jina_bert"},
    .mark_key    = "position_embedding_type",
    .mark_value  = "alibi",
    .remote_code = {"jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
    .prefixes    = {"bert."},

    .fixed = {FL_JINA_FIXED},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 30528), FL_POSITIONS("max_position_embeddings", 512),
               FL_TYPES("type_vocab_size", 2, 1), FL_EPS("layer_norm_eps", 1e-12),
               FL_FEED_FORWARD("feed_forward_type")},
    .only   = {{"position_embedding_type", "alibi"}, {"feed_forward_type", "geglu|reglu"}},

    .tensors = {FL_BERT_EMBEDDINGS, FL_BERT_ATTENTION,
                FL_AT("encoder.layer.*.mlp.gated_layers.", FL_LAYER_GATE_W, FL_LAYER_UP_W),
                FL_AT("encoder.layer.*.mlp.wo.", FL_LAYER_DOWN_W),
                FL_AT("encoder.layer.*.mlp.layernorm.", FL_LAYER_MLP_NORM_W)},
    .head    = FL_POOLER_HEAD,
};
