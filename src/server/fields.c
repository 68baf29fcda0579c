/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c - read a request body by a table of fields.
 *
 * Role    the one place where JSON becomes what a dialect asked for.
 * Method  the reader pulls key by key; a bit per row of the table remembers what came. Lists of texts are
 *         two arrays (pointers into the body, lengths), lists of ids one array and offsets; both double in
 *         request memory, so a body of n texts costs O(log n) allocations and no copies of text.
 * Errors  the message gets the path in front, as serde does: "inputs[3]: invalid type: null, expected …".
 * Memory  request memory. Threads: a request belongs to one.
 * Proof   tests/unit/test_server_json.c, tests/fuzz/fuzz_bodies.c, tests/server. */
#include "server/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { FIELDS_MAX = 64, NAME_SHOWN = 64 };

typedef struct reading {
    fl_http_request *request;
    fl_json_in      *in;
    char             path[128]; /* of the field that failed, built from the inside out */
} reading;

/* A value of the field failed, in item `index` of it or (SIZE_MAX) as a whole: outer names come in front.
 * Always false. */
static bool fail_in(reading *r, const char *name, size_t index) {
    char        inner[sizeof r->path];
    char        item[32] = "";
    const char *dot      = r->path[0] != '\0' && r->path[0] != '[' ? "." : "";
    memcpy(inner, r->path, sizeof inner);
    if (index != SIZE_MAX)
        (void)snprintf(item, sizeof item, "[%zu]", index);
    (void)snprintf(r->path, sizeof r->path, "%.32s%s%s%.60s", name, item, dot, inner);
    return false;
}

static bool fail_memory(fl_json_in *in) {
    return fl_json_in_fail(in, true, "too many values: out of memory");
}

