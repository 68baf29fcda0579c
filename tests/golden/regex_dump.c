/* SPDX-License-Identifier: Apache-2.0 */
/* regex_dump.c - the matches of a pattern in the texts of stdin.
 *
 * Usage    regex_dump PATTERN. In: u32 size, bytes; again and again. Out, per text: u32 count, then u32 begin
 *          and u32 end of each match. Exit 2: the pattern was refused; 3: it takes too long on a text. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "tokenizer/regex.h"

int main(int argc, char **argv) {
    fl_regex     *regex;
    fl_regex_work work  = {0};
    fletch_error  error = {0};
    fl_buf        text = {0}, out = {0};
    uint32_t      size;
    if (argc != 2 || fl_regex_open(&regex, argv[1], "regex_dump", &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        return 2;
    }
    while (fread(&size, 4, 1, stdin) == 1) {
        fl_regex_walk   walk = {0};
        fl_regex_result result;
        size_t          begin, end;
        fl_buf_clear(&text);
        fl_buf_clear(&out);
        if (!fl_buf_reserve(&text, size) || fread(text.data, 1, size, stdin) != size)
            return 1;
        while ((result = fl_regex_next(regex, &work, text.data, size, &walk, &begin, &end)) ==
               FL_REGEX_MATCH) {
            uint32_t place[2] = {(uint32_t)begin, (uint32_t)end};
            fl_buf_append(&out, place, sizeof place);
        }
        uint32_t count = (uint32_t)(out.size / 8);
        if (result != FL_REGEX_NONE)
            return 3;
        fwrite(&count, 4, 1, stdout);
        fwrite(out.data, 8, count, stdout);
    }
    fl_buf_free(&text);
    fl_buf_free(&out);
    fl_regex_work_free(&work);
    fl_regex_close(regex);
    return 0;
}
