/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_parts.c - the tensors of a GGUF file: which there are, of what type, and their bytes.
 *
 * Role    gguf_export.c lists them by it; fl_gguf_export_write is here.
 * Method  Types as llama.cpp's converter chooses them: vectors, positions and token types stay float32, matrices get
 *         the type that was asked for, the word table that or Q8_0; rows that are no whole blocks become F16. Llama's
 *         rows of queries and keys are put in turns and 1 is added to Gemma's norms, as llama.cpp wants them. Rows are
 *         widened, rounded and written some at a time, and pages of the model given back after every 32 MB or so.
 * Memory  2 MB, or two of the longest rows. Threads: an export belongs to one.
 * Proof   tests/golden/test_gguf_export.py. */
#include "model/gguf_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"
#include "model/model_private.h"

enum { VALUES_AT_ONCE = 1 << 18, VALUES_KEPT = 1 << 23 };

/* ---- The list -------------------------------------------------------------------------------- */

static fl_dtype type_of(const fl_gguf_export *x, const char *name, const fl_tensor *out) {
    static const char *const wide[] = {"position_embd.weight", "token_types.weight"};
    fl_dtype dtype = strcmp(name, "token_embd.weight") == 0 ? x->form->table : x->form->dtype;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (strcmp(name, wide[i]) == 0)
            return FL_DTYPE_F32;
    if (out->rank < 2)
        return FL_DTYPE_F32;
    const fl_block_row *block = fl_block_of(dtype);
    return block == NULL || out->shape[out->rank - 1] % block->values == 0 ? dtype : FL_DTYPE_F16;
}

static fl_gguf_item *add_item(fl_gguf_export *x, const char *name, const fl_tensor *first,
                              fletch_error *error) {
    if (!fl_array_reserve(&x->items, &x->room, x->count + 1, sizeof *x->items)) {
        fl_fail_nomem(error, (x->count + 1) * sizeof *x->items, "a list of tensors");
        return NULL;
    }
    fl_gguf_item *item = &x->items[x->count++];
    *item              = (fl_gguf_item){.part = {first}, .parts = 1, .out = {.rank = first->rank}};
    snprintf(item->name, sizeof item->name, "%s", name);
    memcpy(item->out.shape, first->shape, sizeof item->out.shape);
    return item;
}

static uint64_t values_of(const fl_tensor *tensor) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

static void settle_item(const fl_gguf_export *x, fl_gguf_item *item) {
    item->out.dtype = type_of(x, item->name, &item->out);
    item->out.bytes = fl_dtype_bytes(item->out.dtype, values_of(&item->out));
}

/* The slots of one name, when they are there and no other name has taken them; `slots` are the layer's or those of the
 * whole, `taken` says which are listed. */
static int add_slots(fl_gguf_export *x, const fl_name *row, bool bias, uint32_t layer,
                     const fl_tensor *slots, bool *taken, fletch_error *error) {
    char name[FL_NAME_BYTES];
    for (unsigned i = 0; i < row->count; i++)
        if (slots[row->slot[i] + bias].data == NULL || taken[row->slot[i] + bias])
            return 0;
    fl_name_spell(name, row, bias, layer);
    fl_gguf_item *item = add_item(x, name, &slots[row->slot[0] + bias], error);
    if (item == NULL)
        return FLETCH_ENOMEM;
    for (unsigned i = 0; i < row->count; i++) {
        item->part[i] = &slots[row->slot[i] + bias];
        item->out.shape[0] += i > 0 ? item->part[i]->shape[0] : 0;
        taken[row->slot[i] + bias] = true;
    }
    const bool of_layers = fl_name_is_of_layers(row), global = !of_layers;
    const int  slot = row->slot[0] + bias;
    item->parts     = row->count;
    item->turned    = x->arch->turned && of_layers &&
                   (slot == FL_LAYER_Q_W || slot == FL_LAYER_Q_B || slot == FL_LAYER_K_W ||
                    slot == FL_LAYER_K_B);
    item->shifted = x->arch->shifted && item->out.rank == 1;
    if (global && slot == FL_SLOT_POSITION) { /* the rows before the first token's */
        item->skipped = x->model->encoder.desc.position_offset;
        item->out.shape[0] -= item->skipped;
    }
    settle_item(x, item);
    return 0;
}

