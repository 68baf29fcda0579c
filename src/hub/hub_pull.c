/* SPDX-License-Identifier: Apache-2.0 */
/* hub_pull.c - bring the files of one revision into the cache, whole or not at all.
 *
 * Role    hub.c calls fl_hub_fetch when the cache lacks something, or when a person says pull.
 * In/Out  a hub id and revision -> the commit it stands for, and its snapshot in the cache.
 * Method  The listing fixes the commit once; every file is then asked for at that commit, so that
 *         a push in between cannot mix two versions. Of the listing only what fletch reads is
 *         taken, and never a pickle. Per file: HEAD gives its hash (ETag) and size; under the lock
 *         of that hash the bytes go to <etag>.incomplete, are checked against the hash, synced,
 *         renamed, linked. The ref is written after the last file. Killed anywhere, the next pull
 *         goes on where this one stopped.
 * Memory  lists of names; a file is hashed from disk. Threads: one pull is one thread; processes
 *         meet at the locks.
 * Proof   tests/golden/test_hub.py: faults, kill -9, two at once, wrong hash, full disk. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/download.h"
#include "hub/hub_cache.h"
#include "hub/model_files.h"

enum { WEIGHTS_UNSAID_MAX = 1 << 30 }; /* bytes of weights whose size nobody has said */

typedef struct pull_work {
    const fl_hub_env  *env;
    const fl_hub_repo *repo;
    const fl_log      *log;
    fl_download       *session; /* owned */
    const char        *revision;
    fletch_progress_fn progress;
    void              *user;
    fl_hub_names       listed;  /* owned: every safe name of the commit */
    fl_hub_names       chosen;  /* owned: those to fetch */
    fl_hub_names       folders; /* owned: those that modules.json and router_config.json name */
    char               commit[FL_HUB_COMMIT_MAX];
} pull_work;

/* ---- what the hub refuses ---- */

static int refuse(const pull_work *pull, const fl_reply *reply, const char *what,
                  fletch_error *error) {
    const char *id    = pull->repo->id;
    const char *hub   = pull->env->endpoint;
    bool        token = pull->env->token[0] != '\0';
    const char *hint  = token ? "the token has no access"
                        : pull->env->token_held_back
                            ? "HF_HUB_DISABLE_IMPLICIT_TOKEN withholds your token"
                            : "no token was sent";
    if (strcmp(reply->error_code, "GatedRepo") == 0) {
        return fl_fail(
            error, FLETCH_EDENIED, FLETCH_NOWHERE,
            "%s is gated: open %.120s/%s, accept the terms, then set HF_TOKEN to a token of "
            "that account (%s)",
            id, hub, id, hint);
    }
    if (strcmp(reply->error_code, "RevisionNotFound") == 0) {
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "%s has no revision \"%.100s\"; give a branch, tag or commit that "
                       "%.120s/%s/tree/main lists",
                       id, pull->revision, hub, id);
    }
    if (strcmp(reply->error_code, "EntryNotFound") == 0) {
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "%s lists %.100s but does not have it; try again, or name another revision",
                       id, what);
    }
    if (reply->status == 401 && strncmp(reply->error_message, "Invalid", 7) == 0) {
        return fl_fail(error, FLETCH_EDENIED, FLETCH_NOWHERE,
                       "%.120s does not accept the token: create a new one in its settings and set "
                       "HF_TOKEN, or unset it for public models",
                       hub);
    }
    if (reply->status == 404 || reply->status == 401 ||
        strcmp(reply->error_code, "RepoNotFound") == 0) {
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "%.120s has no model %s, or it is private (%s): check the spelling, or set "
                       "HF_TOKEN to a token with read access",
                       hub, id, hint);
    }
    if (reply->status == 403) {
        return fl_fail(error, FLETCH_EDENIED, FLETCH_NOWHERE, "%.120s denies %s (403%s%.120s); %s",
                       hub, id, reply->error_message[0] != '\0' ? ": " : "", reply->error_message,
                       hint);
    }
    return fl_fail(
        error, FLETCH_ENETWORK, FLETCH_NOWHERE,
        "%.120s answered %ld for %.100s of %s%s%.100s; try again later, or set HF_ENDPOINT to a "
        "mirror",
        hub, reply->status, what, id, reply->error_message[0] != '\0' ? ": " : "",
        reply->error_message);
}

