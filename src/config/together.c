/* SPDX-License-Identifier: Apache-2.0 */
/* together.c - options that are fine one by one and wrong together.
 *
 * Role    fletch_open calls fl_config_check_together on its own copy, when every source was read and
 *         before anything is opened.
 * Method  A table of pairs `low <= high`. Where a pair is the wrong way round, the value that nobody
 *         chose gives way: a default or a preset's line is moved to fit what a file, the environment
 *         or a flag says, and the log says so. Who sets batch.max_texts = 4 need not know that
 *         batch.min_texts is 8. Two values that were both chosen are a contradiction: ECONFIG, with
 *         both keys, values and origins. Pairs that are allowed and probably a mistake are warnings.
 *         A value that has moved counts as chosen as the one it fits, so what follows from a choice
 *         follows through the table; it is walked again until nothing moves.
 * Memory  What fl_config_assign takes for the values that move. Threads: as config.h says.
 * Proof   tests/unit/test_config_together.c. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "config/config_internal.h"

typedef struct pair {
    fl_key      low, high; /* the value of low is at most that of high … */
    bool        zero_off;  /* … unless high is 0, which means no limit */
    int64_t     spread;    /* a value that gives way keeps this factor between the two */
    const char *otherwise; /* what would happen */
} pair;

static const pair pairs[] = {
    {FL_KEY_BATCH_MAX_TEXTS, FL_KEY_BATCH_MAX_TOKENS, false, 2,
     "every text has at least one token, so such a batch cannot be filled"},
    {FL_KEY_BATCH_MIN_TEXTS, FL_KEY_BATCH_MAX_TEXTS, false, 1,
     "a batch would wait for more texts than it may hold"},
    {FL_KEY_BATCH_MAX_WAIT_MS, FL_KEY_BATCH_TARGET_LATENCY_MS, true, 2,
     "waiting to fill a batch alone would miss the target"},
    {FL_KEY_BATCH_MAX_WAIT_MS, FL_KEY_SERVER_DEADLINE_MS, true, 2,
     "requests would expire while waiting to fill a batch"},
    {FL_KEY_POOL_MAX_BYTES, FL_KEY_MEMORY_LIMIT, true, 4,
     "the pooled buffers would fill all of the memory"},
    {FL_KEY_CACHE_MAX_BYTES, FL_KEY_MEMORY_LIMIT, true, 4,
     "the cached results would fill all of the memory"},
};

/* A file, the environment, a flag or the program said so, not a default or a preset. */
static bool was_chosen(const fl_config *config, fl_key key) {
    return fl_config_rank(config, key) > FLETCH_ORIGIN_PRESET;
}

static int contradiction(const fl_config *config, const pair *p, fletch_error *error) {
    return fl_fail(
        error, FLETCH_ECONFIG, FLETCH_NOWHERE,
        "%s = %s (%s) is more than %s = %s (%s): %s; lower the first or raise the second",
        fl_option(p->low)->key, fl_config_text(config, p->low), fl_config_origin(config, p->low),
        fl_option(p->high)->key, fl_config_text(config, p->high), fl_config_origin(config, p->high),
        p->otherwise);
}

/* Move `key` to `value`, which fits `other`. Returns 1, or a failure. */
static int give_way(fl_config *config, fl_key key, int64_t value, fl_key other,
                    fletch_error *error) {
    char text[32], origin[128];
    fl_log_write(
        fl_config_log(config), FL_LOG_INFO, "%s = %s (%s) becomes %" PRId64 " to fit %s = %s (%s)",
        fl_option(key)->key, fl_config_text(config, key), fl_config_origin(config, key), value,
        fl_option(other)->key, fl_config_text(config, other), fl_config_origin(config, other));
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    (void)snprintf(origin, sizeof origin, "fits %s", fl_option(other)->key);
    const fl_config_source source = {.rank = fl_config_rank(config, other), .origin = origin};
    const int status = fl_config_assign(config, key, text, &source, fl_option(key)->key, error);
    return status < 0 ? status : 1;
}

