/* SPDX-License-Identifier: Apache-2.0 */
/* zero_shot.h - `fletch classify --labels`: labels of one's own; base/entail.h says how. */
#ifndef FL_CLI_ZERO_SHOT_H
#define FL_CLI_ZERO_SHOT_H

#include "cli/run.h"

typedef struct fl_zero_shot {
    char **labels, **hypotheses; /* owned [count] */
    size_t count;                /* 0: the model's own labels are asked for */
    bool   multi;
    size_t entailment, contradiction; /* of the model's labels */
} fl_zero_shot;

fl_exit fl_zero_shot_read(const fl_cli *cli, fl_zero_shot *out);
/* The model's label for entailment. FL_EXIT_MODEL: it has none. */
fl_exit fl_zero_shot_find(const fl_cli *cli, size_t model_labels, fl_zero_shot *out);
/* The logits of a label's pair to where fl_entail_settle expects them: scores[2 * count] of a text. */
void fl_zero_shot_take(const fl_zero_shot *z, size_t label, const float *logits, float *scores);
void fl_zero_shot_free(fl_zero_shot *z);

#endif
