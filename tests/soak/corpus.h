/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.h - real sentences laid end to end, and texts cut from them without copying.
 *
 * Role    The soak's texts. A text begins at a sentence and runs over as many as it needs, so it is
 *         real language of any length.
 * Method  The strings of the files' lines {"a": "…", "b": "…", "text": "…"} that need no unescaping,
 *         joined by blanks. Without files a few sentences of this header stand in, so that the short
 *         form runs anywhere.
 * Memory  One block. Threads: read only after corpus_read. */
#ifndef SOAK_CORPUS_H
#define SOAK_CORPUS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct corpus {
    char   *text; /* owned */
    size_t  size, capacity;
    size_t *begin; /* owned [sentences]: where each begins */
    size_t  sentences, room;
} corpus;

typedef struct corpus_text {
    const char *text;
    size_t      size;
} corpus_text;

static inline uint32_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*seed >> 33);
}

static inline double uniform(uint64_t *seed) { /* [0, 1) */
    return (double)draw(seed) / 2147483648.0;
}

static inline bool corpus_add(corpus *c, const char *text, size_t size) {
    if (c->size + size + 1 > c->capacity) {
        c->capacity = (c->size + size + 1) * 2;
        char *more  = realloc(c->text, c->capacity);
        if (more == NULL)
            return false;
        c->text = more;
    }
    if (c->sentences == c->room) {
        c->room      = c->room ? c->room * 2 : 1024;
        size_t *more = realloc(c->begin, c->room * sizeof *more);
        if (more == NULL)
            return false;
        c->begin = more;
    }
    c->begin[c->sentences++] = c->size;
    memcpy(c->text + c->size, text, size);
    c->size += size;
    c->text[c->size++] = ' ';
    return true;
}

/* The values of the keys a, b and text of one line. */
static inline bool corpus_add_line(corpus *c, const char *line) {
    static const char *const keys[] = {"\"a\": \"", "\"b\": \"", "\"text\": \""};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *value = strstr(line, keys[k]);
        if (value == NULL)
            continue;
        value += strlen(keys[k]);
        size_t size = strcspn(value, "\"\\");
        if (value[size] == '"' && size > 0 && !corpus_add(c, value, size))
            return false;
    }
    return true;
}

static inline bool corpus_add_own(corpus *c) {
    static const char *const own[] = {
        "A cat sits on the mat and looks out of the window at the rain.",
        "Parcels are delivered within three working days, unless a holiday comes between.",
        "You may return goods within fourteen days for a full refund.",
        "The boundary layer grows along the plate until it becomes turbulent.",
        "To change your password, open the account page and follow the link.",
        "Seven musicians played an old song while two children danced.",
        "Prices rose by 3.5 % in March, the third month in a row.",
        "Why does bread go stale faster in the refrigerator?",
        "She said nothing; he understood everything.",
        "Water boils at a lower temperature on high mountains, so tea is weaker there."};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!corpus_add(c, own[i], strlen(own[i])))
            return false;
    return true;
}

static inline bool corpus_read(corpus *c, const char *const *files, size_t count) {
    char *line = malloc(65536);
    bool  good = line != NULL;
    for (size_t i = 0; good && i < count; i++) {
        FILE *file = fopen(files[i], "r");
        if (file == NULL) {
            fprintf(stderr, "soak: cannot read %s\n", files[i]);
            good = false;
        }
        while (good && fgets(line, 65536, file))
            good = corpus_add_line(c, line);
        if (file)
            fclose(file);
    }
    free(line);
    return good && (c->sentences > 0 || corpus_add_own(c));
}

static inline void corpus_free(corpus *c) {
    free(c->text);
    free(c->begin);
}

/* A text of 1 to `longest` tokens, short ones more often: a token is four and a half bytes of English,
 * and two are the special ones. Ends at the next blank. */
static inline corpus_text corpus_draw(const corpus *c, size_t longest, uint64_t *seed) {
    double tokens = exp(uniform(seed) * log((double)longest));
    size_t bytes = (size_t)(tokens * 4.5) + 1, at = c->begin[draw(seed) % c->sentences];
    if (at + bytes > c->size)
        at = bytes < c->size ? 0 : at;
    size_t size = at + bytes < c->size ? bytes : c->size - at;
    while (at + size < c->size && c->text[at + size] != ' ')
        size++;
    return (corpus_text){c->text + at, size};
}

#endif
