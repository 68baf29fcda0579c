/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h - what is known of a part that is done: its range of the input, its counts, its files and their
 * digests. A part is done when its manifest is there, whole, of this job, and names files that are there. */
#ifndef FL_CLI_MANIFEST_H
#define FL_CLI_MANIFEST_H

#include "cli/job.h"

/* A file of the part; name "" where there is none (jsonl vectors are in the rows). */
typedef struct fl_part_file {
    char     name[FL_PART_NAME + 16];
    uint64_t bytes;
    char     sha256[65];
} fl_part_file;

typedef struct fl_manifest {
    uint64_t     begin, end; /* of the input; 0, 0: no record begins in this part */
    char         input_sha256[65];
    uint64_t     rows, refused, tokens, truncated;
    double       seconds;
    fl_part_file file[2];
} fl_manifest;

typedef enum fl_manifest_state {
    FL_MANIFEST_ABSENT,
    FL_MANIFEST_DAMAGED, /* *error says how */
    FL_MANIFEST_DONE
} fl_manifest_state;

/* Read the manifest of the part `name` and compare the sizes of its files. */
fl_manifest_state fl_manifest_read(fl_manifest *manifest, const fl_filejob *job, const char *name,
                                   fletch_error *error);

/* Put it in its place; the files it names are there already. */
int fl_manifest_write(const fl_manifest *manifest, const fl_filejob *job, const char *name,
                      fletch_error *error);

#endif
