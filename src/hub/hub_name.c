/* SPDX-License-Identifier: Apache-2.0 */
/* hub_name.c - what a person writes for a model becomes a hub id and a revision.
 *
 * Role    hub.c asks first; hub_pull.c checks what a server sends with the same rules.
 * In/Out  "medium", "all-MiniLM-L6-v2", "org/name", "org/name@v1.0", "./folder" -> fl_hub_name.
 * Method  By the text alone. Ids follow huggingface_hub's rules, so an id can never name a folder
 *         outside the cache: letters, digits, '-', '_', '.', at most one '/', no "--", no "..".
 * Memory  none. Threads: pure functions.
 * Proof   tests/unit/test_hub.c. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "hub/hub_cache.h"

enum { PART_MAX = 96 }; /* the hub's own limit on a name */

static const struct {
    const char *level;
    const char *id;
} levels[] = {
    {"low", "sentence-transformers/paraphrase-MiniLM-L3-v2"},
    {"medium", "sentence-transformers/all-MiniLM-L6-v2"},
    {"high", "sentence-transformers/all-mpnet-base-v2"},
};

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_hex(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
    return text[size] == '\0';
}

bool fl_hub_commit_is_valid(const char *commit) {
    return strnlen(commit, FL_HUB_COMMIT_MAX) == FL_HUB_COMMIT_MAX - 1 &&
           is_hex(commit, FL_HUB_COMMIT_MAX - 1);
}

bool fl_hub_etag_is_valid(const char *etag) {
    size_t size = strlen(etag);
    if (size == 0 || size > 128 || etag[0] == '.')
        return false;
    for (size_t i = 0; i < size; i++)
        if (!is_word(etag[i]) && etag[i] != '-' && etag[i] != '.')
            return false;
    return true;
}

const char *fl_hub_etag_kind(const char *etag) {
    assert(etag);
    size_t size = strlen(etag);
    if (!is_hex(etag, size))
        return NULL;
    return size == 64 ? "sha256" : size == 40 ? "git sha1" : NULL;
}

bool fl_hub_revision_is_valid(const char *revision) {
    size_t size = strlen(revision);
    if (size == 0 || size > 200 || !fl_path_is_safe(revision))
        return false;
    /* What git forbids in a ref, and empty or "." parts, which would name another file in refs/. */
    if (strpbrk(revision, " ~^:?*[%#&") != NULL)
        return false;
    char last = '/';
    for (size_t i = 0; i <= size; i++) {
        bool ends = revision[i] == '/' || revision[i] == '\0';
        if ((last == '/' && (ends || revision[i] == '.')))
            return false;
        last = revision[i];
    }
    return true;
}

/* One half of an id: 1..96 of [A-Za-z0-9_.-], beginning and ending with a letter, digit or '_'. */
static bool part_is_valid(const char *part, size_t size) {
    if (size == 0 || size > PART_MAX || !is_word(part[0]) || !is_word(part[size - 1]))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!is_word(part[i]) && part[i] != '-' && part[i] != '.')
            return false;
        if (i > 0 && part[i] == part[i - 1] && (part[i] == '-' || part[i] == '.'))
            return false; /* "--" separates the parts in the cache; ".." leaves folders */
    }
    return true;
}

static bool id_is_valid(const char *id) {
    const char *slash = strchr(id, '/');
    size_t      size  = strlen(id);
    if (slash == NULL || !part_is_valid(id, (size_t)(slash - id)) ||
        !part_is_valid(slash + 1, size - (size_t)(slash - id) - 1))
        return false;
    return size < 4 || strcmp(id + size - 4, ".git") != 0;
}

static bool is_path(const char *name, size_t size) {
    if (name[0] == '/' || name[0] == '~' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strncmp(name, "./", 2) == 0 || strncmp(name, "../", 3) == 0)
        return true;
    const char *slash =
        memchr(name, '/', size); /* "org/name" has one; more, or one last, is a path */
    return slash != NULL && (slash + 1 == name + size ||
                             memchr(slash + 1, '/', size - (size_t)(slash - name) - 1) != NULL);
}

bool fl_hub_name_is_plain(const char *name) {
    return strchr(name, '/') == NULL;
}

int fl_hub_name_parse(fl_hub_name *out, const char *name, fletch_error *error) {
    assert(name);
    memset(out, 0, sizeof *out);
    if (name == NULL || name[0] == '\0') {
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "the model's name is empty; give a folder, a hub id (org/name), or low, "
                       "medium, high");
    }
    size_t size = strcspn(name, "@");
    if (is_path(name, size)) {
        out->folder = true;
        return 0;
    }
    if (name[size] == '@') {
        const char *revision = name + size + 1;
        if (!fl_hub_revision_is_valid(revision)) {
            return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                           "\"%.200s\": what follows '@' must be a branch, tag or commit, such as "
                           "main or refs/pr/3",
                           name);
        }
        memcpy(out->revision, revision, strlen(revision) + 1);
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strlen(levels[i].level) == size && memcmp(levels[i].level, name, size) == 0) {
            memcpy(out->id, levels[i].id, strlen(levels[i].id) + 1);
            return 0;
        }
    }
    static const char home[] = "sentence-transformers/";
    size_t            at     = memchr(name, '/', size) == NULL ? sizeof home - 1 : 0;
    if (at + size < sizeof out->id) {
        memcpy(out->id, home, at);
        memcpy(out->id + at, name, size);
        out->id[at + size] = '\0';
    }
    if (!id_is_valid(out->id)) {
        out->id[0] = '\0';
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "\"%.200s\" is neither a folder nor a hub id: an id is org/name of letters, "
                       "digits, '-', '_' and '.' (no \"--\" or \"..\"); a folder is best written "
                       "./folder",
                       name);
    }
    return 0;
}
