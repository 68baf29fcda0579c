/* SPDX-License-Identifier: Apache-2.0 */
/* piece_tokenizer.c - see piece_tokenizer.h.
 *
 * Role    old_tokenizer.c calls it where the folder of a Llama, Mistral or Gemma has tokenizer.model and no
 *         tokenizer.json.
 * Method  The ids are SentencePiece's own, with which such a model was trained: its normaliser (tokenizer/
 *         sentencepiece.c), pieces that a user defined found in the normalised text, and merges whose rank is the
 *         piece's score, so that of equal ones the leftmost comes first. transformers 5 makes other steps of the
 *         same file (no map, one space less before a text that begins with one, user-defined pieces cut out of the
 *         raw text). From transformers come the tokens around a text, and that control pieces are found in it.
 *         Where a switch would need what neither says, it is refused.
 * Memory  pieces and scores while the text is made. Threads: reentrant.
 * Proof   tests/golden/test_piece_tokenizers.py. */
#include "model/piece_tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "model/family.h"
#include "model/piece_merges.h"
#include "model/sentencepiece_file.h"
#include "model/tokenizer_text.h"

enum { BYTES = 256, NORMAL_MAX = 256 };

typedef struct maker {
    fl_json_w            *w;
    fl_json_reader       *config;
    const char           *path;
    fl_sentencepiece_file file;
    fl_span              *texts;  /* owned [file.count] */
    double               *scores; /* owned [file.count]: NaN: nothing is merged into it */
    fl_piece_index        index;
    int64_t               unknown;
} maker;

static int refuse(const maker *m, int status, const char *what) {
    return fl_fail(m->config->error, status, FLETCH_NOWHERE, "%s: %s.", m->path, what);
}

static int64_t id_of(const maker *m, const char *name) {
    return fl_piece_index_find(&m->index, (fl_span){name, strlen(name)});
}

/* ---- The pieces ------------------------------------------------------------------------------- */

static int index_pieces(maker *m) {
    const uint32_t count = (uint32_t)m->file.count;
    m->texts             = fl_alloc_array(count, sizeof *m->texts);
    m->scores            = fl_alloc_array(count, sizeof *m->scores);
    if (m->texts == NULL || m->scores == NULL || !fl_piece_index_open(&m->index, m->texts, count))
        return fl_fail_nomem(m->config->error, count * sizeof *m->texts, "a vocabulary");
    for (uint32_t id = 0; id < count; id++) {
        const fl_sentencepiece_piece *one = &m->file.pieces[id];
        m->texts[id]                      = one->text;
        m->scores[id] = one->type == FL_PIECE_NORMAL ? (double)one->score : (double)NAN;
        if (one->type == FL_PIECE_UNKNOWN)
            m->unknown = m->unknown < 0 ? id : INT64_MAX;
        if (one->type == FL_PIECE_UNUSED || one->type == 0 || one->type > FL_PIECE_BYTE)
            return refuse(m, FLETCH_EUNSUPPORTED,
                          "it has pieces that are not normal, unknown, control, user-defined or "
                          "bytes, which is not supported");
        if (one->type == FL_PIECE_NORMAL && one->text.size > NORMAL_MAX)
            return refuse(m, FLETCH_EUNSUPPORTED, "it has a piece of more than 256 bytes");
        if (fl_utf8_valid_prefix(one->text.data, one->text.size) != one->text.size ||
            memchr(one->text.data, '\0', one->text.size) != NULL ||
            fl_piece_index_put(&m->index, id) != id)
            return refuse(m, FLETCH_EMODEL,
                          "a piece of it is not UTF-8, holds a NUL, or is there twice");
    }
    return m->unknown >= 0 && m->unknown < count
               ? 0
               : refuse(m, FLETCH_EMODEL, "it does not have one unknown piece");
}

