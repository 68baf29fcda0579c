/* SPDX-License-Identifier: Apache-2.0 */
/* replica.c - a set of replicas: opened, kept running, opened again, retired.
 *
 * Role    open.c opens the first set; fletch_model_reopen another one.
 * Method  The first provider of the chain that opens on its first device gets a replica on each of
 *         its devices, all opened side by side (provider.devices; on the CPU cpu.replicas groups of
 *         pinned threads, each on cores of one NUMA node where there are several). A worker's thread
 *         sleeps until a batch may leave; fl_scheduler_dispatch wakes the free worker whose replica has the fewest
 *         outstanding tokens.
 *         replica.h has the states and what happens when an engine fails.
 * Errors  A set opens when one of its replicas does. One that does not, or that breaks later, is tried
 *         again with back-off; where no other works, on the next provider of the chain if need be.
 * Threads One per worker, all signals blocked. See replica.h.
 * Proof   tests/stress/test_submit.c, test_schedule.c. */
#include "scheduler/replica.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "scheduler/provider.h"
#include "scheduler/scheduler.h"
#include "scheduler/worker.h"

static const uint64_t retry_first_ns = 100000000U;   /* 100 ms, doubled after each failure */
static const uint64_t retry_most_ns  = 30000000000U; /* 30 s */
static const uint64_t look_first_ns = 1000000000U, look_most_ns = 600000000000U; /* 1 s to 10 min */

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_engine(fl_replica *replica, const fl_engine_options *options, fletch_error *error) {
    assert(!replica->engine);
    fl_scheduler     *scheduler = replica->set->scheduler;
    fl_engine_options own       = *options;
    own.device                  = replica->device;
    own.cores                   = replica->cores;
    own.threads                 = replica->cores ? replica->threads : options->threads;
    if (!replica->ops->rounds_weights && fl_engine_rounds(own.weights))
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "model.weights %s: only the cpu engine supports it; use auto or float with "
                       "the provider %s",
                       own.weights, own.provider);
    if (!replica->ops->portable && own.portable)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "provider.numerics portable: only the cpu engine gives the same bits on "
                       "every machine, not %s; use native",
                       replica->ops->name);
    int status = replica->ops->open(&replica->engine, scheduler->encoder, &own, error);
    if (status < 0) {
        replica->engine = NULL;
        return status;
    }
    if (replica->ops->warm && fl_config_bool(replica->set->config, FL_KEY_PROVIDER_WARM_UP))
        status = replica->ops->warm(replica->engine, error);
    if (status < 0) {
        replica->ops->close(replica->engine);
        replica->engine = NULL;
        return status;
    }
    replica->ops->info(replica->engine, &replica->info);
    fl_stats_add(&scheduler->stats, FLETCH_COUNT_PROVIDER_SELECTIONS, 1);
    fl_log_write(own.log, FL_LOG_DEBUG, "provider %s, device %u: %s, %s", replica->provider,
                 replica->device, replica->info.device, replica->info.precision);
    return FLETCH_OK;
}

/* As many as `like` runs at once: a replica that is not open yet will do so too. */
static int open_workers(fl_replica *replica, const fl_engine_info *like, fletch_error *error) {
    assert(!replica->workers && replica->worker_count == 0);
    uint32_t count   = like->slots ? like->slots : 1;
    replica->workers = fl_alloc_zero(count, sizeof *replica->workers);
    if (!replica->workers)
        return fl_fail_nomem(error, count * sizeof *replica->workers, "the slots of a replica");
    int status = FLETCH_OK;
    for (uint32_t i = 0; i < count && status == FLETCH_OK; i++) {
        fl_worker *worker = &replica->workers[i];
        worker->replica   = replica;
        worker->number    = i;
        replica->worker_count++;
        status = fl_worker_open(worker, replica->set->scheduler, replica->set->batch_tokens, error);
    }
    replica->set->workers += replica->worker_count;
    return status;
}

