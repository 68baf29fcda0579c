/* SPDX-License-Identifier: Apache-2.0 */
/* trie.h - a set of byte strings as a double array: one load and one compare per byte.
 *
 *     child of `at` by byte c = nodes[at].base ^ c, if that node's `check` is `at`
 *
 * Role     wordpiece.c and unigram.c build theirs with it and walk it themselves. A trie may have several
 *          roots, slots 1, 2, ... (below 256 lie only roots, so a base of 0 means "no children").
 * Memory   16 bytes a slot in a big block: a walk goes everywhere, and huge pages spare it most of the misses.
 *          What a node holds beside its place is its model's.
 * Threads  Immutable once built. */
#ifndef FL_TOKENIZER_TRIE_H
#define FL_TOKENIZER_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_trie_node {
    uint32_t
        base; /* child of byte c is base ^ c, if that node's `check` is this node; FL_TRIE_TAIL */
    uint32_t check; /* parent, 0 for a free slot */
    union {
        struct {           /* WordPiece */
            uint32_t fail; /* where matching goes on when no child fits; 0: nowhere */
            uint32_t pop;  /* position in pops: count, then the ids certain when `fail` is taken */
        };
        double  score; /* Unigram: of the piece that ends here; NaN: none does */
        int32_t token; /* the same while it is built: its id, or -1 */
    };
} fl_trie_node;

typedef struct fl_trie {
    fl_trie_node *nodes; /* owned, a big block */
    uint32_t      count;
    size_t        bytes; /* of the block */
} fl_trie;

/* A string on its way into the trie. */
typedef struct fl_trie_key {
    uint32_t text; /* where it begins; a NUL ends it, none is empty */
    int32_t  token;
    uint64_t head; /* for fl_trie_build: its first bytes, the first one lowest */
} fl_trie_key;

/* Called for each node when it and all shallower ones have slots, shallower ones first; `token` is -1 where
 * none ends. False: no memory. */
typedef bool (*fl_trie_link_fn)(void *user, fl_trie_node *nodes, uint32_t slot, uint32_t parent,
                                uint8_t byte, int32_t token);

/* A node from which one key alone goes on may have, instead of more nodes, the place of what is left of its text as
 * its base: half of all nodes of a large vocabulary. Nothing ends at such a node itself, and it has no children. */
enum { FL_TRIE_TAIL = 1 << 30 };

/* The keys of root r = 1 .. roots are [ends[r - 1], ends[r]), in any order, and are moved about; of equal ones the
 * highest token counts. Nodes at least `tails` deep may have a tail; 0: none has.
 * False: no memory, and nothing is there. */
bool fl_trie_build(fl_trie *trie, const char *text, fl_trie_key *keys, const uint32_t *ends,
                   uint32_t roots, uint32_t tails, fl_trie_link_fn link, void *user);
void fl_trie_free(fl_trie *trie); /* idempotent */

/* 0: no child. Not of a node with a tail. */
static inline uint32_t fl_trie_child(const fl_trie_node *nodes, uint32_t at, uint8_t byte) {
    uint32_t slot = nodes[at].base ^ byte;
    return nodes[slot].check == at ? slot : 0;
}

#endif
