/* SPDX-License-Identifier: Apache-2.0 */
/* hub_manage.c - list, verify and remove what the cache holds.
 *
 * Role    behind `fletch model ls|verify|rm`.
 * In/Out  the cache folder -> entries, per-file verdicts, freed bytes.
 * Method  A blob's name is its hash, so verifying needs no network: 64 digits are the sha256 of an
 *         LFS file, 40 the git blob sha1 of a small one. Removal deletes only what the layout
 *         itself made: the repository's folder must be a real folder in the cache, a blob goes
 *         when no other snapshot links to it, links are removed and never followed.
 * Memory  lists of names. Threads: a pull and a removal of the same model at once end in an error
 *         of the pull, as with huggingface_hub.
 * Proof   tests/golden/test_hub.py. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "hub/hub_cache.h"

/* ---- list ---- */

/* "models--org--name" -> "org/name" */
static bool id_of_folder(const char *folder, char id[FL_HUB_ID_MAX]) {
    if (strncmp(folder, "models--", 8) != 0 || strlen(folder) >= FL_HUB_ID_MAX)
        return false;
    size_t used = 0;
    for (const char *c = folder + 8; *c != '\0'; c++) {
        bool separator = c[0] == '-' && c[1] == '-';
        id[used++]     = separator ? '/' : *c;
        c += separator ? 1 : 0;
    }
    id[used] = '\0';
    return fl_path_is_safe(id); /* no "..", no control characters for the terminal */
}

typedef struct tally {
    char     folder[FL_HUB_PATH_MAX]; /* the snapshot */
    uint64_t bytes;
    uint32_t files;
} tally;

static int add_file(void *user, const char *relative) {
    tally      *sum = user;
    char        path[FL_HUB_PATH_MAX];
    struct stat info;
    if (fl_path_join(path, sizeof path, sum->folder, relative, NULL) == 0 &&
        stat(path, &info) == 0) {
        sum->bytes += (uint64_t)info.st_size;
        sum->files++;
    }
    return 0;
}

/* Refs as "main, v1": those that point at `commit`. */
typedef struct ref_search {
    const fl_hub_repo *repo;
    const char        *commit;
    fl_buf             refs;
    fl_hub_names      *collect; /* or NULL: the names apart */
} ref_search;

static int add_ref(void *user, const char *relative) {
    ref_search *search = user;
    char        commit[FL_HUB_COMMIT_MAX];
    if (fl_hub_commit_is_valid(relative) || !fl_hub_ref_read(search->repo, relative, commit) ||
        strcmp(commit, search->commit) != 0)
        return 0;
    if (search->refs.size > 0)
        fl_buf_puts(&search->refs, ", ");
    fl_buf_puts(&search->refs, relative);
    return search->collect != NULL ? fl_hub_names_add(search->collect, relative, NULL) : 0;
}

/* The names in the folder of snapshots, freed by the caller even after a failure. */
static int read_commits(const fl_hub_repo *repo, fl_hub_names *commits, fletch_error *error) {
    char snapshots[FL_HUB_PATH_MAX];
    *commits = (fl_hub_names){0};
    FL_TRY(fl_hub_repo_path(repo, "snapshots", "", "", snapshots, error));
    return fl_hub_names_read(commits, snapshots, error);
}

static int list_snapshot(const fl_hub_repo *repo, const char *commit, fletch_hub_entry_fn fn,
                         void *user, bool *stopped, fletch_error *error) {
    char       refs[FL_HUB_PATH_MAX];
    tally      sum    = {0};
    ref_search search = {.repo = repo, .commit = commit};
    FL_TRY(fl_hub_repo_path(repo, "refs", "", "", refs, error));
    FL_TRY(fl_hub_repo_path(repo, "snapshots", commit, "", sum.folder, error));
    FL_TRY(fl_hub_walk(sum.folder, add_file, &sum, error));
    int status = fl_hub_walk(refs, add_ref, &search, error);
    if (status == 0) {
        fletch_hub_entry entry = {
            .id       = repo->id,
            .revision = commit,
            .refs     = search.refs.size > 0 ? search.refs.data : "",
            .path     = sum.folder,
            .bytes    = sum.bytes,
            .files    = sum.files,
        };
        *stopped = fn(user, &entry) != 0;
    }
    fl_buf_free(&search.refs);
    return status;
}

