/* SPDX-License-Identifier: Apache-2.0 */
/* fletch.h - text in, vectors out: the whole public contract of libfletch.
 *
 * A program that embeds two sentences:
 *
 *     #include <fletch.h>
 *
 *     const char  *text[2] = {"A cat sits on the mat.", "A feline rests on a rug."};
 *     float        vector[2 * 384];
 *     fletch_model *model;
 *     fletch_error  error;
 *     if (fletch_open(&model, "medium", NULL, &error) < 0) { puts(error.message); return 1; }
 *     fletch_texts  texts = fletch_texts_from_strings(text, 2);
 *     fletch_matrix out   = fletch_matrix_f32(vector, 2, fletch_dimensions(model));
 *     if (fletch_embed(model, &texts, NULL, &out, &error) < 0) { puts(error.message); return 1; }
 *     fletch_close(model);
 *
 * Rules for every call
 *   Errors     A call returns 0 (or a count, where it says so) when it did its work and a negative
 *              FLETCH_E… status when it did not; then it fills *error (NULL is allowed). The library
 *              never prints, exits, aborts on input, or keeps a last error.
 *   Ownership  The matching …_free or …_close call frees what a …_new or …_open call made; both accept
 *              NULL. A call that fails leaves nothing to undo and sets its result to NULL. Pointers
 *              passed in are borrowed for the duration of the call.
 *   Threads    A fletch_model may be used from any number of threads at once. A fletch_config
 *              belongs to one thread at a time; fletch_open copies what it needs of it.
 *   fork       A child of fork() must not use its parent's models, not even close them: their threads
 *              do not exist in the child. Fork before opening, or exec.
 *   Text       UTF-8, not terminated: NUL bytes are text. Invalid UTF-8 is an error, never repaired.
 *   Growth     Structs that may grow begin with their size (set it, or use the …_INIT macro), grow at
 *              their end and are never embedded in another. Structs that the library makes (an
 *              outcome, tokens, an entry) also grow at their end. Options are string keys
 *              (fletch_config_set). Programs compiled with an older header therefore keep working.
 *   Exactness  The same text gives the same bytes, whatever its batch, order or thread count.
 *
 * The order is: errors, texts and matrices, configuration, the model (open, embed, rerank,
 * classify), requests, statistics, tokens, chunks, model information, the hub cache, and the machine.
 */
#ifndef FLETCH_H
#define FLETCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLETCH_VERSION_MAJOR 0
#define FLETCH_VERSION_MINOR 1
#define FLETCH_VERSION_PATCH 0
#define FLETCH_VERSION       "0.1.0"

#if defined(_WIN32)
#define FLETCH_API __declspec(dllexport)
#elif defined(__GNUC__)
#define FLETCH_API __attribute__((visibility("default")))
#else
#define FLETCH_API
#endif

#if defined(__GNUC__) || defined(_MSC_VER)
#define FLETCH_INLINE static __inline /* the spelling that C89 accepts */
#else
#define FLETCH_INLINE static inline
#endif

/** The version of the library that is loaded, e.g. "0.1.0"; static. Since 0.1. */
FLETCH_API const char *fletch_version(void);

/* ---- Errors ---------------------------------------------------------------------------------- */

/* name, value, text: the values are pinned; new ones are appended. */
#define FLETCH_STATUS_MAP(X)                                                                       \
    X(EINVAL, -1, "invalid argument")                                                              \
    X(ENOMEM, -2, "out of memory")                                                                 \
    X(EIO, -3, "input or output failed")                                                           \
    X(ENOTFOUND, -4, "not found")                                                                  \
    X(EMODEL, -5, "model files damaged or invalid")                                                \
    X(EUNSUPPORTED, -6, "not supported")                                                           \
    X(ECONFIG, -7, "invalid configuration")                                                        \
    X(EUTF8, -8, "text is not valid UTF-8")                                                        \
    X(ETOOLONG, -9, "text too long for the model")                                                 \
    X(ENETWORK, -10, "network failed")                                                             \
    X(EDENIED, -11, "access denied")                                                               \
    X(ECHECKSUM, -12, "checksum mismatch")                                                         \
    X(EPROVIDER, -13, "no usable execution provider")                                              \
    X(ECANCELLED, -14, "cancelled")                                                                \
    X(EDEADLINE, -15, "deadline passed")                                                           \
    X(EBUSY, -16, "resource busy")                                                                 \
    X(ENOSPC, -17, "no space left or buffer too small")                                            \
    X(EINTERNAL, -18, "internal error")

typedef enum fletch_status {
#define FLETCH_STATUS_ENUM(name, value, text) FLETCH_##name = (value),
    FLETCH_STATUS_MAP(FLETCH_STATUS_ENUM)
#undef FLETCH_STATUS_ENUM
        FLETCH_OK = 0 /* last, for a comma at the end is not C89 or C++98 */
} fletch_status;

#define FLETCH_NOWHERE SIZE_MAX

/** What went wrong. `message` says what, where and how to fix it, in one or two sentences. */
typedef struct fletch_error {
    int    code;         /* FLETCH_OK or a negative fletch_status */
    size_t where;        /* index of the text, byte offset in the file, or FLETCH_NOWHERE */
    char   message[496]; /* UTF-8, terminated */
} fletch_error;

/** A short text for a status, e.g. "out of memory"; static, never NULL. Since 0.1. */
FLETCH_API const char *fletch_status_text(int status);

/** The name of a status without prefix, e.g. "ENOMEM"; static, never NULL. Since 0.1. */
FLETCH_API const char *fletch_status_name(int status);

/* ---- Texts and matrices ----------------------------------------------------------------------- */

/** `count` texts, borrowed, in one of three forms; nothing is copied.
 *  Exactly one of `offsets64`, `offsets32`, `pointers` is not NULL:
 *  offsets64 / offsets32: text i is bytes[offsets[i] .. offsets[i+1]), offsets [count+1] from 0 up,
 *                         never decreasing (Arrow's LargeUtf8 and Utf8);
 *  pointers:              text i starts at pointers[i] and has lengths[i] bytes, or ends at its first
 *                         NUL when `lengths` is NULL. */
typedef struct fletch_texts {
    size_t             count;
    const char        *bytes;
    const int64_t     *offsets64; /* [count + 1] */
    const int32_t     *offsets32; /* [count + 1] */
    const char *const *pointers;  /* [count] */
    const size_t      *lengths;   /* [count] or NULL */
} fletch_texts;

/** NUL-terminated strings as texts. Since 0.1. */
FLETCH_INLINE fletch_texts fletch_texts_from_strings(const char *const *strings, size_t count) {
    fletch_texts texts;
    memset(&texts, 0, sizeof texts);
    texts.count    = count;
    texts.pointers = strings;
    return texts;
}

/** Concatenated texts; text i is bytes[offsets[i] .. offsets[i+1]). Since 0.1. */
FLETCH_INLINE fletch_texts fletch_texts_from_offsets(const char *bytes, const int64_t *offsets,
                                                     size_t count) {
    fletch_texts texts;
    memset(&texts, 0, sizeof texts);
    texts.count     = count;
    texts.bytes     = bytes;
    texts.offsets64 = offsets;
    return texts;
}

