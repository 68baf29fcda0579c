/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - a libcuda.so.1 without a GPU: the functions that the module's table names.
 *
 * Role    Tests of the CUDA engine's host side: order, sizes, faults, leaks. Not its speed.
 * Method  A stream is a thread that takes tasks in
 *         order, so that what the product forgets to wait for goes wrong here too. A captured
 *         stream records its tasks; a graph's launch queues copies of them. An event holds a
 *         ticket. Strict where the real driver is: no current context, a copy beyond an
 *         allocation, waiting on a stream that captures, are errors. A failure that ends a context
 *         stays until the last who holds that context lets it go. memory.c has blocks and pools.
 *         A device that hangs keeps its streams' threads, and whoever calls what would wait for it.
 * Faults  See driver.h.
 * Threads any; one lock for accounts, one per stream and event. */
#include "driver.h"
#undef cuEventElapsedTime /* the engine asks for the name that every driver has */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"
#include "sim.h"

enum { DEVICES_MOST = SIM_DEVICES, CONTEXTS_MOST = 16, NO_DEVICE = SIM_NO_DEVICE };

/* ---- State ----------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    int             devices, major, minor, version;
    size_t          memory;
    struct CUctx_st context[DEVICES_MOST];
    unsigned        due[SIM_KINDS]; /* calls until the fault; 0: none */
    CUresult        fault[SIM_KINDS];
    int             faulty; /* the device that a fault is for; NO_DEVICE: any */
    bool            stays;  /* a fault that ends a context takes the device for good */
    unsigned        meet, met;
    pthread_cond_t  came;
    const char     *hang; /* a file */
    bool            started;
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .faulty = NO_DEVICE, .came = PTHREAD_COND_INITIALIZER};

static atomic_int      lost[DEVICES_MOST]; /* CUresult that every call gives */
static pthread_mutex_t copying[DEVICES_MOST] = {[0 ... DEVICES_MOST - 1] =
                                                    PTHREAD_MUTEX_INITIALIZER};
static atomic_bool     gone[DEVICES_MOST]; /* for good: no new context helps */
static atomic_bool     hangs[DEVICES_MOST];
static atomic_ulong    calls[SIM_KINDS], objects;

static _Thread_local CUcontext stack[CONTEXTS_MOST];
static _Thread_local unsigned  depth;

CUcontext sim_current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

/* What every call gives that concerns the current device. */
CUresult sim_state(void) {
    return sim_current() == NULL ? CUDA_SUCCESS
                                 : (CUresult)atomic_load(&lost[sim_current()->device]);
}

static bool is_fatal(CUresult r) {
    return r == CUDA_ERROR_LAUNCH_FAILED || r == CUDA_ERROR_ILLEGAL_ADDRESS ||
           r == CUDA_ERROR_ECC_UNCORRECTABLE || r == CUDA_ERROR_DEVICE_UNAVAILABLE ||
           r == CUDA_ERROR_LAUNCH_TIMEOUT;
}

static bool does_hang(int device) {
    bool meant = sim.faulty == NO_DEVICE || sim.faulty == device;
    return atomic_load(&hangs[device]) ||
           (meant && sim.hang != NULL && access(sim.hang, F_OK) == 0);
}

void sim_settle(int device) {
    static const struct timespec moment = {0, 1000000};
    for (int i = 0; i < DEVICES_MOST; i++)
        while ((device == NO_DEVICE || device == i) && does_hang(i))
            (void)nanosleep(&moment, NULL);
}

