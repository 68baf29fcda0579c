/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - what transport, dialects and operations of the server share: one request and its way.
 *
 * Role    The transport (connection.c, http1.c) turns bytes on sockets into fl_http_request objects and sends
 *         what the routes put into request->reply. A route is a row in a table: method, path, dialect,
 *         handler. Everything that depends on HTTP's grammar is on the transport's side; everything that
 *         depends on what a client's JSON means is on the routes' side.
 * Life    1 headers arrive: guard, route, key, limits (refusals are written by the dialect of the path);
 *         2 the body is gathered into request->body; 3 the handler runs, on the I/O thread or, for
 *         FL_ROUTE_BLOCKING routes and large bodies, on a worker; 4 the handler replies at once
 *         (fl_reply_…) or starts work (fl_request_submit) whose done function replies later, from any
 *         thread. Exactly one fl_reply_… send call per request; after it, and after a successful
 *         fl_request_submit outside of done, the request must not be touched any more.
 *         (Inside the handler itself the request stays valid until the handler returns.)
 *
 *     static void embedded(fl_http_request *request, const fletch_outcome *outcome) {
 *         my_job *job = request->work;
 *         if (outcome->error.code < 0) { fl_reply_fail(request, &outcome->error); return; }
 *         write_json(&request->reply.body, job);
 *         fl_reply_json(request, 200);
 *     }
 *     static void embed(fl_http_request *request) {
 *         my_job *job = request->work = fl_request_alloc(request, sizeof *job);
 *         ... parse request->body in place; on a fault: fl_reply_error(request, FL_HTTP_BAD_REQUEST, "…"); return;
 *         fl_served *served = fl_server_model(request->server, name, name_size);   // NULL: unknown name
 *         if (fl_request_submit(request, served, &job->work, embedded, &error) < 0)
 *             fl_reply_fail(request, &error);
 *     }
 *
 * Memory  A request, its body, its reply buffer and fl_request_alloc memory are pooled: they live until the
 *         reply has left. Nothing in them needs freeing; for other things set request->cleanup.
 * Threads A request belongs to one thread at a time. fl_server is read-only for routes; its counters are
 *         atomic. done functions may run on an engine's thread, or on a worker when the result is large. */
#ifndef FL_SERVER_SERVER_H
#define FL_SERVER_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "fletch.h"
#include "server/limits.h"

typedef struct fl_server       fl_server;
typedef struct fl_http_request fl_http_request;
typedef struct fl_http_reply   fl_http_reply;
typedef struct fl_api_key      fl_api_key;

/* ---- Dialects and routes ---------------------------------------------------------------------- */

/* What goes wrong: its status, and its word in fletch's own dialect. A line parts the server's from what only a route
 * says; the first of a status is the transport's (fl_http_code_of). */
#define FL_HTTP_ERRORS(X)                                                                          \
    X(BAD_REQUEST, 400, "bad_request") /* malformed HTTP, invalid argument (EINVAL, EUTF8) */      \
    X(INVALID_API_KEY, 401, "invalid_api_key")     /* missing or wrong */                          \
    X(PERMISSION_DENIED, 403, "permission_denied") /* EDENIED */                                   \
    X(NOT_FOUND, 404, "not_found")                 /* no such path, or ENOTFOUND */                \
    X(METHOD_NOT_ALLOWED, 405, "method_not_allowed")                                               \
    X(REQUEST_TIMEOUT, 408, "request_timeout") /* head or body came too slowly */                  \
    X(CONFLICT, 409, "conflict")                                                                   \
    X(PAYLOAD_TOO_LARGE, 413, "payload_too_large") /* the message names the limit */               \
    X(URI_TOO_LONG, 414, "uri_too_long")                                                           \
    X(CONTENT_ENCODING, 415, "unsupported_media_type") /* a compressed body */                     \
    X(CONTENT_TYPE, 415, "bad_request")                /* the body is not said to be JSON */       \
    X(EXPECTATION, 417, "bad_request")                                                             \
    X(TOO_LONG, 422, "too_long")         /* ETOOLONG: a text, where truncation is refused */       \
    X(WRONG_TASK, 424, "wrong_task")     /* EUNSUPPORTED: the model has no such head */            \
    X(OVERLOADED, 429, "overloaded")     /* the queue is full (EBUSY); Retry-After is set */       \
    X(RATE_LIMITED, 429, "rate_limited") /* this key's limit; Retry-After is set */                \
    X(HEADERS_TOO_LARGE, 431, "headers_too_large")                                                 \
    X(CLIENT_CLOSED, 499, "client_closed_request") /* for the log */                               \
    X(INTERNAL, 500, "internal")                   /* ENOMEM, EINTERNAL, EIO ... */                \
    X(METHOD_UNKNOWN, 501, "bad_request")                                                          \
    X(UNAVAILABLE, 503, "unavailable") /* not ready, draining, full; Retry-After is set */         \
    X(DEADLINE_EXCEEDED, 504, "deadline_exceeded")                                                 \
    X(HTTP_VERSION, 505, "bad_request")                                                            \
    X(STORE_FULL, 507, "store_full")                                                               \
    /* ---- */                                                                                     \
    X(MODEL_NOT_FOUND, 404, "model_not_found")                                                     \
    X(EMPTY, 400, "empty")                                                                         \
    X(VALIDATION, 422, "validation")                                                               \
    X(TOKENIZER, 422, "tokenizer")                                                                 \
    X(ANSWER_TOO_LARGE, 413, "too_much")                                                           \
    X(JSON_SYNTAX, 400, "json")                                                                    \
    X(JSON_TYPE, 422, "json")                                                                      \
    X(PARAM_INPUT, 400, "input") /* the field that OpenAI's clients are told */                    \
    X(PARAM_DIMENSIONS, 400, "dimensions")                                                         \
    X(PARAM_PROMPT_NAME, 400, "prompt_name")
