/* SPDX-License-Identifier: Apache-2.0 */
/* part.c - one part of a job, from its range of the input to its manifest.
 *
 * Role    cmd_run.c calls it for every part of the shard that is not done.
 * Method  Vectors and rows are written under temporary names while the range is read, then each is synced and
 *         renamed, and the manifest comes last: what has no manifest is not done. Two workers that make the same
 *         part write the same bytes, whoever renames last. Of the rows file each line is an input, in order:
 *         what came of it, or why it was refused. Refused inputs are heard of before the rows that stand before
 *         them are there, so their reasons wait in a list.
 *         The input's digest is taken in a second reading, from the page cache: 32 MiB are minutes of
 *         embedding and 0.02 s of hashing, of which reading is 0.004. Hashing what the reader reads would have to stop
 *         where the last record ends, which a reader that is a block ahead learns after it.
 * Memory  a window of texts and rows, and the reasons of its refused inputs.
 * Proof   tests/cli/test_cli_run.py. */
#include "cli/part.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"

enum { REASON_MAX = 400 };

/* A refused input whose line of the rows is not written yet. */
typedef struct reason {
    uint64_t line;
    size_t   offset; /* in part->reasons */
} reason;

typedef struct part {
    fl_parts               *parts;
    const fl_filejob_input *input;
    uint64_t                begin, limit; /* of the input; 0, 0: nothing begins here */
    char                    name[FL_PART_NAME];
    char                    path[PATH_MAX], rows_path[PATH_MAX]; /* the sinks' names are borrowed */
    fl_run                  run;      /* its output: the vectors, or the rows of jsonl */
    fl_output               own_rows; /* of a format of numbers */
    fl_sink                *rows;
    fl_buf                  waiting; /* of reason */
    size_t                  told;    /* of them */
    fl_buf                  reasons;
    bool                    lost; /* no memory for a reason */
} part;

/* ---- Rows ------------------------------------------------------------------------------------ */

static void on_refused(void *user, fl_place place, const char *text) {
    part *p = user;
    fl_buf_append(&p->waiting, &(reason){place.line, p->reasons.size}, sizeof(reason));
    fl_buf_append(&p->reasons, text, strlen(text) + 1);
    p->lost = p->lost || p->waiting.failed || p->reasons.failed;
    if (p->lost)
        return;
    /* what the reader refuses is heard of a window before what the model refuses */
    reason *waiting = (reason *)(void *)p->waiting.data;
    for (size_t at = p->waiting.size / sizeof *waiting - 1;
         at > p->told && waiting[at - 1].line > waiting[at].line; at--) {
        const reason later = waiting[at - 1];
        waiting[at - 1]    = waiting[at];
        waiting[at]        = later;
    }
}

/* The refused inputs before `line` to the rows. */
static void tell_refused(part *p, uint64_t line) {
    fl_buf       *out     = &p->rows->buf;
    const reason *waiting = (const reason *)(const void *)p->waiting.data;
    const size_t  count   = p->waiting.size / sizeof *waiting;
    while (p->told < count && waiting[p->told].line < line && !p->lost) {
        const reason *why  = &waiting[p->told++];
        const char   *text = p->reasons.data + why->offset;
        fl_buf_puts(out, "{\"refused\":");
        fl_json_quote(out, text, strlen(text));
        fl_buf_printf(out, ",\"line\":%" PRIu64 "}\n", why->line);
    }
    if (p->told == count) {
        p->told = 0;
        fl_buf_clear(&p->waiting);
        fl_buf_clear(&p->reasons);
    }
}

static void put_row(part *p, const fl_row *row) {
    fl_buf *out = &p->rows->buf;
    fl_buf_putc(out, '{');
    if (row->chunk != NULL)
        fl_output_put_index(out, row);
    fl_buf_printf(out, "\"tokens\":%u", row->tokens);
    fl_output_end_object(&p->own_rows, row);
}

