/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - a Hugging Face / sentence-transformers folder, read and checked, ready for an engine.
 *
 * Role    fletch_open resolves a name to a folder (hub/hub.h), this opens the folder:
 *         config.json -> descriptor, safetensors -> slots, modules.json and its modules ->
 *         pooling, dense layers and normalisation, the sentence-transformers configs -> lengths
 *         and prompts. Engines read `encoder`; the runtime reads the rest.
 * Memory  Owns everything it points to; immutable after opening; weights stay mapped.
 * Errors  EMODEL for damaged or missing files (which, where), EUNSUPPORTED for a model_type,
 *         module, activation or switch that is not handled, by name.
 * Proof   tests/unit/test_model*.c and the golden vectors. */
#ifndef FL_MODEL_MODEL_H
#define FL_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "fletch.h"
#include "hub/model_files.h"
#include "model/encoder.h"
#include "model/heads.h"

typedef enum fl_dense_activation {
    FL_DENSE_IDENTITY,
    FL_DENSE_TANH,
    FL_DENSE_GELU,
    FL_DENSE_RELU,
    FL_DENSE_SIGMOID
} fl_dense_activation;

/* What happens to a pooled row, in modules.json's order. */
typedef enum fl_stage_kind {
    FL_STAGE_DENSE,
    FL_STAGE_NORMALIZE,
    FL_STAGE_LAYER_NORM,
    FL_STAGE_WHOLE, /* round(127 tanh(x)), ties to even (pplx-embed) */
    FL_STAGE_GATE   /* residual tanh(weight x + bias), column by column (Stable Static Embedding) */
} fl_stage_kind;
typedef struct fl_stage {
    fl_stage_kind       kind;
    uint32_t            in, out; /* dims; equal but for dense */
    float              *weight;  /* dense: [out, in]; layer norm: [in]; owned */
    float              *bias;    /* [out] or NULL; owned */
    fl_dense_activation activation;
    bool                adds_row; /* dense: what came in is added to what it gives … */
    float              *residual; /* … multiplied by this [out, in]; NULL: as it is; owned */
    float               eps;      /* layer norm */
} fl_stage;

/* The weights as files. */
typedef struct fl_weight_files {
    const char *format;     /* "safetensors", "pytorch", "gguf", "onnx"; static */
    uint64_t    bytes;      /* of all of them */
    uint64_t    parameters; /* elements of floating point tensors; 0: cannot be told */
    int64_t     modified;   /* the newest, Unix seconds */
} fl_weight_files;

/* A value with the file or rule it came from ("1_Pooling/config.json", "no modules.json:
 * default"). */
typedef struct fl_model_source {
    const char *origin; /* static or owned by the model */
} fl_model_source;

/* How a query and a document become a text for a language model: pieces, one after the other. */
typedef enum fl_chat_kind {
    FL_CHAT_TEXT,
    FL_CHAT_QUERY,
    FL_CHAT_DOCUMENT,
    FL_CHAT_SYSTEM
} fl_chat_kind;
typedef struct fl_chat_piece {
    fl_chat_kind kind;
    const char  *text; /* of a text; of the system's, where no prompt says otherwise; else "" */
    uint32_t
        most; /* characters of a query or document that count, then without white space around; 0: all */
} fl_chat_piece;

/* On which side of a search a text stands; models of FL_HEAD_LATE and those with a fl_lookup treat them
 * differently. */
typedef enum fl_side { FL_SIDE_QUERY, FL_SIDE_DOCUMENT, FL_SIDE_NONE, FL_SIDE_COUNT } fl_side;

/* What a model of FL_HEAD_LATE does with texts: late_interaction.c. */
typedef struct fl_late {
    uint32_t     length[FL_SIDE_COUNT]; /* tokens with specials; 0: the model's max_length */
    uint32_t     expansion; /* queries shorter than this are filled up to it; 0: they are not … */
    bool         fixed;     /* … and longer ones are cut to it */
    bool         attends;   /* the network attends to what fills them */
    const char  *filler;    /* the token that fills them; NULL: the mask, else the end of a text */
    const char **skipped;   /* owned [skipped_count]: tokens whose vectors are left out … */
    uint32_t     skipped_count;
    bool         skips[FL_SIDE_COUNT]; /* … of texts on these sides */
    const char *marker[2]; /* begin queries and documents: each one token if the tokenizer has it */
    bool        mean;      /* a score is divided by the number of the query's vectors */
    bool        skips_first; /* the first token of a text has no vector */
} fl_late;

/* What a sparse model knows of queries without its network: a weight for each token that is there. */
typedef struct fl_lookup {
    bool        there;      /* otherwise queries are computed like documents */
    bool        by_default; /* a text whose side nobody says is a query */
    uint32_t    max_length; /* tokens of a query */
    uint32_t    count;      /* entries of */
    float      *weight;     /* owned; NULL: they stand in the file */
    const char *idf;        /* {token: weight}; read by who knows the tokens */
} fl_lookup;

