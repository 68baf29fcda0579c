/* SPDX-License-Identifier: Apache-2.0 */
/* ort_devices.c - how many devices a provider has on this machine.
 *
 * Role    The runtime opens a replica on each device that provider.devices names; ort_engine.c tells it
 *         how many there are.
 * Method  ONNX Runtime lists the devices of providers that it knows as plugins, and of DirectML; what
 *         it lists is the truth. CUDA and TensorRT as they are built into the library list nothing:
 *         there the driver is asked, which honours CUDA_VISIBLE_DEVICES as the provider itself does.
 *         CoreML is one device, whose units coreml.compute_units chooses.
 * Limits  A machine whose driver does not answer counts as one device: the provider was usable, so
 *         the first is there.
 * Memory  none. Threads: any.
 * Proof   tests/unit/test_onnxruntime.c: the real library lists one processor; a stand-in driver has
 *         three devices. */
#include <dlfcn.h>
#include <string.h>

#include "engines/onnxruntime/ort.h"

#if defined(_WIN32)
#define CUDA_DRIVER "nvcuda.dll"
#else
#define CUDA_DRIVER "libcuda.so.1"
#endif

const OrtEpDevice *fl_ort_device_listed(const fl_ort *ort, const char *theirs, uint32_t index) {
    const OrtEpDevice *const *all    = NULL;
    size_t                    count  = 0;
    OrtStatus                *status = ort->api.GetEpDevices(ort->env, &all, &count);
    if (status != NULL) {
        ort->api.ReleaseStatus(status);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        if (strcmp(ort->api.EpDevice_EpName(all[i]), theirs) == 0 && index-- == 0)
            return all[i];
    return NULL;
}

uint32_t fl_ort_driver_devices(const char *name) {
    int (*start)(unsigned);
    int (*count)(int *);
    int   devices = 0;
    void *driver  = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver == NULL)
        return 0;
    void *starts = dlsym(driver, "cuInit"), *counts = dlsym(driver, "cuDeviceGetCount");
    memcpy(&start, &starts, sizeof start); /* ISO C has no cast from object to function pointer */
    memcpy(&count, &counts, sizeof count);
    if (starts == NULL || counts == NULL || start(0) != 0 || count(&devices) != 0)
        devices = 0;
    dlclose(driver); /* stays mapped */
    return devices > 0 ? (uint32_t)devices : 0;
}

uint32_t fl_ort_devices_count(const fl_ort *ort, const fl_engine_options *options) {
    const char *theirs = fl_ort_provider_name(options), *name = options->provider;
    uint32_t    count = 0;
    while (theirs != NULL && fl_ort_device_listed(ort, theirs, count) != NULL)
        count++;
    if (count == 0 && (strcmp(name, "cuda") == 0 || strcmp(name, "tensorrt") == 0))
        count = fl_ort_driver_devices(CUDA_DRIVER);
    return count > 0 ? count : 1;
}
