/* SPDX-License-Identifier: Apache-2.0 */
/* tei_zero_shot.c - /zero-shot-classification: labels that a request brings, by a model of inference (NLI).
 *
 * Role    what huggingface_hub's InferenceClient.zero_shot_classification speaks; TEI itself has no such route.
 * In/Out  {"inputs": "a text" | ["a text", …], "parameters": {"candidate_labels": ["a", "b"] | "a, b",
 *         "hypothesis_template": "This example is {}.", "multi_label": false}} to [{"label", "score"}], best first, or
 *         to a list of such.
 * Method  base/entail.h: one job of a pair for every text and label.
 * Memory  request memory: two pointers and sizes a pair, a sentence a label. Threads: see server.h.
 * Proof   tests/server/test_scores.py against transformers' pipeline. */
#include <stddef.h>
#include <string.h>

#include "base/entail.h"
#include "base/mem.h"
#include "server/tei.h"

enum { CLASS_TEXT = 40 }; /* of a label in the answer, beside its name */

/* What was asked for; the job itself is of pairs. */
typedef struct zero_shot {
    fl_body_input texts, labels;
    size_t        entailment, contrary; /* of the model's labels */
    float        *scores;               /* [2][labels] */
    fl_ranked    *ranked;               /* [labels] */
} zero_shot;

/* ---- The answer ------------------------------------------------------------------------------- */

static bool put_text(fl_job *job, const zero_shot *z, size_t text) {
    fl_buf      *body = &job->request->reply.body;
    const float *rows = job->rows + text * z->labels.count * job->columns;
    for (size_t i = 0; i < z->labels.count; i++) {
        z->scores[i]                   = rows[i * job->columns + z->entailment];
        z->scores[z->labels.count + i] = rows[i * job->columns + z->contrary];
    }
    fl_entail_settle(z->scores, z->labels.count, job->ask.multi_label == 1);
    fl_rank(z->scores, z->labels.count, z->ranked);
    for (size_t i = 0; i < z->labels.count; i++) {
        size_t label = z->ranked[i].index;
        fl_tei_put_class(body, i, z->ranked[i].score, z->labels.texts[label],
                         z->labels.lengths[label]);
    }
    fl_buf_puts(body, "]");
    return !body->failed;
}

static bool write_zero_shot(fl_job *job, const fletch_outcome *outcome) {
    const zero_shot *z    = job->extra;
    fl_buf          *body = &job->request->reply.body;
    bool             list = z->texts.form != FL_INPUT_TEXT, good = true;
    (void)outcome;
    fl_buf_puts(body, list ? "[" : "");
    for (size_t i = 0; good && i < z->texts.count; i++) {
        fl_buf_puts(body, i > 0 ? "," : "");
        good = put_text(job, z, i);
    }
    fl_buf_puts(body, list ? "]" : "");
    return good && !body->failed;
}

static const fl_style style = {&fl_tei_faults, write_zero_shot, true};

/* ---- The request ------------------------------------------------------------------------------ */

#define AT(field) offsetof(fl_ask, field)

static const fl_field parameters[] = {{"candidate_labels", FL_FIELD_INPUT, FL_FIELD_REQUIRED,
                                       AT(labels), .forms = FL_INPUT_TEXT | FL_INPUT_TEXTS,
                                       .text = "Labels, or a comma-separated string of them."},
                                      {"hypothesis_template", FL_FIELD_STRING, FL_FIELD_NULL,
                                       AT(hypothesis),
                                       .text = "The hypothesis; {} stands for the label."},
                                      {"multi_label", FL_FIELD_BOOL, FL_FIELD_NULL, AT(multi_label),
                                       .text = "true: labels are scored independently."},
                                      {0}};

const fl_field fl_fields_tei_zero_shot[] = {
    {"inputs", FL_FIELD_INPUT, FL_FIELD_REQUIRED, AT(input),
     .forms = FL_INPUT_TEXT | FL_INPUT_TEXTS},
    {"parameters", FL_FIELD_INNER, FL_FIELD_REQUIRED, 0, .inner = parameters},
    {FL_ASK_TRUNCATE},
    {FL_ASK_MODEL},
    {0}};

static bool fail_memory(fl_job *job) {
    fl_reply_error(job->request, FL_HTTP_INTERNAL, "out of memory");
    return false;
}

/* "a, b" becomes ["a", "b"]. */
static bool split_labels(fl_job *job, fl_body_input *labels) {
    const char *at = labels->texts[0], *end = at + labels->lengths[0], *label;
    size_t      room = 1;
    for (const char *c = at; c < end; c++)
        room += *c == ',';
    labels->texts   = fl_request_alloc(job->request, room * sizeof *labels->texts);
    labels->lengths = fl_request_alloc(job->request, room * sizeof *labels->lengths);
    labels->count   = 0;
    if (labels->texts == NULL || labels->lengths == NULL)
        return fail_memory(job);
    for (size_t size; (size = fl_entail_next(&at, end, &label)) > 0;) {
        labels->texts[labels->count]     = label;
        labels->lengths[labels->count++] = size;
    }
    return true;
}

