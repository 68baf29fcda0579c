/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - a progress bar that costs nothing and never lands in a pipe.
 *
 * Role    cmd_embed.c, cmd_tokenize.c and downloads report here after each window or block.
 * Method  The share done is measured in input bytes, since the number of texts is not known before the
 *         end of a stream; time left is what the bytes so far took, scaled. Without a known size only
 *         count and rate are shown. Text is built in one buffer and written with one write, so that it
 *         does not mix with other output. The bar waits half a second: short runs stay silent.
 * Memory  none. Threads: the main thread only.
 * Proof   tests/cli/test_cli_progress.py (a pseudo terminal, a pipe). */
#include "cli/progress.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/os.h"

#define SECOND      UINT64_C(1000000000)
#define BAR_QUIET   (SECOND / 2)
#define BAR_EVERY   (SECOND / 10)
#define LINES_EVERY (2 * SECOND)

enum { TEXT_MAX = 512, BAR_MAX = 30, COLUMNS_DEFAULT = 80 };

static atomic_bool on_screen;

bool fl_progress_on_screen(void) {
    return atomic_load(&on_screen);
}

static void put(const char *text, size_t size) {
    ssize_t written = write(STDERR_FILENO, text, size);
    (void)written; /* progress that cannot be shown is no reason to stop */
}

void fl_progress_clear(void) {
    if (atomic_exchange(&on_screen, false))
        put("\r\033[K", 4);
}

void fl_progress_open(fl_progress *progress, const char *choice, bool quiet,
                      bool results_on_terminal, const char *unit) {
    memset(progress, 0, sizeof *progress);
    progress->unit     = unit;
    progress->start_ns = fl_clock_ns();
    bool terminal      = isatty(STDERR_FILENO) != 0;
    if (choice != NULL && strcmp(choice, "never") == 0)
        return;
    if (choice != NULL && strcmp(choice, "always") == 0) {
        progress->mode  = terminal ? FL_PROGRESS_BAR : FL_PROGRESS_LINES;
        progress->eager = true;
    } else if (terminal && !quiet && !results_on_terminal) {
        progress->mode = FL_PROGRESS_BAR;
    }
}

void fl_progress_restart(fl_progress *progress, uint64_t base) {
    progress->base     = base;
    progress->start_ns = fl_clock_ns();
    progress->shown_ns = 0;
}

static void amount(char out[32], double value, const char *unit) {
    if (strcmp(unit, "B") != 0) {
        snprintf(out, 32, value < 100 ? "%.1f" : "%.0f", value);
        return;
    }
    static const char *const prefix[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t                   step     = 0;
    while (value >= 1024 && step + 1 < sizeof prefix / sizeof prefix[0]) {
        value /= 1024;
        step++;
    }
    snprintf(out, 32, step == 0 ? "%.0f %s" : "%.1f %s", value, prefix[step]);
}

static void duration(char out[32], double seconds) {
    if (seconds >= 360000) {
        snprintf(out, 32, "%.0f h", seconds / 3600);
        return;
    }
    unsigned whole = (unsigned)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(out, 32, "%u:%02u:%02u", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(out, 32, "%u:%02u", whole / 60, whole % 60);
}

/* "data.txt  42% [#####-------] 12345 texts, 1234/s, 0:12 left" without the bar in lines mode. */
static size_t compose(const fl_progress *progress, const char *label, uint64_t count, uint64_t done,
                      uint64_t total, unsigned bar, char out[TEXT_MAX]) {
    double seconds = (double)(fl_clock_ns() - progress->start_ns) / (double)SECOND;
    double rate    = seconds > 0 ? (double)(count - progress->base) / seconds : 0;
    char   counted[32], speed[32], left[32], share[BAR_MAX + 16] = "";
    bool   bytes = strcmp(progress->unit, "B") == 0;
    amount(speed, rate, progress->unit);
    if (bytes)
        amount(counted, (double)count, "B");
    else
        snprintf(counted, sizeof counted, "%llu", (unsigned long long)count);
    double fraction = total > 0 ? (double)done / (double)total : 0;
    if (fraction > 1)
        fraction = 1;
    size_t used = 0;
    if (total > 0) {
        used = (size_t)snprintf(share, sizeof share, "%3.0f%% ", fraction * 100);
        if (bar > 0) {
            unsigned full = (unsigned)(fraction * bar);
            share[used++] = '[';
            for (unsigned i = 0; i < bar; i++)
                share[used++] = i < full ? '#' : '-';
            share[used++] = ']';
            share[used++] = ' ';
            share[used]   = '\0';
        }
    }
    int size = snprintf(out, TEXT_MAX, "%s%s%s%s%s%s, %s/s", label != NULL ? label : "",
                        label != NULL ? " " : "", share, counted, bytes ? "" : " ",
                        bytes ? "" : progress->unit, speed);
    if (size > 0 && size < TEXT_MAX && fraction > 0 && fraction < 1) {
        duration(left, seconds * (1 - fraction) / fraction);
        size += snprintf(out + size, TEXT_MAX - (size_t)size, ", %s left", left);
    }
    return size < 0 ? 0 : size >= TEXT_MAX ? TEXT_MAX - 1 : (size_t)size;
}

static void draw_bar(const fl_progress *progress, const char *label, uint64_t count, uint64_t done,
                     uint64_t total) {
    size_t columns = fl_os_columns(STDERR_FILENO);
    char   text[TEXT_MAX], line[TEXT_MAX + 8];
    columns       = columns > 0 ? columns : COLUMNS_DEFAULT;
    unsigned bar  = columns > 100 ? BAR_MAX : columns > 60 ? 16 : 0;
    size_t   size = compose(progress, label, count, done, total, bar, text);
    size          = size < columns ? size : columns - 1; /* a wrapped bar could not be wiped */
    memcpy(line, "\r\033[K", 4);
    memcpy(line + 4, text, size);
    atomic_store(&on_screen, true);
    put(line, size + 4);
}

static void print_line(const fl_progress *progress, const char *label, uint64_t count,
                       uint64_t done, uint64_t total) {
    char   text[TEXT_MAX + 1];
    size_t size  = compose(progress, label, count, done, total, 0, text);
    text[size++] = '\n';
    put(text, size);
}

void fl_progress_update(fl_progress *progress, const char *label, uint64_t count, uint64_t done,
                        uint64_t total) {
    if (progress->mode == FL_PROGRESS_OFF)
        return;
    uint64_t now = fl_clock_ns();
    if (progress->mode == FL_PROGRESS_BAR) {
        uint64_t silence = progress->eager ? 0 : BAR_QUIET;
        bool     due     = progress->shown_ns == 0 || now - progress->shown_ns >= BAR_EVERY;
        if (due && now - progress->start_ns >= silence) {
            progress->shown_ns = now;
            draw_bar(progress, label, count, done, total);
        }
        return;
    }
    if (progress->shown_ns == 0 || now - progress->shown_ns >= LINES_EVERY) {
        progress->shown_ns = now;
        print_line(progress, label, count, done, total);
    }
}

void fl_progress_close(fl_progress *progress, const char *label, uint64_t count, uint64_t done,
                       uint64_t total) {
    fl_progress_clear();
    if (progress->mode == FL_PROGRESS_LINES)
        print_line(progress, label, count, done, total);
    progress->mode = FL_PROGRESS_OFF;
}
