/* SPDX-License-Identifier: Apache-2.0 */
/* word_index.c - BM25 and the places of words on top of SQLite's FTS5.
 *
 * Role    and Method: word_index.h.
 * In/Out  Two functions of ours run inside of FTS5's queries, which it calls for each item that has one of the words:
 *         likeness() adds up BM25 by the places that FTS5 knows, marks() asks its tokenizer where these are.
 * Errors  SQLite's codes; SQLITE_INTERRUPT where the request is over while words are counted.
 * Memory  and Threads: word_index.h.
 * Proof   tests/server/test_search.py against BM25 in Python. */
#include "store/word_index.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const double k1 = 1.2, b = 0.75;

enum { LOOK_ROWS = 256, PLACES_MAX = 1024 };

struct fl_words {
    sqlite3_stmt   *find, *mark;
    fl_words_query *query; /* under way */
};

static fts5_api *api_of(sqlite3 *db) {
    fts5_api     *api = NULL;
    sqlite3_stmt *ask = NULL;
    if (sqlite3_prepare_v2(db, "SELECT fts5(?1)", -1, &ask, NULL) == SQLITE_OK &&
        sqlite3_bind_pointer(ask, 1, (void *)&api, "fts5_api_ptr", NULL) == SQLITE_OK)
        (void)sqlite3_step(ask);
    sqlite3_finalize(ask);
    return api;
}

bool fl_words_known(sqlite3 *db) {
    return api_of(db) != NULL;
}

/* ---- BM25 ---------------------------------------------------------------------------------------- */

typedef struct counting {
    fl_asker by;
    int64_t  rows;
} counting;

static int count_row(const Fts5ExtensionApi *api, Fts5Context *fts, void *user) {
    counting *so_far = user;
    (void)api, (void)fts;
    so_far->rows++;
    return so_far->rows % LOOK_ROWS == 0 && fl_asker_over(so_far->by, NULL) < 0 ? SQLITE_INTERRUPT
                                                                                : SQLITE_OK;
}

/* How rare each phrase is, once a search. */
static int count(const Fts5ExtensionApi *api, Fts5Context *fts, fl_words_query *query) {
    sqlite3_int64 rows = 0, words = 0;
    int           code = api->xRowCount(fts, &rows);
    code               = code == SQLITE_OK ? api->xColumnTotalSize(fts, -1, &words) : code;
    query->phrases     = api->xPhraseCount(fts);
    query->phrases     = query->phrases < FL_WORDS_MAX ? query->phrases : FL_WORDS_MAX;
    query->average     = rows > 0 && words > 0 ? (double)words / (double)rows : 1;
    for (int i = 0; code == SQLITE_OK && i < query->phrases; i++) {
        counting found = {.by = query->by};
        code           = api->xQueryPhrase(fts, i, &found, count_row);
        double n = (double)found.rows, all = (double)(rows > found.rows ? rows : found.rows);
        query->idf[i] = log1p((all - n + 0.5) / (n + 0.5));
    }
    query->counted = code == SQLITE_OK;
    return code;
}

static void likeness(const Fts5ExtensionApi *api, Fts5Context *fts, sqlite3_context *out,
                     int value_count, sqlite3_value **values) {
    fl_words_query *query  = ((fl_words *)api->xUserData(fts))->query;
    int             places = 0, size = 0;
    double          often[FL_WORDS_MAX] = {0}, score = 0;
    (void)value_count, (void)values;
    int code = query->counted ? SQLITE_OK : count(api, fts, query);
    code     = code == SQLITE_OK ? api->xInstCount(fts, &places) : code;
    code     = code == SQLITE_OK ? api->xColumnSize(fts, -1, &size) : code;
    for (int i = 0; code == SQLITE_OK && i < places; i++) {
        int phrase, column, offset;
        code = api->xInst(fts, i, &phrase, &column, &offset);
        if (code == SQLITE_OK && phrase < query->phrases)
            often[phrase] += 1;
    }
    double length = k1 * (1 - b + b * size / query->average);
    for (int i = 0; i < query->phrases; i++)
        score += query->idf[i] * often[i] * (k1 + 1) / (often[i] + length);
    if (code == SQLITE_OK)
        sqlite3_result_double(out, score);
    else
        sqlite3_result_error_code(out, code);
}

static bool is_allowed(int64_t key, const int64_t *allowed, size_t count) {
    assert(allowed || count == 0);
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (allowed[middle] == key)
            return true;
        if (allowed[middle] < key)
            low = middle + 1;
        else
            count = middle;
    }
    return false;
}

