/* SPDX-License-Identifier: Apache-2.0 */
/* models.c - the models a server holds: opening, names, and how they are.
 *
 * Role    lifecycle.c opens those that are named at the start before the server is ready, demand.c others when they are
 *         asked for; routes find them by name; watch.c looks after them once a second.
 * In/Out  "NAME=ID" or "ID" in; fl_served records out. NAME is what clients say and hear.
 * Method  A name is compared with alias, id and the last part of the id; with one model any name is its.
 *         Health: the last batch came back (an engine fault makes a model sick, and a sick one is sent
 *         a one-word probe each second until a vector comes back), and work that waits moves on.
 * Memory  Records and strings are freed at the end; none goes before. Threads: opened and closed by main and the
 *         thread of demand.c; ticks by watch; the rest any.
 * Proof   tests/server/test_start.py, test_promises.py. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "server/server_internal.h"

enum { PROBE_CELLS = 8192 };

/* What the server keeps beside the public half of a model's record. */
typedef struct served_full {
    fl_served        shared;                /* first */
    uint64_t         last_tokens, last_ns;  /* watch: the measured rate */
    uint64_t         progress, progress_ns; /* watch: batches seen, and when they last moved */
    _Atomic uint64_t stuck_since_ns;        /* work waits and nothing moves; 0: all well */
    atomic_bool      dead;                  /* no replica takes work */
    atomic_bool      probing;
    float            row[PROBE_CELLS];
} served_full;

/* ---- Opening --------------------------------------------------------------------------------------- */

const char *const fl_model_state_words[] = {
#define WORD(name, word) word,
    FL_MODEL_STATES(WORD)
#undef WORD
};

/* Name and id lie behind the record. */
fl_served *fl_models_make(const fl_server *server, const char *name, const char *id) {
    size_t       name_size = strlen(name) + 1, id_size = strlen(id) + 1;
    served_full *full = server->model_count < FL_RECORDS_MAX
                            ? fl_alloc_zero(1, sizeof *full + name_size + id_size)
                            : NULL;
    if (full == NULL)
        return NULL;
    char *texts       = (char *)(full + 1);
    full->shared.name = memcpy(texts, name, name_size);
    full->shared.id   = memcpy(texts + name_size, id, id_size);
    return &full->shared;
}

void fl_models_add(fl_server *server, fl_served *served) {
    server->models[server->model_count] = served;
    atomic_fetch_add(&server->model_count, 1);
}

void fl_served_close(fl_served *served) {
    served_full *full = (served_full *)(void *)served;
    fl_files_drop(served);
    fletch_close(served->model); /* ends the probe, too */
    served->model = NULL;
    memset(&served->info, 0, sizeof served->info); /* its strings are gone */
    served->fingerprint[0] = '\0';
    served->spoiled_told   = false;
    atomic_store(&served->tokens_per_second, 0);
    atomic_store(&served->sick, false);
    atomic_store(&served->doubtful, false);
    atomic_store(&served->spoiled, false);
    atomic_store(&full->stuck_since_ns, 0);
    atomic_store(&full->dead, false);
    full->last_tokens = full->last_ns = full->progress = full->progress_ns = 0;
}

/* What clients call a model that has no alias: its hub id, or the last part of its folder's path, since
 * where a folder lies is nobody's business. */
static char *own_name(const char *id) {
    size_t size = strlen(id);
    if (!fl_folder_exists(id))
        return fl_strdup(id);
    while (size > 1 && id[size - 1] == '/')
        size--;
    size_t begin = size;
    while (begin > 0 && id[begin - 1] != '/')
        begin--;
    return begin < size && id[begin] != '.' ? fl_strndup(id + begin, size - begin) : fl_strdup(id);
}

/* "NAME=ID" or "ID" to a name of our own and the id inside `spec`. A folder may have '=' in its path. */
int fl_model_spec_read(const char *spec, char **name, const char **id, fletch_error *error) {
    const char *equals = fl_folder_exists(spec) ? NULL : strchr(spec, '=');
    *id                = equals != NULL ? equals + 1 : spec;
    *name              = NULL;
    if ((*id)[0] == '\0' || equals == spec) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "'%s' is not a model: write ID, or NAME=ID", spec);
    }
    *name = equals != NULL ? fl_strndup(spec, (size_t)(equals - spec)) : own_name(*id);
    return *name != NULL ? FLETCH_OK
                         : fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory");
}

