/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_rows.c - windows of documents to a row for each of their chunks.
 *
 * Role    cmd_embed.c and part.c with --chunk, as embedder.c without; cmd_chunk.c reads its flags here.
 * Method  Documents are cut one after the other until there are PIECES_MAX chunks, which one call embeds: as texts
 *         of their own, or (late) the documents with their spans. A document to blame for a failure is refused as in
 *         embedder.c: those before it are done first. Chunks without a token (white space alone) have no row.
 * Memory  The chunks of a call, which are PIECES_MAX, or those of one document, and a vector for each.
 * Proof   tests/cli/test_cli_chunk.py, test_cli_run_chunks.py. */
#include "cli/chunk_rows.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"

enum { PIECES_MAX = 4096 };

typedef struct piece {
    size_t       document; /* of those under way */
    fl_row_place place;
    uint32_t     tokens;
} piece;

/* ---- Flags ---------------------------------------------------------------------------------------- */

/* A number of tokens; 0 where none was given. */
static bool read_tokens(const char *value, int64_t least, uint32_t *out) {
    int64_t tokens = 0;
    if (value != NULL && (!fl_parse_i64(value, &tokens) || tokens < least || tokens > INT32_MAX))
        return false;
    *out = (uint32_t)tokens;
    return true;
}

fl_exit fl_chunk_options_read(const fl_cli *cli, const char *prefix,
                              fletch_chunk_options *options) {
    static const char *const names[] = {[FLETCH_CHUNK_BY_SENTENCES]  = "sentences",
                                        [FLETCH_CHUNK_BY_TOKENS]     = "tokens",
                                        [FLETCH_CHUNK_BY_PARAGRAPHS] = "paragraphs",
                                        [FLETCH_CHUNK_BY_MARKDOWN]   = "markdown"};
    const char *by = cli->args.value[FL_FLAG_BY], *size = cli->args.value[FL_FLAG_SIZE];
    const char *overlap = cli->args.value[FL_FLAG_OVERLAP];
    *options            = (fletch_chunk_options)FLETCH_CHUNK_OPTIONS_INIT;
    if (!read_tokens(size, 1, &options->max_tokens)) {
        return fl_cli_usage(cli, "%ssize takes a number of tokens, at least 1, not '%.64s'", prefix,
                            size);
    }
    if (!read_tokens(overlap, 0, &options->overlap)) {
        return fl_cli_usage(cli, "%soverlap takes a number of tokens, not '%.64s'", prefix,
                            overlap);
    }
    for (size_t i = 0; by != NULL && i < sizeof names / sizeof *names; i++)
        options->by = strcmp(by, names[i]) == 0 ? (fletch_chunk_by)i : options->by;
    return FL_EXIT_DONE;
}

bool fl_chunk_rows_asked(const fl_cli *cli) {
    return cli->args.value[FL_FLAG_BY] != NULL;
}

fl_exit fl_chunk_rows_read(fl_chunk_rows *rows, const fl_cli *cli) {
    rows->late = cli->args.value[FL_FLAG_LATE_CHUNKING] != NULL;
    if (!fl_chunk_rows_asked(cli)) {
        bool more = rows->late || cli->args.value[FL_FLAG_SIZE] != NULL ||
                    cli->args.value[FL_FLAG_OVERLAP] != NULL;
        return more ? fl_cli_usage(cli, "--chunk-size, --chunk-overlap and --late-chunking need "
                                        "--chunk sentences (or tokens, paragraphs, markdown)")
                    : FL_EXIT_DONE;
    }
    return fl_chunk_options_read(cli, "--chunk-", &rows->options);
}

fl_exit fl_chunk_rows_try(const fl_chunk_rows *rows, const fl_cli *cli) {
    fletch_error       error    = {0};
    fletch_chunks     *chunks   = NULL;
    const fletch_texts none     = {0};
    const fletch_span  span     = {0};
    const size_t       no_spans = 0;
    fletch_matrix      matrix   = fletch_matrix_f32(NULL, 0, fletch_dimensions(cli->model));
    int                status = fletch_chunk(cli->model, NULL, 0, &rows->options, &chunks, &error);
    fletch_chunks_free(chunks);
    if (status == FLETCH_OK && rows->late)
        status = fletch_embed_spans(cli->model, &none, &span, &no_spans, NULL, &matrix, &error);
    return status < 0 ? fl_cli_fail(&error, false) : FL_EXIT_DONE;
}

/* ---- Documents to chunks -------------------------------------------------------------------------- */

static const piece *pieces_of(const fl_chunk_rows *rows, size_t *count) {
    *count = rows->pieces.size / sizeof(piece);
    return (const piece *)(const void *)rows->pieces.data;
}

