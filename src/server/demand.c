/* SPDX-License-Identifier: Apache-2.0 */
/* demand.c - models that are opened when a request names them, and closed when nobody does.
 *
 * Role    Between a name in a request and an open model: fl_request_take before, the request's end behind it.
 * In/Out  server.on_demand (offers.c makes names and ids of it), server.keep_alive, a request's keep_alive,
 *         POST /models/load and /models/unload; open models out, each counted by who holds it.
 * Method  One thread opens and closes, one model at a time, so that the memory that is free is known when the next one
 *         is judged. A request that names a closed model waits among the workers' jobs, where its deadline and its
 *         client are looked after, and its handler runs again when the model is open. Before one is opened its
 *         predicted bytes must fit under the limit beside the process's resident memory; idle models are closed until
 *         they do, the least recently used first. One with work is never closed: then who asks waits until
 *         somebody ends, and hears 503 when its time is over first; at once where nothing can make room.
 *         A name stands for one space of vectors: what is opened under it must have the vector id that it
 *         had the first time, unless somebody says force.
 * Memory  An offer for each record, freed at the end. Threads: any; `lock` is held for list work alone. Lock order:
 *         the workers', then this one.
 * Proof   tests/server/test_on_demand.py. */
#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/locked.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"
#include "server/embedding.h"
#include "server/server_internal.h"

static const uint64_t second = 1000000000u, for_ever = UINT64_MAX;

enum { ID_ROOM = 65, RETRY_SECONDS = 10, LOOK_SECONDS = 1, STOP_SECONDS = 2, ROOM_LOOK_MS = 100 };

/* The lock of fl_demand: over it and all its offers. */
FL_LOCK_ROLE(offers_role);
#define GUARDED FL_GUARDED_BY(offers_role)
#define LOCKED  FL_REQUIRES(offers_role)

typedef struct fl_offer {
    fl_demand     *demand;
    fl_served     *served;
    bool           listed; /* by the operator, by its id: it may be downloaded */
    unsigned holds GUARDED, waiters GUARDED;
    bool leaving GUARDED; /* nobody takes it any more; it is closed when nobody holds it */
    bool force GUARDED, refused GUARDED; /* by fl_served_order: its say, and what came of it */
    bool crowded      GUARDED;           /* there is no room, and may be */
    uint64_t since_ns GUARDED;           /* the first that waits came */
    uint64_t used_ns GUARDED, keep_ns GUARDED, retry_ns GUARDED;
    uint64_t bytes  GUARDED; /* what it took, or will; 1: nobody can tell */
    uint64_t closes GUARDED; /* so many times */
    char vector_id[ID_ROOM]; /* of what the name stands for; "": it was never open. The thread's */
    const char *next_id GUARDED; /* what it is to be instead of served->id; a record's */
    fletch_error error  GUARDED; /* FL_MODEL_FAILED: why */
    fl_http_code code   GUARDED; /* likewise, for clients */
} fl_offer;

struct fl_demand {
    fl_server      *server;
    fletch_config  *config; /* the thread's, once it runs */
    const char     *list, *offline;
    uint64_t        keep_ns, looked_ns;
    uint64_t        limit;           /* the thread's, once it runs */
    uint64_t        base;            /* resident before anything was opened on demand */
    pthread_mutex_t lock, look_lock; /* the other while the disk is searched */
    pthread_cond_t  news;
    pthread_t       thread;
    bool            running;
    bool ending GUARDED, ended GUARDED;
    bool                    told; /* that there are more models than records */
    _Atomic bool            left; /* the server ends */
    fl_demand_counts counts GUARDED;
};

FL_LOCK_OF(offers_role, fl_demand, lock, lock, unlock);

/* ---- Who holds a model --------------------------------------------------------------------------------- */

static int state_of(const fl_offer *offer) {
    return atomic_load(&offer->served->state);
}

static void set_state(fl_offer *offer, fl_model_state state) {
    atomic_store(&offer->served->state, (int)state);
}