/** Element types of a result. int8 and uint8 hold round(127 x) of each value clamped to [-1, 1]
 *  (uint8 adds 128). binary and ubinary hold one bit per dimension, 1 for x > 0, with the first dimension
 *  in the highest bit and the dimensions padded to whole bytes; binary is ubinary minus 128, as in
 *  sentence-transformers. */
typedef enum fletch_dtype {
    FLETCH_FLOAT32 = 0,
    FLETCH_INT8    = 1,
    FLETCH_UINT8   = 2,
    FLETCH_BINARY  = 3,
    FLETCH_UBINARY = 4
} fletch_dtype;

/** A caller-owned matrix: row i starts at (char *)data + i * stride. */
typedef struct fletch_matrix {
    void        *data;
    size_t       rows;   /* at least the number of texts */
    size_t       cols;   /* dimensions of a row, before bits are packed */
    size_t       stride; /* bytes from row to row, >= fletch_row_bytes(cols, dtype) */
    fletch_dtype dtype;
} fletch_matrix;

/** Bytes of one row of `cols` dimensions; 0 for an unknown dtype. Since 0.1. */
FLETCH_API size_t fletch_row_bytes(size_t cols, fletch_dtype dtype);

/** Convert a float32 row to another dtype, exactly as a matrix of that dtype is filled, into
 *  out[fletch_row_bytes(cols, dtype)]. FLETCH_EINVAL for an unknown dtype and for a value that is not
 *  finite. Since 0.1. */
FLETCH_API int fletch_row_convert(void *out, const float *row, size_t cols, fletch_dtype dtype);

/** A dense float32 matrix [rows, cols]. Since 0.1. */
FLETCH_INLINE fletch_matrix fletch_matrix_f32(float *data, size_t rows, size_t cols) {
    fletch_matrix matrix;
    matrix.data   = data;
    matrix.rows   = rows;
    matrix.cols   = cols;
    matrix.stride = cols * sizeof(float);
    matrix.dtype  = FLETCH_FLOAT32;
    return matrix;
}

/* ---- Configuration ---------------------------------------------------------------------------- */

typedef struct fletch_config fletch_config;

/** Where a value came from. Later ones win over earlier ones, whatever the order of the calls. */
typedef enum fletch_origin {
    FLETCH_ORIGIN_DEFAULT = 0,
    FLETCH_ORIGIN_PRESET  = 1,
    FLETCH_ORIGIN_FILE    = 2,
    FLETCH_ORIGIN_ENV     = 3,
    FLETCH_ORIGIN_FLAG    = 4 /* fletch_config_set, and the command line's flags */
} fletch_origin;

/** One key of the option table; all strings static. */
typedef struct fletch_option {
    const char *key;           /* "cpu.intra_op_threads" */
    const char *type;          /* "bool", "int", "size", "float", "string", "enum", "list" */
    const char *default_value; /* as text; "" for none */
    const char *bounds;        /* "0..1024", "cpu|cuda|…", or "" */
    const char *text;          /* one sentence */
    const char *environment;   /* "FLETCH_CPU_INTRA_OP_THREADS" */
    const char *flag;          /* "--cpu-intra-op-threads" */
} fletch_option;

/** Called for a warning or a note; `level` is 0 error, 1 warning, 2 info, 3 debug, 4 trace. May be called
 *  from any thread of the library; the message is borrowed for the call. */
typedef void (*fletch_log_fn)(void *user, int level, const char *message);

/** A configuration that holds the defaults; NULL when out of memory. Since 0.1. */
FLETCH_API fletch_config *fletch_config_new(void);

FLETCH_API void fletch_config_free(fletch_config *config); /* NULL is a no-op */

/** Set one key from text, e.g. ("provider.order", "cuda,cpu"). An unknown key is FLETCH_ECONFIG and
 *  the message holds the nearest name; a value outside the key's bounds likewise. Since 0.1. */
FLETCH_API int fletch_config_set(fletch_config *config, const char *key, const char *value,
                                 fletch_error *error);

/** Apply a preset: cpu gpu latency throughput memory debug max. Since 0.1. */
FLETCH_API int fletch_config_preset(fletch_config *config, const char *name, fletch_error *error);

/** Read a TOML file. Errors name file:line:column. Since 0.1. */
FLETCH_API int fletch_config_load(fletch_config *config, const char *toml_path,
                                  fletch_error *error);

/** Read the [ai] section of a TOML file that belongs to another program: model_name, embedding_dim,
 *  auto_download and provider; the rest of the file is ignored. Since 0.1. */
FLETCH_API int fletch_config_load_app(fletch_config *config, const char *toml_path,
                                      fletch_error *error);

/** Read the FLETCH_* variables of the environment (FLETCH_PROVIDER_ORDER and so on, and the
 *  documented aliases). Variables that match no key are logged as warnings. Since 0.1. */
FLETCH_API int fletch_config_load_env(fletch_config *config, fletch_error *error);

/** The model that fletch_open opens without a name: model.id, or model.level where a higher-ranked
 *  source set it. Borrowed until the configuration changes. Since 0.1. */
FLETCH_API const char *fletch_config_model(const fletch_config *config);

/** The value of a key as text, and its origin when `origin` is not NULL ("default", "preset cpu",
 *  "/etc/fletch.toml:3:1", "FLETCH_MODEL_ID", "flag"). Both are borrowed until the configuration
 *  changes. NULL for an unknown key. Since 0.1. */
FLETCH_API const char *fletch_config_get(const fletch_config *config, const char *key,
                                         const char **origin);

/** Receive warnings (a provider that is unavailable, files that disagree …). NULL turns them off. The
 *  pointer must outlive every model opened with this configuration. Since 0.1. */
FLETCH_API void fletch_config_set_log(fletch_config *config, fletch_log_fn log, void *user);

/** Also log every batch, at level 4 (trace): its texts, tokens and times, and the device that ran it. Off
 *  by default. Set it before a model is opened. Since 0.1. */
FLETCH_API void fletch_config_set_trace_log(fletch_config *config, int on);

/** Entry `index` of the option table, or NULL past its end. Since 0.1. */
FLETCH_API const fletch_option *fletch_option_at(size_t index);

/** One line of a preset; all strings static. The lines of a preset are contiguous. */
typedef struct fletch_preset {
    const char *name;  /* "throughput" */
    const char *key;   /* "batch.max_tokens" */
    const char *value; /* "32768" */
    const char *text;  /* why, in one sentence */
} fletch_preset;

/** Line `index` of the table of presets, or NULL past its end. Since 0.1. */
FLETCH_API const fletch_preset *fletch_preset_at(size_t index);

/* ---- The model -------------------------------------------------------------------------------- */

typedef struct fletch_model fletch_model;

/** Open a model: a folder, a hub id ("sentence-transformers/all-MiniLM-L6-v2"), a level ("low",
 *  "medium", "high"), or NULL for the configuration's model.id. A hub id is looked up in the cache
 *  and, unless model.offline or model.auto_download=false, downloaded. Loads and prepares the weights;
 *  `config` NULL means the defaults. On failure *model is NULL. Since 0.1. */
FLETCH_API int fletch_open(fletch_model **model, const char *folder_or_id,
                           const fletch_config *config, fletch_error *error);

