/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_tokenizer.c - tokenizer.ggml.* becomes the text of a tokenizer.json: what all kinds have.
 *
 * Role    gguf_model.c calls it; the tokenizer room reads what comes out like any other file, so that there is one
 *         tokenizer and not two.
 * In/Out  tokens, their types, scores or merges, special ids, flags -> {"normalizer", "pre_tokenizer", "model", …}.
 * Method  The text is what the model's repository has, as far as the metadata tells it; what llama.cpp computes
 *         otherwise is not followed. What decides ids and is missing, or is said twice and differs, is refused.
 * Memory  the text, and a table of the tokens while it is made. Threads: reentrant.
 * Proof   tests/golden/test_gguf_tokens.py. */
#include "model/gguf_arch.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

enum { TOKENS_MAX = 1 << 22 };

void fl_gguf_refuse(fl_gguf_maker *m, int status, const char *key, const char *why) {
    if (m->status == 0)
        m->status = fl_fail(m->error, status, FLETCH_NOWHERE, "%s: " FL_GGUF_KEYS "%s %s.",
                            m->source, key, why);
}

const fl_gguf_value *fl_gguf_key(const fl_gguf_maker *m, const char *key) {
    char name[80] = FL_GGUF_KEYS;
    strncat(name, key, sizeof name - sizeof FL_GGUF_KEYS);
    return fl_gguf_find(m->file, name);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

static bool open_table(fl_gguf_maker *m) {
    m->tokens = fl_alloc_array(m->count, sizeof *m->tokens);
    if (m->tokens == NULL || !fl_piece_index_open(&m->index, m->tokens, m->count))
        m->status = fl_fail_nomem(m->error, m->count * sizeof *m->tokens, "a vocabulary");
    return m->status == 0;
}

static void read_tokens(fl_gguf_maker *m) {
    const fl_gguf_value *list = fl_gguf_key(m, "tokens");
    if (list == NULL || !list->array || list->type != FL_GGUF_TEXT || list->count == 0 ||
        list->count > TOKENS_MAX) {
        fl_gguf_refuse(m, FLETCH_EMODEL, "tokens", "is not a list of 1 to 4194304 texts");
        return;
    }
    const unsigned char *at = list->data;
    m->count                = (uint32_t)list->count;
    if (!open_table(m))
        return;
    for (uint32_t id = 0; m->status == 0 && id < m->count; id++) {
        m->tokens[id]  = fl_gguf_next(&at);
        uint32_t first = fl_piece_index_put(&m->index, id);
        if (first != id)
            m->status = fl_fail(m->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                "%s: " FL_GGUF_KEYS "tokens has \"%.*s\" as %u and as %u.",
                                m->source, (int)(m->tokens[id].size < 40 ? m->tokens[id].size : 40),
                                m->tokens[id].data, first, id);
    }
    fl_gguf_check_list(m, "token_type", true);
    m->types = fl_gguf_key(m, "token_type");
}

uint64_t fl_gguf_type_of(const fl_gguf_maker *m, uint32_t id) {
    uint64_t type = FL_TOKEN_NORMAL;
    fl_gguf_whole(m->types, id, &type);
    return type;
}

void fl_gguf_check_list(fl_gguf_maker *m, const char *key, bool needed) {
    const fl_gguf_value *list = fl_gguf_key(m, key);
    if (list == NULL && needed)
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, key, "is missing");
    else if (list != NULL && (!list->array || list->count != m->count))
        fl_gguf_refuse(m, FLETCH_EMODEL, key, "is not as long as the list of tokens");
}

/* ---- Special tokens and switches -------------------------------------------------------------- */

/* -1: there is none under `key`. */
static int64_t special(fl_gguf_maker *m, const char *key) {
    const fl_gguf_value *value = fl_gguf_key(m, key);
    uint64_t             id    = 0;
    if (value == NULL)
        return -1;
    if (value->array || !fl_gguf_whole(value, 0, &id) || id >= m->count) {
        fl_gguf_refuse(m, FLETCH_EMODEL, key, "is not the id of a token");
        return -1;
    }
    return (int64_t)id;
}

int64_t fl_gguf_needed_special(fl_gguf_maker *m, const char *key, const char *other) {
    int64_t id   = special(m, key);
    int64_t more = other != NULL ? special(m, other) : -1;
    if (id >= 0 && more >= 0 && id != more && m->status == 0)
        m->status = fl_fail(m->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                            "%s: " FL_GGUF_KEYS "%s is %lld but %s is %lld: they contradict.",
                            m->source, key, (long long)id, other, (long long)more);
    id = id >= 0 ? id : more;
    if (id < 0)
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, key,
                       "is missing, and the ids depend on it; convert the model again");
    return id;
}

bool fl_gguf_switch(fl_gguf_maker *m, const char *key, bool fallback) {
    const fl_gguf_value *value = fl_gguf_key(m, key);
    bool                 on    = fallback;
    if (value != NULL && !fl_gguf_flag(value, &on))
        fl_gguf_refuse(m, FLETCH_EMODEL, key, "is neither true nor false");
    return on;
}

