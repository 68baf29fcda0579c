/* SPDX-License-Identifier: Apache-2.0 */
/* added.c - find added tokens in text.
 *
 * Role     See added.h.
 * Method   The scan skips to the next byte that begins any token (most texts have none: one pass at
 *          memory speed), then a small child/sibling trie is walked for the longest match there.
 *          That is the definition of leftmost-longest, and its cost is bounded by the longest token.
 * Memory   Nodes are made when opening. Threads: immutable.
 * Proof    tests/unit/test_tokenizer_parts.c, tests/golden/test_tokens.py (all flags). */
#include "tokenizer/added.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

enum { ASK_TRIES = 16 * 1024, SPACE_MARK = 0x2581 };

static const char *pattern_of(const fl_added_token *token, size_t *length) {
    *length = token->pattern != NULL ? token->pattern_length : token->length;
    return token->pattern != NULL ? token->pattern : token->content;
}

static fl_added_result insert(fl_added_set *set, const char *text, size_t length, int32_t token) {
    uint32_t at = 0;
    fl_byte_set_add(&set->first, (uint8_t)text[0]);
    set->lone = set->lone || length == 1;
    if (length > 1)
        fl_byte_set_add(&set->second, (uint8_t)text[1]);
    for (size_t i = 0; i < length; i++) {
        uint8_t  label = (uint8_t)text[i];
        uint32_t child = set->nodes[at].child;
        while (child != 0 && set->nodes[child].label != label)
            child = set->nodes[child].sibling;
        if (child == 0) {
            child                = set->count++;
            set->nodes[child]    = (fl_added_node){0, set->nodes[at].child, -1, label};
            set->nodes[at].child = child;
        }
        at = child;
    }
    if (set->nodes[at].token >= 0)
        return FL_ADDED_TWICE;
    set->nodes[at].token = token;
    return FL_ADDED_OK;
}

/* Whether the token is looked for in this set. */
static bool belongs(const fl_added *added, size_t i, bool normalized) {
    const fl_added_token *token = &added->tokens[i];
    return token->normalized == normalized && !(added->split_special && token->special);
}

static fl_added_result compile_set(const fl_added *added, fl_added_set *set, bool normalized,
                                   size_t *culprit) {
    size_t bytes = 0;
    for (size_t i = 0; i < added->count; i++) {
        size_t length;
        pattern_of(&added->tokens[i], &length);
        bytes += belongs(added, i, normalized) ? length : 0;
    }
    if (bytes >= UINT32_MAX - 1)
        return FL_ADDED_NOMEM;
    set->nodes = fl_alloc_array(bytes + 1, sizeof *set->nodes);
    if (set->nodes == NULL)
        return FL_ADDED_NOMEM;
    set->nodes[0] = (fl_added_node){0, 0, -1, 0};
    set->count    = 1;
    for (size_t i = 0; i < added->count; i++) {
        if (!belongs(added, i, normalized))
            continue;
        size_t      length;
        const char *text = pattern_of(&added->tokens[i], &length);
        *culprit         = i;
        if (length == 0)
            return FL_ADDED_EMPTY;
        fl_added_result result = insert(set, text, length, (int32_t)i);
        if (result != FL_ADDED_OK)
            return result;
    }
    if (set->count == 1) /* no token: nothing to look for */
        set->count = 0;
    return FL_ADDED_OK;
}

fl_added_result fl_added_compile(fl_added *added, size_t *culprit) {
    fl_added_result result = compile_set(added, &added->raw, false, culprit);
    return result != FL_ADDED_OK ? result : compile_set(added, &added->normalized, true, culprit);
}

void fl_added_close(fl_added *added) {
    for (size_t i = 0; i < added->count; i++) {
        fl_free(added->tokens[i].content);
        fl_free(added->tokens[i].pattern);
    }
    fl_free(added->tokens);
    fl_free(added->raw.nodes);
    fl_free(added->normalized.nodes);
    memset(added, 0, sizeof *added);
}

