/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - counters of the server and of its models, in Prometheus' text format or as OpenMetrics.
 *
 * Role    connection.c and http_request.c count; /metrics and the exporter (otlp.c) write.
 * In/Out  The option server.metrics_prefix is the first word of every name. docs/metrics.md lists them.
 * Method  Counters are atomics that are added to without order; a scrape reads them one by one. What the
 *         library counts itself (tokens, queue, batches, durations) is read from fletch_stats_get at
 *         the scrape, what devices do from fletch_device_stats_get. Label values come from the route
 *         table, from the loaded models and from status codes, never from a request: a client cannot
 *         make series.
 *         fletch's histograms have four buckets to an octave; every fourth is written.
 * Memory  One block: a row of counters per route. Threads: any.
 * Proof   tests/server/test_transport_operations.py, test_cuda_metrics.py; promtool check
 *         metrics. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/os.h"
#include "server/batches.h"
#include "server/otlp.h"
#include "server/routes.h"
#include "store/store.h"

static const int codes[] = {200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 409, 413,
                            414, 415, 422, 424, 429, 431, 499, 500, 501, 503, 504};

enum { CODE_COUNT = sizeof codes / sizeof codes[0], BOUNDS = 20, ROUTES_MAX = 128 };

/* Seconds: from an empty health check to a bulk request on a slow machine. */
static const double bounds[BOUNDS] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                      0.025,  0.05,    0.1,    0.25,  0.5,    1,     2.5,
                                      5,      10,      25,     50,    100,    250};

FL_LOCK_ROLE(exemplars_role);

/* A traced request that fell into a bucket; trace_id "": none did. */
typedef struct exemplar {
    char   trace_id[33], span_id[17];
    double seconds, when; /* Unix time */
} exemplar;

typedef struct spread {
    _Atomic uint64_t bucket[BOUNDS + 1];
    _Atomic uint64_t sum_ns;
    exemplar         last[BOUNDS + 1] FL_GUARDED_BY(exemplars_role);
} spread;

typedef struct route_row {
    const fl_route  *route; /* NULL: requests that no route took */
    _Atomic uint64_t code[CODE_COUNT + 1];
    spread           duration;
} route_row;

struct fl_metrics {
    pthread_mutex_t  exemplars_lock; /* for traced requests alone */
    char             prefix[64];
    size_t           count;
    spread           embedding;
    _Atomic uint64_t texts;
    _Atomic uint64_t rejected[FL_REJECTION_COUNT];
    _Atomic uint64_t cancelled;
    route_row        row[ROUTES_MAX];
};

FL_LOCK_OF(exemplars_role, fl_metrics, exemplars_lock, lock_exemplars, unlock_exemplars);

static const char *const rejections[FL_REJECTION_COUNT] = {
    "queue_full", "key_limit", "key_queue", "api_key",
    "not_ready",  "body_size", "headers",   "too_slow",
};