static int add_names(fl_gguf_export *x, bool of_layers, uint32_t layer, const fl_tensor *slots,
                     size_t slot_count, fletch_error *error) {
    bool taken[(size_t)FL_LAYER_SLOT_COUNT + (size_t)FL_SLOT_COUNT] = {false};
    for (size_t i = 0; i < FL_NAMES_MAX && x->arch->tensors[i].name != NULL; i++) {
        const fl_name *row = &x->arch->tensors[i];
        if (fl_name_is_of_layers(row) != of_layers)
            continue;
        FL_TRY(add_slots(x, row, false, layer, slots, taken, error));
        if (fl_name_is_module(row))
            FL_TRY(add_slots(x, row, true, layer, slots, taken, error));
    }
    for (size_t i = 0; i < slot_count; i++)
        if (slots[i].data != NULL && !taken[i])
            return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                           "%s cannot be written as a GGUF file: it has a tensor that \"%s\" has "
                           "no name for.",
                           x->model->folder, x->arch->name);
    return 0;
}

int fl_gguf_list_slots(fl_gguf_export *x, fletch_error *error) {
    const fl_model   *model = x->model;
    const fl_encoder *e     = &model->encoder;
    FL_TRY(add_names(x, false, 0, e->global, FL_SLOT_COUNT, error));
    for (uint32_t i = 0; i < e->desc.layers; i++)
        FL_TRY(add_names(x, true, i, e->layer[i], FL_LAYER_SLOT_COUNT, error));
    for (uint32_t i = 0; i < model->stage_count && model->stages[i].kind == FL_STAGE_DENSE; i++) {
        const fl_stage *stage = &model->stages[i];
        x->dense[i]           = (fl_tensor){.data  = stage->weight,
                                            .dtype = FL_DTYPE_F32,
                                            .rank  = 2,
                                            .shape = {stage->out, stage->in}};
        fl_gguf_item *item    = add_item(x, fl_gguf_dense[i], &x->dense[i], error);
        if (item == NULL)
            return FLETCH_ENOMEM;
        settle_item(x, item);
    }
    return 0;
}

