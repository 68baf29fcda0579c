/* SPDX-License-Identifier: Apache-2.0 */
/* chat_template.c - the template of a language model that reranks becomes pieces of text.
 *
 * Role    causal_scores.c asks for it where pairs reach the network as messages of a chat.
 * In/Out  Jinja as such templates are written: text; comments; {% set name = value %}; {{ value }}, where a
 *         value is a string, a name, values joined by + or ~, or the content of a role's message:
 *         messages | selectattr("role", "eq", "query") | map(attribute="content") | first, with
 *         | default("…") for the system's. -> pieces: text, query, document, system.
 * Method  Everything else is refused by name: what is accepted means the same for every pair, so it is
 *         evaluated here, once. White space goes as transformers' environment says (trim_blocks,
 *         lstrip_blocks, one newline at the end), and where a mark has "-".
 * Memory  model->chat and its texts. Threads: during opening only.
 * Proof   tests/golden/test_language.py, tests/fuzz/fuzz_chat_template.c. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/model_private.h"

enum { TEMPLATE_MAX = 1 << 20, PIECES_MAX = 256, NAMES_MAX = 32, WORD_MAX = 64 };

typedef struct pieces {
    fl_chat_piece at[PIECES_MAX];
    uint32_t      count;
} pieces;

typedef struct variable {
    char          name[WORD_MAX];
    fl_chat_piece value[8];
    uint32_t      count;
} variable;

typedef struct compiler {
    fl_model     *model;
    const char   *source; /* for messages */
    const char   *at, *end;
    pieces        out;
    variable      names[NAMES_MAX];
    uint32_t      name_count;
    int           status;
    fletch_error *error;
} compiler;

static void refuse(compiler *c, const char *what, const char *at) {
    if (c->status != 0)
        return;
    size_t left = (size_t)(c->end - at);
    c->status =
        fl_fail(c->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                "%s: the chat template has %s, which is not supported: \"%.*s\". Supported are "
                "text, set, and the content of the messages of query, document and system.",
                c->source, what, (int)(left < 40 ? left : 40), at);
}

static void put(compiler *c, fl_chat_piece *to, uint32_t *count, uint32_t room,
                fl_chat_piece piece) {
    if (*count == room)
        refuse(c, "too many parts", c->at);
    else if (c->status == 0)
        to[(*count)++] = piece;
}

/* Text that the model keeps; "" is no piece. */
static void put_text(compiler *c, fl_chat_piece *to, uint32_t *count, uint32_t room,
                     const char *text, size_t size) {
    if (size == 0 || c->status != 0)
        return;
    const char *kept;
    c->status =
        fl_model_keep(c->model, &kept, "a chat template", c->error, "%.*s", (int)size, text);
    if (c->status == 0)
        put(c, to, count, room, (fl_chat_piece){.kind = FL_CHAT_TEXT, .text = kept});
}

/* ---- Expressions ------------------------------------------------------------------------------ */

static void skip_space(compiler *c) {
    while (c->at < c->end && strchr(" \t\r\n", *c->at) != NULL)
        c->at++;
}

/* `word` as the next token of an expression. */
static bool take(compiler *c, const char *word) {
    size_t size = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, word, size) != 0)
        return false;
    c->at += size;
    return true;
}

static void need(compiler *c, const char *word) {
    if (c->status == 0 && !take(c, word))
        refuse(c, "an expression of another form", c->at);
}

static bool is_name(char x) {
    return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || (x >= '0' && x <= '9') || x == '_';
}

static void take_name(compiler *c, char out[WORD_MAX]) {
    size_t size = 0;
    skip_space(c);
    while (c->at + size < c->end && is_name(c->at[size]))
        size++;
    if (size == 0 || size >= WORD_MAX)
        refuse(c, "an expression of another form", c->at);
    size = size < WORD_MAX ? size : 0;
    memcpy(out, c->at, size);
    out[size] = '\0';
    c->at += size;
}

/* A string in quotes, its escapes resolved; NULL: refused. */
static const char *take_string(compiler *c, size_t *size) {
    skip_space(c);
    const char *begin = c->at;
    char        quote = c->at < c->end ? *c->at : '\0';
    *size             = 0;
    if (c->status != 0 || (quote != '"' && quote != '\'')) {
        refuse(c, "an expression of another form", begin);
        return NULL;
    }
    char *text = fl_alloc((size_t)(c->end - c->at));
    if (text == NULL) {
        c->status = fl_fail_nomem(c->error, (size_t)(c->end - c->at), "a chat template");
        return NULL;
    }
    for (c->at++; c->at < c->end && *c->at != quote; c->at++) {
        static const char codes[] = "ntr\\'\"", values[] = "\n\t\r\\'\"";
        const char *code = *c->at == '\\' && c->at + 1 < c->end ? strchr(codes, c->at[1]) : NULL;
        if (*c->at == '\\' && code == NULL)
            refuse(c, "an escape in a string", c->at);
        c->at += code != NULL;
        text[(*size)++] = code != NULL ? values[code - codes] : *c->at;
    }
    if (c->at == c->end)
        refuse(c, "a string without an end", begin);
    c->at += c->at < c->end;
    const char *kept = NULL;
    if (c->status == 0)
        c->status =
            fl_model_keep(c->model, &kept, "a chat template", c->error, "%.*s", (int)*size, text);
    fl_free(text);
    return kept;
}