bool fl_served_try_hold(fl_served *served) {
    fl_offer *offer = served->offer;
    if (offer == NULL)
        return atomic_load(&served->state) == FL_MODEL_LOADED;
    lock(offer->demand);
    bool open = state_of(offer) == FL_MODEL_LOADED;
    offer->holds += open;
    unlock(offer->demand);
    return open;
}

static void drop(fl_offer *offer, bool used) {
    lock(offer->demand);
    if (used)
        offer->used_ns = fl_clock_ns();
    if (--offer->holds == 0)
        pthread_cond_signal(&offer->demand->news);
    unlock(offer->demand);
}

void fl_served_drop(fl_served *served) {
    if (served->offer != NULL)
        drop(served->offer, false);
}

void fl_demand_leave_model(fl_request_full *full) {
    if (full->taken != NULL)
        drop(full->taken->offer, true);
}

uint64_t fl_served_stays_ns(const fl_served *served) {
    fl_offer *offer = served->offer;
    if (offer == NULL)
        return for_ever;
    lock(offer->demand);
    uint64_t keep = offer->keep_ns, spent = fl_clock_ns() - offer->used_ns;
    unlock(offer->demand);
    return keep == for_ever ? keep : keep > spent ? keep - spent : 0;
}

void fl_served_keep(fl_served *served, uint64_t ns) {
    if (served->offer != NULL) {
        lock(served->offer->demand);
        served->offer->keep_ns = ns;
        unlock(served->offer->demand);
    }
}

uint64_t fl_served_bytes(const fl_served *served) {
    fl_offer *offer = served->offer;
    uint64_t  bytes = 0;
    if (offer != NULL) {
        lock(offer->demand);
        bytes = offer->bytes > 1 ? offer->bytes : 0;
        unlock(offer->demand);
    }
    return bytes;
}

/* ---- Who waits for one ----------------------------------------------------------------------------------- */

static void refuse(fl_http_request *request, const fl_served *served, const fletch_error *error,
                   fl_http_code code) {
    if (code == FL_HTTP_UNAVAILABLE)
        fl_reply_header(request, "retry-after", "%d", RETRY_SECONDS);
    if (code == FL_HTTP_INTERNAL) {
        fl_reply_error(request, code, "model '%s' cannot be opened: %s; see the server's log",
                       served->name, fletch_status_text(error->code));
    } else {
        fl_reply_error(request, code, "%s", error->message);
    }
}

static bool refuse_end(fl_http_request *request) {
    fl_reply_header(request, "retry-after", "1");
    fl_reply_error(request, FL_HTTP_UNAVAILABLE, "the server is shutting down");
    return false;
}

/* Put the request among the workers' jobs until fl_demand_due. */
static bool wait_for(fl_http_request *request, fl_served *served, uint64_t awaited) {
    fl_request_full *full = fl_full(request);
    full->awaits          = served;
    full->awaited         = awaited;
    full->awaits_ns       = fl_clock_ns();
    if (!fl_request_run_later(request, request->route->handler, 0))
        (void)fl_demand_arrive(full, false);
    return false;
}

bool fl_request_take(fl_http_request *request, fl_served *served) {
    fl_request_full *full  = fl_full(request);
    fl_offer        *offer = served->offer;
    if (offer == NULL || full->taken == served)
        return true;
    fl_demand *demand = offer->demand;
    if (atomic_load(&demand->left))
        return refuse_end(request);
    lock(demand);
    bool open   = state_of(offer) == FL_MODEL_LOADED && !offer->leaving;
    bool failed = state_of(offer) == FL_MODEL_FAILED && fl_clock_ns() < offer->retry_ns;
    if (open) {
        offer->holds++;
    } else if (!failed) {
        offer->since_ns = offer->waiters++ > 0 ? offer->since_ns : fl_clock_ns();
        if (state_of(offer) == FL_MODEL_FAILED)
            set_state(offer, FL_MODEL_CLOSED);
        pthread_cond_signal(&demand->news);
    }
    fletch_error error = {0};
    fl_http_code code  = offer->code;
    if (failed)
        error = offer->error;
    unlock(demand);
    if (failed) {
        refuse(request, served, &error, code);
        return false;
    }
    if (open)
        full->taken = served;
    return open || wait_for(request, served, 0);
}