/* All snapshots of one repository, until `fn` stops. */
static int list_repo(const fl_hub_repo *repo, fletch_hub_entry_fn fn, void *user, bool *stopped,
                     fletch_error *error) {
    fl_hub_names commits;
    int          status = read_commits(repo, &commits, error);
    for (size_t i = 0; status == 0 && !*stopped && i < commits.count; i++)
        if (fl_hub_commit_is_valid(commits.name[i]))
            status = list_snapshot(repo, commits.name[i], fn, user, stopped, error);
    fl_hub_names_free(&commits);
    return status;
}

int fl_hub_list(const fl_hub_options *options, fletch_hub_entry_fn fn, void *user,
                fletch_error *error) {
    fl_hub_env   env;
    fl_hub_repo  repo;
    fl_hub_names folders;
    char         id[FL_HUB_ID_MAX];
    bool         stopped = false;
    FL_TRY(fl_hub_env_read(&env, options, error));
    int status = fl_hub_names_read(&folders, env.cache, error);
    for (size_t i = 0; status == 0 && !stopped && i < folders.count; i++) {
        if (id_of_folder(folders.name[i], id)) {
            status = fl_hub_repo_at(&repo, &env, id, error);
            status = status == 0 ? list_repo(&repo, fn, user, &stopped, error) : status;
        }
    }
    fl_hub_names_free(&folders);
    return status;
}

/* ---- verify ---- */

typedef struct verification {
    char               folder[FL_HUB_PATH_MAX];
    fletch_property_fn fn;
    void              *user;
    uint32_t           wrong;
    char               first[FL_HUB_ID_MAX]; /* the first file that is wrong */
    fletch_error      *error;
} verification;

/* The name of the blob that a link points at, "" for a plain file or another kind of link. */
static void blob_of(const char *path, char etag[FL_HUB_ID_MAX]) {
    char    target[FL_HUB_PATH_MAX];
    ssize_t size = readlink(path, target, sizeof target - 1);
    etag[0]      = '\0';
    if (size <= 0)
        return;
    target[size]       = '\0';
    const char *slash  = strrchr(target, '/');
    const char *parent = slash != NULL && slash - target >= 5 ? slash - 5 : NULL;
    if (parent != NULL && strncmp(parent, "blobs", 5) == 0 && fl_hub_etag_is_valid(slash + 1))
        snprintf(etag, FL_HUB_ID_MAX, "%s", slash + 1);
}

static int verify_file(void *user, const char *relative) {
    verification *work = user;
    char          path[FL_HUB_PATH_MAX];
    char          etag[FL_HUB_ID_MAX];
    char          hex[65] = "";
    char          verdict[320];
    const char   *origin = "";
    struct stat   info;
    fletch_error  local;
    if (fl_path_join(path, sizeof path, work->folder, relative, work->error) != 0)
        return FLETCH_ENOSPC;
    blob_of(path, etag);
    const char *kind  = fl_hub_etag_kind(etag);
    bool        wrong = false;
    if (stat(path, &info) != 0) {
        snprintf(verdict, sizeof verdict, "missing: dangling link");
        wrong = true;
    } else if (kind == NULL) {
        snprintf(verdict, sizeof verdict, "no hash known (%llu bytes)",
                 (unsigned long long)info.st_size);
    } else {
        int status = fl_hub_file_hash(path, etag, hex, &local);
        origin     = kind;
        wrong      = status != 0 || strcmp(hex, etag) != 0;
        if (status != 0) {
            snprintf(verdict, sizeof verdict, "%.300s", local.message);
        } else {
            snprintf(verdict, sizeof verdict,
                     wrong ? "differs: content hashes to %s, not %s" : "ok", hex, etag);
        }
    }
    if (wrong && work->wrong++ == 0)
        snprintf(work->first, sizeof work->first, "%.*s", FL_HUB_ID_MAX - 1, relative);
    if (work->fn != NULL && work->fn(work->user, relative, verdict, origin) != 0) {
        return fl_fail(work->error, FLETCH_ECANCELLED, FLETCH_NOWHERE,
                       "verification stopped at %.200s", relative);
    }
    return 0;
}

