/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c - `fletch doctor`: what the machine offers, how the model is resolved, and a self-test.
 *
 * Role    The first answer to "is it slow / wrong / not starting on my machine".
 * Method  Prints what fletch_system_describe and fletch_model_describe tell, each value with its origin;
 *         then embeds three fixed sentences and compares similarities and first values with those of
 *         sentence-transformers 6.2.0 (torch 2.15.0, CPU, float32) for the default model. The default
 *         model is known by the hash of its weights, not by its name. Where options bend the vectors
 *         (pooling, prompt, dimensions ...) or the model is another one, the self-test is skipped and
 *         says so. The doctor never downloads. --report adds what a person on an unproven machine is to
 *         send: system, compiler, the hash of the vectors; and takes the home folder out of every path.
 * Memory  The report is collected first, so that json and text say the same.
 * Proof   tests/cli/test_cli_doctor.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cosine.h"
#include "base/file.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cli/cli.h"
#include "cli/output.h"

enum { SENTENCES = 3, FIRST = 8, DIMENSIONS = 384, NAME_COLUMN = 20, VALUE_COLUMN = 64 };

static const char weights_sha256[] =
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db";

static const char *const sentences[SENTENCES] = {
    "A cat sits on the mat.", "A feline rests on a rug.", "The stock market fell sharply today."};

/* First values of each normalised vector. */
static const float first_values[SENTENCES][FIRST] = {
    {0.12653525F, -0.03285073F, -0.029059628F, 0.04440697F, -0.043445308F, 0.032096907F,
     0.048111085F, 0.027675034F},
    {0.07208257F, 0.021756157F, 0.03923075F, 0.11915473F, -0.04021747F, 0.07172275F, 0.017106535F,
     0.007909624F},
    {0.060455013F, 0.0054453867F, 0.07656575F, 0.053829506F, -0.014793024F, -0.006096334F,
     -0.029377332F, 0.053715214F}};

static const struct {
    int    a, b;
    double similarity;
} pairs[] = {{0, 1, 0.5738111191}, {0, 2, 0.0910741702}, {1, 2, 0.0898927723}};

/* fp32 must agree to rounding; reduced precision to what its own quality gate allows. */
static const double tolerance_fp32 = 1e-5, tolerance_reduced = 2e-2;

typedef struct report {
    fl_buf out;
    bool   json, open; /* open: a section has begun */
    bool   sent;       /* --report */
} report;

static void begin(report *r, const char *section) {
    if (r->json)
        fl_buf_printf(&r->out, "%s\"%s\":[", r->open ? "],\n" : "{", section);
    else
        fl_buf_printf(&r->out, "%s%s\n", r->open ? "\n" : "", section);
    r->open = true;
}

/* How many bytes at `at` name the home folder and no longer name that begins with it: 0 when it is not there. Windows
 * has both slashes. */
static size_t home_at(const char *at, const char *home) {
    size_t size = 0;
    for (; home[size] != '\0'; size++) {
        char slash = home[size] == '\\' ? '/' : home[size];
        if ((at[size] == '\\' ? '/' : at[size]) != slash)
            return 0;
    }
    return strchr("/\\ ,;:)\"'`", at[size]) != NULL ? size : 0; /* or its end */
}

/* `text`, with ~ for the home folder; *out is for the caller to free. */
static const char *without_home(const char *text, fl_buf *out) {
    const char *home = getenv("HOME");
    if (home == NULL || strlen(home) < 2) /* no folder of a person's */
        return text;
    while (*text != '\0') {
        size_t size = home_at(text, home);
        fl_buf_append(out, size > 0 ? "~" : text, 1);
        text += size > 0 ? size : 1;
    }
    return out->failed || out->data == NULL ? "" : out->data;
}

static int add_line(report *r, const char *name, const char *value, const char *origin) {
    if (!r->json) {
        fl_buf_printf(&r->out, "  %-*s  %-*s%s%s%s\n", NAME_COLUMN, name,
                      origin[0] != '\0' ? VALUE_COLUMN - NAME_COLUMN : 0, value,
                      origin[0] != '\0' ? "  (" : "", origin, origin[0] != '\0' ? ")" : "");
        return 0;
    }
    bool      first = r->out.size > 0 && r->out.data[r->out.size - 1] == '[';
    fl_json_w w     = {.out = &r->out};
    fl_buf_puts(&r->out, first ? "" : ",\n");
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "name", name);
    fl_json_w_text(&w, "value", value);
    fl_json_w_text(&w, "origin", origin);
    fl_json_w_end(&w);
    return 0;
}

static int add(void *user, const char *name, const char *value, const char *origin) {
    report *r = user;
    if (!r->sent)
        return add_line(r, name, value, origin);
    fl_buf shown = {0}, source = {0};
    int    status = add_line(r, name, without_home(value, &shown), without_home(origin, &source));
    fl_buf_free(&shown);
    fl_buf_free(&source);
    return status;
}

/* The system and what compiled this program, which nothing else here depends on. */
static void add_system(report *r) {
    struct utsname self = {0};
    fl_buf         text = {0};
    char           line[256];
    fletch_error   error;
    if (uname(&self) == 0) {
        snprintf(line, sizeof line, "%s %s, %s", self.sysname, self.release, self.machine);
        (void)add(r, "kernel", line, "");
    }
    if (fl_file_read("/etc/os-release", 65536, &text, &error) == FLETCH_OK && text.size > 0) {
        const char *name = strstr(text.data, "PRETTY_NAME=\"");
        name             = name != NULL ? name + strlen("PRETTY_NAME=\"") : "";
        snprintf(line, sizeof line, "%.*s", (int)strcspn(name, "\"\n"), name);
        (void)add(r, "distribution", line, "/etc/os-release");
    }
    fl_buf_free(&text);
    (void)add(r, "compiler", __VERSION__, "");
}

