/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_optimization.c - the fastest device there is, tuned, measured, and what to do when it fails.
 *
 *     ./gpu_optimization all-MiniLM-L6-v2 [TRACE.json]
 *
 * Runs anywhere: with a graphics card on the card, without one on the processor. It shows the four
 * things that a program does that cares for speed: start from a preset and say what differs, warm up
 * before the first request, keep many requests in flight instead of one, and read the statistics to
 * see what the settings did. */
#include <fletch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS = 64, TEXTS = 8 }; /* 64 requests of 8 texts, all in flight at once */

/* ---- 1. Configuration ------------------------------------------------------------------------ */

/* Warnings of the library; level 0 is an error, 1 a warning, 2 a note. */
static void print_log(void *user, int level, const char *message) {
    (void)user;
    if (level <= 2)
        fprintf(stderr, "gpu_optimization: %s\n", message);
}

static fletch_config *configure(const char *trace, fletch_error *error) {
    fletch_config *config = fletch_config_new();
    if (!config)
        return NULL;
    fletch_config_set_log(config, print_log, NULL);
    /* The preset is a list of ordinary options: `fletch config --preset gpu` prints it. Its chain of
     * providers is cuda, then cpu: a card that cannot be used is noted, and work goes on. */
    int status = fletch_config_preset(config, "gpu", error);
    /* What this program wants otherwise. A set value wins over the preset in any order of calls. */
    if (status == 0)
        status = fletch_config_set(config, "batch.max_wait_ms", "5", error);
    if (status == 0)
        status = fletch_config_set(config, "memory.limit", "8GiB", error);
    if (status == 0) /* of each card; batches are made smaller rather than more taken */
        status = fletch_config_set(config, "cuda.memory_limit", "4GiB", error);
    if (status == 0 && trace)
        status = fletch_config_set(config, "profile.file", trace, error);
    /* Environment last or first makes no difference: FLETCH_PROVIDER_ORDER=cpu ranks below a set
     * value and above the preset, so a user can still choose the device. */
    if (status == 0)
        status = fletch_config_load_env(config, error);
    if (status < 0) {
        fletch_config_free(config);
        return NULL;
    }
    return config;
}

/* ---- 2. Many requests in flight -------------------------------------------------------------- */

typedef struct job {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    unsigned        open, failed;
    fletch_error    first; /* of the first that failed */
} job;

