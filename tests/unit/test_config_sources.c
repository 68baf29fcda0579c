/* SPDX-License-Identifier: Apache-2.0 */
/* test_config_sources.c - what must never break in files, environment and suggestions.
 *
 * A file's values land with FILE:LINE:COLUMN as their origin; what is wrong in it is named by place
 * and nearest name. A variable of the environment that means nothing is a warning with the nearest name,
 * unless a container platform made it. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/config_internal.h"

static char path[64];

static void write_file(const char *text) {
    (void)snprintf(path, sizeof path, "%s", "/tmp/fletch-test-XXXXXX");
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(close(fd), 0);
}

static fletch_config *load(const char *text) {
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    write_file(text);
    const int status = fletch_config_load(config, path, &error);
    (void)unlink(path);
    cr_assert_eq(status, 0, "%s", error.message);
    return config;
}

static void expect(const fletch_config *config, const char *key, const char *value,
                   const char *place) {
    const char *origin, *text = fletch_config_get(config, key, &origin);
    char        expected[128];
    (void)snprintf(expected, sizeof expected, "%s%s", path, place);
    cr_expect_str_eq(text, value, "%s is %s", key, text);
    cr_expect_str_eq(origin, expected, "%s is from %s", key, origin);
}

static void refuse(const char *text, const char *place, const char *words) {
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    char           expected[128];
    write_file(text);
    const int status = fletch_config_load(config, path, &error);
    (void)unlink(path);
    (void)snprintf(expected, sizeof expected, "%s%s", path, place);
    cr_expect_eq(status, FLETCH_ECONFIG, "accepted: %s", text);
    cr_expect_eq(strncmp(error.message, expected, strlen(expected)), 0, "got %s", error.message);
    cr_expect_not_null(strstr(error.message, words), "wanted %s, got %s", words, error.message);
    fletch_config_free(config);
}

Test(config_file, dotted_keys_and_inline_tables) {
    fletch_config *config = load("model.id = 'org/name'\nserver = {port = 1, host = \"::1\"}\n"
                                 "pool.max_bytes = 4_096\n");
    expect(config, "model.id", "org/name", ":1:7");
    expect(config, "server.port", "1", ":2:11");
    expect(config, "server.host", "::1", ":2:21");
    expect(config, "pool.max_bytes", "4096", ":3:6");
    fletch_config_free(config);
}

Test(config_file, sections_and_places) {
    fletch_config *config = load("[provider]\n"
                                 "order = [\"gpu\", \"cpu\"]\n"
                                 "  devices = [0, 1]\n"
                                 "[server]\nport = 8_080\nmax_body = \"1MiB\"\n"
                                 "[pool]\nenable = false\npressure_threshold = 0.5\n"
                                 "[model]\nnormalize = true\nprompt = \"\"\"a, b\"\"\"\n");
    expect(config, "provider.order", "cuda,cpu", ":2:1");
    expect(config, "provider.devices", "0,1", ":3:3");
    expect(config, "server.port", "8080", ":5:1");
    expect(config, "server.max_body", "1MiB", ":6:1");
    expect(config, "pool.enable", "false", ":8:1");
    expect(config, "pool.pressure_threshold", "0.5", ":9:1");
    expect(config, "model.normalize", "true", ":11:1");
    expect(config, "model.prompt", "a, b", ":12:1");
    cr_expect_eq(fl_config_int(config, FL_KEY_SERVER_MAX_BODY), 1 << 20);
    fletch_config_free(config);
}

Test(config_file, the_ai_section) {
    fletch_config *config = load("[ai]\nmodel_name = \"all-mpnet-base-v2\"\nembedding_dim = 768\n"
                                 "auto_download = false\nprovider = \"cuda\"\n");
    expect(config, "model.id", "all-mpnet-base-v2", ":2:1");
    expect(config, "model.dimensions", "768", ":3:1");
    expect(config, "model.auto_download", "false", ":4:1");
    expect(config, "provider.order", "cuda", ":5:1");
    fletch_config_free(config);
    refuse("[ai]\nmodel_name = 'a'\n[model]\nid = 'b'\n",
           ":4:1: model.id: ", "line 2 already sets");
    refuse("[ai]\nmodel = 'a'\n", ":2:1: ", "unknown key 'ai.model'");
}

Test(config_file, what_is_wrong_is_named) {
    refuse("[server]\nprot = 80\n", ":2:1: ", "'server.prot'; did you mean 'server.port'?");
    refuse("[sever]\nport = 80\n", ":1:2: ", "unknown section [sever]; did you mean [server]?");
    refuse("[a.b.c]\n", ":1:6: ", "unknown section [a]");
    refuse("[server.port]\n", ":1:9: ", "takes a value, not a table");
    refuse("[server]\nport = [80]\n", ":2:1: server.port: ", "not an array");
    refuse("[server]\nport = 80.0\n", ":2:1: server.port: ", "not a whole number");
    refuse("[server]\nport = true\n", ":2:1: server.port: ", "not a whole number");
    refuse("[server]\nport = 70000\n", ":2:1: server.port: ", "outside 0..65535");
    refuse("[provider]\norder = [\"cpu\", [\"cuda\"]]\n", ":2:1: ", "a single word");
    refuse("[provider]\norder = [\"cpu,cuda\"]\n", ":2:1: ", "a single word");
    refuse("[provider]\norder = []\n", ":2:1: provider.order: ", "empty");
    refuse("[[server]]\nport = 80\n", ":1:3: ", "unknown key 'server'");
    refuse("[model]\nid = \"a\\u0000b\"\n", ":2:10: ", "NUL");
    refuse("[server]\nport = {a = 80}\n", ":2:9: ", "unknown key 'server.port.a'");
    refuse("sever = {port = 80}\n", ":1:10: ", "unknown section [sever]");
    refuse("server = 80\n", ":1:1: ", "unknown key 'server'");
    refuse("[model\n", ":1:7: ", "expected ']'");
    refuse("port = 80\n", ":1:1: ", "did you mean 'server.port'?");
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    cr_expect_eq(fletch_config_load(config, "/nowhere/fletch.toml", &error), FLETCH_ENOTFOUND);
    cr_expect_not_null(strstr(error.message, "/nowhere/fletch.toml"));
    fletch_config_free(config);
}

/* Another program's file: its own sections may hold what no option can use. */
Test(config_file, app_file) {
    fletch_error   error  = {0};
    fletch_config *config = fletch_config_new();
    write_file("title = 'mine'\n[server]\nlisten = ':80'\nsince = 1979-05-27 07:32:00Z\n"
               "days = [0x10, inf, 1979-05-27]\n[[job]]\nname = 'x'\n"
               "[ai]\nmodel_name = \"all-mpnet-base-v2\"\nprovider = \"cuda\"\n"
               "[model]\nid = 'not ours'\n");
    cr_assert_eq(fletch_config_load_app(config, path, &error), FLETCH_OK, "%s", error.message);
    expect(config, "model.id", "all-mpnet-base-v2", ":9:1");
    expect(config, "provider.order", "cuda", ":10:1");
    (void)unlink(path);
    write_file("[ai]\nmodel = 'a'\n");
    cr_expect_eq(fletch_config_load_app(config, path, &error), FLETCH_ECONFIG);
    cr_expect_not_null(strstr(error.message, ":2:1: unknown key 'ai.model'"), "%s", error.message);
    (void)unlink(path);
    write_file("[model]\nid = 'not for --app-config'\n");
    cr_expect_eq(fletch_config_load_app(config, path, &error), FLETCH_ECONFIG);
    cr_expect_not_null(strstr(error.message, "no section [ai]"), "%s", error.message);
    (void)unlink(path);
    fletch_config_free(config);
}

