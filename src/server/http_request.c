/* SPDX-License-Identifier: Apache-2.0 */
/* http_request.c - request objects: their memory, the work they start, and the reply they wait for.
 *
 * Role    connection.c makes and ends them, batch_run.c those that no connection has; routes allocate from them, submit
 *         work and reply.
 * Method  A request waits for two things: that its handler has returned and that a reply was given
 *         (`pending` counts them). Whoever brings the count to zero wakes the connection; when that is
 *         the handler's own thread before it was put to sleep, nothing needs waking. So a reply may
 *         come from any thread, also from inside fletch_submit.
 *         The ticket of submitted work is kept as a number: a stale one cancels nothing.
 * Memory  Objects are pooled with their buffers, so that a steady server allocates nothing per request;
 *         buffers that grew beyond FL_POOLED_BYTES are given back.
 * Threads See server.h. The pool has a lock of its own.
 * Proof   tests/server/test_transport.py, test_promises.py. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"
#include "server/otlp.h"

enum {
    BLOCK_BYTES  = 16 * 1024,
    LINE         = 64,
    LARGE_RESULT = 64 * 1024,
    REPLY_STEP   = 1024 * 1024,
    SMALL_REPLY  = 64 * 1024,
    CELL_TEXT    = 13,
    CELL_NS      = 60,
    MESSAGE_MAX  = 640,
    PIECES_MAX   = 64 * 1024, /* bytes of a reply in pieces that wait for their reader */
    PACK_BYTE_NS = 15         /* of a reply that is packed */
};

/* ---- The pool ---------------------------------------------------------------------------------- */

fl_request_full *fl_request_make(fl_server *server) {
    fl_pool_lock(server);
    fl_request_full *full = server->pool;
    if (full != NULL) {
        server->pool = full->next;
        server->pool_count--;
    }
    fl_pool_unlock(server);
    if (full == NULL) {
        full = fl_alloc_zero(1, sizeof *full);
        if (full == NULL)
            return NULL;
    }
    full->shared.server = server;
    full->next          = NULL;
    return full;
}

static void trim(fl_buf *buf) {
    if (buf->capacity > FL_POOLED_BYTES)
        fl_buf_free(buf);
    else
        fl_buf_clear(buf);
}

static void free_blocks(fl_block *block) {
    while (block != NULL) {
        fl_block *next = block->next;
        fl_free(block);
        block = next;
    }
}

static void free_full(fl_request_full *full) {
    fl_buf_free(&full->gather);
    fl_buf_free(&full->out);
    fl_buf_free(&full->pieces);
    fl_buf_free(&full->shared.reply.body);
    free_blocks(full->blocks);
    fl_free(full);
}

/* All of it but the buffers. Nobody else has it any more. */
FL_UNCHECKED static void wipe(fl_request_full *full, fl_block *kept) {
    fl_request_full clean;
    memset(&clean, 0, sizeof clean);
    clean.gather            = full->gather;
    clean.out               = full->out;
    clean.pieces            = full->pieces;
    clean.shared.reply.body = full->shared.reply.body;
    clean.blocks            = kept;
    memcpy(full, &clean, sizeof clean);
}

/* Keep the buffers, forget everything else. */
void fl_request_retire(fl_request_full *full) {
    fl_server *server = full->shared.server;
    if (full->shared.cleanup != NULL)
        full->shared.cleanup(&full->shared);
    fl_keys_drop(full->keys);
    fl_demand_leave_model(full);
    trim(&full->gather);
    trim(&full->out);
    trim(&full->pieces);
    trim(&full->shared.reply.body);
    fl_block *kept = NULL;
    while (full->blocks != NULL) {
        fl_block *block = full->blocks;
        full->blocks    = block->next;
        if (kept == NULL && block->capacity == BLOCK_BYTES) {
            kept       = block;
            kept->next = NULL;
            kept->used = 0;
        } else {
            fl_free(block);
        }
    }
    wipe(full, kept);
    fl_pool_lock(server);
    bool room = server->pool_count < FL_POOLED_REQUESTS;
    if (room) {
        full->next   = server->pool;
        server->pool = full;
        server->pool_count++;
    }
    fl_pool_unlock(server);
    if (!room)
        free_full(full);
}

