/* SPDX-License-Identifier: Apache-2.0 */
/* wordpiece.c - one normalised word becomes WordPiece ids, in time linear in the word.
 *
 * Role     See wordpiece.h.
 * Method   WordPiece takes the longest token that begins the word, then the longest "##" token that
 *          begins the rest, and so on; any dead end makes the whole word unknown. Done plainly that is
 *          quadratic. Here each node of the trie knows what to do when the next byte does not
 *          fit (LinMaxMatch, Song and others 2021): which tokens are certain by then (`pop`), and the
 *          node that stands for the bytes left over (`fail`). No byte is read twice.
 *
 *              node(v) is a token            pop = [that token]         fail = suffix root
 *              else, v = u + byte c          pop = pop(u) and then, from z = fail(u) on while z has
 *                                            no child c, pop(z); fail = child(z, c), 0 if none
 *
 *          Two roots: words begin at ROOT with whole tokens (also "##x" taken literally, as the reference
 *          does); rests begin at SUFFIX with the tokens that carry the prefix, without it.
 *          Bytes, not code points: tokens are valid UTF-8, so matches end on character borders anyway.
 *          The trie is a double array (child = base ^ byte): one load and one compare per byte.
 * Memory   While building, a child/sibling trie; afterwards nodes and pops. Both are bounded by the
 *          vocabulary's text, and the pops besides by POPS_MAX, because a malicious vocabulary can make
 *          them quadratic.
 * Threads  Immutable. Proof: tests/unit/test_tokenizer_parts.c (against the plain algorithm on random
 *          vocabularies), tests/golden/test_tokens.py. */
#include "tokenizer/wordpiece.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

enum {
    ROOT   = 1, /* slots below 256 hold only the roots: base 0 then means "no children" */
    SUFFIX = 2,
    BLOCK  = 256,
    SEARCH_MAX =
        64, /* free slots tried before a new block is opened; 24 costs 4 MB more for BERT */
    POPS_MAX  = 1 << 26, /* 256 MiB */
    NODES_MAX = 1 << 28
};

/* The trie while it grows. Index 0 is "none". */
typedef struct grow_node {
    uint32_t child;   /* first */
    uint32_t sibling; /* next */
    uint32_t slot;    /* its place in the double array */
    int32_t  token;   /* or -1 */
    uint8_t  label;
} grow_node;

typedef struct builder {
    grow_node    *grow; /* [grow_count] */
    uint32_t      grow_count, grow_limit;
    fl_trie_node *nodes;
    uint32_t     *next_free; /* [limit]: ring of free slots; 0 when the slot is taken */
    uint32_t     *prev_free;
    uint32_t      used, limit, free_head;
    uint32_t     *pops;
    size_t        pops_used, pops_limit;
} builder;

static bool grow_reserve(builder *b, size_t extra) {
    size_t need = b->grow_count + extra;
    if (need <= b->grow_limit) {
        return true;
    }
    if (need > NODES_MAX) {
        return false;
    }
    size_t     limit = need < 4096 ? 4096 : need + need / 2;
    grow_node *grown = fl_realloc_array(b->grow, limit, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    b->grow       = grown;
    b->grow_limit = (uint32_t)limit;
    return true;
}

static bool insert(builder *b, uint32_t root, const char *text, size_t length, int32_t token) {
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
            b->grow[child]    = (grow_node){0, b->grow[at].child, 0, -1, label};
            b->grow[at].child = child;
        }
        at = child;
    }
    b->grow[at].token = token;
    return true;
}

