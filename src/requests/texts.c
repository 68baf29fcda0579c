/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c - where item i of a request's input lies; texts.h. */
#include "requests/texts.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

/* No text of any machine is as large; a length of -1 is. */
#define SIZE_LIMIT (PTRDIFF_MAX / 2)

static int64_t offset_at(const fletch_texts *texts, size_t index) {
    assert(index <= texts->count);
    return texts->offsets64 ? texts->offsets64[index] : texts->offsets32[index];
}

/* Of offsets that never decrease none is beyond the last: one that is may lead anywhere, though the next offset alone
 * runs backwards. */
static int range_at(const fletch_texts *texts, size_t index, int64_t *begin, int64_t *end,
                    fletch_error *error) {
    *begin = offset_at(texts, index);
    *end   = offset_at(texts, index + 1);
    if (*begin >= 0 && *end >= *begin && *end <= offset_at(texts, texts->count) &&
        *end < SIZE_LIMIT)
        return FLETCH_OK;
    return fl_fail(
        error, FLETCH_EINVAL, index,
        "text %zu: its offsets %lld and %lld are negative, decreasing or beyond the last one",
        index, (long long)*begin, (long long)*end);
}

int fl_texts_at(const fletch_texts *texts, size_t index, const char **text, size_t *size,
                fletch_error *error) {
    assert(index < texts->count);
    if (texts->pointers) {
        *text = texts->pointers[index];
        if (!*text)
            return fl_fail(error, FLETCH_EINVAL, index, "text %zu is a NULL pointer", index);
        *size = texts->lengths ? texts->lengths[index] : strlen(*text);
        if (*size < SIZE_LIMIT)
            return FLETCH_OK;
        return fl_fail(error, FLETCH_EINVAL, index,
                       "text %zu: its length of %zu bytes is larger than memory", index, *size);
    }
    int64_t begin, end;
    FL_TRY(range_at(texts, index, &begin, &end, error));
    *size = (size_t)(end - begin);
    *text = *size > 0 && texts->bytes ? texts->bytes + begin : "";
    if (*size > 0 && !texts->bytes) /* NULL is fine as long as every text is empty */
        return fl_fail(error, FLETCH_EINVAL, index, "text %zu: bytes is NULL", index);
    return FLETCH_OK;
}

int fl_ids_at(const fl_request *request, size_t index, const int32_t **ids, size_t *count,
              fletch_error *error) {
    assert(index < request->texts.count);
    int64_t     begin, end;
    const char *list;
    if (request->token_ids) {
        FL_TRY(range_at(&request->texts, index, &begin, &end, error));
        *ids   = request->token_ids + begin;
        *count = (size_t)(end - begin);
        return FLETCH_OK;
    }
    FL_TRY(fl_texts_at(&request->texts, index, &list, count, error));
    *ids = (const int32_t *)(const void *)list;
    return FLETCH_OK;
}
