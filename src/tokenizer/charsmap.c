/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.c - the normalizer "Precompiled": SentencePiece's own map of characters.
 *
 *     u32 size of the trie in bytes | trie: u32 units of a double array | strings, NUL-terminated
 *
 *     unit   31      value, in a leaf          9        8         7..0
 *            30..10  offset to the children    wider    has leaf  label
 *
 * Role     A row of fl_normalizers; the map itself is sentencepiece.c's too (charsmap.h).
 * Method   As the reference does it, which is not as SentencePiece does: a grapheme cluster of less than 6 bytes
 *          of which any beginning is in the map becomes, as a whole, what the *shortest* such beginning maps
 *          to; else each character is looked up by itself. Most characters begin no entry, which a bit
 *          per character says before the trie is asked.
 *          Places: where characters vanish, the last one written so far takes the place of all of them,
 *          and at the beginning of a text nobody does, so that later places are shifted. So does the reference.
 * Memory   The map, decoded from base64. Every index into it is checked: it comes from a file.
 * Proof    tests/golden/test_unigram.py: every code point, alone and between others. */
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/parse.h"
#include "tokenizer/unicode.h"

enum { CLUSTER_MAX = 6, BMP = 0x10000, GROWTH_MAX = 1024 };

struct fl_charsmap {
    uint32_t *units; /* owned, [count] */
    size_t    count;
    char     *strings; /* owned, [size], the last is NUL */
    size_t    size;
    uint64_t  begins[BMP / 64]; /* characters that begin an entry of the map */
};
typedef struct fl_charsmap charsmap;

void fl_charsmap_close(charsmap *map) {
    if (map != NULL) {
        fl_free(map->units);
        fl_free(map->strings);
    }
    fl_free(map);
}

static void close_map(void *state) {
    fl_charsmap_close(state);
}

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

/* Where the string is that the shortest entry beginning text[size] maps to; SIZE_MAX: none begins it. *goes_on
 * says whether all of the text is in the trie, be it the beginning of an entry only. */
static size_t find(const charsmap *map, const char *text, size_t size, bool *goes_on) {
    size_t at = offset_of(map->units[0]);
    *goes_on  = false;
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = (uint8_t)text[i];
        at ^= byte;
        if (byte == 0 || at >= map->count)
            return SIZE_MAX;
        uint32_t unit = map->units[at];
        if ((unit & 0x800000FF) != byte)
            return SIZE_MAX;
        at ^= offset_of(unit);
        if ((unit & 0x100) != 0) {
            uint32_t value = at < map->count ? map->units[at] & 0x7FFFFFFF : UINT32_MAX;
            return value < map->size ? value : SIZE_MAX;
        }
    }
    *goes_on = true;
    return SIZE_MAX;
}

/* ---- Opening ---------------------------------------------------------------------------------- */

static uint32_t read_u32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

uint32_t fl_charsmap_growth(const charsmap *map) {
    size_t longest = 1, begin = 0;
    for (size_t i = 0; i < map->size; i++) {
        if (map->strings[i] == '\0') {
            longest = i - begin > longest ? i - begin : longest;
            begin   = i + 1;
        }
    }
    return longest < GROWTH_MAX ? (uint32_t)longest : GROWTH_MAX;
}

static void mark_beginnings(charsmap *map) {
    for (uint32_t cp = 1; cp < BMP; cp++) {
        char text[4];
        bool goes_on;
        if (cp - 0xD800 < 0x800)
            continue;
        size_t found = find(map, text, fl_utf8_encode(cp, text), &goes_on);
        if (found != SIZE_MAX || goes_on)
            map->begins[cp / 64] |= 1ull << cp % 64;
    }
}

static int damaged(fl_json_reader *reader, const char *what) {
    reader->status =
        fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                "%s: normalizer \"Precompiled\": precompiled_charsmap %s", reader->source, what);
    return reader->status;
}

