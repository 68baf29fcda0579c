/* SPDX-License-Identifier: Apache-2.0 */
/* soak.c - a long mixed load under a small ceiling: nobody is killed, nothing is lost, nothing grows.
 *
 *     fletch-soak MODEL [--texts N] [--limit MIB] [--longest TOKENS] [--clients N] [--corpus FILE ...]
 *
 * Role    `make soak` (200,000 texts) and, shorter, `make check`. Uses fletch.h alone, as a program would.
 * Method  The parent makes a memory control group of --limit and a child in it; where no group can be
 *         made, the child bounds its address space (RLIMIT_AS) and says so. The child opens the model
 *         with memory.limit, and its client threads mix blocking calls of 1 to 300 texts with
 *         requests of both lanes that overlap. Texts are runs of real sentences, 1 to --longest tokens,
 *         short ones more often (log-uniform).
 * Checks  Every text's row is written, finite and of unit length; every request is answered once; some
 *         texts are probes whose vectors are known from the beginning, bit by bit. The resident set is
 *         sampled: after the first tenth of the texts a line fitted through it may rise by no more than
 *         2 %, or by what threads begin to use late, and it never passes the limit. The parent sees how
 *         the child ended.
 * Output  One line per tenth, then the verdict; exit status 0 only when all of it held.
 * Memory  Everything of its own is allocated, and written to, before the first text.
 * Threads Clients, and one that samples. Random choices come from --seed; their interleaving does not. */
#include <errno.h>
#include <fletch.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine.h"
#include "corpus.h"

enum {
    CLIENTS_MAX   = 16,
    CALL_TEXTS    = 300, /* most of a blocking call */
    REQUEST_TEXTS = 40,  /* most of a request */
    IN_FLIGHT     = 6,   /* requests of one client */
    PROBES        = 48,
    SAMPLES_MAX   = 50000
};

typedef struct plan {
    const char *model;
    const char *files[16];
    unsigned    file_count, clients;
    bool        no_group; /* --box address: RLIMIT_AS even where a group could be made */
    long        texts, limit_mib, longest;
    uint64_t    seed;
} plan;

typedef struct probe {
    corpus_text text;
    float      *vector;
} probe;

typedef struct soak {
    const plan   *plan;
    corpus        corpus;
    fletch_model *model;
    size_t        dimensions;
    probe         probes[PROBES];
    atomic_long   handed, done, requests, busy; /* texts taken by clients, texts verified */
    atomic_int    faults;
} soak;

static void fault(soak *s, const char *what, const char *detail) {
    if (atomic_fetch_add(&s->faults, 1) < 10)
        fprintf(stderr, "soak: %s: %s\n", what, detail);
}

/* ---- Texts and their check -------------------------------------------------------------------- */

/* The texts of one call and the room for their rows. */
typedef struct batch {
    size_t       count;
    const char **pointers; /* [capacity] */
    size_t      *lengths;
    int         *probe; /* index, or -1 */
    float       *rows;  /* [capacity, dimensions] */
} batch;

static bool batch_make(batch *b, size_t capacity, size_t dimensions) {
    b->pointers = calloc(capacity, sizeof *b->pointers);
    b->lengths  = calloc(capacity, sizeof *b->lengths);
    b->probe    = calloc(capacity, sizeof *b->probe);
    b->rows     = calloc(capacity * dimensions, sizeof *b->rows);
    if (b->rows) {
        memset(b->rows, 1,
               capacity * dimensions * sizeof *b->rows); /* its pages count from now on */
    }
    return b->pointers && b->lengths && b->probe && b->rows;
}

static void batch_free(batch *b) {
    free((void *)b->pointers);
    free(b->lengths);
    free(b->probe);
    free(b->rows);
}

static void batch_fill(soak *s, batch *b, size_t count, uint64_t *seed) {
    b->count = count;
    for (size_t i = 0; i < count; i++) {
        bool        known = draw(seed) % 16 == 0;
        int         which = known ? (int)(draw(seed) % PROBES) : -1;
        corpus_text text =
            known ? s->probes[which].text : corpus_draw(&s->corpus, (size_t)s->plan->longest, seed);
        b->pointers[i] = text.text;
        b->lengths[i]  = text.size;
        b->probe[i]    = which;
    }
    for (size_t i = 0; i < count * s->dimensions; i++)
        b->rows[i] = NAN; /* so that a row that nobody wrote is seen */
}

