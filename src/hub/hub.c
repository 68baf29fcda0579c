/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c - a name becomes a folder: from the disk, from the cache, or from the hub.
 *
 * Role    fletch.c calls resolve when a model opens; pull and path serve the command line.
 * In/Out  "medium", "org/name@v1", "./folder" -> a folder that holds the model's files.
 * Method  A folder that is there wins over a hub id of the same spelling, as in
 *         sentence-transformers (a bare word, "medium", only when the folder looks like a model).
 *         Then the cache: a complete snapshot is used without any question to the network. Only
 *         then, and when allowed, the hub.
 * Memory  none kept. Threads: no state but the environment and the file system.
 * Proof   tests/unit/test_hub.c, tests/golden/test_hub.py. */
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/hub_cache.h"
#include "hub/model_files.h"

/* What a name led to. */
typedef struct place {
    bool         folder; /* a path, which the name is or stands for */
    char         path[FL_HUB_PATH_MAX];
    fl_hub_name  name;
    fl_hub_env   env;
    fl_hub_repo  repo;
    const char  *revision; /* borrowed from name, the options, or static */
    char         commit[FL_HUB_COMMIT_MAX];
    fl_hub_state state; /* PARTIAL also when nothing is there */
    char         missing[FL_HUB_ID_MAX];
} place;

static bool looks_like_model(const char *folder) {
    static const char *const marks[] = {"modules.json", "config.json", "tokenizer.json",
                                        "adapter_config.json"};
    char                     path[FL_HUB_PATH_MAX];
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (fl_path_join(path, sizeof path, folder, marks[i], NULL) == 0 && fl_file_exists(path))
            return true;
    return false;
}

static int copy_path(char *path, size_t capacity, const char *text, fletch_error *error) {
    size_t size = strlen(text);
    if (path == NULL)
        return 0; /* the caller only wants it done */
    if (size >= capacity) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the path needs %zu bytes, but the buffer has %zu", size + 1, capacity);
    }
    memcpy(path, text, size + 1);
    return 0;
}

/* Where the name stands, without the network. */
static int find(place *out, const char *name, const fl_hub_options *options, fletch_error *error) {
    memset(out, 0, sizeof *out);
    int stored = name != NULL ? fl_gguf_in_store(name, options, out->path, error) : 0;
    if (stored != 0) {
        out->folder = stored > 0;
        snprintf(out->name.id, sizeof out->name.id, "%s", name);
        return stored < 0 ? stored : 0;
    }
    if (name != NULL && name[0] != '\0' &&
        (fl_gguf_is_file(name) ||
         (fl_folder_exists(name) && (!fl_hub_name_is_plain(name) || looks_like_model(name))))) {
        out->folder = true;
        return copy_path(out->path, sizeof out->path, name, error);
    }
    FL_TRY(fl_hub_name_parse(&out->name, name, error));
    if (out->name.folder) {
        return fl_fail(
            error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
            fl_file_exists(name)
                ? "%.300s is neither an .onnx nor a GGUF file; give the folder it lies in"
                : "no such folder: %.300s; give a folder with config.json, a hub id (org/name), or "
                  "low, medium, high",
            name);
    }
    out->revision = out->name.revision[0] != '\0'                               ? out->name.revision
                    : options->revision != NULL && options->revision[0] != '\0' ? options->revision
                                                                                : "main";
    if (!fl_hub_revision_is_valid(out->revision)) {
        return fl_fail(
            error, FLETCH_EINVAL, FLETCH_NOWHERE,
            "\"%.200s\" is not a revision; give a branch, tag or commit, such as main or refs/pr/3",
            out->revision);
    }
    FL_TRY(fl_hub_env_read(&out->env, options, error));
    FL_TRY(fl_hub_repo_at(&out->repo, &out->env, out->name.id, error));
    out->state = FL_HUB_PARTIAL;
    if (fl_hub_ref_read(&out->repo, out->revision, out->commit))
        out->state = fl_hub_snapshot_state(&out->repo, out->commit, out->missing);
    return 0;
}

static int give_snapshot(const place *found, char *path, size_t capacity, fletch_error *error) {
    char snapshot[FL_HUB_PATH_MAX];
    FL_TRY(fl_hub_repo_path(&found->repo, "snapshots", found->commit, "", snapshot, error));
    return copy_path(path, capacity, snapshot, error);
}

/* Not in the cache, and the network may not be asked: say what was looked for and how to get it. */
static int not_cached(const place *found, const char *why, fletch_error *error) {
    char what[FL_HUB_ID_MAX + 64];
    if (found->commit[0] == '\0')
        snprintf(what, sizeof what, "has no revision \"%.100s\"", found->revision);
    else
        snprintf(what, sizeof what, "lacks %.100s at %.12s", found->missing, found->commit);
    return fl_fail(
        error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
        "%s is not usable from the cache: %.150s %s%s. Run `fletch model pull %s` where a "
        "network is allowed, or give a model folder",
        found->repo.id, found->env.cache, what, why, found->repo.id);
}

static const char *offline_reason(const place *found, char text[64]) {
    snprintf(text, 64, ", and %s forbids the network", found->env.offline);
    return text;
}

static void warn_unsure(const place *found, const fl_log *log) {
    fl_log_write(
        log, FL_LOG_WARNING,
        "%s: the cache holds no modules.json and does not say that the hub has none; the model is "
        "used without (mean pooling). Run `fletch model pull %s` to be sure",
        found->repo.id, found->repo.id);
}