/* Nobody answered: name the ways on without a network. */
static int explain_network(const pull_work *pull, int status, fletch_error *error) {
    if (status != FLETCH_ENETWORK || error == NULL)
        return status;
    char why[sizeof error->message];
    snprintf(why, sizeof why, "%s", error->message);
    return fl_fail(
        error, FLETCH_ENETWORK, FLETCH_NOWHERE,
        "the model %.100s cannot be fetched: %.220s. Without access to the hub: use a local model "
        "folder, set HF_ENDPOINT to a mirror, or copy models--* from another machine into %.120s",
        pull->repo->id, why, pull->env->cache);
}

static void make_url(fl_buf *url, const pull_work *pull, const char *before, const char *between,
                     const char *revision, const char *file) {
    fl_buf_puts(url, pull->env->endpoint);
    fl_buf_puts(url, before);
    fl_buf_puts(url, pull->repo->id);
    fl_buf_puts(url, between);
    fl_url_escape(url, revision, false);
    if (file[0] != '\0') {
        fl_buf_putc(url, '/');
        fl_url_escape(url, file, true);
    }
}

/* ---- the listing ---- */

static int read_listing(pull_work *pull, const fl_buf *text, fletch_error *error) {
    fl_json *listing = NULL;
    int      status  = 0;
    FL_TRY(fl_json_parse(&listing, text->data != NULL ? text->data : "", text->size,
                         FL_HUB_JSON_MAX, 0, "the hub's list of files", error));
    const char *commit = fl_json_text(fl_json_get(listing, "sha"));
    fl_json    *files  = fl_json_get(listing, "siblings");
    if (commit == NULL || !fl_hub_commit_is_valid(commit) || !fl_json_is(files, FL_JSON_ARRAY)) {
        fl_json_free(listing);
        return fl_fail(error, FLETCH_ENETWORK, FLETCH_NOWHERE,
                       "%.200s does not answer like a hub: its file list for %s has no commit; "
                       "check HF_ENDPOINT and the proxy",
                       pull->env->endpoint, pull->repo->id);
    }
    memcpy(pull->commit, commit, FL_HUB_COMMIT_MAX);
    for (size_t i = 0; status == 0 && i < fl_json_count(files); i++) {
        const char *path = fl_json_text(fl_json_get(fl_json_item(files, i), "rfilename"));
        path             = path != NULL ? path : "";
        if (fl_path_is_safe(path)) { /* a name that leaves the folder is never taken */
            status = fl_hub_names_add(&pull->listed, path, error);
        } else {
            fl_log_write(pull->log, FL_LOG_WARNING,
                         "%s lists the unsafe file name \"%.100s\": ignored", pull->repo->id, path);
        }
    }
    fl_json_free(listing);
    return status;
}

static int ask_listing(pull_work *pull, fletch_error *error) {
    fl_buf   url   = {0};
    fl_buf   text  = {0};
    fl_reply reply = {0};
    make_url(&url, pull, "/api/models/", "/revision/", pull->revision, "");
    fl_download_label(pull->session, pull->repo->id);
    int status = url.failed ? fl_fail_nomem(error, url.size, "a URL")
                            : fl_download_text(pull->session, url.data, FL_HUB_JSON_MAX, &text,
                                               &reply, error);
    if (status == 0) {
        status = reply.status == 200 ? read_listing(pull, &text, error)
                                     : refuse(pull, &reply, "the list of files", error);
    }
    fl_buf_free(&url);
    fl_buf_free(&text);
    return status;
}

/* ---- which files ---- */

static bool is_weights(const char *name) {
    for (size_t i = 0; i < FL_WEIGHT_FORMS; i++)
        if (fl_path_ends_with(name, fl_weight_forms[i].ending))
            return true;
    return false;
}

/* The file of `folder` ("" or "2_Dense/") that holds its weights, or the index that names them, to `out`; false: it
 * has none. */
