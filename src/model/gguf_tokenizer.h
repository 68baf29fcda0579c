/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_tokenizer.h - the tokenizer of a GGUF file's metadata, as the text of a tokenizer.json, and back.
 *
 * Private to this room: gguf_model.c asks for the text, which the tokenizer room reads like any other; gguf_export.c
 * for the metadata. gguf_wordpiece.c, gguf_bpe.c, gguf_pieces.c and gguf_unigram.c do the kinds, both ways, by what
 * stands below. */
#ifndef FL_MODEL_GGUF_TOKENIZER_H
#define FL_MODEL_GGUF_TOKENIZER_H

#include "base/json.h"
#include "base/json_w.h"
#include "model/gguf_export.h"
#include "model/gguf_writer.h"
#include "model/piece_merges.h"
#include "model/tokenizer_text.h"

#define FL_GGUF_KEYS "tokenizer.ggml."

/* EMODEL for damage; EUNSUPPORTED names what is not known, or missing where it decides the ids. */
int fl_gguf_tokenizer(fl_buf *out, const fl_gguf *file, const char *source, fletch_error *error);

/* Of a tokenizer.json to `w`: `count` tokens, which is what the model has rows for. EUNSUPPORTED names what the format
 * cannot say. What it does not tell of the steps is for the caller to compare: other ids are possible still. */
int fl_gguf_tell_tokenizer(fl_gguf_writer *w, fl_json *root, uint32_t count,
                           const fl_gguf_specials *specials, const char *source,
                           fletch_error *error);

/* ---- For the kinds --------------------------------------------------------------------------- */

/* Of tokenizer.ggml.token_type. */
enum {
    FL_TOKEN_NORMAL       = 1,
    FL_TOKEN_UNKNOWN      = 2,
    FL_TOKEN_CONTROL      = 3,
    FL_TOKEN_USER_DEFINED = 4,
    FL_TOKEN_UNUSED       = 5,
    FL_TOKEN_BYTE         = 6
};

typedef struct fl_gguf_maker {
    const fl_gguf       *file;
    const char          *source;
    fletch_error        *error;
    int                  status; /* 0 or the first failure */
    fl_json_w            w;
    fl_span             *tokens; /* owned [count] */
    uint32_t             count;
    const fl_gguf_value *types;       /* token_type */
    fl_piece_index       index;       /* of tokens */
    fl_buf               name;        /* of a token with something before it */
    int64_t              first, last; /* ids around a text; -1: none */
    const char          *lstripped;   /* the token before which white space goes; NULL: none */
} fl_gguf_maker;

/* Messages begin with the file and tokenizer.ggml.`key`. */
void fl_gguf_refuse(fl_gguf_maker *m, int status, const char *key, const char *why);
/* The value under tokenizer.ggml.`key`; NULL: none. */
const fl_gguf_value *fl_gguf_key(const fl_gguf_maker *m, const char *key);

uint64_t fl_gguf_type_of(const fl_gguf_maker *m, uint32_t id);
/* The list under `key` is an item a token; `needed`: it must be there. */
void fl_gguf_check_list(fl_gguf_maker *m, const char *key, bool needed);

/* The id under `key`, or under `other`, which has to agree; one of them has to be there. */
int64_t fl_gguf_needed_special(fl_gguf_maker *m, const char *key, const char *other);
/* A switch, `fallback` where it is not there; and one that has to be there. */
bool fl_gguf_switch(fl_gguf_maker *m, const char *key, bool fallback);
bool fl_gguf_needed_switch(fl_gguf_maker *m, const char *key);
/* m->first and m->last by add_bos_token and add_eos_token, which must be there. */
void fl_gguf_around(fl_gguf_maker *m);

void fl_gguf_put_token(fl_gguf_maker *m, const char *key, int64_t id);
void fl_gguf_put_template(fl_gguf_maker *m);
/* added_tokens: control and user-defined tokens, called as `name` does; NULL: as they are. */
typedef fl_span fl_gguf_name_fn(fl_gguf_maker *m, uint32_t id, uint64_t type);
void            fl_gguf_put_added(fl_gguf_maker *m, fl_gguf_name_fn *name);
/* "vocab": {token: id} of all that are used. */
void fl_gguf_put_vocab(fl_gguf_maker *m, fl_gguf_name_fn *name);

/* The kinds. */
void fl_gguf_make_wordpiece(fl_gguf_maker *m);
void fl_gguf_make_bpe(fl_gguf_maker *m);
void fl_gguf_make_pieces(fl_gguf_maker *m);
void fl_gguf_make_unigram(fl_gguf_maker *m);

/* ---- For the kinds, the other way ------------------------------------------------------------- */

typedef struct fl_gguf_token {
    fl_span text; /* data NULL: no token has the id */
    double  score;
    uint8_t type;
    bool    lstrip;
} fl_gguf_token;

typedef struct fl_gguf_teller {
    fl_gguf_writer         *w;
    fl_json                *root, *model; /* of the tokenizer.json, and its "model" */
    const char             *source;
    fletch_error           *error;
    int                     status; /* 0 or the first failure */
    fl_gguf_token          *tokens; /* owned [count] */
    uint32_t                count;
    const fl_gguf_specials *specials;
    fl_buf                  name; /* of a token with something before it */
} fl_gguf_teller;

/* The tokenizer's `part` is one that the format has no word for. */
void    fl_gguf_untold(fl_gguf_teller *t, const char *part);
bool    fl_gguf_is_step(fl_json *step, const char *type);            /* {"type": type, …} */
int64_t fl_gguf_told_id(const fl_gguf_teller *t, const char *token); /* -1: there is none */

/* tokens and token_type, tokens called as `name` does; NULL: as they are. */
typedef fl_span fl_gguf_told_name_fn(fl_gguf_teller *t, const fl_gguf_token *token);
void            fl_gguf_tell_tokens(fl_gguf_teller *t, fl_gguf_told_name_fn *name);
void            fl_gguf_tell_scores(fl_gguf_teller *t);
/* unknown_token_id, when there is one, and the other ids. */
void fl_gguf_tell_specials(fl_gguf_teller *t, int64_t unknown);
void fl_gguf_tell_around(fl_gguf_teller *t); /* add_bos_token and add_eos_token */

void fl_gguf_tell_wordpiece(fl_gguf_teller *t);
void fl_gguf_tell_bpe(fl_gguf_teller *t);
void fl_gguf_tell_pieces(fl_gguf_teller *t);
void fl_gguf_tell_unigram(fl_gguf_teller *t);

#endif
