/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.h - what all embedding routes share between a parsed body and the words of the answer.
 *
 * Role    A dialect gives a table of fields (fields.h) and a fl_style: how it says no and how it writes its
 *         answer. Here is what does not depend on the dialect: headers that every route takes, choice of
 *         the model, bounds, the request to the library, raw replies, headers of the answer.
 *
 *     static void embed(fl_http_request *request) {
 *         fl_job *job = fl_job_read(request, &style, fields);      NULL: refused, already answered
 *         if (job != NULL && fl_job_prepare(job)) fl_job_submit(job);
 *     }                                                            style->write runs when it is done
 *
 * Headers that override a silent body on every dialect: x-fletch-truncate (right, left, error),
 * x-fletch-dtype, x-fletch-normalize, x-fletch-dimensions, x-fletch-prompt-name, x-fletch-details;
 * Accept: application/octet-stream asks for the rows alone, little-endian.
 * Memory  request memory. Threads: a job belongs to its request. */
#ifndef FL_SERVER_EMBEDDING_H
#define FL_SERVER_EMBEDDING_H

#include "base/json.h"
#include "base/json_out.h"
#include "server/base64.h"
#include "server/fields.h"
#include "server/server.h"

typedef struct fl_job fl_job;

/* Those of the headers that are one of a few words; the number of them, and what is said of another word. */
enum { FL_ASK_HEADERS = 4 };
typedef struct fl_ask_header {
    const char *name, *words, *wrong;
} fl_ask_header;
extern const fl_ask_header fl_ask_headers[FL_ASK_HEADERS];

/* What a body of any dialect may say; a dialect's table names the fields that its clients know. */
typedef struct fl_ask {
    fl_body_input input, second; /* second: of pairs, as many as in `input`, or none */
    fl_pairs      pairs;         /* to classify; fl_ask_take_pairs puts them into the two */
    fl_span       model, prompt_name, source;
    int64_t       dimensions;                              /* FL_ASK_NONE: absent */
    int64_t       top;                                     /* of the best documents; 0: absent */
    int           raw_scores, return_text, use_activation; /* FL_FIELD_BOOL */
    int           truncate, normalize, details;            /* FL_FIELD_BOOL */
    int           add_special, skip_special;               /* FL_FIELD_BOOL */
    int           direction;                               /* word of FL_WORDS_DIRECTION */
    int           encoding;                                /* word of FL_WORDS_ENCODING */
    int           dtype;                                   /* word of FL_WORDS_DTYPE */
    int           cut;                                     /* word of FL_WORDS_CUT */
    int           input_type;                              /* word of FL_WORDS_INPUT_TYPE */
    unsigned      types;                                   /* FL_FIELD_WORDS of FL_WORDS_TYPES */
    fl_body_input labels;                                  /* of one's own: tei_zero_shot.c */
    fl_span       hypothesis;                              /* likewise */
    int           multi_label;                             /* likewise, FL_FIELD_BOOL */
    fl_body_input outputs;                                 /* names; form 0: absent */
    fl_body_input ids;                                     /* of what is kept: seed.c */
    fl_span       id, metadata, vector, filter;            /* likewise */
    int64_t       k[3];                                    /* how many are found, by three names */
    int           by;                                      /* word of FL_WORDS_BY */
    int64_t       size, overlap;                           /* of chunks; 0: absent */
    int           chunk;                  /* 1 when they are asked for: add_chunks.c */
    fl_span       context;                /* around each of them: likewise */
    int           hybrid, rerank;         /* of a search, FL_FIELD_BOOL: search.c */
    int           group_by, highlight;    /* likewise, words */
    int64_t       group_size, candidates; /* likewise; 0: absent */
    int           late_chunking;          /* FL_FIELD_BOOL */
    fl_span       spans;                  /* raw: tei_chunks.c */
    fl_span       keep_alive;             /* raw */
    fl_span       other_id;               /* of POST /models/load */
    int           force;                  /* likewise, FL_FIELD_BOOL */
} fl_ask;