static bool find_weights(const fl_hub_names *listed, const char *folder, char *out, size_t room) {
    for (size_t i = 0; i < FL_WEIGHT_FORMS; i++) {
        const char *const names[] = {fl_weight_forms[i].single, fl_weight_forms[i].index};
        for (size_t k = 0; k < 2; k++) {
            const int length = snprintf(out, room, "%s%s", folder, names[k]);
            if ((size_t)length < room && fl_hub_names_has(listed, out))
                return true;
        }
    }
    out[0] = '\0';
    return false;
}

/* Weights of module folders (2_Dense) that are not safetensors. */
static int choose_modules(pull_work *pull, bool *weights, fletch_error *error) {
    for (size_t i = 0; i < pull->chosen.count; i++) {
        const char *name  = pull->chosen.name[i];
        const char *slash = strrchr(name, '/');
        char        folder[FL_HUB_ID_MAX];
        char        found[FL_HUB_ID_MAX + 32];
        if (slash == NULL || (size_t)(slash - name) + 2 > sizeof folder)
            continue;
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - name) + 1, name);
        if (find_weights(&pull->listed, folder, found, sizeof found)) {
            *weights = true;
            if (!fl_hub_names_has(&pull->chosen, found))
                FL_TRY(fl_hub_names_add(&pull->chosen, found, error));
        }
    }
    return 0;
}

static int choose(pull_work *pull, fletch_error *error) {
    char root[64];
    bool weights = find_weights(&pull->listed, "", root, sizeof root) ||
                   fl_hub_names_has(&pull->listed, "adapter_model.safetensors") ||
                   fl_hub_names_has(&pull->listed, FL_HUB_NIBBLES);
    /* Two rounds, small files first: a model that lacks something is noticed before 400 MB came. */
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < pull->listed.count; i++) {
            const char *name = pull->listed.name[i];
            if (fl_hub_file_is_needed(name, &pull->folders) && is_weights(name) == (round == 1))
                FL_TRY(fl_hub_names_add(&pull->chosen, name, error));
        }
    }
    for (size_t i = 0; fl_hub_old_tokenizers[i] != NULL; i++)
        if (!fl_hub_names_has(&pull->listed, "tokenizer.json") &&
            fl_hub_names_has(&pull->listed, fl_hub_old_tokenizers[i]))
            FL_TRY(fl_hub_names_add(&pull->chosen, fl_hub_old_tokenizers[i], error));
    FL_TRY(choose_modules(pull, &weights, error));
    if (!weights) {
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s has no weights that fletch reads: neither model.safetensors nor "
                       "pytorch_model.bin, nor the index of either in several files",
                       pull->repo->id);
    }
    return root[0] != '\0' ? fl_hub_names_add(&pull->chosen, root, error) : 0;
}

/* ---- one file ---- */

static int wait_for_lock(void *user) {
    return fl_download_poll(user);
}

static int say_done(const pull_work *pull, const char *name, uint64_t size, fletch_error *error) {
    if (pull->progress != NULL && pull->progress(pull->user, name, size, size) != 0) {
        return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE,
                       "download of %s cancelled; the files received are kept", pull->repo->id);
    }
    return 0;
}

/* Does the blob's content hash to its name? Names that are no hash (other servers) cannot be
 * checked. */
static int check_hash(const char *path, const char *etag, const char *name, fletch_error *error) {
    char        hex[65];
    const char *kind = fl_hub_etag_kind(etag);
    if (kind == NULL)
        return 0;
    FL_TRY(fl_hub_file_hash(path, etag, hex, error));
    if (strcmp(hex, etag) == 0)
        return 0;
    return fl_fail(
        error, FLETCH_ECHECKSUM, FLETCH_NOWHERE,
        "%.160s arrived damaged: its %s is %s, the hub says %s; it was discarded, pull again", name,
        kind, hex, etag);
}

static int no_space(const pull_work *pull, const char *name, uint64_t bytes, fletch_error *error) {
    return fl_fail(
        error, FLETCH_ENOSPC, FLETCH_NOWHERE,
        "no space for %.120s: %.1f MB more are needed in %.160s; free some, or set HF_HUB_CACHE to "
        "a folder on another disk",
        name, (double)bytes / 1e6, pull->env->cache);
}

