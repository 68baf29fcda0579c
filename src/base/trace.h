/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - spans of time for a Chrome trace (chrome://tracing, Perfetto): who did what, when.
 *
 * Every function takes a trace that may be NULL, which is "off": one branch, no clock is read. When
 * it is on, a span costs two clock reads and one write into a ring of the calling thread; the rings
 * are written as JSON when the trace is stopped or closed, and nothing is formatted before. A ring
 * that is full drops the oldest spans and the file says how many.
 *
 *     uint64_t begin = fl_trace_begin(trace);
 *     ... work ...
 *     fl_trace_end(trace, "tokenise", begin, "texts", count);
 *
 * Names are static strings: only the pointer is kept.
 * Memory  One ring per thread that traced, made at its first span, freed by close.
 * Threads Any thread may trace, start and stop at any time; open and close belong to one thread, after
 *         the others.
 * Proof   tests/unit/test_base_trace.c; tests/cli (the file opens as JSON and names every phase). */
#ifndef FL_BASE_TRACE_H
#define FL_BASE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "fletch.h"

typedef struct fl_trace fl_trace;

/* Trace to `path`, created now so that a wrong path fails at once; on from now, or once started. */
int fl_trace_open(fl_trace **out, const char *path, bool on, fletch_error *error);
/* Begin with an empty trace; EBUSY when it is on. */
int fl_trace_start(fl_trace *trace, fletch_error *error);
/* Write the file, over the one of the time before; EINVAL when it is off. */
int fl_trace_stop(fl_trace *trace, fletch_error *error);
/* Stop when it is on, and free. NULL is a no-op. Not OK when the file could not be written. */
int  fl_trace_close(fl_trace *trace, fletch_error *error);
bool fl_trace_is_on(const fl_trace *trace);

/* Name the calling thread in the trace ("engine cpu 0", "feeder"); copied. */
void fl_trace_thread(fl_trace *trace, const char *name);

/* A span of the calling thread, with one number if `argument` is not NULL; or on the named track (static string)
 * instead of a thread: time in the queue, a copy on a device. */
void fl_trace_span(fl_trace *trace, const char *track, const char *name, uint64_t begin_ns,
                   uint64_t end_ns, const char *argument, int64_t value);

/* 0 says "off": what began so is no span. */
static inline uint64_t fl_trace_begin(const fl_trace *trace) {
    return trace && fl_trace_is_on(trace) ? fl_clock_ns() : 0;
}

static inline void fl_trace_end(fl_trace *trace, const char *name, uint64_t begin_ns,
                                const char *argument, int64_t value) {
    if (begin_ns != 0)
        fl_trace_span(trace, NULL, name, begin_ns, fl_clock_ns(), argument, value);
}

#endif
