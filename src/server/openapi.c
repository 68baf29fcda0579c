/* SPDX-License-Identifier: Apache-2.0 */
/* openapi.c - /openapi.json: the routes of this server with the bounds of the models it has loaded.
 *
 * Role    people who write clients, generators of clients, and a fuzzer in the tests that holds the server to
 *         every word of it.
 * Method  Written anew for each request from what the server itself reads by: the route tables, the field
 *         tables of the dialects (fields.h), and the loaded models (dimensions, vocabulary, prompts, names).
 *         Only answers are described here by hand. A route without a description shows up as
 *         "x-undescribed", which a test refuses.
 * Memory  the reply's buffer. Threads: any; reads only.
 * Proof   tests/server/test_openapi.py (schemathesis). */
#include "server/openapi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/embedding.h"

/* What the schemas depend on. */
typedef struct facts {
    const fl_server *server;
    fl_buf          *out;
    size_t           models, dimensions, vocabulary;
    bool             dense, sparse, colbert; /* some model gives it */
    bool             more;                   /* there are others that are not open */
    fl_buf           names;                  /* "a","b" */
    fl_buf           prompts;                /* "query","passage" */
} facts;

/* ---- Facts of the loaded models ---------------------------------------------------------------- */

static void gather_prompts(facts *f, const fl_served *served) {
    const fletch_prompt *prompt;
    for (size_t i = 0; (prompt = fletch_prompt_at(served->model, i)) != NULL; i++) {
        fl_buf_puts(&f->prompts, f->prompts.size > 0 ? "," : "");
        fl_json_quote(&f->prompts, prompt->name, strlen(prompt->name));
    }
}

static void gather(facts *f) {
    fl_served *served;
    for (size_t i = 0; (served = fl_models_next(f->server, &i)) != NULL; fl_served_drop(served)) {
        fl_buf_puts(&f->names, f->models > 0 ? "," : "");
        f->models++;
        fl_json_quote(&f->names, served->name, strlen(served->name));
        size_t size = served->info.dimensions, ids = served->info.vocabulary;
        f->dimensions = size > f->dimensions ? size : f->dimensions;
        f->vocabulary = ids > f->vocabulary ? ids : f->vocabulary;
        f->dense      = f->dense || strcmp(served->info.head, "embedding") == 0;
        f->sparse     = f->sparse || served->info.sparse > 0;
        f->colbert    = f->colbert || served->info.colbert > 0;
        gather_prompts(f, served);
    }
}

/* ---- Fields ------------------------------------------------------------------------------------ */

/* "a|b" as "a","b". */
static void put_words(fl_buf *out, const char *words) {
    for (const char *word = words;;) {
        const char *end = word + strcspn(word, "|");
        fl_json_quote(out, word, (size_t)(end - word));
        if (*end == '\0')
            return;
        fl_buf_puts(out, ",");
        word = end + 1;
    }
}

static void put_input(facts *f, unsigned forms) {
    const char *text  = (forms & FL_INPUT_NOTHING) != 0 ? "{\"type\":\"string\"}"
                                                        : "{\"type\":\"string\",\"minLength\":1}";
    int         least = (forms & FL_INPUT_NO_ITEMS) != 0 ? 0 : 1;
    char        id[96];
    const char *comma = "";
    (void)snprintf(id, sizeof id, "{\"type\":\"integer\",\"minimum\":0,\"maximum\":%zu}",
                   f->vocabulary > 0 ? f->vocabulary - 1 : 0);
    fl_buf_puts(f->out, "\"anyOf\":[");
    if ((forms & FL_INPUT_NESTED) != 0) {
        fl_buf_printf(f->out,
                      "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"array\","
                      "\"items\":%s,\"minItems\":1}}",
                      text);
    }
    if ((forms & FL_INPUT_TEXT) != 0) {
        fl_buf_puts(f->out, text);
        comma = ",";
    }
    if ((forms & FL_INPUT_OBJECTS) != 0) {
        fl_buf_printf(f->out,
                      "{\"type\":\"array\",\"items\":{\"anyOf\":[%s,{\"type\":\"object\","
                      "\"required\":[\"text\"],\"properties\":{\"text\":%s}}]},\"minItems\":%d}",
                      text, text, least);
        comma = ",";
    } else if ((forms & FL_INPUT_TEXTS) != 0) {
        fl_buf_printf(f->out, "%s{\"type\":\"array\",\"items\":%s,\"minItems\":%d}", comma, text,
                      least);
        comma = ",";
    }
    if ((forms & FL_INPUT_IDS) != 0) {
        fl_buf_printf(f->out, "%s{\"type\":\"array\",\"items\":%s,\"minItems\":1}", comma, id);
        comma = ",";
    }
    if ((forms & FL_INPUT_ID_LISTS) != 0) {
        fl_buf_printf(
            f->out,
            "%s{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"array\",\"items\":%s,"
            "\"minItems\":1}}",
            comma, id);
    }
    if ((forms & FL_INPUT_MIXED) != 0) {
        fl_buf_printf(f->out,
                      ",{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[%s,{"
                      "\"type\":\"array\",\"items\":%s,\"minItems\":1}]}}",
                      text, id);
    }
    fl_buf_puts(f->out, "]");
}

