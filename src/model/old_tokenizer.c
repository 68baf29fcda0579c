/* SPDX-License-Identifier: Apache-2.0 */
/* old_tokenizer.c - the tokenizer of a folder that has no tokenizer.json but what one is made of:
 * SentencePiece's model, or vocab.json and merges.txt (RoBERTa, DeBERTa v1, CLIP).
 *
 * Role    lengths.c asks where tokenizer.json is missing; the tokenizer room reads what comes out like any other file.
 * In/Out  the files, tokenizer_config.json's switches -> the text of the tokenizer.json that transformers makes of
 *         them.
 * Method  A table of the classes whose files these are (a family says which are its own): which tokens stand in
 *         front of the pieces and behind them, what is around a text, what is done to it first. Of SentencePiece's
 *         models (sentencepiece_file.h) these are Unigram, with a map of characters; BPE is piece_tokenizer.c's.
 *         transformers 4 lets <mask> take the space before it, transformers 5 does not, and nor does this.
 *         The class's own rules (token_class.c) then hold for the text as for a file.
 * Memory  the files while the text is made, and the text. Threads: reentrant.
 * Proof   tests/golden/test_old_tokenizers.py. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_w.h"
#include "base/mem.h"
#include "model/model_private.h"
#include "model/piece_tokenizer.h"
#include "model/sentencepiece_file.h"
#include "model/tokenizer_text.h"

enum { NAMES = 6, EXTRA_MAX = 1000 };

typedef enum steps { BYTES, LOWER_BYTES, WORDS, WHOLE, PIECES } steps;

typedef struct form {
    const char *class, *file, *second; /* second: beside vocab.json */
    steps
        steps; /* of the text: bytes; as CLIP; words of Metaspace; as DeBERTa; SentencePiece's BPE */
    const char *head[NAMES]; /* stand in the place of the first `skipped` pieces */
    unsigned    skipped;
    const char *names[NAMES]; /* special tokens; one that no piece is comes behind them all */
    const char *first, *last; /* around a text; NULL: none */
    bool        doubled;      /* between two texts the last token stands twice */
    bool        typed;        /* the second text has type 1 */
    bool        gaps;         /* T5's <extra_id_0> and on */
} form;

static const form forms[] = {
    {.class  = "RobertaTokenizer",
     .file   = "vocab.json",
     .second = "merges.txt",
     .steps  = BYTES,
     .names  = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"},
     .first  = "<s>",
     .last   = "</s>"},
    {.class  = "DebertaTokenizer",
     .file   = "vocab.json",
     .second = "merges.txt",
     .steps  = BYTES,
     .names  = {"[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"},
     .first  = "[CLS]",
     .last   = "[SEP]",
     .typed  = true},
    {.class  = "CLIPTokenizer",
     .file   = "vocab.json",
     .second = "merges.txt",
     .steps  = LOWER_BYTES,
     .names  = {"<|startoftext|>", "<|endoftext|>"},
     .first  = "<|startoftext|>",
     .last   = "<|endoftext|>"},
    {.class   = "XLMRobertaTokenizer",
     .file    = "sentencepiece.bpe.model",
     .steps   = WORDS,
     .head    = {"<s>", "<pad>", "</s>", "<unk>"},
     .skipped = 3,
     .names   = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"},
     .first   = "<s>",
     .last    = "</s>",
     .doubled = true},
    {.class = "T5Tokenizer",
     .file  = "spiece.model",
     .steps = WORDS,
     .names = {"<pad>", "</s>", "<unk>"},
     .last  = "</s>",
     .gaps  = true},
    {.class = "DebertaV2Tokenizer",
     .file  = "spm.model",
     .steps = WHOLE,
     .names = {"[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"},
     .first = "[CLS]",
     .last  = "[SEP]",
     .typed = true},
    {.class = "LlamaTokenizer",
     .file  = "tokenizer.model",
     .steps = PIECES,
     .names = {"<s>", "</s>"}},
    {.class = "GemmaTokenizer",
     .file  = "tokenizer.model",
     .steps = PIECES,
     .names = {"<bos>", "<eos>"}},
};

/* ---- SentencePiece --------------------------------------------------------------------------- */