static fletch_texts batch_texts(const batch *b) {
    fletch_texts texts = fletch_texts_from_strings(b->pointers, b->count);
    texts.lengths      = b->lengths;
    return texts;
}

/* Unit length whatever the folder says, so that a row that nobody wrote is told from one that is. */
static fletch_embed_options unit_length(void) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    options.normalize            = 1;
    return options;
}

static void batch_check(soak *s, const batch *b) {
    for (size_t i = 0; i < b->count; i++) {
        const float *row  = b->rows + i * s->dimensions;
        double       norm = 0.0;
        for (size_t k = 0; k < s->dimensions; k++)
            norm += (double)row[k] * (double)row[k];
        if (!(fabs(norm - 1.0) < 1e-4)) /* NaN too */
            fault(s, "a text was lost", "its row is not a unit vector");
        else if (b->probe[i] >= 0 &&
                 memcmp(row, s->probes[b->probe[i]].vector, s->dimensions * sizeof *row) != 0)
            fault(s, "a text got another vector", "a probe's bytes differ from its first run");
    }
    atomic_fetch_add(&s->done, (long)b->count);
}

/* How many of the texts still to hand out this call takes; 0: none is left. */
static size_t hand_out(soak *s, size_t most, uint64_t *seed) {
    double wish  = exp(uniform(seed) * log((double)most + 1.0));
    long   want  = wish < (double)most ? (long)wish : (long)most;
    long   first = atomic_fetch_add(&s->handed, want), left = s->plan->texts - first;
    return left <= 0 ? 0 : (size_t)(left < want ? left : want);
}

/* ---- Clients ---------------------------------------------------------------------------------- */

typedef struct request_slot {
    struct client *client;
    batch          batch;
    bool           busy; /* guarded by the client's lock */
    int            answers;
    int            code;
} request_slot;

typedef struct client {
    soak           *soak;
    uint64_t        seed;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  answered;
    request_slot    slots[IN_FLIGHT];
    batch           call;
} client;

static void on_done(void *user, const fletch_outcome *outcome) {
    request_slot *slot = user;
    if (outcome->error.code != FLETCH_OK)
        fault(slot->client->soak, "a request failed", outcome->error.message);
    pthread_mutex_lock(&slot->client->lock);
    slot->code = outcome->error.code;
    slot->answers++;
    slot->busy = false;
    pthread_cond_broadcast(&slot->client->answered);
    pthread_mutex_unlock(&slot->client->lock);
}

/* Verify what a slot brought, once it came back. */
static void slot_harvest(client *c, request_slot *slot) {
    if (slot->batch.count == 0)
        return;
    if (slot->answers != 1)
        fault(c->soak, "a request was not answered once", "done was called more than once");
    else if (slot->code == FLETCH_OK)
        batch_check(c->soak, &slot->batch);
    slot->batch.count = 0;
}

/* A slot that is free; waits for one. */
static request_slot *slot_wait(client *c) {
    request_slot *found = NULL;
    pthread_mutex_lock(&c->lock);
    while (found == NULL) {
        for (int i = 0; i < IN_FLIGHT && found == NULL; i++)
            found = c->slots[i].busy ? NULL : &c->slots[i];
        if (found == NULL)
            pthread_cond_wait(&c->answered, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    slot_harvest(c, found);
    return found;
}

static void client_submit(client *c, size_t count) {
    soak                *s       = c->soak;
    request_slot        *slot    = slot_wait(c);
    fletch_request       r       = FLETCH_REQUEST_INIT;
    fletch_embed_options options = unit_length();
    fletch_error         error;
    batch_fill(s, &slot->batch, count, &c->seed);
    r.texts       = batch_texts(&slot->batch);
    r.options     = &options;
    r.out         = fletch_matrix_f32(slot->batch.rows, count, s->dimensions);
    r.lane        = draw(&c->seed) % 2 ? FLETCH_LANE_BULK : FLETCH_LANE_INTERACTIVE;
    slot->busy    = true;
    slot->answers = 0;
    int status    = fletch_submit(s->model, &r, on_done, slot, NULL, &error);
    while (status == FLETCH_EBUSY) { /* as it says: try later */
        atomic_fetch_add(&s->busy, 1);
        usleep(2000);
        status = fletch_submit(s->model, &r, on_done, slot, NULL, &error);
    }
    atomic_fetch_add(&s->requests, 1);
    if (status < 0) {
        fault(s, "fletch_submit", error.message);
        slot->busy        = false;
        slot->batch.count = 0;
    }
}

static void client_call(client *c, size_t count) {
    soak        *s = c->soak;
    fletch_error error;
    batch_fill(s, &c->call, count, &c->seed);
    fletch_embed_options options = unit_length();
    fletch_texts         texts   = batch_texts(&c->call);
    fletch_matrix        out     = fletch_matrix_f32(c->call.rows, count, s->dimensions);
    if (fletch_embed(s->model, &texts, &options, &out, &error) < 0) {
        fault(s, "fletch_embed", error.message);
        return;
    }
    batch_check(s, &c->call);
}

static void *client_run(void *arg) {
    client *c = arg;
    for (;;) {
        bool   call  = draw(&c->seed) % 4 == 0;
        size_t count = hand_out(c->soak, call ? CALL_TEXTS : REQUEST_TEXTS, &c->seed);
        if (count == 0)
            break;
        if (call)
            client_call(c, count);
        else
            client_submit(c, count);
    }
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < IN_FLIGHT; i++)
        while (c->slots[i].busy)
            pthread_cond_wait(&c->answered, &c->lock);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < IN_FLIGHT; i++)
        slot_harvest(c, &c->slots[i]);
    return NULL;
}

