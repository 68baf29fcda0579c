/* SPDX-License-Identifier: Apache-2.0 */
/* hub_env.c - where the cache is, which hub to ask, and with whose token: huggingface_hub's rules.
 *
 * Role    hub.c reads the environment once per call and passes the result on; nothing is kept.
 * In/Out  HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_ENDPOINT, HF_TOKEN,
 *         HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_OFFLINE,
 *         TRANSFORMERS_OFFLINE, HF_HUB_DISABLE_SYMLINKS, HF_HUB_ETAG_TIMEOUT,
 *         HF_HUB_DOWNLOAD_TIMEOUT, and the caller's options, which win where set -> fl_hub_env.
 * Method  A variable that is set but empty counts as not set. "~" and $NAME in the folders are
 *         expanded, as Python does. Yes is 1, on, yes or true in any case.
 * Memory  none kept. Threads: reads the environment; a program that changes it meanwhile is at
 *         fault.
 * Proof   tests/unit/test_hub.c; tests/golden/test_hub.py compares with huggingface_hub itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "hub/hub_cache.h"

enum { TIMEOUT_DEFAULT_S = 10, TIMEOUT_MAX_S = 3600, TOKEN_FILE_MAX = 4096 };

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is_yes(const char *value) {
    return value != NULL && (strcmp(value, "1") == 0 || strcasecmp(value, "on") == 0 ||
                             strcasecmp(value, "yes") == 0 || strcasecmp(value, "true") == 0);
}

/* The length of a variable's name at `text`. */
static size_t name_length(const char *text) {
    size_t size = 0;
    while ((text[size] >= 'a' && text[size] <= 'z') || (text[size] >= 'A' && text[size] <= 'Z') ||
           (text[size] >= '0' && text[size] <= '9') || text[size] == '_')
        size++;
    return size;
}

/* Append the value of $NAME or ${NAME} at `text`; returns how much of text that was, 0 for none. */
static size_t append_variable(fl_buf *out, const char *text) {
    bool   braces = text[1] == '{';
    size_t start  = braces ? 2 : 1;
    size_t size   = name_length(text + start);
    char   name[128];
    if (size == 0 || size >= sizeof name || (braces && text[start + size] != '}'))
        return 0;
    memcpy(name, text + start, size);
    name[size]        = '\0';
    const char *value = getenv(name);
    if (value == NULL)
        return 0; /* Python leaves an unknown variable as it is written */
    fl_buf_puts(out, value);
    return start + size + (braces ? 1 : 0);
}

/* A folder from the environment with "~" and variables expanded. */
static int expand(char out[FL_HUB_PATH_MAX], const char *text, fletch_error *error) {
    fl_buf buf = {0};
    if (text[0] == '~' && (text[1] == '/' || text[1] == '\0')) {
        const char *home = variable("HOME");
        if (home == NULL) {
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "HOME is not set, so \"%.200s\" cannot be resolved; set HF_HUB_CACHE to "
                           "the folder that holds downloaded models",
                           text);
        }
        fl_buf_puts(&buf, home);
        text++;
    }
    while (*text != '\0') {
        size_t used = *text == '$' ? append_variable(&buf, text) : 0;
        if (used == 0) {
            fl_buf_putc(&buf, *text);
            used = 1;
        }
        text += used;
    }
    int status = 0;
    if (buf.failed) {
        status = fl_fail_nomem(error, buf.size, "a path");
    } else if (buf.size >= FL_HUB_PATH_MAX - FL_HUB_ID_MAX) {
        status = fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                         "the cache folder's name is too long (%zu bytes)", buf.size);
    } else {
        memcpy(out, buf.size > 0 ? buf.data : "", buf.size);
        while (buf.size > 1 && out[buf.size - 1] == '/')
            buf.size--;
        out[buf.size] = '\0';
    }
    fl_buf_free(&buf);
    return status;
}

/* $HF_HOME, by default $XDG_CACHE_HOME/huggingface, by default ~/.cache/huggingface. */
static int hf_home(char out[FL_HUB_PATH_MAX], fletch_error *error) {
    const char *home = variable("HF_HOME");
    if (home != NULL)
        return expand(out, home, error);
    const char *xdg = variable("XDG_CACHE_HOME");
    char        base[FL_HUB_PATH_MAX];
    FL_TRY(expand(base, xdg != NULL ? xdg : "~/.cache", error));
    return fl_path_join(out, FL_HUB_PATH_MAX, base, "huggingface", error);
}