const fl_added_token *fl_added_find(const fl_added *added, int32_t id) {
    size_t low = 0, high = added->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (added->tokens[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < added->count && added->tokens[low].id == id ? &added->tokens[low] : NULL;
}

/* Longest token that begins at text[0]; its index and *length, or -1. */
static int32_t longest(const fl_added_set *set, const char *text, size_t size, size_t *length) {
    int32_t  found = -1;
    uint32_t at    = 0;
    for (size_t i = 0; i < size; i++) {
        uint32_t child = set->nodes[at].child;
        while (child != 0 && set->nodes[child].label != (uint8_t)text[i])
            child = set->nodes[child].sibling;
        if (child == 0)
            break;
        at = child;
        if (set->nodes[at].token >= 0) {
            found   = set->nodes[at].token;
            *length = i + 1;
        }
    }
    return found;
}

static bool is_word_at(const char *text, size_t at) {
    unsigned length;
    return (fl_unicode_flags(fl_utf8_decode(text + at, &length)) & FL_UC_WORD) != 0;
}

static bool stands_alone(const char *text, size_t size, size_t begin, size_t end) {
    assert(begin < end && end <= size);
    return !(begin > 0 && is_word_at(text, fl_utf8_before(text, begin))) &&
           !(end < size && is_word_at(text, end));
}

/* Never to the left of `done`, even if the match itself began there (in space swallowed before). */
static size_t strip_left(const char *text, size_t begin, size_t done) {
    while (begin > done) {
        unsigned length;
        size_t   before = fl_utf8_before(text, begin);
        if (!fl_unicode_is_space(fl_utf8_decode(text + before, &length)))
            break;
        begin = before;
    }
    return begin > done ? begin : done;
}

static size_t strip_right(const char *text, size_t size, size_t end) {
    assert(end <= size);
    while (end < size) {
        unsigned length;
        if (!fl_unicode_is_space(fl_utf8_decode(text + end, &length)))
            break;
        end += length;
    }
    return end;
}

bool fl_added_next(const fl_added *added, const fl_added_set *set, const fl_scan *scan,
                   const char *text, size_t size, size_t limit, fl_added_walk *walk,
                   fl_added_match *match) {
    while (set->count > 0 && walk->search < limit) {
        const char *from = text + walk->search;
        size_t      left = limit - walk->search;
        size_t      begin =
            walk->search + (set->lone ? scan->find(&set->first, from, left)
                                      : scan->find_pair(&set->first, &set->second, from, left));
        size_t length = 0;
        if (begin == limit)
            break;
        if (++walk->tries % ASK_TRIES == 0 && fl_stopped(walk->stop))
            return false;
        int32_t index = longest(set, text + begin, size - begin, &length);
        if (index < 0) {
            walk->search = begin + 1;
            continue;
        }
        const fl_added_token *token = &added->tokens[index];
        size_t                end   = begin + length;
        walk->search                = end;
        if (token->single_word && !stands_alone(text, size, begin, end))
            continue;
        match->begin = token->lstrip ? strip_left(text, begin, walk->done) : begin;
        /* What an earlier rstrip swallowed is white space: it need not be looked at again. */
        match->end   = !token->rstrip     ? end
                       : walk->done > end ? strip_right(text, size, walk->done)
                                          : strip_right(text, size, end);
        match->token = token;
        walk->done   = match->end;
        return true;
    }
    if (walk->search < limit)
        walk->search = limit;
    return false;
}

/* No place in it where token_stream.c cuts, and no white space if `solid`. */
static bool is_local(const char *text, bool solid) {
    unsigned length;
    for (size_t at = 0; text[at] != '\0'; at += length) {
        uint32_t cp = fl_utf8_decode(text + at, &length);
        if ((at > 0 && cp == ' ' && text[at - 1] > ' ') ||
            (solid && (fl_unicode_is_space(cp) || cp == SPACE_MARK)))
            return false;
    }
    return true;
}

bool fl_added_is_local(const fl_added *added, bool solid) {
    for (size_t i = 0; i < added->count; i++) {
        const fl_added_token *token = &added->tokens[i];
        if (token->normalized && (token->lstrip || token->rstrip || token->single_word ||
                                  !is_local(token->content, solid) ||
                                  (token->pattern != NULL && !is_local(token->pattern, solid))))
            return false;
    }
    return true;
}
