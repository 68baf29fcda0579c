/* SPDX-License-Identifier: Apache-2.0 */
/* batch_routes.c - /v1/files and /v1/batches, as OpenAI's clients call them.
 *
 * In/Out  A form with a file of requests (multipart.h) in, and its record out; a batch of such a file; pages of both,
 *         the newest first; the bytes of files. Errors are OpenAI's.
 * Method  Records are found under the lock and written into the reply there. A file goes out from its mapping, so that
 *         a large one takes no memory of ours. Without server.batches the routes answer 404 and say how to get them.
 * Rights  An owner (keys.c) sees what is its own: to others it is not there.
 * Memory  request memory; a file that is sent is held as any body is (server.max_body).
 * Threads Workers: files are read and written here.
 * Proof   tests/server/test_batches.py, test_clients.py. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/utf8.h"
#include "server/batches.h"
#include "server/multipart.h"
#include "server/openapi.h"

enum {
    NAME_MAX_BYTES = 255,
    PAGE_FILES     = 10000,
    PAGE_BATCHES   = 100,
    PAGE_USUAL     = 20, /* batches */
    LIFE_MIN       = 3600,
    LIFE_MAX       = 30 * 86400,
    METADATA_MAX   = 16,
    METADATA_KEY   = 64,
    METADATA_VALUE = 512
};

/* ---- What all of them share -------------------------------------------------------------------------- */

/* The batches of the server and who asks; NULL: answered. */
static fl_batches *begin(fl_http_request *request, char owner[FL_OWNER]) {
    if (request->server->batches == NULL) {
        fl_reply_error(
            request, FL_HTTP_NOT_FOUND,
            "this server has no files and batches: start it with --server-batches FOLDER");
        return NULL;
    }
    fl_api_key_owner(request->key, owner);
    return request->server->batches;
}

static void fail(fl_http_request *request, const fletch_error *error) {
    if (error->code == FLETCH_ENOSPC) {
        fl_server_log_line(request->server->log, FL_LEVEL_ERROR, "request %s: %s", request->id,
                           error->message);
        fl_reply_error(request, FL_HTTP_STORE_FULL, "the disk of server.batches is full");
        return;
    }
    fl_reply_fail(request, error);
}

/* The id in the path, in front of what the route itself has behind it; "" for what cannot be one. */
static void id_of(const fl_http_request *request, char out[FL_KEPT_ID]) {
    const char *star = strchr(request->route->path, '*');
    size_t      size = strlen(request->tail) - (star != NULL ? strlen(star + 1) : 0);
    size             = size < FL_KEPT_ID ? size : 0;
    memcpy(out, request->tail, size);
    out[size] = '\0';
}

static fl_kept *find(const fl_http_request *request, const char *owner, bool files) {
    const fl_batches *batches = request->server->batches;
    char              id[FL_KEPT_ID];
    id_of(request, id);
    return fl_kept_find(files ? &batches->files : &batches->batches, owner, id);
}

static void not_found(fl_http_request *request, bool files) {
    fl_reply_error(request, FL_HTTP_NOT_FOUND,
                   files ? "No such File object: %.64s" : "No batch found with id '%.64s'.",
                   request->tail);
}

static void put(fl_json_w *w, const fl_kept *kept, bool files) {
    fl_json_w_object(w, NULL);
    if (files)
        fl_batch_file_put(w, (const fl_batch_file *)kept);
    else
        fl_batch_put(w, (const fl_batch_record *)kept);
    fl_json_w_end(w);
}

static void one(fl_http_request *request, bool files) {
    char        owner[FL_OWNER];
    fl_batches *batches = begin(request, owner);
    if (batches == NULL)
        return;
    fl_batches_lock(batches);
    const fl_kept *kept = find(request, owner, files);
    if (kept != NULL)
        put(&(fl_json_w){.out = &request->reply.body}, kept, files);
    fl_batches_unlock(batches);
    if (kept != NULL)
        fl_reply_json(request, 200);
    else
        not_found(request, files);
}

static void one_file(fl_http_request *request) {
    one(request, true);
}

static void one_batch(fl_http_request *request) {
    one(request, false);
}