/* The cores of a replica's group of `count` groups. */
static int choose_cores(fl_replica *replica, uint32_t count, fletch_error *error) {
    assert(count > 0 && replica->number < count);
    uint16_t     cores[FL_CORES_MAX];
    unsigned     usable = fl_cpu_cores(cores);
    fl_cpu_group own    = fl_cpu_deal("", cores, usable, count, replica->number);
    replica->cores      = fl_alloc_array(own.count, sizeof *replica->cores);
    if (!replica->cores)
        return fl_fail_nomem(error, own.count * sizeof *replica->cores, "the cores of a replica");
    replica->threads = own.count;
    replica->node    = own.node;
    for (unsigned i = 0; i < own.count; i++)
        replica->cores[i] = cores[(own.first + i) % usable];
    return FLETCH_OK;
}

/* Item `i` of provider.devices as it stands for `provider`: a number or "all", "" where it is another's.
 * "cuda:0,1" speaks of one provider up to the next name, a number alone of all. False: past the last. */
static bool device_item(const fl_config *config, const char *provider, unsigned i, bool *ours,
                        char number[32]) {
    if (!fl_config_list_item(config, FL_KEY_PROVIDER_DEVICES, i, number, 32))
        return false;
    char *colon = strchr(number, ':');
    if (i == 0)
        *ours = true;
    if (colon) {
        *ours = strncmp(number, provider, (size_t)(colon - number)) == 0 &&
                provider[colon - number] == '\0';
        memmove(number, colon + 1, strlen(colon));
    }
    if (!*ours)
        number[0] = '\0';
    return true;
}

/* Whether provider.devices names `device` of `provider`; the first where it says nothing of that. The
 * cpu's are not chosen: it is the end of every chain, whatever the numbers of the cards before it. */
static bool device_chosen(const fl_config *config, const char *provider, uint32_t device) {
    char item[32], text[16];
    bool ours, spoken = false;
    if (strcmp(provider, "cpu") == 0)
        return true;
    snprintf(text, sizeof text, "%u", device);
    for (unsigned i = 0; device_item(config, provider, i, &ours, item); i++) {
        if (strcmp(item, "all") == 0 || strcmp(item, text) == 0)
            return true;
        spoken = spoken || ours;
    }
    return !spoken && device == 0;
}

/* A device that is listed and not there: it may have fallen off its bus. */
static void warn_missing(const fl_config *config, const char *provider, uint32_t devices) {
    char item[32];
    bool ours;
    if (strcmp(provider, "cpu") == 0)
        return;
    for (unsigned i = 0; device_item(config, provider, i, &ours, item); i++)
        if (item[0] && strcmp(item, "all") != 0 && strtoul(item, NULL, 10) >= devices)
            fl_log_write(fl_config_log(config), FL_LOG_WARNING,
                         "provider.devices names device %s, but provider %s has only %u", item,
                         provider, devices);
}

/* As many as asked for; else one on each NUMA node, unless threads are. */
static uint32_t groups_of(const fl_replicas *set, const char *provider) {
    if (strcmp(provider, "cpu") != 0)
        return 1;
    uint16_t cores[FL_CORES_MAX];
    int64_t  replicas = fl_config_int(set->config, FL_KEY_CPU_REPLICAS);
    if (replicas == 0 && fl_config_int(set->config, FL_KEY_CPU_INTRA_OP_THREADS) == 0)
        replicas = fl_cpu_nodes("", cores, fl_cpu_cores(cores));
    int64_t usable = fl_cpu_usable();
    return (uint32_t)(replicas < 1 ? 1 : replicas < usable ? replicas : usable);
}

/* Tokens of a batch as set, or the default, which is twelve blocks for each of eight threads: more have more. */
static uint32_t tokens_of(const fl_replicas *set, const fl_engine_ops *ops, uint32_t threads) {
    enum { OF_A_THREAD = 2048, MOST = 1048576 };
    uint32_t most = (uint32_t)fl_config_int(set->config, FL_KEY_BATCH_MAX_TOKENS);
    uint32_t all  = threads < MOST / OF_A_THREAD ? threads * OF_A_THREAD : MOST;
    if (strcmp(ops->name, "cpu") != 0 || fl_config_is_set(set->config, FL_KEY_BATCH_MAX_TOKENS))
        return most;
    return all > most ? all : most;
}

