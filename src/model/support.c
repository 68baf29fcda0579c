/* SPDX-License-Identifier: Apache-2.0 */
/* support.c - whether an engine can run an encoder, and the words when it cannot.
 *
 * Role    Each engine asks when it opens, with a table of what it can; no engine has a list of
 *         refusals of its own.
 * Method  Every feature that the descriptor uses and the table lacks is named in one message. The
 *         status is EPROVIDER for all: the next provider of the chain may run the model.
 * Proof   tests/unit/test_model_rules.c. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/encoder.h"

/* The features that the whole, or some layer, uses. */
static uint64_t features_of(const fl_encoder_desc *desc) {
    fl_layer_desc   none   = {0};
    fl_encoder_desc filled = *desc, *d = &filled;
    uint64_t        used = 0;
    if (d->layers == 0) /* conditions speak of layer 0 */
        d->layer = &none;
    for (uint32_t i = 0; i == 0 || i < d->layers; i++) {
        const fl_layer_desc *l = &d->layer[i];
#define FL_TEST(name, words, condition) used |= (condition) ? FL_CAN(name) : 0;
        FL_FEATURES(FL_TEST)
    }
    return used;
}

enum { WORDS_MAX = 400 };

static bool has_head_dim(const fl_encoder_caps *caps, uint32_t head_dim) {
    bool any = caps->head_dims[0] == 0;
    for (size_t i = 0; i < sizeof caps->head_dims / sizeof *caps->head_dims; i++)
        any = any || caps->head_dims[i] == head_dim;
    return any;
}

static void add_head_dim(char *list, const fl_encoder_caps *caps, uint32_t head_dim) {
    const uint32_t *dims = caps->head_dims;
    char            words[100];
    int used = snprintf(words, sizeof words, "heads of size %u (only %u", head_dim, dims[0]);
    for (size_t i = 1; i < sizeof caps->head_dims / sizeof *dims && dims[i] != 0; i++)
        used += snprintf(words + used, sizeof words - (size_t)used, ", %u", dims[i]);
    snprintf(words + used, sizeof words - (size_t)used, ")");
    fl_error_list(list, WORDS_MAX, words);
}

static void add_size(char *list, const char *name, uint32_t size, uint32_t multiple, uint32_t max) {
    char words[100];
    if ((multiple == 0 || size % multiple == 0) && (max == 0 || size <= max))
        return;
    snprintf(words, sizeof words, "%s %u (only multiples of %u up to %u)", name, size,
             multiple == 0 ? 1 : multiple, max == 0 ? UINT32_MAX : max);
    fl_error_list(list, WORDS_MAX, words);
}

static const char *const words[] = {
#define FL_WORDS(name, text, condition) text,
    FL_FEATURES(FL_WORDS)};

static void add_features(char *list, uint64_t features) {
    for (size_t i = 0; i < FL_FEATURE_COUNT; i++)
        if (features & UINT64_C(1) << i)
            fl_error_list(list, WORDS_MAX, words[i]);
}

void fl_encoder_switches(const fl_encoder_desc *d, char *out, size_t room) {
    char list[WORDS_MAX] = "";
    add_features(list, features_of(d));
    snprintf(out, room, "%s", list);
}

int fl_encoder_supported(const fl_encoder_desc *d, const fl_encoder_caps *caps,
                         fletch_error *error) {
    FL_TRY(fl_encoder_check_sizes(d, error));
    char list[WORDS_MAX] = "";
    add_features(list, features_of(d) & ~caps->features);
    if (!has_head_dim(caps, d->head_dim))
        add_head_dim(list, caps, d->head_dim);
    add_size(list, "hidden size", d->hidden, caps->size_multiple, caps->hidden_max);
    add_size(list, "intermediate size", d->intermediate, caps->size_multiple,
             caps->intermediate_max);
    if (caps->t5_distance_max > 0 && fl_t5_rows(d) > 0 &&
        d->distance[0].max_distance > caps->t5_distance_max)
        fl_error_list(list, WORDS_MAX, "relative attention over so many tokens");
    return list[0] == '\0'
               ? FLETCH_OK
               : fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                         "%s does not handle %s (architecture %s); %s", caps->engine, list,
                         d->architecture ? d->architecture : "unknown", caps->instead);
}