/* ---- Pages -------------------------------------------------------------------------------------------- */

typedef struct page {
    const char *after, *purpose; /* NULL: the first; of any */
    size_t      limit;
    bool        ascending;
} page;

static bool read_page(fl_http_request *request, page *out, size_t usual, size_t most) {
    const char *limit  = fl_request_query(request, "limit");
    const char *order  = fl_request_query(request, "order");
    int64_t     wanted = (int64_t)usual;
    out->after         = fl_request_query(request, "after");
    out->purpose       = fl_request_query(request, "purpose");
    if (limit != NULL && (!fl_parse_i64(limit, &wanted) || wanted < 1 || wanted > (int64_t)most)) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "limit: expected a number from 1 to %zu",
                       most);
        return false;
    }
    if (order != NULL && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "order: expected asc or desc");
        return false;
    }
    out->limit     = (size_t)wanted;
    out->ascending = order != NULL && strcmp(order, "asc") == 0;
    return true;
}

/* Ids sort by age, so that `after` holds its place when what it names is gone. */
static bool is_on(const page *p, const fl_kept *kept, const char *owner, bool files) {
    int place = p->after != NULL ? strcmp(kept->id, p->after) : 0;
    if (strcmp(kept->owner, owner) != 0 ||
        (p->after != NULL && (p->ascending ? place <= 0 : place >= 0)))
        return false;
    const char *purpose = files && ((const fl_batch_file *)kept)->output ? "batch_output" : "batch";
    return !files || p->purpose == NULL || strcmp(p->purpose, purpose) == 0;
}

FL_REQUIRES(fl_batches_role)
static void put_page(fl_http_request *request, const fl_kept_list *list, const page *p,
                     const char *owner, bool files) {
    fl_json_w      w     = {.out = &request->reply.body};
    const fl_kept *first = NULL, *last = NULL;
    size_t         count = 0;
    bool           more  = false;
    fl_json_w_object(&w, NULL);
    fl_json_w_text(&w, "object", "list");
    fl_json_w_array(&w, "data");
    for (size_t i = 0; i < list->count; i++) {
        const fl_kept *kept = list->list[p->ascending ? i : list->count - 1 - i];
        if (!is_on(p, kept, owner, files))
            continue;
        if (count == p->limit) {
            more = true;
            break;
        }
        put(&w, kept, files);
        first = first == NULL ? kept : first;
        last  = kept;
        count++;
    }
    fl_json_w_end(&w);
    fl_json_w_text(&w, "first_id", first != NULL ? first->id : NULL);
    fl_json_w_text(&w, "last_id", last != NULL ? last->id : NULL);
    fl_json_w_bool(&w, "has_more", more);
    fl_json_w_end(&w);
}

static void list(fl_http_request *request, bool files) {
    char        owner[FL_OWNER];
    page        p;
    fl_batches *batches = begin(request, owner);
    if (batches != NULL && read_page(request, &p, files ? PAGE_FILES : PAGE_USUAL,
                                     files ? PAGE_FILES : PAGE_BATCHES)) {
        fl_batches_lock(batches);
        put_page(request, files ? &batches->files : &batches->batches, &p, owner, files);
        fl_batches_unlock(batches);
        fl_reply_json(request, 200);
    }
}

static void list_files(fl_http_request *request) {
    list(request, true);
}

static void list_batches(fl_http_request *request) {
    list(request, false);
}

/* ---- Files -------------------------------------------------------------------------------------------- */

typedef struct form {
    fl_span file, filename, purpose, seconds, anchor;
} form;