static fletch_config *load_variables(const char *const *variables) {
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    char          *copy[16] = {0};
    for (size_t i = 0; variables[i] != NULL; i++)
        copy[i] = fl_strdup(variables[i]);
    cr_assert_eq(fl_config_load_variables(config, copy, &error), 0, "%s", error.message);
    for (size_t i = 0; copy[i] != NULL; i++)
        fl_free(copy[i]);
    return config;
}

static void refuse_variable(const char *variable, const char *words) {
    fletch_config *config  = fletch_config_new();
    char          *copy[2] = {fl_strdup(variable), NULL};
    fletch_error   error;
    cr_expect_eq(fl_config_load_variables(config, copy, &error), FLETCH_ECONFIG, "%s", variable);
    cr_expect_not_null(strstr(error.message, words), "wanted %s, got %s", words, error.message);
    fl_free(copy[0]);
    fletch_config_free(config);
}

Test(config_environment, names_and_aliases) {
    path[0]               = '\0';
    fletch_config *config = load_variables((const char *const[]){
        "HOME=/root", "FLETCH_CPU_ISA=avx2", "FLETCH_PROVIDER=gpu", "FLETCH_DEVICE=1",
        "FLETCH_LEVEL=high", "FLETCH_MODEL=/models/x", "FLETCH_CUDA_STREAMS=", NULL});
    expect(config, "cpu.isa", "avx2", "FLETCH_CPU_ISA");
    expect(config, "provider.order", "cuda", "FLETCH_PROVIDER");
    expect(config, "provider.devices", "1", "FLETCH_DEVICE");
    expect(config, "model.level", "high", "FLETCH_LEVEL");
    expect(config, "model.id", "/models/x", "FLETCH_MODEL");
    expect(config, "cuda.streams", "2", "default");
    fletch_config_free(config);
    config = load_variables((const char *const[]){"OP_DBUS_EXECUTION_PROVIDER=CUDA",
                                                  "OP_DBUS_GPU_DEVICE=0",
                                                  "OP_DBUS_VECTOR_LEVEL=low", NULL});
    expect(config, "provider.order", "cuda", "OP_DBUS_EXECUTION_PROVIDER");
    expect(config, "provider.devices", "0", "OP_DBUS_GPU_DEVICE");
    expect(config, "model.level", "low", "OP_DBUS_VECTOR_LEVEL");
    fletch_config_free(config);
}