/* One more replica, still closed. */
FL_UNCHECKED static int add_replica(fl_replicas *set, const fl_engine_ops *ops,
                                    const char *provider, uint32_t device, uint32_t groups,
                                    fletch_error *error) {
    fl_replica *replica = &set->replica[set->count];
    memset(replica, 0, sizeof *replica);
    replica->set      = set;
    replica->number   = set->count++;
    replica->ops      = ops;
    replica->provider = replica->home = provider;
    replica->look_ns                  = UINT64_MAX;
    replica->device = replica->home_device = device;
    replica->cold                          = true;
    return groups > 1 ? choose_cores(replica, groups, error) : FLETCH_OK;
}

static void pin_to(const fl_replica *replica) {
    if (replica->cores)
        fl_cpu_pin(replica->cores[0]);
}

/* The opening of one replica's engine, for a thread. */
typedef struct opening {
    fl_replica              *replica;
    const fl_engine_options *options;
    bool                     started; /* and not joined yet */
    pthread_t                thread;
    int                      status;
    fletch_error             error;
} opening;

/* A replica of the same node that is open already: its weights serve this one too. */
static const fl_engine *like_of(const fl_replica *replica) {
    for (uint32_t r = 0; replica->cores && r < replica->number; r++) {
        const fl_replica *other = &replica->set->replica[r];
        if (other->engine && other->ops == replica->ops && other->node == replica->node)
            return other->engine;
    }
    return NULL;
}

static void *open_one(void *arg) {
    opening          *o   = arg;
    fl_engine_options own = *o->options;
    own.like              = like_of(o->replica);
    o->status             = open_engine(o->replica, &own, &o->error);
    return NULL;
}

/* On a thread of its own: the weights come to lie in the memory of the node whose cores will read them. */
static void *open_pinned(void *arg) {
    opening *o = arg;
    pin_to(o->replica);
    return open_one(o);
}

uint64_t fl_replica_backoff(uint32_t times) {
    uint64_t wait = retry_first_ns << (times < 10 ? times : 10);
    return wait < retry_most_ns ? wait : retry_most_ns;
}

bool fl_replica_broke(fl_replica *replica, const char *why) {
    assert(why);
    char failure[sizeof replica->failure];
    snprintf(failure, sizeof failure, "%s", why);
    fl_utf8_make_printable(failure); /* what is too long is cut at a whole character */
    bool news       = strcmp(failure, replica->failure) != 0;
    replica->broken = true;
    snprintf(replica->failure, sizeof replica->failure, "%s", failure);
    return news;
}

/* It could not be opened, and will be tried again. What is wrong is told once, not at every try. */
FL_LOCKED static void fail_replica(fl_replica *replica, const fletch_error *why) {
    assert(why->code < 0);
    fl_scheduler *scheduler = replica->set->scheduler;
    uint64_t      wait      = fl_replica_backoff(replica->failures++);
    bool          news      = fl_replica_broke(replica, why->message);
    replica->retry_ns       = fl_clock_ns() + wait;
    fl_log_write(fl_config_log(scheduler->config), news ? FL_LOG_ERROR : FL_LOG_DEBUG,
                 "provider %s, device %u cannot be opened (%s); next try in %.1f s",
                 replica->provider, replica->device, replica->failure, (double)wait / 1e9);
}

/* All engines, side by side where each has a device of its own: what takes long is to bring the weights
 * there. Groups of one processor take turns, since each would slow down the others. Those that do not
 * open begin as broken, unless none does: then it is the first's failure. */
