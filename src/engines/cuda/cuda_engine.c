/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_engine.c - the CUDA engine as engine.h wants it: open takes all it needs, forward only computes.
 *
 * Role    module.c gives its table to the core, whose loader forwards to it.
 * Method  open: libraries, device and its primary context, kernels by name, then the sizes that fit
 *         the device, weights, products and slots. A failure on the way undoes what was done:
 *         fl_cuda_close takes an engine at any stage. cuda_calibrate.c and rescue.c open a second engine
 *         aside of the first, in another precision.
 * Precision  auto: bf16 from compute capability 8.0 on, fp16 from 7.5 on, fp32 below. bf16 has the
 *         range of float32, so that no model overflows; fp16 has eight times its resolution and is
 *         there for those who ask (a text that overflows it is run in fp32: rescue.c). int8 keeps
 *         activations in the same 16-bit type, fp8 in bf16. fp32 never uses TF32.
 * Memory  See cuda_engine.h. resident_bytes is all of it on the device.
 * Threads  open and close one at a time per engine; forward one thread per slot, any thread.
 * Proof   tests/cuda/test_cuda_engine.c, tests/golden/test_cuda.py. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engines/cuda/check.h"
#include "engines/cuda/cuda_engine.h"
#include "engines/cuda/module.h"

enum {
    WORKSPACE_HOPPER = 32 << 20, /* what cublasLt's documents recommend for compute capability 9 */
    WORKSPACE        = 4 << 20,  /* and before; enough for partial sums of narrow products */
    NARROW           = 512,      /* hidden sizes below; on no device measured */
    PINNED           = CU_MEMHOSTALLOC_PORTABLE,
    LEAST_MAJOR      = 7,
    LEAST_MINOR      = 5
};

static const char no_answer[] = "does not answer; it is used again when it does";

/* ---- Probe ----------------------------------------------------------------------------------- */

static int acquire(const fl_cuda **out, const fl_engine_options *options, fletch_error *error) {
    const char *named =
        options->config != NULL ? fl_config_text(options->config, FL_KEY_CUDA_CUBLASLT) : "";
    return fl_cuda_acquire(out, named, options->log, error);
}

static int count_devices(const fl_cuda *cuda, int *count, fletch_error *error) {
    int status = fl_cuda_check(cuda, cuda->cu.device_count(count), FLETCH_EPROVIDER, error,
                               "cannot count the devices");
    if (status < 0 || *count > 0)
        return status;
    return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                   "the NVIDIA driver shows no device; see nvidia-smi and CUDA_VISIBLE_DEVICES");
}

static int check_capability(const char *name, int major, int minor, fletch_error *error) {
    if (major * 10 + minor >= LEAST_MAJOR * 10 + LEAST_MINOR)
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                   "%s has compute capability %d.%d; the kernels need 7.5 (Turing) or newer", name,
                   major, minor);
}

/* What a look at a device tells. */
typedef struct card {
    int    count, major, minor; /* devices; of the one that was asked for */
    size_t memory;
    char   name[96], versions[64];
} card;

