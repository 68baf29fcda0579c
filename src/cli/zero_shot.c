/* SPDX-License-Identifier: Apache-2.0 */
/* zero_shot.c - see zero_shot.h. */
#include "cli/zero_shot.h"

#include <string.h>

#include "base/entail.h"
#include "base/mem.h"

static bool add(fl_zero_shot *z, const char *sentence, const char *label, size_t size) {
    size_t all                = strlen(sentence);
    char  *name               = fl_alloc(size + 1);
    char  *hypothesis         = fl_alloc(fl_entail_fill(sentence, all, label, size, NULL) + 1);
    z->labels[z->count]       = name;
    z->hypotheses[z->count++] = hypothesis;
    if (name == NULL || hypothesis == NULL)
        return false;
    memcpy(name, label, size);
    name[size] = '\0';
    fl_entail_fill(sentence, all, label, size, hypothesis);
    return true;
}

/* A label that is there again: the answer has a member for each. */
static const char *find_twice(const fl_zero_shot *z) {
    for (size_t i = 0; i < z->count; i++) {
        for (size_t k = 0; k < i; k++)
            if (strcmp(z->labels[i], z->labels[k]) == 0)
                return z->labels[i];
    }
    return NULL;
}

fl_exit fl_zero_shot_read(const fl_cli *cli, fl_zero_shot *out) {
    const char *list     = cli->args.value[FL_FLAG_LABELS], *label;
    const char *sentence = cli->args.value[FL_FLAG_HYPOTHESIS];
    out->multi           = cli->args.value[FL_FLAG_MULTI_LABEL] != NULL;
    if (list == NULL) {
        return sentence == NULL && !out->multi
                   ? FL_EXIT_DONE
                   : fl_cli_usage(cli, "--hypothesis and --multi-label need --labels");
    }
    sentence = sentence != NULL ? sentence : FL_ENTAIL_SENTENCE;
    if (!fl_entail_has_gap(sentence, strlen(sentence))) {
        return fl_cli_usage(
            cli, "--hypothesis needs one {} for the label and no other braces, as in \"%s\"",
            FL_ENTAIL_SENTENCE);
    }
    const char *end  = list + strlen(list);
    size_t      room = strlen(list) / 2 + 1;
    out->labels      = fl_alloc_zero(room, sizeof *out->labels);
    out->hypotheses  = fl_alloc_zero(room, sizeof *out->hypotheses);
    bool whole       = out->labels != NULL && out->hypotheses != NULL;
    for (size_t size; whole && (size = fl_entail_next(&list, end, &label)) > 0;)
        whole = add(out, sentence, label, size);
    if (!whole) {
        fl_cli_message("out of memory for the labels");
        return FL_EXIT_FAILED;
    }
    const char *twice = find_twice(out);
    return out->count == 0 ? fl_cli_usage(cli, "--labels is empty")
           : twice != NULL ? fl_cli_usage(cli, "--labels has \"%.60s\" twice", twice)
                           : FL_EXIT_DONE;
}

fl_exit fl_zero_shot_find(const fl_cli *cli, size_t model_labels, fl_zero_shot *out) {
    for (size_t i = 0; i < model_labels; i++) {
        if (fl_entail_is(fletch_label_at(cli->model, i))) {
            out->entailment    = i;
            out->contradiction = fl_entail_contrary(i, model_labels);
            return FL_EXIT_DONE;
        }
    }
    fl_cli_message(
        "--labels needs a model trained on NLI: none of this model's %zu labels is \"entailment\"",
        model_labels);
    fl_cli_hint("choose one with --model, such as MoritzLaurer/ModernBERT-base-zeroshot-v2.0.");
    return FL_EXIT_MODEL;
}

void fl_zero_shot_take(const fl_zero_shot *z, size_t label, const float *logits, float *scores) {
    scores[label]            = logits[z->entailment];
    scores[z->count + label] = logits[z->contradiction];
}

void fl_zero_shot_free(fl_zero_shot *z) {
    for (size_t i = 0; i < z->count; i++) {
        fl_free(z->labels[i]);
        fl_free(z->hypotheses[i]);
    }
    fl_free(z->labels);
    fl_free(z->hypotheses);
}
