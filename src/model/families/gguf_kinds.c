/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_kinds.c - what GGUF calls the kinds of tokenizers, and the pre-tokenizers of byte-level BPE. */
#include "model/gguf_arch.h"

const fl_gguf_kind fl_gguf_kinds[] = {
    {"bert", "WordPiece", false, fl_gguf_make_wordpiece, fl_gguf_tell_wordpiece},
    {"gpt2", "BPE", false, fl_gguf_make_bpe, fl_gguf_tell_bpe},
    {"llama", "BPE", true, fl_gguf_make_pieces, fl_gguf_tell_pieces},
    {"t5", "Unigram", false, fl_gguf_make_unigram, fl_gguf_tell_unigram},
    {NULL, NULL, false, NULL, NULL},
};

#define FL_BYTES(regex)                                                                            \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_"              \
    "regex\":" regex "}"
#define FL_SPLIT(regex)                                                                            \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"        \
    "\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}," FL_BYTES("false") "]}"
/* The patterns of Qwen 2 and Llama 3, which differ in how many digits go together. */
#define FL_WORDS_AND_DIGITS(digits)                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" digits                 \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

const fl_gguf_pre fl_gguf_pres[] = {
    {"gpt-2", FL_BYTES("true"), false, false, NULL},
    {"roberta-bpe", FL_BYTES("true"), false, false, "<mask>"},
    {"jina-v2-code", FL_BYTES("true"), false, false, "<mask>"},
    {"modern-bert", FL_BYTES("true"), true, false, "[MASK]"},
    {"qwen2", FL_SPLIT(FL_WORDS_AND_DIGITS("\\\\p{N}")), true, false, NULL},
    {"llama-bpe", FL_SPLIT(FL_WORDS_AND_DIGITS("\\\\p{N}{1,3}")), false, true, NULL},
    {NULL, NULL, false, false, NULL},
};
