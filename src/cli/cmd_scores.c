/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_scores.c - `fletch rerank` and `fletch classify`: texts to scores.
 *
 * Role    What embed.c is for vectors: input, flags and formats are its own.
 * Formats classify, in input order: jsonl {"index":0,"label":"neutral","score":0.9,"scores":{"neutral":0.9,…},
 *         "tokens":9,"truncated":false}; npy and raw hold [texts, labels] float32. rerank, best first:
 *         {"index":0,"score":0.9,"tokens":9,"truncated":false}. Scores are as the folder's activation
 *         leaves them, or --activation.
 * Method  A window of run.c is one call; a text without scores is told by its status, the others go on.
 *         rerank keeps what it may have to show until its input ends: all documents, or, with --top K, the
 *         best K and as many that wait to be compared with them.
 *         With --pair-field the second text is read as a further field of the record, joined by a byte that
 *         no UTF-8 text has.
 * Memory  One window; for rerank the documents kept.
 * Proof   tests/cli/test_cli_scores.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/entail.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "cli/run.h"
#include "cli/zero_shot.h"

enum { SHOWN_LABELS = 5, LEAST_KEPT = 4096 };

static const char pair_mark[] = "\xff"; /* in no valid UTF-8 */

/* A document that may be among the results. */
typedef struct found {
    float  score;
    fl_row row;           /* its text and fields are: */
    char  *text, *fields; /* owned; NULL where they are not told */
} found;

typedef struct score_run {
    const char       *query;      /* NULL: classify */
    const char       *pair;       /* the second text of every one, or NULL */
    bool              pair_field; /* each brings its own */
    fletch_activation activation;
    size_t            top;          /* 0: all */
    size_t            labels;       /* that are told */
    size_t            model_labels; /* that the model scores */
    fletch_model     *model;        /* borrowed */
    fl_zero_shot      zero_shot;
    /* of a window */
    float    *scores; /* owned [capacity, labels]; with labels of one's own [capacity, 2, labels] */
    float    *logits; /* owned [capacity, model_labels]: of one of those */
    uint8_t  *cut_now; /* owned [capacity]: likewise */
    int32_t  *status_now;
    uint32_t *tokens;     /* owned [capacity] */
    uint8_t  *cut;        /* owned [capacity] */
    int32_t  *status;     /* owned [capacity] */
    const char **seconds; /* owned [capacity] */
    size_t      *sizes;   /* owned [2][capacity]: of first texts, of second */
    size_t       capacity;
    /* of rerank */
    found *kept; /* owned [room] */
    size_t count, room;
} score_run;

/* ---- Flags ----------------------------------------------------------------------------------- */

static fletch_activation parse_activation(const char *name) {
    static const char *const names[] = {"auto", "none", "sigmoid", "softmax"};
    for (int i = 0; name != NULL && i <= FLETCH_ACTIVATION_SOFTMAX; i++)
        if (strcmp(name, names[i]) == 0)
            return (fletch_activation)i;
    return FLETCH_ACTIVATION_DEFAULT;
}

static fl_exit read_flags(const fl_cli *cli, score_run *scores) {
    const char *top   = cli->args.value[FL_FLAG_TOP];
    int64_t     count = 0;
    if (cli->args.command->id == FL_CMD_RERANK) {
        scores->query = cli->args.value[FL_FLAG_QUERY];
        if (scores->query == NULL || scores->query[0] == '\0') {
            return fl_cli_usage(cli, "--query is required%s",
                                scores->query != NULL ? "; it is empty" : "");
        }
    }
    if (top != NULL && (!fl_parse_i64(top, &count) || count < 1))
        return fl_cli_usage(cli, "--top takes a number of at least 1, not '%.64s'", top);
    scores->top        = (size_t)count;
    scores->pair       = cli->args.value[FL_FLAG_PAIR];
    scores->pair_field = cli->args.value[FL_FLAG_PAIR_FIELD] != NULL;
    scores->activation = parse_activation(cli->args.value[FL_FLAG_ACTIVATION]);
    if (scores->pair != NULL && scores->pair_field)
        return fl_cli_usage(cli, "--pair and --pair-field exclude each other");
    if (cli->args.value[FL_FLAG_LABELS] != NULL &&
        (scores->pair != NULL || scores->pair_field ||
         scores->activation != FLETCH_ACTIVATION_DEFAULT))
        return fl_cli_usage(cli, "--labels excludes --pair, --pair-field and --activation");
    return fl_zero_shot_read(cli, &scores->zero_shot);
}

