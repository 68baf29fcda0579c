/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - whether the kernels can run a model, and whether its weights are what it says.
 *
 * Role    cuda_engine.c asks before anything is allocated.
 * Method  A switch of the descriptor that no kernel handles is EPROVIDER and named
 *         (model/support.c), so that the next provider of the chain may run the model. A tensor
 *         that is missing or too small is EMODEL (model/slots.c): no other provider could mend it.
 * Memory  none. Threads: pure functions.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include "engines/cuda/check.h"
#include "base/error.h"
#include "engines/cuda/kernels/cuda_kernels.h"

enum { ROPE_STEP = 16 }; /* fl_rotate has eight values a lane, on either side */

static const fl_encoder_caps caps = {
    .engine   = "the cuda engine",
    .instead  = "use provider.order cpu",
    .features = FL_CAN(NO_EMBED_NORM) | FL_CAN(RMS_NORM) | FL_CAN(PRE_NORM) | FL_CAN(FINAL_NORM) |
                FL_CAN(QK_NORM) | FL_CAN(GROUPED) | FL_CAN(WIDE_HEADS) | FL_CAN(GLU) |
                FL_CAN(ROPE) | FL_CAN(CAUSAL) | FL_CAN(WINDOW) | FL_CAN(T5) | FL_CAN(ALIBI) |
                FL_CAN(MIXED_RULES) | FL_CAN(SEGMENTS),
    .head_dims        = {32, 64, 128},
    .size_multiple    = 8,
    .hidden_max       = FL_CUDA_MAX_HIDDEN,
    .intermediate_max = 65536,
    .t5_distance_max  = 65536};

/* What no line of the table says. */
static int check_attention(const fl_encoder_desc *d, fletch_error *error) {
    for (int i = 0; i < FL_RULES_MAX; i++)
        if (d->rope[i].dims % ROPE_STEP != 0)
            return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                           "%s does not handle rotary positions of %u values per head (only "
                           "multiples of %d); %s",
                           caps.engine, d->rope[i].dims, ROPE_STEP, caps.instead);
    if (d->layers > 0 && !(d->attention_scale > 0.0f))
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%s does not handle an attention scale of %g; %s", caps.engine,
                       (double)d->attention_scale, caps.instead);
    return FLETCH_OK;
}

int fl_cuda_check_model(const fl_encoder *encoder, fletch_error *error) {
    FL_TRY(fl_encoder_supported(&encoder->desc, &caps, error));
    FL_TRY(check_attention(&encoder->desc, error));
    if (encoder->layer == NULL)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "the model is only an .onnx file, which the cuda engine does not read");
    return fl_encoder_check_slots(encoder, error);
}
