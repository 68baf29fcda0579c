/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - NVIDIA's libraries as tables of functions, found when the first engine is opened.
 *
 * Role     The module links to nothing of CUDA. libcuda.so.1 comes with the driver of the machine,
 *          libcublasLt.so with a CUDA toolkit or a Python package, libnvidia-ml.so.1 with a driver
 *          that is installed in full. The runtime library cudart is not needed: kernels are
 *          loaded and launched by the driver itself.
 * In/Out   fl_cuda_acquire gives the one table of the process; each acquire has its release.
 * Method   Types come from cuda.h and cublasLt.h, names are looked up at run time: a function that
 *          is missing is named, with the driver's version and what to do about it.
 * Memory   A few hundred bytes; the libraries stay mapped, since their contexts are the process's.
 * Threads  any, at any time.
 * Proof    tests/cuda/test_cuda_engine.c on a simulated driver. */
#ifndef FL_ENGINES_CUDA_DRIVER_H
#define FL_ENGINES_CUDA_DRIVER_H

#include <cublasLt.h>
#include <cuda.h>
#include <stdbool.h>

#include "base/log.h"
#include "engines/cuda/nvml.h"

#undef cuEventElapsedTime /* drivers of CUDA 12 lack the name that newer headers put here */
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);

/* X(name here, name in libcuda.so.1) */
#define FL_CUDA_CALLS(X)                                                                           \
    X(init, cuInit)                                                                                \
    X(driver_version, cuDriverGetVersion)                                                          \
    X(error_name, cuGetErrorName)                                                                  \
    X(error_text, cuGetErrorString)                                                                \
    X(device_count, cuDeviceGetCount)                                                              \
    X(device_get, cuDeviceGet)                                                                     \
    X(device_name, cuDeviceGetName)                                                                \
    X(device_attribute, cuDeviceGetAttribute)                                                      \
    X(device_memory, cuDeviceTotalMem_v2)                                                          \
    X(device_bus, cuDeviceGetPCIBusId)                                                             \
    X(context_retain, cuDevicePrimaryCtxRetain)                                                    \
    X(context_release, cuDevicePrimaryCtxRelease_v2)                                               \
    X(context_push, cuCtxPushCurrent_v2)                                                           \
    X(context_pop, cuCtxPopCurrent_v2)                                                             \
    X(module_load, cuModuleLoadData)                                                               \
    X(module_unload, cuModuleUnload)                                                               \
    X(module_function, cuModuleGetFunction)                                                        \
    X(memory_info, cuMemGetInfo_v2)                                                                \
    X(memory_alloc, cuMemAlloc_v2)                                                                 \
    X(memory_free, cuMemFree_v2)                                                                   \
    X(host_alloc, cuMemHostAlloc)                                                                  \
    X(host_free, cuMemFreeHost)                                                                    \
    X(host_register, cuMemHostRegister_v2)                                                         \
    X(host_unregister, cuMemHostUnregister)                                                        \
    X(pool_create, cuMemPoolCreate)                                                                \
    X(pool_destroy, cuMemPoolDestroy)                                                              \
    X(pool_set, cuMemPoolSetAttribute)                                                             \
    X(pool_get, cuMemPoolGetAttribute)                                                             \
    X(pool_alloc, cuMemAllocFromPoolAsync)                                                         \
    X(copy_up, cuMemcpyHtoDAsync_v2)                                                               \
    X(copy_down, cuMemcpyDtoHAsync_v2)                                                             \
    X(stream_create, cuStreamCreate)                                                               \
    X(stream_destroy, cuStreamDestroy_v2)                                                          \
    X(stream_query, cuStreamQuery)                                                                 \
    X(stream_after, cuStreamWaitEvent)                                                             \
    X(capture_begin, cuStreamBeginCapture_v2)                                                      \
    X(capture_end, cuStreamEndCapture)                                                             \
    X(event_create, cuEventCreate)                                                                 \
    X(event_destroy, cuEventDestroy_v2)                                                            \
    X(event_record, cuEventRecord)                                                                 \
    X(event_query, cuEventQuery)                                                                   \
    X(event_elapsed, cuEventElapsedTime)                                                           \
    X(graph_instantiate, cuGraphInstantiateWithFlags)                                              \
    X(graph_destroy, cuGraphDestroy)                                                               \
    X(graph_exec_destroy, cuGraphExecDestroy)                                                      \
    X(graph_launch, cuGraphLaunch)                                                                 \
    X(launch, cuLaunchKernel)

/* X(name here, name in libcublasLt.so) */
#define FL_CUDA_LT_CALLS(X)                                                                        \
    X(create, cublasLtCreate)                                                                      \
    X(destroy, cublasLtDestroy)                                                                    \
    X(version, cublasLtGetVersion)                                                                 \
    X(status_name, cublasLtGetStatusName)                                                          \
    X(desc_create, cublasLtMatmulDescCreate)                                                       \
    X(desc_destroy, cublasLtMatmulDescDestroy)                                                     \
    X(desc_set, cublasLtMatmulDescSetAttribute)                                                    \
    X(layout_create, cublasLtMatrixLayoutCreate)                                                   \
    X(layout_destroy, cublasLtMatrixLayoutDestroy)                                                 \
    X(preference_create, cublasLtMatmulPreferenceCreate)                                           \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy)                                         \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute)                                        \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                   \
    X(algo_check, cublasLtMatmulAlgoCheck)                                                         \
    X(algo_get, cublasLtMatmulAlgoConfigGetAttribute)                                              \
    X(matmul, cublasLtMatmul)

#define FL_CUDA_MEMBER(name, symbol) __typeof__(symbol) *name;
typedef struct fl_cuda_calls {
    FL_CUDA_CALLS(FL_CUDA_MEMBER)
} fl_cuda_calls;

typedef struct fl_cuda_lt_calls {
    FL_CUDA_LT_CALLS(FL_CUDA_MEMBER)
} fl_cuda_lt_calls;
#undef FL_CUDA_MEMBER

typedef struct fl_cuda {
    fl_cuda_calls    cu;
    fl_cuda_lt_calls lt;
    fl_nvml          nvml;           /* nvml.usable says whether it is there */
    int              driver_version; /* 13000 */
    unsigned         lt_version;     /* 130100 */
    char             lt_path[256];
} fl_cuda;

/* The libraries, opened at the first call. `cublaslt` is the key cuda.cublaslt. EPROVIDER with the
 * reason and how to mend it. */
int  fl_cuda_acquire(const fl_cuda **out, const char *cublaslt, const fl_log *log,
                     fletch_error *error);
void fl_cuda_release(const fl_cuda *cuda); /* NULL is a no-op */

/* FLETCH_OK for CUDA_SUCCESS; ENOMEM when the device has no memory left, `code` for all else, with
 * the driver's name and text of the failure behind "what: ". */
int fl_cuda_check(const fl_cuda *cuda, CUresult result, int code, fletch_error *error,
                  const char *what);
int fl_cuda_lt_check(const fl_cuda *cuda, cublasStatus_t result, int code, fletch_error *error,
                     const char *what);

/* Opens libcublasLt.so where it is found: cublaslt.c. The handle stays open for good. */
int fl_cuda_lt_open(fl_cuda *cuda, const char *named, const fl_log *log, fletch_error *error);

/* Looks all names of a table up; NULL, or the first that is missing. */
typedef struct fl_cuda_symbol {
    const char *name;
    size_t      offset; /* of the pointer in the table */
} fl_cuda_symbol;
const char *fl_cuda_look_up(void *library, void *table, const fl_cuda_symbol *symbols,
                            size_t count);

#endif
