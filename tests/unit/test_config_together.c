/* SPDX-License-Identifier: Apache-2.0 */
/* test_config_together.c - what must never break: two chosen values that contradict each other are an
 * error that names both and where they came from; a value that nobody chose gives way instead, and what
 * was chosen stays; no preset contradicts or doubts itself. */
#include <criterion/criterion.h>
#include <string.h>

#include "config/config_internal.h"

typedef struct heard {
    int  count[4]; /* by level */
    char last[1024];
} heard;

static void hear(void *user, int level, const char *message) {
    heard *h = user;
    h->count[level]++;
    strcpy(h->last, message);
}

static heard          notes;
static fletch_config *config;
static fletch_error   error;

static void begin(void) {
    memset(&notes, 0, sizeof notes);
    memset(&error, 0, sizeof error);
    config = fletch_config_new();
    fletch_config_set_log(config, hear, &notes);
}

static void set(const char *key, const char *value) {
    cr_assert_eq(fletch_config_set(config, key, value, &error), 0, "%s", error.message);
}

static void set_from(const char *key, const char *value, fletch_origin rank, const char *origin) {
    fl_key found;
    cr_assert(fl_key_find(key, &found));
    const fl_config_source source = {.rank = rank, .origin = origin};
    cr_assert_eq(fl_config_assign(config, found, value, &source, origin, &error), 0);
}

static void expect_error(const char *low, const char *low_value, const char *high,
                         const char *high_value) {
    char file[] = "/etc/fletch.toml:7:1";
    begin();
    set_from(low, low_value, FLETCH_ORIGIN_FILE, file);
    set(high, high_value);
    cr_assert_eq(fl_config_check_together(config, &error), FLETCH_ECONFIG, "%s, %s", low, high);
    cr_assert_not_null(strstr(error.message, low), "%s", error.message);
    cr_assert_not_null(strstr(error.message, high), "%s", error.message);
    cr_assert_not_null(strstr(error.message, file), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "(flag)"), "%s", error.message);
    fletch_config_free(config);
}

Test(together, what_was_chosen_and_contradicts_is_an_error) {
    expect_error("batch.min_texts", "33", "batch.max_texts", "32");
    expect_error("batch.max_texts", "100", "batch.max_tokens", "99");
    expect_error("batch.max_wait_ms", "6", "batch.target_latency_ms", "5");
    expect_error("batch.max_wait_ms", "101", "server.deadline_ms", "100");
    expect_error("pool.max_bytes", "65MiB", "memory.limit", "64MiB");
}

Test(together, equal_values_and_switched_off_limits_are_fine) {
    begin();
    set("batch.min_texts", "64");
    set("batch.max_texts", "64");
    set("batch.max_tokens", "64");
    set("batch.max_wait_ms", "60000");
    set("batch.target_latency_ms", "0");
    set("server.deadline_ms", "off");
    set("pool.max_bytes", "1TiB");
    set("memory.limit", "none");
    cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
    cr_assert_eq(notes.count[FL_LOG_INFO] + notes.count[FL_LOG_WARNING], 0, "%s", notes.last);
    fletch_config_free(config);
}

static void expect_gives_way(const char *chosen, const char *value, const char *other,
                             const char *becomes) {
    const char *origin;
    begin();
    set(chosen, value);
    cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
    cr_assert_str_eq(fletch_config_get(config, chosen, &origin), value);
    cr_assert_str_eq(origin, "flag");
    cr_assert_str_eq(fletch_config_get(config, other, &origin), becomes);
    cr_assert_not_null(strstr(origin, chosen), "%s", origin);
    cr_assert(notes.count[FL_LOG_INFO] >= 1);
    cr_assert_eq(notes.count[FL_LOG_WARNING], 0, "%s", notes.last);
    cr_assert_not_null(strstr(notes.last, other), "%s", notes.last);
    fletch_config_free(config);
}

Test(together, a_default_gives_way) {
    expect_gives_way("batch.max_texts", "4", "batch.min_texts", "4");
    expect_gives_way("batch.min_texts", "100", "batch.max_texts", "100");
    expect_gives_way("batch.max_texts", "20000", "batch.max_tokens", "40000");
    expect_gives_way("batch.target_latency_ms", "5", "batch.max_wait_ms", "2");
    expect_gives_way("batch.target_latency_ms", "1", "batch.max_wait_ms", "0");
    expect_gives_way("memory.limit", "104857600", "pool.max_bytes", "26214400");
    expect_gives_way("batch.max_wait_ms", "40000", "server.deadline_ms", "80000");
}

