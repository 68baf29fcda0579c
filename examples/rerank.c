/* SPDX-License-Identifier: Apache-2.0 */
/* rerank.c - order documents by how well they answer a query.
 *
 *     cc rerank.c -lfletch -o rerank
 *     ./rerank cross-encoder/ms-marco-MiniLM-L6-v2 "How do I get my money back?" "We refund ..." "Biscuits ..."
 *
 * The first argument is a reranker: a folder or a hub id. */
#include <fletch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *scores; /* qsort takes no argument of ours */

static int better(const void *left, const void *right) {
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return scores[a] != scores[b] ? (scores[a] > scores[b] ? -1 : 1) : a < b ? -1 : 1;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: rerank MODEL QUERY DOCUMENT...\n");
        return 2;
    }
    fletch_error  error;
    fletch_model *model;
    if (fletch_open(&model, argv[1], NULL, &error) < 0) {
        fprintf(stderr, "rerank: %s\n", error.message);
        return 1;
    }
    size_t             count     = (size_t)argc - 3;
    const char *const *documents = (const char *const *)argv + 3;
    fletch_texts       texts     = fletch_texts_from_strings(documents, count);
    size_t            *order     = calloc(count, sizeof *order);
    int                status    = FLETCH_ENOMEM;
    scores                       = calloc(count, sizeof *scores);
    if (scores && order)
        status = fletch_rerank(model, argv[2], strlen(argv[2]), &texts, NULL, scores, &error);
    if (status < 0)
        fprintf(stderr, "rerank: %s\n",
                scores && order ? error.message : fletch_status_text(status));
    for (size_t i = 0; status == 0 && i < count; i++)
        order[i] = i;
    if (status == 0)
        qsort(order, count, sizeof *order, better);
    for (size_t i = 0; status == 0 && i < count; i++)
        printf("%.4f  %s\n", (double)scores[order[i]], documents[order[i]]);
    free(scores);
    free(order);
    fletch_close(model);
    return status < 0;
}
