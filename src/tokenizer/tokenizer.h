/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h - tokenizer.json becomes a pipeline: text in, token ids out, exactly as Hugging Face's.
 *
 * Role     The runtime opens one per model and calls it per text; nothing above sees the parts
 *          (normalise, pre-tokenise, model, post-process, decode).
 * In/Out   Valid UTF-8 (the caller has checked) -> int32 ids straight into the caller's buffer.
 * Memory   fl_tokenizer is immutable after opening and shared by threads; everything mutable (word
 *          cache, slow-path buffers) lives in a fl_token_scratch, one per thread. Once a scratch has seen
 *          its longest text, encoding allocates nothing.
 * Errors   Anything in tokenizer.json that is not supported is refused by name when opening
 *          (FLETCH_EUNSUPPORTED); damaged files are FLETCH_EMODEL.
 *          Supported are WordPiece with BertNormalizer, Lowercase, NFD, StripAccents, Strip, Replace of a
 *          string, Prepend; BertPreTokenizer, Whitespace, WhitespaceSplit; Sequences of them;
 *          TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel; the WordPiece decoder; added
 *          tokens with all their flags. The blocks "truncation" and "padding" are not read.
 * Proof    tests/golden (ids, offsets and decode against HF tokenizers), tests/unit/test_tokenizer*.c. */
#ifndef FL_TOKENIZER_TOKENIZER_H
#define FL_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "base/stop.h"
#include "fletch.h"

typedef struct fl_tokenizer     fl_tokenizer;
typedef struct fl_token_scratch fl_token_scratch;

typedef struct fl_tokenizer_options {
    const char *source; /* name of the file for messages; NULL: "tokenizer.json" or "vocab.txt" */
    bool   lowercase;   /* sentence-transformers' do_lower_case: a Lowercase normalizer in front */
    size_t cache_bytes; /* per-thread cache of words; 0 = 2 MiB */
    const fl_log *log;  /* may be NULL */
    const char
            *folder; /* where the files lie that may say otherwise (token_plan.h); NULL: none do */
    bool     config_read; /* its tokenizer_config.json was read: */
    fl_json *config;      /* borrowed; NULL: there is none */
    const char *family;   /* config.json's model_type, or NULL */
    /* The class where no other file names one: config.json's tokenizer_class, or NULL; then that which
     * transformers takes for the family, NULL: named as the family is. */
    const char *config_class, *class_name;
    bool        class_forced; /* transformers 5 takes class_name even where a file names another */
    bool        as_saved;     /* whatever class the files name, tokenizer.json holds … */
    bool llama_saved; /* … or where that is LlamaTokenizer, but for what stands around a text */
    bool ends;        /* a text ends in the end token, whatever the file puts around it */
    bool
        pieces; /* the text was made of SentencePiece's BPE, for this room alone: what normalises is the
                  * step "SentencePiece", a merge has its rank, and the class has no say in the steps */
    /* Texts, each NULL or one that is, or whose first word is, a token that the tokenizer has: it
     * becomes special, found in the raw text. */
    const char *marker[2];
} fl_tokenizer_options;

/* Parse and compile the text of a tokenizer.json, which is taken over: it and the tables made of it need not lie in
 * memory at once. The buffer is empty then, whatever comes of it. */
int fl_tokenizer_open(fl_tokenizer **out, fl_buf *json, const fl_tokenizer_options *options,
                      fletch_error *error);
/* The BERT tokenizer of an old repository that has only vocab.txt; the flags are tokenizer_config's.
 * A token that is listed twice has the later line's id, as in transformers. */
int  fl_tokenizer_open_vocab(fl_tokenizer **out, const char *vocab, size_t size, bool lowercase,
                             bool strip_accents, bool chinese_chars,
                             const fl_tokenizer_options *options, fletch_error *error);
void fl_tokenizer_close(fl_tokenizer *tokenizer); /* NULL is a no-op */

fl_token_scratch *fl_token_scratch_new(const fl_tokenizer *tokenizer); /* NULL: out of memory */
void              fl_token_scratch_free(fl_token_scratch *scratch);    /* NULL is a no-op */
void              fl_token_scratch_trim(
                 fl_token_scratch *scratch); /* what long texts made it grow by goes back */

/* What the calls that follow with this scratch ask while they encode by the exact path: a text that is given up is
 * FLETCH_ECANCELLED. NULL: nothing. */
void fl_token_scratch_stop(fl_token_scratch *scratch, fl_stop *stop);

typedef enum fl_truncation { FL_TRUNCATE_RIGHT, FL_TRUNCATE_LEFT } fl_truncation;
/* The side that the folder's files name; right where they name none. */
fl_truncation fl_tokenizer_truncation(const fl_tokenizer *tokenizer);
bool          fl_tokenizer_is_special(const fl_tokenizer *tokenizer, int32_t id);
bool          fl_tokenizer_is_added(const fl_tokenizer *tokenizer, int32_t id);

