/* SPDX-License-Identifier: Apache-2.0 */
/* otlp.c - the exporter: which requests are traced, the spans that wait, and the thread that sends them.
 *
 * Role    See otlp.h; what OpenTelemetry's protocol over HTTP asks of a client.
 * In/Out  The options server.otlp_* (of which OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and
 *         OTEL_METRIC_EXPORT_INTERVAL are other names), and from the environment alone, since one may be a secret and
 *         the others are no business of fletch's: OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES,
 *         OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG, OTEL_SDK_DISABLED.
 * Method  Spans wait in a list and go in messages of up to SPANS_AT_ONCE, every SPANS_MS or when so many wait; metrics
 *         every server.otlp_interval_ms. A message that the collector cannot take now (429, 502, 503, 504, no
 *         answer) is sent again after Retry-After, or after 1, 2, 4 … seconds and a random part of that;
 *         meanwhile spans wait, and when all are lent further ones are dropped and counted. What is lost is
 *         said once, and once more when the collector is back. At the end all that waits is sent, and
 *         given up FLUSH_MS later.
 * Memory  The spans, made once; a message and its packed form; curl's handle. Threads: one; see otlp.h.
 * Proof   tests/server/test_otlp.py. */
#include "server/otlp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/libcurl.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "base/proto.h"
#include "base/thread.h"
#include "base/utf8.h"

enum {
    SPANS_AT_ONCE = 512,
    SPANS_MS      = 5000,
    ANSWER_MS     = 10000,
    ANSWER_BYTES  = 4096, /* of an answer that are read */
    FLUSH_MS      = 2000,
    TRIES_MAX     = 5,
    PAUSE_MAX_S   = 60, /* however long Retry-After asks */
    RESOURCE_TEXT = 1   /* field of a Resource */
};

static const uint64_t millisecond = 1000000;

/* One of the two things that are exported, to an address of its own. */
typedef struct channel {
    const char *name;
    fl_buf      url;
    bool        failing; /* the exporter's: that was said */
} channel;

FL_LOCK_ROLE(spans_role); /* the lock of fl_otlp: lists of spans */

struct fl_otlp {
    fl_server          *server;
    channel             spans_out, metrics_out;
    bool                metered; /* metrics are exported */
    fl_buf              resource;
    bool                given[3]; /* of the resource's keys: the environment has it */
    bool                obeys_parent;
    uint64_t            share; /* of 2^56 trace ids, so many are traced */
    uint64_t            interval_ns;
    CURL               *curl; /* the exporter's */
    struct curl_slist  *headers;
    fl_buf              message, packed, answer; /* likewise */
    bool                told;                    /* likewise: that spans were dropped */
    pthread_mutex_t     lock;
    pthread_cond_t      more;
    fl_otlp_span       *spans; /* all of them */
    fl_otlp_span *idle  FL_GUARDED_BY(spans_role);
    fl_otlp_span *first FL_GUARDED_BY(spans_role); /* those that wait … */
    fl_otlp_span **last FL_GUARDED_BY(spans_role);
    size_t waiting      FL_GUARDED_BY(spans_role); /* … so many */
    _Atomic uint64_t    end_ns;                    /* ending: when it gives up; 0: not ending */
    _Atomic uint64_t    exported, dropped;
    pthread_t           thread;
    bool                running;
};

FL_LOCK_OF(spans_role, fl_otlp, lock, lock, unlock);

/* ---- Settings ------------------------------------------------------------------------------------- */

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

static bool says(const char *name, const char *word) {
    return strcasecmp(variable(name), word) == 0;
}

/* Without the blanks around it, in place. */
static char *trimmed(char *text) {
    text += strspn(text, " \t");
    for (char *end = text + strlen(text); end > text && (end[-1] == ' ' || end[-1] == '\t');)
        *--end = '\0';
    return text;
}

typedef int (*take_pair)(fl_otlp *otlp, const char *key, char *value, fletch_error *error);

