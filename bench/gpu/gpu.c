/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c - fl-gpu: fletch's side of the GPU benchmark, a process that measures what it is told to.
 *
 *     fl-gpu FOLDER [KEY=VALUE …]      keys as in docs/options.md: provider.order=cuda
 *
 * Role    measure.py starts it beside the peers' process and gives both work in turn.
 * In      lines on stdin:  text FILE SECONDS         all lines of the file, again and again
 *                          one FILE SECONDS          its lines one at a time: latency of a call
 *                          ids LENGTH SECONDS        token ids through the engine alone
 *                          forward LENGTH SECONDS    one text through the engine alone: latency
 *                          describe                  what the model says of itself
 * Out     a JSON object a line: calls, texts, tokens, seconds, cpu_seconds, p50, p99; or error.
 * Method  Library and engine are opened when they are first asked for, and stay open. A text is what
 *         stands in a line; a first pass that is not counted warms caches and counts tokens. */
#include "../measure.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "rounds.h"

enum { LINE = 4096, TIMES_MAX = 200000 };

typedef struct bench {
    const char    *folder;
    fletch_config *config;
    fletch_model  *model;  /* NULL until a text is asked for */
    rounds        *rounds; /* NULL until ids are asked for */
} bench;

/* A file of texts, a line each. */
typedef struct lines {
    fl_buf   text;
    int64_t *offsets; /* [count + 1] */
    int64_t *ends;    /* [count] */
    size_t   count;
} lines;

/* ---- What is measured ------------------------------------------------------------------------- */

/* Lines -> texts laid end to end, the newlines taken out. */
static int read_lines(lines *out, const char *path, fletch_error *error) {
    memset(out, 0, sizeof *out);
    int status = fl_file_read(path, (size_t)1 << 32, &out->text, error);
    if (status < 0)
        return status;
    size_t room = 2;
    for (size_t i = 0; i < out->text.size; i++)
        room += out->text.data[i] == '\n';
    out->offsets    = fl_alloc_array(room, sizeof *out->offsets);
    size_t kept     = 0;
    out->offsets[0] = 0;
    for (size_t i = 0; i < out->text.size; i++)
        if (out->text.data[i] == '\n')
            out->offsets[++out->count] = (int64_t)kept;
        else
            out->text.data[kept++] = out->text.data[i];
    return FLETCH_OK;
}

static void free_lines(lines *l) {
    fl_buf_free(&l->text);
    fl_free(l->offsets);
}

static fletch_texts some(const lines *l, size_t first, size_t count) {
    return fletch_texts_from_offsets(l->text.data, l->offsets + first, count);
}

static int open_model(bench *b, fletch_error *error) {
    if (b->model)
        return FLETCH_OK;
    int status = fletch_open(&b->model, b->folder, b->config, error);
    return status < 0 ? status : fletch_warm(b->model, error);
}

/* All lines in one call, for some seconds. */
static int many(bench *b, const lines *l, double seconds, tally *out, fletch_error *error) {
    size_t               width   = fletch_dimensions(b->model);
    float               *rows    = fl_alloc_array(l->count * width, sizeof *rows);
    uint32_t            *used    = fl_alloc_array(l->count, sizeof *used);
    fletch_matrix        all     = fletch_matrix_f32(rows, l->count, width);
    fletch_texts         texts   = some(l, 0, l->count);
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.tokens               = used;
    int      status              = fletch_embed(b->model, &texts, &options, &all, error);
    uint64_t tokens              = 0;
    for (size_t i = 0; status == FLETCH_OK && i < l->count; i++)
        tokens += used[i];
    double   cpu   = cpu_seconds();
    uint64_t start = fl_clock_ns(), now = start;
    while (status == FLETCH_OK && (double)(now - start) < seconds * 1e9) {
        status = fletch_embed(b->model, &texts, NULL, &all, error);
        now    = fl_clock_ns();
        out->calls++;
    }
    out->seconds     = 1e-9 * (double)(now - start);
    out->cpu_seconds = cpu_seconds() - cpu;
    out->texts       = out->calls * l->count;
    out->tokens      = out->calls * tokens;
    fl_free(rows);
    fl_free(used);
    return status;
}

/* A line a call. */
static int one(bench *b, const lines *l, double seconds, tally *out, fletch_error *error) {
    size_t        width = fletch_dimensions(b->model), done = 0;
    float        *row    = fl_alloc_array(width, sizeof *row);
    double       *times  = fl_alloc_array(TIMES_MAX, sizeof *times);
    fletch_matrix matrix = fletch_matrix_f32(row, 1, width);
    int           status = FLETCH_OK;
    double        cpu    = cpu_seconds();
    uint64_t      start = fl_clock_ns(), now = start;
    while (status == FLETCH_OK && done < TIMES_MAX && (double)(now - start) < seconds * 1e9) {
        fletch_texts text = some(l, done % l->count, 1);
        text.bytes += text.offsets64[0]; /* offsets begin at 0 */
        int64_t offsets[2] = {0, text.offsets64[1] - text.offsets64[0]};
        text.offsets64     = offsets;
        uint64_t begun     = fl_clock_ns();
        status             = fletch_embed(b->model, &text, NULL, &matrix, error);
        now                = fl_clock_ns();
        times[done++]      = 1e-9 * (double)(now - begun);
    }
    out->seconds     = 1e-9 * (double)(now - start);
    out->cpu_seconds = cpu_seconds() - cpu;
    out->calls = out->texts = done;
    size_t warm             = done / 10; /* the first tenth is not counted */
    tally_times(out, times + warm, done - warm);
    fl_free(row);
    fl_free(times);
    return status;
}

