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
 * Memory   Nodes and pops. Both are bounded by the vocabulary's text, and the pops besides by POPS_MAX, because
 *          a malicious vocabulary can make them quadratic.
 * Threads  Immutable. Proof: tests/unit/test_tokenizer_parts.c (against the plain algorithm on random
 *          vocabularies), tests/golden/test_tokens.py. */
#include "tokenizer/wordpiece.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parse.h"
#include "tokenizer/trie.h"

enum {
    ROOT     = 1,
    SUFFIX   = 2,
    POPS_MAX = 1 << 26 /* 256 MiB */
};

typedef struct builder {
    uint32_t *pops;
    size_t    pops_used, pops_limit;
} builder;

static bool push_pop(builder *b, uint32_t value) {
    if (b->pops_used == POPS_MAX ||
        !fl_array_reserve(&b->pops, &b->pops_limit, b->pops_used + 1, sizeof *b->pops))
        return false;
    b->pops[b->pops_used++] = value;
    return true;
}

/* Append the ids of pops[from] to the entry that begins at `entry`. */
static bool append_pops(builder *b, size_t entry, uint32_t from) {
    for (uint32_t i = 0; i < b->pops[from]; i++) {
        if (!push_pop(b, b->pops[from + 1 + i]))
            return false;
        b->pops[entry]++;
    }
    return true;
}

/* Fill fail and pop of the node in `slot`, a child of `parent` (both placed). */
static bool link_node(void *user, fl_trie_node *nodes, uint32_t slot, uint32_t parent, uint8_t byte,
                      int32_t token) {
    builder *b     = user;
    size_t   entry = b->pops_used;
    if (!push_pop(b, 0))
        return false;
    if (token >= 0) {
        nodes[slot].fail = SUFFIX;
        nodes[slot].pop  = (uint32_t)entry;
        b->pops[entry]   = 1;
        return push_pop(b, (uint32_t)token);
    }
    uint32_t z = nodes[parent].fail;
    if (z != 0 && !append_pops(b, entry, nodes[parent].pop))
        return false;
    while (z != 0 && fl_trie_child(nodes, z, byte) == 0) {
        uint32_t next = nodes[z].fail;
        if (next != 0 && !append_pops(b, entry, nodes[z].pop))
            return false;
        z = next;
    }
    if (z == 0) { /* the ids gathered lead nowhere */
        b->pops_used = entry;
        return true;
    }
    nodes[slot].fail = fl_trie_child(nodes, z, byte);
    nodes[slot].pop  = (uint32_t)entry;
    return true;
}

/* The keys of both roots; ends[r] is where those of root r end. NULL: no memory. */
static fl_trie_key *list_keys(const fl_wordpiece *w, uint32_t ends[SUFFIX + 1]) {
    const fl_vocab *vocab = w->vocab;
    fl_trie_key    *keys  = fl_alloc_array(2 * (size_t)vocab->count, sizeof *keys);
    uint32_t        count = 0;
    ends[0]               = 0;
    for (uint32_t root = ROOT; keys != NULL && root <= SUFFIX; root++) {
        for (uint32_t id = 0; id < vocab->size; id++) {
            size_t      length = 0, skip = root == SUFFIX ? w->prefix_length : 0;
            const char *text = fl_vocab_text(vocab, (int32_t)id, &length);
            if (length > skip && memcmp(text, w->prefix, skip) == 0 &&
                fl_utf8_count(text + skip, length - skip) <= w->max_chars) {
                keys[count++] =
                    (fl_trie_key){.text = vocab->start[id] + (uint32_t)skip, .token = (int32_t)id};
            }
        }
        ends[root] = count;
    }
    return keys;
}

bool fl_wordpiece_open(fl_wordpiece *wordpiece, const fl_vocab *vocab, const char *prefix,
                       uint32_t max_chars, int32_t unk) {
    *wordpiece = (fl_wordpiece){.prefix        = fl_strdup(prefix),
                                .prefix_length = (uint32_t)strlen(prefix),
                                .max_chars     = max_chars,
                                .unk           = unk,
                                .vocab         = vocab};
    return wordpiece->prefix != NULL;
}

bool fl_wordpiece_prepare(fl_wordpiece *wordpiece) {
    assert(wordpiece->vocab);
    uint32_t     ends[SUFFIX + 1];
    builder      b     = {0};
    fl_trie_key *keys  = list_keys(wordpiece, ends);
    bool         ready = keys != NULL && push_pop(&b, 0) &&
                 fl_trie_build(&wordpiece->trie, wordpiece->vocab->text, keys, ends, SUFFIX, 0,
                               link_node, &b);
    fl_free(keys);
    uint32_t *pops  = ready ? fl_realloc_array(b.pops, b.pops_used, sizeof *pops) : NULL;
    wordpiece->pops = pops != NULL ? pops : b.pops; /* the rest is given back or not */
    return ready;
}

