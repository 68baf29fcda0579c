/* SPDX-License-Identifier: Apache-2.0 */
/* offers.c - which models a server may open when a client names them, and how much memory they will take.
 *
 * Role    demand.c asks at the start, and again when a name is unknown.
 * In/Out  server.on_demand to names and ids: a folder of models, or one model's; NAME=ID or ID; "cached".
 * Method  A model's folder has config.json or modules.json; a .gguf file is a model of its own. Of Ollama's store the
 *         names are those of its manifests. Nothing that a client says is ever a path: its name is compared
 *         with these.
 *         Memory is predicted by the files of the weights: they are mapped and packed once, which takes
 *         their size again at most; 16 bits become 32 for a processor. When a model was open once, what it took counts.
 * Memory  none kept. Threads: any.
 * Proof   tests/server/test_on_demand.py. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "server/server_internal.h"

enum { PATH_ROOM = 4096, HEADER_ROOM = 64 * 1024 };

static const char cached[] = "cached";

/* The next of "a, b" into out; false: there is none. */
static bool next_entry(const char **at, char out[PATH_ROOM]) {
    for (;;) {
        *at += strspn(*at, ", \t");
        size_t size = strcspn(*at, ","), used = size;
        if (size == 0 && **at == '\0')
            return false;
        while (used > 0 && ((*at)[used - 1] == ' ' || (*at)[used - 1] == '\t'))
            used--;
        (void)snprintf(out, PATH_ROOM, "%.*s", (int)used, *at);
        *at += size;
        if (used > 0)
            return true;
    }
}

static bool has_file(const char *folder, const char *name) {
    char path[PATH_ROOM];
    return fl_path_join(path, sizeof path, folder, name, NULL) == FLETCH_OK && fl_file_exists(path);
}

static bool is_model(const char *folder) {
    return has_file(folder, "config.json") || has_file(folder, "modules.json");
}

int fl_offers_check(const fletch_config *config, const char *list, fletch_error *error) {
    char entry[PATH_ROOM];
    while (next_entry(&list, entry)) {
        char       *name = NULL;
        const char *id   = "";
        if (strcmp(entry, cached) == 0 || (fl_folder_exists(entry) && !is_model(entry)))
            continue;
        FL_TRY(fl_model_spec_read(entry, &name, &id, error));
        fl_free(name);
        FL_TRY(fl_model_check(config, id, error));
    }
    return FLETCH_OK;
}

/* ---- Folders -------------------------------------------------------------------------------------- */

typedef struct scan {
    fl_offer_fn fn;
    void       *user;
} scan;

typedef void (*entry_fn)(const scan *s, const char *folder, const char *name, const char *above);

/* Call fn for all in a folder but what is hidden. */
static void each(const scan *s, const char *folder, const char *above, entry_fn fn) {
    DIR                 *open  = opendir(folder);
    const struct dirent *entry = NULL;
    while (open != NULL && (entry = readdir(open)) != NULL)
        if (entry->d_name[0] != '.')
            fn(s, folder, entry->d_name, above);
    if (open != NULL)
        (void)closedir(open);
}

static void offer_below(const scan *s, const char *folder, const char *name, const char *above) {
    char path[PATH_ROOM], shown[PATH_ROOM];
    (void)above;
    if (fl_path_join(path, sizeof path, folder, name, NULL) < 0)
        return;
    if (fl_path_ends_with(path, ".gguf") && fl_file_exists(path)) {
        (void)snprintf(shown, sizeof shown, "%.*s", (int)(strlen(name) - 5), name);
        s->fn(s->user, shown, path, false);
    } else if (fl_folder_exists(path) && is_model(path)) {
        s->fn(s->user, name, path, false);
    }
}

/* ---- What is cached -------------------------------------------------------------------------------- */

static int on_hub(void *user, const fletch_hub_entry *entry) {
    const scan *s = user;
    s->fn(s->user, entry->id, entry->id, false);
    return 0;
}

/* `above` is what leads to the folder of tags: "registry.ollama.ai/library/nomic-embed-text". The first two parts are
 * left out of a name where they are these. */
