/* SPDX-License-Identifier: Apache-2.0 */
/* ort_session.c - make a session of the folder's .onnx file or of a built graph, and learn its inputs
 * and outputs.
 *
 * Role    ort_engine.c opens one per replica; every lane runs it.
 * Method  onnxruntime.model says which: file, graph, or auto, which builds a graph where there are
 *         weights to build it of (its pooling is ours and it needs no export) and a file where
 *         there are none, or where a file of the wanted precision exists. Inputs are matched by
 *         name; an input that nobody knows is refused. An output of token vectors is pooled here;
 *         an output that is pooled already is taken only when nothing says it could be pooled
 *         otherwise than the folder says.
 * Errors  EMODEL for a model that the library refuses or whose inputs and outputs do not fit the
 *         folder, with what to export anew; EPROVIDER for a refused provider.
 * Memory  One session; the folder's mapped weights stay in use by a built graph.
 * Threads Opening belongs to one thread; the session itself may be run from many.
 * Proof   tests/unit/test_onnxruntime.c, tests/golden/test_onnxruntime.py, test_onnxruntime_files.py. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/os.h"
#include "engines/onnxruntime/ort.h"

enum { RANK_MAX = 8 };

/* What the library says of one input or output. */
typedef struct described {
    char                      name[128];
    ONNXTensorElementDataType type;
    size_t                    rank;
    int64_t                   shape[RANK_MAX]; /* -1 where it may vary */
} described;

static OrtStatus *read_shape(const fl_ort *ort, const OrtTypeInfo *info, described *out) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    ONNXType                         kind   = ONNX_TYPE_UNKNOWN;
    OrtStatus                       *status = ort->api.GetOnnxTypeFromTypeInfo(info, &kind);
    if (status != NULL || kind != ONNX_TYPE_TENSOR)
        return status;
    status = ort->api.CastTypeInfoToTensorInfo(info, &tensor);
    if (status == NULL)
        status = ort->api.GetTensorElementType(tensor, &out->type);
    if (status == NULL)
        status = ort->api.GetDimensionsCount(tensor, &out->rank);
    if (status == NULL && out->rank <= RANK_MAX)
        status = ort->api.GetDimensions(tensor, out->shape, out->rank);
    return status;
}

static int describe(const fl_ort_session *s, bool output, size_t index, described *out,
                    fletch_error *error) {
    const fl_ort *ort  = s->ort;
    OrtTypeInfo  *info = NULL;
    char         *name = NULL;
    memset(out, 0, sizeof *out);
    OrtStatus *status =
        output ? ort->api.SessionGetOutputName(s->session, index, ort->allocator, &name)
               : ort->api.SessionGetInputName(s->session, index, ort->allocator, &name);
    if (status == NULL)
        status = output ? ort->api.SessionGetOutputTypeInfo(s->session, index, &info)
                        : ort->api.SessionGetInputTypeInfo(s->session, index, &info);
    if (status == NULL)
        status = read_shape(ort, info, out);
    if (info != NULL)
        ort->api.ReleaseTypeInfo(info);
    if (name != NULL) {
        snprintf(out->name, sizeof out->name, "%s", name);
        OrtStatus *freed = ort->api.AllocatorFree(ort->allocator, name);
        if (freed != NULL)
            ort->api.ReleaseStatus(freed);
    }
    return fl_ort_check(ort, status, FLETCH_EMODEL, error, s->source);
}

/* ---- Inputs ----------------------------------------------------------------------------------- */

static bool role_of(const char *name, fl_ort_role *out) {
    static const struct {
        const char *name;
        fl_ort_role role;
    } known[] = {{"input_ids", FL_ORT_IDS},       {"input", FL_ORT_IDS},
                 {"attention_mask", FL_ORT_MASK}, {"input_mask", FL_ORT_MASK},
                 {"mask", FL_ORT_MASK},           {"token_type_ids", FL_ORT_TYPES},
                 {"segment_ids", FL_ORT_TYPES},   {"position_ids", FL_ORT_POSITIONS},
                 {FL_ORT_SKIP_NAME, FL_ORT_SKIP}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcasecmp(name, known[i].name) == 0) {
            *out = known[i].role;
            return true;
        }
    return false;
}

static int check_input(const fl_ort_session *s, const described *d, fl_ort_role role,
                       fletch_error *error) {
    size_t rank = role == FL_ORT_SKIP ? 1 : 2;
    if ((d->type != ONNX_I64 && d->type != ONNX_I32) || d->rank != rank)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%.200s: input %.60s has element type %d and %zu dimensions; int64 or int32 "
                       "[batch, sequence] is needed. Export the model again",
                       s->source, d->name, (int)d->type, d->rank);
    for (size_t i = 0; i < rank; i++)
        if (d->shape[i] >= 0)
            return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%.200s: input %.60s has the fixed shape [%lld, %lld]; texts differ in "
                           "number and length. Export the model again with dynamic axes for batch "
                           "and sequence",
                           s->source, d->name, (long long)d->shape[0],
                           (long long)(rank > 1 ? d->shape[1] : 0));
    return FLETCH_OK;
}

