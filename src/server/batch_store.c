/* SPDX-License-Identifier: Apache-2.0 */
/* batch_store.c - the folder of server.batches: records of files and batches, read at the start, kept in memory.
 *
 * Role    and rules of the folder: batches.h.
 * Method  A record is the object that clients see, and "kept" with what they do not: a small JSON file of its own that
 *         fl_atomic_put replaces. It is the one place that says how far a batch is, so that going on after a crash,
 *         after a full disk and after another batch's turn are the same thing. The folder has one process.
 * Memory  The records, some hundred bytes each. Threads: see batches.h.
 * Proof   tests/server/test_batches.py. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "server/batches.h"

enum { RECORD_MAX = 16 * 1024 * 1024, CHANCE = 8 };

const char *fl_batch_words[FL_BATCH_STATUSES] = {
    "validating", "failed",  "in_progress", "finalizing",
    "completed",  "expired", "cancelling",  "cancelled",
};

static const char *const times[FL_BATCH_STATUSES] = {
    "created_at",   "failed_at",  "in_progress_at", "finalizing_at",
    "completed_at", "expired_at", "cancelling_at",  "cancelled_at",
};

static const char *const output_keys[FL_BATCH_OUTPUTS]  = {"output_file_id", "error_file_id"};
static const char *const count_keys[FL_BATCH_OUTPUTS]   = {"completed", "failed"};
static const char *const planned_keys[FL_BATCH_OUTPUTS] = {"output", "error"};
static const char *const bytes_keys[FL_BATCH_OUTPUTS]   = {"output_bytes", "error_bytes"};

/* ---- Names and lists ------------------------------------------------------------------------------- */

char *fl_batches_path(const fl_batches *batches, const char *id, const char *suffix) {
    fl_buf path = {0};
    fl_buf_printf(&path, "%s/%s.%s", batches->folder, id, suffix);
    return fl_buf_take(&path);
}

static int path_of(const fl_batches *batches, const char *id, const char *suffix, char **out,
                   fletch_error *error) {
    *out = fl_batches_path(batches, id, suffix);
    return *out != NULL ? FLETCH_OK : fl_fail_nomem(error, PATH_MAX, "a path of server.batches");
}

