/* SPDX-License-Identifier: Apache-2.0 */
/* chunker.c - units packed greedily into chunks of at most so many tokens.
 *
 * Role    fletch_chunk.
 * In/Out  Valid UTF-8 -> spans of bytes. Without overlap each begins where the one before it ends, so that
 *         nothing is lost.
 * Method  A unit with too many tokens is cut into finer ones: sections into blocks, these into sentences,
 *         these into words, and words between characters. The tokens of a unit are counted with the white
 *         space before it instead of that behind it, because that is what tokenizers attach to words; their
 *         sum is an estimate of what the units have together, which no tokenizer promises. So the estimate
 *         proposes a chunk, the tokens of the whole decide, and what the estimate left over is filled. A chunk
 *         has more tokens than `size` only where a single character has.
 * Memory  The units of one chunk and a buffer of ids as long as it: no more for 100 MB than for 100 kB.
 * Threads A chunker belongs to one thread.
 * Proof   tests/unit/test_chunks.c, tests/fuzz/fuzz_chunks.c, tests/cli/test_cli_chunk.py. */
#include "tokenizer/chunker.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"

/* A unit that has more bytes than these is cut uncounted: hardly any would fit, and to count it may take the
 * tokenizer's longest way. */
enum { UNIT_BYTES = 1024, TOKEN_BYTES = 16 /* for each token of a chunk */ };
enum { STOP_EVERY = 64 /* units */, CHARACTER = 4 /* bytes at most */ };

static const fl_unit finer[] = {[FL_UNIT_SECTION]   = FL_UNIT_BLOCK,
                                [FL_UNIT_BLOCK]     = FL_UNIT_SENTENCE,
                                [FL_UNIT_PARAGRAPH] = FL_UNIT_SENTENCE,
                                [FL_UNIT_SENTENCE]  = FL_UNIT_WORD};

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

int fl_chunker_open(fl_chunker *c, const fl_tokenizer *tokenizer, fl_token_scratch *scratch,
                    const char *text, size_t size, const fl_chunker_options *options,
                    fletch_error *error) {
    assert(options->size > 0 && options->overlap < options->size);
    size_t limit = options->size;
    memset(c, 0, sizeof *c);
    c->tokenizer     = tokenizer;
    c->scratch       = scratch;
    c->text          = text;
    c->options       = *options;
    c->level[0].unit = options->unit;
    c->level[0].end  = size;
    c->depth         = 1;
    c->unit_bytes    = smaller(UNIT_BYTES + TOKEN_BYTES * limit, FL_CHUNK_BYTES_MAX);
    size_t most      = smaller(size, 2 * FL_CHUNK_BYTES_MAX); /* with what it repeats */
    c->capacity      = smaller(limit + 1, fl_tokenizer_ids_max(tokenizer, most));
    size_t least     = fl_tokenizer_ids_max(tokenizer, CHARACTER);
    c->capacity      = c->capacity > least ? c->capacity : least;
    c->ids           = fl_alloc_array(c->capacity, sizeof *c->ids);
    c->offsets       = fl_alloc_array(c->capacity, 2 * sizeof *c->offsets);
    c->special       = fl_alloc_array(c->capacity, sizeof *c->special);
    return c->ids != NULL && c->offsets != NULL && c->special != NULL
               ? 0
               : fl_fail_nomem(error, c->capacity, "the tokens of a chunk");
}

void fl_chunker_close(fl_chunker *c) {
    fl_free(c->units);
    fl_free(c->ids);
    fl_free(c->offsets);
    fl_free(c->special);
}

/* ---- Tokens ----------------------------------------------------------------------------------- */

/* The tokens of text[begin, end), or `max` + 1 where it has more; max UINT32_MAX: all. */
static int count_tokens(fl_chunker *c, size_t begin, size_t end, uint32_t max, uint32_t *tokens,
                        fletch_error *error) {
    assert(begin <= end);
    fl_encode_options options = {.max_length = max + 1, .no_special = true};
    size_t            count   = 0;
    bool              cut     = false;
    if (end > begin) {
        FL_TRY(fl_tokenizer_encode(c->tokenizer, c->scratch, c->text + begin, end - begin, &options,
                                   c->ids, c->capacity, &count, &cut, error));
    }
    *tokens = (uint32_t)count;
    return 0;
}

/* Cut text[begin, end) behind as many of its tokens as a chunk takes, between characters: at least one
 * character, whatever it has. */