static int fetch(place *found, const char *revision, const fl_hub_options *options,
                 fletch_progress_fn progress, void *user, fletch_error *error) {
    fl_log_write(options->log, FL_LOG_INFO, "asking %s for %s", found->env.endpoint,
                 found->repo.id);
    return fl_hub_fetch(&found->env, &found->repo, revision, options->log, progress, user,
                        found->commit, error);
}

/* Bring the model here if that is needed and allowed. */
static int obtain(place *found, const fl_hub_options *options, fletch_progress_fn progress,
                  void *user, fletch_error *error) {
    char why[64];
    if (found->state == FL_HUB_COMPLETE)
        return 0;
    if (found->env.offline != NULL || !options->auto_download) {
        if (found->state == FL_HUB_UNSURE) {
            warn_unsure(found, options->log);
            return 0;
        }
        return not_cached(found,
                          found->env.offline != NULL ? offline_reason(found, why)
                                                     : ", and model.auto_download is false",
                          error);
    }
    if (found->state == FL_HUB_PARTIAL)
        return fetch(found, found->revision, options, progress, user, error);
    /* Unsure: complete the very commit that is here, and go on without when nobody answers. */
    char commit[FL_HUB_COMMIT_MAX];
    memcpy(commit, found->commit, sizeof commit);
    int status = fetch(found, commit, options, progress, user, error);
    if (status == 0 || status == FLETCH_ECANCELLED)
        return status;
    fl_error_clear(error);
    memcpy(found->commit, commit, sizeof commit);
    warn_unsure(found, options->log);
    return 0;
}

int fl_hub_resolve(const char *name, const fl_hub_options *options, fletch_progress_fn progress,
                   void *user, char *path, size_t capacity, char *id_out, char *revision_out,
                   fletch_error *error) {
    place found;
    int   status = find(&found, name, options, error);
    if (status == 0 && !found.folder)
        status = obtain(&found, options, progress, user, error);
    if (status == 0) {
        status = found.folder ? copy_path(path, capacity, found.path, error)
                              : give_snapshot(&found, path, capacity, error);
    }
    if (id_out != NULL)
        snprintf(id_out, FL_HUB_ID_MAX, "%s", status == 0 ? found.name.id : "");
    if (revision_out != NULL)
        snprintf(revision_out, 64, "%s", status == 0 ? found.commit : "");
    return status;
}

/* The newest of this name, in the folder `path`. */
static int pull_one(const char *name, const fl_hub_options *options, fletch_progress_fn progress,
                    void *user, char path[FL_HUB_PATH_MAX], fletch_error *error) {
    place found;
    char  why[64];
    int   status = find(&found, name, options, error);
    if (status != 0 || found.folder)
        return status != 0 ? status : copy_path(path, FL_HUB_PATH_MAX, found.path, error);
    char cached[FL_HUB_COMMIT_MAX];
    memcpy(cached, found.commit, sizeof cached);
    if (found.env.offline != NULL) {
        status = found.state == FL_HUB_PARTIAL
                     ? not_cached(&found, offline_reason(&found, why), error)
                     : 0;
    } else {
        status = fetch(&found, found.revision, options, progress, user, error);
    }
    if (status == FLETCH_ENETWORK && found.state == FL_HUB_COMPLETE) {
        /* As Python does: the copy that is here is whole, only its age is not known. */
        fl_log_write(options->log, FL_LOG_WARNING, "%s: using the copy in the cache (%s)",
                     found.repo.id, error->message);
        fl_error_clear(error);
        memcpy(found.commit, cached, sizeof cached);
        status = 0;
    }
    return status != 0 ? status : give_snapshot(&found, path, FL_HUB_PATH_MAX, error);
}

/* The model that the adapter in `folder` changes, where there is one (peft.c opens it by the same words). */
static int pull_base(const char *folder, const fl_hub_options *options, fletch_progress_fn progress,
                     void *user, fletch_error *error) {
    char     path[FL_HUB_PATH_MAX];
    fl_json *config = NULL;
    FL_TRY(fl_path_join(path, sizeof path, folder, "adapter_config.json", error));
    if (!fl_file_exists(path))
        return 0;
    FL_TRY(fl_json_read(&config, path, FL_HUB_JSON_MAX, error));
    const char    *base    = fl_json_text(fl_json_get(config, "base_model_name_or_path"));
    fl_hub_options of_base = *options;
    of_base.revision       = fl_json_text(fl_json_get(config, "revision"));
    int status = base != NULL ? pull_one(base, &of_base, progress, user, path, error) : 0;
    if (status != 0)
        fl_error_prefix(error, "%s/adapter_config.json, base_model_name_or_path", folder);
    fl_json_free(config);
    return status;
}

int fl_hub_pull(const char *name, const fl_hub_options *options, fletch_progress_fn progress,
                void *user, char *path, size_t capacity, fletch_error *error) {
    fletch_error local;
    char         folder[FL_HUB_PATH_MAX];
    error = error != NULL ? error : &local;
    FL_TRY(pull_one(name, options, progress, user, folder, error));
    FL_TRY(pull_base(folder, options, progress, user, error));
    return copy_path(path, capacity, folder, error);
}

int fl_hub_path(const char *name, const fl_hub_options *options, char *path, size_t capacity,
                fletch_error *error) {
    place found;
    int   status = find(&found, name, options, error);
    if (status != 0 || found.folder)
        return status != 0 ? status : copy_path(path, capacity, found.path, error);
    return found.state == FL_HUB_PARTIAL ? not_cached(&found, "", error)
                                         : give_snapshot(&found, path, capacity, error);
}
