/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_tell.c - a tokenizer.json becomes tokenizer.ggml.*: what all kinds have.
 *
 * Role    gguf_export.c calls it; gguf_tokenizer.c is the other way.
 * In/Out  {"added_tokens", "normalizer", "pre_tokenizer", "model", …} -> tokens, types, scores or merges, ids, flags.
 * Method  The kind is the row of fl_gguf_kinds that the model is; the kind's own file tells its steps. What the format
 *         has no word for is refused by the part's name. An id without a token is one that is not used.
 * Memory  a table of the tokens. Threads: reentrant.
 * Proof   tests/golden/test_gguf_export.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/gguf_arch.h"

void fl_gguf_untold(fl_gguf_teller *t, const char *part) {
    if (t->status == 0)
        t->status = fl_fail(t->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                            "%s: %s is of a form that GGUF cannot express, so the model cannot be "
                            "written as a GGUF file.",
                            t->source, part);
}

bool fl_gguf_is_step(fl_json *step, const char *type) {
    const char *is = fl_json_text(fl_json_get(step, "type"));
    return is != NULL && strcmp(is, type) == 0;
}

int64_t fl_gguf_told_id(const fl_gguf_teller *t, const char *token) {
    for (uint32_t id = 0; id < t->count; id++)
        if (t->tokens[id].text.data != NULL && fl_span_is(t->tokens[id].text, token))
            return id;
    return -1;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* NULL, and the status says so: the model has no row for the id, or it is none. */
static fl_gguf_token *token_at(fl_gguf_teller *t, fl_json *id) {
    int64_t at = fl_json_is_int(id) ? fl_json_int64(id) : -1;
    if (at >= 0 && at < t->count)
        return &t->tokens[at];
    if (t->status == 0)
        t->status = fl_fail(t->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                            "%s has a token with the id %lld, but the model has %u rows of word "
                            "embeddings; GGUF has as many tokens as rows.",
                            t->source, (long long)at, t->count);
    return NULL;
}

static void read_pieces(fl_gguf_teller *t, fl_json *vocab) {
    for (size_t i = 0; t->status == 0 && i < fl_json_count(vocab); i++) {
        fl_json *piece = fl_json_item(fl_json_item(vocab, i), 0);
        if (i >= t->count || fl_json_text(piece) == NULL) {
            fl_gguf_untold(t, "model.vocab");
            return;
        }
        t->tokens[i] =
            (fl_gguf_token){.text  = {fl_json_text(piece), fl_json_text_size(piece)},
                            .score = fl_json_f64(fl_json_item(fl_json_item(vocab, i), 1)),
                            .type  = FL_TOKEN_NORMAL};
    }
}

static bool is_byte(const char *text) {
    return strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
}

static void read_vocab(fl_gguf_teller *t) {
    fl_json   *vocab = fl_json_get(t->model, "vocab");
    const bool bytes = fl_json_flag(t->model, "byte_fallback", false);
    if (fl_json_is(vocab, FL_JSON_ARRAY)) {
        read_pieces(t, vocab);
        return;
    }
    FL_JSON_EACH(vocab, key, id) {
        fl_gguf_token *token = token_at(t, id);
        if (token == NULL)
            return;
        *token = (fl_gguf_token){.text = {key, strlen(key)},
                                 .type = bytes && is_byte(key) ? FL_TOKEN_BYTE : FL_TOKEN_NORMAL};
    }
}

static void read_added(fl_gguf_teller *t) {
    fl_json *added = fl_json_get(t->root, "added_tokens");
    for (size_t i = 0; t->status == 0 && i < fl_json_count(added); i++) {
        fl_json       *from    = fl_json_item(added, i);
        fl_json       *content = fl_json_get(from, "content");
        fl_gguf_token *token   = token_at(t, fl_json_get(from, "id"));
        if (token == NULL)
            return;
        if (fl_json_text(content) == NULL || fl_json_flag(from, "single_word", false) ||
            fl_json_flag(from, "rstrip", false))
            fl_gguf_untold(t, "added_tokens");
        token->text = (fl_span){fl_json_text(content), fl_json_text_size(content)};
        token->type =
            fl_json_flag(from, "special", false) ? FL_TOKEN_CONTROL : FL_TOKEN_USER_DEFINED;
        token->lstrip = fl_json_flag(from, "lstrip", false);
    }
}

/* ---- What all kinds write --------------------------------------------------------------------- */

void fl_gguf_tell_tokens(fl_gguf_teller *t, fl_gguf_told_name_fn *name) {
    char unused[24];
    if (t->status != 0)
        return;
    fl_gguf_put_array(t->w, FL_GGUF_KEYS "tokens", FL_GGUF_TEXT, t->count);
    for (uint32_t id = 0; id < t->count; id++) {
        fl_gguf_token *token = &t->tokens[id];
        int            size  = snprintf(unused, sizeof unused, "[PAD%u]", id);
        fl_span        text  = {unused, (size_t)size};
        if (token->text.data != NULL)
            text = name != NULL ? name(t, token) : token->text;
        fl_gguf_put_item(t->w, text.data, text.size);
    }
    fl_gguf_put_array(t->w, FL_GGUF_KEYS "token_type", FL_GGUF_I32, t->count);
    for (uint32_t id = 0; id < t->count; id++) {
        int32_t type = t->tokens[id].text.data != NULL ? t->tokens[id].type : FL_TOKEN_UNUSED;
        fl_buf_append(&t->w->values, &type, sizeof type);
    }
}

void fl_gguf_tell_scores(fl_gguf_teller *t) {
    if (t->status != 0)
        return;
    fl_gguf_put_array(t->w, FL_GGUF_KEYS "scores", FL_GGUF_F32, t->count);
    for (uint32_t id = 0; id < t->count; id++) {
        double exact = t->tokens[id].score;
        float  score = (float)exact;
        /* SentencePiece's are float32; writing them as text may have cost them their last bit as a double. */
        if (fabs((double)score - exact) > 1e-14 * fabs(exact))
            fl_gguf_untold(t, "a score of model.vocab");
        fl_buf_append(&t->w->values, &score, sizeof score);
    }
}

static void put_id(fl_gguf_teller *t, const char *key, int64_t id) {
    if (id >= 0 && id < t->count)
        fl_gguf_put_u32(t->w, key, (uint32_t)id);
}

void fl_gguf_tell_specials(fl_gguf_teller *t, int64_t unknown) {
    put_id(t, FL_GGUF_KEYS "bos_token_id", t->specials->first);
    put_id(t, FL_GGUF_KEYS "eos_token_id", t->specials->last);
    put_id(t, FL_GGUF_KEYS "unknown_token_id", unknown);
    put_id(t, FL_GGUF_KEYS "padding_token_id", t->specials->padding);
    put_id(t, FL_GGUF_KEYS "mask_token_id", t->specials->mask);
}

void fl_gguf_tell_around(fl_gguf_teller *t) {
    fl_gguf_put_flag(t->w, FL_GGUF_KEYS "add_bos_token", t->specials->first >= 0);
    fl_gguf_put_flag(t->w, FL_GGUF_KEYS "add_eos_token", t->specials->last >= 0);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static const fl_gguf_kind *kind_of(fl_gguf_teller *t) {
    const bool bytes = fl_json_flag(t->model, "byte_fallback", false);
    for (const fl_gguf_kind *kind = fl_gguf_kinds; kind->model != NULL; kind++)
        if (fl_gguf_is_step(t->model, kind->type) && kind->byte_fallback == bytes)
            return kind;
    fl_gguf_untold(t, "model");
    return NULL;
}

int fl_gguf_tell_tokenizer(fl_gguf_writer *w, fl_json *root, uint32_t count,
                           const fl_gguf_specials *specials, const char *source,
                           fletch_error *error) {
    fl_gguf_teller t = {.w        = w,
                        .root     = root,
                        .model    = fl_json_get(root, "model"),
                        .source   = source,
                        .error    = error,
                        .tokens   = fl_alloc_zero(count, sizeof *t.tokens),
                        .count    = count,
                        .specials = specials};
    if (t.tokens == NULL)
        return fl_fail_nomem(error, count * sizeof *t.tokens, "a vocabulary");
    const fl_gguf_kind *kind = kind_of(&t);
    read_vocab(&t);
    read_added(&t);
    if (t.status == 0) {
        fl_gguf_put_text(w, FL_GGUF_KEYS "model", kind->model, strlen(kind->model));
        kind->tell(&t);
    }
    if (t.status == 0 && (w->values.failed || t.name.failed))
        t.status = fl_fail_nomem(error, w->values.size, "a vocabulary");
    fl_buf_free(&t.name);
    fl_free(t.tokens);
    return t.status;
}