/* A string that may only be one of a list; `any` when there is no list to keep to. */
static void put_choice(facts *f, const fl_buf *list, bool null, bool any) {
    if (any) {
        fl_buf_puts(f->out, null ? "\"type\":[\"string\",\"null\"]" : "\"type\":\"string\"");
        return;
    }
    fl_buf_puts(f->out, "\"enum\":[");
    fl_buf_append(f->out, list->data, list->size);
    fl_buf_puts(f->out, null ? (list->size > 0 ? ",null]" : "null]") : "]");
}

static void put_int(facts *f, const fl_field *field, const char *type) {
    bool    dimensions = strstr(field->name, "dimension") != NULL && field->min >= 0;
    int64_t min        = dimensions ? 1 : field->min;
    int64_t max        = dimensions ? (int64_t)f->dimensions : field->max;
    fl_buf_printf(f->out, "\"type\":%s,\"minimum\":%" PRId64 ",\"maximum\":%" PRId64, type, min,
                  max);
}

/* A text, a list of it, a pair, and lists of the last two. A text of a pair may be empty. */
static void put_pairs(facts *f) {
    fl_buf_puts(f->out, "\"anyOf\":[{\"type\":\"string\",\"minLength\":1}");
    for (int i = 0; i < 4; i++) {
        int count = 1 + i % 2;
        fl_buf_puts(f->out, i < 2 ? "," : ",{\"type\":\"array\",\"minItems\":1,\"items\":");
        fl_buf_printf(f->out,
                      "{\"type\":\"array\",\"minItems\":%d,\"maxItems\":%d,\"items\":{\"type\":"
                      "\"string\",\"minLength\":%d}}%s",
                      count, count, 2 - count, i < 2 ? "" : "}");
    }
    fl_buf_puts(f->out, "]");
}

/* A regular expression of the numbers from 1 to `most`, digit for digit: 1 to 384 are [1-9][0-9]{0,1}, [1-2][0-9]{2},
 * 3[0-7][0-9]{1}, 38[0-3] and 384. */
static void put_numbers(fl_buf *out, size_t most) {
    char digits[24];
    int  size = snprintf(digits, sizeof digits, "%zu", most);
    if (size > 1)
        fl_buf_printf(out, "[1-9][0-9]{0,%d}|", size - 2);
    for (int i = 0; i < size; i++) {
        if (digits[i] > (i == 0 ? '1' : '0')) {
            fl_buf_printf(out, "%.*s[%d-%c][0-9]{%d}|", i, digits, i == 0, digits[i] - 1,
                          size - 1 - i);
        }
    }
    fl_buf_append(out, digits, (size_t)size);
}

/* Names of outputs (fletch_output_parse) that the loaded models give. */
static void put_outputs(facts *f, bool null) {
    fl_buf_puts(f->out, null ? "\"type\":[\"array\",\"null\"]" : "\"type\":\"array\"");
    fl_buf_printf(f->out,
                  ",\"minItems\":1,\"maxItems\":%d,\"uniqueItems\":true,\"items\":{\"type\":"
                  "\"string\",\"pattern\":\"^(tokens",
                  FL_OUTPUTS_MAX);
    if (f->dense) {
        fl_buf_puts(f->out, "|dense(:(");
        put_numbers(f->out, f->dimensions);
        fl_buf_puts(f->out, "))?(:(float32|int8|uint8|binary|ubinary))?");
    }
    fl_buf_puts(f->out, f->sparse ? "|sparse" : "");
    fl_buf_puts(f->out, f->colbert ? "|colbert)$\"}" : ")$\"}");
}

static void put_object(facts *f, const fl_field *fields, bool null);

