/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c - a libnvidia-ml.so.1 without a GPU: made-up figures for the devices of driver.c, another one
 * for each, so that a test sees whose they are. */
#include <stddef.h>
#include <stdio.h>

#define VISIBLE __attribute__((visibility("default")))

VISIBLE int nvmlInit_v2(void);
VISIBLE int nvmlShutdown(void);
VISIBLE int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
VISIBLE int nvmlDeviceGetUtilizationRates(void *device, unsigned *out);
VISIBLE int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *out);

enum { DEVICES = 8, NOT_FOUND = 6 };

static unsigned numbers[DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7}; /* handles point here */

int nvmlInit_v2(void) {
    return 0;
}

int nvmlShutdown(void) {
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    unsigned number;
    if (sscanf(bus, "0000:%02x:00.0", &number) != 1 || number < 1 || number > DEVICES)
        return NOT_FOUND;
    *device = &numbers[number - 1];
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *out) {
    out[0] = 42 + *(unsigned *)device; /* compute */
    out[1] = 7;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *out) {
    out[0] = 8000000000ULL; /* total, free, used */
    out[2] = 3000000000ULL + 100000000ULL * *(unsigned *)device;
    out[1] = out[0] - out[2];
    return 0;
}
