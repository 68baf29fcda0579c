/* SPDX-License-Identifier: Apache-2.0 */
/* zero_shot.c - see zero_shot.h. */
#include "cli/zero_shot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static const char gap[] = "{}", usual[] = "This example is {}.";

/* Labels are separated by commas; white space around one is none of it, and what is then empty is left out. */
static size_t next_label(const char **at, const char **label) {
    *at += strspn(*at, ", \t\n");
    *label      = *at;
    size_t size = strcspn(*at, ",");
    *at += size;
    while (size > 0 && strchr(" \t\n", (*label)[size - 1]) != NULL) {
        size--;
    }
    return size;
}

static char *fill(const char *template, const char *label) {
    const char *place = strstr(template, gap);
    size_t      size  = strlen(template) - (sizeof gap - 1) + strlen(label) + 1;
    char       *out   = fl_alloc(size);
    if (out != NULL) {
        snprintf(out, size, "%.*s%s%s", (int)(place - template), template, label,
                 place + sizeof gap - 1);
    }
    return out;
}

static bool add(fl_zero_shot *z, const char *template, const char *label, size_t size) {
    char *name          = fl_alloc(size + 1);
    z->labels[z->count] = name;
    if (name == NULL) {
        return false;
    }
    memcpy(name, label, size);
    name[size]              = '\0';
    z->hypotheses[z->count] = fill(template, name);
    return z->hypotheses[z->count++] != NULL;
}

fl_exit fl_zero_shot_read(const fl_cli *cli, fl_zero_shot *out) {
    const char *list     = cli->args.value[FL_FLAG_LABELS], *label;
    const char *template = cli->args.value[FL_FLAG_HYPOTHESIS];
    out->multi           = cli->args.value[FL_FLAG_MULTI_LABEL] != NULL;
    if (list == NULL) {
        return template == NULL && !out->multi
                   ? FL_EXIT_DONE
                   : fl_cli_usage(cli, "--hypothesis and --multi-label go with --labels");
    }
    template = template != NULL ? template : usual;
    if (strstr(template, gap) == NULL) {
        return fl_cli_usage(cli, "--hypothesis has no {} for the label, as in \"%s\"", usual);
    }
    size_t room     = strlen(list) / 2 + 1;
    out->labels     = fl_alloc_zero(room, sizeof *out->labels);
    out->hypotheses = fl_alloc_zero(room, sizeof *out->hypotheses);
    bool whole      = out->labels != NULL && out->hypotheses != NULL;
    for (size_t size; whole && (size = next_label(&list, &label)) > 0;) {
        whole = add(out, template, label, size);
    }
    if (!whole) {
        fl_cli_message("out of memory for the labels");
        return FL_EXIT_FAILED;
    }
    return out->count > 0 ? FL_EXIT_DONE : fl_cli_usage(cli, "--labels is empty");
}

fl_exit fl_zero_shot_find(const fl_cli *cli, size_t model_labels, fl_zero_shot *out) {
    for (size_t i = 0; i < model_labels; i++) {
        if (strncasecmp(fletch_label_at(cli->model, i), "entail", strlen("entail")) == 0) {
            out->entailment    = i;
            out->contradiction = i == 0 ? model_labels - 1 : 0;
            return FL_EXIT_DONE;
        }
    }
    fl_cli_message("--labels needs a model that was trained on inference (NLI): none of this one's "
                   "%zu labels is called entailment",
                   model_labels);
    fl_cli_hint("--model names one, such as MoritzLaurer/ModernBERT-base-zeroshot-v2.0.");
    return FL_EXIT_MODEL;
}

void fl_zero_shot_take(const fl_zero_shot *z, size_t label, const float *logits, float *scores) {
    scores[label]            = logits[z->entailment];
    scores[z->count + label] = logits[z->contradiction];
}

void fl_zero_shot_settle(const fl_zero_shot *z, float *scores) {
    float most = -INFINITY, sum = 0;
    if (z->multi || z->count == 1) {
        for (size_t i = 0; i < z->count; i++) {
            scores[i] = 1.0f / (1.0f + expf(scores[z->count + i] - scores[i]));
        }
        return;
    }
    for (size_t i = 0; i < z->count; i++) {
        most = fmaxf(most, scores[i]);
    }
    for (size_t i = 0; i < z->count; i++) {
        scores[i] = expf(scores[i] - most);
        sum += scores[i];
    }
    for (size_t i = 0; i < z->count; i++) {
        scores[i] /= sum;
    }
}

void fl_zero_shot_free(fl_zero_shot *z) {
    for (size_t i = 0; i < z->count; i++) {
        fl_free(z->labels[i]);
        fl_free(z->hypotheses[i]);
    }
    fl_free(z->labels);
    fl_free(z->hypotheses);
}
