/* SPDX-License-Identifier: Apache-2.0 */
/* activation.cuh - the activations of encoder.h on eight values, at two prices.
 *
 * float   As exact as float allows: erf to 2 units in the last place.
 * 16 bits 1.5e-7 beside the truth, far below what is rounded away, for a third of the instructions:
 *         with erff and tanhf the units, not the memory, would set the pace of bias_act on an H200.
 *         gelu(x) = max(x, 0) - |x| / 2 erfc(|x| / sqrt 2), with erfc by Abramowitz and Stegun
 *         7.1.26 (a polynomial of 1 / (1 + p z), times exp(-z z)): nothing cancels. The others are
 *         x / (1 + exp(-2u)).
 * NaN     stays NaN in all. */
#ifndef FL_ENGINES_CUDA_KERNELS_ACTIVATION_CUH
#define FL_ENGINES_CUDA_KERNELS_ACTIVATION_CUH

#include "elements.cuh"

/* fl_activation of model/encoder.h; the conformance tool checks that they agree. */
enum { FL_CUDA_GELU_ERF, FL_CUDA_GELU_TANH, FL_CUDA_SILU, FL_CUDA_RELU };

/* What stands in gelu's tanh. */
FL_FN float tanh_argument(float x) {
    return 0.79788456f * (x + 0.044715f * x * x * x);
}

FL_FN float gelu_erf(float, float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}
FL_FN float gelu_tanh(float, float x) {
    return 0.5f * x * (1.0f + tanhf(tanh_argument(x)));
}
FL_FN float silu(float, float x) {
    return x / (1.0f + expf(-x));
}

/* x / (1 + exp(-y)) */
FL_FN float times_sigmoid(float x, float y) {
    return x * fast_reciprocal(1.0f + fast_exp2(y * -1.44269504f));
}

template <typename T> FL_FN float gelu_erf(T, float x) {
    float a = fabsf(x), t = fast_reciprocal(1.0f + 0.3275911f * 0.70710678f * a);
    float poly = 1.061405429f * t - 1.453152027f;
    poly       = (poly * t + 1.421413741f) * t - 0.284496736f;
    poly       = (poly * t + 0.254829592f) * t;
    return fmaxf(x, 0.0f) - 0.5f * a * poly * fast_exp2(a * a * -0.72134752f);
}
template <typename T> FL_FN float gelu_tanh(T, float x) {
    return times_sigmoid(x, 2.0f * tanh_argument(x));
}
template <typename T> FL_FN float silu(T, float x) {
    return times_sigmoid(x, x);
}

FL_FN float relu(float x) {
    return x < 0.0f ? 0.0f : x;
}

template <typename T> FL_FN float activated(T type, int32_t activation, float x) {
    switch (activation) {
    case FL_CUDA_GELU_ERF: return gelu_erf(type, x);
    case FL_CUDA_GELU_TANH: return gelu_tanh(type, x);
    case FL_CUDA_SILU: return silu(type, x);
    case FL_CUDA_RELU: return relu(x);
    default: return x;
    }
}

template <typename T> FL_FN void activate(T type, int32_t activation, float (&v)[FL_PIECE]) {
    for (int i = 0; i < FL_PIECE; i++) {
        v[i] = activated(type, activation, v[i]);
    }
}

#endif