int fl_gguf_list_file(fl_gguf_export *x, fletch_error *error) {
    const fl_safetensors *file = x->model->own->weights;
    for (size_t i = 0; i < fl_safetensors_count(file); i++) {
        const char   *name = fl_safetensors_name(file, i);
        fl_gguf_item *item = add_item(x, name, fl_safetensors_find(file, name), error);
        if (item == NULL)
            return FLETCH_ENOMEM;
        settle_item(x, item);
    }
    return 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

typedef struct writing {
    const fl_gguf_export *x;
    fl_atomic_file        file;
    float                *values; /* owned [room] */
    unsigned char        *bytes;  /* owned, for as many */
    uint64_t              room, done, total;
    uint64_t              touched; /* values read since pages were given back */
    fletch_progress_fn    progress;
    void                 *user;
    const char           *path;
    fletch_error         *error;
} writing;

/* The row that stands at row `at` of the file. */
static uint64_t row_at(const fl_gguf_export *x, const fl_gguf_item *item, uint64_t at) {
    const uint64_t dim = x->model->encoder.desc.head_dim, in = at % dim;
    return item->turned ? at - in + in / 2 + (in % 2 == 1 ? dim / 2 : 0) : at;
}

static int tell(const writing *w) {
    return w->progress != NULL && w->progress(w->user, w->path, w->done, w->total) != 0
               ? fl_fail(w->error, FLETCH_ECANCELLED, FLETCH_NOWHERE, "%s was cancelled", w->path)
               : 0;
}

static int put(writing *w, const void *data, size_t size) {
    FL_TRY(fl_atomic_write(&w->file, data, size, w->error));
    w->done += size;
    return tell(w);
}

/* Some rows of a part, from `first` on. */
static int put_rows(writing *w, const fl_gguf_item *item, const fl_tensor *part, uint64_t first,
                    uint64_t rows, uint64_t columns) {
    const uint64_t count = rows * columns;
    const fl_dtype dtype = item->out.dtype;
    if (!item->turned)
        fl_tensor_to_f32(part, first * columns, count, w->values);
    for (uint64_t i = 0; item->turned && i < rows; i++)
        fl_tensor_to_f32(part, row_at(w->x, item, first + i) * columns, columns,
                         w->values + i * columns);
    for (uint64_t i = 0; item->shifted && i < count; i++)
        w->values[i] += 1.0f;
    for (uint64_t i = 0; i < count; i++)
        if (w->values[i] - w->values[i] != 0 ||
            (dtype == FL_DTYPE_F16 && (w->values[i] >= 65520.0f || w->values[i] <= -65520.0f)))
            return fl_fail(w->error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s: a value of %s is %s.",
                           w->x->model->folder, item->name,
                           w->values[i] - w->values[i] != 0
                               ? "not finite"
                               : "too large for a half float; choose another type");
    fl_tensor_from_f32(dtype, w->values, count, w->bytes);
    w->touched += count;
    if (w->touched > VALUES_KEPT) {
        fl_model_release_pages(w->x->model);
        w->touched = 0;
    }
    return put(w, w->bytes, fl_dtype_bytes(dtype, count));
}

static int put_item(writing *w, const fl_gguf_item *item) {
    static const char zeros[FL_GGUF_ALIGNMENT];
    for (uint32_t i = 0; i < item->parts; i++) {
        const fl_tensor *part = item->part[i];
        const uint64_t   rows = part->shape[0], columns = values_of(part) / rows;
        const uint64_t   at_once = w->room / columns;
        for (uint64_t at = i == 0 ? item->skipped : 0, some; at < rows; at += some) {
            some = rows - at < at_once ? rows - at : at_once;
            FL_TRY(put_rows(w, item, part, at, some, columns));
        }
    }
    return put(w, zeros, fl_gguf_padding(item->out.bytes));
}

/* The header with its end filled up; *total is the size of the whole file. */
static int make_header(const fl_gguf_export *x, fl_buf *out, uint64_t *total, fletch_error *error) {
    uint64_t offset = 0;
    fl_gguf_begin(out, &x->w, x->count);
    for (size_t i = 0; i < x->count; i++)
        fl_gguf_put_tensor(out, x->items[i].name, &x->items[i].out, &offset);
    for (uint64_t i = fl_gguf_padding(out->size); i > 0; i--)
        fl_buf_putc(out, '\0');
    *total = out->size + offset;
    return out->failed ? fl_fail_nomem(error, out->size, "a header") : 0;
}

static int put_file(writing *w, const fl_buf *header) {
    FL_TRY(fl_atomic_open(&w->file, w->path, w->error));
    FL_TRY(put(w, header->data, header->size));
    for (size_t i = 0; i < w->x->count; i++)
        FL_TRY(put_item(w, &w->x->items[i]));
    return fl_atomic_commit(&w->file, w->error);
}

static uint64_t room_for(const fl_gguf_export *x) {
    uint64_t room = VALUES_AT_ONCE;
    for (size_t i = 0; i < x->count; i++) {
        const fl_tensor *part = x->items[i].part[0];
        uint64_t         row  = values_of(part) / part->shape[0];
        room                  = row > room ? row : room;
    }
    return room;
}

int fl_gguf_export_write(const fl_gguf_export *made, const char *path, fletch_progress_fn progress,
                         void *user, fletch_error *error) {
    fl_buf  header = {0};
    writing w      = {.x        = made,
                      .file     = {.fd = -1},
                      .room     = room_for(made),
                      .progress = progress,
                      .user     = user,
                      .path     = path,
                      .error    = error};
    int     status = make_header(made, &header, &w.total, error);
    w.values       = fl_alloc_array(w.room, sizeof *w.values);
    w.bytes        = fl_alloc_array(w.room, sizeof *w.values);
    if (status == 0 && (w.values == NULL || w.bytes == NULL))
        status = fl_fail_nomem(error, w.room * 2 * sizeof *w.values, "rows");
    if (status == 0)
        status = tell(&w);
    if (status == 0)
        status = put_file(&w, &header);
    fl_atomic_abort(&w.file);
    fl_buf_free(&header);
    fl_free(w.values);
    fl_free(w.bytes);
    return status;
}
