/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_graph.c - captured launches: a whole forward pass started by one call.
 *
 * Role    cuda_forward.c runs a shape through this, between its copies.
 * Method  The first batch of a shape is launched kernel by kernel, which also lets the driver and
 *         cublasLt load what they need; the second is captured while its launches are made, and
 *         from then on the graph is launched. Addresses, grids and algorithms are the tier's, and
 *         counts are on the device, so one graph serves every batch of its shape. A slot keeps
 *         FL_CUDA_GRAPHS of them; the one unused for longest gives way. A capture that fails
 *         leaves the tier with single launches: slower, not wrong. Tiers beyond FL_CUDA_GRAPH_MOST
 *         are always launched singly: their kernels run for longer than launching takes, and
 *         capturing each of the many sizes of large batches would cost more than it saves.
 * Memory  the driver's, for each graph; counted in describe.
 * Threads one per slot.
 * Proof   tests/cuda/test_cuda_engine.c: the same bytes with and without. */
#include "base/error.h"
#include "engines/cuda/cuda_engine.h"

static fl_cuda_graph *find(fl_cuda_slot *slot, fl_cuda_shape shape) {
    for (int i = 0; i < FL_CUDA_GRAPHS; i++)
        if (slot->graphs[i].exec != NULL && slot->graphs[i].shape.tier == shape.tier &&
            slot->graphs[i].shape.mix == shape.mix)
            return &slot->graphs[i];
    return NULL;
}

/* A free place, made by dropping the least used graph if need be. */
static fl_cuda_graph *make_room(fl_engine *e, fl_cuda_slot *slot) {
    fl_cuda_graph *least = &slot->graphs[0];
    for (int i = 0; i < FL_CUDA_GRAPHS; i++) {
        if (slot->graphs[i].exec == NULL)
            return &slot->graphs[i];
        if (slot->graphs[i].used < least->used)
            least = &slot->graphs[i];
    }
    e->cuda->cu.graph_exec_destroy(least->exec);
    least->exec = NULL;
    atomic_fetch_sub(&e->captured, 1);
    return least;
}

/* Record a shape's launches. NULL when it cannot be; the launches were not made then. */
static CUgraphExec capture(fl_engine *e, fl_cuda_slot *slot, fl_cuda_shape shape,
                           fletch_error *error) {
    const fl_cuda_calls *cu    = &e->cuda->cu;
    CUgraph              graph = NULL;
    CUgraphExec          exec  = NULL;
    /* Relaxed: other threads may allocate meanwhile, and so may cublasLt. */
    if (cu->capture_begin(slot->stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS)
        return NULL;
    int      status = fl_cuda_enqueue(e, slot, shape, error);
    CUresult result = cu->capture_end(slot->stream, &graph); /* ends it in every case */
    if (status == FLETCH_OK && result == CUDA_SUCCESS)
        result = cu->graph_instantiate(&exec, graph, 0);
    if (graph != NULL)
        cu->graph_destroy(graph);
    return status == FLETCH_OK && result == CUDA_SUCCESS ? exec : NULL;
}

static fl_cuda_graph *add(fl_engine *e, fl_cuda_slot *slot, fl_cuda_shape shape,
                          fletch_error *error) {
    uint32_t    tokens = e->tiers[shape.tier].tokens;
    uint64_t    begin  = fl_trace_begin(e->trace);
    CUgraphExec exec   = capture(e, slot, shape, error);
    fl_trace_end(e->trace, "cuda capture", begin, "tokens", tokens);
    if (exec == NULL) {
        fl_log_write(e->log, FL_LOG_INFO, "cuda: a batch of %u tokens is not captured: %s", tokens,
                     error->message[0] ? error->message : "the driver refused");
        fl_error_clear(error);
        slot->no_graph[shape.tier] = true;
        return NULL;
    }
    fl_cuda_graph *graph = make_room(e, slot);
    *graph               = (fl_cuda_graph){.exec = exec, .shape = shape};
    atomic_fetch_add(&e->captured, 1);
    return graph;
}

int fl_cuda_run_shape(fl_engine *e, fl_cuda_slot *slot, fl_cuda_shape shape, fletch_error *error) {
    fletch_error   own;
    bool           small = e->use_graphs && e->tiers[shape.tier].tokens <= FL_CUDA_GRAPH_MOST;
    fl_cuda_graph *graph = small ? find(slot, shape) : NULL;
    bool          *seen  = &slot->seen[shape.tier][shape.mix];
    fl_error_clear(&own);
    if (graph == NULL && small && *seen && !slot->no_graph[shape.tier])
        graph = add(e, slot, shape, &own);
    if (graph == NULL) {
        int status = fl_cuda_enqueue(e, slot, shape, error);
        *seen      = status == FLETCH_OK;
        return status;
    }
    graph->used = ++slot->launches;
    atomic_fetch_add_explicit(&e->graph_launches, 1, memory_order_relaxed);
    return fl_cuda_check(e->cuda, e->cuda->cu.graph_launch(graph->exec, slot->stream),
                         FLETCH_EINTERNAL, error, "a captured batch cannot be launched");
}

void fl_cuda_graphs_close(const fl_engine *e, fl_cuda_slot *slot) {
    for (int i = 0; i < FL_CUDA_GRAPHS; i++)
        if (slot->graphs[i].exec != NULL)
            e->cuda->cu.graph_exec_destroy(slot->graphs[i].exec);
}