/* "--field A --pair-field B" reads the fields "A,B" into *fields. */
static fl_exit name_fields(fl_cli *cli, fl_buf *fields) {
    const char *field = cli->args.value[FL_FLAG_FIELD];
    const char *other = cli->args.value[FL_FLAG_PAIR_FIELD];
    if (other == NULL)
        return FL_EXIT_DONE;
    field = field != NULL ? field : cli->args.value[FL_FLAG_NO_HEADER] != NULL ? "1" : "text";
    if (strchr(field, ',') != NULL || strchr(other, ',') != NULL)
        return fl_cli_usage(cli, "--pair-field takes one field, and so does --field with it");
    fl_buf_printf(fields, "%s,%s", field, other);
    cli->args.value[FL_FLAG_FIELD] = fields->data;
    return fields->failed ? FL_EXIT_FAILED : FL_EXIT_DONE;
}

static fl_exit check_run(const fl_run *run, const score_run *scores) {
    FL_CLI_TRY(fl_output_check_kept(&run->output, run->cli));
    bool plain = run->input.format == FL_INPUT_ARGUMENTS || run->input.format == FL_INPUT_LINES;
    if (scores->pair_field && plain) {
        return fl_cli_usage(run->cli, "--pair-field needs records with fields: json, jsonl, csv or "
                                      "tsv input; --pair gives every text the same second one");
    }
    return FL_EXIT_DONE;
}

/* ---- A window -------------------------------------------------------------------------------- */

static void free_window(score_run *s) {
    fl_free(s->scores);
    fl_free(s->logits);
    fl_free(s->cut_now);
    fl_free(s->status_now);
    fl_free(s->tokens);
    fl_free(s->cut);
    fl_free(s->status);
    fl_free(s->seconds);
    fl_free(s->sizes);
}

static bool reserve(score_run *s, size_t count) {
    if (count <= s->capacity)
        return true;
    free_window(s);
    const bool own = s->zero_shot.count > 0; /* labels of the user's */
    s->scores      = fl_alloc_array(count, (own ? 2 : 1) * s->labels * sizeof *s->scores);
    if (own) {
        s->logits     = fl_alloc_array(count, s->model_labels * sizeof *s->logits);
        s->cut_now    = fl_alloc_array(count, sizeof *s->cut_now);
        s->status_now = fl_alloc_array(count, sizeof *s->status_now);
    }
    s->tokens   = fl_alloc_array(count, sizeof *s->tokens);
    s->cut      = fl_alloc_array(count, sizeof *s->cut);
    s->status   = fl_alloc_array(count, sizeof *s->status);
    s->seconds  = fl_alloc_array(count, sizeof *s->seconds);
    s->sizes    = fl_alloc_array(2 * count, sizeof *s->sizes);
    s->capacity = count;
    return s->scores != NULL &&
           (!own || (s->logits != NULL && s->cut_now != NULL && s->status_now != NULL)) &&
           s->tokens != NULL && s->cut != NULL && s->status != NULL && s->seconds != NULL &&
           s->sizes != NULL;
}

/* Where the texts of the window's pairs lie; a record that is one text is refused later. */
static void split_pairs(const fl_run *run, score_run *s) {
    for (size_t i = 0; i < run->window.count; i++) {
        const char *text = run->window.texts[i], *mark = NULL;
        size_t      size          = run->window.sizes[i];
        s->sizes[i]               = size;
        s->seconds[i]             = s->pair != NULL ? s->pair : "";
        s->sizes[s->capacity + i] = strlen(s->seconds[i]);
        mark = s->pair_field && size > 0 ? memchr(text, pair_mark[0], size) : NULL;
        if (mark != NULL) {
            s->sizes[i]               = (size_t)(mark - text);
            s->seconds[i]             = mark + 1;
            s->sizes[s->capacity + i] = size - s->sizes[i] - 1;
        }
    }
}

