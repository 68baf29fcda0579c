/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_trace.c - what must never break: off does nothing, a wrong path fails at open, the file is
 * whole or absent and always valid JSON, no span is lost silently, spans on one line of the picture do
 * not overlap, and threads may come and go for ever. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/trace.h"

enum { FILE_MAX = 64 << 20 };

static char      folder[64], path[128];
static fl_trace *trace;

/* Every test has a folder of its own, and leaves it empty. */
static void make_folder(void) {
    strcpy(folder, "/tmp/fl-test-trace-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace.json", folder);
}

static void drop_folder(void) {
    (void)unlink(path);
    cr_assert_eq(rmdir(folder), 0, "a temporary file was left behind");
}

static void start(void) {
    fletch_error error;
    make_folder();
    cr_assert_eq(fl_trace_open(&trace, path, true, &error), 0, "%s", error.message);
}

/* Close, and the file as JSON; *events gets its list. */
static fl_json *finish(fl_json **events) {
    fletch_error error;
    fl_json     *json;
    cr_assert_eq(fl_trace_close(trace, &error), 0, "%s", error.message);
    cr_assert_eq(fl_json_read(&json, path, FILE_MAX, &error), 0, "%s", error.message);
    cr_assert(fl_json_find(json, "traceEvents", events));
    drop_folder();
    return json;
}

static const char *text_of(fl_json *event, const char *key) {
    fl_json *value = NULL;
    return fl_json_find(event, key, &value) ? fl_json_text(value) : "";
}

static double number_of(fl_json *event, const char *key) {
    fl_json *value = NULL;
    cr_assert(fl_json_find(event, key, &value), "%s", key);
    return fl_json_f64(value);
}

static int64_t other_data(fl_json *json, const char *key) {
    fl_json *other;
    cr_assert(fl_json_find(json, "otherData", &other));
    return atoll(text_of(other, key));
}

static int64_t dropped(fl_json *json) {
    return other_data(json, "dropped_spans");
}

/* Number of complete events of that name; *first gets the first. */
static size_t count_spans(fl_json *events, const char *name, fl_json **first) {
    size_t count = 0;
    for (size_t i = 0; i < fl_json_count(events); i++) {
        fl_json *event = fl_json_item(events, i);
        if (strcmp(text_of(event, "ph"), "X") == 0 && strcmp(text_of(event, "name"), name) == 0) {
            if (count == 0 && first != NULL)
                *first = event;
            count++;
        }
    }
    return count;
}

/* The metadata event `what` whose args.name is `name`, or NULL. */
static fl_json *find_name(fl_json *events, const char *what, const char *name) {
    for (size_t i = 0; i < fl_json_count(events); i++) {
        fl_json *event = fl_json_item(events, i), *args;
        if (strcmp(text_of(event, "ph"), "M") == 0 && strcmp(text_of(event, "name"), what) == 0 &&
            fl_json_find(event, "args", &args) && strcmp(text_of(args, "name"), name) == 0)
            return event;
    }
    return NULL;
}

Test(trace, off_is_nothing) {
    fletch_error   error;
    const uint64_t before = fl_alloc_count();
    cr_assert_eq(fl_trace_begin(NULL), 0); /* a clock that was read is never 0 */
    fl_trace_end(NULL, "tokenise", 0, NULL, 0);
    fl_trace_span(NULL, NULL, "tokenise", 0, 1, NULL, 0);
    fl_trace_span(NULL, "queue", "wait", 0, 1, NULL, 0);
    fl_trace_thread(NULL, "feeder");
    cr_assert_eq(fl_trace_close(NULL, &error), 0);
    cr_assert_eq(fl_alloc_count(), before);
}

Test(trace, a_wrong_path_fails_at_open) {
    fletch_error error = {0};
    char         wrong[256];
    make_folder();
    snprintf(wrong, sizeof wrong, "%s/no/such/folder/trace.json", folder);
    cr_assert_eq(fl_trace_open(&trace, wrong, true, &error), FLETCH_ENOTFOUND);
    cr_assert_null(trace);
    cr_assert(strstr(error.message, "no/such/folder") != NULL, "%s", error.message);
    cr_assert_eq(fl_trace_open(&trace, folder, true, &error), FLETCH_EINVAL);
    cr_assert_null(trace);
    cr_assert_eq(fl_trace_open(&trace, "", true, &error), FLETCH_EINVAL);
    cr_assert_null(trace);
    drop_folder();
}