static int look(const fl_engine_options *options, card *out, fletch_error *error) {
    const fl_cuda *cuda;
    CUdevice       device;
    *out = (card){.count = 0};
    FL_TRY(acquire(&cuda, options, error));
    const fl_cuda_calls *cu     = &cuda->cu;
    int                  status = count_devices(cuda, &out->count, error);
    if (status == FLETCH_OK && cu->device_get(&device, (int)options->device) == CUDA_SUCCESS) {
        cu->device_name(out->name, sizeof out->name, device);
        cu->device_memory(&out->memory, device);
        cu->device_attribute(&out->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
        cu->device_attribute(&out->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    }
    snprintf(out->versions, sizeof out->versions, "driver %d.%d, cublasLt %u",
             cuda->driver_version / 1000, cuda->driver_version % 1000 / 10, cuda->lt_version);
    fl_cuda_release(cuda);
    return status;
}

static void probe(const fl_engine_options *options, fl_probe *out) {
    fletch_error error;
    card         seen;
    fl_error_clear(&error);
    out->usable = look(options, &seen, &error) == FLETCH_OK &&
                  (seen.name[0] == '\0' ||
                   check_capability(seen.name, seen.major, seen.minor, &error) == FLETCH_OK);
    out->hangs = out->usable && fl_cuda_device_hangs((CUdevice)options->device);
    if (!out->usable)
        snprintf(out->reason, sizeof out->reason, "%.390s", error.message);
    else if (out->hangs)
        snprintf(out->reason, sizeof out->reason, "CUDA device %u %s", options->device, no_answer);
    else
        snprintf(out->reason, sizeof out->reason,
                 "%d %s: %s, %.1f GB, compute capability %d.%d; %s; experimental", seen.count,
                 seen.count == 1 ? "device" : "devices", seen.name, (double)seen.memory / 1e9,
                 seen.major, seen.minor, seen.versions);
}

static uint32_t devices(const fl_engine_options *options) {
    card seen;
    return look(options, &seen, NULL) == FLETCH_OK ? (uint32_t)seen.count : 0;
}

/* ---- Closing --------------------------------------------------------------------------------- */

static void close_slot(const fl_engine *e, fl_cuda_slot *slot) {
    const fl_cuda_calls *cu = &e->cuda->cu;
    fl_cuda_graphs_close(e, slot);
    fl_cuda_marks_close(e, slot);
    if (slot->uploaded != NULL)
        cu->event_destroy(slot->uploaded);
    if (slot->done != NULL)
        cu->event_destroy(slot->done);
    if (slot->stream != NULL)
        cu->stream_destroy(slot->stream);
    if (slot->input != NULL)
        cu->host_free(slot->input);
    if (slot->output != NULL)
        cu->host_free(slot->output);
}

/* All that needs the context to be current. */
static void close_in_context(fl_engine *e) {
    const fl_cuda_calls *cu = &e->cuda->cu;
    for (uint32_t i = 0; e->slots != NULL && i < e->slot_count; i++)
        close_slot(e, &e->slots[i]);
    if (e->transfer != NULL)
        cu->stream_destroy(e->transfer);
    fl_cuda_products_close(e);
    fl_cuda_stages_close(e);
    if (e->watch != NULL)
        cu->host_free(e->watch);
    if (e->module != NULL)
        cu->module_unload(e->module);
}

/* False: it cannot be given back now, for the context is damaged. */
static bool give_block(fl_engine *e) {
    return e->block == 0 || fl_cuda_give(e, &e->block, fl_cuda_resident(e));
}

/* A block of a pool outlives the context that it was taken in: a new one gives it back. */
static void give_block_anew(fl_engine *e) {
    const fl_cuda_calls *cu = &e->cuda->cu;
    CUcontext            popped;
    if (cu->context_retain(&e->context, e->device) != CUDA_SUCCESS)
        return;
    if (cu->context_push(e->context) == CUDA_SUCCESS) {
        give_block(e);
        cu->context_pop(&popped);
    }
    cu->context_release(e->device);
}

void fl_cuda_close(fl_engine *e) {
    CUcontext popped;
    if (e == NULL || fl_cuda_keep_aside(e))
        return;
    fl_cuda_hang_close(e);
    fl_cuda_close(e->rescue);
    fl_cuda_pinned_close(e);
    if (e->context != NULL) {
        bool pushed = e->cuda->cu.context_push(e->context) == CUDA_SUCCESS;
        close_in_context(e); /* after a lost device every call fails, and frees on the host only */
        bool given = give_block(e);
        if (pushed)
            e->cuda->cu.context_pop(&popped);
        e->cuda->cu.context_release(e->device);
        if (!given)
            give_block_anew(e);
        fl_cuda_memory_close(e);
    }
    fl_cuda_release(e->cuda);
    pthread_mutex_destroy(&e->rescue_lock);
    pthread_mutex_destroy(&e->lock);
    fl_free(e->slots);
    fl_free(e->gains);
    fl_free(e->layers);
    fl_free(e);
}

/* ---- Opening: the device --------------------------------------------------------------------- */

static int open_device(fl_engine *e, const fl_engine_options *options, fletch_error *error) {
    const fl_cuda_calls *cu    = &e->cuda->cu;
    int                  count = 0, status = count_devices(e->cuda, &count, error);
    if (status < 0)
        return status;
    if (options->device >= (uint32_t)count)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "no CUDA device %u; the driver shows %d", options->device, count);
    CUresult r = cu->device_get(&e->device, (int)options->device);
    if (r == CUDA_SUCCESS && fl_cuda_device_hangs(e->device))
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE, "CUDA device %u %s",
                       options->device, no_answer);
    if (r == CUDA_SUCCESS)
        r = cu->device_name(e->name, sizeof e->name, e->device);
    if (r == CUDA_SUCCESS)
        r = cu->device_bus(e->bus, sizeof e->bus, e->device);
    if (r == CUDA_SUCCESS)
        r = cu->device_attribute(&e->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                 e->device);
    if (r == CUDA_SUCCESS)
        r = cu->device_attribute(&e->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                 e->device);
    if (r == CUDA_SUCCESS)
        r = cu->context_retain(&e->context, e->device);
    return fl_cuda_check(e->cuda, r, FLETCH_EPROVIDER, error, "the device cannot be opened");
}

