/* SPDX-License-Identifier: Apache-2.0 */
/* trie.c - a set of byte strings as a double array.
 *
 * Role     See trie.h.
 * Method   Breadth first, so that the nodes near the roots, which every walk passes, lie together. A node is a range
 *          of the keys, which agree up to its depth; sorting the range by the next byte gives its children, so
 *          that no other trie is needed to make this one and each byte of the keys is looked at once.
 *          Slots come in blocks of 256. A block's free ones are a bit set, and because places are found by XOR, one
 *          AND per child of that set, permuted, leaves all bases of the block at which the children fit. A few
 *          blocks are tried, the oldest first: more would save little memory and cost time.
 * Memory   Beside the nodes: the ranges of two levels. The array doubles; what it does not need is given back.
 * Proof    tests/unit/test_tokenizer_parts.c, through WordPiece; tests/golden/test_unigram.py. */
#include "tokenizer/trie.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

enum {
    BLOCK      = 256,
    WORDS      = BLOCK / 64,
    OPEN_MAX   = 64, /* blocks in which slots are looked for */
    TRIES_MAX  = 12,
    BLOCKS_MAX = 1 << 20, /* no base is a tail */
    FIRST      = 64,
    FEW        = 24 /* keys that are sorted by insertion */
};

/* A node whose children have no slots yet: its keys are [begin, end). */
typedef struct range {
    uint32_t slot, begin, end;
} range;

typedef struct level {
    range *at;
    size_t count, limit;
} level;

/* 256 slots that are not all taken. */
typedef struct block {
    uint64_t free[WORDS];
    uint32_t left;  /* free ones */
    uint32_t first; /* slot */
} block;

typedef struct builder {
    fl_trie       *trie; /* count: slots in use */
    uint32_t       limit;
    block          open[OPEN_MAX]; /* the oldest first */
    unsigned       open_count;
    uint32_t       tails;
    const uint8_t *text;
    fl_trie_key   *keys;
    level          now, next;
    uint8_t  labels[BLOCK]; /* of the children of a node, ascending, and where their keys end */
    uint32_t ends[BLOCK];
} builder;

static bool push(level *l, range r) {
    if (!fl_array_reserve(&l->at, &l->limit, l->count + 1, sizeof *l->at))
        return false;
    l->at[l->count++] = r;
    return true;
}

/* ---- Slots ------------------------------------------------------------------------------------ */

static bool grow(builder *b) {
    uint32_t limit = b->limit == 0 ? FIRST * BLOCK : b->limit * 2;
    size_t   bytes = (size_t)limit * sizeof *b->trie->nodes;
    if (limit > BLOCKS_MAX * BLOCK)
        return false;
    fl_trie_node *nodes = fl_big_grow(b->trie->nodes, b->trie->bytes, bytes);
    if (nodes == NULL)
        return false;
    b->trie->nodes = nodes;
    b->trie->bytes = bytes;
    b->limit       = limit;
    return true;
}

static void close_block(builder *b, unsigned which) {
    assert(which < b->open_count);
    b->open_count--;
    memmove(b->open + which, b->open + which + 1, (b->open_count - which) * sizeof *b->open);
}

/* One more block of free slots at the end of the array. */
static bool add_block(builder *b) {
    if (b->trie->count == b->limit && !grow(b))
        return false;
    if (b->open_count == OPEN_MAX)
        close_block(b, 0);
    block *fresh = &b->open[b->open_count++];
    *fresh       = (block){.left = BLOCK, .first = b->trie->count};
    memset(fresh->free, 0xFF, sizeof fresh->free);
    b->trie->count += BLOCK;
    return true;
}

/* Bit i of the result is bit i ^ by of x. */
static inline uint64_t permute(uint64_t x, unsigned by) {
    assert(by < 64);
    static const uint64_t low[6] = {0x5555555555555555u, 0x3333333333333333u, 0x0F0F0F0F0F0F0F0Fu,
                                    0x00FF00FF00FF00FFu, 0x0000FFFF0000FFFFu, 0x00000000FFFFFFFFu};
    for (unsigned bit = 0; bit < 6; bit++) {
        uint64_t swapped = (x >> (1u << bit) & low[bit]) | (x & low[bit]) << (1u << bit);
        x                = (by >> bit & 1) != 0 ? swapped : x;
    }
    return x;
}

