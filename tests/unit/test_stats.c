/* SPDX-License-Identifier: Apache-2.0 */
/* test_stats.c - what must never break: every duration lands in the bucket whose bounds enclose it, a
 * quantile is never below the exact one and at most 19 % above, no count is lost between threads, and
 * the JSON is valid, complete and honest about ratios that cannot be had. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "scheduler/stats.h"

static fl_stats stats;

static fletch_histogram read_total(void) {
    fletch_histogram h;
    fl_histogram_read(&stats.total, &h);
    return h;
}

Test(stats, bounds_grow_by_a_quarter_of_an_octave) {
    cr_assert_eq(fletch_histogram_bound(0), 1000);
    cr_assert_eq(fletch_histogram_bound(4), 2000);
    cr_assert_eq(fletch_histogram_bound(40), 1024000);
    for (size_t i = 1; i + 1 < FLETCH_HISTOGRAM_BUCKETS; i++) {
        const double ratio =
            (double)fletch_histogram_bound(i) / (double)fletch_histogram_bound(i - 1);
        cr_assert(ratio > 1.188 && ratio < 1.1901, "bucket %zu: %f", i, ratio);
    }
    cr_assert_eq(fletch_histogram_bound(FLETCH_HISTOGRAM_BUCKETS - 1), UINT64_MAX);
    cr_assert_eq(fletch_histogram_bound(FLETCH_HISTOGRAM_BUCKETS), UINT64_MAX);
    cr_assert_eq(fletch_histogram_bound(SIZE_MAX), UINT64_MAX);
}

/* Both sides of every bound. */
Test(stats, a_duration_lands_between_its_bounds) {
    for (size_t i = 0; i < FLETCH_HISTOGRAM_BUCKETS; i++) {
        const uint64_t low  = i == 0 ? 0 : fletch_histogram_bound(i - 1) + 1;
        const uint64_t high = fletch_histogram_bound(i);
        fl_stats_init(&stats);
        fl_histogram_add(&stats.total, low, 1);
        fl_histogram_add(&stats.total, high, 2);
        const fletch_histogram h = read_total();
        cr_assert_eq(h.bucket[i], 3, "bucket %zu, %llu .. %llu", i, (unsigned long long)low,
                     (unsigned long long)high);
        cr_assert_eq(h.count, 3);
        cr_assert_eq(h.max_ns, high);
    }
}

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int compare(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* From 1 us to some 10 s, evenly over the octaves, as latencies of mixed loads spread. */
Test(stats, quantiles_are_the_exact_ones_rounded_up) {
    enum { MOST = 5000 };
    static const size_t counts[] = {1, 2, 3, 10, 99, 100, 101, 1000, MOST};
    static uint64_t     value[MOST];
    uint64_t            state = 88172645463325252u, rounds = 0;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const size_t count = counts[c];
        double       sum   = 0;
        fl_stats_init(&stats);
        for (size_t i = 0; i < count; i++) {
            value[i] = (uint64_t)(1000 * exp2((double)(draw(&state) % 100000) / 4300));
            fl_histogram_add(&stats.total, value[i], 1);
            sum += (double)value[i];
        }
        qsort(value, count, sizeof *value, compare);
        const fletch_histogram h = read_total();
        cr_assert_eq(h.max_ns, value[count - 1]);
        cr_assert_float_eq((double)h.sum_ns, sum, sum * 1e-9);
        for (int percent = 0; percent <= 100; percent++) {
            const double   q     = percent / 100.0;
            const size_t   rank  = (size_t)ceil(q * (double)count);
            const uint64_t exact = value[rank == 0 ? 0 : rank - 1];
            const uint64_t got   = fl_histogram_quantile(h.bucket, h.max_ns, q);
            cr_assert(got >= exact && (double)got <= (double)exact * 1.19 + 1,
                      "%zu values, %d %%: %llu, exact %llu", count, percent,
                      (unsigned long long)got, (unsigned long long)exact);
            rounds++;
        }
        cr_assert_eq(h.p50_ns, fl_histogram_quantile(h.bucket, h.max_ns, 0.5));
        cr_assert_eq(h.p90_ns, fl_histogram_quantile(h.bucket, h.max_ns, 0.9));
        cr_assert_eq(h.p95_ns, fl_histogram_quantile(h.bucket, h.max_ns, 0.95));
        cr_assert_eq(h.p99_ns, fl_histogram_quantile(h.bucket, h.max_ns, 0.99));
    }
    cr_assert_eq(rounds, 9 * 101);
}

