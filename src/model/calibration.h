/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.h - find the channels that are large in every text, so that eight bits suffice.
 *
 * Role     An engine that opens in int8 runs a few texts of arbitrary ids in a wider format, adds
 *          up the squares of every channel in front of a product, and asks here for the gains.
 * Why      Trained encoders keep a few channels of the residual stream at ten times the size of the
 *          others, whatever the text. A row's scale must reach them, so all others would be left
 *          with a handful of steps: four fifths of the error of plain int8 on all-MiniLM-L6-v2.
 * Method   A channel r times the median is divided by r^0.65 on its way into bytes and its weights
 *          are multiplied by that: the load is split between both. Ids that mean nothing do as well
 *          as English: what is looked for lies in the weights.
 * Bytes    The ids are always the same: the same model gives the same gains on every start, as long
 *          as the engine sums in a fixed order.
 * Memory   The caller's. Threads: pure functions. Proof: tests/golden/test_precision.py and
 *          test_cuda.py. */
#ifndef FL_MODEL_CALIBRATION_H
#define FL_MODEL_CALIBRATION_H

#include <stddef.h>
#include <stdint.h>

/* The texts are of so many tokens and of twice as many, up to the longest, or of the model's
 * most. */
enum { FL_CALIBRATION_SHORTEST = 8, FL_CALIBRATION_LONGEST = 64 };

/* What `state` begins with, before the first text. */
static const uint64_t fl_calibration_seed = 88172645463325252U;

/* The next text: `count` ids below `vocab`. */
void fl_calibration_ids(uint64_t *state, uint32_t vocab, int32_t *ids, uint32_t count);

/* gain[i] is what channel i is multiplied by on its way into bytes: 1 for channels up to the
 * median, less for others. `squares`: any multiple of their mean squares; `sorted` is room for
 * n. */
void fl_calibration_gains(const double *squares, size_t n, double *sorted, float *gain);

#endif