static fl_exit put(fl_run *run, const fl_row *row, void *user) {
    part        *p = user;
    fletch_error error;
    tell_refused(p, run->last.line);
    fl_output_put(&run->output, &fl_vector_writer, row, NULL);
    if (run->output.format != FL_OUTPUT_JSONL)
        put_row(p, row);
    if (fl_sink_flush(&run->output.sink, false, &error) < 0 ||
        fl_sink_flush(p->rows, false, &error) < 0)
        return fl_cli_fail(&error, false);
    return FL_EXIT_DONE;
}

/* ---- The range ------------------------------------------------------------------------------- */

/* The first byte in [from, to) at which a line begins; `to` when there is none, and on failure *status. */
static uint64_t find_line(const char *path, uint64_t from, uint64_t to, int *status,
                          fletch_error *error) {
    enum { BLOCK = 64 * 1024 };
    char    *block = fl_alloc(BLOCK);
    int      fd    = fl_regular_open(path, NULL, error);
    uint64_t at = from - 1, found = to;
    *status = fd < 0 ? fd : block == NULL ? fl_fail_nomem(error, BLOCK, path) : 0;
    while (*status == 0 && found == to && at + 1 < to) {
        uint64_t      left  = to - 1 - at;
        const ssize_t count = pread(fd, block, left < BLOCK ? (size_t)left : BLOCK, (off_t)at);
        if (count <= 0) {
            *status = fl_fail_errno(error, count < 0 ? errno : EIO, "cannot read", path);
            break;
        }
        const char *end = memchr(block, '\n', (size_t)count);
        found           = end != NULL ? at + (uint64_t)(end - block) + 1 : to;
        at += (uint64_t)count;
    }
    fl_close(fd);
    fl_free(block);
    return found;
}

static uint64_t range_begin(const fl_filejob *job, const fl_filejob_input *input, uint64_t number) {
    return input->whole ? 0 : (number - input->first) * job->split_bytes;
}

static uint64_t range_end(const fl_filejob *job, const fl_filejob_input *input, uint64_t number) {
    const uint64_t begin = range_begin(job, input, number);
    return input->whole || input->size - begin < job->split_bytes ? input->size
                                                                  : begin + job->split_bytes;
}

uint64_t fl_part_bytes(const fl_filejob *job, uint64_t number) {
    char                    name[FL_PART_NAME];
    const fl_filejob_input *input = fl_filejob_part(job, number, name);
    return range_end(job, input, number) - range_begin(job, input, number);
}

static int find_range(part *p, const fl_filejob *job, uint64_t number, fletch_error *error) {
    int status = 0;
    p->begin   = range_begin(job, p->input, number);
    p->limit   = range_end(job, p->input, number);
    if (p->begin > 0) {
        const uint64_t begin = find_line(p->input->path, p->begin, p->limit, &status, error);
        p->begin             = begin < p->limit ? begin : 0;
        p->limit             = begin < p->limit ? p->limit : 0;
    }
    return status;
}

/* ---- The part -------------------------------------------------------------------------------- */

/* A pipe, device or link in the place of a part's file: what embed would write to is in the way here. A folder stays,
 * and is refused when the file is opened. */
static void clear_place(const char *path) {
    struct stat status;
    if (lstat(path, &status) == 0 && !S_ISREG(status.st_mode))
        (void)unlink(path);
}

