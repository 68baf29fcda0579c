/* SPDX-License-Identifier: Apache-2.0 */
/* fletch_old.h - the declarations an older program was compiled with: never changed after a release.
 *
 * Structs that carry their size are shorter than today's, as if every field after these had come later;
 * FLETCH_COUNTERS_OLD is how many counters that program knew. Structs without a size never grow. */
#ifndef FLETCH_OLD_H
#define FLETCH_OLD_H

#include <stddef.h>
#include <stdint.h>

typedef struct fletch_error {
    int    code;
    size_t where;
    char   message[496];
} fletch_error;

typedef struct fletch_texts {
    size_t             count;
    const char        *bytes;
    const int64_t     *offsets64;
    const int32_t     *offsets32;
    const char *const *pointers;
    const size_t      *lengths;
} fletch_texts;

typedef struct fletch_matrix {
    void  *data;
    size_t rows, cols, stride;
    int    dtype;
} fletch_matrix;

typedef struct fletch_model  fletch_model;
typedef struct fletch_config fletch_config;

int    fletch_open(fletch_model **model, const char *folder, const fletch_config *config,
                   fletch_error *error);
void   fletch_close(fletch_model *model);
size_t fletch_dimensions(const fletch_model *model);

typedef struct fletch_embed_options {
    size_t      size;
    const char *prompt;
    const char *prompt_name;
    uint32_t    dimensions;
    uint32_t    max_length;
    int         normalize;
} fletch_embed_options;

int fletch_embed(fletch_model *model, const fletch_texts *texts,
                 const fletch_embed_options *options, fletch_matrix *out, fletch_error *error);

typedef struct fletch_request {
    size_t                      size;
    fletch_texts                texts;
    const int32_t              *ids;
    const fletch_embed_options *options;
    fletch_matrix               out;
    int                         lane;
} fletch_request;

typedef struct fletch_outcome {
    fletch_error error;
    uint64_t     tokens;
} fletch_outcome;

typedef void (*fletch_done_fn)(void *user, const fletch_outcome *outcome);
int fletch_submit(fletch_model *model, const fletch_request *request, fletch_done_fn done,
                  void *user, uint64_t *ticket, fletch_error *error);

#define FLETCH_HISTOGRAM_BUCKETS 104
typedef struct fletch_histogram {
    uint64_t count, sum_ns, max_ns;
    uint64_t p50_ns, p90_ns, p95_ns, p99_ns;
    uint64_t bucket[FLETCH_HISTOGRAM_BUCKETS];
} fletch_histogram;

enum { FLETCH_COUNT_REQUESTS, FLETCH_COUNT_TEXTS, FLETCH_COUNT_TOKENS, FLETCH_COUNTERS_OLD };
#define FLETCH_COUNTER_MAX 64

typedef struct fletch_stats {
    size_t           size;
    uint64_t         queued_requests, queued_texts, queued_tokens;
    uint64_t         running_texts;
    uint64_t         batch_tokens;
    uint64_t         pool_buffers, pool_bytes;
    uint64_t         replicas, replicas_ready;
    uint64_t         slots, slots_busy;
    uint64_t         memory_bytes;
    uint64_t         memory_limit;
    uint64_t         memory_reserved;
    uint64_t         uptime_ns;
    char             provider[32];
    char             precision[16];
    char             device[64];
    fletch_histogram tokenize, queue, forward, total;
    uint64_t         counter_count;
    uint64_t         counter[FLETCH_COUNTER_MAX];
} fletch_stats;

int         fletch_stats_get(fletch_model *model, fletch_stats *stats, fletch_error *error);
const char *fletch_counter_name(size_t counter);

typedef struct fletch_device_stats {
    size_t   size;
    char     provider[32];
    char     name[64];
    uint32_t device;
    uint32_t slots_busy;
    int32_t  ready;
} fletch_device_stats;

int fletch_device_stats_get(fletch_model *model, size_t index, fletch_device_stats *stats,
                            fletch_error *error);

typedef struct fletch_tokenize_options {
    size_t   size;
    uint32_t max_length;
} fletch_tokenize_options;

typedef struct fletch_tokens {
    size_t          count;
    const int32_t  *ids;
    const uint32_t *offsets;
    const uint8_t  *special;
} fletch_tokens;

int  fletch_tokenize(fletch_model *model, const char *text, size_t size,
                     const fletch_tokenize_options *options, fletch_tokens **tokens,
                     fletch_error *error);
void fletch_tokens_free(fletch_tokens *tokens);

typedef struct fletch_model_info {
    size_t      size;
    const char *id;
    const char *path;
    const char *revision;
    const char *tokenizer;
    const char *family;
    const char *pooling;
} fletch_model_info;

int fletch_model_info_get(fletch_model *model, fletch_model_info *info, fletch_error *error);

typedef struct fletch_prompt {
    const char *name;
    const char *text;
} fletch_prompt;

const fletch_prompt *fletch_prompt_at(const fletch_model *model, size_t index);

#endif
