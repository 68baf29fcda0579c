/* SPDX-License-Identifier: Apache-2.0 */
/* part.h - make one part of a job: read its range, embed it, write its files, then its manifest. */
#ifndef FL_CLI_PART_H
#define FL_CLI_PART_H

#include "cli/chunk_rows.h"
#include "cli/manifest.h"

/* What all parts of a run share. */
typedef struct fl_parts {
    fl_cli           *cli;
    const fl_filejob *job;
    fl_output_format  format;
    bool              half;
    fl_embedder       embedder;
    fl_chunk_rows     chunks; /* of embedder's; --chunk */
    fl_progress       progress;
    size_t            window_texts; /* of the next window, from part to part */
    uint64_t          texts;        /* of the parts before, for the progress */
    uint64_t          bytes, bytes_total;
} fl_parts;

/* Bytes of the input that the part covers. */
uint64_t fl_part_bytes(const fl_filejob *job, uint64_t number);

/* Before there is a job: exit code 2 when no record of the first part has the field that --field names. Its job.json
 * would refuse the field that is meant. */
fl_exit fl_parts_try_field(const fl_parts *parts);

/* Part `number` into its place; *manifest is what was written. Says what goes wrong; *unreadable when its input
 * is to blame, so that the other parts may go on. */
fl_exit fl_part_make(fl_parts *parts, uint64_t number, fl_manifest *manifest, bool *unreadable);

#endif
