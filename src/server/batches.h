/* SPDX-License-Identifier: Apache-2.0 */
/* batches.h - files and batches as OpenAI's clients know them, kept in the folder of server.batches.
 *
 * Role    batch_store.c keeps records, batch_routes.c is /v1/files and /v1/batches, batch_check.c looks at a file
 *         before it is run, batch_run.c runs it line by line, as batch_lines.c reads it.
 * Folder  lock; ID.json, the record of a file or batch; ID.jsonl, a file's bytes. A record is written whole or not at
 *         all, and only after the bytes that it speaks of: what a killed process leaves is bytes without a record,
 *         which the next start removes, or bytes beyond those that a batch's record counts, which its next
 *         turn cuts off.
 * Rights  Everything has an owner, the API key that made it (fl_api_key_owner), and is not there for others.
 * Threads Who changes something holds `writing` from his first look until the record is on the disk, and `lock` only
 *         while memory changes; who only looks holds `lock`, and so waits for no disk. */
#ifndef FL_SERVER_BATCHES_H
#define FL_SERVER_BATCHES_H

#include <pthread.h>

#include "base/json_w.h"
#include "base/locked.h"
#include "server/fields.h"
#include "server/server_internal.h"

enum { FL_KEPT_ID = 48, FL_BATCH_LINES = 50000 };

/* What files and batches have in common. An id holds the time in its first digits, so that ids sort by age. */
typedef struct fl_kept {
    char    id[FL_KEPT_ID]; /* "file-…" or "batch_…" */
    char    owner[FL_OWNER];
    int64_t created; /* Unix seconds, like all times here */
} fl_kept;

typedef struct fl_kept_list {
    fl_kept **list; /* [count], the oldest first */
    size_t    count, room;
} fl_kept_list;

typedef struct fl_batch_file {
    fl_kept  kept;
    char    *name;
    bool     output; /* of a batch; else it was sent to be one */
    uint64_t bytes;
    int64_t  expires; /* 0: never */
} fl_batch_file;

typedef enum fl_batch_status {
    FL_BATCH_VALIDATING,
    FL_BATCH_FAILED,
    FL_BATCH_IN_PROGRESS,
    FL_BATCH_FINALIZING,
    FL_BATCH_COMPLETED,
    FL_BATCH_EXPIRED,
    FL_BATCH_CANCELLING,
    FL_BATCH_CANCELLED,
    FL_BATCH_STATUSES
} fl_batch_status;

enum { FL_BATCH_OUTPUT, FL_BATCH_ERROR, FL_BATCH_OUTPUTS };

/* How far a batch is: what counts after a crash. */
typedef struct fl_batch_progress {
    uint64_t line, at;                /* of the input the next line, from 0, and its first byte */
    uint64_t bytes[FL_BATCH_OUTPUTS]; /* written for the lines before it */
    uint64_t count[FL_BATCH_OUTPUTS]; /* completed, failed */
    uint64_t expired;                 /* of the failed: those that came too late to be run */
    uint64_t tokens;
} fl_batch_progress;

typedef struct fl_batch_record {
    fl_kept           kept;
    fl_batch_status   status;
    int64_t           at[FL_BATCH_STATUSES]; /* when it had each; 0: not yet */
    int64_t           expires;
    int64_t           lifetime; /* of its outputs, seconds; 0: for ever */
    char              window[16];
    char              input[FL_KEPT_ID];
    char              output[FL_BATCH_OUTPUTS][FL_KEPT_ID];
    bool              shown[FL_BATCH_OUTPUTS];   /* it has that file */
    char             *model, *metadata, *errors; /* JSON as it is shown; NULL: none */
    uint64_t          total;
    fl_batch_progress progress;
} fl_batch_record;

FL_LOCK_ROLE(fl_batches_role); /* `lock` */
FL_LOCK_ROLE(fl_writing_role); /* `writing`, which is taken first */

typedef struct fl_batches {
    fl_server       *server;
    char            *folder;
    int              lock_fd;
    pthread_mutex_t  writing;
    pthread_mutex_t  lock;
    pthread_cond_t   more;           /* something to run; with lock */
    fl_kept_list     files, batches; /* read under either lock, changed under both */
    pthread_t        thread;
    bool             running;
    atomic_bool      stopping;
    _Atomic uint64_t lines[FL_BATCH_OUTPUTS]; /* since the start, for metrics */
} fl_batches;

