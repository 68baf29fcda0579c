/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_profile.c - how long each kernel of a batch took on the device, for profile.file.
 *
 * Role    cuda_layers.c marks the stream behind every launch, cuda_forward.c tells the trace when the
 *         batch is done. bench/gpu/kernel_times.py makes a table of it.
 * When    only with profile.file and without graphs, whose launches have no time of their own.
 * Method  An event behind each launch; what lies between two is the launch's, with the gap before it
 *         (about a microsecond), so that the times of a batch add up to the whole. No counters of the
 *         device are read: it works where a profiler is not allowed.
 * Memory  FL_CUDA_MARKS events a slot, made at the first batch. Threads: the slot's.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include "base/mem.h"
#include "engines/cuda/cuda_engine.h"

struct fl_cuda_marks {
    CUevent     events[FL_CUDA_MARKS + 1]; /* owned */
    const char *names[FL_CUDA_MARKS];      /* static */
    uint32_t    count;
};

static void begin(const fl_engine *e, fl_cuda_slot *slot) {
    fl_cuda_marks *m  = slot->marks != NULL ? slot->marks : fl_alloc_zero(1, sizeof *m);
    bool           ok = m != NULL;
    for (int i = 0; ok && slot->marks == NULL && i <= FL_CUDA_MARKS; i++)
        ok = e->cuda->cu.event_create(&m->events[i], CU_EVENT_DEFAULT) == CUDA_SUCCESS;
    slot->marks = m;
    if (ok)
        ok = e->cuda->cu.event_record(m->events[0], slot->stream) == CUDA_SUCCESS;
    if (!ok)
        fl_cuda_marks_close(e, slot);
    else
        m->count = 0;
}

void fl_cuda_marks_begin(const fl_engine *e, fl_cuda_slot *slot) {
    if (e->trace != NULL && !e->use_graphs)
        begin(e, slot);
}

void fl_cuda_mark(const fl_engine *e, const fl_cuda_slot *slot, const char *name) {
    fl_cuda_marks *m = slot->marks;
    if (m == NULL || m->count == FL_CUDA_MARKS)
        return;
    if (e->cuda->cu.event_record(m->events[m->count + 1], slot->stream) == CUDA_SUCCESS)
        m->names[m->count++] = name;
}

void fl_cuda_marks_tell(const fl_engine *e, const fl_cuda_slot *slot, uint32_t tokens) {
    fl_cuda_marks *m  = slot->marks;
    uint64_t       at = 0, end = fl_clock_ns();
    float          all = 0.0f;
    if (m == NULL || m->count == 0 ||
        e->cuda->cu.event_elapsed(&all, m->events[0], m->events[m->count]) != CUDA_SUCCESS)
        return;
    at = end - (uint64_t)(1e6 * (double)all); /* as if it had ended now */
    for (uint32_t i = 0; i < m->count; i++) {
        float ms = 0.0f;
        if (e->cuda->cu.event_elapsed(&ms, m->events[i], m->events[i + 1]) != CUDA_SUCCESS)
            break;
        uint64_t next = at + (uint64_t)(1e6 * (double)ms);
        fl_trace_span(e->trace, "cuda kernels", m->names[i], at, next, "tokens", tokens);
        at = next;
    }
    m->count = 0;
}

void fl_cuda_marks_close(const fl_engine *e, fl_cuda_slot *slot) {
    for (int i = 0; slot->marks != NULL && i <= FL_CUDA_MARKS; i++)
        if (slot->marks->events[i] != NULL)
            e->cuda->cu.event_destroy(slot->marks->events[i]);
    fl_free(slot->marks);
    slot->marks = NULL;
}