void fl_request_drop(fl_request_full *full) {
    (void)atomic_fetch_sub(&full->shared.server->bodies, full->held);
    (void)atomic_fetch_sub(&full->shared.server->replies, full->replied);
    fl_request_retire(full);
}

FL_UNCHECKED void fl_request_pool_free(fl_server *server) {
    while (server->pool != NULL) {
        fl_request_full *full = server->pool;
        server->pool          = full->next;
        free_full(full);
    }
    server->pool_count = 0;
}

/* What a body is read into counts as the body does: a text of one byte takes sixteen to be pointed at. False:
 * there is no more, for now (503) or for this request at all (413); whatever error is told then says so. */
static bool hold(fl_request_full *full, size_t bytes) {
    fl_server *server = full->shared.server;
    if (atomic_fetch_add(&server->bodies, bytes) + bytes <= server->max_bodies) {
        full->held += bytes;
        return true;
    }
    (void)atomic_fetch_sub(&server->bodies, bytes);
    full->crowded    = full->held + bytes > server->max_bodies ? 413 : 503;
    full->crowded_by = "server.max_body_memory";
    return false;
}

bool fl_request_hold(fl_http_request *request, size_t bytes) {
    return hold(fl_full(request), bytes);
}

/* The same for the bytes of the reply: `bytes` of it in all. What it had beyond that is given back. Large ones leave
 * a sixteenth to small ones: who stands still with megabytes does not silence /metrics. */
static bool hold_reply(fl_request_full *full, uint64_t bytes) {
    fl_server *server = full->shared.server;
    if (bytes <= full->replied) {
        (void)atomic_fetch_sub(&server->replies, full->replied - bytes);
        full->replied = bytes;
        return true;
    }
    uint64_t more  = bytes - full->replied;
    uint64_t limit = atomic_load(&server->max_replies);
    limit -= bytes > SMALL_REPLY ? limit / 16 : 0;
    if (atomic_fetch_add(&server->replies, more) + more <= limit) {
        full->replied = bytes;
        return true;
    }
    (void)atomic_fetch_sub(&server->replies, more);
    full->crowded    = bytes > limit ? 413 : 503;
    full->crowded_by = "server.max_reply_memory";
    return false;
}

int fl_reply_go_on(fl_http_request *request, uint64_t to_come, fletch_error *error) {
    fl_request_full *full = fl_full(request);
    uint64_t         size = request->reply.body.size + to_come;
    if (size > FL_ANSWER_MAX) {
        return fl_fail(error, FLETCH_ENOSPC, FLETCH_NOWHERE,
                       "the answer would be larger than 512 MiB; ask for less at once");
    }
    if (size > FL_LIMIT_HEADER_BYTES && size > full->replied &&
        !hold_reply(full, to_come > 0 ? size : size + REPLY_STEP))
        return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE, "no memory is left for the reply");
    return fl_request_over(request, error);
}

void *fl_request_alloc(fl_http_request *request, size_t size) {
    fl_request_full *full  = fl_full(request);
    fl_block        *block = full->blocks;
    size_t           rounded;
    if (fl_add_overflow(size, LINE - 1, &rounded))
        return NULL;
    rounded &= ~(size_t)(LINE - 1);
    if (block == NULL || block->capacity - block->used < rounded) {
        size_t capacity = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES, whole;
        /* Every request has its first block, and one that is refused a last one for the refusal. */
        bool free = capacity == BLOCK_BYTES && (block == NULL || full->crowded != 0);
        if (fl_add_overflow(capacity, LINE, &whole) || (!free && !hold(full, capacity)))
            return NULL;
        fl_block *fresh = fl_alloc_aligned(whole, LINE);
        if (fresh == NULL)
            return NULL;
        fresh->capacity = capacity;
        fresh->used     = 0;
        fresh->next     = block;
        full->blocks = block = fresh;
    }
    void *memory = (char *)block + LINE + block->used;
    block->used += rounded;
    memset(memory, 0, rounded);
    return memory;
}