static int match_inputs(fl_ort_session *s, const fl_encoder *encoder, fletch_error *error) {
    size_t count             = 0;
    bool   has[FL_ORT_ROLES] = {false};
    FL_TRY(fl_ort_check(s->ort, s->ort->api.SessionGetInputCount(s->session, &count), FLETCH_EMODEL,
                        error, s->source));
    for (size_t i = 0; i < count; i++) {
        described   d;
        fl_ort_role role = FL_ORT_ROLES;
        FL_TRY(describe(s, false, i, &d, error));
        if (!role_of(d.name, &role) || has[role] || strlen(d.name) >= FL_ORT_NAME_MAX)
            return fl_fail(
                error, FLETCH_EMODEL, FLETCH_NOWHERE,
                "%.200s: unknown input \"%.80s\"; fletch provides input_ids, attention_mask, "
                "token_type_ids and position_ids. Export the model for feature extraction",
                s->source, d.name);
        FL_TRY(check_input(s, &d, role, error));
        has[role]           = true;
        fl_ort_input *input = &s->inputs[s->input_count++];
        input->role         = role;
        input->type         = d.type;
        snprintf(input->name, sizeof input->name, "%.90s", d.name);
    }
    if (!has[FL_ORT_IDS] || (!has[FL_ORT_MASK] && !encoder->own_row))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%.200s has no input %s; export the model for feature extraction, with "
                       "input_ids and attention_mask",
                       s->source, has[FL_ORT_IDS] ? "attention_mask" : "input_ids");
    s->skips = has[FL_ORT_SKIP];
    return FLETCH_OK;
}

/* ---- Outputs ---------------------------------------------------------------------------------- */

static bool is_float(const described *d) {
    return d->type == ONNX_F32 || d->type == ONNX_F16;
}

static bool fits(int64_t dimension, uint32_t wanted) {
    return dimension < 0 || (uint64_t)dimension == wanted;
}

static bool is_tokens(const described *d, uint32_t hidden) {
    return is_float(d) && d->rank == 3 && fits(d->shape[2], hidden) && d->shape[1] < 0;
}

/* A row per text under a name that means "as the folder pools": not pooler_output, which is a layer that
 * embedding models do not use, unless it is the network's own row. */
static bool is_pooled(const fl_ort_session *s, const described *d, const fl_encoder *encoder) {
    const bool own = encoder->own_row && s->graph.model == NULL;
    return is_float(d) && d->rank == 2 && fits(d->shape[1], fl_encoder_width(encoder)) &&
           (own ? strcasecmp(d->name, "pooler_output") == 0
                : strcasecmp(d->name, "sentence_embedding") == 0 ||
                      strcasecmp(d->name, "sentence_embeddings") == 0 ||
                      strcasecmp(d->name, "text_embeds") == 0);
}

static int refuse_outputs(const fl_ort_session *s, uint32_t hidden, const described *last,
                          size_t count, fletch_error *error) {
    return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                   "%.200s: none of its %zu outputs is [batch, sequence, %u] (last_hidden_state); "
                   "the last is %.60s with %zu dimensions. Export the model for feature extraction",
                   s->source, count, hidden, last->name, last->rank);
}

/* A pooled output of a file says nothing of how it was pooled. */
static int check_pooled(const fl_ort_session *s, const fl_encoder *encoder,
                        const fl_engine_options *o, fletch_error *error) {
    bool overridden = strcmp(fl_config_text(o->config, FL_KEY_MODEL_POOLING), "auto") != 0;
    if (!overridden && !encoder->projected && !fl_ort_folder_has_layers(o->folder))
        return FLETCH_OK;
    return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                   "%.200s returns only %.60s, which is already pooled, but %s; export the model "
                   "with last_hidden_state",
                   s->source, s->output,
                   overridden           ? "model.pooling asks for another pooling"
                   : encoder->projected ? "the folder's weights project what is pooled"
                                        : "the folder has dense layers after its pooling");
}

static void take_output(fl_ort_session *s, const described *d, bool pooled) {
    s->pooled      = pooled;
    s->output_type = d->type;
    snprintf(s->output, sizeof s->output, "%s", d->name);
}