void fl_wordpiece_close(fl_wordpiece *wordpiece) {
    fl_trie_free(&wordpiece->trie);
    fl_free(wordpiece->pops);
    fl_free(wordpiece->prefix);
    memset(wordpiece, 0, sizeof *wordpiece);
}

/* Emit what is certain at node `at` and return the node that goes on, 0 for a dead end. */
static inline uint32_t fall(const fl_wordpiece *wordpiece, uint32_t at, int32_t *ids,
                            size_t *count) {
    const fl_trie_node *node = &wordpiece->trie.nodes[at];
    if (node->fail == 0)
        return 0;
    const uint32_t *pop = &wordpiece->pops[node->pop];
    for (uint32_t i = 0; i < pop[0]; i++)
        ids[(*count)++] = (int32_t)pop[1 + i];
    return node->fail;
}

size_t fl_wordpiece_encode(const fl_wordpiece *wordpiece, const char *word, size_t size,
                           int32_t *ids) {
    size_t   count = 0;
    uint32_t at    = ROOT;
    for (size_t i = 0; i < size; i++) {
        uint32_t next;
        while ((next = fl_trie_child(wordpiece->trie.nodes, at, (uint8_t)word[i])) == 0) {
            at = fall(wordpiece, at, ids, &count);
            if (at == 0)
                return 0;
        }
        at = next;
    }
    while (at != SUFFIX) {
        at = fall(wordpiece, at, ids, &count);
        if (at == 0)
            return 0;
    }
    return count;
}

/* ---- The model -------------------------------------------------------------------------------- */

static int open_model(fl_tokenizer *tokenizer, void **state, fl_json_reader *model,
                      const fl_log *log) {
    const char *unk    = fl_need_string(model, "unk_token");
    const char *prefix = fl_need_string(model, "continuing_subword_prefix");
    int64_t     chars  = fl_need_int(model, "max_input_chars_per_word", INT64_MAX);
    if (model->status == 0 && chars > FL_WORD_CHARS_MAX) {
        model->status = fl_fail(model->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                                "%s: max_input_chars_per_word %lld is not supported; at most %d",
                                model->source, (long long)chars, FL_WORD_CHARS_MAX);
    }
    FL_TRY(model->status < 0 ? model->status : fl_parse_vocab(tokenizer, model, log));
    int32_t unk_id = fl_vocab_find(&tokenizer->vocab, unk, strlen(unk));
    if (unk_id < 0) {
        return fl_fail(model->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: unk_token \"%s\" is not in model.vocab", model->source, unk);
    }
    *state = fl_alloc_zero(1, sizeof(fl_wordpiece));
    return *state != NULL &&
                   fl_wordpiece_open(*state, &tokenizer->vocab, prefix, (uint32_t)chars, unk_id)
               ? 0
               : fl_fail_nomem(model->error, sizeof(fl_wordpiece), model->source);
}

static bool prepare_model(void *state) {
    return fl_wordpiece_prepare(state);
}

static void close_model(void *state) {
    if (state != NULL)
        fl_wordpiece_close(state);
    fl_free(state);
}

/* Longer words are unknown. */
static size_t bytes_max(const fl_wordpiece *wordpiece) {
    return 4 * (size_t)wordpiece->max_chars;
}

static void measure(const void *state, size_t size, size_t *tokens, size_t *work) {
    const fl_wordpiece *wordpiece = state;
    *tokens                       = size <= bytes_max(wordpiece) ? size + 1 : 1;
    *work                         = *tokens * sizeof(int32_t);
}

static size_t encode_model(const void *state, void *work, const char *word, size_t size,
                           fl_word_token *tokens, fl_stop *stop) {
    assert(size > 0);
    const fl_wordpiece *wordpiece = state;
    int32_t            *ids       = work;
    size_t              count     = 0;
    (void)stop; /* no word that is not unknown takes long */
    if (size <= bytes_max(wordpiece) && fl_utf8_count(word, size) <= wordpiece->max_chars)
        count = fl_wordpiece_encode(wordpiece, word, size, ids);
    if (count == 0) {
        tokens[0] = (fl_word_token){wordpiece->unk, 0, (uint32_t)size};
        return 1;
    }
    uint32_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length;
        fl_vocab_text(wordpiece->vocab, ids[i], &length);
        length -= i > 0 ? wordpiece->prefix_length : 0;
        tokens[i] = (fl_word_token){ids[i], at, at + (uint32_t)length};
        at += (uint32_t)length;
    }
    return count;
}

const fl_token_model fl_wordpiece_model = {"WordPiece", open_model, prepare_model,
                                           close_model, measure,    encode_model};
