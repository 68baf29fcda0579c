/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - POST /models/load and /models/unload: models are opened and closed when somebody says so.
 *
 * Role    scripts that warm a model before it is needed, give its memory back, or put another one under its name.
 * In/Out  {"model", "id", "keep_alive", "force"} to {"model", "state", "vector_id"}; {"model"} to {"model", "state"}.
 * Rules   Only what server.on_demand offers comes and goes: a model that was named at the start stays (409). `id` is
 *         another offered model that is to be what `model` stands for: it must give the same vectors,
 *         by its vector id, or it is refused (409) unless `force` says that this is meant.
 * Memory  request memory. Threads: see server.h.
 * Proof   tests/server/test_on_demand.py. */
#include <stddef.h>
#include <string.h>

#include "base/json_w.h"
#include "server/embedding.h"
#include "server/routes.h"
#include "server/server_internal.h"

static const fl_faults faults = {
    .syntax   = {FL_HTTP_BAD_REQUEST, ""},
    .meaning  = {FL_HTTP_BAD_REQUEST, ""},
    .refusals = {
        [FL_REFUSE_MODEL] = {FL_HTTP_MODEL_NOT_FOUND, "model '{model}' is not offered.{ near}"}}};

static const fl_style style = {&faults, NULL, false};

#define AT(member) offsetof(fl_ask, member)
const fl_field fl_fields_load[] = {
    {"model", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(model), .min = 1},
    {"id", FL_FIELD_STRING, FL_FIELD_NULL, AT(other_id), .min = 1,
     .text = "Another offered model that the name is to refer to."},
    {FL_ASK_KEEP_ALIVE},
    {"force", FL_FIELD_BOOL, FL_FIELD_NULL, AT(force),
     .text = "true: even if its vectors differ from before."},
    {.flags = FL_FIELD_CLOSED}};

const fl_field fl_fields_unload[] = {
    {"model", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(model), .min = 1}, {.flags = FL_FIELD_CLOSED}};

static void answer(fl_http_request *request, const fl_served *served, const char *state,
                   const char *vector_id) {
    fl_json_w w = {.out = &request->reply.body};
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "model", served->name);
    fl_json_w_text(&w, "state", state);
    if (vector_id != NULL)
        fl_json_w_text(&w, "vector_id", vector_id);
    fl_json_w_end(&w);
    fl_reply_json(request, 200);
}

static bool refuse_pinned(fl_http_request *request, const fl_served *served) {
    fl_reply_error(request, FL_HTTP_CONFLICT,
                   "model '%s' was named at startup and stays loaded; only models of "
                   "server.on_demand (--models) can be loaded and unloaded",
                   served->name);
    return false;
}

/* What is to be opened is told, once; false: answered. */
static bool order(fl_job *job) {
    fl_span          id    = job->ask.other_id;
    const fl_served *other = NULL;
    if ((id.data != NULL || job->ask.force == 1) && !fl_api_key_is_admin(job->request->key)) {
        fl_reply_error(job->request, FL_HTTP_PERMISSION_DENIED,
                       "id and force change what a name refers to for all keys: this key is not "
                       "marked admin in server.api_key_file");
        return false;
    }
    if (id.data != NULL) {
        other = id.size > 0 ? fl_server_model(job->request->server, id.data, id.size) : NULL;
        if (other == NULL) {
            fl_reply_error(job->request, FL_HTTP_MODEL_NOT_FOUND, "id: '%.*s' is not offered",
                           (int)(id.size < 200 ? id.size : 200), id.data);
            return false;
        }
        if (job->named->offer == NULL)
            return refuse_pinned(job->request, job->named);
    }
    if (job->named->offer != NULL)
        fl_served_order(job->named, other != NULL ? other->id : NULL, job->ask.force == 1);
    return true;
}

/* Read it, and find the model that it names; NULL: the handler returns. */
static fl_job *begin(fl_http_request *request, const fl_field *fields) {
    fl_job *job = fl_job_parse(request, &style, fields);
    if (job != NULL && job->ask.model.size == 0) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "model: expected a name");
        return NULL;
    }
    if (job == NULL || !fl_job_find(job))
        return NULL;
    return fl_job_model(job) ? job : NULL;
}

static void load(fl_http_request *request) {
    fl_job *job    = begin(request, fl_fields_load);
    char    id[65] = "";
    if (job == NULL)
        return;
    if (job->extra == NULL && !order(job))
        return;
    job->extra = job; /* the order stands */
    if (!fl_job_take(job))
        return;
    if (job->ask.other_id.size > 0 && fl_served_is_refused(job->served)) {
        fl_reply_error(request, FL_HTTP_CONFLICT,
                       "'%.*s' gives different vectors from model '%s' (another vector id): "
                       "nothing was changed; \"force\": true replaces it anyway",
                       (int)job->ask.other_id.size, job->ask.other_id.data, job->served->name);
        return;
    }
    fl_served_vector_id(job->served, id);
    answer(request, job->served, "loaded", id);
}

static void unload(fl_http_request *request) {
    fl_job *job = begin(request, fl_fields_unload);
    if (job == NULL)
        return;
    if (job->served->offer == NULL) {
        (void)refuse_pinned(request, job->served);
        return;
    }
    if (fl_request_unload(request, job->served))
        answer(request, job->served, "closed", NULL);
}

const fl_route fl_routes_load[] = {{"POST", "/models/load", &fl_dialect_plain, load, 0},
                                   {"POST", "/models/unload", &fl_dialect_plain, unload, 0},
                                   {0}};