typedef struct maker {
    const form             *form;
    fl_json_reader         *config; /* tokenizer_config.json, or an empty one */
    const char             *path;
    fletch_error           *error;
    fl_sentencepiece_piece *pieces; /* owned: the vocabulary in the order of its ids */
    size_t                  count, room;
    fl_sentencepiece_file   file;       /* owned */
    int64_t                 ids[NAMES]; /* of form->names in vocab.json */
    char                    gap[EXTRA_MAX][20];
    fl_json_w               w;
} maker;

static int damaged(const maker *m, const char *what) {
    return fl_fail(m->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s.", m->path, what);
}

static int refuse(const maker *m, const char *what) {
    return fl_fail(m->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE, "%s: %s.", m->path, what);
}

static int add_piece(maker *m, fl_sentencepiece_piece one) {
    if (m->count == FL_PIECES_MAX)
        return damaged(m, "it has more than 4194304 pieces");
    if (!fl_array_reserve(&m->pieces, &m->room, m->count + 1, sizeof *m->pieces))
        return fl_fail_nomem(m->error, (m->count + 1) * sizeof *m->pieces, "a vocabulary");
    m->pieces[m->count++] = one;
    return 0;
}

static int add_name(maker *m, const char *name) {
    return add_piece(m, (fl_sentencepiece_piece){{name, strlen(name)}, 0.0f, FL_PIECE_CONTROL});
}

/* What the class makes anew is not asked for; what it cannot express is refused. */
static int read_pieces(maker *m, const fl_buf *data) {
    fl_sentencepiece_file *file = &m->file;
    FL_TRY(fl_sentencepiece_read(file, data, m->path, m->error));
    if (file->kind != FL_PIECES_UNIGRAM)
        return refuse(m, "a model of SentencePiece that is not Unigram is not supported for this "
                         "class");
    if (file->byte_fallback)
        return refuse(m, "byte_fallback is not supported");
    if (!file->dummy_prefix || !file->removes_spaces)
        return refuse(m, "add_dummy_prefix or remove_extra_whitespaces is off");
    if (file->map.at == file->map.end)
        return refuse(m, "a model of SentencePiece without a map of characters is not supported");
    if (file->count <= m->form->skipped)
        return damaged(m, "it is not a SentencePiece model, or is truncated");
    for (size_t i = 0; i < NAMES && m->form->head[i] != NULL; i++)
        FL_TRY(add_name(m, m->form->head[i]));
    for (size_t i = m->form->skipped; i < file->count; i++)
        FL_TRY(add_piece(m, file->pieces[i]));
    return 0;
}

static int64_t id_of(const maker *m, const char *name) {
    for (size_t i = 0; i < m->count; i++)
        if (fl_span_is(m->pieces[i].text, name))
            return (int64_t)i;
    return -1;
}

/* What the class adds behind the pieces: T5's gaps, then special tokens that are none of them. */
static int add_tail(maker *m) {
    int64_t gaps = m->form->gaps ? fl_json_int(m->config, "extra_ids", 100, 0, EXTRA_MAX) : 0;
    FL_TRY(m->config->status);
    for (int64_t i = gaps - 1; i >= 0; i--) {
        snprintf(m->gap[i], sizeof m->gap[i], "<extra_id_%d>", (int)i);
        FL_TRY(add_name(m, m->gap[i]));
    }
    for (size_t i = 0; i < NAMES && m->form->names[i] != NULL; i++)
        if (id_of(m, m->form->names[i]) < 0)
            FL_TRY(add_name(m, m->form->names[i]));
    return 0;
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

static void put_added(maker *m) {
    fl_json_w_array(&m->w, "added_tokens");
    for (size_t i = 0; i < m->count; i++) {
        const fl_sentencepiece_piece *one = &m->pieces[i];
        if (one->type == FL_PIECE_CONTROL || one->type == FL_PIECE_USER_DEFINED ||
            fl_span_is(one->text, "<unk>") || fl_span_is(one->text, "[UNK]"))
            fl_tokenizer_put_added(&m->w, (int64_t)i, one->text, false, false,
                                   one->type != FL_PIECE_USER_DEFINED);
    }
    fl_json_w_end(&m->w);
}

static void put_part(maker *m, const char *kind, const char *id, unsigned type) {
    if (id != NULL)
        fl_tokenizer_put_part(&m->w, kind, id, type);
}

/* One of form->names. */
static int64_t special_id(const maker *m, const char *name) {
    size_t at = 0;
    if (m->form->second == NULL)
        return id_of(m, name);
    while (strcmp(m->form->names[at], name) != 0)
        at++;
    return m->ids[at];
}

static void put_special(maker *m, const char *name) {
    if (name != NULL)
        fl_tokenizer_put_special(&m->w, name, special_id(m, name), (fl_span){name, strlen(name)});
}

static void put_template(maker *m) {
    const form    *f    = m->form;
    const unsigned type = f->typed ? 1 : 0;
    fl_json_w_object(&m->w, "post_processor");
    fl_json_w_text(&m->w, "type", "TemplateProcessing");
    for (unsigned pair = 0; pair < 2; pair++) {
        fl_json_w_array(&m->w, pair ? "pair" : "single");
        put_part(m, "SpecialToken", f->first, 0);
        put_part(m, "Sequence", "A", 0);
        put_part(m, "SpecialToken", f->last, 0);
        put_part(m, "SpecialToken", pair && f->doubled ? f->last : NULL, 0);
        put_part(m, "Sequence", pair ? "B" : NULL, type);
        put_part(m, "SpecialToken", pair ? f->last : NULL, type);
        fl_json_w_end(&m->w);
    }
    fl_json_w_object(&m->w, "special_tokens");
    put_special(m, f->first);
    put_special(m, f->last);
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
}

static void put_map(maker *m, const char *key) {
    const fl_proto_span map = m->file.map;
    fl_tokenizer_put_map(&m->w, key, map.at, (size_t)(map.end - map.at));
}

static void put_replace(maker *m, const char *regex) {
    fl_tokenizer_put_step(&m->w, NULL, "Replace");
    fl_json_w_object(&m->w, "pattern");
    fl_json_w_text(&m->w, "Regex", regex);
    fl_json_w_end(&m->w);
    fl_json_w_text(&m->w, "content", " ");
    fl_json_w_end(&m->w);
}

static void put_normalizer(maker *m) {
    if (m->form->steps == WORDS) {
        put_map(m, "normalizer");
        return;
    }
    fl_tokenizer_put_step(&m->w, "normalizer", "Sequence");
    fl_json_w_array(&m->w, "normalizers");
    if (fl_json_bool(m->config, "do_lower_case", false)) {
        fl_tokenizer_put_step(&m->w, NULL, "Lowercase");
        fl_json_w_end(&m->w);
    }
    fl_tokenizer_put_step(&m->w, NULL, "Strip");
    fl_json_w_bool(&m->w, "strip_left", true);
    fl_json_w_bool(&m->w, "strip_right", true);
    fl_json_w_end(&m->w);
    put_map(m, NULL);
    put_replace(m, " {2,}");
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
}

static void put_splits(maker *m) {
    const bool punctuation =
        m->form->steps == WHOLE && fl_json_bool(m->config, "split_by_punct", false);
    fl_tokenizer_put_step(&m->w, "pre_tokenizer", "Sequence");
    fl_json_w_array(&m->w, "pretokenizers");
    if (m->form->steps == WORDS || punctuation) {
        fl_tokenizer_put_step(&m->w, NULL, punctuation ? "Punctuation" : "WhitespaceSplit");
        if (punctuation)
            fl_json_w_text(&m->w, "behavior", "Isolated");
        fl_json_w_end(&m->w);
    }
    fl_tokenizer_put_metaspace(&m->w, NULL);
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
    fl_tokenizer_put_metaspace(&m->w, "decoder");
}

static int make_unigram(maker *m, const fl_buf *file) {
    FL_TRY(read_pieces(m, file));
    FL_TRY(add_tail(m));
    const char   *unknown = m->form->steps == WHOLE ? "[UNK]" : "<unk>";
    const int64_t id      = id_of(m, unknown);
    fl_json_w_object(&m->w, NULL);
    put_added(m);
    put_normalizer(m);
    put_splits(m);
    put_template(m);
    fl_tokenizer_put_step(&m->w, "model", "Unigram");
    fl_json_w_i64(&m->w, "unk_id", id);
    fl_json_w_bool(&m->w, "byte_fallback", false);
    fl_json_w_array(&m->w, "vocab");
    for (size_t i = 0; i < m->count; i++) {
        fl_json_w_array(&m->w, NULL);
        fl_json_w_bytes(&m->w, NULL, m->pieces[i].text.data, m->pieces[i].text.size);
        fl_buf_printf(m->w.out, ",%.9g", (double)m->pieces[i].score);
        fl_json_w_end(&m->w);
    }
    fl_json_w_end(&m->w), fl_json_w_end(&m->w), fl_json_w_end(&m->w);
    return m->config->status;
}

/* ---- vocab.json and merges.txt --------------------------------------------------------------- */

static int read_specials(maker *m, fl_json *vocab) {
    for (size_t i = 0; i < NAMES && m->form->names[i] != NULL; i++) {
        fl_json *found = NULL;
        if (!fl_json_find(vocab, m->form->names[i], &found))
            return refuse(m, "a special token of the class is missing");
        m->ids[i] = fl_json_int64(found);
    }
    return 0;
}

static void put_merges(maker *m, const fl_buf *merges) {
    const char *at = merges->data, *end = at + merges->size;
    fl_json_w_array(&m->w, "merges");
    for (bool first = true; at < end; first = false) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t      size = (size_t)((line != NULL ? line : end) - at);
        size_t      text = size > 0 && at[size - 1] == '\r' ? size - 1 : size;
        if (text > 0 && !(first && at[0] == '#'))
            fl_json_w_bytes(&m->w, NULL, at, text);
        at += size + 1;
    }
    fl_json_w_end(&m->w);
}

static void put_byte_level(maker *m, const char *key, bool prefix) {
    fl_tokenizer_put_step(&m->w, key, "ByteLevel");
    fl_json_w_bool(&m->w, "add_prefix_space", prefix);
    fl_json_w_bool(&m->w, "trim_offsets", true);
    fl_json_w_bool(&m->w, "use_regex", true);
    fl_json_w_end(&m->w);
}

/* NFC, one space, lower case; then words, digits and punctuation, and nothing of what is between them. */
static void put_clip_steps(maker *m) {
    fl_tokenizer_put_step(&m->w, "normalizer", "Sequence");
    fl_json_w_array(&m->w, "normalizers");
    fl_tokenizer_put_step(&m->w, NULL, "NFC");
    fl_json_w_end(&m->w);
    put_replace(m, "\\s+");
    fl_tokenizer_put_step(&m->w, NULL, "Lowercase");
    fl_json_w_end(&m->w), fl_json_w_end(&m->w), fl_json_w_end(&m->w);
    fl_tokenizer_put_step(&m->w, "pre_tokenizer", "Sequence");
    fl_json_w_array(&m->w, "pretokenizers");
    fl_tokenizer_put_step(&m->w, NULL, "Split");
    fl_json_w_object(&m->w, "pattern");
    fl_json_w_text(&m->w, "Regex",
                   "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+");
    fl_json_w_end(&m->w);
    fl_json_w_text(&m->w, "behavior", "Removed");
    fl_json_w_bool(&m->w, "invert", true);
    fl_json_w_end(&m->w);
    put_byte_level(m, NULL, false);
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
}

static void put_end(maker *m, const char *key, const char *name) {
    fl_json_w_array(&m->w, key);
    fl_json_w_text(&m->w, NULL, name);
    fl_json_w_i64(&m->w, NULL, special_id(m, name));
    fl_json_w_end(&m->w);
}

static void put_roberta(maker *m, bool prefix) {
    fl_tokenizer_put_step(&m->w, "post_processor", "RobertaProcessing");
    put_end(m, "sep", m->form->last);
    put_end(m, "cls", m->form->first);
    fl_json_w_bool(&m->w, "trim_offsets", true);
    fl_json_w_bool(&m->w, "add_prefix_space", prefix);
    fl_json_w_end(&m->w);
}

static int put_bytes(maker *m, const fl_buf *vocab, const fl_buf *merges) {
    const bool clip   = m->form->steps == LOWER_BYTES;
    const bool prefix = !clip && fl_json_bool(m->config, "add_prefix_space", false);
    fl_json_w_object(&m->w, NULL);
    fl_json_w_array(&m->w, "added_tokens");
    for (size_t i = 0; i < NAMES && m->form->names[i] != NULL; i++) {
        const char *name = m->form->names[i];
        fl_tokenizer_put_added(&m->w, m->ids[i], (fl_span){name, strlen(name)}, false, false, true);
    }
    fl_json_w_end(&m->w);
    if (clip)
        put_clip_steps(m);
    else
        put_byte_level(m, "pre_tokenizer", prefix);
    put_byte_level(m, "decoder", prefix);
    if (m->form->typed)
        put_template(m);
    else
        put_roberta(m, prefix);
    fl_tokenizer_put_step(&m->w, "model", "BPE");
    fl_json_w_bool(&m->w, "fuse_unk", false);
    fl_json_w_text(&m->w, "continuing_subword_prefix", "");
    fl_json_w_text(&m->w, "end_of_word_suffix", clip ? "</w>" : "");
    if (clip)
        fl_json_w_text(&m->w, "unk_token", m->form->last);
    put_merges(m, merges);
    fl_json_w_raw(&m->w, "vocab");
    fl_buf_append(m->w.out, vocab->data, vocab->size);
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
    return m->config->status;
}

static int make_bytes(maker *m, const fl_buf *vocab, const char *second) {
    fl_buf   merges = {0};
    fl_json *tree   = NULL;
    int      status = fl_json_read(&tree, m->path, FL_TOKENIZER_BYTES_MAX, m->error);
    if (status == 0)
        status = read_specials(m, tree);
    if (status == 0)
        status = fl_file_read(second, FL_TOKENIZER_BYTES_MAX, &merges, m->error);
    if (status == 0)
        status = put_bytes(m, vocab, &merges);
    fl_buf_free(&merges);
    fl_json_free(tree);
    return status;
}

/* ---- The folder ------------------------------------------------------------------------------ */

/* That of one of the family's classes whose files are there: 1, 0, or a failure to look. */
static int find_form(const form **out, const fl_model *model, const fl_family *family, char *path,
                     char *second, fletch_error *error) {
    const char *folder = model->own->transformer;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        bool has = false;
        for (size_t k = 0; k < FL_OLD_MAX && family->old_tokenizers[k] != NULL; k++)
            has = has || strcmp(family->old_tokenizers[k], forms[i].class) == 0;
        int there = has ? fl_file_find(path, FL_MODEL_PATH_MAX, folder, forms[i].file, error) : 0;
        if (there > 0 && forms[i].second != NULL)
            there = fl_file_find(second, FL_MODEL_PATH_MAX, folder, forms[i].second, error);
        *out = &forms[i];
        if (there != 0)
            return there;
    }
    return 0;
}