static void offer_tag(const scan *s, const char *folder, const char *tag, const char *above) {
    static const char host[] = "registry.ollama.ai/", library[] = "library/";
    char              name[PATH_ROOM], id[PATH_ROOM];
    (void)folder;
    above += strncmp(above, host, sizeof host - 1) == 0 ? sizeof host - 1 : 0;
    above += strncmp(above, library, sizeof library - 1) == 0 ? sizeof library - 1 : 0;
    bool plain = strcmp(tag, "latest") == 0;
    int  size  = snprintf(name, sizeof name, "%s%s%s", above, plain ? "" : ":", plain ? "" : tag);
    if (size > 0 && (size_t)size < sizeof name - sizeof "ollama:") {
        (void)snprintf(id, sizeof id, "ollama:%s", name);
        s->fn(s->user, name, id, false);
    }
}

static void descend(const scan *s, const char *folder, const char *name, const char *above) {
    char   path[PATH_ROOM], here[PATH_ROOM];
    size_t depth = 0;
    if (fl_path_join(path, sizeof path, folder, name, NULL) < 0 ||
        fl_path_join(here, sizeof here, above, name, NULL) < 0)
        return;
    for (const char *at = here; *at != '\0'; at++)
        depth += *at == '/';
    each(s, path, here, depth == 2 ? offer_tag : descend); /* host/user/name, and its tags */
}

static void offer_ollama(const scan *s) {
    char        path[PATH_ROOM];
    const char *store = getenv("OLLAMA_MODELS"), *home = getenv("HOME");
    const char *below = "manifests";
    if (store == NULL || store[0] == '\0') {
        store = home != NULL ? home : "";
        below = ".ollama/models/manifests";
    }
    if (fl_path_join(path, sizeof path, store, below, NULL) == FLETCH_OK)
        each(s, path, "", descend);
}

void fl_offers_scan(const fletch_config *config, const char *list, fl_offer_fn fn, void *user) {
    scan s = {fn, user};
    char entry[PATH_ROOM];
    while (next_entry(&list, entry)) {
        char       *name = NULL;
        const char *id   = "";
        if (strcmp(entry, cached) == 0) {
            (void)fletch_hub_list(config, on_hub, &s, NULL);
            offer_ollama(&s);
        } else if (fl_folder_exists(entry) && !is_model(entry)) {
            each(&s, entry, "", offer_below);
        } else if (fl_model_spec_read(entry, &name, &id, NULL) == FLETCH_OK) {
            fn(user, name, id, true);
            fl_free(name);
        }
    }
}

/* ---- Memory --------------------------------------------------------------------------------------- */

static uint64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

/* Whether the first tensors of a safetensors file have 16 bits. */
static bool is_half(const char *path) {
    char *head = fl_alloc_zero(1, HEADER_ROOM);
    FILE *file = head != NULL ? fopen(path, "rb") : NULL;
    bool  half = false;
    if (file != NULL) {
        size_t got = fread(head, 1, HEADER_ROOM - 1, file);
        half       = got > 8 && strstr(head + 8, "F16\"") != NULL; /* BF16 as well */
        (void)fclose(file);
    }
    fl_free(head);
    return half;
}

uint64_t fl_offer_bytes(const fletch_config *config, const char *id) {
    static const char *const ends[] = {".safetensors", ".gguf", ".bin", ".onnx"};
    enum { BESIDE = 16 * 1024 * 1024 }; /* the vocabulary, room for batches */
    char     path[PATH_ROOM], file[PATH_ROOM];
    uint64_t bytes = 0;
    if (id[0] == '/' || id[0] == '.')
        (void)snprintf(path, sizeof path, "%s", id);
    else if (fletch_hub_path(config, id, path, sizeof path, NULL) < 0)
        return 0;
    for (size_t e = 0; bytes == 0 && e < sizeof ends / sizeof ends[0]; e++) {
        DIR                 *open  = opendir(path);
        const struct dirent *entry = NULL;
        while (open != NULL && (entry = readdir(open)) != NULL)
            if (fl_path_ends_with(entry->d_name, ends[e]) &&
                fl_path_join(file, sizeof file, path, entry->d_name, NULL) == FLETCH_OK)
                bytes += size_of(file) * (e == 0 && is_half(file) ? 2 : 1);
        if (open != NULL)
            (void)closedir(open);
    }
    bytes += size_of(path); /* a .gguf file itself */
    return bytes > 0 ? bytes + bytes / 8 + BESIDE : 0;
}
