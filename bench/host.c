/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - how many texts a second the host can hand to a device: everything but the computing.
 *
 *     bench_host FOLDER TEXTS [-s SECONDS] [-n TOKENS] [-c CALL] [-t CALLERS] [-d DEVICES]
 *                [-l SLOTS] [-p PS_PER_TOKEN] [-f FLOOR_US] [-i 1] [KEY=VALUE ...]
 *
 * TEXTS has a text on each line. Each text is cut, or lengthened by the next ones, to TOKENS tokens
 * (0: as it is). CALLERS threads call fletch_embed with CALL texts each (-i 1: fletch_submit with token
 * ids) until the time is over. One JSON object on standard output (bench/host.py makes the table).
 *
 * The engine of this program is called "cuda" and does what the CUDA engine's host side does: it copies
 * ids into a block of the slot and rows out of one. A device of PS_PER_TOKEN picoseconds a token, and
 * FLOOR_US for the smallest batch, takes one batch after the other, however many slots wait for it;
 * without them it answers at once. KEY=VALUE goes to the configuration.
 *
 * What is told
 *   texts_s       rows that callers had, a second
 *   cpu_ns        processor time of the process for each text, the kernel's included
 *   feed_ns       of it, or more where threads wait for a processor: from text to ids in a chunk
 *   locked_ns     how long the most held lock was held, for each text: what does not scale
 *   batch_texts   texts in a batch, on the average
 *   busy          part of the time that the devices computed */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "engines/engine.h"
#include "measure.h"

enum { CALLERS_MAX = 64, SLOTS_MAX = 8, DEVICES_MAX = 16, TEXTS = 8192, CALL_MAX = 1 << 20 };

static struct {
    const char *folder, *texts;
    double      seconds;
    uint32_t    tokens, call, callers, devices, slots, ps_per_token, floor_us, ids;
    const char *keys[8];
} with = {.seconds = 2,
          .call    = 1000,
          .callers = 1,
          .devices = 1,
          .slots   = 2,
          .keys    = {"provider.order=cuda", "provider.devices=all"}};

/* ---- Locks: how long each is held --------------------------------------------------------------- */

/* The linker sends the library's calls here (--wrap). A lock's numbers are its holder's. */
typedef struct held {
    _Atomic(pthread_mutex_t *) lock;
    uint64_t                   since, ns;
} held;

enum { LOCKS = 256 };
static held locks[LOCKS];

static held *held_of(pthread_mutex_t *lock) {
    for (size_t at = (uintptr_t)lock / 16 % LOCKS;; at = (at + 1) % LOCKS) {
        pthread_mutex_t *there = NULL;
        if (atomic_load(&locks[at].lock) == lock ||
            atomic_compare_exchange_strong(&locks[at].lock, &there, lock) || there == lock)
            return &locks[at];
    }
}

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);

static void begin_hold(pthread_mutex_t *lock) {
    held_of(lock)->since = fl_clock_ns();
}

static void end_hold(pthread_mutex_t *lock) {
    held *h = held_of(lock);
    h->ns += fl_clock_ns() - h->since;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock) {
    int status = __real_pthread_mutex_lock(lock);
    begin_hold(lock);
    return status;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock) {
    end_hold(lock);
    return __real_pthread_mutex_unlock(lock);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock) {
    end_hold(lock);
    int status = __real_pthread_cond_wait(cond, lock);
    begin_hold(lock);
    return status;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until) {
    end_hold(lock);
    int status = __real_pthread_cond_timedwait(cond, lock, until);
    begin_hold(lock);
    return status;
}

static uint64_t most_held(void) {
    uint64_t most = 0;
    for (size_t i = 0; i < LOCKS; i++)
        most = locks[i].ns > most ? locks[i].ns : most;
    return most;
}

/* ---- The engine that computes nothing ------------------------------------------------------------- */

struct fl_engine {
    uint32_t device, width;
    int32_t *input[SLOTS_MAX];
    float   *output[SLOTS_MAX];
};

static atomic_uint_fast64_t free_ns[DEVICES_MAX], busy_ns;

static void probe(const fl_engine_options *options, fl_probe *out) {
    (void)options;
    *out = (fl_probe){.usable = true, .reason = "computes nothing"};
}

static uint32_t devices(const fl_engine_options *options) {
    (void)options;
    return with.devices;
}

static void close_engine(fl_engine *e) {
    for (uint32_t s = 0; e && s < SLOTS_MAX; s++) {
        free(e->input[s]);
        free(e->output[s]);
    }
    free(e);
}