/* One call of a kind: whether it may go on. */
CUresult sim_gate(sim_kind kind) {
    CUresult r      = sim_state();
    int      device = sim_current() != NULL ? sim_current()->device : NO_DEVICE;
    atomic_fetch_add(&calls[kind], 1);
    if (r != CUDA_SUCCESS)
        return r;
    pthread_mutex_lock(&sim.lock);
    bool here = sim.faulty == NO_DEVICE || sim.faulty == device;
    if (here && sim.due[kind] > 0 && --sim.due[kind] == 0)
        r = sim.fault[kind];
    pthread_mutex_unlock(&sim.lock);
    if (is_fatal(r) && device != NO_DEVICE) { /* from then on it neither computes nor copies */
        pthread_mutex_lock(&copying[device]);
        atomic_store(&lost[device], (int)r);
        atomic_store(&gone[device], sim.stays);
        pthread_mutex_unlock(&copying[device]);
    }
    return r;
}

VISIBLE void sim_fault(sim_kind kind, unsigned n, CUresult result) {
    pthread_mutex_lock(&sim.lock);
    sim.due[kind]   = n;
    sim.fault[kind] = result;
    pthread_mutex_unlock(&sim.lock);
}

VISIBLE void sim_heal(void) {
    for (int i = 0; i < SIM_KINDS; i++)
        sim_fault((sim_kind)i, 0, CUDA_SUCCESS);
    for (int i = 0; i < DEVICES_MOST; i++) {
        atomic_store(&lost[i], CUDA_SUCCESS);
        atomic_store(&gone[i], false);
        atomic_store(&hangs[i], false);
    }
}

VISIBLE void sim_hang(int device) {
    atomic_store(&hangs[device], true);
}

VISIBLE void sim_lose(int device) {
    atomic_store(&gone[device], true);
    atomic_store(&lost[device], CUDA_ERROR_ECC_UNCORRECTABLE);
}

VISIBLE unsigned long sim_calls(sim_kind kind) {
    return atomic_load(&calls[kind]);
}

VISIBLE unsigned long sim_objects(void) {
    return atomic_load(&objects);
}

void sim_count(int by) {
    if (by > 0)
        atomic_fetch_add(&objects, 1);
    else
        atomic_fetch_sub(&objects, 1);
}

size_t sim_memory(void) {
    return sim.memory;
}

CUresult sim_need_context(void) {
    CUresult r = sim_state();
    return r != CUDA_SUCCESS       ? r
           : sim_current() == NULL ? CUDA_ERROR_INVALID_CONTEXT
                                   : CUDA_SUCCESS;
}

/* ---- Start and devices ----------------------------------------------------------------------- */

static long long setting(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoll(text, NULL, 10) : otherwise;
}

static void read_fault(void) {
    static const char *const kinds[SIM_KINDS] = {"alloc", "host",   "launch", "copy",
                                                 "graph", "object", "pool"};
    const char              *text             = getenv("SIM_CUDA_FAULT");
    char                     kind[16];
    unsigned                 n = 0, result = 0;
    sim.stays  = setting("SIM_CUDA_FAULT_STAYS", 0) != 0;
    sim.hang   = getenv("SIM_CUDA_HANG");
    sim.meet   = (unsigned)setting("SIM_CUDA_MEET", 0);
    sim.faulty = (int)setting("SIM_CUDA_FAULT_DEVICE", NO_DEVICE);
    if (text == NULL || sscanf(text, "%15[a-z]:%u:%u", kind, &n, &result) != 3)
        return;
    for (int i = 0; i < SIM_KINDS; i++)
        if (strcmp(kind, kinds[i]) == 0)
            sim_fault((sim_kind)i, n, (CUresult)result);
}

VISIBLE CUresult cuInit(unsigned flags) {
    bool first;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim.lock);
    const char *capability = getenv("SIM_CUDA_CAPABILITY");
    long long   devices    = setting("SIM_CUDA_DEVICES", 1);
    sim.devices            = (int)(devices > DEVICES_MOST ? DEVICES_MOST : devices);
    sim.memory             = (size_t)setting("SIM_CUDA_MEMORY", 8LL << 30);
    if (capability == NULL || sscanf(capability, "%d.%d", &sim.major, &sim.minor) != 2) {
        sim.major = 9;
        sim.minor = 0;
    }
    for (int i = 0; i < DEVICES_MOST; i++)
        sim.context[i].device = i;
    first       = !sim.started;
    sim.started = true;
    pthread_mutex_unlock(&sim.lock);
    if (first)
        read_fault();
    return sim.devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

