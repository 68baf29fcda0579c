/* SPDX-License-Identifier: Apache-2.0 */
/* coarse_avx2.c - the scans of coarse.h with AVX2 and popcnt.
 *
 * Role    coarse_scan.h, compiled with its own flags (store.cmake). */
#define FL_COARSE_ISA(name) name##_avx2
#include "store/coarse_scan.h"
