/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench.c - `fletch bench`: how fast the model runs here, and what share of the processor that is.
 *
 * Role    "Is it as fast on my machine as it should be?", without texts, peers or Python.
 * Method  Texts are runs of words of an old novel, each cut to the row's number of tokens, so that no
 *         padding is counted and all texts differ. A round takes one call of each row, with the peak
 *         measured right before it: clocks and neighbours change, and a share is of the moment. Medians
 *         of the rounds are printed with their spread. Tokenising counts; writing vectors does not.
 * Memory  Texts and rows of the largest call, some MB.
 * Proof   tests/cli/test_cli_bench.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu_peak.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "cli/cli.h"

enum {
    ROWS          = 3,
    ROUNDS_MIN    = 3,
    ROUNDS_MAX    = 200,
    CALL_TOKENS   = 8192, /* of a call at most: what a batch takes */
    TEXTS_MIN     = 4,    /* and so many texts */
    TEXTS_MAX     = 512,
    LONE_TOKENS   = 16,
    LONE_MIN      = 20,
    LONE_CALLS    = 200,
    SECONDS       = 10,
    SECONDS_MAX   = 3600,
    WORDS_MAX     = 256,
    FIRST_STEP    = 7, /* no divisor of the novel's 204 words */
    PROPERTY_SIZE = 128
};

static const uint64_t lone_ns = 2000000000; /* for the calls of one text, once there are a few */

static const uint32_t lengths[ROWS] = {16, 64, 256};

/* Herman Melville, Moby-Dick (1851). */
static const char novel[] =
    "Call me Ishmael. Some years ago - never mind how long precisely - having little or no money "
    "in my purse, and nothing particular to interest me on shore, I thought I would sail about a "
    "little and see the watery part of the world. It is a way I have of driving off the spleen and "
    "regulating the circulation. Whenever I find myself growing grim about the mouth; whenever it "
    "is a damp, drizzly November in my soul; whenever I find myself involuntarily pausing before "
    "coffin warehouses, and bringing up the rear of every funeral I meet; and especially whenever "
    "my hypos get such an upper hand of me, that it requires a strong moral principle to prevent "
    "me from deliberately stepping into the street, and methodically knocking people's hats off - "
    "then, I account it high time to get to sea as soon as I can. This is my substitute for pistol "
    "and ball. With a philosophical flourish Cato throws himself upon his sword; I quietly take to "
    "the ship. There is nothing surprising in this. If they but knew it, almost all men in their "
    "degree, some time or other, cherish very nearly the same feelings towards the ocean with me.";

typedef struct series {
    double   value[ROUNDS_MAX]; /* sorted by settle */
    unsigned count;
} series;

typedef struct row {
    uint32_t     tokens;
    size_t       texts; /* of a call */
    size_t       made;
    const char **text;  /* owned [made], each owned */
    series       rate;  /* texts a second */
    series       share; /* of the peak */
} row;

typedef struct bench {
    fletch_model     *model;
    fletch_model_info info;
    unsigned          threads; /* of the CPU engine; 0: another runs */
    double            peak;    /* the best that was seen, FLOP/s */
    float            *vectors; /* owned: of the largest call */
    row               rows[ROWS];
    unsigned          row_count;
    series            lone; /* seconds of a call of one text */
} bench;

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void note(series *s, double value) {
    if (s->count < ROUNDS_MAX)
        s->value[s->count++] = value;
}

static void settle(series *s) {
    qsort(s->value, s->count, sizeof s->value[0], compare);
}

static double at(const series *s, double part) {
    return s->count == 0 ? 0 : s->value[(size_t)(part * (double)(s->count - 1) + 0.5)];
}

/* ---- Texts ----------------------------------------------------------------------------------------- */

/* Text `number`: `count` words of the novel from some word on, round and round. No two texts are equal, which
 * the library would embed once: with every lap of first words the distance from word to word grows. */
static char *words_of(size_t number, size_t count) {
    static const char *start[WORDS_MAX];
    static size_t      words;
    fl_buf             text = {0};
    for (const char *p = novel; words < WORDS_MAX && *p != '\0'; p += *p == ' ') {
        start[words++] = p;
        p += strcspn(p, " ");
    }
    const size_t first = number * FIRST_STEP;
    for (size_t i = 0; i < count; i++) {
        const char *word = start[(first + i * (1 + first / words)) % words];
        fl_buf_printf(&text, "%s%.*s", i > 0 ? " " : "", (int)strcspn(word, " "), word);
    }
    if (text.failed)
        fl_buf_free(&text);
    return text.data;
}

/* A word is a token at least, so that as many words as tokens are always cut to those tokens. */
static bool make_texts(row *r) {
    r->text = fl_alloc_zero(r->texts, sizeof *r->text);
    for (size_t i = 0; r->text != NULL && i < r->texts; i++)
        if ((r->text[i] = words_of(i, r->tokens)) == NULL)
            return false;
    return r->text != NULL;
}