typedef struct fl_encode_options {
    uint32_t max_length; /* tokens with specials; 0 = no limit. At least the specials remain. */
    fl_truncation truncation;
    bool          no_special; /* leave out what the template adds */
} fl_encode_options;

/* Encode text[size] into ids[capacity]. *count gets the number of ids, *truncated whether max_length cut
 * the text. With a max_length, capacity = max(max_length, specials) always suffices; without one,
 * fl_tokenizer_ids_max() does (for a BERT pipeline that is size + specials + 1); FLETCH_ENOSPC otherwise.
 * Other failures: ENOMEM; EINVAL for a text of 4 GiB or more where characters are tracked (offsets, and
 * pipelines that are not BERT's). A long text with a max_length, truncated right, is read only as far as
 * needed. */
int fl_tokenizer_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch, const char *text,
                        size_t size, const fl_encode_options *options, int32_t *ids,
                        size_t capacity, size_t *count, bool *truncated, fletch_error *error);

/* The same with byte offsets and the special mask (slower path, for `tokenize`): offsets are
 * [count][2] into the original text, 0,0 for tokens that the template added. All arrays [capacity]. */
int fl_tokenizer_encode_offsets(const fl_tokenizer *tokenizer, fl_token_scratch *scratch,
                                const char *text, size_t size, const fl_encode_options *options,
                                int32_t *ids, uint32_t *offsets, uint8_t *special, size_t capacity,
                                size_t *count, bool *truncated, fletch_error *error);

/* Two texts as one sequence, as a cross-encoder reads them. Each text is encoded once (no_special, with
 * offsets or not) and may be put together with many others; fl_tokenizer_pair applies the pair template and
 * truncation. To be cut as the reference cuts, a side that is cut before must have kept as many tokens as
 * the longer of max_length and the other side; options->truncation must be that of the sides. */
typedef enum fl_pair_truncation {
    FL_PAIR_LONGEST_FIRST,
    FL_PAIR_ONLY_FIRST,
    FL_PAIR_ONLY_SECOND
} fl_pair_truncation;

typedef struct fl_pair_side {
    const int32_t  *ids;
    const uint32_t *offsets; /* [count][2], or NULL */
    size_t          count;
} fl_pair_side;

typedef struct fl_pair {
    size_t count;
    size_t segment;          /* the first token of type 1; count: there is none */
    size_t begin[2], end[2]; /* where the tokens of each text lie */
    bool   truncated;
    uint32_t
        characters; /* of a text that count, where it has more; 0: all. Not of fl_tokenizer_pair */
} fl_pair;

/* ids[capacity]; offsets [capacity][2] and special [capacity] may be NULL. The sides' counts and
 * fl_tokenizer_pair_special_count() together always suffice. FLETCH_ETOOLONG: only_first or only_second
 * cannot make the pair short enough. */
int fl_tokenizer_pair(const fl_tokenizer *tokenizer, const fl_pair_side *a, const fl_pair_side *b,
                      const fl_encode_options *options, fl_pair_truncation how, int32_t *ids,
                      uint32_t *offsets, uint8_t *special, size_t capacity, fl_pair *pair,
                      fletch_error *error);
uint32_t fl_tokenizer_pair_special_count(const fl_tokenizer *tokenizer);

/* No text of `size` bytes has more ids than this, specials counted. */
size_t   fl_tokenizer_ids_max(const fl_tokenizer *tokenizer, size_t size);
uint32_t fl_tokenizer_special_count(const fl_tokenizer *tokenizer); /* specials around one text */
const int32_t *fl_tokenizer_before(const fl_tokenizer *tokenizer, uint32_t *count); /* which */
const int32_t *fl_tokenizer_after(const fl_tokenizer *tokenizer, uint32_t *count);
uint32_t       fl_tokenizer_vocab_size(const fl_tokenizer *tokenizer); /* highest id + 1 */
/* NUL-terminated; `length` may be NULL. NULL for an id without a token. */
const char *fl_tokenizer_token(const fl_tokenizer *tokenizer, int32_t id, size_t *length);
int32_t     fl_tokenizer_id(const fl_tokenizer *tokenizer, const char *token); /* or -1 */
/* What the folder's files, or the class that they name, call the mask token …; -1: none. In the order in which both
 * references add them. */
typedef enum fl_named_token {
    FL_TOKEN_BOS,
    FL_TOKEN_EOS,
    FL_TOKEN_UNK,
    FL_TOKEN_SEP,
    FL_TOKEN_PAD,
    FL_TOKEN_CLS,
    FL_TOKEN_MASK,
    FL_TOKEN_NAMED
} fl_named_token;
int32_t     fl_tokenizer_named(const fl_tokenizer *tokenizer, fl_named_token which);
const char *fl_tokenizer_kind(const fl_tokenizer *tokenizer); /* "WordPiece" */

/* Append the decoded text to *out as HF's decode does. EINVAL for an id outside the vocabulary (HF leaves
 * such ids out); `where` is then its index. */
int fl_tokenizer_decode(const fl_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        bool skip_special, fl_buf *out, fletch_error *error);

#endif