/* "key=value,key=value", percent-encoded. What is wrong is told by its number: it may be a secret. */
static int read_pairs(fl_otlp *otlp, const char *name, take_pair take, fletch_error *error) {
    char *copy = fl_strdup(variable(name)), *rest = NULL;
    int   status = copy != NULL ? FLETCH_OK : fl_fail_nomem(error, 0, name), number = 1;
    char *item = copy != NULL ? strtok_r(copy, ",", &rest) : NULL;
    for (; item != NULL && status == FLETCH_OK; item = strtok_r(NULL, ",", &rest), number++) {
        char *equals = strchr(item, '=');
        if (equals != NULL)
            *equals = '\0';
        char  *key   = trimmed(item);
        char  *value = trimmed(equals != NULL ? equals + 1 : item);
        size_t size  = fl_percent_decode(value, strlen(value));
        if (equals == NULL || key[0] == '\0' || size == SIZE_MAX) {
            status = fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                             "%s: item %d is not key=value, items are separated by commas, and "
                             "other characters are escaped as %%2C",
                             name, number);
            break;
        }
        value[size] = '\0';
        status      = take(otlp, key, value, error);
    }
    fl_free(copy);
    return status;
}

static int add_header(fl_otlp *otlp, const char *line, fletch_error *error) {
    struct curl_slist *longer = fl_curl.slist_append(otlp->headers, line);
    otlp->headers             = longer != NULL ? longer : otlp->headers;
    return longer != NULL ? FLETCH_OK : fl_fail_nomem(error, 0, "a header");
}

static int take_header(fl_otlp *otlp, const char *key, char *value, fletch_error *error) {
    fl_buf line = {0};
    if (strpbrk(key, ": \t\r\n") != NULL || strpbrk(value, "\r\n") != NULL) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "OTEL_EXPORTER_OTLP_HEADERS: '%.64s' cannot be a header", key);
    }
    fl_buf_printf(&line, "%s: %s", key, value);
    int status =
        line.failed ? fl_fail_nomem(error, 0, "a header") : add_header(otlp, line.data, error);
    fl_buf_free(&line);
    return status;
}

/* What a resource has whatever the environment says. */
enum { SERVICE_NAME, SERVICE_VERSION, SERVICE_INSTANCE, SERVICE_KEYS };
static const char *const service_keys[SERVICE_KEYS] = {"service.name", "service.version",
                                                       "service.instance.id"};

/* An option that was set wins over an attribute, which wins over what we would say. */
static int take_attribute(fl_otlp *otlp, const char *key, char *value, fletch_error *error) {
    (void)error;
    const char *origin = "";
    (void)fletch_config_get(otlp->server->config, "server.otlp_service", &origin);
    bool given = false;
    for (size_t i = 0; i < SERVICE_KEYS; i++) {
        if (strcmp(key, service_keys[i]) == 0) {
            given = otlp->given[i] || (i == SERVICE_NAME && strcmp(origin, "default") != 0);
            otlp->given[i] |= !given;
        }
    }
    fl_utf8_make_printable(value);
    if (!given)
        fl_otlp_put_text(&otlp->resource, RESOURCE_TEXT, key, value);
    return FLETCH_OK;
}

static int make_resource(fl_otlp *otlp, fletch_error *error) {
    char    instance[33];
    fl_buf *out = &otlp->resource;
    fl_random_hex(instance, 32);
    const char *const ours[SERVICE_KEYS] = {
        [SERVICE_NAME]     = fl_server_option(otlp->server, "server.otlp_service"),
        [SERVICE_VERSION]  = fletch_version(),
        [SERVICE_INSTANCE] = instance};
    FL_TRY(read_pairs(otlp, "OTEL_RESOURCE_ATTRIBUTES", take_attribute, error));
    for (size_t i = 0; i < SERVICE_KEYS; i++)
        if (!otlp->given[i])
            fl_otlp_put_text(out, RESOURCE_TEXT, service_keys[i], ours[i]);
    return out->failed ? fl_fail_nomem(error, 0, "the resource") : FLETCH_OK;
}

