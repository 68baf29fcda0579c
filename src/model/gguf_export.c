/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_export.c - what an open model is becomes the metadata of a GGUF file, and a list of its tensors.
 *
 * Role    The other way round than gguf_model.c, by the same tables: gguf_arch.h.
 * Method  What follows pooling, or is no plain embedding model, and has no place in such a file is refused first. Then
 *         each row of the table writes the descriptor in its keys, and is read again: the row that gives the model's
 *         own descriptor back, one of the model's family before others, is the architecture. So nothing is written that
 *         would be read as another network. Tensors go by the row's names, of several the first; where a row wants
 *         slots in one tensor they are put together. A model that is a GGUF file keeps its metadata and names.
 * Memory  the metadata, one entry a tensor. Threads: an export belongs to one.
 * Proof   tests/golden/test_gguf_export.py. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/gguf_arch.h"
#include "model/gguf_parts.h"
#include "model/model_private.h"

enum { KEY_MAX = 128, QUANTIZATION_VERSION = 2 };

const fl_gguf_form fl_gguf_forms[] = {
    {"F32", FL_DTYPE_F32, FL_DTYPE_F32, 0},     {"F16", FL_DTYPE_F16, FL_DTYPE_F16, 1},
    {"BF16", FL_DTYPE_BF16, FL_DTYPE_BF16, 32}, {"Q8_0", FL_DTYPE_Q8_0, FL_DTYPE_Q8_0, 7},
    {"Q5_1", FL_DTYPE_Q5_1, FL_DTYPE_Q8_0, 9},  {"Q5_0", FL_DTYPE_Q5_0, FL_DTYPE_Q8_0, 8},
    {"Q4_1", FL_DTYPE_Q4_1, FL_DTYPE_Q8_0, 3},  {"Q4_0", FL_DTYPE_Q4_0, FL_DTYPE_Q8_0, 2},
    {NULL, FL_DTYPE_F32, FL_DTYPE_F32, 0},
};

static int refuse(const fl_gguf_export *x, const char *why, fletch_error *error) {
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%s cannot be written as a GGUF file: %s.", x->model->folder, why);
}

/* ---- What has no place ----------------------------------------------------------------------- */

/* The number of GGUF's for the pooling; 0: it has none. */
static uint32_t pooling_type(const fl_encoder *encoder) {
    for (uint32_t i = 0; encoder->pooling_count == 1 && i < FL_GGUF_POOLINGS; i++)
        if (encoder->pooling[0] == fl_gguf_poolings[i])
            return i + 1;
    return 0;
}

static bool is_plain_dense(const fl_stage *stage) {
    return stage->kind == FL_STAGE_DENSE && stage->bias == NULL && !stage->adds_row &&
           stage->activation == FL_DENSE_IDENTITY;
}

/* Dense layers as GGUF has them, how many; -1: something else comes after pooling. llama.cpp ends at others that do not
 * lead back to the width of the layers. */
static int count_dense(const fl_model *model) {
    uint32_t count = model->stage_count - (model->normalize ? 1 : 0);
    for (uint32_t i = 0; i < count; i++)
        if (!is_plain_dense(&model->stages[i]))
            return -1;
    if (count > 0 && model->stages[count - 1].out != model->encoder.desc.hidden)
        return -1;
    return count <= FL_GGUF_DENSE && !model->encoder.projected ? (int)count : -1;
}

static const char *find_obstacle(const fl_model *model) {
    const char *default_text = "", *no_head = fl_head_rules_of(model)->no_gguf;
    for (uint32_t i = 0; model->default_prompt_name != NULL && i < model->prompt_count; i++)
        if (strcmp(model->prompts[i].name, model->default_prompt_name) == 0)
            default_text = model->prompts[i].text;
    const struct {
        bool        holds;
        const char *why;
    } obstacles[] = {
        {model->is_static, "it is a static model, which has no layers"},
        {no_head != NULL, no_head},
        {model->encoder.layer == NULL, "its network is an .onnx file"},
        {model->tasks != NULL, "it has several tasks"},
        {pooling_type(&model->encoder) == 0, "its pooling is none of mean, cls and lasttoken"},
        {count_dense(model) < 0,
         "other layers follow its pooling than two dense ones, without bias and activation, that "
         "end in the width of its layers"},
        {model->truncate_dim > 0, "its vectors are cut to truncate_dim"},
        {default_text[0] != '\0', "it puts a prompt before every text by default"},
        {!model->include_prompt, "prompts are left out of its pooling"},
        {model->cut_side != NULL && strcmp(model->cut_side, "left") == 0,
         "texts that are too long lose their beginning"},
    };
    for (size_t i = 0; i < sizeof obstacles / sizeof *obstacles; i++)
        if (obstacles[i].holds)
            return obstacles[i].why;
    return NULL;
}

