/* SPDX-License-Identifier: Apache-2.0 */
/* result_lookup.c - sparse vectors of queries without the network: the weights of the tokens that are there.
 *
 * Role    Models with a fl_lookup (model/router.c), for texts on the query's side.
 * In/Out  idf.json or the folder's tensor -> a weight for each id; ids of a query -> its list.
 * Method  A token that is there several times counts once; a weight of 0 is no entry.
 * Memory  fl_results.lookup. Threads: the table is read-only once the model is open.
 * Proof   tests/golden/test_routes.py. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "results/kinds.h"

/* {token: weight}: unknown ones are the unknown token, as transformers has them. */
static int read_idf(fl_results *r, const fl_tokenizer *tokenizer, fletch_error *error) {
    fl_json    *root   = NULL;
    int32_t     unk    = fl_tokenizer_named(tokenizer, FL_TOKEN_UNK);
    const char *path   = r->model->lookup.idf;
    int         status = fl_json_read(&root, path, FL_TOKENIZER_BYTES_MAX, error);
    if (status == FLETCH_OK && !fl_json_is(root, FL_JSON_OBJECT))
        status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                         "%s is not an object {token: weight, …}.", path);
    FL_JSON_EACH(status == FLETCH_OK ? root : NULL, token, weight) {
        int32_t id = fl_tokenizer_id(tokenizer, token);
        if (!fl_json_is(weight, FL_JSON_NUMBER)) {
            status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                             "%s: the weight of \"%.60s\" is not a number.", path, token);
            break;
        }
        id = id >= 0 ? id : unk;
        if (id >= 0 && (uint32_t)id < r->lookup_count)
            r->lookup[id] = (float)fl_json_f64(weight);
    }
    fl_json_free(root);
    return status;
}

int fl_lookup_open(fl_results *r, const fl_tokenizer *tokenizer, fletch_error *error) {
    const fl_lookup *from  = &r->model->lookup;
    uint32_t         vocab = r->model->encoder.desc.vocab;
    uint32_t         ids   = fl_tokenizer_vocab_size(tokenizer);
    r->lookup_count        = from->weight ? from->count : ids;
    if (r->lookup_count < ids || r->lookup_count > vocab)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: the table of queries has %u weights, but the tokenizer %u tokens and "
                       "the documents' network %u: the files do not belong together.",
                       r->model->folder, r->lookup_count, ids, vocab);
    r->lookup = fl_alloc_zero(r->lookup_count, sizeof *r->lookup);
    if (!r->lookup)
        return fl_fail_nomem(error, r->lookup_count * sizeof *r->lookup, "a table of weights");
    if (from->weight)
        memcpy(r->lookup, from->weight, r->lookup_count * sizeof *r->lookup);
    else
        FL_TRY(read_idf(r, tokenizer, error));
    if (!fl_all_finite(r->lookup, r->lookup_count))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: the table of queries holds weights that are not finite.",
                       r->model->folder);
    return FLETCH_OK;
}

static int by_id(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static uint32_t max_length(const fl_answer *answer, uint32_t asked) {
    return asked || answer->of->own_length ? asked : answer->of->model->lookup.max_length;
}

static int finish(fl_answer *answer, size_t text, const fl_made *made, fletch_error *error) {
    const fl_results *r     = answer->of;
    const int32_t    *ids   = made->ids;
    fl_terms         *terms = made->terms;
    terms->count            = 0;
    qsort(made->ids, made->tokens, sizeof *ids, by_id);
    for (size_t i = 0; i < made->tokens; i++)
        if ((i == 0 || ids[i] != ids[i - 1]) && (uint32_t)ids[i] < r->lookup_count &&
            !fl_terms_add(terms, ids[i], r->lookup[ids[i]]))
            return fl_lists_refuse(FLETCH_ENOMEM, text, error);
    int status = fl_terms_finish(answer, text, terms);
    return status == FLETCH_OK ? status : fl_lists_refuse(status, text, error);
}

const fl_result_ops fl_result_lookup = {.counter    = FLETCH_COUNT_IDF_LOOKUPS,
                                        .lists      = true,
                                        .from_ids   = true,
                                        .max_length = max_length,
                                        .finish     = finish};

void fl_lookup_resolve(fl_answer *answer, const fletch_request *asked) {
    const fl_lookup *lookup = &answer->of->model->lookup;
    fl_side          side   = fl_side_of(answer->of, asked->options);
    if (!lookup->there || !(side == FL_SIDE_QUERY || (side == FL_SIDE_NONE && lookup->by_default)))
        return;
    answer->ops        = &fl_result_lookup;
    answer->no_special = answer->may_be_empty = true;
}
