/* SPDX-License-Identifier: Apache-2.0 */
/* otlp_metrics.c - what /metrics says, as OpenTelemetry's metrics.
 *
 * Role    See otlp.h. docs/metrics.md has the names.
 * In/Out  The text of /metrics as OpenMetrics; ExportMetricsServiceRequest.
 * Method  The text is the one description of every number, exemplars included, so that both ways tell the same, and
 *         what /metrics learns is exported without a word here. It is our own: a line that is not understood is
 *         passed over. Numbers that the semantic conventions know have their name and labels; the others keep
 *         those of /metrics. All are cumulative since the server's start.
 * Memory  The caller's buffer, and one for the exemplars of a histogram. Threads: any.
 * Proof   tests/server/test_otlp.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/os.h"
#include "base/proto_w.h"
#include "server/otlp.h"

enum { BUCKETS_MAX = 128, LABELS_MAX = 8 };

/* Fields of opentelemetry/proto/metrics/v1/metrics.proto. */
enum { SCOPE_METRICS = 2 };
enum {
    METRIC_NAME = 1,
    METRIC_TEXT,
    METRIC_UNIT,
    METRIC_GAUGE     = 5,
    METRIC_SUM       = 7,
    METRIC_HISTOGRAM = 9
};
enum { DATA_POINT = 1, DATA_TEMPORALITY, DATA_MONOTONIC, CUMULATIVE = 2 };
enum { POINT_START = 2, POINT_TIME, POINT_VALUE, POINT_ATTRIBUTE = 7 };
enum {
    SPREAD_COUNT = 4,
    SPREAD_SUM,
    SPREAD_BUCKETS,
    SPREAD_BOUNDS,
    SPREAD_EXEMPLAR,
    SPREAD_ATTRIBUTE
};
enum { EXEMPLAR_TIME = 2, EXEMPLAR_VALUE, EXEMPLAR_SPAN, EXEMPLAR_TRACE };

/* Families that the semantic conventions know. `sum`: what /metrics calls a gauge is there a sum that may fall. */
typedef struct known {
    const char *name, *called, *unit;
    bool        prefixed, sum;
    const char *labels[3][2];
} known;

static const known knowns[] = {
    {"request_duration_seconds",
     "http.server.request.duration",
     "s",
     true,
     false,
     {{"url.scheme", "http"}}},
    {"embedding_seconds",
     "gen_ai.server.request.duration",
     "s",
     true,
     false,
     {{"gen_ai.operation.name", "embeddings"}, {"gen_ai.provider.name", "fletch"}}},
    {"process_cpu_seconds", "process.cpu.time", "s", false, false, {{NULL}}},
    {"process_resident_memory_bytes", "process.memory.usage", "By", false, true, {{NULL}}},
    {"process_open_fds",
     "process.unix.file_descriptor.count",
     "{file_descriptor}",
     false,
     true,
     {{NULL}}},
};

typedef struct labels {
    size_t count;
    struct {
        char *name, *value;
    } of[LABELS_MAX];
} labels;

typedef struct reader {
    fl_buf      *out;
    const char  *prefix;
    uint64_t     start_ns, now_ns;
    char        *family, *type, *help; /* of the lines that follow */
    const known *known;
    bool         open; /* its metric has begun */
    size_t       metric, data;
    /* of a histogram that is being read */
    size_t   buckets;
    double   bounds[BUCKETS_MAX];
    uint64_t counts[BUCKETS_MAX], below, count;
    double   sum;
    fl_buf   exemplars;
} reader;

/* ---- Metrics and their points ----------------------------------------------------------------------- */

static const known *find_known(const reader *r) {
    size_t prefix = strlen(r->prefix);
    for (size_t i = 0; i < sizeof knowns / sizeof knowns[0]; i++) {
        const known *k  = &knowns[i];
        bool         ok = !k->prefixed ||
                  (strncmp(r->family, r->prefix, prefix) == 0 && r->family[prefix] == '_');
        if (ok && strcmp(k->prefixed ? r->family + prefix + 1 : r->family, k->name) == 0)
            return k;
    }
    return NULL;
}

static const char *unit_of(const char *family) {
    return fl_path_ends_with(family, "_seconds") ? "s"
           : fl_path_ends_with(family, "_bytes") ? "By"
           : fl_path_ends_with(family, "_ratio") ? "1"
                                                 : "";
}

