/* SPDX-License-Identifier: Apache-2.0 */
/* os_posix.h - what os_posix.c asks of os_linux.c and os_darwin.c. */
#ifndef FL_BASE_OS_POSIX_H
#define FL_BASE_OS_POSIX_H

#include <stddef.h>

/* Advise huge pages for an aligned block; may be refused, costs nothing. */
void fl_posix_huge(void *block, size_t size);
#endif
