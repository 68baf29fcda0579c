/* SPDX-License-Identifier: Apache-2.0 */
/* canary.h - the texts of fletch_canary_text; NULL past the last. */
#ifndef FL_SESSION_CANARY_H
#define FL_SESSION_CANARY_H

#include <stddef.h>

const char *fl_canary_text(size_t index);

#endif