static bool is_at_least(const fl_engine *e, int major, int minor) {
    return e->major > major || (e->major == major && e->minor >= minor);
}

typedef struct precision {
    const char  *name;
    fl_cuda_type type, narrow;
    int          major, minor; /* the least compute capability */
} precision;

/* What `auto` and `fast` take is the first that the device has. int8 takes the 16-bit type of the device. */
static const precision precisions[] = {
    {"bf16", FL_CUDA_BF16, FL_CUDA_BF16, 8, 0}, {"fp16", FL_CUDA_F16, FL_CUDA_F16, 7, 5},
    {"fp32", FL_CUDA_F32, FL_CUDA_F32, 0, 0},   {"int8", FL_CUDA_BF16, FL_CUDA_Q8, 8, 0},
    {"int8", FL_CUDA_F16, FL_CUDA_Q8, 7, 5},    {"fp8", FL_CUDA_BF16, FL_CUDA_E4M3, 8, 9}};

static int choose_precision(fl_engine *e, const char *asked, fletch_error *error) {
    bool any = fl_engine_chooses(asked), known = any;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        const precision *p = &precisions[i];
        known              = known || strcmp(asked, p->name) == 0;
        if ((!any && strcmp(asked, p->name) != 0) || !is_at_least(e, p->major, p->minor))
            continue;
        e->type    = p->type;
        e->element = p->type == FL_CUDA_F32 ? sizeof(float) : sizeof(uint16_t);
        e->narrow  = p->narrow;
        snprintf(e->precision, sizeof e->precision, "%s", p->name);
        return FLETCH_OK;
    }
    if (known)
        return fl_fail(
            error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
            "provider.precision %s: %s has compute capability %d.%d, which lacks it; use "
            "auto or fp32",
            asked, e->name, e->major, e->minor);
    return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                   "provider.precision %s: the cuda engine computes in fp32, fp16, bf16, int8 and "
                   "fp8; use one of them or auto",
                   asked);
}

/* Sizes are cublasLt's rule; heads are multiples of 32 anyway. Where norms stand before the blocks nothing
 * norms an error away again: vectors fell to a cosine of 0.9948, which must be 0.995 (docs/cuda.md). */
