/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.c - see adapt.h, which has the method. */
#include "scheduler/adapt.h"

#include <assert.h>
#include <stddef.h>

enum {
    STEPS_UP = 16,
    OVERLOAD = 4 /* budgets that wait when smaller batches no longer help */
};

static const double mean_weight = 0.1; /* of the last batch in the moving mean */

void fl_adapt_init(fl_adapt *adapt, uint64_t target_ns, uint32_t least, uint32_t most) {
    assert(least <= most && most > 0);
    *adapt = (fl_adapt){
        .target_ns = target_ns, .least = least > 0 ? least : 1, .most = most, .budget = most};
}

/* The largest batch that takes half the target. */
static uint32_t ceiling(const fl_adapt *adapt) {
    assert(adapt->least > 0 && adapt->least <= adapt->most);
    if (adapt->target_ns == 0 || adapt->token_ns <= 0.0)
        return adapt->most;
    double tokens = (double)adapt->target_ns / 2.0 / adapt->token_ns;
    if (tokens >= adapt->most)
        return adapt->most;
    return tokens > adapt->least ? (uint32_t)tokens : adapt->least;
}

uint32_t fl_adapt_batch(fl_adapt *adapt, uint64_t tokens, uint64_t took_ns) {
    if (tokens == 0)
        return adapt->budget;
    double now = (double)took_ns / (double)tokens;
    adapt->token_ns =
        adapt->token_ns > 0.0 ? adapt->token_ns + mean_weight * (now - adapt->token_ns) : now;
    uint32_t most = ceiling(adapt);
    adapt->budget = adapt->budget < most ? adapt->budget : most;
    return adapt->budget;
}

/* The second largest of the window: with 32 of them, the 95th percentile (nearest rank is 31). */
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
    assert(adapt->count < FL_ADAPT_WINDOW);
    if (adapt->target_ns == 0)
        return adapt->budget;
    adapt->window[adapt->count++] = latency_ns;
    if (adapt->count < FL_ADAPT_WINDOW)
        return adapt->budget;
    adapt->count  = 0;
    bool late     = percentile_95(adapt->window) > adapt->target_ns;
    bool overload = waiting > (uint64_t)OVERLOAD * adapt->budget;
    if (late && !overload) {
        uint32_t less = (uint32_t)((uint64_t)adapt->budget * 7 / 10);
        adapt->budget = less > adapt->least ? less : adapt->least;
    } else {
        uint32_t most = overload ? adapt->most : ceiling(adapt);
        uint64_t more = (uint64_t)adapt->budget + adapt->most / STEPS_UP + 1;
        adapt->budget = more < most ? (uint32_t)more : most;
    }
    return adapt->budget;
}