/** Like fletch_open, but only the tokenizer: no weights are read, and fletch_embed fails. Since 0.1. */
FLETCH_API int fletch_open_tokenizer(fletch_model **model, const char *folder_or_id,
                                     const fletch_config *config, fletch_error *error);

/** Free a model. Running batches are finished, queued requests end with FLETCH_ECANCELLED, and
 *  calls that wait for them return that; then the memory is freed. No call may begin afterwards. From inside
 *  a fletch_done_fn the model is closed once that has returned. NULL is a no-op. Since 0.1. */
FLETCH_API void fletch_close(fletch_model *model);

/** Change providers without interrupting work: opens new replicas as `config` says (keys provider.*, cpu.*,
 *  cuda.*, onnxruntime.*, tensorrt.*, coreml.* and io.binding; the others keep their values), hands
 *  them the queue, and closes the old ones when their batches are done. No queued text is lost. On
 *  failure the old ones stay. NULL: open again as it was. Threads: any; one at a time, concurrent
 *  calls get FLETCH_EBUSY. Since 0.1. */
FLETCH_API int fletch_model_reopen(fletch_model *model, const fletch_config *config,
                                   fletch_error *error);

/** Pay the one-time costs of the first batches now (page faults, compiled graphs, caches): runs a
 *  short batch on every replica. Takes well under a second on a CPU. Since 0.1. */
FLETCH_API int fletch_warm(fletch_model *model, fletch_error *error);

/** Dimensions of a vector of this model, after the configuration's `dimensions`. Since 0.1. */
FLETCH_API size_t fletch_dimensions(const fletch_model *model);

typedef enum fletch_truncate {
    FLETCH_TRUNCATE_DEFAULT = 0, /* as model.truncate says */
    FLETCH_TRUNCATE_RIGHT   = 1, /* keep the head */
    FLETCH_TRUNCATE_LEFT    = 2, /* keep the tail */
    FLETCH_TRUNCATE_ERROR   = 3  /* fail with FLETCH_ETOOLONG; `where` is the text's index */
} fletch_truncate;

/** What is applied to the logits of a reranker or classifier. */
typedef enum fletch_activation {
    FLETCH_ACTIVATION_DEFAULT = 0, /* as the folder says, like CrossEncoder.predict */
    FLETCH_ACTIVATION_NONE    = 1, /* nothing: logits */
    FLETCH_ACTIVATION_SIGMOID = 2, /* each to 0 … 1 */
    FLETCH_ACTIVATION_SOFTMAX = 3  /* of all labels: probabilities that add up to 1 */
} fletch_activation;

/** Options of one embed, rerank or classify call. All zero (with size) means: as the model and
 *  the configuration say. Scores have no dimensions and normalize: leave these 0. */
typedef struct fletch_embed_options {
    size_t          size;        /* set by FLETCH_EMBED_OPTIONS_INIT */
    const char     *prompt;      /* prepended to every text (of a pair: to the first); takes
                                    precedence over prompt_name */
    const char     *prompt_name; /* one of the folder's prompts */
    uint32_t        dimensions; /* cut to this many, then normalise again if normalising; 0 = all */
    uint32_t        max_length; /* tokens with specials; 0 = the model's; larger is clamped */
    int             normalize;  /* 0 = the model's, 1 = to unit length, -1 = raw pooled vectors */
    fletch_truncate truncate;
    uint32_t       *tokens;    /* out [count]: tokens used per text, specials counted; or NULL */
    uint8_t        *truncated; /* out [count]: 1 where a text was cut; or NULL */
    int32_t        *status;    /* out [count]: FLETCH_OK or why this text has no row; the call
                                  still succeeds. NULL: the first bad text fails the call */
    uint32_t        top_k; /* fletch_embed_sparse: only this many of the largest weights; 0 = all */
    float           threshold;    /* and only those of at least this */
    uint64_t        list_bytes;   /* limit on the memory of a call's lists (fletch_embed_tokens and
                             fletch_embed_sparse); beyond it: FLETCH_ENOSPC. 0 = no limit */
    fletch_activation activation; /* of scores */
    int               no_cache;   /* 1: bypass the result cache (cache.max_bytes): neither read
                                     nor stored there */
    int32_t overlap; /* fletch_embed_spans: tokens that the windows of a long document share;
                        0 = 256, or half a window where that is less; -1 = none */
} fletch_embed_options;

#define FLETCH_EMBED_OPTIONS_INIT                                                                  \
    { .size = sizeof(fletch_embed_options) }

/** Embed texts->count texts into the first rows of *out (caller-owned, out->cols == dimensions).
 *  An empty text is embedded like any other (its special tokens remain). Results do not depend on the
 *  other texts of the call, and equal texts are computed once. On failure rows may be partly written;
 *  error->where is the index of the offending text where one is to blame. `options` NULL means the
 *  defaults. After a first call of the same size a call allocates nothing. Since 0.1. */
FLETCH_API int fletch_embed(fletch_model *model, const fletch_texts *texts,
                            const fletch_embed_options *options, fletch_matrix *out,
                            fletch_error *error);

/* ---- Lists: texts whose results differ in length ----------------------------------------------- */

/** The kinds of result. */
typedef enum fletch_kind {
    FLETCH_KIND_DENSE   = 0, /* a row of a matrix: fletch_embed */
    FLETCH_KIND_TOKENS  = 1, /* a vector for every token: fletch_embed_tokens */
    FLETCH_KIND_SCORES  = 2, /* a score for each label: fletch_rerank, fletch_classify */
    FLETCH_KIND_SPARSE  = 3, /* weights of vocabulary entries: fletch_embed_sparse */
    FLETCH_KIND_SPANS   = 4, /* a row for each span of a document: fletch_embed_spans */
    FLETCH_KIND_COLBERT = 5, /* a vector a token for late interaction: a ColBERT's TOKENS, or of
                                bge-m3's colbert_linear, at unit length. By fletch_embed_outputs */
    FLETCH_KIND_SEVERAL = 6  /* several of these from one pass: fletch_embed_outputs */
} fletch_kind;

/** Bytes [begin, end) of a document. */
typedef struct fletch_span {
    size_t begin, end;
} fletch_span;

/** The entries of one text. */
typedef struct fletch_list {
    size_t         count;
    const int32_t *ids;    /* [count] of tokens, or of vocabulary entries */
    const float   *values; /* [count][columns] */
} fletch_list;

/** The entries of every text of a call. Owned by the object; freed by fletch_lists_free. */
typedef struct fletch_lists {
    size_t             count;   /* texts */
    size_t             columns; /* values of an entry */
    const fletch_list *list; /* [count]; a text that got an error (options.status) has no entry */
} fletch_lists;

/** A vector for every token of each text, as the last layer leaves it (what token classification works
 *  with): entry k of a text is its token k, special tokens and prompt included, and columns are the
 *  model's hidden size. They are not scaled unless options.normalize is 1 or model.normalize is true;
 *  options.dimensions must be 0. A late-interaction model (ColBERT) returns the vectors that it compares: its own
 *  columns and scale, without the tokens that it skips. The prompt name "query" makes a text a query
 *  (padded to the query length where the model does that), "document" a document. The caller frees *lists; it is
 *  NULL on failure. A text's vectors depend on no other text. FLETCH_EUNSUPPORTED: the model or its
 *  provider has none. Threads: any. Since 0.1. */