/* The share of traces that begin here: the option, else as the environment says. */
static int read_sampler(fl_otlp *otlp, fletch_error *error) {
    static const char prefix[] = "parentbased_";
    const char       *origin = "", *sampler = variable("OTEL_TRACES_SAMPLER");
    const char       *arg  = fletch_config_get(otlp->server->config, "server.otlp_sample", &origin);
    double            part = 1;
    bool              ours = sampler[0] == '\0' || strcmp(origin, "default") != 0;
    otlp->obeys_parent     = ours || strncmp(sampler, prefix, sizeof prefix - 1) == 0;
    const char *kind       = sampler + (otlp->obeys_parent && !ours ? sizeof prefix - 1 : 0);
    if (!ours && strcmp(kind, "always_off") == 0) {
        part = 0;
    } else if (!ours && strcmp(kind, "traceidratio") == 0) {
        arg = variable("OTEL_TRACES_SAMPLER_ARG");
        arg = arg[0] != '\0' ? arg : "1";
    } else if (!ours && strcmp(kind, "always_on") != 0) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "OTEL_TRACES_SAMPLER: '%.64s' is not always_on, always_off, traceidratio or "
                       "one of these after parentbased_; server.otlp_sample says it, too",
                       sampler);
    }
    if ((ours || strcmp(kind, "traceidratio") == 0) &&
        (!fl_parse_f64(arg, &part) || !(part >= 0 && part <= 1))) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "OTEL_TRACES_SAMPLER_ARG: '%.64s' is not a number from 0 to 1", arg);
    }
    otlp->share = (uint64_t)(part * 0x1p56);
    if (says("OTEL_TRACES_EXPORTER", "none")) {
        otlp->share        = 0;
        otlp->obeys_parent = false;
    }
    return FLETCH_OK;
}

static int make_urls(fl_otlp *otlp, const char *endpoint, fletch_error *error) {
    size_t size = strlen(endpoint), scheme = strcspn(endpoint, ":");
    bool   http =
        strncasecmp(endpoint, "http://", 7) == 0 || strncasecmp(endpoint, "https://", 8) == 0;
    if (!http || endpoint[scheme + 3] == '\0' || strpbrk(endpoint, "@?# \t\r\n") != NULL) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "server.otlp_endpoint: '%.200s' is not like http://collector:4318; put "
                       "credentials into OTEL_EXPORTER_OTLP_HEADERS",
                       strchr(endpoint, '@') == NULL ? endpoint : "…@…");
    }
    size -= endpoint[size - 1] == '/';
    otlp->spans_out.name   = "spans";
    otlp->metrics_out.name = "metrics";
    fl_buf_printf(&otlp->spans_out.url, "%.*s/v1/traces", (int)size, endpoint);
    fl_buf_printf(&otlp->metrics_out.url, "%.*s/v1/metrics", (int)size, endpoint);
    return otlp->spans_out.url.failed || otlp->metrics_out.url.failed
               ? fl_fail_nomem(error, size, "an address")
               : FLETCH_OK;
}

/* ---- Sampling --------------------------------------------------------------------------------------- */

bool fl_otlp_may_begin(const fl_otlp *otlp) {
    return otlp->share > 0;
}

bool fl_otlp_samples(const fl_otlp *otlp, bool has_parent, bool parent_sampled,
                     const char *trace_id) {
    if (has_parent && otlp->obeys_parent)
        return parent_sampled;
    return strtoull(trace_id + 18, NULL, 16) < otlp->share; /* its last 56 bits are random */
}

/* ---- Spans -------------------------------------------------------------------------------------------- */

fl_otlp_span *fl_otlp_take(fl_otlp *otlp) {
    lock(otlp);
    fl_otlp_span *span = otlp->idle;
    otlp->idle         = span != NULL ? span->next : NULL;
    unlock(otlp);
    if (span == NULL) {
        (void)atomic_fetch_add(&otlp->dropped, 1);
        return NULL;
    }
    memset(span, 0, sizeof *span);
    return span;
}

void fl_otlp_give(fl_otlp *otlp, fl_otlp_span *span, bool wanted) {
    lock(otlp);
    if (wanted) {
        *otlp->last = span;
        otlp->last  = &span->next;
        if (++otlp->waiting == SPANS_AT_ONCE)
            pthread_cond_signal(&otlp->more);
    } else {
        span->next = otlp->idle;
        otlp->idle = span;
    }
    unlock(otlp);
}

void fl_otlp_counts(const fl_otlp *otlp, uint64_t *exported, uint64_t *dropped) {
    *exported = atomic_load(&otlp->exported);
    *dropped  = atomic_load(&otlp->dropped);
}

/* The first ones that wait, linked; how many. */
FL_REQUIRES(spans_role)
static size_t take_waiting(fl_otlp *otlp, fl_otlp_span **first) {
    fl_otlp_span **end   = &otlp->first;
    size_t         count = 0;
    for (; *end != NULL && count < SPANS_AT_ONCE; count++)
        end = &(*end)->next;
    fl_otlp_span *rest = *end;
    *end               = NULL;
    *first             = otlp->first;
    otlp->first        = rest;
    otlp->last         = rest != NULL ? otlp->last : &otlp->first;
    otlp->waiting -= count;
    return count;
}

