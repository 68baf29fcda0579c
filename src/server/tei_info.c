/* SPDX-License-Identifier: Apache-2.0 */
/* tei_info.c - /info and /health of the text-embeddings-inference dialect.
 *
 * Role    clients that size their batches by the server, and probes of existing TEI deployments.
 * In/Out  /info?model=NAME (the first model without it) to TEI's object plus served_model_name,
 *         dimensions, encoder, model_fingerprint and vector_id, by which a vector store can notice another model.
 * Memory  request memory. Threads: any.
 * Proof   tests/server/test_tei.py. */
#include <stdio.h>
#include <string.h>

#include "base/json_w.h"
#include "server/tei.h"

/* As the original has it, "" is null. */
static void put_text(fl_json_w *w, const char *name, const char *value) {
    fl_json_w_text(w, name, value != NULL && value[0] != '\0' ? value : NULL);
}

/* As the original: a model with one label is a reranker. */
static void put_labels(fl_json_w *w, const fl_served *served) {
    char number[16];
    fl_json_w_object(w, served->info.labels == 1 ? "reranker" : "classifier");
    fl_json_w_object(w, "id2label");
    for (uint32_t i = 0; i < served->info.labels; i++) {
        (void)snprintf(number, sizeof number, "%u", i);
        fl_json_w_text(w, number, fletch_label_at(served->model, i));
    }
    fl_json_w_end(w);
    fl_json_w_object(w, "label2id");
    for (uint32_t i = 0; i < served->info.labels; i++)
        fl_json_w_u64(w, fletch_label_at(served->model, i), i);
    fl_json_w_end(w);
    fl_json_w_end(w);
}

/* Beyond TEI's own keys: which network it is and how far it goes. */
static void put_encoder(fl_json_w *w, const fletch_model_info *info) {
    fl_json_w_object(w, "encoder");
    fl_json_w_text(w, "family", info->family);
    fl_json_w_text(w, "features", info->features);
    put_text(w, "task", info->task[0] != '\0' ? info->task : NULL);
    fl_json_w_u64(w, "max_positions", info->positions);
    fl_json_w_u64(w, "layers", info->layers);
    fl_json_w_u64(w, "hidden", info->hidden);
    fl_json_w_u64(w, "heads", info->heads);
    fl_json_w_u64(w, "key_heads", info->key_heads);
    fl_json_w_u64(w, "intermediate", info->intermediate);
    fl_json_w_end(w);
}

static void put_info(fl_http_request *request, const fl_served *served) {
    const fl_server         *server = request->server;
    const fletch_model_info *info   = &served->info;
    char                     id[65];
    bool      refuses = strcmp(fl_server_option(server, "model.truncate"), "error") == 0;
    bool      hub     = strcmp(info->id, served->id) == 0;
    fl_json_w w       = {.out = &request->reply.body};
    fl_json_w_object(&w, NULL);
    put_text(&w, "model_id",
             hub && info->id[0] != '/' && info->id[0] != '.' ? info->id : served->name);
    put_text(&w, "model_sha", info->revision);
    put_text(&w, "model_dtype", strcmp(info->precision, "fp32") == 0 ? "float32" : info->precision);
    put_text(&w, "served_model_name", served->name);
    fl_json_w_object(&w, "model_type");
    if (info->labels > 0) {
        put_labels(&w, served);
    } else {
        fl_json_w_object(&w, "embedding");
        fl_json_w_text(&w, "pooling", info->pooling);
        fl_json_w_end(&w);
    }
    fl_json_w_end(&w);
    fl_json_w_u64(&w, "max_concurrent_requests",
                  fl_server_number(server, "server.max_queue_tokens", 0));
    fl_json_w_u64(&w, "max_input_length", info->max_length);
    fl_json_w_u64(&w, "max_batch_tokens", fl_server_number(server, "batch.max_tokens", 0));
    fl_json_w_u64(&w, "max_batch_requests", fl_server_number(server, "batch.max_texts", 0));
    fl_json_w_u64(&w, "max_client_batch_size", fl_job_texts_max(served));
    fl_json_w_bool(&w, "auto_truncate", !refuses);
    fl_json_w_u64(&w, "tokenization_workers", 1);
    put_text(&w, "version", fletch_version());
    put_text(&w, "sha", NULL);
    put_text(&w, "docker_label", NULL);
    fl_json_w_u64(&w, "dimensions", info->dimensions);
    fl_json_w_text(&w, "head", info->head);
    put_text(&w, "model_fingerprint", served->fingerprint);
    fl_served_vector_id(served, id);
    put_text(&w, "vector_id", id);
    put_encoder(&w, info);
    fl_json_w_end(&w);
}

void fl_tei_info(fl_http_request *request) {
    const char *name   = fl_request_query(request, "model");
    fl_served  *served = fl_server_model(request->server, name, name != NULL ? strlen(name) : 0);
    if (served == NULL && name != NULL && fl_request_look(request))
        return;
    if (served != NULL && !fl_request_take(request, served))
        return;
    if (served == NULL) {
        name = name != NULL ? name : "";
        fl_reply_error(request, FL_HTTP_MODEL_NOT_FOUND, "model `%.200s` not found", name);
        return;
    }
    put_info(request, served);
    fl_reply_json(request, 200);
}

void fl_tei_health(fl_http_request *request) {
    const char *why = NULL;
    if (fl_server_ready(request->server, &why))
        fl_reply_bytes(request, 200, NULL);
    else
        fl_reply_error(request, FL_HTTP_UNAVAILABLE, "%s", why != NULL ? why : "unhealthy");
}