/* ---- What came in ------------------------------------------------------------------------------- */

const char *fl_request_header(const fl_http_request *request, const char *name) {
    const fl_request_full *full = fl_full_const(request);
    return full->conn != NULL ? fl_http_header(&full->head, full->conn->in.data, name) : NULL;
}

size_t fl_percent_decode(char *text, size_t size) {
    size_t out = 0;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '%') {
            int high = i + 2 < size ? fl_hex_digit(text[i + 1]) : -1;
            int low  = high >= 0 ? fl_hex_digit(text[i + 2]) : -1;
            if (low < 0 || (high == 0 && low == 0))
                return SIZE_MAX;
            c = (char)(high << 4 | low);
            i += 2;
        }
        text[out++] = c;
    }
    return out;
}

const char *fl_request_query(fl_http_request *request, const char *name) {
    size_t wanted = strlen(name);
    for (const char *at = request->query; *at != '\0';) {
        size_t size = strcspn(at, "&");
        if (size >= wanted && strncmp(at, name, wanted) == 0 &&
            (size == wanted || at[wanted] == '=')) {
            size_t length = size > wanted ? size - wanted - 1 : 0;
            char  *value  = fl_request_alloc(request, length + 1);
            if (value == NULL)
                return NULL;
            memcpy(value, at + size - length, length);
            for (size_t i = 0; i < length; i++)
                value[i] = value[i] == '+' ? ' ' : value[i];
            size_t decoded = fl_percent_decode(value, length);
            if (decoded == SIZE_MAX) { /* a bad escape stands for itself, and fits nothing */
                memcpy(value, at + size - length, length);
                decoded = length;
            }
            value[decoded] = '\0';
            return value;
        }
        at += size + (at[size] == '&');
    }
    return NULL;
}

/* ---- Waking the connection ------------------------------------------------------------------------ */

/* A handler returned, or the reply stands. */
static void step(fl_request_full *full) {
    if (atomic_fetch_sub(&full->pending, 1) == 1 && !atomic_exchange(&full->resumed, true))
        full->conn != NULL ? fl_transport_answer(full) : full->answered(full);
}

void fl_request_run_inner(fl_request_full *full, size_t held) {
    fl_http_request *request = &full->shared;
    request->start_ns        = fl_clock_ns();
    atomic_store(&full->pending, 2);
    if (hold(full, held))
        request->route->handler(request);
    else
        fl_reply_error(request, FL_HTTP_UNAVAILABLE, "%s", "");
    step(full);
}

void fl_request_cancel(fl_request_full *full) {
    fletch_ticket ticket = atomic_load(&full->ticket);
    if (ticket != 0) /* tickets are never used twice: a stale one cancels nothing */
        (void)fletch_cancel(full->served->model, ticket);
}

/* Send the reply that stands packed, if that makes it smaller. */
static void pack_reply(void *arg) {
    fl_request_full *full  = arg;
    fl_http_reply   *reply = &full->shared.reply;
    bool             fixed = full->static_data != NULL;
    fl_buf           out   = {0};
    size_t           size  = fixed ? full->static_size : reply->body.size;
    if (hold_reply(full, 2 * (uint64_t)size) &&
        fl_gzip_pack(&full->shared, fixed ? full->static_data : reply->body.data, size, &out)) {
        fl_buf_free(&reply->body);
        reply->body       = out;
        out               = (fl_buf){0};
        full->static_data = NULL;
        full->packed      = true;
    }
    fl_buf_free(&out);
    full->crowded = 0;
    (void)hold_reply(full, reply->body.size);
    step(full);
}