static void put_field(facts *f, const fl_field *field) {
    bool null = (field->flags & FL_FIELD_NULL) != 0;
    fl_buf_puts(f->out, "{");
    switch (field->type) {
    case FL_FIELD_STRING:
        if (strcmp(field->name, "prompt_name") == 0) {
            put_choice(f, &f->prompts, null, false);
        } else {
            put_choice(f, &f->names, null,
                       strcmp(field->name, "model") != 0 || f->models < 2 || f->more);
            fl_buf_puts(f->out, field->min > 0 ? ",\"minLength\":1" : "");
        }
        break;
    case FL_FIELD_BOOL:
        fl_buf_puts(f->out, null ? "\"type\":[\"boolean\",\"null\"]" : "\"type\":\"boolean\"");
        break;
    case FL_FIELD_INT: put_int(f, field, null ? "[\"integer\",\"null\"]" : "\"integer\""); break;
    case FL_FIELD_WORD:
        fl_buf_puts(f->out, "\"enum\":[");
        put_words(f->out, field->words);
        fl_buf_puts(f->out, null ? ",null]" : "]");
        break;
    case FL_FIELD_WORDS:
        fl_buf_puts(f->out, null ? "\"type\":[\"array\",\"null\"]" : "\"type\":\"array\"");
        fl_buf_puts(f->out, ",\"items\":{\"enum\":[");
        put_words(f->out, field->words);
        fl_buf_puts(f->out, "]}");
        break;
    case FL_FIELD_INPUT:
        if (strcmp(field->name, "outputs") == 0) {
            put_outputs(f, null);
            break;
        }
        put_input(f, field->forms);
        if (null) { /* absent and null are the same: one more branch */
            f->out->size--;
            fl_buf_puts(f->out, ",{\"type\":\"null\"}]");
        }
        break;
    case FL_FIELD_INNER: put_object(f, field->inner, null); break;
    case FL_FIELD_PAIRS: put_pairs(f); break;
    case FL_FIELD_ANY: break;
    case FL_FIELD_RAW:
        fl_buf_puts(f->out, field->words);
        if (strcmp(field->name, "vector") == 0) {
            const fl_served *first = fl_server_model_at(f->server, 0);
            size_t           size  = first != NULL ? first->info.dimensions : 0;
            fl_buf_printf(f->out, ",\"minItems\":%zu,\"maxItems\":%zu", size, size);
        }
        break;
    }
    if (field->text != NULL) {
        fl_buf_puts(f->out, f->out->data[f->out->size - 1] == '{' ? "" : ",");
        fl_buf_puts(f->out, "\"description\":");
        fl_json_quote(f->out, field->text, strlen(field->text));
    }
    fl_buf_puts(f->out, "}");
}

/* The inside of a schema: fields that are not in the table are ignored, so allowed, unless the table is closed. */
static void put_object(facts *f, const fl_field *fields, bool null) {
    fl_buf_puts(f->out, null ? "\"type\":[\"object\",\"null\"]" : "\"type\":\"object\"");
    const char *comma = "";
    fl_buf_puts(f->out, ",\"required\":[");
    for (size_t i = 0; fields[i].name != NULL; i++) {
        if ((fields[i].flags & FL_FIELD_REQUIRED) != 0) {
            fl_buf_printf(f->out, "%s\"%s\"", comma, fields[i].name);
            comma = ",";
        }
    }
    fl_buf_puts(f->out, "],\"properties\":{");
    size_t count = 0;
    for (; fields[count].name != NULL; count++) {
        fl_buf_printf(f->out, "%s\"%s\":", count > 0 ? "," : "", fields[count].name);
        put_field(f, &fields[count]);
    }
    bool closed = (fields[count].flags & FL_FIELD_CLOSED) != 0;
    fl_buf_puts(f->out, closed ? "},\"additionalProperties\":false" : "}");
}

/* ---- Operations -------------------------------------------------------------------------------- */

/* The headers that every embedding route takes for a body that is silent. */
static void put_headers(facts *f) {
    for (size_t i = 0; i < FL_ASK_HEADERS; i++) {
        fl_buf_printf(f->out, "%s{\"name\":\"%s\",\"in\":\"header\",\"schema\":{\"enum\":[",
                      i > 0 ? "," : "", fl_ask_headers[i].name);
        put_words(f->out, fl_ask_headers[i].words);
        fl_buf_puts(f->out, "]}}");
    }
    if (f->prompts.size > 0) {
        fl_buf_puts(f->out, ",{\"name\":\"x-fletch-prompt-name\",\"in\":\"header\",\"schema\":{"
                            "\"enum\":[");
        fl_buf_append(f->out, f->prompts.data, f->prompts.size);
        fl_buf_puts(f->out, "]}}");
    }
}

static void put_parameters(facts *f, const fl_operation *op) {
    fl_buf_puts(f->out, ",\"parameters\":[");
    if (op->parameters != NULL)
        fl_buf_puts(f->out, op->parameters);
    if (op->embeds)
        put_headers(f);
    fl_buf_puts(f->out, "]");
}