#define FL_HTTP_CODE(name, status, word) FL_HTTP_##name,
typedef enum fl_http_code { FL_HTTP_ERRORS(FL_HTTP_CODE) FL_HTTP_CODES } fl_http_code;

typedef struct fl_http_error {
    int         status;
    const char *word;
} fl_http_error;

extern const fl_http_error fl_http_errors[FL_HTTP_CODES];

/* How one family of clients hears of errors. `error` fills reply->body, reply->type and, if the dialect
 * insists on another number than the code's, reply->status; it does not send. The transport calls it for its
 * own refusals too, then with no body read. For 404 and 405 of unknown paths the dialect is chosen by fl_dialect_of. */
typedef struct fl_dialect {
    const char *name; /* "openai", "tei" …: a label in metrics and logs */
    void (*error)(fl_http_reply *reply, fl_http_code code, const char *message);
} fl_dialect;

typedef void (*fl_route_fn)(fl_http_request *request);

enum {
    FL_ROUTE_OPEN     = 1, /* needs no API key */
    FL_ROUTE_BLOCKING = 2, /* the handler may block or take long: run it on a worker */
    FL_ROUTE_PREFIX   = 4, /* request->tail: whatever follows the path, or from its '*' on */
    FL_ROUTE_ALWAYS   = 8, /* answered before the models are ready and while draining */
    FL_ROUTE_QUIET    = 16 /* logged at debug level only: probes and scrapes */
};

typedef struct fl_route {
    const char *method; /* "GET" (HEAD is answered too), "POST", "DELETE"; NULL ends a table */
    const char *path;   /* exact, as it is on the wire: no decoding, no case folding */
    const fl_dialect *dialect;
    fl_route_fn       handler;
    unsigned          flags;
} fl_route;

/* routes.h declares every table and dialect, routes.c lists them; a table ends with a row of zeros. The
 * first match wins; two tables may hold the same path with different methods. The row for method and path;
 * NULL with *allow filled ("GET, POST") for a known path with another method, or with *allow empty for an
 * unknown path. *tail is where a PREFIX route's rest begins. */
const fl_route *fl_route_find(const char *method, const char *path, fl_buf *allow,
                              const char **tail);

/* Row `index` of all tables in order; NULL past the end. */
const fl_route *fl_route_at(size_t index);

/* The dialect whose errors fit a path that no route has: by its first segment. Never NULL. */
const fl_dialect *fl_dialect_of(const char *path);

/* ---- Models ----------------------------------------------------------------------------------- */

/* How a model is; its word for clients. Those that were named at the start are always FL_MODEL_LOADED. */
#define FL_MODEL_STATES(X)                                                                         \
    X(CLOSED, "closed")                                                                            \
    X(LOADING, "loading")                                                                          \
    X(LOADED, "loaded")                                                                            \
    X(CLOSING, "closing")                                                                          \
    X(FAILED, "failed")
#define FL_MODEL_STATE(name, word) FL_MODEL_##name,
typedef enum fl_model_state { FL_MODEL_STATES(FL_MODEL_STATE) FL_MODEL_STATE_COUNT } fl_model_state;

extern const char *const fl_model_state_words[FL_MODEL_STATE_COUNT];

/* One model. A record and its strings live as long as the server; `model`, `info` and `fingerprint` of one that is
 * opened on demand (`offer`) are there while somebody holds it: a request that took it, or who goes through all. */