/* ---- The architecture's values ---------------------------------------------------------------- */

static const struct {
    const char *key;
    size_t      at;
} sizes[] = {
    {"embedding_length", offsetof(fl_encoder_desc, hidden)},
    {"block_count", offsetof(fl_encoder_desc, layers)},
    {"attention.head_count", offsetof(fl_encoder_desc, heads)},
    {"attention.head_count_kv", offsetof(fl_encoder_desc, kv_heads)},
    {"attention.key_length", offsetof(fl_encoder_desc, head_dim)},
    {"feed_forward_length", offsetof(fl_encoder_desc, intermediate)},
    {"context_length", offsetof(fl_encoder_desc, positions)},
};

static bool is_local(const fl_encoder_desc *d, uint32_t layer) {
    return d->distance[d->layer[layer].distance].window > 0;
}

/* Of the layers with a window or of the others; where there are none, of the first. */
static float theta_of(const fl_encoder_desc *d, bool local) {
    for (uint32_t i = 0; i < d->layers; i++)
        if (is_local(d, i) == local && d->layer[i].rope > 0)
            return (float)d->rope[d->layer[i].rope - 1].theta;
    return (float)d->rope[0].theta;
}

/* The key counts both sides. */
static uint32_t window_of(const fl_encoder_desc *d) {
    uint32_t window = 0;
    for (size_t i = 0; i < FL_RULES_MAX; i++)
        window = d->distance[i].window > window ? d->distance[i].window : window;
    return 2 * window;
}

static void put_pattern(fl_gguf_writer *w, const char *key, const fl_encoder_desc *d) {
    fl_gguf_put_array(w, key, FL_GGUF_BOOL, d->layers);
    for (uint32_t i = 0; i < d->layers; i++)
        fl_buf_putc(&w->values, is_local(d, i));
}

static const char *activation_of(const fl_encoder_desc *d) {
    static const char *const names[] = {[FL_ACT_GELU_ERF]  = "gelu",
                                        [FL_ACT_GELU_TANH] = "gelu_pytorch_tanh",
                                        [FL_ACT_SILU]      = "silu",
                                        [FL_ACT_RELU]      = "relu"};
    return names[d->activation];
}

/* `key` begins with the architecture's name unless it is of the tokenizer; `bare` is what follows. */
static void put_value(fl_gguf_writer *w, const char *key, const char *bare,
                      const fl_encoder_desc *d) {
    uint32_t size;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(bare, sizes[i].key) == 0) {
            memcpy(&size, (const char *)d + sizes[i].at, sizeof size);
            fl_gguf_put_u32(w, key, size);
        }
    if (strcmp(bare, "tokenizer.ggml.token_type_count") == 0)
        fl_gguf_put_u32(w, key, d->types > 0 ? d->types : 1); /* llama.cpp wants one */
    else if (strstr(bare, "_epsilon") != NULL)
        fl_gguf_put_f32(w, key, d->norm_eps);
    else if (strcmp(bare, "attention.causal") == 0)
        fl_gguf_put_flag(w, key, d->distance[0].causal);
    else if (strcmp(bare, "rope.freq_base") == 0)
        fl_gguf_put_f32(w, key, theta_of(d, false));
    else if (strcmp(bare, "rope.freq_base_swa") == 0)
        fl_gguf_put_f32(w, key, theta_of(d, true));
    else if (strcmp(bare, "attention.sliding_window") == 0)
        fl_gguf_put_u32(w, key, window_of(d));
    else if (strcmp(bare, "attention.sliding_window_pattern") == 0)
        put_pattern(w, key, d);
    else if (strcmp(bare, "hidden_activation") == 0)
        fl_gguf_put_text(w, key, activation_of(d), strlen(activation_of(d)));
}

static const char *spell_key(char out[KEY_MAX], const fl_gguf_arch *arch, const char *bare) {
    bool whole = strncmp(bare, "tokenizer.", strlen("tokenizer.")) == 0;
    snprintf(out, KEY_MAX, "%s%s%s", whole ? "" : arch->name, whole ? "" : ".", bare);
    return out;
}

static void put_fields(fl_gguf_writer *w, const fl_gguf_arch *arch, const fl_encoder_desc *d) {
    char key[KEY_MAX];
    for (size_t i = 0; i < FL_GGUF_FIELDS_MAX && arch->fields[i].config != NULL; i++) {
        const char *bare  = arch->fields[i].key;
        bool        again = bare == NULL;
        for (size_t k = 0; k < i && !again; k++)
            again = arch->fields[k].key != NULL && strcmp(arch->fields[k].key, bare) == 0;
        if (again)
            continue;
        put_value(w, spell_key(key, arch, bare), bare, d);
        if (strcmp(bare, "attention.key_length") == 0)
            fl_gguf_put_u32(w, spell_key(key, arch, "attention.value_length"), d->head_dim);
        if (strcmp(bare, "rope.freq_base") == 0 && d->rope[0].scaling == FL_ROPE_LINEAR) {
            fl_gguf_put_text(w, spell_key(key, arch, "rope.scaling.type"), "linear", 6);
            fl_gguf_put_f32(w, spell_key(key, arch, "rope.scaling.factor"),
                            (float)d->rope[0].factor);
        }
    }
}

