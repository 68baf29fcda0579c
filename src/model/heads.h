/* SPDX-License-Identifier: Apache-2.0 */
/* heads.h - what the rows of a model are, and what follows from that while its folder is read.
 *
 * Role    A row of the table for each head; those who read a part of the folder ask it and compare no head.
 * Memory  none; static tables. Threads: no state. Proof: tests/unit/test_model.c, tests/golden. */
#ifndef FL_MODEL_HEADS_H
#define FL_MODEL_HEADS_H

#include <stdbool.h>

#include "fletch.h"

struct fl_model;
struct fl_family;

typedef enum fl_head {
    FL_HEAD_EMBEDDING, /* one vector a text */
    FL_HEAD_SCORES,    /* a number for each label, of a text or a pair: rerankers, classifiers */
    FL_HEAD_SPARSE,    /* weights of vocabulary entries */
    FL_HEAD_LATE       /* a vector a token, for scores by late interaction (ColBERT) */
} fl_head;

typedef struct fl_head_rules {
    const char *encoder; /* its class: model_type in config_sentence_transformers.json */
    const char *no_gguf; /* why a GGUF file cannot hold it; NULL: one can */
    bool        tokens;  /* modules work on the rows of tokens; nothing is pooled */
    bool vocabulary; /* rows are made of the vocabulary's logits; no module follows their pooling */
    bool pairs;      /* of texts, or messages of a chat; a Dense may write "scores" */
    bool weighed;    /* an .onnx file alone will not do */
    /* What config_sentence_transformers.json says of prompts is read; then, that the weights are. NULL: no more. */
    int (*prompts)(struct fl_model *model, fletch_error *error);
    int (*finish)(struct fl_model *model, const struct fl_family *family, fletch_error *error);
} fl_head_rules;

const fl_head_rules *fl_head_rules_of(const struct fl_model *model);

#endif