static int check_fp8(const fl_engine *e, fletch_error *error) {
    enum { STEP = 16 };
    const fl_encoder_desc *d = &e->desc;
    if (e->narrow != FL_CUDA_E4M3)
        return FLETCH_OK;
    if (d->norm_place == FL_NORM_PRE)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "provider.precision fp8: pre-norm models lose too much accuracy; use auto");
    if (d->hidden % STEP == 0 && d->intermediate % STEP == 0)
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                   "provider.precision fp8: the model's hidden and intermediate sizes, %u and %u, "
                   "must be multiples of %d; use auto",
                   d->hidden, d->intermediate, STEP);
}

/* ---- Opening: kernels ------------------------------------------------------------------------ */

typedef struct kernel_name {
    const char *format; /* type, then head size */
    enum { ANY, Q8 } only;
} kernel_name;

static const kernel_name kernel_names[FL_CUDA_KERNELS] = {
    [FL_CUDA_EMBED]                 = {"fl_embed_%s", ANY},
    [FL_CUDA_ROTATE]                = {"fl_rotate_%s_%u", ANY},
    [FL_CUDA_ATTENTION_SHORT]       = {"fl_attention_short_%s_%u", ANY},
    [FL_CUDA_ATTENTION_LONG]        = {"fl_attention_long_%s_%u", ANY},
    [FL_CUDA_ATTENTION_SHORT_RULED] = {"fl_attention_short_ruled_%s_%u", ANY},
    [FL_CUDA_ATTENTION_LONG_RULED]  = {"fl_attention_long_ruled_%s_%u", ANY},
    [FL_CUDA_GLU]                   = {"fl_glu_%s", ANY},
    [FL_CUDA_RESIDUAL_NORM]         = {"fl_residual_norm_%s", ANY},
    [FL_CUDA_BIAS_ACT]              = {"fl_bias_act_%s", ANY},
    [FL_CUDA_POOL]                  = {"fl_pool_%s", ANY},
    [FL_CUDA_QUANTIZE]              = {"fl_quantize_%s", Q8},
    [FL_CUDA_DEQUANTIZE]            = {"fl_dequantize_%s", Q8},
};

/* "fl_attention_short_%s_%u" with the engine's type and head size. */
static void name_kernel(const fl_engine *e, const char *format, char *out, size_t capacity) {
    static const char *const types[] = {
        [FL_CUDA_F32] = "f32", [FL_CUDA_F16] = "f16", [FL_CUDA_BF16] = "bf16"};
    const char *type = strstr(format, "%s"), *head = strstr(format, "%u");
    int         size = type != NULL ? (int)(type - format) : (int)strlen(format);
    if (head != NULL)
        snprintf(out, capacity, "%.*s%s_%u", size, format, types[e->type], e->desc.head_dim);
    else
        snprintf(out, capacity, "%.*s%s", size, format, type != NULL ? types[e->type] : "");
}

static int open_kernels(fl_engine *e, fletch_error *error) {
    const fl_cuda_calls *cu = &e->cuda->cu;
    FL_TRY(fl_cuda_check(e->cuda, cu->module_load(&e->module, fl_cuda_image), FLETCH_EPROVIDER,
                         error,
                         "the kernels cannot be loaded (they need compute capability 7.5 and a "
                         "driver as new as their toolkit)"));
    for (int i = 0; i < FL_CUDA_KERNELS; i++) {
        char name[64];
        if (kernel_names[i].only == Q8 && e->narrow != FL_CUDA_Q8)
            continue;
        name_kernel(e, kernel_names[i].format, name, sizeof name);
        FL_TRY(fl_cuda_check(e->cuda, cu->module_function(&e->kernels[i], e->module, name),
                             FLETCH_EPROVIDER, error, name));
    }
    return FLETCH_OK;
}

/* ---- Opening: sizes and slots ---------------------------------------------------------------- */

