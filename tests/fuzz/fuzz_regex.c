/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_regex.c - any bytes as a pattern (up to the first newline) and a text (after it).
 *
 * Opening gives a pattern or an error that says something; matches lie in the text, in order and at
 * characters' borders. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool border(const char *text, size_t size, size_t at) {
    return at == size || ((unsigned char)text[at] & 0xC0) != 0x80;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    char           pattern[128];
    fl_regex      *regex;
    fletch_error   error = {0};
    if (line == NULL || (size_t)(line - data) >= sizeof pattern || size > 600 ||
        fl_utf8_valid_prefix((const char *)data, size) != size)
        return 0;
    memcpy(pattern, data, (size_t)(line - data));
    pattern[line - data] = '\0';
    const char *text     = (const char *)line + 1;
    size_t      count    = size - (size_t)(line - data) - 1;
    if (fl_regex_open(&regex, pattern, "fuzz", &error) < 0) {
        if (regex != NULL || error.message[0] == '\0')
            abort();
        return 0;
    }
    fl_regex_work work = {0};
    fl_regex_walk walk = {0};
    size_t        begin, end, last = 0;
    while (fl_regex_next(regex, &work, text, count, &walk, &begin, &end) == FL_REGEX_MATCH) {
        if (begin < last || end < begin || end > count || !border(text, count, begin) ||
            !border(text, count, end))
            abort();
        last = end;
    }
    fl_regex_work_free(&work);
    fl_regex_close(regex);
    return 0;
}
