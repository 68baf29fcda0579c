/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_peak.h - what the processor could do: fp32 multiply-adds of registers alone, in FLOP/s. */
#ifndef FL_BASE_CPU_PEAK_H
#define FL_BASE_CPU_PEAK_H

/* Measured over 50 ms on `threads` threads side by side; 0 where no code for this processor measures it. */
double fl_cpu_peak(unsigned threads);

#endif