static int open_engine(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                       fletch_error *error) {
    fl_engine *e = calloc(1, sizeof *e);
    e->device    = options->device;
    e->width     = fl_encoder_width(encoder);
    (void)error;
    for (uint32_t s = 0; s < with.slots; s++) {
        e->input[s]  = calloc(options->batch_tokens + options->batch_texts + 1, sizeof(int32_t));
        e->output[s] = calloc((size_t)options->batch_texts * e->width, sizeof(float));
        for (size_t i = 0; i < (size_t)options->batch_texts * e->width; i++)
            e->output[s][i] = 0.05f;
    }
    *out = e;
    return FLETCH_OK;
}

static void info(const fl_engine *e, fl_engine_info *out) {
    (void)e;
    *out = (fl_engine_info){.device        = "nothing",
                            .precision     = "fp32",
                            .slots         = with.slots,
                            .any_thread    = true,
                            .deterministic = true};
}

static uint64_t memory(const fl_engine *e, uint32_t texts, uint32_t tokens, uint32_t longest) {
    (void)longest;
    return (uint64_t)texts * e->width * sizeof(float) + tokens;
}

/* Until the device, which takes one batch after the other, is through with this one. */
static void wait_for_device(uint32_t device, uint64_t ns) {
    uint_fast64_t free = atomic_load(&free_ns[device]), end;
    do {
        const uint64_t now = fl_clock_ns();
        end                = (free > now ? free : now) + ns;
    } while (!atomic_compare_exchange_weak(&free_ns[device], &free, end));
    atomic_fetch_add(&busy_ns, ns);
    wait_until(end);
}

static int forward(fl_engine *e, uint32_t slot, const fl_batch *batch, fletch_error *error) {
    (void)error;
    memcpy(e->input[slot], batch->cu, (batch->texts + 1U) * sizeof *batch->cu);
    memcpy(e->input[slot] + batch->texts + 1, batch->ids, batch->tokens * sizeof *batch->ids);
    const uint64_t computes = (uint64_t)batch->tokens * with.ps_per_token / 1000;
    const uint64_t least    = (uint64_t)with.floor_us * 1000;
    if (computes > 0 || least > 0)
        wait_for_device(e->device, computes > least ? computes : least);
    for (uint32_t i = 0; i < batch->texts; i++)
        memcpy(batch->rows[i], e->output[slot] + (size_t)i * e->width, e->width * sizeof(float));
    return FLETCH_OK;
}

static const fl_engine_ops nothing = {.abi     = FL_ENGINE_ABI,
                                      .name    = "cuda",
                                      .probe   = probe,
                                      .devices = devices,
                                      .open    = open_engine,
                                      .forward = forward,
                                      .close   = close_engine,
                                      .info    = info,
                                      .memory  = memory};

const fl_engine_ops *fl_engine_at(size_t index) {
    return index == 0 ? &nothing : NULL;
}

const fl_engine_ops *fl_engine_find(const char *name) {
    return strcmp(name, "cuda") == 0 ? &nothing : NULL;
}

/* ---- Texts ---------------------------------------------------------------------------------------- */

static const char **texts;   /* [texts_made()], all different */
static size_t      *lengths; /* their bytes */
static int64_t     *id_offsets;
static int32_t     *ids;

static size_t texts_made(void) {
    return with.call > TEXTS ? with.call : TEXTS;
}

/* Bytes of `text` that give `tokens` tokens with the special ones; 0: it has fewer. */
static size_t bytes_of(fletch_model *model, const char *text, size_t size, uint32_t tokens) {
    fletch_error   error;
    fletch_tokens *out;
    size_t         bytes = size;
    if (fletch_tokenize(model, text, size, NULL, &out, &error) < 0)
        stop("tokenise", error.message);
    if (tokens > 0 && out->count < tokens)
        bytes = 0;
    else if (tokens > 0)
        bytes = out->offsets[2 * (tokens - 2) + 1];
    fletch_tokens_free(out);
    return bytes;
}

static const char *skip_words(const char *text, const char *end, size_t words) {
    for (; words > 0 && text < end; text++)
        words -= *text == ' ' || *text == '\n';
    return text;
}

/* Texts of the wanted length from the lines of the file; the newlines in between are white space. Equal
 * ones would be computed once, so each time through the file every text begins a word later. */
