/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h - float32 to the element types of the device, on the host, when weights are loaded. */
#ifndef FL_ENGINES_CUDA_CONVERT_H
#define FL_ENGINES_CUDA_CONVERT_H

#include <stddef.h>
#include <stdint.h>

void fl_cuda_to_f16(const float *in, size_t count, uint16_t *out);
void fl_cuda_to_bf16(const float *in, size_t count, uint16_t *out);

/* in / scale, which is above 0, to e4m3; not finite stays NaN. */
enum { FL_CUDA_E4M3_MOST = 448 };
void fl_cuda_to_e4m3(const float *in, size_t count, float scale, uint8_t *out);

/* The largest absolute value of all and of `most`; NaN when one is not finite. */
float fl_cuda_largest(const float *in, size_t count, float most);

/* One row to int8 by its largest absolute value; returns the scale, q * scale ~ in. */
float fl_cuda_to_q8(const float *in, size_t count, int8_t *out);

#endif
