/* SPDX-License-Identifier: Apache-2.0 */
/* measured.h - shapes of batches, and the memory of this process, for tests that hold a prediction against
 * what was taken (test_prediction.c, test_onnx_memory.c). */
#ifndef FL_TESTS_MEASURED_H
#define FL_TESTS_MEASURED_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_toy.h"

typedef enum lengths { EQUAL, MIXED } lengths;

typedef struct shape {
    uint32_t texts, longest;
    lengths  lengths;
} shape;

static inline int64_t anonymous_bytes(void) {
    FILE   *file = fopen("/proc/self/smaps_rollup", "r");
    char    line[256];
    int64_t kib = -1;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Anonymous: %ld", &kib);
    if (file)
        fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

static inline fl_batch make_batch(const toy *t, const shape *s) {
    uint64_t  seed = s->texts * 977 + s->longest;
    uint32_t *cu   = calloc(s->texts + 1, sizeof *cu);
    size_t    most = (size_t)s->texts * s->longest;
    int32_t  *ids  = calloc(most, sizeof *ids);
    float   **rows = calloc(s->texts, sizeof *rows);
    for (uint32_t i = 0; i < s->texts; i++) {
        bool     full = i == 0 || s->lengths == EQUAL;
        uint32_t n    = full ? s->longest : 1 + toy_draw(&seed, s->longest);
        cu[i + 1]     = cu[i] + n;
        rows[i]       = malloc(t->encoder.desc.hidden * sizeof(float));
        memset(rows[i], 1, t->encoder.desc.hidden * sizeof(float));
    }
    for (size_t i = 0; i < most; i++)
        ids[i] = (int32_t)toy_draw(&seed, t->encoder.desc.vocab);
    return (fl_batch){
        .ids = ids, .cu = cu, .texts = s->texts, .tokens = cu[s->texts], .rows = rows};
}

/* `measure` in a process of its own, whose result comes back. False: it ended without one, by *status. */
static inline bool run_apart(void (*measure)(const void *job, void *result), const void *job,
                             void *result, size_t size, int *status) {
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(600);
        measure(job, result);
        _exit(write(pipes[1], result, size) == (ssize_t)size ? 0 : 1);
    }
    close(pipes[1]);
    bool came = read(pipes[0], result, size) == (ssize_t)size;
    close(pipes[0]);
    waitpid(child, status, 0);
    return came;
}

#endif