/* A merge needs two pieces, where SentencePiece asks for what they make alone: the characters must be pieces. */
static int check_characters(const maker *m) {
    for (uint32_t id = 0; id < m->file.count; id++) {
        fl_span  text = m->texts[id];
        unsigned length;
        for (size_t at = 0; !isnan(m->scores[id]) && at < text.size; at += length) {
            fl_utf8_decode(text.data + at, &length);
            int64_t one = fl_piece_index_find(&m->index, (fl_span){text.data + at, length});
            if (one < 0 || isnan(m->scores[one]))
                return refuse(m, FLETCH_EUNSUPPORTED,
                              "one of its pieces has a character without a piece of its own, which "
                              "is not supported");
        }
    }
    return 0;
}

static int check_bytes(const maker *m) {
    for (unsigned byte = 0; m->file.byte_fallback && byte < BYTES; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        int64_t id = id_of(m, name);
        if (id < 0 || m->file.pieces[id].type != FL_PIECE_BYTE)
            return refuse(m, FLETCH_EMODEL, "it has byte_fallback, but not the 256 bytes");
    }
    return 0;
}

static int check_settings(const maker *m) {
    fl_json_reader sampling = fl_json_below(m->config, "sp_model_kwargs");
    if (m->file.kind == FL_PIECES_UNIGRAM)
        return fl_fail(m->config->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s is SentencePiece's Unigram under a class for BPE, of which "
                       "transformers 4 and 5 make different tokens. Write the tokenizer.json "
                       "once, with the version that the model was trained with, in that folder: "
                       "python -c \"from transformers import AutoTokenizer as T; "
                       "T.from_pretrained('.').backend_tokenizer.save('tokenizer.json')\"",
                       m->path);
    if (m->file.kind != FL_PIECES_BPE)
        return refuse(m, FLETCH_EUNSUPPORTED,
                      "a model of SentencePiece that is neither Unigram nor BPE is not supported");
    if (m->file.suffixed || !m->file.escapes_spaces)
        return refuse(m, FLETCH_EUNSUPPORTED,
                      "treat_whitespace_as_suffix, or escape_whitespaces off, is not supported");
    FL_JSON_EACH(sampling.object, key, value) {
        (void)value;
        fl_family_refuse(m->config, "sp_model_kwargs", key);
    }
    if (m->file.dummy_prefix && !fl_json_bool(m->config, "add_prefix_space", true))
        fl_family_refuse(m->config, "add_prefix_space", "false");
    return m->config->status;
}

/* ---- tokenizer.json --------------------------------------------------------------------------- */

static void put_piece(maker *m, const char *key, uint32_t id) {
    fl_json_w_bytes(m->w, key, m->texts[id].data, m->texts[id].size);
}

static void put_added(maker *m) {
    fl_json_w_array(m->w, "added_tokens");
    for (uint32_t id = 0; id < m->file.count; id++) {
        const uint32_t type = m->file.pieces[id].type;
        const bool     user = type == FL_PIECE_USER_DEFINED;
        if (user || type == FL_PIECE_CONTROL || type == FL_PIECE_UNKNOWN)
            fl_tokenizer_put_added(m->w, id, m->texts[id], false, user, !user);
    }
    fl_json_w_end(m->w);
}

static void put_normalizer(maker *m) {
    fl_tokenizer_put_step(m->w, "normalizer", "SentencePiece");
    fl_json_w_raw(m->w, "precompiled_charsmap");
    fl_buf_base64(m->w->out, m->file.map.at, (size_t)(m->file.map.end - m->file.map.at));
    fl_json_w_bool(m->w, "remove_extra_whitespaces", m->file.removes_spaces);
    fl_json_w_bool(m->w, "add_dummy_prefix", m->file.dummy_prefix);
    fl_json_w_bool(m->w, "first", !fl_json_bool(m->config, "legacy", false));
    fl_json_w_array(m->w, "user_defined");
    for (uint32_t id = 0; id < m->file.count; id++)
        if (m->file.pieces[id].type == FL_PIECE_USER_DEFINED)
            put_piece(m, NULL, id);
    fl_json_w_end(m->w), fl_json_w_end(m->w);
}