/* The request's memory is at its bound: the code and the sentence for it. */
static fl_http_code tell_crowded(fl_http_request *request, char *message, size_t size) {
    fl_metrics_rejected(request->server->metrics, FL_REJECTED_BODY);
    const char *option = fl_full(request)->crowded_by;
    fl_reply_header(request, "x-fletch-limit", "%s", option);
    if (fl_full(request)->crowded == 413) {
        (void)snprintf(
            message, size,
            "the request needs more memory than the limit (%s); send fewer texts at once", option);
        return FL_HTTP_PAYLOAD_TOO_LARGE;
    }
    fl_reply_header(request, "retry-after", "1");
    (void)snprintf(message, size, "too many large requests at once");
    return FL_HTTP_UNAVAILABLE;
}

/* Put an error where the reply was. When memory was refused, that is the error. */
static void put_error(fl_http_request *request, fl_http_code code, char *message, size_t size) {
    fl_request_full *full  = fl_full(request);
    fl_http_reply   *reply = &request->reply;
    if (full->crowded != 0)
        code = tell_crowded(request, message, size);
    fl_utf8_make_printable(message); /* what the client sent may have been cut inside a character */
    trim(&reply->body);
    if (reply->body.failed)
        fl_buf_free(&reply->body);
    reply->type               = NULL;
    reply->status             = fl_http_errors[code].status;
    const fl_dialect *dialect = request->route != NULL
                                    ? request->route->dialect
                                    : fl_dialect_of(request->path != NULL ? request->path : "/");
    dialect->error(reply, code, message);
    if (reply->body.failed) { /* a bare status is still an answer */
        fl_buf_free(&reply->body);
        reply->type = NULL;
    }
}

/* The gate of server.max_reply_memory, which every reply passes here: one that finds no room is dropped for the
 * refusal. What is no larger than a head always passes, refusals among them: a connection may hold so much anyway. */
static void pass_gate(fl_http_request *request) {
    fl_request_full *full = fl_full(request);
    fl_buf          *body = &request->reply.body;
    char             message[MESSAGE_MAX];
    full->crowded = 0; /* what was refused on the way here did not keep the reply from being made */
    if (hold_reply(full, body->size))
        return;
    if (body->size > FL_LIMIT_HEADER_BYTES) {
        fl_buf_free(body);
        put_error(request, FL_HTTP_UNAVAILABLE, message, sizeof message);
    }
    full->crowded = 0;
    (void)atomic_fetch_add(&request->server->replies, body->size - full->replied);
    full->replied = body->size;
}

/* The one way out: whatever is sent comes through here. */
static void send_reply(fl_http_request *request, int status) {
    fl_request_full *full  = fl_full(request);
    fl_http_reply   *reply = &request->reply;
    if (atomic_exchange(&full->sent, true)) {
        fl_server_log_line(request->server->log, FL_LEVEL_ERROR, "%s replied twice",
                           request->route != NULL ? request->route->path : "the transport");
        return;
    }
    reply->status = status;
    pass_gate(request);
    size_t size = full->static_data != NULL ? full->static_size : reply->body.size;
    /* Rows of bytes lose next to nothing; a refusal may have to stand when this returns. */
    bool text = reply->type != NULL && strcmp(reply->type, "application/octet-stream") != 0 &&
                !atomic_load(&full->flows);
    if (full->gzips && reply->status == 200 && size >= request->server->compress && text &&
        fl_workers_add(request->server->workers, pack_reply, full, size * PACK_BYTE_NS, request))
        return;
    step(full);
}

/* ---- Work ------------------------------------------------------------------------------------------ */

static void run_later(void *arg) {
    fl_request_full *full  = arg;
    fletch_error     error = {0};
    bool             over  = fl_request_over(&full->shared, &error) < 0;
    if (fl_demand_arrive(full, over)) {
        step(full);
        return;
    }
    if (over)
        fl_reply_fail(&full->shared, &error);
    else
        full->later(&full->shared);
    step(full);
}