static bool has_body(const fl_operation *op) {
    return op->fields != NULL || op->rule != NULL;
}

static void put_body(facts *f, const fl_operation *op) {
    if (!has_body(op))
        return;
    fl_buf_printf(f->out, ",\"requestBody\":{\"required\":true,\"content\":{\"%s\":{\"schema\":{",
                  op->fields != NULL ? "application/json" : "multipart/form-data");
    if (op->fields != NULL)
        put_object(f, op->fields, false);
    if (op->rule != NULL)
        fl_buf_printf(f->out, "%s%s", op->fields != NULL ? "," : "", op->rule);
    fl_buf_puts(f->out, "}}}}");
}

static void put_content(fl_buf *out, const char *type, const char *schema) {
    fl_buf_printf(out, "\"%s\":{\"schema\":%s}", type, schema);
}

/* `types` as of fl_operation.type: "text/html, text/plain" is two entries. */
static void put_types(fl_buf *out, const char *types, const char *schema) {
    const char *comma;
    while ((comma = strstr(types, ", ")) != NULL) {
        fl_buf_printf(out, "\"%.*s\":{\"schema\":%s},", (int)(comma - types), types, schema);
        types = comma + 2;
    }
    put_content(out, types, schema);
}

/* What was added can be read and dropped: by this a reader of the document finds ids that are there. */
static const char item_links[] =
    ",\"links\":{\"read\":{\"operationId\":\"get_items_id\",\"parameters\":{\"id\":"
    "\"$response.body#/ids/0\"}},\"drop\":{\"operationId\":\"delete_items_id\",\"parameters\":{"
    "\"id\":\"$response.body#/ids/0\"}}}";

/* The id is what follows the path, not what stands in it. */
static bool has_open_end(const fl_route *route) {
    return (route->flags & FL_ROUTE_PREFIX) != 0 && strchr(route->path, '*') == NULL;
}

