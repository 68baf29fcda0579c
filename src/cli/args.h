/* SPDX-License-Identifier: Apache-2.0 */
/* args.h - one option parser for all commands, driven by tables.
 *
 * Two tables make every flag: flags.c lists the flags of the commands (some of them short forms of
 * option keys, as --threads is cpu.intra_op_threads), and fletch_option_at() gives each key of the
 * option table as a flag of its own ("--provider-order cpu"). Help and shell completion read the same
 * tables, so a flag cannot be accepted and undocumented, or the other way round. */
#ifndef FL_CLI_ARGS_H
#define FL_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct fl_cli;

/* The exit codes that scripts depend on. */
typedef enum fl_exit {
    FL_EXIT_DONE   = 0,
    FL_EXIT_FAILED = 1, /* failed while running */
    FL_EXIT_USAGE  = 2, /* wrong usage or configuration */
    FL_EXIT_MODEL  = 3, /* model not to be had, damaged or not supported */
    FL_EXIT_PARTLY = 4  /* some inputs refused, the rest written */
    /* 128 + signal number when interrupted: 130 for Ctrl-C, made by the handler in signals.c */
} fl_exit;

typedef enum fl_command_id {
    FL_CMD_EMBED,
    FL_CMD_RERANK,
    FL_CMD_CLASSIFY,
    FL_CMD_RUN,
    FL_CMD_SERVE,
    FL_CMD_HEALTH,
    FL_CMD_ADD,
    FL_CMD_SEARCH,
    FL_CMD_TOKENIZE,
    FL_CMD_DECODE,
    FL_CMD_CHUNK,
    FL_CMD_MODEL,
    FL_CMD_CANARY,
    FL_CMD_VERIFY,
    FL_CMD_CONFIG,
    FL_CMD_DOCTOR,
    FL_CMD_BENCH,
    FL_CMD_VERSION,
    FL_CMD_COMPLETION,
    FL_CMD_HELP,
    FL_CMD_COUNT
} fl_command_id;

/* The order of the members is that of the tables in flags.c, which read like sentences. */
typedef struct fl_command {
    fl_command_id id;
    bool          configured; /* reads the option table: its keys are flags here */
    const char   *name;
    const char   *usage;    /* what follows the name, "[TEXT ...]" */
    const char   *words;    /* first argument, "pull|ls"; NULL when free */
    const char   *summary;  /* one line for the list of commands */
    const char   *text;     /* paragraphs of its help */
    const char   *examples; /* lines, two spaces in front */
    fl_exit (*run)(struct fl_cli *cli);
} fl_command;

