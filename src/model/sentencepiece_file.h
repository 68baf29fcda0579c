/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_file.h - SentencePiece's ModelProto, as far as ids depend on it. */
#ifndef FL_MODEL_SENTENCEPIECE_FILE_H
#define FL_MODEL_SENTENCEPIECE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_in.h"
#include "base/proto.h"
#include "fletch.h"

enum { FL_PIECES_MAX = 1 << 22 };

typedef enum fl_piece_type {
    FL_PIECE_NORMAL       = 1,
    FL_PIECE_UNKNOWN      = 2,
    FL_PIECE_CONTROL      = 3,
    FL_PIECE_USER_DEFINED = 4,
    FL_PIECE_UNUSED       = 5,
    FL_PIECE_BYTE         = 6
} fl_piece_type;

enum { FL_PIECES_UNIGRAM = 1, FL_PIECES_BPE = 2 };

typedef struct fl_sentencepiece_piece {
    fl_span  text; /* never empty */
    float    score;
    uint32_t type;
} fl_sentencepiece_piece;

typedef struct fl_sentencepiece_file {
    fl_sentencepiece_piece *pieces; /* owned; texts lie in the file */
    size_t                  count, room;
    fl_proto_span           map;  /* of characters; may be empty */
    uint32_t                kind; /* FL_PIECES_UNIGRAM, … */
    bool                    byte_fallback, dummy_prefix, removes_spaces, escapes_spaces, suffixed;
} fl_sentencepiece_file;

/* EMODEL for what is damaged, whose name is `path`; what was read is to be freed all the same. */
int  fl_sentencepiece_read(fl_sentencepiece_file *out, const fl_buf *file, const char *path,
                           fletch_error *error);
void fl_sentencepiece_free(fl_sentencepiece_file *file); /* idempotent */

#endif
