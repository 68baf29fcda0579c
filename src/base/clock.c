/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - monotonic time for deadlines, statistics and short spins.
 *
 * CLOCK_MONOTONIC is served by the vDSO (about 20 ns, no system call) and never jumps back. */
#include "base/clock.h"

#include <time.h>

uint64_t fl_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