static bool good_prefix(const char *prefix) {
    size_t size = strlen(prefix);
    bool   head = strspn(prefix, "0123456789") == 0;
    return size > 0 && size < 64 && head &&
           strspn(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
               size;
}

int fl_metrics_open(fl_metrics **out, const char *prefix, fletch_error *error) {
    *out = NULL;
    if (!good_prefix(prefix)) {
        return fl_fail(
            error, FLETCH_ECONFIG, FLETCH_NOWHERE,
            "server.metrics_prefix must be letters, digits and '_' and not begin with a digit");
    }
    fl_metrics *metrics = fl_alloc_zero(1, sizeof *metrics);
    if (metrics == NULL)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for the metrics");
    memcpy(metrics->prefix, prefix, strlen(prefix) + 1);
    metrics->count = 1;
    pthread_mutex_init(&metrics->exemplars_lock, NULL);
    for (size_t i = 0; metrics->count < ROUTES_MAX; i++) {
        const fl_route *route = fl_route_at(i);
        if (route == NULL)
            break;
        metrics->row[metrics->count++].route = route;
    }
    *out = metrics;
    return FLETCH_OK;
}

void fl_metrics_close(fl_metrics *metrics) {
    if (metrics != NULL)
        pthread_mutex_destroy(&metrics->exemplars_lock);
    fl_free(metrics);
}

/* ---- Counting ------------------------------------------------------------------------------------ */

static void add(_Atomic uint64_t *counter, uint64_t value) {
    (void)atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void keep_exemplar(fl_metrics *metrics, exemplar *last, double seconds,
                          const fl_otlp_span *span) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    lock_exemplars(metrics);
    memcpy(last->trace_id, span->trace_id, sizeof last->trace_id);
    memcpy(last->span_id, span->span_id, sizeof last->span_id);
    last->seconds = seconds;
    last->when    = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    unlock_exemplars(metrics);
}

static void observe(fl_metrics *metrics, spread *seen, uint64_t ns, const fl_otlp_span *span) {
    double seconds = (double)ns / 1e9;
    size_t i       = 0;
    while (i < BOUNDS && seconds > bounds[i])
        i++;
    add(&seen->bucket[i], 1);
    add(&seen->sum_ns, ns);
    if (span != NULL)
        keep_exemplar(metrics, &seen->last[i], seconds, span);
}

void fl_metrics_request(fl_metrics *metrics, const fl_route *route, int status, uint64_t ns,
                        const fl_otlp_span *span) {
    size_t row = 0, code = 0;
    for (size_t i = 1; route != NULL && i < metrics->count; i++) {
        if (metrics->row[i].route == route) {
            row = i;
            break;
        }
    }
    while (code < CODE_COUNT && codes[code] != status)
        code++;
    add(&metrics->row[row].code[code], 1);
    observe(metrics, &metrics->row[row].duration, ns, span);
}

void fl_metrics_embedding(fl_metrics *metrics, uint64_t texts, uint64_t ns,
                          const fl_otlp_span *span) {
    add(&metrics->texts, texts);
    observe(metrics, &metrics->embedding, ns, span);
}

void fl_metrics_rejected(fl_metrics *metrics, fl_rejection why) {
    assert(why < FL_REJECTION_COUNT);
    add(&metrics->rejected[why], 1);
}

void fl_metrics_cancelled(fl_metrics *metrics) {
    add(&metrics->cancelled, 1);
}

/* ---- Writing --------------------------------------------------------------------------------------- */

typedef struct writer {
    fl_buf          *out;
    fl_metrics      *metrics;
    const fl_server *server;
    bool             open; /* as OpenMetrics */
    fl_served      **held; /* the models whose figures are written */
} writer;

/* Of a name that stands alone. OpenMetrics calls a counter by its name without _total. */
static void head_of(const writer *w, const char *prefix, const char *name, const char *type,
                    const char *help) {
    int size = (int)strlen(name);
    size -= w->open && strcmp(type, "counter") == 0 ? (int)sizeof "_total" - 1 : 0;
    fl_buf_printf(w->out, "# HELP %s%.*s %s\n# TYPE %s%.*s %s\n", prefix, size, name, help, prefix,
                  size, name, type);
}

static void head(const writer *w, const char *name, const char *type, const char *help) {
    char prefix[sizeof w->metrics->prefix + 1];
    snprintf(prefix, sizeof prefix, "%s_", w->metrics->prefix);
    head_of(w, prefix, name, type, help);
}

static void simple(const writer *w, const char *name, const char *type, const char *help,
                   double value) {
    head(w, name, type, help);
    fl_buf_printf(w->out, "%s_%s %.15g\n", w->metrics->prefix, name, value);
}

static void write_exemplar(const writer *w, const exemplar *last) {
    lock_exemplars(w->metrics);
    if (w->open && last->trace_id[0] != '\0') {
        fl_buf_printf(w->out, " # {trace_id=\"%s\",span_id=\"%s\"} %.9f %.3f", last->trace_id,
                      last->span_id, last->seconds, last->when);
    }
    unlock_exemplars(w->metrics);
    fl_buf_putc(w->out, '\n');
}

/* The bound of a bucket; OpenMetrics wants a point or an exponent. */
static void put_bound(const writer *w, double bound, int digits) {
    assert(digits >= 0);
    char text[32];
    snprintf(text, sizeof text, "%.*g", digits, bound);
    bool whole = w->open && strpbrk(text, ".e") == NULL;
    fl_buf_printf(w->out, "%s%s", text, whole ? ".0" : "");
}

static void write_histogram(const writer *w, const char *name, const char *labels,
                            const spread *seen) {
    const char *prefix = w->metrics->prefix, *comma = labels[0] != '\0' ? "," : "";
    uint64_t    total = 0;
    for (size_t i = 0; i < BOUNDS; i++) {
        total += get(&seen->bucket[i]);
        fl_buf_printf(w->out, "%s_%s_bucket{%s%sle=\"", prefix, name, labels, comma);
        put_bound(w, bounds[i], 6);
        fl_buf_printf(w->out, "\"} %llu", (unsigned long long)total);
        write_exemplar(w, &seen->last[i]);
    }
    total += get(&seen->bucket[BOUNDS]);
    fl_buf_printf(w->out, "%s_%s_bucket{%s%sle=\"+Inf\"} %llu", prefix, name, labels, comma,
                  (unsigned long long)total);
    write_exemplar(w, &seen->last[BOUNDS]);
    const char *open = labels[0] != '\0' ? "{" : "", *shut = labels[0] != '\0' ? "}" : "";
    fl_buf_printf(w->out, "%s_%s_sum%s%s%s %.9f\n%s_%s_count%s%s%s %llu\n", prefix, name, open,
                  labels, shut, (double)get(&seen->sum_ns) / 1e9, prefix, name, open, labels, shut,
                  (unsigned long long)total);
}

static void write_requests(const writer *w) {
    const fl_metrics *metrics = w->metrics;
    head(w, "requests_total", "counter", "Requests answered, by route and status.");
    for (size_t i = 0; i < metrics->count; i++) {
        const route_row *row = &metrics->row[i];
        for (size_t c = 0; c <= CODE_COUNT; c++) {
            uint64_t value = get(&row->code[c]);
            char     code[16];
            if (value == 0)
                continue;
            snprintf(code, sizeof code, "%d", c < CODE_COUNT ? codes[c] : 0);
            fl_buf_printf(w->out,
                          "%s_requests_total{route=\"%s\",method=\"%s\",code=\"%s\"} %llu\n",
                          metrics->prefix, row->route != NULL ? row->route->path : "unmatched",
                          row->route != NULL ? row->route->method : "",
                          c < CODE_COUNT ? code : "other", (unsigned long long)value);
        }
    }
    head(w, "request_duration_seconds", "histogram",
         "Time from the end of a request's headers to the end of its reply.");
    for (size_t i = 0; i < metrics->count; i++) {
        const route_row *row = &metrics->row[i];
        char             labels[256];
        uint64_t         any = 0;
        for (size_t c = 0; c <= CODE_COUNT; c++)
            any += get(&row->code[c]);
        if (any == 0)
            continue;
        snprintf(labels, sizeof labels, "route=\"%s\",method=\"%s\"",
                 row->route != NULL ? row->route->path : "unmatched",
                 row->route != NULL ? row->route->method : "");
        write_histogram(w, "request_duration_seconds", labels, &row->duration);
    }
}

static void write_embeddings(const writer *w) {
    const fl_metrics *metrics = w->metrics;
    double            texts   = (double)get(&metrics->texts);
    head(w, "embedding_seconds", "histogram",
         "Time from the submission of a request's texts to their vectors.");
    write_histogram(w, "embedding_seconds", "", &metrics->embedding);
    simple(w, "embeddings_total", "counter", "Texts embedded.", texts);
    simple(w, "embedding_total", "counter", "The same as embeddings_total, under its older name.",
           texts);
}

static void write_server(const writer *w) {
    const fl_server  *server  = w->server;
    const fl_metrics *metrics = w->metrics;
    head(w, "rejected_total", "counter", "Requests rejected, by reason.");
    for (size_t i = 0; i < FL_REJECTION_COUNT; i++) {
        fl_buf_printf(w->out, "%s_rejected_total{reason=\"%s\"} %llu\n", metrics->prefix,
                      rejections[i], (unsigned long long)get(&metrics->rejected[i]));
    }
    simple(w, "disconnects_total", "counter",
           "Clients that disconnected before their reply was ready.",
           (double)get(&metrics->cancelled));
    simple(w, "inflight_requests", "gauge", "Requests between headers and the end of the reply.",
           atomic_load(&server->inflight));
    simple(w, "open_connections", "gauge", "Connections that are open.",
           atomic_load(&server->open));
    const char *why;
    bool        ready = atomic_load(&server->state) == FL_READY && fl_models_healthy(server, &why);
    simple(w, "ready", "gauge", "1 while /ready answers 200.", ready);
    if (server->store != NULL && atomic_load(&server->state) >= FL_READY) {
        uint64_t recalled, checked;
        fl_store_found(server->store, &recalled, &checked);
        simple(w, "store_items", "gauge", "Texts in the store (server.store).",
               (double)fl_store_count(server->store));
        simple(w, "store_checked_hits_total", "counter",
               "Hits of searches that were repeated exactly (server.store_search).",
               (double)checked);
        simple(w, "store_recalled_hits_total", "counter",
               "Those of them that the search by codes had found.", (double)recalled);
    }
    simple(w, "log_dropped_lines_total", "counter", "Log lines dropped because the sink was full.",
           (double)fl_server_log_dropped(server->log));
    if (server->otlp != NULL) {
        uint64_t exported, dropped;
        fl_otlp_counts(server->otlp, &exported, &dropped);
        simple(w, "otlp_exported_spans_total", "counter",
               "Spans exported to the collector (server.otlp_endpoint).", (double)exported);
        simple(w, "otlp_dropped_spans_total", "counter",
               "Spans dropped because the collector was slow, down or rejected them.",
               (double)dropped);
    }
    head(w, "build_info", "gauge", "Always 1; the version is in the label.");
    fl_buf_printf(w->out, "%s_build_info{version=\"%s\"} 1\n", metrics->prefix, fletch_version());
}

static void write_batches(const writer *w) {
    static const char *const results[FL_BATCH_OUTPUTS] = {"completed", "failed"};
    fl_batches              *batches                   = w->server->batches;
    uint64_t                 count[FL_BATCH_STATUSES];
    if (batches == NULL)
        return;
    fl_batches_count(batches, count);
    head(w, "batches", "gauge", "Stored batches (server.batches), by status.");
    for (int i = 0; i < FL_BATCH_STATUSES; i++) {
        fl_buf_printf(w->out, "%s_batches{status=\"%s\"} %llu\n", w->metrics->prefix,
                      fl_batch_words[i], (unsigned long long)count[i]);
    }
    head(w, "batch_requests_total", "counter", "Answered requests of batches.");
    for (int i = 0; i < FL_BATCH_OUTPUTS; i++) {
        fl_buf_printf(w->out, "%s_batch_requests_total{result=\"%s\"} %llu\n", w->metrics->prefix,
                      results[i], (unsigned long long)get(&batches->lines[i]));
    }
}

/* Models that come and go (server.on_demand); zeros where they stay. */
static void write_demand(const writer *w) {
    static const char *const reasons[FL_CLOSE_REASONS]    = {"idle", "memory", "requested"};
    const char              *prefix                       = w->metrics->prefix;
    fl_demand_counts         counts                       = fl_demand_counted(w->server);
    size_t                   states[FL_MODEL_STATE_COUNT] = {0};
    const fl_served         *served;
    for (size_t i = 0; (served = fl_server_record_at(w->server, i)) != NULL; i++)
        states[atomic_load(&served->state)]++;
    head(w, "models", "gauge", "Models that can be served, by state.");
    for (size_t i = 0; i < FL_MODEL_STATE_COUNT; i++) {
        fl_buf_printf(w->out, "%s_models{state=\"%s\"} %zu\n", prefix, fl_model_state_words[i],
                      states[i]);
    }
    simple(w, "model_opens_total", "counter", "Models opened on demand.", (double)counts.opened);
    simple(w, "model_open_failures_total", "counter", "Models that failed to open on demand.",
           (double)counts.failed);
    head(w, "model_closes_total", "counter", "Models closed, by reason.");
    for (size_t i = 0; i < FL_CLOSE_REASONS; i++) {
        fl_buf_printf(w->out, "%s_model_closes_total{reason=\"%s\"} %llu\n", prefix, reasons[i],
                      (unsigned long long)counts.closed[i]);
    }
    simple(w, "model_waiting_requests", "gauge", "Requests waiting for a model to open.",
           (double)counts.waiting);
}

/* ---- What the library counts, per model ------------------------------------------------------------- */

/* A label's value: quotes, backslashes and newlines are escaped. */
static void label(char *out, size_t capacity, const char *value) {
    size_t used = 0;
    for (const char *at = value; *at != '\0' && used + 3 < capacity; at++) {
        if (*at == '"' || *at == '\\' || *at == '\n')
            out[used++] = '\\';
        out[used++] = *at == '\n' ? 'n' : *at;
    }
    out[used] = '\0';
}

/* A counter is named as in the library, but for these. NULL: what the server counts itself, or nobody asks. */
static const struct {
    fletch_counter counter;
    const char    *name;
} other_names[] = {
    {FLETCH_COUNT_REQUESTS, NULL},
    {FLETCH_COUNT_FAILED_REQUESTS, NULL},
    {FLETCH_COUNT_BATCHING_WAITS, NULL},
    {FLETCH_COUNT_CANCELLED_REQUESTS, "cancelled"},
    {FLETCH_COUNT_EXPIRED_REQUESTS, "expired"},
    {FLETCH_COUNT_REJECTED_REQUESTS, "queue_rejected"},
    {FLETCH_COUNT_BATCH_SPLITS, "oom_splits"},
    {FLETCH_COUNT_BUSY_NS, "engine_busy_ns"},
};

static const char *counter_name(size_t counter) {
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++)
        if ((size_t)other_names[i].counter == counter)
            return other_names[i].name;
    return fletch_counter_name(counter);
}