/* False: answered. */
static bool read_form(fl_http_request *request, form *out) {
    fl_multipart in;
    fl_form_part part;
    bool good = fl_multipart_begin(&in, fl_request_header(request, "content-type"), request->body,
                                   request->body_size);
    while (good && fl_multipart_next(&in, &part)) {
        fl_span *to = fl_span_is(part.name, "file")                     ? &out->file
                      : fl_span_is(part.name, "purpose")                ? &out->purpose
                      : fl_span_is(part.name, "expires_after[seconds]") ? &out->seconds
                      : fl_span_is(part.name, "expires_after[anchor]")  ? &out->anchor
                                                                        : NULL;
        if (to != NULL)
            *to = part.data;
        if (to == &out->file)
            out->filename = part.filename;
    }
    if (in.fault != NULL) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "%s", in.fault);
        return false;
    }
    if (out->file.data == NULL || out->purpose.data == NULL) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "'%s' is a required property",
                       out->file.data == NULL ? "file" : "purpose");
        return false;
    }
    if (!fl_span_is(out->purpose, "batch")) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "purpose: expected batch");
        return false;
    }
    return true;
}

/* A file's time to live in seconds; 0: for ever. */
static bool read_lifetime(fl_http_request *request, const form *sent, int64_t *out) {
    char digits[16] = "";
    *out            = 0;
    if (sent->seconds.data == NULL && sent->anchor.data == NULL)
        return true;
    if (sent->seconds.size < sizeof digits && sent->seconds.data != NULL)
        memcpy(digits, sent->seconds.data, sent->seconds.size);
    if (!fl_span_is(sent->anchor, "created_at") || !fl_parse_i64(digits, out) || *out < LIFE_MIN ||
        *out > LIFE_MAX) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST,
                       "expires_after: expected the anchor created_at and %d to %d seconds",
                       LIFE_MIN, LIFE_MAX);
        return false;
    }
    return true;
}

static char *name_of(fl_span filename) {
    size_t size = filename.size < NAME_MAX_BYTES ? filename.size : NAME_MAX_BYTES;
    char  *name = fl_alloc(size + 1);
    if (name != NULL) {
        memcpy(name, filename.size > 0 ? filename.data : "", size);
        name[size] = '\0';
        fl_utf8_make_printable(name);
    }
    return name;
}

/* The bytes, then the record, then the list. */
static int keep_file(fl_batches *batches, fl_batch_file *file, fl_span bytes, fletch_error *error) {
    char *path   = fl_batches_path(batches, file->kept.id, "jsonl");
    int   status = path != NULL && file->name != NULL
                       ? fl_atomic_put(path, bytes.data, bytes.size, FL_ATOMIC_DURABLE, error)
                       : fl_fail_nomem(error, NAME_MAX_BYTES, "the name of a file");
    if (status == FLETCH_OK) {
        fl_batches_begin(batches);
        status = fl_batch_file_save(batches, file, error);
        if (status == FLETCH_OK && !fl_kept_add(batches, &file->kept))
            status = fl_fail_nomem(error, sizeof(fl_kept *), "the list of files");
        fl_batches_end(batches);
        if (status < 0)
            (void)unlink(path);
    }
    fl_free(path);
    return status;
}

static void upload(fl_http_request *request) {
    char         owner[FL_OWNER];
    form         sent     = {0};
    fletch_error error    = {0};
    int64_t      lifetime = 0;
    fl_batches  *batches  = begin(request, owner);
    if (batches == NULL || !read_form(request, &sent) || !read_lifetime(request, &sent, &lifetime))
        return;
    fl_batch_file *file = fl_alloc_zero(1, sizeof *file);
    if (file == NULL) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return;
    }
    fl_kept_name(&file->kept, "file-", owner);
    file->bytes   = sent.file.size;
    file->expires = lifetime > 0 ? file->kept.created + lifetime : 0;
    file->name    = name_of(sent.filename);
    put(&(fl_json_w){.out = &request->reply.body}, &file->kept,
        true); /* another may delete it soon */
    if (keep_file(batches, file, sent.file, &error) < 0) {
        fl_batch_file_free(file);
        fail(request, &error);
        return;
    }
    fl_reply_json(request, 200);
}

static void unmap(fl_http_request *request) {
    fl_map_close(request->work);
}