static void put_rows(fl_gguf_writer *w, const fl_gguf_arch *arch, const fl_model *model) {
    char key[KEY_MAX], bare[KEY_MAX];
    fl_gguf_put_u32(w, spell_key(key, arch, "pooling_type"), pooling_type(&model->encoder));
    if (!model->normalize) /* they do where nothing is said */
        fl_gguf_put_flag(w, spell_key(key, arch, "normalize_embeddings"), false);
    for (int i = 0; i < count_dense(model); i++) {
        snprintf(bare, sizeof bare, "dense_%d_feat_in", i + 2);
        fl_gguf_put_u32(w, spell_key(key, arch, bare), model->stages[i].in);
        snprintf(bare, sizeof bare, "dense_%d_feat_out", i + 2);
        fl_gguf_put_u32(w, spell_key(key, arch, bare), model->stages[i].out);
    }
}

/* ---- Which architecture ------------------------------------------------------------------------ */

/* What a file says otherwise without other vectors: the family's name; where the rows of positions begin, as those
 * before are cut off; the 1 of norms, which is added; what a vocabulary head would be. */
static fl_encoder_desc comparable(const fl_encoder_desc *d) {
    fl_encoder_desc out = *d;
    out.architecture    = NULL;
    out.layer           = NULL;
    out.position_offset = out.pad_token = 0;
    out.position_skips_pad              = false;
    out.norm                            = d->norm == FL_NORM_RMS_PLUS_ONE ? FL_NORM_RMS : d->norm;
    out.types                           = d->token_type ? d->types : 0;
    out.mlm_activation                  = FL_ACT_GELU_ERF;
    out.segments = out.mlm_bare = out.mlm_tied = out.mlm_bias = out.mlm_decoder_bias = false;
    return out;
}

static bool same_layer(const fl_layer_desc *a, const fl_layer_desc *b) {
    return a->rope == b->rope && a->distance == b->distance &&
           a->skips_attention_norm == b->skips_attention_norm && a->experts == b->experts &&
           a->experts_used == b->experts_used && a->convolves == b->convolves;
}

/* Descriptors are copies of the families' static ones, whose gaps are zero. */
static bool same(const fl_encoder_desc *a, const fl_encoder_desc *b) {
    fl_encoder_desc x = comparable(a), y = comparable(b);
    bool            alike = memcmp(&x, &y, sizeof x) == 0;
    for (uint32_t i = 0; alike && i < a->layers; i++)
        alike = same_layer(&a->layer[i], &b->layer[i]);
    return alike;
}

static void put_all(fl_gguf_writer *w, const fl_gguf_export *x, const fl_gguf_arch *arch,
                    const fl_gguf_writer *tokenizer) {
    fl_gguf_put_text(w, "general.architecture", arch->name, strlen(arch->name));
    fl_gguf_put_text(w, "general.type", "model", strlen("model"));
    fl_gguf_put_u32(w, "general.file_type", x->form->file_type);
    fl_gguf_put_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    put_fields(w, arch, &x->model->encoder.desc);
    put_rows(w, arch, x->model);
    fl_buf_append(&w->values, tokenizer->values.data, tokenizer->values.size);
    w->count += tokenizer->count;
}

/* Whether the file that x->w begins would be read as this model. */
static bool reads_alike(const fl_gguf_export *x, const fl_gguf_arch *arch, bool own_family) {
    fl_encoder_desc        back = {0};
    const fl_encoder_desc *desc = &x->model->encoder.desc;
    fl_gguf                file;
    fl_buf                 header = {0};
    fl_gguf_begin(&header, &x->w, 0);
    bool alike = !header.failed && fl_gguf_read(&file, (const unsigned char *)header.data,
                                                header.size, arch->name, NULL) == 0;
    if (alike) {
        alike = fl_gguf_describe(&back, arch, &file, arch->name, NULL) == 0 &&
                (!own_family || strcmp(back.architecture, desc->architecture) == 0) &&
                same(&back, desc);
        fl_gguf_free(&file);
    }
    fl_free(back.layer);
    fl_buf_free(&header);
    return alike;
}

