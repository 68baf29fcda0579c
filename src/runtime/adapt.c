/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.c - see adapt.h, which has the method. */
#include "runtime/adapt.h"

#include <stddef.h>

enum { STEPS_UP = 16 };

void fl_adapt_init(fl_adapt *adapt, uint64_t target_ns, uint32_t least, uint32_t most) {
    *adapt = (fl_adapt){
        .target_ns = target_ns, .least = least < most ? least : most, .most = most, .budget = most};
}

/* The second largest of the window: with 32 of them, the 95th percentile
 * (nearest rank is 31). */
static uint64_t percentile_95(const uint64_t *window) {
    uint64_t first = 0, second = 0;
    for (size_t i = 0; i < FL_ADAPT_WINDOW; i++) {
        if (window[i] > first) {
            second = first;
            first  = window[i];
        } else if (window[i] > second) {
            second = window[i];
        }
    }
    return second;
}

uint32_t fl_adapt_observe(fl_adapt *adapt, uint64_t latency_ns, uint64_t waiting) {
    if (adapt->target_ns == 0)
        return adapt->budget;
    adapt->window[adapt->count++] = latency_ns;
    if (adapt->count < FL_ADAPT_WINDOW)
        return adapt->budget;
    adapt->count  = 0;
    bool late     = percentile_95(adapt->window) > adapt->target_ns;
    bool overload = waiting > adapt->budget;
    if (late && !overload) {
        uint32_t less = (uint32_t)((uint64_t)adapt->budget * 7 / 10);
        adapt->budget = less > adapt->least ? less : adapt->least;
    } else {
        uint32_t step = adapt->most / STEPS_UP + 1;
        adapt->budget = adapt->budget < adapt->most - step && step < adapt->most
                            ? adapt->budget + step
                            : adapt->most;
    }
    return adapt->budget;
}