/* One more block of 256 free slots at the end of the array. */
static bool add_block(builder *b) {
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

static void take_slot(builder *b, uint32_t slot, uint32_t parent) {
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
static uint32_t find_base(builder *b, uint32_t at) {
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

static bool push_pop(builder *b, uint32_t value) {
    if (b->pops_used == b->pops_limit) {
        size_t limit = b->pops_limit == 0 ? 65536 : b->pops_limit * 2;
        if (limit > POPS_MAX) {
            return false;
        }
        uint32_t *pops = fl_realloc_array(b->pops, limit, sizeof *pops);
        if (pops == NULL) {
            return false;
        }
        b->pops       = pops;
        b->pops_limit = limit;
    }
    b->pops[b->pops_used++] = value;
    return true;
}

/* Append the ids of pops[from] to the entry that begins at `entry`. */
static bool append_pops(builder *b, size_t entry, uint32_t from) {
    for (uint32_t i = 0; i < b->pops[from]; i++) {
        if (!push_pop(b, b->pops[from + 1 + i])) {
            return false;
        }
        b->pops[entry]++;
    }
    return true;
}

static uint32_t child_of(const fl_trie_node *nodes, uint32_t at, uint8_t byte) {
    uint32_t slot = nodes[at].base ^ byte;
    return nodes[slot].check == at ? slot : 0;
}

/* Fill fail and pop of the node in `slot`, a child of `parent` (both placed). */
static bool link_node(builder *b, uint32_t slot, uint32_t parent, uint8_t byte, int32_t token) {
    size_t entry = b->pops_used;
    if (!push_pop(b, 0)) {
        return false;
    }
    if (token >= 0) {
        b->nodes[slot].fail = SUFFIX;
        b->nodes[slot].pop  = (uint32_t)entry;
        b->pops[entry]      = 1;
        return push_pop(b, (uint32_t)token);
    }
    uint32_t z = b->nodes[parent].fail;
    if (z != 0 && !append_pops(b, entry, b->nodes[parent].pop)) {
        return false;
    }
    while (z != 0 && child_of(b->nodes, z, byte) == 0) {
        uint32_t next = b->nodes[z].fail;
        if (next != 0 && !append_pops(b, entry, b->nodes[z].pop)) {
            return false;
        }
        z = next;
    }
    if (z == 0) { /* the ids gathered lead nowhere */
        b->pops_used = entry;
        return true;
    }
    b->nodes[slot].fail = child_of(b->nodes, z, byte);
    b->nodes[slot].pop  = (uint32_t)entry;
    return true;
}

/* Place all nodes breadth first: a node's fail is always shallower, so it stands already. */
static bool place_all(builder *b) {
    uint32_t *queue = fl_alloc_array(b->grow_count, sizeof *queue);
    if (queue == NULL) {
        return false;
    }
    uint32_t head = 0, tail = 0;
    bool     ok          = add_block(b) && push_pop(b, 0);
    b->grow[ROOT].slot   = ROOT;
    b->grow[SUFFIX].slot = SUFFIX;
    queue[tail++]        = ROOT;
    queue[tail++]        = SUFFIX;
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
            ok = link_node(b, b->grow[c].slot, parent, b->grow[c].label, b->grow[c].token);
        }
    }
    fl_free(queue);
    return ok;
}

static size_t code_points(const char *text, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    return count;
}

static bool insert_all(builder *b, const fl_vocab *vocab, const char *prefix, size_t prefix_length,
                       uint32_t max_chars) {
    if (!grow_reserve(b, 3)) {
        return false;
    }
    memset(b->grow, 0, 3 * sizeof *b->grow);
    b->grow[ROOT].token = b->grow[SUFFIX].token = -1;
    b->grow_count                               = 3;
    for (uint32_t id = 0; id < vocab->size; id++) {
        size_t      length;
        const char *text = fl_vocab_text(vocab, (int32_t)id, &length);
        if (text == NULL || length == 0) {
            continue;
        }
        if (code_points(text, length) <= max_chars && !insert(b, ROOT, text, length, (int32_t)id)) {
            return false;
        }
        if (length > prefix_length && memcmp(text, prefix, prefix_length) == 0 &&
            code_points(text + prefix_length, length - prefix_length) <= max_chars &&
            !insert(b, SUFFIX, text + prefix_length, length - prefix_length, (int32_t)id)) {
            return false;
        }
    }
    return true;
}

int fl_wordpiece_open(fl_wordpiece *wordpiece, const fl_vocab *vocab, const char *prefix,
                      uint32_t max_chars, int32_t unk, const char *source, fletch_error *error) {
    memset(wordpiece, 0, sizeof *wordpiece);
    builder b  = {0};
    bool    ok = insert_all(&b, vocab, prefix, strlen(prefix), max_chars) && place_all(&b);
    fl_free(b.grow);
    fl_free(b.next_free);
    fl_free(b.prev_free);
    if (!ok) {
        fl_free(b.nodes);
        fl_free(b.pops);
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                       "%s: no memory for the trie of %u tokens", source, vocab->count);
    }
    fl_trie_node *nodes = fl_realloc_array(b.nodes, b.used, sizeof *nodes); /* give back the rest */
    uint32_t     *pops  = fl_realloc_array(b.pops, b.pops_used, sizeof *pops);
    wordpiece->nodes    = nodes != NULL ? nodes : b.nodes;
    wordpiece->pops     = pops != NULL ? pops : b.pops;
    wordpiece->node_count    = b.used;
    wordpiece->max_chars     = max_chars;
    wordpiece->prefix_length = (uint32_t)strlen(prefix);
    wordpiece->unk           = unk;
    return 0;
}

void fl_wordpiece_close(fl_wordpiece *wordpiece) {
    fl_free(wordpiece->nodes);
    fl_free(wordpiece->pops);
    memset(wordpiece, 0, sizeof *wordpiece);
}

/* Emit what is certain at node `at` and return the node that goes on, 0 for a dead end. */
static inline uint32_t fall(const fl_wordpiece *wordpiece, uint32_t at, int32_t *ids,
                            size_t *count) {
    const fl_trie_node *node = &wordpiece->nodes[at];
    if (node->fail == 0) {
        return 0;
    }
    const uint32_t *pop = &wordpiece->pops[node->pop];
    for (uint32_t i = 0; i < pop[0]; i++) {
        ids[(*count)++] = (int32_t)pop[1 + i];
    }
    return node->fail;
}

size_t fl_wordpiece_encode(const fl_wordpiece *wordpiece, const char *word, size_t size,
                           int32_t *ids) {
    size_t   count = 0;
    uint32_t at    = ROOT;
    for (size_t i = 0; i < size; i++) {
        uint32_t next;
        while ((next = child_of(wordpiece->nodes, at, (uint8_t)word[i])) == 0) {
            at = fall(wordpiece, at, ids, &count);
            if (at == 0) {
                return 0;
            }
        }
        at = next;
    }
    while (at != SUFFIX) {
        at = fall(wordpiece, at, ids, &count);
        if (at == 0) {
            return 0;
        }
    }
    return count;
}