static bool client_make(client *c, soak *s, unsigned index) {
    memset(c, 0, sizeof *c);
    c->soak = s;
    c->seed = s->plan->seed * 1000003 + index;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->answered, NULL);
    bool made = batch_make(&c->call, CALL_TEXTS, s->dimensions);
    for (int i = 0; i < IN_FLIGHT; i++) {
        c->slots[i].client = c;
        made               = batch_make(&c->slots[i].batch, REQUEST_TEXTS, s->dimensions) && made;
    }
    return made;
}

static void client_free(client *c) {
    batch_free(&c->call);
    for (int i = 0; i < IN_FLIGHT; i++)
        batch_free(&c->slots[i].batch);
}

/* ---- The resident set -------------------------------------------------------------------------- */

typedef struct sample {
    long   done;
    double resident, files; /* bytes; files: pages of mapped files among them */
} sample;

typedef struct track {
    sample *at; /* [SAMPLES_MAX] */
    size_t  count;
} track;

static sample sample_now(long done) {
    FILE  *file = fopen("/proc/self/statm", "r");
    long   size = 0, resident = 0, shared = 0;
    double page = (double)sysconf(_SC_PAGESIZE);
    if (file) {
        if (fscanf(file, "%ld %ld %ld", &size, &resident, &shared) != 3)
            resident = shared = 0;
        fclose(file);
    }
    return (sample){done, (double)resident * page, (double)shared * page};
}

static void watch(soak *s, track *t) {
    long texts = s->plan->texts, tenth = 1;
    while (atomic_load(&s->done) < texts && atomic_load(&s->faults) == 0) {
        usleep(20000);
        sample now = sample_now(atomic_load(&s->done));
        if (t->count < SAMPLES_MAX)
            t->at[t->count++] = now;
        for (; now.done >= texts / 10 * tenth && tenth <= 10; tenth++) {
            printf("%3ld %%: %ld texts, %.1f MiB resident, %.1f of them of files\n", tenth * 10,
                   now.done, now.resident / 1048576.0, now.files / 1048576.0);
            fflush(stdout);
        }
        if (atomic_load(&s->handed) >= texts + CLIENTS_MAX * CALL_TEXTS * 4)
            break; /* cannot be: clients stop when nothing is left */
    }
}