typedef struct fl_served {
    const char         *name;  /* what answers call it: the alias, else the id as it was given */
    const char *_Atomic id;    /* as it was given: hub id, folder or level */
    struct fl_offer    *offer; /* demand.c's; NULL: it was named at the start and stays open */
    _Atomic int         state; /* fl_model_state */
    fletch_model       *model;
    fletch_model_info   info;              /* as it was opened */
    char                fingerprint[65];   /* SHA-256 over its files, hex; "" while unknown */
    _Atomic double      tokens_per_second; /* measured, for Retry-After; 0: not known yet */
    atomic_bool         sick;              /* the last batch failed for no fault of its texts */
    atomic_bool doubtful; /* it gave no vector for a text; a probe will tell whose fault that is */
    atomic_bool spoiled;  /* its files were written in place: what it gives is not its own */
    bool        spoiled_told;
} fl_served;

/* The model for a name of `size` bytes. name NULL or size 0: the first that was named at the start. One model and
 * none on demand: always that one. Else by alias, id or the last part of the id, ":latest" at the end left out;
 * NULL when there is none of that name. Who uses it takes it first: fl_request_take. */
fl_served *fl_server_model(const fl_server *server, const char *name, size_t size);
/* Of those that were named at the start; NULL past the end. */
fl_served *fl_server_model_at(const fl_server *server, size_t index);
/* Of all, whatever their state: nothing of it may be used but name, id, offer and state. NULL past the end. */
fl_served *fl_server_record_at(const fl_server *server, size_t index);
/* The next model that is open, from *index of all on, held until fl_served_drop; NULL: there is none. */
fl_served *fl_models_next(const fl_server *server, size_t *index);
bool fl_served_try_hold(fl_served *served); /* that of fl_server_record_at; false: it is not open */
void fl_served_drop(fl_served *served);

/* How long a model stays open without work, as Ollama's clients say it: 300, "300", "5m", "1h30m", a negative one
 * for ever (UINT64_MAX). False: it is none of these. */
bool fl_keep_alive_parse(const char *text, size_t size, uint64_t *ns);
/* Likewise: what is left of it, now. */
uint64_t fl_served_stays_ns(const fl_served *served);
void     fl_served_keep(fl_served *served, uint64_t ns);
/* Bytes of memory it took, or will; 0: not known yet. */
uint64_t fl_served_bytes(const fl_served *served);

/* The model is open and stays so to the request's end: true. False: the handler returns; the request was answered,
 * or waits, and the handler runs again on a worker when the model is open. */
bool fl_request_take(fl_http_request *request, fl_served *served);
/* Look once what is offered on the disk by now, for a name that nobody has or a list of all. True: the handler
 * returns and runs again. */
bool fl_request_look(fl_http_request *request);
/* Before it is taken: open it whatever went wrong before, as `id` (NULL: as it is), and also if its vectors are
 * other ones than before where `force`. */
void fl_served_order(fl_served *served, const char *id, bool force);
/* Whether that was refused: the vectors of `id` are other ones. */
bool fl_served_is_refused(const fl_served *served);
/* Let who has it finish, and close it. True: it was closed; false as of fl_request_take. */
bool fl_request_unload(fl_http_request *request, fl_served *served);

/* It gives weights of vocabulary entries, and no dense vectors. */
bool fl_served_is_sparse(const fl_served *served);
bool fl_served_is_late(const fl_served *served);
bool fl_served_ranks(const fl_served *served); /* it gives a query and a document one score */

/* An option as text ("server.max_body"); never NULL. Read when the server started. */
const char *fl_server_option(const fl_server *server, const char *key);
/* An int or size option; `none` for "none", "off" and the like. */
uint64_t fl_server_number(const fl_server *server, const char *key, uint64_t none);

/* Ready to serve: models loaded and warm, engines healthy, not draining. *why (static) says what is missing. */
bool fl_server_ready(const fl_server *server, const char **why);

/* ---- Requests --------------------------------------------------------------------------------- */

enum { FL_REPLY_HEADERS = 24 };

struct fl_http_reply {
    int         status;
    fl_buf      body; /* empty when the handler starts */
    const char *type; /* Content-Type, static; NULL: none */
    size_t      header_count;
    struct {
        const char *name; /* static */
        const char *value;
    } headers[FL_REPLY_HEADERS];
};

typedef void (*fl_done_fn)(fl_http_request *request, const fletch_outcome *outcome);

