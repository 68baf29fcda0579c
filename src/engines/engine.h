/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h - the contract between the runtime and whatever computes: cpu, cuda, onnxruntime.
 *
 * The unit of work is "forward this packed batch": ids and cumulative lengths go in, one pooled
 * float32 row per text comes out. An engine never sees text, a queue, or another engine. A table of
 * these functions is static const; only registry.c knows the concrete ones.
 *
 * Contract of forward
 *   - a row depends on its own tokens alone: same text, same bytes, whatever the batch, the order
 *     and the number of threads;
 *   - nothing is allocated; what it needs was sized in open from batch_tokens and batch_texts;
 *   - one forward at a time per engine object (the runtime serialises); it uses its own threads
 *     inside;
 *   - it never delivers NaN as success. */
#ifndef FL_ENGINES_ENGINE_H
#define FL_ENGINES_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "fletch.h"
#include "model/encoder.h"

enum { FL_ENGINE_ABI = 1 };

typedef struct fl_engine fl_engine; /* an engine's own open state */

/* A packed batch: text i is ids[cu[i] .. cu[i+1]). No padding, ever. All borrowed for the call. */
typedef struct fl_batch {
    const int32_t  *ids; /* [tokens], each in [0, vocab) : checked by the runtime */
    const uint32_t *cu;  /* [texts + 1], cu[0] = 0, each length in [1, positions] */
    uint32_t        texts;
    uint32_t        tokens; /* = cu[texts] */
    const uint32_t
        *pool_skip; /* [texts] tokens at the head left out of pooling, or NULL for none */
} fl_batch;

typedef struct fl_engine_options {
    uint32_t      threads;      /* >= 1 */
    uint32_t      batch_tokens; /* largest fl_batch.tokens */
    uint32_t      batch_texts;  /* largest fl_batch.texts */
    uint32_t      max_length;   /* longest text in tokens */
    const char   *isa;          /* cpu: "auto", "ref", "avx2" … */
    const char   *precision;    /* "fp32" … resolved, never "auto" */
    const fl_log *log;
} fl_engine_options;

/* What a probe says: usable, or why not and how to mend it. */
typedef struct fl_probe {
    bool usable;
    char reason[256]; /* "AMD EPYC …: avx2, fma; 2 threads", or why not */
} fl_probe;

typedef struct fl_engine_ops {
    uint32_t    abi;  /* FL_ENGINE_ABI */
    const char *name; /* "cpu" */
    /* required */
    void (*probe)(const fl_engine_options *options, fl_probe *out);
    int (*open)(fl_engine **out, const fl_encoder *encoder, const fl_engine_options *options,
                fletch_error *error);
    /* out row i starts at out + i * out_stride floats and gets fl_encoder_width values */
    int (*forward)(fl_engine *engine, const fl_batch *batch, float *out, size_t out_stride,
                   fletch_error *error);
    void (*close)(fl_engine *engine); /* NULL is a no-op */
    /* bytes that forward of such a batch needs beyond the packed weights */
    uint64_t (*memory)(const fl_engine *engine, uint32_t texts, uint32_t tokens, uint32_t longest);
    /* optional: NULL where an engine has nothing to say */
    int (*warm)(fl_engine *engine, fletch_error *error);
    int (*describe)(const fl_engine *engine, fletch_property_fn fn,
                    void *user); /* isa, threads, bytes */
} fl_engine_ops;

/* registry.c: the engines built in, best first; NULL past the end. */
const fl_engine_ops *fl_engine_at(size_t index);
const fl_engine_ops *fl_engine_find(const char *name); /* NULL when there is none of that name */

#endif