FL_UNCHECKED static int open_engines(fl_replicas *set, const fl_engine_options *options,
                                     bool together, fletch_error *error) {
    uint32_t opened = 0;
    opening *all    = fl_alloc_zero(set->count, sizeof *all);
    if (!all)
        return fl_fail_nomem(error, set->count * sizeof *all, "the replicas");
    for (uint32_t r = 0; r < set->count; r++) {
        opening *o = &all[r];
        *o         = (opening){.replica = &set->replica[r], .options = options};
        bool apart = o->replica->cores ||
                     (together && r + 1 < set->count); /* the last one is this thread's */
        o->started =
            apart && fl_thread_start(&o->thread, "fletch-open", open_pinned, o, NULL) == FLETCH_OK;
        if (!o->started)
            open_one(o);
        if (o->started && !together) {
            pthread_join(o->thread, NULL);
            o->started = false;
        }
    }
    for (uint32_t r = 0; r < set->count; r++) {
        if (all[r].started)
            pthread_join(all[r].thread, NULL);
        opened += all[r].status == FLETCH_OK;
    }
    int status = opened > 0 ? FLETCH_OK : all[0].status;
    if (status < 0 && error)
        *error = all[0].error;
    for (uint32_t r = 0; r < set->count && opened > 0; r++)
        if (all[r].status < 0)
            fail_replica(&set->replica[r], &all[r].error);
    if (opened > 0 && opened < set->count)
        fl_log_write(options->log, FL_LOG_WARNING, "%u of %u replicas run the model", opened,
                     set->count);
    fl_free(all);
    return status;
}

FL_UNCHECKED static void close_replica(fl_replica *replica) {
    assert(replica->busy == 0 && replica->held == 0);
    if (replica->engine)
        replica->ops->close(replica->engine);
    for (uint32_t i = 0; i < replica->worker_count; i++)
        fl_worker_close(&replica->workers[i]);
    fl_free(replica->workers);
    fl_free(replica->cores);
}

/* One provider of the chain (fl_provider_fn): those of its devices that open, one at least. */
FL_UNCHECKED static int open_all(void *arg, const fl_engine_ops *ops, const char *provider,
                                 const fl_engine_options *options, fletch_error *error) {
    fl_replicas *set     = arg;
    uint32_t     devices = ops->devices ? ops->devices(options) : 1;
    uint32_t     groups  = groups_of(set, provider);
    uint32_t     most    = devices > groups ? devices : groups;
    int          status  = FLETCH_OK;
    uint32_t     threads = groups > 1 ? fl_cpu_usable() / groups : options->threads;
    set->budget          = tokens_of(set, ops, threads);
    set->batch_tokens =
        set->budget > set->scheduler->batch_tokens ? set->budget : set->scheduler->batch_tokens;
    set->replica = fl_alloc_zero(most, sizeof *set->replica);
    if (!set->replica)
        return fl_fail_nomem(error, most * sizeof *set->replica, "the replicas");
    for (uint32_t d = 0; d < most && status == FLETCH_OK; d++) {
        uint32_t device = groups > 1 ? 0 : d;
        if (groups > 1 || device_chosen(set->config, provider, device))
            status = add_replica(set, ops, provider, device, groups, error);
    }
    if (status == FLETCH_OK && set->count == 0)
        status = fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "provider %s has %u devices, and provider.devices (%s) "
                         "names none of them",
                         provider, devices, fl_config_origin(set->config, FL_KEY_PROVIDER_DEVICES));
    if (status == FLETCH_OK)
        warn_missing(set->config, provider, devices);
    if (status == FLETCH_OK)
        status = open_engines(set, options, groups == 1, error);
    for (uint32_t r = 0; r < set->count && status == FLETCH_OK; r++)
        status = open_workers(&set->replica[r], &fl_replicas_first(set)->info, error);
    if (status == FLETCH_OK)
        return status;
    while (set->count > 0)
        close_replica(&set->replica[--set->count]);
    set->workers = 0;
    fl_free(set->replica);
    set->replica = NULL;
    return status;
}

int fl_replicas_open(fl_replicas **out, fl_scheduler *scheduler, fl_config *config, bool own_config,
                     fletch_error *error) {
    assert(scheduler->owner && scheduler->encoder && scheduler->batch_tokens > 0);
    *out             = NULL;
    fl_replicas *set = fl_alloc_zero(1, sizeof *set);
    if (!set)
        return fl_fail_nomem(error, sizeof *set, "the replicas");
    set->scheduler = scheduler;
    set->config    = config;
    int status     = fl_provider_walk(scheduler, config, NULL, open_all, set, error);
    if (status < 0) {
        fl_free(set);
        return status;
    }
    set->own_config = own_config;
    *out            = set;
    return FLETCH_OK;
}

/* ---- Who is free ---------------------------------------------------------------------------------- */

