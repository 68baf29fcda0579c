/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - one model, several threads: how a server or an ingest job uses the library.
 *
 *     ./threads all-MiniLM-L6-v2 4
 *
 * A fletch_model may be used from any number of threads at once; each brings its own texts and its
 * own memory for the vectors. The program also shows the promise that makes caching safe: the same
 * text gives the same bytes, whichever thread asks and whatever else is in the call. */
#include <fletch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64, ROUNDS = 8 };

typedef struct worker {
    pthread_t     thread;
    fletch_model *model; /* shared */
    unsigned      number;
    float        *vector; /* [dimensions], the vector of the common text */
    int           status;
    fletch_error  error;
} worker;

/* Embed the common text together with one of the worker's own, several times over. */
static void *work(void *argument) {
    worker *self       = argument;
    size_t  dimensions = fletch_dimensions(self->model);
    float  *vectors    = calloc(2 * dimensions, sizeof *vectors);
    if (!vectors) {
        self->status = FLETCH_ENOMEM;
        return NULL;
    }
    for (unsigned round = 0; round < ROUNDS && self->status == 0; round++) {
        char own[96];
        snprintf(own, sizeof own, "Note %u of worker %u.", round, self->number);
        const char *const text[2] = {"The quick brown fox jumps over the lazy dog.", own};
        fletch_texts      texts   = fletch_texts_from_strings(text, 2);
        fletch_matrix     matrix  = fletch_matrix_f32(vectors, 2, dimensions);
        self->status              = fletch_embed(self->model, &texts, NULL, &matrix, &self->error);
    }
    memcpy(self->vector, vectors, dimensions * sizeof *vectors);
    free(vectors);
    return NULL;
}

/* Start the workers, wait for them; the number of those that failed. */
static unsigned run(worker *workers, unsigned count) {
    unsigned started = 0, failed = 0;
    while (started < count &&
           pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0)
        started++;
    for (unsigned i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].status < 0) {
            fprintf(stderr, "worker %u: %s\n", i, workers[i].error.message);
            failed++;
        }
    }
    return failed + (count - started);
}

int main(int argc, char **argv) {
    unsigned count = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    if (count < 1 || count > THREADS_MAX) {
        fprintf(stderr, "usage: threads MODEL COUNT (1 to %d)\n", THREADS_MAX);
        return 2;
    }
    fletch_error  error;
    fletch_model *model;
    if (fletch_open(&model, argv[1], NULL, &error) < 0) {
        fprintf(stderr, "threads: %s\n", error.message);
        return 1;
    }

    size_t   dimensions = fletch_dimensions(model);
    worker   workers[THREADS_MAX];
    float   *vectors = calloc(count * dimensions, sizeof *vectors);
    unsigned differ = 0, failed = count;
    memset(workers, 0, sizeof workers);
    for (unsigned i = 0; vectors && i < count; i++) {
        workers[i].model  = model;
        workers[i].number = i;
        workers[i].vector = vectors + i * dimensions;
    }
    if (vectors)
        failed = run(workers, count);
    for (unsigned i = 1; failed == 0 && i < count; i++)
        differ += memcmp(vectors, workers[i].vector, dimensions * sizeof *vectors) != 0;
    if (failed == 0)
        printf("%u threads, %u texts, %u vectors of the common text differ\n", count,
               2 * ROUNDS * count, differ);

    free(vectors);
    fletch_close(model);
    return failed || differ;
}