/* Rise of the line fitted through the samples after the first tenth, over those nine tenths. */
static double rise(const track *t, long texts, double *most) {
    double n = 0.0, sx = 0.0, sy = 0.0, sxx = 0.0, sxy = 0.0;
    *most = 0.0;
    for (size_t i = 0; i < t->count; i++) {
        double x = (double)t->at[i].done / (double)texts, y = t->at[i].resident;
        *most = y > *most ? y : *most;
        if (x >= 0.1)
            n += 1.0, sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    double spread = n * sxx - sx * sx;
    return n < 8.0 || spread <= 0.0 ? 0.0 : (n * sxy - sx * sy) / spread * 0.9;
}

/* ---- One run ----------------------------------------------------------------------------------- */

static int open_model(soak *s) {
    fletch_error   error;
    fletch_config *config = fletch_config_new();
    char           limit[32], length[32];
    (void)snprintf(limit, sizeof limit, "%ldMiB", s->plan->limit_mib);
    (void)snprintf(length, sizeof length, "%ld", s->plan->longest);
    int status = config ? fletch_config_load_env(config, &error) : FLETCH_ENOMEM;
    if (status == FLETCH_OK)
        status = fletch_config_set(config, "memory.limit", limit, &error);
    if (status == FLETCH_OK)
        status = fletch_config_set(config, "model.max_length", length, &error);
    if (status == FLETCH_OK)
        status = fletch_open(&s->model, s->plan->model, config, &error);
    fletch_config_free(config);
    if (status < 0) {
        fprintf(stderr, "soak: %s\n", error.message);
        return status;
    }
    s->dimensions = fletch_dimensions(s->model);
    return FLETCH_OK;
}

static int make_probes(soak *s) {
    uint64_t             seed = s->plan->seed + 77;
    fletch_error         error;
    fletch_embed_options options = unit_length();
    for (int i = 0; i < PROBES; i++) {
        probe *p  = &s->probes[i];
        p->text   = corpus_draw(&s->corpus, (size_t)s->plan->longest, &seed);
        p->vector = calloc(s->dimensions, sizeof(float));
        if (p->vector == NULL)
            return FLETCH_ENOMEM;
        fletch_texts texts   = fletch_texts_from_strings(&p->text.text, 1);
        texts.lengths        = &p->text.size;
        fletch_matrix out    = fletch_matrix_f32(p->vector, 1, s->dimensions);
        int           status = fletch_embed(s->model, &texts, &options, &out, &error);
        if (status < 0) {
            fprintf(stderr, "soak: probe %d: %s\n", i, error.message);
            return status;
        }
    }
    return FLETCH_OK;
}

static void tell_statistics(const soak *s) {
    fletch_stats stats = {.size = sizeof stats};
    fletch_error error;
    if (fletch_stats_get(s->model, &stats, &error) < 0)
        return;
    printf("%llu batches of %llu texts; split %llu, retried %llu, clean-ups under pressure %llu\n",
           (unsigned long long)stats.counter[FLETCH_COUNT_BATCHES],
           (unsigned long long)stats.counter[FLETCH_COUNT_TEXTS],
           (unsigned long long)stats.counter[FLETCH_COUNT_BATCH_SPLITS],
           (unsigned long long)stats.counter[FLETCH_COUNT_BATCH_RETRIES],
           (unsigned long long)stats.counter[FLETCH_COUNT_PRESSURE_CLEANUPS]);
    printf("pool: %llu of %llu takes served by kept buffers, %llu evicted, %.1f MiB kept\n",
           (unsigned long long)stats.counter[FLETCH_COUNT_POOL_HITS],
           (unsigned long long)stats.counter[FLETCH_COUNT_POOL_REQUESTS],
           (unsigned long long)stats.counter[FLETCH_COUNT_POOL_EVICTIONS],
           (double)stats.pool_bytes / 1048576.0);
}

/* What may come late without being a leak: the word caches (2 MiB each) of all threads that tokenise but
 * the first, which happen to do so at once for the first time, and 2 MiB of the allocator's. A line fitted
 * through one such step rises by up to half more than the step. */
static double late_bytes(const plan *p) {
    return 1.5 * 2.0 * 1048576.0 * (p->clients + 1.0);
}

static int verdict(soak *s, const track *t) {
    double most, grown = rise(t, s->plan->texts, &most);
    double late    = late_bytes(s->plan);
    double allowed = most * 0.02 > late ? most * 0.02 : late;
    double limit   = (double)s->plan->limit_mib * 1048576.0;
    printf(
        "resident: most %.1f MiB of %ld, risen by %+.2f MiB after the first tenth (%+.1f bytes a "
        "text; %.1f MiB allowed), %zu samples\n",
        most / 1048576.0, s->plan->limit_mib, grown / 1048576.0,
        grown / 0.9 / (double)s->plan->texts, allowed / 1048576.0, t->count);
    if (atomic_load(&s->done) != s->plan->texts)
        fault(s, "texts are missing", "fewer were verified than handed out");
    if (grown > allowed)
        fault(s, "memory grows", "see the line above");
    if (most > limit)
        fault(s, "the limit was passed", "see the line above");
    printf("%ld of %ld texts verified, %ld requests, %ld times told to try later, %d faults\n",
           atomic_load(&s->done), s->plan->texts, atomic_load(&s->requests), atomic_load(&s->busy),
           atomic_load(&s->faults));
    return atomic_load(&s->faults) ? 1 : 0;
}

static int run_clients(soak *s) {
    client  *clients = calloc(s->plan->clients, sizeof *clients);
    track    t       = {calloc(SAMPLES_MAX, sizeof(sample)), 0};
    unsigned started = 0;
    bool     made    = clients && t.at;
    if (made)
        memset(t.at, 1, SAMPLES_MAX * sizeof *t.at);
    for (unsigned i = 0; made && i < s->plan->clients; i++)
        made = client_make(&clients[i], s, i);
    while (made && started < s->plan->clients &&
           pthread_create(&clients[started].thread, NULL, client_run, &clients[started]) == 0)
        started++;
    if (started == 0) {
        fprintf(stderr, "soak: out of memory before it began\n");
        return 1;
    }
    watch(s, &t);
    if (atomic_load(&s->faults))
        atomic_fetch_add(&s->handed, s->plan->texts); /* nothing is left to hand out */
    for (unsigned i = 0; i < started; i++)
        pthread_join(clients[i].thread, NULL);
    tell_statistics(s);
    int status = verdict(s, &t);
    for (unsigned i = 0; i < s->plan->clients; i++)
        client_free(&clients[i]);
    free(clients);
    free(t.at);
    return status;
}

static int run(const plan *p) {
    static soak s;
    s.plan = p;
    if (!corpus_read(&s.corpus, p->files, p->file_count))
        return 1;
    printf("corpus: %zu sentences, %.2f MiB\n", s.corpus.sentences,
           (double)s.corpus.size / 1048576.0);
    if (open_model(&s) < 0 || make_probes(&s) < 0)
        return 1;
    printf("%ld texts of 1 to %ld tokens, %u clients, memory.limit %ld MiB, open took %.1f MiB\n",
           p->texts, p->longest, p->clients, p->limit_mib, sample_now(0).resident / 1048576.0);
    fflush(stdout);
    int status = run_clients(&s);
    fletch_close(s.model);
    for (int i = 0; i < PROBES; i++)
        free(s.probes[i].vector);
    corpus_free(&s.corpus);
    return status;
}

static int read_arguments(plan *p, int argc, char **argv) {
    *p = (plan){.clients = 4, .texts = 200000, .limit_mib = 256, .longest = 512, .seed = 1};
    if (argc < 2)
        return -1;
    p->model = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--texts") == 0)
            p->texts = atol(value);
        else if (strcmp(name, "--limit") == 0)
            p->limit_mib = atol(value);
        else if (strcmp(name, "--longest") == 0)
            p->longest = atol(value);
        else if (strcmp(name, "--clients") == 0)
            p->clients = (unsigned)atol(value);
        else if (strcmp(name, "--seed") == 0)
            p->seed = strtoull(value, NULL, 10);
        else if (strcmp(name, "--box") == 0)
            p->no_group = strcmp(value, "address") == 0;
        else if (strcmp(name, "--corpus") == 0 && p->file_count < 16)
            p->files[p->file_count++] = value;
        else
            return -1;
    }
    bool sane = p->texts > 0 && p->limit_mib > 0 && p->longest > 0 && p->clients > 0;
    return argc % 2 == 0 && sane && p->clients <= CLIENTS_MAX ? 0 : -1;
}

