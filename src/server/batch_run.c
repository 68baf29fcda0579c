/* SPDX-License-Identifier: Apache-2.0 */
/* batch_run.c - the thread that runs batches, a turn of one after a turn of another.
 *
 * Role    batch_routes.c says that there is something to run; lifecycle.c starts and stops it.
 * Method  A turn is turn_ns of one batch: its lines become requests of the route that they name, in the bulk lane, a
 *         window of them at a time, and answers are written in the order of the lines. Now and then the bytes are
 *         synced, and then the record says how far the batch is. Every turn begins where the record says, cutting off
 *         what lies beyond: so a line has one answer whatever ends a turn, SIGKILL, a full disk or nothing.
 *         Batches that are to be looked at come first, the others take turns, so that none waits for a large one.
 *         Who is told to come again (429, 503) comes again. Lines that come too late are answered with why.
 * Memory  WINDOW_BYTES of lines, or one; their requests count like those of clients.
 * Threads One; answers come from any.
 * Proof   tests/server/test_batches.py. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "server/batches.h"

enum {
    WINDOW = 256,
    WINDOW_BYTES =
        256 * 1024, /* a few thousand tokens each: far from what may wait for the engine */
    WRITE_BYTES = 1024 * 1024,
    COPIES      = 3 /* of a line: read, kept for another try, parsed */
};

static const uint64_t turn_ns  = 2000000000; /* of one batch before others have theirs */
static const uint64_t sync_ns  = 250000000;  /* between records of how far it is */
static const uint64_t look_ns  = 50000000;   /* between looks at whether the server ends */
static const uint64_t again_ns = 100000000;  /* before a request that was refused for now */
static const uint64_t pause_ns = 5000000000; /* after a turn that failed: a disk is full, say */
static const uint64_t idle_ns  = 60000000000;

FL_LOCK_ROLE(turn_role); /* the lock of a turn */

typedef struct slot {
    struct turn     *turn;
    fl_request_full *full;
    bool done        FL_GUARDED_BY(turn_role);
    fl_buf           line; /* as it was read */
    uint64_t         number, end;
    fl_span          custom_id; /* in the request's memory */
} slot;

typedef struct turn {
    fl_batches       *batches;
    fl_batch_record  *batch; /* what may change of it: see batches.h */
    const fl_route   *route;
    fl_keys          *keys; /* held; NULL: none are asked for */
    fl_api_key       *key;  /* whose batch it is; NULL: it is gone, or nobody's */
    pthread_mutex_t   lock;
    pthread_cond_t    more;
    fl_batch_lines    lines;
    fl_batch_progress now;
    int               out[FL_BATCH_OUTPUTS];
    fl_buf            unwritten[FL_BATCH_OUTPUTS];
    size_t            first, count, bytes; /* slots in use, in the order of lines */
    uint64_t          end_ns;              /* when it is over */
    bool              cancelled;           /* the server ends: the slots were told */
    bool stopped; /* the first slot has no answer for now: it is run again in another turn */
    slot slots[WINDOW];
} turn;

FL_LOCK_OF(turn_role, turn, lock, lock, unlock);

static bool is_stopping(const turn *t) {
    return atomic_load(&t->batches->stopping);
}

/* ---- A line's answer --------------------------------------------------------------------------------- */

static int write_out(turn *t, int which, fletch_error *error) {
    fl_buf *text = &t->unwritten[which];
    if (text->failed)
        return fl_fail_nomem(error, text->size, "the answers of a batch");
    if (fl_write_all(t->out[which], text->data, text->size) != 0)
        return fl_fail_errno(error, errno, "cannot write", t->batch->output[which]);
    t->now.bytes[which] += text->size;
    fl_buf_clear(text);
    return FLETCH_OK;
}

/* The ids of a line are made of its place, so that a line that is run again has them again. */
static void ids_of(const turn *t, uint64_t number, char hex[65]) {
    char place[FL_KEPT_ID + 24];
    int  size = snprintf(place, sizeof place, "%s:%" PRIu64, t->batch->kept.id, number);
    fl_sha256_hex(place, (size_t)size, hex);
}

