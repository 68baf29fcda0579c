/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_pieces.c - SentencePiece's BPE (Llama 2, Mistral, Gemma): scores of pieces become a list of merges, and back.
 *
 * As the converters of transformers do it (piece_merges.h). Tokens that a user
 * defined have no score in SentencePiece, which is 0; the converter of llama.cpp writes -1000 for them, and
 * spaces where they have marks. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "model/gguf_tokenizer.h"

static const char mark[] = "\xE2\x96\x81"; /* U+2581, a space */

static fl_span name_of(fl_gguf_maker *m, uint32_t id, uint64_t type) {
    fl_span token = m->tokens[id];
    if (type != FL_TOKEN_USER_DEFINED || memchr(token.data, ' ', token.size) == NULL)
        return token;
    fl_buf_clear(&m->name);
    for (size_t i = 0; i < token.size; i++)
        if (token.data[i] == ' ')
            fl_buf_puts(&m->name, mark);
        else
            fl_buf_putc(&m->name, token.data[i]);
    return m->name.failed ? token : (fl_span){m->name.data, m->name.size};
}

static bool merges_into(const fl_gguf_maker *m, uint32_t id) {
    uint64_t type = fl_gguf_type_of(m, id);
    return type == FL_TOKEN_NORMAL || type == FL_TOKEN_USER_DEFINED;
}

static double score_of(fl_gguf_maker *m, const fl_gguf_value *scores, uint32_t id) {
    double score = 0;
    if (!fl_gguf_real(scores, id, &score) || score - score != 0)
        fl_gguf_refuse(m, FLETCH_EMODEL, "scores", "holds something that is not a number");
    return fl_gguf_type_of(m, id) == FL_TOKEN_USER_DEFINED ? 0 : score;
}

static void put_merges(fl_gguf_maker *m) {
    const fl_gguf_value *list   = fl_gguf_key(m, "scores");
    double              *scores = fl_alloc_array(m->count, sizeof *scores);
    if (scores == NULL) {
        m->status = fl_fail_nomem(m->error, m->count * sizeof *scores, "scores");
        return;
    }
    for (uint32_t id = 0; m->status == 0 && id < m->count; id++)
        scores[id] = merges_into(m, id) ? score_of(m, list, id) : NAN;
    if (m->status == 0)
        m->status = fl_piece_merges_put(&m->w, &m->index, scores, false, m->error);
    fl_free(scores);
}

static void put_steps(fl_gguf_maker *m) {
    static const char replace[] =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
        "\"\xE2\x96\x81\"}";
    const bool prefix = fl_gguf_switch(m, "add_space_prefix", true);
    fl_tokenizer_put_step(&m->w, "normalizer", "Sequence");
    fl_json_w_array(&m->w, "normalizers");
    if (prefix) {
        fl_tokenizer_put_step(&m->w, NULL, "Prepend");
        fl_json_w_text(&m->w, "prepend", mark);
        fl_json_w_end(&m->w);
    }
    fl_json_w_raw(&m->w, NULL);
    fl_buf_puts(m->w.out, replace);
    fl_json_w_end(&m->w), fl_json_w_end(&m->w);
    fl_tokenizer_put_piece_decoder(&m->w, prefix);
}

void fl_gguf_make_pieces(fl_gguf_maker *m) {
    int64_t unknown = fl_gguf_needed_special(m, "unknown_token_id", NULL);
    fl_gguf_check_list(m, "scores", true);
    fl_gguf_around(m);
    if (m->status != 0)
        return;
    put_steps(m);
    fl_gguf_put_template(m);
    fl_gguf_put_added(m, name_of);
    fl_tokenizer_put_step(&m->w, "model", "BPE");
    fl_gguf_put_token(m, "unk_token", unknown);
    fl_json_w_bool(&m->w, "fuse_unk", true);
    fl_json_w_bool(&m->w, "byte_fallback", true);
    fl_gguf_put_vocab(m, name_of);
    put_merges(m);
    if (m->status == 0)
        fl_json_w_end(&m->w);
}

/* ---- The other way --------------------------------------------------------------------------- */

/* The two parts of a merge, which may be one text with a space in between. */
static bool parts_of(fl_json *pair, fl_span *left, fl_span *right) {
    fl_json *a = fl_json_item(pair, 0), *b = fl_json_item(pair, 1);
    if (a != NULL && b != NULL) {
        *left  = (fl_span){fl_json_text(a), fl_json_text_size(a)};
        *right = (fl_span){fl_json_text(b), fl_json_text_size(b)};
        return left->data != NULL && right->data != NULL;
    }
    const char *text = fl_json_text(pair), *space = text != NULL ? strchr(text, ' ') : NULL;
    if (space == NULL)
        return false;
    *left  = (fl_span){text, (size_t)(space - text)};
    *right = (fl_span){space + 1, strlen(space + 1)};
    return true;
}

/* The earlier a piece can be merged, the higher its score. What is no merge is never asked for it. */
static void score_tokens(fl_gguf_teller *t) {
    fl_json *merges = fl_json_get(t->model, "merges"), *vocab = fl_json_get(t->model, "vocab");
    fl_span  left, right;
    for (size_t i = fl_json_count(merges); i-- > 0;) {
        if (!parts_of(fl_json_item(merges, i), &left, &right)) {
            fl_gguf_untold(t, "model.merges");
            return;
        }
        fl_buf_clear(&t->name);
        fl_buf_append(&t->name, left.data, left.size);
        fl_buf_append(&t->name, right.data, right.size);
        fl_json *id = t->name.failed ? NULL : fl_json_get(vocab, t->name.data);
        if (fl_json_is_int(id) && fl_json_int64(id) < t->count)
            t->tokens[fl_json_int64(id)].score = -(double)i;
    }
}

static bool has_prefix(fl_json *root) {
    fl_json *normalizer = fl_json_get(root, "normalizer"),
            *steps      = fl_json_get(normalizer, "normalizers");
    const char *scheme =
        fl_json_text(fl_json_get(fl_json_get(root, "pre_tokenizer"), "prepend_scheme"));
    for (size_t i = 0; i < fl_json_count(steps); i++)
        if (fl_gguf_is_step(fl_json_item(steps, i), "Prepend"))
            return true;
    return fl_gguf_is_step(normalizer, "Prepend") ||
           (scheme != NULL && strcmp(scheme, "never") != 0);
}

void fl_gguf_tell_pieces(fl_gguf_teller *t) {
    const char *unknown = fl_json_text(fl_json_get(t->model, "unk_token"));
    for (uint32_t id = 0; id < t->count; id++)
        if (t->tokens[id].lstrip)
            fl_gguf_untold(t, "added_tokens");
    score_tokens(t);
    fl_gguf_put_text(t->w, FL_GGUF_KEYS "pre", "default", strlen("default"));
    fl_gguf_tell_tokens(t, NULL);
    fl_gguf_tell_scores(t);
    fl_gguf_tell_specials(t, unknown != NULL ? fl_gguf_told_id(t, unknown) : -1);
    fl_gguf_tell_around(t);
    fl_gguf_put_flag(t->w, FL_GGUF_KEYS "add_space_prefix", has_prefix(t->root));
}
