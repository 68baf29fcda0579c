/* SPDX-License-Identifier: Apache-2.0 */
/* similarity.h - the table of cosine similarities that `fletch embed --similarity` prints. */
#ifndef FL_CLI_SIMILARITY_H
#define FL_CLI_SIMILARITY_H

#include <stddef.h>
#include <stdint.h>

#include "cli/output.h"

enum { FL_SIMILARITY_MAX = 64 }; /* more columns than any screen shows */

typedef struct fl_similarity {
    float *vectors;                  /* owned [count, dimensions] */
    char  *texts[FL_SIMILARITY_MAX]; /* owned copies */
    size_t sizes[FL_SIMILARITY_MAX];
    size_t count, dimensions;
} fl_similarity;

/* Keep one row; false when out of memory. count < FL_SIMILARITY_MAX. */
bool fl_similarity_add(fl_similarity *table, const fl_row *row);

/* The whole table as text or json onto output->sink.buf. */
void fl_similarity_print(const fl_similarity *table, fl_output *output);

void fl_similarity_free(fl_similarity *table);

#endif