/* Each text beside what each label says of it. */
static int score_own_labels(fl_run *run, score_run *s, fletch_error *error) {
    const fl_zero_shot  *z       = &s->zero_shot;
    const size_t         count   = run->window.count;
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_matrix        out     = fletch_matrix_f32(s->logits, count, s->model_labels);
    fletch_texts         texts   = fletch_texts_from_strings(run->window.texts, count);
    fletch_texts         second  = fletch_texts_from_strings(s->seconds, count);
    memcpy(s->sizes, run->window.sizes, count * sizeof *s->sizes);
    texts.lengths      = s->sizes;
    options.tokens     = s->tokens;
    options.truncated  = s->cut_now;
    options.status     = s->status_now;
    options.activation = FLETCH_ACTIVATION_NONE;
    memset(s->cut, 0, count);
    memset(s->status, 0, count * sizeof *s->status);
    for (size_t label = 0; label < z->count; label++) {
        for (size_t i = 0; i < count; i++)
            s->seconds[i] = z->hypotheses[label];
        FL_TRY(fletch_classify(run->cli->model, &texts, &second, &options, &out, error));
        for (size_t i = 0; i < count; i++) {
            s->cut[i]    = s->cut[i] != 0 || s->cut_now[i] != 0;
            s->status[i] = s->status[i] != 0 ? s->status[i] : s->status_now[i];
            fl_zero_shot_take(z, label, s->logits + i * s->model_labels,
                              s->scores + i * 2 * s->labels);
        }
    }
    for (size_t i = 0; i < count; i++) {
        fl_entail_settle(s->scores + i * 2 * s->labels, s->labels, z->multi);
        memmove(s->scores + i * s->labels, s->scores + i * 2 * s->labels,
                s->labels * sizeof *s->scores);
    }
    return FLETCH_OK;
}

static int score_window(fl_run *run, score_run *s, fletch_error *error) {
    fletch_embed_options options = FLETCH_EMBED_OPTIONS_INIT;
    fletch_matrix        out     = fletch_matrix_f32(s->scores, run->window.count, s->labels);
    fletch_texts         texts   = fletch_texts_from_strings(run->window.texts, run->window.count);
    fletch_texts         second  = fletch_texts_from_strings(s->seconds, run->window.count);
    bool                 pairs   = s->pair != NULL || s->pair_field;
    split_pairs(run, s);
    texts.lengths      = s->sizes;
    second.lengths     = s->sizes + s->capacity;
    options.tokens     = s->tokens;
    options.truncated  = s->cut;
    options.status     = s->status;
    options.activation = s->activation;
    if (s->query != NULL) {
        return fletch_rerank(run->cli->model, s->query, strlen(s->query), &texts, &options,
                             s->scores, error);
    }
    return fletch_classify(run->cli->model, &texts, pairs ? &second : NULL, &options, &out, error);
}

/* ---- Results --------------------------------------------------------------------------------- */

static const char *label_of(const score_run *s, size_t label) {
    return s->zero_shot.count > 0 ? s->zero_shot.labels[label] : fletch_label_at(s->model, label);
}

static void put_label(const score_run *s, fl_buf *out, size_t label) {
    const char *name = label_of(s, label);
    fl_json_quote(out, name, strlen(name));
}

static size_t best_of(const float *values, size_t count, const bool *taken) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if ((taken == NULL || !taken[i]) && (best == SIZE_MAX || values[i] > values[best]))
            best = i;
    return best;
}

/* For a person: the text, and the labels that score best. */
static void put_table(fl_output *output, const fl_row *row, const void *result) {
    const score_run *s      = result;
    const float     *values = row->vector;
    const size_t     labels = s->labels;
    fl_buf          *out    = &output->sink.buf;
    fl_output_put_preview(output, row);
    fl_buf_puts(out, "\n   ");
    fl_output_put_count(out, row->tokens, row->truncated);
    bool *taken = fl_alloc_zero(labels, sizeof *taken);
    for (size_t i = 0; taken != NULL && i < labels && i < SHOWN_LABELS; i++) {
        size_t best = best_of(values, labels, taken);
        taken[best] = true;
        fl_buf_printf(out, "%s%s %.4f", i == 0 ? ": " : ", ", label_of(s, best),
                      (double)values[best]);
    }
    fl_free(taken);
    fl_buf_puts(out, labels > SHOWN_LABELS ? ", ...\n" : "\n");
}

static void put_classes(fl_output *output, const fl_row *row, const void *result) {
    const score_run *s      = result;
    const float     *values = row->vector;
    size_t           best   = best_of(values, s->labels, NULL);
    fl_buf          *out    = &output->sink.buf;
    fl_output_put_index(out, row);
    fl_buf_puts(out, "\"label\":");
    put_label(s, out, best);
    fl_buf_puts(out, ",\"score\":");
    fl_output_put_f32(out, values[best]);
    fl_buf_puts(out, ",\"scores\":{");
    for (size_t i = 0; i < s->labels; i++) {
        fl_buf_puts(out, i > 0 ? "," : "");
        put_label(s, out, i);
        fl_buf_putc(out, ':');
        fl_output_put_f32(out, values[i]);
    }
    fl_buf_putc(out, '}');
    fl_output_put_tokens(out, row);
}

