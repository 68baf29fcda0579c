/* SPDX-License-Identifier: Apache-2.0 */
/* test_config.c - what must never break in the option table and the values.
 *
 * The table is consistent with itself; every default and preset is within its bounds; rank decides,
 * never the order of calls; bad values and unknown keys say what was meant; a failed set changes
 * nothing. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/config_internal.h"

static void expect_refused(const char *key, const char *value, const char *words) {
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    char           before[128];
    const char    *old = fletch_config_get(config, key, NULL);
    (void)snprintf(before, sizeof before, "%s", old == NULL ? "" : old);
    cr_expect_eq(fletch_config_set(config, key, value, &error), FLETCH_ECONFIG, "%s = %s accepted",
                 key, value);
    cr_expect_eq(error.code, FLETCH_ECONFIG);
    cr_expect_not_null(strstr(error.message, words), "%s = %s: wanted '%s', got '%s'", key, value,
                       words, error.message);
    if (old != NULL)
        cr_expect_str_eq(fletch_config_get(config, key, NULL), before);
    fletch_config_free(config);
}

static void expect_taken(fl_key key, const char *value, const char *text) {
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    const char    *name = fl_option(key)->key;
    cr_expect_eq(fletch_config_set(config, name, value, &error), 0, "%s", error.message);
    cr_expect_str_eq(fl_config_text(config, key), text);
    fletch_config_free(config);
}

Test(config, names_of_a_row_agree) {
    for (size_t i = 0; i < FL_KEY_COUNT; i++) {
        const fletch_option *option          = fletch_option_at(i);
        char                 environment[80] = "FLETCH_", flag[80] = "--";
        for (size_t j = 0; j <= strlen(option->key); j++) {
            const char c       = option->key[j];
            environment[j + 7] = c == '.' ? '_' : (char)toupper(c);
            flag[j + 2]        = c == '.' || c == '_' ? '-' : c;
        }
        cr_expect_str_eq(option->environment, environment);
        cr_expect_str_eq(option->flag, flag);
        cr_expect_not_null(strchr(option->key, '.'));
        fl_key key;
        cr_expect(fl_key_find(option->key, &key));
        cr_expect_eq((size_t)key, i, "%s is a duplicate", option->key);
    }
    cr_expect_null(fletch_option_at(FL_KEY_COUNT));
}

Test(config, defaults_are_within_their_bounds) {
    for (unsigned i = 0; i < FL_KEY_COUNT; i++) {
        const fletch_option *option = fl_option((fl_key)i);
        fl_config_value      value;
        fletch_error         error;
        cr_assert_eq(fl_value_parse((fl_key)i, option->default_value, option->key, &value, &error),
                     0, "%s", error.message);
        cr_expect_str_eq(value.text, option->default_value);
        fl_free(value.text);
    }
}

Test(config, presets_are_within_bounds_and_told_apart) {
    fletch_error error;
    for (size_t i = 0; fletch_preset_at(i) != NULL; i++) {
        const fletch_preset *line   = fletch_preset_at(i);
        fletch_config       *config = fletch_config_new();
        char                 expected[32];
        const char          *origin;
        cr_assert_eq(fletch_config_preset(config, line->name, &error), 0, "%s", error.message);
        (void)fletch_config_get(config, line->key, &origin);
        (void)snprintf(expected, sizeof expected, "preset %s", line->name);
        cr_expect_str_eq(origin, expected, "%s", line->key);
        cr_expect_gt(strlen(line->text), 0);
        fletch_config_free(config);
    }
    fletch_config *config = fletch_config_new();
    cr_expect_eq(fletch_config_preset(config, "thruput", &error), FLETCH_ECONFIG);
    cr_expect_eq(fletch_config_preset(config, "trhoughput", &error), FLETCH_ECONFIG);
    cr_expect_not_null(strstr(error.message, "did you mean 'throughput'"), "%s", error.message);
    fletch_config_free(config);
}

Test(config, spellings_of_values) {
    expect_taken(FL_KEY_MODEL_OFFLINE, "YES", "true");
    expect_taken(FL_KEY_MODEL_OFFLINE, "on", "true");
    expect_taken(FL_KEY_MODEL_AUTO_DOWNLOAD, "0", "false");
    expect_taken(FL_KEY_MODEL_NORMALIZE, "False", "false");
    expect_taken(FL_KEY_MODEL_NORMALIZE, "1", "true");
    expect_taken(FL_KEY_PROVIDER_ORDER, "GPU, Cpu", "cuda,cpu");
    expect_taken(FL_KEY_PROVIDER_ORDER, "trt,dml,coreml", "tensorrt,directml,coreml");
    expect_taken(FL_KEY_PROVIDER_DEVICES, "0,1", "0,1");
    expect_taken(FL_KEY_PROVIDER_DEVICES, "gpu:00,1,Tensorrt:ALL", "cuda:0,1,tensorrt:all");
    expect_taken(FL_KEY_CPU_INTRA_OP_THREADS, "auto", "auto");
    expect_taken(FL_KEY_MODEL_PROMPT, "query: \xC3\xA9\n", "query: \xC3\xA9\n");
    expect_taken(FL_KEY_MODEL_PROMPT, "", "");
    expect_taken(FL_KEY_MODEL_POOLING, "cls,mean", "cls,mean");
}

Test(config, values_are_typed) {
    fletch_config *config = fletch_config_new();
    cr_expect_eq(fl_config_int(config, FL_KEY_BATCH_MAX_TOKENS), 16384);
    cr_expect_eq(fl_config_int(config, FL_KEY_POOL_MAX_BYTES), 256 << 20);
    cr_expect_eq(fl_config_int(config, FL_KEY_MEMORY_LIMIT), 0);
    cr_expect_eq(fl_config_float(config, FL_KEY_POOL_PRESSURE_THRESHOLD), 0.8);
    cr_expect_eq(fl_config_bool(config, FL_KEY_MODEL_AUTO_DOWNLOAD), true);
    cr_expect_eq(fl_config_bool(config, FL_KEY_MODEL_OFFLINE), false);
    cr_expect_eq(fletch_config_set(config, "memory.limit", "1.5 GiB", NULL), 0);
    cr_expect_eq(fl_config_int(config, FL_KEY_MEMORY_LIMIT), 3LL << 29);
    cr_expect_eq(fletch_config_set(config, "cpu.intra_op_threads", "3", NULL), 0);
    cr_expect_eq(fl_config_int(config, FL_KEY_CPU_INTRA_OP_THREADS), 3);
    cr_expect_eq(fletch_config_set(config, "cpu.intra_op_threads", "auto", NULL), 0);
    cr_expect_eq(fl_config_int(config, FL_KEY_CPU_INTRA_OP_THREADS), 0);
    char item[16];
    cr_expect_eq(fletch_config_set(config, "provider.order", "gpu , cpu", NULL), 0);
    cr_expect(fl_config_list_item(config, FL_KEY_PROVIDER_ORDER, 0, item, sizeof item));
    cr_expect_str_eq(item, "cuda");
    cr_expect(fl_config_list_item(config, FL_KEY_PROVIDER_ORDER, 1, item, sizeof item));
    cr_expect_str_eq(item, "cpu");
    cr_expect_not(fl_config_list_item(config, FL_KEY_PROVIDER_ORDER, 2, item, sizeof item));
    fletch_config_free(config);
}

Test(config, bad_values_say_what_is_right) {
    expect_refused("server.port", "70000", "server.port: 70000 is outside 0..65535");
    expect_refused("server.port", "-1", "outside 0..65535");
    expect_refused("server.port", "80x", "'80x' is not a whole number in 0..65535");
    expect_refused("server.port", "99999999999999999999", "is not a whole number in 0..65535");
    expect_refused("server.port", "", "empty");
    expect_refused("cpu.streams", "1", "unknown key 'cpu.streams'; did you mean 'cuda.streams'?");
    expect_refused("pool.pressure_threshold", "1.5", "1.5 is outside 0.0..1.0");
    expect_refused("pool.pressure_threshold", "nan", "pool.pressure_threshold");
    expect_refused("pool.max_bytes", "lots", "'lots' is not a size");
    expect_refused("pool.max_bytes", "2TiB", "outside none|0..1 TiB");
    expect_refused("model.offline", "maybe", "'maybe' is neither true nor false");
    expect_refused("provider.order", "cdua", "did you mean 'cuda'?");
    expect_refused("provider.order", "cpu,", "'' is not one of");
    expect_refused("provider.order", "cpu,vulkan", "'vulkan' is not one of auto|cpu|");
    expect_refused("provider.devices", "-1", "'-1' is not one of all|N");
    expect_refused("provider.devices", "n", "'n' is not one of all|N");
    expect_refused("provider.devices", "vulkan:1", "'vulkan:1' is not one of all|N");
    expect_refused("provider.devices", "cuda:-1", "'cuda:-1' is not one of all|N");
    expect_refused("model.prompt", "\xFF", "byte 0 of the value is not UTF-8");
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    cr_expect_lt(fletch_config_set(config, "provider.devices", "x", &error), 0);
    cr_expect_null(strstr(error.message, "did you mean"), "N is no word to write: %s",
                   error.message);
    fletch_config_free(config);
}

Test(config, unknown_keys_name_the_nearest) {
    expect_refused("provider.ordre", "cpu", "did you mean 'provider.order'?");
    expect_refused("modle.id", "x", "did you mean 'model.id'?");
    expect_refused("revision", "x", "did you mean 'model.revision'?");
    expect_refused("zzzzzzzz", "x", "fletch config");
    expect_refused("", "x", "unknown key ''");
    cr_expect_null(fletch_config_get(NULL, "model.id", NULL));
    fletch_config *config = fletch_config_new();
    cr_expect_null(fletch_config_get(config, "model.idd", NULL));
    fletch_config_free(config);
}

/* All 24 orders of four sources must end the same. */
Test(config, rank_decides_and_not_the_order_of_calls) {
    static const struct {
        fletch_origin rank;
        const char   *value, *origin;
    } sources[4] = {{FLETCH_ORIGIN_PRESET, "1", "preset memory"},
                    {FLETCH_ORIGIN_FILE, "2", "f.toml:1:1"},
                    {FLETCH_ORIGIN_ENV, "3", "FLETCH_CUDA_STREAMS"},
                    {FLETCH_ORIGIN_FLAG, "4", "flag"}};
    for (unsigned order = 0; order < 256; order++) {
        const unsigned turn[4] = {order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6};
        unsigned       highest = 0;
        fletch_config *config  = fletch_config_new();
        for (int i = 0; i < 4; i++) {
            highest                       = turn[i] > highest ? turn[i] : highest;
            const fl_config_source source = {.rank    = sources[turn[i]].rank,
                                             .origin  = sources[turn[i]].origin,
                                             .foreign = turn[i] == 1};
            cr_assert_eq(fl_config_assign(config, FL_KEY_CUDA_STREAMS, sources[turn[i]].value,
                                          &source, "t", NULL),
                         0);
        }
        const char *origin;
        cr_expect_str_eq(fletch_config_get(config, "cuda.streams", &origin),
                         sources[highest].value);
        cr_expect_str_eq(origin, sources[highest].origin);
        cr_expect_eq(fl_config_is_foreign(config, FL_KEY_CUDA_STREAMS), highest == 1);
        fletch_config_free(config);
    }
}