/* ---- Measuring ------------------------------------------------------------------------------------- */

/* Seconds of one call over the first `texts` texts of the row; negative: *error. */
static double call(bench *b, const row *r, size_t texts, fletch_error *error) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_texts         input   = fletch_texts_from_strings(r->text, texts);
    const size_t         columns = fletch_dimensions(b->model);
    fletch_matrix        out     = fletch_matrix_f32(b->vectors, texts, columns);
    options.max_length           = r->tokens;
    options.truncate             = FLETCH_TRUNCATE_RIGHT;
    options.no_cache             = 1;
    const uint64_t begin         = fl_clock_ns();
    if (fletch_embed(b->model, &input, &options, &out, error) < 0)
        return -1;
    return (double)(fl_clock_ns() - begin) * 1e-9;
}

/* One call, after it as much of what a batch holds as takes a second. */
static bool prepare(bench *b, row *r, fletch_error *error) {
    r->texts = CALL_TOKENS / r->tokens < TEXTS_MAX ? CALL_TOKENS / r->tokens : TEXTS_MAX;
    r->made  = r->texts;
    if (!make_texts(r))
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for the texts") == 0;
    const double seconds = call(b, r, TEXTS_MIN, error);
    if (seconds > 0 && (double)r->texts > TEXTS_MIN / seconds) {
        r->texts =
            (size_t)(TEXTS_MIN / seconds) > TEXTS_MIN ? (size_t)(TEXTS_MIN / seconds) : TEXTS_MIN;
    }
    return seconds >= 0 && call(b, r, r->texts, error) >= 0;
}

static bool measure_row(bench *b, row *r, fletch_error *error) {
    const double peak    = fl_cpu_peak(b->threads);
    const double seconds = call(b, r, r->texts, error);
    if (seconds < 0)
        return false;
    const double rate  = (double)r->texts / seconds;
    const double flops = (double)fletch_text_flops(b->model, r->tokens);
    note(&r->rate, rate);
    if (peak > 0 && flops > 0)
        note(&r->share, rate * flops / peak);
    b->peak = peak > b->peak ? peak : b->peak;
    return true;
}

static bool measure(bench *b, double seconds, fletch_error *error) {
    const uint64_t until = fl_clock_ns() + (uint64_t)(seconds * 1e9);
    for (unsigned n = 0; n < ROUNDS_MAX && (n < ROUNDS_MIN || fl_clock_ns() < until); n++) {
        for (unsigned i = 0; i < b->row_count; i++)
            if (!measure_row(b, &b->rows[i], error))
                return false;
    }
    const uint64_t lone_until = fl_clock_ns() + lone_ns;
    for (unsigned i = 0; i < LONE_CALLS && (i < LONE_MIN || fl_clock_ns() < lone_until); i++) {
        const double took = call(b, &b->rows[0], 1, error);
        if (took < 0)
            return false;
        note(&b->lone, took);
    }
    for (unsigned i = 0; i < b->row_count; i++) {
        settle(&b->rows[i].rate);
        settle(&b->rows[i].share);
    }
    settle(&b->lone);
    return true;
}

/* ---- The report ------------------------------------------------------------------------------------ */

static void put_text(const bench *b, fl_buf *out) {
    char engine[PROPERTY_SIZE] = "";
    (void)fl_cli_model_property(b->model, "cpu.kernels", engine, sizeof engine);
    fl_buf_printf(out, "%s on %s, %s", b->info.id, b->info.provider, b->info.precision);
    if (b->threads > 0)
        fl_buf_printf(out, ", %u thread%s, %s", b->threads, b->threads == 1 ? "" : "s", engine);
    fl_buf_printf(out, "\nmedian (lowest to highest) of %u rounds\n\n", b->rows[0].rate.count);
    fl_buf_puts(out,
                "  tokens    texts/s                           tokens/s  GFLOP/s  of the peak\n");
    for (unsigned i = 0; i < b->row_count; i++) {
        const row   *r     = &b->rows[i];
        const double rate  = at(&r->rate, 0.5);
        const double flops = rate * (double)fletch_text_flops(b->model, r->tokens);
        char         spread[64];
        (void)snprintf(spread, sizeof spread, "(%.1f to %.1f)", at(&r->rate, 0), at(&r->rate, 1));
        fl_buf_printf(out, "  %6u %10.1f  %-24s %10.0f", r->tokens, rate, spread, rate * r->tokens);
        if (flops > 0)
            fl_buf_printf(out, " %8.1f", flops * 1e-9);
        if (r->share.count > 0)
            fl_buf_printf(out, "        %3.0f %%", 100 * at(&r->share, 0.5));
        fl_buf_putc(out, '\n');
    }
    fl_buf_printf(out, "\none text of %u tokens: %.2f ms, 95 %% within %.2f ms\n",
                  b->rows[0].tokens, 1e3 * at(&b->lone, 0.5), 1e3 * at(&b->lone, 0.95));
    if (b->rows[0].share.count > 0) {
        fl_buf_printf(
            out, "peak: fp32 multiply-adds in registers on as many threads, %.1f GFLOP/s; %s\n",
            b->peak * 1e-9,
            strcmp(b->info.precision, "fp32") == 0
                ? "far less than 80 % means other programs, a quota or throttling"
                : "lower precision may exceed it");
    }
}

