/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_bpe.c - byte-level BPE: the name of a pre-tokenizer becomes the steps of the repository that it stands for, and
 * steps that have a name become that.
 *
 * tokenizer.ggml.pre names a split and, through the model that it was named after, what is normalised before; the
 * flags of the metadata say the rest. A name that is not in the table is refused: a split that is nearly right
 * gives other ids. */
#include <string.h>

#include "base/error.h"
#include "model/gguf_arch.h"

static const fl_gguf_pre *find_pre(fl_gguf_maker *m) {
    char    known[200] = "";
    fl_span name;
    if (!fl_gguf_text(fl_gguf_key(m, "pre"), &name)) {
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "pre",
                       "is missing, and the ids depend on it; convert the model again");
        return NULL;
    }
    for (const fl_gguf_pre *pre = fl_gguf_pres; pre->name != NULL; pre++) {
        if (fl_span_is(name, pre->name))
            return pre;
        fl_error_list(known, sizeof known, pre->name);
    }
    if (m->status == 0)
        m->status = fl_fail(m->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                            "%s: tokenizer.ggml.pre \"%.*s\" is not supported; fletch knows %s.",
                            m->source, (int)(name.size < 60 ? name.size : 60), name.data, known);
    return NULL;
}

static void put_merges(fl_gguf_maker *m) {
    const fl_gguf_value *list = fl_gguf_key(m, "merges");
    if (list == NULL || !list->array || list->type != FL_GGUF_TEXT) {
        fl_gguf_refuse(m, FLETCH_EMODEL, "merges", "is not a list of texts");
        return;
    }
    const unsigned char *at = list->data;
    fl_json_w_array(&m->w, "merges");
    for (uint64_t i = 0; i < list->count; i++) {
        fl_span merge = fl_gguf_next(&at);
        fl_json_w_bytes(&m->w, NULL, merge.data, merge.size);
    }
    fl_json_w_end(&m->w);
}

void fl_gguf_make_bpe(fl_gguf_maker *m) {
    const fl_gguf_pre *pre   = find_pre(m);
    bool               lower = fl_gguf_switch(m, "normalizer.lowercase", false);
    bool               strip = fl_gguf_switch(m, "normalizer.strip_accents", false);
    if (pre == NULL)
        return;
    if (strip || (lower && pre->nfc))
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "normalizer", "of a byte-level BPE changes letters");
    fl_gguf_around(m);
    if (m->status != 0)
        return;
    m->lstripped = pre->lstripped;
    if (lower || pre->nfc) {
        fl_tokenizer_put_step(&m->w, "normalizer", lower ? "Lowercase" : "NFC");
        fl_json_w_end(&m->w);
    }
    fl_json_w_raw(&m->w, "pre_tokenizer");
    fl_buf_puts(m->w.out, pre->steps);
    fl_tokenizer_put_step(&m->w, "decoder", "ByteLevel");
    fl_json_w_end(&m->w);
    fl_gguf_put_template(m);
    fl_gguf_put_added(m, NULL);
    fl_tokenizer_put_step(&m->w, "model", "BPE");
    fl_json_w_bool(&m->w, "ignore_merges", pre->ignores_merges);
    fl_gguf_put_vocab(m, NULL);
    put_merges(m);
    fl_json_w_end(&m->w);
}

/* ---- The other way --------------------------------------------------------------------------- */

/* Whether two values say the same; "trim_offsets" has no part in the ids. */
static bool alike(fl_json *a, fl_json *b) {
    if (fl_json_type_of(a) != fl_json_type_of(b))
        return false;
    switch (fl_json_type_of(a)) {
    case FL_JSON_OBJECT: {
        FL_JSON_EACH(a, key, value)
        if (strcmp(key, "trim_offsets") != 0 && !alike(value, fl_json_get(b, key)))
            return false;
        return fl_json_count(a) == fl_json_count(b);
    }
    case FL_JSON_ARRAY:
        for (size_t i = 0; i < fl_json_count(a); i++)
            if (!alike(fl_json_item(a, i), fl_json_item(b, i)))
                return false;
        return fl_json_count(a) == fl_json_count(b);
    case FL_JSON_STRING: return strcmp(fl_json_text(a), fl_json_text(b)) == 0;
    case FL_JSON_BOOL: return fl_json_true(a) == fl_json_true(b);
    default: return fl_json_f64(a) == fl_json_f64(b);
    }
}

