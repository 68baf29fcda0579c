/* SPDX-License-Identifier: Apache-2.0 */
/* playground.h - the page of playground.html, as the build puts it into the program. */
#ifndef FL_SERVER_PLAYGROUND_H
#define FL_SERVER_PLAYGROUND_H

#include <stddef.h>

extern const unsigned char fl_playground_page[];
extern const size_t        fl_playground_page_size;

#endif
