/* SPDX-License-Identifier: Apache-2.0 */
/* filter.h - which items a search may find: those whose metadata has what the filter asks for.
 *
 * Role    seed.c reads a filter from a body; store.c asks it for every item.
 * In/Out  {"lang": "en", "n": 1}: top-level keys and the strings, numbers, booleans or nulls that they must
 *         have. A number equals one of the same value, however it is written; true is not 1.
 * Method  Metadata is read once, member by member, and each is compared with the few that are wanted: the
 *         time does not grow with their product, whatever strangers put into either.
 * Memory  The struct; strings stay where the filter was read. Threads: any number may ask.
 * Proof   tests/unit/test_server_filter.c, tests/server/test_store.py. */
#ifndef FL_STORE_FILTER_H
#define FL_STORE_FILTER_H

#include "base/json_in.h"

enum { FL_FILTER_MAX = 64 }; /* keys: a bit each */

typedef struct fl_filter {
    size_t count;
    struct {
        fl_span      key, value; /* a string un-escaped, else as it was sent */
        fl_json_type type;
    } wanted[FL_FILTER_MAX];
} fl_filter;

/* Read `text`, which is overwritten and belongs to the filter from then on. NULL, or what is wrong with it. */
const char *fl_filter_read(fl_filter *filter, char *text, size_t size);

/* False: `metadata` cannot pass, which is found at the speed of memory where nothing in it is escaped. */
bool fl_filter_may_pass(const fl_filter *filter, const char *metadata, size_t size);

/* `metadata` is a JSON object; it is overwritten. */
bool fl_filter_passes(const fl_filter *filter, char *metadata, size_t size);

#endif
