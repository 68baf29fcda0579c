/* SPDX-License-Identifier: Apache-2.0 */
/* json_scan.h - check a text against RFC 8259 and add up what its tree will cost; for json.c alone. */
#ifndef FL_BASE_JSON_SCAN_H
#define FL_BASE_JSON_SCAN_H

#include <stddef.h>

#include "fletch.h"

enum { FL_JSON_DEPTH_MAX = 64 };

typedef struct fl_json_scan {
    size_t members;    /* of all objects together, duplicates counted */
    size_t tree_bytes; /* upper estimate of json-c's memory for the tree */
} fl_json_scan;

/* `text` is valid UTF-8. FLETCH_EMODEL with the byte offset when it is not one JSON value, deeper than
 * FL_JSON_DEPTH_MAX, or too costly as a tree. */
int fl_json_scan_text(fl_json_scan *out, const char *text, size_t size, const char *source,
                      fletch_error *error);

/* The failure for a text that has a duplicate key: finds and names it. Always returns a status < 0. */
int fl_json_fail_duplicate(const char *text, size_t size, const char *source, fletch_error *error);

#endif