bool fl_request_run_later(fl_http_request *request, fl_route_fn fn, uint64_t cost_ns) {
    fl_request_full *full = fl_full(request);
    full->later           = fn;
    atomic_fetch_add(&full->pending, 1); /* held until fn has returned */
    if (fl_workers_add(request->server->workers, run_later, full, cost_ns, request))
        return true;
    (void)atomic_fetch_sub(&full->pending, 1);
    fl_reply_header(request, "retry-after", "1");
    fl_reply_error(request, FL_HTTP_UNAVAILABLE, "too many requests are waiting for a thread");
    return false;
}

typedef struct gathering {
    fl_route_fn  later;
    fl_wanted_fn wanted;
} gathering;

/* Those that are over, or wait for a model, stay for run_later. */
static bool is_like(const void *arg, const void *user) {
    const fl_request_full *full = arg;
    const gathering       *like = user;
    return full->awaits == NULL && full->later == like->later &&
           fl_request_over(&full->shared, NULL) == FLETCH_OK && like->wanted(&full->shared);
}

size_t fl_request_gather(const fl_http_request *request, fl_wanted_fn wanted,
                         fl_http_request **others, size_t most) {
    const gathering like = {fl_full_const(request)->later, wanted};
    void           *jobs[FL_GATHER_MAX];
    most         = most < FL_GATHER_MAX ? most : FL_GATHER_MAX;
    size_t count = fl_workers_take(request->server->workers, run_later, is_like, &like, jobs, most);
    for (size_t i = 0; i < count; i++)
        others[i] = &((fl_request_full *)jobs[i])->shared;
    return count;
}

void fl_request_gathered(fl_http_request *other) {
    step(fl_full(other));
}

/* The lists of an outcome, which are ours, in one or several outputs; how many. */
static size_t lists_of(const fl_request_full *full, const fletch_outcome *outcome,
                       fletch_lists *lists[FL_OUTPUTS_MAX]) {
    size_t count = 0;
    if (outcome->lists != NULL)
        lists[count++] = outcome->lists;
    for (size_t i = 0; i < full->output_count; i++)
        if (full->outputs[i].lists != NULL)
            lists[count++] = full->outputs[i].lists;
    return count;
}

static void free_lists(fletch_lists *const *lists, size_t count) {
    for (size_t i = 0; i < count; i++)
        fletch_lists_free(lists[i]);
}

/* The request may be gone when `done` has returned. */
static void call_done(fl_request_full *full, const fletch_outcome *outcome) {
    fletch_lists *lists[FL_OUTPUTS_MAX];
    size_t        count = lists_of(full, outcome, lists);
    full->done(&full->shared, outcome);
    free_lists(lists, count);
}

static void run_done(void *arg) {
    fl_request_full *full    = arg;
    fletch_outcome   outcome = full->outcome;
    call_done(full, &outcome);
}

/* Numbers of an answer that is made of lists; the id of a weight is one too, and their names are as long. */
static uint64_t cells_of(const fletch_lists *lists) {
    enum { NAMED = 3 };
    uint64_t cells = 0;
    for (size_t i = 0; i < lists->count; i++)
        cells += lists->list[i].count * (lists->columns == 1 ? NAMED : lists->columns);
    return cells;
}

static bool is_engine_fault(int code) {
    return code == FLETCH_EINTERNAL || code == FLETCH_EPROVIDER || code == FLETCH_EIO ||
           code == FLETCH_ENOMEM;
}

static int refuse_spoiled(const fl_served *served, fletch_error *error) {
    return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                   "the files of model %s were modified while being served; restart the server",
                   served->name);
}

