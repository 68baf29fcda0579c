/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_device.c - where fl-cuda-kernels runs: the simulated device, or a real one.
 *
 * Method  Simulated: device memory is host memory that ends at a page which nobody may touch, so
 *         that reading or writing past an allocation ends the program. Real: libcuda.so.1 is opened
 *         at run time, the first device's primary context is used, and the kernels come from a
 *         fatbin file, so that this program needs no toolkit.
 * Memory  All allocations of a case are in one list; release_all frees them. */
#include "kernels.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sim/sim.h"

enum { MOST_MEMORIES = 4096 };

typedef struct memory {
    void  *at, *pages;
    size_t mapped;
} memory;

/* The driver's functions that are needed, as cuda.h declares them. */
typedef struct driver {
    int (*init)(unsigned);
    int (*device)(int *, int);
    int (*attribute)(int *, int, int);
    int (*retain)(void **, int);
    int (*push)(void *);
    int (*stream)(void **, unsigned);
    int (*load)(void **, const void *);
    int (*function)(void **, void *, const char *);
    int (*allocate)(uint64_t *, size_t);
    int (*release)(uint64_t);
    int (*up)(uint64_t, const void *, size_t, void *);
    int (*down)(void *, uint64_t, size_t, void *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*synchronize)(void *);
    void *module, *queue; /* everything is in one stream */
    bool  open, bf16, e4m3;
} driver;

static driver cuda;
static memory memories[MOST_MEMORIES];
static size_t memory_count;
static void  *scratches[MOST_MEMORIES];
static size_t scratch_count;

static void die(const char *what) {
    fprintf(stderr, "fl-cuda-kernels: %s\n", what);
    exit(2);
}

static bool load_functions(void *library, char *why, size_t why_size) {
    const struct {
        const char *name;
        void      **slot;
    } names[] = {{"cuInit", (void **)&cuda.init},
                 {"cuDeviceGet", (void **)&cuda.device},
                 {"cuDeviceGetAttribute", (void **)&cuda.attribute},
                 {"cuDevicePrimaryCtxRetain", (void **)&cuda.retain},
                 {"cuCtxPushCurrent_v2", (void **)&cuda.push},
                 {"cuStreamCreate", (void **)&cuda.stream},
                 {"cuModuleLoadData", (void **)&cuda.load},
                 {"cuModuleGetFunction", (void **)&cuda.function},
                 {"cuMemAlloc_v2", (void **)&cuda.allocate},
                 {"cuMemFree_v2", (void **)&cuda.release},
                 {"cuMemcpyHtoDAsync_v2", (void **)&cuda.up},
                 {"cuMemcpyDtoHAsync_v2", (void **)&cuda.down},
                 {"cuLaunchKernel", (void **)&cuda.launch},
                 {"cuStreamSynchronize", (void **)&cuda.synchronize}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *names[i].slot = dlsym(library, names[i].name);
        if (*names[i].slot == NULL) {
            snprintf(why, why_size, "libcuda.so.1 has no %s", names[i].name);
            return false;
        }
    }
    return true;
}

static void *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    size_t size = 0, room = 1 << 20;
    char  *data = malloc(room);
    for (size_t got; data && (got = fread(data + size, 1, room - size, file)) > 0;) {
        size += got;
        if (size == room) {
            room *= 2;
            data = realloc(data, room);
        }
    }
    fclose(file);
    return data;
}

bool device_open(const char *image, char *why, size_t why_size) {
    if (image == NULL)
        return true;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, why_size, "no CUDA device: libcuda.so.1 cannot be opened");
        return false;
    }
    if (!load_functions(library, why, why_size))
        return false;
    int   device = 0, major = 0, minor = 0, status;
    void *context = NULL;
    if ((status = cuda.init(0)) != 0 || (status = cuda.device(&device, 0)) != 0 ||
        (status = cuda.retain(&context, device)) != 0 || (status = cuda.push(context)) != 0 ||
        (status = cuda.stream(&cuda.queue, 1)) != 0) {
        snprintf(why, why_size, "no CUDA device: the driver answers %d", status);
        return false;
    }
    cuda.attribute(&major, 75, device); /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    cuda.attribute(&minor, 76, device);
    void *data = read_file(image);
    if (data == NULL || (status = cuda.load(&cuda.module, data)) != 0) {
        snprintf(why, why_size, "%s: %s", image, data ? "the driver refuses it" : "cannot be read");
        free(data);
        return false;
    }
    free(data);
    cuda.open = true;
    cuda.bf16 = major >= 8;
    cuda.e4m3 = major > 8 || (major == 8 && minor >= 9);
    return true;
}