/* A worker that `by_caller` may use: one that a caller's thread may run, its own thread inside a callback
 * included, or one whose own thread sleeps and can be woken. */
FL_LOCKED static bool may_use(const fl_worker *worker, bool by_caller) {
    assert(worker->replica->busy <= worker->replica->worker_count);
    if (worker->busy || worker->batch_failed || fl_worker_is_spare(worker))
        return false;
    if (!by_caller)
        return worker->sleeping;
    return worker->replica->info.any_thread ||
           (worker->away && pthread_equal(worker->thread, pthread_self()));
}

FL_LOCKED static bool less_loaded(const fl_replica *a, const fl_replica *b) {
    if (a->outstanding != b->outstanding)
        return a->outstanding < b->outstanding;
    return a->cold && !b->cold;
}

fl_worker *fl_worker_find_free(fl_replicas *set, bool by_caller) {
    fl_worker *best = NULL;
    for (uint32_t r = 0; r < set->count; r++) {
        fl_replica *replica = &set->replica[r];
        if (replica->broken || !replica->engine || replica->busy == replica->worker_count)
            continue;
        if (best && !less_loaded(replica, best->replica))
            continue;
        for (uint32_t s = 0; s < replica->worker_count; s++)
            if (may_use(&replica->workers[s], by_caller))
                best = &replica->workers[s];
    }
    return best;
}

fl_replica *fl_replicas_first(const fl_replicas *set) {
    for (uint32_t r = 0; r < set->count; r++)
        if (fl_replica_is_open(&set->replica[r]))
            return &set->replica[r];
    return NULL;
}

void fl_replica_hold(fl_replica *replica) {
    assert(fl_replica_is_open(replica));
    replica->held++;
}

void fl_replica_let_go(fl_replica *replica) {
    assert(replica->held > 0);
    if (--replica->held > 0)
        return;
    pthread_cond_broadcast(&replica->set->scheduler->left); /* closing the set may wait for it */
    pthread_cond_signal(&replica->workers[0].wake);         /* and so may mending the replica */
}

bool fl_replicas_usable(const fl_replicas *set) {
    for (uint32_t r = 0; r < set->count; r++)
        if (!set->replica[r].broken || set->replica[r].failures == 0)
            return true;
    return false;
}

/* ---- A broken replica ------------------------------------------------------------------------ */

/* This one replica, on whatever provider opens (fl_provider_fn). Who looks at it meanwhile has the
 * lock. */
static int open_again(void *arg, const fl_engine_ops *ops, const char *provider,
                      const fl_engine_options *options, fletch_error *error) {
    fl_replica   *replica   = arg;
    fl_scheduler *scheduler = replica->set->scheduler;
    bool          elsewhere;
    fl_scheduler_lock(scheduler);
    elsewhere         = strcmp(replica->provider, provider) != 0;
    replica->ops      = ops;
    replica->provider = provider;
    replica->device   = strcmp(provider, replica->home) == 0 ? replica->home_device : 0;
    fl_scheduler_unlock(scheduler);
    if (elsewhere)
        fl_log_write(options->log, FL_LOG_WARNING, "replica %u continues with provider %s",
                     replica->number, provider);
    return open_engine(replica, options, error);
}

/* Nothing runs any more: what waits has no engine to wait for. */
FL_LOCKED static void fail_everything(fl_scheduler *scheduler, const fletch_error *why,
                                      fl_request **over) {
    assert(why->code < 0);
    while (scheduler->failed_batches) {
        fl_worker *worker         = scheduler->failed_batches;
        scheduler->failed_batches = worker->next_failed;
        worker->batch_failed      = false;
        worker->error             = *why;
        fl_worker_fail(worker, over);
        pthread_cond_signal(&worker->wake);
    }
    scheduler->owner->fail_all(scheduler->model, why, over);
}

/* Whether another replica of the set is ready: then this one waits for its own device. */
FL_LOCKED static bool others_work(const fl_replica *replica) {
    for (uint32_t r = 0; r < replica->set->count; r++)
        if (r != replica->number && !replica->set->replica[r].broken)
            return true;
    return false;
}