typedef enum fl_flag_id {
    FL_FLAG_KEY, /* sets an option key, nothing else */
    FL_FLAG_CONFIG,
    FL_FLAG_APP_CONFIG,
    FL_FLAG_PRESET,
    FL_FLAG_INPUT,
    FL_FLAG_INPUT_FORMAT,
    FL_FLAG_FIELD,
    FL_FLAG_JOIN,
    FL_FLAG_DELIMITER,
    FL_FLAG_NO_HEADER,
    FL_FLAG_KEEP_TEXT,
    FL_FLAG_ID_FIELD,
    FL_FLAG_EXACT,
    FL_FLAG_SAMPLE,
    FL_FLAG_VECTOR_FIELD,
    FL_FLAG_SQL,
    FL_FLAG_SHARD,
    FL_FLAG_SPLIT_BYTES,
    FL_FLAG_MIXED_ISA,
    FL_FLAG_RE_EMBED,
    FL_FLAG_CHECK,
    FL_FLAG_QUICK,
    FL_FLAG_FINISH,
    FL_FLAG_MERGE,
    FL_FLAG_OUTPUT,
    FL_FLAG_FORMAT,
    FL_FLAG_OUTPUT_KIND,
    FL_FLAG_OUTPUTS,
    FL_FLAG_THRESHOLD,
    FL_FLAG_DTYPE,
    FL_FLAG_SIMILARITY,
    FL_FLAG_STATS,
    FL_FLAG_STATS_JSON,
    FL_FLAG_PROGRESS,
    FL_FLAG_KEEP_FIELDS,
    FL_FLAG_ON_ERROR,
    FL_FLAG_INVALID_UTF8,
    FL_FLAG_MAX_LINE,
    FL_FLAG_MAX_LENGTH,
    FL_FLAG_TRUNCATE,
    FL_FLAG_NO_SPECIAL_TOKENS,
    FL_FLAG_BY,
    FL_FLAG_SIZE,
    FL_FLAG_OVERLAP,
    FL_FLAG_CONTEXT,
    FL_FLAG_LATE_CHUNKING,
    FL_FLAG_PAIR,
    FL_FLAG_PAIR_FIELD,
    FL_FLAG_LABELS,
    FL_FLAG_HYPOTHESIS,
    FL_FLAG_MULTI_LABEL,
    FL_FLAG_QUERY,
    FL_FLAG_TOP,
    FL_FLAG_ACTIVATION,
    FL_FLAG_SKIP_SPECIAL_TOKENS,
    FL_FLAG_PARTIAL,
    FL_FLAG_TOP_K,
    FL_FLAG_FILTER,
    FL_FLAG_HYBRID,
    FL_FLAG_RERANK,
    FL_FLAG_RERANK_MODEL,
    FL_FLAG_CANDIDATES,
    FL_FLAG_GROUP,
    FL_FLAG_GROUP_SIZE,
    FL_FLAG_HIGHLIGHT,
    FL_FLAG_TYPE,
    FL_FLAG_FORCE,
    FL_FLAG_SECONDS,
    FL_FLAG_SHOW_ORIGIN,
    FL_FLAG_REPORT,
    FL_FLAG_QUIET,
    FL_FLAG_VERBOSE,
    FL_FLAG_HELP,
    FL_FLAG_COUNT
} fl_flag_id;

typedef struct fl_flag {
    fl_flag_id  id;
    char        letter;   /* 'i', or 0 for none */
    const char *name;     /* "--input" */
    const char *value;    /* "FILE"; "a|b" for a choice; NULL for a switch */
    const char *key;      /* option key that it sets; NULL for none */
    unsigned    commands; /* bit 1 << fl_command_id */
    const char *text;
} fl_flag;

typedef struct fl_key_value {
    const char *key, *value, *flag; /* borrowed; flag as it was typed in the tables */
} fl_key_value;

typedef struct fl_args {
    const fl_command *command;              /* NULL when none was named */
    const char       *value[FL_FLAG_COUNT]; /* NULL when not given; "true" for a switch */
    fl_key_value     *keys;                 /* owned */
    size_t            key_count;
    const char      **rest; /* owned; arguments that are no flags */
    size_t            rest_count;
    size_t            literal; /* rest[literal] and later stood after "--" */
    const char      **inputs;  /* owned; every --input */
    size_t            input_count;
} fl_args;

const fl_command *fl_command_at(size_t index); /* NULL past the end */
const fl_command *fl_command_find(const char *name);
/* What someone who typed an unknown command probably meant, "embed" or "model ls"; NULL: nobody knows. */
const char    *fl_command_suggest(const char *word);
const fl_flag *fl_flag_at(size_t index); /* NULL past the end */

/* Read the command line. On wrong usage false, with the message in *problem and, where there is one,
 * a way out in *hint; out->command is set as far as it was understood. */
bool fl_args_parse(fl_args *out, int argc, char **argv, fl_buf *problem, fl_buf *hint);
void fl_args_free(fl_args *args);

/* Whether `word`, of `size` bytes, is one of "a|b|c"; choices NULL: none. */
bool fl_choice_holds(const char *choices, const char *word, size_t size);
bool fl_choice_has(const char *choices, const char *word);

/* The nearest of "a|b|c" to `word` into out[capacity]; false when none is near. */
bool fl_choice_nearest(const char *choices, const char *word, char *out, size_t capacity);

#endif
