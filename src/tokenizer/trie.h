/* SPDX-License-Identifier: Apache-2.0 */
/* trie.h - a set of byte strings as a double array: one load and one compare per byte.
 *
 *     child of `at` by byte c = nodes[at].base ^ c, if that node's `check` is `at`
 *
 * Role     wordpiece.c and unigram.c build theirs with it and walk it themselves. A trie may have several
 *          roots, slots 1, 2, ... (below 256 lie only roots, so a base of 0 means "no children").
 * Memory   16 bytes a slot; what a node holds beside its place is its model's.
 * Threads  A builder belongs to one thread; nodes are immutable. */
#ifndef FL_TOKENIZER_TRIE_H
#define FL_TOKENIZER_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_trie_node {
    uint32_t base;  /* child of byte c is base ^ c, if that node's `check` is this node */
    uint32_t check; /* parent, 0 for a free slot */
    union {
        struct {           /* WordPiece */
            uint32_t fail; /* where matching goes on when no child fits; 0: nowhere */
            uint32_t pop;  /* position in pops: count, then the ids certain when `fail` is taken */
        };
        double score; /* Unigram: of the piece that ends here; NaN: none does */
    };
} fl_trie_node;

/* The trie while it grows. Index 0 is "none". */
typedef struct fl_trie_grow {
    uint32_t child;   /* first */
    uint32_t sibling; /* next */
    uint32_t slot;    /* its place in the double array */
    int32_t  token;   /* or -1 */
    uint8_t  label;
} fl_trie_grow;

typedef struct fl_trie_builder {
    fl_trie_grow *grow; /* [grow_count] */
    uint32_t      grow_count, grow_limit, roots;
    fl_trie_node *nodes;
    uint32_t     *next_free; /* [limit]: ring of free slots; 0 when the slot is taken */
    uint32_t     *prev_free;
    uint32_t      used, limit, free_head;
} fl_trie_builder;

/* Called for each node once it and all shallower ones have slots; false: no memory. */
typedef bool (*fl_trie_link_fn)(void *user, fl_trie_node *nodes, uint32_t slot, uint32_t parent,
                                uint8_t byte, int32_t token);

/* All: false means no memory. A string that is inserted again has the later token. */
bool fl_trie_begin(fl_trie_builder *builder, uint32_t roots);
bool fl_trie_insert(fl_trie_builder *builder, uint32_t root, const char *text, size_t length,
                    int32_t token);
bool fl_trie_place(fl_trie_builder *builder, fl_trie_link_fn link, void *user);
fl_trie_node *fl_trie_finish(fl_trie_builder *builder, uint32_t *count); /* the caller owns it */
void          fl_trie_end(fl_trie_builder *builder);                     /* idempotent */

/* 0: no child. */
static inline uint32_t fl_trie_child(const fl_trie_node *nodes, uint32_t at, uint8_t byte) {
    uint32_t slot = nodes[at].base ^ byte;
    return nodes[slot].check == at ? slot : 0;
}

#endif