static fl_exit open_output(part *p) {
    const fl_parts *parts = p->parts;
    bool            jsonl = parts->format == FL_OUTPUT_JSONL;
    fletch_error    error;
    fl_filejob_path(parts->job, p->name, parts->job->suffix, p->path);
    fl_filejob_path(parts->job, p->name, "jsonl", p->rows_path);
    clear_place(p->path);
    clear_place(p->rows_path);
    p->rows    = jsonl ? &p->run.output.sink : &p->own_rows.sink;
    int status = fl_output_open_file(&p->run.output, p->path, parts->format, &error);
    if (status == 0 && !jsonl)
        status = fl_output_open_file(&p->own_rows, p->rows_path, FL_OUTPUT_JSONL, &error);
    if (status < 0)
        return fl_cli_fail(&error, false);
    p->run.output.half           = parts->half;
    p->run.output.no_index       = !fl_chunk_rows_asked(parts->cli);
    p->run.output.keep_text      = parts->cli->args.value[FL_FLAG_KEEP_TEXT] != NULL;
    p->run.output.sink.file.care = FL_ATOMIC_CONTENT;
    p->own_rows.keep_text        = p->run.output.keep_text;
    p->own_rows.sink.file.care   = FL_ATOMIC_CONTENT;
    return FL_EXIT_DONE;
}

/* Members of a line of the rows, which no field is to be called. */
static const char *own_names(const fl_cli *cli) {
    static const char *const names[2][2] = {
        {"tokens|truncated|embedding|refused|line", "id|tokens|truncated|embedding|refused|line"},
        {"index|chunk|bytes|chars|tokens|truncated|embedding|refused|line",
         "id|index|chunk|bytes|chars|tokens|truncated|embedding|refused|line"}};
    return names[fl_chunk_rows_asked(cli)][cli->args.value[FL_FLAG_ID_FIELD] != NULL];
}

/* All records of the range; *end is where the next part's records begin. */
static fl_exit read_range(part *p, uint64_t *end) {
    fl_parts            *parts = p->parts;
    fl_run              *run   = &p->run;
    const fl_input_piece piece = {p->input->path, p->input->format, p->begin,
                                  p->input->whole ? 0 : p->limit};
    const bool           cuts  = fl_chunk_rows_asked(parts->cli);
    const char          *names = own_names(parts->cli);
    fl_exit              code  = fl_input_open_piece(&run->input, parts->cli, names, &piece);
    int                  more  = 1;
    if (code != FL_EXIT_DONE) {
        run->input.failed = true;
        return code;
    }
    run->input.on_refused   = on_refused;
    run->input.refused_user = p;
    while (code == FL_EXIT_DONE && more > 0) {
        code = cuts ? fl_run_window(run, fl_chunk_rows_window, &parts->chunks, &more)
                    : fl_run_window(run, fl_embedder_window, &parts->embedder, &more);
        fl_progress_update(&parts->progress, NULL, parts->texts + run->texts,
                           parts->bytes + fl_source_done(&run->input.source) - p->begin,
                           parts->bytes_total);
    }
    *end = p->input->whole ? p->input->size : fl_source_done(&run->input.source);
    return code;
}

/* What a file has become, for the manifest. */
static int describe(const part *p, const char *suffix, fl_part_file *file, fletch_error *error) {
    char        path[PATH_MAX];
    struct stat status;
    fl_filejob_path(p->parts->job, p->name, suffix, path);
    (void)snprintf(file->name, sizeof file->name, "%s.%s", p->name, suffix);
    if (stat(path, &status) != 0)
        return fl_fail_errno(error, errno, "cannot read", path);
    file->bytes = (uint64_t)status.st_size;
    return fl_file_sha256(path, file->sha256, error);
}

/* Everything was read: files to their names, then the manifest. */
static int finish(part *p, fl_manifest *manifest, fletch_error *error) {
    const fl_parts *parts = p->parts;
    const fl_run   *run   = &p->run;
    fl_manifest     theirs;
    bool            jsonl = parts->format == FL_OUTPUT_JSONL;
    FL_TRY(fl_filejob_verify_input(p->input, error));
    tell_refused(p, UINT64_MAX);
    if (p->lost)
        return fl_fail_nomem(error, p->reasons.size, "the reasons of refused inputs");
    FL_TRY(fl_file_sha256_range(p->input->path, manifest->begin, manifest->end,
                                manifest->input_sha256, error));
    manifest->rows      = run->output.rows;
    manifest->tokens    = run->tokens;
    manifest->truncated = run->truncated;
    manifest->refused   = run->input.refused;
    if (fl_manifest_read(&theirs, parts->job, p->name, error) == FL_MANIFEST_DONE) {
        *manifest = theirs; /* another worker was faster: its bytes are these */
        return 0;
    }
    FL_TRY(
        fl_output_finish(&p->run.output, parts->embedder.dimensions, parts->embedder.dtype, error));
    FL_TRY(describe(p, parts->job->suffix, &manifest->file[0], error));
    if (!jsonl) {
        FL_TRY(fl_sink_finish(&p->own_rows.sink, NULL, 0, error));
        FL_TRY(describe(p, "jsonl", &manifest->file[1], error));
    }
    return fl_manifest_write(manifest, parts->job, p->name, error);
}