Test(trace, the_name_shows_only_a_whole_file) {
    fl_json     *events;
    fletch_error error;
    struct stat  status;
    make_folder();
    for (int round = 0; round < 2; round++) { /* the second over the file of the first */
        cr_assert_eq(fl_trace_open(&trace, path, true, &error), 0, "%s", error.message);
        fl_trace_end(trace, "forward", fl_trace_begin(trace), "texts", round);
        cr_assert_eq(stat(path, &status) == 0, round > 0);
        cr_assert(round == 0 || status.st_size > 100);
        if (round == 0)
            cr_assert_eq(fl_trace_close(trace, &error), 0);
    }
    fl_json_free(finish(&events));
}

Test(trace, a_span_says_when_how_long_and_how_many) {
    fl_json *events, *event, *args;
    start();
    const uint64_t now = fl_clock_ns();
    fl_trace_thread(trace, "feeder");
    fl_trace_span(trace, "queue", "wait", now, now + 1234567, "texts", -42);
    const uint64_t begin = fl_trace_begin(trace);
    fl_trace_end(trace, "tokenise", begin, NULL, 0);
    const uint64_t end  = fl_clock_ns();
    fl_json       *json = finish(&events);

    cr_assert_eq(count_spans(events, "wait", &event), 1);
    cr_assert_float_eq(number_of(event, "dur"), 1234.567, 1e-6);
    cr_assert(fl_json_find(event, "args", &args));
    cr_assert_eq(number_of(args, "texts"), -42);
    cr_assert_eq(number_of(event, "tid"),
                 number_of(find_name(events, "thread_name", "queue"), "tid"));
    const double wait_ts = number_of(event, "ts");

    cr_assert_eq(count_spans(events, "tokenise", &event), 1);
    cr_assert_not(fl_json_find(event, "args", &args));
    cr_assert_float_eq(number_of(event, "ts") - wait_ts, (double)(begin - now) / 1000, 1e-3);
    cr_assert(number_of(event, "dur") >= 0 &&
              number_of(event, "dur") <= (double)(end - begin) / 1000);
    fl_json *thread = find_name(events, "thread_name", "feeder");
    cr_assert_eq(number_of(event, "tid"), number_of(thread, "tid"));
    cr_assert_eq(number_of(event, "pid"), number_of(thread, "pid"));
    cr_assert_not_null(find_name(events, "process_name", "fletch"));
    cr_assert_eq(dropped(json), 0);
    fl_json_free(json);
}

/* A span that began before the trace was opened begins with it; one that ends before it begins is 0. */
Test(trace, times_never_go_backwards) {
    fl_json *events, *event;
    start();
    const uint64_t now = fl_clock_ns();
    fl_trace_span(trace, "queue", "early", 1, now, NULL, 0);
    fl_trace_span(trace, "queue", "odd", now, now - 500, NULL, 0);
    fl_json *json = finish(&events);
    cr_assert_eq(count_spans(events, "early", &event), 1);
    cr_assert_eq(number_of(event, "ts"), 0);
    cr_assert(number_of(event, "dur") < 60e6);
    cr_assert_eq(count_spans(events, "odd", &event), 1);
    cr_assert_eq(number_of(event, "dur"), 0);
    fl_json_free(json);
}

Test(trace, hostile_names_stay_valid_json) {
    fl_json *events, *event;
    char     torn[200];
    memset(torn, 'x', sizeof torn);
    memcpy(torn + 62, "\xe2\x82\xac", 4); /* an euro sign that the copy cuts in half */
    start();
    fl_trace_thread(trace, torn);
    fl_trace_end(trace, "\"},\n{\\\x01\x7f\xff", fl_trace_begin(trace), "a\"b", 1);
    fl_trace_span(trace, "</script>\t\"", "", 1, fl_clock_ns(), "", INT64_MIN);
    fl_json *json = finish(&events);
    cr_assert_eq(count_spans(events, "\"},\n{\\\x01\x7f\xef\xbf\xbd", &event), 1);
    cr_assert_eq(count_spans(events, "", NULL), 1);
    cr_assert_not_null(find_name(events, "thread_name", "</script>\t\""));
    torn[62] = '\0';
    strcat(torn, "\xef\xbf\xbd");
    cr_assert_not_null(find_name(events, "thread_name", torn));
    fl_json_free(json);
}

Test(trace, a_full_ring_drops_the_oldest_and_says_how_many, .timeout = 600) {
    enum { SPANS = 70000 };
    fl_json *events, *event, *args;
    start();
    for (int i = 0; i < SPANS; i++)
        fl_trace_end(trace, "step", fl_trace_begin(trace), "number", i);
    fl_json     *json = finish(&events);
    const size_t kept = count_spans(events, "step", &event);
    cr_assert(kept > 0 && kept < SPANS);
    cr_assert_eq(dropped(json), SPANS - (int64_t)kept);
    cr_assert(fl_json_find(event, "args", &args));
    cr_assert_eq(number_of(args, "number"), (double)(SPANS - kept));
    fl_json_free(json);
}

