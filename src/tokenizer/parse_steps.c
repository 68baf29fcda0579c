/* SPDX-License-Identifier: Apache-2.0 */
/* parse_steps.c - normalizer and pre_tokenizer of tokenizer.json.
 *
 * Role     parse.c calls one function per key.
 * Method   Each kind is either built exactly or refused by its name: an approximated tokenizer gives
 *          vectors that are wrong without anybody noticing. Sequences are flattened.
 * Memory   Patterns of Replace and Prepend are copied and owned by the tokenizer.
 * Proof    tests/unit/test_tokenizer.c (refusals by name, damaged values). */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "tokenizer/parse.h"

enum { EXPANSION_MAX = 4096 };

int fl_missing(fl_json_reader *reader, const char *key) {
    if (reader->status == 0) {
        reader->status = fl_fail(reader->error, FLETCH_EMODEL, FLETCH_NOWHERE,
                                 "%s: \"%s\" is missing", reader->source, key);
    }
    return reader->status;
}

/* Whether the key is there; says so if not. */
static bool needed(fl_json_reader *reader, const char *key) {
    if (!fl_json_has(reader, key)) {
        fl_missing(reader, key);
        return false;
    }
    return true;
}

bool fl_need_bool(fl_json_reader *reader, const char *key) {
    return needed(reader, key) && fl_json_bool(reader, key, false);
}

int64_t fl_need_int(fl_json_reader *reader, const char *key, int64_t max) {
    return needed(reader, key) ? fl_json_int(reader, key, 0, 0, max) : 0;
}

const char *fl_need_string(fl_json_reader *reader, const char *key) {
    return needed(reader, key) ? fl_json_string(reader, key, "") : "";
}

int fl_refuse(fl_json_reader *reader, const char *part, const char *kind, const char *known) {
    reader->status =
        fl_fail(reader->error, FLETCH_EUNSUPPORTED, FLETCH_NOWHERE,
                "%s: %s \"%s\" is not supported; supported: %s", reader->source, part, kind, known);
    return reader->status;
}

/* ---- Normalizer and pre-tokenizer ------------------------------------------------------------- */

/* One half of the pipeline, and how tokenizer.json writes it. */
typedef struct half {
    const char               *part, *list; /* "normalizer", "normalizers" */
    const fl_step_ops *const *known;
    const fl_step_ops        *own;   /* besides, of texts that fletch makes itself; NULL: none */
    fl_step                  *steps; /* [FL_STEPS_MAX] */
    unsigned                 *count;
    uint64_t                  growth, growth_add; /* of all steps so far */
} half;

static int refuse_step(const half *h, fl_json_reader *reader, const char *kind) {
    char   known[512];
    size_t used = 0;
    for (size_t i = 0; h->known[i] != NULL && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s, ", h->known[i]->type);
    snprintf(used < sizeof known ? known + used : known,
             used < sizeof known ? sizeof known - used : 1, "Sequence of these");
    return fl_refuse(reader, h->part, kind, known);
}

static int parse_step(half *h, fl_json_reader *reader, const char *kind) {
    const bool own = h->own != NULL && strcmp(kind, h->own->type) == 0;
    size_t     row = 0;
    while (!own && h->known[row] != NULL && strcmp(kind, h->known[row]->type) != 0)
        row++;
    if (h->known[row] == NULL)
        return refuse_step(h, reader, kind);
    if (*h->count == FL_STEPS_MAX)
        return fl_refuse(reader, h->part, "Sequence of more than 16 steps", "16 steps");
    fl_step *step = &h->steps[(*h->count)++];
    step->ops     = own ? h->own : h->known[row];
    step->option  = step->ops->option;
    step->growth  = step->ops->growth > 0 ? step->ops->growth : 1;
    if (step->ops->parse != NULL && step->ops->parse(step, reader) < 0)
        return reader->status;
    h->growth *= step->growth;
    h->growth_add = h->growth_add * step->growth + step->growth_add;
    return h->growth + h->growth_add <= EXPANSION_MAX
               ? 0
               : fl_refuse(reader, "normalizer and pre_tokenizer", "a chain that makes text longer",
                           "growth by a factor of 4096");
}

static int parse_steps(half *h, fl_json_reader *reader) {
    const char *kind = fl_need_string(reader, "type");
    if (reader->status < 0)
        return reader->status;
    if (strcmp(kind, "Sequence") != 0)
        return parse_step(h, reader, kind);
    fl_json *list = fl_json_array(reader, h->list);
    if (list == NULL)
        return fl_missing(reader, h->list);
    for (size_t i = 0; i < fl_json_count(list); i++) {
        fl_json_reader inner = fl_json_inside(reader, fl_json_item(list, i));
        reader->status       = parse_steps(h, &inner);
        if (reader->status < 0)
            return reader->status;
    }
    return 0;
}

static int parse_half(half *h, fl_json_reader *root) {
    fl_json_reader reader = fl_json_below(root, h->part);
    if (root->status == 0 && reader.object != NULL)
        root->status = parse_steps(h, &reader);
    return root->status;
}

int fl_parse_steps(fl_tokenizer *tokenizer, fl_json_reader *root) {
    half h = {"normalizer",
              "normalizers",
              fl_normalizers,
              tokenizer->pieces ? &fl_normal_sentencepiece : NULL,
              tokenizer->normal,
              &tokenizer->normal_count,
              tokenizer->normal_count > 0 ? 2 : 1,
              0};
    if (parse_half(&h, root) < 0)
        return root->status;
    /* BERT's normaliser and Lowercase alone make at most one character per byte; what follows others is
     * bounded step by step. */
    if (tokenizer->normal_count == 1 && (tokenizer->normal[0].ops == &fl_normal_bert ||
                                         tokenizer->normal[0].ops == &fl_normal_lowercase))
        h.growth = 1;
    h.part  = "pre_tokenizer";
    h.list  = "pretokenizers";
    h.known = fl_splits;
    h.own   = NULL;
    h.steps = tokenizer->split;
    h.count = &tokenizer->split_count;
    parse_half(&h, root);
    tokenizer->expansion = (uint32_t)(h.growth + h.growth_add);
    return root->status;
}