static void put_json(const bench *b, fl_buf *out) {
    fl_buf_puts(out, "{\"model\":");
    fl_json_quote(out, b->info.id, strlen(b->info.id));
    fl_buf_printf(out,
                  ",\"provider\":\"%s\",\"precision\":\"%s\",\"threads\":%u,\"peak_flops\":%.0f",
                  b->info.provider, b->info.precision, b->threads, b->peak);
    fl_buf_printf(out, ",\"latency_ms\":{\"tokens\":%u,\"p50\":%.4f,\"p95\":%.4f},\"rows\":[",
                  b->rows[0].tokens, 1e3 * at(&b->lone, 0.5), 1e3 * at(&b->lone, 0.95));
    for (unsigned i = 0; i < b->row_count; i++) {
        const row *r = &b->rows[i];
        fl_buf_printf(out,
                      "%s{\"tokens\":%u,\"rounds\":%u,\"texts_per_second\":%.2f,\"lowest\":%.2f,"
                      "\"highest\":%.2f,\"text_flops\":%llu",
                      i > 0 ? "," : "", r->tokens, r->rate.count, at(&r->rate, 0.5),
                      at(&r->rate, 0), at(&r->rate, 1),
                      (unsigned long long)fletch_text_flops(b->model, r->tokens));
        if (r->share.count > 0)
            fl_buf_printf(out, ",\"peak_share\":%.4f", at(&r->share, 0.5));
        fl_buf_putc(out, '}');
    }
    fl_buf_puts(out, "]}\n");
}

/* ---- The command ----------------------------------------------------------------------------------- */

static fl_exit begin(bench *b, fl_cli *cli, fletch_error *error) {
    char threads[PROPERTY_SIZE] = "";
    b->model                    = cli->model;
    b->info.size                = sizeof b->info;
    if (fletch_model_info_get(cli->model, &b->info, error) < 0)
        return fl_cli_fail(error, true);
    if (strcmp(b->info.head, "embedding") != 0) {
        fl_cli_message("bench measures models with one vector per text; the head of %s is \"%s\"",
                       b->info.id, b->info.head);
        return FL_EXIT_MODEL;
    }
    if (fl_cli_model_property(cli->model, "cpu.threads", threads, sizeof threads))
        b->threads = (unsigned)strtoul(threads, NULL, 10);
    b->vectors =
        fl_alloc_array((size_t)TEXTS_MAX * fletch_dimensions(b->model), sizeof *b->vectors);
    if (b->vectors == NULL)
        return fl_cli_no_memory();
    for (unsigned i = 0; i < ROWS; i++) {
        if (i == 0 || lengths[i] <= b->info.max_length) {
            uint32_t most                  = b->info.max_length;
            b->rows[b->row_count++].tokens = lengths[i] < most ? lengths[i] : most;
        }
    }
    for (unsigned i = 0; i < b->row_count; i++)
        if (!prepare(b, &b->rows[i], error))
            return fl_cli_fail(error, false);
    return FL_EXIT_DONE;
}

static void finish(bench *b) {
    for (unsigned i = 0; i < b->row_count; i++) {
        for (size_t t = 0; b->rows[i].text != NULL && t < b->rows[i].made; t++)
            fl_free((void *)(uintptr_t)b->rows[i].text[t]);
        fl_free(b->rows[i].text);
    }
    fl_free(b->vectors);
}

fl_exit fl_cmd_bench(fl_cli *cli) {
    static bench b;
    const char  *wanted  = cli->args.value[FL_FLAG_SECONDS];
    double       seconds = SECONDS;
    fl_buf       out     = {0};
    fletch_error error   = {0};
    if (cli->args.rest_count > 0)
        return fl_cli_usage(cli, "bench takes no arguments; --model names the model");
    if (wanted != NULL &&
        !(fl_parse_f64(wanted, &seconds) && seconds >= 0 && seconds <= SECONDS_MAX)) {
        return fl_cli_usage(cli, "--seconds takes a number from 0 to %d, not '%.32s'", SECONDS_MAX,
                            wanted);
    }
    fl_exit code = fl_cli_open_model(cli, false);
    if (code == FL_EXIT_DONE)
        code = begin(&b, cli, &error);
    if (code == FL_EXIT_DONE && !measure(&b, seconds, &error))
        code = fl_cli_fail(&error, false);
    if (code == FL_EXIT_DONE) {
        (fl_cli_is(cli, FL_FLAG_FORMAT, "json") ? put_json : put_text)(&b, &out);
        code = fl_cli_print(&out);
    }
    finish(&b);
    return code;
}
