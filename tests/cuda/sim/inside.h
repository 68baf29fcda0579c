/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h - what the files of the simulated driver share; driver.c has it all. */
#ifndef FL_TESTS_CUDA_SIM_INSIDE_H
#define FL_TESTS_CUDA_SIM_INSIDE_H

#include "driver.h"

#define VISIBLE __attribute__((visibility("default")))

enum { SIM_DEVICES = 8, SIM_NO_DEVICE = -1 };

struct CUctx_st {
    int      device;
    unsigned retained;
};

CUcontext sim_current(void);       /* NULL: none is */
CUresult  sim_state(void);         /* what every call gives on the current device */
CUresult  sim_need_context(void);  /* the same, and an error without a context */
CUresult  sim_gate(sim_kind kind); /* one call of a kind: whether it may go on */
void      sim_count(int by);       /* objects */
void      sim_settle(int device);  /* comes back when it does not hang; NO_DEVICE: none does */
size_t    sim_memory(void);        /* bytes of a device */

#endif
