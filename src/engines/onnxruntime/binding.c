/* SPDX-License-Identifier: Apache-2.0 */
/* binding.c - run one group of texts: fill the inputs, bind them, run, hand the rows out.
 *
 * Role    Each worker of ort_engine.c has a lane of its own; a lane runs one group at a time.
 * Method  Inputs are tensors over the lane's buffers, made for the group's shape and bound. On the
 *         processor, and where a provider has no pinned memory, a pooled output is bound to the
 *         caller's own rows where these follow each other and nothing is padded; else to the lane's
 *         buffer, from which rows are copied or token vectors pooled. On a device with pinned memory
 *         (CUDA, TensorRT) the lane's buffers are of it, taken of the session's own allocator once:
 *         binding an input copies it to the device without a stop, and the output is bound to that
 *         kind of memory (BindOutputToDevice), where the library's arena keeps a block for it and the
 *         device writes by itself. When binding is refused by a provider the lane runs without it
 *         from then on: once in the log, counted ever after.
 * Memory  One block per lane, sized in open for the largest group; a run allocates nothing of ours.
 *         ONNX Runtime allocates its own little objects for tensors.
 * Threads A lane belongs to one thread at a time; the session is shared.
 * Proof   tests/unit/test_onnxruntime.c (direct rows, copied rows, plain Run give the same bytes),
 *         test_onnx_engine.c (a stand-in for the calls of a device records what is bound where). */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/number.h"
#include "engines/onnxruntime/ort.h"

/* ---- Buffers ---------------------------------------------------------------------------------- */