static void on_done(void *user, const fletch_outcome *outcome) {
    fl_request_full *full    = user;
    fl_http_request *request = &full->shared;
    fletch_outcome   spoiled = *outcome;
    if (atomic_load(&full->served->spoiled) && outcome->error.code == FLETCH_OK) {
        (void)refuse_spoiled(full->served, &spoiled.error);
        outcome = &spoiled;
    }
    atomic_store(&full->ticket, 0);
    if (full->entered != NULL)
        fl_api_key_answered(full->entered, full->key_texts, outcome->tokens);
    request->tokens += outcome->tokens;
    request->tokenize_ns += outcome->tokenize_ns;
    request->queue_ns += outcome->queue_ns;
    request->forward_ns += outcome->forward_ns;
    if (full->span != NULL)
        fl_otlp_stages(full->span, full->served, full->work_texts, outcome);
    if (outcome->error.code == FLETCH_OK) {
        request->texts += full->work_texts;
        fl_metrics_embedding(request->server->metrics, full->work_texts, outcome->total_ns,
                             full->span);
        atomic_store_explicit(&full->served->sick, false, memory_order_relaxed);
    } else if (is_engine_fault(outcome->error.code)) {
        atomic_store(&full->served->sick, true);
    } else if (outcome->error.code == FLETCH_EMODEL) {
        atomic_store(&full->served->doubtful, true);
    }
    fletch_lists *lists[FL_OUTPUTS_MAX];
    size_t        count = lists_of(full, outcome, lists);
    for (size_t i = 0; i < count; i++)
        full->work_cells += cells_of(lists[i]);
    /* Writing many numbers as text takes longer than the engine should wait for. */
    if (full->work_cells >= LARGE_RESULT) {
        full->outcome = *outcome;
        if (outcome->error.code == FLETCH_OK && !hold_reply(full, full->work_cells * CELL_TEXT)) {
            fl_reply_error(request, FL_HTTP_UNAVAILABLE, "%s", "");
            free_lists(lists, count);
            return;
        }
        if (fl_workers_add(request->server->workers, run_done, full, full->work_cells * CELL_NS,
                           NULL))
            return;
    }
    call_done(full, outcome);
}

static uint32_t time_left(const fl_http_request *request) {
    if (request->deadline_ms == 0)
        return 0;
    uint64_t spent = (fl_clock_ns() - request->start_ns) / 1000000;
    return spent + 1 >= request->deadline_ms ? 1 : request->deadline_ms - (uint32_t)spent;
}

/* How long this thread may be kept. An I/O thread that hears of one connection alone embeds for it: two
 * threads fewer to wake. Not on a device: if that hung, the I/O thread would hang with it and nobody be told. */
static uint32_t time_to_spare(const fl_request_full *full) {
    const fl_conn *conn = full->conn;
    bool           lone = conn != NULL && pthread_equal(conn->io->thread, pthread_self()) &&
                conn->turns >= FL_LONE_TURNS;
    return lone && strcmp(full->served->info.provider, "cpu") == 0 ? FL_SPARE_US : 0;
}

/* Deadlines are the library's own: it tells them by their name. */
static int has_left(void *request) {
    return atomic_load(&((fl_http_request *)request)->cancelled);
}