/* The line that ends `end` bytes into the input is answered by `reply`, or NULL: `code` and `message` say why not. */
static int put_answer(turn *t, const slot *s, const fl_http_reply *reply, const char *code,
                      const char *message, fletch_error *error) {
    int     which = reply != NULL && reply->status == 200 ? FL_BATCH_OUTPUT : FL_BATCH_ERROR;
    fl_buf *out   = &t->unwritten[which];
    char    hex[65];
    ids_of(t, s->number, hex);
    fl_buf_printf(out, "{\"id\":\"batch_req_%.24s\",\"custom_id\":", hex + 32);
    fl_json_quote(out, s->custom_id.data, s->custom_id.size);
    if (reply != NULL) {
        fl_buf_printf(out, ",\"response\":{\"status_code\":%d,\"request_id\":\"%.32s\",\"body\":",
                      reply->status, hex);
        fl_buf_append(out, reply->body.data, reply->body.size);
        fl_buf_puts(out, reply->body.size > 0 ? "},\"error\":null}\n" : "null},\"error\":null}\n");
    } else {
        fl_buf_printf(out, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n",
                      code, message);
    }
    t->now.count[which]++;
    t->now.line = s->number;
    t->now.at   = s->end;
    return out->size >= WRITE_BYTES || out->failed ? write_out(t, which, error) : FLETCH_OK;
}

/* ---- Requests ---------------------------------------------------------------------------------------- */

static void answered(fl_request_full *full) {
    slot *s = full->asker;
    turn *t = s->turn;
    lock(t);
    s->done = true;
    pthread_cond_signal(&t->more);
    unlock(t);
}

static int read_line(turn *t, slot *s, fl_batch_line *line, fletch_error *error) {
    fl_json_in in;
    s->full = fl_batch_line_request(t->batches->server, s->line.data, s->line.size);
    if (s->full == NULL)
        return fl_fail_nomem(error, s->line.size, "a line of a batch");
    if (!fl_fields_read(&s->full->shared, &in, fl_batch_line_fields, line)) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "line %" PRIu64 " of %s has changed: %s",
                       s->number, t->batch->input, in.message);
    }
    s->custom_id = line->custom_id;
    return FLETCH_OK;
}

static void drop(slot *s) {
    if (s->full != NULL) {
        fl_request_drop(s->full);
        s->full = NULL;
    }
}

/* On failure the slot has no request. */
static int start(turn *t, slot *s, fletch_error *error) {
    fl_batch_line line   = {0};
    int           status = read_line(t, s, &line, error);
    char          hex[65];
    if (status < 0) {
        drop(s);
        return status;
    }
    fl_http_request *request = &s->full->shared;
    ids_of(t, s->number, hex);
    memcpy(request->id, hex, 32);
    request->route   = t->route;
    request->path    = t->route->path;
    request->lane    = FLETCH_LANE_BULK;
    s->full->keys    = fl_keys_hold(t->keys);
    s->full->entered = t->key;                       /* its weight and tokens */
    request->body += line.body.data - request->body; /* raw: where it stands in the line */
    request->body_size                = line.body.size;
    request->body[request->body_size] = '\0';
    lock(t);
    s->done = false;
    unlock(t);
    s->full->answered = answered;
    s->full->asker    = s;
    fl_request_run_inner(s->full, COPIES * s->line.size);
    return FLETCH_OK;
}

/* Why the lines that are left are answered without being run. */
typedef enum unrun { UNRUN_NOT, UNRUN_CANCELLED, UNRUN_EXPIRED } unrun;

static const struct {
    const char *code, *message;
} unrun_answer[] = {
    [UNRUN_CANCELLED] = {"batch_cancelled",
                         "This request was not executed because the batch was cancelled."},
    [UNRUN_EXPIRED]   = {"batch_expired", "This request could not be executed before the "
                                            "completion window expired."}};

