/* SPDX-License-Identifier: Apache-2.0 */
/* toml_tree.c - the nodes, strings and key index of a TOML document.
 *
 * Role    toml.c and toml_value.c add nodes while they read; callers walk the finished tree.
 * Method  An arena of blocks holds nodes and strings: one free for all. One hash table over the
 *         whole document maps (table, key) to the node, so that finding a key, which every line
 *         does to refuse duplicates, does not grow with the size of the table.
 * Memory  Blocks of 32 KiB, or one of its own for a larger string; the index is a quarter empty at
 *         least. Threads: a document belongs to one thread until it is finished.
 * Proof   tests/unit/test_toml.c. */
#include <stdalign.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "config/toml_parser.h"

enum { BLOCK_BYTES = 32 << 10, SLOTS_FIRST = 64 };

typedef struct fl_toml_block {
    struct fl_toml_block *next;
    size_t                used, capacity;
    alignas(max_align_t) char data[];
} fl_toml_block;

static void *arena_take(fl_toml_document *document, size_t size) {
    const size_t   rounded = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    fl_toml_block *block   = document->blocks;
    if (block == NULL || block->capacity - block->used < rounded) {
        const size_t capacity = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;
        block                 = fl_alloc(sizeof *block + capacity);
        if (block == NULL)
            return NULL;
        block->next      = document->blocks;
        block->used      = 0;
        block->capacity  = capacity;
        document->blocks = block;
    }
    void *taken = block->data + block->used;
    block->used += rounded;
    return taken;
}

const char *fl_toml_keep(fl_toml_document *document, const char *data, size_t size) {
    char *copy = arena_take(document, size + 1); /* size <= 16 MiB: no overflow */
    if (copy == NULL)
        return NULL;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

/* FNV-1a over the key, started from the address of the table. */
static size_t slot_of(const fl_toml_document *document, const fl_toml_node *table,
                      fl_toml_span key) {
    uint64_t hash = 14695981039346656037u ^ ((uint64_t)(uintptr_t)table >> 4);
    for (size_t i = 0; i < key.size; i++)
        hash = (hash ^ (unsigned char)key.data[i]) * 1099511628211u;
    hash ^= hash >> 29;
    return (size_t)hash & (document->slot_count - 1);
}

/* The slot that holds the key, or the empty one where it would go. */
static fl_toml_node **slot_find(const fl_toml_document *document, const fl_toml_node *table,
                                fl_toml_span key) {
    size_t i = slot_of(document, table, key);
    for (;; i = (i + 1) & (document->slot_count - 1)) {
        fl_toml_node **slot = &document->slots[i];
        if (*slot == NULL)
            return slot;
        const fl_toml_node *node = *slot;
        if (node->parent == table && node->view.key_size == key.size &&
            memcmp(node->view.key, key.data, key.size) == 0)
            return slot;
    }
}

static bool index_grow(fl_toml_document *document) {
    fl_toml_node **old   = document->slots;
    const size_t   count = document->slot_count;
    fl_toml_node **slots = fl_alloc_zero(count * 2, sizeof *slots);
    if (slots == NULL)
        return false;
    document->slots      = slots;
    document->slot_count = count * 2;
    for (size_t i = 0; i < count; i++) {
        if (old[i] == NULL)
            continue;
        const fl_toml_span key                    = {old[i]->view.key, old[i]->view.key_size};
        *slot_find(document, old[i]->parent, key) = old[i];
    }
    fl_free(old);
    return true;
}

fl_toml_document *fl_toml_document_new(void) {
    fl_toml_document *document = fl_alloc_zero(1, sizeof *document);
    if (document == NULL)
        return NULL;
    document->slots      = fl_alloc_zero(SLOTS_FIRST, sizeof *document->slots);
    document->slot_count = SLOTS_FIRST;
    document->root       = arena_take(document, sizeof *document->root);
    if (document->slots == NULL || document->root == NULL) {
        fl_toml_free(document);
        return NULL;
    }
    memset(document->root, 0, sizeof *document->root);
    document->root->view.type = FL_TOML_TABLE;
    document->root->view.line = document->root->view.column = 1;
    document->root->view.key = document->root->view.text = "";
    document->root->birth                                = FL_TOML_EXPLICIT;
    return document;
}

void fl_toml_free(fl_toml_document *document) {
    if (document == NULL)
        return;
    for (fl_toml_block *block = document->blocks; block != NULL;) {
        fl_toml_block *next = block->next;
        fl_free(block);
        block = next;
    }
    fl_free(document->slots);
    fl_free(document);
}

const fl_toml *fl_toml_root(const fl_toml_document *document) {
    return &document->root->view;
}

fl_toml_node *fl_toml_child(const fl_toml_document *document, const fl_toml_node *table,
                            fl_toml_span key) {
    return *slot_find(document, table, key);
}

const fl_toml *fl_toml_find(const fl_toml_document *document, const fl_toml *table,
                            const char *key) {
    if (table->type != FL_TOML_TABLE)
        return NULL;
    /* A view is the first member of its node. */
    const fl_toml_node *node = fl_toml_child(document, (const fl_toml_node *)(const void *)table,
                                             (fl_toml_span){key, strlen(key)});
    return node == NULL ? NULL : &node->view;
}

static void link_last(fl_toml_node *parent, fl_toml_node *node) {
    if (parent->last == NULL)
        parent->view.first = &node->view;
    else
        parent->last->view.next = &node->view;
    parent->last = node;
    parent->view.count++;
}

int fl_toml_add(fl_toml_parser *parser, fl_toml_node *parent, fl_toml_type type, fl_toml_span key,
                size_t offset, fl_toml_node **out) {
    fl_toml_document *document = parser->document;
    if (parent->depth >= FL_TOML_DEPTH_MAX)
        return fl_toml_fail(parser, offset, "more than %d levels of tables and arrays",
                            FL_TOML_DEPTH_MAX);
    if (document->used >= document->slot_count / 4 * 3 && !index_grow(document))
        return fl_fail_nomem(parser->error, document->slot_count * 2 * sizeof(void *), "TOML keys");
    fl_toml_node *node = arena_take(document, sizeof *node);
    if (node == NULL)
        return fl_fail_nomem(parser->error, sizeof *node, "a TOML value");
    memset(node, 0, sizeof *node);
    node->view.type     = type;
    node->view.line     = parser->line;
    node->view.column   = fl_toml_column(parser, offset);
    node->view.key      = key.size > 0 ? key.data : "";
    node->view.key_size = key.size;
    node->view.text     = "";
    node->parent        = parent;
    node->depth         = parent->depth + 1;
    link_last(parent, node);
    if (parent->view.type == FL_TOML_TABLE) {
        *slot_find(document, parent, key) = node;
        document->used++;
    }
    *out = node;
    return 0;
}
