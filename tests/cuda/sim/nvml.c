/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c - a libnvidia-ml.so.1 without a GPU: fixed figures for the devices of driver.c. */
#include <stddef.h>

#define VISIBLE __attribute__((visibility("default")))

VISIBLE int nvmlInit_v2(void);
VISIBLE int nvmlShutdown(void);
VISIBLE int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
VISIBLE int nvmlDeviceGetUtilizationRates(void *device, unsigned *out);
VISIBLE int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *out);

static int device_here;

int nvmlInit_v2(void) {
    return 0;
}

int nvmlShutdown(void) {
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    *device = &device_here;
    return bus == NULL;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *out) {
    out[0] = 42; /* compute */
    out[1] = 7;
    return device == NULL;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *out) {
    out[0] = 8000000000ULL; /* total, free, used */
    out[1] = 5000000000ULL;
    out[2] = 3000000000ULL;
    return device == NULL;
}