fl_exit fl_part_make(fl_parts *parts, uint64_t number, fl_manifest *manifest, bool *unreadable) {
    const uint64_t start = fl_clock_ns();
    part           p;
    fletch_error   error;
    fl_exit        code = FL_EXIT_DONE;
    memset(&p, 0, sizeof p);
    memset(manifest, 0, sizeof *manifest);
    p.parts              = parts;
    p.input              = fl_filejob_part(parts->job, number, p.name);
    p.run.cli            = parts->cli;
    p.run.window_texts   = parts->window_texts;
    parts->embedder.put  = put;
    parts->embedder.user = &p;
    *unreadable          = false;
    if (find_range(&p, parts->job, number, &error) < 0) {
        code        = fl_cli_fail(&error, false);
        *unreadable = true;
    }
    code = code == FL_EXIT_DONE ? open_output(&p) : code;
    if (code == FL_EXIT_DONE && (p.input->whole || p.limit > 0)) {
        manifest->begin = p.begin;
        code            = read_range(&p, &manifest->end);
        *unreadable     = p.run.input.failed;
    }
    manifest->seconds = (double)(fl_clock_ns() - start) * 1e-9;
    if (code == FL_EXIT_DONE && finish(&p, manifest, &error) < 0)
        code = fl_cli_fail(&error, false);
    parts->window_texts = p.run.window_texts;
    parts->texts += p.run.texts;
    fl_output_close(&p.own_rows);
    fl_run_close(&p.run);
    fl_buf_free(&p.waiting);
    fl_buf_free(&p.reasons);
    return code;
}

static void keep_reason(void *user, fl_place place, const char *text) {
    char *first = user;
    (void)place;
    if (first[0] == '\0')
        (void)snprintf(first, REASON_MAX, "%s", text);
}

fl_exit fl_parts_try_field(const fl_parts *parts) {
    char                    name[FL_PART_NAME], first[REASON_MAX] = "";
    const fl_filejob_input *input = fl_filejob_part(parts->job, 0, name);
    const fl_input_piece    piece = {input->path, input->format, 0,
                                  input->whole ? 0 : range_end(parts->job, input, 0)};
    fl_input                in;
    fl_window               window = {0};
    fl_exit                 code   = fl_input_open_piece(&in, parts->cli, "", &piece);
    int                     more   = code == FL_EXIT_DONE ? 1 : 0;
    in.silent                      = true;
    in.on_refused                  = keep_reason;
    in.refused_user                = first;
    while (more > 0 && window.count == 0)
        more = fl_input_next(&in, &window, FL_WINDOW_FIRST, UINT16_MAX);
    if (code == FL_EXIT_DONE && more < 0 && in.error.code == FLETCH_ECONFIG) {
        fl_cli_message("%s", in.error.message); /* the header of a CSV file has no such column */
        code = FL_EXIT_USAGE;
    } else if (code == FL_EXIT_DONE && more == 0 && in.fieldless > 0 &&
               in.fieldless == in.refused) {
        fl_cli_message("%s %s, nor has any of the first %" PRIu64
                       " records, the first part of the job",
                       input->path, first, in.fieldless);
        code = FL_EXIT_USAGE;
    }
    fl_window_free(&window);
    fl_input_close(&in);
    return code;
}
