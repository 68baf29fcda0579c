/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - the smallest program: one text in, one vector out.
 *
 *     cc embed.c -lfletch -o embed && ./embed all-MiniLM-L6-v2 "A cat sits on the mat."
 *
 * The first argument is a model folder, a hub id or a level (low, medium, high). */
#include <fletch.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: embed MODEL TEXT\n");
        return 2;
    }
    fletch_error  error;
    fletch_model *model;
    if (fletch_open(&model, argv[1], NULL, &error) < 0) {
        fprintf(stderr, "embed: %s\n", error.message);
        return 1;
    }

    size_t            dimensions = fletch_dimensions(model);
    float            *vector     = calloc(dimensions, sizeof *vector);
    const char *const text[1]    = {argv[2]};
    fletch_texts      texts      = fletch_texts_from_strings(text, 1);
    fletch_matrix     matrix     = fletch_matrix_f32(vector, 1, dimensions);
    int               status     = FLETCH_ENOMEM;
    if (vector)
        status = fletch_embed(model, &texts, NULL, &matrix, &error);
    if (status < 0)
        fprintf(stderr, "embed: %s\n", vector ? error.message : fletch_status_text(status));
    for (size_t i = 0; status == 0 && i < dimensions; i++)
        printf("%.7g%c", (double)vector[i], i + 1 < dimensions ? ' ' : '\n');

    free(vector);
    fletch_close(model);
    return status < 0;
}