FLETCH_API int fletch_embed_tokens(fletch_model *model, const fletch_texts *texts,
                                   const fletch_embed_options *options, fletch_lists **lists,
                                   fletch_error *error);

/** Weights of vocabulary entries for each text, of a SPLADE model or bge-m3: columns is 1, ids are
 *  ascending, weights are above 0. options.top_k and options.threshold drop the smallest weights, of
 *  equal ones those with the higher id. For a model whose queries are looked up in a table
 *  (docs/models.md) the prompt names "query" and "document" say what the texts are; weights from that
 *  table are unchanged. Otherwise as fletch_embed_tokens. FLETCH_EUNSUPPORTED: the model has no such
 *  head. Since 0.1. */
FLETCH_API int fletch_embed_sparse(fletch_model *model, const fletch_texts *texts,
                                   const fletch_embed_options *options, fletch_lists **lists,
                                   fletch_error *error);

FLETCH_API void fletch_lists_free(fletch_lists *lists); /* NULL is a no-op */

/** Late chunking: each document is run through the model once, as a whole, and the vectors of a span's
 *  tokens are mean-pooled, so they carry its context. Document i has span_counts[i] spans (at least one),
 *  those of all documents are concatenated in `spans`, and the rows of *out are in that order. Spans may overlap
 *  and come in any order. A token belongs to a span when it begins inside of it; special tokens of the
 *  template before and after the text belong to spans that begin and end with it; a prompt is
 *  read by the model but belongs to no span. One span over a whole text therefore gives the bytes of
 *  fletch_embed (where a prompt, if any, is left out of the pooling there too).
 *  A document longer than options.max_length (or the model's) is split into windows of that many tokens,
 *  which overlap by options.overlap; tokens of the overlap have their vectors from the earlier window.
 *  options.tokens are of documents, each token counted once; options.status must be NULL. normalize,
 *  dimensions and dtype as in fletch_embed. Threads: any. FLETCH_EINVAL, with error->where the document: it is
 *  empty or has no spans, or a span runs backwards, ends beyond it, splits a character or has no token.
 *  FLETCH_EUNSUPPORTED: the model does not pool by mean, is static, or its provider gives no token vectors.
 *  Since 0.1. */
FLETCH_API int fletch_embed_spans(fletch_model *model, const fletch_texts *documents,
                                  const fletch_span *spans, const size_t *span_counts,
                                  const fletch_embed_options *options, fletch_matrix *out,
                                  fletch_error *error);

/** One of the outputs that texts become in one pass. */
typedef struct fletch_output {
    size_t        size;      /* set by FLETCH_OUTPUT_INIT; the same for all of an array */
    fletch_kind   kind;      /* DENSE, TOKENS, SPARSE or COLBERT */
    int           normalize; /* 0: as options.normalize says; 1, -1: in its place */
    fletch_matrix out;       /* of kind DENSE: as for fletch_embed, cut to out.cols dimensions; else
                            ignored */
    fletch_lists *lists; /* out, of the other kinds: the caller frees them with fletch_lists_free;
                            NULL until then and after a failure */
} fletch_output;

#define FLETCH_OUTPUT_INIT                                                                         \
    { .size = sizeof(fletch_output) }

/** Several outputs of each text from one pass through the model: rows of any dimensions and dtypes, sparse weights,
 *  vectors of tokens, as far as the model gives them (fletch_model_info). Each has the same bytes as a call for it
 *  alone: fletch_embed (options.dimensions = out.cols where that is not fletch_dimensions), fletch_embed_tokens,
 *  fletch_embed_sparse; one output costs what that call costs. outputs [count]: at least one, and one each of kinds
 *  other than DENSE. options.dimensions must be 0; options.list_bytes is of all lists together; top_k and threshold are
 *  those of the sparse output. The result cache is shared with the other calls. Threads: any.
 *  FLETCH_EUNSUPPORTED: the model or its provider does not give one of the outputs. Otherwise as fletch_embed.
 *  Since 0.1. */
FLETCH_API int fletch_embed_outputs(fletch_model *model, const fletch_texts *texts,
                                    const fletch_embed_options *options, fletch_output *outputs,
                                    size_t count, fletch_error *error);

/** An output by its name, as the command line, the server and the Python package take it: "dense", "dense:256",
 *  "dense:int8", "dense:256:int8", "sparse", "tokens", "colbert" (`size` bytes of `name`). Fills kind and, where the
 *  name has them, out.cols and out.dtype; the rest of *output is unchanged. FLETCH_EINVAL: no such output.
 *  Since 0.1. */
FLETCH_API int fletch_output_parse(fletch_output *output, const char *name, size_t size,
                                   fletch_error *error);

/** Score `documents` against a query with a reranker, a cross-encoder with one label: scores[i], the
 *  higher the better, is of document i; scores [documents->count], caller-owned. Query and document are
 *  read as one sequence; if it is too long, the longer of the two is shortened first. The query is
 *  tokenised once. A late-interaction model scores too: the query is embedded once, and a score is
 *  the sum (or, where the folder says meanmaxsim, the mean) over its vectors of the largest dot product
 *  with one of the document's; the prompts "query" and "document" are prepended to the
 *  texts; options.prompt replaces the former. A score does not depend on the other documents, and is
 *  never NaN (that is FLETCH_EMODEL). FLETCH_EUNSUPPORTED: the model is not a reranker. FLETCH_EBUSY:
 *  the queue had no room for the query of a late-interaction model. Otherwise as fletch_embed; the
 *  arrays of options have one entry per document. Since 0.1. */
FLETCH_API int fletch_rerank(fletch_model *model, const char *query, size_t query_size,
                             const fletch_texts *documents, const fletch_embed_options *options,
                             float *scores, fletch_error *error);

/** Scores of every label (fletch_label_at) for each text, or for each pair of texts[i] and second[i]
 *  where `second` is not NULL (as many as texts): rows of *out, float32, out->cols the number of
 *  labels, which fletch_dimensions gives. FLETCH_EUNSUPPORTED: the model is not a classifier.
 *  Otherwise as fletch_rerank. Since 0.1. */
FLETCH_API int fletch_classify(fletch_model *model, const fletch_texts *texts,
                               const fletch_texts *second, const fletch_embed_options *options,
                               fletch_matrix *out, fletch_error *error);

/** The name of label `index` of a reranker or classifier ("LABEL_0", "entailment"), borrowed until the
 *  model is closed; NULL past the last, and for any other model. Since 0.1. */
FLETCH_API const char *fletch_label_at(const fletch_model *model, size_t index);

/* ---- Requests: embedding without waiting ------------------------------------------------------ */

/** Who waits for the result. Interactive texts leave first; bulk texts always get a share. */
typedef enum fletch_lane { FLETCH_LANE_INTERACTIVE = 0, FLETCH_LANE_BULK = 1 } fletch_lane;

/** A request. The struct and its options are copied by fletch_submit; everything they point to (texts,
 *  prompt, matrix, tokens, truncated, status) is borrowed until `done` is called. */
