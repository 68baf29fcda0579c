/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - the prompts of a model's folder by name; prompt.h. */
#include "requests/prompt.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "requests/open_model.h"

int fl_prompt_named(const fletch_model *model, const char *name, const char **text,
                    fletch_error *error) {
    const fl_model *m = model->model;
    char            known[256];
    size_t          used = 0;
    known[0]             = '\0';
    for (uint32_t i = 0; i < m->prompt_count; i++) {
        if (strcmp(m->prompts[i].name, name) == 0) {
            *text = m->prompts[i].text;
            return FLETCH_OK;
        }
        if (used + 1 < sizeof known) {
            int n = snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                             m->prompts[i].name);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (strcmp(name, "query") == 0 || strcmp(name, "document") == 0) {
        *text = ""; /* sentence-transformers 5 and later hold both in every model, empty */
        return FLETCH_OK;
    }
    return fl_fail(
        error, FLETCH_ECONFIG, FLETCH_NOWHERE, "the model has no prompt named \"%s\" (%s%s)", name,
        m->prompt_count ? "it has: " : "it has none; pass the text with --prompt", known);
}

const char *fl_prompt_of_documents(const fletch_model *m) {
    static const char *const names[] = {"document", "passage", "corpus"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t k = 0; k < m->model->prompt_count; k++)
            if (strcmp(m->model->prompts[k].name, names[i]) == 0)
                return m->model->prompts[k].text;
    return "";
}
