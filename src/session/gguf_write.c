/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write.c - a model becomes one GGUF file, and only one that would be read as the same model.
 *
 * Role    fletch_gguf_write; model/gguf_export.c makes the file.
 * Method  The model is opened without an engine. GGUF tells less of a tokenizer than tokenizer.json does, so the
 *         tokenizer that a reader makes of the metadata is held against the model's own, before anything is written:
 *         every token's text, and the ids of texts made of each token, of added tokens in all company, and of what
 *         tokenizers differ in (white space, capitals, accents, digits, Chinese, controls). U+2581 in a text is left
 *         out: to SentencePiece, whose word GGUF has, it is a space.
 * Memory  the model's tables, two tokenizers, some megabytes of rows. Threads: none of its own.
 * Proof   tests/golden/test_gguf_export.py. */
#include "session/gguf_write.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/gguf_export.h"
#include "requests/open_model.h"
#include "session/open.h"

/* ---- Two tokenizers ---------------------------------------------------------------------------- */

typedef struct pair {
    const fl_tokenizer *tokenizer[2];
    fl_token_scratch   *scratch[2]; /* owned */
    int32_t            *ids[2];     /* owned [room[.]] */
    size_t              room[2];
    fl_buf              text;
    bool                failed; /* out of memory, or a text that one of them refuses */
} pair;

static size_t encode(pair *p, size_t which, const char *text, size_t size) {
    static const fl_encode_options whole = {0};
    size_t need = fl_tokenizer_ids_max(p->tokenizer[which], size), count = 0;
    bool   cut = false;
    if (!fl_array_reserve(&p->ids[which], &p->room[which], need, sizeof **p->ids) ||
        fl_tokenizer_encode(p->tokenizer[which], p->scratch[which], text, size, &whole,
                            p->ids[which], p->room[which], &count, &cut, NULL) < 0)
        p->failed = true;
    return count;
}

/* Whether both give p->text the same ids. */
static bool same_ids(pair *p) {
    size_t count[2];
    for (size_t i = 0; i < 2; i++)
        count[i] = encode(p, i, p->text.size > 0 ? p->text.data : "", p->text.size);
    return count[0] == count[1] && memcmp(p->ids[0], p->ids[1], count[0] * sizeof **p->ids) == 0;
}

static bool same_texts(pair *p) {
    static const char *const texts[] = {
        "",
        " ",
        "Hello, World!  It's 2024 -- isn't IT? they'LL we've I'm",
        "  leading and trailing \t\n\r\n  white \xC2\xA0\xE2\x80\x89\xE3\x80\x80 space\n\n\n",
        "naïve café CAFÉ cafe\xCC\x81 Über straße İstanbul",
        "1234567890 3.14159 1,000,000 x86_64 2e-5 ½ Ⅷ ٣٤",
        "中文字符 mixed日本語 한국어 ｆｕ",
        "a\x01z\x7F \xE2\x80\x8Bzero\xE2\x80\x8Dwidth \xEF\xBB\xBF\xC2\xAD soft",
        "😀👩\xE2\x80\x8D💻 ﬁ ² ™ … “quotes” —",
        "foo(bar[0], {\"k\": -1}); // #include <a.h>\n\tif (x != y) return x->z * 2;",
        "## ##ing Ġword <0x0A> [UNK] <unk>",
        "Привет سلام สวัสดี नमस्ते",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fl_buf_clear(&p->text);
        fl_buf_puts(&p->text, texts[i]);
        if (!same_ids(p))
            return false;
    }
    fl_buf_clear(&p->text); /* longer than any word that a model takes apart */
    for (int i = 0; i < 300; i++)
        fl_buf_puts(&p->text, i % 101 == 100 ? " a" : "ab");
    return same_ids(p);
}

