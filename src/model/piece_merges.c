/* SPDX-License-Identifier: Apache-2.0 */
/* piece_merges.c - see piece_merges.h.
 *
 * Role    gguf_pieces.c and piece_tokenizer.c make a tokenizer.json of pieces.
 * Method  Each place between two characters of a piece is tried: both parts must be pieces.
 * Memory  The list of merges while it is written. Threads: reentrant.
 * Proof   tests/golden/test_gguf_tokens.py, tests/golden/test_piece_tokenizers.py. */
#include "model/piece_merges.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"

bool fl_piece_index_open(fl_piece_index *index, const fl_span *pieces, uint32_t count) {
    size_t room = 16;
    while (room < (size_t)count * 2)
        room *= 2;
    *index = (fl_piece_index){.pieces  = pieces,
                              .count   = count,
                              .buckets = fl_alloc_zero(room, sizeof *index->buckets),
                              .mask    = room - 1,
                              .seed    = fl_hash_seed(index)};
    return index->buckets != NULL;
}

void fl_piece_index_close(fl_piece_index *index) {
    fl_free(index->buckets);
    index->buckets = NULL;
}

static uint32_t *bucket_of(const fl_piece_index *index, fl_span text) {
    size_t at = fl_hash(text.data, text.size, index->seed) & index->mask;
    for (; index->buckets[at] != 0; at = (at + 1) & index->mask) {
        fl_span other = index->pieces[index->buckets[at] - 1];
        if (other.size == text.size && memcmp(other.data, text.data, text.size) == 0)
            break;
    }
    return &index->buckets[at];
}

int64_t fl_piece_index_find(const fl_piece_index *index, fl_span text) {
    return (int64_t)*bucket_of(index, text) - 1;
}

uint32_t fl_piece_index_put(fl_piece_index *index, uint32_t id) {
    uint32_t *bucket = bucket_of(index, index->pieces[id]);
    if (*bucket == 0)
        *bucket = id + 1;
    return *bucket - 1;
}

/* ---- Merges ---------------------------------------------------------------------------------- */

typedef struct merge {
    double   score;
    uint32_t piece, at; /* its first `at` bytes and the others */
    uint32_t left;      /* characters of the left part */
} merge;

static int by_rank(const void *a, const void *b) {
    const merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    if (x->left != y->left)
        return x->left < y->left ? 1 : -1;
    return x->piece != y->piece ? (x->piece > y->piece ? 1 : -1) : 0;
}

static bool has_score(double score) {
    return score == score;
}

static bool is_part(const fl_piece_index *index, const double *scores, bool ranked, fl_span text) {
    int64_t id = fl_piece_index_find(index, text);
    return id >= 0 && (!ranked || has_score(scores[id]));
}

/* Of one piece; how many, which go to `out` unless it is NULL. */
static size_t split(const fl_piece_index *index, const double *scores, bool ranked, uint32_t id,
                    merge *out) {
    fl_span  piece = index->pieces[id];
    size_t   count = 0;
    uint32_t left  = 0;
    for (size_t at = 1; has_score(scores[id]) && at < piece.size; at++) {
        if (((unsigned char)piece.data[at] & 0xC0) == 0x80)
            continue; /* inside a character */
        left++;
        if (!is_part(index, scores, ranked, (fl_span){piece.data, at}) ||
            !is_part(index, scores, ranked, (fl_span){piece.data + at, piece.size - at}))
            continue;
        if (out != NULL)
            out[count] = (merge){scores[id], id, (uint32_t)at, left};
        count++;
    }
    return count;
}

/* The tokenizer knows what a merge makes by its rank. */
static int fail_equal(const fl_piece_index *index, const merge *two, fletch_error *error) {
    const fl_span *a = &index->pieces[two[0].piece], *b = &index->pieces[two[1].piece];
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "the pieces \"%.*s\" and \"%.*s\" have one score, %g, which is not supported",
                   a->size < 40 ? (int)a->size : 40, a->data, b->size < 40 ? (int)b->size : 40,
                   b->data, two[0].score);
}

int fl_piece_merges_put(fl_json_w *w, const fl_piece_index *index, const double *scores,
                        bool ranked, fletch_error *error) {
    size_t count = 0, filled = 0, rank = 0;
    for (uint32_t id = 0; id < index->count; id++)
        count += split(index, scores, ranked, id, NULL);
    merge *list = fl_alloc_array(count + 1, sizeof *list);
    if (list == NULL)
        return fl_fail_nomem(error, count * sizeof *list, "merges");
    for (uint32_t id = 0; id < index->count; id++)
        filled += split(index, scores, ranked, id, list + filled);
    qsort(list, filled, sizeof *list, by_rank);
    for (size_t i = 1; ranked && i < filled; i++) {
        if (list[i].score == list[i - 1].score && list[i].piece != list[i - 1].piece) {
            int status = fail_equal(index, &list[i - 1], error);
            fl_free(list);
            return status;
        }
    }
    fl_json_w_array(w, "merges");
    for (size_t i = 0; i < filled; i++) {
        fl_span piece = index->pieces[list[i].piece];
        rank += i > 0 && list[i].score != list[i - 1].score;
        fl_json_w_array(w, NULL);
        fl_json_w_bytes(w, NULL, piece.data, list[i].at);
        fl_json_w_bytes(w, NULL, piece.data + list[i].at, piece.size - list[i].at);
        if (ranked)
            fl_json_w_u64(w, NULL, rank);
        fl_json_w_end(w);
    }
    fl_json_w_end(w);
    fl_free(list);
    return 0;
}
