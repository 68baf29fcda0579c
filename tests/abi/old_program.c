/* SPDX-License-Identifier: Apache-2.0 */
/* old_program.c - a program compiled with an older header runs on today's library.
 *
 * It knows shorter structs (fletch_old.h) and lays them into memory that it watches: the library must read
 * and write the bytes that the size says and no more, and mean the same by them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fletch_old.h"

#define FOLDER "tests/golden/folders/prompts"

enum { GUARD = 256, DIM_MAX = 64 };

static void must(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "old_program: %s\n", what);
        exit(1);
    }
}

/* `size` bytes that begin with their size, and a guard after them. */
static void *guarded(size_t size) {
    unsigned char *block = malloc(size + GUARD);
    memset(block, 0, size);
    memset(block + size, 0xA5, GUARD);
    memcpy(block, &size, sizeof size);
    return block;
}

static void check_guard(const void *block, size_t size, const char *what) {
    const unsigned char *guard = (const unsigned char *)block + size;
    size_t               now;
    memcpy(&now, block, sizeof now);
    must(now == size, what);
    for (size_t i = 0; i < GUARD; i++)
        must(guard[i] == 0xA5, what);
}

static volatile int done_code = 1;

static void on_done(void *user, const fletch_outcome *outcome) {
    *(uint64_t *)user = outcome->tokens;
    done_code         = outcome->error.code;
}

int main(void) {
    const char   *strings[] = {"the cat sat on the mat"};
    fletch_model *model;
    fletch_error  error;
    float         plain[DIM_MAX], asked[DIM_MAX], queued[DIM_MAX];
    must(fletch_open(&model, FOLDER, NULL, &error) == 0, "fletch_open");
    size_t        dim = fletch_dimensions(model), row = dim * sizeof(float);
    fletch_texts  texts = {.count = 1, .pointers = strings};
    fletch_matrix out   = {.data = plain, .rows = 1, .cols = dim, .stride = row};
    must(dim <= DIM_MAX && fletch_embed(model, &texts, NULL, &out, &error) == 0, "fletch_embed");

    /* Options that know nothing of truncate, tokens, truncated and status. */
    fletch_embed_options *options = guarded(sizeof *options);
    const fletch_prompt  *prompt  = fletch_prompt_at(model, 0);
    must(prompt != NULL && prompt->text[0] != '\0', "fletch_prompt_at");
    options->prompt = "rain at sea ";
    out.data        = asked;
    must(fletch_embed(model, &texts, options, &out, &error) == 0, "fletch_embed with options");
    must(memcmp(plain, asked, row) != 0, "the prompt counts");

    /* A request that knows nothing of deadlines. */
    fletch_request *request = guarded(sizeof *request);
    uint64_t        tokens  = 0;
    request->texts          = texts;
    request->options        = options;
    request->out            = out;
    request->out.data       = queued;
    must(fletch_submit(model, request, on_done, &tokens, NULL, &error) == 0, "fletch_submit");
    while (done_code == 1)
        usleep(100);
    must(done_code == 0 && tokens > 6 && memcmp(queued, asked, row) == 0, "its vector");

    fletch_stats *stats = guarded(sizeof *stats);
    must(fletch_stats_get(model, stats, &error) == 0, "fletch_stats_get");
    check_guard(stats, sizeof *stats, "the statistics stay inside");
    must(stats->counter[FLETCH_COUNT_TEXTS] == 3 && stats->total.count == 3, "what they say");
    must(stats->counter_count >= FLETCH_COUNTERS_OLD, "there are more counters by now");
    must(strcmp(fletch_counter_name(FLETCH_COUNT_TOKENS), "tokens") == 0, "names of counters");
    must(strcmp(stats->provider, "cpu") == 0, "the provider");

    fletch_device_stats *device = guarded(sizeof *device);
    must(fletch_device_stats_get(model, 0, device, &error) == 0, "fletch_device_stats_get");
    check_guard(device, sizeof *device, "a device's statistics stay inside");
    must(device->ready == 1, "what they say");

    fletch_model_info *info = guarded(sizeof *info);
    must(fletch_model_info_get(model, info, &error) == 0, "fletch_model_info_get");
    check_guard(info, sizeof *info, "what a model is stays inside");
    must(strcmp(info->family, "bert") == 0 && strcmp(info->tokenizer, "WordPiece") == 0, "family");

    fletch_tokenize_options *cut = guarded(sizeof *cut);
    fletch_tokens           *found;
    cut->max_length = 4;
    must(fletch_tokenize(model, strings[0], strlen(strings[0]), cut, &found, &error) == 0 &&
             found->count == 4,
         "fletch_tokenize");
    fletch_tokens_free(found);
    fletch_close(model);
    free(options), free(request), free(stats), free(device), free(info), free(cut);
    return 0;
}