#define FL_ASK_NONE INT64_MIN
/* Lists of words, and their numbers; 0: none of them was said. */
#define FL_WORDS_DIRECTION "Left|Right|left|right"
enum { FL_WORD_LEFT = 1, FL_WORD_RIGHT, FL_WORD_LEFT_SMALL, FL_WORD_RIGHT_SMALL };
#define FL_WORDS_ENCODING "float|base64"
enum { FL_WORD_FLOAT = 1, FL_WORD_BASE64 };
#define FL_WORDS_DTYPE "float|int8|uint8|binary|ubinary|float32"
enum { FL_WORD_DTYPE = 1 /* and on: those of fletch_dtype */, FL_WORD_FLOAT32 = 6 };
#define FL_WORDS_CUT "NONE|START|END"
enum { FL_WORD_CUT_NOTHING = 1, FL_WORD_CUT_START, FL_WORD_CUT_END };
#define FL_WORDS_INPUT_TYPE "search_document|search_query|classification|clustering|image"
enum { FL_WORD_PURPOSE = 1 /* and on: as fl_job_take_purpose has them */ };
#define FL_WORDS_BY "sentences|tokens|paragraphs|markdown"
enum { FL_WORD_BY = 1 /* and on: those of fletch_chunk_by */ };
#define FL_WORDS_HIGHLIGHT "passage|words"
enum { FL_WORD_PASSAGE = 1, FL_WORD_WORDS };
#define FL_WORDS_TYPES   "float|int8|uint8|binary|ubinary|base64"
#define FL_WORDS_PURPOSE "document|query" /* the first two of FL_WORDS_INPUT_TYPE */

/* Rows of tables of fields that several dialects have alike. */
#define FL_ASK_MODEL                                                                               \
    .name = "model", .type = FL_FIELD_STRING, .flags = FL_FIELD_NULL,                              \
    .offset = offsetof(fl_ask, model)
#define FL_ASK_PROMPT_NAME                                                                         \
    .name = "prompt_name", .type = FL_FIELD_STRING, .flags = FL_FIELD_NULL,                        \
    .offset = offsetof(fl_ask, prompt_name)
#define FL_ASK_TRUNCATE                                                                            \
    .name = "truncate", .type = FL_FIELD_BOOL, .flags = FL_FIELD_NULL,                             \
    .offset = offsetof(fl_ask, truncate), .text = "false: a text that is too long is an error."
#define FL_ASK_DTYPE                                                                               \
    .name = "output_dtype", .type = FL_FIELD_WORD, .flags = FL_FIELD_NULL,                         \
    .offset = offsetof(fl_ask, dtype), .words = FL_WORDS_DTYPE
#define FL_ASK_LATE_CHUNKING                                                                       \
    .name = "late_chunking", .type = FL_FIELD_BOOL, .flags = FL_FIELD_NULL,                        \
    .offset = offsetof(fl_ask, late_chunking)
#define FL_ASK_KEEP_ALIVE                                                                          \
    .name = "keep_alive", .type = FL_FIELD_RAW, .flags = FL_FIELD_NULL,                            \
    .offset = offsetof(fl_ask, keep_alive), .words = FL_KEEP_ALIVE_SCHEMA,                         \
    .text = "How long an on-demand model stays open when idle: 300, \"5m\", 0, -1 for ever."
#define FL_KEEP_ALIVE_SCHEMA                                                                       \
    "\"anyOf\":[{\"type\":[\"number\",\"null\"]},{\"type\":\"string\","                            \
    "\"pattern\":\"^-?([0-9]+|([0-9]+(h|m|s|ms))+)$\"}]"
#define FL_ASK_DETAILS                                                                             \
    .name = "details", .type = FL_FIELD_BOOL, .flags = FL_FIELD_NULL,                              \
    .offset = offsetof(fl_ask, details), .text = "Report tokens and truncation of each text."