/* "get_v1_models_id" */
static void put_operation_id(facts *f, const char *method, const fl_route *route) {
    fl_buf_printf(f->out, "\"operationId\":\"%s", method);
    for (const char *at = route->path; *at != '\0'; at++) {
        bool plain = (*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9');
        if (*at == '*')
            fl_buf_puts(f->out, "id");
        else
            fl_buf_putc(f->out, plain ? *at : '_');
    }
    fl_buf_puts(f->out, has_open_end(route) ? "id\"," : "\",");
}

/* The answer of 200; embedding routes can also give the rows alone. */
static void put_good(facts *f, const fl_operation *op) {
    fl_buf_puts(f->out, "\"200\":{\"description\":\"done\"");
    if (op->good != NULL) {
        fl_buf_puts(f->out, ",\"content\":{");
        put_types(f->out, op->type != NULL ? op->type : "application/json", op->good);
        if (op->embeds) {
            fl_buf_puts(f->out, ",");
            put_content(f->out, "application/octet-stream",
                        "{\"type\":\"string\",\"format\":\"binary\"}");
        }
        fl_buf_puts(f->out, "}");
    }
    fl_buf_puts(f->out, strcmp(op->path, "/add") == 0 ? item_links : "");
    fl_buf_puts(f->out, "}");
}

/* One entry of "responses"; the transport's statuses have the dialect's words as well. */
static void put_error(facts *f, const fl_route *route, int status) {
    bool tei  = strcmp(route->dialect->name, "tei") == 0;
    bool bare = tei && (status == 401 || status == 404);
    fl_buf_printf(f->out, ",\"%d\":{\"description\":\"refused\"", status);
    if (!bare) {
        char schema[64];
        (void)snprintf(schema, sizeof schema, "{\"$ref\":\"#/components/schemas/%s_error\"}",
                       route->dialect->name);
        fl_buf_puts(f->out, ",\"content\":{");
        put_content(f->out, "application/json", schema);
        if (tei) {
            fl_buf_puts(f->out, ",");
            put_content(f->out, "text/plain", "{\"type\":\"string\"}");
        }
        fl_buf_puts(f->out, "}");
    }
    fl_buf_puts(f->out, "}");
}

static void put_responses(facts *f, const fl_route *route, const fl_operation *op) {
    static const int always[] = {400, 401, 403, 404, 405, 408, 414, 429, 431, 500, 503};
    static const int body[]   = {411, 413, 415, 417, 422, 424, 499, 504};
    fl_buf_puts(f->out, ",\"responses\":{");
    put_good(f, op);
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        put_error(f, route, always[i]);
    for (size_t i = 0; has_body(op) && i < sizeof body / sizeof body[0]; i++)
        put_error(f, route, body[i]);
    bool batches =
        strncmp(route->path, "/v1/files", 9) == 0 || strncmp(route->path, "/v1/batches", 11) == 0;
    if (batches || strcmp(route->path, "/add") == 0)
        put_error(f, route, 507);
    if (batches || strstr(route->path, "_profile") != NULL ||
        strncmp(route->path, "/models/", 8) == 0)
        put_error(f, route, 409);
    fl_buf_puts(f->out, "}");
}

static const fl_operation *find_operation(const fl_route *route) {
    for (const fl_operation *op = fl_operations; op->path != NULL; op++)
        if (strcmp(op->path, route->path) == 0 && strcmp(op->method, route->method) == 0)
            return op;
    return NULL;
}

static void put_operation(facts *f, const fl_route *route) {
    static const fl_operation unknown = {.summary = "not described"};
    const fl_operation       *op      = find_operation(route);
    char                      method[16];
    size_t                    i = 0;
    for (; route->method[i] != '\0' && i < sizeof method - 1; i++)
        method[i] = (char)(route->method[i] | 0x20);
    method[i] = '\0';
    fl_buf_printf(f->out, "\"%s\":{", method);
    put_operation_id(f, method, route);
    fl_buf_puts(f->out, op == NULL ? "\"x-undescribed\":true," : "");
    op = op != NULL ? op : &unknown;
    fl_buf_printf(f->out, "\"tags\":[\"%s\"],\"summary\":\"%s\"", route->dialect->name,
                  op->summary);
    if ((route->flags & FL_ROUTE_OPEN) != 0)
        fl_buf_puts(f->out, ",\"security\":[]");
    put_parameters(f, op);
    put_body(f, op);
    put_responses(f, route, op);
    fl_buf_puts(f->out, "}");
}

/* ---- The document -------------------------------------------------------------------------------- */

/* All methods of the path of row `index`, unless an earlier row had that path. */
static void put_path(facts *f, size_t index, bool *more) {
    const fl_route *first = fl_route_at(index);
    for (size_t i = 0; i < index; i++)
        if (strcmp(fl_route_at(i)->path, first->path) == 0)
            return;
    fl_buf_puts(f->out, *more ? "," : "");
    *more       = true;
    size_t head = strcspn(first->path, "*");
    bool   star = first->path[head] == '*';
    fl_buf_printf(f->out, "\"%.*s%s%s\":{", (int)head, first->path,
                  star || has_open_end(first) ? "{id}" : "", star ? first->path + head + 1 : "");
    const fl_route *route;
    bool            other = false;
    for (size_t i = index; (route = fl_route_at(i)) != NULL; i++) {
        if (strcmp(route->path, first->path) == 0) {
            fl_buf_puts(f->out, other ? "," : "");
            other = true;
            put_operation(f, route);
        }
    }
    fl_buf_puts(f->out, "}");
}

static void put_document(facts *f) {
    bool keyed = fl_server_option(f->server, "server.api_key_file")[0] != '\0';
    fl_buf_printf(f->out,
                  "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"fletch\",\"version\":\"%s\","
                  "\"description\":\"text in, vectors out\",\"license\":{\"name\":\"Apache-2.0\","
                  "\"identifier\":\"Apache-2.0\"}},\"servers\":[{\"url\":\"/\"}],",
                  fletch_version());
    fl_buf_puts(f->out, keyed ? "\"security\":[{\"key\":[]}]," : "\"security\":[],");
    fl_buf_puts(f->out, "\"paths\":{");
    bool more = false;
    for (size_t i = 0; fl_route_at(i) != NULL; i++)
        put_path(f, i, &more);
    fl_buf_puts(f->out,
                "},\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":"
                "\"bearer\"}},\"schemas\":{");
    for (size_t i = 0; fl_schemas[i].name != NULL; i++) {
        fl_buf_printf(f->out, "%s\"%s\":", i > 0 ? "," : "", fl_schemas[i].name);
        fl_buf_puts(f->out, fl_schemas[i].schema);
    }
    fl_buf_puts(f->out, "}}}");
}

static void openapi(fl_http_request *request) {
    facts f = {.server = request->server, .out = &request->reply.body};
    f.more  = fl_server_option(request->server, "server.on_demand")[0] != '\0';
    gather(&f);
    put_document(&f);
    fl_buf_free(&f.names);
    fl_buf_free(&f.prompts);
    fl_reply_json(request, 200);
}

const fl_route fl_routes_openapi[] = {
    {"GET", "/openapi.json", &fl_dialect_plain, openapi, FL_ROUTE_OPEN | FL_ROUTE_QUIET}, {0}};