int fl_words_slice(fl_words *words, fl_words_query *query, size_t rows, const int64_t *allowed,
                   size_t allowed_count, size_t k, fl_hit *hits, size_t *found) {
    sqlite3_stmt *s    = words->find;
    int           code = SQLITE_ROW;
    words->query       = query;
    (void)sqlite3_bind_text(s, 1, query->expression, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(s, 2, query->last);
    for (size_t seen = 0; seen < rows && (code = sqlite3_step(s)) == SQLITE_ROW; seen++) {
        fl_hit hit  = {sqlite3_column_int64(s, 0), (float)sqlite3_column_double(s, 1)};
        query->last = hit.key;
        if (allowed == NULL || is_allowed(hit.key, allowed, allowed_count))
            fl_hits_offer(hits, found, k, hit);
    }
    (void)sqlite3_reset(s);
    words->query = NULL;
    return code;
}

/* ---- Places -------------------------------------------------------------------------------------- */

typedef struct places {
    int    word[PLACES_MAX]; /* numbers of words in the text, sorted */
    int    count, next, at;
    size_t marks[2 * FL_MARKS_MAX];
    size_t mark_count;
} places;

/* FTS5's tokenizer has come to a word. */
static int take_word(void *user, int flags, const char *text, int size, int begin, int end) {
    places *p = user;
    (void)text, (void)size;
    if ((flags & FTS5_TOKEN_COLOCATED) != 0)
        return SQLITE_OK;
    if (p->next < p->count && p->word[p->next] == p->at) {
        while (p->next < p->count && p->word[p->next] == p->at)
            p->next++;
        p->marks[2 * p->mark_count]     = (size_t)begin;
        p->marks[2 * p->mark_count + 1] = (size_t)end;
        p->mark_count++;
    }
    p->at++;
    return p->next < p->count && p->mark_count < FL_MARKS_MAX ? SQLITE_OK : SQLITE_DONE;
}

static int compare_words(const void *a, const void *b2) {
    return *(const int *)a - *(const int *)b2;
}

static void marks(const Fts5ExtensionApi *api, Fts5Context *fts, sqlite3_context *out,
                  int value_count, sqlite3_value **values) {
    places      p    = {0};
    const char *text = NULL;
    int         size = 0, found = 0;
    int         code = api->xInstCount(fts, &found);
    (void)value_count, (void)values;
    for (int i = 0; code == SQLITE_OK && i < found && p.count < PLACES_MAX; i++) {
        int phrase, column, offset;
        code       = api->xInst(fts, i, &phrase, &column, &offset);
        int length = code == SQLITE_OK ? api->xPhraseSize(fts, phrase) : 0;
        for (int k = 0; k < length && p.count < PLACES_MAX; k++)
            p.word[p.count++] = offset + k;
    }
    qsort(p.word, (size_t)p.count, sizeof *p.word, compare_words);
    code = code == SQLITE_OK ? api->xColumnText(fts, 0, &text, &size) : code;
    code = code == SQLITE_OK ? api->xTokenize(fts, text, size, &p, take_word) : code;
    if (code == SQLITE_OK || code == SQLITE_DONE) {
        sqlite3_result_blob(out, p.marks, (int)(2 * p.mark_count * sizeof *p.marks),
                            SQLITE_TRANSIENT);
    } else {
        sqlite3_result_error_code(out, code);
    }
}

int fl_words_mark(fl_words *words, const char *expression, int64_t key, size_t *marks_out,
                  size_t *count_out) {
    sqlite3_stmt *s = words->mark;
    *count_out      = 0;
    (void)sqlite3_bind_text(s, 1, expression, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(s, 2, key);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        const void *blob  = sqlite3_column_blob(s, 0);
        size_t      bytes = (size_t)sqlite3_column_bytes(s, 0);
        if (blob != NULL) {
            memcpy(marks_out, blob, bytes);
            *count_out = bytes / (2 * sizeof *marks_out);
        }
    }
    (void)sqlite3_reset(s);
    return code == SQLITE_ROW ? SQLITE_DONE : code;
}

/* ---- Opening ------------------------------------------------------------------------------------- */

int fl_words_open(fl_words **out, sqlite3 *db) {
    static const char find[] = "SELECT rowid, likeness(words) FROM words WHERE words MATCH ?1 AND "
                               "rowid > ?2 ORDER BY rowid";
    static const char mark[] = "SELECT marks(words) FROM words WHERE words MATCH ?1 AND "
                               "rowid = ?2";
    fts5_api         *api    = api_of(db);
    fl_words         *words  = fl_alloc_zero(1, sizeof *words);
    *out                     = words;
    if (words == NULL || api == NULL)
        return words == NULL ? SQLITE_NOMEM : SQLITE_ERROR;
    int code = api->xCreateFunction(api, "likeness", words, likeness, NULL);
    code     = code == SQLITE_OK ? api->xCreateFunction(api, "marks", words, marks, NULL) : code;
    code     = code == SQLITE_OK
                   ? sqlite3_prepare_v3(db, find, -1, SQLITE_PREPARE_PERSISTENT, &words->find, NULL)
                   : code;
    return code == SQLITE_OK
               ? sqlite3_prepare_v3(db, mark, -1, SQLITE_PREPARE_PERSISTENT, &words->mark, NULL)
               : code;
}

void fl_words_close(fl_words *words) {
    if (words == NULL)
        return;
    sqlite3_finalize(words->find);
    sqlite3_finalize(words->mark);
    fl_free(words);
}
