/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_multipart.c - any bytes as a form: parts lie inside the body, one behind the other, and the reader ends.
 *
 * The first byte is the length of the boundary, which follows; the rest is the body. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool truth) {
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char         type[128] = "multipart/form-data; boundary=";
    fl_multipart in;
    fl_form_part part;
    size_t       head = size > 0 ? data[0] % 80 : 0;
    if (size < 1 + head)
        return 0;
    memcpy(type + strlen(type), data + 1, head);
    size       = size - 1 - head;
    char *body = malloc(size > 0 ? size : 1), *last = body;
    memcpy(body, data + 1 + head, size);
    bool good = fl_multipart_begin(&in, type, body, size);
    must(good == (in.fault == NULL));
    while (good && fl_multipart_next(&in, &part)) {
        must(part.data.data >= last && part.data.data + part.data.size <= body + size);
        must(part.name.data >= last && part.name.data + part.name.size <= part.data.data);
        last = body + (part.data.data - body);
    }
    free(body);
    return 0;
}
