/* SPDX-License-Identifier: Apache-2.0 */
/* entail.c - see entail.h. */
#include "base/entail.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/elementary.h"

static const char gap[] = "{}";

bool fl_entail_is(const char *label) {
    return strncasecmp(label, "entail", strlen("entail")) == 0;
}

size_t fl_entail_contrary(size_t entailment, size_t labels) {
    return entailment == 0 ? labels - 1 : 0;
}

size_t fl_entail_next(const char **at, const char *end, const char **label) {
    while (*at < end && strchr(", \t\n", **at) != NULL)
        (*at)++;
    *label            = *at;
    const char *comma = memchr(*at, ',', (size_t)(end - *at)), *last = comma ? comma : end;
    *at = last;
    while (last > *label && strchr(" \t\n", last[-1]) != NULL)
        last--;
    return (size_t)(last - *label);
}

bool fl_entail_has_gap(const char *sentence, size_t size) {
    size_t braces = 0;
    for (size_t i = 0; i < size; i++)
        braces += sentence[i] == '{' || sentence[i] == '}';
    return braces == 2 && memmem(sentence, size, gap, sizeof gap - 1) != NULL;
}

size_t fl_entail_fill(const char *sentence, size_t sentence_size, const char *label,
                      size_t label_size, char *out) {
    const char *place = memmem(sentence, sentence_size, gap, sizeof gap - 1);
    size_t      head = (size_t)(place - sentence), tail = sentence_size - head - (sizeof gap - 1);
    if (out != NULL) {
        memcpy(out, sentence, head);
        memcpy(out + head, label, label_size);
        memcpy(out + head + label_size, place + sizeof gap - 1, tail);
        out[head + label_size + tail] = '\0';
    }
    return head + label_size + tail;
}

void fl_entail_settle(float *scores, size_t count, bool several) {
    float most = -INFINITY, sum = 0;
    if (several || count == 1) {
        for (size_t i = 0; i < count; i++)
            scores[i] = 1.0f / (1.0f + (float)fl_math_exp((double)(scores[count + i] - scores[i])));
        return;
    }
    for (size_t i = 0; i < count; i++)
        most = fmaxf(most, scores[i]);
    for (size_t i = 0; i < count; i++) {
        scores[i] = (float)fl_math_exp((double)(scores[i] - most));
        sum += scores[i];
    }
    for (size_t i = 0; i < count; i++)
        scores[i] /= sum;
}