static int choose_arch(fl_gguf_export *x, const fl_gguf_writer *tokenizer, fletch_error *error) {
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; fl_gguf_archs[i] != NULL; i++) {
            const fl_gguf_arch *arch = fl_gguf_archs[i];
            if (arch->refusal != NULL || (count_dense(x->model) > 0 && !arch->dense))
                continue;
            fl_buf_clear(&x->w.values);
            x->w.count = 0;
            put_all(&x->w, x, arch, tokenizer);
            if (x->w.values.failed)
                return fl_fail_nomem(error, x->w.values.size, "metadata");
            x->arch = arch;
            if (reads_alike(x, arch, pass == 0))
                return 0;
        }
    char switches[512], why[700];
    fl_encoder_switches(&x->model->encoder.desc, switches, sizeof switches);
    snprintf(why, sizeof why, "llama.cpp has no name for this architecture (%s): activation %s%s%s",
             x->model->encoder.desc.architecture, activation_of(&x->model->encoder.desc),
             switches[0] != '\0' ? ", " : "", switches);
    return refuse(x, why, error);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int tell_model(fl_gguf_export *x, fl_buf *tokenizer, const fl_gguf_specials *specials,
                      fletch_error *error) {
    fl_gguf_writer told     = {0};
    fl_json       *root     = NULL;
    const char    *source   = x->model->tokenizer_path;
    const char    *obstacle = find_obstacle(x->model);
    int            status   = obstacle != NULL ? refuse(x, obstacle, error) : 0;
    if (status == 0)
        status = fl_json_take(&root, tokenizer, FL_TOKENIZER_BYTES_MAX, 0, source, error);
    if (status == 0)
        status = fl_gguf_tell_tokenizer(&told, root, x->model->encoder.desc.vocab, specials, source,
                                        error);
    fl_json_free(root);
    if (status == 0)
        status = choose_arch(x, &told, error);
    fl_buf_free(&told.values);
    return status == 0 ? fl_gguf_list_slots(x, error) : status;
}

/* What the file has, but for what says how its tensors are stored. */
static int copy_values(fl_gguf_export *x, fletch_error *error) {
    static const char *const own[] = {"general.file_type", "general.quantization_version",
                                      "general.alignment", "split.no",
                                      "split.count",       "split.tensors.count"};
    fl_gguf                  file;
    fl_map                   map = {0};
    FL_TRY(fl_map_open(&map, x->model->folder, error));
    int status = fl_gguf_read(&file, map.data, map.size, x->model->folder, error);
    for (size_t i = 0; status == 0 && i < file.count; i++) {
        bool passed = false;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            passed = passed || fl_span_is(file.values[i].key, own[k]);
        if (!passed)
            fl_gguf_put_value(&x->w, &file.values[i]);
    }
    if (status == 0)
        fl_gguf_free(&file);
    fl_map_close(&map);
    fl_gguf_put_u32(&x->w, "general.file_type", x->form->file_type);
    fl_gguf_put_u32(&x->w, "general.quantization_version", QUANTIZATION_VERSION);
    return status == 0 ? fl_gguf_list_file(x, error) : status;
}

int fl_gguf_export_open(fl_gguf_export **out, const fl_model *model, const fl_gguf_form *form,
                        fl_buf *tokenizer, const fl_gguf_specials *specials, fletch_error *error) {
    fl_gguf_export *x      = fl_alloc_zero(1, sizeof *x);
    int             status = 0;
    *out                   = NULL;
    if (x == NULL)
        status = fl_fail_nomem(error, sizeof *x, "an export");
    if (status == 0) {
        x->model = model;
        x->form  = form;
        status   = model->gguf ? copy_values(x, error) : tell_model(x, tokenizer, specials, error);
    }
    fl_buf_free(tokenizer);
    if (status == 0 && x->w.values.failed)
        status = fl_fail_nomem(error, x->w.values.size, "metadata");
    if (status != 0) {
        fl_gguf_export_close(x);
        return status;
    }
    *out = x;
    return 0;
}

void fl_gguf_export_close(fl_gguf_export *made) {
    if (made == NULL)
        return;
    fl_buf_free(&made->w.values);
    fl_free(made->items);
    fl_free(made);
}

int fl_gguf_export_tokenizer(const fl_gguf_export *made, fl_buf *out, fletch_error *error) {
    const char *source = made->model->folder;
    fl_gguf     file;
    fl_buf      header = {0};
    fl_gguf_begin(&header, &made->w, 0);
    int status = header.failed ? fl_fail_nomem(error, header.size, "metadata")
                               : fl_gguf_read(&file, (const unsigned char *)header.data,
                                              header.size, source, error);
    if (status == 0) {
        status = fl_gguf_tokenizer(out, &file, source, error);
        fl_gguf_free(&file);
    }
    fl_buf_free(&header);
    return status;
}