static unrun why_not(const turn *t) {
    fl_batches_lock(t->batches);
    bool cancelled = t->batch->status == FL_BATCH_CANCELLING;
    fl_batches_unlock(t->batches);
    return cancelled                                  ? UNRUN_CANCELLED
           : (int64_t)time(NULL) >= t->batch->expires ? UNRUN_EXPIRED
                                                      : UNRUN_NOT;
}

static int give_up(turn *t, const slot *s, unrun why, fletch_error *error) {
    t->now.expired += why == UNRUN_EXPIRED;
    return put_answer(t, s, NULL, unrun_answer[why].code, unrun_answer[why].message, error);
}

/* The next line into the next slot: 1, 0 when there is none, or an error. */
static int begin_line(turn *t, unrun why, fletch_error *error) {
    slot  *s = &t->slots[(t->first + t->count) % WINDOW];
    char  *line;
    size_t size;
    int    found = fl_batch_lines_next(&t->lines, &line, &size, error);
    if (found != 1)
        return found;
    fl_buf_clear(&s->line);
    fl_buf_append(&s->line, line, size);
    if (s->line.failed)
        return fl_fail_nomem(error, size, "a line of a batch");
    s->turn   = t;
    s->number = t->lines.number;
    s->end    = t->lines.at;
    if (why != UNRUN_NOT) {
        fl_batch_line read   = {0};
        int           status = read_line(t, s, &read, error);
        status               = status == FLETCH_OK ? give_up(t, s, why, error) : status;
        drop(s);
        return status < 0 ? status : 1;
    }
    FL_TRY(start(t, s, error));
    t->count++;
    t->bytes += size;
    return 1;
}

/* Cancelled work may be answered on this thread, so that no lock is held. */
static void cancel_all(turn *t) {
    for (size_t i = 0; i < t->count; i++) {
        fl_request_full *full = t->slots[(t->first + i) % WINDOW].full;
        atomic_store(&full->shared.cancelled, true);
        fl_request_cancel(full);
    }
}

/* Until the slot's request is answered. When the server ends all of them are cancelled. */
static void wait_for(turn *t, slot *s) {
    lock(t);
    while (!s->done) {
        if (is_stopping(t) && !t->cancelled) {
            t->cancelled = true;
            unlock(t);
            cancel_all(t);
            lock(t);
            continue;
        }
        fl_cond_wait_until(&t->more, &t->lock, fl_clock_ns() + look_ns);
        atomic_store(&t->batches->server->worked_ns, fl_clock_ns()); /* also while a model opens */
    }
    unlock(t);
}

static void pause_for(turn *t, uint64_t ns) {
    lock(t);
    fl_cond_wait_until(&t->more, &t->lock, fl_clock_ns() + ns);
    unlock(t);
}

static bool is_for_now(int status) {
    return status == 429 || status == 503;
}

/* Write the answer of the first slot, which is free then. */
static int end_first(turn *t, fletch_error *error) {
    slot *s      = &t->slots[t->first];
    unrun why    = UNRUN_NOT;
    int   status = FLETCH_OK;
    wait_for(t, s);
    while (is_for_now(s->full->shared.reply.status) && (why = why_not(t)) == UNRUN_NOT &&
           !is_stopping(t) && fl_clock_ns() < t->end_ns) {
        drop(s);
        pause_for(t, again_ns);
        FL_TRY(start(t, s, error));
        wait_for(t, s);
    }
    const fl_http_request *request = &s->full->shared;
    bool                   for_now = is_for_now(request->reply.status);
    if ((for_now && why == UNRUN_NOT) || (is_stopping(t) && request->reply.status == 499)) {
        t->stopped = true;
        return FLETCH_OK;
    }
    if (for_now) {
        status = give_up(t, s, why, error);
    } else {
        t->now.tokens += request->tokens;
        status = put_answer(t, s, &request->reply, NULL, NULL, error);
    }
    drop(s);
    t->bytes -= s->line.size;
    t->first = (t->first + 1) % WINDOW;
    t->count--;
    return status;
}

