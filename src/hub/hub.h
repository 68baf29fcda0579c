/* SPDX-License-Identifier: Apache-2.0 */
/* hub.h - names become folders: levels, hub ids, the Hugging Face cache, downloads.
 *
 * Reads and writes the very cache layout of huggingface_hub, so that Python programs and fletch
 * share files both ways. HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE (and their
 * documented older names) are honoured; the options below win where set. */
#ifndef FL_HUB_HUB_H
#define FL_HUB_HUB_H

#include <stdbool.h>

#include "base/log.h"
#include "fletch.h"

typedef struct fl_hub_options {
    const char   *cache_dir;     /* "" = HF rules */
    const char   *revision;      /* "main"; "id@revision" in the name wins */
    bool          offline;       /* never use the network (HF_HUB_OFFLINE also says so) */
    bool          auto_download; /* fl_hub_resolve may download */
    const fl_log *log;
} fl_hub_options;

/* Any name to a folder path: an existing folder, "low|medium|high", "org/name", or a bare name of
 * the sentence-transformers organisation ("all-MiniLM-L6-v2"). A complete snapshot in the cache is
 * used without the network; otherwise the hub is asked when allowed. ENOTFOUND messages say what
 * was tried and how to get the model. `path` may be NULL; id_out / revision_out (may be NULL,
 * capacity 256 and 64) get the hub id and commit, or "" for a plain folder.
 * `progress` (may be NULL) hears, from the calling thread: (hub id, 0, 0) while the list of files
 * is asked for, (file, 0, 0) while a file is asked about or another process fetches it, then (file,
 * done, total) as bytes come (total 0 when nobody said it), and (file, size, size) once for every
 * file that is in place, fetched now or before. Non-zero cancels; what came is kept. */
int fl_hub_resolve(const char *name, const fl_hub_options *options, fletch_progress_fn progress,
                   void *user, char *path, size_t capacity, char *id_out, char *revision_out,
                   fletch_error *error);

int fl_hub_pull(const char *name, const fl_hub_options *options, fletch_progress_fn progress,
                void *user, char *path, size_t capacity, fletch_error *error);
int fl_hub_path(const char *name, const fl_hub_options *options, char *path, size_t capacity,
                fletch_error *error);
int fl_hub_list(const fl_hub_options *options, fletch_hub_entry_fn fn, void *user,
                fletch_error *error);
int fl_hub_verify(const char *name, const fl_hub_options *options, fletch_property_fn fn,
                  void *user, fletch_error *error);
int fl_hub_remove(const char *name, const fl_hub_options *options, uint64_t *freed,
                  fletch_error *error);

#endif