static int match_outputs(fl_ort_session *s, const fl_encoder *encoder, const fl_engine_options *o,
                         fletch_error *error) {
    size_t    count  = 0;
    described d      = {.rank = 0};
    int       status = fl_ort_check(s->ort, s->ort->api.SessionGetOutputCount(s->session, &count),
                                    FLETCH_EMODEL, error, s->source);
    if (status < 0)
        return status;
    for (size_t i = 0; i < count; i++) {
        status = describe(s, true, i, &d, error);
        if (status < 0)
            return status;
        bool better = s->output[0] == '\0' || s->pooled;
        if (is_tokens(&d, encoder->desc.hidden) && better &&
            (!encoder->own_row || s->graph.model)) {
            take_output(s, &d, false);
            s->skips = true;
        } else if (is_pooled(s, &d, encoder) && s->output[0] == '\0') {
            take_output(s, &d, true);
        }
    }
    if (s->output[0] == '\0')
        return refuse_outputs(s, encoder->desc.hidden, &d, count, error);
    return s->pooled && s->graph.model == NULL ? check_pooled(s, encoder, o, error) : FLETCH_OK;
}

/* ---- Making the session ----------------------------------------------------------------------- */

/* A provider that takes its options may still fail when it compiles the graph, by any code: plug-ins
 * wrap theirs. Whether the model is at fault shows on the processor, which stands behind it. */
static int refuse_session(const fl_ort_session *s, const fl_engine_options *o, OrtStatus *status,
                          fletch_error *error) {
    char context[256];
    if (!s->processor) {
        snprintf(context, sizeof context, "%s makes no session of %.120s", fl_ort_provider_name(o),
                 s->source);
        int code = fl_ort_refuse(s->ort, context, s->ort->api.GetErrorMessage(status), "", error);
        s->ort->api.ReleaseStatus(status);
        return code;
    }
    snprintf(context, sizeof context,
             "%.120s: ONNX Runtime %s rejects it; export it again, or use a newer library",
             s->source, s->ort->version);
    return fl_ort_check(s->ort, status, FLETCH_EMODEL, error, context);
}

static int open_file(fl_ort_session *s, const char *path, const fl_engine_options *o,
                     unsigned inside, fletch_error *error) {
    OrtSessionOptions *made;
    fl_ort_names       inputs;
    char               buffer[FL_OS_PATH];
    snprintf(s->source, sizeof s->source, "%s", path);
    FL_TRY(fl_ort_file_check(path, &inputs, &s->dynamic, &s->data, &s->bytes, error));
    if (s->data.size > 0)
        s->data.data[s->data.size - strlen(", ")] = '\0';
    FL_TRY(fl_ort_options_make(s->ort, o, &inputs, inside, &made, error));
    const void *name    = fl_os_native_path(path, buffer, sizeof buffer);
    OrtStatus  *refused = s->ort->api.CreateSession(s->ort->env, name, made, &s->session);
    s->ort->api.ReleaseSessionOptions(made);
    return refused == NULL ? FLETCH_OK : refuse_session(s, o, refused, error);
}

static uint64_t weight_bytes(const fl_encoder *encoder) {
    uint64_t bytes = 0;
    for (int i = 0; i < FL_SLOT_COUNT; i++)
        bytes += encoder->global[i].bytes;
    for (uint32_t layer = 0; layer < encoder->desc.layers; layer++)
        for (int i = 0; i < FL_LAYER_SLOT_COUNT; i++)
            bytes += encoder->layer[layer][i].bytes;
    return bytes;
}

/* The precision as a static name; NULL: one that ONNX Runtime does not compute in. */
static const char *wanted_of(const fl_engine_options *o) {
    static const char *const known[] = {"auto", "fp32", "fp16", "bf16", "int8"};
    if (fl_engine_chooses(o->precision))
        return known[0];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(o->precision, known[i]) == 0)
            return known[i];
    return NULL;
}

static bool is_plain(const char *precision) {
    return strcmp(precision, "auto") == 0 || strcmp(precision, "fp32") == 0;
}

/* Whether a graph can be built that computes so: half precision everywhere, though processors gain
 * nothing by it; 8-bit integers where TensorRT quantises by itself. */
static bool expresses(const fl_engine_options *o, const char *precision) {
    return is_plain(precision) || strcmp(precision, "fp16") == 0 ||
           (strcmp(precision, "int8") == 0 && strcmp(o->provider, "tensorrt") == 0);
}