/* ---- What counts ------------------------------------------------------------------------------------ */

/* The file of an output, if it has a byte. */
FL_REQUIRES(fl_writing_role)
static int show_output(fl_batches *batches, fl_batch_record *batch, int which,
                       fletch_error *error) {
    const char *id      = batch->output[which];
    batch->shown[which] = batch->progress.bytes[which] > 0;
    if (!batch->shown[which]) {
        char *path = fl_batches_path(batches, id, "jsonl");
        if (path != NULL)
            (void)unlink(path);
        fl_free(path);
        return FLETCH_OK;
    }
    if (fl_kept_find(&batches->files, NULL, id) != NULL) /* before a crash */
        return FLETCH_OK;
    fl_batch_file *file = fl_alloc_zero(1, sizeof *file);
    fl_buf         name = {0};
    fl_buf_printf(&name, "%s_%s.jsonl", batch->kept.id,
                  which == FL_BATCH_OUTPUT ? "output" : "error");
    if (file == NULL || name.failed) {
        fl_free(file);
        fl_buf_free(&name);
        return fl_fail_nomem(error, sizeof *file, "the file of a batch");
    }
    file->kept         = batch->kept;
    file->kept.created = (int64_t)time(NULL);
    file->name         = fl_buf_take(&name);
    file->output       = true;
    file->bytes        = batch->progress.bytes[which];
    file->expires      = batch->lifetime > 0 ? file->kept.created + batch->lifetime : 0;
    memcpy(file->kept.id, id, FL_KEPT_ID);
    int status = fl_batch_file_save(batches, file, error);
    if (status == FLETCH_OK && !fl_kept_add(batches, &file->kept))
        status = fl_fail_nomem(error, sizeof *file, "the file of a batch");
    if (status < 0)
        fl_batch_file_free(file);
    return status;
}

/* Every line has its answer: make the files, then the status. */
FL_REQUIRES(fl_writing_role)
static int finish(fl_batches *batches, fl_batch_record *batch, fletch_error *error) {
    fl_batch_status status = batch->status == FL_BATCH_CANCELLING ? FL_BATCH_CANCELLED
                             : batch->progress.expired > 0        ? FL_BATCH_EXPIRED
                                                                  : FL_BATCH_COMPLETED;
    fl_batch_record next   = *batch;
    if (status == FL_BATCH_COMPLETED && batch->status != FL_BATCH_FINALIZING) {
        fl_batch_enter(&next, FL_BATCH_FINALIZING);
        FL_TRY(fl_batch_become(batches, batch, &next, error));
    }
    for (int i = 0; i < FL_BATCH_OUTPUTS; i++)
        FL_TRY(show_output(batches, &next, i, error));
    fl_batch_enter(&next, status);
    FL_TRY(fl_batch_become(batches, batch, &next, error));
    fl_server_log_line(batches->server->log, FL_LEVEL_INFO,
                       "batch %s %s: %" PRIu64 " requests completed, %" PRIu64 " failed",
                       batch->kept.id, fl_batch_words[status], batch->progress.count[0],
                       batch->progress.count[1]);
    return FLETCH_OK;
}

/* Make what was done count. */
static int commit(turn *t, bool whole, fletch_error *error) {
    fl_batches      *batches = t->batches;
    fl_batch_record *batch   = t->batch;
    for (int i = 0; i < FL_BATCH_OUTPUTS; i++) {
        FL_TRY(write_out(t, i, error));
        if (fsync(t->out[i]) != 0)
            return fl_fail_errno(error, errno, "cannot sync", batch->output[i]);
    }
    fl_batches_begin(batches);
    const fl_batch_progress was  = batch->progress;
    fl_batch_record         next = *batch;
    next.progress                = t->now;
    int status                   = fl_batch_become(batches, batch, &next, error);
    for (int i = 0; i < FL_BATCH_OUTPUTS && status == FLETCH_OK; i++) {
        bool more = t->now.count[i] > was.count[i]; /* not where it began anew */
        (void)atomic_fetch_add(&batches->lines[i], more ? t->now.count[i] - was.count[i] : 0);
    }
    if (status == FLETCH_OK && whole)
        status = finish(batches, batch, error);
    fl_batches_end(batches);
    return status;
}

