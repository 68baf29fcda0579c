/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - how far a long run is, its rate and the time left, on standard error. */
#ifndef FL_CLI_PROGRESS_H
#define FL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fl_progress_mode {
    FL_PROGRESS_OFF,
    FL_PROGRESS_BAR,  /* one line that redraws itself; only for a terminal */
    FL_PROGRESS_LINES /* a line now and then, for logs */
} fl_progress_mode;

typedef struct fl_progress {
    fl_progress_mode mode;
    bool             eager;    /* asked for: no half second of silence first */
    const char      *unit;     /* "texts", or "B" for bytes with binary prefixes */
    uint64_t         start_ns; /* when the work began */
    uint64_t         shown_ns; /* when it was last drawn; 0 for never */
    uint64_t         base;     /* count at the start, so that a resumed download has a true rate */
} fl_progress;

/* `choice` is auto, always, never or NULL (auto). Auto draws a bar when standard error is a terminal
 * and `quiet` and `results_on_terminal` are false, and only for runs of more than half a second; always
 * draws at once, and prints lines where there is no terminal. */
void fl_progress_open(fl_progress *progress, const char *choice, bool quiet,
                      bool results_on_terminal, const char *unit);

/* `count` units are done; `done` of `total` says how much of the whole that is (0, 0: unknown).
 * `label` stands in front, may be NULL. Draws at most ten times a second (lines: once in two). */
void fl_progress_update(fl_progress *progress, const char *label, uint64_t count, uint64_t done,
                        uint64_t total);

/* Begin again for another piece of work, with `base` units that are there already. */
void fl_progress_restart(fl_progress *progress, uint64_t base);

/* Remove the bar, or print the last line. */
void fl_progress_close(fl_progress *progress, const char *label, uint64_t count, uint64_t done,
                       uint64_t total);

bool fl_progress_on_screen(void); /* safe in a signal handler */
void fl_progress_clear(void);     /* wipe the bar before other text is printed */

#endif
