/* SPDX-License-Identifier: Apache-2.0 */
/* score_dump.c - rerank and classify by the library alone, for tests/golden/test_scores.py.
 *
 * Usage    score_dump MODEL [--set KEY VALUE]... [--query TEXT] [--submit] [--alone] [--embed]
 *              [--activation N] [--prompt-name NAME] [--truncate N]
 * In/Out   In: a text a line, or two with a tab between. Out: the labels, a tab between, then a line
 *          of scores for each text; a text that was cut ends in " cut". With --query the texts are
 *          documents. --submit goes by fletch_submit, --alone makes a call for each text. On
 *          failure "STATUS at WHERE: message" on standard error, exit 3. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fletch.h"

enum { TEXTS_MAX = 4096 };

typedef struct run {
    fletch_model        *model;
    fletch_embed_options options;
    const char          *query;
    bool                 submit, embed, pairs;
    size_t               labels;
    const char          *first[TEXTS_MAX], *second[TEXTS_MAX];
    uint8_t              truncated[TEXTS_MAX];
    float               *scores; /* [TEXTS_MAX][labels] */
    /* of a request */
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    bool            over;
    fletch_error    error;
} run;

static void done(void *user, const fletch_outcome *outcome) {
    run *r = user;
    pthread_mutex_lock(&r->lock);
    r->error = outcome->error;
    r->over  = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static int submit(run *r, const fletch_texts *texts, const fletch_texts *second,
                  const fletch_matrix *out, fletch_error *error) {
    fletch_request request = FLETCH_REQUEST_INIT;
    request.texts          = *texts;
    request.options        = &r->options;
    request.out            = *out;
    request.kind           = FLETCH_KIND_SCORES;
    request.query          = r->query;
    request.query_size     = r->query ? strlen(r->query) : 0;
    request.second         = r->pairs ? second : NULL;
    r->over                = false;
    int status             = fletch_submit(r->model, &request, done, r, NULL, error);
    if (status < 0)
        return status;
    pthread_mutex_lock(&r->lock);
    while (!r->over)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    *error = r->error;
    return r->error.code;
}

/* Texts [at, at + count) to their scores. */
static int score(run *r, size_t at, size_t count, fletch_error *error) {
    float        *rows   = r->scores + at * r->labels;
    fletch_texts  texts  = fletch_texts_from_strings(r->first + at, count);
    fletch_texts  second = fletch_texts_from_strings(r->second + at, count);
    fletch_matrix out    = fletch_matrix_f32(rows, count, r->labels);
    r->options.truncated = r->truncated + at;
    if (r->submit)
        return submit(r, &texts, &second, &out, error);
    if (r->embed)
        return fletch_embed(r->model, &texts, &r->options, &out, error);
    if (r->query)
        return fletch_rerank(r->model, r->query, strlen(r->query), &texts, &r->options, rows,
                             error);
    return fletch_classify(r->model, &texts, r->pairs ? &second : NULL, &r->options, &out, error);
}

static size_t read_texts(run *r) {
    static char line[1 << 20];
    size_t      count = 0;
    for (; count < TEXTS_MAX && fgets(line, sizeof line, stdin) != NULL; count++) {
        line[strcspn(line, "\n")] = '\0';
        char *copy = strdup(line), *tab = strchr(copy, '\t');
        r->pairs         = r->pairs || tab;
        r->first[count]  = copy;
        r->second[count] = tab ? tab + 1 : "";
        if (tab)
            *tab = '\0';
    }
    return count;
}

static int fail(const fletch_error *error) {
    fprintf(stderr, "%d at %zd: %s\n", error->code, (ssize_t)error->where, error->message);
    return 3;
}

int main(int argc, char **argv) {
    static run     r;
    fletch_config *config = fletch_config_new();
    fletch_error   error  = {0};
    bool           alone  = false;
    int            status = 0;
    r.options.size        = sizeof r.options;
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, NULL);
    for (int i = 2; i < argc && status == 0; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        alone            = alone || strcmp(argv[i], "--alone") == 0;
        r.submit         = r.submit || strcmp(argv[i], "--submit") == 0;
        r.embed          = r.embed || strcmp(argv[i], "--embed") == 0;
        r.query          = strcmp(argv[i], "--query") == 0 ? next : r.query;
        if (strcmp(argv[i], "--activation") == 0)
            r.options.activation = (fletch_activation)atoi(next);
        if (strcmp(argv[i], "--truncate") == 0)
            r.options.truncate = (fletch_truncate)atoi(next);
        if (strcmp(argv[i], "--prompt-name") == 0)
            r.options.prompt_name = next;
        if (strcmp(argv[i], "--set") == 0 && i + 2 < argc)
            status = fletch_config_set(config, argv[i + 1], argv[i + 2], &error);
    }
    if (status == 0)
        status = fletch_open(&r.model, argc > 1 ? argv[1] : "", config, &error);
    fletch_config_free(config);
    if (status < 0)
        return fail(&error);
    size_t count = read_texts(&r);
    r.labels     = r.query ? 1 : fletch_dimensions(r.model);
    r.scores     = calloc(TEXTS_MAX * r.labels, sizeof *r.scores);
    for (size_t at = 0; status == 0 && at < count; at += alone ? 1 : count)
        status = score(&r, at, alone ? 1 : count, &error);
    for (size_t i = 0; status == 0 && fletch_label_at(r.model, i); i++)
        printf("%s%s", i > 0 ? "\t" : "", fletch_label_at(r.model, i));
    printf("\n");
    for (size_t i = 0; status == 0 && i < count * r.labels; i++) {
        size_t text = i / r.labels;
        printf("%s%.9g", i % r.labels > 0 ? " " : "", (double)r.scores[i]);
        if (i % r.labels + 1 == r.labels)
            printf("%s\n", r.truncated[text] ? " cut" : "");
    }
    fletch_close(r.model);
    return status < 0 ? fail(&error) : 0;
}
