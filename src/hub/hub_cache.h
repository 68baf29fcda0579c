/* SPDX-License-Identifier: Apache-2.0 */
/* hub_cache.h - the inner parts of the hub: names, environment, the cache's folders, a pull.
 *
 * Only hub*.c and their tests include this. The layout, which huggingface_hub shares:
 *
 *   CACHE/models--org--name/refs/main             text: the commit, 40 hex digits
 *                           blobs/<etag>          content; <etag>.incomplete while it comes
 *                           snapshots/<commit>/…  links -> ../../blobs/<etag>
 *                           .no_exist/<commit>/…  empty files: names known to be absent
 *                           trees/<commit>.json   huggingface_hub's listing; only read here
 *   CACHE/.locks/models--org--name/<etag>.lock    flock while a blob is written
 *
 * A ref is written last, after every file of its snapshot: it never points at half a model. */
#ifndef FL_HUB_HUB_CACHE_H
#define FL_HUB_HUB_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "hub/hub.h"

enum {
    FL_HUB_ID_MAX     = 256,
    FL_HUB_FOLDER_MAX = 2 * FL_HUB_ID_MAX + 8, /* "models--" and an id, each '/' as "--" */
    FL_HUB_REV_MAX    = 256,
    FL_HUB_PATH_MAX   = 4096,
    FL_HUB_COMMIT_MAX = 41,
    FL_HUB_JSON_MAX   = 16 << 20 /* a listing or an index larger than this is refused */
};

/* ---- Names (hub_name.c) ---- */

typedef struct fl_hub_name {
    char id[FL_HUB_ID_MAX];        /* "org/name"; "" for a folder */
    char revision[FL_HUB_REV_MAX]; /* what follows '@', or "" */
    bool folder;                   /* written as a path: "/x", "./x", "../x", "~/x", "a/b/c" */
} fl_hub_name;

/* By the text alone, the file system is not asked. EINVAL says what a name looks like. */
int  fl_hub_name_parse(fl_hub_name *out, const char *name, fletch_error *error);
bool fl_hub_name_is_plain(const char *name);         /* no '/' in it: a level or a bare name */
bool fl_hub_commit_is_valid(const char *commit);     /* 40 lower-case hex digits */
bool fl_hub_revision_is_valid(const char *revision); /* usable as refs/<revision> and in a URL */
bool fl_hub_etag_is_valid(const char *etag);         /* usable as a file name */
/* "sha256" for the etag of a large file, "git sha1" for that of a small one, NULL for what is no
 * hash (other servers). */
const char *fl_hub_etag_kind(const char *etag);

/* ---- Other programs' stores (gguf_stores.c) ---- */

/* 1: the name is one of a store, and `out` the GGUF file that it stands for; 0: it is none. */
int fl_gguf_in_store(const char *name, const fl_hub_options *options, char out[FL_HUB_PATH_MAX],
                     fletch_error *error);

/* ---- Environment (hub_env.c) ---- */

typedef struct fl_hub_env {
    char        cache[FL_HUB_PATH_MAX]; /* the folder that holds models--… */
    char        endpoint[512];          /* without a slash at the end */
    char        token[512];             /* "" for none */
    bool        token_held_back;        /* HF_HUB_DISABLE_IMPLICIT_TOKEN keeps a token unsent */
    const char *offline;                /* NULL, or what said so: "HF_HUB_OFFLINE", … */
    bool        symlinks;               /* false by HF_HUB_DISABLE_SYMLINKS */
    unsigned    head_seconds;           /* silence allowed when asking: HF_HUB_ETAG_TIMEOUT */
    unsigned    body_seconds;           /* silence allowed in a file: HF_HUB_DOWNLOAD_TIMEOUT */
} fl_hub_env;

int fl_hub_env_read(fl_hub_env *env, const fl_hub_options *options, fletch_error *error);

/* ---- The cache's folders (hub_cache.c) ---- */

typedef struct fl_hub_repo {
    char id[FL_HUB_ID_MAX];
    char folder[FL_HUB_PATH_MAX]; /* CACHE/models--org--name */
    char locks[FL_HUB_PATH_MAX];  /* CACHE/.locks/models--org--name */
} fl_hub_repo;

int fl_hub_repo_at(fl_hub_repo *repo, const fl_hub_env *env, const char *id, fletch_error *error);

/* A path below the repository's folder: kind is "blobs", "refs", "snapshots" …; rest may be "". */
int fl_hub_repo_path(const fl_hub_repo *repo, const char *kind, const char *middle,
                     const char *rest, char out[FL_HUB_PATH_MAX], fletch_error *error);