static void give_back(fl_otlp *otlp, fl_otlp_span *first) {
    for (fl_otlp_span *span = first, *next; span != NULL; span = next) {
        next = span->next;
        fl_otlp_give(otlp, span, false);
    }
}

/* ---- Sending ------------------------------------------------------------------------------------------ */

typedef struct sent {
    bool     taken, again; /* it has it; it may take it later */
    unsigned after_s;      /* and not before; 0: it did not say */
    uint64_t refused;      /* of what it has, so much it did not want */
    char     why[CURL_ERROR_SIZE];
} sent;

static size_t on_answer(char *data, size_t one, size_t size, void *user) {
    fl_buf *answer = user;
    size_t  room   = answer->size < ANSWER_BYTES ? ANSWER_BYTES - answer->size : 0;
    fl_buf_append(answer, data, size < room ? size : room);
    return one * size;
}

static bool is_over(const fl_otlp *otlp) {
    uint64_t end = atomic_load(&otlp->end_ns);
    return end != 0 && fl_clock_ns() >= end;
}

static int on_progress(void *user, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up) {
    (void)down_total, (void)down, (void)up_total, (void)up;
    return is_over(user);
}

/* Of ExportTraceServiceResponse and its like: partial_success.rejected_…. */
static uint64_t refused_of(const fl_buf *answer) {
    fl_proto_span  in = fl_proto_of((const unsigned char *)answer->data, answer->size);
    fl_proto_field field;
    while (fl_proto_next(&in, &field) == 1) {
        if (field.number == 1 && field.wire == 2) {
            fl_proto_span partial = field.body;
            while (fl_proto_next(&partial, &field) == 1)
                if (field.number == 1 && field.wire == 0)
                    return field.value;
        }
    }
    return 0;
}

/* Send otlp->message once. */
static sent send_once(fl_otlp *otlp, const char *url) {
    char              gzip[] = "Content-Encoding: gzip";
    struct curl_slist packed = {gzip, otlp->headers};
    CURL             *curl   = otlp->curl;
    sent              result = {.again = true};
    long              status = 0;
    curl_off_t        after  = 0;
    const fl_buf     *body   = otlp->packed.size > 0 ? &otlp->packed : &otlp->message;
    fl_buf_clear(&otlp->answer);
    fl_curl.easy_setopt(curl, CURLOPT_URL, url);
    fl_curl.easy_setopt(curl, CURLOPT_POSTFIELDS, body->data);
    fl_curl.easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    fl_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, body == &otlp->packed ? &packed : otlp->headers);
    fl_curl.easy_setopt(curl, CURLOPT_ERRORBUFFER, result.why);
    CURLcode code = fl_curl.easy_perform(curl);
    fl_curl.easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    fl_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    if (code != CURLE_OK) {
        if (result.why[0] == '\0')
            (void)snprintf(result.why, sizeof result.why, "%s", fl_curl.easy_strerror(code));
        return result;
    }
    fl_curl.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    fl_curl.easy_getinfo(curl, CURLINFO_RETRY_AFTER, &after);
    result.taken   = status / 100 == 2;
    result.again   = status == 429 || status == 502 || status == 503 || status == 504;
    result.after_s = (unsigned)(after < PAUSE_MAX_S ? after : PAUSE_MAX_S);
    result.refused = result.taken ? refused_of(&otlp->answer) : 0;
    (void)snprintf(result.why, sizeof result.why, "it answers %ld", status);
    return result;
}

/* False: the server ends. */
static bool pause_before(fl_otlp *otlp, unsigned tries, unsigned after_s) {
    unsigned char random   = 0;
    uint64_t      pause_ms = after_s > 0 ? after_s * 1000u : 1000u << (tries - 1);
    (void)fl_os_random(&random, sizeof random);
    pause_ms += pause_ms * random / 1024; /* so that many servers do not come back at once */
    uint64_t until = fl_clock_ns() + pause_ms * millisecond;
    lock(otlp);
    while (atomic_load(&otlp->end_ns) == 0 && fl_clock_ns() < until)
        fl_cond_wait_until(&otlp->more, &otlp->lock, until);
    unlock(otlp);
    return atomic_load(&otlp->end_ns) == 0;
}

