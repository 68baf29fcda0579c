/* SPDX-License-Identifier: Apache-2.0 */
/* input_json.c - the text of a JSON string or object, and its other members passed on as they are.
 *
 * Role    input.c calls it for each line of JSON lines and each item of a JSON array.
 * Method  The record is copied to the window and read there in place, which checks it and decodes the text.
 *         Members that are passed on are copied from the record's own bytes: numbers keep all their digits
 *         (an id of 20 digits stays one) and strings their escapes; only white space outside strings is
 *         dropped, so that a result stays on one line.
 * Memory  the window's buffers.
 * Proof   tests/cli/test_cli_input.py. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"

bool fl_input_name_taken(const fl_input *input, const char *name, size_t size) {
    return (input->keep_text && size == 4 && memcmp(name, "text", 4) == 0) ||
           fl_choice_holds(input->own_names, name, size);
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Behind the string that begins at raw[at]; raw is valid JSON. */
static size_t skip_string(const char *raw, size_t size, size_t at) {
    for (at++; at < size && raw[at] != '"'; at++)
        at += raw[at] == '\\';
    return at < size ? at + 1 : size;
}

/* Behind the value that begins at raw[at]: at the comma or brace that follows it. */
static size_t skip_value(const char *raw, size_t size, size_t at) {
    unsigned depth = 0;
    while (at < size) {
        char c = raw[at];
        if (c == '"') {
            at = skip_string(raw, size, at);
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}'))
            return at;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        at++;
    }
    return at;
}

static bool is_field(const fl_input *input, const char *name, size_t size) {
    for (size_t i = 0; i < input->field_count; i++)
        if (input->fields[i].size == size && memcmp(input->fields[i].name, name, size) == 0)
            return true;
    return false;
}

/* Append `,"key":value` for each member that is passed on: all but the text and names the result uses itself
 * with --keep-fields, and the one of --id-field as "id". Whether that one was there. */
static bool keep_members(const fl_input *input, const char *raw, size_t size, fl_buf *out) {
    size_t at = 0, id_size = input->id_field != NULL ? strlen(input->id_field) : 0;
    bool   found = false;
    while (at < size && raw[at] != '{')
        at++;
    at++;
    for (;;) {
        while (at < size && (is_space(raw[at]) || raw[at] == ','))
            at++;
        if (at >= size || raw[at] != '"')
            return found;
        size_t key = at, key_end = skip_string(raw, size, at);
        at = key_end;
        while (at < size && (is_space(raw[at]) || raw[at] == ':'))
            at++;
        size_t      value = at;
        const char *name  = raw + key + 1;
        size_t      named = key_end - key - 2;
        at                = skip_value(raw, size, at);
        bool text         = is_field(input, name, named);
        bool id =
            id_size == named && named > 0 && !found && memcmp(name, input->id_field, named) == 0;
        found = found || id;
        if (id) {
            fl_buf_puts(out, ",\"id\":");
            fl_json_compact(out, raw + value, at - value);
        } else if (input->keep_fields && !text && !fl_input_name_taken(input, name, named)) {
            fl_buf_putc(out, ',');
            fl_buf_append(out, raw + key, key_end - key);
            fl_buf_putc(out, ':');
            fl_json_compact(out, raw + value, at - value);
        }
    }
}

typedef struct found_field {
    const char  *rest; /* of its dotted path, from where the walk stands; NULL: not below here */
    fl_json_type type;
    fl_span      text;
} found_field;

static bool begins(const char *rest, const char *end, fl_span key, char then) {
    size_t left = (size_t)(end - rest);
    return left >= key.size && memcmp(rest, key.data, key.size) == 0 &&
           (then == '\0' ? left == key.size : left > key.size && rest[key.size] == then);
}

