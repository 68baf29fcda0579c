/* SPDX-License-Identifier: Apache-2.0 */
/* coarse_avx512.c - the scans of coarse.h with AVX-512 and its popcount.
 *
 * Role    coarse_scan.h, compiled with its own flags (store.cmake). */
#define FL_COARSE_ISA(name) name##_avx512
#include "store/coarse_scan.h"
