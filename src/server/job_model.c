/* SPDX-License-Identifier: Apache-2.0 */
/* job_model.c - the model that a body names: found, opened where that is due, held to the request's end.
 *
 * Role    and In/Out: embedding.h. Between a body that was read and whatever a route does with its model.
 * Method  A handler that is told to return runs again when its model is open, with the same job: bodies are read in
 *         place, so once.
 * Memory  request memory. Threads: the handler's.
 * Proof   tests/server/test_on_demand.py. */
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "server/embedding.h"

bool fl_job_find(fl_job *job) {
    fl_span name = job->ask.model;
    fl_span keep = job->ask.keep_alive;
    if (keep.data != NULL && !fl_keep_alive_parse(keep.data, keep.size, &job->keep_ns)) {
        fl_job_refuse(job, FL_REFUSE_HEADER, FLETCH_NOWHERE,
                      "keep_alive: expected seconds, a duration such as \"5m\", 0, or -1");
        return false;
    }
    job->named = fl_server_model(job->request->server, name.data, name.size);
    return job->named != NULL || name.size == 0 || !fl_request_look(job->request);
}

bool fl_job_take(fl_job *job) {
    if (job->named == NULL)
        return true;
    bool taken = fl_request_take(job->request, job->named);
    if (taken && job->ask.keep_alive.data != NULL)
        fl_served_keep(job->named, job->keep_ns);
    return taken;
}

fl_job *fl_job_read(fl_http_request *request, const fl_style *style, const fl_field *fields) {
    fl_job *job = fl_job_parse(request, style, fields);
    return job != NULL && fl_job_find(job) && fl_job_take(job) ? job : NULL;
}

/* The name nearest to what was asked for; NULL: none is near. */
static const char *nearest(const fl_server *server, fl_span name) {
    const fl_served *served;
    char             wanted[64];
    (void)snprintf(wanted, sizeof wanted, "%.*s", (int)(name.size < 63 ? name.size : 63),
                   name.data);
    fl_nearest near = fl_nearest_start(wanted);
    for (size_t i = 0; (served = fl_server_record_at(server, i)) != NULL; i++) {
        const char *slash = strrchr(served->name, '/');
        fl_nearest_see(&near, served->name);
        if (slash != NULL)
            fl_nearest_see_as(&near, slash + 1, served->name);
    }
    return near.name;
}

const char *fl_job_near(fl_job *job, const char *before) {
    static const char none[] = "Name a model: this server opens models on demand.";
    fl_span           name   = job->ask.model;
    const char       *near   = name.size > 0 ? nearest(job->request->server, name) : NULL;
    const char       *said   = near != NULL ? near : none;
    size_t            size   = strlen(before) + strlen(said) + sizeof "Did you mean ``?";
    char             *text   = fl_request_alloc(job->request, size);
    if (text == NULL || (near == NULL && name.size > 0))
        return "";
    (void)snprintf(text, size, near != NULL ? "%sDid you mean `%s`?" : "%s%s", before, said);
    return text;
}

bool fl_job_model(fl_job *job) {
    job->served = job->named;
    if (job->served == NULL)
        fl_job_refuse(job, FL_REFUSE_MODEL, FLETCH_NOWHERE, "no model of this name is loaded");
    return job->served != NULL;
}