static void set_sizes(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options) {
    const fl_encoder_desc *d       = &encoder->desc;
    const fl_config       *config  = options->config;
    uint32_t               longest = options->max_length ? options->max_length : d->positions;
    int64_t                streams = config ? fl_config_int(config, FL_KEY_CUDA_STREAMS) : 2;
    e->desc                        = *d;
    e->pooling_count               = encoder->pooling_count;
    memcpy(e->pooling, encoder->pooling, sizeof e->pooling);
    e->width         = fl_encoder_width(encoder);
    e->inner         = d->heads * d->head_dim;
    e->qkv_width     = e->inner + 2 * d->kv_heads * d->head_dim;
    e->up_width      = (d->mlp == FL_MLP_GLU ? 2 : 1) * d->intermediate;
    e->max_length    = longest < d->positions ? longest : d->positions;
    e->batch_texts   = options->batch_texts ? options->batch_texts : 1;
    streams          = e->aside || streams < 1 ? 1 : streams;
    e->slot_count    = streams > FL_CUDA_SLOTS ? FL_CUDA_SLOTS : (uint32_t)streams;
    e->deterministic = options->deterministic;
    e->use_graphs    = !e->aside && (config == NULL || fl_config_bool(config, FL_KEY_CUDA_GRAPHS));
    e->trace         = options->trace;
    e->log           = options->log;
    fl_cuda_hang_open(e, config);
    e->chooses = config != NULL && fl_config_bool(config, FL_KEY_IO_BATCH_OPTIMIZATION) &&
                 !fl_config_is_set(config, FL_KEY_BATCH_MAX_TOKENS);
    e->workspace_bytes = e->major >= 9 && d->hidden >= NARROW ? WORKSPACE_HOPPER : WORKSPACE;
}

static int open_slot(fl_engine *e, fl_cuda_slot *slot, fletch_error *error) {
    const fl_cuda_calls *cu = &e->cuda->cu;
    fl_cuda_place        place;
    fl_cuda_lay_out(e, e->tier_count - 1, 0, &place);
    e->host_bytes += place.input_bytes + place.output_bytes;
    CUresult r = cu->stream_create(&slot->stream, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS)
        r = cu->event_create(&slot->uploaded, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS)
        r = cu->event_create(&slot->done, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS)
        r = cu->host_alloc((void **)&slot->input, place.input_bytes, PINNED);
    if (r == CUDA_SUCCESS)
        r = cu->host_alloc((void **)&slot->output, place.output_bytes, PINNED);
    return fl_cuda_check(e->cuda, r, FLETCH_EPROVIDER, error, "a stream cannot be set up");
}

static int open_slots(fl_engine *e, const fl_config *config, fletch_error *error) {
    bool copies = config == NULL || fl_config_bool(config, FL_KEY_CUDA_TRANSFER_STREAM);
    e->slots    = fl_alloc_zero(e->slot_count, sizeof *e->slots);
    if (e->slots == NULL)
        return fl_fail_nomem(error, e->slot_count * sizeof *e->slots, "the cuda engine");
    if (copies && e->slot_count > 1)
        FL_TRY(fl_cuda_check(e->cuda,
                             e->cuda->cu.stream_create(&e->transfer, CU_STREAM_NON_BLOCKING),
                             FLETCH_EPROVIDER, error, "a stream cannot be set up"));
    for (uint32_t i = 0; i < e->slot_count; i++)
        FL_TRY(open_slot(e, &e->slots[i], error));
    return FLETCH_OK;
}

static int open_in_context(fl_engine *e, const fl_encoder *encoder,
                           const fl_engine_options *options, fletch_error *error) {
    FL_TRY(open_kernels(e, error));
    fl_cuda_memory_open(e, options->config == NULL ||
                               fl_config_bool(options->config, FL_KEY_CUDA_MEMORY_POOL));
    e->weights_bytes = fl_cuda_weights_bytes(e);
    FL_TRY(fl_cuda_fit(e, options->batch_tokens, options->memory_limit, error));
    FL_TRY(fl_cuda_awaited(e, fl_cuda_take(e, &e->block, fl_cuda_resident(e)), FLETCH_EPROVIDER,
                           error, "no memory for weights and batches"));
    FL_TRY(open_slots(e, options->config, error));
    fl_cuda_share_out(e);
    FL_TRY(fl_cuda_upload(e, encoder, options->threads, error));
    return fl_cuda_products_open(e, error);
}