static int check_space(const pull_work *pull, const char *name, const char *path, uint64_t bytes,
                       fletch_error *error) {
    struct statvfs disk;
    if (statvfs(path, &disk) == 0 &&
        bytes / (disk.f_frsize > 0 ? disk.f_frsize : 1) >= disk.f_bavail && bytes > 0)
        return no_space(pull, name, bytes, error);
    return 0;
}

/* Fill an open .incomplete file; 0 when all bytes are there. */
static int fill(pull_work *pull, const char *url, const char *name, const char *path, int fd,
                const fl_reply *head, fletch_error *error) {
    struct stat info;
    uint64_t    expected = head->size_known ? head->size : UINT64_MAX;
    if (head->size_known && !is_weights(name) && expected > FL_TOKENIZER_BYTES_MAX) {
        return fl_fail(
            error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
            "%.160s has %llu bytes as the hub says; the limit for files other than weights is %d",
            name, (unsigned long long)expected, FL_TOKENIZER_BYTES_MAX);
    }
    if (fstat(fd, &info) != 0)
        return fl_fail_errno(error, errno, "cannot read", path);
    uint64_t have = (uint64_t)info.st_size;
    if (have > expected) {
        if (ftruncate(fd, 0) != 0)
            return fl_fail_errno(error, errno, "cannot write", path);
        have = 0;
    }
    int      status = head->size_known ? check_space(pull, name, path, expected - have, error) : 0;
    fl_reply reply;
    if (status == 0 && have != expected) {
        uint64_t most = is_weights(name) ? WEIGHTS_UNSAID_MAX : FL_TOKENIZER_BYTES_MAX;
        status        = fl_download_file(pull->session, url, fd, expected, most, &reply, error);
        if (status == FLETCH_ENOSPC) {
            have = fstat(fd, &info) == 0 ? (uint64_t)info.st_size : have;
            return no_space(pull, name,
                            expected != UINT64_MAX && expected > have ? expected - have : 0, error);
        }
        if (status == 0 && reply.status / 100 != 2)
            status = refuse(pull, &reply, name, error);
    }
    if (status == 0 && fsync(fd) != 0)
        status = fl_fail_errno(error, errno, "cannot write", path);
    return status;
}

/* Download into blobs/<etag>, under the lock. A part found on disk may come from a program that
 * wrote without a lock: when the whole does not match, it is fetched once more from the start. */
static int fetch_blob(pull_work *pull, const char *url, const char *name, const char *blob,
                      const fl_reply *head, fletch_error *error) {
    char part[FL_HUB_PATH_MAX + 16];
    snprintf(part, sizeof part, "%s.incomplete", blob);
    for (int round = 0;; round++) {
        struct stat info;
        bool        resumed = stat(part, &info) == 0 && info.st_size > 0;
        int         fd      = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return fl_fail_errno(error, errno, "cannot write", part);
        int status = fill(pull, url, name, part, fd, head, error);
        close(fd);
        FL_TRY(status); /* what came stays for the next try */
        status = check_hash(part, head->etag, name, error);
        if (status == 0 && rename(part, blob) == 0) {
            fl_parent_sync(blob);
            return 0;
        }
        if (status != FLETCH_ECHECKSUM)
            return status != 0 ? status : fl_fail_errno(error, errno, "cannot write", blob);
        unlink(part);
        if (!resumed || round > 0)
            return status;
        fl_log_write(pull->log, FL_LOG_WARNING,
                     "%s: the partial file in the cache was damaged; starting over", name);
    }
}

/* Ask the hub what `name` is. */
static int ask(pull_work *pull, const char *name, const char *url, fl_reply *head,
               fletch_error *error) {
    fl_download_label(pull->session, name);
    FL_TRY(fl_download_head(pull->session, url, head, error));
    if (head->status / 100 != 2 && head->status / 100 != 3)
        return refuse(pull, head, name, error);
    if (fl_hub_etag_is_valid(head->etag) &&
        (head->commit[0] == '\0' || strcmp(head->commit, pull->commit) == 0))
        return 0;
    return fl_fail(
        error, FLETCH_ENETWORK, FLETCH_NOWHERE,
        "%.160s does not answer like a hub: %.100s at %s came with ETag \"%.70s\" and commit "
        "\"%.41s\"; check HF_ENDPOINT and proxy",
        pull->env->endpoint, name, pull->commit, head->etag, head->commit);
}