static size_t rounded(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static size_t output_bytes(const fl_ort_session *s, const fl_encoder *encoder, uint32_t tokens,
                           uint32_t rows) {
    size_t values = s->pooled ? (size_t)rows * fl_encoder_width(encoder)
                              : (size_t)tokens * encoder->desc.hidden;
    /* Half precision is widened into a second half of the buffer. */
    return s->output_type == ONNX_F16 ? rounded(values * 2) + rounded(values * 4)
                                      : rounded(values * 4);
}

size_t fl_ort_lane_bytes(const fl_ort_session *session, const fl_encoder *encoder, uint32_t tokens,
                         uint32_t rows) {
    return session->input_count * rounded((size_t)tokens * sizeof(int64_t)) +
           output_bytes(session, encoder, tokens, rows);
}

static void drop(const fl_ort *ort, OrtStatus *status) {
    if (status != NULL)
        ort->api.ReleaseStatus(status);
}

static void free_block(fl_ort_lane *lane) {
    const fl_ort *ort = lane->session->ort;
    if (lane->pinned != NULL && lane->block != NULL)
        drop(ort, ort->api.AllocatorFree(lane->pinned, lane->block));
    else
        fl_big_free(lane->block, lane->block_bytes);
    if (lane->pinned != NULL)
        ort->api.ReleaseAllocator(lane->pinned);
    if (lane->place != NULL)
        ort->api.ReleaseMemoryInfo(lane->place);
    lane->block  = NULL;
    lane->pinned = NULL;
    lane->place  = NULL;
}

/* The lane's block in pinned memory; without it, when the session has none after all. */
static void take_pinned(fl_ort_lane *lane) {
    const fl_ort_session *s   = lane->session;
    const fl_ort_api     *api = &s->ort->api;
    OrtStatus *status         = api->CreateMemoryInfo(s->pinned, OrtArenaAllocator, (int)s->device,
                                                      OrtMemTypeCPUOutput, &lane->place);
    if (status == NULL)
        status = api->CreateAllocator(s->session, lane->place, &lane->pinned);
    if (status == NULL)
        status = api->AllocatorAlloc(lane->pinned, lane->block_bytes, &lane->block);
    if (status == NULL && lane->block != NULL)
        return;
    fl_log_write(lane->log, FL_LOG_DEBUG, "no %s memory (%s): buffers are in pageable host memory",
                 s->pinned, status == NULL ? "none given" : api->GetErrorMessage(status));
    drop(s->ort, status);
    free_block(lane);
}

int fl_ort_lane_open(fl_ort_lane *lane, const fl_ort_session *session, const fl_encoder *encoder,
                     const fl_ort_plan *plan, bool bind, fletch_error *error) {
    lane->session     = session;
    lane->encoder     = encoder;
    lane->hidden      = encoder->desc.hidden;
    lane->width       = fl_encoder_width(encoder);
    lane->tokens_max  = fl_ort_plan_tokens_max(plan);
    lane->rows_max    = fl_ort_plan_rows_max(plan);
    lane->block_bytes = fl_ort_lane_bytes(session, encoder, lane->tokens_max, lane->rows_max);
    if (bind && session->pinned != NULL)
        take_pinned(lane);
    if (lane->block == NULL)
        lane->block = fl_big_alloc(lane->block_bytes);
    if (lane->block == NULL)
        return fl_fail_nomem(error, lane->block_bytes, "the buffers of ONNX Runtime");
    char *at = lane->block;
    for (size_t i = 0; i < session->input_count; i++) {
        lane->inputs[i] = at;
        at += rounded((size_t)lane->tokens_max * sizeof(int64_t));
    }
    lane->output = at;
    if (!bind)
        return FLETCH_OK;
    return fl_ort_check(session->ort,
                        session->ort->api.CreateIoBinding(session->session, &lane->binding),
                        FLETCH_EPROVIDER, error, "ONNX Runtime's input and output binding");
}

void fl_ort_lane_close(fl_ort_lane *lane) {
    if (lane->binding != NULL)
        lane->session->ort->api.ReleaseIoBinding(lane->binding);
    lane->binding = NULL;
    if (lane->session != NULL)
        free_block(lane);
}

/* ---- Inputs ----------------------------------------------------------------------------------- */

/* The value of one input at token `i` of a text of `length` tokens (0: a row of padding), of which
 * `second` is the first of type 1. */
static int64_t value_of(const fl_ort_lane *lane, fl_ort_role role, const int32_t *ids,
                        uint32_t length, uint32_t second, uint32_t i) {
    const fl_encoder_desc *d = &lane->encoder->desc;
    switch (role) {
    case FL_ORT_IDS: return i < length ? ids[i] : (int64_t)d->pad_token;
    case FL_ORT_MASK:
        return i < length || (length == 0 && i == 0); /* a row that is all masked: NaN */
    case FL_ORT_POSITIONS: return (int64_t)d->position_offset + (i < length ? i : 0);
    case FL_ORT_TYPES: return i >= second && i < length;
    case FL_ORT_SKIP:
    case FL_ORT_ROLES: break;
    }
    return 0;
}

static void store(void *buffer, ONNXTensorElementDataType type, size_t at, int64_t value) {
    if (type == ONNX_I32)
        ((int32_t *)buffer)[at] = (int32_t)value;
    else
        ((int64_t *)buffer)[at] = value;
}

static void fill(fl_ort_lane *lane, size_t input, const fl_batch *batch, const uint32_t *order,
                 const fl_ort_group *g) {
    const fl_ort_input *in   = &lane->session->inputs[input];
    void               *data = lane->inputs[input];
    for (uint32_t row = 0; row < g->rows; row++) {
        uint32_t       text   = row < g->count ? order[g->first + row] : 0;
        uint32_t       length = row < g->count ? batch->cu[text + 1] - batch->cu[text] : 0;
        const int32_t *ids    = batch->ids + batch->cu[text];
        uint32_t       second = batch->segment != NULL ? batch->segment[text] : length;
        if (in->role == FL_ORT_SKIP) {
            bool given = batch->pool_skip != NULL && row < g->count;
            store(data, in->type, row, given ? batch->pool_skip[text] : 0);
            continue;
        }
        for (uint32_t i = 0; i < g->length; i++)
            store(data, in->type, (size_t)row * g->length + i,
                  value_of(lane, in->role, ids, length, second, i));
    }
}

/* ---- Tensors of one run ----------------------------------------------------------------------- */

typedef struct run_values {
    OrtValue   *inputs[FL_ORT_ROLES];
    OrtValue   *output;
    const void *rows;     /* where the output is */
    size_t      expected; /* its values */
} run_values;

static void release(const fl_ort *ort, run_values *v) {
    for (size_t i = 0; i < FL_ORT_ROLES; i++)
        if (v->inputs[i] != NULL)
            ort->api.ReleaseValue(v->inputs[i]);
    if (v->output != NULL)
        ort->api.ReleaseValue(v->output);
}

/* What the lane's own buffers lie in. */
static const OrtMemoryInfo *memory_of(const fl_ort_lane *lane) {
    return lane->place != NULL ? lane->place : lane->session->ort->cpu;
}

static OrtStatus *make_inputs(fl_ort_lane *lane, const fl_ort_group *g, run_values *v) {
    const fl_ort_session *s        = lane->session;
    const int64_t         shape[2] = {g->rows, g->length};
    OrtStatus            *status   = NULL;
    for (size_t i = 0; i < s->input_count && status == NULL; i++) {
        size_t rank  = s->inputs[i].role == FL_ORT_SKIP ? 1 : 2;
        size_t count = rank == 1 ? g->rows : (size_t)g->rows * g->length;
        size_t size  = s->inputs[i].type == ONNX_I32 ? sizeof(int32_t) : sizeof(int64_t);
        status       = s->ort->api.CreateTensorWithDataAsOrtValue(memory_of(lane), lane->inputs[i],
                                                                  count * size, shape, rank,
                                                                  s->inputs[i].type, &v->inputs[i]);
    }
    return status;
}

/* Over `rows` of the caller, or the lane's buffer where that is NULL. */
static OrtStatus *make_output(fl_ort_lane *lane, const fl_ort_group *g, float *rows,
                              run_values *v) {
    const fl_ort_session *s        = lane->session;
    const int64_t         shape[3] = {g->rows, s->pooled ? lane->width : g->length, lane->hidden};
    size_t                rank     = s->pooled ? 2 : 3;
    size_t                size     = s->output_type == ONNX_F16 ? 2 : 4;
    void                 *data     = rows != NULL ? rows : lane->output;
    v->rows                        = data;
    v->expected = (size_t)shape[0] * (size_t)shape[1] * (s->pooled ? 1 : (size_t)shape[2]);
    return s->ort->api.CreateTensorWithDataAsOrtValue(rows != NULL ? s->ort->cpu : memory_of(lane),
                                                      data, v->expected * size, shape, rank,
                                                      s->output_type, &v->output);
}

/* The caller's first row when the group's rows follow each other there, none is padding and the device
 * does not write into pinned memory better. */
static float *direct_rows(const fl_ort_lane *lane, const fl_batch *batch, const uint32_t *order,
                          const fl_ort_group *g) {
    const fl_ort_session *s = lane->session;
    if (!s->pooled || s->output_type != ONNX_F32 || g->rows != g->count || lane->place != NULL)
        return NULL;
    float *first = batch->rows[order[g->first]];
    for (uint32_t i = 1; i < g->count; i++)
        if (batch->rows[order[g->first + i]] != first + (size_t)i * lane->width)
            return NULL;
    return first;
}

/* ---- Running ---------------------------------------------------------------------------------- */

/* How many values the output has that the library made. */
static OrtStatus *count_values(const fl_ort *ort, const OrtValue *value, size_t *count) {
    enum { RANK_MAX = 8 };
    OrtTensorTypeAndShapeInfo *info = NULL;
    int64_t                    shape[RANK_MAX];
    size_t                     rank   = 0;
    OrtStatus                 *status = ort->api.GetTensorTypeAndShape(value, &info);
    *count                            = 0;
    if (status == NULL)
        status = ort->api.GetDimensionsCount(info, &rank);
    if (status == NULL && rank <= RANK_MAX)
        status = ort->api.GetDimensions(info, shape, rank);
    if (status == NULL && rank > 0 && rank <= RANK_MAX)
        for (*count = 1; rank > 0; rank--)
            *count *= (size_t)shape[rank - 1];
    if (info != NULL)
        ort->api.ReleaseTensorTypeAndShapeInfo(info);
    return status;
}

/* The output that the library made where it was bound to: it takes the place of ours. */
static OrtStatus *take_bound(fl_ort_lane *lane, run_values *v) {
    const fl_ort *ort    = lane->session->ort;
    OrtValue    **values = NULL;
    size_t        count = 0, found = 0;
    void         *data = NULL;
    OrtStatus    *status =
        ort->api.GetBoundOutputValues(lane->binding, ort->allocator, &values, &count);
    if (status == NULL && count == 1)
        status = count_values(ort, values[0], &found);
    if (status == NULL && found == v->expected)
        status = ort->api.GetTensorMutableData(values[0], &data);
    if (status == NULL && data == NULL)
        status = ort->api.CreateStatus(ORT_FAIL, "the bound output has another shape");
    if (status == NULL) {
        ort->api.ReleaseValue(v->output);
        v->output = values[0];
        v->rows   = data;
    }
    for (size_t i = status == NULL ? 1 : 0; i < count; i++)
        ort->api.ReleaseValue(values[i]);
    if (values != NULL)
        drop(ort, ort->api.AllocatorFree(ort->allocator, values));
    return status;
}

static OrtStatus *run_bound(fl_ort_lane *lane, run_values *v) {
    const fl_ort_session *s      = lane->session;
    const fl_ort_api     *api    = &s->ort->api;
    OrtStatus            *status = NULL;
    for (size_t i = 0; i < s->input_count && status == NULL; i++)
        status = api->BindInput(lane->binding, s->inputs[i].name, v->inputs[i]);
    if (status == NULL)
        status = lane->place != NULL
                     ? api->BindOutputToDevice(lane->binding, s->output, lane->place)
                     : api->BindOutput(lane->binding, s->output, v->output);
    if (status == NULL)
        status = api->SynchronizeBoundInputs(lane->binding);
    if (status == NULL)
        status = api->RunWithBinding(s->session, NULL, lane->binding);
    if (status == NULL)
        status = api->SynchronizeBoundOutputs(lane->binding);
    if (status == NULL && lane->place != NULL)
        status = take_bound(lane, v);
    api->ClearBoundInputs(lane->binding);
    api->ClearBoundOutputs(lane->binding);
    return status;
}

static OrtStatus *run_plain(fl_ort_lane *lane, run_values *v) {
    const fl_ort_session *s = lane->session;
    const char           *names[FL_ORT_ROLES];
    const OrtValue       *inputs[FL_ORT_ROLES];
    const char           *output = s->output;
    for (size_t i = 0; i < s->input_count; i++) {
        names[i]  = s->inputs[i].name;
        inputs[i] = v->inputs[i];
    }
    return s->ort->api.Run(s->session, NULL, names, inputs, s->input_count, &output, 1, &v->output);
}

/* The processor has no device that speaks, and runs side by side. */
static void listen(const fl_ort_lane *lane, char heard[FL_ORT_WORDS]) {
    if (!lane->session->processor)
        fl_ort_heard(heard);
}

/* Bound first; where that fails and plain Run does not, binding is at fault and is given up, but for want
 * of memory. `heard`: what the device said of it, or "": a run is not to be trusted in which it spoke of a
 * fault, whatever the status. */
static OrtStatus *run(fl_ort_lane *lane, run_values *v, char heard[FL_ORT_WORDS]) {
    const fl_ort_api *api = &lane->session->ort->api;
    char              words[FL_ORT_WORDS];
    lane->runs++;
    OrtStatus *status = lane->binding == NULL ? run_plain(lane, v) : run_bound(lane, v);
    listen(lane, heard);
    if (status == NULL && heard[0] != '\0')
        return api->CreateStatus(ORT_FAIL, heard);
    if (status == NULL) {
        lane->bound_runs += lane->binding != NULL;
        return NULL;
    }
    fl_ort_words(api->GetErrorMessage(status), words);
    if (lane->binding == NULL || fl_ort_is_memory(heard) || fl_ort_is_memory(words))
        return status;
    OrtStatus *plain = run_plain(lane, v);
    if (plain != NULL) { /* the model is at fault, not the binding */
        api->ReleaseStatus(status);
        return plain;
    }
    fl_log_write(lane->log, FL_LOG_WARNING, "io.binding: %s; running without binding from now on",
                 words);
    api->ReleaseStatus(status);
    api->ReleaseIoBinding(lane->binding);
    lane->binding = NULL;
    return NULL;
}

/* The output as floats: half precision is widened behind the lane's own buffer for it. */
static const float *as_floats(const fl_ort_lane *lane, const run_values *v) {
    const fl_ort_session *s = lane->session;
    size_t                room =
        s->pooled ? (size_t)lane->rows_max * lane->width : (size_t)lane->tokens_max * lane->hidden;
    if (s->output_type == ONNX_F32)
        return v->rows;
    float          *wide = (float *)((char *)lane->output + rounded(room * 2));
    const fl_tensor half = {.data  = v->rows,
                            .bytes = v->expected * sizeof(uint16_t),
                            .dtype = FL_DTYPE_F16,
                            .rank  = 1,
                            .shape = {v->expected}};
    fl_tensor_to_f32(&half, 0, v->expected, wide);
    return wide;
}

static int hand_out(fl_ort_lane *lane, const fl_batch *batch, const uint32_t *order,
                    const fl_ort_group *g, const run_values *v, bool direct) {
    const float *values = direct ? NULL : as_floats(lane, v);
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t text = order[g->first + i], skip = batch->pool_skip ? batch->pool_skip[text] : 0;
        float   *row = batch->rows[text];
        bool     finite;
        if (batch->note != NULL)
            batch->note->copied[text] = FL_COPIED_IDS | (direct ? 0 : FL_COPIED_ROW);
        if (batch->each != NULL && batch->each[text]) { /* never of a session that pools */
            size_t count = (size_t)(batch->cu[text + 1] - batch->cu[text]) * lane->hidden;
            memcpy(row, values + (size_t)i * g->length * lane->hidden, count * sizeof *row);
            finite = fl_all_finite(row, count);
        } else if (!lane->session->pooled) {
            const fl_rows rows = {values + (size_t)i * g->length * lane->hidden, lane->hidden,
                                  NULL};
            finite = fl_pool_rows(lane->encoder->pooling, lane->encoder->pooling_count, &rows,
                                  lane->hidden, batch->cu[text + 1] - batch->cu[text], skip, row);
        } else {
            if (!direct)
                memcpy(row, values + (size_t)i * lane->width, lane->width * sizeof *row);
            finite = fl_all_finite(row, lane->width);
        }
        if (!finite)
            return fl_fail(
                &lane->error, FLETCH_EMODEL, text,
                "text %u: the model's output is not finite: its weights are damaged or overflow",
                text);
    }
    if (direct)
        lane->direct_rows += g->count;
    else
        lane->copied_rows += g->count;
    return FLETCH_OK;
}