/* 1: a value moved; 0: all is well; or a failure. */
static int check_pair(fl_config *config, const pair *p, fletch_error *error) {
    const int64_t low = fl_config_int(config, p->low), high = fl_config_int(config, p->high);
    if (low <= high || (high == 0 && p->zero_off))
        return 0;
    if (was_chosen(config, p->low) && was_chosen(config, p->high))
        return contradiction(config, p, error);
    if (fl_config_rank(config, p->low) > fl_config_rank(config, p->high))
        return give_way(config, p->high, low * p->spread, p->low, error);
    /* 0 of a key whose 0 means "no limit" would be the opposite of giving way. */
    int64_t value = high / p->spread;
    if (value == 0 && fl_option_rule_of(p->low)->zero_word != NULL)
        value = 1;
    return give_way(config, p->low, value, p->high, error);
}

/* ---- What is allowed and probably not meant -------------------------------------------------- */

static void doubt(const fl_config *config, fl_key a, fl_key b, const char *why) {
    fl_log_write(fl_config_log(config), FL_LOG_WARNING, "%s = %s (%s) with %s = %s (%s): %s",
                 fl_option(a)->key, fl_config_text(config, a), fl_config_origin(config, a),
                 fl_option(b)->key, fl_config_text(config, b), fl_config_origin(config, b), why);
}

/* `key` was chosen, but `by` is switched off and it with it. */
static void doubt_idle(const fl_config *config, fl_key key, fl_key by) {
    if (was_chosen(config, key) && !fl_config_bool(config, by))
        doubt(config, key, by, "the first has no effect");
}

static void doubts(const fl_config *config) {
    const int64_t tokens = fl_config_int(config, FL_KEY_BATCH_MAX_TOKENS);
    doubt_idle(config, FL_KEY_BATCH_MIN_TEXTS, FL_KEY_BATCH_DYNAMIC);
    doubt_idle(config, FL_KEY_BATCH_MAX_WAIT_MS, FL_KEY_BATCH_DYNAMIC);
    doubt_idle(config, FL_KEY_POOL_MAX_BUFFERS, FL_KEY_POOL_ENABLE);
    doubt_idle(config, FL_KEY_POOL_MAX_BYTES, FL_KEY_POOL_ENABLE);
    doubt_idle(config, FL_KEY_POOL_PRESSURE_THRESHOLD, FL_KEY_POOL_PRESSURE_DETECTION);
    if (was_chosen(config, FL_KEY_BATCH_MIN_TEXTS) &&
        fl_config_int(config, FL_KEY_BATCH_MIN_TEXTS) > 1 &&
        fl_config_int(config, FL_KEY_BATCH_MAX_WAIT_MS) == 0)
        doubt(config, FL_KEY_BATCH_MIN_TEXTS, FL_KEY_BATCH_MAX_WAIT_MS,
              "texts never wait, so the first has no effect");
    if (fl_config_int(config, FL_KEY_MODEL_MAX_LENGTH) > tokens)
        doubt(config, FL_KEY_MODEL_MAX_LENGTH, FL_KEY_BATCH_MAX_TOKENS,
              "the longest texts go through the engine one by one");
    if (fl_config_int(config, FL_KEY_SERVER_MAX_QUEUE_TOKENS) < tokens)
        doubt(config, FL_KEY_SERVER_MAX_QUEUE_TOKENS, FL_KEY_BATCH_MAX_TOKENS,
              "requests are rejected before a batch is full");
    if (was_chosen(config, FL_KEY_MODEL_AUTO_DOWNLOAD) &&
        fl_config_bool(config, FL_KEY_MODEL_AUTO_DOWNLOAD) &&
        fl_config_bool(config, FL_KEY_MODEL_OFFLINE))
        doubt(config, FL_KEY_MODEL_AUTO_DOWNLOAD, FL_KEY_MODEL_OFFLINE, "nothing is downloaded");
}

int fl_config_check_together(fl_config *config, fletch_error *error) {
    enum { PAIRS = sizeof pairs / sizeof pairs[0] };
    int moved = 1;
    /* Each walk but the last settles a pair at least, so there are no more walks than pairs. */
    for (int walk = 0; walk <= PAIRS && moved; walk++) {
        moved = 0;
        for (int i = 0; i < PAIRS; i++) {
            const int status = check_pair(config, &pairs[i], error);
            if (status < 0)
                return status;
            moved |= status;
        }
    }
    doubts(config);
    return 0;
}