/* Texts wait side by side: a picture needs a line for each, and none more. */
Test(trace, overlapping_spans_get_lines_of_their_own) {
    enum { TEXTS = 60, LINES = 5 };
    fl_json *events;
    double   until[2 * LINES] = {0};
    size_t   lines            = 0;
    start();
    const uint64_t now = fl_clock_ns();
    for (uint64_t i = TEXTS; i-- > 0;) /* recorded out of order: every 1 ms one of 4.5 ms */
        fl_trace_span(trace, i % 2 ? "queue" : "card 0", "wait", now + i * 500000,
                      now + i * 500000 + 4500000, NULL, 0);
    fl_json *json = finish(&events);
    for (size_t i = 0; i < fl_json_count(events); i++) {
        fl_json *event = fl_json_item(events, i);
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        const size_t tid = (size_t)number_of(event, "tid");
        cr_assert(tid >= 1 && tid <= 2 * LINES);
        lines = tid > lines ? tid : lines;
        cr_assert(number_of(event, "ts") >= until[tid - 1]);
        until[tid - 1] = number_of(event, "ts") + number_of(event, "dur") - 1e-6;
    }
    cr_assert_eq(lines, 2 * LINES);
    cr_assert_eq(count_spans(events, "wait", NULL), TEXTS);
    cr_assert_not_null(find_name(events, "thread_name", "card 0"));
    fl_json_free(json);
}

/* A picture of a thousand lines helps nobody. */
Test(trace, what_overlaps_too_often_is_counted_instead) {
    enum { TEXTS = 1000 };
    fl_json *events;
    start();
    const uint64_t now = fl_clock_ns();
    for (uint64_t i = 0; i < TEXTS; i++)
        fl_trace_span(trace, "queue", "wait", now + i, now + 1000000 + i, NULL, 0);
    fl_json      *json  = finish(&events);
    const int64_t drawn = (int64_t)count_spans(events, "wait", NULL);
    cr_assert(drawn > 0 && drawn < 100);
    cr_assert_eq(drawn + other_data(json, "hidden_spans"), TEXTS);
    cr_assert_eq(dropped(json), 0);
    fl_json_free(json);
}

static void *trace_some(void *arg) {
    if (arg != NULL)
        fl_trace_thread(trace, arg);
    for (int i = 0; i < 50; i++)
        fl_trace_end(trace, "work", fl_trace_begin(trace), "round", i);
    return NULL;
}

Test(trace, threads_that_ended_are_in_the_file) {
    enum { THREADS = 8 };
    fl_json  *events;
    pthread_t thread[THREADS];
    char      name[THREADS][16];
    start();
    for (size_t t = 0; t < THREADS; t++) {
        snprintf(name[t], sizeof name[t], "client %zu", t);
        cr_assert_eq(pthread_create(&thread[t], NULL, trace_some, name[t]), 0);
    }
    trace_some(NULL);
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    fl_json *json = finish(&events);
    cr_assert_eq(count_spans(events, "work", NULL), (THREADS + 1) * 50);
    for (size_t t = 0; t < THREADS; t++)
        cr_assert_not_null(find_name(events, "thread_name", name[t]), "%s", name[t]);
    fl_json_free(json);
}

/* A server that starts a thread for every client must not grow for ever. */
Test(trace, threads_without_end_take_bounded_memory, .timeout = 600) {
    enum { THREADS = 600 };
    fl_json       *events;
    const uint64_t before = fl_alloc_count();
    start();
    for (size_t t = 0; t < THREADS; t++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, trace_some, NULL), 0);
        pthread_join(thread, NULL);
    }
    cr_assert(fl_alloc_count() - before < 300, "%llu allocations",
              (unsigned long long)(fl_alloc_count() - before));
    fl_json *json = finish(&events);
    cr_assert_eq(count_spans(events, "work", NULL), THREADS * 50);
    cr_assert_eq(dropped(json), 0);
    fl_json_free(json);
}

static atomic_bool enough;

static void *trace_until_enough(void *arg) {
    (void)arg;
    while (!atomic_load(&enough))
        fl_trace_end(trace, "work", fl_trace_begin(trace), NULL, 0);
    return NULL;
}