/* Whether it is closed, or has been since `awaited` - 1 times of that; 0: now alone. */
LOCKED static bool is_gone(const fl_offer *offer, uint64_t awaited) {
    int state = state_of(offer);
    return state == FL_MODEL_CLOSED || state == FL_MODEL_FAILED ||
           (awaited > 0 && offer->closes >= awaited);
}

/* A batch's line has no deadline and no client: it asks again later, so that other batches have their turns. */
static bool gives_up(const fl_request_full *full) {
    return full->conn == NULL && fl_clock_ns() - full->awaits_ns > second;
}

bool fl_demand_due(const fl_request_full *full) {
    const fl_served *served = full->awaits;
    if (served == NULL || atomic_load(&served->offer->demand->left))
        return true;
    fl_offer *offer = served->offer;
    lock(offer->demand);
    int  state = state_of(offer);
    bool due   = full->awaited > 0 ? is_gone(offer, full->awaited)
                                   : (state == FL_MODEL_LOADED && !offer->leaving) ||
                                       state == FL_MODEL_FAILED || gives_up(full);
    unlock(offer->demand);
    return due;
}

bool fl_demand_arrive(fl_request_full *full, bool over) {
    fl_served *served = full->awaits;
    if (served == NULL)
        return false;
    fl_offer *offer = served->offer;
    full->awaits    = NULL;
    full->shared.open_ns += fl_clock_ns() - full->awaits_ns;
    lock(offer->demand);
    offer->waiters -= full->awaited == 0;
    bool crowded = over && offer->crowded && full->awaited == 0;
    bool early   = !over && full->awaited == 0 && gives_up(full) && !atomic_load(&full->sent) &&
                 state_of(offer) != FL_MODEL_LOADED && state_of(offer) != FL_MODEL_FAILED;
    unlock(offer->demand);
    if (early) {
        fl_reply_error(&full->shared, FL_HTTP_UNAVAILABLE, "model '%s' is not open yet",
                       served->name);
        return true;
    }
    if (crowded && !atomic_load(&full->shared.cancelled)) {
        fl_reply_header(&full->shared, "retry-after", "%d", LOOK_SECONDS);
        fl_reply_error(&full->shared, FL_HTTP_UNAVAILABLE,
                       "no memory for model '%s' beside the models in use", served->name);
        return true;
    }
    return false;
}

/* ---- What is asked of it ----------------------------------------------------------------------------------- */

void fl_served_order(fl_served *served, const char *id, bool force) {
    fl_offer *offer = served->offer;
    lock(offer->demand);
    bool other     = id != NULL && strcmp(id, served->id) != 0;
    offer->force   = force && (other || state_of(offer) != FL_MODEL_LOADED);
    offer->refused = false;
    if (state_of(offer) == FL_MODEL_FAILED)
        set_state(offer, FL_MODEL_CLOSED);
    if (other) {
        offer->next_id = id;
        offer->bytes   = 0;
        offer->leaving = state_of(offer) == FL_MODEL_LOADED || state_of(offer) == FL_MODEL_LOADING;
    }
    pthread_cond_signal(&offer->demand->news);
    unlock(offer->demand);
}

bool fl_served_is_refused(const fl_served *served) {
    fl_offer *offer = served->offer;
    if (offer == NULL)
        return false;
    lock(offer->demand);
    bool refused = offer->refused;
    unlock(offer->demand);
    return refused;
}

bool fl_request_unload(fl_http_request *request, fl_served *served) {
    fl_offer  *offer   = served->offer;
    fl_demand *demand  = offer->demand;
    uint64_t   awaited = fl_full(request)->awaited;
    lock(demand);
    bool     gone = is_gone(offer, awaited);
    uint64_t next = offer->closes + 1;
    if (!gone) {
        offer->leaving = true;
        pthread_cond_signal(&demand->news);
    } else if (state_of(offer) == FL_MODEL_FAILED) {
        set_state(offer, FL_MODEL_CLOSED);
    }
    unlock(demand);
    if (!gone && atomic_load(&demand->left))
        return refuse_end(request);
    return gone || wait_for(request, served, next);
}