int fl_hub_verify(const char *name, const fl_hub_options *options, fletch_property_fn fn,
                  void *user, fletch_error *error) {
    verification work = {.fn = fn, .user = user, .error = error};
    FL_TRY(fl_hub_path(name, options, work.folder, sizeof work.folder, error));
    FL_TRY(fl_hub_walk(work.folder, verify_file, &work, error));
    if (work.wrong == 0)
        return 0;
    return fl_fail(error, FLETCH_ECHECKSUM, FLETCH_NOWHERE,
                   "%u file(s) of %.120s are damaged, %.120s first; run `fletch model rm` and "
                   "`fletch model pull` to download them again",
                   work.wrong, name, work.first);
}

/* ---- remove ---- */

static int add_size(void *user, const char *relative) {
    tally      *sum = user;
    char        path[FL_HUB_PATH_MAX];
    struct stat info;
    if (fl_path_join(path, sizeof path, sum->folder, relative, NULL) == 0 &&
        lstat(path, &info) == 0 && S_ISREG(info.st_mode))
        sum->bytes += (uint64_t)info.st_size;
    return 0;
}

/* Remove a folder of the cache and count its plain files; links are not followed. */
static int remove_counted(const char *path, uint64_t *freed, fletch_error *error) {
    tally       sum = {0};
    struct stat info;
    if (lstat(path, &info) != 0)
        return 0;
    snprintf(sum.folder, sizeof sum.folder, "%s", path);
    if (S_ISDIR(info.st_mode))
        FL_TRY(fl_hub_walk(path, add_size, &sum, error));
    FL_TRY(fl_path_remove(path, error));
    *freed += S_ISREG(info.st_mode) ? (uint64_t)info.st_size : sum.bytes;
    return 0;
}

typedef struct blob_search {
    char          folder[FL_HUB_PATH_MAX]; /* the snapshot looked through */
    fl_hub_names *etags;
    fletch_error *error;
} blob_search;

static int add_blob(void *user, const char *relative) {
    blob_search *search = user;
    char         path[FL_HUB_PATH_MAX];
    char         etag[FL_HUB_ID_MAX];
    FL_TRY(fl_path_join(path, sizeof path, search->folder, relative, search->error));
    blob_of(path, etag);
    if (etag[0] == '\0' || fl_hub_names_has(search->etags, etag))
        return 0;
    return fl_hub_names_add(search->etags, etag, search->error);
}

/* The blobs that one snapshot links to, or all but one when `others`. */
static int find_blobs(const fl_hub_repo *repo, const char *commit, bool others,
                      const fl_hub_names *commits, fl_hub_names *etags, fletch_error *error) {
    blob_search search = {.etags = etags, .error = error};
    for (size_t i = 0; i < commits->count; i++) {
        const char *one = commits->name[i];
        if ((strcmp(one, commit) != 0) == others) {
            FL_TRY(fl_hub_repo_path(repo, "snapshots", one, "", search.folder, error));
            FL_TRY(fl_hub_walk(search.folder, add_blob, &search, error));
        }
    }
    return 0;
}

static int remove_ref(const char *refs, const char *name, uint64_t *freed, fletch_error *error) {
    char path[FL_HUB_PATH_MAX];
    FL_TRY(fl_path_join(path, sizeof path, refs, name, error));
    FL_TRY(remove_counted(path, freed, error));
    /* Folders of a ref such as refs/pr/1 go when empty; rmdir refuses the others. */
    for (char *slash; (slash = strrchr(path, '/')) > path + strlen(refs);) {
        *slash = '\0';
        if (rmdir(path) != 0)
            break;
    }
    return 0;
}

static int remove_refs(const fl_hub_repo *repo, const char *commit, uint64_t *freed,
                       fletch_error *error) {
    char         refs[FL_HUB_PATH_MAX];
    fl_hub_names names  = {0};
    ref_search   search = {.repo = repo, .commit = commit, .collect = &names};
    FL_TRY(fl_hub_repo_path(repo, "refs", "", "", refs, error));
    int status = fl_hub_walk(refs, add_ref, &search, error);
    for (size_t i = 0; status == 0 && i < names.count; i++)
        status = remove_ref(refs, names.name[i], freed, error);
    fl_hub_names_free(&names);
    fl_buf_free(&search.refs);
    return status;
}