/* Called once per request, from a thread of the library: take note and return. */
static void on_done(void *user, const fletch_outcome *outcome) {
    job *j = user;
    pthread_mutex_lock(&j->lock);
    if (outcome->error.code < 0 && j->failed++ == 0)
        j->first = outcome->error;
    if (--j->open == 0)
        pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static int embed_all(fletch_model *model, float *vectors, fletch_error *error) {
    static const char *const text[TEXTS] = {
        "Where is my parcel?",      "The invoice is wrong.", "How do I reset my password?",
        "Cancel my order, please.", "Is this in stock?",     "The screen stays black.",
        "Do you ship to Norway?",   "I want my money back."};
    const size_t dimensions = fletch_dimensions(model);
    job          j          = {.open = 0};
    int          status     = 0;
    pthread_mutex_init(&j.lock, NULL);
    pthread_cond_init(&j.changed, NULL);
    for (size_t r = 0; r < REQUESTS && status == 0; r++) {
        fletch_request request = FLETCH_REQUEST_INIT;
        request.texts          = fletch_texts_from_strings(text, TEXTS);
        request.out  = fletch_matrix_f32(vectors + r * TEXTS * dimensions, TEXTS, dimensions);
        request.lane = FLETCH_LANE_BULK; /* people who wait go first: FLETCH_LANE_INTERACTIVE */
        pthread_mutex_lock(&j.lock);
        j.open++; /* before the submit: done may be called before it returns */
        pthread_mutex_unlock(&j.lock);
        status = fletch_submit(model, &request, on_done, &j, NULL, error);
        if (status < 0) { /* not taken, so done is not called for it; FLETCH_EBUSY: try later */
            pthread_mutex_lock(&j.lock);
            j.open--;
            pthread_mutex_unlock(&j.lock);
        }
    }
    pthread_mutex_lock(&j.lock);
    while (j.open > 0)
        pthread_cond_wait(&j.changed, &j.lock);
    pthread_mutex_unlock(&j.lock);
    if (status == 0 && j.failed > 0) {
        *error = j.first;
        status = j.first.code;
    }
    pthread_cond_destroy(&j.changed);
    pthread_mutex_destroy(&j.lock);
    return status;
}

/* ---- 3. Statistics --------------------------------------------------------------------------- */

static double share(uint64_t part, uint64_t rest) {
    return part + rest > 0 ? 100.0 * (double)part / (double)(part + rest) : 0.0;
}

static void print_statistics(fletch_model *model) {
    fletch_stats s = {.size = sizeof s};
    fletch_error error;
    if (fletch_stats_get(model, &s, &error) < 0)
        return;
    printf("ran on      %s, %s, %s\n", s.provider, s.precision, s.device);
    printf("texts       %llu in %llu batches\n", (unsigned long long)s.counter[FLETCH_COUNT_TEXTS],
           (unsigned long long)
               s.counter[FLETCH_COUNT_BATCHES]); /* few large batches: the card is kept busy */
    printf("forward     p50 %.2f ms, p99 %.2f ms\n", (double)s.forward.p50_ns / 1e6,
           (double)s.forward.p99_ns / 1e6);
    printf("zero copy   %.0f %% of the rows\n", share(s.counter[FLETCH_COUNT_ZERO_COPY_OUTPUTS],
                                                      s.counter[FLETCH_COUNT_STAGED_OUTPUTS]));
    /* Buffers that were kept: near 100 % once warm, or pool.max_buffers is too small. */
    printf("pool hits   %.0f %%, reused %.0f %%\n",
           share(s.counter[FLETCH_COUNT_POOL_HITS],
                 s.counter[FLETCH_COUNT_POOL_REQUESTS] - s.counter[FLETCH_COUNT_POOL_HITS]),
           share(s.counter[FLETCH_COUNT_POOL_REQUESTS] - s.counter[FLETCH_COUNT_POOL_ALLOCATIONS],
                 s.counter[FLETCH_COUNT_POOL_ALLOCATIONS]));
    printf("fallbacks   %llu\n", (unsigned long long)s.counter[FLETCH_COUNT_PROVIDER_FALLBACKS]);
}

/* ---- 4. All of it, with every failure said --------------------------------------------------- */

int main(int argc, char **argv) {
    fletch_error  error = {0};
    fletch_model *model = NULL;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: gpu_optimization MODEL [TRACE.json]\n");
        return 2;
    }
    fletch_config *config = configure(argc == 3 ? argv[2] : NULL, &error);
    if (!config) {
        fprintf(stderr, "gpu_optimization: %s\n", error.code ? error.message : "out of memory");
        return 2;
    }
    int status = fletch_open(&model, argv[1], config, &error);
    fletch_config_free(config); /* the model has a copy */

    float *vectors = NULL;
    if (status == 0)
        status = fletch_warm(model, &error); /* graphs are captured now, not in the first request */
    if (status == 0) {
        vectors = calloc(REQUESTS * TEXTS * fletch_dimensions(model), sizeof *vectors);
        status  = vectors ? embed_all(model, vectors, &error) : FLETCH_ENOMEM;
    }
    if (status == 0)
        print_statistics(model);
    else /* the message says what, where and how to mend it */
        fprintf(stderr, "gpu_optimization: %s\n",
                error.code ? error.message : fletch_status_text(status));
    fletch_close(model); /* writes the trace */
    free(vectors);
    return status < 0;
}