/* The blob behind `pointer`, fetched unless it is there, and the link to it. Its lock is held. */
static int take_blob(pull_work *pull, const char *name, const char *url, const char *pointer,
                     fl_reply *head, fletch_error *error) {
    char        blob[FL_HUB_PATH_MAX];
    struct stat info;
    FL_TRY(fl_hub_repo_path(pull->repo, "blobs", head->etag, "", blob, error));
    const bool fresh =
        stat(blob, &info) != 0 || (head->size_known && (uint64_t)info.st_size != head->size) ||
        check_hash(blob, head->etag, name, NULL) == FLETCH_ECHECKSUM; /* another program's */
    if (fresh && stat(pointer, &info) == 0)
        return 0; /* another process, without links, moved it there */
    if (fresh)
        FL_TRY(fetch_blob(pull, url, name, blob, head, error));
    return fl_hub_link(pull->env, pull->repo, pull->commit, name, head->etag, fresh, error);
}

static int fetch_file(pull_work *pull, const char *name, const char *url, fletch_error *error) {
    char        pointer[FL_HUB_PATH_MAX], blobs[FL_HUB_PATH_MAX];
    struct stat info;
    fl_reply    head = {0};
    int         lock = -1;
    FL_TRY(fl_hub_repo_path(pull->repo, "snapshots", pull->commit, name, pointer, error));
    if (stat(pointer, &info) == 0 && S_ISREG(info.st_mode))
        return say_done(pull, name, (uint64_t)info.st_size, error);
    FL_TRY(ask(pull, name, url, &head, error));
    FL_TRY(fl_hub_repo_path(pull->repo, "blobs", "", "", blobs, error));
    FL_TRY(fl_folder_make(blobs, error));
    FL_TRY(fl_hub_lock(pull->repo, head.etag, wait_for_lock, pull->session, &lock, error));
    const int status = take_blob(pull, name, url, pointer, &head, error);
    fl_hub_unlock(lock);
    FL_TRY(status);
    if (stat(pointer, &info) != 0)
        return fl_fail_errno(error, errno, "cannot read", pointer);
    if (!S_ISREG(info.st_mode)) {
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%.500s is not a file; remove it and pull again", pointer);
    }
    return say_done(pull, name, (uint64_t)info.st_size, error);
}

static int fetch_named(pull_work *pull, const char *name, fletch_error *error) {
    fl_buf url = {0};
    make_url(&url, pull, "/", "/resolve/", pull->commit, name);
    int status = url.failed ? fl_fail_nomem(error, url.size, "a URL")
                            : fetch_file(pull, name, url.data, error);
    fl_buf_free(&url);
    return status;
}

/* The files that the index of `form`, now here, names. */
static int fetch_shards(pull_work *pull, const fl_weight_form *form, fletch_error *error) {
    char         path[FL_HUB_PATH_MAX];
    fl_hub_names shards;
    FL_TRY(fl_hub_repo_path(pull->repo, "snapshots", pull->commit, form->index, path, error));
    int status = fl_hub_shards_read(path, form->ending, &shards, error);
    for (size_t i = 0; status == 0 && i < shards.count; i++) {
        status = fl_hub_names_has(&pull->listed, shards.name[i])
                     ? fetch_named(pull, shards.name[i], error)
                     : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                               "%s: %s names %.100s, which the hub does not have", pull->repo->id,
                               form->index, shards.name[i]);
    }
    fl_hub_names_free(&shards);
    return status;
}

/* What is known to be absent need not be asked for again, by fletch or by Python. */
static int mark_absent(const pull_work *pull, fletch_error *error) {
    static const char *const optional[] = {
        "modules.json",   "config_sentence_transformers.json", "sentence_bert_config.json",
        "tokenizer.json", "special_tokens_map.json",           "model.safetensors",
    };
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (!fl_hub_names_has(&pull->listed, optional[i]))
            FL_TRY(fl_hub_mark_absent(pull->repo, pull->commit, optional[i], error));
    return 0;
}

