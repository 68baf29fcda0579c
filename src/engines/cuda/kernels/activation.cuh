/* SPDX-License-Identifier: Apache-2.0 */
/* activation.cuh - the activations of encoder.h on eight values.
 *
 * Numbers gelu is the exact one, with erf to 2 units in the last place; NaN stays NaN in all. */
#ifndef FL_ENGINES_CUDA_KERNELS_ACTIVATION_CUH
#define FL_ENGINES_CUDA_KERNELS_ACTIVATION_CUH

#include "elements.cuh"

/* fl_activation of model/encoder.h; the conformance tool checks that they agree. */
enum { FL_CUDA_GELU_ERF, FL_CUDA_GELU_TANH, FL_CUDA_SILU, FL_CUDA_RELU };

FL_FN float gelu_erf(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}
FL_FN float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}
FL_FN float silu(float x) {
    return x / (1.0f + expf(-x));
}
FL_FN float relu(float x) {
    return x < 0.0f ? 0.0f : x;
}

FL_FN void activate(int32_t activation, float (&v)[FL_PIECE]) {
    for (int i = 0; i < FL_PIECE; i++) {
        switch (activation) {
        case FL_CUDA_GELU_ERF: v[i] = gelu_erf(v[i]); break;
        case FL_CUDA_GELU_TANH: v[i] = gelu_tanh(v[i]); break;
        case FL_CUDA_SILU: v[i] = silu(v[i]); break;
        case FL_CUDA_RELU: v[i] = relu(v[i]); break;
        default: break;
        }
    }
}

#endif