int fl_request_submit(fl_http_request *request, fl_served *served, fletch_request *work,
                      fl_done_fn done, fletch_error *error) {
    fl_request_full *full   = fl_full(request);
    fletch_ticket    ticket = 0;
    if (atomic_load(&served->spoiled))
        return refuse_spoiled(served, error);
    /* A batch's lines wait in their file. */
    full->key_texts = full->conn != NULL ? work->texts.count : 0;
    full->key_full  = full->entered != NULL && !fl_api_key_submit(full->entered, full->key_texts);
    if (full->key_full) {
        return fl_fail(error, FLETCH_EBUSY, FLETCH_NOWHERE,
                       "too many texts of this API key are queued");
    }
    if (full->entered != NULL) {
        work->owner  = (uint64_t)(uintptr_t)full->entered;
        work->weight = fl_api_key_weight(full->entered);
    }
    full->done         = done;
    full->served       = served;
    full->work_texts   = work->texts.count;
    full->outputs      = work->outputs;
    full->output_count = work->output_count;
    full->work_cells   = work->out.data == NULL ? 0 : work->out.rows * work->out.cols;
    for (size_t i = 0; i < work->output_count; i++)
        full->work_cells += work->texts.count * work->outputs[i].out.cols;
    if (request->reply_most / CELL_TEXT > full->work_cells)
        full->work_cells = request->reply_most / CELL_TEXT;
    if (work->lane == FLETCH_LANE_INTERACTIVE)
        work->lane = request->lane;
    if (work->deadline_ms == 0)
        work->deadline_ms = time_left(request);
    work->inline_us = time_to_spare(full);
    work->stop      = has_left; /* the ticket is not known before the first texts are tokenised */
    work->stop_user = request;
    /* Hold the request: the reply may be on its way before the ticket is noted. */
    atomic_fetch_add(&full->pending, 1);
    int status = fletch_submit(served->model, work, on_done, full, &ticket, error);
    if (status < 0) {
        if (full->entered != NULL)
            fl_api_key_answered(full->entered, full->key_texts, 0);
        (void)atomic_fetch_sub(&full->pending,
                               1); /* the caller replies yet, so it cannot reach 0 */
        return status;
    }
    if (!atomic_load(&full->sent)) {
        atomic_store(&full->ticket, ticket);
        if (atomic_load(&request->cancelled))
            (void)fletch_cancel(served->model, ticket);
    }
    step(full);
    return FLETCH_OK;
}

int fl_request_over(const fl_http_request *request, fletch_error *error) {
    if (atomic_load(&request->cancelled))
        return fl_fail(error, FLETCH_ECANCELLED, FLETCH_NOWHERE, "the client has left");
    uint64_t limit_ns = (uint64_t)request->deadline_ms * 1000000;
    if (limit_ns != 0 && fl_clock_ns() - request->start_ns > limit_ns) {
        return fl_fail(error, FLETCH_EDEADLINE, FLETCH_NOWHERE,
                       "the deadline passed before the answer was complete");
    }
    return FLETCH_OK;
}

/* ---- Replies ---------------------------------------------------------------------------------------- */

void fl_reply_header(fl_http_request *request, const char *name, const char *format, ...) {
    fl_http_reply *reply = &request->reply;
    char           value[512];
    va_list        list;
    va_start(list, format);
    int size = vsnprintf(value, sizeof value, format, list);
    va_end(list);
    if (size < 0 || size >= (int)sizeof value || reply->header_count == FL_REPLY_HEADERS)
        return;
    for (int i = 0; i < size; i++)
        if ((unsigned char)value[i] < 0x20 || (unsigned char)value[i] >= 0x7F)
            return;
    char *copy = fl_request_alloc(request, (size_t)size + 1);
    if (copy == NULL)
        return;
    memcpy(copy, value, (size_t)size + 1);
    reply->headers[reply->header_count].name    = name;
    reply->headers[reply->header_count++].value = copy;
}

void fl_reply_bytes(fl_http_request *request, int status, const char *type) {
    if (request->reply.body.failed) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory while writing the reply");
        return;
    }
    request->reply.type = type;
    send_reply(request, status);
}

bool fl_reply_piece(fl_http_request *request, const char *type, const void *data, size_t size) {
    fl_request_full *full   = fl_full(request);
    fl_server       *server = request->server;
    fl_pieces_lock(server);
    bool room = full->pieces.size + size <= PIECES_MAX && fl_buf_reserve(&full->pieces, size);
    if (room)
        fl_buf_append(&full->pieces, data, size);
    fl_pieces_unlock(server);
    if (!atomic_load(&full->flows)) {
        request->reply.type = type;
        atomic_store(&full->flows, true);
    }
    fl_transport_flow(full->conn->io);
    return room;
}

void fl_reply_json(fl_http_request *request, int status) {
    fl_reply_bytes(request, status, "application/json");
}

void fl_reply_static(fl_http_request *request, int status, const char *type, const void *data,
                     size_t size) {
    fl_full(request)->static_data = data;
    fl_full(request)->static_size = size;
    request->reply.type           = type;
    send_reply(request, status);
}