/* Whether a model is still to be downloaded, which is done after the sockets listen: it can take long. */
static bool is_to_come(const fletch_config *config, const char *id) {
    char         path[4096];
    fletch_error error;
    const char  *offline = fletch_config_get(config, "model.offline", NULL);
    const char  *fetch   = fletch_config_get(config, "model.auto_download", NULL);
    return strcmp(offline, "false") == 0 && strcmp(fetch, "true") == 0 && id[0] != '/' &&
           id[0] != '.' &&
           fletch_hub_path(config, id, path, sizeof path, &error) == FLETCH_ENOTFOUND;
}

int fl_model_check(const fletch_config *config, const char *id, fletch_error *error) {
    fletch_model *model = NULL;
    int           status =
        is_to_come(config, id) ? FLETCH_OK : fletch_open_tokenizer(&model, id, config, error);
    fletch_close(model);
    return status;
}

int fl_models_check(const fletch_config *config, const char *const *specs, size_t count,
                    fletch_error *error) {
    char *names[FL_MODELS_MAX];
    if (count > FL_MODELS_MAX) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "a server holds at most %d models",
                       FL_MODELS_MAX);
    }
    int    status = FLETCH_OK;
    size_t known  = 0;
    for (size_t i = 0; status == FLETCH_OK && i < count; i++) {
        const char *id;
        status = fl_model_spec_read(specs[i], &names[i], &id, error);
        known += status == FLETCH_OK;
        for (size_t k = 0; status == FLETCH_OK && k < i; k++) {
            if (strcmp(names[k], names[i]) == 0) {
                status = fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                                 "two models are called '%s'; name one: --model NAME=ID", names[i]);
            }
        }
        status = status == FLETCH_OK ? fl_model_check(config, id, error) : status;
    }
    for (size_t i = 0; i < known; i++)
        fl_free(names[i]);
    return status;
}

static int open_parts(fl_served *served, const char *id, const fletch_config *config,
                      fletch_error *error) {
    FL_TRY(fletch_open(&served->model, id, config, error));
    FL_TRY(fletch_warm(served->model, error));
    served->info.size = sizeof served->info;
    FL_TRY(fletch_model_info_get(served->model, &served->info, error));
    fl_files_note(served);
    /* "" where it cannot be had */
    (void)fletch_model_fingerprint(served->model, served->fingerprint, NULL);
    return FLETCH_OK;
}

int fl_served_open(fl_server *server, fl_served *served, const char *id,
                   const fletch_config *config, fletch_error *error) {
    uint64_t begin = fl_clock_ns();
    if (is_to_come(config, id)) {
        fl_server_log_line(server->log, FL_LEVEL_INFO,
                           "model %s is not in the cache: downloading it", served->name);
    }
    int status = open_parts(served, id, config, error);
    if (status < 0) {
        fl_served_close(served);
        return status;
    }
    fl_server_log_line(server->log, FL_LEVEL_INFO,
                       "model %s: %u dimensions, %u tokens, loaded and warm in %.2f s",
                       served->name, served->info.dimensions, served->info.max_length,
                       (double)(fl_clock_ns() - begin) / 1e9);
    return FLETCH_OK;
}

/* The trace of each model has a file of its own: trace.json, trace-2.json … */
static int name_trace(fl_server *server, const char *first, size_t number, fletch_error *error) {
    char        path[PATH_MAX];
    const char *name = strrchr(first, '/'), *dot = strrchr(name != NULL ? name : first, '.');
    size_t      stem = dot != NULL ? (size_t)(dot - first) : strlen(first);
    if (number == 1 || first[0] == '\0')
        return FLETCH_OK;
    int size = snprintf(path, sizeof path, "%.*s-%zu%s", (int)stem, first, number, first + stem);
    if (size < 0 || (size_t)size >= sizeof path)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE, "profile.file: the path is too long");
    return fletch_config_set(server->config, "profile.file", path, error);
}

/* The record of the model that `spec` names, opened. */
static int open_spec(fl_server *server, const char *spec, fletch_error *error) {
    const char *id   = "";
    char       *name = NULL;
    FL_TRY(fl_model_spec_read(spec, &name, &id, error));
    fl_served *served = fl_models_make(server, name, id);
    fl_free(name);
    if (served == NULL)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for a model's record");
    fl_models_add(server, served);
    FL_TRY(fl_served_open(server, served, id, server->config, error));
    atomic_store(&served->state, FL_MODEL_LOADED);
    server->pinned_count++;
    return FLETCH_OK;
}

