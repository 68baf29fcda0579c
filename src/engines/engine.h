/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - the contract between the runtime and whatever computes: cpu, cuda, onnxruntime.
 *
 * The unit of work is "forward this packed batch": ids and cumulative lengths go in, one pooled
 * float32 row per text, or one per token where that is asked for, comes out. An engine never sees
 * text, a queue, or another engine. A table of these functions is static const; only registry.c
 * knows the concrete ones.
 *
 * Contract of forward
 *   - a row depends on its own tokens alone: same text, same bytes, whatever the batch, the order
 *     and the number of threads (an engine that cannot promise it says so in info.deterministic);
 *   - nothing is allocated but what `terms` grow by, and room for a text longer than all before it and than
 *     usual_length; what else it needs was sized in open from batch_tokens and batch_texts;
 *   - `info.slots` forwards may be in flight at once, each with a slot index of its own and from a
 *     thread of its own (a CUDA stream, an ONNX Runtime run); the runtime serialises each slot. The
 *     next batch is copied to the device while the last computes because two slots overlap;
 *   - it never delivers NaN as success: EMODEL with the text's index in error->where;
 *   - it comes back, whatever the device does, where the engine can see to that (cuda.timeout_seconds), and so
 *     does close;
 *   - ENOMEM: the batch may pass when it is split. Any other failure than EMODEL and ENOMEM means
 *     that the replica is broken: the runtime closes it, and opens it again or goes elsewhere. */
#ifndef FL_ENGINES_ENGINE_H
#define FL_ENGINES_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/trace.h"
#include "config/config.h"
#include "fletch.h"
#include "model/encoder.h"

enum { FL_ENGINE_ABI = 11 };

typedef struct fl_engine fl_engine; /* an engine's own open state */

/* What forward says of its own work; zeroed by who asks. */
typedef enum fl_copied {
    FL_COPIED_IDS = 1, /* a text's ids passed memory of the engine: staged, or of another type */
    FL_COPIED_ROW = 2  /* its row did, on the way to rows[text] */
} fl_copied;
typedef struct fl_batch_note {
    uint8_t *copied;                 /* [texts] fl_copied */
    uint32_t bound_runs, plain_runs; /* of a library whose inputs and outputs can be bound */
} fl_batch_note;

/* A packed batch: text i is ids[cu[i] .. cu[i+1]). No padding, ever. All borrowed for the call. */
typedef struct fl_batch {
    const int32_t  *ids; /* [tokens], each in [0, vocab) : checked by the runtime */
    const uint32_t *cu;  /* [texts + 1], cu[0] = 0, each length in [1, positions] */
    uint32_t        texts;
    uint32_t        tokens; /* = cu[texts] */
    const uint32_t
        *pool_skip;          /* [texts] tokens at the head left out of pooling, or NULL for none */
    const uint32_t *segment; /* [texts] the first token of type 1, the length for none; or NULL: no
                              text has any. Only where the descriptor has `segments` */
    const uint32_t
        *keys; /* [texts] only so many tokens from the first on are attended to, by all of the
                              text's; NULL: all. Only where info has `blind_tokens` */
    float *const *rows; /* [texts] where each row goes: fl_encoder_width values. Rows of one matrix
                           mostly, but texts of several callers share a batch */
    fl_terms *terms;    /* [texts] of a descriptor with `mlm`, else NULL: nothing is pooled; to each
                        text's list go the ids whose largest logit over its tokens is positive */
    const uint8_t *each; /* [texts] 1: nothing is pooled, every token's row of `hidden` values goes
                            to rows[text], one after the other; NULL: every text is pooled */
    fl_batch_note *note; /* or NULL: nobody asks */
    bool scarce; /* less memory is left than the model may map: what is read of the weights' files
                    stays out of the process */
} fl_batch;

/* What one replica is opened with. Pointers are borrowed: `config`, `log`, `trace` and
 * `fp32_retries` live as long as the replica, as open's encoder does; the others for the time of the
 * call. */
typedef struct fl_engine_options {
    const char     *provider;  /* device kind: "cpu", "cuda", "openvino": provider.c has them all */
    uint32_t        device;    /* which device of that kind, from 0 */
    const char     *folder;    /* the model's folder, for an engine that reads its own files */
    const char     *onnx_file; /* the .onnx file that is the model; NULL: whatever the folder has */
    uint32_t        threads;   /* >= 1 */
    const uint16_t *cores;     /* [threads] processors to pin the threads to, or NULL */
    uint32_t        batch_tokens; /* largest fl_batch.tokens */
    uint32_t        batch_texts;  /* largest fl_batch.texts */
    uint32_t        max_length;   /* longest text in tokens */
    uint32_t        usual_length; /* cpu: what every thread has room for; 0: max_length */
    const char     *isa;          /* cpu: "auto", "ref", "avx2" … */
    uint32_t        l2_bytes;  /* cpu: cache of a core that blocks are sized for; 0: this one's */
    const char     *precision; /* "auto", "fast", "fp32" …; info says what the engine took */
    const char     *weights;   /* "auto", "float", "q8" or "q4"; NULL: auto */
    bool            portable;  /* cpu: the same bits on every instruction set in every precision */
    bool            deterministic;
    uint64_t        memory_limit;       /* bytes it may take on its device; 0: no limit */
    const fl_config      *config;       /* keys of its own: onnxruntime.*, cuda.* */
    fl_trace             *trace;        /* NULL: off. Spans of layers and copies go here */
    atomic_uint_fast64_t *fp32_retries; /* NULL, or counts texts that were run again in fp32 */
    const fl_engine
                 *like; /* an engine of the same kind, model and options on the same NUMA node, or
                                   NULL: its weights serve this one too. Only read during open */
    const fl_log *log;
} fl_engine_options;