/* What a failed run means. Memory may do for fewer texts; where one alone finds none on a device, the next
 * provider has more. What the library calls an argument is the
 * model's trouble with these very ids, as is everything on the processor, where nothing can be lost:
 * a lone text is named, of several nobody knows whose fault it is. Anything else breaks the replica. */
static int failed(fl_ort_lane *lane, OrtStatus *status, const char *heard, const uint32_t *order,
                  const fl_ort_group *group) {
    const fl_ort_session *s      = lane->session;
    const char           *words  = s->ort->api.GetErrorMessage(status);
    bool                  memory = fl_ort_is_memory(words) || fl_ort_is_memory(heard);
    bool texts = s->processor || s->ort->api.GetErrorCode(status) == ORT_INVALID_ARGUMENT;
    int  code  = texts ? FLETCH_EMODEL : FLETCH_EPROVIDER;
    if (memory && (s->processor || group->count > 1))
        code = FLETCH_ENOMEM;
    fl_log_write(lane->log, FL_LOG_DEBUG, "onnxruntime: %s", words);
    if (heard[0] != '\0') {
        s->ort->api.ReleaseStatus(status);
        fl_fail(&lane->error, code, FLETCH_NOWHERE, "ONNX Runtime's run failed: %s", heard);
    } else {
        fl_ort_check(s->ort, status, code, &lane->error,
                     code == FLETCH_EMODEL
                         ? "the model cannot be run on this text; do its files belong "
                           "together? ONNX Runtime"
                         : "ONNX Runtime's run failed");
    }
    if (group->count == 1)
        lane->error.where = order[group->first];
    return code;
}

int fl_ort_lane_run(fl_ort_lane *lane, const fl_batch *batch, const uint32_t *order,
                    const fl_ort_group *group) {
    const fl_ort_session *s                   = lane->session;
    run_values            values              = {.output = NULL};
    float                *rows                = direct_rows(lane, batch, order, group);
    char                  heard[FL_ORT_WORDS] = "";
    if (batch->pool_skip != NULL && !s->skips)
        for (uint32_t i = 0; i < group->count; i++)
            if (batch->pool_skip[order[group->first + i]] > 0)
                return fl_fail(&lane->error, FLETCH_EUNSUPPORTED, order[group->first + i],
                               "%.200s does its own pooling and cannot exclude a prompt; export "
                               "the model with last_hidden_state",
                               s->source);
    for (size_t i = 0; i < s->input_count; i++)
        fill(lane, i, batch, order, group);
    OrtStatus *status = make_inputs(lane, group, &values);
    if (status == NULL)
        status = make_output(lane, group, rows, &values);
    if (status == NULL)
        status = run(lane, &values, heard);
    int code = status == NULL ? hand_out(lane, batch, order, group, &values, rows != NULL)
                              : failed(lane, status, heard, order, group);
    release(s->ort, &values);
    return code;
}