/* A device that came later may take less than those that are open. */
FL_LOCKED static void keep_to(fl_scheduler *scheduler, uint32_t most) {
    assert(scheduler->adapt.least <= scheduler->adapt.most);
    fl_adapt *adapt = &scheduler->adapt;
    if (most == 0 || most >= adapt->most)
        return;
    fl_adapt_init(adapt, adapt->target_ns, adapt->least < most ? adapt->least : most, most);
    scheduler->queue.rules.max_tokens = adapt->budget;
}

/* Away from home: when to look next. */
FL_LOCKED static void plan_look(fl_replica *replica) {
    bool     away = strcmp(replica->provider, replica->home) != 0;
    uint32_t bits = replica->looks < 20 ? replica->looks : 20;
    uint64_t wait = look_first_ns << bits;
    replica->looks += away;
    replica->looks = away ? replica->looks : 0;
    replica->look_ns =
        away ? fl_clock_ns() + (wait < look_most_ns ? wait : look_most_ns) : UINT64_MAX;
}

/* A replica that works, but elsewhere: where its own provider can be had again it counts as broken, which
 * opens it from the head of the chain. (unlocks meanwhile) */
FL_LOCKED static void look_home(fl_replica *replica) {
    assert(!replica->broken && !replica->mending);
    fl_scheduler *scheduler = replica->set->scheduler;
    fl_scheduler_unlock(scheduler);
    bool back =
        fl_provider_is_usable(scheduler, replica->set->config, replica->home, replica->home_device);
    fl_scheduler_lock(scheduler);
    plan_look(replica);
    if (!back || replica->broken)
        return;
    char why[64];
    snprintf(why, sizeof why, "provider %s may be available again", replica->home);
    fl_replica_broke(replica, why);
    replica->failures = 0; /* who comes meanwhile waits */
    replica->retry_ns = 0;
}

/* Close and open the engine of a broken replica; its workers are idle. (unlocks meanwhile) */
FL_LOCKED static void reopen(fl_replica *replica, fl_request **over) {
    assert(replica->broken && !replica->mending && replica->busy == 0 && replica->held == 0);
    fl_scheduler *scheduler = replica->set->scheduler;
    fl_engine    *engine    = replica->engine;
    fletch_error  error     = {0};
    replica->engine         = NULL;
    replica->mending        = true;
    const char *before      = replica->provider;
    const char *provider    = others_work(replica) ? replica->home : NULL;
    fl_scheduler_unlock(scheduler);
    if (engine)
        replica->ops->close(engine);
    int status =
        fl_provider_walk(scheduler, replica->set->config, provider, open_again, replica, &error);
    if (status == FLETCH_OK && strcmp(before, replica->provider) != 0)
        scheduler->owner->moved(scheduler->model);
    fl_scheduler_lock(scheduler);
    replica->mending = false;
    if (status == FLETCH_OK) {
        scheduler->epoch++;
        replica->broken     = false;
        replica->failure[0] = '\0';
        replica->cold       = true;
        plan_look(replica);
        for (uint32_t i = 0; i < replica->worker_count; i++)
            replica->workers[i].touched = 0;
        if (replica->set == scheduler->replicas)
            keep_to(scheduler, replica->info.most_tokens);
        fl_stats_add(&scheduler->stats, FLETCH_COUNT_REPLICA_REOPENS, 1);
        fl_log_write(fl_config_log(scheduler->config), FL_LOG_INFO,
                     "provider %s, device %u is open", replica->provider, replica->device);
        return;
    }
    fail_replica(replica, &error);
    error.code  = FLETCH_EPROVIDER;
    error.where = FLETCH_NOWHERE; /* a place in the model, say: no text of those who wait */
    if (replica->set == scheduler->replicas && !fl_replicas_usable(replica->set))
        fail_everything(scheduler, &error, over);
}

/* ---- The thread of a worker -------------------------------------------------------------------- */

FL_LOCKED static void deliver(fl_worker *worker, fl_request **over) {
    assert(!worker->away);
    fl_scheduler *scheduler = worker->replica->set->scheduler;
    if (!*over)
        return;
    worker->away = true;
    fl_scheduler_dispatch(scheduler);
    fl_scheduler_unlock(scheduler);
    scheduler->owner->deliver(scheduler->model, *over);
    *over = NULL;
    fl_scheduler_lock(scheduler);
    worker->away = false;
}

