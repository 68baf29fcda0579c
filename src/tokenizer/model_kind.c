/* SPDX-License-Identifier: Apache-2.0 */
/* model_kind.c - which model a tokenizer.json has.
 *
 * Role     parse.c asks; a model is one row here.
 * Method   model.type names it. Files of before 2021 lack it, so their keys tell, in the order in which the
 *          reference tries them. */
#include "base/error.h"
#include "tokenizer/parse.h"
#include "tokenizer/token_model.h"

#include <stdio.h>
#include <string.h>

static const fl_token_model *const models[] = {&fl_wordpiece_model, &fl_unigram_model,
                                               &fl_bpe_model, &fl_wordlevel_model};

enum { MODELS = sizeof models / sizeof *models };

static const char *guess(fl_json_reader *model) {
    fl_json *vocab = fl_json_get(model->object, "vocab");
    if (fl_json_has(model, "merges"))
        return "BPE";
    if (fl_json_is(vocab, FL_JSON_ARRAY))
        return "Unigram";
    return fl_json_has(model, "max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

const fl_token_model *fl_token_model_of(fl_json_reader *model) {
    const char *type = fl_json_string(model, "type", NULL);
    if (model->status < 0)
        return NULL;
    type = type != NULL ? type : guess(model);
    char   known[128];
    size_t used = 0;
    for (unsigned i = 0; i < MODELS; i++) {
        if (strcmp(models[i]->type, type) == 0)
            return models[i];
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                                 models[i]->type);
    }
    fl_refuse(model, "model", type, known);
    return NULL;
}