static uint32_t data_of(const reader *r) {
    bool sum = strcmp(r->type, "counter") == 0 || (r->known != NULL && r->known->sum);
    return sum ? METRIC_SUM : strcmp(r->type, "histogram") == 0 ? METRIC_HISTOGRAM : METRIC_GAUGE;
}

/* At the first line of a family: one without lines is no metric. */
static void open_metric(reader *r) {
    if (r->open)
        return;
    r->open   = true;
    r->known  = find_known(r);
    r->metric = fl_proto_w_begin(r->out, SCOPE_METRICS);
    fl_proto_w_text(r->out, METRIC_NAME, r->known != NULL ? r->known->called : r->family);
    fl_proto_w_text(r->out, METRIC_TEXT, r->help);
    fl_proto_w_text(r->out, METRIC_UNIT, r->known != NULL ? r->known->unit : unit_of(r->family));
    r->data = fl_proto_w_begin(r->out, data_of(r));
}

static void close_metric(reader *r) {
    if (!r->open)
        return;
    r->open = false;
    if (data_of(r) != METRIC_GAUGE)
        fl_proto_w_number(r->out, DATA_TEMPORALITY, CUMULATIVE);
    if (strcmp(r->type, "counter") == 0)
        fl_proto_w_number(r->out, DATA_MONOTONIC, 1);
    fl_proto_w_end(r->out, r->data);
    fl_proto_w_end(r->out, r->metric);
}

static void put_labels(const reader *r, uint32_t field, const labels *l) {
    bool http = r->known != NULL && strncmp(r->known->called, "http.", 5) == 0;
    for (size_t i = 0; i < l->count; i++) {
        const char *name = l->of[i].name, *value = l->of[i].value;
        if (strcmp(name, "le") == 0 || (http && strcmp(value, "unmatched") == 0))
            continue;
        if (http) {
            name  = strcmp(name, "route") == 0 ? "http.route" : "http.request.method";
            value = value[0] != '\0' ? value : "_OTHER";
        }
        fl_otlp_put_text(r->out, field, name, value);
    }
    for (size_t i = 0; r->known != NULL && r->known->labels[i][0] != NULL; i++)
        fl_otlp_put_text(r->out, field, r->known->labels[i][0], r->known->labels[i][1]);
}

static size_t begin_point(const reader *r, uint32_t attribute, const labels *l) {
    size_t point = fl_proto_w_begin(r->out, DATA_POINT);
    put_labels(r, attribute, l);
    fl_proto_w_fixed64(r->out, POINT_START, r->start_ns);
    fl_proto_w_fixed64(r->out, POINT_TIME, r->now_ns);
    return point;
}

static void put_number(reader *r, const labels *l, double value) {
    open_metric(r);
    size_t point = begin_point(r, POINT_ATTRIBUTE, l);
    fl_proto_w_double(r->out, POINT_VALUE, value);
    fl_proto_w_end(r->out, point);
}

/* The line of its count is a histogram's last. */
static void put_histogram(reader *r, const labels *l) {
    open_metric(r);
    size_t point = begin_point(r, SPREAD_ATTRIBUTE, l);
    fl_proto_w_fixed64(r->out, SPREAD_COUNT, r->count);
    fl_proto_w_double(r->out, SPREAD_SUM, r->sum);
    size_t counts = fl_proto_w_begin(r->out, SPREAD_BUCKETS);
    for (size_t i = 0; i < r->buckets; i++)
        fl_proto_w_put_u64(r->out, r->counts[i]);
    fl_proto_w_end(r->out, counts);
    size_t bounds = fl_proto_w_begin(r->out, SPREAD_BOUNDS);
    for (size_t i = 0; i + 1 < r->buckets; i++) /* the last one has none */
        fl_proto_w_put_double(r->out, r->bounds[i]);
    fl_proto_w_end(r->out, bounds);
    fl_buf_append(r->out, r->exemplars.data, r->exemplars.size);
    r->out->failed |= r->exemplars.failed;
    fl_proto_w_end(r->out, point);
    fl_buf_clear(&r->exemplars);
    r->buckets = 0;
    r->below   = 0;
}

/* ---- Lines ------------------------------------------------------------------------------------------ */