Test(config_environment, the_fuller_name_wins) {
    path[0]               = '\0';
    fletch_config *config = load_variables((const char *const[]){
        "FLETCH_PROVIDER_ORDER=coreml", "FLETCH_PROVIDER=cuda", "OP_DBUS_EXECUTION_PROVIDER=cpu",
        "FLETCH_LEVEL=high", "OP_DBUS_VECTOR_LEVEL=low", NULL});
    expect(config, "provider.order", "coreml", "FLETCH_PROVIDER_ORDER");
    expect(config, "model.level", "high", "FLETCH_LEVEL");
    fletch_config_free(config);
}

static void keep_warning(void *user, int level, const char *message) {
    char *last = user;
    cr_expect_eq(level, FL_LOG_WARNING);
    cr_expect_str_eq(last, "", "a second warning: %s", message);
    (void)snprintf(last, 256, "%s", message);
}

/* The one warning that a variable makes; "" for none. Nothing is set by it. */
static void expect_warning(const char *variable, const char *words) {
    char           said[256] = "";
    fletch_config *config    = fletch_config_new();
    char          *copy[2]   = {fl_strdup(variable), NULL};
    fletch_error   error;
    fletch_config_set_log(config, keep_warning, said);
    cr_expect_eq(fl_config_load_variables(config, copy, &error), 0, "%s: %s", variable,
                 error.message);
    cr_expect(words[0] == '\0' ? said[0] == '\0' : strstr(said, words) != NULL, "%s: got \"%s\"",
              variable, said);
    cr_expect_str_eq(fletch_config_get(config, "server.port", NULL), "9900");
    fl_free(copy[0]);
    fletch_config_free(config);
}

