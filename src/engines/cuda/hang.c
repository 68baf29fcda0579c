/* SPDX-License-Identifier: Apache-2.0 */
/* hang.c - waiting for a device, but not for ever: one that does not answer is left alone until it does.
 *
 * Role    Every wait of the engine for its device. fl_cuda_close asks here first whether it may close.
 * Why     A call of the driver that waits has no limit: a kernel that never ends, or a card that fell off
 *         its bus without a word, would hold the thread, the texts and the end of the process.
 * Method  The state is asked for, in naps of a 64th of the time waited so far. After cuda.timeout_seconds
 *         the engine hangs: all its waits fail at once, and so do its forwards. None of it is given
 *         back: what frees memory waits too, and the device may yet write where it was told to. Such an
 *         engine is kept aside, and while any is, its device opens no other. Whoever looks at the
 *         device (probe, open) asks the streams kept aside; once all are done they are closed, and the
 *         device is as good as new. What frees waits for the work of other engines too: so closing waits,
 *         in the same way, for the batches that are under way, and is put off where another engine hangs.
 *         A lap of waiting counts for a second at most: the process may have stood still in it.
 * State   docs/providers.md promises it; only simulated devices have hung.
 * Memory  All of an engine that hangs, on device and host; buffers of the host that are registered
 *         wait with it (pinned.c).
 * Threads any; one lock.
 * Proof   tests/cuda/test_cuda_faults.c, tests/server/test_cuda_metrics.py: a simulated device whose work never ends
 *         and whose calls that wait do not come back. */
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/locked.h"
#include "engines/cuda/cuda_engine.h"

enum {
    SECONDS      = 60,
    NAP_PART     = 64,
    NAP_LEAST_NS = 20000,
    NAP_MOST_NS  = 1000000,
    LAP_MOST_NS  = 1000000000
};

static const uint64_t second = 1000000000;

FL_LOCK_ROLE(hang_role); /* process.lock */