/* A twice as large copy of an array in request memory; NULL when there is none. */
static void *grown(fl_http_request *request, const void *old, size_t count, size_t room,
                   size_t each) {
    size_t bytes;
    if (fl_mul_overflow(room, each, &bytes))
        return NULL;
    void *larger = fl_request_alloc(request, bytes);
    if (larger != NULL && count > 0)
        memcpy(larger, old, count * each);
    return larger;
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

static bool add_text(reading *r, fl_body_input *input, fl_span text) {
    if (input->count == input->room) {
        size_t room  = input->room == 0 ? 16 : input->room * 2;
        input->texts = grown(r->request, input->texts, input->count, room, sizeof *input->texts);
        input->lengths =
            grown(r->request, input->lengths, input->count, room, sizeof *input->lengths);
        if (input->texts == NULL || input->lengths == NULL)
            return fail_memory(r->in);
        input->room = room;
    }
    input->texts[input->count]   = text.data;
    input->lengths[input->count] = text.size;
    input->empty |= text.size == 0;
    input->count++;
    return true;
}

static bool add_id(reading *r, fl_body_input *input) {
    int64_t id;
    if (!fl_json_in_integer(r->in, &id))
        return false;
    if (id < 0 || id > INT32_MAX) {
        return fl_json_in_fail(r->in, true, "invalid value: integer `%lld`, expected a token id",
                               (long long)id);
    }
    if (input->id_count == input->id_room) {
        size_t room = input->id_room == 0 ? 64 : input->id_room * 2;
        input->ids  = grown(r->request, input->ids, input->id_count, room, sizeof *input->ids);
        if (input->ids == NULL)
            return fail_memory(r->in);
        input->id_room = room;
    }
    input->ids[input->id_count++] = (int32_t)id;
    return true;
}

/* Every id (or text) before this, `count` of them, belongs to a list: close the one that began at `begin`. */
static bool end_inner(reading *r, fl_body_input *input, size_t begin, size_t count) {
    if (input->lists + 1 >= input->list_room) {
        size_t room    = input->list_room == 0 ? 16 : input->list_room * 2;
        input->offsets = grown(r->request, input->offsets, input->lists == 0 ? 0 : input->lists + 1,
                               room, sizeof *input->offsets);
        if (input->offsets == NULL)
            return fail_memory(r->in);
        input->list_room = room;
    }
    input->offsets[++input->lists] = (int64_t)count;
    input->empty |= count == begin;
    return true;
}

/* One list of ids: "[1, 2]". */
static bool read_ids(reading *r, fl_body_input *input) {
    size_t begin = input->id_count;
    if (!fl_json_in_enter(r->in, FL_JSON_ARRAY))
        return false;
    while (fl_json_in_item(r->in))
        if (!add_id(r, input))
            return false;
    return !r->in->failed && end_inner(r, input, begin, input->id_count);
}

/* One list of texts: ["a", "b"]. */
static bool read_inner(reading *r, fl_body_input *input) {
    size_t  begin = input->count;
    fl_span text;
    if (!fl_json_in_enter(r->in, FL_JSON_ARRAY))
        return false;
    while (fl_json_in_item(r->in))
        if (!fl_json_in_string(r->in, &text) || !add_text(r, input, text))
            return fail_in(r, "", input->count - begin);
    return !r->in->failed && end_inner(r, input, begin, input->count);
}

static const char *forms_text(unsigned forms) {
    switch (forms & (FL_INPUT_ALL | FL_INPUT_NESTED)) {
    case FL_INPUT_NESTED: return "a list of lists of strings";
    case FL_INPUT_TEXTS: return "a list of strings";
    case FL_INPUT_TEXT | FL_INPUT_TEXTS: return "a string or a list of strings";
    case FL_INPUT_IDS | FL_INPUT_ID_LISTS: return "a list of token ids or a list of such lists";
    default: return "a string, a list of strings, a list of token ids or a list of such lists";
    }
}

/* The form that a list has by its first item. */
static unsigned form_of(fl_json_type first, unsigned forms) {
    switch (first) {
    case FL_JSON_OBJECT: return (forms & FL_INPUT_OBJECTS) != 0 ? FL_INPUT_TEXTS : 0;
    case FL_JSON_STRING: return FL_INPUT_TEXTS;
    case FL_JSON_NUMBER: return FL_INPUT_IDS;
    case FL_JSON_ARRAY: return (forms & FL_INPUT_NESTED) != 0 ? FL_INPUT_NESTED : FL_INPUT_ID_LISTS;
    default: return 0;
    }
}

/* An item that is list `list` of ids; until the end of all of them (end_mixed) that stands where a length
 * would. */
static bool add_list(reading *r, fl_body_input *input, size_t list) {
    bool empty   = input->empty;
    bool good    = add_text(r, input, (fl_span){NULL, list});
    input->empty = empty; /* end_inner has judged it */
    return good;
}

/* A list of one kind gets an item of the other: what came so far become items of a mixed one. */
static bool become_mixed(reading *r, fl_body_input *input) {
    for (size_t i = 0; input->form == FL_INPUT_ID_LISTS && i < input->lists; i++)
        if (!add_list(r, input, i))
            return false;
    input->form = FL_INPUT_MIXED;
    return true;
}

static bool read_mixed(reading *r, fl_body_input *input, fl_json_type type) {
    fl_span text = {0};
    if (type == FL_JSON_STRING)
        return fl_json_in_string(r->in, &text) && add_text(r, input, text);
    return read_ids(r, input) && add_list(r, input, input->lists - 1);
}

/* The lists stay where they are from now on: items that are lists get their place and length. */
static bool end_mixed(reading *r, fl_body_input *input) {
    input->are_ids = fl_request_alloc(r->request, input->count);
    if (input->are_ids == NULL)
        return fail_memory(r->in);
    for (size_t i = 0; i < input->count; i++) {
        input->are_ids[i] = input->texts[i] == NULL;
        if (input->are_ids[i]) {
            const int64_t *list = input->offsets + input->lengths[i];
            input->lengths[i]   = (size_t)(list[1] - list[0]);
            input->texts[i]     = list[1] > list[0] ? (const char *)(input->ids + list[0]) : "";
        }
    }
    return true;
}

/* A string, or the "text" of an object where those are allowed. */
static bool read_text(reading *r, unsigned forms, fl_span *text) {
    fl_span key;
    if ((forms & FL_INPUT_OBJECTS) == 0 || fl_json_in_peek(r->in) != FL_JSON_OBJECT)
        return fl_json_in_string(r->in, text);
    text->data = NULL;
    if (!fl_json_in_enter(r->in, FL_JSON_OBJECT))
        return false;
    while (fl_json_in_key(r->in, &key)) {
        bool own = fl_span_is(key, "text");
        if (own ? !fl_json_in_string(r->in, text) : !fl_json_in_skip(r->in, NULL))
            return false;
    }
    if (!r->in->failed && text->data == NULL)
        return fl_json_in_fail(r->in, true, "missing field `text`");
    return !r->in->failed;
}

static bool read_item(reading *r, fl_body_input *input, unsigned forms) {
    fl_span text = {0};
    switch (input->form) {
    case FL_INPUT_MIXED: return read_mixed(r, input, fl_json_in_peek(r->in));
    case FL_INPUT_TEXTS: return read_text(r, forms, &text) && add_text(r, input, text);
    case FL_INPUT_IDS: return add_id(r, input);
    case FL_INPUT_NESTED: return read_inner(r, input);
    default: return read_ids(r, input);
    }
}

static bool read_list(reading *r, fl_body_input *input, const fl_field *field) {
    if (!fl_json_in_enter(r->in, FL_JSON_ARRAY))
        return false;
    size_t index = 0;
    for (; fl_json_in_item(r->in); index++) {
        fl_json_type type = fl_json_in_peek(r->in);
        if (index == 0)
            input->form = form_of(type, field->forms) & field->forms;
        if (input->form == 0 && !r->in->failed) {
            (void)fl_json_in_fail(r->in, true, "invalid type: %s, expected %s",
                                  fl_json_type_text(type), forms_text(field->forms));
        }
        bool other = (input->form == FL_INPUT_TEXTS && type == FL_JSON_ARRAY) ||
                     (input->form == FL_INPUT_ID_LISTS && type == FL_JSON_STRING);
        if (r->in->failed ||
            (other && (field->forms & FL_INPUT_MIXED) != 0 && !become_mixed(r, input)) ||
            !read_item(r, input, field->forms))
            return fail_in(r, "", index);
    }
    if (r->in->failed)
        return false;
    if (index == 0) {
        input->form  = (field->forms & FL_INPUT_TEXTS) != 0 ? FL_INPUT_TEXTS : FL_INPUT_ID_LISTS;
        input->empty = true;
    }
    if (input->form == FL_INPUT_IDS && !end_inner(r, input, 0, input->id_count))
        return false;
    if (input->form == FL_INPUT_IDS || input->form == FL_INPUT_ID_LISTS)
        input->count = input->lists;
    return input->form != FL_INPUT_MIXED || end_mixed(r, input);
}

static bool read_input(reading *r, fl_body_input *input, const fl_field *field) {
    fl_json_type type = fl_json_in_peek(r->in);
    if (type == FL_JSON_STRING && (field->forms & FL_INPUT_TEXT) != 0) {
        fl_span text;
        input->form = FL_INPUT_TEXT;
        return fl_json_in_string(r->in, &text) && add_text(r, input, text);
    }
    if (type == FL_JSON_ARRAY)
        return read_list(r, input, field);
    return fl_json_in_fail(r->in, true, "invalid type: %s, expected %s", fl_json_type_text(type),
                           forms_text(field->forms));
}

/* ---- Pairs ------------------------------------------------------------------------------------ */

/* Beside pairs a text alone has a second one too, which is NULL. */
static bool pad_second(reading *r, fl_pairs *pairs, bool pair) {
    const fl_span  nothing = {NULL, 0};
    fl_body_input *second  = &pairs->second;
    if (second->count == 0 || second->count == pairs->first.count)
        return true;
    if (!pair)
        return add_text(r, second, nothing);
    fl_span text  = {second->texts[0], second->lengths[0]}; /* of the first pair */
    second->count = 0;
    while (second->count + 1 < pairs->first.count)
        if (!add_text(r, second, nothing))
            return false;
    return add_text(r, second, text);
}

/* ["a"] or ["a", "b"]; `begun`: the bracket is read, and the first text is next. */
static bool read_pair(reading *r, fl_pairs *pairs, bool begun) {
    fl_span text  = {0};
    size_t  count = 0;
    if (!begun && (!fl_json_in_enter(r->in, FL_JSON_ARRAY) || !fl_json_in_item(r->in))) {
        return !r->in->failed &&
               fl_json_in_fail(r->in, true, "invalid length 0, expected a text or two");
    }
    do {
        if (count == 2)
            return fl_json_in_fail(r->in, true, "invalid length 3, expected a text or two");
        if (!fl_json_in_string(r->in, &text) ||
            !add_text(r, count == 0 ? &pairs->first : &pairs->second, text))
            return false;
        count++;
    } while (fl_json_in_item(r->in));
    return !r->in->failed && pad_second(r, pairs, count == 2);
}

static bool read_pairs(reading *r, fl_pairs *pairs) {
    fl_span text = {0};
    if (fl_json_in_peek(r->in) == FL_JSON_STRING)
        return fl_json_in_string(r->in, &text) && add_text(r, &pairs->first, text);
    if (!fl_json_in_enter(r->in, FL_JSON_ARRAY))
        return false;
    for (size_t i = 0; fl_json_in_item(r->in); i++) {
        pairs->list = pairs->list || fl_json_in_peek(r->in) == FL_JSON_ARRAY;
        if (!pairs->list) /* the whole list is one pair */
            return read_pair(r, pairs, true);
        if (!read_pair(r, pairs, false))
            return fail_in(r, "", i);
    }
    return !r->in->failed;
}

/* ---- The other types ------------------------------------------------------------------------- */

int fl_word_index(const char *words, fl_span span) {
    int index = 1;
    for (const char *word = words;; index++) {
        const char *end = word + strcspn(word, "|");
        if ((size_t)(end - word) == span.size && memcmp(word, span.data, span.size) == 0)
            return index;
        if (*end == '\0')
            return 0;
        word = end + 1;
    }
}

static bool read_word(reading *r, const fl_field *field, int *out) {
    fl_span span;
    if (!fl_json_in_string(r->in, &span))
        return false;
    *out = fl_word_index(field->words, span);
    return *out != 0 ||
           fl_json_in_fail(r->in, true, "unknown variant `%.*s`, expected one of `%s`",
                           (int)(span.size < 40 ? span.size : 40), span.data, field->words);
}

static bool read_words(reading *r, const fl_field *field, unsigned *out) {
    if (!fl_json_in_enter(r->in, FL_JSON_ARRAY))
        return false;
    while (fl_json_in_item(r->in)) {
        int index;
        if (!read_word(r, field, &index))
            return false;
        *out |= 1u << (index - 1);
    }
    return !r->in->failed;
}

static bool read_int(reading *r, const fl_field *field, int64_t *out) {
    if (!fl_json_in_integer(r->in, out))
        return false;
    return (*out >= field->min && *out <= field->max) ||
           fl_json_in_fail(r->in, true,
                           "invalid value: integer `%lld`, expected one from %lld to %lld",
                           (long long)*out, (long long)field->min, (long long)field->max);
}

static bool read_object(reading *r, const fl_field *fields, char *out);

static bool read_value(reading *r, const fl_field *field, char *out) {
    void *to = out + field->offset;
    if ((field->flags & FL_FIELD_NULL) != 0 && fl_json_in_peek(r->in) == FL_JSON_NULL)
        return fl_json_in_null(r->in);
    switch (field->type) {
    case FL_FIELD_STRING: return fl_json_in_string(r->in, to);
    case FL_FIELD_INT: return read_int(r, field, to);
    case FL_FIELD_WORD: return read_word(r, field, to);
    case FL_FIELD_WORDS: return read_words(r, field, to);
    case FL_FIELD_INPUT: return read_input(r, to, field);
    case FL_FIELD_INNER:
        if (field->offset != 0)
            *(int *)to = 1;
        return read_object(r, field->inner, out);
    case FL_FIELD_PAIRS: return read_pairs(r, to);
    case FL_FIELD_ANY: return fl_json_in_skip(r->in, NULL);
    case FL_FIELD_RAW: return fl_json_in_skip(r->in, to);
    case FL_FIELD_BOOL: break;
    }
    bool value;
    if (!fl_json_in_bool(r->in, &value))
        return false;
    *(int *)to = value ? 1 : -1;
    return true;
}

static bool read_object(reading *r, const fl_field *fields, char *out) {
    uint64_t seen = 0;
    fl_span  key;
    if (!fl_json_in_enter(r->in, FL_JSON_OBJECT))
        return false;
    while (fl_json_in_key(r->in, &key)) {
        size_t i = 0;
        while (fields[i].name != NULL && !fl_span_is(key, fields[i].name))
            i++;
        if (fields[i].name == NULL) {
            if ((fields[i].flags & FL_FIELD_CLOSED) != 0) {
                return fl_json_in_fail(r->in, true, "unknown field `%.*s`",
                                       (int)(key.size < NAME_SHOWN ? key.size : NAME_SHOWN),
                                       key.data);
            }
            if (!fl_json_in_skip(r->in, NULL))
                return false;
            continue;
        }
        if ((seen >> i & 1) != 0)
            return fl_json_in_fail(r->in, true, "duplicate field `%s`", fields[i].name);
        seen |= 1ull << i;
        if (!read_value(r, &fields[i], out))
            return fail_in(r, fields[i].name, SIZE_MAX);
    }
    for (size_t i = 0; i < FIELDS_MAX && fields[i].name != NULL && !r->in->failed; i++)
        if ((fields[i].flags & FL_FIELD_REQUIRED) != 0 && (seen >> i & 1) == 0)
            return fl_json_in_fail(r->in, true, "missing field `%s`", fields[i].name);
    return !r->in->failed;
}

bool fl_fields_read(fl_http_request *request, fl_json_in *in, const fl_field *fields, void *out) {
    reading r = {request, in, ""};
    fl_json_in_begin(in, request->body, request->body_size);
    in->depth_max = FL_LIMIT_JSON_DEPTH;
    if (read_object(&r, fields, out) && fl_json_in_end(in))
        return true;
    if (in->mistyped && r.path[0] != '\0') {
        char message[FL_JSON_IN_MESSAGE_MAX];
        memcpy(message, in->message, sizeof message);
        (void)snprintf(in->message, sizeof in->message, "%s: %.120s", r.path, message);
    }
    return false;
}