/* ---- A turn ------------------------------------------------------------------------------------------ */

/* Lines until the turn is over; *whole: there are no more. */
static int run_lines(turn *t, bool *whole, fletch_error *error) {
    uint64_t sync  = fl_clock_ns() + sync_ns;
    int      found = 1;
    t->end_ns      = fl_clock_ns() + turn_ns;
    while (found == 1 && !t->stopped) {
        const unrun why  = why_not(t);
        bool        over = fl_clock_ns() >= t->end_ns || is_stopping(t);
        if (fl_clock_ns() >= sync) {
            FL_TRY(commit(t, false, error));
            sync = fl_clock_ns() + sync_ns;
        }
        bool room =
            t->count == 0 || (t->count < WINDOW && t->bytes < WINDOW_BYTES && why == UNRUN_NOT);
        if (room && !over)
            found = begin_line(t, why, error);
        else if (t->count > 0)
            FL_TRY(end_first(t, error));
        else
            return FLETCH_OK;
    }
    while (found == 0 && t->count > 0 && !t->stopped)
        FL_TRY(end_first(t, error));
    *whole = found == 0 && !t->stopped;
    return found < 0 ? found : FLETCH_OK;
}

static int open_at(turn *t, const char *id, int flags, int *fd, fletch_error *error) {
    char *path = fl_batches_path(t->batches, id, "jsonl");
    *fd        = path != NULL ? open(path, flags | O_CLOEXEC, 0666) : -1;
    int status = path == NULL ? fl_fail_nomem(error, 0, "a path")
                 : *fd < 0    ? fl_fail_errno(error, errno, "cannot open", path)
                              : FLETCH_OK;
    fl_free(path);
    return status;
}

/* As the record has it; where bytes are gone that it speaks of, from the beginning. */
static int open_outputs(turn *t, fletch_error *error) {
    struct stat info[FL_BATCH_OUTPUTS];
    bool        lost = false;
    t->now           = t->batch->progress;
    for (int i = 0; i < FL_BATCH_OUTPUTS; i++) {
        FL_TRY(open_at(t, t->batch->output[i], O_WRONLY | O_CREAT, &t->out[i], error));
        lost |= fstat(t->out[i], &info[i]) != 0 || (uint64_t)info[i].st_size < t->now.bytes[i];
    }
    if (lost)
        t->now = (fl_batch_progress){0};
    for (int i = 0; i < FL_BATCH_OUTPUTS; i++) {
        off_t size = (off_t)t->now.bytes[i];
        if (ftruncate(t->out[i], size) != 0 || lseek(t->out[i], size, SEEK_SET) != size)
            return fl_fail_errno(error, errno, "cannot cut", t->batch->output[i]);
    }
    t->lines.at     = t->now.at;
    t->lines.number = t->now.line;
    return FLETCH_OK;
}

static int run_turn(turn *t, fletch_error *error) {
    fl_buf      allow = {0};
    bool        whole = false;
    const char *tail;
    t->route = fl_route_find("POST", "/v1/embeddings", &allow, &tail); /* which is there */
    t->keys  = fl_server_keys(t->batches->server);
    t->key   = fl_keys_of_owner(t->keys, t->batch->kept.owner);
    FL_TRY(open_outputs(t, error));
    FL_TRY(run_lines(t, &whole, error));
    return commit(t, whole, error);
}

/* The batch never began, or cannot go on: it ends as `status`. */
static int end_early(fl_batches *batches, fl_batch_record *batch, fl_batch_status status,
                     fl_buf *errors, fletch_error *error) {
    fl_batches_begin(batches);
    fl_batch_record next = *batch;
    next.errors          = errors != NULL ? errors->data : NULL;
    fl_batch_enter(&next, status);
    int saved = fl_batch_become(batches, batch, &next, error);
    if (saved == FLETCH_OK && errors != NULL)
        *errors = (fl_buf){0}; /* they are the batch's */
    fl_batches_end(batches);
    return saved;
}

