/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - monotonic time. */
#ifndef FL_BASE_CLOCK_H
#define FL_BASE_CLOCK_H

#include <stdint.h>

uint64_t fl_clock_ns(void); /* CLOCK_MONOTONIC, nanoseconds */

#endif