static void make_texts(fletch_model *model, const fl_buf *file) {
    const char *last = file->data + file->size;
    size_t      at = 0, laps = 0;
    texts   = calloc(texts_made(), sizeof *texts);
    lengths = calloc(texts_made(), sizeof *lengths);
    for (size_t i = 0; i < texts_made(); i++) {
        for (size_t lines = 1; lengths[i] == 0; lines++) {
            const char *end = file->data + at;
            for (size_t l = 0; l < lines && end; l++)
                end = memchr(end, '\n', (size_t)(last - end)), end += end != NULL;
            if (!end) {
                at = 0;
                laps++;
                continue;
            }
            texts[i] = skip_words(file->data + at, end - 1, laps);
            if (texts[i] < end - 1)
                lengths[i] = bytes_of(model, texts[i], (size_t)(end - 1 - texts[i]), with.tokens);
        }
        const char *next = memchr(texts[i] + lengths[i], '\n', 1 << 20);
        at               = next && next + 1 < last ? (size_t)(next + 1 - file->data) : 0;
        laps += at == 0;
    }
}

static void make_ids(fletch_model *model) {
    fletch_error error;
    id_offsets = calloc(texts_made() + 1, sizeof *id_offsets);
    for (size_t i = 0; i < texts_made(); i++) {
        fletch_tokens          *out;
        fletch_tokenize_options options = FLETCH_TOKENIZE_OPTIONS_INIT;
        options.max_length              = 256;
        if (fletch_tokenize(model, texts[i], lengths[i], &options, &out, &error) < 0)
            stop("tokenise", error.message);
        ids = realloc(ids, (size_t)(id_offsets[i] + (int64_t)out->count) * sizeof *ids);
        memcpy(ids + id_offsets[i], out->ids, out->count * sizeof *ids);
        id_offsets[i + 1] = id_offsets[i] + (int64_t)out->count;
        fletch_tokens_free(out);
    }
}

/* ---- Callers -------------------------------------------------------------------------------------- */

typedef struct caller {
    pthread_t       thread;
    fletch_model   *model;
    atomic_bool    *over;
    float          *rows;
    size_t          first;
    uint64_t        done;
    pthread_mutex_t lock;
    pthread_cond_t  answered;
    bool            answer;
} caller;

static void on_done(void *user, const fletch_outcome *outcome) {
    caller *c = user;
    if (outcome->error.code < 0)
        stop("submit", outcome->error.message);
    pthread_mutex_lock(&c->lock);
    c->answer = true;
    pthread_cond_signal(&c->answered);
    pthread_mutex_unlock(&c->lock);
}

