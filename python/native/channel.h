/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h - what fork_child tells the requests that nobody waits for. */
#ifndef FP_CHANNEL_H
#define FP_CHANNEL_H

void fp_channel_after_fork(void);

#endif