/* Nanoseconds are told as seconds. */
static void write_counter(const writer *w, size_t counter, const fletch_stats *stats,
                          char (*names)[160], size_t count) {
    char        name[80], help[160];
    const char *base = counter_name(counter), *text = fletch_counter_text(counter);
    if (base == NULL)
        return;
    size_t size = strlen(base);
    bool   ns   = size > 3 && strcmp(base + size - 3, "_ns") == 0;
    snprintf(name, sizeof name, "%.*s%s_total", (int)(ns ? size - 3 : size), base,
             ns ? "_seconds" : "");
    snprintf(help, sizeof help, "%c%s.", text[0] - 'a' + 'A', text + 1);
    head(w, name, "counter", help);
    for (size_t i = 0; i < count; i++) {
        fl_buf_printf(w->out, "%s_%s{model=\"%s\"} %.15g\n", w->metrics->prefix, name, names[i],
                      (double)stats[i].counter[counter] * (ns ? 1e-9 : 1));
    }
}

typedef struct gauge {
    const char *name, *help;
    size_t      offset;
} gauge;

#define OF(field) offsetof(fletch_stats, field)
static const gauge gauges[] = {
    {"engine_slots", "Batches that can run at once.", OF(slots)},
    {"queue_requests", "Queued requests.", OF(queued_requests)},
    {"queue_texts", "Queued texts.", OF(queued_texts)},
    {"queue_tokens", "Queued tokens.", OF(queued_tokens)},
    {"running_texts", "Texts in an engine.", OF(running_texts)},
    {"batch_budget_tokens", "The token budget of a batch.", OF(batch_tokens)},
    {"pool_bytes", "Memory in the buffer pool.", OF(pool_bytes)},
    {"cache_bytes", "Memory of the result cache.", OF(cache_bytes)},
    {"cache_entries", "Results in the cache.", OF(cache_entries)},
    {"cache_limit_bytes", "Limit of the result cache (cache.max_bytes).", OF(cache_limit)},
    {"replicas", "Replicas of the model.", OF(replicas)},
    {"replicas_ready", "Replicas that are ready.", OF(replicas_ready)},
};
#undef OF

