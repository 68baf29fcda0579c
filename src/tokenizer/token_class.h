/* SPDX-License-Identifier: Apache-2.0 */
/* token_class.h - the tokenizer classes of transformers: what each builds, whatever tokenizer.json says.
 *
 * Why      A row is a class whose pipeline transformers 5 makes anew from the vocabulary; transformers 4 opens
 *          tokenizer.json and patches it. A folder is taken where both come to the same, refused by name where
 *          they do not, and so is a class that has no row. docs/folders.md has the rules.
 * Proof    tests/golden/test_odd_folders.py: 2,500 folders, each key alone and in pairs. */
#ifndef FL_TOKENIZER_TOKEN_CLASS_H
#define FL_TOKENIZER_TOKEN_CLASS_H

#include "tokenizer/parse.h"

typedef struct fl_token_plan fl_token_plan; /* token_plan.h */

/* What a class makes of the text before its model sees it. */
typedef enum fl_class_steps {
    FL_AS_IN_FILE, /* tokenizer.json's; add_prefix_space of ByteLevel by argument, else false */
    FL_BERT,       /* BertNormalizer by arguments, BertPreTokenizer, "##" */
    FL_NEOX,       /* NFC, then as the next */
    FL_BYTE_LEVEL, /* no normaliser, ByteLevel; add_prefix_space by argument, else false */
    FL_QWEN,       /* NFC, Split by Qwen's pattern, ByteLevel */
    FL_PIECES,     /* Precompiled, WhitespaceSplit, Metaspace always */
    FL_ALBERT,     /* quotes, accents and case by arguments, then as FL_PIECES */
    FL_DEBERTA,    /* case by argument, spaces, Metaspace always; see is_deberta */
    FL_CLIP,       /* NFC, spaces one, lower case, Split by CLIP's pattern, ByteLevel; "</w>" */
    FL_LLAMA,      /* no normaliser, Metaspace of the whole text; bytes for what is unknown */
    FL_GEMMA       /* " " becomes U+2581, Split at " "; bytes for what is unknown */
} fl_class_steps;

typedef struct fl_token_class {
    const char    *name;  /* without "Fast" */
    const char    *model; /* the kind of model it makes */
    fl_class_steps steps;
    bool           chinese; /* transformers 4 patches the switch for Chinese characters too */
    const char    *defaults[FL_TOKEN_NAMED];
    int64_t        unk_id; /* of a Unigram that it makes; 0: unk's */
    bool
        pair_of_file; /* a pair is the file's: ALBERT's in both; DeBERTa v1's in transformers 4, with
                                    which its models were trained, while 5 puts a second [SEP] between the texts */
} fl_token_class;

/* T5: a text only has an end, and there are tokens for gaps in it. */
static inline bool fl_token_class_has_gaps(const fl_token_class *class) {
    return class->steps == FL_PIECES && class->defaults[FL_TOKEN_BOS] == NULL;
}

/* The class that a folder names (NULL: it names none), or that of the options' family. NULL: not one that
 * fletch can vouch for. */
const fl_token_class *fl_token_class_find(const char *name, const fl_tokenizer_options *options);

/* The normaliser by the class's arguments; EUNSUPPORTED where another part of tokenizer.json is not what the
 * class builds. Before added tokens are normalised. */
int fl_token_class_steps(const fl_token_plan *plan, fl_tokenizer *tokenizer, fl_json_reader *root);
/* The same for the template, once it is there; that of pairs is refused when one is asked for. */
int fl_token_class_template(const fl_token_plan *plan, fl_tokenizer *tokenizer,
                            fl_json_reader *root);
/* `what` of tokenizer.json is not the class's: EUNSUPPORTED as the reader's status. */
int fl_token_class_differ(const fl_token_plan *plan, fl_json_reader *root, const char *what);

#endif
