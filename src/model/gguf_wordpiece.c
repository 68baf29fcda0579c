/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_wordpiece.c - tokenizer.ggml.model "bert": BERT's WordPiece, both ways.
 *
 * The vocabulary is stored with a mark at the beginning of words instead of "##" inside them; that is undone, or done.
 * Old files do not say whether texts are put into lower case: then a vocabulary without capitals says so, as no text
 * in capitals could be found in it. */
#include <string.h>

#include "model/gguf_tokenizer.h"

static const char mark[] = "\xE2\x96\x81"; /* U+2581 */

/* "▁word" is "word", "ing" is "##ing"; control tokens are as they are. */
static fl_span name_of(fl_gguf_maker *m, uint32_t id, uint64_t type) {
    fl_span      token = m->tokens[id];
    const size_t size  = sizeof mark - 1;
    if (type == FL_TOKEN_CONTROL)
        return token;
    if (token.size >= size && memcmp(token.data, mark, size) == 0)
        return (fl_span){token.data + size, token.size - size};
    fl_buf_clear(&m->name);
    fl_buf_puts(&m->name, "##");
    fl_buf_append(&m->name, token.data, token.size);
    return m->name.failed ? token : (fl_span){m->name.data, m->name.size};
}

static bool has_capital(const fl_gguf_maker *m) {
    for (uint32_t id = 0; id < m->count; id++)
        for (size_t i = 0; fl_gguf_type_of(m, id) == FL_TOKEN_NORMAL && i < m->tokens[id].size; i++)
            if (m->tokens[id].data[i] >= 'A' && m->tokens[id].data[i] <= 'Z')
                return true;
    return false;
}

static void put_steps(fl_gguf_maker *m) {
    bool told  = fl_gguf_key(m, "normalizer.lowercase") != NULL;
    bool lower = fl_gguf_switch(m, "normalizer.lowercase", true);
    if (!told && has_capital(m))
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "normalizer.lowercase",
                       "is missing, and the vocabulary has capitals; convert the model again");
    fl_tokenizer_put_step(&m->w, "normalizer", "BertNormalizer");
    fl_json_w_bool(&m->w, "clean_text", true);
    fl_json_w_bool(&m->w, "handle_chinese_chars", true);
    fl_json_w_bool(&m->w, "strip_accents", fl_gguf_switch(m, "normalizer.strip_accents", lower));
    fl_json_w_bool(&m->w, "lowercase", lower);
    fl_json_w_end(&m->w);
    fl_tokenizer_put_step(&m->w, "pre_tokenizer", "BertPreTokenizer");
    fl_json_w_end(&m->w);
    fl_tokenizer_put_step(&m->w, "decoder", "WordPiece");
    fl_json_w_text(&m->w, "prefix", "##");
    fl_json_w_bool(&m->w, "cleanup", true);
    fl_json_w_end(&m->w);
}

void fl_gguf_make_wordpiece(fl_gguf_maker *m) {
    int64_t unknown = fl_gguf_needed_special(m, "unknown_token_id", NULL);
    m->first        = fl_gguf_needed_special(m, "cls_token_id", "bos_token_id");
    m->last = fl_gguf_needed_special(m, "seperator_token_id", "eos_token_id"); /* so spelt */
    if (!fl_gguf_switch(m, "add_bos_token", true))
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "add_bos_token",
                       "is false, which BERT does not support");
    if (!fl_gguf_switch(m, "add_eos_token", true))
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "add_eos_token",
                       "is false, which BERT does not support");
    if (m->status != 0)
        return;
    put_steps(m);
    fl_gguf_put_template(m);
    fl_gguf_put_added(m, name_of);
    fl_tokenizer_put_step(&m->w, "model", "WordPiece");
    fl_gguf_put_token(m, "unk_token", unknown);
    fl_json_w_text(&m->w, "continuing_subword_prefix", "##");
    fl_json_w_u64(&m->w, "max_input_chars_per_word", 100);
    fl_gguf_put_vocab(m, name_of);
    fl_json_w_end(&m->w);
}

/* ---- The other way --------------------------------------------------------------------------- */

static fl_span marked(fl_gguf_teller *t, const fl_gguf_token *token) {
    if (token->type == FL_TOKEN_CONTROL)
        return token->text;
    if (token->text.size >= 2 && memcmp(token->text.data, "##", 2) == 0)
        return (fl_span){token->text.data + 2, token->text.size - 2};
    fl_buf_clear(&t->name);
    fl_buf_puts(&t->name, mark);
    fl_buf_append(&t->name, token->text.data, token->text.size);
    return (fl_span){t->name.data, t->name.size};
}

static void tell_steps(fl_gguf_teller *t) {
    fl_json *normalizer = fl_json_get(t->root, "normalizer"), *accents;
    if (!fl_gguf_is_step(normalizer, "BertNormalizer") ||
        !fl_json_flag(normalizer, "clean_text", true) ||
        !fl_json_flag(normalizer, "handle_chinese_chars", true))
        fl_gguf_untold(t, "normalizer");
    if (!fl_gguf_is_step(fl_json_get(t->root, "pre_tokenizer"), "BertPreTokenizer"))
        fl_gguf_untold(t, "pre_tokenizer");
    fl_gguf_put_flag(t->w, FL_GGUF_KEYS "normalizer.lowercase",
                     fl_json_flag(normalizer, "lowercase", true));
    if (fl_json_is(accents = fl_json_get(normalizer, "strip_accents"), FL_JSON_BOOL))
        fl_gguf_put_flag(t->w, FL_GGUF_KEYS "normalizer.strip_accents", fl_json_true(accents));
}

void fl_gguf_tell_wordpiece(fl_gguf_teller *t) {
    const char *prefix  = fl_json_text(fl_json_get(t->model, "continuing_subword_prefix")),
               *unknown = fl_json_text(fl_json_get(t->model, "unk_token"));
    fl_json *most       = fl_json_get(t->model, "max_input_chars_per_word");
    if ((prefix != NULL && strcmp(prefix, "##") != 0) ||
        (most != NULL && fl_json_int64(most) != 100))
        fl_gguf_untold(t, "model");
    if (t->specials->first < 0 || t->specials->last < 0)
        fl_gguf_untold(t, "post_processor");
    tell_steps(t);
    fl_gguf_tell_tokens(t, marked);
    fl_gguf_tell_specials(t, fl_gguf_told_id(t, unknown != NULL ? unknown : "[UNK]"));
    if (t->status != 0)
        return;
    fl_gguf_put_u32(t->w, FL_GGUF_KEYS "cls_token_id", (uint32_t)t->specials->first);
    fl_gguf_put_u32(t->w, FL_GGUF_KEYS "seperator_token_id", (uint32_t)t->specials->last);
}
