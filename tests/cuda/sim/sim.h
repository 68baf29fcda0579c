/* SPDX-License-Identifier: Apache-2.0 */
/* sim.h - the CUDA kernels on a machine without a GPU: start one by its name.
 *
 * Role     the simulated driver and fl-cuda-kernels launch through this; the kernels behind it are
 *          the product's .cu files, compiled for the host with tests/cuda/sim/lanes.cuh.
 * Method   blocks run one after another on the calling thread; the threads of a block are fibers,
 *          and a warp primitive or a barrier is a meeting of those that must take part.
 * Errors   0, or -1 with a line in sim_error(): an unknown name, a block whose threads do not meet
 *          (a lane missing, or two lanes at different primitives), shared memory overrun, a
 *          misaligned vector access that a device would refuse.
 * Threads  any number of launches at once; each OS thread has its own shared memory and fibers. */
#ifndef FL_TESTS_CUDA_SIM_H
#define FL_TESTS_CUDA_SIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Run kernel `name` over the grid to its end. `param` is the kernel's one argument structure. */
int sim_launch(const char *name, const unsigned grid[3], const unsigned block[3],
               size_t shared_bytes, const void *param);

/* 1 when a kernel of that name is linked in. */
int sim_has(const char *name);

/* Bytes of its argument structure, 0 when unknown. */
size_t sim_param_size(const char *name);

/* What went wrong in the last failed launch of this thread; "" before any. */
const char *sim_error(void);

#ifdef __cplusplus
}
#endif
#endif