/* Why the published vectors do not apply, or "" when they do. */
static void why_skip(const fl_cli *cli, char *out, size_t capacity) {
    static const char *const bending[] = {"model.pooling",    "model.normalize",
                                          "model.prompt",     "model.prompt_name",
                                          "model.dimensions", "model.max_length"};
    out[0]                             = '\0';
    for (size_t i = 0; i < sizeof bending / sizeof bending[0]; i++) {
        const char *origin = "default";
        (void)fletch_config_get(cli->config, bending[i], &origin);
        if (strcmp(origin, "default") != 0) {
            snprintf(out, capacity, "%s is set (%s), which changes the vectors", bending[i],
                     origin);
            return;
        }
    }
    char         folder[3072] = "", path[4096], hex[65];
    fletch_error error;
    (void)fl_cli_model_property(cli->model, "path", folder, sizeof folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (fletch_dimensions(cli->model) != DIMENSIONS || fl_file_sha256(path, hex, &error) < 0 ||
        strcmp(hex, weights_sha256) != 0)
        snprintf(out, capacity, "vectors are published for all-MiniLM-L6-v2 only");
}

/* Largest difference from the published values. */
static double compare(const float vectors[SENTENCES][DIMENSIONS]) {
    double worst = 0;
    for (size_t s = 0; s < SENTENCES; s++)
        for (size_t i = 0; i < FIRST; i++)
            worst = fmax(worst, fabs((double)vectors[s][i] - (double)first_values[s][i]));
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        double similarity = fl_vector_dot(vectors[pairs[p].a], vectors[pairs[p].b], DIMENSIONS);
        worst             = fmax(worst, fabs(similarity - pairs[p].similarity));
    }
    return worst; /* fmax drops NaN: the caller looks at the norms as well */
}

/* True when it passed or was skipped. */
static bool self_test(fl_cli *cli, report *r) {
    static float vectors[SENTENCES][DIMENSIONS];
    char         text[600];
    fletch_error error = {0};
    why_skip(cli, text, sizeof text);
    if (text[0] != '\0') {
        (void)add(r, "vectors", "skipped", text);
        return true;
    }
    fletch_texts      texts = fletch_texts_from_strings(sentences, SENTENCES);
    fletch_matrix     out   = fletch_matrix_f32(&vectors[0][0], SENTENCES, DIMENSIONS);
    fletch_model_info info  = {.size = sizeof info}; /* auto takes what suits the device */
    if (fletch_embed(cli->model, &texts, NULL, &out, &error) < 0 ||
        fletch_model_info_get(cli->model, &info, &error) < 0) {
        (void)add(r, "vectors", "FAILED", error.message);
        return false;
    }
    double worst = compare((const float(*)[DIMENSIONS])vectors);
    double limit = strcmp(info.precision, "fp32") == 0 ? tolerance_fp32 : tolerance_reduced;
    bool   good  = worst <= limit;
    for (size_t s = 0; s < SENTENCES; s++)
        good = good && fabs(fl_vector_dot(vectors[s], vectors[s], DIMENSIONS) - 1) <= limit;
    snprintf(text, sizeof text, "largest difference from sentence-transformers %.1e, allowed %.0e",
             worst, limit);
    (void)add(r, "vectors", good ? "ok" : "FAILED", text);
    if (r->sent) {
        char hex[65];
        fl_sha256_hex(vectors, sizeof vectors, hex);
        (void)add(r, "vectors.sha256", hex, "");
    }
    return good;
}

/* The model and its test; the report holds what was found. */
static fl_exit examine_model(fl_cli *cli, report *r) {
    fletch_error error = {0};
    begin(r, "model");
    /* The doctor looks and touches nothing: a missing model is a finding, not a reason to fetch it.
     * Asked first without opening, so that the report does not blame a setting nobody made. */
    char path[4096];
    if (fletch_hub_path(cli->config, fletch_config_model(cli->config), path, sizeof path, &error) <
            0 ||
        fletch_config_set(cli->config, "model.auto_download", "false", &error) < 0 ||
        fletch_open(&cli->model, NULL, cli->config, &error) < 0) {
        fl_exit code = fl_cli_exit_code(error.code, true);
        (void)add(r, "name", fletch_config_model(cli->config), "");
        (void)add(r, "problem", error.message, "");
        return code;
    }
    (void)fletch_model_describe(cli->model, add, r);
    begin(r, "self-test");
    return self_test(cli, r) ? FL_EXIT_DONE : FL_EXIT_FAILED;
}

fl_exit fl_cmd_doctor(fl_cli *cli) {
    if (cli->args.rest_count > 0)
        return fl_cli_usage(cli, "doctor takes no arguments; --model names the model");
    report r = {.json = fl_cli_is(cli, FL_FLAG_FORMAT, "json"),
                .sent = cli->args.value[FL_FLAG_REPORT] != NULL};
    if (r.sent) {
        begin(&r, "system");
        add_system(&r);
    }
    begin(&r, "machine");
    (void)fletch_system_describe(cli->config, add, &r);
    fl_exit code = examine_model(cli, &r);
    fl_buf_puts(&r.out, r.json ? "]}\n" : "");
    fl_exit printed = fl_cli_print(&r.out);
    return printed != FL_EXIT_DONE ? printed : code;
}