static void tell(fl_otlp *otlp, channel *out, const sent *result) {
    fl_server_log *log = otlp->server->log;
    if (!result->taken && !out->failing) {
        fl_server_log_line(
            log, FL_LEVEL_WARNING,
            "the collector rejects %s at %s: %s; they are dropped until it accepts them", out->name,
            out->url.data, result->why);
    } else if (result->taken && out->failing) {
        fl_server_log_line(log, FL_LEVEL_INFO, "the collector accepts %s again at %s", out->name,
                           out->url.data);
    }
    out->failing = !result->taken;
}

/* Send otlp->message, now or soon; how many of its items the collector did not want, UINT64_MAX: all. */
static uint64_t deliver(fl_otlp *otlp, channel *out) {
    const char *url = out->url.data;
    fl_buf_clear(&otlp->packed);
    if (otlp->message.failed)
        return UINT64_MAX;
    if (!fl_gzip_pack(NULL, otlp->message.data, otlp->message.size, &otlp->packed))
        fl_buf_clear(&otlp->packed);
    sent result = send_once(otlp, url);
    bool going  = true; /* when the server ends while this waits, it tries a last time */
    for (unsigned tries = 1; going && result.again && tries < TRIES_MAX && !is_over(otlp);
         tries++) {
        going  = pause_before(otlp, tries, result.after_s);
        result = send_once(otlp, url);
    }
    tell(otlp, out, &result);
    return result.taken ? result.refused : UINT64_MAX;
}

static uint64_t unix_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Writes the spans, gives them back, then sends. */
static void send_spans(fl_otlp *otlp, fl_otlp_span *first, uint64_t count) {
    fl_buf_clear(&otlp->message);
    fl_otlp_write_spans(&otlp->message, &otlp->resource, first, unix_ns() - fl_clock_ns());
    give_back(otlp, first);
    uint64_t refused = deliver(otlp, &otlp->spans_out);
    refused          = refused < count ? refused : count;
    (void)atomic_fetch_add(&otlp->exported, count - refused);
    (void)atomic_fetch_add(&otlp->dropped, refused);
    if (!otlp->spans_out.failing && !otlp->told && atomic_load(&otlp->dropped) > 0) {
        otlp->told = true;
        fl_server_log_line(otlp->server->log, FL_LEVEL_WARNING,
                           "spans are dropped because the collector at %s is slow or rejects them; "
                           "see the metric otlp_dropped_spans_total",
                           otlp->spans_out.url.data);
    }
}

static void send_metrics(fl_otlp *otlp) {
    fl_server *server = otlp->server;
    fl_buf     text   = {0};
    fl_buf_clear(&otlp->message);
    fl_metrics_write(server, &text, true);
    if (!text.failed) {
        fl_otlp_write_metrics(&otlp->message, &otlp->resource, text.data,
                              fl_server_option(server, "server.metrics_prefix"),
                              server->start_time * 1000000000u, unix_ns());
        (void)deliver(otlp, &otlp->metrics_out);
    }
    fl_buf_free(&text);
}

static void *export(void *arg) {
    fl_otlp *otlp = arg;
    uint64_t now = fl_clock_ns(), metrics = now + otlp->interval_ns;
    bool     ending = false;
    while (!ending) {
        uint64_t      spans = now + SPANS_MS * millisecond;
        uint64_t      until = spans < metrics ? spans : metrics;
        fl_otlp_span *first;
        lock(otlp);
        while (atomic_load(&otlp->end_ns) == 0 && otlp->waiting < SPANS_AT_ONCE &&
               fl_clock_ns() < until)
            fl_cond_wait_until(&otlp->more, &otlp->lock, until);
        uint64_t count = take_waiting(otlp, &first);
        ending         = atomic_load(&otlp->end_ns) != 0 && otlp->waiting == 0;
        unlock(otlp);
        if (count > 0)
            send_spans(otlp, first, count);
        now = fl_clock_ns();
        if (ending || now >= metrics) {
            /* before that, what they count is still being made */
            const bool made = atomic_load(&otlp->server->state) >= FL_READY;
            if (otlp->metered && made && !is_over(otlp))
                send_metrics(otlp);
            metrics = now + otlp->interval_ns;
        }
    }
    return NULL;
}

/* ---- Open and close ----------------------------------------------------------------------------------- */