static int cut_to_size(fl_chunker *c, size_t begin, size_t end, fl_chunk_span *part,
                       fletch_error *error) {
    assert(begin < end);
    fl_encode_options options = {.max_length = c->options.size, .no_special = true};
    size_t            count;
    bool              cut;
    unsigned          length;
    FL_TRY(fl_tokenizer_encode_offsets(c->tokenizer, c->scratch, c->text + begin, end - begin,
                                       &options, c->ids, c->offsets, c->special, c->capacity,
                                       &count, &cut, error));
    *part = (fl_chunk_span){begin, end, (uint32_t)count};
    if (!cut)
        return 0;
    while (count > 0) { /* fewer while those before the cut are more by themselves than they were */
        part->end =
            fl_utf8_before(c->text, smaller(begin + c->offsets[2 * count - 1], end - 1) + 1);
        if (part->end > begin) {
            FL_TRY(count_tokens(c, begin, part->end, c->options.size, &part->tokens, error));
            if (part->tokens <= c->options.size)
                return 0;
        }
        count -= 1 + count / 8;
    }
    (void)fl_utf8_decode(c->text + begin, &length);
    part->end = begin + length;
    return count_tokens(c, begin, part->end, UINT32_MAX, &part->tokens, error);
}

/* ---- Units ------------------------------------------------------------------------------------ */

/* The end of text[begin, end) without the white space there. */
static size_t ink_end(const char *text, size_t begin, size_t end) {
    while (end > begin &&
           (text[end - 1] == ' ' || (text[end - 1] >= '\t' && text[end - 1] <= '\r')))
        end--;
    return end;
}

/* The next unit that fits a chunk, by its estimate; end == begin: there is none. */
static int read_unit(fl_chunker *c, fl_chunk_span *unit, fletch_error *error) {
    if (++c->read % STOP_EVERY == 0 && fl_stopped(c->scratch->runes.stop))
        return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE, "chunking the text was cancelled");
    for (;;) {
        while (c->depth > 0 && c->level[c->depth - 1].at == c->level[c->depth - 1].end)
            c->depth--;
        if (c->depth == 0) {
            *unit = (fl_chunk_span){0};
            return 0;
        }
        fl_unit kind  = c->level[c->depth - 1].unit;
        size_t  begin = c->level[c->depth - 1].at, end = c->level[c->depth - 1].end;
        bool    word = kind == FL_UNIT_WORD;
        if (word && end - begin > c->unit_bytes)
            end = fl_utf8_before(c->text, begin + c->unit_bytes + 1);
        end        = fl_unit_end(kind, c->text, end, begin);
        size_t ink = ink_end(c->text, begin, end);
        *unit      = (fl_chunk_span){begin, end, c->options.size + 1};
        if (end - begin <= c->unit_bytes)
            FL_TRY(count_tokens(c, c->inked, ink, c->options.size, &unit->tokens, error));
        if (word && unit->tokens > c->options.size) {
            FL_TRY(cut_to_size(c, begin, end, unit, error));
            ink = ink_end(c->text, begin, unit->end);
        }
        c->level[c->depth - 1].at = unit->end;
        if (word || unit->tokens <= c->options.size) {
            c->inked = ink;
            return 0;
        }
        c->level[c->depth].unit = finer[kind];
        c->level[c->depth].at   = begin;
        c->level[c->depth].end  = end;
        c->depth++;
    }
}

static int reserve_unit(fl_chunker *c, fletch_error *error) {
    return fl_array_reserve(&c->units, &c->room, c->count + 1, sizeof *c->units)
               ? 0
               : fl_fail_nomem(error, c->count * sizeof *c->units, "the units of a chunk");
}

/* Unit `index` from the head, read where it was not; end == begin: the text has no more. Units without tokens
 * (blank lines) go to the one before them. */
static int unit_at(fl_chunker *c, size_t index, const fl_chunk_span **out, fletch_error *error) {
    static const fl_chunk_span none = {0};
    *out                            = &none;
    while (c->count <= c->head + index) {
        fl_chunk_span unit = c->ahead;
        if (unit.end == unit.begin)
            FL_TRY(read_unit(c, &unit, error));
        if (unit.end == unit.begin)
            return 0;
        for (;;) {
            FL_TRY(read_unit(c, &c->ahead, error));
            if (c->ahead.end == c->ahead.begin || c->ahead.tokens > 0 ||
                c->ahead.end - unit.begin > FL_CHUNK_BYTES_MAX)
                break;
            unit.end = c->ahead.end;
        }
        FL_TRY(reserve_unit(c, error));
        c->units[c->count++] = unit;
    }
    *out = &c->units[c->head + index];
    return 0;
}

/* ---- Packing ---------------------------------------------------------------------------------- */