/* Why a job is refused; `message` of fl_job_refuse says it in plain words. */
typedef enum fl_refusal {
    FL_REFUSE_MODEL,      /* several are loaded and none has this name */
    FL_REFUSE_HEAD,       /* the model gives something else */
    FL_REFUSE_EMPTY,      /* "", [], ["a", ""], [[]] */
    FL_REFUSE_DIMENSIONS, /* below 1 or more than the model has */
    FL_REFUSE_PROMPT,     /* the model has no prompt of this name */
    FL_REFUSE_TOO_LONG,   /* truncation refused; `where` is the text */
    FL_REFUSE_INPUT,      /* an id outside of the vocabulary */
    FL_REFUSE_HEADER,     /* an x-fletch-… header that makes no sense */
    FL_REFUSE_TOO_MUCH,   /* the answer would be too large */
    FL_REFUSALS
} fl_refusal;

/* How a dialect refuses a body, or a job: there the text has places, {message} and what job_refuse.c lists. */
typedef struct fl_fault {
    fl_http_code code;
    const char  *text;
} fl_fault;

typedef struct fl_faults {
    fl_fault
        syntax; /* it is no JSON; before the reader's own words and the place stands the text */
    fl_fault meaning; /* it means nothing here; likewise */
    fl_fault type;    /* another Content-Type; no text: any is taken */
    bool     untyped; /* none at all is taken for JSON */
    fl_fault refusals[FL_REFUSALS];
    fl_fault other; /* where a refusal has no text; none: 400 with the message */
} fl_faults;

/* Documents and the spans of each, one document's behind the other's; at least one each. In request memory. */
typedef struct fl_documents {
    size_t       count, spans;
    const char **texts;   /* [count] */
    size_t      *lengths; /* [count] */
    size_t      *counts;  /* [count]: its spans */
    fletch_span *span;    /* [spans] */
} fl_documents;

typedef struct fl_style {
    const fl_faults *faults;
    /* Write the answer into request->reply.body; false: a value is not finite, or out of memory. */
    bool (*write)(fl_job *job, const fletch_outcome *outcome);
    bool compute_headers; /* x-compute-time and the others of text-embeddings-inference */
} fl_style;

struct fl_job {
    fl_http_request *request;
    const fl_style  *style;
    fl_ask           ask;
    fl_served       *named;   /* whom ask.model names, open and held; NULL: nobody has this name */
    uint64_t         keep_ns; /* of ask.keep_alive */
    fl_served       *served;
    fletch_dtype     dtype;
    bool             base64, octets, details;
    fl_base64_fn     encode; /* base64 */
    fletch_request   work;
    fletch_embed_options options;        /* of `work` */
    fletch_texts         second;         /* likewise */
    size_t               count, columns; /* rows; tokens and truncated are of work.texts, of which
                                            documents with spans are fewer */
    float               *rows;           /* [count][columns] of `dtype` */
    uint32_t            *tokens;         /* [count] */
    uint8_t             *truncated;      /* [count] */
    void                *packed;         /* one row of another type than `dtype` */
    void                *extra;          /* the dialect's own */
};

#define FL_FOREIGN_IDS                                                                             \
    "ids of another tokenizer give meaningless vectors: send texts (LangChain's "                  \
    "OpenAIEmbeddings: check_embedding_ctx_length=False)"

/* Reply in the words of the job's style; `where`: the text, or FLETCH_NOWHERE. */
void fl_job_refuse(fl_job *job, fl_refusal why, size_t where, const char *message);

/* A job with the body read into job->ask; NULL after it was answered with a fault. Where the handler runs again it
 * is the job of the first time. */
fl_job *fl_job_parse(fl_http_request *request, const fl_style *style, const fl_field *fields);
/* job->named, whatever its state; false: the handler returns, and was answered or runs again. */
bool fl_job_find(fl_job *job);
/* It is open, and held to the request's end; false likewise. */
bool fl_job_take(fl_job *job);
/* The same, and the model that the body names is open. NULL: the handler returns. */
fl_job *fl_job_read(fl_http_request *request, const fl_style *style, const fl_field *fields);

