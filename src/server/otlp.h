/* SPDX-License-Identifier: Apache-2.0 */
/* otlp.h - spans and metrics for a collector of OpenTelemetry, over HTTP (OTLP, protobuf).
 *
 * Role    trace_context.c decides by a request's head whether it is traced and takes a span for it; http_request.c and
 *         connection.c fill it; otlp.c keeps the spans and sends them; otlp_spans.c and otlp_metrics.c write the
 *         messages. Where no collector is named there is no fl_otlp, and a request that is not traced has no
 *         span: one comparison each.
 * Memory  Spans are made once (FL_SPANS_MAX) and lent: a collector that is slow or dead costs spans, which are
 *         counted, never memory.
 * Threads A span belongs to its request, then to the exporter's thread. Every function but open and close: any.
 * Proof   tests/server/test_otlp.py. */
#ifndef FL_SERVER_OTLP_H
#define FL_SERVER_OTLP_H

#include "server/server_internal.h"

typedef struct fl_otlp fl_otlp;

enum { FL_SPANS_MAX = 2048, FL_STAGES_MAX = 4, FL_TRACE_STATE_MAX = 512 };

/* One submission of a request to the library, as its outcome tells it. */
typedef struct fl_stages {
    char     model[96];
    uint64_t begin_ns, end_ns;                  /* submitted, done */
    uint64_t tokenize_ns, queue_ns, forward_ns; /* fletch_outcome */
    uint64_t texts, tokens;
    int      status; /* FLETCH_OK, or what went wrong */
    bool     embeds; /* it gives vectors, not scores */
} fl_stages;

struct fl_otlp_span {
    fl_otlp_span   *next;
    char            trace_id[33], span_id[17];
    char            parent_id[17]; /* "": the trace begins here */
    char            state[FL_TRACE_STATE_MAX + 1];
    const fl_route *route; /* NULL: none took it */
    char            method[8];
    char            path[256]; /* printable, cut */
    int             http_status;
    uint64_t        begin_ns, end_ns, bytes_in, bytes_out;
    size_t          stage_count;
    fl_stages       stages[FL_STAGES_MAX]; /* of more submissions the first ones */
};

/* ---- otlp.c ---- */

/* By the options server.otlp_* and the OTEL_* variables; *out is NULL where nothing is to be exported. */
int fl_otlp_open(fl_otlp **out, fl_server *server, fletch_error *error);
/* With `flush` what waits is sent, for two seconds at most. NULL is a no-op. */
void fl_otlp_close(fl_otlp *otlp, bool flush);

/* Whether requests without a parent are ever traced; whether this one is. */
bool fl_otlp_may_begin(const fl_otlp *otlp);
bool fl_otlp_samples(const fl_otlp *otlp, bool has_parent, bool parent_sampled,
                     const char *trace_id);

/* A span, zeroed but for its text; NULL, and one more is dropped, when too many wait. */
fl_otlp_span *fl_otlp_take(fl_otlp *otlp);
/* It is filled: export it, or forget it. */
void fl_otlp_give(fl_otlp *otlp, fl_otlp_span *span, bool wanted);

/* Spans that a collector took, and those that none will. */
void fl_otlp_counts(const fl_otlp *otlp, uint64_t *exported, uint64_t *dropped);

/* ---- otlp_spans.c ---- */

/* What is known when the library, and when the server, is done with a request. */
void fl_otlp_stages(fl_otlp_span *span, const fl_served *served, uint64_t texts,
                    const fletch_outcome *outcome);
void fl_otlp_end(fl_otlp_span *span, const fl_http_request *request, int status);

/* A KeyValue as field `field`. */
void fl_otlp_put_text(fl_buf *out, uint32_t field, const char *key, const char *value);
void fl_otlp_put_id(fl_buf *out, uint32_t field, const char *hex); /* 16 or 32 digits, as bytes */

/* What spans and metrics stand in: `resource` is a Resource, and field 2 of what is open then is one of them. */
typedef struct fl_otlp_scope {
    size_t of_resource, of_scope;
} fl_otlp_scope;
fl_otlp_scope fl_otlp_begin_scope(fl_buf *out, const fl_buf *resource);
void          fl_otlp_end_scope(fl_buf *out, fl_otlp_scope opened);

/* The message for /v1/traces. `to_unix_ns` makes Unix time of fl_clock_ns. */
void fl_otlp_write_spans(fl_buf *out, const fl_buf *resource, const fl_otlp_span *first,
                         uint64_t to_unix_ns);

/* ---- otlp_metrics.c ---- */

/* The message for /v1/metrics. `text` is what fl_metrics_write gives as OpenMetrics, under names with `prefix`; it is
 * cut up. */
void fl_otlp_write_metrics(fl_buf *out, const fl_buf *resource, char *text, const char *prefix,
                           uint64_t start_ns, uint64_t now_ns);

#endif