Test(config, among_equals_the_later_wins) {
    fletch_config *config = fletch_config_new();
    const char    *origin;
    cr_expect_str_eq(fletch_config_get(config, "cuda.streams", &origin), "2");
    cr_expect_str_eq(origin, "default");
    cr_expect_not(fl_config_is_set(config, FL_KEY_CUDA_STREAMS));
    cr_expect_eq(fletch_config_set(config, "cuda.streams", "5", NULL), 0);
    cr_expect_eq(fletch_config_set(config, "cuda.streams", "6", NULL), 0);
    cr_expect_str_eq(fletch_config_get(config, "cuda.streams", NULL), "6");
    cr_expect_eq(fletch_config_preset(config, "memory", NULL), 0);
    cr_expect_str_eq(fletch_config_get(config, "cuda.streams", NULL), "6");
    cr_expect(fl_config_is_set(config, FL_KEY_CUDA_STREAMS));
    fletch_config_free(config);
}

Test(config, level_and_id) {
    const fl_config_source file   = {.rank = FLETCH_ORIGIN_FILE, .origin = "f"};
    fletch_config         *config = fletch_config_new();
    cr_expect_str_eq(fletch_config_model(config), "all-MiniLM-L6-v2");
    cr_expect_eq(fl_config_assign(config, FL_KEY_MODEL_LEVEL, "high", &file, "f", NULL), 0);
    cr_expect_str_eq(fletch_config_model(config), "high");
    cr_expect_eq(fl_config_assign(config, FL_KEY_MODEL_ID, "org/own", &file, "f", NULL), 0);
    cr_expect_str_eq(fletch_config_model(config), "org/own");
    cr_expect_eq(fletch_config_set(config, "model.level", "low", NULL), 0);
    cr_expect_str_eq(fletch_config_model(config), "low");
    cr_expect_eq(fletch_config_set(config, "model.level", "medium", NULL), 0);
    cr_expect_str_eq(fletch_config_model(config), "medium");
    fletch_config_free(config);
}