enum { GAUGE_COUNT = sizeof gauges / sizeof gauges[0], EVERY = 4 };

static void write_library_histogram(const writer *w, const char *name, const char *model,
                                    const fletch_histogram *histogram) {
    const char *prefix = w->metrics->prefix;
    uint64_t    total  = 0;
    for (size_t i = 0; i + 1 < FLETCH_HISTOGRAM_BUCKETS; i++) {
        total += histogram->bucket[i];
        if (i % EVERY == EVERY - 1) {
            fl_buf_printf(w->out, "%s_%s_bucket{model=\"%s\",le=\"", prefix, name, model);
            put_bound(w, (double)fletch_histogram_bound(i) / 1e9, 9);
            fl_buf_printf(w->out, "\"} %llu\n", (unsigned long long)total);
        }
    }
    total += histogram->bucket[FLETCH_HISTOGRAM_BUCKETS - 1];
    fl_buf_printf(w->out,
                  "%s_%s_bucket{model=\"%s\",le=\"+Inf\"} %llu\n%s_%s_sum{model=\"%s\"} %.9f\n"
                  "%s_%s_count{model=\"%s\"} %llu\n",
                  prefix, name, model, (unsigned long long)total, prefix, name, model,
                  (double)histogram->sum_ns / 1e9, prefix, name, model, (unsigned long long)total);
}