int fl_models_open(fl_server *server, const char *const *specs, size_t count, fletch_error *error) {
    char trace[PATH_MAX];
    (void)snprintf(trace, sizeof trace, "%s",
                   fletch_config_get(server->config, "profile.file", NULL));
    for (size_t i = 0; i < count; i++) {
        FL_TRY(name_trace(server, trace, i + 1, error));
        FL_TRY(open_spec(server, specs[i], error));
    }
    return FLETCH_OK;
}

void fl_models_close(fl_server *server) {
    for (size_t i = 0; i < server->model_count; i++) {
        fl_served_close(server->models[i]);
        fl_free(server->models[i]->offer);
        fl_free(server->models[i]);
        server->models[i] = NULL;
    }
    server->model_count = server->pinned_count = 0;
}

/* ---- Finding --------------------------------------------------------------------------------------- */

static bool is_name(const char *candidate, const char *name, size_t size) {
    return strlen(candidate) == size && memcmp(candidate, name, size) == 0;
}

/* Where a model on demand lies is nobody's business. */
static bool is_hub_id(const fl_served *served) {
    return served->offer == NULL || (served->id[0] != '/' && served->id[0] != '.');
}

static fl_served *find(const fl_server *server, const char *name, size_t size) {
    size_t count = server->model_count;
    for (size_t i = 0; i < count; i++) {
        const fl_served *served = server->models[i];
        if (is_name(served->name, name, size) ||
            (is_hub_id(served) && is_name(served->id, name, size)))
            return server->models[i];
    }
    for (size_t i = 0; i < count; i++) {
        const char *slash = strrchr(server->models[i]->id, '/');
        if (slash != NULL && is_hub_id(server->models[i]) && is_name(slash + 1, name, size))
            return server->models[i];
    }
    return NULL;
}

fl_served *fl_server_model(const fl_server *server, const char *name, size_t size) {
    static const char latest[] = ":latest";
    const size_t      tail     = sizeof latest - 1;
    bool              one      = server->demand == NULL && server->pinned_count == 1;
    if (name == NULL || size == 0 || one)
        return fl_server_model_at(server, 0);
    fl_served *found = find(server, name, size);
    if (found == NULL && size > tail && memcmp(name + size - tail, latest, tail) == 0)
        found = find(server, name, size - tail);
    return found;
}

bool fl_served_is_sparse(const fl_served *served) {
    return strcmp(served->info.head, "sparse") == 0;
}

bool fl_served_is_late(const fl_served *served) {
    return strcmp(served->info.head, "late") == 0;
}

bool fl_served_ranks(const fl_served *served) {
    return served->info.labels == 1 || fl_served_is_late(served);
}

fl_served *fl_server_model_at(const fl_server *server, size_t index) {
    return index < server->pinned_count ? server->models[index] : NULL;
}

fl_served *fl_server_record_at(const fl_server *server, size_t index) {
    return index < server->model_count ? server->models[index] : NULL;
}

fl_served *fl_models_next(const fl_server *server, size_t *index) {
    fl_served *served;
    while ((served = fl_server_record_at(server, (*index)++)) != NULL &&
           !fl_served_try_hold(served)) {
    }
    return served;
}

/* ---- Looking after them ------------------------------------------------------------------------------ */

static void on_probe(void *user, const fletch_outcome *outcome) {
    served_full *full = user;
    int          code = outcome->error.code;
    if (code == FLETCH_OK ||
        code == FLETCH_EMODEL) { /* EMODEL: it gives NaN for a plain word too */
        atomic_store(&full->shared.sick, code != FLETCH_OK);
        atomic_store(&full->shared.doubtful, false);
    }
    fletch_lists_free(outcome->lists);
    atomic_store(&full->probing, false);
}