static int prepare(fl_engine *e, const fl_encoder *encoder, const fl_engine_options *options,
                   fletch_error *error) {
    CUcontext popped;
    FL_TRY(acquire(&e->cuda, options, error));
    FL_TRY(open_device(e, options, error));
    FL_TRY(check_capability(e->name, e->major, e->minor, error));
    FL_TRY(choose_precision(e, options->precision, error));
    set_sizes(e, encoder, options);
    FL_TRY(check_fp8(e, error));
    e->layers = fl_alloc_zero(e->desc.layers, sizeof *e->layers);
    if (e->layers == NULL)
        return fl_fail_nomem(error, e->desc.layers * sizeof *e->layers, "the cuda engine");
    if (e->narrow == FL_CUDA_Q8)
        FL_TRY(fl_cuda_calibrate(e, encoder, options, error));
    FL_TRY(fl_cuda_check(e->cuda, e->cuda->cu.context_push(e->context), FLETCH_EPROVIDER, error,
                         "the device's context cannot be used"));
    int status = open_in_context(e, encoder, options, error);
    if (status == FLETCH_OK)
        fl_cuda_pinned_open(e);
    e->cuda->cu.context_pop(&popped);
    return status;
}

static int open_as(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                   bool aside, fletch_error *error) {
    *out = NULL;
    FL_TRY(fl_cuda_check_model(encoder, error));
    fl_engine *e = fl_alloc_zero(1, sizeof *e);
    if (e == NULL)
        return fl_fail_nomem(error, sizeof *e, "the cuda engine");
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->rescue_lock, NULL);
    e->encoder = encoder;
    e->options = *options;
    e->aside   = aside;
    int status = prepare(e, encoder, options, error);
    if (status < 0) {
        fl_cuda_close(e);
        return status;
    }
    *out = e;
    return FLETCH_OK;
}

static int open_engine(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                       fletch_error *error) {
    return open_as(out, encoder, options, false, error);
}

int fl_cuda_open_aside(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                       fletch_error *error) {
    return open_as(out, encoder, options, true, error);
}

/* ---- What it says of itself ------------------------------------------------------------------ */

static void info(const fl_engine *e, fl_engine_info *out) {
    *out = (fl_engine_info){.device         = e->name,
                            .precision      = e->precision,
                            .slots          = e->slot_count,
                            .best_tokens    = e->tiers[e->tier_count - 1].tokens,
                            .most_tokens    = e->tiers[e->tier_count - 1].tokens,
                            .any_thread     = true,
                            .deterministic  = e->deterministic,
                            .resident_bytes = fl_cuda_resident(e)};
}

/* Nothing: open took all that the largest batch needs, which resident_bytes tells (tiers.c predicts
 * it before anything is taken), on the device and pinned on the host. A prediction that counted the
 * arena again would hold batches back under memory.limit, which is about the host. What rescue.c opens
 * for a text that overflowed is looked for among what is left then. */
static uint64_t memory(const fl_engine *e, uint32_t texts, uint32_t tokens, uint32_t longest) {
    (void)e, (void)texts, (void)tokens, (void)longest;
    return 0;
}

const fl_engine_ops fl_cuda_module_ops = {.abi        = FL_ENGINE_ABI,
                                          .name       = "cuda",
                                          .probe      = probe,
                                          .devices    = devices,
                                          .open       = open_engine,
                                          .forward    = fl_cuda_forward,
                                          .close      = fl_cuda_close,
                                          .info       = info,
                                          .memory     = memory,
                                          .warm       = fl_cuda_warm,
                                          .host_alloc = fl_cuda_host_alloc,
                                          .host_free  = fl_cuda_host_free,
                                          .describe   = fl_cuda_describe,
                                          .load       = fl_cuda_load};