static int open_graph(fl_ort_session *s, const fl_encoder *encoder, const fl_engine_options *o,
                      unsigned inside, fletch_error *error) {
    OrtSessionOptions *made;
    const fl_ort_names inputs = {
        .names = {"input_ids", "attention_mask", FL_ORT_SKIP_NAME, "token_type_ids"},
        .count = encoder->desc.segments ? 4 : 3};
    snprintf(s->source, sizeof s->source, "the graph built from the model's weights");
    s->precision = wanted_of(o);
    s->precision = is_plain(s->precision) ? "fp32" : s->precision;
    FL_TRY(fl_ort_options_make(s->ort, o, &inputs, inside, &made, error));
    int status = fl_ort_graph_build(s->ort, encoder, o, &s->graph, error);
    if (status == FLETCH_OK) {
        OrtStatus *refused =
            s->ort->editor.CreateSessionFromModel(s->ort->env, s->graph.model, made, &s->session);
        status = refused == NULL ? FLETCH_OK : refuse_session(s, o, refused, error);
    }
    if (status == FLETCH_OK)
        fl_ort_graph_settle(encoder);
    s->ort->api.ReleaseSessionOptions(made);
    s->bytes = weight_bytes(encoder);
    return status;
}

static int open_source(fl_ort_session *s, const fl_encoder *encoder, const fl_engine_options *o,
                       unsigned inside, fletch_error *error) {
    const char *source  = fl_config_text(o->config, FL_KEY_ONNXRUNTIME_MODEL);
    const char *wanted  = wanted_of(o);
    bool        asked   = strcmp(source, "graph") == 0;
    bool        weights = encoder->layer != NULL;
    bool        builds  = wanted && weights && strcmp(source, "file") != 0 && expresses(o, wanted);
    bool        device  = strcmp(o->provider, "cpu") != 0;
    char        path[FL_ORT_PATH_MAX];
    if (wanted == NULL)
        return fl_fail(
            error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
            "provider.precision %s is not supported by ONNX Runtime: use fp32, fp16, bf16 or int8",
            o->precision);
    if (builds && (asked || is_plain(wanted) || (device && strcmp(wanted, "fp16") == 0))) {
        int status = open_graph(s, encoder, o, inside, error);
        if (status != FLETCH_EUNSUPPORTED || asked)
            return status;
        fl_ort_graph_free(s->ort, &s->graph);
    }
    if (asked && weights)
        return fl_fail(error, FLETCH_ECONFIG, FLETCH_NOWHERE,
                       "onnxruntime.model graph: no graph is built in %s for the provider %s; set "
                       "provider.precision to fp32 or fp16, or onnxruntime.model to file",
                       wanted, o->provider);
    if (asked)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "onnxruntime.model graph: %.300s holds no safetensors weights to build a "
                       "graph of; use file or auto",
                       o->folder);
    if (o->onnx_file != NULL) {
        s->precision = fl_ort_file_precision(o->onnx_file);
        return open_file(s, o->onnx_file, o, inside, error);
    }
    int found = fl_ort_file_choose(o->folder, wanted, path, &s->precision, error);
    if (found < 0)
        return found;
    if (found == 0)
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.300s has no .onnx file of the precision %s (model.onnx or "
                       "onnx/model*.onnx)",
                       o->folder, wanted);
    return open_file(s, path, o, inside, error);
}

/* A file without this input would take every text for a single one. */
static int check_segments(const fl_ort_session *s, const fl_encoder *encoder, fletch_error *error) {
    bool types = !encoder->desc.segments;
    for (size_t i = 0; i < s->input_count; i++)
        types = types || s->inputs[i].role == FL_ORT_TYPES;
    return types ? FLETCH_OK
                 : fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                           "%.200s has no input token_type_ids, which this model needs to tell the "
                           "texts of a pair apart; export it again",
                           s->source);
}

static int match(fl_ort_session *s, const fl_encoder *encoder, const fl_engine_options *options,
                 fletch_error *error) {
    FL_TRY(match_inputs(s, encoder, error));
    FL_TRY(check_segments(s, encoder, error));
    return match_outputs(s, encoder, options, error);
}

int fl_ort_session_open(fl_ort_session *out, const fl_ort *ort, const fl_encoder *encoder,
                        const fl_engine_options *options, unsigned inside, fletch_error *error) {
    char before[FL_ORT_WORDS];
    memset(out, 0, sizeof *out);
    fl_ort_heard(before); /* what a device says from here on, the first run tells */
    out->ort       = ort;
    out->processor = strcmp(options->provider, "cpu") == 0;
    out->pinned    = fl_ort_provider_pinned(options->provider);
    out->device    = options->device;
    int status     = open_source(out, encoder, options, inside, error);
    if (status == FLETCH_OK)
        status = match(out, encoder, options, error);
    if (status < 0)
        fl_ort_session_close(out);
    return status;
}

void fl_ort_session_close(fl_ort_session *session) {
    if (session->ort == NULL)
        return;
    if (session->session != NULL)
        session->ort->api.ReleaseSession(session->session);
    session->session = NULL;
    fl_buf_free(&session->data);
    fl_ort_graph_free(session->ort, &session->graph);
}
