/* SPDX-License-Identifier: Apache-2.0 */
/* piece_tokenizer.h - SentencePiece's BPE alone, a tokenizer.model, becomes the text of a tokenizer.json. */
#ifndef FL_MODEL_PIECE_TOKENIZER_H
#define FL_MODEL_PIECE_TOKENIZER_H

#include "base/json.h"
#include "base/json_w.h"

/* `config`: tokenizer_config.json's switches; names[0] and names[1]: the tokens before and after a text where it names
 * none. The text has steps that only fl_tokenizer_options.pieces allows. EUNSUPPORTED names what is not known. */
int fl_piece_tokenizer_make(fl_json_w *w, const fl_buf *file, fl_json_reader *config,
                            const char *const names[2], const char *path);

#endif