Test(config_environment, others_are_passed_over_and_unknown_ones_told) {
    static const char *const silent[] = {
        "FLETCH_CONFIG=/etc/fletch.toml", "FLETCH_TEST_DATA=x", "FLETCH_BIN=x", "FLETCH_DATA_DIR=x",
        "FLETCH_BENCH_PYTHON=x", "FLETCH_BUILD=x", "FLETCH_MODEL_HIGH=x", "FLETCHER=x",
        "OP_DBUS_OTHER=x",
        /* Kubernetes with enableServiceLinks, for services fletch, fletch-server and fletch-a-b */
        "FLETCH_SERVICE_HOST=10.0.0.1", "FLETCH_SERVICE_PORT=9900", "FLETCH_SERVICE_PORT_HTTP=9900",
        "FLETCH_PORT=tcp://10.0.0.1:9900", "FLETCH_PORT_9900_TCP=tcp://10.0.0.1:9900",
        "FLETCH_PORT_9900_TCP_ADDR=10.0.0.1", "FLETCH_PORT_9900_TCP_PORT=9900",
        "FLETCH_PORT_9900_TCP_PROTO=tcp", "FLETCH_SERVER_PORT=tcp://10.0.0.1:9900",
        "FLETCH_SERVER_SERVICE_HOST=10.0.0.1", "FLETCH_A_B_PORT=udp://10.0.0.1:53",
        "FLETCH_A_B_PORT_53_UDP_PROTO=udp", "FLETCH_A_B_SERVICE_PORT_DNS=53",
        /* Docker's links */
        "FLETCH_NAME=/web/fletch", "FLETCH_ENV_PATH=/bin"};
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++)
        expect_warning(silent[i], "");
    expect_warning("FLETCH_PROVIDER_ODER=cpu", "did you mean FLETCH_PROVIDER_ORDER?");
    expect_warning("FLETCH_MODLE=cpu", "did you mean FLETCH_MODEL?");
    expect_warning("FLETCH_THREADS=4", "did you mean FLETCH_CPU_INTRA_OP_THREADS?");
    expect_warning("FLETCH_PRECISION=bf16", "did you mean FLETCH_PROVIDER_PRECISION?");
    expect_warning("FLETCH_PORT=9901", "did you mean FLETCH_SERVER_PORT?");
    expect_warning("FLETCH_DIMENSIONS=128", "did you mean FLETCH_MODEL_DIMENSIONS?");
    expect_warning("FLETCH_QQQQQQQQQ=cpu", "FLETCH_QQQQQQQQQ; `fletch help");
    refuse_variable("FLETCH_SERVER_PORT=x", "FLETCH_SERVER_PORT: 'x' is not a whole number");
}

Test(config_environment, the_process_environment_is_read) {
    fletch_config *config = fletch_config_new();
    fletch_error   error;
    path[0] = '\0';
    cr_assert_eq(setenv("FLETCH_SERVER_PORT", "1234", 1), 0);
    cr_assert_eq(fletch_config_load_env(config, &error), 0, "%s", error.message);
    expect(config, "server.port", "1234", "FLETCH_SERVER_PORT");
    fletch_config_free(config);
}

Test(config_suggest, edit_distance) {
    cr_expect_eq(fl_edit_distance("", ""), 0);
    cr_expect_eq(fl_edit_distance("abc", ""), 3);
    cr_expect_eq(fl_edit_distance("", "abc"), 3);
    cr_expect_eq(fl_edit_distance("kitten", "sitting"), 3);
    cr_expect_eq(fl_edit_distance("order", "ordre"), 1);
    cr_expect_eq(fl_edit_distance("ca", "abc"), 3); /* restricted form: no piece edited twice */
    cr_expect_eq(fl_edit_distance("ABC", "abc"), 0);
    char longest[65] = {0};
    memset(longest, 'a', 64);
    cr_expect_eq(fl_edit_distance(longest, "a"), UINT_MAX);
    longest[63] = '\0';
    cr_expect_eq(fl_edit_distance(longest, "a"), 62);
}

static const char *nearest_key(const char *wanted) {
    fl_nearest nearest = fl_nearest_start(wanted);
    for (size_t i = 0; fletch_option_at(i) != NULL; i++)
        fl_nearest_see_key(&nearest, fletch_option_at(i)->key, fletch_option_at(i)->key);
    return nearest.name;
}

Test(config_suggest, keys_by_any_of_their_parts) {
    cr_expect_str_eq(nearest_key("threads"), "cpu.intra_op_threads");
    cr_expect_str_eq(nearest_key("revison"), "model.revision");
    cr_expect_str_eq(nearest_key("cpu.precision"), "provider.precision");
    cr_expect_str_eq(nearest_key("PROVIDER_ORDR"), "provider.order");
    cr_expect_str_eq(nearest_key("max-length"), "model.max_length");
    cr_expect_null(nearest_key("zzzzzzzz"));
    cr_expect_null(nearest_key(""));
}
