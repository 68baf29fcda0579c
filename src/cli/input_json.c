/* SPDX-License-Identifier: Apache-2.0 */
/* input_json.c - the text of a JSON string or object, and its other members passed on as they are.
 *
 * Role    input.c calls it for each line of JSON lines and each item of a JSON array.
 * Method  json-c reads the record, which checks it and decodes the text. Members that are passed on are
 *         not taken from its tree but copied from the record's own bytes: numbers keep all their digits
 *         (an id of 20 digits stays one) and strings their escapes; only white space outside strings is
 *         dropped, so that a result stays on one line.
 * Memory  json-c's tree per record; output in the window's buffers.
 * Proof   tests/cli/test_cli_input.py. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"

bool fl_input_name_taken(const fl_input *input, const char *name, size_t size) {
    for (const char *at = input->own_names; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, name, size) == 0 && (at[size] == '|' || at[size] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Behind the string that begins at raw[at]; raw is valid JSON. */
static size_t skip_string(const char *raw, size_t size, size_t at) {
    for (at++; at < size && raw[at] != '"'; at++) {
        at += raw[at] == '\\';
    }
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
        if (depth == 0 && (c == ',' || c == '}')) {
            return at;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        at++;
    }
    return at;
}

/* Copy without the white space outside strings. */
static void append_compact(fl_buf *out, const char *raw, size_t size) {
    size_t at = 0;
    while (at < size) {
        size_t from = at;
        if (raw[at] == '"') {
            at = skip_string(raw, size, at);
            fl_buf_append(out, raw + from, at - from);
        } else if (is_space(raw[at])) {
            at++;
        } else {
            fl_buf_putc(out, raw[at++]);
        }
    }
}

/* Append `,"key":value` for each member but the text and names the result uses itself. */
static void keep_members(const fl_input *input, const char *raw, size_t size, fl_buf *out) {
    size_t at = 0;
    while (at < size && raw[at] != '{') {
        at++;
    }
    at++;
    for (;;) {
        while (at < size && (is_space(raw[at]) || raw[at] == ',')) {
            at++;
        }
        if (at >= size || raw[at] != '"') {
            return;
        }
        size_t key = at, key_end = skip_string(raw, size, at);
        at = key_end;
        while (at < size && (is_space(raw[at]) || raw[at] == ':')) {
            at++;
        }
        size_t      value = at;
        const char *name  = raw + key + 1;
        size_t      named = key_end - key - 2;
        at                = skip_value(raw, size, at);
        bool text         = strlen(input->field) == named && memcmp(input->field, name, named) == 0;
        if (!text && !fl_input_name_taken(input, name, named)) {
            fl_buf_putc(out, ',');
            fl_buf_append(out, raw + key, key_end - key);
            fl_buf_putc(out, ':');
            append_compact(out, raw + value, at - value);
        }
    }
}

/* The text inside a parsed record, or NULL with *error. */
static fl_json *find_text(const fl_input *input, fl_json *root, fletch_error *error) {
    if (json_object_is_type(root, json_type_string)) {
        return root;
    }
    if (!json_object_is_type(root, json_type_object)) {
        (void)fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                      "is %s; expected a string or an object with the field \"%s\"",
                      fl_json_kind(root), input->field);
        return NULL;
    }
    fl_json *text = NULL;
    if (!json_object_object_get_ex(root, input->field, &text)) {
        (void)fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                      "has no field \"%s\"; --field names the one that holds the text",
                      input->field);
        return NULL;
    }
    if (!json_object_is_type(text, json_type_string)) {
        (void)fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "the field \"%s\" is %s, not a string",
                      input->field, fl_json_kind(text));
        return NULL;
    }
    return text;
}

bool fl_input_json(const fl_input *input, const char *raw, size_t size, fl_window *window,
                   fl_record *record, fletch_error *error) {
    size_t at = 0;
    while (at < size && is_space(raw[at])) {
        at++;
    }
    if (at == size) {
        (void)fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE,
                      "is empty; expected a JSON string or object");
        return false;
    }
    fl_json *root = NULL;
    if (fl_json_parse(&root, raw, size, SIZE_MAX, 0, "not valid JSON", error) < 0) {
        return false;
    }
    fl_json *text = find_text(input, root, error);
    if (text != NULL) {
        record->decoded = true;
        record->offset  = window->decoded.size;
        record->size    = (size_t)json_object_get_string_len(text);
        fl_buf_append(&window->decoded, json_object_get_string(text), record->size);
        record->fields = window->fields.size;
        if (input->keep_fields && text != root) {
            keep_members(input, raw, size, &window->fields);
        }
        record->fields_size = window->fields.size - record->fields;
    }
    fl_json_free(root);
    if (window->decoded.failed || window->fields.failed) {
        (void)fl_fail_nomem(error, size, "a record");
        return false;
    }
    return text != NULL;
}
