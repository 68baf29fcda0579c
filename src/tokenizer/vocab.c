/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c - tokens by id and ids by token.
 *
 * Role     See vocab.h.
 * Method   Open addressing over a table at most half full, with the seeded hash of base/hash.h: a file
 *          made to collide opens as fast as any. It is used while a model opens and for single
 *          look-ups; the encoding itself walks the trie.
 * Memory   Sized once by fl_vocab_open; fl_vocab_add never allocates and never overruns, because
 *          the caller has counted (the check is an error of this program, not of the file).
 * Threads  Immutable after filling.
 * Proof    tests/unit/test_tokenizer_parts.c. */
#include "tokenizer/vocab.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

bool fl_vocab_open(fl_vocab *vocab, uint32_t size, uint32_t count, size_t text_bytes) {
    memset(vocab, 0, sizeof *vocab);
    uint64_t slots = 16;
    while (slots < 2ull * count)
        slots *= 2;
    size_t limit;
    if (slots > UINT32_MAX || fl_add_overflow(text_bytes, (size_t)count + 1, &limit) ||
        limit > UINT32_MAX)
        return false;
    vocab->text       = fl_alloc(limit);
    vocab->text_limit = limit;
    vocab->start      = fl_alloc_zero(size, sizeof *vocab->start);
    vocab->length     = fl_alloc_zero(size, sizeof *vocab->length);
    vocab->slot       = fl_big_alloc((size_t)slots * sizeof *vocab->slot);
    vocab->slot_mask  = (uint32_t)slots - 1;
    if (vocab->text == NULL || vocab->start == NULL || vocab->length == NULL ||
        vocab->slot == NULL) {
        fl_vocab_close(vocab);
        return false;
    }
    vocab->text[0]   = '\0';
    vocab->text_size = 1;
    vocab->size      = size;
    vocab->seed      = fl_hash_seed(vocab);
    return true;
}

/* The block, smaller if it may be. */
static void *shrink(void *block, size_t count, size_t size) {
    void *smaller = fl_realloc_array(block, count, size);
    return smaller != NULL ? smaller : block;
}

void fl_vocab_fit(fl_vocab *vocab, uint32_t size) {
    assert(size > 0);
    vocab->text       = shrink(vocab->text, vocab->text_size, 1);
    vocab->text_limit = vocab->text_size;
    vocab->start      = shrink(vocab->start, size, sizeof *vocab->start);
    vocab->length     = shrink(vocab->length, size, sizeof *vocab->length);
    vocab->size       = size;
}

void fl_vocab_close(fl_vocab *vocab) {
    fl_free(vocab->text);
    fl_free(vocab->start);
    fl_free(vocab->length);
    fl_big_free(vocab->slot, ((size_t)vocab->slot_mask + 1) * sizeof *vocab->slot);
    memset(vocab, 0, sizeof *vocab);
}

static uint32_t home_of(const fl_vocab *vocab, const char *text, size_t length) {
    assert(text || length == 0);
    return (uint32_t)fl_hash(text, length, vocab->seed) & vocab->slot_mask;
}

/* The slot that holds the token, or the empty one where it belongs; `at` is where it is looked for first. */
static uint32_t slot_from(const fl_vocab *vocab, uint32_t at, const char *text, size_t length) {
    while (vocab->slot[at] != 0) {
        uint32_t id = vocab->slot[at] - 1;
        if (vocab->length[id] == length &&
            memcmp(vocab->text + vocab->start[id], text, length) == 0)
            break;
        at = (at + 1) & vocab->slot_mask;
    }
    return at;
}

static uint32_t slot_of(const fl_vocab *vocab, const char *text, size_t length) {
    return slot_from(vocab, home_of(vocab, text, length), text, length);
}

static fl_vocab_added add(fl_vocab *vocab, const char *text, size_t length, uint32_t id,
                          bool later) {
    if (id >= vocab->size || vocab->start[id] != FL_VOCAB_HOLE ||
        length + 1 > vocab->text_limit - vocab->text_size)
        return FL_VOCAB_ID_TAKEN;
    uint32_t *slot = &vocab->slot[slot_of(vocab, text, length)];
    if (*slot != 0 && !later)
        return FL_VOCAB_TEXT_TAKEN;
    *slot             = id + 1;
    vocab->start[id]  = (uint32_t)vocab->text_size;
    vocab->length[id] = (uint32_t)length;
    memcpy(vocab->text + vocab->text_size, text, length);
    vocab->text[vocab->text_size + length] = '\0';
    vocab->text_size += length + 1;
    vocab->count++;
    return FL_VOCAB_ADDED;
}

fl_vocab_added fl_vocab_add(fl_vocab *vocab, const char *text, size_t length, uint32_t id) {
    return add(vocab, text, length, id, false);
}

fl_vocab_added fl_vocab_add_later(fl_vocab *vocab, const char *text, size_t length, uint32_t id) {
    return add(vocab, text, length, id, true);
}

bool fl_vocab_left(fl_vocab_queue *queue, fl_vocab_entry *due) {
    if (queue->taken == queue->put)
        return false;
    *due = queue->entry[queue->taken++ % FL_VOCAB_AHEAD];
    return true;
}

bool fl_vocab_wait(fl_vocab_queue *queue, const fl_vocab *vocab, fl_vocab_entry one,
                   fl_vocab_entry *due) {
    bool full = queue->put - queue->taken == FL_VOCAB_AHEAD && fl_vocab_left(queue, due);
    __builtin_prefetch(&vocab->slot[home_of(vocab, one.text.data, one.text.size)]);
    queue->entry[queue->put++ % FL_VOCAB_AHEAD] = one;
    return full;
}

int32_t fl_vocab_find(const fl_vocab *vocab, const char *text, size_t length) {
    assert(text || length == 0);
    return (int32_t)vocab->slot[slot_of(vocab, text, length)] - 1;
}

void fl_vocab_find_all(const fl_vocab *vocab, const fl_span *texts, size_t count, int32_t *ids) {
    for (size_t i = 0; i < count; i++) {
        ids[i] = (int32_t)home_of(vocab, texts[i].data, texts[i].size);
        __builtin_prefetch(&vocab->slot[ids[i]]);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t id = vocab->slot[ids[i]];
        __builtin_prefetch(&vocab->start[id - (id > 0)]);
        __builtin_prefetch(&vocab->length[id - (id > 0)]);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t id = vocab->slot[ids[i]];
        __builtin_prefetch(vocab->text + vocab->start[id - (id > 0)]);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t at = slot_from(vocab, (uint32_t)ids[i], texts[i].data, texts[i].size);
        ids[i]      = (int32_t)vocab->slot[at] - 1;
    }
}

const char *fl_vocab_text(const fl_vocab *vocab, int32_t id, size_t *length) {
    if (id < 0 || (uint32_t)id >= vocab->size || vocab->start[id] == FL_VOCAB_HOLE)
        return NULL;
    if (length != NULL)
        *length = vocab->length[id];
    return vocab->text + vocab->start[id];
}

void fl_vocab_find_bytes(const fl_vocab *vocab, int32_t ids[256]) {
    static const char digits[] = "0123456789ABCDEF";
    char              name[]   = "<0x00>";
    for (unsigned byte = 0; byte < 256; byte++) {
        name[3]   = digits[byte / 16];
        name[4]   = digits[byte % 16];
        ids[byte] = fl_vocab_find(vocab, name, sizeof name - 1);
    }
}
