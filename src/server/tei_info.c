/* SPDX-License-Identifier: Apache-2.0 */
/* tei_info.c - /info and /health of the text-embeddings-inference dialect.
 *
 * Role    clients that size their batches by the server, and probes of existing TEI deployments.
 * In/Out  /info?model=NAME (the first model without it) to TEI's object plus served_model_name,
 *         dimensions and model_fingerprint, by which a vector store can notice another model.
 * Memory  request memory. Threads: any.
 * Proof   tests/server/test_tei.py. */
#include <inttypes.h>
#include <string.h>

#include "server/tei.h"

static void put_text(fl_buf *body, const char *name, const char *value) {
    fl_buf_printf(body, "\"%s\":", name);
    if (value == NULL || value[0] == '\0') {
        fl_buf_puts(body, "null,");
        return;
    }
    fl_json_quote(body, value, strlen(value));
    fl_buf_puts(body, ",");
}

static void put_number(fl_buf *body, const char *name, uint64_t value) {
    fl_buf_printf(body, "\"%s\":%" PRIu64 ",", name, value);
}

static void put_info(fl_request *request, const fl_served *served) {
    const fl_server *server    = request->server;
    fl_buf          *body      = &request->reply.body;
    const char      *id        = fl_served_property(served, "id");
    const char      *pooling   = fl_served_property(served, "pooling");
    const char      *precision = fl_served_property(served, "precision");
    bool             refuses   = strcmp(fl_server_option(server, "model.truncate"), "error") == 0;
    fl_buf_puts(body, "{");
    bool hub = id != NULL && strcmp(id, served->id) == 0;
    put_text(body, "model_id", hub && id[0] != '/' && id[0] != '.' ? id : served->name);
    put_text(body, "model_sha", fl_served_property(served, "revision"));
    put_text(body, "model_dtype",
             precision == NULL || strcmp(precision, "fp32") == 0 ? "float32" : precision);
    put_text(body, "served_model_name", served->name);
    fl_buf_puts(body, "\"model_type\":{\"embedding\":{\"pooling\":");
    fl_json_quote(body, pooling != NULL ? pooling : "mean",
                  strlen(pooling != NULL ? pooling : "mean"));
    fl_buf_puts(body, "}},");
    put_number(body, "max_concurrent_requests",
               fl_server_number(server, "server.max_queue_tokens", 0));
    put_number(body, "max_input_length", served->max_length);
    put_number(body, "max_batch_tokens", fl_server_number(server, "batch.max_tokens", 0));
    put_number(body, "max_batch_requests", fl_server_number(server, "batch.max_texts", 0));
    put_number(body, "max_client_batch_size", fl_job_texts_max(served));
    fl_buf_printf(body, "\"auto_truncate\":%s,", refuses ? "false" : "true");
    put_number(body, "tokenization_workers", 1);
    put_text(body, "version", fletch_version());
    put_text(body, "sha", NULL);
    put_text(body, "docker_label", NULL);
    put_number(body, "dimensions", served->dimensions);
    put_text(body, "model_fingerprint", served->fingerprint);
    body->size--; /* the last comma */
    fl_buf_puts(body, "}");
}

void fl_tei_info(fl_request *request) {
    const char      *name = fl_request_query(request, "model");
    const fl_served *served =
        fl_server_model(request->server, name, name != NULL ? strlen(name) : 0);
    if (served == NULL) {
        fl_reply_error(request, 404, "validation", "model `%.200s` not found", name);
        return;
    }
    put_info(request, served);
    fl_reply_json(request, 200);
}

void fl_tei_health(fl_request *request) {
    const char *why = NULL;
    if (fl_server_ready(request->server, &why)) {
        fl_reply_bytes(request, 200, NULL);
    } else {
        fl_reply_error(request, 503, "unavailable", "%s", why != NULL ? why : "unhealthy");
    }
}