/* {a="b",c="d"} at *at, which is cut up in place; *at is what follows. False: it is nothing like that. */
static bool read_labels(char **at, labels *out) {
    out->count = 0;
    if (**at != '{')
        return true;
    char *in = *at + 1;
    while (*in != '}' && out->count < LABELS_MAX) {
        char *name = in, *equals = strstr(in, "=\"");
        if (equals == NULL)
            return false;
        *equals     = '\0';
        char *value = equals + 2, *to = value;
        for (in = value; *in != '"'; in++) {
            bool escaped = *in == '\\';
            in += escaped;
            if (*in == '\0')
                return false;
            *to++ = escaped && *in == 'n' ? '\n' : *in;
        }
        in++; /* behind the quote, which `to` may be at */
        *to                         = '\0';
        out->of[out->count].name    = name;
        out->of[out->count++].value = value;
        in += *in == ',';
    }
    *at = in + 1;
    return *in == '}';
}

static const char *label_of(const labels *l, const char *name) {
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->of[i].name, name) == 0)
            return l->of[i].value;
    return "";
}

/* " # {trace_id="…",span_id="…"} 0.1 1700000000.123" */
static void read_exemplar(reader *r, char *at) {
    labels ids;
    if (strncmp(at, " # ", 3) != 0 || (at += 3, !read_labels(&at, &ids)) || ids.count != 2)
        return;
    char  *rest;
    double value = strtod(at, &rest), seconds = strtod(rest, NULL);
    size_t exemplar = fl_proto_w_begin(&r->exemplars, SPREAD_EXEMPLAR);
    fl_proto_w_fixed64(&r->exemplars, EXEMPLAR_TIME, (uint64_t)(seconds * 1e3) * 1000000u);
    fl_proto_w_double(&r->exemplars, EXEMPLAR_VALUE, value);
    fl_otlp_put_id(&r->exemplars, EXEMPLAR_SPAN, label_of(&ids, "span_id"));
    fl_otlp_put_id(&r->exemplars, EXEMPLAR_TRACE, label_of(&ids, "trace_id"));
    fl_proto_w_end(&r->exemplars, exemplar);
}

static void read_sample(reader *r, char *line) {
    char  *at   = line + strcspn(line, "{ ");
    size_t size = (size_t)(at - line);
    labels l;
    if (r->type == NULL || !read_labels(&at, &l) || *at != ' ')
        return;
    line[size] = '\0';
    char  *rest;
    double value = strtod(at + 1, &rest);
    if (strcmp(r->type, "histogram") != 0) {
        put_number(r, &l, value);
    } else if (fl_path_ends_with(line, "_bucket") && r->buckets < BUCKETS_MAX) {
        r->bounds[r->buckets]   = strtod(label_of(&l, "le"), NULL);
        r->counts[r->buckets++] = (uint64_t)value - r->below;
        r->below                = (uint64_t)value;
        read_exemplar(r, rest);
    } else if (fl_path_ends_with(line, "_sum")) {
        r->sum = value;
    } else if (fl_path_ends_with(line, "_count")) {
        r->count = (uint64_t)value;
        put_histogram(r, &l);
    }
}

/* "# HELP name text" and "# TYPE name kind". */
static void read_head(reader *r, char *line) {
    char *name = line + 7, *rest = strchr(name, ' ');
    if (strncmp(line, "# HELP ", 7) == 0 && rest != NULL) {
        close_metric(r);
        r->type = NULL;
        r->help = rest + 1;
    } else if (strncmp(line, "# TYPE ", 7) == 0 && rest != NULL) {
        *rest     = '\0';
        r->family = name;
        r->type   = rest + 1;
    }
}

void fl_otlp_write_metrics(fl_buf *out, const fl_buf *resource, char *text, const char *prefix,
                           uint64_t start_ns, uint64_t now_ns) {
    reader        r      = {.out = out, .prefix = prefix, .start_ns = start_ns, .now_ns = now_ns};
    fl_otlp_scope opened = fl_otlp_begin_scope(out, resource);
    char         *rest   = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (line[0] == '#')
            read_head(&r, line);
        else
            read_sample(&r, line);
    close_metric(&r);
    fl_otlp_end_scope(out, opened);
    fl_buf_free(&r.exemplars);
}