static bool has_steps(fl_gguf_teller *t, const fl_gguf_pre *pre) {
    fl_json *steps = NULL;
    size_t   size  = strlen(pre->steps);
    if (t->status == 0)
        t->status = fl_json_parse(&steps, pre->steps, size, size, 0, pre->name, t->error);
    bool same = t->status == 0 && alike(fl_json_get(t->root, "pre_tokenizer"), steps);
    fl_json_free(steps);
    return same;
}

/* White space goes before one token, the one that the name says, or before none. */
static bool strips_alike(const fl_gguf_teller *t, const fl_gguf_pre *pre) {
    for (uint32_t id = 0; id < t->count; id++) {
        const fl_gguf_token *token = &t->tokens[id];
        bool                 named = pre->lstripped != NULL && token->text.data != NULL &&
                     token->type != FL_TOKEN_NORMAL && fl_span_is(token->text, pre->lstripped);
        if (named != token->lstrip)
            return false;
    }
    return true;
}

static const fl_gguf_pre *name_steps(fl_gguf_teller *t, bool nfc) {
    const bool ignores = fl_json_flag(t->model, "ignore_merges", false);
    for (const fl_gguf_pre *pre = fl_gguf_pres; pre->name != NULL; pre++)
        if (pre->nfc == nfc && pre->ignores_merges == ignores && strips_alike(t, pre) &&
            has_steps(t, pre))
            return pre;
    fl_gguf_untold(t, "pre_tokenizer");
    return NULL;
}

static void tell_merges(fl_gguf_teller *t) {
    fl_json *merges = fl_json_get(t->model, "merges");
    fl_gguf_put_array(t->w, FL_GGUF_KEYS "merges", FL_GGUF_TEXT, fl_json_count(merges));
    for (size_t i = 0; i < fl_json_count(merges); i++) {
        fl_json *merge = fl_json_item(merges, i), *left = fl_json_item(merge, 0),
                *right = fl_json_item(merge, 1);
        if (left == NULL) { /* "left right" */
            fl_gguf_put_item(t->w, fl_json_text(merge), fl_json_text_size(merge));
            continue;
        }
        fl_buf_clear(&t->name);
        fl_buf_append(&t->name, fl_json_text(left), fl_json_text_size(left));
        fl_buf_putc(&t->name, ' ');
        fl_buf_append(&t->name, fl_json_text(right), fl_json_text_size(right));
        fl_gguf_put_item(t->w, t->name.data, t->name.size);
    }
}

void fl_gguf_tell_bpe(fl_gguf_teller *t) {
    fl_json   *normalizer = fl_json_get(t->root, "normalizer");
    const bool nfc        = fl_gguf_is_step(normalizer, "NFC"),
               lower      = fl_gguf_is_step(normalizer, "Lowercase");
    if (normalizer != NULL && !nfc && !lower)
        fl_gguf_untold(t, "normalizer");
    const fl_gguf_pre *pre = name_steps(t, nfc);
    if (pre == NULL)
        return;
    fl_gguf_put_text(t->w, FL_GGUF_KEYS "pre", pre->name, strlen(pre->name));
    if (lower)
        fl_gguf_put_flag(t->w, FL_GGUF_KEYS "normalizer.lowercase", true);
    fl_gguf_tell_tokens(t, NULL);
    tell_merges(t);
    const char *unknown = fl_json_text(fl_json_get(t->model, "unk_token"));
    fl_gguf_tell_specials(t, unknown != NULL ? fl_gguf_told_id(t, unknown) : -1);
    fl_gguf_tell_around(t);
}