static int measure_texts(bench *b, const char *path, double seconds, bool single, tally *out,
                         fletch_error *error) {
    lines l;
    int   status = open_model(b, error);
    if (status < 0)
        return status;
    status = read_lines(&l, path, error);
    if (status == FLETCH_OK && l.count == 0)
        status = fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "%s: no line of text", path);
    if (status == FLETCH_OK)
        status = (single ? one : many)(b, &l, seconds, out, error);
    free_lines(&l);
    return status;
}

static int measure_ids(bench *b, uint32_t length, double seconds, bool single, tally *out,
                       fletch_error *error) {
    int status = FLETCH_OK;
    if (!b->rounds)
        status = rounds_open(&b->rounds, b->folder, b->config, error);
    if (status == FLETCH_OK)
        return rounds_run(b->rounds, length, single, seconds, out, error);
    rounds_close(b->rounds);
    b->rounds = NULL;
    return status;
}

/* ---- Commands --------------------------------------------------------------------------------- */

static void print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < 0x20 ? ' ' : *text);
    }
    putchar('"');
}

static int print_property(void *user, const char *name, const char *value, const char *origin) {
    bool *first = user;
    (void)origin;
    fputs(*first ? "{" : ",", stdout);
    *first = false;
    print_text(name);
    putchar(':');
    print_text(value);
    return 0;
}

static int describe(bench *b, fletch_error *error) {
    bool first  = true;
    int  status = open_model(b, error);
    if (status < 0)
        return status;
    fletch_model_describe(b->model, print_property, &first);
    puts(first ? "{}" : "}");
    return FLETCH_OK;
}

static int command(bench *b, char *line, fletch_error *error) {
    char   verb[16] = "", what[LINE] = "";
    double seconds = 0;
    tally  t       = {0};
    int    status;
    int    words = sscanf(line, "%15s %4095s %lf", verb, what, &seconds);
    if (strcmp(verb, "describe") == 0)
        return describe(b, error);
    if (words != 3)
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "see the head of bench/gpu/gpu.c");
    if (strcmp(verb, "text") == 0 || strcmp(verb, "one") == 0)
        status = measure_texts(b, what, seconds, verb[0] == 'o', &t, error);
    else if (strcmp(verb, "ids") == 0 || strcmp(verb, "forward") == 0)
        status =
            measure_ids(b, (uint32_t)strtoul(what, NULL, 10), seconds, verb[0] == 'f', &t, error);
    else
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "no command \"%s\"", verb);
    if (status == FLETCH_OK)
        printf("{\"calls\":%llu,\"texts\":%llu,\"tokens\":%llu,\"seconds\":%.9g,"
               "\"cpu_seconds\":%.6g,\"p50\":%.9g,\"p99\":%.9g}\n",
               (unsigned long long)t.calls, (unsigned long long)t.texts,
               (unsigned long long)t.tokens, t.seconds, t.cpu_seconds, t.p50, t.p99);
    return status;
}

/* Warnings and what is worse; with BENCH_LOG=debug all. */
static void on_log(void *user, int level, const char *message) {
    const char *wanted = getenv("BENCH_LOG");
    (void)user;
    if (level <= 1 || (wanted && strcmp(wanted, "debug") == 0))
        fprintf(stderr, "fl-gpu: %s\n", message);
}

int main(int argc, char **argv) {
    char         line[LINE + 64];
    fletch_error error;
    bench        b = {.folder = argc > 1 ? argv[1] : NULL, .config = fletch_config_new()};
    if (!b.folder || !b.config) {
        fputs("fl-gpu FOLDER [KEY=VALUE ...]; see the head of bench/gpu/gpu.c\n", stderr);
        return 2;
    }
    fletch_config_set_log(b.config, on_log, NULL);
    for (int i = 2; i < argc; i++) {
        if (set_key(b.config, argv[i], &error) < 0) {
            fprintf(stderr, "fl-gpu: %s\n", error.message);
            return 2;
        }
    }
    while (fgets(line, sizeof line, stdin)) {
        if (command(&b, line, &error) < 0) {
            fputs("{\"error\":", stdout);
            print_text(error.message);
            puts("}");
        }
        fflush(stdout);
    }
    fletch_close(b.model);
    rounds_close(b.rounds);
    fletch_config_free(b.config);
    return 0;
}
