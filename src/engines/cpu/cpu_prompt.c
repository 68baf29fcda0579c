/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_prompt.c - what texts of a causal model begin with alike is computed once, and its keys and values
 * serve all of them: an instruction in front of queries, a query in front of documents.
 *
 * Method   Where no token sees a later one, the rows of a prompt are the same whatever follows it. One prompt
 *          is kept, of every layer the rotated keys and the values. A text that begins with the same ids,
 *          or with some of them, computes only what is left: its queries meet the kept rows and its own, laid
 *          end to end, as if all had just been computed. Ids are compared, not texts: a tokenizer may join
 *          the prompt's last word with what follows.
 * Which    What all texts of a batch have in common, where that saves more than running it apart costs; of
 *          a text alone, what it has in common with the one before. So callers need say nothing, and it
 *          outlives a call. Where runs of texts in a batch have more in common than the whole of it (chunks of
 *          documents, each behind its document's title), each run is a forward of its own with its own prompt.
 * Not      Where pooling reads the prompt's rows, or all rows are asked for; texts of more than
 *          FL_CPU_PROMPT_TEXT tokens, of which it is a small part.
 * Bytes    The same as without it: kernels.h promises that a row's bits do not depend on what rows go with it.
 * Memory   Taken when opening, counted in info.resident_bytes. Threads: who calls forward.
 * Proof    tests/unit/test_engine_prompt.c. */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engines/cpu/cpu_engine.h"

enum {
    LEAST      = 8, /* tokens that are worth keeping */
    THREAD_RUN = 64 /* tokens a thread that a forward of its own has at least */
};

/* Whether pooling never needs the rows of tokens that pool_skip leaves out; *last: nor of any but the last. */
static bool pools_the_rest(const fl_engine *e, bool *last) {
    *last = true;
    for (uint32_t i = 0; i < e->pooling_count; i++) {
        fl_pooling mode = e->pooling[i];
        *last           = *last && mode == FL_POOL_LAST_TOKEN;
        if (mode == FL_POOL_CLS || mode == FL_POOL_WEIGHTED_MEAN)
            return false;
    }
    return true;
}

static bool is_causal(const fl_encoder_desc *d) {
    for (uint32_t i = 0; i < d->layers; i++) {
        bool ahead = d->layer[i].convolves && d->taps_centred;
        if (ahead || !d->distance[d->layer[i].distance].causal)
            return false;
    }
    return d->layers > 0;
}

int fl_cpu_prompt_open(fl_engine *e, fletch_error *error) {
    fl_cpu_prompt *p = &e->prompt;
    bool           last;
    const fl_rope *rope = &e->desc.rope[0];
    const bool turns = rope->longer > 0 && rope->trained < FL_CPU_PROMPT_TEXT; /* by the length */
    if (!is_causal(&e->desc) || turns || !pools_the_rest(e, &last) || e->desc.mlm ||
        e->desc.segments || e->desc.position_skips_pad)
        return FLETCH_OK;
    size_t rows   = e->desc.layers * e->kv_max * 2 * FL_CPU_PROMPT * e->head16;
    size_t joined = (size_t)2 * FL_CPU_PROMPT_TEXT * e->head16, floats = rows + joined * e->threads;
    p->bytes = floats * sizeof *p->rows + e->batch_texts * sizeof *p->shared;
    p->block = fl_big_alloc(p->bytes);
    if (p->block == NULL) {
        return fl_fail(error, FLETCH_ENOMEM, FLETCH_NOWHERE,
                       "out of memory: %zu bytes for the prompts of %u threads; free memory or "
                       "lower cpu.intra_op_threads",
                       p->bytes, e->threads);
    }
    memset(p->block, 0, p->bytes); /* it is counted as taken */
    p->rows   = p->block;
    p->shared = (uint32_t *)(void *)(p->rows + floats);
    for (unsigned i = 0; i < e->threads; i++)
        e->scratch[i].joined = p->rows + rows + i * joined;
    return FLETCH_OK;
}

void fl_cpu_prompt_close(fl_engine *e) {
    fl_big_free(e->prompt.block, e->prompt.bytes);
}

/* The ids of a text. */
typedef struct span {
    const int32_t *ids;
    uint32_t       length;
} span;

static span text_of(const fl_batch *batch, uint32_t text) {
    assert(text < batch->texts);
    return (span){batch->ids + batch->cu[text], batch->cu[text + 1] - batch->cu[text]};
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* How many ids two texts begin with alike, FL_CPU_PROMPT at most. */
static uint32_t alike(span a, span b) {
    uint32_t n = 0, most = least(least(a.length, b.length), FL_CPU_PROMPT);
    while (n < most && a.ids[n] == b.ids[n])
        n++;
    return n;
}

/* How many ids a prompt may have of which a text makes use: its last token is always computed, and so
 * are those that pooling reads. */
static uint32_t usable(const fl_engine *e, const fl_batch *batch, uint32_t text) {
    assert(text < batch->texts);
    uint32_t length = text_of(batch, text).length;
    bool     last;
    pools_the_rest(e, &last);
    if (length > FL_CPU_PROMPT_TEXT || (batch->each && batch->each[text]))
        return 0;
    return last ? length - 1 : batch->pool_skip ? least(batch->pool_skip[text], length - 1) : 0;
}

/* The ids that are worth keeping from now on, of the first text's; 0: what is kept stays. */
static uint32_t worth_keeping(const fl_engine *e, const fl_batch *batch) {
    const fl_cpu_prompt *p     = &e->prompt;
    span                 first = text_of(batch, 0), before = {p->before, p->before_length};
    uint32_t             known = alike(first, (span){p->ids, p->length});
    uint32_t             found = batch->texts > 1 ? FL_CPU_PROMPT : alike(first, before);
    for (uint32_t t = 0; t < batch->texts && found > known; t++)
        found = least(least(found, usable(e, batch, t)), alike(first, text_of(batch, t)));
    if (found < LEAST || found <= known)
        return 0;
    bool saves = batch->texts > 1
                     ? (uint64_t)(found - known) * batch->texts >= 2 * (uint64_t)found
                     : found > 2 * known; /* not for every word that is alike by chance */
    return saves ? found : 0;
}

/* Texts [first, last) of a batch, and the tokens that they need not compute when they go together. */
typedef struct run {
    uint32_t last;
    uint64_t spared;
} run;

/* What text `t` has in common with `found` tokens of text `first`. */
static uint32_t common(const fl_engine *e, const fl_batch *batch, uint32_t first, uint32_t t,
                       uint32_t found) {
    return least(least(found, usable(e, batch, t)),
                 alike(text_of(batch, first), text_of(batch, t)));
}

/* The texts from `first` on that begin alike, up to one that has less of it than it is worth, or begins as the next
 * one does. Too few tokens for all threads are no run. */
static run run_from(const fl_engine *e, const fl_batch *batch, uint32_t first) {
    assert(first < batch->texts);
    uint32_t found = usable(e, batch, first), last = first + 1;
    for (; last < batch->texts; last++) {
        const uint64_t count = last - first;
        const uint32_t here  = common(e, batch, first, last, found);
        const uint32_t on =
            last + 1 < batch->texts ? common(e, batch, last, last + 1, FL_CPU_PROMPT) : 0;
        if (here < LEAST || count * here < (count - 1) * found || on > 2 * here)
            break;
        found = here;
    }
    const bool fills = batch->cu[last] - batch->cu[first] >= THREAD_RUN * e->threads;
    return (run){last, fills ? (uint64_t)(last - first - 1) * found : 0};
}

bool fl_cpu_prompt_divides(const fl_engine *e, const fl_batch *batch) {
    assert(batch->texts > 0);
    if (e->prompt.rows == NULL || batch->keys || batch->texts < 3)
        return false;
    uint32_t whole  = usable(e, batch, 0);
    uint64_t spared = 0;
    for (uint32_t t = 1; t < batch->texts && whole > 0; t++)
        whole = common(e, batch, 0, t, whole);
    for (run r = {0}; r.last < batch->texts; spared += r.spared)
        r = run_from(e, batch, r.last);
    return spared > (uint64_t)(batch->texts - 1) * whole + batch->tokens / 8;
}

uint32_t fl_cpu_prompt_run(const fl_engine *e, const fl_batch *batch, uint32_t first) {
    assert(first < batch->texts);
    run r = run_from(e, batch, first);
    while (r.spared == 0 && r.last < batch->texts) { /* what has nothing in common goes together */
        const run next = run_from(e, batch, r.last);
        if (next.spared > 0)
            break;
        r = next;
    }
    return r.last;
}

static void keep(fl_engine *e, span text) {
    const uint32_t cu[]  = {0, text.length};
    const fl_batch batch = {.ids = text.ids, .cu = cu, .texts = 1, .tokens = text.length};
    const uint64_t start = fl_trace_begin(e->trace);
    e->prompt.shared[0]  = 0;
    e->prompt.saved      = 0;
    e->prompt.keeping    = true;
    fl_cpu_run_batch(e, &batch);
    e->prompt.keeping = false;
    memcpy(e->prompt.ids, text.ids, text.length * sizeof *text.ids);
    e->prompt.length = text.length;
    fl_trace_end(e->trace, "prompt", start, "tokens", text.length);
}

void fl_cpu_prompt_prepare(fl_engine *e, const fl_batch *batch) {
    fl_cpu_prompt *p = &e->prompt;
    p->saved         = 0;
    if (p->rows == NULL)
        return;
    span     first = text_of(batch, 0);
    uint32_t found = batch->keys ? 0 : worth_keeping(e, batch);
    if (found > 0)
        keep(e, (span){first.ids, found});
    for (uint32_t t = 0; t < batch->texts; t++) {
        uint32_t known = alike(text_of(batch, t), (span){p->ids, p->length});
        known          = batch->keys ? 0 : least(known, usable(e, batch, t));
        p->shared[t]   = known >= LEAST ? known : 0;
        p->saved += p->shared[t];
    }
    p->before_length = least(first.length, FL_CPU_PROMPT);
    memcpy(p->before, first.ids, p->before_length * sizeof *first.ids);
}
