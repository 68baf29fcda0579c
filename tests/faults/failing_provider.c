/* SPDX-License-Identifier: Apache-2.0 */
/* failing_provider.c - a plug-in execution provider of ONNX Runtime that fails where it is told to.
 *
 * It takes no node of a graph, so that the processor's provider computes what it is opened for, and the vectors
 * are right; ONNX Runtime and everything of ours take it for a device.
 *
 * FAIL_PROVIDER=register  the library cannot be registered
 * FAIL_PROVIDER=abi       it is made for a later interface than the library has
 * FAIL_PROVIDER=hang      its registration never ends
 * FAIL_PROVIDER=devices   it lists no device
 * FAIL_PROVIDER=session   no session can be made with it
 * FAIL_PROVIDER=N         run N of the process (from 1, the one at opening counted) and all behind it fail
 * FAIL_TIMES=N            so many runs fail, and those behind them work again
 * FAIL_WORDS=TEXT         what failed runs say
 * FAIL_DEVICES=N          it lists N devices, else one
 *
 * Types and their order are ONNX Runtime's, of version 1.23 of its interface for such libraries. */
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { API = 23, LATER = 999, CREATE_STATUS = 0, GET_EP_API = 317, FAIL = 1 };

typedef struct status status;

typedef struct api_base {
    void *const *(*get_api)(uint32_t version);
} api_base;

typedef struct ep {
    uint32_t version;
    const char *(*name)(const void *self);
    status *(*capability)(void *self, const void *graph, void *support);
    void *compile, *release_compiled, *layout, *convert, *options;
    status *(*run_start)(void *self, const void *options_of_run);
    void *run_end, *allocator, *stream, *compatibility;
} ep;

typedef struct factory {
    uint32_t version;
    const char *(*name)(const void *self);
    const char *(*vendor)(const void *self);
    status *(*devices)(void *self, const void *const *hardware, size_t count, void **out,
                       size_t room, size_t *found);
    status *(*create)(void *self, const void *const *devices, const void *const *metadata,
                      size_t count, const void *options, const void *logger, ep **out);
    void (*release)(void *self, ep *one);
    uint32_t (*vendor_id)(const void *self);
    const char *(*release_of)(const void *self);
    void *validate;
    status *(*allocator)(void *self, const void *info, const void *options, void **out);
    void (*release_allocator)(void *self, void *allocator);
    status *(*transfer)(void *self, void **out);
    bool (*streams)(const void *self);
    status *(*stream)(void *self, const void *device, const void *options, void **out);
} factory;

static struct {
    status *(*fail)(int code, const char *words);
    status *(*device)(void *factory, const void *hardware, const void *metadata,
                      const void *options, void **out);
} ort;

static atomic_long runs;

static bool fails_at(const char *place) {
    const char *asked = getenv("FAIL_PROVIDER");
    return asked != NULL && strcmp(asked, place) == 0;
}

static const char *name(const void *self) {
    (void)self;
    return "FailingExecutionProvider";
}

static status *take_nothing(void *self, const void *graph, void *support) {
    (void)self, (void)graph, (void)support;
    return NULL;
}

static long number(const char *variable, long otherwise) {
    const char *asked = getenv(variable);
    return asked == NULL ? otherwise : strtol(asked, NULL, 10);
}

static status *start_run(void *self, const void *options) {
    const char *words = getenv("FAIL_WORDS");
    const long  first = number("FAIL_PROVIDER", 0), run = first > 0 ? ++runs : 0;
    (void)self, (void)options;
    if (first <= 0 || run < first || run - first >= number("FAIL_TIMES", LONG_MAX))
        return NULL;
    return ort.fail(FAIL, words != NULL ? words : "the device has fallen off the bus");
}

static ep one = {.version = API, .name = name, .capability = take_nothing, .run_start = start_run};

static status *list_devices(void *self, const void *const *hardware, size_t count, void **out,
                            size_t room, size_t *found) {
    const size_t wanted = (size_t)number("FAIL_DEVICES", 1);
    status      *failed = NULL;
    *found              = 0;
    if (fails_at("devices") || count == 0)
        return NULL;
    while (failed == NULL && *found < wanted && *found < room) {
        failed = ort.device(self, hardware[0], NULL, NULL, &out[*found]);
        *found += failed == NULL;
    }
    return failed;
}

static status *create(void *self, const void *const *devices, const void *const *metadata,
                      size_t count, const void *options, const void *logger, ep **out) {
    (void)self, (void)devices, (void)metadata, (void)count, (void)options, (void)logger;
    *out = &one;
    return fails_at("session") ? ort.fail(FAIL, "the device does not answer") : NULL;
}

static void release(void *self, ep *given) {
    (void)self, (void)given;
}

static uint32_t vendor_id(const void *self) {
    (void)self;
    return 0;
}

static const char *version(const void *self) {
    (void)self;
    return "1.0.0";
}

static status *no_allocator(void *self, const void *info, const void *options, void **out) {
    (void)self, (void)info, (void)options;
    *out = NULL;
    return NULL;
}

static void release_allocator(void *self, void *allocator) {
    (void)self, (void)allocator;
}

static status *no_transfer(void *self, void **out) {
    (void)self;
    *out = NULL;
    return NULL;
}

static bool has_streams(const void *self) {
    (void)self;
    return false;
}

static factory only = {.version           = API,
                       .name              = name,
                       .vendor            = name,
                       .devices           = list_devices,
                       .create            = create,
                       .release           = release,
                       .vendor_id         = vendor_id,
                       .release_of        = version,
                       .allocator         = no_allocator,
                       .release_allocator = release_allocator,
                       .transfer          = no_transfer,
                       .streams           = has_streams,
                       .stream            = no_allocator};

__attribute__((visibility("default"))) status *CreateEpFactories(const char     *registered,
                                                                 const api_base *base,
                                                                 const void *logger, factory **out,
                                                                 size_t room, size_t *count);
__attribute__((visibility("default"))) status *ReleaseEpFactory(factory *given);

status *CreateEpFactories(const char *registered, const api_base *base, const void *logger,
                          factory **out, size_t room, size_t *count) {
    (void)registered, (void)logger;
    while (fails_at("hang"))
        pause();
    void *const *api   = base->get_api(fails_at("abi") ? LATER : API);
    void *const *other = NULL;
    void *const *(*ep_api)(void);
    *count = 0;
    if (api == NULL)
        return NULL; /* as those of vendors do: nothing can be said without the interface */
    memcpy(&ort.fail, &api[CREATE_STATUS], sizeof ort.fail);
    memcpy(&ep_api, &api[GET_EP_API], sizeof ep_api);
    other = ep_api();
    memcpy(&ort.device, &other[0], sizeof ort.device);
    *count = room > 0;
    if (room > 0)
        *out = &only;
    return fails_at("register") ? ort.fail(FAIL, "the driver is of another version") : NULL;
}

status *ReleaseEpFactory(factory *given) {
    (void)given;
    return NULL;
}
