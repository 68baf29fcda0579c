/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c - open NVIDIA's management library and read two figures of it.
 *
 * Role    driver.c opens it with the driver, cuda_describe.c reads it.
 * Method  Everything about it is optional: a container often has the driver and not this library,
 *         and a virtual device may refuse a figure.
 * Memory  none of its own; the library stays mapped. Threads: open and close under the lock of
 *         driver.c, reading from any thread.
 * Proof   tests/cuda/test_cuda_engine.c with a simulated library. */
#include "engines/cuda/nvml.h"

#include <dlfcn.h>
#include <stddef.h>

#include "engines/cuda/driver.h"

static const fl_cuda_symbol symbols[] = {
    {"nvmlInit_v2", offsetof(fl_nvml, init)},
    {"nvmlShutdown", offsetof(fl_nvml, shutdown)},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(fl_nvml, by_bus)},
    {"nvmlDeviceGetUtilizationRates", offsetof(fl_nvml, utilization)},
    {"nvmlDeviceGetMemoryInfo", offsetof(fl_nvml, memory)},
};

void fl_nvml_open(fl_nvml *nvml) {
    nvml->usable = false;
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL)
        return;
    if (fl_cuda_look_up(handle, nvml, symbols, sizeof symbols / sizeof symbols[0]) == NULL)
        nvml->usable = nvml->init() == 0;
    dlclose(handle); /* stays mapped: RTLD_NODELETE */
}

void fl_nvml_close(fl_nvml *nvml) {
    if (nvml->usable)
        nvml->shutdown();
    nvml->usable = false;
}

bool fl_nvml_read(const fl_nvml *nvml, const char *bus, fl_nvml_utilization *utilization,
                  fl_nvml_memory *memory) {
    void *device;
    return nvml->usable && nvml->by_bus(bus, &device) == 0 &&
           nvml->utilization(device, utilization) == 0 && nvml->memory(device, memory) == 0;
}
