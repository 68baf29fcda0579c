/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.h - NVIDIA's management library, where it is installed: how busy a device is, how full.
 *
 * Role     describe() adds its figures to the engine's own; nothing depends on it.
 * Method   The few declarations are written here, since the header comes with the driver's
 *          development package and not with every toolkit. They are part of its stable ABI.
 * Threads  the library's functions may be called from any. */
#ifndef FL_ENGINES_CUDA_NVML_H
#define FL_ENGINES_CUDA_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_nvml_utilization {
    unsigned compute, memory; /* per cent of the last sample period */
} fl_nvml_utilization;

typedef struct fl_nvml_memory {
    unsigned long long total, free, used; /* bytes */
} fl_nvml_memory;

typedef struct fl_nvml {
    bool usable;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_bus)(const char *bus, void **device);
    int (*utilization)(void *device, fl_nvml_utilization *out);
    int (*memory)(void *device, fl_nvml_memory *out);
} fl_nvml;

void fl_nvml_open(fl_nvml *nvml); /* usable false when there is none */
void fl_nvml_close(fl_nvml *nvml);

/* The figures of the device on this PCI bus ("0000:65:00.0"); false when they cannot be had. */
bool fl_nvml_read(const fl_nvml *nvml, const char *bus, fl_nvml_utilization *utilization,
                  fl_nvml_memory *memory);

#endif