static int remove_repo(const fl_hub_repo *repo, uint64_t *freed, fletch_error *error) {
    FL_TRY(remove_counted(repo->folder, freed, error));
    return remove_counted(repo->locks, freed, error);
}

static int remove_part(const fl_hub_repo *repo, const char *kind, const char *name, uint64_t *freed,
                       fletch_error *error) {
    char path[FL_HUB_PATH_MAX];
    FL_TRY(fl_hub_repo_path(repo, kind, name, "", path, error));
    return remove_counted(path, freed, error);
}

/* The ref goes first, so that nobody finds a half-removed snapshot by name. */
static int remove_names(const fl_hub_repo *repo, const char *commit, uint64_t *freed,
                        fletch_error *error) {
    char tree[FL_HUB_COMMIT_MAX + 8];
    snprintf(tree, sizeof tree, "%s.json", commit);
    FL_TRY(remove_refs(repo, commit, freed, error));
    FL_TRY(remove_part(repo, "snapshots", commit, freed, error));
    FL_TRY(remove_part(repo, ".no_exist", commit, freed, error));
    return remove_part(repo, "trees", tree, freed, error);
}

static int remove_commit(const fl_hub_repo *repo, const char *commit, const fl_hub_names *commits,
                         uint64_t *freed, fletch_error *error) {
    fl_hub_names mine = {0}, theirs = {0};
    int          status = find_blobs(repo, commit, false, commits, &mine, error);
    if (status == 0)
        status = find_blobs(repo, commit, true, commits, &theirs, error);
    if (status == 0)
        status = remove_names(repo, commit, freed, error);
    for (size_t i = 0; status == 0 && i < mine.count; i++)
        if (!fl_hub_names_has(&theirs, mine.name[i]))
            status = remove_part(repo, "blobs", mine.name[i], freed, error);
    fl_hub_names_free(&mine);
    fl_hub_names_free(&theirs);
    return status;
}

/* The repository of a name, when it is a real folder of the cache. */
static int find_repo(fl_hub_repo *repo, fl_hub_name *name, const char *text,
                     const fl_hub_options *options, fletch_error *error) {
    fl_hub_env  env;
    struct stat info;
    FL_TRY(fl_hub_name_parse(name, text, error));
    if (name->folder) {
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "%.300s is a path; only cached models can be removed, by their hub id",
                       text);
    }
    FL_TRY(fl_hub_env_read(&env, options, error));
    FL_TRY(fl_hub_repo_at(repo, &env, name->id, error));
    if (lstat(repo->folder, &info) != 0) {
        return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                       "%s is not in the cache %.200s; `fletch model ls` lists what is", name->id,
                       env.cache);
    }
    if (!S_ISDIR(info.st_mode)) {
        return fl_fail(error, FLETCH_EDENIED, FLETCH_NOWHERE,
                       "%.300s is not a folder but a link or file; remove it by hand",
                       repo->folder);
    }
    return 0;
}

int fl_hub_remove(const char *name, const fl_hub_options *options, uint64_t *freed,
                  fletch_error *error) {
    fl_hub_name  parsed;
    fl_hub_repo  repo;
    fl_hub_names commits;
    uint64_t     bytes                     = 0;
    char         commit[FL_HUB_COMMIT_MAX] = "";
    if (freed != NULL)
        *freed = 0;
    FL_TRY(find_repo(&repo, &parsed, name, options, error));
    int status = read_commits(&repo, &commits, error);
    if (status == 0 && parsed.revision[0] != '\0' &&
        (!fl_hub_ref_read(&repo, parsed.revision, commit) || !fl_hub_names_has(&commits, commit))) {
        status = fl_fail(
            error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
            "the cache has no revision \"%.100s\" of %s; `fletch model ls` lists what it has",
            parsed.revision, parsed.id);
    }
    if (status == 0) {
        bool all = parsed.revision[0] == '\0' || commits.count == 1;
        status   = all ? remove_repo(&repo, &bytes, error)
                       : remove_commit(&repo, commit, &commits, &bytes, error);
    }
    fl_hub_names_free(&commits);
    if (freed != NULL)
        *freed = bytes;
    return status;
}
