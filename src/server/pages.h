/* SPDX-License-Identifier: Apache-2.0 */
/* pages.h - the pages playground.html and docs.html, as the build puts them into the program. */
#ifndef FL_SERVER_PAGES_H
#define FL_SERVER_PAGES_H

#include <stddef.h>

extern const unsigned char fl_page_playground[], fl_page_docs[];
extern const size_t        fl_page_playground_size, fl_page_docs_size;

#endif