typedef struct fletch_request {
    size_t         size; /* set by FLETCH_REQUEST_INIT */
    fletch_texts   texts;
    const int32_t *ids; /* token ids instead of texts: texts.offsets64 or offsets32 then count
                                   ids, not bytes. The ids are used unchanged: the caller adds prompt and
                                   special tokens. Longer sequences are truncated as texts are */
    const fletch_embed_options *options; /* NULL: the defaults */
    fletch_matrix               out;
    fletch_lane                 lane;
    uint32_t                    deadline_ms; /* from now; 0 = none. Late: FLETCH_EDEADLINE */
    uint32_t    inline_us; /* how long this thread may run the request itself, 0 = not at all.
                                   If nothing else is queued and it is likely to finish in that time,
                                   `done` is called before fletch_submit returns */
    fletch_kind kind;      /* of lists (TOKENS …): the result is outcome.lists, not `out` */
    const char *query; /* of kind SCORES: the texts are documents to rerank; NULL: to classify */
    size_t      query_size;
    const fletch_texts *second; /* to classify pairs: the second text of each, borrowed too;
                                   a NULL pointer: that text alone */
    const uint8_t *are_ids;  /* texts and ids in one request: NULL, or [texts.count] of texts with
                               pointers and lengths. 1: pointers[i] is lengths[i] token ids (int32_t),
                               used as those of `ids` are */
    int (*stop)(void *user); /* polled every few milliseconds while a long text is tokenised, on
                                   whichever thread does that, until `done`. Non-zero cancels the
                                   request (FLETCH_ECANCELLED), even before fletch_submit has
                                   returned its ticket. May be NULL */
    void              *stop_user;
    const fletch_span *spans;        /* of kind SPANS: as for fletch_embed_spans; read before */
    const size_t      *span_counts;  /* fletch_submit returns, and not later; else NULL */
    fletch_output     *outputs;      /* of kind SEVERAL: as for fletch_embed_outputs, in place of */
    size_t             output_count; /* `out`; their lists are set when `done` is called */
    uint64_t owner;  /* for fair queueing; 0: shared by all that name none. Owners get tokens */
    uint32_t weight; /* in proportion to their weights, however much each has queued; 1 to
                               1000 (0: 1) */
} fletch_request;

#define FLETCH_REQUEST_INIT                                                                        \
    { .size = sizeof(fletch_request) }

/** How a request ended. Borrowed for the call of `done`. */
typedef struct fletch_outcome {
    fletch_error  error;       /* code FLETCH_OK: every row is written */
    uint64_t      tokens;      /* of all its texts */
    uint64_t      tokenize_ns; /* tokenising its texts */
    uint64_t      queue_ns;    /* the longest wait of a text for a batch */
    uint64_t      forward_ns;  /* the longest time of a text in the engine and the output stage */
    uint64_t      total_ns;    /* from fletch_submit to now */
    fletch_lists *lists;       /* of a kind of lists (TOKENS …) when error.code is FLETCH_OK: your
                             callback frees them (fletch_lists_free). Else NULL */
} fletch_outcome;

/** Called exactly once for every request that fletch_submit accepted, when fletch no longer touches its
 *  memory: on a thread of the library, or from inside another call on the model. Keep it short: it
 *  delays a batch. It may call fletch_submit, fletch_cancel and fletch_close (see there); calling
 *  fletch_embed works but stalls the thread it runs on. */
typedef void (*fletch_done_fn)(void *user, const fletch_outcome *outcome);

/** Names a request in flight; 0 is none. */
typedef uint64_t fletch_ticket;

/** Queue a request and return at once (a long first text is tokenised on the calling thread). When
 *  the call fails, `done` is not called. `ticket` may be NULL. FLETCH_EBUSY: more tokens are queued than
 *  server.max_queue_tokens allows; retry later. Zero texts are answered before the call returns. Since 0.1. */
FLETCH_API int fletch_submit(fletch_model *model, const fletch_request *request,
                             fletch_done_fn done, void *user, fletch_ticket *ticket,
                             fletch_error *error);

/** Cancel a request. Its queued texts leave the queue at once; `done` is called with
 *  FLETCH_ECANCELLED, from this call unless some of its texts are in the engine, else when those return.
 *  FLETCH_ENOTFOUND: it has already been answered. Since 0.1. */
FLETCH_API int fletch_cancel(fletch_model *model, fletch_ticket ticket);

/* ---- Statistics ------------------------------------------------------------------------------- */

/** Durations of one phase. Bucket i counts those <= fletch_histogram_bound(i) nanoseconds and above
 *  the bound before; the last bucket has no bound. Percentiles are read from the buckets (four to an
 *  octave, so at most 19 % too high). The struct never grows. */
#define FLETCH_HISTOGRAM_BUCKETS 104
typedef struct fletch_histogram {
    uint64_t count, sum_ns, max_ns;
    uint64_t p50_ns, p90_ns, p95_ns, p99_ns;
    uint64_t bucket[FLETCH_HISTOGRAM_BUCKETS];
} fletch_histogram;

/** Upper bound of a bucket in nanoseconds; UINT64_MAX for the last. Since 0.1. */
FLETCH_API uint64_t fletch_histogram_bound(size_t bucket);

/* Counters since the model was opened: FLETCH_COUNT_NAME, name, text. New ones are appended. */
#define FLETCH_COUNTER_MAP(X)                                                                      \
    X(REQUESTS, requests, "requests accepted, blocking calls included")                            \
    X(TEXTS, texts, "texts embedded by an engine, without repeats and cache hits")                 \
    X(TOKENS, tokens, "tokens embedded, special tokens included")                                  \
    X(TRUNCATED_TEXTS, truncated_texts, "texts truncated to the model's length")                   \
    X(FAILED_TEXTS, failed_texts, "texts that got an error instead of a vector")                   \
    X(FAILED_REQUESTS, failed_requests,                                                            \
      "requests that ended with an error, without cancelled and expired ones")                     \
    X(CANCELLED_REQUESTS, cancelled_requests, "requests cancelled by their callers")               \
    X(EXPIRED_REQUESTS, expired_requests, "requests whose deadline passed")                        \
    X(REJECTED_REQUESTS, rejected_requests, "requests rejected because the queue was full")        \
    X(BATCHES, batches, "batches that went through an engine")                                     \
    X(BATCH_SPLITS, batch_splits, "batches split to fit into memory")                              \
    X(BATCH_RETRIES, batch_retries, "batches rerun after a failure")                               \
    X(FP32_RETRIES, fp32_retries, "texts rerun in fp32 because they overflowed a narrower format") \
    X(BATCHING_WAITS, batching_waits, "times an idle engine waited to fill a batch")               \
    X(ZERO_COPY_INPUTS, zero_copy_inputs,                                                          \
      "texts whose bytes and ids reached the engine without a copy")                               \
    X(COPIED_INPUTS, copied_inputs,                                                                \
      "texts copied for a prompt or a pair, or whose ids were gathered, widened or staged")        \
    X(ZERO_COPY_OUTPUTS, zero_copy_outputs,                                                        \
      "texts whose row the engine wrote into the caller's memory")                                 \
    X(STAGED_OUTPUTS, staged_outputs,                                                              \
      "texts whose row went through a buffer (dense layers, cut, other type, device block)")       \
    X(POOL_REQUESTS, pool_requests, "buffers requested from the pool")                             \
    X(POOL_HITS, pool_hits, "of these, served by a pooled buffer")                                 \
    X(POOL_ALLOCATIONS, pool_allocations, "buffers allocated on request")                          \
    X(POOL_ALLOCATION_NS, pool_allocation_ns, "time spent allocating them")                        \
    X(POOL_EVICTIONS, pool_evictions, "buffers freed because the pool was full")                   \
    X(PRESSURE_CLEANUPS, pressure_cleanups, "times the pool was emptied because memory was low")   \
    X(PROVIDER_SELECTIONS, provider_selections, "replicas opened")                                 \
    X(PROVIDER_FALLBACKS, provider_fallbacks, "times opening fell back to the next provider")      \
    X(REPLICA_FAILURES, replica_failures, "times an engine failed")                                \
    X(REPLICA_REOPENS, replica_reopens, "times a replica was reopened")                            \
    X(BUSY_NS, busy_ns, "time engines spent in forward, all replicas")                             \
    X(BOUND_RUNS, bound_runs, "runs of ONNX Runtime with inputs and outputs bound")                \
    X(UNBOUND_RUNS, unbound_runs, "runs of ONNX Runtime without binding")                          \
    X(SCORED_TEXTS, scored_texts, "texts that got scores (reranked or classified)")                \
    X(TOKEN_TEXTS, token_texts, "texts that got a vector for every token")                         \
    X(SPARSE_TEXTS, sparse_texts, "texts that got sparse weights")                                 \
    X(TOKENIZED_BYTES, tokenized_bytes, "bytes of text tokenised, without prompts")                \
    X(TOKENIZE_NS, tokenize_ns, "time spent tokenising, summed over threads")                      \
    X(REPEATED_TEXTS, repeated_texts,                                                              \
      "texts that shared the result of an equal text of their request")                            \
    X(CACHE_HITS, cache_hits, "texts answered from the result cache")                              \
    X(CACHE_MISSES, cache_misses, "texts not found in the result cache")                           \
    X(CACHE_EVICTIONS, cache_evictions, "results evicted from the cache")                          \
    X(IDF_LOOKUPS, idf_lookups, "texts whose weights came from the IDF table, without an engine")  \
    X(BULK_DEFERRALS, bulk_deferrals,                                                              \
      "times bulk texts waited for interactive texts of another model")