/* ---- The disk ------------------------------------------------------------------------------------------------ */

static void add(void *user, const char *name, const char *id, bool listed) {
    fl_demand *demand = user;
    fl_served *have;
    for (size_t i = 0; (have = fl_server_record_at(demand->server, i)) != NULL; i++)
        if (strcmp(have->name, name) == 0 || (!listed && strcmp(have->id, id) == 0))
            return;
    fl_offer  *offer  = fl_alloc_zero(1, sizeof *offer);
    fl_served *served = offer != NULL ? fl_models_make(demand->server, name, id) : NULL;
    if (served == NULL) {
        fl_free(offer);
        if (!demand->told) {
            demand->told = true;
            fl_server_log_line(demand->server->log, FL_LEVEL_WARNING,
                               "model %s is not offered: the limit is %d models", name,
                               FL_RECORDS_MAX);
        }
        return;
    }
    offer->demand = demand;
    offer->served = served;
    offer->listed = listed;
    served->offer = offer;
    fl_models_add(demand->server, served);
}

/* What was seen within `age_ns` is not looked at again. */
static void look(fl_demand *demand, uint64_t age_ns) {
    pthread_mutex_lock(&demand->look_lock);
    uint64_t now = fl_clock_ns();
    if (demand->looked_ns == 0 || now - demand->looked_ns > age_ns) {
        fl_offers_scan(demand->server->config, demand->list, add, demand);
        demand->looked_ns = fl_clock_ns();
    }
    pthread_mutex_unlock(&demand->look_lock);
}

static void look_again(fl_http_request *request) {
    look(request->server->demand, LOOK_SECONDS * second); /* however many unknown names come */
    request->route->handler(request);
}

fl_served *fl_demand_find(fl_server *server, const char *name, size_t size) {
    fl_served *served = fl_server_model(server, name, size);
    if (served != NULL || server->demand == NULL)
        return served;
    look(server->demand, 0);
    return fl_server_model(server, name, size);
}

bool fl_request_look(fl_http_request *request) {
    enum { COST_NS = 10000000 };
    if (request->server->demand == NULL || fl_full(request)->looked)
        return false;
    fl_full(request)->looked = true;
    (void)fl_request_run_later(request, look_again, COST_NS);
    return true;
}

/* ---- Opening ------------------------------------------------------------------------------------------------- */

static void read_limit(fl_demand *demand, fletch_model *model) {
    fletch_stats stats = {.size = sizeof stats};
    if (model != NULL && fletch_stats_get(model, &stats, NULL) == FLETCH_OK &&
        stats.memory_limit > 0)
        demand->limit = stats.memory_limit;
}

/* Whether `offer` gives what its name stood for; into id what it gives. */
static bool is_same(const fl_offer *offer, char id[ID_ROOM]) {
    id[0] = '\0';
    fl_served_vector_id(offer->served, id);
    if (id[0] == '\0') /* no vectors of its own: a reranker */
        memcpy(id, offer->served->fingerprint, ID_ROOM);
    return offer->vector_id[0] == '\0' || strcmp(offer->vector_id, id) == 0;
}

/* What comes of opening one. */
typedef struct opened {
    char     vector_id[ID_ROOM];
    uint64_t bytes;
    bool     other; /* its vectors are other ones, and it was closed again */
} opened;

/* Without the lock; the state is FL_MODEL_LOADING. */
static int open_it(fl_demand *demand, const fl_offer *offer, const char *id, bool force,
                   opened *out, fletch_error *error) {
    uint64_t    before = fl_os_resident("");
    const char *offline =
        offer->listed ? demand->offline : "true"; /* no client downloads anything */
    FL_TRY(fletch_config_set(demand->config, "model.offline", offline, error));
    FL_TRY(fl_served_open(demand->server, offer->served, id, demand->config, error));
    out->other = !is_same(offer, out->vector_id) && !force;
    if (out->other) {
        fl_served_close(offer->served);
        return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE,
                       "model '%s' now has different vectors (vector id %.12s, before %.12s); POST "
                       "/models/load with \"force\": true serves it anyway",
                       offer->served->name, offer->vector_id, out->vector_id);
    }
    uint64_t after = fl_os_resident("");
    out->bytes     = after > before ? after - before : 0;
    read_limit(demand, offer->served->model);
    return FLETCH_OK;
}

