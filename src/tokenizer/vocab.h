/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.h - tokens by id and ids by token.
 *
 * Role     parse.c fills it once; wordpiece.c builds its trie from it; decode.c and the accessors of
 *          tokenizer.c read it.
 * Memory   One block of text (each token NUL-terminated), two arrays over ids, one hash table.
 * Threads  Immutable after the last fl_vocab_add. */
#ifndef FL_TOKENIZER_VOCAB_H
#define FL_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_in.h"

enum { FL_VOCAB_HOLE = 0 };

typedef struct fl_vocab {
    char     *text;       /* owned: begins with one NUL so that position 0 means "hole" */
    size_t    text_size;  /* bytes used */
    size_t    text_limit; /* bytes reserved */
    uint32_t *start;  /* owned, [size]: position in text, FL_VOCAB_HOLE when no token has the id */
    uint32_t *length; /* owned, [size]: bytes */
    uint32_t  size;   /* ids are below */
    uint32_t  count;  /* tokens */
    uint32_t *slot;   /* owned, [slot_mask + 1]: id + 1, or 0 */
    uint32_t  slot_mask;
    uint64_t  seed;
} fl_vocab;

/* What fl_vocab_add says of a token. */
typedef enum fl_vocab_added {
    FL_VOCAB_ADDED,
    FL_VOCAB_ID_TAKEN,   /* another token has this id */
    FL_VOCAB_TEXT_TAKEN, /* the token is there with another id */
} fl_vocab_added;

/* Room for `count` tokens with ids below `size` and `text_bytes` bytes of text; false: no memory. */
bool           fl_vocab_open(fl_vocab *vocab, uint32_t size, uint32_t count, size_t text_bytes);
void           fl_vocab_close(fl_vocab *vocab); /* idempotent */
void           fl_vocab_fit(fl_vocab *vocab,
                            uint32_t  size); /* all ids are below; give back what is not used */
fl_vocab_added fl_vocab_add(fl_vocab *vocab, const char *text, size_t length, uint32_t id);

/* The same, but a token that is there already moves to the later id; the earlier one keeps its text. */
fl_vocab_added fl_vocab_add_later(fl_vocab *vocab, const char *text, size_t length, uint32_t id);

/* Tokens that a file gives faster than memory gives their places in the table: each comes back a few tokens later.
 * Zeroed at first. Texts stay the caller's. */
enum { FL_VOCAB_AHEAD = 16 };
typedef struct fl_vocab_entry {
    fl_span text;
    int64_t id;
} fl_vocab_entry;
typedef struct fl_vocab_queue {
    fl_vocab_entry entry[FL_VOCAB_AHEAD];
    size_t         put, taken;
} fl_vocab_queue;

/* One more; true: *due is one that waited before it. Then, while it is true, those that are left. */
bool fl_vocab_wait(fl_vocab_queue *queue, const fl_vocab *vocab, fl_vocab_entry one,
                   fl_vocab_entry *due);
bool fl_vocab_left(fl_vocab_queue *queue, fl_vocab_entry *due);

int32_t     fl_vocab_find(const fl_vocab *vocab, const char *text, size_t length); /* or -1 */
const char *fl_vocab_text(const fl_vocab *vocab, int32_t id, size_t *length);      /* or NULL */

/* The same of several, in half the time: they wait for memory together. */
void fl_vocab_find_all(const fl_vocab *vocab, const fl_span *texts, size_t count, int32_t *ids);

/* The tokens that stand for bytes, "<0x00>" to "<0xFF>"; -1 where one is missing. */
void fl_vocab_find_bytes(const fl_vocab *vocab, int32_t ids[256]);

#endif
