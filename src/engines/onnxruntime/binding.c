/* SPDX-License-Identifier: Apache-2.0 */
/* binding.c - run one group of texts: fill the inputs, bind them, run, hand the rows out.
 *
 * Role    Each worker of ort_engine.c has a lane of its own; a lane runs one group at a time.
 * Method  Inputs are tensors over the lane's buffers, made for the group's shape and bound. A pooled
 *         output is bound to the caller's own rows where these follow each other in memory and
 *         nothing is padded; else to the lane's buffer, from which rows are copied or token vectors
 *         pooled. When binding is refused by a provider the lane runs without it from then on: once
 *         in the log, counted ever after.
 * Memory  One block per lane, sized in open for the largest group; a run allocates nothing of ours.
 *         ONNX Runtime allocates its own little objects for tensors.
 * Threads A lane belongs to one thread at a time; the session is shared.
 * Proof   tests/unit/test_onnxruntime.c (direct rows, copied rows, plain Run give the same bytes). */
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

int fl_ort_lane_open(fl_ort_lane *lane, const fl_ort_session *session, const fl_encoder *encoder,
                     const fl_ort_plan *plan, bool bind, fletch_error *error) {
    lane->session     = session;
    lane->encoder     = encoder;
    lane->hidden      = encoder->desc.hidden;
    lane->width       = fl_encoder_width(encoder);
    lane->tokens_max  = fl_ort_plan_tokens_max(plan);
    lane->rows_max    = fl_ort_plan_rows_max(plan);
    lane->block_bytes = fl_ort_lane_bytes(session, encoder, lane->tokens_max, lane->rows_max);
    lane->block       = fl_big_alloc(lane->block_bytes);
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
    fl_big_free(lane->block, lane->block_bytes);
    lane->binding = NULL;
    lane->block   = NULL;
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
    OrtValue *inputs[FL_ORT_ROLES];
    OrtValue *output;
} run_values;

static void release(const fl_ort *ort, run_values *v) {
    for (size_t i = 0; i < FL_ORT_ROLES; i++)
        if (v->inputs[i] != NULL)
            ort->api.ReleaseValue(v->inputs[i]);
    if (v->output != NULL)
        ort->api.ReleaseValue(v->output);
}

static OrtStatus *make_inputs(fl_ort_lane *lane, const fl_ort_group *g, run_values *v) {
    const fl_ort_session *s        = lane->session;
    const int64_t         shape[2] = {g->rows, g->length};
    OrtStatus            *status   = NULL;
    for (size_t i = 0; i < s->input_count && status == NULL; i++) {
        size_t rank  = s->inputs[i].role == FL_ORT_SKIP ? 1 : 2;
        size_t count = rank == 1 ? g->rows : (size_t)g->rows * g->length;
        size_t size  = s->inputs[i].type == ONNX_I32 ? sizeof(int32_t) : sizeof(int64_t);
        status       = s->ort->api.CreateTensorWithDataAsOrtValue(s->ort->cpu, lane->inputs[i],
                                                                  count * size, shape, rank,
                                                                  s->inputs[i].type, &v->inputs[i]);
    }
    return status;
}

static OrtStatus *make_output(fl_ort_lane *lane, const fl_ort_group *g, void *data, run_values *v) {
    const fl_ort_session *s        = lane->session;
    const int64_t         shape[3] = {g->rows, s->pooled ? lane->width : g->length, lane->hidden};
    size_t                rank     = s->pooled ? 2 : 3;
    size_t count = (size_t)shape[0] * (size_t)shape[1] * (s->pooled ? 1 : (size_t)shape[2]);
    size_t size  = s->output_type == ONNX_F16 ? 2 : 4;
    return s->ort->api.CreateTensorWithDataAsOrtValue(s->ort->cpu, data, count * size, shape, rank,
                                                      s->output_type, &v->output);
}

/* The caller's first row when the group's rows follow each other there and none is padding. */
static float *direct_rows(const fl_ort_lane *lane, const fl_batch *batch, const uint32_t *order,
                          const fl_ort_group *g) {
    const fl_ort_session *s = lane->session;
    if (!s->pooled || s->output_type != ONNX_F32 || g->rows != g->count)
        return NULL;
    float *first = batch->rows[order[g->first]];
    for (uint32_t i = 1; i < g->count; i++)
        if (batch->rows[order[g->first + i]] != first + (size_t)i * lane->width)
            return NULL;
    return first;
}

/* ---- Running ---------------------------------------------------------------------------------- */

