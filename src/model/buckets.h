/* SPDX-License-Identifier: Apache-2.0 */
/* buckets.h - the relative-position buckets of T5 and MPNet, for every engine that needs them.
 *
 * In/Out  distance key - query -> row of the bias table [buckets, heads].
 * Method  Half of the buckets are for keys to the right of the query; of each half the first half
 *         counts single steps, the rest grows with the logarithm up to max_distance. float32
 *         throughout: a bucket's edge must fall where the reference has it.
 * Needs   buckets >= 4 and max_distance > buckets / 4, checked by whoever reads the descriptor. */
#ifndef FL_MODEL_BUCKETS_H
#define FL_MODEL_BUCKETS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

static inline uint32_t fl_t5_bucket(ptrdiff_t distance, uint32_t buckets, uint32_t max_distance) {
    uint32_t half = buckets / 2, exact = half / 2, base = distance > 0 ? half : 0;
    uint32_t n = (uint32_t)(distance < 0 ? -distance : distance);
    if (n < exact) {
        return base + n;
    }
    float ratio = logf((float)n / (float)exact) / (float)log((double)max_distance / (double)exact);
    uint32_t steps = (uint32_t)(ratio * (float)(half - exact));
    return base + (exact + steps < half - 1 ? exact + steps : half - 1);
}

#endif