static void file_content(fl_http_request *request) {
    char         owner[FL_OWNER];
    fletch_error error   = {0};
    fl_batches  *batches = begin(request, owner);
    fl_map      *map     = batches != NULL ? fl_request_alloc(request, sizeof *map) : NULL;
    if (map == NULL) {
        if (batches != NULL)
            fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return;
    }
    fl_batches_lock(batches);
    const fl_kept *file   = find(request, owner, true);
    char          *path   = file ? fl_batches_path(batches, file->id, "jsonl") : NULL;
    int            status = path != NULL ? fl_map_open(map, path, &error) : FLETCH_ENOTFOUND;
    fl_batches_unlock(batches);
    fl_free(path);
    if (status == FLETCH_ENOTFOUND) { /* no such record, or it is being dropped */
        not_found(request, true);
    } else if (status < 0) {
        fl_reply_error(request, FL_HTTP_INTERNAL, "the bytes of the file cannot be read");
    } else if (map->data == NULL) {
        fl_reply_bytes(request, 200, "application/octet-stream");
    } else {
        request->work    = map;
        request->cleanup = unmap;
        fl_reply_static(request, 200, "application/octet-stream", map->data, map->size);
    }
}

static void delete_file(fl_http_request *request) {
    char                   owner[FL_OWNER];
    fletch_error           error   = {0};
    fl_json_w              w       = {.out = &request->reply.body};
    fl_batches            *batches = begin(request, owner);
    int                    status  = FLETCH_ENOTFOUND;
    const fl_batch_record *reader  = NULL;
    if (batches == NULL)
        return;
    fl_batches_begin(batches);
    fl_batch_file *file = (fl_batch_file *)(void *)find(request, owner, true);
    if (file != NULL) {
        fl_json_w_object(&w, NULL);
        fl_json_w_text(&w, "id", file->kept.id);
        fl_json_w_text(&w, "object", "file");
        fl_json_w_bool(&w, "deleted", true);
        fl_json_w_end(&w);
        reader = fl_batch_reading(batches, file->kept.id);
        status = reader == NULL ? fl_batch_file_drop(batches, file, &error) : FLETCH_EBUSY;
    }
    fl_batches_end(batches);
    if (file == NULL) {
        not_found(request, true);
    } else if (reader != NULL) {
        fl_reply_error(request, FL_HTTP_CONFLICT,
                       "the file is the input of %s, which is still running; cancel that first",
                       reader->kept.id);
    } else if (status < 0) {
        fail(request, &error);
    } else {
        fl_reply_json(request, 200);
    }
}

/* ---- Batches ------------------------------------------------------------------------------------------ */

typedef struct wanted {
    fl_span input, window, metadata;
    int     endpoint, anchor;
    int64_t seconds;
} wanted;

#define AT(member) offsetof(wanted, member)
static const fl_field expiry_fields[] = {
    {"anchor", FL_FIELD_WORD, FL_FIELD_REQUIRED, AT(anchor), .words = "created_at"},
    {"seconds", FL_FIELD_INT, FL_FIELD_REQUIRED, AT(seconds), .min = LIFE_MIN, .max = LIFE_MAX},
    {0}};

const fl_field fl_fields_batch[] = {
    {"input_file_id", FL_FIELD_STRING, FL_FIELD_REQUIRED, AT(input), .min = 1,
     .text = "A file of requests, one per line, uploaded to /v1/files."},
    {"endpoint", FL_FIELD_WORD, FL_FIELD_REQUIRED, AT(endpoint), .words = "/v1/embeddings",
     .text = "The endpoint of all requests."},
    {"completion_window", FL_FIELD_RAW, FL_FIELD_REQUIRED, AT(window),
     .words = "\"type\":\"string\",\"pattern\":\"^[1-9][0-9]{0,2}[smhd]$\"",
     .text  = "When the batch expires: 24h, or another number of s, m, h or d."},
    {"metadata", FL_FIELD_RAW, FL_FIELD_NULL, AT(metadata),
     .words = "\"type\":[\"object\",\"null\"],\"maxProperties\":16,\"propertyNames\":{"
              "\"maxLength\":64},\"additionalProperties\":{\"type\":\"string\",\"maxLength\":512}",
     .text  = "Up to 16 strings by name, kept with the batch."},
    {"output_expires_after", FL_FIELD_INNER, FL_FIELD_NULL, 0, .inner = expiry_fields,
     .text = "When its files are removed."},
    {0}};