Test(config, a_clone_shares_nothing) {
    fletch_config *config = fletch_config_new();
    const char    *origin;
    cr_expect_eq(fletch_config_set(config, "model.prompt", "query: ", NULL), 0);
    fl_config *clone = fl_config_clone(config);
    cr_expect_eq(fletch_config_set(config, "model.prompt", "other", NULL), 0);
    fletch_config_free(config);
    cr_expect_str_eq(fletch_config_get(clone, "model.prompt", &origin), "query: ");
    cr_expect_str_eq(origin, "flag");
    cr_expect_str_eq(fl_config_text(clone, FL_KEY_MODEL_LEVEL), "medium");
    fletch_config_free(clone);
}

Test(config, a_failed_allocation_changes_nothing) {
    int status = FLETCH_ENOMEM;
    for (uint64_t n = 1; status == FLETCH_ENOMEM && n < 20; n++) {
        fletch_config *config = fletch_config_new();
        fl_alloc_fail_after(n);
        status = fletch_config_set(config, "provider.order", "gpu,cpu", NULL);
        fl_alloc_fail_after(0);
        const char *origin, *text = fletch_config_get(config, "provider.order", &origin);
        cr_expect_str_eq(text, status == 0 ? "cuda,cpu" : "auto");
        cr_expect_str_eq(origin, status == 0 ? "flag" : "default");
        fletch_config_free(config);
    }
    cr_expect_eq(status, 0);
    for (uint64_t n = 1; n <= FL_KEY_COUNT; n++) {
        fl_alloc_fail_after(n);
        fletch_config *config = fletch_config_new();
        fl_alloc_fail_after(0);
        cr_expect_null(config);
        config = fletch_config_new();
        fl_alloc_fail_after(n);
        cr_expect_null(fl_config_clone(config));
        fl_alloc_fail_after(0);
        fletch_config_free(config);
    }
}

Test(config, wrong_arguments_are_refused) {
    fletch_config *config = fletch_config_new();
    cr_expect_eq(fletch_config_set(NULL, "model.id", "x", NULL), FLETCH_EINVAL);
    cr_expect_eq(fletch_config_set(config, NULL, "x", NULL), FLETCH_EINVAL);
    cr_expect_eq(fletch_config_set(config, "model.id", NULL, NULL), FLETCH_EINVAL);
    cr_expect_eq(fletch_config_preset(config, NULL, NULL), FLETCH_EINVAL);
    cr_expect_eq(fletch_config_load(NULL, "x", NULL), FLETCH_EINVAL);
    cr_expect_eq(fletch_config_load_env(NULL, NULL), FLETCH_EINVAL);
    fletch_config_free(config);
    fletch_config_free(NULL);
}
