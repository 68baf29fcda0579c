/* SPDX-License-Identifier: Apache-2.0 */
/* trie.c - a set of byte strings as a double array.
 *
 * Role     See trie.h.
 * Method   Strings go into a child/sibling trie first; fl_trie_place then gives every node a slot, breadth
 *          first, so that the nodes near the roots, which every walk passes, lie together. A base is looked
 *          for among the next few free slots only: more would save little memory and cost much time.
 * Memory   Bounded by the text of the strings.
 * Proof    tests/unit/test_tokenizer_parts.c, through WordPiece. */
#include "tokenizer/trie.h"

#include <string.h>

#include "base/mem.h"

enum {
    BLOCK = 256,
    SEARCH_MAX =
        64, /* free slots tried before a new block is opened; 24 costs 4 MB more for BERT */
    NODES_MAX = 1 << 28
};

static bool grow_reserve(fl_trie_builder *b, size_t extra) {
    size_t need = b->grow_count + extra;
    if (need <= b->grow_limit) {
        return true;
    }
    if (need > NODES_MAX) {
        return false;
    }
    size_t        limit = need < 4096 ? 4096 : need + need / 2;
    fl_trie_grow *grown = fl_realloc_array(b->grow, limit, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    b->grow       = grown;
    b->grow_limit = (uint32_t)limit;
    return true;
}

bool fl_trie_insert(fl_trie_builder *b, uint32_t root, const char *text, size_t length,
                    int32_t token) {
    if (!grow_reserve(b, length)) {
        return false;
    }
    uint32_t at = root;
    for (size_t i = 0; i < length; i++) {
        uint8_t  label = (uint8_t)text[i];
        uint32_t child = b->grow[at].child, before = 0;
        while (child != 0 && b->grow[child].label != label) {
            before = child;
            child  = b->grow[child].sibling;
        }
        if (child != 0 && before != 0) { /* to the front: the next token probably goes there too */
            b->grow[before].sibling = b->grow[child].sibling;
            b->grow[child].sibling  = b->grow[at].child;
            b->grow[at].child       = child;
        }
        if (child == 0) {
            child             = b->grow_count++;
            b->grow[child]    = (fl_trie_grow){0, b->grow[at].child, 0, -1, label};
            b->grow[at].child = child;
        }
        at = child;
    }
    b->grow[at].token = token;
    return true;
}

/* One more block of 256 free slots at the end of the array. */
static bool add_block(fl_trie_builder *b) {
    if (b->used == b->limit) {
        size_t limit = b->limit == 0 ? 64 * BLOCK : (size_t)b->limit * 2;
        if (limit > NODES_MAX) {
            return false;
        }
        fl_trie_node *nodes = fl_realloc_array(b->nodes, limit, sizeof *nodes);
        b->nodes            = nodes != NULL ? nodes : b->nodes;
        uint32_t *next      = fl_realloc_array(b->next_free, limit, sizeof *next);
        b->next_free        = next != NULL ? next : b->next_free;
        uint32_t *prev      = fl_realloc_array(b->prev_free, limit, sizeof *prev);
        b->prev_free        = prev != NULL ? prev : b->prev_free;
        if (nodes == NULL || next == NULL || prev == NULL) {
            return false;
        }
        b->limit = (uint32_t)limit;
    }
    uint32_t first = b->used, last = b->used + BLOCK - 1;
    memset(b->nodes + first, 0, BLOCK * sizeof *b->nodes);
    if (first == 0) { /* the block of the roots stays out of the ring */
        memset(b->next_free, 0, BLOCK * sizeof *b->next_free);
        b->used = BLOCK;
        return true;
    }
    for (uint32_t s = first; s <= last; s++) {
        b->next_free[s] = s + 1;
        b->prev_free[s] = s - 1;
    }
    uint32_t head       = b->free_head != 0 ? b->free_head : first;
    uint32_t tail       = b->free_head != 0 ? b->prev_free[head] : last;
    b->next_free[last]  = head;
    b->prev_free[first] = tail;
    b->next_free[tail]  = b->free_head != 0 ? first : head;
    b->prev_free[head]  = last;
    b->free_head        = head;
    b->used += BLOCK;
    return true;
}

static void take_slot(fl_trie_builder *b, uint32_t slot, uint32_t parent) {
    uint32_t next = b->next_free[slot], prev = b->prev_free[slot];
    b->next_free[prev] = next;
    b->prev_free[next] = prev;
    b->next_free[slot] = 0;
    if (b->free_head == slot) {
        b->free_head = next == slot ? 0 : next;
    }
    b->nodes[slot].check = parent;
}

/* A base at which all children of `at` find free slots; 0: no memory. */
static uint32_t find_base(fl_trie_builder *b, uint32_t at) {
    uint32_t first = b->grow[at].child;
    uint32_t slot  = b->free_head;
    for (unsigned tries = 0; slot != 0 && tries < SEARCH_MAX; tries++) {
        uint32_t base = slot ^ b->grow[first].label;
        uint32_t c    = b->grow[first].sibling;
        while (c != 0 && b->next_free[base ^ b->grow[c].label] != 0) {
            c = b->grow[c].sibling;
        }
        if (c == 0) {
            return base;
        }
        slot = b->next_free[slot] == b->free_head ? 0 : b->next_free[slot];
    }
    uint32_t fresh = b->used;
    return add_block(b) ? fresh : 0;
}

/* Place all nodes breadth first: a node's fail is always shallower, so it stands already. */
bool fl_trie_place(fl_trie_builder *b, fl_trie_link_fn link, void *user) {
    uint32_t *queue = fl_alloc_array(b->grow_count, sizeof *queue);
    if (queue == NULL) {
        return false;
    }
    uint32_t head = 0, tail = 0;
    bool     ok = add_block(b);
    for (uint32_t root = 1; root <= b->roots; root++) {
        b->grow[root].slot = root;
        queue[tail++]      = root;
    }
    while (ok && head < tail) {
        uint32_t at     = queue[head++];
        uint32_t parent = b->grow[at].slot;
        if (b->grow[at].child == 0) {
            continue;
        }
        uint32_t base = find_base(b, at);
        if (base == 0) {
            ok = false;
            break;
        }
        b->nodes[parent].base = base;
        for (uint32_t c = b->grow[at].child; c != 0; c = b->grow[c].sibling) {
            b->grow[c].slot = base ^ b->grow[c].label;
            take_slot(b, b->grow[c].slot, parent);
            queue[tail++] = c;
        }
        for (uint32_t c = b->grow[at].child; ok && c != 0; c = b->grow[c].sibling) {
            ok = link(user, b->nodes, b->grow[c].slot, parent, b->grow[c].label, b->grow[c].token);
        }
    }
    fl_free(queue);
    return ok;
}

bool fl_trie_begin(fl_trie_builder *b, uint32_t roots) {
    memset(b, 0, sizeof *b);
    b->roots = roots;
    if (!grow_reserve(b, roots + 1)) {
        return false;
    }
    memset(b->grow, 0, (roots + 1) * sizeof *b->grow);
    for (uint32_t root = 0; root <= roots; root++) {
        b->grow[root].token = -1;
    }
    b->grow_count = roots + 1;
    return true;
}

fl_trie_node *fl_trie_finish(fl_trie_builder *b, uint32_t *count) {
    fl_trie_node *nodes = fl_realloc_array(b->nodes, b->used, sizeof *nodes);
    nodes               = nodes != NULL ? nodes : b->nodes; /* the rest is given back or not */
    *count              = b->used;
    b->nodes            = NULL;
    return nodes;
}

void fl_trie_end(fl_trie_builder *b) {
    fl_free(b->grow);
    fl_free(b->next_free);
    fl_free(b->prev_free);
    fl_free(b->nodes);
    memset(b, 0, sizeof *b);
}