static void probe(served_full *full) {
    static const char *const word[] = {"probe"};
    bool                     sparse = fl_served_is_sparse(&full->shared);
    if ((full->shared.info.dimensions > PROBE_CELLS && !sparse) ||
        atomic_exchange(&full->probing, true))
        return;
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_request       request = FLETCH_REQUEST_INIT;
    options.no_cache             = 1;                          /* the engine is to answer */
    options.prompt_name          = sparse ? "document" : NULL; /* a query may need none */
    request.options              = &options;
    request.kind                 = sparse                             ? FLETCH_KIND_SPARSE
                                   : full->shared.info.labels > 0     ? FLETCH_KIND_SCORES
                                   : fl_served_is_late(&full->shared) ? FLETCH_KIND_TOKENS
                                                                      : FLETCH_KIND_DENSE;
    request.texts                = fletch_texts_from_strings(word, 1);
    if (full->shared.info.labels == 1) /* a reranker may score pairs alone */
        request.second = &request.texts;
    request.out         = fletch_matrix_f32(full->row, 1, full->shared.info.dimensions);
    request.deadline_ms = 10000;
    if (fletch_submit(full->shared.model, &request, on_probe, full, NULL, NULL) < 0)
        atomic_store(&full->probing, false);
}

/* Tokens per second while there is work: what a retry should wait for. */
static void measure(served_full *full, const fletch_stats *stats, uint64_t now_ns) {
    uint64_t done    = stats->counter[FLETCH_COUNT_TOKENS] - full->last_tokens;
    double   seconds = (double)(now_ns - full->last_ns) / 1e9;
    if (full->last_ns != 0 && done > 0 && seconds > 0) {
        double rate   = (double)done / seconds;
        double before = atomic_load(&full->shared.tokens_per_second);
        atomic_store(&full->shared.tokens_per_second,
                     before > 0 ? 0.7 * before + 0.3 * rate : rate);
    }
    full->last_tokens = stats->counter[FLETCH_COUNT_TOKENS];
    full->last_ns     = now_ns;
}

/* Whether it has work. */
static bool watch_progress(served_full *full, const fletch_stats *stats, uint64_t now_ns) {
    uint64_t moved = stats->counter[FLETCH_COUNT_BATCHES] +
                     stats->counter[FLETCH_COUNT_FAILED_TEXTS] +
                     stats->counter[FLETCH_COUNT_EXPIRED_REQUESTS] +
                     stats->counter[FLETCH_COUNT_CANCELLED_REQUESTS];
    bool works = stats->running_texts > 0 || stats->queued_texts > 0;
    if (!works || moved != full->progress || full->progress_ns == 0) {
        full->progress    = moved;
        full->progress_ns = now_ns;
        atomic_store(&full->stuck_since_ns, 0);
    } else {
        atomic_store(&full->stuck_since_ns, full->progress_ns);
    }
    return works;
}

void fl_models_tick(fl_server *server, uint64_t now_ns) {
    fletch_stats stats;
    fl_served   *served;
    for (size_t i = 0; (served = fl_models_next(server, &i)) != NULL; fl_served_drop(served)) {
        served_full *full = (served_full *)(void *)served;
        stats.size        = sizeof stats;
        if (fletch_stats_get(served->model, &stats, NULL) < 0)
            continue;
        measure(full, &stats, now_ns);
        if (watch_progress(full, &stats, now_ns))
            atomic_store(&server->worked_ns, now_ns);
        atomic_store(&full->dead, stats.replicas > 0 && stats.replicas_ready == 0);
        if (atomic_load(&full->shared.sick) || atomic_load(&full->shared.doubtful))
            probe(full);
    }
}

bool fl_models_stuck(const fl_server *server, uint64_t now_ns, uint64_t limit_ns) {
    for (size_t i = 0; i < server->model_count; i++) {
        const served_full *full  = (const served_full *)(const void *)server->models[i];
        uint64_t           since = atomic_load(&full->stuck_since_ns);
        if (since != 0 && now_ns > since && now_ns - since > limit_ns)
            return true;
    }
    return false;
}

bool fl_models_healthy(const fl_server *server, const char **why) {
    enum { STUCK_SECONDS = 15 };
    for (size_t i = 0; i < server->pinned_count;
         i++) { /* others can be closed by who asks for them */
        const served_full *full = (const served_full *)(const void *)server->models[i];
        if (atomic_load(&full->shared.sick)) {
            *why = "the last batch of a model failed";
            return false;
        }
        if (atomic_load(&full->shared.spoiled)) {
            *why = "the files of a model were modified while being served";
            return false;
        }
        if (atomic_load(&full->dead)) {
            *why = "no replica of a model takes work";
            return false;
        }
    }
    *why = "an engine does not answer";
    return !fl_models_stuck(server, fl_clock_ns(), (uint64_t)STUCK_SECONDS * 1000000000u);
}