static void write_models(const writer *w, const fletch_stats *stats, char (*names)[160],
                         size_t count) {
    const char *prefix = w->metrics->prefix;
    for (size_t counter = 0; fletch_counter_name(counter) != NULL; counter++)
        write_counter(w, counter, stats, names, count);
    for (size_t g = 0; g < GAUGE_COUNT; g++) {
        head(w, gauges[g].name, "gauge", gauges[g].help);
        for (size_t i = 0; i < count; i++) {
            uint64_t value;
            memcpy(&value, (const char *)&stats[i] + gauges[g].offset, sizeof value);
            fl_buf_printf(w->out, "%s_%s{model=\"%s\"} %.15g\n", prefix, gauges[g].name, names[i],
                          (double)value);
        }
    }
    static const struct {
        const char *name, *help;
        size_t      offset;
    } phases[] = {
        {"tokenize_duration_seconds", "Tokenising time per text.",
         offsetof(fletch_stats, tokenize)},
        {"queue_duration_seconds", "Queueing time per text.", offsetof(fletch_stats, queue)},
        {"inference_duration_seconds", "Engine time per batch.", offsetof(fletch_stats, forward)},
    };
    for (size_t p = 0; p < sizeof phases / sizeof phases[0]; p++) {
        head(w, phases[p].name, "histogram", phases[p].help);
        for (size_t i = 0; i < count; i++) {
            const void *at = (const char *)&stats[i] + phases[p].offset;
            write_library_histogram(w, phases[p].name, names[i], at);
        }
    }
    head(w, "queue_limit_tokens", "gauge", "Limit of queued tokens (server.max_queue_tokens).");
    for (size_t i = 0; i < count; i++) {
        fl_buf_printf(
            w->out, "%s_queue_limit_tokens{model=\"%s\"} %llu\n", prefix, names[i],
            (unsigned long long)fl_server_number(w->server, "server.max_queue_tokens", 0));
    }
    head(w, "model_info", "gauge", "Always 1; what is loaded is in the labels.");
    for (size_t i = 0; i < count; i++) {
        const fl_served *served = w->held[i];
        fl_buf_printf(w->out,
                      "%s_model_info{model=\"%s\",provider=\"%s\",precision=\"%s\",sha=\"%.16s\"} "
                      "1\n",
                      prefix, names[i], stats[i].provider, stats[i].precision, served->fingerprint);
    }
}