bool fl_gguf_needed_switch(fl_gguf_maker *m, const char *key) {
    if (fl_gguf_key(m, key) == NULL)
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, key,
                       "is missing, and the ids depend on it; convert the model again");
    return fl_gguf_switch(m, key, false);
}

void fl_gguf_around(fl_gguf_maker *m) {
    if (fl_gguf_needed_switch(m, "add_bos_token"))
        m->first = fl_gguf_needed_special(m, "bos_token_id", NULL);
    if (fl_gguf_needed_switch(m, "add_eos_token"))
        m->last = fl_gguf_needed_special(m, "eos_token_id", NULL);
}

/* ---- What all kinds write --------------------------------------------------------------------- */

void fl_gguf_put_token(fl_gguf_maker *m, const char *key, int64_t id) {
    fl_json_w_bytes(&m->w, key, m->tokens[id].data, m->tokens[id].size);
}

void fl_gguf_put_template(fl_gguf_maker *m) {
    static const char *const names[] = {"single", "pair"}, *const texts[] = {"A", "B"};
    fl_tokenizer_put_step(&m->w, "post_processor", "TemplateProcessing");
    for (unsigned count = 1; count <= 2; count++) {
        fl_json_w_array(&m->w, names[count - 1]);
        if (m->first >= 0)
            fl_tokenizer_put_part(&m->w, "SpecialToken", "first", 0);
        for (unsigned i = 0; i < count; i++) {
            fl_tokenizer_put_part(&m->w, "Sequence", texts[i], i);
            if (m->last >= 0)
                fl_tokenizer_put_part(&m->w, "SpecialToken", "last", i);
        }
        fl_json_w_end(&m->w);
    }
    fl_json_w_object(&m->w, "special_tokens");
    if (m->first >= 0)
        fl_tokenizer_put_special(&m->w, "first", m->first, m->tokens[m->first]);
    if (m->last >= 0)
        fl_tokenizer_put_special(&m->w, "last", m->last, m->tokens[m->last]);
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
}

static fl_span name_of(fl_gguf_maker *m, fl_gguf_name_fn *name, uint32_t id, uint64_t type) {
    return name != NULL ? name(m, id, type) : m->tokens[id];
}

void fl_gguf_put_added(fl_gguf_maker *m, fl_gguf_name_fn *name) {
    fl_json_w_array(&m->w, "added_tokens");
    for (uint32_t id = 0; id < m->count; id++) {
        uint64_t type = fl_gguf_type_of(m, id);
        if (type != FL_TOKEN_CONTROL && type != FL_TOKEN_USER_DEFINED && type != FL_TOKEN_UNKNOWN)
            continue;
        fl_span content = name_of(m, name, id, type);
        bool    strips  = m->lstripped != NULL && fl_span_is(content, m->lstripped);
        fl_tokenizer_put_added(&m->w, id, content, strips, type == FL_TOKEN_USER_DEFINED,
                               type != FL_TOKEN_USER_DEFINED);
    }
    fl_json_w_end(&m->w);
}

void fl_gguf_put_vocab(fl_gguf_maker *m, fl_gguf_name_fn *name) {
    fl_json_w_object(&m->w, "vocab");
    for (uint32_t id = 0; id < m->count; id++) {
        uint64_t type = fl_gguf_type_of(m, id);
        if (type == FL_TOKEN_UNUSED)
            continue;
        fl_span token = name_of(m, name, id, type);
        fl_json_w_bytes(&m->w, NULL, token.data, token.size);
        fl_buf_printf(m->w.out, ":%u", id);
    }
    fl_json_w_end(&m->w);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static void make(fl_gguf_maker *m) {
    fl_span model;
    if (!fl_gguf_text(fl_gguf_key(m, "model"), &model)) {
        fl_gguf_refuse(m, FLETCH_EMODEL, "model", "is missing");
        return;
    }
    for (size_t i = 0; fl_gguf_kinds[i].model != NULL; i++)
        if (fl_span_is(model, fl_gguf_kinds[i].model)) {
            fl_json_w_object(&m->w, NULL);
            fl_gguf_kinds[i].make(m);
            if (m->status == 0)
                fl_json_w_end(&m->w);
            return;
        }
    m->status = fl_fail(m->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                        "%s: " FL_GGUF_KEYS "model \"%.*s\" is not supported.", m->source,
                        (int)(model.size < 40 ? model.size : 40), model.data);
}

int fl_gguf_tokenizer(fl_buf *out, const fl_gguf *file, const char *source, fletch_error *error) {
    fl_gguf_maker m = {
        .file = file, .source = source, .error = error, .w = {.out = out}, .first = -1, .last = -1};
    read_tokens(&m);
    if (m.status == 0)
        make(&m);
    if (m.status == 0 && (out->failed || m.name.failed))
        m.status = fl_fail_nomem(error, out->size, "a tokenizer");
    fl_buf_free(&m.name);
    fl_free(m.tokens);
    fl_piece_index_close(&m.index);
    return m.status;
}