/* The commit a revision stands for in this cache; a commit stands for itself. false: not known. */
bool fl_hub_ref_read(const fl_hub_repo *repo, const char *revision, char commit[FL_HUB_COMMIT_MAX]);
int  fl_hub_ref_write(const fl_hub_repo *repo, const char *revision, const char *commit,
                      fletch_error *error);

/* Put blobs/<etag> under its name in a snapshot: a relative link, or the file itself where links
 * are off or refused (then a `fresh` blob is moved, an older one copied). */
int fl_hub_link(const fl_hub_env *env, const fl_hub_repo *repo, const char *commit,
                const char *relative, const char *etag, bool fresh, fletch_error *error);

int  fl_hub_mark_absent(const fl_hub_repo *repo, const char *commit, const char *relative,
                        fletch_error *error);
bool fl_hub_known_absent(const fl_hub_repo *repo, const char *commit, const char *relative);

/* The hash of a file in the kind of this etag, whose kind is not NULL. */
int fl_hub_file_hash(const char *path, const char *etag, char hex[65], fletch_error *error);

/* Lock an etag against other processes; waits, polling, while `wait` (may be NULL) returns 0. */
int  fl_hub_lock(const fl_hub_repo *repo, const char *etag, int (*wait)(void *user), void *user,
                 int *fd, fletch_error *error);
void fl_hub_unlock(int fd);

/* Every file (not folder) below `folder`, in byte order, as a relative path. `fn` returns 0 to go
 * on; any other value stops the walk and is returned. */
typedef int (*fl_hub_walk_fn)(void *user, const char *relative);
int fl_hub_walk(const char *folder, fl_hub_walk_fn fn, void *user, fletch_error *error);

/* The names in a folder in byte order, without "." and ".."; freed by fl_hub_names_free. A folder
 * that is not there has none. */
typedef struct fl_hub_names {
    char **name; /* owned, each too */
    size_t count, room;
} fl_hub_names;
int  fl_hub_names_read(fl_hub_names *names, const char *folder, fletch_error *error);
int  fl_hub_names_add(fl_hub_names *names, const char *name, fletch_error *error);
bool fl_hub_names_has(const fl_hub_names *names, const char *name);
void fl_hub_names_free(fl_hub_names *names);

/* ---- What a snapshot holds (hub_snapshot.c) ---- */

typedef enum fl_hub_state {
    FL_HUB_COMPLETE,
    FL_HUB_UNSURE, /* usable, but whether the hub has a modules.json was never asked */
    FL_HUB_PARTIAL /* files are missing */
} fl_hub_state;

/* `missing` gets the first file that is not there (or is in doubt). */
fl_hub_state fl_hub_snapshot_state(const fl_hub_repo *repo, const char *commit,
                                   char missing[FL_HUB_ID_MAX]);

/* The files that an index names, each checked to stay inside the folder and to end in `ending`. */
int fl_hub_shards_read(const char *index_path, const char *ending, fl_hub_names *shards,
                       fletch_error *error);

/* Stable Static Embedding's table in 4 bits, beside model_rest.safetensors. */
#define FL_HUB_NIBBLES "embedding.q4_k_m.bin"

/* What may stand for tokenizer.json (old_tokenizer.c), ending in NULL: taken where that is not there. */
extern const char *const fl_hub_old_tokenizers[];

/* Whether fletch reads a file of this name: a configuration, tokenizer or module file. Weights of
 * the root are chosen apart, since the index or the single file will do. Modules may lie in `folders`. */
bool fl_hub_file_is_needed(const char *relative, const fl_hub_names *folders);

/* The folders that modules.json or a router_config.json names; of a file that cannot be read none. */
int fl_hub_folders_read(const char *path, fl_hub_names *folders, fletch_error *error);

/* Whether a folder's name is a module's: a number, '_' and a name, as 1_Pooling, 2_Dense, 0_StaticEmbedding; a
 * Router's has the route in front: query_0_SparseStaticEmbedding. */
bool fl_hub_is_module(const char *name);

/* ---- A pull (hub_pull.c) ---- */

/* Fetch what is missing of `revision`; commit gets what it stands for. */
int fl_hub_fetch(const fl_hub_env *env, const fl_hub_repo *repo, const char *revision,
                 const fl_log *log, fletch_progress_fn progress, void *user,
                 char commit[FL_HUB_COMMIT_MAX], fletch_error *error);

#endif