/* ---- Who has how much of the engines, per key ----------------------------------------------------------- */

static void write_key_rows(const writer *w, const fl_key_usage *rows, size_t count) {
    static const char *const names[] = {"key_tokens_total", "key_waiting_texts"};
    head(w, names[0], "counter", "Tokens embedded, by name of the API key.");
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            char name[160];
            label(name, sizeof name, rows[i].name != NULL ? rows[i].name : "");
            if (rows[i].tokens > 0 || rows[i].waiting > 0) {
                fl_buf_printf(w->out, "%s_%s{key=\"%s\"} %llu\n", w->metrics->prefix, names[pass],
                              name,
                              (unsigned long long)(pass == 0 ? rows[i].tokens : rows[i].waiting));
            }
        }
        if (pass == 0)
            head(w, names[1], "gauge", "Texts queued or being embedded, by name of the API key.");
    }
}

static void write_keys(const writer *w, fl_keys *keys) {
    size_t        count = fl_keys_count(keys);
    fl_key_usage *rows  = fl_alloc_zero(count + 1, sizeof *rows);
    if (count > 0 && rows != NULL) {
        fl_keys_usage(keys, rows);
        write_key_rows(w, rows, count);
    }
    fl_free(rows);
}

/* ---- What the devices do, per replica ---------------------------------------------------------------- */