LOCKED static void fail(fl_demand *demand, fl_offer *offer, const fletch_error *error,
                        fl_http_code code) {
    offer->error    = *error;
    offer->code     = code;
    offer->retry_ns = fl_clock_ns() + RETRY_SECONDS * second;
    demand->counts.failed++;
    set_state(offer, FL_MODEL_FAILED);
    fl_server_log_line(demand->server->log, FL_LEVEL_ERROR, "model %s cannot be opened: %s",
                       offer->served->name, error->message);
}

/* Under the lock, which is let go while the model is opened. */
LOCKED static void open_offer(fl_demand *demand, fl_offer *offer) {
    fletch_error error = {0};
    const char  *next = offer->next_id, *id = next != NULL ? next : offer->served->id;
    bool         force = offer->force;
    opened       found = {.other = false};
    set_state(offer, FL_MODEL_LOADING);
    offer->leaving = offer->crowded = false;
    offer->next_id                  = NULL;
    offer->force                    = false; /* what is asked meanwhile is for the next opening */
    unlock(demand);
    int status = open_it(demand, offer, id, force, &found, &error);
    lock(demand);
    if (status == FLETCH_OK) {
        demand->counts.opened++;
        offer->served->id = id;
        offer->bytes      = found.bytes > offer->bytes ? found.bytes : offer->bytes;
        memcpy(offer->vector_id, found.vector_id, ID_ROOM);
        offer->keep_ns = demand->keep_ns;
        offer->used_ns = fl_clock_ns();
        set_state(offer, FL_MODEL_LOADED);
    } else if (found.other && next != NULL) {
        offer->refused = true; /* who waits gets what the name stood for */
        set_state(offer, FL_MODEL_CLOSED);
        offer->closes++; /* an unload that was asked for meanwhile has been obeyed */
    } else {
        fail(demand, offer, &error, found.other ? FL_HTTP_CONFLICT : FL_HTTP_INTERNAL);
    }
}

LOCKED static void close_offer(fl_demand *demand, fl_offer *offer, fl_close_reason why) {
    static const char *const words[] = {"idle", "evicted for another model", "asked to"};
    set_state(offer, FL_MODEL_CLOSING);
    unlock(demand);
    fl_server_log_line(demand->server->log, FL_LEVEL_INFO, "model %s: closed, %s",
                       offer->served->name, words[why]);
    fl_served_close(offer->served);
#ifdef __GLIBC__
    (void)malloc_trim(0); /* what is free counts as room only when the system has it */
#endif
    lock(demand);
    set_state(offer, FL_MODEL_CLOSED);
    offer->leaving = false;
    offer->closes++;
    demand->counts.closed[why]++;
}

/* ---- The thread ------------------------------------------------------------------------------------------------ */

typedef struct step {
    fl_offer       *open, *close, *fail, *measure;
    fl_close_reason why;
    uint64_t        look_ns; /* when to think again */
} step;

LOCKED static bool is_idle(const fl_offer *offer) {
    return state_of(offer) == FL_MODEL_LOADED && offer->holds == 0;
}

static fl_offer *offer_at(const fl_demand *demand, size_t i) {
    fl_served *served = fl_server_record_at(demand->server, i);
    return served != NULL ? served->offer : NULL;
}

#define EACH(demand, offer)                                                                        \
    for (size_t i_ = (demand)->server->pinned_count; ((offer) = offer_at((demand), i_)) != NULL;   \
         i_++)