static OrtStatus *run_bound(fl_ort_lane *lane, run_values *v) {
    const fl_ort_session *s      = lane->session;
    const fl_ort_api     *api    = &s->ort->api;
    OrtStatus            *status = NULL;
    for (size_t i = 0; i < s->input_count && status == NULL; i++)
        status = api->BindInput(lane->binding, s->inputs[i].name, v->inputs[i]);
    if (status == NULL)
        status = api->BindOutput(lane->binding, s->output, v->output);
    if (status == NULL)
        status = api->SynchronizeBoundInputs(lane->binding);
    if (status == NULL)
        status = api->RunWithBinding(s->session, NULL, lane->binding);
    if (status == NULL)
        status = api->SynchronizeBoundOutputs(lane->binding);
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

/* Bound first; where that fails and plain Run does not, binding is at fault and is given up. */
static OrtStatus *run(fl_ort_lane *lane, run_values *v) {
    const fl_ort_api *api = &lane->session->ort->api;
    lane->runs++;
    if (lane->binding == NULL)
        return run_plain(lane, v);
    OrtStatus *status = run_bound(lane, v);
    if (status == NULL) {
        lane->bound_runs++;
        return NULL;
    }
    OrtStatus *plain = run_plain(lane, v);
    if (plain != NULL) { /* the model is at fault, not the binding */
        api->ReleaseStatus(status);
        return plain;
    }
    fl_log_write(lane->log, FL_LOG_WARNING, "io.binding: %s; running without binding from now on",
                 api->GetErrorMessage(status));
    api->ReleaseStatus(status);
    api->ReleaseIoBinding(lane->binding);
    lane->binding = NULL;
    return NULL;
}

/* Widen half precision behind the values themselves. */
static const float *as_floats(const fl_ort_lane *lane, const fl_ort_group *g) {
    const fl_ort_session *s = lane->session;
    size_t                count =
        s->pooled ? (size_t)g->rows * lane->width : (size_t)g->rows * g->length * lane->hidden;
    size_t room =
        s->pooled ? (size_t)lane->rows_max * lane->width : (size_t)lane->tokens_max * lane->hidden;
    if (s->output_type == ONNX_F32)
        return lane->output;
    float          *wide = (float *)((char *)lane->output + rounded(room * 2));
    const fl_tensor half = {.data  = lane->output,
                            .bytes = count * sizeof(uint16_t),
                            .dtype = FL_DTYPE_F16,
                            .rank  = 1,
                            .shape = {count}};
    fl_tensor_to_f32(&half, 0, count, wide);
    return wide;
}

static int hand_out(fl_ort_lane *lane, const fl_batch *batch, const uint32_t *order,
                    const fl_ort_group *g, bool direct) {
    const float *values = direct ? NULL : as_floats(lane, g);
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t text = order[g->first + i], skip = batch->pool_skip ? batch->pool_skip[text] : 0;
        float   *row = batch->rows[text];
        bool     finite;
        if (batch->each != NULL && batch->each[text]) { /* never of a session that pools */
            size_t count = (size_t)(batch->cu[text + 1] - batch->cu[text]) * lane->hidden;
            memcpy(row, values + (size_t)i * g->length * lane->hidden, count * sizeof *row);
            finite = fl_all_finite(row, count);
        } else if (!lane->session->pooled) {
            finite = fl_pool_rows(lane->encoder->pooling, lane->encoder->pooling_count,
                                  values + (size_t)i * g->length * lane->hidden, lane->hidden,
                                  lane->hidden, batch->cu[text + 1] - batch->cu[text], skip, row);
        } else {
            if (!direct)
                memcpy(row, values + (size_t)i * lane->width, lane->width * sizeof *row);
            finite = fl_all_finite(row, lane->width);
        }
        if (!finite)
            return fl_fail(&lane->error, FLETCH_EMODEL, text,
                           "text %u: the model gives values that are not finite: its weights are "
                           "damaged or overflow",
                           text);
    }
    lane->texts += g->count;
    if (direct)
        lane->direct_rows += g->count;
    else
        lane->copied_rows += g->count;
    return FLETCH_OK;
}

/* What a failed run means. Memory may do for fewer texts. What the library calls an argument is the
 * model's trouble with these very ids, as is everything on the processor, where nothing can be lost:
 * a lone text is named, of several nobody knows whose fault it is. Anything else breaks the replica. */
static int failed(fl_ort_lane *lane, OrtStatus *status, const uint32_t *order,
                  const fl_ort_group *group) {
    const fl_ort_session *s     = lane->session;
    const char           *words = s->ort->api.GetErrorMessage(status);
    bool memory = strstr(words, "Failed to allocate memory") || strstr(words, "out of memory") ||
                  strstr(words, "bad_alloc");
    bool texts = s->processor || s->ort->api.GetErrorCode(status) == ORT_INVALID_ARGUMENT;
    int  code  = memory ? FLETCH_ENOMEM : texts ? FLETCH_EMODEL : FLETCH_EPROVIDER;
    fl_ort_check(s->ort, status, code, &lane->error,
                 code == FLETCH_EMODEL
                     ? "the model cannot be run on this text; do its files belong "
                       "together? ONNX Runtime"
                     : "ONNX Runtime's run failed");
    if (group->count == 1)
        lane->error.where = order[group->first];
    return code;
}

int fl_ort_lane_run(fl_ort_lane *lane, const fl_batch *batch, const uint32_t *order,
                    const fl_ort_group *group) {
    const fl_ort_session *s      = lane->session;
    run_values            values = {.output = NULL};
    float                *rows   = direct_rows(lane, batch, order, group);
    if (batch->pool_skip != NULL && !s->skips)
        for (uint32_t i = 0; i < group->count; i++)
            if (batch->pool_skip[order[group->first + i]] > 0)
                return fl_fail(&lane->error, FLETCH_EUNSUPPORTED, order[group->first + i],
                               "%.200s pools by itself and cannot leave a prompt out; export the "
                               "model with last_hidden_state",
                               s->source);
    for (size_t i = 0; i < s->input_count; i++)
        fill(lane, i, batch, order, group);
    OrtStatus *status = make_inputs(lane, group, &values);
    if (status == NULL)
        status = make_output(lane, group, rows == NULL ? lane->output : rows, &values);
    if (status == NULL)
        status = run(lane, &values);
    release(s->ort, &values);
    return status == NULL ? hand_out(lane, batch, order, group, rows != NULL)
                          : failed(lane, status, order, group);
}