/* The batch is sound: what its input told, and that it goes on unless it was cancelled meanwhile. */
static int begin(fl_batches *batches, fl_batch_record *batch, uint64_t total, char *model,
                 fletch_error *error) {
    fl_batches_begin(batches);
    fl_batch_record next          = *batch;
    next.model                    = model;
    next.total                    = total;
    next.at[FL_BATCH_IN_PROGRESS] = (int64_t)time(NULL);
    next.status = next.status == FL_BATCH_VALIDATING ? FL_BATCH_IN_PROGRESS : next.status;
    int status  = fl_batch_become(batches, batch, &next, error);
    fl_batches_end(batches);
    if (status < 0)
        fl_free(model);
    return status;
}

static int check(turn *t, fletch_error *error) {
    fl_buf   errors = {0};
    char    *model  = NULL;
    uint64_t total  = 0;
    int      status = fl_batch_check(t->batches, t->lines.fd, &errors, &total, &model, error);
    if (status == FLETCH_OK && errors.size > 0) {
        fl_free(model);
        status = end_early(t->batches, t->batch, FL_BATCH_FAILED, &errors, error);
    } else if (status == FLETCH_OK) {
        status = begin(t->batches, t->batch, total, model, error);
    }
    fl_buf_free(&errors);
    return status;
}

static int lost_input(turn *t, fletch_error *error) {
    fl_buf errors = {0};
    fl_batch_fault(&errors, "input_file_not_found", "The input file no longer exists.");
    int status = errors.failed ? fl_fail_nomem(error, 256, "the errors of a batch")
                               : end_early(t->batches, t->batch, FL_BATCH_FAILED, &errors, error);
    fl_buf_free(&errors);
    return status;
}

static int take_turn(turn *t, fl_batch_status was, fletch_error *error) {
    fl_batch_record *batch = t->batch;
    bool             begun = batch->at[FL_BATCH_IN_PROGRESS] > 0;
    if (!begun && was == FL_BATCH_CANCELLING)
        return end_early(t->batches, batch, FL_BATCH_CANCELLED, NULL, error);
    if (!begun && (int64_t)time(NULL) >= batch->expires)
        return end_early(t->batches, batch, FL_BATCH_EXPIRED, NULL, error);
    if (was == FL_BATCH_FINALIZING) {
        fl_batches_begin(t->batches);
        int status = finish(t->batches, batch, error);
        fl_batches_end(t->batches);
        return status;
    }
    int status = open_at(t, batch->input, O_RDONLY, &t->lines.fd, error);
    if (status == FLETCH_ENOTFOUND)
        return lost_input(t, error);
    FL_TRY(status);
    return begun ? run_turn(t, error) : check(t, error);
}

static void end_turn(turn *t) {
    for (; t->count > 0; t->count--, t->first = (t->first + 1) % WINDOW) {
        slot *s = &t->slots[t->first];
        if (s->full != NULL) {
            wait_for(t, s);
            drop(s);
        }
    }
    for (size_t i = 0; i < WINDOW; i++)
        fl_buf_free(&t->slots[i].line);
    for (int i = 0; i < FL_BATCH_OUTPUTS; i++) {
        fl_buf_free(&t->unwritten[i]);
        fl_close(t->out[i]);
    }
    fl_buf_free(&t->lines.held);
    fl_close(t->lines.fd);
    fl_keys_drop(t->keys);
    pthread_cond_destroy(&t->more);
    pthread_mutex_destroy(&t->lock);
    fl_free(t);
}

/* ---- The thread ---------------------------------------------------------------------------------------- */

/* Batches to look at, but not after a failure, then the next one after `last` in the ring of unfinished ones; NULL: all
 * is done. */