/* After "messages": the content of a role's message. */
static fl_chat_piece take_message(compiler *c) {
    static const struct {
        const char  *role;
        fl_chat_kind kind;
    } roles[] = {
        {"query", FL_CHAT_QUERY}, {"document", FL_CHAT_DOCUMENT}, {"system", FL_CHAT_SYSTEM}};
    fl_chat_piece piece = {.kind = FL_CHAT_TEXT};
    size_t        size;
    need(c, "|"), need(c, "selectattr"), need(c, "("); /* NOLINT */
    const char *key = take_string(c, &size);
    need(c, ",");
    const char *test = take_string(c, &size);
    need(c, ",");
    const char *at   = c->at;
    const char *role = take_string(c, &size);
    need(c, ")"), need(c, "|"), need(c, "map"), need(c, "("); /* NOLINT */
    need(c, "attribute"), need(c, "=");                       /* NOLINT */
    const char *attribute = take_string(c, &size);
    need(c, ")"), need(c, "|"), need(c, "first"); /* NOLINT */
    if (c->status != 0)
        return piece;
    if (strcmp(key, "role") != 0 || strcmp(attribute, "content") != 0 ||
        (strcmp(test, "eq") != 0 && strcmp(test, "equalto") != 0 && strcmp(test, "==") != 0))
        refuse(c, "another choice of messages", at);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].role, role) == 0)
            piece = (fl_chat_piece){.kind = roles[i].kind, .text = ""};
    if (piece.kind == FL_CHAT_TEXT)
        refuse(c, "messages of another role", at);
    at = c->at;
    if (take(c, "|")) {
        need(c, "default"), need(c, "("); /* NOLINT */
        piece.text = take_string(c, &size);
        need(c, ")");
        if (piece.kind != FL_CHAT_SYSTEM)
            refuse(c, "a default for a text", at);
    }
    return piece;
}

static void take_value(compiler *c, fl_chat_piece *to, uint32_t *count, uint32_t room) {
    do {
        char        word[WORD_MAX];
        size_t      size = 0;
        const char *at;
        skip_space(c);
        at = c->at;
        if (c->at < c->end && (*c->at == '"' || *c->at == '\'')) {
            const char *text = take_string(c, &size);
            if (text != NULL)
                put_text(c, to, count, room, text, size);
            continue;
        }
        take_name(c, word);
        if (c->status == 0 && strcmp(word, "messages") == 0) {
            put(c, to, count, room, take_message(c));
            continue;
        }
        uint32_t i = 0;
        while (i < c->name_count && strcmp(c->names[i].name, word) != 0)
            i++;
        if (i == c->name_count)
            refuse(c, "a name without a value", at);
        for (uint32_t k = 0; c->status == 0 && k < c->names[i].count; k++)
            put(c, to, count, room, c->names[i].value[k]);
    } while (c->status == 0 && (take(c, "+") || take(c, "~")));
}

/* set NAME = VALUE */
static void take_set(compiler *c) {
    variable    next = {0};
    const char *at   = c->at;
    if (!take(c, "set ")) {
        refuse(c, "a statement", at);
        return;
    }
    take_name(c, next.name);
    need(c, "=");
    take_value(c, next.value, &next.count, sizeof next.value / sizeof *next.value);
    uint32_t i = 0;
    while (i < c->name_count && strcmp(c->names[i].name, next.name) != 0)
        i++;
    if (i == NAMES_MAX)
        refuse(c, "too many names", at);
    else
        c->names[i] = next;
    c->name_count += i == c->name_count && i < NAMES_MAX;
}

/* ---- Text and marks --------------------------------------------------------------------------- */

/* The next "{{", "{%" or "{#" from `at` on, or the end. */
static const char *find_mark(const compiler *c, const char *at) {
    while (at + 1 < c->end && !(at[0] == '{' && strchr("{%#", at[1]) != NULL))
        at++;
    return at + 1 < c->end ? at : c->end;
}

/* Text up to a mark: what the mark takes of its white space is left out. */
static void put_literal(compiler *c, const char *begin, const char *mark, bool line_begins) {
    const char *end = mark;
    bool        all = mark + 2 < c->end && mark[2] == '-';
    while (all && end > begin && strchr(" \t\r\n", end[-1]) != NULL)
        end--;
    if (mark < c->end && mark[1] != '{' && !all) { /* lstrip_blocks */
        const char *line = end;
        while (line > begin && (line[-1] == ' ' || line[-1] == '\t'))
            line--;
        if (line > begin ? line[-1] == '\n' : line_begins)
            end = line;
    }
    put_text(c, c->out.at, &c->out.count, PIECES_MAX, begin, (size_t)(end - begin));
}