/* "24h" of the quoted text, as seconds; 0: it is not one to three digits and a unit. */
static int64_t seconds_of(fl_span raw, char window[16]) {
    static const struct {
        char    unit;
        int64_t seconds;
    } units[]      = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    int64_t number = 0;
    size_t  digits = raw.size > 3 && raw.size < 7 && raw.data[1] != '0' ? raw.size - 3 : 0;
    for (size_t i = 1; i <= digits; i++) {
        if (raw.data[i] < '0' || raw.data[i] > '9')
            return 0;
        number = number * 10 + (raw.data[i] - '0');
    }
    for (size_t i = 0; digits > 0 && i < sizeof units / sizeof units[0]; i++) {
        if (raw.data[digits + 1] == units[i].unit) {
            (void)snprintf(window, 16, "%lld%c", (long long)number, units[i].unit);
            return number * units[i].seconds;
        }
    }
    return 0;
}

/* Whether it is what the schema says. The text is decoded in place. */
static bool is_metadata(fl_span raw) {
    fl_json_in in;
    fl_span    key, value;
    size_t     count = 0;
    fl_json_in_again(&in, (char *)(uintptr_t)raw.data, raw.size);
    bool good = fl_json_in_enter(&in, FL_JSON_OBJECT);
    while (good && fl_json_in_key(&in, &key)) {
        size_t name = fl_utf8_count(key.data, key.size);
        good = fl_json_in_string(&in, &value) && ++count <= METADATA_MAX && name <= METADATA_KEY &&
               fl_utf8_count(value.data, value.size) <= METADATA_VALUE;
    }
    return good && fl_json_in_end(&in);
}

/* False: answered. */
static bool read_wanted(fl_http_request *request, wanted *ask, fl_batch_record *batch) {
    fl_json_in in;
    fl_buf     metadata = {0};
    if (!fl_fields_read(request, &in, fl_fields_batch, ask)) {
        fl_reply_error(request, FL_HTTP_BAD_REQUEST, "%s at line %zu column %zu", in.message,
                       in.line, in.column);
        return false;
    }
    int64_t seconds = seconds_of(ask->window, batch->window);
    if (seconds == 0) {
        fl_reply_error(
            request, FL_HTTP_BAD_REQUEST,
            "completion_window: expected 24h, or another number (1 to 999) of s, m, h or d");
        return false;
    }
    if (ask->metadata.data != NULL) {
        fl_json_compact(&metadata, ask->metadata.data, ask->metadata.size);
        batch->metadata = fl_buf_take(&metadata);
        if (batch->metadata == NULL || !is_metadata(ask->metadata)) {
            fl_reply_error(request, FL_HTTP_BAD_REQUEST,
                           "metadata: expected an object of at most %d strings of at most %d "
                           "characters, with names of at most %d",
                           METADATA_MAX, METADATA_VALUE, METADATA_KEY);
            return false;
        }
    }
    batch->expires  = batch->kept.created + seconds;
    batch->lifetime = ask->seconds;
    return true;
}

/* Of a file that is there. */
FL_REQUIRES(fl_writing_role)
static int keep_batch(fl_batches *batches, fl_batch_record *batch, const fl_batch_file *file,
                      fletch_error *error) {
    memcpy(batch->input, file->kept.id, sizeof batch->input);
    for (size_t i = 0; i < FL_BATCH_OUTPUTS; i++) {
        fl_kept output = {0};
        fl_kept_name(&output, "file-", batch->kept.owner);
        memcpy(batch->output[i], output.id, FL_KEPT_ID);
    }
    FL_TRY(fl_batch_become(batches, batch, batch, error));
    if (!fl_kept_add(batches, &batch->kept))
        return fl_fail_nomem(error, sizeof(fl_kept *), "the list of batches");
    fl_batches_tell(batches);
    return FLETCH_OK;
}