/* What is to be closed by itself: asked for, or its time is over. */
LOCKED static bool find_over(const fl_demand *demand, uint64_t now, step *next) {
    fl_offer *offer;
    EACH(demand, offer) {
        if (!is_idle(offer))
            continue;
        uint64_t spent = now > offer->used_ns ? now - offer->used_ns : 0;
        bool     over  = offer->waiters == 0 && spent >= offer->keep_ns;
        if (offer->leaving || over) {
            next->close = offer;
            next->why   = offer->leaving ? FL_CLOSE_ASKED : FL_CLOSE_IDLE;
            return true;
        }
        if (offer->keep_ns != for_ever && offer->used_ns + offer->keep_ns < next->look_ns)
            next->look_ns = offer->used_ns + offer->keep_ns;
    }
    return false;
}

/* Bytes that are used or promised: pages of weights come only as they are read. */
LOCKED static uint64_t used_bytes(const fl_demand *demand) {
    uint64_t  resident = fl_os_resident(""), promised = demand->base;
    fl_offer *offer;
    EACH(demand, offer) {
        promised += state_of(offer) == FL_MODEL_LOADED ? offer->bytes : 0;
    }
    return resident > promised ? resident : promised;
}

/* Make room for `wanted`, or tell that there is some. False: others are to be looked at. */
LOCKED static bool find_room(const fl_demand *demand, fl_offer *wanted, step *next) {
    uint64_t  used = used_bytes(demand);
    fl_offer *offer, *oldest = NULL;
    bool      busy = false;
    if (wanted->bytes == 0) {
        next->measure = wanted;
        return true;
    }
    if (demand->limit == 0 || (used < demand->limit && wanted->bytes <= demand->limit - used)) {
        next->open = wanted;
        return true;
    }
    EACH(demand, offer) {
        bool idle = is_idle(offer) && offer->waiters == 0;
        busy      = busy || (state_of(offer) == FL_MODEL_LOADED && !idle);
        if (idle && (oldest == NULL || offer->used_ns < oldest->used_ns))
            oldest = offer;
    }
    next->close     = oldest;
    next->why       = FL_CLOSE_ROOM;
    next->fail      = oldest == NULL && !busy ? wanted : NULL;
    wanted->crowded = true;
    return oldest != NULL || !busy;
}

/* The one that has been waited for longest goes first, where there is room for it. */
LOCKED static step think(const fl_demand *demand) {
    uint64_t  now = fl_clock_ns(), behind = 0;
    step      next = {.look_ns = for_ever};
    fl_offer *offer, *first;
    if (find_over(demand, now, &next))
        return next;
    do {
        first = NULL;
        EACH(demand, offer) {
            bool wanted = offer->waiters > 0 && state_of(offer) == FL_MODEL_CLOSED;
            if (wanted && offer->since_ns > behind &&
                (first == NULL || offer->since_ns < first->since_ns))
                first = offer;
        }
        if (first != NULL && find_room(demand, first, &next))
            return next;
        if (first != NULL) {
            behind       = first->since_ns;
            next.look_ns = now + ROOM_LOOK_MS * (second / 1000);
        }
    } while (first != NULL);
    return next;
}

LOCKED static void refuse_room(fl_demand *demand, fl_offer *offer) {
    fletch_error error;
    (void)fl_fail(&error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                  "no memory for model '%s': it needs about %" PRIu64
                  " MB, and the limit is %" PRIu64 " MB for all (memory.limit)",
                  offer->served->name, offer->bytes / 1000000, demand->limit / 1000000);
    fail(demand, offer, &error, FL_HTTP_UNAVAILABLE);
}

/* Under the lock, but while it opens, closes or reads the disk. */
static void *keep(void *arg) {
    fl_demand *demand = arg;
    lock(demand);
    while (!demand->ending) {
        step next = think(demand);
        if (next.close != NULL) {
            close_offer(demand, next.close, next.why);
        } else if (next.fail != NULL) {
            refuse_room(demand, next.fail);
        } else if (next.open != NULL) {
            open_offer(demand, next.open);
        } else if (next.measure != NULL) {
            fl_offer   *offer = next.measure;
            const char *id    = offer->next_id != NULL ? offer->next_id : offer->served->id;
            unlock(demand);
            uint64_t bytes = fl_offer_bytes(demand->config, id);
            lock(demand);
            offer->bytes = bytes > 0 ? bytes : 1;
        } else {
            fl_cond_wait_until(&demand->news, &demand->lock, next.look_ns);
            continue;
        }
        if (!demand->ending) { /* else they may be gone; fl_demand_leave woke who waits */
            unlock(demand);
            fl_workers_wake(demand->server->workers);
            lock(demand);
        }
    }
    demand->ended = true;
    pthread_cond_signal(&demand->news);
    unlock(demand);
    return NULL;
}