/* Sleep until woken or `due`. */
FL_LOCKED static void sleep_until(fl_worker *worker, uint64_t due) {
    assert(!worker->sleeping);
    worker->armed_ns = due;
    worker->sleeping = true;
    fl_cond_wait_until(&worker->wake, &worker->replica->set->scheduler->lock, due);
    worker->sleeping = false;
    worker->armed_ns = UINT64_MAX;
}

/* For the trace. */
FL_LOCKED static void name_thread(const fl_worker *worker) {
    const fl_replica *replica = worker->replica;
    char              name[32];
    snprintf(name, sizeof name, "%s %u slot %u", replica->provider, replica->number,
             worker->number);
    if (replica->set->scheduler->trace)
        fl_trace_thread(replica->set->scheduler->trace, name);
}

static void *drive(void *arg) {
    fl_worker    *worker    = arg;
    fl_replica   *replica   = worker->replica;
    fl_replicas  *set       = replica->set;
    fl_scheduler *scheduler = set->scheduler;
    fl_request   *over      = NULL;
    pin_to(replica);
    fl_scheduler_lock(scheduler);
    name_thread(worker);
    while (!set->stop || worker->batch_failed || worker->busy) {
        uint64_t now = fl_clock_ns(), due = UINT64_MAX;
        bool     idle  = replica->busy == 0 && replica->held == 0;
        bool     first = worker->number == 0 && !set->stop;
        bool     mends = replica->broken && first && idle;
        if (mends && now >= replica->retry_ns) {
            reopen(replica, &over);
            fl_scheduler_dispatch(scheduler);
        } else if (first && !replica->broken && now >= replica->look_ns) {
            look_home(replica);
        } else if (fl_worker_take(worker, now, &due)) {
            fl_worker_run(worker, &over);
        } else if (set->workers == 1 || replica->broken ||
                   !scheduler->owner->tokenize(scheduler->model, &over)) {
            uint64_t look = first && !replica->broken ? replica->look_ns : UINT64_MAX;
            sleep_until(worker, mends ? replica->retry_ns : look < due ? look : due);
        }
        deliver(worker, &over);
    }
    fl_scheduler_unlock(scheduler);
    return NULL;
}

int fl_replicas_start(fl_replicas *set, fletch_error *error) {
    assert(set->count > 0);
    for (uint32_t r = 0; r < set->count; r++) {
        fl_replica *replica = &set->replica[r];
        for (uint32_t s = 0; s < replica->worker_count; s++) {
            fl_worker *worker = &replica->workers[s];
            FL_TRY(fl_thread_start(&worker->thread, "fletch-worker", drive, worker, error));
            worker->started = true;
        }
    }
    return FLETCH_OK;
}

/* Who asks an engine what it is doing (devices.c) is gone after that. */
static void wait_until_let_go(fl_replica *replica) {
    fl_scheduler *scheduler = replica->set->scheduler;
    fl_scheduler_lock(scheduler);
    while (replica->held > 0)
        fl_cond_wait_until(&scheduler->left, &scheduler->lock, UINT64_MAX);
    fl_scheduler_unlock(scheduler);
}

void fl_replicas_close(fl_replicas *set) {
    if (!set)
        return;
    fl_scheduler_lock(set->scheduler);
    set->stop = true;
    for (uint32_t r = 0; r < set->count; r++)
        for (uint32_t s = 0; s < set->replica[r].worker_count; s++)
            pthread_cond_signal(&set->replica[r].workers[s].wake);
    fl_scheduler_unlock(set->scheduler);
    for (uint32_t r = 0; r < set->count; r++)
        for (uint32_t s = 0; s < set->replica[r].worker_count; s++)
            if (set->replica[r].workers[s].started)
                pthread_join(set->replica[r].workers[s].thread, NULL);
    for (uint32_t r = 0; r < set->count; r++) {
        wait_until_let_go(&set->replica[r]);
        close_replica(&set->replica[r]);
    }
    fl_free(set->replica);
    if (set->own_config)
        fletch_config_free(set->config);
    fl_free(set);
}
