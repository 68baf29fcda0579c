/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_file.c - walks SentencePiece's model field by field (base/proto.h): what is not asked for is stepped
 * over. Every text and number comes from a stranger's file and is checked where it is read. */
#include "model/sentencepiece_file.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

static int damaged(const char *path, const char *what, fletch_error *error) {
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: %s.", path, what);
}

static float real_of(const fl_proto_field *field) {
    float value = 0.0f;
    if (field->wire == 5)
        memcpy(&value, field->body.at, sizeof value);
    return value;
}

static int read_piece(fl_sentencepiece_file *out, fl_proto_span body, const char *path,
                      fletch_error *error) {
    fl_sentencepiece_piece one = {.type = FL_PIECE_NORMAL};
    fl_proto_field         field;
    int                    more;
    while ((more = fl_proto_next(&body, &field)) > 0)
        if (field.number == 1 && field.wire == 2)
            one.text =
                (fl_span){(const char *)field.body.at, (size_t)(field.body.end - field.body.at)};
        else if (field.number == 2)
            one.score = real_of(&field);
        else if (field.number == 3)
            one.type = (uint32_t)field.value;
    if (more < 0 || one.text.size == 0 || !(one.score - one.score == 0))
        return damaged(path, "a piece of it is damaged", error);
    if (out->count == FL_PIECES_MAX)
        return damaged(path, "it has more than 4194304 pieces", error);
    if (!fl_array_reserve(&out->pieces, &out->room, out->count + 1, sizeof *out->pieces))
        return fl_fail_nomem(error, (out->count + 1) * sizeof *out->pieces, "a vocabulary");
    out->pieces[out->count++] = one;
    return 0;
}

/* TrainerSpec and NormalizerSpec. */
static int read_spec(fl_sentencepiece_file *out, fl_proto_span body, bool trainer, const char *path,
                     fletch_error *error) {
    fl_proto_field field;
    int            more;
    while ((more = fl_proto_next(&body, &field)) > 0) {
        const bool on = field.value != 0;
        if (trainer) {
            switch (field.number) {
            case 3: out->kind = (uint32_t)field.value; break;
            case 24: out->suffixed = on; break;
            case 35: out->byte_fallback = on; break;
            default: break;
            }
            continue;
        }
        switch (field.number) {
        case 2: out->map = field.wire == 2 ? field.body : out->map; break;
        case 3: out->dummy_prefix = on; break;
        case 4: out->removes_spaces = on; break;
        case 5: out->escapes_spaces = on; break;
        default: break;
        }
    }
    return more < 0 ? damaged(path, "its settings are damaged", error) : 0;
}

int fl_sentencepiece_read(fl_sentencepiece_file *out, const fl_buf *file, const char *path,
                          fletch_error *error) {
    fl_proto_span  all = fl_proto_of((const unsigned char *)file->data, file->size);
    fl_proto_field field;
    int            more;
    *out = (fl_sentencepiece_file){.kind           = FL_PIECES_UNIGRAM,
                                   .dummy_prefix   = true,
                                   .removes_spaces = true,
                                   .escapes_spaces = true};
    while ((more = fl_proto_next(&all, &field)) > 0) {
        if (field.wire != 2)
            continue;
        if (field.number == 1)
            FL_TRY(read_piece(out, field.body, path, error));
        if (field.number == 2 || field.number == 3)
            FL_TRY(read_spec(out, field.body, field.number == 2, path, error));
    }
    return more < 0 || out->count == 0
               ? damaged(path, "it is not a SentencePiece model, or is truncated", error)
               : 0;
}

void fl_sentencepiece_free(fl_sentencepiece_file *file) {
    fl_free(file->pieces);
    file->pieces = NULL;
    file->count = file->room = 0;
}