/* A figure of a device. It is left out where the field at `told` is 0, since then no driver told it;
 * the field at 0 is the structure's size, which never is. */
typedef struct device_gauge {
    const char *name, *type, *help;
    size_t      offset, told;
} device_gauge;

#define OF(field) offsetof(fletch_device_stats, field)
static const device_gauge device_gauges[] = {
    {"device_outstanding_tokens", "gauge", "Tokens in the batches of the replica.",
     OF(outstanding_tokens), 0},
    {"device_batches_total", "counter", "Batches run by the replica.", OF(batches), 0},
    {"device_tokens_total", "counter", "Tokens of those batches.", OF(tokens), 0},
    {"device_zero_copy_inputs_total", "counter",
     "Texts whose bytes and ids reached the engine without a copy.", OF(zero_copy_inputs), 0},
    {"device_copied_inputs_total", "counter", "Texts copied, gathered, widened or staged.",
     OF(copied_inputs), 0},
    {"device_zero_copy_outputs_total", "counter",
     "Rows that the engine wrote into the caller's memory.", OF(zero_copy_outputs), 0},
    {"device_staged_outputs_total", "counter", "Rows that went through a buffer.",
     OF(staged_outputs), 0},
    {"device_bound_runs_total", "counter", "Runs of ONNX Runtime with inputs and outputs bound.",
     OF(bound_runs), 0},
    {"device_unbound_runs_total", "counter", "Runs of ONNX Runtime without binding.",
     OF(unbound_runs), 0},
    {"device_memory_used_bytes", "gauge", "Device memory in use, by all processes.",
     OF(memory_used), OF(memory_total)},
    {"device_memory_total_bytes", "gauge", "Memory of the device.", OF(memory_total),
     OF(memory_total)},
    {"device_pool_used_bytes", "gauge", "Device memory in use from the pool.", OF(pool_used),
     OF(pool_requests)},
    {"device_pool_peak_bytes", "gauge", "Peak device memory in use from the pool.", OF(pool_peak),
     OF(pool_requests)},
    {"device_pool_held_bytes", "gauge", "Device memory held by the pool.", OF(pool_held),
     OF(pool_requests)},
    {"device_pool_blocks_total", "counter", "Blocks requested from the pool.", OF(pool_requests),
     OF(pool_requests)},
    {"device_pool_hits_total", "counter", "Blocks reused by the pool.", OF(pool_hits),
     OF(pool_requests)},
};
#undef OF

enum { DEVICE_GAUGE_COUNT = sizeof device_gauges / sizeof device_gauges[0] };

typedef struct device_row {
    fletch_device_stats stats;
    const char         *model;
    size_t              replica;
} device_row;

static uint64_t field_of(const device_row *row, size_t offset) {
    uint64_t value;
    memcpy(&value, (const char *)&row->stats + offset, sizeof value);
    return value;
}

static void put_device(const writer *w, const char *name, const device_row *row, double value) {
    fl_buf_printf(w->out, "%s_%s{model=\"%s\",replica=\"%zu\"} %.15g\n", w->metrics->prefix, name,
                  row->model, row->replica, value);
}

static void write_device_rows(const writer *w, const device_row *rows, size_t count) {
    head(w, "device_up", "gauge", "1 while the replica is ready.");
    for (size_t i = 0; i < count; i++)
        put_device(w, "device_up", &rows[i], rows[i].stats.ready != 0);
    head(w, "device_utilisation_ratio", "gauge", "Device utilisation, reported by its driver.");
    for (size_t i = 0; i < count; i++)
        if (rows[i].stats.utilisation >= 0)
            put_device(w, "device_utilisation_ratio", &rows[i], rows[i].stats.utilisation / 100.0);
    for (size_t g = 0; g < DEVICE_GAUGE_COUNT; g++) {
        const device_gauge *of = &device_gauges[g];
        head(w, of->name, of->type, of->help);
        for (size_t i = 0; i < count; i++)
            if (of->told == 0 || field_of(&rows[i], of->told) > 0)
                put_device(w, of->name, &rows[i], (double)field_of(&rows[i], of->offset));
    }
    head(w, "device_info", "gauge", "Always 1; which device a replica is on is in the labels.");
    for (size_t i = 0; i < count; i++) {
        char name[2 * sizeof rows[i].stats.name];
        label(name, sizeof name, rows[i].stats.name);
        if (rows[i].stats.provider[0] != '\0') { /* empty while it is opened again */
            fl_buf_printf(w->out,
                          "%s_device_info{model=\"%s\",replica=\"%zu\",provider=\"%s\","
                          "device=\"%u\",name=\"%s\"} 1\n",
                          w->metrics->prefix, rows[i].model, rows[i].replica,
                          rows[i].stats.provider, rows[i].stats.device, name);
        }
    }
}

