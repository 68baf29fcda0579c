/* SPDX-License-Identifier: Apache-2.0 */
/* entail.h - labels of one's own, by a model that was trained on inference (NLI): its arithmetic.
 *
 * Method  As transformers' zero-shot-classification pipeline: each text is paired with a sentence about each label,
 *         "This example is {}."; the more the text entails it, the better the label. Scores are a softmax over
 *         the labels' entailment, or for several labels at once, or where there is one label, of each label's against
 *         contradiction.
 * Used by the command line and the server, which both stand on fletch.h.
 * Proof   tests/cli/test_cli_scores.py and tests/server/test_scores.py, against that pipeline. */
#ifndef FL_BASE_ENTAIL_H
#define FL_BASE_ENTAIL_H

#include <stdbool.h>
#include <stddef.h>

#define FL_ENTAIL_SENTENCE "This example is {}."

/* Whether a model's label says that the second text follows from the first, and which of its `labels` then
 * says the contrary. */
bool   fl_entail_is(const char *label);
size_t fl_entail_contrary(size_t entailment, size_t labels);

/* The next label of a list with commas at *at, which is moved behind it; 0: there is none before `end`. White space
 * around a label is none of it, and what is then empty is left out. */
size_t fl_entail_next(const char **at, const char *end, const char **label);

/* Whether a sentence has one gap and no other braces, which Python's str.format would take for another or refuse. */
bool fl_entail_has_gap(const char *sentence, size_t size);

/* `label` in the gap of `sentence`, which has one, to out[] and a NUL behind it; out NULL: how many bytes that
 * takes without the NUL. */
size_t fl_entail_fill(const char *sentence, size_t sentence_size, const char *label,
                      size_t label_size, char *out);

/* scores[2][count], of a text: logits of entailment, then of its contrary, become the labels' scores in [0][count]. */
void fl_entail_settle(float *scores, size_t count, bool several);

#endif
