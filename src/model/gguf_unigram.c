/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_unigram.c - SentencePiece's Unigram, as XLM-RoBERTa has it: scores, and a map of characters. */
#include "base/error.h"
#include "model/gguf_tokenizer.h"

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
    m->lstripped = "<mask>";
    fl_gguf_put_template(m);
    fl_gguf_put_added(m, NULL);
    fl_tokenizer_put_step(&m->w, "model", "Unigram");
    fl_json_w_i64(&m->w, "unk_id", unknown);
    fl_json_w_bool(&m->w, "byte_fallback", false);
    put_pieces(m);
    if (m->status == 0)
        fl_json_w_end(&m->w);
}
