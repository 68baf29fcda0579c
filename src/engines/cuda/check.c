/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - whether the kernels can run a model, and whether its weights are what it says.
 *
 * Role    engine.c asks before anything is allocated.
 * Method  A switch of the descriptor that no kernel handles is EPROVIDER and named, so that the
 *         next provider of the chain may run the model. A tensor that is missing or too small is
 *         EMODEL (model/slots.c): no other provider could mend it.
 * Memory  none. Threads: pure functions.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include "engines/cuda/check.h"
#include "base/error.h"
#include "engines/cuda/kernels/kernels.h"

enum { WIDEST_MLP = 65536, FARTHEST = 65536 };

static const char *unhandled(const fl_encoder_desc *d) {
    if (d->norm != FL_NORM_LAYER || d->norm_place != FL_NORM_POST || d->final_norm)
        return "RMS norms, norms in front of the blocks or a final norm";
    if (d->kv_heads != d->heads)
        return "fewer key than query heads (grouped-query attention)";
    if (d->attention_mask != FL_MASK_FULL)
        return "causal attention";
    if (d->attention_bias == FL_BIAS_ALIBI)
        return "ALiBi";
    if (d->mlp != FL_MLP_PLAIN)
        return "gated MLPs";
    if (d->head_dim != 32 && d->head_dim != 64 && d->head_dim != 128)
        return "heads of a size other than 32, 64 and 128";
    if (d->hidden % 8 != 0 || d->hidden > FL_CUDA_MAX_HIDDEN)
        return "hidden sizes that are no multiple of 8, or above 4096";
    if (d->intermediate % 8 != 0 || d->intermediate > WIDEST_MLP)
        return "intermediate sizes that are no multiple of 8, or above 65536";
    if (d->attention_bias == FL_BIAS_T5_BUCKETS && d->bias_max_distance > FARTHEST)
        return "relative attention beyond 65536 tokens";
    return NULL;
}

static int check_desc(const fl_encoder_desc *d, fletch_error *error) {
    const char *what   = unhandled(d);
    int         status = fl_encoder_check_sizes(d, error);
    return status < 0 || what == NULL
               ? status
               : fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "the cuda engine does not handle %s yet; use provider.order cpu", what);
}

int fl_cuda_check_model(const fl_encoder *encoder, fletch_error *error) {
    int status = check_desc(&encoder->desc, error);
    if (status == FLETCH_OK && encoder->layer == NULL)
        status = fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "the model is only an .onnx file, which the cuda engine does not read");
    if (status == FLETCH_OK)
        status = fl_encoder_check_slots(encoder, error);
    if (status == FLETCH_OK && encoder->global[FL_SLOT_EMBED_NORM_W].data == NULL)
        status =
            fl_fail(error, FLETCH_EMODEL, 0,
                    "layer 0: the embedding norm weights are missing; the cuda engine needs them");
    return status;
}
