/* SPDX-License-Identifier: Apache-2.0 */
/* failing_vulkan.c - a libvulkan.so.1 that hands every call to the real one and fails where it is told to.
 *
 * Found by the loader in place of the system's (LD_LIBRARY_PATH), it makes a WebGPU device fail as a card would: the
 * library above it and everything of ours see the codes of a real driver, at real work.
 *
 * FAIL_VULKAN_LIBRARY  path of the real libvulkan.so.1
 * FAIL_VULKAN=device    no device can be made of an adapter
 * FAIL_VULKAN=shader    no shader is compiled
 * FAIL_VULKAN=pipeline  no shader becomes a program of the device
 * FAIL_VULKAN=memory    the device has no memory left
 * FAIL_VULKAN=submit    the device is lost when it is given work
 * FAIL_VULKAN_AT=N      from the Nth such call of the process on (1, the first, if it is not set)
 * FAIL_VULKAN_TIMES=N   so many of them; without it all
 * FAIL_VULKAN_BYTES=N   memory: requests for more than N bytes alone are such calls
 *
 * Types are Vulkan's, by what the calls take: handles and structs are passed on as they came. */
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    OK              = 0,
    OUT_OF_MEMORY   = -2, /* VK_ERROR_OUT_OF_DEVICE_MEMORY */
    NOT_INITIALISED = -3,
    LOST            = -4, /* VK_ERROR_DEVICE_LOST */
    UNKNOWN         = -13
};

typedef void (*any)(void);
typedef any (*address_of)(void *owner, const char *name);

/* The calls that can fail: their names, when, and by which code. */
typedef enum { DEVICE, SHADER, PIPELINE, MEMORY, SUBMIT, PLACES } place;
static const struct {
    const char *word, *name;
    int         code;
} places[PLACES] = {
    [DEVICE]   = {"device", "vkCreateDevice", NOT_INITIALISED},
    [SHADER]   = {"shader", "vkCreateShaderModule", UNKNOWN},
    [PIPELINE] = {"pipeline", "vkCreateComputePipelines", UNKNOWN},
    [MEMORY]   = {"memory", "vkAllocateMemory", OUT_OF_MEMORY},
    [SUBMIT]   = {"submit", "vkQueueSubmit", LOST},
};

static any         real[PLACES];
static address_of  real_of_instance, real_of_device;
static atomic_long calls[PLACES];

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtol(text, NULL, 10);
}

static bool fails(place at) {
    const char *asked = getenv("FAIL_VULKAN");
    const long  nth = ++calls[at], first = number("FAIL_VULKAN_AT", 1);
    return asked != NULL && strcmp(asked, places[at].word) == 0 && nth >= first &&
           nth - first < number("FAIL_VULKAN_TIMES", LONG_MAX);
}

static int of_four(place at, void *a, const void *b, const void *c, void *d) {
    int (*call)(void *, const void *, const void *, void *);
    memcpy(&call, &real[at], sizeof call);
    return fails(at) ? places[at].code : call(a, b, c, d);
}

static int create_device(void *a, const void *b, const void *c, void *d) {
    return of_four(DEVICE, a, b, c, d);
}

static int create_shader(void *a, const void *b, const void *c, void *d) {
    return of_four(SHADER, a, b, c, d);
}

/* Of what is asked for only the size is looked at, behind the struct's kind and its next one. */
static int allocate(void *a, const void *b, const void *c, void *d) {
    const struct {
        int         kind;
        const void *next;
        uint64_t    bytes;
    } *asked = b;
    if (asked->bytes > (uint64_t)number("FAIL_VULKAN_BYTES", 0))
        return of_four(MEMORY, a, b, c, d);
    int (*call)(void *, const void *, const void *, void *);
    memcpy(&call, &real[MEMORY], sizeof call);
    return call(a, b, c, d);
}

static int create_pipelines(void *device, uint64_t cache, uint32_t count, const void *infos,
                            const void *allocator, void *out) {
    int (*call)(void *, uint64_t, uint32_t, const void *, const void *, void *);
    memcpy(&call, &real[PIPELINE], sizeof call);
    return fails(PIPELINE) ? places[PIPELINE].code
                           : call(device, cache, count, infos, allocator, out);
}

static int submit(void *queue, uint32_t count, const void *submits, uint64_t fence) {
    int (*call)(void *, uint32_t, const void *, uint64_t);
    memcpy(&call, &real[SUBMIT], sizeof call);
    return fails(SUBMIT) ? places[SUBMIT].code : call(queue, count, submits, fence);
}

static any of_device(void *device, const char *name);
static any ours(const char *name, any theirs) {
    static any const mine[PLACES] = {[DEVICE]   = (any)create_device,
                                     [SHADER]   = (any)create_shader,
                                     [PIPELINE] = (any)create_pipelines,
                                     [MEMORY]   = (any)allocate,
                                     [SUBMIT]   = (any)submit};
    if (theirs != NULL && strcmp(name, "vkGetDeviceProcAddr") == 0) {
        memcpy(&real_of_device, &theirs, sizeof real_of_device);
        return (any)of_device;
    }
    for (place at = 0; at < PLACES; at++)
        if (theirs != NULL && strcmp(name, places[at].name) == 0) {
            real[at] = theirs;
            return mine[at];
        }
    return theirs;
}

static any of_device(void *device, const char *name) {
    return ours(name, real_of_device(device, name));
}

__attribute__((visibility("default"))) any vkGetInstanceProcAddr(void *instance, const char *name);

any vkGetInstanceProcAddr(void *instance, const char *name) {
    if (real_of_instance == NULL) {
        const char *path    = getenv("FAIL_VULKAN_LIBRARY");
        void       *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
        void       *symbol  = library == NULL ? NULL : dlsym(library, "vkGetInstanceProcAddr");
        if (symbol == NULL)
            return NULL;
        memcpy(&real_of_instance, &symbol, sizeof real_of_instance);
    }
    return ours(name, real_of_instance(instance, name));
}