static fl_batch_record *choose(const fl_batches *batches, const char *last, bool failed) {
    fl_batch_record *first = NULL, *next = NULL;
    for (size_t i = 0; i < batches->batches.count; i++) {
        fl_batch_record *batch = (fl_batch_record *)(void *)batches->batches.list[i];
        if (fl_batch_is_over(batch))
            continue;
        if (batch->status == FL_BATCH_VALIDATING && !failed)
            return batch;
        first = first == NULL ? batch : first;
        next  = next == NULL && strcmp(batch->kept.id, last) > 0 ? batch : next;
    }
    return next != NULL ? next : first;
}

static void drop_old_files(fl_batches *batches) {
    int64_t now = (int64_t)time(NULL);
    fl_batches_begin(batches);
    for (size_t i = batches->files.count; i > 0; i--) {
        fl_batch_file *file = (fl_batch_file *)(void *)batches->files.list[i - 1];
        if (file->expires > 0 && file->expires <= now &&
            fl_batch_reading(batches, file->kept.id) == NULL)
            (void)fl_batch_file_drop(batches, file, NULL);
    }
    fl_batches_end(batches);
}

static int one_turn(fl_batches *batches, fl_batch_record *batch, fl_batch_status was,
                    fletch_error *error) {
    turn *t = fl_alloc_zero(1, sizeof *t);
    if (t == NULL)
        return fl_fail_nomem(error, sizeof *t, "a turn of a batch");
    t->batches  = batches;
    t->batch    = batch;
    t->lines.fd = t->out[0] = t->out[1] = -1;
    pthread_mutex_init(&t->lock, NULL);
    fl_cond_init(&t->more);
    int status = take_turn(t, was, error);
    end_turn(t);
    return status;
}

static void *run(void *arg) {
    fl_batches *batches          = arg;
    char        last[FL_KEPT_ID] = "";
    bool        failed           = false;
    fl_batches_lock(batches);
    while (!atomic_load(&batches->stopping)) {
        fl_batch_record *batch = choose(batches, last, failed);
        if (batch == NULL) {
            fl_cond_wait_until(&batches->more, &batches->lock, fl_clock_ns() + idle_ns);
            fl_batches_unlock(batches);
            drop_old_files(batches);
            fl_batches_lock(batches);
            continue;
        }
        fl_batch_status was   = batch->status;
        fletch_error    error = {0};
        memcpy(last, batch->kept.id, sizeof last);
        fl_batches_unlock(batches);
        drop_old_files(batches);
        int status = one_turn(batches, batch, was, &error);
        atomic_store(&batches->server->worked_ns, fl_clock_ns()); /* server.idle_exit */
        fl_batches_lock(batches);
        failed = status < 0;
        if (failed && !atomic_load(&batches->stopping)) {
            fl_server_log_line(batches->server->log, FL_LEVEL_WARNING,
                               "batch %s cannot continue for now: %s", last, error.message);
            fl_cond_wait_until(&batches->more, &batches->lock, fl_clock_ns() + pause_ns);
        }
    }
    fl_batches_unlock(batches);
    return NULL;
}

int fl_batches_start(fl_server *server, fletch_error *error) {
    fl_batches *batches = server->batches;
    if (batches == NULL)
        return FLETCH_OK;
    int status       = fl_thread_start(&batches->thread, "batches", run, batches, error);
    batches->running = status == FLETCH_OK;
    return status;
}

void fl_batches_tell(fl_batches *batches) {
    fl_batches_lock(batches);
    pthread_cond_broadcast(&batches->more);
    fl_batches_unlock(batches);
}

void fl_batches_stop(fl_server *server) {
    fl_batches *batches = server->batches;
    if (batches != NULL) {
        fl_batches_lock(batches);
        atomic_store(&batches->stopping, true);
        pthread_cond_broadcast(&batches->more);
        fl_batches_unlock(batches);
    }
}

void fl_batches_join(fl_server *server) {
    fl_batches_stop(server);
    if (server->batches != NULL && server->batches->running) {
        pthread_join(server->batches->thread, NULL);
        server->batches->running = false;
    }
}