static void write_devices(const writer *w, const fletch_stats *stats, char (*names)[160],
                          size_t count) {
    size_t most = 0, used = 0;
    for (size_t i = 0; i < count; i++)
        most += (size_t)stats[i].replicas;
    device_row *rows = fl_alloc_zero(most, sizeof *rows);
    for (size_t i = 0; rows != NULL && i < count; i++) {
        for (size_t r = 0; r < stats[i].replicas; r++) {
            device_row *row = &rows[used];
            *row            = (device_row){.model = names[i], .replica = r};
            row->stats.size = sizeof row->stats;
            used += fletch_device_stats_get(w->held[i]->model, r, &row->stats, NULL) == FLETCH_OK;
        }
    }
    write_device_rows(w, rows, used);
    fl_free(rows);
}

/* ---- The process, by the names that every Prometheus client uses --------------------------------------- */

static void plain(const writer *w, const char *name, const char *type, const char *help,
                  double value) {
    head_of(w, "", name, type, help);
    fl_buf_printf(w->out, "%s %.15g\n", name, value);
}

static void write_process(const writer *w) {
    plain(w, "process_cpu_seconds_total", "counter", "Processor time used.",
          fl_os_processor_seconds());
    plain(w, "process_resident_memory_bytes", "gauge", "Resident memory.",
          (double)fl_os_resident(""));
    plain(w, "process_open_fds", "gauge", "Open file descriptors.", (double)fl_os_files_open());
    plain(w, "process_max_fds", "gauge", "Limit of open file descriptors.",
          (double)fl_os_open_files(0));
    plain(w, "process_start_time_seconds", "gauge", "Start of the process, Unix time.",
          (double)w->server->start_time);
}

/* The open models into w->held; how many. */
static size_t hold_models(writer *w) {
    size_t     room = w->server->model_count, count = 0;
    fl_served *served;
    w->held = fl_alloc_zero(room + 1, sizeof(fl_served *));
    for (size_t i = 0;
         w->held != NULL && count < room && (served = fl_models_next(w->server, &i)) != NULL;)
        w->held[count++] = served;
    return count;
}

void fl_metrics_write(fl_server *server, fl_buf *out, bool open_metrics) {
    writer w = {out, server->metrics, server, open_metrics, NULL};
    write_embeddings(&w);
    write_requests(&w);
    write_server(&w);
    write_batches(&w);
    write_demand(&w);
    fl_keys *keys = fl_server_keys(server);
    write_keys(&w, keys);
    fl_keys_drop(keys);
    size_t        count = atomic_load(&server->state) >= FL_READY ? hold_models(&w) : 0;
    fletch_stats *stats = fl_alloc_zero(count + 1, sizeof *stats);
    char(*names)[160]   = fl_alloc_zero(count + 1, sizeof *names);
    if (stats != NULL && names != NULL) {
        for (size_t i = 0; i < count; i++) {
            stats[i].size = sizeof stats[i];
            (void)fletch_stats_get(w.held[i]->model, &stats[i], NULL);
            label(names[i], sizeof names[i], w.held[i]->name);
        }
        write_models(&w, stats, names, count);
        write_devices(&w, stats, names, count);
    }
    for (size_t i = 0; i < count; i++)
        fl_served_drop(w.held[i]);
    fl_free(w.held);
    fl_free(stats);
    fl_free(names);
    write_process(&w);
    fl_buf_puts(out, open_metrics ? "# EOF\n" : "");
}