static int split_map(charsmap *map, fl_json_reader *reader, const uint8_t *bytes, size_t size) {
    size_t trie = size >= 4 ? read_u32(bytes) : 0;
    if (size < 4 || trie % 4 != 0 || trie == 0 || trie > size - 4)
        return damaged(reader, "is truncated, or its trie has the wrong size");
    map->count   = trie / 4;
    map->size    = size - 4 - trie;
    map->units   = fl_alloc_array(map->count, sizeof *map->units);
    map->strings = fl_alloc(map->size + 1);
    if (map->units == NULL || map->strings == NULL)
        return fl_fail_nomem(reader->error, size, "precompiled_charsmap");
    for (size_t i = 0; i < map->count; i++)
        map->units[i] = read_u32(bytes + 4 + 4 * i);
    memcpy(map->strings, bytes + 4 + trie, map->size);
    map->strings[map->size++] = '\0';
    /* Any offset into the pool may be a string, so the beginnings of characters are checked at use. */
    return fl_utf8_valid_prefix(map->strings, map->size) == map->size
               ? 0
               : damaged(reader, "has strings that are not UTF-8");
}

int fl_charsmap_read(charsmap **out, fl_json_reader *reader) {
    const char *text = fl_json_string(reader, "precompiled_charsmap", "");
    size_t      size = strlen(text);
    *out             = NULL;
    if (reader->status < 0 || size == 0)
        return reader->status;
    charsmap *map   = fl_alloc_zero(1, sizeof *map);
    uint8_t  *bytes = fl_alloc(size);
    *out            = map;
    if (map == NULL || bytes == NULL) {
        reader->status = fl_fail_nomem(reader->error, size, "precompiled_charsmap");
    } else {
        size_t count   = fl_base64_read(text, size, bytes);
        reader->status = count == SIZE_MAX ? damaged(reader, "is not base64")
                                           : split_map(map, reader, bytes, count);
    }
    fl_free(bytes);
    if (reader->status == 0)
        mark_beginnings(map);
    return reader->status;
}

static int parse(fl_step *step, fl_json_reader *reader) {
    charsmap *map    = NULL;
    int       status = fl_charsmap_read(&map, reader);
    step->state      = map;
    if (status == 0 && map != NULL)
        step->growth = fl_charsmap_growth(map);
    return status;
}

/* ---- Running ---------------------------------------------------------------------------------- */

/* A string may begin at an offset into the middle of a character. */
static const char *first_character(const char *text) {
    while ((*text & 0xC0) == 0x80)
        text++;
    return text;
}

/* One or more characters became the string at `where`: changes as the reference counts them. */
static bool put_string(const charsmap *map, fl_runes *runes, size_t where, size_t *out,
                       size_t replaced) {
    const char *text  = first_character(map->strings + where);
    size_t      begin = *out, added = 0;
    while (*text != '\0') {
        unsigned length;
        if (!fl_runes_reserve_spare(runes, *out + 1))
            return false;
        runes->spare[(*out)++] = (fl_rune){fl_utf8_decode(text, &length), 0, 0};
        text += length;
        added++;
    }
    for (size_t i = replaced; i < added; i++)
        runes->spare[begin + i].start = 1;
    if (*out > 0 && added < replaced)
        runes->spare[*out - 1].start += (uint32_t)(added - replaced);
    return true;
}

static bool is_inert(const charsmap *map, uint32_t cp) {
    return cp < BMP && (map->begins[cp / 64] >> cp % 64 & 1) == 0;
}