/* Take units behind the first *taken while they are estimated to have at most `room` tokens together. */
static int take_units(fl_chunker *c, uint32_t room, size_t *taken, fletch_error *error) {
    for (;;) {
        const fl_chunk_span *unit;
        FL_TRY(unit_at(c, *taken, &unit, error));
        if (unit->end == unit->begin || unit->tokens > room ||
            (*taken > 0 && unit->end - c->units[c->head].begin > FL_CHUNK_BYTES_MAX))
            return 0;
        room -= unit->tokens;
        *taken += 1;
    }
}

/* The first `taken` units as a chunk, with the tokens that they have. */
static int join(fl_chunker *c, size_t taken, fl_chunk_span *chunk, fletch_error *error) {
    assert(taken > 0 && taken <= c->count);
    chunk->begin = c->units[c->head].begin;
    chunk->end   = c->units[c->head + taken - 1].end;
    return count_tokens(c, chunk->begin, chunk->end, c->options.size, &chunk->tokens, error);
}

static void leave_first(fl_chunker *c) {
    assert(c->count > 0);
    c->head++;
    c->kept--;
}

/* A unit that fits by its estimate, but not by itself: the part that fits becomes the chunk, the rest a unit. */
static int split_first(fl_chunker *c, fl_chunk_span *chunk, fletch_error *error) {
    assert(c->count > 0);
    fl_chunk_span unit = c->units[c->head];
    FL_TRY(cut_to_size(c, unit.begin, unit.end, chunk, error));
    if (chunk->end == unit.end)
        return 0;
    fl_chunk_span rest = {chunk->end, unit.end, 0};
    FL_TRY(count_tokens(c, rest.begin, rest.end, c->options.size, &rest.tokens, error));
    FL_TRY(reserve_unit(c, error));
    memmove(&c->units[c->head + 1], &c->units[c->head], (c->count - c->head) * sizeof *c->units);
    c->count++;
    c->units[c->head]     = *chunk;
    c->units[c->head + 1] = rest;
    return 0;
}

/* Make the proposal of *taken units fit: fewer new ones, then fewer repeated ones, then part of the only one. */
static int shrink(fl_chunker *c, size_t *taken, fl_chunk_span *chunk, fletch_error *error) {
    for (size_t step = 1; chunk->tokens > c->options.size; step *= 2) {
        size_t spare = *taken - c->kept - 1;
        if (spare > 0) {
            *taken -= smaller(step, spare);
        } else if (c->kept > 0) {
            leave_first(c);
            *taken -= 1;
        } else {
            return split_first(c, chunk, error);
        }
        FL_TRY(join(c, *taken, chunk, error));
    }
    return 0;
}

/* More units while there is room that the estimate did not see. */
static int fill(fl_chunker *c, size_t *taken, fl_chunk_span *chunk, fletch_error *error) {
    assert(c->kept <= c->count);
    while (chunk->tokens < c->options.size) {
        size_t        more = *taken;
        fl_chunk_span longer;
        FL_TRY(take_units(c, c->options.size - chunk->tokens, &more, error));
        if (more == *taken)
            break;
        FL_TRY(join(c, more, &longer, error));
        if (longer.tokens > c->options.size)
            break;
        *taken = more;
        *chunk = longer;
    }
    return 0;
}

/* The chunk of `taken` units is done: of these the next one repeats the last, as many as fit the overlap. */
static void move_on(fl_chunker *c, size_t taken) {
    assert(taken > 0 && taken <= c->count);
    uint32_t room = c->options.overlap;
    size_t   end  = c->head + taken;
    c->kept       = 0;
    while (c->options.overlap > 0 && c->kept + 1 < taken &&
           c->units[end - c->kept - 1].tokens <= room) {
        room -= c->units[end - c->kept - 1].tokens;
        c->kept++;
    }
    c->head = end - c->kept;
    c->count -= c->head;
    memmove(c->units, c->units + c->head, c->count * sizeof *c->units);
    c->head = 0;
}

int fl_chunker_next(fl_chunker *c, fl_chunk_span *chunk, fletch_error *error) {
    const fl_chunk_span *fresh;
    uint32_t             repeated = 0;
    FL_TRY(unit_at(c, c->kept, &fresh, error));
    if (fresh->end == fresh->begin)
        return 0;
    for (size_t i = 0; i < c->kept; i++)
        repeated += c->units[c->head + i].tokens;
    while (c->kept > 0 && fresh->tokens > c->options.size - repeated) {
        repeated -= c->units[c->head].tokens;
        leave_first(c);
    }
    size_t taken = c->kept + 1;
    if (fresh->tokens <= c->options.size) /* no single character that has more */
        FL_TRY(take_units(c, c->options.size - repeated - fresh->tokens, &taken, error));
    FL_TRY(join(c, taken, chunk, error));
    FL_TRY(shrink(c, &taken, chunk, error));
    FL_TRY(fill(c, &taken, chunk, error));
    move_on(c, taken);
    return 1;
}