/* The token that `key` names, as a text or an object with one; `name`, and no token where that is no piece, where it
 * does not say. */
static const char *named(const maker *m, const char *key, const char *name) {
    fl_json *value = fl_json_get(m->config->object, key);
    if (fl_json_is(value, FL_JSON_OBJECT))
        value = fl_json_get(value, "content");
    return fl_json_text(value) != NULL ? fl_json_text(value) : name;
}

static int put_template(maker *m, const char *const names[2]) {
    static const char *const keys[]  = {"bos_token", "eos_token"};
    const bool               asked[] = {fl_json_bool(m->config, "add_bos_token", true),
                                        fl_json_bool(m->config, "add_eos_token", false)};
    const char              *around[2];
    for (size_t i = 0; i < 2; i++) {
        around[i] = asked[i] ? named(m, keys[i], names[i]) : NULL;
        if (around[i] != NULL && id_of(m, around[i]) < 0)
            return fl_fail(m->config->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%s: %s \"%.40s\" is not one of its pieces.", m->path, keys[i],
                           around[i]);
    }
    fl_tokenizer_put_step(m->w, "post_processor", "TemplateProcessing");
    for (unsigned pair = 0; pair < 2; pair++) {
        fl_json_w_array(m->w, pair ? "pair" : "single");
        for (unsigned text = 0; text <= pair; text++) {
            if (around[0] != NULL)
                fl_tokenizer_put_part(m->w, "SpecialToken", "first", text);
            fl_tokenizer_put_part(m->w, "Sequence", text ? "B" : "A", text);
            if (around[1] != NULL)
                fl_tokenizer_put_part(m->w, "SpecialToken", "last", text);
        }
        fl_json_w_end(m->w);
    }
    fl_json_w_object(m->w, "special_tokens");
    for (size_t i = 0; i < 2; i++)
        if (around[i] != NULL)
            fl_tokenizer_put_special(m->w, i == 0 ? "first" : "last", id_of(m, around[i]),
                                     (fl_span){around[i], strlen(around[i])});
    fl_json_w_end(m->w), fl_json_w_end(m->w);
    return 0;
}

static int put_model(maker *m) {
    fl_tokenizer_put_step(m->w, "model", "BPE");
    put_piece(m, "unk_token", (uint32_t)m->unknown);
    fl_json_w_bool(m->w, "fuse_unk", true);
    fl_json_w_bool(m->w, "byte_fallback", m->file.byte_fallback);
    fl_json_w_object(m->w, "vocab");
    for (uint32_t id = 0; id < m->file.count; id++) {
        put_piece(m, NULL, id);
        fl_buf_printf(m->w->out, ":%u", id);
    }
    fl_json_w_end(m->w);
    int status = fl_piece_merges_put(m->w, &m->index, m->scores, true, m->config->error);
    if (status < 0)
        fl_error_prefix(m->config->error, "%s", m->path);
    fl_json_w_end(m->w);
    return status;
}

static int make(maker *m, const fl_buf *file, const char *const names[2]) {
    FL_TRY(fl_sentencepiece_read(&m->file, file, m->path, m->config->error));
    FL_TRY(check_settings(m));
    FL_TRY(index_pieces(m));
    FL_TRY(check_characters(m));
    FL_TRY(check_bytes(m));
    fl_json_w_object(m->w, NULL);
    put_added(m);
    put_normalizer(m);
    fl_tokenizer_put_piece_decoder(m->w, m->file.dummy_prefix);
    FL_TRY(put_template(m, names));
    FL_TRY(put_model(m));
    fl_json_w_end(m->w);
    return m->config->status;
}

int fl_piece_tokenizer_make(fl_json_w *w, const fl_buf *file, fl_json_reader *config,
                            const char *const names[2], const char *path) {
    maker m      = {.w = w, .config = config, .path = path, .unknown = -1};
    int   status = make(&m, file, names);
    fl_piece_index_close(&m.index);
    fl_sentencepiece_free(&m.file);
    fl_free(m.texts);
    fl_free(m.scores);
    return status;
}