/* Backup programs skip a folder that carries this file (https://bford.info/cachedir/). */
static void tag_cache(const fl_hub_env *env) {
    static const char text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                               "# This folder holds files that can be downloaded again.\n";
    char              path[FL_HUB_PATH_MAX];
    if (fl_path_join(path, sizeof path, env->cache, "CACHEDIR.TAG", NULL) != 0)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        (void)fl_write_all(fd, text, sizeof text - 1); /* a courtesy: failure changes nothing */
        close(fd);
    }
}

/* Whether a folder of another name than modules have may be one: it holds a configuration or weights. */
static bool has_other_folders(const pull_work *pull) {
    for (size_t i = 0; i < pull->listed.count; i++) {
        const char *name = pull->listed.name[i], *slash = strrchr(name, '/');
        if (slash != NULL && !fl_hub_is_module(name) &&
            (strcmp(slash, "/config.json") == 0 || is_weights(slash)))
            return true;
    }
    return false;
}

/* The files that name modules' folders come first, where their names alone do not tell. */
static int find_folders(pull_work *pull, fletch_error *error) {
    static const char *const files[] = {"modules.json", "router_config.json"};
    char                     path[FL_HUB_PATH_MAX];
    for (size_t i = 0; i < sizeof files / sizeof files[0] && has_other_folders(pull); i++) {
        if (!fl_hub_names_has(&pull->listed, files[i]))
            continue;
        FL_TRY(fl_folder_make(pull->repo->folder, error));
        FL_TRY(fetch_named(pull, files[i], error));
        FL_TRY(fl_hub_repo_path(pull->repo, "snapshots", pull->commit, files[i], path, error));
        FL_TRY(fl_hub_folders_read(path, &pull->folders, error));
    }
    return 0;
}

static int run(pull_work *pull, fletch_error *error) {
    FL_TRY(ask_listing(pull, error));
    FL_TRY(find_folders(pull, error));
    FL_TRY(choose(pull, error));
    FL_TRY(fl_folder_make(pull->repo->folder, error));
    tag_cache(pull->env);
    for (size_t i = 0; i < pull->chosen.count; i++)
        FL_TRY(fetch_named(pull, pull->chosen.name[i], error));
    for (size_t i = 0; i < FL_WEIGHT_FORMS; i++)
        if (fl_hub_names_has(&pull->chosen, fl_weight_forms[i].index))
            FL_TRY(fetch_shards(pull, &fl_weight_forms[i], error));
    FL_TRY(mark_absent(pull, error));
    return strcmp(pull->revision, pull->commit) == 0
               ? 0
               : fl_hub_ref_write(pull->repo, pull->revision, pull->commit, error);
}

int fl_hub_fetch(const fl_hub_env *env, const fl_hub_repo *repo, const char *revision,
                 const fl_log *log, fletch_progress_fn progress, void *user,
                 char commit[FL_HUB_COMMIT_MAX], fletch_error *error) {
    pull_work           work    = {.env      = env,
                                   .repo     = repo,
                                   .log      = log,
                                   .revision = revision,
                                   .progress = progress,
                                   .user     = user};
    fl_download_options options = {.endpoint     = env->endpoint,
                                   .token        = env->token,
                                   .head_seconds = env->head_seconds,
                                   .body_seconds = env->body_seconds,
                                   .log          = log,
                                   .progress     = progress,
                                   .user         = user};
    fletch_error        local;
    error      = error != NULL ? error : &local;
    int status = fl_download_open(&work.session, &options, error);
    if (status == 0)
        status = explain_network(&work, run(&work, error), error);
    if (status == 0)
        memcpy(commit, work.commit, FL_HUB_COMMIT_MAX);
    fl_download_close(work.session);
    fl_hub_names_free(&work.listed);
    fl_hub_names_free(&work.chosen);
    fl_hub_names_free(&work.folders);
    return status;
}