static int read_cache(fl_hub_env *env, const fl_hub_options *options, fletch_error *error) {
    if (options->cache_dir != NULL && options->cache_dir[0] != '\0')
        return expand(env->cache, options->cache_dir, error);
    const char *cache = variable("HF_HUB_CACHE");
    if (cache == NULL)
        cache = variable("HUGGINGFACE_HUB_CACHE");
    if (cache != NULL)
        return expand(env->cache, cache, error);
    char home[FL_HUB_PATH_MAX];
    FL_TRY(hf_home(home, error));
    return fl_path_join(env->cache, sizeof env->cache, home, "hub", error);
}

static int read_endpoint(fl_hub_env *env, fletch_error *error) {
    const char *endpoint = variable("HF_ENDPOINT");
    if (endpoint == NULL)
        endpoint = "https://huggingface.co";
    size_t size = strlen(endpoint);
    while (size > 0 && endpoint[size - 1] == '/')
        size--;
    if ((strncmp(endpoint, "https://", 8) != 0 && strncmp(endpoint, "http://", 7) != 0) ||
        size >= sizeof env->endpoint) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "HF_ENDPOINT must be a URL such as https://huggingface.co, not \"%.200s\"",
                       endpoint);
    }
    memcpy(env->endpoint, endpoint, size);
    env->endpoint[size] = '\0';
    return 0;
}

/* Copy a token without line ends and outer spaces; what could break out of a header is refused. */
static int clean_token(fl_hub_env *env, const char *text, size_t size, const char *origin,
                       fletch_error *error) {
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\r' || c == '\n' || c == '\t' || (c == ' ' && used == 0))
            continue;
        if (c < ' ' || c > '~' || used + 1 >= sizeof env->token) {
            env->token[0] = '\0';
            return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                           "%s does not hold a token (too long, or characters a token never has)",
                           origin);
        }
        env->token[used++] = (char)c;
    }
    while (used > 0 && env->token[used - 1] == ' ')
        used--;
    env->token[used] = '\0';
    return 0;
}

static int read_token(fl_hub_env *env, fletch_error *error) {
    const char *origin = "HF_TOKEN";
    const char *token  = variable(origin);
    if (token == NULL) {
        origin = "HUGGING_FACE_HUB_TOKEN";
        token  = variable(origin);
    }
    if (token != NULL)
        return clean_token(env, token, strlen(token), origin, error);
    char        path[FL_HUB_PATH_MAX], home[FL_HUB_PATH_MAX];
    const char *named  = variable("HF_TOKEN_PATH");
    int         status = 0;
    fl_buf      file   = {0};
    bool        known  = named != NULL ? expand(path, named, NULL) == 0
                                       : hf_home(home, NULL) == 0 &&
                                     fl_path_join(path, sizeof path, home, "token", NULL) == 0;
    /* Without HOME there is no token file either. */
    if (known && fl_file_read(path, TOKEN_FILE_MAX, &file, NULL) == 0 && file.size > 0)
        status = clean_token(env, file.data, file.size, path, error);
    fl_buf_free(&file);
    return status;
}

static unsigned seconds(const char *name) {
    const char *value = variable(name);
    int64_t     parsed;
    if (value == NULL || !fl_parse_i64(value, &parsed) || parsed <= 0)
        return TIMEOUT_DEFAULT_S;
    return parsed < TIMEOUT_MAX_S ? (unsigned)parsed : TIMEOUT_MAX_S;
}

int fl_hub_env_read(fl_hub_env *env, const fl_hub_options *options, fletch_error *error) {
    memset(env, 0, sizeof *env);
    FL_TRY(read_cache(env, options, error));
    FL_TRY(read_endpoint(env, error));
    /* As in Python, TRANSFORMERS_OFFLINE is only asked when HF_HUB_OFFLINE says nothing at all. */
    const char *name =
        variable("HF_HUB_OFFLINE") != NULL ? "HF_HUB_OFFLINE" : "TRANSFORMERS_OFFLINE";
    if (options->offline)
        env->offline = "model.offline";
    else if (is_yes(variable(name)))
        env->offline = name;
    env->symlinks     = !is_yes(variable("HF_HUB_DISABLE_SYMLINKS"));
    env->head_seconds = seconds("HF_HUB_ETAG_TIMEOUT");
    env->body_seconds = seconds("HF_HUB_DOWNLOAD_TIMEOUT");
    if (env->offline == NULL) {
        FL_TRY(read_token(env, error));
        if (is_yes(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
            env->token_held_back = env->token[0] != '\0';
            env->token[0]        = '\0';
        }
    }
    return 0;
}