/* What an open replica says of itself; strings live as long as the replica. */
typedef struct fl_engine_info {
    const char *device;        /* "AMD EPYC 7763", "NVIDIA H200" */
    const char *precision;     /* resolved: "fp32", "int8" … */
    uint32_t    slots;         /* forwards that may be in flight at once, >= 1 */
    uint32_t    best_tokens;   /* tokens of a batch beyond which larger ones gain nothing */
    uint32_t    most_tokens;   /* the largest batch it takes; 0: the one it was opened for */
    bool        any_thread;    /* forward may run on the caller's thread (no pinning, no context) */
    bool        deterministic; /* same text, same bytes, whatever the batch */
    bool        token_rows;    /* fl_batch.each is obeyed; else it is always NULL */
    bool        blind_tokens;  /* fl_batch.keys is obeyed; else it is always NULL */
    uint64_t resident_bytes;   /* packed weights and what else open took for good, host or device */
} fl_engine_info;

/* What a probe says: usable, or why not and how to mend it. */
typedef struct fl_probe {
    bool usable;
    bool hangs;       /* the device does not answer now: no engine should touch it */
    char reason[400]; /* "AMD EPYC …: avx2, fma; 2 threads", or why not */
} fl_probe;

/* What a device and the engine's memory on it are doing now; 0 and -1: cannot be told. */
typedef struct fl_device_load {
    int32_t  utilisation;               /* per cent of the driver's last sample period; -1 */
    uint64_t memory_used, memory_total; /* of the whole device, all processes */
    uint64_t pool_used, pool_peak;      /* bytes that engines have of the device's pool, the most */
    uint64_t pool_held;                 /* what the pool has of the device */
    uint64_t pool_takes, pool_hits;     /* blocks taken, and those it had already */
} fl_device_load;

typedef struct fl_engine_ops {
    uint32_t    abi;     /* FL_ENGINE_ABI */
    const char *name;    /* "cpu" */
    bool rounds_weights; /* it knows options.weights q8 and q4; others are never given them */
    bool portable;       /* and options.portable, likewise */
    /* required */
    void (*probe)(const fl_engine_options *options, fl_probe *out); /* which is zeroed */
    /* devices of options->provider on this machine; 0 when probe says no */
    uint32_t (*devices)(const fl_engine_options *options);
    int (*open)(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                fletch_error *error);
    int (*forward)(fl_engine *engine, uint32_t slot, const fl_batch *batch, fletch_error *error);
    void (*close)(fl_engine *engine); /* NULL is a no-op */
    void (*info)(const fl_engine *engine, fl_engine_info *out);
    /* bytes that forward of such a batch takes beyond info.resident_bytes, at most 10 % off */
    uint64_t (*memory)(const fl_engine *engine, uint32_t texts, uint32_t tokens, uint32_t longest);
    /* optional: NULL where an engine has nothing to say */
    int (*warm)(fl_engine *engine, fletch_error *error); /* compile, capture, touch: < 1 s */
    void *(*host_alloc)(size_t bytes);                   /* staging memory the device copies fast */
    void (*host_free)(void *block, size_t bytes);
    int (*describe)(const fl_engine *engine, fletch_property_fn fn,
                    void *user);                                /* isa, threads, bytes */
    void (*load)(const fl_engine *engine, fl_device_load *out); /* while forwards run */
} fl_engine_ops;

/* Whether a precision leaves the format to the engine. */
static inline bool fl_engine_chooses(const char *precision) {
    return precision == NULL || strcmp(precision, "auto") == 0 || strcmp(precision, "fast") == 0;
}

/* Whether model.weights asks for other weights than the files hold. */
static inline bool fl_engine_rounds(const char *weights) {
    return weights != NULL && (strcmp(weights, "q8") == 0 || strcmp(weights, "q4") == 0);
}

/* registry.c: the engines built in, best first; NULL past the end. */
const fl_engine_ops *fl_engine_at(size_t index);
const fl_engine_ops *fl_engine_find(const char *name); /* NULL when there is none of that name */

#endif