bool fl_job_model(fl_job *job); /* job->served; false: answered */
/* What may be said behind a name that nobody has: `before` and "Did you mean `x`?", or nothing. In request memory. */
const char *fl_job_near(fl_job *job, const char *before);
/* The request to the library for vectors of job->columns numbers, as the body alone asks for them; false: answered. */
bool fl_job_fill(fl_job *job);
bool fl_job_prepare(fl_job *job);                    /* model, headers, bounds; false: answered */
bool fl_job_prepare_rows(fl_job *job, size_t count); /* the same for so many vectors */
/* Room for `count` documents and their spans. False: answered. */
bool fl_job_documents(fl_job *job, size_t count, size_t spans, fl_documents *out);
/* `count` of them: number i is texts [lists[i], lists[i + 1]) of ask.input laid end to end, and each text a span of
 * it. False: answered. */
bool fl_job_join(fl_job *job, const int64_t *lists, size_t count, fl_documents *out);
/* The same for late chunking: a row for each span, of which every document has one at least. */
bool fl_job_prepare_spans(fl_job *job, const fl_documents *documents);
bool fl_job_take_spans(fl_job             *job,
                       const fl_documents *documents); /* of a job that fl_job_fill has filled */
/* The same for a vector of every token, and for sparse vectors: style->write finds them in
 * outcome->lists. The first one tokenises. */
bool fl_job_prepare_tokens(fl_job *job);
bool fl_job_prepare_sparse(fl_job *job);
/* The same for the outputs that ask.outputs names, which are then in job->work.outputs. */
bool fl_job_prepare_outputs(fl_job *job);
/* The same for scores: of each text against ask.source where that is there, which takes a reranker, else of
 * texts or pairs. A row has a score for each label. */
bool fl_job_prepare_scores(fl_job *job, fletch_activation activation);
/* The same where job->served, columns and count stand: as the body alone asks for them, on any thread. */
bool fl_job_fill_scores(fl_job *job, fletch_activation activation);
void fl_job_submit(fl_job *job); /* last: the job is done later */
/* The same from a worker, for what is tokenised before it is queued: documents with spans. */
void fl_job_submit_later(fl_job *job);

/* The prompt of the purpose that ask.input_type names, where the model has one; after fl_job_model. */
void fl_job_take_purpose(fl_job *job);

/* Tokens of the request's texts, each counted once; those of late chunking's windows overlap. */
uint64_t fl_job_tokens(const fl_job *job, const fletch_outcome *outcome);

/* A text and its score. */
typedef struct fl_ranked {
    float  score;
    size_t index;
} fl_ranked;
/* values[count], the highest first, of equal ones the first, into ranked[count]. */
void fl_rank(const float *values, size_t count, fl_ranked *ranked);
/* The job's documents so, [count] in request memory; NULL: out of memory. */
fl_ranked *fl_job_rank(fl_job *job);
void       fl_put_score(fl_buf *out, float score);
/* ask.pairs to ask.input and ask.second. */
void fl_ask_take_pairs(fl_ask *ask);

/* Row `index` as the job's type says: a list of numbers or a base64 string. False: not finite. */
bool fl_job_put_row(fl_job *job, size_t index);
/* What an output has of text `index`: a row, {"indices":[7],"values":[0.1]}, or a list of vectors. False: as above. */
bool fl_job_put_output(fl_job *job, const fletch_output *output, size_t index);
/* Of several outputs the first that is a row; NULL: none is, or no outputs were named. */
const fletch_output *fl_job_dense(const fl_job *job);
bool                 fl_job_put_typed(fl_job *job, size_t index, fletch_dtype dtype, bool base64);

/* "tokens":[5,7],"truncated":[false,true] */
void fl_job_put_details(fl_job *job);

/* Of embeddings as the routes give them when nothing else is asked for; "" where it cannot be had. */
void fl_served_vector_id(const fl_served *served, char out[65]);
/* The text of the model's prompt of this name; NULL when there is none. */
const char *fl_served_prompt(const fl_served *served, fl_span name);

/* How many texts of this model one answer can hold. */
size_t fl_job_texts_max(const fl_served *served);

/* Length in tokens of text `index`, specials counted; 0 when it cannot be told. */
size_t fl_job_length(fl_job *job, size_t index);

#endif