typedef enum fletch_counter {
#define FLETCH_COUNTER_ENUM(NAME, name, text) FLETCH_COUNT_##NAME,
    FLETCH_COUNTER_MAP(FLETCH_COUNTER_ENUM)
#undef FLETCH_COUNTER_ENUM
        FLETCH_COUNTERS /* known to this header; a newer library may have more */
} fletch_counter;

/** Capacity for counters of later versions. */
#define FLETCH_COUNTER_MAX 64

/** Name ("texts") and meaning of a counter; NULL past the last that this library has. Since 0.1. */
FLETCH_API const char *fletch_counter_name(size_t counter);
FLETCH_API const char *fletch_counter_text(size_t counter);

/** A snapshot. Counters are read one by one without stopping anything: they may disagree by what
 *  happened in between. */
typedef struct fletch_stats {
    size_t size; /* set it to sizeof(fletch_stats) before the call; the bytes filled after it */
    /* now */
    uint64_t queued_requests, queued_texts, queued_tokens;
    uint64_t running_texts; /* in an engine */
    uint64_t batch_tokens;  /* the token budget in force */
    uint64_t pool_buffers, pool_bytes;
    uint64_t replicas, replicas_ready;
    uint64_t slots, slots_busy; /* batches that may run at once, and that do */
    uint64_t memory_bytes;      /* resident memory of the process */
    uint64_t memory_limit;      /* memory.limit or the cgroup's, the lower; 0: none */
    uint64_t memory_reserved;   /* predicted for batches under way */
    uint64_t uptime_ns;
    char     provider[32]; /* of the first replica */
    char     precision[16];
    char     device[64];
    /* durations */
    fletch_histogram tokenize; /* a text's share of its block */
    fletch_histogram queue;    /* a text's wait for its batch */
    fletch_histogram forward;  /* a batch in the engine */
    fletch_histogram total;    /* a request from submit to done */
    /* since the model was opened: counter[FLETCH_COUNT_TEXTS] */
    uint64_t counter_count; /* that this library has */
    uint64_t counter[FLETCH_COUNTER_MAX];
    /* now */
    uint64_t cache_entries, cache_bytes; /* of results */
    uint64_t cache_limit;                /* cache.max_bytes; 0: there is none */
} fletch_stats;

/** Fill *stats (with its size set). Takes a few microseconds and no lock that work waits for. */
FLETCH_API int fletch_stats_get(fletch_model *model, fletch_stats *stats, fletch_error *error);

/** What one replica of a model and its device are doing. Sizes in bytes; 0 where unknown. The name is empty
 *  while the replica is not open. */
typedef struct fletch_device_stats {
    size_t   size; /* as in fletch_stats */
    char     provider[32];
    char     name[64];           /* "NVIDIA H200" */
    uint32_t device;             /* which of its kind, from 0 */
    uint32_t slots_busy;         /* batches in it now */
    int32_t  ready;              /* 0: it failed and is being retried, see `failure` */
    int32_t  utilisation;        /* of the device, per cent, by its driver; -1: unknown */
    uint64_t outstanding_tokens; /* of those batches */
    uint64_t batches, tokens;    /* that the replica ran since it was first opened */
    uint64_t memory_used;        /* on the device, by all processes */
    uint64_t memory_total;
    uint64_t pool_used; /* its memory in use by fletch's models, and the most it ever was */
    uint64_t pool_peak;
    uint64_t pool_held;     /* memory that the pool holds */
    uint64_t pool_requests; /* blocks requested, and how many of them were reused */
    uint64_t pool_hits;
    char     failure[256];                      /* why it is not ready; "" when it is */
    uint64_t zero_copy_inputs, copied_inputs;   /* as the model's counters of these names, */
    uint64_t zero_copy_outputs, staged_outputs; /* of this replica alone */
    uint64_t bound_runs, unbound_runs;
} fletch_device_stats;

/** Fill *stats (with its size set) for replica `index`, from 0; FLETCH_ENOTFOUND past the last. Asks the
 *  device's driver where there is one. Since 0.1. */
FLETCH_API int fletch_device_stats_get(fletch_model *model, size_t index,
                                       fletch_device_stats *stats, fletch_error *error);

/** All of these as one JSON object, ratios (pool hit, buffer reuse, zero copy, utilisation) added. Writes
 *  at most `capacity` bytes with a NUL and returns the length without it. Since 0.1. */
FLETCH_API int64_t fletch_stats_json(fletch_model *model, char *text, size_t capacity,
                                     fletch_error *error);

/** Start the trace that the key profile.file names, empty, and stop it, which writes the file. FLETCH_EINVAL
 *  where the key is not set, or where no trace is running; FLETCH_EBUSY where one already is. A trace
 *  that is still running when the model closes is written then. Threads: any. Since 0.1. */
FLETCH_API int fletch_profile_start(fletch_model *model, fletch_error *error);
FLETCH_API int fletch_profile_stop(fletch_model *model, fletch_error *error);

/* ---- Tokens ----------------------------------------------------------------------------------- */