static float score_of(const fl_row *row) {
    return *(const float *)row->vector;
}

static void put_line(fl_output *output, const fl_row *row, const void *result) {
    fl_buf *out = &output->sink.buf;
    (void)result;
    fl_buf_printf(out, "%9.4f  ", (double)score_of(row));
    fl_cli_preview(out, row->text, row->text_size, 100);
    fl_buf_putc(out, '\n');
}

static void put_ranked(fl_output *output, const fl_row *row, const void *result) {
    fl_buf *out = &output->sink.buf;
    (void)result;
    fl_output_put_index(out, row);
    fl_buf_puts(out, "\"score\":");
    fl_output_put_f32(out, score_of(row));
    fl_output_put_tokens(out, row);
}

/* ---- The best documents ---------------------------------------------------------------------- */

/* Best first; of equals the one that came first. */
static int compare(const void *left, const void *right) {
    const found *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->row.index < b->row.index ? -1 : a->row.index > b->row.index;
}

static void free_found(found *row) {
    fl_free(row->text);
    fl_free(row->fields);
}

static void rank(score_run *s) {
    if (s->count > 0)
        qsort(s->kept, s->count, sizeof *s->kept, compare);
    while (s->top > 0 && s->count > s->top)
        free_found(&s->kept[--s->count]);
}

/* A copy of what was borrowed. */
static char *copy(const char *text, size_t size) {
    char *own = fl_alloc(size + 1);
    if (own != NULL && size > 0)
        memcpy(own, text, size);
    return own;
}

static bool keep(const fl_run *run, score_run *s, const fl_row *row, float score) {
    bool shown = run->output.keep_text || run->output.format == FL_OUTPUT_TEXT;
    if (s->top > 0 && s->count >= LEAST_KEPT && s->count / 2 >= s->top)
        rank(s);
    if (s->count == s->room) {
        size_t room  = s->room == 0 ? 256 : 2 * s->room;
        found *grown = fl_realloc_array(s->kept, room, sizeof *grown);
        if (grown == NULL)
            return false;
        s->kept = grown;
        s->room = room;
    }
    found *own    = &s->kept[s->count++];
    *own          = (found){.score = score, .row = *row};
    own->row.text = own->text = shown ? copy(row->text, row->text_size) : NULL;
    if (row->fields_size > 0)
        own->row.fields = own->fields = copy(row->fields, row->fields_size);
    return (!shown || own->text != NULL) && (row->fields_size == 0 || own->fields != NULL);
}

/* ---- The run --------------------------------------------------------------------------------- */

static bool has_mark(const fl_run *run, size_t i) {
    size_t size = run->window.sizes[i];
    return size > 0 && memchr(run->window.texts[i], pair_mark[0], size) != NULL;
}

static fl_exit write_window(fl_run *run, score_run *s) {
    const fl_writer classes = {put_table, put_classes, fl_vector_writer.numbers, false};
    for (size_t i = 0; i < run->window.count; i++) {
        const float *scores = s->scores + i * s->labels;
        fletch_error error  = {.code = s->status[i], .where = 0};
        if (s->pair_field && !has_mark(run, i)) {
            error.code = FLETCH_EINVAL;
            snprintf(error.message, sizeof error.message,
                     "is one text; --pair-field needs an object with both");
        } else if (error.code != FLETCH_OK) {
            snprintf(error.message, sizeof error.message, "%s", fletch_status_text(error.code));
            if (!fl_run_can_refuse(run, error.code))
                return fl_cli_fail(&error, false);
        }
        if (error.code != FLETCH_OK) {
            if (!fl_run_refuse(run, i, &error))
                return run->input.exit;
            continue;
        }
        fl_row row    = fl_run_done(run, i, s->tokens[i], s->cut[i] != 0);
        row.text_size = s->sizes[i];
        row.vector    = scores;
        row.cols      = s->labels;
        row.dtype     = FLETCH_FLOAT32;
        if (s->query == NULL) {
            fl_output_put(&run->output, &classes, &row, s);
        } else if (!keep(run, s, &row, scores[0])) {
            fl_cli_message("out of memory for the documents");
            return FL_EXIT_FAILED;
        }
        if (fl_sink_flush(&run->output.sink, false, &error) < 0)
            return fl_output_fail(&run->output, &error);
    }
    return FL_EXIT_DONE;
}

