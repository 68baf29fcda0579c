/* SPDX-License-Identifier: Apache-2.0 */
/* server_internal.h - what the files of the transport share and the routes do not see.
 *
 * Role    The inside of fl_server, a connection's record, and the functions between lifecycle.c (start,
 *         drain, stop), transport.c (I/O threads), connection.c (what one connection does), http_request.c
 *         (request objects), watch.c (signals, the models' health) and the operations.
 * Threads io: transport.c's. watch: one. worker: some. main: loads, waits, drains. Engines' threads enter
 *         through done functions. A connection belongs to one I/O thread, and so does its request but while
 *         its handler or its work runs; other threads hand it back through fl_transport_answer. */
#ifndef FL_SERVER_SERVER_INTERNAL_H
#define FL_SERVER_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdarg.h>

#include "base/locked.h"
#include "server/http1.h"
#include "server/server.h"

/* ---- event_log.c: one line per event, never a text or a key ------------------------------------------- */

typedef struct fl_server_log fl_server_log;

enum { FL_LEVEL_ERROR, FL_LEVEL_WARNING, FL_LEVEL_INFO, FL_LEVEL_DEBUG, FL_LEVEL_TRACE };

/* format: "json", "text" or "auto" (json unless standard error is a terminal). */
int  fl_server_log_open(fl_server_log **out, const char *format, int level, fletch_error *error);
void fl_server_log_flush(fl_server_log *log); /* what waits is written, or a second has passed */
void fl_server_log_close(fl_server_log *log); /* writes what waits; NULL is a no-op */
void fl_server_log_level(fl_server_log *log, int level);
int  fl_server_log_level_of(const char *name); /* "info" -> FL_LEVEL_INFO */
void fl_server_log_line(fl_server_log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void     fl_server_log_request(fl_server_log *log, const fl_http_request *request, int status);
uint64_t fl_server_log_dropped(const fl_server_log *log);

/* ---- http_errors.c -------------------------------------------------------------------------------- */

/* The first code of a status that the table has. */
fl_http_code fl_http_code_of(int status);

/* ---- admission.c: what is decided about a request when only its head is there ------------------------ */

typedef struct fl_request_full fl_request_full;

/* Locks of fl_server. */
FL_LOCK_ROLE(fl_paths_role);  /* paths of listeners, which a signal may have to remove */
FL_LOCK_ROLE(fl_keys_role);   /* which table of keys there is */
FL_LOCK_ROLE(fl_pieces_role); /* pieces of every reply that comes in pieces */
FL_LOCK_ROLE(fl_pulls_role);  /* the list, and all of a pull but its name */
FL_LOCK_ROLE(fl_pool_role);
FL_LOCK_ROLE(fl_watch_role); /* held while the watch looks at models */

/* Judge the head that fl_http_head_read found, or refused: find the route, the key, priority and deadline. When the
 * request is refused or answered already, full->judged is set and the reply stands. */
void fl_admit(fl_request_full *full, int found);

/* The 413 that names server.max_body. */
void fl_refuse_size(fl_http_request *request);

/* The 503 when server.max_body_memory is used up by others. */
void fl_refuse_memory(fl_http_request *request, uint64_t wanted); /* by a body of so many bytes */

/* Random digits; they need to differ, not to be secret. */
void fl_random_hex(char *out, size_t digits);

/* ---- trace_context.c, otlp.c: see otlp.h ---- */

typedef struct fl_otlp      fl_otlp;
typedef struct fl_otlp_span fl_otlp_span;

/* trace_id, span_id and, where it is exported, the span of a request whose head is there. */
void fl_trace_context_begin(fl_request_full *full);

/* ---- keys.c --------------------------------------------------------------------------------------- */

typedef struct fl_keys fl_keys;

/* NULL path or "": no keys are asked for, *out is NULL. */
int         fl_keys_load(fl_keys **out, const char *path, fletch_error *error);
fl_keys    *fl_keys_hold(fl_keys *keys); /* one more holder; NULL stays NULL */
void        fl_keys_drop(fl_keys *keys); /* NULL is a no-op */
size_t      fl_keys_count(const fl_keys *keys);
fl_api_key *fl_keys_find(fl_keys *keys, const char *text, size_t size); /* in constant time */
const char *fl_api_key_name(const fl_api_key *key);
bool        fl_api_key_is_bulk(const fl_api_key *key);
/* Whose the things are that a key makes: by its name where the file gives one, so that they outlive the key, else by
 * the key. NULL: no keys are asked for, "". */
enum { FL_OWNER = 33 };
void fl_api_key_owner(const fl_api_key *key, char out[FL_OWNER]);
/* It may change which models there are. NULL, no keys are asked for: whoever asks may. */
bool     fl_api_key_is_admin(const fl_api_key *key);
uint32_t fl_api_key_weight(const fl_api_key *key);
/* The first of such keys; NULL: there is none any more. */
fl_api_key *fl_keys_of_owner(fl_keys *keys, const char *owner);
/* `texts` are to be embedded for it; false: too many are already. Then fl_api_key_answered, once. */
bool fl_api_key_submit(fl_api_key *key, uint64_t texts);
void fl_api_key_answered(fl_api_key *key, uint64_t texts, uint64_t tokens);

typedef struct fl_key_usage {
    const char *name;
    uint64_t    waiting, tokens;
} fl_key_usage;

/* Keys of one name together, in the row of the first; usage[fl_keys_count], all zero: other rows stay so. */
void fl_keys_usage(fl_keys *keys, fl_key_usage *usage);
/* Take one request's share; false with *wait_seconds when the key has had its share for now. */
bool fl_api_key_enter(fl_api_key *key, uint64_t now_ns, unsigned *wait_seconds);
void fl_api_key_leave(fl_api_key *key);

/* ---- metrics.c ------------------------------------------------------------------------------------ */

typedef struct fl_metrics fl_metrics;

typedef enum fl_rejection {
    FL_REJECTED_QUEUE,
    FL_REJECTED_KEY_LIMIT,
    FL_REJECTED_KEY_QUEUE,
    FL_REJECTED_KEY,
    FL_REJECTED_NOT_READY,
    FL_REJECTED_BODY,
    FL_REJECTED_HEADERS,
    FL_REJECTED_SLOW,
    FL_REJECTION_COUNT
} fl_rejection;

int  fl_metrics_open(fl_metrics **out, const char *prefix, fletch_error *error);
void fl_metrics_close(fl_metrics *metrics);
/* `span`: an example of what took so long, or NULL. */
void fl_metrics_request(fl_metrics *metrics, const fl_route *route, int status, uint64_t ns,
                        const fl_otlp_span *span);
void fl_metrics_embedding(fl_metrics *metrics, uint64_t texts, uint64_t ns,
                          const fl_otlp_span *span);
void fl_metrics_rejected(fl_metrics *metrics, fl_rejection why);
void fl_metrics_cancelled(fl_metrics *metrics);
/* In Prometheus' text format, or as OpenMetrics, which has exemplars. */
void fl_metrics_write(fl_server *server, fl_buf *out, bool open_metrics);

/* ---- A connection ---------------------------------------------------------------------------------- */

typedef enum fl_phase {
    FL_PHASE_IDLE,   /* between requests */
    FL_PHASE_HEAD,   /* a byte of a request is there */
    FL_PHASE_BODY,   /* its head was judged */
    FL_PHASE_RUN,    /* it is whole; a handler, an engine or a worker has it */
    FL_PHASE_WRITE,  /* the reply goes out */
    FL_PHASE_LINGER, /* all is said; what the peer still sends is thrown away until it ends */
    FL_PHASE_DEAD    /* closed; freed when this round of events is through */
} fl_phase;

typedef struct fl_io   fl_io;
typedef struct fl_conn fl_conn;

struct fl_conn {
    fl_io           *io;          /* the thread that serves it, the only one that touches it */
    fl_conn         *prev, *next; /* in a list of its thread */
    fl_conn         *next_again;
    fl_request_full *request; /* from its first byte to the end of its reply */
    int              fd;
    fl_phase         phase;
    bool             readable; /* the kernel may have more */
    bool             gone;     /* the peer has shut its side */
    bool             closing;  /* end after this reply */
    bool             promised; /* its first request is answered, even by a process that ends */
    bool             again;    /* waits in its thread's list for another turn */
    bool             lent;  /* an abandoned request may still read `in`: both stay until the end */
    uint32_t         turns; /* its requests since another connection had one */
    uint64_t         since_ns;          /* when the phase began */
    uint64_t         sent;              /* of the reply */
    uint64_t         marked, marked_ns; /* so much of it had been taken then */
    fl_buf           in;   /* bytes that came; the head of the request under way is at the front */
    size_t           used; /* of `in`: they belong to that request */
};

/* ---- connection.c: all on the connection's own thread ---- */
void fl_conn_open(fl_io *io, int fd, bool promised);
void fl_conn_event(fl_conn *conn, bool readable, bool gone); /* and where it can be written to */
void fl_conn_advance(fl_conn *conn);            /* as far as bytes and the kernel allow */
void fl_conn_answered(fl_request_full *full);   /* its reply stands */
void fl_conn_flow(fl_conn *conn);               /* pieces of it may have come */
void fl_conn_look(fl_conn *conn, uint64_t now); /* at its clock */
void fl_conn_cancel(fl_conn *conn);             /* what runs for it */
void fl_conn_make_room(fl_conn *conn);          /* it lingers: end it */
void fl_conn_abandon(fl_conn *conn);            /* what runs for it does not come back */

/* ---- The private half of a request ------------------------------------------------------------------ */

typedef struct fl_block {
    struct fl_block *next;
    size_t           used, capacity;
} fl_block;

struct fl_request_full {
    fl_http_request  shared; /* first: the two pointers convert into each other */
    fl_conn         *conn;   /* NULL: no client sent it */
    fl_keys         *keys;   /* held as long as shared.key is used */
    fl_http_head     head;   /* its text lies in conn->in */
    fl_http_chunks   chunks;
    fl_buf           gather; /* the body */
    fl_buf           out;    /* the reply's status line and headers; of one in pieces all of it */
    fl_buf pieces    FL_GUARDED_BY(fl_pieces_role); /* of such a reply, to be sent */
    fl_block        *blocks; /* fl_request_alloc; the first is kept in the pool */
    const void      *static_data;
    size_t           static_size;
    fl_done_fn       done; /* of the submission under way */
    fl_served       *served;
    fl_otlp_span    *span; /* NULL: not traced */
    uint64_t         work_texts, work_cells;
    uint64_t         key_texts; /* of work_texts, those that count in the key's queue */
    fletch_output   *outputs;   /* of a submission for several, borrowed; their lists are ours */
    size_t           output_count;
    _Atomic uint64_t ticket;
    _Atomic int      pending;    /* 2: handler runs and no reply yet; 0: the connection may go on */
    atomic_bool      sent;       /* a reply was given; a second one is a fault of the route */
    atomic_bool      flows;      /* it has begun to be given in pieces */
    bool             flowing;    /* io: and to be sent */
    atomic_bool      resumed;    /* the connection was woken, by the reply or by abandoning it */
    atomic_bool      abandoned;  /* 503 was said; nobody knows who writes into this any more */
    bool             begun;      /* io: the head was judged */
    bool             judged;     /* io: a reply stands already: the body is only skipped */
    bool             gzips;      /* the client takes a large reply packed */
    bool             packed;     /* the reply is */
    fl_api_key      *entered;    /* io: whose share it has taken */
    bool             key_full;   /* its key had too many texts waiting: what EBUSY means then */
    int              crowded;    /* 503, or 413 when alone it is too much: see fl_request_alloc */
    int              status;     /* io: what was sent */
    uint64_t         received;   /* io: bytes of the body */
    uint64_t         held;       /* bytes counted in server->bodies; who has the request */
    uint64_t         replied;    /* bytes counted in server->replies; who has the request */
    const char      *crowded_by; /* the option whose bound was met */
    fl_route_fn      later;
    fletch_outcome   outcome; /* a copy for done functions that run on a worker */
    fl_request_full *next;    /* in the pool, or among those that were answered */
    void            *asker;   /* without a connection: who waits, and how he hears of the reply */
    void (*answered)(fl_request_full *full);
    fl_served *taken;   /* of those on demand: dropped at the end */
    fl_served *awaits;  /* likewise, while it waits for it to open; or to be closed the … */
    uint64_t   awaited; /* … time; 0: to open */
    uint64_t   awaits_ns;
    bool       looked; /* fl_request_look has */
};

static inline fl_request_full *fl_full(fl_http_request *request) {
    return (fl_request_full *)(void *)request;
}
static inline const fl_request_full *fl_full_const(const fl_http_request *request) {
    return (const fl_request_full *)(const void *)request;
}

/* http_request.c */
fl_request_full *fl_request_make(fl_server *server); /* NULL when out of memory */
void             fl_request_retire(fl_request_full *full);
void             fl_request_drop(fl_request_full *full); /* with what it counts as held */
void             fl_request_pool_free(fl_server *server);
void             fl_request_cancel(fl_request_full *full); /* what was submitted for it */
/* Its route, for a request without a connection, of which `held` bytes count as memory of bodies. */
void fl_request_run_inner(fl_request_full *full, size_t held);
/* Run fn(request) on a worker; it is answered instead when it is over by then, or at once when too
 * many wait: then false. */
bool fl_request_run_later(fl_http_request *request, fl_route_fn fn, uint64_t cost_ns);

/* While fn(request) runs on a worker: others that wait for the same fn and are `wanted`, at most `most`, so that it
 * does the work of all. Each is answered or goes on as if fn had been called, and then fl_request_gathered is told. */
enum { FL_GATHER_MAX = 16 };
typedef bool (*fl_wanted_fn)(const fl_http_request *request);
size_t fl_request_gather(const fl_http_request *request, fl_wanted_fn wanted,
                         fl_http_request **others, size_t most);
void   fl_request_gathered(fl_http_request *other);

/* ---- gzip.c ---- */

/* What Accept-Encoding (NULL: absent) says of gzip. */
bool fl_gzip_accepted(const char *accept);
/* data[size] packed onto *out, which is empty; false: it is better sent as it is. `request`: who waits for it, or
 * NULL. */
bool fl_gzip_pack(const fl_http_request *request, const void *data, size_t size, fl_buf *out);

/* ---- workers.c ---------------------------------------------------------------------------------------- */

typedef struct fl_workers fl_workers;
typedef void (*fl_work_fn)(void *arg);
void fl_workers_wake(fl_workers *workers); /* somebody may have got what it waits for */
int  fl_workers_open(fl_workers **out, unsigned threads, fletch_error *error);
void fl_workers_close(fl_workers *workers); /* finishes what waits; NULL is a no-op */
/* `cost_ns`: what it is likely to take; `request`: for which it is done, or NULL; it must end before that does.
 * False: too many wait. */
bool fl_workers_add(fl_workers *workers, fl_work_fn fn, void *arg, uint64_t cost_ns,
                    const fl_http_request *request);
/* Waiting jobs of fn whose argument is wanted, at most `most`, out of the queue: who takes them runs them. */
typedef bool (*fl_work_wanted_fn)(const void *arg, const void *user);
size_t fl_workers_take(fl_workers *workers, fl_work_fn fn, fl_work_wanted_fn wanted,
                       const void *user, void **args, size_t most);

/* ---- cors.c ---------------------------------------------------------------------------------------------- */

/* The value for Access-Control-Allow-Origin, or NULL when `origin` is not welcome. */
const char *fl_cors_allowed(const char *setting, const char *origin);
/* Whether a page of `origin` (NULL: no page) may change something here when no key is asked for. */
bool fl_cors_may_write(const char *setting, const char *origin, const char *host);
/* Whether a name in Host is one under which a server that only this machine reaches can be meant. */
bool fl_cors_is_ours(const char *allowed, const char *host);

/* ---- seed.c ------------------------------------------------------------------------------------------------ */

/* Take server.store, if one is named: its folder, lock and format. */
int fl_seed_open(fl_server *server, fletch_error *error);
/* Load what it holds for the first model. */
int  fl_seed_load(fl_server *server, fletch_error *error);
void fl_seed_close(fl_server *server);

/* ---- batch_store.c, batch_run.c ----------------------------------------------------------------------------- */

/* Take server.batches, if one is named: its folder, lock and records. */
int fl_batches_open(fl_server *server, fletch_error *error);
/* With the models there: go on with what is unfinished. */
int  fl_batches_start(fl_server *server, fletch_error *error);
void fl_batches_stop(fl_server *server);  /* begin nothing more; it goes on at the next start */
void fl_batches_join(fl_server *server);  /* the same, and wait for what runs */
void fl_batches_close(fl_server *server); /* after all routes */

/* ---- pull.c ------------------------------------------------------------------------------------------------ */

typedef struct fl_pull fl_pull;

void fl_pulls_close(fl_server *server); /* every request is answered: their threads are ending */

/* ---- sockets.c -------------------------------------------------------------------------------------------- */

enum { FL_LISTENERS = 16 };

typedef struct fl_listener {
    int  fd;
    bool tcp, inherited;
    char where[160]; /* "http://127.0.0.1:9900" or "unix:/run/fletch.sock" */
    char path[108];  /* of a Unix socket that we made: removed at the end */
} fl_listener;

/* Open what the options ask for, or take what systemd passed. */
int fl_sockets_open(fl_server *server, fletch_error *error);
/* Begin no more connections; those that have begun can still be accepted. Closing a socket resets whoever waits in
 * it, and who connects meanwhile: now nobody does. Who tries is refused at the second try, when it is closed. */
void fl_sockets_hush(fl_server *server);
void fl_sockets_close(fl_server *server);
/* Where other machines can reach this one; NULL: nowhere. */
const char *fl_sockets_exposed(const fl_server *server);
void        fl_notify(const char *state); /* sd_notify; nothing without NOTIFY_SOCKET */
void        fl_raise_file_limit(fl_server *server);

/* ---- offers.c: what server.on_demand names --------------------------------------------------------------- */

/* `listed`: by its id, not found in a folder. */
typedef void (*fl_offer_fn)(void *user, const char *name, const char *id, bool listed);

int  fl_offers_check(const fletch_config *config, const char *list, fletch_error *error);
void fl_offers_scan(const fletch_config *config, const char *list, fl_offer_fn fn, void *user);
/* What the model is likely to take of memory when it is open; 0: nobody can tell. */
uint64_t fl_offer_bytes(const fletch_config *config, const char *id);

/* ---- demand.c: models that are opened when a request names them ------------------------------------------- */

typedef struct fl_demand fl_demand;

/* Read server.on_demand and server.keep_alive, and judge what they name. */
int fl_demand_open(fl_server *server, fletch_error *error);
/* After fl_models_open: what is on the disk is on offer. */
int  fl_demand_start(fl_server *server, fletch_error *error);
void fl_demand_leave(fl_server *server); /* who waits for a model is told that the server ends */
/* Its thread ends; then fl_models_close. False: it does not, since a model takes long to open. */
bool fl_demand_stop(fl_server *server);
void fl_demand_free(fl_server *server);

bool fl_demand_due(
    const fl_request_full *full); /* what the request waits for has come, or never will */
/* It waits no more. True: it was answered, since there was no room until it was too late. */
bool fl_demand_arrive(fl_request_full *full, bool over);
void fl_demand_leave_model(fl_request_full *full); /* full->taken */

typedef enum fl_close_reason {
    FL_CLOSE_IDLE,
    FL_CLOSE_ROOM,
    FL_CLOSE_ASKED,
    FL_CLOSE_REASONS
} fl_close_reason;

/* fl_server_model, for threads that may wait for the disk: a name that is unknown is searched for among the files. */
fl_served *fl_demand_find(fl_server *server, const char *name, size_t size);

typedef struct fl_demand_counts {
    uint64_t opened, failed, closed[FL_CLOSE_REASONS], waiting;
} fl_demand_counts;
fl_demand_counts fl_demand_counted(const fl_server *server);

/* ---- models.c ---------------------------------------------------------------------------------------------- */

/* "NAME=ID" or "ID" to a name of the caller's and the id inside `spec`. */
int fl_model_spec_read(const char *spec, char **name, const char **id, fletch_error *error);
/* What of a model can be judged without its weights, by who opens models and in its words. */
int fl_model_check(const fletch_config *config, const char *id, fletch_error *error);
/* A record of a closed model, strings copied; NULL: no memory, or there are too many. */
fl_served *fl_models_make(const fl_server *server, const char *name, const char *id);
/* From now on it is found. It and its offer are freed at the end; one thread at a time. */
void fl_models_add(fl_server *server, fl_served *served);
/* Open what `id` names, warm it, and fill the record; *served is as before where that fails. */
int  fl_served_open(fl_server *server, fl_served *served, const char *id,
                    const fletch_config *config, fletch_error *error);
void fl_served_close(fl_served *served); /* waits for work that is under way */

/* Names and folders, as far as they can be judged before anything is loaded. */
int  fl_models_check(const fletch_config *config, const char *const *specs, size_t count,
                     fletch_error *error);
int  fl_models_open(fl_server *server, const char *const *specs, size_t count, fletch_error *error);
void fl_models_close(fl_server *server);
void fl_models_tick(fl_server *server,
                    uint64_t   now_ns); /* watch, once a second: rates and probes */
bool fl_models_stuck(const fl_server *server, uint64_t now_ns, uint64_t limit_ns);
bool fl_models_healthy(const fl_server *server, const char **why);

/* changed_files.c: weights that are changed while they are served */
void fl_files_guard(void);                   /* once: SIGBUS */
void fl_files_note(fl_served *served);       /* when it is loaded */
void fl_files_drop(const fl_served *served); /* when it is closed */
void fl_files_look(fl_server *server);

/* ---- transport.c ------------------------------------------------------------------------------------------- */

enum { FL_IO_SINK = 64 * 1024, FL_IO_SPARE = 32, FL_IO_MAX = 64 };

typedef struct fl_loop fl_loop;

struct fl_io {
    fl_server  *server;
    pthread_t   thread;
    fl_loop    *loop;
    bool        running;
    bool        full;    /* no more connections: it listens again when somebody has left */
    bool        starved; /* no more files: it tries again at the next look */
    bool        quiet;   /* it has accepted the last one */
    uint32_t    listens; /* to which listeners, a bit each */
    _Atomic int orders;  /* what other threads ask of it */
    _Atomic(fl_request_full *) answered; /* newest first */
    fl_conn  idle, busy, lingering;      /* rings; but in busy, who waits longest comes first */
    fl_conn *again, *dead;
    fl_buf   spare[FL_IO_SPARE]; /* for connections that begin to speak */
    size_t   spare_count;
    int64_t  date_second;
    char     date[40];
    char     sink[FL_IO_SINK];
};

int  fl_transport_start(fl_server *server, fletch_error *error);
void fl_transport_wake(fl_server *server);    /* the state has changed: let every I/O thread look */
void fl_transport_quiesce(fl_server *server); /* take who waits to be accepted, and nobody after */
void fl_transport_stop(fl_server *server);
void fl_transport_cancel(fl_server *server);           /* give up what runs */
void fl_transport_abandon(fl_server *server);          /* answer 503 to what does not come back */
void fl_transport_answer(fl_request_full *full);       /* any thread: its reply stands */
void fl_transport_knocked(fl_io *io, size_t listener); /* io: somebody wants to connect there */
void fl_transport_called(fl_io *io);                   /* io: fl_loop_wake was called */
void fl_transport_flow(fl_io *io);                     /* any thread: pieces of replies wait */
const char *fl_transport_date(fl_io *io);
void fl_transport_move(fl_conn *conn, fl_conn *list); /* to the end of it; NULL: out of all */

/* ---- loop_epoll.c or loop_poll.c, of which a program has one: what an I/O thread waits for ---------------------- */

fl_loop *fl_loop_open(void);           /* NULL with errno */
void     fl_loop_close(fl_loop *loop); /* NULL is a no-op */
void     fl_loop_wake(fl_loop *loop);  /* any thread: let it look */
/* Begin or end to listen; false: it stays as it was. */
bool fl_loop_listen(fl_io *io, size_t listener, bool on);
bool fl_loop_add(fl_conn *conn); /* until its socket is closed */
/* Wait for events, at most so long (-1: without end), and tell them: fl_transport_knocked, fl_transport_called,
 * fl_conn_event. */
void fl_loop_wait(fl_io *io, int timeout_ms);

/* ---- watch.c ------------------------------------------------------------------------------------------------ */

int  fl_watch_start(fl_server *server, fletch_error *error);
void fl_watch_leave(
    fl_server *server); /* state FL_STOPPED: it hears signals and looks at no model */
void fl_watch_wait(fl_server *server); /* until a signal asks for the end */
void fl_watch_stop(fl_server *server);

/* ---- The server -------------------------------------------------------------------------------------------------- */

/* States only grow. */
enum { FL_LOADING, FL_READY, FL_LAME_DUCK, FL_DRAINING, FL_CLOSING, FL_STOPPED };

/* Models that are named at the start; all. */
enum { FL_MODELS_MAX = 32, FL_RECORDS_MAX = 1024, FL_FOREIGN_MAX = 64 };

struct fl_server {
    fletch_config     *config; /* read-only while the server runs */
    fl_server_log     *log;
    fl_metrics        *metrics;
    fl_otlp           *otlp; /* NULL: nothing is exported */
    fl_workers        *workers;
    struct fl_batches *batches; /* set before FL_READY; NULL: server.batches is empty */
    fl_io             *io[FL_IO_MAX];
    size_t             io_count;
    _Atomic int        open;                   /* connections, but for those that linger */
    _Atomic int        lingering;              /* connections that do */
    _Atomic int        quiet;                  /* I/O threads that have accepted the last one */
    _Atomic uint64_t   closing_ns;             /* when the state became FL_CLOSING */
    _Atomic(fl_conn *) spoke;                  /* had the last request; only ever compared */
    fl_served         *models[FL_RECORDS_MAX]; /* those of the start first; published by: */
    _Atomic size_t     model_count;
    size_t             pinned_count; /* named at the start; published by state FL_READY */
    fl_demand         *demand;       /* NULL: nothing is opened on demand */
    fl_listener        listeners[FL_LISTENERS];
    size_t             listener_count;
    pthread_mutex_t    paths_lock;
    pthread_mutex_t    keys_lock;
    fl_keys *keys      FL_GUARDED_BY(fl_keys_role); /* the table itself is shared by its holders */
    pthread_mutex_t    pieces_lock;
    pthread_mutex_t    pulls_lock;
    fl_pull *pulls     FL_GUARDED_BY(fl_pulls_role);
    pthread_mutex_t    pool_lock;
    fl_request_full *pool FL_GUARDED_BY(fl_pool_role);
    size_t pool_count     FL_GUARDED_BY(fl_pool_role);
    _Atomic int           state;
    _Atomic int           inflight; /* requests between headers and the end of the reply */
    _Atomic uint64_t bodies;  /* bytes of bodies that are held, and of what is read out of them */
    _Atomic int      signals; /* how often we were asked to end */
    _Atomic uint64_t replies; /* bytes of replies that are made or wait for their readers */
    _Atomic int      first_signal;
    atomic_bool      idled;       /* server.idle_exit: we end for want of work */
    _Atomic uint64_t worked_ns;   /* when there was work last; probes and scrapes are none */
    _Atomic int      reloading;   /* 1: a worker does; 2: and once more */
    atomic_bool      looking;     /* a worker is looking at the models' files */
    int              heard[2];    /* fl_os_pair: signals, and 0 to end the watch */
    bool             on_terminal; /* which ends the server when it closes */
    pthread_t        watch;
    pthread_mutex_t  watch_lock;
    pthread_cond_t   stop; /* `signals` has grown */
    bool             watching, guarded;
    bool             confined; /* only this machine can reach it */
    uint64_t         max_connections;
    uint64_t start_time, max_body, deadline_ms, watchdog_ns, header_ns, body_ns, idle_ns, write_ns;
    uint64_t idle_exit_ns; /* 0: never */
    _Atomic uint64_t max_bodies, max_replies;
    uint64_t         compress; /* replies of so many bytes are packed for who takes them so */
    const char      *hosts;    /* server.allowed_hosts */
    const char      *cors;
    _Atomic uint64_t foreign[FL_FOREIGN_MAX]; /* clients that were warned of ids; openai.c */
    struct fl_store *store;                   /* set before FL_READY; NULL: server.store is none */
    fletch_config *(*reload)(void *user, fletch_error *error);
    void *user;
};

FL_LOCK_OF(fl_paths_role, fl_server, paths_lock, fl_paths_lock, fl_paths_unlock);
FL_LOCK_OF(fl_keys_role, fl_server, keys_lock, fl_keys_lock, fl_keys_unlock);
FL_LOCK_OF(fl_pieces_role, fl_server, pieces_lock, fl_pieces_lock, fl_pieces_unlock);
FL_LOCK_OF(fl_pulls_role, fl_server, pulls_lock, fl_pulls_lock, fl_pulls_unlock);
FL_LOCK_OF(fl_pool_role, fl_server, pool_lock, fl_pool_lock, fl_pool_unlock);
FL_LOCK_OF(fl_watch_role, fl_server, watch_lock, fl_watch_lock, fl_watch_unlock);

fl_keys *fl_server_keys(fl_server *server); /* held for the caller */
bool     fl_server_has_keys(fl_server *server);
/* The configuration as a copy of the caller's, with the server's log; NULL with *error. */
fletch_config *fl_server_config_copy(const fl_server *server, fletch_error *error);
void           fl_server_reload(fl_server *server);

#endif
