/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - the fields of a request body as a table: read by it, described by it.
 *
 * Role    every dialect has a table of what its bodies may hold. fl_fields_read fills a struct from a
 *         body by the table, openapi.c writes the schema from the same table, so the two cannot disagree.
 * Rules   A field of the table may come once: a second one is a fault ("duplicate field"). Fields that the
 *         table does not know are checked as JSON and ignored, as clients of all dialects expect, or refused
 *         by name where the table's last row is FL_FIELD_CLOSED. null
 *         means absent where FL_FIELD_NULL says so, else it is a wrong type.
 * Memory  Strings stay in the body; lists come from fl_request_alloc.
 * Proof   tests/server/test_openapi.py and the tests of each dialect. */
#ifndef FL_SERVER_FIELDS_H
#define FL_SERVER_FIELDS_H

#include "base/json_in.h"
#include "server/server.h"

typedef enum fl_field_type {
    FL_FIELD_STRING, /* fl_span; data NULL when absent. min 1: the dialect refuses "" */
    FL_FIELD_BOOL,   /* int: 0 absent, 1 true, -1 false */
    FL_FIELD_INT,    /* int64_t between min and max; the struct's value when absent */
    FL_FIELD_WORD,   /* int: 0 absent, else 1 + the index in `words` */
    FL_FIELD_WORDS,  /* unsigned: bit i for words[i] in the list; 0 when absent or empty */
    FL_FIELD_INPUT,  /* fl_body_input, in the forms that `forms` allows */
    FL_FIELD_INNER, /* an object with a table of its own, into the same struct; offset, unless 0: int, 1 when it came */
    FL_FIELD_PAIRS, /* fl_pairs: "a", ["a"], ["a", "b"] (one pair), or a list of the last two */
    FL_FIELD_ANY,   /* checked, ignored: known to the dialect, without a meaning here */
    FL_FIELD_RAW    /* fl_span: the value's text as it was sent; `words` is its schema */
} fl_field_type;

enum {
    FL_FIELD_REQUIRED = 1,
    FL_FIELD_NULL     = 2, /* null is the same as absent */
    FL_FIELD_CLOSED   = 4  /* of the row that ends a table: there are no other fields */
};

/* Forms of an input; several may be allowed. */
enum {
    FL_INPUT_TEXT     = 1,   /* "a" */
    FL_INPUT_TEXTS    = 2,   /* ["a", "b"] */
    FL_INPUT_IDS      = 4,   /* [101, 7592, 102]: one text */
    FL_INPUT_ID_LISTS = 8,   /* [[101, 102], [101, 7592, 102]] */
    FL_INPUT_MIXED    = 64,  /* ["a", [101, 102]]; with FL_INPUT_ALL */
    FL_INPUT_NOTHING  = 16,  /* "" and "" in a list are served; else the dialect refuses them */
    FL_INPUT_NO_ITEMS = 32,  /* [] is served */
    FL_INPUT_OBJECTS  = 128, /* {"text": "a"} stands for "a" in a list of texts */
    FL_INPUT_NESTED   = 256, /* [["a", "b"], ["c"]]: texts, in lists of their own; no other form */
    FL_INPUT_ALL      = 15
};

typedef struct fl_body_input {
    unsigned form;  /* what came; 0: absent; [] is the first list form that is allowed */
    bool     empty; /* something in it is empty: "", [], ["a", ""], [[]] */
    size_t   count; /* texts or id lists */
    size_t   room, lists, list_room, id_count, id_room;
    /* texts */
    const char **texts;
    size_t      *lengths;
    uint8_t *are_ids; /* [count] of FL_INPUT_MIXED: 1 where texts[i] is lengths[i] ids; else NULL */
    /* or ids: list i is ids[offsets[i] .. offsets[i + 1]); of FL_INPUT_NESTED texts[…], likewise */
    int32_t *ids;
    int64_t *offsets;
} fl_body_input;

/* Texts to classify: pairs (second.count = first.count; NULL among them: that text alone), or none (0). */
typedef struct fl_pairs {
    fl_body_input first, second;
    bool          list; /* of several, each in a list of its own */
} fl_pairs;

typedef struct fl_field {
    const char            *name;
    fl_field_type          type;
    unsigned               flags;
    size_t                 offset; /* in the struct that is filled */
    unsigned               forms;
    int64_t                min, max;
    const char            *words; /* "float|base64" */
    const struct fl_field *inner;
    const char            *text; /* one sentence for the schema; may be NULL */
} fl_field;                      /* a row without a name ends a table */

/* 1 + the index of `word` in "a|b|c"; 0: it is none of them. */
int fl_word_index(const char *words, fl_span word);

/* Read the whole body. False: in->message says why, with the place (line, column) and the path of the
 * field; in->mistyped tells a wrong meaning from a text that is no JSON. */
bool fl_fields_read(fl_http_request *request, fl_json_in *in, const fl_field *fields, void *out);

#endif