/* Text `i` of the window, the `document`th of those under way. */
static int cut(fl_run *run, fl_chunk_rows *rows, size_t i, size_t document, fletch_error *error) {
    fletch_chunks *chunks = NULL;
    int status = fletch_chunk(run->cli->model, run->window.texts[i], run->window.sizes[i],
                              &rows->options, &chunks, error);
    for (size_t k = 0; status == FLETCH_OK && k < chunks->count; k++) {
        const size_t *bytes = &chunks->offsets[2 * k], *chars = &chunks->chars[2 * k];
        const piece   one = {
              document, {k, {bytes[0], bytes[1]}, {chars[0], chars[1]}}, chunks->tokens[k]};
        if (one.tokens > 0)
            fl_buf_append(&rows->pieces, &one, sizeof one);
    }
    fletch_chunks_free(chunks);
    return status == FLETCH_OK && rows->pieces.failed
               ? fl_fail_nomem(error, rows->pieces.size, "the chunks of documents")
               : status;
}

/* How many documents from `first` on go together, `most` at most; 0: the first one cannot be cut, *status says why. */
static size_t gather(fl_run *run, fl_chunk_rows *rows, size_t first, size_t most, int *status,
                     fletch_error *error) {
    size_t documents = 0;
    fl_buf_clear(&rows->pieces);
    *status = FLETCH_OK;
    while (documents < most && rows->pieces.size < PIECES_MAX * sizeof(piece)) {
        const size_t before = rows->pieces.size;
        *status             = cut(run, rows, first + documents, documents, error);
        if (*status < 0) {
            rows->pieces.size = before;
            break; /* those before it go first */
        }
        documents++;
    }
    return documents;
}

/* ---- Chunks to rows ------------------------------------------------------------------------------- */

/* What a call without spans takes: the chunks as texts. */
static fletch_texts list_chunks(const fl_run *run, fl_chunk_rows *rows, size_t first) {
    size_t       count;
    const piece *pieces = pieces_of(rows, &count);
    for (size_t i = 0; i < count; i++) {
        const size_t *bytes  = pieces[i].place.bytes;
        const char   *text   = run->window.texts[first + pieces[i].document] + bytes[0];
        const size_t  length = bytes[1] - bytes[0];
        fl_buf_append(&rows->texts, &text, sizeof text);
        fl_buf_append(&rows->lengths, &length, sizeof length);
    }
    return (fletch_texts){.count = count};
}

/* And with spans: the documents that have chunks. */
static fletch_texts list_documents(const fl_run *run, fl_chunk_rows *rows, size_t first) {
    size_t       count, texts = 0;
    const piece *pieces = pieces_of(rows, &count);
    for (size_t i = 0, begin = 0; i < count; i++) {
        const size_t      document = pieces[i].document, of = first + document;
        const fletch_span span = {pieces[i].place.bytes[0], pieces[i].place.bytes[1]};
        fl_buf_append(&rows->spans, &span, sizeof span);
        if (i + 1 == count || pieces[i + 1].document != document) {
            const size_t own = i + 1 - begin;
            fl_buf_append(&rows->texts, &run->window.texts[of], sizeof *run->window.texts);
            fl_buf_append(&rows->lengths, &run->window.sizes[of], sizeof *run->window.sizes);
            fl_buf_append(&rows->counts, &own, sizeof own);
            fl_buf_append(&rows->owners, &document, sizeof document);
            begin = i + 1;
            texts++;
        }
    }
    return (fletch_texts){.count = texts};
}

/* Room for `count` rows of `bytes`; the lists of the call before are empty. */
static bool clear(fl_chunk_rows *rows, size_t count, size_t bytes) {
    fl_buf *lists[] = {&rows->texts, &rows->lengths, &rows->spans, &rows->counts, &rows->owners};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        fl_buf_clear(lists[i]);
    return fl_buf_reserve(&rows->vectors, count * bytes) &&
           fl_buf_reserve(&rows->tokens, count * sizeof(uint32_t)) &&
           fl_buf_reserve(&rows->truncated, count);
}

static bool listed(const fl_chunk_rows *rows) {
    return !rows->texts.failed && !rows->lengths.failed && !rows->spans.failed &&
           !rows->counts.failed && !rows->owners.failed;
}