/* Texts with a token's own in them: what it is decoded to, and, as added tokens are looked for, as it is called. */
static bool same_around(pair *p, int32_t id, bool decoded) {
    static const char *const around[][2] = {
        {"", ""}, {"a ", " b"}, {"a", "b"}, {"  ", "  "}, {"\n", "\t."}};
    size_t      size;
    const char *name = fl_tokenizer_token(p->tokenizer[0], id, &size);
    for (size_t i = 0; i < (decoded ? 2 : sizeof around / sizeof *around); i++) {
        fl_buf_clear(&p->text);
        fl_buf_puts(&p->text, around[i][0]);
        if (!decoded)
            fl_buf_append(&p->text, name, size);
        else if (fl_tokenizer_decode(p->tokenizer[0], &id, 1, false, &p->text, NULL) < 0)
            return true; /* it has no text */
        fl_buf_puts(&p->text, around[i][1]);
        if (!same_ids(p))
            return false;
    }
    return true;
}

static bool same_token(pair *p, int32_t id) {
    size_t      size[2] = {0, 0};
    const char *text[2];
    for (size_t i = 0; i < 2; i++)
        text[i] = fl_tokenizer_token(p->tokenizer[i], id, &size[i]);
    if (text[0] == NULL || text[1] == NULL)
        return text[0] == text[1];
    return size[0] == size[1] && memcmp(text[0], text[1], size[0]) == 0 &&
           same_around(p, id, true) &&
           (!fl_tokenizer_is_added(p->tokenizer[0], id) || strstr(text[0], "▁") != NULL ||
            same_around(p, id, false));
}

static int compare(const fl_tokenizer *own, const fl_tokenizer *made, const char *source,
                   fletch_error *error) {
    pair     p     = {.tokenizer = {own, made}};
    uint32_t count = fl_tokenizer_vocab_size(own);
    char     text[96];
    for (size_t i = 0; i < 2; i++) {
        p.scratch[i] = fl_token_scratch_new(p.tokenizer[i]);
        p.failed     = p.failed || p.scratch[i] == NULL;
    }
    bool same = !p.failed && same_texts(&p);
    for (uint32_t id = 0; same && id < count; id++)
        same = same_token(&p, (int32_t)id);
    snprintf(text, sizeof text, "%.*s", (int)(p.text.size < 60 ? p.text.size : 60),
             p.text.size > 0 ? p.text.data : "");
    bool failed = p.failed || p.text.failed;
    for (size_t i = 0; i < 2; i++) {
        fl_token_scratch_free(p.scratch[i]);
        fl_free(p.ids[i]);
    }
    fl_buf_free(&p.text);
    if (failed)
        return fl_fail_nomem(error, count, "the comparison of tokenizers");
    return same ? FLETCH_OK
                : fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                          "%s: GGUF cannot express this tokenizer: reading it back gives different "
                          "ids, for instance near \"%s\".",
                          source, text);
}

/* ---- The file ---------------------------------------------------------------------------------- */

static int find_form(const char *type, const fl_gguf_form **out, fletch_error *error) {
    char known[128] = "";
    for (*out = fl_gguf_forms; (*out)->name != NULL; (*out)++) {
        if (strcasecmp((*out)->name, type) == 0)
            return FLETCH_OK;
        fl_error_list(known, sizeof known, (*out)->name);
    }
    return fl_fail(error, FLETCH_EINVAL, FLETCH_NOWHERE, "unknown type \"%.40s\"; use one of %s",
                   type, known);
}

/* The text that the tokenizer was made of. What was made of older files is made again. */
static int read_tokenizer(const fl_model *model, fl_buf *out, fletch_error *error) {
    fl_model *again;
    if (model->tokenizer_is_vocab)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: a vocab.txt alone is not enough to write a GGUF file; save the "
                       "tokenizer once with transformers, which makes a tokenizer.json",
                       model->tokenizer_path);
    if (!model->tokenizer_made)
        return fl_file_read(model->tokenizer_path, FL_TOKENIZER_BYTES_MAX, out, error);
    FL_TRY(
        fl_model_open(&again, model->folder, &(fl_model_options){.without_weights = true}, error));
    *out                  = again->tokenizer_text;
    again->tokenizer_text = (fl_buf){0};
    fl_model_close(again);
    return FLETCH_OK;
}