Test(stats, an_empty_histogram_has_no_quantile) {
    fl_stats_init(&stats);
    const fletch_histogram h = read_total();
    cr_assert_eq(h.count + h.sum_ns + h.max_ns + h.p50_ns + h.p99_ns, 0);
    fl_histogram_add(&stats.total, 5000, 0); /* nothing took 5 us */
    cr_assert_eq(read_total().max_ns, 0);
}

static void *add_many(void *arg) {
    const uint64_t base = *(const uint64_t *)arg;
    for (uint64_t i = 0; i < 20000; i++) {
        fl_stats_add(&stats, FLETCH_COUNT_TEXTS, 2);
        fl_histogram_add(&stats.total, base + i, 1);
    }
    return NULL;
}

Test(stats, threads_lose_no_count) {
    enum { THREADS = 4 };
    pthread_t    thread[THREADS];
    uint64_t     base[THREADS];
    fletch_stats out = {.size = sizeof out};
    fl_stats_init(&stats);
    for (uint64_t t = 0; t < THREADS; t++) {
        base[t] = t * 1000000;
        pthread_create(&thread[t], NULL, add_many, &base[t]);
    }
    for (size_t t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    fl_stats_read(&stats, &out);
    cr_assert_eq(out.counter[FLETCH_COUNT_TEXTS], 2 * THREADS * 20000);
    cr_assert_eq(out.total.count, THREADS * 20000);
    cr_assert_eq(out.total.max_ns, 3000000 + 19999);
    cr_assert_eq(out.total.sum_ns, 20000ull * (0 + 1 + 2 + 3) * 1000000 + THREADS * 199990000ull);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static char text[1 << 16];

static fl_json *written(const fletch_stats *s) {
    fl_json      *json;
    fletch_error  error;
    const int64_t length = fl_stats_write_json(s, NULL, 0, text, sizeof text);
    cr_assert(length > 0 && length < (int64_t)sizeof text);
    cr_assert_eq(strlen(text), (size_t)length);
    cr_assert_eq(fl_json_parse(&json, text, (size_t)length, sizeof text, FL_JSON_UNIQUE_KEYS,
                               "statistics", &error),
                 0, "%s", error.message);
    return json;
}

static double ratio(fl_json *json, const char *name) {
    fl_json *ratios, *value;
    cr_assert(fl_json_find(json, "ratios", &ratios));
    cr_assert(fl_json_find(ratios, name, &value), "%s", name);
    return value == NULL ? NAN : fl_json_f64(value);
}

Test(stats, json_holds_every_counter_and_gauge) {
    fletch_stats s = {.size = sizeof s};
    fl_stats_init(&stats);
    for (size_t i = 0; i < FL_COUNTERS; i++)
        fl_stats_add(&stats, (fletch_counter)i, 100 + i);
    fl_histogram_add(&stats.queue, 1500000, 7);
    fl_histogram_add(&stats.queue, UINT64_C(1) << 50, 1);
    fl_stats_read(&stats, &s);
    s.memory_limit = UINT64_MAX;
    strcpy(s.provider, "cpu");
    strcpy(s.device, "a \"card\"\n\\ \x01");
    fl_json       *json   = written(&s);
    fl_json_reader reader = {.object = json, .source = "statistics"};
    for (size_t i = 0; i < FL_COUNTERS; i++)
        cr_assert_eq(fl_json_int(&reader, fletch_counter_name(i), -1, 0, 1000), 100 + i);
    cr_assert_str_eq(fletch_counter_name(FLETCH_COUNT_BUSY_NS), "busy_ns");
    cr_assert_not_null(fletch_counter_text(FLETCH_COUNT_BUSY_NS));
    cr_assert_null(fletch_counter_name(FL_COUNTERS));
    cr_assert_null(fletch_counter_text(SIZE_MAX));
    cr_assert_str_eq(fl_json_string(&reader, "provider", ""), "cpu");
    cr_assert_str_eq(fl_json_string(&reader, "device", ""), "a \"card\"\n\\ \x01");
    cr_assert(fl_json_int(&reader, "uptime_ns", 0, 0, INT64_MAX) > 0);
    cr_assert_not_null(strstr(text, "\"memory_limit\":18446744073709551615"));
    cr_assert_not_null(strstr(
        text, "\"queue\":{\"count\":8,\"sum_ns\":1125899917342624,\"max_ns\":1125899906842624,"
              "\"p50_ns\":1722368,\"p90_ns\":1125899906842624,\"p95_ns\":1125899906842624,"
              "\"p99_ns\":1125899906842624,\"buckets\":[[1722368,7],[null,1]]}"));
    cr_assert_eq(reader.status, 0);
    fl_json_free(json);
}

Test(stats, ratios_are_parts_of_what_was_asked) {
    fletch_stats s    = {.size                                     = sizeof s,
                         .counter[FLETCH_COUNT_TEXTS]              = 90,
                         .counter[FLETCH_COUNT_TOKENS]             = 1000,
                         .counter[FLETCH_COUNT_BATCHES]            = 8,
                         .counter[FLETCH_COUNT_POOL_REQUESTS]      = 400,
                         .counter[FLETCH_COUNT_POOL_HITS]          = 399,
                         .counter[FLETCH_COUNT_POOL_ALLOCATIONS]   = 4,
                         .counter[FLETCH_COUNT_POOL_ALLOCATION_NS] = 10,
                         .counter[FLETCH_COUNT_ZERO_COPY_INPUTS]   = 1,
                         .counter[FLETCH_COUNT_COPIED_INPUTS]      = 2,
                         .counter[FLETCH_COUNT_ZERO_COPY_OUTPUTS]  = 5,
                         .replicas                                 = 1,
                         .slots                                    = 2,
                         .counter[FLETCH_COUNT_BUSY_NS]            = 30,
                         .uptime_ns                                = 20};
    fl_json     *json = written(&s);
    cr_assert_float_eq(ratio(json, "pool_hit"), 0.9975, 1e-9);
    cr_assert_float_eq(ratio(json, "buffer_reuse"), 0.99, 1e-9);
    cr_assert_float_eq(ratio(json, "zero_copy_input"), 0.3333, 1e-9);
    cr_assert_float_eq(ratio(json, "zero_copy_output"), 1, 1e-9);
    cr_assert_float_eq(ratio(json, "mean_batch_texts"), 11.25, 1e-9);
    cr_assert_float_eq(ratio(json, "mean_batch_tokens"), 125, 1e-9);
    cr_assert_float_eq(ratio(json, "utilisation"), 0.75, 1e-9);
    cr_assert_float_eq(ratio(json, "mean_allocation_ns"), 2.5, 1e-9);
    fl_json_free(json);
}

Test(stats, a_ratio_of_nothing_is_null) {
    fletch_stats s    = {.size = sizeof s};
    fl_json     *json = written(&s);
    cr_assert(isnan(ratio(json, "pool_hit")));
    cr_assert(isnan(ratio(json, "buffer_reuse")));
    cr_assert(isnan(ratio(json, "zero_copy_input")));
    cr_assert(isnan(ratio(json, "zero_copy_output")));
    cr_assert(isnan(ratio(json, "mean_batch_texts")));
    cr_assert(isnan(ratio(json, "mean_batch_tokens")));
    cr_assert(isnan(ratio(json, "utilisation")));
    cr_assert(isnan(ratio(json, "mean_allocation_ns")));
    fl_json_free(json);
}

/* As snprintf: the length does not depend on the room, what fits is the head of the whole. */
Test(stats, json_that_does_not_fit_is_cut_and_says_so) {
    static char        whole[1 << 16], part[1 << 16];
    const fletch_stats s      = {.size = sizeof s, .counter[FLETCH_COUNT_TEXTS] = 5};
    const int64_t      length = fl_stats_write_json(&s, NULL, 0, whole, sizeof whole);
    cr_assert_eq(fl_stats_write_json(&s, NULL, 0, NULL, 0), length);
    for (size_t capacity = 1; capacity < (size_t)length + 3; capacity += 7) {
        memset(part, '#', sizeof part);
        cr_assert_eq(fl_stats_write_json(&s, NULL, 0, part, capacity), length);
        const size_t kept = capacity - 1 < (size_t)length ? capacity - 1 : (size_t)length;
        cr_assert_eq(memcmp(part, whole, kept), 0);
        cr_assert_eq(part[kept], '\0');
        cr_assert_eq(part[capacity], '#');
    }
}