/* What stands between a mark and its end. `at` is at the mark; afterwards behind its end. */
static void take_mark(compiler *c) {
    char        kind  = c->at[1];
    const char *begin = c->at, closing[3] = {kind == '{' ? '}' : kind, '}', '\0'};
    c->at += 2;
    if (c->at < c->end && *c->at == '+')
        refuse(c, "a mark with +", begin);
    c->at += c->at < c->end && *c->at == '-';
    if (kind == '#') {
        while (c->at + 1 < c->end && !(c->at[0] == '#' && c->at[1] == '}'))
            c->at++;
    } else if (kind == '{') {
        take_value(c, c->out.at, &c->out.count, PIECES_MAX);
    } else {
        skip_space(c);
        take_set(c);
    }
    bool stripped = kind == '#' ? c->at > begin + 2 && c->at[-1] == '-' : take(c, "-");
    if (c->status == 0 && !take(c, closing))
        refuse(c, "an expression of another form", begin);
    if (c->status != 0)
        return;
    if (stripped)
        skip_space(c);
    else if (kind != '{' && c->at < c->end && *c->at == '\n') /* trim_blocks */
        c->at++;
}

static void compile(compiler *c) {
    bool line_begins = true;
    while (c->status == 0 && c->at < c->end) {
        const char *mark = find_mark(c, c->at);
        put_literal(c, c->at, mark, line_begins);
        c->at = mark;
        if (mark < c->end)
            take_mark(c);
        line_begins = c->at > mark && c->at[-1] == '\n';
    }
}

/* The template's text: a file of its own, else a key of tokenizer_config.json; *text NULL: neither. */
static int read_text(fl_model *model, fl_buf *out, const char **source, fletch_error *error) {
    char           path[FL_MODEL_PATH_MAX];
    fl_json_reader config;
    *source   = "chat_template.jinja";
    int there = fl_file_find(path, sizeof path, model->own->transformer, *source, error);
    if (there < 0)
        return there;
    if (there > 0)
        return fl_file_read(path, TEMPLATE_MAX, out, error) < 0 ? FLETCH_EMODEL : 0;
    *source = "tokenizer_config.json";
    FL_TRY(fl_model_read_tokenizer_config(model, &config, error));
    fl_json *value = fl_json_get(config.object, "chat_template");
    if (value != NULL && fl_json_text(value) == NULL)
        return fl_fail(error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                       "%s: chat_template is not one string; several templates are not supported.",
                       config.source);
    if (value != NULL)
        fl_buf_append(out, fl_json_text(value), fl_json_text_size(value));
    return 0;
}

/* "\r\n" is "\n", and one newline at the end goes, as Jinja reads it. */
static void normalise(fl_buf *text) {
    size_t size = 0;
    for (size_t i = 0; i < text->size; i++)
        if (text->data[i] != '\r' || i + 1 == text->size || text->data[i + 1] != '\n')
            text->data[size++] = text->data[i];
    text->size = size - (size > 0 && text->data[size - 1] == '\n');
}

int fl_chat_compile(fl_model *model, fl_buf *text, const char *source, fletch_error *error) {
    compiler *c = fl_alloc_zero(1, sizeof *c);
    if (c == NULL)
        return fl_fail_nomem(error, sizeof *c, "a chat template");
    normalise(text);
    c->model  = model;
    c->source = source;
    c->at     = text->data;
    c->end    = text->data + text->size;
    c->error  = error;
    if (memchr(text->data, '\0', text->size) != NULL)
        refuse(c, "a byte of zero", c->at);
    compile(c);
    int status  = c->status;
    model->chat = status == 0 ? fl_alloc_array(c->out.count + 1, sizeof *model->chat) : NULL;
    if (model->chat != NULL) {
        memcpy(model->chat, c->out.at, c->out.count * sizeof *model->chat);
        model->chat_count = c->out.count;
    } else if (status == 0) {
        status = fl_fail_nomem(error, c->out.count * sizeof *model->chat, "a chat template");
    }
    fl_free(c);
    return status;
}

int fl_chat_read(fl_model *model, bool *found, fletch_error *error) {
    fl_buf      text = {0};
    const char *source;
    int         status = read_text(model, &text, &source, error);
    *found             = status == 0 && text.size > 0;
    if (*found)
        status = fl_chat_compile(model, &text, source, error);
    fl_buf_free(&text);
    return status;
}

bool fl_chat_has(const fl_model *model, fl_chat_kind kind) {
    for (uint32_t i = 0; i < model->chat_count; i++)
        if (model->chat[i].kind == kind)
            return true;
    return false;
}