/* The lowest base in the block at which all children find free slots, or 0. */
static uint32_t fit(const builder *b, const block *k, unsigned children) {
    assert(children > 0 && children <= BLOCK);
    for (unsigned word = 0; word < WORDS; word++) {
        uint64_t bases = UINT64_MAX;
        for (unsigned c = 0; c < children && bases != 0; c++) {
            unsigned label = b->labels[c];
            bases &= permute(k->free[word ^ label / 64], label % 64);
        }
        if (bases != 0)
            return k->first + 64 * word + (unsigned)__builtin_ctzll(bases);
    }
    return 0;
}

/* Take slots for all children; their base, or 0: no memory. */
static uint32_t take_slots(builder *b, unsigned children) {
    assert(children > 0 && children <= BLOCK);
    uint32_t base  = 0;
    unsigned which = 0;
    for (unsigned tries = 0; which < b->open_count && tries < TRIES_MAX; which++) {
        if (b->open[which].left >= children) {
            tries++;
            base = fit(b, &b->open[which], children);
            if (base != 0)
                break;
        }
    }
    if (base == 0) {
        if (!add_block(b))
            return 0;
        which = b->open_count - 1;
        base  = b->open[which].first;
    }
    block *k = &b->open[which];
    for (unsigned c = 0; c < children; c++) {
        uint32_t place = (base ^ b->labels[c]) % BLOCK;
        k->free[place / 64] &= ~(1ull << place % 64);
    }
    k->left -= children;
    if (k->left == 0)
        close_block(b, which);
    return base;
}

/* ---- Keys ------------------------------------------------------------------------------------- */

/* Keys are asked for in an order of their own, far apart in the text. */
static inline uint8_t byte_in(const builder *b, const fl_trie_key *key, uint32_t depth) {
    return depth < sizeof key->head ? (uint8_t)(key->head >> 8 * depth)
                                    : b->text[key->text + depth];
}

static inline uint8_t byte_of(const builder *b, uint32_t key, uint32_t depth) {
    return byte_in(b, &b->keys[key], depth);
}

static void fill_heads(builder *b, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        fl_trie_key   *key  = &b->keys[i];
        const uint8_t *text = b->text + key->text;
        key->head           = 0;
        for (unsigned at = 0; at < sizeof key->head && text[at] != 0; at++)
            key->head |= (uint64_t)text[at] << 8 * at;
    }
}

static void sort_few(builder *b, uint32_t begin, uint32_t end, uint32_t depth) {
    assert(begin <= end);
    for (uint32_t i = begin + 1; i < end; i++) {
        fl_trie_key key  = b->keys[i];
        uint8_t     byte = byte_in(b, &key, depth);
        uint32_t    to   = i;
        for (; to > begin && byte_of(b, to - 1, depth) > byte; to--)
            b->keys[to] = b->keys[to - 1];
        b->keys[to] = key;
    }
}

/* Each key goes to where its byte's share begins, in place of one that goes elsewhere. */
static void sort_many(builder *b, uint32_t begin, uint32_t end, uint32_t depth) {
    assert(begin < end);
    uint32_t next[BLOCK] = {0}, stop[BLOCK];
    for (uint32_t i = begin; i < end; i++)
        next[byte_of(b, i, depth)]++;
    for (uint32_t byte = 0, at = begin; byte < BLOCK; byte++) {
        at += next[byte];
        next[byte] = at - next[byte];
        stop[byte] = at;
    }
    for (uint32_t byte = 0; byte < BLOCK; byte++) {
        while (next[byte] < stop[byte]) {
            fl_trie_key key = b->keys[next[byte]];
            uint8_t     own = byte_in(b, &key, depth);
            while (own != byte) {
                fl_trie_key other    = b->keys[next[own]];
                b->keys[next[own]++] = key;
                key                  = other;
                own                  = byte_in(b, &key, depth);
            }
            b->keys[next[byte]++] = key;
        }
    }
}

