/* SPDX-License-Identifier: Apache-2.0 */
/* similarity.c - semantic search in a few lines: which of these texts answers the question?
 *
 *     ./similarity medium "How do I get my money back?"
 *
 * All texts go into one call: the library batches and sorts them itself. The vectors have unit
 * length (the model folder asks for that), so a dot product is the cosine. The best answer is
 * printed first. */
#include <fletch.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const corpus[] = {
    "Parcels are delivered within three working days.",
    "You may return goods within fourteen days for a full refund.",
    "The shop is open from nine to six on weekdays.",
    "To change your password, open the account page.",
    "Our office dog is called Biscuit.",
};
enum { CORPUS = sizeof corpus / sizeof corpus[0] };

typedef struct hit {
    float  cosine;
    size_t text;
} hit;

static int by_cosine(const void *left, const void *right) {
    float a = ((const hit *)left)->cosine, b = ((const hit *)right)->cosine;
    return (a < b) - (a > b);
}

/* Row 0 of `vectors` [CORPUS + 1, dimensions] is the question, the rest the corpus. */
static void print_ranking(const float *vectors, size_t dimensions) {
    hit hits[CORPUS];
    for (size_t row = 0; row < CORPUS; row++) {
        const float *text = vectors + (row + 1) * dimensions;
        float        dot  = 0;
        for (size_t i = 0; i < dimensions; i++)
            dot += vectors[i] * text[i];
        hits[row] = (hit){dot, row};
    }
    qsort(hits, CORPUS, sizeof hits[0], by_cosine);
    for (size_t i = 0; i < CORPUS; i++)
        printf("%6.3f  %s\n", (double)hits[i].cosine, corpus[hits[i].text]);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: similarity MODEL QUESTION\n");
        return 2;
    }
    fletch_error  error;
    fletch_model *model;
    if (fletch_open(&model, argv[1], NULL, &error) < 0) {
        fprintf(stderr, "similarity: %s\n", error.message);
        return 1;
    }

    const char *text[CORPUS + 1] = {argv[2]};
    for (size_t i = 0; i < CORPUS; i++)
        text[i + 1] = corpus[i];
    size_t        dimensions = fletch_dimensions(model);
    float        *vectors    = calloc((CORPUS + 1) * dimensions, sizeof *vectors);
    fletch_texts  texts      = fletch_texts_from_strings(text, CORPUS + 1);
    fletch_matrix matrix     = fletch_matrix_f32(vectors, CORPUS + 1, dimensions);
    int           status     = FLETCH_ENOMEM;
    if (vectors)
        status = fletch_embed(model, &texts, NULL, &matrix, &error);
    if (status < 0)
        fprintf(stderr, "similarity: %s\n", vectors ? error.message : fletch_status_text(status));
    else
        print_ranking(vectors, dimensions);

    free(vectors);
    fletch_close(model);
    return status < 0;
}
