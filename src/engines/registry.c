/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c - the engines that are built in, best first: the only file that knows concrete
 * ones. */
#include "engines/engine.h"

#include <string.h>

#include "engines/cpu/cpu_engine.h"
#include "engines/cuda/cuda_loader.h"
#include "engines/onnxruntime/ort.h"

static const fl_engine_ops *const engines[] = {&fl_cpu_engine_ops, &fl_cuda_engine_ops,
                                               &fl_ort_engine_ops};

const fl_engine_ops *fl_engine_at(size_t index) {
    return index < sizeof engines / sizeof *engines ? engines[index] : NULL;
}

const fl_engine_ops *fl_engine_find(const char *name) {
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        if (strcmp(engines[i]->name, name) == 0)
            return engines[i];
    return NULL;
}