const char *fl_charsmap_longest(const charsmap *map, const fl_runes *runes, size_t i,
                                size_t *count) {
    const char *best = NULL;
    size_t      at   = offset_of(map->units[0]);
    if (is_inert(map, runes->at[i].cp))
        return NULL;
    for (size_t k = i; k < runes->count && fl_runes_go_on(runes, k); k++) {
        char     text[4];
        unsigned size = fl_utf8_encode(runes->at[k].cp, text);
        uint32_t unit = 0;
        for (unsigned n = 0; n < size; n++) {
            at ^= (uint8_t)text[n];
            unit = text[n] != '\0' && at < map->count ? map->units[at] : 0;
            if (text[n] == '\0' || (unit & 0x800000FF) != (uint8_t)text[n])
                return best;
            at ^= offset_of(unit);
        }
        uint32_t value =
            (unit & 0x100) != 0 && at < map->count ? map->units[at] & 0x7FFFFFFF : UINT32_MAX;
        if (value < map->size) {
            best   = first_character(map->strings + value);
            *count = k + 1 - i;
        }
    }
    return best;
}

/* Where the cluster that begins at rune i ends. */
static size_t cluster_end(const fl_runes *runes, size_t i) {
    bool picture = (fl_unicode_flags(runes->at[i].cp) & FL_UC_PICTURE) != 0, joined = false;
    for (i++; i < runes->count && fl_runes_go_on(runes, i); i++) {
        uint32_t cp = runes->at[i].cp;
        if (fl_unicode_cluster_ends(runes->at[i - 1].cp, cp, joined))
            break;
        joined  = picture && cp == FL_UC_ZWJ;
        picture = (fl_unicode_flags(cp) & (FL_UC_PICTURE | (picture ? FL_UC_EXTEND : 0))) != 0;
    }
    return i;
}

static bool run(const fl_step *step, fl_runes *runes) {
    const charsmap *map     = step->state;
    bool            changed = false, goes_on;
    size_t          out     = 0;
    if (map == NULL || !fl_runes_reserve_spare(runes, runes->count))
        return map == NULL;
    for (size_t i = 0; i < runes->count && fl_runes_go_on(runes, i);) {
        size_t end = cluster_end(runes, i), size = 0;
        char   text[CLUSTER_MAX + 4];
        for (size_t k = i; k < end && size < CLUSTER_MAX; k++)
            size += fl_utf8_encode(runes->at[k].cp, text + size);
        size_t whole = size < CLUSTER_MAX && !is_inert(map, runes->at[i].cp)
                           ? find(map, text, size, &goes_on)
                           : SIZE_MAX;
        if (whole != SIZE_MAX) {
            changed = true;
            if (!put_string(map, runes, whole, &out, end - i))
                return false;
            i = end;
            continue;
        }
        for (; i < end && fl_runes_go_on(runes, i); i++) {
            uint32_t cp    = runes->at[i].cp;
            size_t   found = SIZE_MAX;
            if (!is_inert(map, cp))
                found = find(map, text, fl_utf8_encode(cp, text), &goes_on);
            if (found == SIZE_MAX) {
                if (!fl_runes_reserve_spare(runes, out + 1))
                    return false;
                runes->spare[out++] = (fl_rune){cp, 0, 0};
            } else {
                changed = true;
                if (!put_string(map, runes, found, &out, 1))
                    return false;
            }
        }
    }
    if (changed)
        fl_runes_deal(runes, out);
    return true;
}

/* A character that this step leaves alone in the company of such as it. It may begin entries, as か begins
 * か + U+3099: their other characters join its cluster, and so are none of its kind. */
static bool inert(const fl_step *step, uint32_t cp) {
    const charsmap *map = step->state;
    char            text[4];
    bool            goes_on;
    return map == NULL ||
           (find(map, text, fl_utf8_encode(cp, text), &goes_on) == SIZE_MAX &&
            fl_unicode_cluster_ends('a', cp, true) && fl_unicode_cluster_ends(cp, 'a', false) &&
            cp != '\r' && !fl_unicode_is_hangul(cp));
}

const fl_step_ops fl_normal_precompiled = {.type  = "Precompiled",
                                           .parse = parse,
                                           .run   = run,
                                           .close = close_map,
                                           .local = true,
                                           .inert = inert};