/* Each file holds what came between its start and its stop, while threads trace on. */
Test(trace, starts_and_stops_while_threads_work, .timeout = 600) {
    enum { THREADS = 3, ROUNDS = 5 };
    fletch_error error = {0};
    pthread_t    thread[THREADS];
    fl_json     *events, *json, *event;
    make_folder();
    cr_assert_eq(fl_trace_open(&trace, path, false, &error), 0, "%s", error.message);
    cr_assert_not(fl_file_exists(path));
    cr_assert_eq(fl_trace_stop(trace, &error), FLETCH_EINVAL);
    for (size_t t = 0; t < THREADS; t++)
        cr_assert_eq(pthread_create(&thread[t], NULL, trace_until_enough, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t begin = fl_trace_begin(trace);
        cr_assert_eq(begin, 0, "it is off");
        cr_assert_eq(fl_trace_start(trace, &error), 0, "%s", error.message);
        cr_assert_eq(fl_trace_start(trace, &error), FLETCH_EBUSY);
        fl_trace_end(trace, "before", begin, NULL, 0);
        fl_trace_end(trace, "round", fl_trace_begin(trace), "number", round);
        cr_assert_eq(fl_trace_stop(trace, &error), 0, "%s", error.message);
        cr_assert_eq(fl_json_read(&json, path, FILE_MAX, &error), 0, "%s", error.message);
        cr_assert(fl_json_find(json, "traceEvents", &events));
        cr_assert_eq(count_spans(events, "before", NULL), 0);
        cr_assert_eq(count_spans(events, "round", &event), 1);
        cr_assert(fl_json_find(event, "args", &event));
        cr_assert_eq(number_of(event, "number"), round);
        fl_json_free(json);
    }
    atomic_store(&enough, true);
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    cr_assert_eq(fl_trace_close(trace, &error), 0);
    drop_folder();
}

Test(trace, two_traces_do_not_meet) {
    fletch_error error;
    fl_trace    *first;
    fl_json     *events;
    start();
    first = trace;
    cr_assert_eq(fl_trace_open(&trace, path, true, &error), 0);
    fl_trace_end(first, "first", fl_trace_begin(first), NULL, 0);
    fl_trace_end(trace, "second", fl_trace_begin(trace), NULL, 0);
    cr_assert_eq(fl_trace_close(first, &error), 0);
    fl_trace_end(trace, "second", fl_trace_begin(trace), NULL, 0);
    fl_json *json = finish(&events); /* written last, so it has the name */
    cr_assert_eq(count_spans(events, "first", NULL), 0);
    cr_assert_eq(count_spans(events, "second", NULL), 2);
    fl_json_free(json);
}

Test(trace, spans_for_which_there_is_no_memory_are_counted) {
    fl_json *events;
    start();
    fl_alloc_fail_after(1);
    fl_trace_end(trace, "lost", fl_trace_begin(trace), NULL, 0);
    fl_trace_end(trace, "kept", fl_trace_begin(trace), NULL, 0);
    fl_json *json = finish(&events);
    cr_assert_eq(count_spans(events, "lost", NULL), 0);
    cr_assert_eq(count_spans(events, "kept", NULL), 1);
    cr_assert_eq(dropped(json), 1);
    fl_json_free(json);
}

/* Allocation by allocation: close either writes the whole file or says what failed and leaves none. */
Test(trace, closing_without_memory_leaves_no_half) {
    for (uint64_t n = 1, failed = 1; failed; n++) {
        fletch_error error = {0};
        start();
        fl_trace_end(trace, "a", fl_trace_begin(trace), NULL, 0);
        fl_alloc_fail_after(n);
        const int status = fl_trace_close(trace, &error);
        fl_alloc_fail_after(0);
        failed = status < 0;
        cr_assert(status == 0 || status == FLETCH_ENOMEM, "%d: %s", status, error.message);
        cr_assert_eq(fl_file_exists(path), status == 0);
        drop_folder();
        cr_assert(n < 100);
    }
}

Test(trace, a_full_disk_is_reported) {
    fletch_error error = {0};
    struct stat  status;
    if (stat("/dev/full", &status) != 0)
        return; /* not on this machine */
    cr_assert_eq(fl_trace_open(&trace, "/dev/full", true, &error), 0, "%s", error.message);
    fl_trace_end(trace, "a", fl_trace_begin(trace), NULL, 0);
    cr_assert_eq(fl_trace_close(trace, &error), FLETCH_ENOSPC);
    cr_assert_eq(stat("/dev/full", &status), 0);
    cr_assert(S_ISCHR(status.st_mode), "a device must not be replaced by a file");
}