void fl_kept_name(fl_kept *kept, const char *kind, const char *owner) {
    struct timespec now;
    unsigned char   chance[CHANCE] = {0};
    char            hex[2 * CHANCE + 1];
    clock_gettime(CLOCK_REALTIME, &now);
    (void)fl_os_random(chance, sizeof chance); /* owners keep others out; this keeps ids apart */
    fl_hex(chance, sizeof chance, hex);
    (void)snprintf(kept->id, sizeof kept->id, "%s%016" PRIx64 "%s", kind,
                   (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, hex);
    (void)snprintf(kept->owner, sizeof kept->owner, "%s", owner);
    kept->created = now.tv_sec;
}

/* Where an id stands, or would. */
static size_t place(const fl_kept_list *list, const char *id) {
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(list->list[middle]->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_batch(const char *id) {
    return strncmp(id, "batch_", 6) == 0;
}

static bool add(fl_kept_list *list, fl_kept *kept) {
    if (list->count == list->room) {
        size_t    room = list->room == 0 ? 64 : list->room * 2;
        fl_kept **more = fl_realloc_array(list->list, room, sizeof(fl_kept *));
        if (more == NULL)
            return false;
        list->list = more;
        list->room = room;
    }
    size_t at = place(list, kept->id);
    memmove(&list->list[at + 1], &list->list[at], (list->count - at) * sizeof(fl_kept *));
    list->list[at] = kept;
    list->count++;
    return true;
}

bool fl_kept_add(fl_batches *batches, fl_kept *kept) {
    fl_batches_lock(batches);
    bool added = add(is_batch(kept->id) ? &batches->batches : &batches->files, kept);
    fl_batches_unlock(batches);
    return added;
}

static void forget(fl_batches *batches, const fl_kept *kept) {
    fl_kept_list *list = &batches->files;
    fl_batches_lock(batches);
    size_t at = place(list, kept->id);
    list->count--;
    memmove(&list->list[at], &list->list[at + 1], (list->count - at) * sizeof(fl_kept *));
    fl_batches_unlock(batches);
}

fl_kept *fl_kept_find(const fl_kept_list *list, const char *owner, const char *id) {
    size_t at = place(list, id);
    if (at == list->count || strcmp(list->list[at]->id, id) != 0 ||
        (owner != NULL && strcmp(list->list[at]->owner, owner) != 0))
        return NULL;
    return list->list[at];
}

/* ---- Batches --------------------------------------------------------------------------------------- */

void fl_batch_enter(fl_batch_record *batch, fl_batch_status status) {
    batch->status     = status;
    batch->at[status] = (int64_t)time(NULL);
}

bool fl_batch_is_over(const fl_batch_record *batch) {
    return batch->status == FL_BATCH_FAILED || batch->status == FL_BATCH_COMPLETED ||
           batch->status == FL_BATCH_EXPIRED || batch->status == FL_BATCH_CANCELLED;
}

const fl_batch_record *fl_batch_reading(const fl_batches *batches, const char *file) {
    for (size_t i = 0; i < batches->batches.count; i++) {
        const fl_batch_record *batch = (const fl_batch_record *)batches->batches.list[i];
        if (!fl_batch_is_over(batch) && strcmp(batch->input, file) == 0)
            return batch;
    }
    return NULL;
}

void fl_batches_count(fl_batches *batches, uint64_t count[FL_BATCH_STATUSES]) {
    memset(count, 0, FL_BATCH_STATUSES * sizeof *count);
    fl_batches_lock(batches);
    for (size_t i = 0; i < batches->batches.count; i++)
        count[((const fl_batch_record *)batches->batches.list[i])->status]++;
    fl_batches_unlock(batches);
}

/* ---- Writing --------------------------------------------------------------------------------------- */

static void put_time(fl_json_w *w, const char *key, int64_t time) {
    if (time > 0)
        fl_json_w_i64(w, key, time);
    else
        fl_json_w_null(w, key);
}

static void put_raw(fl_json_w *w, const char *key, const char *raw) {
    fl_json_w_raw(w, key);
    fl_buf_puts(w->out, raw != NULL ? raw : "null");
}

void fl_batch_file_put(fl_json_w *w, const fl_batch_file *file) {
    fl_json_w_text(w, "id", file->kept.id);
    fl_json_w_text(w, "object", "file");
    fl_json_w_u64(w, "bytes", file->bytes);
    fl_json_w_i64(w, "created_at", file->kept.created);
    put_time(w, "expires_at", file->expires);
    fl_json_w_text(w, "filename", file->name);
    fl_json_w_text(w, "purpose", file->output ? "batch_output" : "batch");
    fl_json_w_text(w, "status", "processed");
}

static void put_usage(fl_json_w *w, uint64_t tokens) {
    fl_json_w_object(w, "usage");
    fl_json_w_u64(w, "input_tokens", tokens);
    fl_json_w_object(w, "input_tokens_details");
    fl_json_w_u64(w, "cached_tokens", 0);
    fl_json_w_end(w);
    fl_json_w_u64(w, "output_tokens", 0);
    fl_json_w_object(w, "output_tokens_details");
    fl_json_w_u64(w, "reasoning_tokens", 0);
    fl_json_w_end(w);
    fl_json_w_u64(w, "total_tokens", tokens);
    fl_json_w_end(w);
}

void fl_batch_put(fl_json_w *w, const fl_batch_record *batch) {
    fl_json_w_text(w, "id", batch->kept.id);
    fl_json_w_text(w, "object", "batch");
    fl_json_w_text(w, "endpoint", "/v1/embeddings");
    put_raw(w, "model", batch->model);
    put_raw(w, "errors", batch->errors);
    fl_json_w_text(w, "input_file_id", batch->input);
    fl_json_w_text(w, "completion_window", batch->window);
    fl_json_w_text(w, "status", fl_batch_words[batch->status]);
    for (size_t i = 0; i < FL_BATCH_OUTPUTS; i++)
        fl_json_w_text(w, output_keys[i], batch->shown[i] ? batch->output[i] : NULL);
    for (size_t i = 0; i < FL_BATCH_STATUSES; i++)
        put_time(w, times[i], batch->at[i]);
    put_time(w, "expires_at", batch->expires);
    fl_json_w_object(w, "request_counts");
    fl_json_w_u64(w, "total", batch->total);
    for (size_t i = 0; i < FL_BATCH_OUTPUTS; i++)
        fl_json_w_u64(w, count_keys[i], batch->progress.count[i]);
    fl_json_w_end(w);
    put_usage(w, batch->progress.tokens);
    put_raw(w, "metadata", batch->metadata);
}

static int save(fl_batches *batches, const char *id, fl_json_w *w, fletch_error *error) {
    char *path;
    int   status = path_of(batches, id, "json", &path, error);
    fl_json_w_end(w);
    fl_json_w_end(w);
    if (status == FLETCH_OK && w->out->failed)
        status = fl_fail_nomem(error, w->out->size, "a record of server.batches");
    if (status == FLETCH_OK)
        status = fl_atomic_put(path, w->out->data, w->out->size, FL_ATOMIC_DURABLE, error);
    fl_buf_free(w->out);
    fl_free(path);
    return status;
}

int fl_batch_file_save(fl_batches *batches, const fl_batch_file *file, fletch_error *error) {
    fl_buf    text = {0};
    fl_json_w w    = {.out = &text};
    fl_json_w_object(&w, NULL);
    fl_batch_file_put(&w, file);
    fl_json_w_object(&w, "kept");
    fl_json_w_text(&w, "owner", file->kept.owner);
    return save(batches, file->kept.id, &w, error);
}

static int save_batch(fl_batches *batches, const fl_batch_record *batch, fletch_error *error) {
    const fl_batch_progress *progress = &batch->progress;
    fl_buf                   text     = {0};
    fl_json_w                w        = {.out = &text};
    fl_json_w_object(&w, NULL);
    fl_batch_put(&w, batch);
    fl_json_w_object(&w, "kept");
    fl_json_w_text(&w, "owner", batch->kept.owner);
    fl_json_w_i64(&w, "lifetime", batch->lifetime);
    for (size_t i = 0; i < FL_BATCH_OUTPUTS; i++) {
        fl_json_w_text(&w, planned_keys[i], batch->output[i]);
        fl_json_w_u64(&w, bytes_keys[i], progress->bytes[i]);
    }
    fl_json_w_u64(&w, "line", progress->line);
    fl_json_w_u64(&w, "at", progress->at);
    fl_json_w_u64(&w, "expired", progress->expired);
    return save(batches, batch->kept.id, &w, error);
}

int fl_batch_become(fl_batches *batches, fl_batch_record *batch, const fl_batch_record *next,
                    fletch_error *error) {
    FL_TRY(save_batch(batches, next, error));
    fl_batches_lock(batches);
    *batch = *next;
    fl_batches_unlock(batches);
    return FLETCH_OK;
}

/* ---- Reading --------------------------------------------------------------------------------------- */

static void copy(char *out, size_t capacity, const char *text) {
    (void)snprintf(out, capacity, "%s", text != NULL ? text : "");
}

static uint64_t read_count(fl_json_reader *in, const char *key) {
    return (uint64_t)fl_json_int(in, key, 0, 0, INT64_MAX);
}

/* The value under `key` as it stands in the text of the record; NULL for null. */
static char *raw_of(const fl_buf *text, const char *wanted) {
    fl_buf     copied = {0}, out = {0};
    fl_json_in in;
    fl_span    key, raw = {0};
    fl_buf_append(&copied, text->data, text->size); /* which the reader writes into */
    if (copied.failed)
        return NULL;
    fl_json_in_begin(&in, copied.data, copied.size);
    bool more = fl_json_in_enter(&in, FL_JSON_OBJECT);
    while (more && fl_json_in_key(&in, &key)) {
        bool is = fl_span_is(key, wanted);
        more    = fl_json_in_skip(&in, is ? &raw : NULL) && !is;
    }
    if (raw.data != NULL && !fl_span_is(raw, "null"))
        fl_buf_append(&out, raw.data, raw.size);
    fl_buf_free(&copied);
    return out.size > 0 ? fl_buf_take(&out) : NULL;
}

static fl_kept *read_file(fl_json_reader *in) {
    fl_batch_file *file = fl_alloc_zero(1, sizeof *file);
    char          *name = fl_strdup(fl_json_string(in, "filename", ""));
    if (file == NULL || name == NULL) {
        fl_free(file);
        fl_free(name);
        return NULL;
    }
    file->kept.created = fl_json_int(in, "created_at", 0, 0, INT64_MAX);
    file->expires      = fl_json_int(in, "expires_at", 0, 0, INT64_MAX);
    file->bytes        = read_count(in, "bytes");
    file->output       = strcmp(fl_json_string(in, "purpose", ""), "batch_output") == 0;
    file->name         = name;
    return &file->kept;
}

static void read_progress(fl_batch_record *batch, fl_json_reader *in, fl_json_reader *kept) {
    fl_batch_progress *progress = &batch->progress;
    fl_json_reader     counts   = fl_json_below(in, "request_counts");
    fl_json_reader     usage    = fl_json_below(in, "usage");
    batch->total                = read_count(&counts, "total");
    for (size_t i = 0; i < FL_BATCH_OUTPUTS; i++) {
        progress->count[i] = read_count(&counts, count_keys[i]);
        progress->bytes[i] = read_count(kept, bytes_keys[i]);
        copy(batch->output[i], FL_KEPT_ID, fl_json_string(kept, planned_keys[i], ""));
        batch->shown[i] = fl_json_has(in, output_keys[i]);
    }
    progress->tokens  = read_count(&usage, "total_tokens");
    progress->line    = read_count(kept, "line");
    progress->at      = read_count(kept, "at");
    progress->expired = read_count(kept, "expired");
    fl_json_settle(in, &counts);
    fl_json_settle(in, &usage);
}

static fl_kept *read_batch(fl_json_reader *in, fl_json_reader *kept, const fl_buf *text) {
    fl_batch_record *batch = fl_alloc_zero(1, sizeof *batch);
    const char      *word  = fl_json_string(in, "status", "");
    if (batch == NULL)
        return NULL;
    while (batch->status < FL_BATCH_CANCELLED && strcmp(word, fl_batch_words[batch->status]) != 0)
        batch->status++;
    for (size_t i = 0; i < FL_BATCH_STATUSES; i++)
        batch->at[i] = fl_json_int(in, times[i], 0, 0, INT64_MAX);
    batch->kept.created = batch->at[FL_BATCH_VALIDATING];
    batch->expires      = fl_json_int(in, "expires_at", 0, 0, INT64_MAX);
    batch->lifetime     = fl_json_int(kept, "lifetime", 0, 0, INT64_MAX);
    copy(batch->window, sizeof batch->window, fl_json_string(in, "completion_window", ""));
    copy(batch->input, sizeof batch->input, fl_json_string(in, "input_file_id", ""));
    read_progress(batch, in, kept);
    batch->model    = raw_of(text, "model");
    batch->metadata = raw_of(text, "metadata");
    batch->errors   = raw_of(text, "errors");
    return &batch->kept;
}

static void free_kept(fl_kept *kept) {
    if (is_batch(kept->id))
        fl_batch_free((fl_batch_record *)(void *)kept);
    else
        fl_batch_file_free((fl_batch_file *)(void *)kept);
}

static int read_record(fl_batches *batches, const char *id, const char *path, fletch_error *error) {
    fl_buf   text   = {0};
    fl_json *root   = NULL;
    fl_kept *made   = NULL;
    int      status = fl_file_read(path, RECORD_MAX, &text, error);
    if (status == FLETCH_OK)
        status = fl_json_parse(&root, text.data, text.size, RECORD_MAX, 0, path, error);
    if (status == FLETCH_OK) {
        fl_json_reader in   = {.object = root, .source = path, .error = error};
        fl_json_reader kept = fl_json_below(&in, "kept");
        made                = is_batch(id) ? read_batch(&in, &kept, &text) : read_file(&in);
        if (made != NULL) {
            copy(made->id, sizeof made->id, id);
            copy(made->owner, sizeof made->owner, fl_json_string(&kept, "owner", ""));
        }
        fl_json_settle(&in, &kept);
        status = in.status;
    }
    if (status < 0 && status != FLETCH_ENOMEM) {
        char why[sizeof error->message];
        copy(why, sizeof why, error->message);
        status =
            fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                    "%s; the record was damaged: restore it from a copy, or move it away", why);
    } else if (status == FLETCH_OK && (made == NULL || !fl_kept_add(batches, made))) {
        status = fl_fail_nomem(error, sizeof(fl_batch_record), "the records of server.batches");
    }
    if (status < 0 && made != NULL)
        free_kept(made);
    fl_json_free(root);
    fl_buf_free(&text);
    return status;
}

/* ---- The folder ------------------------------------------------------------------------------------ */

/* The id of "ID.SUFFIX" into out; false: the name is another. */
static bool id_of(const char *name, const char *suffix, char out[FL_KEPT_ID]) {
    size_t size = strlen(name), end = strlen(suffix);
    bool   ours = (strncmp(name, "file-", 5) == 0 || is_batch(name)) && size > end &&
                size - end < FL_KEPT_ID && strcmp(name + size - end, suffix) == 0;
    if (ours) {
        memcpy(out, name, size - end);
        out[size - end] = '\0';
    }
    return ours;
}

/* Whether bytes of this id have a record, or are to have one. */
static bool is_known(const fl_batches *batches, const char *id) {
    bool known = fl_kept_find(&batches->files, NULL, id) != NULL;
    for (size_t i = 0; i < batches->batches.count && !known; i++) {
        const fl_batch_record *batch = (const fl_batch_record *)batches->batches.list[i];
        known                        = !fl_batch_is_over(batch) &&
                (strcmp(batch->output[0], id) == 0 || strcmp(batch->output[1], id) == 0);
    }
    return known;
}

/* With `records` read them, else remove bytes that belong to none. */
static int look_through(fl_batches *batches, bool records, fletch_error *error) {
    DIR *folder = opendir(batches->folder);
    int  status =
        folder != NULL ? FLETCH_OK : fl_fail_errno(error, errno, "cannot read", batches->folder);
    for (struct dirent *entry; status == FLETCH_OK && (entry = readdir(folder)) != NULL;) {
        char id[FL_KEPT_ID], *path = NULL;
        if (!id_of(entry->d_name, records ? ".json" : ".jsonl", id) ||
            (!records && is_known(batches, id)))
            continue;
        status = path_of(batches, id, records ? "json" : "jsonl", &path, error);
        if (status == FLETCH_OK && records)
            status = read_record(batches, id, path, error);
        else if (status == FLETCH_OK)
            (void)unlink(path);
        fl_free(path);
    }
    if (folder != NULL)
        (void)closedir(folder);
    return status;
}

static int take_lock(fl_batches *batches, fletch_error *error) {
    char path[PATH_MAX];
    FL_TRY(fl_path_join(path, sizeof path, batches->folder, "lock", error));
    batches->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (batches->lock_fd < 0)
        return fl_fail_errno(error, errno, "cannot open", path);
    if (flock(batches->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "%s is in use by another process; give each its own server.batches",
                       batches->folder);
    }
    return FLETCH_OK;
}

int fl_batches_open(fl_server *server, fletch_error *error) {
    const char *folder = fl_server_option(server, "server.batches");
    if (folder[0] == '\0')
        return FLETCH_OK;
    fl_batches *batches = fl_alloc_zero(1, sizeof *batches);
    if (batches == NULL)
        return fl_fail_nomem(error, sizeof *batches, "server.batches");
    server->batches  = batches;
    batches->server  = server;
    batches->lock_fd = -1;
    pthread_mutex_init(&batches->writing, NULL);
    pthread_mutex_init(&batches->lock, NULL);
    fl_cond_init(&batches->more);
    batches->folder = fl_strdup(folder);
    int status      = batches->folder != NULL ? fl_folder_make(folder, error)
                                              : fl_fail_nomem(error, PATH_MAX, "server.batches");
    if (status == FLETCH_OK)
        status = take_lock(batches, error);
    if (status == FLETCH_OK) {
        (void)fl_atomic_sweep(folder, true);
        status = look_through(batches, true, error);
    }
    if (status == FLETCH_OK)
        status = look_through(batches, false, error);
    if (status < 0)
        fl_error_prefix(error, "server.batches");
    return status;
}

void fl_batch_file_free(fl_batch_file *file) {
    fl_free(file->name);
    fl_free(file);
}

void fl_batch_free(fl_batch_record *batch) {
    fl_free(batch->model);
    fl_free(batch->metadata);
    fl_free(batch->errors);
    fl_free(batch);
}

int fl_batch_file_drop(fl_batches *batches, fl_batch_file *file, fletch_error *error) {
    char *record, *bytes;
    int   status = path_of(batches, file->kept.id, "json", &record, error);
    if (status == FLETCH_OK && unlink(record) != 0 && errno != ENOENT)
        status = fl_fail_errno(error, errno, "cannot remove", record);
    if (status == FLETCH_OK) {
        fl_parent_sync(record);
        bytes = fl_batches_path(batches, file->kept.id, "jsonl");
        if (bytes != NULL)
            (void)unlink(bytes); /* what stays is removed at the next start */
        fl_free(bytes);
        forget(batches, &file->kept);
        fl_batch_file_free(file);
    }
    fl_free(record);
    return status;
}

static void free_list(fl_kept_list *list) {
    for (size_t i = 0; i < list->count; i++)
        free_kept(list->list[i]);
    fl_free(list->list);
}

void fl_batches_close(fl_server *server) {
    fl_batches *batches = server->batches;
    if (batches == NULL)
        return;
    free_list(&batches->files);
    free_list(&batches->batches);
    fl_close(batches->lock_fd);
    pthread_cond_destroy(&batches->more);
    pthread_mutex_destroy(&batches->lock);
    pthread_mutex_destroy(&batches->writing);
    fl_free(batches->folder);
    fl_free(batches);
    server->batches = NULL;
}