static bool check(fl_job *job, zero_shot *z, fl_span *sentence) {
    *sentence = job->ask.hypothesis;
    if (sentence->data == NULL)
        *sentence = (fl_span){FL_ENTAIL_SENTENCE, strlen(FL_ENTAIL_SENTENCE)};
    z->texts  = job->ask.input;
    z->labels = job->ask.labels;
    if (z->labels.form == FL_INPUT_TEXT && !split_labels(job, &z->labels))
        return false;
    if (z->texts.count == 0 || z->texts.empty) {
        fl_job_refuse(job, FL_REFUSE_EMPTY, FLETCH_NOWHERE, "");
    } else if (z->labels.count == 0 || z->labels.empty) {
        fl_reply_error(job->request, FL_HTTP_EMPTY, "`candidate_labels` cannot be empty");
    } else if (!fl_entail_has_gap(sentence->data, sentence->size)) {
        fl_reply_error(job->request, FL_HTTP_VALIDATION,
                       "`hypothesis_template` needs one {} for the label and no other braces, as "
                       "in \"%s\"",
                       FL_ENTAIL_SENTENCE);
    } else {
        return true;
    }
    return false;
}

/* How much the answer takes is known before anything is scored. */
static bool answer_fits(const zero_shot *z) {
    size_t each = 0, bytes;
    for (size_t i = 0; i < z->labels.count; i++)
        each += CLASS_TEXT + fl_json_quoted_size(z->labels.texts[i], z->labels.lengths[i]);
    return fl_mul_overflow(each, z->texts.count, &bytes) == 0 && bytes <= FL_ANSWER_MAX;
}

/* A sentence for each label. */
static bool make_sentences(fl_job *job, const zero_shot *z, fl_span sentence, fl_span *out) {
    for (size_t i = 0; i < z->labels.count; i++) {
        const char *label = z->labels.texts[i];
        size_t      size  = z->labels.lengths[i];
        size_t      whole = fl_entail_fill(sentence.data, sentence.size, label, size, NULL);
        char       *text  = fl_request_alloc(job->request, whole + 1);
        if (text == NULL)
            return fail_memory(job);
        fl_entail_fill(sentence.data, sentence.size, label, size, text);
        out[i] = (fl_span){text, whole};
    }
    return true;
}

/* Every text with every sentence. */
static bool make_pairs(fl_job *job, zero_shot *z, fl_span sentence) {
    fl_body_input *first = &job->ask.input, *second = &job->ask.second;
    size_t         count;
    if (fl_mul_overflow(z->texts.count, z->labels.count, &count) != 0 ||
        count > SIZE_MAX / sizeof(fl_span) || !answer_fits(z)) {
        fl_job_refuse(job, FL_REFUSE_TOO_MUCH, FLETCH_NOWHERE,
                      "the answer would be larger than 512 MiB; send fewer texts at once");
        return false;
    }
    fl_span *sentences = fl_request_alloc(job->request, z->labels.count * sizeof *sentences);
    z->scores          = fl_request_alloc(job->request, 2 * z->labels.count * sizeof *z->scores);
    z->ranked          = fl_request_alloc(job->request, z->labels.count * sizeof *z->ranked);
    first->texts       = fl_request_alloc(job->request, count * sizeof *first->texts);
    first->lengths     = fl_request_alloc(job->request, count * sizeof *first->lengths);
    second->texts      = fl_request_alloc(job->request, count * sizeof *second->texts);
    second->lengths    = fl_request_alloc(job->request, count * sizeof *second->lengths);
    if (sentences == NULL || z->scores == NULL || z->ranked == NULL || first->texts == NULL ||
        first->lengths == NULL || second->texts == NULL || second->lengths == NULL)
        return fail_memory(job);
    if (!make_sentences(job, z, sentence, sentences))
        return false;
    first->count = second->count = count;
    first->form = second->form = FL_INPUT_TEXTS;
    for (size_t i = 0; i < count; i++) {
        first->texts[i]    = z->texts.texts[i / z->labels.count];
        first->lengths[i]  = z->texts.lengths[i / z->labels.count];
        second->texts[i]   = sentences[i % z->labels.count].data;
        second->lengths[i] = sentences[i % z->labels.count].size;
    }
    return true;
}

static bool find_entailment(fl_job *job, zero_shot *z) {
    for (size_t i = 0; i < job->columns; i++) {
        if (fl_entail_is(fletch_label_at(job->served->model, i))) {
            z->entailment = i;
            z->contrary   = fl_entail_contrary(i, job->columns);
            return true;
        }
    }
    fl_job_refuse(job, FL_REFUSE_HEAD, FLETCH_NOWHERE,
                  "Model was not trained on inference (NLI): none of its labels is entailment");
    return false;
}

void fl_tei_zero_shot(fl_http_request *request) {
    fl_job    *job = fl_job_read(request, &style, fl_fields_tei_zero_shot);
    zero_shot *z   = job != NULL ? fl_request_alloc(request, sizeof *z) : NULL;
    fl_span    sentence;
    if (job != NULL && z == NULL)
        (void)fail_memory(job);
    if (z == NULL || !check(job, z, &sentence) || !make_pairs(job, z, sentence))
        return;
    job->extra = z;
    if (fl_job_prepare_scores(job, FLETCH_ACTIVATION_NONE) && find_entailment(job, z))
        fl_job_submit(job);
}