static void create(fl_http_request *request) {
    char             owner[FL_OWNER], id[FL_KEPT_ID] = "";
    wanted           ask     = {0};
    fletch_error     error   = {0};
    fl_batches      *batches = begin(request, owner);
    fl_batch_record *batch   = batches != NULL ? fl_alloc_zero(1, sizeof *batch) : NULL;
    if (batch == NULL) {
        if (batches != NULL)
            fl_reply_error(request, FL_HTTP_INTERNAL, "out of memory");
        return;
    }
    fl_kept_name(&batch->kept, "batch_", owner);
    fl_batch_enter(batch, FL_BATCH_VALIDATING);
    if (!read_wanted(request, &ask, batch)) {
        fl_batch_free(batch);
        return;
    }
    memcpy(id, ask.input.data, ask.input.size < sizeof id ? ask.input.size : 0);
    fl_batches_begin(batches);
    const fl_kept *file = fl_kept_find(&batches->files, owner, id);
    int status = file != NULL ? keep_batch(batches, batch, (const fl_batch_file *)file, &error)
                              : FLETCH_ENOTFOUND;
    if (status == FLETCH_OK)
        put(&(fl_json_w){.out = &request->reply.body}, &batch->kept, false);
    fl_batches_end(batches);
    if (status == FLETCH_OK) {
        fl_reply_json(request, 200);
        return;
    }
    fl_batch_free(batch);
    if (file == NULL) {
        fl_reply_error(request, FL_HTTP_NOT_FOUND, "input_file_id: No such File object: %.*s",
                       (int)(ask.input.size < 64 ? ask.input.size : 64), ask.input.data);
    } else {
        fail(request, &error);
    }
}

/* What runs is finished, what has not begun is answered as cancelled; then the batch is. */
static void cancel(fl_http_request *request) {
    char         owner[FL_OWNER];
    fletch_error error   = {0};
    fl_batches  *batches = begin(request, owner);
    int          status  = FLETCH_OK;
    bool         late    = false;
    if (batches == NULL)
        return;
    fl_batches_begin(batches);
    fl_batch_record *batch = (fl_batch_record *)(void *)find(request, owner, false);
    fl_batch_status  was   = batch != NULL ? batch->status : FL_BATCH_FAILED;
    if (was == FL_BATCH_VALIDATING || was == FL_BATCH_IN_PROGRESS) {
        fl_batch_record next = *batch;
        fl_batch_enter(&next, FL_BATCH_CANCELLING);
        status = fl_batch_become(batches, batch, &next, &error);
        fl_batches_tell(batches);
    } else {
        late = was != FL_BATCH_CANCELLING;
    }
    if (batch != NULL)
        put(&(fl_json_w){.out = &request->reply.body}, &batch->kept, false);
    fl_batches_end(batches);
    if (batch == NULL) {
        not_found(request, false);
    } else if (late) {
        fl_reply_error(request, FL_HTTP_CONFLICT, "Cannot cancel a batch with status '%s'.",
                       fl_batch_words[was]);
    } else if (status < 0) {
        fail(request, &error);
    } else {
        fl_reply_json(request, 200);
    }
}

#define DIALECT &fl_dialect_openai
const fl_route fl_routes_batches[] = {
    {"POST", "/v1/files", DIALECT, upload, FL_ROUTE_BLOCKING},
    {"GET", "/v1/files", DIALECT, list_files, FL_ROUTE_BLOCKING},
    {"GET", "/v1/files/*/content", DIALECT, file_content, FL_ROUTE_BLOCKING | FL_ROUTE_PREFIX},
    {"GET", "/v1/files/", DIALECT, one_file, FL_ROUTE_BLOCKING | FL_ROUTE_PREFIX},
    {"DELETE", "/v1/files/", DIALECT, delete_file, FL_ROUTE_BLOCKING | FL_ROUTE_PREFIX},
    {"POST", "/v1/batches", DIALECT, create, FL_ROUTE_BLOCKING},
    {"GET", "/v1/batches", DIALECT, list_batches, FL_ROUTE_BLOCKING},
    {"POST", "/v1/batches/*/cancel", DIALECT, cancel, FL_ROUTE_BLOCKING | FL_ROUTE_PREFIX},
    {"GET", "/v1/batches/", DIALECT, one_batch, FL_ROUTE_BLOCKING | FL_ROUTE_PREFIX},
    {0}};
