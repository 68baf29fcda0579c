/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of the transport share and the routes do not see.
 *
 * Role    The inside of fl_server, a connection's record, and the functions between lifecycle.c (start,
 *         drain, stop), transport.c (libmicrohttpd's callbacks), watch.c (the thread that looks at clocks,
 *         hang-ups and signals), request.c (request objects) and the operations.
 * Threads io: libmicrohttpd's daemons. watch: one. worker: some. main: loads, waits, drains. Engines'
 *         threads enter through done functions. Each field says who writes it. */
#ifndef FL_SERVER_INTERNAL_H
#define FL_SERVER_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>

#include "server/server.h"

/* ---- log.c: one line per event, never a text or a key ------------------------------------------- */

typedef struct fl_server_log fl_server_log;

enum { FL_LEVEL_ERROR, FL_LEVEL_WARNING, FL_LEVEL_INFO, FL_LEVEL_DEBUG };

/* format: "json", "text" or "auto" (json unless standard error is a terminal). */
int  fl_server_log_open(fl_server_log **out, const char *format, int level, fletch_error *error);
void fl_server_log_close(fl_server_log *log); /* writes what waits; NULL is a no-op */
void fl_server_log_level(fl_server_log *log, int level);
int  fl_server_log_level_of(const char *name); /* "info" -> FL_LEVEL_INFO */
bool fl_server_log_wants(const fl_server_log *log, int level);
void fl_server_log_line(fl_server_log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void     fl_server_log_request(fl_server_log *log, const fl_request *request, int status);
uint64_t fl_server_log_dropped(const fl_server_log *log);

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
/* Take one request's share; false with *wait_seconds when the key has had its share for now. */
bool fl_api_key_enter(fl_api_key *key, uint64_t now_ns, unsigned *wait_seconds);
void fl_api_key_leave(fl_api_key *key);

/* ---- metrics.c ------------------------------------------------------------------------------------ */

typedef struct fl_metrics fl_metrics;

typedef enum fl_rejection {
    FL_REJECTED_QUEUE,
    FL_REJECTED_KEY_LIMIT,
    FL_REJECTED_KEY,
    FL_REJECTED_NOT_READY,
    FL_REJECTED_BODY,
    FL_REJECTED_HEADERS,
    FL_REJECTED_SLOW,
    FL_REJECTION_COUNT
} fl_rejection;

int  fl_metrics_open(fl_metrics **out, const char *prefix, fletch_error *error);
void fl_metrics_close(fl_metrics *metrics);
void fl_metrics_request(fl_metrics *metrics, const fl_route *route, int status, uint64_t ns);
void fl_metrics_embedding(fl_metrics *metrics, uint64_t texts, uint64_t ns);
void fl_metrics_rejected(fl_metrics *metrics, fl_rejection why);
void fl_metrics_cancelled(fl_metrics *metrics);
void fl_metrics_write(const fl_server *server, fl_buf *out);

/* ---- A connection ---------------------------------------------------------------------------------- */

/* Where a connection stands. Moves are compare-and-swap, so that the watcher, which ends what takes too
 * long (-> DEAD), and the I/O thread never both speak on the socket. */
enum {
    FL_PHASE_IDLE,    /* between requests */
    FL_PHASE_HEADERS, /* the request line is there */
    FL_PHASE_BODY,    /* the headers are there */
    FL_PHASE_RUN,     /* the whole request is there, or a refusal is on its way */
    FL_PHASE_WRITE,   /* the reply goes out */
    FL_PHASE_DEAD     /* the watcher has shut the socket */
};

typedef struct fl_conn {
    uint32_t         index, generation;
    bool             used;   /* guarded by conns.lock, as fd and request */
    bool             linger; /* no longer the HTTP library's: a refused sender is being heard out */
    bool             refused; /* io: end with lingering */
    bool             tcp;
    int              fd;
    _Atomic int      phase;
    _Atomic uint64_t since_ns; /* when the phase began */
    _Atomic uint64_t bytes;    /* of the body so far, or of the reply: big ones get more time */
    atomic_bool      gone;     /* the peer has shut its side */
    uint64_t         drip_ns;  /* watch: first byte of a request line seen, 0: none */
    fl_request      *request;
    char             path[40]; /* io, in phase IDLE: the target's path, for who refuses it later */
    pthread_t        io;       /* the thread that serves it */
    uint32_t         turns;    /* io: its requests since another connection had one */
    struct fl_request_full *incoming; /* io: from its request line to its end */
    struct fl_conn         *next_free;
} fl_conn;

enum { FL_CONN_CHUNK = 256, FL_CONN_CHUNKS = 4096 };

typedef struct fl_conns {
    pthread_mutex_t lock;
    fl_conn        *chunk[FL_CONN_CHUNKS]; /* records stay where they are until the server ends */
    uint32_t        count;                 /* records that exist */
    fl_conn        *free;
    _Atomic int     open;     /* connections of the HTTP library */
    _Atomic(fl_conn *) spoke; /* had the last request */
} fl_conns;

/* ---- The private half of a request ------------------------------------------------------------------ */

typedef struct fl_block {
    struct fl_block *next;
    size_t           used, capacity;
} fl_block;

typedef struct fl_request_full {
    fl_request             shared; /* first: the two pointers convert into each other */
    fl_conn               *conn;
    struct MHD_Connection *mc;
    fl_keys               *keys;   /* held as long as shared.key is used */
    fl_buf                 uri;    /* path NUL query NUL */
    fl_buf                 gather; /* the body */
    fl_block              *blocks; /* fl_request_alloc; the first is kept in the pool */
    const void            *static_data;
    size_t                 static_size;
    fl_done_fn             done; /* of the submission under way */
    fl_served             *served;
    uint64_t               work_texts, work_cells;
    _Atomic uint64_t       ticket;
    _Atomic int    pending; /* 2: handler runs and no reply yet; 0: the connection may go on */
    atomic_bool    sent;    /* a reply was given; a second one is a fault of the route */
    atomic_bool    resumed; /* the connection was woken, by the reply or by abandoning it */
    atomic_bool    abandoned;
    bool           begun;    /* io: headers were judged */
    bool           judged;   /* io: a reply stands already: the body is only skipped */
    bool           counted;  /* io: part of server->inflight */
    bool           keyed;    /* io: fl_api_key_enter succeeded */
    bool           close;    /* io: end the connection after the reply */
    bool           expects;  /* io: waits for 100 Continue */
    bool           queued;   /* io: the reply was handed to the HTTP library */
    int            crowded;  /* 503, or 413 when alone it is too much: see fl_request_alloc */
    uint32_t       pieces;   /* io */
    int            status;   /* io: what was sent */
    uint64_t       held;     /* bytes counted in server->bodies; who has the request */
    uint64_t       declared; /* io: Content-Length, UINT64_MAX when chunked */
    fletch_outcome outcome;  /* a copy for done functions that run on a worker */
    struct fl_request_full *next;
} fl_request_full;

static inline fl_request_full *fl_full(fl_request *request) {
    return (fl_request_full *)(void *)request;
}
static inline const fl_request_full *fl_full_const(const fl_request *request) {
    return (const fl_request_full *)(const void *)request;
}

/* request.c */
fl_request_full *fl_request_make(fl_server *server); /* NULL when out of memory */
void             fl_request_retire(fl_request_full *full);
void             fl_request_pool_free(fl_server *server);
void             fl_request_step(fl_request_full *full); /* handler returned, or the reply stands */
void             fl_request_resume(fl_request_full *full);

/* ---- workers.c ---------------------------------------------------------------------------------------- */

typedef struct fl_workers fl_workers;
typedef void (*fl_work_fn)(void *arg);
int  fl_workers_open(fl_workers **out, unsigned threads, fletch_error *error);
void fl_workers_close(fl_workers *workers); /* finishes what waits; NULL is a no-op */
bool fl_workers_add(fl_workers *workers, fl_work_fn fn, void *arg); /* false: too many wait */

/* ---- guard.c -------------------------------------------------------------------------------------------- */

typedef struct fl_verdict {
    int         status; /* 0: pass */
    const char *code, *message;
    uint64_t    length;  /* Content-Length; UINT64_MAX for chunked */
    bool        expects; /* Expect: 100-continue */
} fl_verdict;

/* version NULL: not known, and nothing is asked that depends on it. */
void fl_guard_headers(struct MHD_Connection *mc, const char *version, fl_verdict *verdict);
/* Split a raw target into path and query in place; false for one that is neither "/…" nor "http://…/…". */
bool fl_guard_target(fl_buf *uri, const char **path, const char **query);
/* x-request-id and traceparent into the request; makes an id where there is none. */
void fl_guard_identity(fl_request *request, const char *id, const char *traceparent);

/* ---- byhand.c ------------------------------------------------------------------------------------------- */

/* Write the reply that stands; the caller has moved the connection to FL_PHASE_WRITE and ends it. */
void fl_hand_send(fl_request_full *full);
void fl_hand_note_target(fl_conn *conn, const char *target);
void fl_hand_slow(const fl_conn *conn, bool path_known); /* 408 */
/* The HTTP library says this to its log, perhaps because it refuses a request: do that for it. */
void fl_hand_instead(fl_server *server, const char *format, va_list list);

/* ---- cors.c ---------------------------------------------------------------------------------------------- */

/* The value for Access-Control-Allow-Origin, or NULL when `origin` is not welcome. */
const char *fl_cors_allowed(const char *setting, const char *origin);

/* ---- seed.c ------------------------------------------------------------------------------------------------ */

/* Take server.store, if one is named: its folder, lock and format. */
int fl_seed_open(fl_server *server, fletch_error *error);
/* Load what it holds for the first model. */
int  fl_seed_load(fl_server *server, fletch_error *error);
void fl_seed_close(fl_server *server);

/* ---- sockets.c -------------------------------------------------------------------------------------------- */

enum { FL_LISTENERS = 16 };

typedef struct fl_listener {
    int                fd;
    bool               tcp, inherited;
    char               where[160]; /* "http://127.0.0.1:9900" or "unix:/run/fletch.sock" */
    char               path[108];  /* of a Unix socket that we made: removed at the end */
    struct MHD_Daemon *daemon;
} fl_listener;

/* Open what the options ask for, or take what systemd passed. */
int  fl_sockets_open(fl_server *server, fletch_error *error);
void fl_sockets_close(fl_server *server);
/* Where other machines can reach this one; NULL: nowhere. */
const char *fl_sockets_exposed(const fl_server *server);
void        fl_notify(const char *state); /* sd_notify; nothing without NOTIFY_SOCKET */
void        fl_raise_file_limit(fl_server *server, uint64_t connections);

/* ---- models.c ---------------------------------------------------------------------------------------------- */

/* Names and folders, as far as they can be judged before anything is loaded. */
int  fl_models_check(const char *const *specs, size_t count, fletch_error *error);
int  fl_models_open(fl_server *server, const char *const *specs, size_t count, fletch_error *error);
void fl_models_close(fl_server *server);
void fl_models_tick(fl_server *server,
                    uint64_t   now_ns); /* watch, once a second: rates and probes */
bool fl_models_stuck(const fl_server *server, uint64_t now_ns, uint64_t limit_ns);
bool fl_models_healthy(const fl_server *server, const char **why);

/* facts.c */
void fl_facts_read(const char *folder, fl_facts *out);

/* ---- transport.c, watch.c ------------------------------------------------------------------------------------ */

int  fl_transport_start(fl_server *server, fletch_error *error);
void fl_transport_quiesce(fl_server *server); /* stop accepting; refuse who waits to be accepted */
void fl_transport_stop(fl_server *server);    /* no connection may be suspended */

int      fl_watch_start(fl_server *server, fletch_error *error);
void     fl_watch_stop(fl_server *server);
fl_conn *fl_conn_open(fl_server *server, int fd); /* NULL when out of memory */
void     fl_conn_close(fl_server *server, fl_conn *conn);
void     fl_conn_attach(fl_server *server, fl_conn *conn, fl_request *request); /* or NULL */
void     fl_conns_free(fl_server *server);
void     fl_cancel_all(fl_server *server);  /* give up what runs */
void     fl_abandon_all(fl_server *server); /* answer 503 to what does not come back */

/* ---- The server -------------------------------------------------------------------------------------------------- */

/* States only grow. */
enum { FL_LOADING, FL_READY, FL_LAME_DUCK, FL_DRAINING, FL_STOPPED };

enum { FL_MODELS_MAX = 32 };

struct fl_server {
    fletch_config   *config; /* read-only while the server runs */
    fl_server_log   *log;
    fl_metrics      *metrics;
    fl_workers      *workers;
    fl_conns         conns;
    fl_served       *models[FL_MODELS_MAX]; /* published by state FL_READY */
    size_t           model_count;
    fl_listener      listeners[FL_LISTENERS];
    size_t           listener_count;
    pthread_mutex_t  keys_lock;
    fl_keys         *keys; /* guarded by keys_lock; the table itself is shared by its holders */
    pthread_mutex_t  pool_lock;
    fl_request_full *pool;
    size_t           pool_count;
    _Atomic int      state;
    _Atomic int      inflight; /* requests between headers and the end of the reply */
    _Atomic uint64_t bodies;   /* bytes of bodies that are held, and of what is read out of them */
    _Atomic int      signals;  /* how often we were asked to end */
    _Atomic int      first_signal;
    int              watch_fd, stop_fd, signal_fd; /* epoll; eventfd; signalfd */
    pthread_t        watch;
    bool             watching, guarded;
    uint64_t         start_time, max_body, max_bodies, deadline_ms, watchdog_ns, header_ns, body_ns,
        idle_ns;
    const char      *cors;
    struct fl_store *store; /* set before FL_READY; NULL: no server.store */
    fletch_config *(*reload)(void *user, fletch_error *error);
    void *user;
};

fl_keys *fl_server_keys(fl_server *server); /* held for the caller */
void     fl_server_reload(fl_server *server);

#endif
