/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h - one architecture: how its config.json becomes a descriptor and what its tensors are
 * called.
 *
 * To add an architecture: write arch_NAME.c with one fl_arch (a describe function of some 40
 * lines and two tables of names) and list it in arch.c. Nothing else knows model types. */
#ifndef FL_MODEL_ARCH_H
#define FL_MODEL_ARCH_H

#include <stddef.h>

#include "base/json.h"
#include "model/encoder.h"

/* A slot (fl_slot or fl_layer_slot) and its tensor; '*' stands for the layer's number. A name of a
 * LayerNorm is also looked for in its old spelling (gamma, beta). */
typedef struct fl_slot_name {
    int         slot;
    const char *name;
} fl_slot_name;

typedef struct fl_arch {
    const char *model_type; /* of config.json */
    const char *prefix;     /* tensors may carry it: "bert." */
    /* Fill *desc, zeroed before; failures go to config->status. */
    void (*describe)(fl_encoder_desc *desc, fl_json_reader *config);
    const fl_slot_name *globals, *layers;
    size_t              global_count, layer_count;
} fl_arch;

extern const fl_arch fl_arch_bert, fl_arch_mpnet;

/* Describe by model_type. EUNSUPPORTED names a model_type that is not known. */
int fl_arch_describe(const fl_arch **arch, fl_encoder_desc *desc, fl_json_reader *config);

/* What the describe functions share; each does nothing once config->status is set. */
typedef struct fl_arch_sizes { /* defaults where config.json says nothing, as in transformers */
    uint32_t hidden, layers, heads, intermediate, vocab, positions;
} fl_arch_sizes;
void fl_arch_common(fl_encoder_desc *desc, fl_json_reader *config, const fl_arch_sizes *defaults);
void fl_arch_refuse(fl_json_reader *config, const char *key, const char *value);
void fl_arch_refuse_if_true(fl_json_reader *config, const char *key);

#endif
