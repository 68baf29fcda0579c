/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - what each replica of a model, and the device under it, are doing now.
 *
 * Role    fletch_device_stats_get, the devices of fletch_stats_json; the server's metrics.
 * Method  What the scheduler knows is read under the lock. The engine is asked without it, since it
 *         asks a driver; it is held meanwhile, so that neither mending the replica nor reopening the
 *         model closes it.
 * Memory  an array for all of them at once. Threads: any.
 * Proof   tests/stress/test_schedule.c, tests/cli/test_cli_cuda.py, tests/server/test_cuda_metrics.py. */
#include "session/devices.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "requests/open_model.h"

static void copy_load(const fl_device_load *load, fletch_device_stats *out) {
    out->utilisation   = load->utilisation;
    out->memory_used   = load->memory_used;
    out->memory_total  = load->memory_total;
    out->pool_used     = load->pool_used;
    out->pool_peak     = load->pool_peak;
    out->pool_held     = load->pool_held;
    out->pool_requests = load->pool_takes;
    out->pool_hits     = load->pool_hits;
}

static void copy_ways(const fl_replica *replica, fletch_device_stats *out) {
    uint64_t *const fields[FL_WAYS] = {&out->zero_copy_inputs,  &out->copied_inputs,
                                       &out->zero_copy_outputs, &out->staged_outputs,
                                       &out->bound_runs,        &out->unbound_runs};
    for (size_t way = 0; way < FL_WAYS; way++)
        *fields[way] = atomic_load_explicit(&replica->ways[way], memory_order_relaxed);
}

/* (unlocks meanwhile) */
FL_LOCKED static void ask_engine(fletch_model *m, fl_replica *replica, fletch_device_stats *out) {
    fl_device_load load;
    fl_replica_hold(replica);
    fl_model_unlock(m);
    replica->ops->load(replica->engine, &load);
    fl_model_lock(m);
    fl_replica_let_go(replica);
    copy_load(&load, out);
}

bool fl_session_device(fletch_model *m, size_t index, fletch_device_stats *out) {
    memset(out, 0, sizeof *out);
    out->size        = sizeof *out;
    out->utilisation = -1;
    if (!m->has_engine)
        return false;
    fl_model_lock(m);
    fl_replica *replica =
        index < m->scheduler.replicas->count ? &m->scheduler.replicas->replica[index] : NULL;
    if (replica != NULL) {
        out->ready              = !replica->broken;
        out->slots_busy         = replica->busy;
        out->outstanding_tokens = replica->outstanding;
        out->batches            = atomic_load_explicit(&replica->batches, memory_order_acquire);
        out->tokens             = atomic_load_explicit(&replica->tokens, memory_order_relaxed);
        out->device             = replica->device;
        snprintf(out->provider, sizeof out->provider, "%s", replica->provider);
        copy_ways(replica, out);
        snprintf(out->failure, sizeof out->failure, "%s", replica->failure);
    }
    if (replica != NULL && fl_replica_is_open(replica)) {
        snprintf(out->name, sizeof out->name, "%s", replica->info.device);
        if (replica->ops->load != NULL)
            ask_engine(m, replica, out);
    }
    fl_model_unlock(m);
    return replica != NULL;
}

int fl_session_devices(fletch_model *m, fletch_device_stats **out, size_t *count,
                       fletch_error *error) {
    size_t most = 0;
    fl_model_lock(m);
    if (m->has_engine)
        most = m->scheduler.replicas->count;
    fl_model_unlock(m);
    *count = 0;
    *out   = fl_alloc_array(most, sizeof **out);
    if (*out == NULL)
        return fl_fail_nomem(error, most * sizeof **out, "the statistics of the devices");
    while (*count < most && fl_session_device(m, *count, &(*out)[*count]))
        ++*count;
    return FLETCH_OK;
}
