/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - can the CUDA kernels run this model, and are its weights all there? */
#ifndef FL_ENGINES_CUDA_CHECK_H
#define FL_ENGINES_CUDA_CHECK_H

#include "model/encoder.h"

#include "fletch.h"

/* EPROVIDER: not with these kernels, another provider may; EMODEL: weights are missing. */
int fl_cuda_check_model(const fl_encoder *encoder, fletch_error *error);

#endif