static fl_exit do_window(fl_run *run, void *user) {
    score_run   *s     = user;
    fletch_error error = {0};
    if (!reserve(s, run->window.count)) {
        fl_cli_message("out of memory for the scores of %zu texts", run->window.count);
        return FL_EXIT_FAILED;
    }
    int status =
        s->zero_shot.count > 0 ? score_own_labels(run, s, &error) : score_window(run, s, &error);
    return status < 0 ? fl_cli_fail(&error, false) : write_window(run, s);
}

static fl_exit finish(fl_run *run, score_run *s) {
    static const fl_writer ranked = {.text = put_line, .members = put_ranked};
    fletch_error           error  = {0};
    rank(s);
    for (size_t i = 0; i < s->count; i++) {
        s->kept[i].row.vector = &s->kept[i].score;
        fl_output_put(&run->output, &ranked, &s->kept[i].row, NULL);
    }
    if (fl_output_finish(&run->output, s->labels, FLETCH_FLOAT32, &error) < 0)
        return fl_output_fail(&run->output, &error);
    return fl_run_report(run);
}

static void free_scores(score_run *s) {
    for (size_t i = 0; i < s->count; i++)
        free_found(&s->kept[i]);
    fl_free(s->kept);
    free_window(s);
    fl_zero_shot_free(&s->zero_shot);
}

/* The model must give scores; one, to rerank. One for late interaction gives that. */
static fl_exit open_model(fl_run *run, score_run *s) {
    FL_CLI_TRY(fl_run_open_model(run, false));
    fletch_model_info info = {.size = sizeof info};
    (void)fletch_model_info_get(run->cli->model, &info, NULL);
    s->model  = run->cli->model;
    bool late = s->query != NULL && strcmp(info.head, "late") == 0;
    s->labels = s->model_labels = late ? 1 : info.labels;
    if (s->query == NULL && strcmp(info.head, "late") == 0) {
        fl_cli_message("this is a late-interaction model (ColBERT), not a classifier");
        fl_cli_hint(
            "fletch rerank --query Q scores texts with it; --model names a classifier, such "
            "as SamLowe/roberta-base-go_emotions.");
        return FL_EXIT_MODEL;
    }
    if (s->labels == 0) {
        fl_cli_message("this model is an embedding model, not a %s",
                       s->query != NULL ? "reranker" : "classifier");
        fl_cli_hint("use fletch embed for its vectors, or choose a %s with --model, such as %s.",
                    s->query != NULL ? "reranker" : "classifier",
                    s->query != NULL ? "cross-encoder/ms-marco-MiniLM-L6-v2"
                                     : "SamLowe/roberta-base-go_emotions");
        return FL_EXIT_MODEL;
    }
    if (s->query != NULL && s->labels > 1) {
        fl_cli_message("this model is a classifier with %zu labels, and a reranker has one",
                       s->labels);
        fl_cli_hint("fletch classify gives the scores of all labels.");
        return FL_EXIT_MODEL;
    }
    if (s->zero_shot.count > 0) {
        s->labels = s->zero_shot.count;
        return fl_zero_shot_find(run->cli, s->model_labels, &s->zero_shot);
    }
    return FL_EXIT_DONE;
}

fl_exit fl_cmd_scores(fl_cli *cli) {
    fl_run    run;
    score_run scores = {0};
    fl_buf    fields = {0};
    bool      ranks  = cli->args.command->id == FL_CMD_RERANK;
    fl_exit   code   = read_flags(cli, &scores);
    code             = code == FL_EXIT_DONE ? name_fields(cli, &fields) : code;
    if (code != FL_EXIT_DONE) {
        fl_buf_free(&fields);
        free_scores(&scores);
        return code;
    }
    code = fl_run_open(&run, cli,
                       ranks ? "index|score|tokens|truncated"
                             : "index|label|score|scores|tokens|truncated",
                       FL_OUTPUT_TEXT, FL_OUTPUT_JSONL);
    code = code == FL_EXIT_DONE ? check_run(&run, &scores) : code;
    if (scores.pair_field)
        run.input.join = pair_mark;
    code = code == FL_EXIT_DONE ? open_model(&run, &scores) : code;
    if (code == FL_EXIT_DONE) {
        code = fl_run_windows(&run, do_window, &scores);
        code = code == FL_EXIT_DONE ? finish(&run, &scores)
                                    : fl_run_stop(&run, code, scores.labels, FLETCH_FLOAT32);
    }
    fl_run_close(&run);
    fl_buf_free(&fields);
    free_scores(&scores);
    return code;
}