/* The members of one object: those that are asked for, by name or, below, by "name.rest". */
static void walk(const fl_input *input, fl_json_in *in, found_field *fields) {
    fl_span key;
    if (!fl_json_in_enter(in, FL_JSON_OBJECT))
        return;
    while (fl_json_in_key(in, &key)) {
        const char  *before[FL_FIELDS_MAX] = {NULL};
        found_field *here                  = NULL;
        bool         below                 = false;
        for (size_t i = 0; i < input->field_count; i++) {
            const char *rest = fields[i].rest, *end = input->fields[i].name + input->fields[i].size;
            before[i]      = rest;
            here           = rest != NULL && begins(rest, end, key, '\0') ? &fields[i] : here;
            bool into      = rest != NULL && begins(rest, end, key, '.');
            fields[i].rest = into ? rest + key.size + 1 : NULL;
            below          = below || into;
        }
        fl_json_type type = fl_json_in_peek(in);
        if (here != NULL)
            here->type = type;
        if (here != NULL && type == FL_JSON_STRING)
            (void)fl_json_in_string(in, &here->text);
        else if (here == NULL && below && type == FL_JSON_OBJECT)
            walk(input, in, fields);
        else
            (void)fl_json_in_skip(in, NULL);
        for (size_t i = 0; i < input->field_count; i++)
            fields[i].rest = before[i];
    }
}

/* The text of a record into *out: a string, or the fields of an object, of each the last value. */
static int find_text(const fl_input *input, fl_json_in *in, fl_buf *out, fletch_error *error) {
    fl_json_type type = fl_json_in_peek(in);
    found_field  fields[FL_FIELDS_MAX];
    fl_span      text = {0};
    for (size_t i = 0; i < input->field_count; i++)
        fields[i] = (found_field){input->fields[i].name, FL_JSON_NONE, {0}};
    if (type == FL_JSON_STRING) {
        (void)fl_json_in_string(in, &text);
        fl_buf_append(out, text.data, text.size);
    } else if (type == FL_JSON_OBJECT) {
        walk(input, in, fields);
    } else {
        (void)fl_json_in_skip(in, NULL); /* what is no JSON says so first */
    }
    if (!fl_json_in_end(in)) {
        return fl_fail(error, FLETCH_EMODEL, in->at, "not valid JSON: byte %zu: %s", in->at,
                       in->message);
    }
    if (type != FL_JSON_OBJECT && type != FL_JSON_STRING) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "is %s; expected a string or an object with the field \"%s\"",
                       fl_json_type_text(type), input->field);
    }
    for (size_t i = 0; type == FL_JSON_OBJECT && i < input->field_count; i++) {
        int size = (int)input->fields[i].size;
        if (fields[i].type == FL_JSON_NONE) {
            return fl_fail(error, FLETCH_ENOTFOUND, FLETCH_NOWHERE,
                           "has no field \"%.*s\"; name the text with --field", size,
                           input->fields[i].name);
        }
        if (fields[i].type != FL_JSON_STRING) {
            return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                           "the field \"%.*s\" is %s, not a string", size, input->fields[i].name,
                           fl_json_type_text(fields[i].type));
        }
        fl_buf_puts(out, i > 0 ? input->join : "");
        fl_buf_append(out, fields[i].text.data, fields[i].text.size);
    }
    return 0;
}

int fl_input_json(const fl_input *input, const char *raw, size_t size, fl_window *window,
                  fl_record *record, fletch_error *error) {
    size_t at = 0;
    while (at < size && is_space(raw[at]))
        at++;
    if (at == size) {
        return fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                       "is empty; expected a JSON string or object");
    }
    size_t offset = window->decoded.size;
    fl_buf_append(&window->decoded, raw, size);
    if (window->decoded.failed)
        return fl_fail_nomem(error, size, "a record");
    fl_json_in in;
    fl_buf     text = {0};
    fl_json_in_begin(&in, window->decoded.data + offset, size);
    int status           = find_text(input, &in, &text, error);
    window->decoded.size = offset;
    if (status == 0) {
        fl_buf_append(&window->decoded, text.data, text.size);
        record->decoded = true;
        record->offset  = offset;
        record->size    = text.size;
        record->fields  = window->fields.size;
        bool found      = input->id_field == NULL;
        if ((input->keep_fields || !found) && raw[at] == '{')
            found = keep_members(input, raw, size, &window->fields) || found;
        record->fields_size = window->fields.size - record->fields;
        if (!found) {
            status = fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                             "has no field \"%s\", which --id-field names", input->id_field);
        }
    }
    bool failed = text.failed || window->decoded.failed || window->fields.failed;
    fl_buf_free(&text);
    return failed ? fl_fail_nomem(error, size, "a record") : status;
}