FL_LOCK_OF(fl_batches_role, fl_batches, lock, fl_batches_lock, fl_batches_unlock);
FL_LOCK_OF(fl_writing_role, fl_batches, writing, fl_batches_begin, fl_batches_end);

/* ---- batch_store.c ---- */

/* ID.SUFFIX in the folder, into request-independent memory: fl_free it. NULL: out of memory. */
char *fl_batches_path(const fl_batches *batches, const char *id, const char *suffix);
void  fl_kept_name(fl_kept *kept, const char *kind, const char *owner); /* id, owner and time */
bool  fl_kept_add(fl_batches *batches, fl_kept *kept); /* to its list; takes the lock */
/* NULL: there is none, or it is not this owner's (NULL: anybody's). */
fl_kept *fl_kept_find(const fl_kept_list *list, const char *owner, const char *id);

/* The members of the object that clients see. */
void fl_batch_file_put(fl_json_w *w, const fl_batch_file *file);
void fl_batch_put(fl_json_w *w, const fl_batch_record *batch);
/* Write the record; durable when it returns. */
FL_REQUIRES(fl_writing_role)
int fl_batch_file_save(fl_batches *batches, const fl_batch_file *file, fletch_error *error);
/* The batch becomes *next, on the disk first: what is seen of it outlasts a crash. Their pointers are the batch's. */
FL_REQUIRES(fl_writing_role)
int fl_batch_become(fl_batches *batches, fl_batch_record *batch, const fl_batch_record *next,
                    fletch_error *error);
/* The file is gone, record first. */
FL_REQUIRES(fl_writing_role)
int  fl_batch_file_drop(fl_batches *batches, fl_batch_file *file, fletch_error *error);
void fl_batch_file_free(fl_batch_file *file);
void fl_batch_free(fl_batch_record *batch);
/* Its status, from now on. */
void               fl_batch_enter(fl_batch_record *batch, fl_batch_status status);
bool               fl_batch_is_over(const fl_batch_record *batch);
extern const char *fl_batch_words[FL_BATCH_STATUSES];
/* The unfinished batch that reads the file; NULL: none does. */
const fl_batch_record *fl_batch_reading(const fl_batches *batches, const char *file);
/* How many batches have each status. */
void fl_batches_count(fl_batches *batches, uint64_t count[FL_BATCH_STATUSES]);

/* ---- batch_lines.c: lines of an input ---- */

typedef struct fl_batch_lines {
    int      fd;
    uint64_t at, was; /* in the file: of what comes next, and of the line that came last */
    uint64_t number;  /* of that, from 1 where the reader began at the file's first byte */
    fl_buf   held;    /* bytes of the file, those before `used` done with; owned */
    size_t   used;
    bool     at_end; /* no more bytes are in the file */
} fl_batch_lines;

/* The next line that is not blank, without its end: 1, 0 past the last, or an error. It may be written to until the
 * next call. */
int fl_batch_lines_next(fl_batch_lines *lines, char **line, size_t *size, fletch_error *error);

typedef struct fl_batch_line {
    fl_span custom_id, method, url, body; /* body: raw */
} fl_batch_line;
extern const fl_field fl_batch_line_fields[];
/* A request that no client sent, for `line`, which is copied and then lies in it. NULL: out of memory. */
fl_request_full *fl_batch_line_request(fl_server *server, const char *line, size_t size);

/* ---- batch_check.c ---- */

/* What is wrong with the file behind `fd`, as {"object":"list","data":[…]} into *errors, which stays empty if it is
 * good; then *total and *model (owned by the caller) are its lines and what they name. */
int fl_batch_check(fl_batches *batches, int fd, fl_buf *errors, uint64_t *total, char **model,
                   fletch_error *error);
/* {"object":"list","data":[{…}]} of one error that no line has. */
void fl_batch_fault(fl_buf *errors, const char *code, const char *message);

/* ---- batch_run.c ---- */

void fl_batches_tell(fl_batches *batches); /* there is something to run; takes the lock */

#endif
