/* SPDX-License-Identifier: Apache-2.0 */
/* toml.h - read TOML as options need it: one call for each [table] and each key, in file order.
 *
 * What no option can use is left out: no tree is built, dates, numbers of other bases and
 * infinities are refused by name (docs/toml.md). A file is at most 16 MiB and 64 levels deep, so
 * neither memory nor the stack can be made to run away.
 * Threads: none shared. Proof: tests/unit/test_toml.c, tests/fuzz/fuzz_toml.c. */
#ifndef FL_CONFIG_TOML_H
#define FL_CONFIG_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

enum { FL_TOML_DEPTH_MAX = 64, FL_TOML_SIZE_MAX = 16 << 20 };

typedef enum fl_toml_kind {
    FL_TOML_TABLE,  /* [a.b]: no values */
    FL_TOML_TABLES, /* [[a.b]]: no values */
    FL_TOML_VALUE,  /* one value */
    FL_TOML_LIST,   /* an array of scalars */
    FL_TOML_NESTED  /* an array that holds arrays or tables: no values */
} fl_toml_kind;

/* Lent to one call. An inline table comes as its keys: a = {b = 1} is a.b = 1. */
typedef struct fl_toml_item {
    fl_toml_kind kind;
    uint32_t     line, column; /* of the key's last part, in characters, from 1 */
    const char  *path;         /* "a.b", terminated */
    const char  *values; /* `count` terminated texts, one behind the other; numbers have no '_' */
    size_t       count;
} fl_toml_item;

/* Anything but 0 ends the reading with it; the message is the visitor's. */
typedef int fl_toml_visit(void *user, const fl_toml_item *item);

/* `source` names the text in messages ("SOURCE:LINE:COLUMN: what"). FLETCH_ECONFIG for what is not
 * TOML or is left out, with the byte offset in error->where. Items in front of an error have been
 * visited by then. */
int fl_toml_parse(const char *text, size_t size, const char *source, fl_toml_visit *visit,
                  void *user, fletch_error *error);
/* `foreign`: the file is another program's, and what no option can use is a value as it stands. */
int fl_toml_read(const char *path, bool foreign, fl_toml_visit *visit, void *user,
                 fletch_error *error);

#endif