static void call_ids(caller *c, fletch_matrix *out) {
    fletch_error   error;
    fletch_request request  = FLETCH_REQUEST_INIT;
    request.texts.offsets64 = id_offsets + c->first;
    request.texts.count     = with.call;
    request.ids             = ids;
    request.out             = *out;
    c->answer               = false;
    if (fletch_submit(c->model, &request, on_done, c, NULL, &error) < 0)
        stop("submit", error.message);
    pthread_mutex_lock(&c->lock);
    while (!c->answer)
        pthread_cond_wait(&c->answered, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void call_texts(caller *c, fletch_matrix *out) {
    fletch_error error;
    fletch_texts in = {
        .pointers = texts + c->first, .lengths = lengths + c->first, .count = with.call};
    if (fletch_embed(c->model, &in, NULL, out, &error) < 0)
        stop("embed", error.message);
}

static void *caller_main(void *arg) {
    caller       *c   = arg;
    size_t        dim = fletch_dimensions(c->model);
    fletch_matrix out = fletch_matrix_f32(c->rows, with.call, dim);
    while (!atomic_load_explicit(c->over, memory_order_relaxed)) {
        (with.ids ? call_ids : call_texts)(c, &out);
        c->done += with.call;
        if (with.call < TEXTS)
            c->first = (c->first + with.call) % (TEXTS - with.call);
    }
    return NULL;
}

static double feed_ns(const fletch_stats *before, const fletch_stats *after) {
    const uint64_t texts_done = after->tokenize.count - before->tokenize.count;
    return (double)(after->tokenize.sum_ns - before->tokenize.sum_ns) / (double)texts_done;
}

static uint64_t all_done(const caller *c) {
    uint64_t done = 0;
    for (uint32_t i = 0; i < with.callers; i++)
        done += c[i].done;
    return done;
}

static void run(fletch_model *model) {
    static caller c[CALLERS_MAX];
    atomic_bool   over   = false;
    size_t        bytes  = (size_t)with.call * fletch_dimensions(model) * sizeof(float);
    fletch_stats  before = {.size = sizeof before}, after = {.size = sizeof after};
    for (uint32_t i = 0; i < with.callers; i++) {
        c[i] = (caller){.model = model, .over = &over, .rows = malloc(bytes)};
        memset(c[i].rows, 0, bytes);
        c[i].first = with.call < TEXTS ? i * 977 % (TEXTS - with.call) : 0;
        pthread_mutex_init(&c[i].lock, NULL);
        pthread_cond_init(&c[i].answered, NULL);
    }
    fletch_stats_get(model, &before, NULL);
    const uint64_t locked = most_held(), busy = atomic_load(&busy_ns);
    const uint64_t start = fl_clock_ns(), cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    for (uint32_t i = 0; i < with.callers; i++)
        pthread_create(&c[i].thread, NULL, caller_main, &c[i]);
    nap(with.seconds);
    atomic_store(&over, true);
    for (uint32_t i = 0; i < with.callers; i++)
        pthread_join(c[i].thread, NULL);
    const double took = (double)(fl_clock_ns() - start), done = (double)all_done(c);
    const double used = (double)(read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    fletch_stats_get(model, &after, NULL);
    printf(
        "{\"tokens\":%u,\"call\":%u,\"callers\":%u,\"devices\":%u,\"slots\":%u,\"ps_per_token\":%u,"
        "\"ids\":%u,\"texts_s\":%.0f,\"cpu_ns\":%.0f,\"feed_ns\":%.0f,\"locked_ns\":%.0f,"
        "\"batch_texts\":%.1f,\"mean_tokens\":%.1f,\"busy\":%.3f}\n",
        with.tokens, with.call, with.callers, with.devices, with.slots, with.ps_per_token, with.ids,
        done * 1e9 / took, used / done, feed_ns(&before, &after),
        (double)(most_held() - locked) / done,
        (double)(after.counter[FLETCH_COUNT_TEXTS] - before.counter[FLETCH_COUNT_TEXTS]) /
            (double)(after.counter[FLETCH_COUNT_BATCHES] - before.counter[FLETCH_COUNT_BATCHES]),
        (double)(after.counter[FLETCH_COUNT_TOKENS] - before.counter[FLETCH_COUNT_TOKENS]) /
            (double)(after.counter[FLETCH_COUNT_TEXTS] - before.counter[FLETCH_COUNT_TEXTS]),
        (double)(atomic_load(&busy_ns) - busy) / took / with.devices);
    for (uint32_t i = 0; i < with.callers; i++)
        free(c[i].rows);
}

static fletch_model *open_model(void) {
    fletch_error   error;
    fletch_model  *model;
    fletch_config *config = fletch_config_new();
    for (size_t i = 0; i < sizeof with.keys / sizeof *with.keys && with.keys[i]; i++)
        if (set_key(config, with.keys[i], &error) < 0)
            stop(with.keys[i], error.message);
    if (fletch_open(&model, with.folder, config, &error) < 0)
        stop(with.folder, error.message);
    fletch_config_free(config);
    return model;
}

static void read_options(int argc, char **argv) {
    size_t keys = 2;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strchr(argv[i], '=') && keys < sizeof with.keys / sizeof *with.keys) {
            with.keys[keys++] = argv[i];
            continue;
        }
        if (argv[i][0] != '-') {
            *(with.folder ? &with.texts : &with.folder) = argv[i];
            continue;
        }
        uint32_t number = (uint32_t)strtoul(value, NULL, 10);
        switch (argv[i][1]) {
        case 's': with.seconds = atof(value); break;
        case 'n': with.tokens = number; break;
        case 'c': with.call = number; break;
        case 't': with.callers = number; break;
        case 'd': with.devices = number; break;
        case 'l': with.slots = number; break;
        case 'p': with.ps_per_token = number; break;
        case 'f': with.floor_us = number; break;
        case 'i': with.ids = number; break;
        default: stop("usage", "see the head of bench/host.c");
        }
        i++;
    }
    if (!with.texts || with.call < 1 || with.call > CALL_MAX || with.callers < 1 ||
        with.callers > CALLERS_MAX || with.devices < 1 || with.devices > DEVICES_MAX ||
        with.slots < 1 || with.slots > SLOTS_MAX)
        stop("usage", "see the head of bench/host.c");
}

int main(int argc, char **argv) {
    fl_buf       file = {0};
    fletch_error error;
    read_options(argc, argv);
    if (fl_file_read(with.texts, (size_t)256 << 20, &file, &error) < 0)
        stop(with.texts, error.message);
    fletch_model *model = open_model();
    make_texts(model, &file);
    if (with.ids)
        make_ids(model);
    run(model);
    fletch_close(model);
    fl_buf_free(&file);
    return 0;
}
