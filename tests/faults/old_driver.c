/* SPDX-License-Identifier: Apache-2.0 */
/* old_driver.c - a libcuda.so.1 that is there and is of no use, for the libraries of onnxruntime-gpu.
 *
 * OLD_DRIVER_VERSION=N  the newest CUDA that it serves: 11040 is 11.4
 * OLD_DRIVER_START=N    what it answers when it is started: 100 without a card, 803 with a kernel module of
 *                       another version, 999 where that module does not answer
 * Built with -DOLDER it lacks what came with CUDA 12, as drivers from before it do. */
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))
EXPORTED int cuInit(unsigned flags);
EXPORTED int cuDriverGetVersion(int *version);
EXPORTED int cuDeviceGetCount(int *count);

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text == NULL ? otherwise : atoi(text);
}

int cuInit(unsigned flags) {
    (void)flags;
    return number("OLD_DRIVER_START", 0);
}

int cuDriverGetVersion(int *version) {
    *version = number("OLD_DRIVER_VERSION", 11040);
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

#ifndef OLDER
EXPORTED int cuTensorMapEncodeTiled(void);

int cuTensorMapEncodeTiled(void) {
    return 1;
}
#endif