static struct {
    pthread_mutex_t       lock;
    fl_engine *aside      FL_GUARDED_BY(hang_role); /* by next_open */
    fl_cuda_work *working FL_GUARDED_BY(hang_role); /* by next */
    uint64_t begun        FL_GUARDED_BY(hang_role); /* works so far */
    atomic_uint           hanging;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

FL_ACQUIRES(hang_role) FL_UNCHECKED static void lock(void) {
    pthread_mutex_lock(&process.lock);
}

FL_RELEASES(hang_role) FL_UNCHECKED static void unlock(void) {
    pthread_mutex_unlock(&process.lock);
}

void fl_cuda_hang_open(fl_engine *e, const fl_config *config) {
    int64_t seconds = config != NULL ? fl_config_int(config, FL_KEY_CUDA_TIMEOUT_SECONDS) : SECONDS;
    e->patience_ns  = seconds > 0 ? (uint64_t)seconds * second : UINT64_MAX;
}

bool fl_cuda_hangs(void) {
    return atomic_load(&process.hanging) > 0;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void give_up(fl_engine *e) {
    if (atomic_exchange(&e->hangs, true))
        return;
    atomic_fetch_add(&process.hanging, 1);
    fl_log_write(e->log, FL_LOG_ERROR,
                 "cuda: %s has not answered for %llu s (cuda.timeout_seconds); it is left alone "
                 "until it does",
                 e->name, (unsigned long long)(e->patience_ns / second));
}

static void doze(uint64_t waited) {
    uint64_t nap = waited / NAP_PART < NAP_LEAST_NS ? NAP_LEAST_NS : waited / NAP_PART;
    (void)nanosleep(&(struct timespec){0, (long)(nap < NAP_MOST_NS ? nap : NAP_MOST_NS)}, NULL);
}

CUresult fl_cuda_await(fl_engine *e, CUstream stream, CUevent event, uint64_t poll_ns) {
    const fl_cuda_calls *cu   = &e->cuda->cu;
    uint64_t             last = fl_clock_ns(), waited = 0;
    for (;;) {
        CUresult result = event != NULL ? cu->event_query(event) : cu->stream_query(stream);
        uint64_t now    = fl_clock_ns();
        waited += now - last < LAP_MOST_NS ? now - last : LAP_MOST_NS;
        last = now;
        if (result != CUDA_ERROR_NOT_READY)
            return result;
        if (waited >= e->patience_ns)
            give_up(e);
        if (atomic_load(&e->hangs))
            return CUDA_ERROR_LAUNCH_TIMEOUT;
        if (waited < poll_ns)
            continue;
        doze(waited);
    }
}

int fl_cuda_awaited(const fl_engine *e, CUresult result, int code, fletch_error *error,
                    const char *what) {
    if (result != CUDA_ERROR_LAUNCH_TIMEOUT || !atomic_load(&e->hangs))
        return fl_cuda_check(e->cuda, result, code, error, what);
    return fl_fail(error, code, FLETCH_NOWHERE,
                   "%s: %s has not answered for %llu s (cuda.timeout_seconds)", what, e->name,
                   (unsigned long long)(e->patience_ns / second));
}

/* ---- Work of all engines --------------------------------------------------------------------- */

void fl_cuda_work_begin(fl_cuda_work *work) {
    lock();
    *work           = (fl_cuda_work){process.working, process.begun++};
    process.working = work;
    unlock();
}

void fl_cuda_work_end(fl_cuda_work *work) {
    lock();
    fl_cuda_work **link = &process.working;
    while (*link != work)
        link = &(*link)->next;
    *link = work->next;
    unlock();
}

/* Whether all of the first `count` works have ended. */
static bool have_ended(uint64_t count) {
    bool ended = true;
    lock();
    for (const fl_cuda_work *w = process.working; w != NULL && ended; w = w->next)
        ended = w->number >= count;
    unlock();
    return ended;
}

static unsigned hanging(const fl_engine *e) {
    return e == NULL ? 0 : atomic_load(&e->hangs) + hanging(e->rescue);
}

bool fl_cuda_others_end(const fl_engine *e) {
    lock();
    uint64_t count = process.begun;
    unlock();
    uint64_t begin = fl_clock_ns();
    while (atomic_load(&process.hanging) <= hanging(e)) {
        if (have_ended(count))
            return true;
        doze(fl_clock_ns() - begin);
    }
    return false;
}

/* ---- Aside ----------------------------------------------------------------------------------- */

/* A driver that ended a kernel by itself says CUDA_ERROR_LAUNCH_TIMEOUT, too: that stream is done. */
static bool is_done(fl_engine *e, CUstream stream, bool patience) {
    if (patience)
        (void)fl_cuda_await(e, stream, NULL, 0);
    return e->cuda->cu.stream_query(stream) != CUDA_ERROR_NOT_READY;
}

/* Whether all streams of an engine have ended, the default one too, in whose order memory was taken; with `patience`
 * they are waited for. */
static bool all_done(fl_engine *e, bool patience) {
    uint32_t count = e->slots != NULL ? e->slot_count : 0;
    bool     done  = is_done(e, NULL, patience);
    for (uint32_t i = 0; i < count && done; i++)
        done = e->slots[i].stream == NULL || is_done(e, e->slots[i].stream, patience);
    if (done && e->transfer != NULL)
        done = is_done(e, e->transfer, patience);
    return done && (e->rescue == NULL || all_done(e->rescue, patience));
}

static bool is_busy(fl_engine *e, bool patience) {
    CUcontext popped;
    if (e->cuda->cu.context_push(e->context) != CUDA_SUCCESS)
        return false;
    bool busy = !all_done(e, patience);
    e->cuda->cu.context_pop(&popped);
    return busy;
}

/* Whether any engine that was kept aside on the device is not done yet. */
FL_REQUIRES(hang_role) static bool any_busy(CUdevice device) {
    for (fl_engine *e = process.aside; e != NULL; e = e->next_open)
        if (e->device == device && is_busy(e, false))
            return true;
    return false;
}

bool fl_cuda_keep_aside(fl_engine *e) {
    if (e->context == NULL)
        return false;
    bool busy = is_busy(e, true) || !fl_cuda_others_end(e);
    lock();
    bool keep = busy || any_busy(e->device);
    if (keep) {
        fl_cuda_pinned_leave(e);
        e->log        = NULL; /* which ends with the model */
        e->next_open  = process.aside;
        process.aside = e;
    }
    unlock();
    return keep;
}

void fl_cuda_hang_close(fl_engine *e) {
    if (e == NULL)
        return;
    if (atomic_exchange(&e->hangs, false))
        atomic_fetch_sub(&process.hanging, 1);
    fl_cuda_hang_close(e->rescue);
}

bool fl_cuda_device_hangs(CUdevice device) {
    fl_engine *done = NULL;
    lock();
    bool        hangs = any_busy(device);
    fl_engine **link  = &process.aside;
    while (*link != NULL) {
        fl_engine *e = *link;
        if (any_busy(e->device)) {
            link = &e->next_open;
            continue;
        }
        fl_cuda_hang_close(e); /* all of them before the first is closed */
        *link        = e->next_open;
        e->next_open = done;
        done         = e;
    }
    unlock();
    while (done != NULL) {
        fl_engine *e = done;
        done         = e->next_open;
        fl_cuda_close(e);
    }
    return hangs;
}