bool device_bf16(void) {
    return !cuda.open || cuda.bf16;
}

bool device_e4m3(void) {
    return !cuda.open || cuda.e4m3;
}

/* Ends at a page of no access; begins at a multiple of 16. */
static memory guarded(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (bytes + page - 1) / page * page;
    char  *at = mmap(NULL, used + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + used, page, PROT_NONE) != 0)
        die("out of memory");
    return (memory){at + (used - (bytes + 15) / 16 * 16), at, used + page};
}

void *upload(const void *data, size_t bytes) {
    memory m = {NULL, NULL, 0};
    if (memory_count == MOST_MEMORIES)
        die("a case with too many tensors");
    void *host = (void *)(uintptr_t)data, *filled = NULL;
    if (data == NULL) {
        filled = host = malloc(bytes);
        memset(host, 0xff, bytes);
    }
    if (cuda.open) {
        uint64_t at = 0;
        if (cuda.allocate(&at, bytes) != 0 || cuda.up(at, host, bytes, cuda.queue) != 0 ||
            cuda.synchronize(cuda.queue) != 0)
            die("the device's memory fails");
        m.at = (void *)(uintptr_t)at;
    } else {
        m = guarded(bytes);
        memcpy(m.at, host, bytes);
    }
    free(filled);
    memories[memory_count++] = m;
    return m.at;
}

void download(void *data, const void *device, size_t bytes) {
    if (!cuda.open)
        memcpy(data, device, bytes);
    else if (cuda.down(data, (uint64_t)(uintptr_t)device, bytes, cuda.queue) != 0 ||
             cuda.synchronize(cuda.queue) != 0)
        die("copying from the device fails: an earlier kernel failed");
}

/* 0 or the driver's answer. */
static int start(const char *name, uint32_t grid_x, uint32_t grid_y, uint32_t block,
                 const void *param) {
    void *function     = NULL;
    void *parameters[] = {(void *)(uintptr_t)param};
    int   status       = cuda.function(&function, cuda.module, name);
    return status ? status
                  : cuda.launch(function, grid_x, grid_y, 1, block, 1, 1, 0, cuda.queue, parameters,
                                NULL);
}

bool launch(const char *name, uint32_t grid_x, uint32_t grid_y, uint32_t block, const void *param,
            size_t param_size) {
    if (!cuda.open) {
        const unsigned grid[3] = {grid_x, grid_y, 1}, threads[3] = {block, 1, 1};
        bool           ok =
            sim_param_size(name) == param_size && sim_launch(name, grid, threads, 0, param) == 0;
        expect(ok, "%s: %s", name, sim_error());
        return ok;
    }
    int status = start(name, grid_x, grid_y, block, param);
    status     = status == 0 ? cuda.synchronize(cuda.queue) : status;
    expect(status == 0, "%s: the driver answers %d", name, status);
    return status == 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double launch_many(const char *name, uint32_t grid_x, uint32_t grid_y, uint32_t block,
                   const void *param, unsigned times) {
    double began = 0.0;
    for (unsigned i = 0; i < times + 3; i++) { /* three to warm up */
        if (i == 3 && cuda.synchronize(cuda.queue) == 0)
            began = now();
        if (start(name, grid_x, grid_y, block, param) != 0)
            die("a kernel cannot be launched");
    }
    if (cuda.synchronize(cuda.queue) != 0)
        die("a kernel failed");
    return (now() - began) / times;
}

void *scratch(size_t bytes) {
    if (scratch_count == MOST_MEMORIES)
        die("a case with too much memory of its own");
    void *at = calloc(1, bytes + 1);
    if (at == NULL)
        die("out of memory");
    scratches[scratch_count++] = at;
    return at;
}

void release_all(void) {
    while (memory_count > 0) {
        memory *m = &memories[--memory_count];
        if (cuda.open)
            cuda.release((uint64_t)(uintptr_t)m->at);
        else
            munmap(m->pages, m->mapped);
    }
    while (scratch_count > 0)
        free(scratches[--scratch_count]);
}
