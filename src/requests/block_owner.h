/* SPDX-License-Identifier: Apache-2.0 */
/* block_owner.h - what the scheduler asks of requests. */
#ifndef FL_REQUESTS_BLOCK_OWNER_H
#define FL_REQUESTS_BLOCK_OWNER_H

#include "scheduler/token_block.h"

extern const fl_block_owner fl_request_blocks;

#endif