typedef struct fletch_tokenize_options {
    size_t          size;
    uint32_t        max_length; /* 0 = no truncation */
    fletch_truncate truncate;   /* DEFAULT: the model's side; never an error */
    int             no_special_tokens;
    const char
          *pair; /* a second text: both become one sequence, as a reranker reads them; or NULL */
    size_t pair_size;        /* its bytes */
    int    pair_truncate;    /* what max_length shortens: fletch_pair_truncate */
    int (*stop)(void *user); /* polled every few milliseconds of a long text; non-zero ends it */
    void *stop_user;         /* with FLETCH_ECANCELLED; may be NULL */
} fletch_tokenize_options;

typedef enum fletch_pair_truncate {
    FLETCH_PAIR_LONGEST_FIRST = 0, /* both, the longer one first */
    FLETCH_PAIR_ONLY_FIRST    = 1,
    FLETCH_PAIR_ONLY_SECOND   = 2
} fletch_pair_truncate;

#define FLETCH_TOKENIZE_OPTIONS_INIT                                                               \
    { .size = sizeof(fletch_tokenize_options) }

/** The tokens of one text. Owned by the object; freed by fletch_tokens_free. */
typedef struct fletch_tokens {
    size_t          count;
    const int32_t  *ids;          /* [count] */
    const uint32_t *offsets;      /* [count][2]: byte offsets into the text; 0,0 for added tokens */
    const uint8_t  *special;      /* [count]: 1 for tokens that the template added */
    int             truncated;    /* 1 when max_length cut the text */
    size_t          second;       /* of a pair: where the tokens of the second text begin, */
    size_t          second_count; /* how many there are (their offsets are bytes of that text), */
    size_t segment; /* and the first token of type 1; count where there is none or no pair */
} fletch_tokens;

/** Tokenise one text exactly as embedding does (without prompt), or two as one sequence. Since 0.1. */
FLETCH_API int fletch_tokenize(fletch_model *model, const char *text, size_t size,
                               const fletch_tokenize_options *options, fletch_tokens **tokens,
                               fletch_error *error);

FLETCH_API void fletch_tokens_free(fletch_tokens *tokens); /* NULL is a no-op */

/** The text of a token id ("##ing"), NUL-terminated, borrowed from the model; NULL for an id outside
 *  the vocabulary. Since 0.1. */
FLETCH_API const char *fletch_token_text(const fletch_model *model, int32_t id);

/** Turn ids back into text. Writes at most `capacity` bytes with a NUL and returns the length without
 *  it; when that is >= capacity the text was cut (call again with more). Ids outside the vocabulary
 *  are FLETCH_EINVAL. Since 0.1. */
FLETCH_API int64_t fletch_decode(const fletch_model *model, const int32_t *ids, size_t count,
                                 int skip_special_tokens, char *text, size_t capacity,
                                 fletch_error *error);

/* ---- Chunks of a document --------------------------------------------------------------------- */

/** What a chunk keeps whole where it fits: sentences as Unicode has them (UAX 29), paragraphs between blank
 *  lines, sections and code fences of Markdown, words. */
typedef enum fletch_chunk_by {
    FLETCH_CHUNK_BY_SENTENCES  = 0,
    FLETCH_CHUNK_BY_TOKENS     = 1, /* as many tokens as fit, cut between words */
    FLETCH_CHUNK_BY_PARAGRAPHS = 2,
    FLETCH_CHUNK_BY_MARKDOWN   = 3
} fletch_chunk_by;

/** max_tokens: of a chunk, without the special tokens that the model adds; 0: as many as the model takes. A
 *  prompt's tokens are the caller's to leave room for. overlap: tokens of whole sentences (or words …) that a
 *  chunk may repeat of the one before it; less than max_tokens. stop: as in fletch_tokenize_options. */
typedef struct fletch_chunk_options {
    size_t          size;
    fletch_chunk_by by;
    uint32_t        max_tokens;
    uint32_t        overlap;
    int (*stop)(void *user);
    void *stop_user;
} fletch_chunk_options;

#define FLETCH_CHUNK_OPTIONS_INIT                                                                  \
    { .size = sizeof(fletch_chunk_options) }

/** Where the chunks of one text lie. Tokens are those of a chunk as a text of its own, special tokens not counted.
 *  Owned by the object; freed by fletch_chunks_free. */
typedef struct fletch_chunks {
    size_t          count;
    const size_t   *offsets; /* [count][2]: begin and end in bytes of the text, */
    const size_t   *chars;   /* [count][2]: in code points */
    const uint32_t *tokens;  /* [count] */
} fletch_chunks;

/** Cut a text into chunks of at most max_tokens tokens, as many units as fit in each; units that are too long
 *  are cut into smaller ones, down to characters. The first chunk begins and the last one ends where the text
 *  does; each begins where the one before it ends or, with an overlap, before that: no byte is lost. An empty
 *  text has no chunks. A chunk has more than max_tokens only where one character has, and holds about 4 MiB of
 *  text at most. EINVAL: max_tokens is more than the model takes, or 0 where the model takes any number; overlap
 *  is not less. EUTF8. Needs no weights. Memory beside the result is that of a chunk; the text is tokenised
 *  about twice. Threads: any. Since 0.1. */
FLETCH_API int fletch_chunk(fletch_model *model, const char *text, size_t size,
                            const fletch_chunk_options *options, fletch_chunks **chunks,
                            fletch_error *error);

FLETCH_API void fletch_chunks_free(fletch_chunks *chunks); /* NULL is a no-op */

/* ---- Model information ------------------------------------------------------------------------ */

/** What an open model is. Strings are borrowed until the model is closed; "" and 0 where
 *  unknown. After fletch_open_tokenizer only id to tokenizer are filled. */
typedef struct fletch_model_info {
    size_t      size; /* as in fletch_stats */
    const char *id;   /* hub id, or the folder */
    const char *path;
    const char *revision;
    const char *tokenizer; /* "WordPiece" */
    const char *family;    /* "bert" */
    const char *pooling;   /* "mean"; several joined by ',' */
    const char *similarity;
    const char *prompt;         /* prepended to every text by default */
    const char *weights_format; /* "safetensors", "pytorch", "gguf", "onnx" */
    const char *weights_dtype;  /* on the disk: "F32" */
    uint64_t    weights_bytes;  /* of its files */
    uint64_t    parameters;
    int64_t     modified; /* the newest of its files, Unix seconds */
    uint32_t    vocabulary;
    uint32_t    layers, hidden;
    uint32_t    dimensions; /* of a vector */
    uint32_t    max_length; /* tokens, specials counted */
    uint32_t    normalize;  /* 1: to unit length */
    uint32_t    prompt_count;
    char        provider[32]; /* of the first replica, now */
    char        precision[16];
    uint32_t    labels; /* of a reranker (1) or classifier: a row is their scores; 0: any other */
    const char *activation; /* of the scores by default: "sigmoid", "identity"; "" without labels */
    const char
        *head; /* the kind of result: "embedding", "scores" of labels, "sparse" weights, "late":
                          a vector for every token, for late interaction */
    const char
        *features;    /* what the encoder has beyond plain BERT: "gated MLPs, rotary positions" */
    const char *task; /* whose adapter is in the weights; "" without adapters */
    uint32_t    positions; /* the longest that max_length may be */
    uint32_t    heads, key_heads, intermediate;
    uint32_t    sparse;  /* dimensions of a sparse vector, whatever `head` is; 0: it gives none */
    uint32_t    colbert; /* of a token's vector for late interaction, likewise */
} fletch_model_info;

