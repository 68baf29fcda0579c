/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_gguf.c - any bytes as a GGUF file.
 *
 * Whatever comes in, the reader gives metadata and tensors or an error that says something, and leaks nothing. In a
 * file that passed every text and array lies inside it, every tensor too, with the bytes that its shape and type
 * ask for, and its last values can be read. Of a tokenizer comes the text of a JSON document, or an error. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "model/gguf_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_value(const fl_gguf_value *value, const uint8_t *data, size_t size) {
    const unsigned char *at = value->data;
    uint64_t             whole;
    double               real;
    bool                 flag;
    fl_span              text;
    if (at < data || at > data + size)
        abort();
    fl_gguf_whole(value, value->count - 1, &whole);
    fl_gguf_real(value, value->count - 1, &real);
    fl_gguf_flag(value, &flag);
    fl_gguf_text(value, &text);
    for (uint64_t i = 0; value->type == FL_GGUF_TEXT && i < value->count; i++) {
        text = fl_gguf_next(&at);
        if (text.data + text.size > (const char *)data + size)
            abort();
    }
}

static void check_tensor(const fl_tensor *tensor, const uint8_t *data, size_t size) {
    const uint8_t *begin = tensor->data;
    uint64_t       count = 1;
    float          last;
    for (uint32_t k = 0; k < tensor->rank; k++)
        count *= tensor->shape[k];
    if (begin < data || tensor->bytes > size || begin > data + size - tensor->bytes ||
        fl_dtype_bytes(tensor->dtype, count) != tensor->bytes || tensor->rank > FL_RANK_MAX)
        abort();
    fl_tensor_to_f32(tensor, count - 1, 1, &last);
}

/* What is not UTF-8 in the file is told when the text is read. */
static void check_tokenizer(const fl_gguf *file) {
    fl_buf       text   = {0};
    fl_json     *root   = NULL;
    fletch_error error  = {0};
    int          status = fl_gguf_tokenizer(&text, file, "fuzz", &error);
    if (status != 0 && (error.code != status || error.message[0] == '\0'))
        abort();
    if (status == 0 &&
        fl_json_parse(&root, text.data, text.size, text.size, 0, "fuzz", &error) == 0 &&
        !fl_json_is(root, FL_JSON_OBJECT))
        abort();
    fl_json_free(root);
    fl_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_gguf      file;
    fletch_error error  = {0};
    int          status = fl_gguf_read(&file, data, size, "fuzz", &error);
    if (status != 0) {
        if (error.code != status || error.message[0] == '\0' || file.values != NULL ||
            file.tensors.tensors != NULL)
            abort();
        return 0;
    }
    for (size_t i = 0; i < file.count; i++)
        check_value(&file.values[i], data, size);
    for (size_t i = 0; i < file.tensors.count; i++) {
        const fl_tensor *tensor = &file.tensors.tensors[i];
        check_tensor(tensor, data, size);
        if (fl_table_find(&file.tensors, file.tensors.names[i]) != tensor)
            abort();
    }
    check_tokenizer(&file);
    fl_gguf_free(&file);
    return 0;
}
