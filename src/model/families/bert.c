/* SPDX-License-Identifier: Apache-2.0 */
/* bert.c - BERT: MiniLM, bge, e5, gte, mxbai, arctic-embed and the others of that shape.
 *
 *     x = LN(word[id] + position[0 .. n-1] + type[0])
 *     per layer: x = LN(x + attention(x)); x = LN(x + down(act(up(x))))
 *
 * ERNIE is the same unless its tokens have a task, too. The pooler is not used for embeddings; the
 * vocabulary head is, by SPLADE. */
#include "model/families/shared_names.h"

const fl_family fl_family_bert = {
    .name            = "bert",
    .model_types     = {"bert", "ernie"},
    .prefixes        = {"bert.", "ernie."},
    .vocab_is_enough = true,

    .fixed = {FL_BERT_FIXED},
    .only  = {{"use_task_id", "false"}},

    .fields = {FL_HIDDEN("hidden_size", 768), FL_LAYERS("num_hidden_layers", 12),
               FL_HEADS("num_attention_heads", 12), FL_MLP("intermediate_size", 3072),
               FL_VOCAB("vocab_size", 30522), FL_POSITIONS("max_position_embeddings", 512),
               FL_TYPES("type_vocab_size", 2, 1), FL_EPS("layer_norm_eps", 1e-12),
               FL_ACTIVATION("hidden_act", "gelu"), FL_MLM_ACTIVATION("hidden_act"), FL_MLM_TIED},

    .tensors = {FL_BERT_EMBEDDINGS, FL_BERT_POSITIONS, FL_BERT_ATTENTION, FL_BERT_MLP, FL_BERT_MLM},
    .head    = FL_POOLER_HEAD,
};
