/* SPDX-License-Identifier: Apache-2.0 */
/* unit_dump.c - where the units of the texts of stdin end.
 *
 * Usage    unit_dump 0-4 (fl_unit). In: u32 size, bytes; again and again. Out, per text: u32 count, then the
 *          u32 ends. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "tokenizer/units.h"

int main(int argc, char **argv) {
    fl_buf   text = {0}, out = {0};
    uint32_t size;
    if (argc != 2)
        return 2;
    fl_unit unit = (fl_unit)atoi(argv[1]);
    while (fread(&size, 4, 1, stdin) == 1) {
        fl_buf_clear(&text);
        fl_buf_clear(&out);
        if (!fl_buf_reserve(&text, size) || fread(text.data, 1, size, stdin) != size)
            return 1;
        for (size_t at = 0; at < size;) {
            at           = fl_unit_end(unit, text.data, size, at);
            uint32_t end = (uint32_t)at;
            fl_buf_append(&out, &end, sizeof end);
        }
        uint32_t count = (uint32_t)(out.size / 4);
        fwrite(&count, 4, 1, stdout);
        fwrite(out.data, 1, out.size, stdout);
    }
    fl_buf_free(&text);
    fl_buf_free(&out);
    return 0;
}
