/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cuda.c - a driver of three devices, for test_onnx_engine.c: the two functions that are asked. */
__attribute__((visibility("default"))) int cuInit(unsigned flags);
__attribute__((visibility("default"))) int cuDeviceGetCount(int *count);

static int started;

int cuInit(unsigned flags) {
    started = 1;
    return (int)flags;
}

int cuDeviceGetCount(int *count) {
    *count = 3;
    return started ? 0 : 3; /* CUDA_ERROR_NOT_INITIALIZED */
}