/* The children of a range: labels and the ends of their keys. Keys that end at the node itself come first;
 * *token is the highest of them. */
static unsigned split(builder *b, range *r, uint32_t depth, int32_t *token) {
    assert(r->begin <= r->end);
    unsigned children = 0;
    if (r->end - r->begin <= FEW)
        sort_few(b, r->begin, r->end, depth);
    else
        sort_many(b, r->begin, r->end, depth);
    *token = -1;
    while (r->begin < r->end && byte_of(b, r->begin, depth) == 0) {
        int32_t own = b->keys[r->begin++].token;
        *token      = own > *token ? own : *token;
    }
    for (uint32_t i = r->begin; i < r->end; i++) {
        uint8_t byte = byte_of(b, i, depth);
        if (children == 0 || b->labels[children - 1] != byte)
            b->labels[children++] = byte;
        b->ends[children - 1] = i + 1;
    }
    return children;
}

/* ---- The trie --------------------------------------------------------------------------------- */

static bool place_children(builder *b, range r, unsigned children) {
    assert(children > 0 && r.slot < b->trie->count);
    uint32_t base = take_slots(b, children);
    if (base == 0)
        return false;
    b->trie->nodes[r.slot].base = base;
    uint32_t begin              = r.begin;
    for (unsigned c = 0; c < children; c++) {
        uint32_t slot              = base ^ b->labels[c];
        b->trie->nodes[slot].check = r.slot;
        if (!push(&b->next, (range){slot, begin, b->ends[c]}))
            return false;
        begin = b->ends[c];
    }
    return true;
}

/* The node gets what is left of its only key; false: it has several, or there is nothing left. */
static bool put_tail(const builder *b, range r, uint32_t depth, int32_t *token) {
    if (b->tails == 0 || depth < b->tails || r.end - r.begin != 1 ||
        byte_of(b, r.begin, depth) == 0)
        return false;
    b->trie->nodes[r.slot].base = FL_TRIE_TAIL | (b->keys[r.begin].text + depth);
    *token                      = b->keys[r.begin].token;
    return true;
}

static bool place_all(builder *b, fl_trie_link_fn link, void *user) {
    for (uint32_t depth = 0; b->now.count > 0; depth++) {
        for (size_t i = 0; i < b->now.count; i++) {
            range    r        = b->now.at[i];
            int32_t  token    = -1;
            unsigned children = put_tail(b, r, depth, &token) ? 0 : split(b, &r, depth, &token);
            uint32_t parent   = b->trie->nodes[r.slot].check;
            uint8_t  byte     = (uint8_t)(b->trie->nodes[parent].base ^ r.slot);
            if ((parent != 0 && !link(user, b->trie->nodes, r.slot, parent, byte, token)) ||
                (children > 0 && !place_children(b, r, children)))
                return false;
        }
        level done    = b->now;
        b->now        = b->next;
        b->next       = done;
        b->next.count = 0;
    }
    return true;
}

bool fl_trie_build(fl_trie *trie, const char *text, fl_trie_key *keys, const uint32_t *ends,
                   uint32_t roots, uint32_t tails, fl_trie_link_fn link, void *user) {
    builder b    = {.trie = trie, .tails = tails, .text = (const uint8_t *)text, .keys = keys};
    *trie        = (fl_trie){0};
    bool good    = add_block(&b); /* the roots' own, in which nothing else lies */
    b.open_count = 0;
    fill_heads(&b, ends[roots]);
    for (uint32_t root = 1; root <= roots && good; root++)
        good = push(&b.now, (range){root, ends[root - 1], ends[root]});
    good = good && place_all(&b, link, user);
    fl_free(b.now.at);
    fl_free(b.next.at);
    if (good)
        trie->bytes = fl_big_trim(trie->nodes, trie->bytes, trie->count * sizeof *trie->nodes);
    else
        fl_trie_free(trie);
    return good;
}

void fl_trie_free(fl_trie *trie) {
    fl_big_free(trie->nodes, trie->bytes);
    *trie = (fl_trie){0};
}