/* "T5TokenizerFast" is "T5Tokenizer". */
static bool is_class(const char *name, const char *class) {
    size_t size = strlen(class);
    return strncmp(name, class, size) == 0 &&
           (name[size] == '\0' || strcmp(name + size, "Fast") == 0);
}

static int make(fl_model *model, maker *m, const char *second) {
    const char *class =
        fl_json_string(m->config, "tokenizer_class",
                       model->config_class != NULL ? model->config_class : m->form->class);
    fl_buf file   = {0};
    int    status = m->config->status;
    if (status == 0 && !is_class(class, m->form->class)) {
        fl_family_refuse(m->config, "tokenizer_class without tokenizer.json", class);
        status = m->config->status;
    }
    if (status == 0)
        status = fl_file_read(m->path, FL_TOKENIZER_BYTES_MAX, &file, m->error);
    if (status == 0)
        status = m->form->second != NULL ? make_bytes(m, &file, second)
                 : m->form->steps == PIECES
                     ? fl_piece_tokenizer_make(&m->w, &file, m->config, m->form->names, m->path)
                     : make_unigram(m, &file);
    fl_buf_free(&file);
    fl_sentencepiece_free(&m->file);
    fl_free(m->pieces);
    if (status == 0 && m->w.out->failed)
        status = fl_fail_nomem(m->error, m->w.out->size, "a tokenizer");
    return status;
}

int fl_old_tokenizer_read(fl_model *model, const fl_family *family, char path[FL_MODEL_PATH_MAX],
                          fletch_error *error) {
    const form    *found                     = NULL;
    char           second[FL_MODEL_PATH_MAX] = "";
    fl_json_reader config;
    int there = family == NULL ? 0 : find_form(&found, model, family, path, second, error);
    if (there <= 0)
        return there;
    FL_TRY(fl_model_read_tokenizer_config(model, &config, error));
    maker *m = fl_alloc_zero(1, sizeof *m);
    if (m == NULL)
        return fl_fail_nomem(error, sizeof *m, "a tokenizer");
    *m         = (maker){.form = found, .config = &config, .path = path, .error = error};
    m->w.out   = &model->tokenizer_text;
    int status = make(model, m, second);
    model->tokenizer_pieces = found->steps == PIECES;
    fl_free(m);
    return status != 0 ? status : 1;
}