/* 0 bytes would be "none": the pool would grow without limit. */
Test(together, giving_way_never_switches_a_limit_off) {
    begin();
    set("memory.limit", "3");
    cr_assert_eq(fl_config_check_together(config, &error), 0);
    cr_assert_eq(fl_config_int(config, FL_KEY_POOL_MAX_BYTES), 1);
    fletch_config_free(config);
}

/* min_texts pushes max_texts, which pushes max_tokens; nothing pushes back. */
Test(together, what_follows_from_a_choice_follows_through) {
    begin();
    set("batch.min_texts", "65536");
    cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
    cr_assert_eq(fl_config_int(config, FL_KEY_BATCH_MIN_TEXTS), 65536);
    cr_assert_eq(fl_config_int(config, FL_KEY_BATCH_MAX_TEXTS), 65536);
    cr_assert_eq(fl_config_int(config, FL_KEY_BATCH_MAX_TOKENS), 131072);
    fletch_config_free(config);
    /* … unless the far end was chosen too. */
    begin();
    set("batch.min_texts", "65536");
    set("batch.max_tokens", "1000");
    cr_assert_eq(fl_config_check_together(config, &error), FLETCH_ECONFIG);
    fletch_config_free(config);
}

Test(together, a_preset_gives_way_to_a_choice_but_not_to_a_default) {
    begin();
    cr_assert_eq(fletch_config_preset(config, "throughput", &error), 0);
    set("batch.max_texts", "10");
    cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
    cr_assert_eq(fl_config_int(config, FL_KEY_BATCH_MIN_TEXTS), 10);
    fletch_config_free(config);
    begin();
    set_from("batch.min_texts", "100", FLETCH_ORIGIN_PRESET, "preset own");
    cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
    cr_assert_eq(fl_config_int(config, FL_KEY_BATCH_MAX_TEXTS), 100);
    fletch_config_free(config);
}

static void expect_doubt(const char *key, const char *value, const char *by, const char *by_value) {
    begin();
    set(key, value);
    set(by, by_value);
    cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
    cr_assert_eq(notes.count[FL_LOG_WARNING], 1, "%s, %s: %s", key, by, notes.last);
    cr_assert_not_null(strstr(notes.last, key), "%s", notes.last);
    cr_assert_not_null(strstr(notes.last, by), "%s", notes.last);
    fletch_config_free(config);
}

Test(together, what_is_probably_not_meant_is_a_warning) {
    expect_doubt("batch.min_texts", "4", "batch.dynamic", "false");
    expect_doubt("batch.max_wait_ms", "4", "batch.dynamic", "false");
    expect_doubt("batch.min_texts", "4", "batch.max_wait_ms", "0");
    expect_doubt("pool.max_buffers", "4", "pool.enable", "false");
    expect_doubt("pool.max_bytes", "1MiB", "pool.enable", "false");
    expect_doubt("pool.pressure_threshold", "0.5", "pool.pressure_detection", "false");
    expect_doubt("model.max_length", "512", "batch.max_tokens", "256");
    expect_doubt("server.max_queue_tokens", "100", "batch.max_tokens", "256");
    expect_doubt("model.auto_download", "true", "model.offline", "true");
}

Test(together, defaults_and_presets_are_beyond_doubt) {
    begin();
    cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
    cr_assert_eq(notes.count[FL_LOG_INFO] + notes.count[FL_LOG_WARNING], 0, "%s", notes.last);
    fletch_config_free(config);
    for (size_t i = 0; fletch_preset_at(i) != NULL; i++) {
        begin();
        cr_assert_eq(fletch_config_preset(config, fletch_preset_at(i)->name, &error), 0);
        cr_assert_eq(fl_config_check_together(config, &error), 0, "%s", error.message);
        cr_assert_eq(notes.count[FL_LOG_INFO] + notes.count[FL_LOG_WARNING], 0, "%s: %s",
                     fletch_preset_at(i)->name, notes.last);
        fletch_config_free(config);
    }
}

/* --preset throughput --preset memory, in any order and number: allowed, the last one wins. */
Test(together, presets_on_top_of_each_other_are_no_contradiction) {
    for (size_t i = 0; fletch_preset_at(i) != NULL; i++) {
        for (size_t j = 0; fletch_preset_at(j) != NULL; j++) {
            begin();
            cr_assert_eq(fletch_config_preset(config, fletch_preset_at(i)->name, &error), 0);
            cr_assert_eq(fletch_config_preset(config, fletch_preset_at(j)->name, &error), 0);
            cr_assert_eq(fl_config_check_together(config, &error), 0, "%s + %s: %s",
                         fletch_preset_at(i)->name, fletch_preset_at(j)->name, error.message);
            fletch_config_free(config);
        }
    }
}