typedef struct fl_model fl_model;
struct fl_model {
    char       *folder;    /* owned */
    const char *base;      /* of an adapter: the folder of the model that it changes; or NULL */
    const char *onnx_file; /* the .onnx file that was named, which is the network then; or NULL */
    fl_encoder  encoder;   /* not filled when opened without weights */
    /* tokenizer: the bytes, for tokenizer/ (which this room does not know) */
    bool        gguf; /* `folder` is a file of that format, which is all there is of the model */
    char       *tokenizer_path; /* owned: tokenizer.json, or vocab.txt when only that exists */
    fl_buf      tokenizer_text; /* instead of that file: made of others; taken when it is opened */
    bool        tokenizer_made; /* it was; tokenizer_path is one of these */
    bool        tokenizer_pieces; /* of SentencePiece's BPE: the tokenizer room's own form */
    bool        tokenizer_is_vocab;
    bool        bert_lowercase, bert_strip_accents, bert_chinese_chars; /* for vocab.txt */
    bool        lowercase;          /* do_lower_case of sentence_bert_config.json */
    const char *tokenizer_class;    /* where no file names one, or NULL */
    bool        tokenizer_forced;   /* that one even where a file does */
    bool        tokenizer_as_saved; /* tokenizer.json as it is, whatever class a file names … */
    bool        llama_as_saved;     /* … or where that is LlamaTokenizer */
    bool        tokenizer_ends;     /* each text gets the end token */
    const char *model_type;         /* as config.json has it, or NULL */
    const char *config_class;       /* config.json's tokenizer_class, or NULL */
    fl_json *tokenizer_config; /* owned: tokenizer_config.json; NULL: there is none, or no more */
    const char *cut_side;      /* "left", "right": sentence_bert_config.json on truncation; NULL */
    bool        is_static;     /* no special tokens; a text without tokens has a vector of zeros */
    /* lengths, in tokens with specials */
    uint32_t        max_length; /* effective: the folder's, clamped to the usable positions */
    fl_model_source max_length_source;
    fl_head         head;
    bool            log_twice; /* sparse: a weight is log(1 + log(1 + x)), not log(1 + x) */
    fl_lookup       lookup;
    fl_late         late;
    /* Besides its rows an embedding model may have sparse vectors (relu of this layer is a token's weight) and
     * vectors for late interaction (this layer, then unit length). */
    fl_stage    weigher, colbert; /* weight NULL: it has not */
    const char *weigher_refused,
        *colbert_refused; /* its file is there and cannot be read: why; or NULL */
    /* of scores */
    const char        **labels; /* owned [label_count]; dimensions = label_count */
    uint32_t            label_count;
    fl_dense_activation activation; /* of the scores, unless a caller asks for another */
    fl_model_source     activation_source;
    bool                unpadded; /* the row read is that of the last token that is not … */
    int32_t             padding;  /* … this; of none but such the first's */
    fl_chat_piece      *chat;     /* owned [chat_count]; 0: the texts of a pair follow each other */
    uint32_t            chat_count;
    /* output stages after pooling */
    fl_stage *stages; /* owned [stage_count] */
    uint32_t  stage_count;
    bool      ends; /* what counts is the row of the first token … */
    int32_t
        end; /* … of this id, or of the text's largest where this is 2; the first's where there is none */
    bool
        filled; /* what counts is the row of the last of max_length tokens, up to which padding, which
                    is attended to, fills a text */
    bool            normalize; /* the last stage is a Normalize module */
    fl_model_source normalize_source, pooling_source;
    uint32_t        dimensions;   /* of the last stage's rows, before truncate_dim */
    uint32_t        truncate_dim; /* 0 = none */
    /* prompts */
    fletch_prompt  *prompts; /* owned [prompt_count] */
    uint32_t        prompt_count;
    const char     *default_prompt_name; /* NULL when none; an entry of prompts */
    bool            include_prompt;      /* false: the prompt's tokens are left out of pooling */
    const char     *task;                /* whose adapter is in the weights; NULL: there are none */
    const char     *tasks;               /* all of them: "a, b"; NULL: none */
    const char     *similarity;          /* "cosine" … owned or static */
    const char     *weights_dtype;       /* "F32": of the word table; static */
    uint64_t        weights_bytes;       /* of all tensors used */
    fl_weight_files files;
    struct fl_model_private *own; /* maps and the layer table */
};

typedef struct fl_model_options {
    bool        without_weights; /* tokenizer, lengths and prompts only: no encoder, no stages;
                                        an architecture that is not known does not matter */
    const char *pooling;         /* override: "mean", "cls" …, "splade", "colbert", or "" */
    const char *task;            /* of a model with adapters; "" or NULL: none */
    const struct fl_hub_options
               *hub;       /* where the base of an adapter is looked for; NULL: in folders */
    const char *onnx_file; /* an .onnx file of this folder is the network; NULL: as the folder is */
    const fl_log *log;
} fl_model_options;

/* Whether `name` is an .onnx file that is there, and its folder: the one it lies in, or the one above onnx/. */
bool fl_onnx_path(const char *name, char *folder, size_t capacity);

int  fl_model_open(fl_model **out, const char *folder, const fl_model_options *options,
                   fletch_error *error);
void fl_model_close(fl_model *model); /* NULL is a no-op */
/* Let go of what only an opening tokenizer reads. */
void fl_model_settle(fl_model *model);

/* Damage has one cure, whichever file it is in: after an EMODEL the message says it. Returns
 * `status`. */
int fl_model_add_hint(int status, fletch_error *error);

/* Path of the weight file `index` that stays mapped; NULL past the last. Borrowed until the model is closed. */
const char *fl_model_file_at(const fl_model *model, size_t index);
/* Give the pages of mapped weight files back; they come again when they are read. Any thread. */
void fl_model_release_pages(const fl_model *model);

/* SHA-256 over a folder's model files as hex, and those of an adapter's base (NULL: none); "" on failure. Reads
 * them all: 50 ms for 90 MB. */
int fl_model_fingerprint(const char *folder, const char *base, char out[65], fletch_error *error);

const char *fl_pooling_name(fl_pooling pooling);                      /* "mean" */
const char *fl_dense_activation_name(fl_dense_activation activation); /* "sigmoid" */

#endif
