/* SPDX-License-Identifier: Apache-2.0 */
/* toml_dump.c - a TOML document from stdin as the tagged JSON of the public toml-test suite.
 *
 * Role    The decoder that toml-test asks for (docs/toml.md says how to run the suite): a scalar
 *         becomes {"type":"integer","value":"1"}, a table an object, an array an array. Exit 0, or
 *         1 with the message on stderr for a document that is refused.
 * In/Out  `toml_dump < file.toml`. Memory: the whole document. Not installed. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "config/toml.h"

static void dump_float(fl_buf *out, double number) {
    if (isnan(number))
        fl_buf_puts(out, "nan");
    else if (isinf(number))
        fl_buf_puts(out, number < 0 ? "-inf" : "inf");
    else
        fl_buf_printf(out, "%.17g", number);
}

static void dump_scalar(fl_buf *out, const fl_toml *node) {
    static const char *const names[] = {[FL_TOML_STRING]  = "string",
                                        [FL_TOML_INTEGER] = "integer",
                                        [FL_TOML_FLOAT]   = "float",
                                        [FL_TOML_BOOLEAN] = "bool"};
    fl_buf_printf(out, "{\"type\":\"%s\",\"value\":", names[node->type]);
    if (node->type == FL_TOML_STRING) {
        fl_json_quote(out, node->text, node->text_size);
    } else {
        fl_buf_putc(out, '"');
        if (node->type == FL_TOML_FLOAT)
            dump_float(out, node->number);
        else if (node->type == FL_TOML_INTEGER)
            fl_buf_printf(out, "%lld", (long long)node->integer);
        else
            fl_buf_puts(out, node->integer ? "true" : "false");
        fl_buf_putc(out, '"');
    }
    fl_buf_putc(out, '}');
}

/* Recursion ends at FL_TOML_DEPTH_MAX levels. */
static void dump(fl_buf *out, const fl_toml *node) {
    if (node->type != FL_TOML_TABLE && node->type != FL_TOML_ARRAY) {
        dump_scalar(out, node);
        return;
    }
    const bool table = node->type == FL_TOML_TABLE;
    fl_buf_putc(out, table ? '{' : '[');
    for (const fl_toml *child = node->first; child != NULL; child = child->next) {
        if (child != node->first)
            fl_buf_putc(out, ',');
        if (table) {
            fl_json_quote(out, child->key, child->key_size);
            fl_buf_putc(out, ':');
        }
        dump(out, child);
    }
    fl_buf_putc(out, table ? '}' : ']');
}

int main(void) {
    fl_buf  text = {0}, json = {0};
    char    chunk[4096];
    ssize_t count;
    while ((count = read(STDIN_FILENO, chunk, sizeof chunk)) > 0)
        fl_buf_append(&text, chunk, (size_t)count);
    fl_toml_document *document;
    fletch_error      error;
    int               status = fl_toml_parse(&document, text.data, text.size, "stdin", &error);
    if (status < 0) {
        (void)fprintf(stderr, "%s\n", error.message);
    } else {
        dump(&json, fl_toml_root(document));
        (void)printf("%s\n", json.data);
    }
    fl_toml_free(document);
    fl_buf_free(&text);
    fl_buf_free(&json);
    return status < 0;
}
