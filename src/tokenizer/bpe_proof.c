/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_proof.c - which tokens give themselves back, without working out their text.
 *
 * Role     bpe_open.c asks when it fills the table of whole words; of 151,643 tokens that were a third of opening.
 * Method   A token t that the merge of l and r makes gives itself exactly if l and r do and nothing joins across the
 *          place between them while they come about. Where every merge comes after all that make its parts, merges
 *          are carried out in the order of ranks. So the last step before l r is the later one of those that made
 *          l and r: say l = x y. Had y and r a merge of lower rank, it would have come first. If not, the
 *          same is asked of y and r, down to symbols. Of equal ranks the left one comes first.
 *
 *              l o | w er   er is the later: was "lo" + "e" a merge before it?   then l o | w e: "o" + "w", ...
 *
 *          Asked in the order of ranks, the answers about l and r are there.
 * Memory   12 bytes a merge and 8 a token while it works. Threads: reentrant.
 * Proof    tests/golden/test_tokens_bpe.py. */
#include <string.h>

#include "base/mem.h"
#include "tokenizer/bpe_tables.h"

typedef struct proof {
    const fl_bpe *bpe;
    uint64_t     *pair; /* [merges]: left and right of each rank; FL_BPE_FREE: none has it */
    int32_t      *by; /* [tokens]: the rank that a token comes from, FL_BPE_SYMBOL, FL_BPE_OTHER */
    uint32_t      count;
} proof;

/* Does nothing join across the place between the two while they come about? */
static bool stay_apart(const proof *p, uint32_t left, uint32_t right) {
    int32_t a = p->by[left], b = p->by[right];
    while (a >= 0 || b >= 0) {
        bool     first = a > b;
        uint32_t limit = (uint32_t)(first ? a : b);
        left           = first ? fl_bpe_right(p->pair[a]) : left;
        right          = first ? right : fl_bpe_left(p->pair[b]);
        if (fl_bpe_rank_of(p->bpe, left, right) < limit + !first)
            return false;
        a = p->by[left];
        b = p->by[right];
    }
    return true;
}

/* The pairs by rank; false: a merge comes before one that makes a part of it. `last` is of each token. */
static bool sort_pairs(proof *p, int32_t *last) {
    const fl_bpe *b = p->bpe;
    for (uint32_t i = 0; i < p->count; i++)
        p->pair[i] = FL_BPE_FREE;
    for (uint64_t i = 0; i < b->merge_mask + FL_BPE_BUCKET; i++) {
        uint64_t slot = b->merges[i] & ~FL_BPE_SPILT;
        if (slot != FL_BPE_FREE)
            p->pair[fl_bpe_rank(slot)] = slot;
    }
    for (uint32_t id = 0; id < b->vocab->size; id++)
        last[id] = FL_BPE_SYMBOL;
    for (uint32_t i = 0; i < p->count; i++)
        last[b->made[i]] = p->pair[i] != FL_BPE_FREE ? (int32_t)i : last[b->made[i]];
    bool sorted = true;
    for (int32_t i = 0; i < (int32_t)p->count; i++) {
        bool there = p->pair[i] != FL_BPE_FREE;
        sorted =
            sorted &&
            (!there || (last[fl_bpe_left(p->pair[i])] < i && last[fl_bpe_right(p->pair[i])] < i));
    }
    return sorted;
}

static void prove(proof *p, const int32_t *last) {
    const fl_bpe *b = p->bpe;
    for (uint32_t id = 0; id < b->vocab->size; id++)
        p->by[id] = FL_BPE_OTHER;
    for (unsigned byte = 0; byte < 256; byte++) {
        int32_t id = b->of_byte[byte];
        if (id >= 0 && last[id] == FL_BPE_SYMBOL)
            p->by[id] = FL_BPE_SYMBOL;
    }
    for (int32_t i = 0; i < (int32_t)p->count; i++) {
        uint32_t left = fl_bpe_left(p->pair[i]), right = fl_bpe_right(p->pair[i]),
                 made = b->made[i];
        if (p->pair[i] != FL_BPE_FREE && p->by[made] == FL_BPE_OTHER &&
            p->by[left] != FL_BPE_OTHER && p->by[right] != FL_BPE_OTHER &&
            stay_apart(p, left, right))
            p->by[made] = i;
    }
}

bool fl_bpe_prove(const fl_bpe *b, int32_t **by) {
    proof    p    = {.bpe = b, .count = b->made_count};
    int32_t *last = fl_alloc_array(b->vocab->size, sizeof *last);
    p.pair        = fl_alloc_array((size_t)p.count + 1, sizeof *p.pair);
    p.by          = fl_alloc_array(b->vocab->size, sizeof *p.by);
    bool good     = last != NULL && p.pair != NULL && p.by != NULL;
    bool sorted   = good && sort_pairs(&p, last);
    if (sorted) {
        prove(&p, last);
    } else {
        fl_free(p.by);
        p.by = NULL;
    }
    fl_free(last);
    fl_free(p.pair);
    *by = p.by;
    return good;
}
