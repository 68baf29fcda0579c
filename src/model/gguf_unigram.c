/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_unigram.c - SentencePiece's Unigram, as XLM-RoBERTa has it, both ways: scores, and a map of characters. */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/gguf_tokenizer.h"

static const char stripped[] = "<mask>"; /* white space goes before it */

/* Runs of white space are split away with the words, so that what the model does to them does not matter. */
static void put_steps(fl_gguf_maker *m) {
    const fl_gguf_value *map = fl_gguf_key(m, "precompiled_charsmap");
    if (map != NULL && (!map->array || (map->type != FL_GGUF_U8 && map->type != FL_GGUF_I8)))
        fl_gguf_refuse(m, FLETCH_EMODEL, "precompiled_charsmap", "is not a list of bytes");
    if (!fl_gguf_needed_switch(m, "add_space_prefix"))
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "add_space_prefix", "is false");
    if (!fl_gguf_needed_switch(m, "remove_extra_whitespaces"))
        fl_gguf_refuse(m, FLETCH_EUNSUPPORTED, "remove_extra_whitespaces", "is false");
    if (m->status != 0)
        return;
    if (map != NULL)
        fl_tokenizer_put_map(&m->w, "normalizer", map->data, map->count);
    fl_tokenizer_put_step(&m->w, "pre_tokenizer", "Sequence");
    fl_json_w_array(&m->w, "pretokenizers");
    fl_tokenizer_put_step(&m->w, NULL, "WhitespaceSplit");
    fl_json_w_end(&m->w);
    fl_tokenizer_put_metaspace(&m->w, NULL);
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
    fl_tokenizer_put_metaspace(&m->w, "decoder");
}

static void put_pieces(fl_gguf_maker *m) {
    const fl_gguf_value *scores = fl_gguf_key(m, "scores");
    fl_json_w_array(&m->w, "vocab");
    for (uint32_t id = 0; id < m->count; id++) {
        double score = 0;
        if (!fl_gguf_real(scores, id, &score) || score - score != 0) {
            fl_gguf_refuse(m, FLETCH_EMODEL, "scores", "holds something that is not a number");
            return;
        }
        fl_json_w_array(&m->w, NULL);
        fl_gguf_put_token(m, NULL, id);
        fl_buf_printf(m->w.out, ",%.17g", score);
        fl_json_w_end(&m->w);
    }
    fl_json_w_end(&m->w);
}

void fl_gguf_make_unigram(fl_gguf_maker *m) {
    int64_t unknown = fl_gguf_needed_special(m, "unknown_token_id", NULL);
    fl_gguf_check_list(m, "scores", true);
    fl_gguf_around(m);
    put_steps(m);
    if (m->status != 0)
        return;
    m->lstripped = stripped;
    fl_gguf_put_template(m);
    fl_gguf_put_added(m, NULL);
    fl_tokenizer_put_step(&m->w, "model", "Unigram");
    fl_json_w_i64(&m->w, "unk_id", unknown);
    fl_json_w_bool(&m->w, "byte_fallback", false);
    put_pieces(m);
    if (m->status == 0)
        fl_json_w_end(&m->w);
}

/* ---- The other way --------------------------------------------------------------------------- */

/* The map of a normaliser, by itself or the first of several; NULL: there is none. */
static fl_json *find_map(fl_json *normalizer) {
    fl_json *first = fl_json_item(fl_json_get(normalizer, "normalizers"), 0);
    fl_json *step  = fl_gguf_is_step(normalizer, "Sequence") ? first : normalizer;
    return fl_gguf_is_step(step, "Precompiled") ? fl_json_get(step, "precompiled_charsmap") : NULL;
}

static void tell_map(fl_gguf_teller *t) {
    fl_json *map  = find_map(fl_json_get(t->root, "normalizer"));
    size_t   size = fl_json_text_size(map);
    if (size == 0)
        return;
    unsigned char *bytes = fl_alloc(size);
    size_t count = bytes != NULL ? fl_base64_read(fl_json_text(map), size, bytes) : SIZE_MAX;
    if (bytes == NULL)
        t->status = fl_fail_nomem(t->error, size, "precompiled_charsmap");
    else if (count == SIZE_MAX)
        fl_gguf_untold(t, "normalizer");
    else {
        fl_gguf_put_array(t->w, FL_GGUF_KEYS "precompiled_charsmap", FL_GGUF_U8, count);
        fl_buf_append(&t->w->values, bytes, count);
    }
    fl_free(bytes);
}

void fl_gguf_tell_unigram(fl_gguf_teller *t) {
    fl_json *unknown = fl_json_get(t->model, "unk_id");
    for (uint32_t id = 0; id < t->count; id++)
        if (t->tokens[id].lstrip && !fl_span_is(t->tokens[id].text, stripped))
            fl_gguf_untold(t, "added_tokens");
    tell_map(t);
    fl_gguf_put_text(t->w, FL_GGUF_KEYS "pre", "default", strlen("default"));
    fl_gguf_tell_tokens(t, NULL);
    fl_gguf_tell_scores(t);
    fl_gguf_tell_specials(t, fl_json_is_int(unknown) ? fl_json_int64(unknown) : -1);
    fl_gguf_tell_around(t);
    fl_gguf_put_flag(t->w, FL_GGUF_KEYS "add_space_prefix", true);
    fl_gguf_put_flag(t->w, FL_GGUF_KEYS "remove_extra_whitespaces", true);
}
