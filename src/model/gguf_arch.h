/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_arch.h - one architecture of GGUF as data: which of our families it is, where the values of its config.json
 * stand in the metadata, and what llama.cpp calls its tensors.
 *
 * Private to this room: the tables are in families/gguf_*.c; gguf_model.c and gguf_tokenizer.c read by them,
 * gguf_export.c and gguf_tell.c write. */
#ifndef FL_MODEL_GGUF_ARCH_H
#define FL_MODEL_GGUF_ARCH_H

#include "model/family.h"
#include "model/gguf_tokenizer.h"

enum { FL_GGUF_FIELDS_MAX = 20 };

/* A key of config.json, in the words of the family, and the metadata that has its value: "ARCH." `key`, or the whole
 * key where it begins with "tokenizer.". `fallback` is the value, as JSON, where the file has none; NULL: it must
 * have one. Without `key` the fallback is the value. */
typedef struct fl_gguf_field {
    const char *config, *key, *fallback;
} fl_gguf_field;

typedef struct fl_gguf_arch {
    const char   *name;    /* general.architecture */
    const char   *with;    /* a tensor that must be there, … */
    const char   *without; /* … and one that may not, for this row; NULL: none */
    fl_gguf_field fields[FL_GGUF_FIELDS_MAX];
    fl_name       tensors[FL_NAMES_MAX]; /* instead of the family's */
    const char   *refusal;               /* why files of this row are refused; NULL: they are not */
    bool        turned; /* rows of queries and keys lie in turns, as llama.cpp's Llama wants them */
    bool        shifted; /* to the norms of the file the 1 has been added already (Gemma) */
    bool        dense;   /* llama.cpp knows two matrices after pooling */
    const char *lacks;   /* what the model has besides and such files leave out, which is told; then
                          the experts lie upright; NULL: nothing */
} fl_gguf_arch;

/* Every row, in the order in which they are asked. */
#define FL_GGUF_ARCHS(X)                                                                           \
    X(bert)                                                                                        \
    X(bert_untyped)                                                                                \
    X(nomic)                                                                                       \
    X(nomic_moe)                                                                                   \
    X(modernbert)                                                                                  \
    X(jina_qk)                                                                                     \
    X(jina_qk_split)                                                                               \
    X(jina)                                                                                        \
    X(jina_split)                                                                                  \
    X(qwen3)                                                                                       \
    X(qwen2)                                                                                       \
    X(llama)                                                                                       \
    X(eurobert)                                                                                    \
    X(gemma)
#define FL_NAME(name) extern const fl_gguf_arch fl_gguf_arch_##name;
FL_GGUF_ARCHS(FL_NAME)
#undef FL_NAME
extern const fl_gguf_arch *const fl_gguf_archs[]; /* NULL ends them */

/* gguf_model.c: the descriptor, of zeros, that the metadata of `file` gives by `arch`; its layers are the caller's. */
int fl_gguf_describe(fl_encoder_desc *out, const fl_gguf_arch *arch, const fl_gguf *file,
                     const char *source, fletch_error *error);

/* dense_2.weight and dense_3.weight */
enum { FL_GGUF_DENSE = 2 };
extern const char *const fl_gguf_dense[FL_GGUF_DENSE];
/* pooling_type - 1 is the index. */
enum { FL_GGUF_POOLINGS = 3 };
extern const fl_pooling fl_gguf_poolings[FL_GGUF_POOLINGS];

/* tokenizer.ggml.model, the "model" of a tokenizer.json that it stands for, and what makes one of the other; .model
 * NULL ends them. */
typedef struct fl_gguf_kind {
    const char *model, *type;
    bool        byte_fallback; /* with that switch of `type` */
    void (*make)(fl_gguf_maker *m);
    void (*tell)(fl_gguf_teller *t);
} fl_gguf_kind;
extern const fl_gguf_kind fl_gguf_kinds[];

/* tokenizer.ggml.pre of byte-level BPE, and what the repositories that it stands for have; .name NULL ends them. */
typedef struct fl_gguf_pre {
    const char *name, *steps; /* the pre-tokenizer, as JSON */
    bool        nfc;          /* characters are composed before */
    bool        ignores_merges;
    const char *lstripped; /* fl_gguf_maker's */
} fl_gguf_pre;
extern const fl_gguf_pre fl_gguf_pres[];

#endif