/* What stands around a text, which GGUF can say of one token on each side. */
static int find_specials(const fl_tokenizer *tokenizer, const char *source, fl_gguf_specials *out,
                         fletch_error *error) {
    uint32_t       before = 0, after = 0;
    const int32_t *first = fl_tokenizer_before(tokenizer, &before),
                  *last  = fl_tokenizer_after(tokenizer, &after);
    if (before > 1 || after > 1)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: GGUF cannot express more than one token before or after a text.",
                       source);
    if (fl_tokenizer_truncation(tokenizer) == FL_TRUNCATE_LEFT)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: GGUF cannot express truncation on the left.", source);
    *out = (fl_gguf_specials){.first   = before > 0 ? first[0] : -1,
                              .last    = after > 0 ? last[0] : -1,
                              .padding = fl_tokenizer_named(tokenizer, FL_TOKEN_PAD),
                              .mask    = fl_tokenizer_named(tokenizer, FL_TOKEN_MASK)};
    return FLETCH_OK;
}

static int check_tokenizer(const fletch_model *m, const fl_gguf_export *made, fletch_error *error) {
    fl_buf        text   = {0};
    fl_tokenizer *again  = NULL;
    int           status = fl_gguf_export_tokenizer(made, &text, error);
    if (status == FLETCH_OK)
        status = fl_tokenizer_open(
            &again, &text, &(fl_tokenizer_options){.source = m->model->tokenizer_path}, error);
    fl_buf_free(&text);
    if (status == FLETCH_OK)
        status = compare(m->tokenizer, again, m->model->tokenizer_path, error);
    fl_tokenizer_close(again);
    return status;
}

/* GGUF has no word for these; whoever wants the same vectors has to give them. */
static void tell_left_out(const fletch_model *m) {
    const fl_model *model = m->model;
    const fl_log   *log   = fl_config_log(m->config);
    char            names[256];
    size_t          used = 0;
    if (model->max_length < model->encoder.desc.positions)
        fl_log_write(log, FL_LOG_WARNING,
                     "the file cannot express truncation at %u tokens (%s): texts will be "
                     "truncated at %u; set model.max_length %u for the same result",
                     model->max_length, model->max_length_source.origin,
                     model->encoder.desc.positions, model->max_length);
    for (uint32_t i = 0; i < model->prompt_count; i++)
        if (model->prompts[i].text[0] != '\0' && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", model->prompts[i].name);
    if (used > 0)
        fl_log_write(log, FL_LOG_WARNING,
                     "the file cannot hold the model's prompts (%s): pass the text with --prompt",
                     names);
}

static int convert(const fletch_model *m, const fl_gguf_form *form, const char *path,
                   fletch_progress_fn progress, void *user, fletch_error *error) {
    fl_gguf_specials specials = {0};
    fl_gguf_export  *made     = NULL;
    fl_buf           text     = {0};
    if (!m->model->gguf) {
        FL_TRY(find_specials(m->tokenizer, m->model->tokenizer_path, &specials, error));
        FL_TRY(read_tokenizer(m->model, &text, error));
    }
    FL_TRY(fl_gguf_export_open(&made, m->model, form, &text, &specials, error));
    int status = m->model->gguf ? FLETCH_OK : check_tokenizer(m, made, error);
    if (status == FLETCH_OK)
        status = fl_gguf_export_write(made, path, progress, user, error);
    if (status == FLETCH_OK && !m->model->gguf)
        tell_left_out(m);
    fl_gguf_export_close(made);
    return status;
}

int fl_session_gguf_write(const char *name, const fl_config *config, const char *path,
                          const char *type, fletch_progress_fn progress, void *user,
                          fletch_error *error) {
    const fl_gguf_form *form;
    fletch_model       *m = NULL;
    FL_TRY(find_form(type, &form, error));
    FL_TRY(fl_session_open(&m, name, config, FL_DEPTH_WEIGHTS, error));
    int status = convert(m, form, path, progress, user, error);
    fl_session_close(m);
    return status;
}