struct fl_http_request {
    fl_server        *server;
    const fl_route   *route;
    const char       *method;
    const char       *path;  /* raw, without the query */
    const char       *query; /* raw, after '?'; "" when there is none */
    const char       *tail;  /* of a FL_ROUTE_PREFIX route: what follows the prefix, raw */
    char             *body; /* owned by the request, writable, body[body_size] is NUL; never NULL */
    size_t            body_size;
    char              id[FL_LIMIT_REQUEST_ID + 1]; /* x-request-id */
    char              trace_id[33];                /* of traceparent, "" when there was none */
    char              span_id[17];                 /* ours, below the caller's */
    const fl_api_key *key;   /* whose request it is; NULL: no keys are asked for */
    fletch_lane       lane;  /* from x-fletch-priority; fl_request_submit uses it */
    uint32_t    deadline_ms; /* from start; option or x-fletch-deadline-ms, the lower; 0: none */
    uint64_t    start_ns;    /* the headers were read */
    atomic_bool cancelled;   /* the client is gone: stop when convenient, reply all the same */

    void *work; /* the route's own */
    void (*cleanup)(
        fl_http_request *request); /* called once before the request is recycled; or NULL */

    fl_http_reply reply;
    uint64_t      reply_most; /* its bytes at most, where a route tells; 0: by its numbers alone */

    /* for log, metrics and headers; fl_request_submit fills them, a route may add */
    uint64_t texts, tokens, tokenize_ns, queue_ns, forward_ns;
    uint64_t open_ns; /* it waited for a model to be opened */
};

/* Header by name, case ignored; NULL when absent. Only inside the handler (not in done). */
const char *fl_request_header(const fl_http_request *request, const char *name);

/* The value of a query parameter in request memory, decoded, or as it is where that cannot be; NULL when
 * absent. */
const char *fl_request_query(fl_http_request *request, const char *name);

/* Percent-decode in place; the new size, or SIZE_MAX for a bad escape or a NUL. */
size_t fl_percent_decode(char *text, size_t size);

/* Zeroed memory that lives as long as the request, aligned to 64; NULL when out of memory, or when all requests
 * together have what server.max_body_memory allows: reply with any error, and the right one is told. */
void *fl_request_alloc(fl_http_request *request, size_t size);

/* Count `bytes` that work on the request takes elsewhere as its memory, to its end; false as above. */
bool fl_request_hold(fl_http_request *request, size_t bytes);

/* Outputs of one submission at most. */
enum { FL_OUTPUTS_MAX = 16 };

/* fletch_submit with the request's lane and deadline (where work->lane and work->deadline_ms are 0), tied
 * to the client: when it leaves, the work is cancelled. On success `done` is called exactly once, maybe
 * before this returns, and borrows the outcome's lists; inside the handler the request stays valid all
 * the same. On failure (negative status, *error filled) it is not called: reply with fl_reply_fail. A
 * request may submit again in done. */
int fl_request_submit(fl_http_request *request, fl_served *served, fletch_request *work,
                      fl_done_fn done, fletch_error *error);

/* For work that is not submitted but done here, now and then on the way: FLETCH_OK to go on,
 * FLETCH_ECANCELLED when the client has left, FLETCH_EDEADLINE when it is too late; then fl_reply_fail. */
int fl_request_over(const fl_http_request *request, fletch_error *error);

/* The same while a large reply is written, before the next `to_come` bytes of it, since it may not grow without end:
 * FLETCH_ENOSPC when it is larger than an answer may be, FLETCH_EBUSY when all replies together have what
 * server.max_reply_memory allows. Who does not ask is refused when it is sent, after the work. */
int fl_reply_go_on(fl_http_request *request, uint64_t to_come, fletch_error *error);

/* ---- Replies: each of the send calls ends the request's life for the caller ---------------------- */

/* Add a header; `name` is static, the value is copied. Values with control characters are left out. */
void fl_reply_header(fl_http_request *request, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Send request->reply.body as it stands. A failed buffer becomes a 500. */
void fl_reply_json(fl_http_request *request, int status);
void fl_reply_bytes(fl_http_request *request, int status, const char *type);

/* Send data[size] of an answer that comes in pieces while work goes on, from any thread: status 200 and the headers,
 * all set by then, leave with the first. What ends it is fl_reply_bytes with status 200, its body the last piece.
 * False: the client reads too slowly, and this piece was left out. */
bool fl_reply_piece(fl_http_request *request, const char *type, const void *data, size_t size);

/* Send static bytes that outlive the server (a page); nothing is copied. */
void fl_reply_static(fl_http_request *request, int status, const char *type, const void *data,
                     size_t size);

/* Send an error in the route's dialect. What the body held is dropped; headers stay. */
void fl_reply_error(fl_http_request *request, fl_http_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a library status: code and status as in the table above; EBUSY gets Retry-After. Texts of
 * internal errors (paths, devices) go to the log, not to the client. */
void fl_reply_fail(fl_http_request *request, const fletch_error *error);

#endif