/* ---- Start and end ----------------------------------------------------------------------------------------------- */

/* Where no limit is set the machine's memory is one, of which others need some. */
static uint64_t machine_limit(const fl_server *server) {
    const uint64_t limit = fl_server_number(server, "memory.limit", 0);
    return limit > 0 ? limit : fl_os_memory() / 5 * 4;
}

int fl_demand_open(fl_server *server, fletch_error *error) {
    const char *list = fl_server_option(server, "server.on_demand");
    const char *stay = fl_server_option(server, "server.keep_alive");
    uint64_t    keep_ns;
    if (!fl_keep_alive_parse(stay, strlen(stay), &keep_ns)) {
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "server.keep_alive is '%s': write 5m, 1h30m, seconds, 0, or -1 for ever",
                       stay);
    }
    if (list[0] == '\0')
        return FLETCH_OK;
    FL_TRY(fl_offers_check(server->config, list, error));
    fl_demand *demand = fl_alloc_zero(1, sizeof *demand);
    if (demand == NULL)
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE, "out of memory for models on demand");
    demand->server  = server;
    demand->list    = list;
    demand->keep_ns = keep_ns;
    demand->limit   = machine_limit(server);
    demand->offline = fl_server_option(server, "model.offline");
    pthread_mutex_init(&demand->lock, NULL);
    pthread_mutex_init(&demand->look_lock, NULL);
    fl_cond_init(&demand->news);
    server->demand = demand; /* only now: who finds it may lock it */
    demand->config = fl_server_config_copy(server, error);
    return demand->config == NULL ? error->code
                                  : fletch_config_set(demand->config, "profile.file", "", error);
}

int fl_demand_start(fl_server *server, fletch_error *error) {
    fl_demand *demand = server->demand;
    if (demand == NULL)
        return FLETCH_OK;
    const fl_served *first = fl_server_model_at(server, 0);
    read_limit(demand, first != NULL ? first->model : NULL);
    look(demand, 0);
    demand->base    = fl_os_resident("");
    int status      = fl_thread_start(&demand->thread, "models", keep, demand, error);
    demand->running = status == FLETCH_OK;
    return status;
}

void fl_demand_leave(fl_server *server) {
    if (server->demand != NULL && server->workers != NULL) {
        atomic_store(&server->demand->left, true);
        fl_workers_wake(server->workers);
    }
}

bool fl_demand_stop(fl_server *server) {
    fl_demand *demand = server->demand;
    if (demand == NULL || !demand->running)
        return true;
    uint64_t end = fl_clock_ns() + STOP_SECONDS * second;
    lock(demand);
    demand->ending = true;
    pthread_cond_signal(&demand->news);
    while (!demand->ended && fl_clock_ns() < end)
        fl_cond_wait_until(&demand->news, &demand->lock, end);
    bool ended = demand->ended;
    unlock(demand);
    if (ended) {
        pthread_join(demand->thread, NULL);
        demand->running = false;
    }
    return ended;
}

void fl_demand_free(fl_server *server) {
    fl_demand *demand = server->demand;
    if (demand == NULL)
        return;
    fletch_config_free(demand->config);
    pthread_cond_destroy(&demand->news);
    pthread_mutex_destroy(&demand->look_lock);
    pthread_mutex_destroy(&demand->lock);
    fl_free(demand);
    server->demand = NULL;
}

fl_demand_counts fl_demand_counted(const fl_server *server) {
    fl_demand_counts counts = {0};
    fl_demand       *demand = server->demand;
    fl_offer        *offer;
    if (demand != NULL) {
        lock(demand);
        counts = demand->counts;
        EACH(demand, offer) {
            counts.waiting += offer->waiters;
        }
        unlock(demand);
    }
    return counts;
}