VISIBLE CUresult cuDriverGetVersion(int *version) {
    *version = (int)setting("SIM_CUDA_DRIVER", 13000);
    return CUDA_SUCCESS;
}

typedef struct named_result {
    CUresult    result;
    const char *name, *text;
} named_result;

static const named_result *name_of(CUresult result) {
    static const named_result results[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
        {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
        {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
        {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
        {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
         "an illegal memory access was encountered"},
        {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
        {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE",
         "uncorrectable ECC error encountered"}};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].result == result)
            return &results[i];
    return NULL;
}

VISIBLE CUresult cuGetErrorName(CUresult result, const char **name) {
    const named_result *found = name_of(result);
    *name                     = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

VISIBLE CUresult cuGetErrorString(CUresult result, const char **text) {
    const named_result *found = name_of(result);
    *text                     = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

VISIBLE CUresult cuDeviceGetCount(int *count) {
    *count = sim.devices;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < sim.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

VISIBLE CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    snprintf(name, (size_t)size, "Simulated GPU %d", device);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuDeviceGetPCIBusId(char *bus, int size, CUdevice device) {
    snprintf(bus, (size_t)size, "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = sim.memory;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = sim.major; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = sim.minor; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 2; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = (int)setting("SIM_CUDA_POOLS", 1);
        return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- Contexts and modules -------------------------------------------------------------------- */

VISIBLE CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult r = atomic_load(&gone[device]) ? CUDA_ERROR_ECC_UNCORRECTABLE : sim_gate(SIM_OBJECT);
    if (r != CUDA_SUCCESS)
        return r;
    pthread_mutex_lock(&sim.lock);
    sim.context[device].retained++;
    pthread_mutex_unlock(&sim.lock);
    sim_count(1);
    *context = &sim.context[device];
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    sim_settle(device);
    pthread_mutex_lock(&sim.lock);
    bool held = sim.context[device].retained > 0;
    sim.context[device].retained -= held;
    if (sim.context[device].retained == 0 && !atomic_load(&gone[device]))
        atomic_store(&lost[device], CUDA_SUCCESS);
    pthread_mutex_unlock(&sim.lock);
    if (held)
        sim_count(-1);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

VISIBLE CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (depth == CONTEXTS_MOST || context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

struct CUmod_st {
    int unused;
};

struct CUfunc_st {
    char             *name; /* owned */
    size_t            param_bytes;
    struct CUfunc_st *next;
};

static struct CUfunc_st *functions; /* of the process, never freed: names are few */

/* Whether SIM_CUDA_MEET threads were in here at the same time: engines that are opened one after the
 * other never are. The patience only ends what would hang. */
static bool met_others(void) {
    enum { PATIENCE = 300 };
    struct timespec until;
    bool            late = false;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    pthread_mutex_lock(&sim.lock);
    sim.met++;
    pthread_cond_broadcast(&sim.came);
    while (sim.met < sim.meet && !late)
        late = pthread_cond_timedwait(&sim.came, &sim.lock, &until) != 0;
    pthread_mutex_unlock(&sim.lock);
    return !late;
}

VISIBLE CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CUresult r = sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_OBJECT);
    if (r != CUDA_SUCCESS)
        return r;
    if (image == NULL || !met_others())
        return CUDA_ERROR_INVALID_IMAGE;
    *module = calloc(1, sizeof **module);
    sim_count(1);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuModuleUnload(CUmodule module) {
    sim_settle(sim_current() != NULL ? sim_current()->device : NO_DEVICE);
    free(module);
    sim_count(-1);
    return sim_state();
}

VISIBLE CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    if (module == NULL || !sim_has(name))
        return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&sim.lock);
    CUfunction f = functions;
    while (f != NULL && strcmp(f->name, name) != 0)
        f = f->next;
    if (f == NULL) {
        f              = calloc(1, sizeof *f);
        f->name        = strdup(name);
        f->param_bytes = sim_param_size(name);
        f->next        = functions;
        functions      = f;
    }
    pthread_mutex_unlock(&sim.lock);
    *function = f;
    return CUDA_SUCCESS;
}

/* ---- Streams --------------------------------------------------------------------------------- */

typedef struct task {
    struct task *next;
    int (*run)(void *arg);
    size_t bytes;
    _Alignas(16) unsigned char arg[];
} task;

typedef struct task_list {
    task *first, **last;
} task_list;

struct CUgraph_st {
    task_list tasks;
};

struct CUgraphExec_st {
    task_list tasks;
};

struct CUstream_st {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    pthread_t       thread;
    task_list       tasks;
    bool            busy, closing, invalid;
    int             device;
    CUgraph         capture; /* NULL: not capturing */
};

static void append(task_list *list, task *t) {
    t->next = NULL;
    if (list->first == NULL)
        list->last = &list->first;
    *list->last = t;
    list->last  = &t->next;
}

static task *make_task(int (*run)(void *), const void *arg, size_t bytes) {
    task *t = malloc(sizeof *t + bytes);
    *t      = (task){.run = run, .bytes = bytes};
    memcpy(t->arg, arg, bytes);
    return t;
}

static void free_tasks(task_list *list) {
    for (task *t = list->first; t != NULL;) {
        task *next = t->next;
        free(t);
        t = next;
    }
    list->first = NULL;
}

static void *serve(void *arg) {
    CUstream s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->tasks.first == NULL && !s->closing)
            pthread_cond_wait(&s->changed, &s->lock);
        task *t = s->tasks.first;
        if (t == NULL)
            break;
        s->tasks.first = t->next;
        s->busy        = true;
        pthread_mutex_unlock(&s->lock);
        sim_settle(s->device);
        if (t->run(t->arg) != 0)
            atomic_store(&lost[s->device], CUDA_ERROR_LAUNCH_FAILED);
        free(t);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Capturing: into the graph; else to the stream's thread. */
static CUresult put(CUstream s, task *t) {
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&s->lock);
    if (s->invalid) {
        free(t);
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else {
        append(s->capture != NULL ? &s->capture->tasks : &s->tasks, t);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

VISIBLE CUresult sim_enqueue(CUstream stream, int (*run)(void *), const void *arg, size_t bytes) {
    CUresult r = sim_need_context();
    if (r != CUDA_SUCCESS)
        return r;
    if (stream == NULL || stream->device != sim_current()->device)
        return CUDA_ERROR_INVALID_VALUE;
    return put(stream, make_task(run, arg, bytes));
}

VISIBLE CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    (void)flags;
    CUresult r = sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_OBJECT);
    if (r != CUDA_SUCCESS)
        return r;
    CUstream s = calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->device = sim_current()->device;
    pthread_create(&s->thread, NULL, serve, s);
    sim_count(1);
    *out = s;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuStreamSynchronize(CUstream s) {
    pthread_mutex_lock(&s->lock);
    bool capturing = s->capture != NULL;
    s->invalid     = s->invalid || capturing;
    while (!capturing && (s->busy || s->tasks.first != NULL))
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : sim_state();
}

VISIBLE CUresult cuStreamQuery(CUstream s) {
    if (s == NULL) /* the default stream, which nothing is put into but blocks of pools */
        return sim_need_context();
    pthread_mutex_lock(&s->lock);
    bool capturing = s->capture != NULL;
    bool busy      = s->busy || s->tasks.first != NULL;
    s->invalid     = s->invalid || capturing;
    pthread_mutex_unlock(&s->lock);
    return capturing                     ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
           : sim_state() != CUDA_SUCCESS ? sim_state()
           : busy                        ? CUDA_ERROR_NOT_READY
                                         : CUDA_SUCCESS;
}

VISIBLE CUresult cuStreamDestroy_v2(CUstream s) {
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    if (s->capture != NULL) {
        free_tasks(&s->capture->tasks);
        free(s->capture);
        sim_count(-1);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    sim_count(-1);
    return sim_state();
}

/* ---- Events ---------------------------------------------------------------------------------- */

struct CUevent_st {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    uint64_t        recorded, completed; /* tickets */
    uint64_t        when;                /* of the last that completed, ns */
    unsigned        holders;             /* tasks that will touch it, and its owner */
};

typedef struct ticket {
    CUevent  event;
    uint64_t number;
} ticket;

/* The last holder frees it, as the driver does with an event that is destroyed early. */
static void let_go(CUevent e) {
    pthread_mutex_lock(&e->lock);
    bool last = --e->holders == 0;
    pthread_mutex_unlock(&e->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

static int run_record(void *arg) {
    const ticket   *t = arg;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&t->event->lock);
    if (t->number > t->event->completed)
        t->event->completed = t->number;
    t->event->when = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    pthread_cond_broadcast(&t->event->changed);
    pthread_mutex_unlock(&t->event->lock);
    let_go(t->event);
    return 0;
}

static int run_wait(void *arg) {
    const ticket *t = arg;
    pthread_mutex_lock(&t->event->lock);
    while (t->event->completed < t->number)
        pthread_cond_wait(&t->event->changed, &t->event->lock);
    pthread_mutex_unlock(&t->event->lock);
    let_go(t->event);
    return 0;
}

VISIBLE CUresult cuEventCreate(CUevent *out, unsigned flags) {
    (void)flags;
    CUresult r = sim_need_context();
    if (r == CUDA_SUCCESS)
        r = sim_gate(SIM_OBJECT);
    if (r != CUDA_SUCCESS)
        return r;
    CUevent e = calloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->holders = 1;
    sim_count(1);
    *out = e;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    pthread_mutex_lock(&start->lock);
    uint64_t from = start->when;
    pthread_mutex_unlock(&start->lock);
    pthread_mutex_lock(&end->lock);
    *milliseconds = (float)(1e-6 * (double)(end->when - from));
    pthread_mutex_unlock(&end->lock);
    return sim_state();
}

VISIBLE CUresult cuEventDestroy_v2(CUevent e) {
    let_go(e);
    sim_count(-1);
    return sim_state();
}

VISIBLE CUresult cuEventRecord(CUevent e, CUstream s) {
    if (s->capture != NULL)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&e->lock);
    ticket t = {e, ++e->recorded};
    e->holders++;
    pthread_mutex_unlock(&e->lock);
    CUresult r = sim_enqueue(s, run_record, &t, sizeof t);
    if (r != CUDA_SUCCESS)
        run_record(&t);
    return r;
}

VISIBLE CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&e->lock);
    ticket t = {e, e->recorded};
    e->holders++;
    pthread_mutex_unlock(&e->lock);
    CUresult r = sim_enqueue(s, run_wait, &t, sizeof t);
    if (r != CUDA_SUCCESS)
        let_go(e);
    return r;
}

VISIBLE CUresult cuEventQuery(CUevent e) {
    pthread_mutex_lock(&e->lock);
    bool done = e->completed >= e->recorded;
    pthread_mutex_unlock(&e->lock);
    CUresult r = sim_state();
    return r != CUDA_SUCCESS ? r : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* ---- Copies and launches --------------------------------------------------------------------- */

typedef struct copy {
    void       *to;
    const void *from;
    size_t      bytes;
    int         device;
} copy;

/* Whoever hears that the device is lost may free what a copy of it read. */
static int run_copy(void *arg) {
    const copy *c = arg;
    pthread_mutex_lock(&copying[c->device]);
    if (atomic_load(&lost[c->device]) == CUDA_SUCCESS)
        memcpy(c->to, c->from, c->bytes);
    pthread_mutex_unlock(&copying[c->device]);
    return 0;
}

static CUresult enqueue_copy(copy c, const void *on_device, CUstream s) {
    CUresult r = sim_gate(SIM_COPY);
    if (r != CUDA_SUCCESS)
        return r;
    if (!sim_is_device(on_device, c.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    c.device = sim_current()->device;
    return sim_enqueue(s, run_copy, &c, sizeof c);
}

VISIBLE CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
    copy c = {(void *)(uintptr_t)to, from, bytes, NO_DEVICE};
    return enqueue_copy(c, c.to, s);
}

VISIBLE CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
    copy c = {to, (const void *)(uintptr_t)from, bytes, NO_DEVICE};
    return enqueue_copy(c, c.from, s);
}

enum { PARAM_MOST = 512 };

typedef struct launch {
    CUfunction function;
    int        device;
    unsigned   grid[3], block[3];
    _Alignas(16) unsigned char param[PARAM_MOST];
} launch;

static int run_launch(void *arg) {
    launch *l = arg;
    if (atomic_load(&lost[l->device]) != CUDA_SUCCESS)
        return 0; /* a device that failed computes nothing more */
    int failed = sim_launch(l->function->name, l->grid, l->block, 0, l->param);
    if (failed != 0)
        fprintf(stderr, "simulated device: %s: %s\n", l->function->name, sim_error());
    return failed;
}

VISIBLE CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                unsigned by, unsigned bz, unsigned shared, CUstream s,
                                void **params, void **extra) {
    CUresult r = sim_gate(SIM_LAUNCH);
    if (r != CUDA_SUCCESS)
        return r;
    if (f == NULL || gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 ||
        bx * by * bz > 1024 || bx * by * bz == 0 || shared > 48 << 10 || extra != NULL ||
        f->param_bytes > PARAM_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    launch l = {.function = f,
                .device   = sim_current()->device,
                .grid     = {gx, gy, gz},
                .block    = {bx, by, bz}};
    memcpy(l.param, params[0], f->param_bytes);
    return sim_enqueue(s, run_launch, &l, sizeof l);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* The other modes forbid what threads of the product do meanwhile: take memory, load modules. */
VISIBLE CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
    CUresult r = sim_need_context();
    if (r != CUDA_SUCCESS)
        return r;
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (s->capture != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    s->capture = calloc(1, sizeof *s->capture);
    s->invalid = false;
    sim_count(1);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuStreamEndCapture(CUstream s, CUgraph *graph) {
    *graph = NULL;
    if (s->capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    *graph     = s->capture;
    s->capture = NULL;
    if (!s->invalid)
        return sim_state();
    s->invalid = false;
    cuGraphDestroy(*graph);
    *graph = NULL;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

VISIBLE CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                             unsigned long long flags) {
    CUresult r = sim_gate(SIM_GRAPH);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    for (const task *t = graph->tasks.first; t != NULL; t = t->next)
        append(&(*out)->tasks, make_task(t->run, t->arg, t->bytes));
    sim_count(1);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuGraphDestroy(CUgraph graph) {
    free_tasks(&graph->tasks);
    free(graph);
    sim_count(-1);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuGraphExecDestroy(CUgraphExec exec) {
    free_tasks(&exec->tasks);
    free(exec);
    sim_count(-1);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuGraphLaunch(CUgraphExec exec, CUstream s) {
    CUresult r = sim_gate(SIM_LAUNCH);
    for (const task *t = exec->tasks.first; t != NULL && r == CUDA_SUCCESS; t = t->next)
        r = sim_enqueue(s, t->run, t->arg, t->bytes);
    return r;
}
