/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - what tests ask of the simulated CUDA driver beyond the driver's own functions.
 *
 * Role    driver.c is a libcuda.so.1 whose devices are plain memory and whose kernels run through
 *         sim.h. Tests link to it, so that the product's dlopen finds it, and steer it with these.
 * Environment (read at cuInit)
 *         SIM_CUDA_DEVICES=1  SIM_CUDA_MEMORY=8589934592 bytes each  SIM_CUDA_CAPABILITY=9.0
 *         SIM_CUDA_DRIVER=13000  SIM_CUDA_FAULT=kind:n:result (alloc, host, launch, copy, graph)
 *         SIM_CUDA_FAULT_DEVICE=-1 (any)  SIM_CUDA_FAULT_STAYS=0 (1: the device is gone for good)
 *         SIM_CUDA_POOL_STEP=33554432 by which pools grow
 *         SIM_CUDA_POOLS=1  SIM_CUDA_MEET=0 (modules that are loaded at the same time)
 *         SIM_CUDA_HANG=file: while it is there, SIM_CUDA_FAULT_DEVICE (-1: all of them) hangs
 *         cublaslt.c has its own. */
#ifndef FL_TESTS_CUDA_SIM_DRIVER_H
#define FL_TESTS_CUDA_SIM_DRIVER_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sim_kind {
    SIM_ALLOC,      /* cuMemAlloc, cuMemAllocFromPoolAsync */
    SIM_HOST_ALLOC, /* cuMemHostAlloc, cuMemHostRegister */
    SIM_LAUNCH,     /* cuLaunchKernel, also while capturing */
    SIM_COPY,       /* copies up and down */
    SIM_GRAPH,      /* cuGraphInstantiate */
    SIM_OBJECT,     /* contexts, modules, streams, events */
    SIM_POOL,       /* cuMemPoolCreate, cuMemPoolSetAttribute */
    SIM_KINDS
} sim_kind;

/* The n-th call of a kind from now (1: the next) fails with `result`; n 0: off. A result that ends a
 * context stays: every later call on that device fails with it, until nobody holds the context any
 * more, or sim_heal. */
void sim_fault(sim_kind kind, unsigned n, CUresult result);
void sim_lose(int device); /* for good: no new context is given either */
/* Nothing that is put on its streams ends, and no call that waits or frees comes back. */
void sim_hang(int device);
void sim_heal(void);

unsigned long sim_calls(sim_kind kind); /* since the start */
uint64_t      sim_used(int device);     /* bytes that are allocated on it now */
unsigned long sim_objects(void); /* contexts, modules, streams, events, graphs, blocks alive */

/* For the simulated cublasLt: run(copy of arg) on the stream in its order; 0 is success. */
CUresult sim_enqueue(CUstream stream, int (*run)(void *arg), const void *arg, size_t bytes);
/* How many products an algorithm of the simulated cublasLt has run. */
unsigned long sim_algo_runs(unsigned id);
/* How many products of e4m3 ran with fast sums, or without, which Hopper's tensor cores pay for. */
unsigned long sim_e4m3_runs(int fast);
/* Whether [at, at + bytes) lies in one allocation of a device. */
int sim_is_device(const void *at, size_t bytes);

#endif