/* An interrupted parent still removes its group: the child goes first. */
static volatile sig_atomic_t confined_child;

static void on_signal(int number) {
    (void)number;
    if (confined_child > 0)
        kill(confined_child, SIGKILL);
}

int main(int argc, char **argv) {
    plan p;
    if (read_arguments(&p, argc, argv) < 0) {
        fprintf(stderr, "usage: fletch-soak MODEL [--texts N] [--limit MIB] [--longest TOKENS] "
                        "[--clients N] [--seed N] [--box group|address] [--corpus FILE ...]\n");
        return 2;
    }
    confinement box;
    confine_make(&box, (uint64_t)p.limit_mib << 20, !p.no_group);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!confine_enter(&box))
            _exit(1);
        int status = run(&p);
        fflush(stdout);
        exit(status);
    }
    confined_child = child;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    int   status = 0;
    pid_t ended  = child;
    do {
        ended = child < 0 ? -1 : waitpid(child, &status, 0);
    } while (ended < 0 && child > 0 && errno == EINTR);
    if (ended < 0) {
        fprintf(stderr, "soak: %s\n", strerror(errno));
        status = 1;
    }
    confine_end(&box);
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "soak: killed by signal %d (%s)\n", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    }
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("soak: %s\n", good ? "passed" : "FAILED");
    return good ? 0 : 1;
}
