/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - a job: files to embed, cut into parts, and the folder in which the parts appear.
 *
 * docs/job.md is the contract that the files of the folder keep; the Python package has it for Parquet.
 * Parts are numbered through: those of the first input, then those of the second. A job has no process of its own:
 * every worker computes the same list from the same inputs, and does the parts that are not there. */
#ifndef FL_CLI_JOB_H
#define FL_CLI_JOB_H

#include <limits.h>

#include "base/json.h"
#include "cli/input.h"
#include "cli/output.h"

/* One file of the input. */
typedef struct fl_filejob_input {
    char           *path; /* owned */
    fl_input_format format;
    bool            whole;      /* cannot be read from the middle: one part */
    uint64_t        size;       /* bytes */
    uint64_t        extent;     /* what its parts cover together: bytes, of a Parquet file rows */
    char            sample[65]; /* SHA-256 of its first and last bytes */
    uint64_t        parts;      /* at least 1 */
    uint64_t        first;      /* number of its first part in the job */
} fl_filejob_input;

typedef struct fl_filejob {
    const char       *folder; /* borrowed */
    fl_filejob_input *inputs; /* owned */
    size_t            input_count;
    uint64_t          parts;
    uint64_t          split_bytes;
    char              suffix[16]; /* of the files of vectors: "npy", "parquet" */
    char              digest[65]; /* SHA-256 of job.json, by which a manifest names its job */
    size_t            dimensions;
    char              dtype[16];
} fl_filejob;

enum { FL_PART_NAME = 64 };

/* "part-00007-00003" of part `number`, and the input it is of. */
const fl_filejob_input *fl_filejob_part(const fl_filejob *job, uint64_t number,
                                        char name[FL_PART_NAME]);

/* "FOLDER/NAME.SUFFIX" into out[PATH_MAX]; the folder's name was checked to be short enough. */
void fl_filejob_path(const fl_filejob *job, const char *name, const char *suffix,
                     char out[PATH_MAX]);

void fl_filejob_free(fl_filejob *job);

/* ---- job_list.c ---- */

/* The files that --input names, sorted by path, and the parts they make. */
fl_exit fl_filejob_list(fl_filejob *job, const fl_cli *cli);

/* Whether the file is still the one of the list: its size and sample. */
int fl_filejob_verify_input(const fl_filejob_input *input, fletch_error *error);

/* ---- job.c ---- */

/* With the model open: begin the job in its folder, or join the one that is there if it is the same. */
fl_exit fl_filejob_join(fl_filejob *job, fl_cli *cli);

/* The job of a folder, from its job.json alone. */
fl_exit fl_filejob_read(fl_filejob *job, const char *folder);

/* A flag that says which texts there are or what becomes of them, its name in job.json's options, and what stands
 * there when it was not given (NULL: then it is not there). NULL past the last. */
typedef struct fl_filejob_choice {
    fl_flag_id  flag;
    const char *name, *otherwise;
} fl_filejob_choice;
const fl_filejob_choice *fl_filejob_choice_at(size_t index);

enum { FL_FILEJOB_TEXT_MAX = 1 << 30 }; /* bytes of a job.json */

/* ---- job_again.c ---- */

/* The job whose texts are embedded again; it stays as it is. */
typedef struct fl_filejob_again {
    fl_filejob old;
    fl_json   *text; /* owned: its job.json, in which the flags' values lie */
    fl_buf names;    /* owned: the rows files, one after the other; unless they are read, nothing */
    char   split[24]; /* its --split-bytes */
    bool   rows;      /* texts come from the rows that it kept */
} fl_filejob_again;

/* --re-embed: what OLD was made of becomes --input and the flags of this run, which may have another model, other
 * settings, --dtype and --format. Says what forbids it. `again` must outlive the run. */
fl_exit fl_filejob_again_open(fl_filejob_again *again, fl_cli *cli, const char *old);
/* The same without a look at what this run was given; with `rows` texts come from the rows wherever they are kept. */
fl_exit fl_filejob_again_take(fl_filejob_again *again, fl_cli *cli, const char *old, bool rows);
void    fl_filejob_again_close(fl_filejob_again *again);

/* ---- move_store.c ---- */

/* --re-embed of a file: the server's store at `old` into the one that --output names. */
fl_exit fl_move_store(fl_cli *cli, const char *old);

/* ---- job_check.c, job_merge.c ---- */

typedef struct fl_filejob_totals {
    uint64_t done, missing, damaged, rows, refused, tokens, truncated, bytes;
    uint64_t gone;       /* inputs that are not there any more */
    char     sha256[65]; /* over the digests of all files, in the order of the parts */
} fl_filejob_totals;

/* Every part of the job: `quick` by sizes, else by content. What is wrong is said, the first of it. */
fl_exit fl_filejob_check(const fl_filejob *job, bool quick, fl_filejob_totals *totals);

/* Remove _SUCCESS, which an earlier check wrote: the job is not whole. */
void fl_filejob_unfinish(const fl_filejob *job);

/* The totals as one line of JSON, a line end after it. */
void fl_filejob_totals_text(const fl_filejob_totals *totals, uint64_t parts, fl_buf *out);

/* Join all parts to the file `path`, and their rows to the one beside it. */
fl_exit fl_filejob_merge(const fl_filejob *job, fl_cli *cli, const char *path);

#endif