/* The chunks under way to rows->vectors; error->where becomes the document under way that is to blame. */
static int embed(fl_run *run, fl_chunk_rows *rows, size_t first, fletch_error *error) {
    const fl_embedder   *embedder = rows->embedder;
    fletch_embed_options options  = FLETCH_EMBED_OPTIONS_INIT;
    fletch_texts         texts    = {0};
    size_t               count;
    const piece         *pieces = pieces_of(rows, &count);
    const size_t         stride = fletch_row_bytes(embedder->dimensions, embedder->dtype);
    if (count == 0)
        return FLETCH_OK;
    bool good = clear(rows, count, stride);
    if (good)
        texts = rows->late ? list_documents(run, rows, first) : list_chunks(run, rows, first);
    if (!good || !listed(rows))
        return fl_fail_nomem(error, count * stride, "the vectors of chunks");
    texts.pointers       = (const char *const *)(const void *)rows->texts.data;
    texts.lengths        = (const size_t *)(const void *)rows->lengths.data;
    options.tokens       = (uint32_t *)(void *)rows->tokens.data;
    options.truncated    = (uint8_t *)rows->truncated.data;
    fletch_matrix matrix = {rows->vectors.data, count, embedder->dimensions, stride,
                            embedder->dtype};
    int           status;
    if (rows->late) {
        status = fletch_embed_spans(
            run->cli->model, &texts, (const fletch_span *)(const void *)rows->spans.data,
            (const size_t *)(const void *)rows->counts.data, &options, &matrix, error);
    } else {
        status = fletch_embed(run->cli->model, &texts, &options, &matrix, error);
    }
    if (status < 0 && error->where < texts.count) {
        error->where = rows->late ? ((const size_t *)(const void *)rows->owners.data)[error->where]
                                  : pieces[error->where].document;
    }
    return status;
}

/* Of the rows that are there, `documents` have theirs. */
static fl_exit put(fl_run *run, fl_chunk_rows *rows, size_t first, size_t documents) {
    fl_embedder    *embedder = rows->embedder;
    const uint32_t *tokens   = (const uint32_t *)(const void *)rows->tokens.data;
    const size_t    stride   = fletch_row_bytes(embedder->dimensions, embedder->dtype);
    size_t          count, i = 0, text = 0;
    const piece    *pieces = pieces_of(rows, &count);
    for (size_t d = 0; d < documents; d++) {
        size_t used = 0, end = i;
        bool   was_cut = false;
        for (; end < count && pieces[end].document == d; end++) {
            used += rows->late ? 0 : tokens[end];
            was_cut = was_cut || (!rows->late && rows->truncated.data[end] != 0);
        }
        used += rows->late && end > i ? tokens[text++] : 0;
        const fl_row whole = fl_run_done(run, first + d, used, was_cut);
        for (; i < end; i++) {
            const size_t *bytes = pieces[i].place.bytes;
            fl_row        row   = whole;
            row.text            = whole.text + bytes[0];
            row.text_size       = bytes[1] - bytes[0];
            row.chunk           = &pieces[i].place;
            row.tokens          = pieces[i].tokens;
            row.truncated       = !rows->late && rows->truncated.data[i] != 0;
            row.vector          = rows->vectors.data + i * stride;
            row.cols            = embedder->dimensions;
            row.dtype           = embedder->dtype;
            FL_CLI_TRY(embedder->put(run, &row, embedder->user));
        }
    }
    return FL_EXIT_DONE;
}

/* ---- A window ------------------------------------------------------------------------------------- */

/* Whether text `i` of the window may be left out; *code is what the run ends with where not. `spans`: the call with
 * spans failed, and the splitter's can be wrong in one way only. */
static bool refuse(fl_run *run, const fl_chunk_rows *rows, bool spans, size_t i, int status,
                   fletch_error *error, fl_exit *code) {
    const bool strict = rows->embedder->strict;
    if (status == FLETCH_EINVAL && spans) {
        (void)snprintf(
            error->message, sizeof error->message,
            "a chunk contains no complete token of its document; a larger --chunk-size helps");
    } else if (!fl_run_can_refuse(run, status) || (status == FLETCH_ENOMEM && strict)) {
        *code = fl_cli_fail(error, false);
        return false;
    }
    *code = fl_run_refuse(run, i, error) ? FL_EXIT_DONE : run->input.exit;
    return *code == FL_EXIT_DONE;
}

fl_exit fl_chunk_rows_window(fl_run *run, void *user) {
    fl_chunk_rows *rows  = user;
    const size_t   total = run->window.count;
    size_t         first = 0, most = total;
    fl_exit        code = FL_EXIT_DONE;
    while (first < total) {
        fletch_error error = {0};
        int          status;
        size_t       documents = gather(run, rows, first, most, &status, &error), blamed = 0;
        if (documents > 0) {
            error.where = FLETCH_NOWHERE;
            status      = embed(run, rows, first, &error);
            blamed      = error.where;
        }
        if (status >= 0) {
            FL_CLI_TRY(put(run, rows, first, documents));
            first += documents;
            most = total - first;
        } else if (documents > 0 && blamed >= documents) {
            return fl_cli_fail(&error, false);
        } else if (blamed > 0) {
            most = blamed; /* those before it are good: do them first */
        } else if (refuse(run, rows, rows->late && documents > 0, first, status, &error, &code)) {
            first++;
            most = total - first;
        } else {
            return code;
        }
    }
    return FL_EXIT_DONE;
}

void fl_chunk_rows_free(fl_chunk_rows *rows) {
    fl_buf *lists[] = {&rows->pieces,  &rows->texts,  &rows->lengths,
                       &rows->spans,   &rows->counts, &rows->owners,
                       &rows->vectors, &rows->tokens, &rows->truncated};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        fl_buf_free(lists[i]);
}
