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

static const fl_encoder_caps caps = {.engine           = "the cuda engine",
                                     .instead          = "use provider.order cpu",
                                     .features         = FL_CAN_WIDE_HEADS | FL_CAN_T5,
                                     .head_dims        = {32, 64, 128},
                                     .size_multiple    = 8,
                                     .hidden_max       = FL_CUDA_MAX_HIDDEN,
                                     .intermediate_max = 65536,
                                     .t5_distance_max  = 65536};

int fl_cuda_check_model(const fl_encoder *encoder, fletch_error *error) {
    int status = fl_encoder_supported(&encoder->desc, &caps, error);
    if (status == FLETCH_OK && encoder->layer == NULL)
        status = fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "the model is only an .onnx file, which the cuda engine does not read");
    if (status == FLETCH_OK)
        status = fl_encoder_check_slots(encoder, error);
    return status;
}