static int make_handle(fl_otlp *otlp, fletch_error *error) {
    FL_TRY(fl_curl_open("server.otlp_endpoint needs", "", error));
    CURL *curl = otlp->curl = fl_curl_make();
    if (curl == NULL)
        return fl_fail_nomem(error, 0, "libcurl");
    fl_curl.easy_setopt(curl, CURLOPT_POST, 1L);
    fl_curl.easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
    fl_curl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    fl_curl.easy_setopt(curl, CURLOPT_WRITEDATA, &otlp->answer);
    fl_curl.easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    fl_curl.easy_setopt(curl, CURLOPT_XFERINFODATA, otlp);
    fl_curl.easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    FL_TRY(add_header(otlp, "Content-Type: application/x-protobuf", error));
    FL_TRY(add_header(otlp, "Expect:", error)); /* do not ask before each message */
    return read_pairs(otlp, "OTEL_EXPORTER_OTLP_HEADERS", take_header, error);
}

/* Nobody else has the exporter yet. */
FL_UNCHECKED static int make_spans(fl_otlp *otlp, fletch_error *error) {
    otlp->last  = &otlp->first;
    otlp->spans = fl_alloc_zero(FL_SPANS_MAX, sizeof *otlp->spans);
    if (otlp->spans == NULL)
        return fl_fail_nomem(error, FL_SPANS_MAX * sizeof *otlp->spans, "spans");
    for (size_t i = 0; i < FL_SPANS_MAX; i++)
        otlp->spans[i].next = i + 1 < FL_SPANS_MAX ? &otlp->spans[i + 1] : NULL;
    otlp->idle = otlp->spans;
    return FLETCH_OK;
}

static int prepare(fl_otlp *otlp, const char *endpoint, fletch_error *error) {
    otlp->interval_ns = fl_server_number(otlp->server, "server.otlp_interval_ms", 0) * millisecond;
    otlp->metered     = !says("OTEL_METRICS_EXPORTER", "none");
    FL_TRY(make_urls(otlp, endpoint, error));
    FL_TRY(read_sampler(otlp, error));
    FL_TRY(make_handle(otlp, error));
    FL_TRY(make_resource(otlp, error));
    return make_spans(otlp, error);
}

int fl_otlp_open(fl_otlp **out, fl_server *server, fletch_error *error) {
    const char *endpoint = fl_server_option(server, "server.otlp_endpoint");
    *out                 = NULL;
    if (endpoint[0] == '\0' || strcmp(endpoint, "none") == 0 || says("OTEL_SDK_DISABLED", "true"))
        return FLETCH_OK;
    fl_otlp *otlp = fl_alloc_zero(1, sizeof *otlp);
    if (otlp == NULL)
        return fl_fail_nomem(error, sizeof *otlp, "the exporter");
    otlp->server = server;
    pthread_mutex_init(&otlp->lock, NULL);
    fl_cond_init(&otlp->more);
    *out       = otlp; /* before the thread, whose metrics look for it */
    int status = prepare(otlp, endpoint, error);
    if (status == FLETCH_OK) {
        status        = fl_thread_start(&otlp->thread, "otlp", export, otlp, error);
        otlp->running = status == FLETCH_OK;
    }
    if (status < 0) {
        *out = NULL;
        fl_otlp_close(otlp, false);
    }
    return status;
}

void fl_otlp_close(fl_otlp *otlp, bool flush) {
    if (otlp == NULL)
        return;
    if (otlp->running) {
        lock(otlp);
        atomic_store(&otlp->end_ns, fl_clock_ns() + (flush ? FLUSH_MS * millisecond : 0));
        pthread_cond_signal(&otlp->more);
        unlock(otlp);
        pthread_join(otlp->thread, NULL);
    }
    if (otlp->curl != NULL)
        fl_curl.slist_free_all(otlp->headers);
    fl_curl_free(otlp->curl);
    fl_buf_free(&otlp->spans_out.url);
    fl_buf_free(&otlp->metrics_out.url);
    fl_buf_free(&otlp->resource);
    fl_buf_free(&otlp->message);
    fl_buf_free(&otlp->packed);
    fl_buf_free(&otlp->answer);
    fl_free(otlp->spans);
    pthread_mutex_destroy(&otlp->lock);
    pthread_cond_destroy(&otlp->more);
    fl_free(otlp);
}
