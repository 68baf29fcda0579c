/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_text.h - pieces of a tokenizer.json, for those who make one of other files (GGUF, SentencePiece). */
#ifndef FL_MODEL_TOKENIZER_TEXT_H
#define FL_MODEL_TOKENIZER_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json_in.h"
#include "base/json_w.h"

/* Opens {"type": type; the caller ends it. */
void fl_tokenizer_put_step(fl_json_w *w, const char *key, const char *type);

/* Whole steps: SentencePiece's map of characters, and its words with U+2581 in front of each. */
void fl_tokenizer_put_map(fl_json_w *w, const char *key, const unsigned char *map, size_t size);
void fl_tokenizer_put_metaspace(fl_json_w *w, const char *key);

/* The decoder of SentencePiece's BPE; `prefix`: the space before a text goes. */
void fl_tokenizer_put_piece_decoder(fl_json_w *w, bool prefix);

/* One of added_tokens; never single_word or rstrip. */
void fl_tokenizer_put_added(fl_json_w *w, int64_t id, fl_span content, bool lstrip, bool normalized,
                            bool special);

/* TemplateProcessing: one part ("SpecialToken" or "Sequence") of a text or pair, and one of its special_tokens. */
void fl_tokenizer_put_part(fl_json_w *w, const char *kind, const char *id, unsigned type);
void fl_tokenizer_put_special(fl_json_w *w, const char *name, int64_t id, fl_span token);

#endif