void fl_reply_error(fl_http_request *request, fl_http_code code, const char *format, ...) {
    char    message[MESSAGE_MAX];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(message, sizeof message, format, list);
    va_end(list);
    put_error(request, code, message, sizeof message);
    send_reply(request, request->reply.status);
}

/* Seconds until what waits now is likely to be done, by what the model did lately. */
static unsigned retry_after(const fl_served *served) {
    fletch_stats stats;
    stats.size  = sizeof stats;
    double rate = served != NULL ? atomic_load(&served->tokens_per_second) : 0;
    if (served == NULL || rate <= 0 || fletch_stats_get(served->model, &stats, NULL) < 0)
        return 1;
    double seconds = (double)stats.queued_tokens / rate;
    return seconds < 1 ? 1 : seconds > 120 ? 120 : (unsigned)(seconds + 0.999);
}

typedef struct failure {
    int          status; /* of the library */
    fl_http_code code;
    bool         ours; /* not the client's fault: the text stays in the log */
} failure;

static const failure failures[] = {
    {FLETCH_EINVAL, FL_HTTP_BAD_REQUEST, false},
    {FLETCH_EUTF8, FL_HTTP_BAD_REQUEST, false},
    {FLETCH_ETOOLONG, FL_HTTP_TOO_LONG, false},
    {FLETCH_EUNSUPPORTED, FL_HTTP_WRONG_TASK, false},
    {FLETCH_ENOTFOUND, FL_HTTP_NOT_FOUND, false},
    {FLETCH_EDENIED, FL_HTTP_PERMISSION_DENIED, true},
    {FLETCH_EBUSY, FL_HTTP_OVERLOADED, false},
    {FLETCH_EDEADLINE, FL_HTTP_DEADLINE_EXCEEDED, false},
    {FLETCH_ENOSPC, FL_HTTP_INTERNAL, true},
};

static failure failure_of(int status) {
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++)
        if (failures[i].status == status)
            return failures[i];
    return (failure){status, FL_HTTP_INTERNAL, true};
}

void fl_reply_fail(fl_http_request *request, const fletch_error *error) {
    fl_server *server = request->server;
    failure    found  = failure_of(error->code);
    if (fl_full(request)->crowded != 0) {
        fl_reply_error(request, FL_HTTP_UNAVAILABLE, "%s", ""); /* which has the words */
        return;
    }
    if (error->code == FLETCH_ECANCELLED) {
        if (atomic_load(&request->cancelled)) {
            fl_reply_error(request, FL_HTTP_CLIENT_CLOSED,
                           "the connection was closed before the result was ready");
        } else {
            fl_reply_header(request, "retry-after", "1");
            fl_reply_error(request, FL_HTTP_UNAVAILABLE, "the server is shutting down");
        }
        return;
    }
    if (error->code == FLETCH_EBUSY) {
        unsigned wait = retry_after(fl_full(request)->served);
        fl_metrics_rejected(server->metrics,
                            fl_full(request)->key_full ? FL_REJECTED_KEY_QUEUE : FL_REJECTED_QUEUE);
        fl_reply_header(request, "retry-after", "%u", wait);
        if (fl_full(request)->key_full) {
            fl_reply_error(request, FL_HTTP_RATE_LIMITED,
                           "too many texts of this API key are queued (queue= in "
                           "server.api_key_file); try again in %u second%s",
                           wait, wait == 1 ? "" : "s");
            return;
        }
        fl_reply_error(request, FL_HTTP_OVERLOADED,
                       "the server is overloaded; try again in %u second%s", wait,
                       wait == 1 ? "" : "s");
        return;
    }
    if (found.ours) {
        fl_server_log_line(server->log, FL_LEVEL_ERROR, "request %s: %s", request->id,
                           error->message);
        fl_reply_error(request, found.code, "%s; see the server's log",
                       fletch_status_text(error->code));
        return;
    }
    fl_reply_error(request, found.code, "%s", error->message);
}