/** Fill *info (with its size set). Since 0.1. */
FLETCH_API int fletch_model_info_get(fletch_model *model, fletch_model_info *info,
                                     fletch_error *error);

/** Floating-point operations of one text of `tokens` tokens (special ones included) in the layers' matrix
 *  products and attention, 2 for a multiply-add; 0 where the layers are unknown (an .onnx file) or absent.
 *  For comparing a rate with a processor's peak. Since 0.1. */
FLETCH_API uint64_t fletch_text_flops(const fletch_model *model, uint32_t tokens);

/** A prompt of the folder (config_sentence_transformers.json). */
typedef struct fletch_prompt {
    const char *name; /* "query" */
    const char *text; /* prepended to a text */
} fletch_prompt;

/** Prompt `index`, borrowed until the model is closed; NULL past the last. Since 0.1. */
FLETCH_API const fletch_prompt *fletch_prompt_at(const fletch_model *model, size_t index);

/** Called once per property; return non-zero to stop. Strings are borrowed for the call.
 *  `origin` says where the value came from ("1_Pooling/config.json", "default", "flag" …) or "". */
typedef int (*fletch_property_fn)(void *user, const char *name, const char *value,
                                  const char *origin);

/** Properties of an open model: id, path, revision, architecture, pooling, normalize, prompts,
 *  max_length, dimensions, dtype, provider, isa, threads … Returns the value that stopped it, or
 *  0. Since 0.1. */
FLETCH_API int fletch_model_describe(fletch_model *model, fletch_property_fn fn, void *user);

/** Path of weight file `index` that the model keeps memory-mapped, so it must not be modified while the model
 *  is open; borrowed until it is closed, NULL past the last. Since 0.1. */
FLETCH_API const char *fletch_model_file_at(const fletch_model *model, size_t index);

/** 64 hexadecimal digits and a NUL that identify the model's files: SHA-256 over their hashes, independent
 *  of where the folder is. Reads every file the first time. "" on failure. Any thread. Since 0.1. */
FLETCH_API int fletch_model_fingerprint(fletch_model *model, char out[65], fletch_error *error);

/** What determines the bytes of the model's vectors, one call of fn for each part (non-zero stops): "model"
 *  (its fingerprint), "numerics" (a number that the library raises when the bytes of some vector change), "dtype",
 *  "dimensions", "prompt", "normalize", "max_length", "truncate", "pooling", "task", "provider", "precision", "cpu.isa"
 *  and so on; parts that do not apply are left out. Strings are borrowed for the call, `origin` is "". Reads every file
 *  of the model the first time. EINVAL (opened without an engine), EIO, ENOMEM. Any thread. Since 0.1. */
FLETCH_API int fletch_vector_describe(fletch_model *model, fletch_property_fn fn, void *user,
                                      fletch_error *error);

/** 64 hexadecimal digits and a NUL over these parts, after applying those of a call (`options`, NULL: the model's own;
 *  `dtype` of the rows): equal ids mean equal bytes for equal texts. SHA-256 of the lines "name value\n" of
 *  fletch_vector_describe. "" on failure: as there, and EINVAL for a prompt that the model does not have. Since 0.1. */
FLETCH_API int fletch_vector_id(fletch_model *model, const fletch_embed_options *options,
                                fletch_dtype dtype, char out[65], fletch_error *error);

/** Text `index` of the canary texts (`fletch canary`): several scripts, code, white space, an empty text, one that is
 *  longer than most models read. UTF-8, static; NULL past the last. Since 0.1. */
FLETCH_API const char *fletch_canary_text(size_t index);

/** Properties of this machine and of each execution provider (usable, or why not). Since 0.1. */
FLETCH_API int fletch_system_describe(const fletch_config *config, fletch_property_fn fn,
                                      void *user);

/** Progress of a download or a file being written, in bytes. Called on the calling thread; return non-zero
 *  to cancel. */
typedef int (*fletch_progress_fn)(void *user, const char *file, uint64_t done, uint64_t total);

/* ---- Conversion ------------------------------------------------------------------------------- */

/** Write a model, opened by `folder_or_id` and `config` (NULL: defaults) as fletch_open does, to `path` as one GGUF
 *  file, which llama.cpp reads too. `type` is that of the matrices: "F32", "F16", "BF16", "Q8_0" (NULL), "Q5_1",
 *  "Q5_0", "Q4_1" or "Q4_0", rounded as the gguf package rounds them; vectors stay float32. The same model gives
 *  the same bytes. A file at `path` is replaced once all is written; a failure leaves it unchanged.
 *  FLETCH_EINVAL: no such type. FLETCH_EUNSUPPORTED: the model has something that GGUF cannot express, which the
 *  message names; no file is written that would be read as a different model. FLETCH_ECANCELLED:
 *  `progress` (may be NULL; first called with 0, when the model is open and accepted) returned non-zero. Since 0.1. */
FLETCH_API int fletch_gguf_write(const fletch_config *config, const char *folder_or_id,
                                 const char *path, const char *type, fletch_progress_fn progress,
                                 void *user, fletch_error *error);

/* ---- The hub cache ---------------------------------------------------------------------------- */

/** Download a model's files, and those of an adapter's base, into the cache and write its snapshot
 *  folder to path[capacity]. Files already there are kept. `id` may be a level; "id@revision"
 *  names a revision. Since 0.1. */
FLETCH_API int fletch_hub_pull(const fletch_config *config, const char *id,
                               fletch_progress_fn progress, void *user, char *path, size_t capacity,
                               fletch_error *error);

/** The snapshot folder of a model in the cache, without the network. Since 0.1. */
FLETCH_API int fletch_hub_path(const fletch_config *config, const char *id, char *path,
                               size_t capacity, fletch_error *error);

/** One cached model. Strings are borrowed for the call. */
typedef struct fletch_hub_entry {
    const char *id;       /* "sentence-transformers/all-MiniLM-L6-v2" */
    const char *revision; /* 40 hex digits */
    const char *refs;     /* "main" or "main, v1"; "" when none points here */
    const char *path;     /* snapshot folder */
    uint64_t    bytes;
    uint32_t    files;
} fletch_hub_entry;

/** Called per cached snapshot; return non-zero to stop. Since 0.1. */
typedef int (*fletch_hub_entry_fn)(void *user, const fletch_hub_entry *entry);
FLETCH_API int fletch_hub_list(const fletch_config *config, fletch_hub_entry_fn fn, void *user,
                               fletch_error *error);

/** Check every file of a cached model against the hash its blob is named by. `fn` is called for each
 *  file: value is "ok", "no hash known (N bytes)" for a plain file (not an error), or what is wrong.
 *  FLETCH_ECHECKSUM when any differs. Since 0.1. */
FLETCH_API int fletch_hub_verify(const fletch_config *config, const char *id, fletch_property_fn fn,
                                 void *user, fletch_error *error);

/** Remove a model (all revisions, or the one named by id@revision) from the cache; *freed (may be
 *  NULL) is the number of bytes freed. Since 0.1. */
FLETCH_API int fletch_hub_remove(const fletch_config *config, const char *id, uint64_t *freed,
                                 fletch_error *error);

#ifdef __cplusplus
}
#endif

#endif /* FLETCH_H */
