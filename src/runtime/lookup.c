/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - sparse vectors of queries without the network: the weights of the tokens that are there.
 *
 * Role    Models with a fl_lookup (model/router.c). open.c makes the table; feed.c hands over the ids of a
 *         query where those of a document go to the queue.
 * In/Out  idf.json or the folder's tensor -> a weight for each id; ids of a query -> its list.
 * Method  A token that is there several times counts once; a weight of 0 is no entry.
 * Memory  fletch_model.lookup. Threads: the table is read-only once the model is open.
 * Proof   tests/golden/test_routes.py. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/lookup.h"
#include "runtime/row_output.h"
#include "runtime/runtime.h"

/* {token: weight}: unknown ones are the unknown token, as transformers has them. */
static int read_idf(fletch_model *m, fletch_error *error) {
    fl_json    *root   = NULL;
    int32_t     unk    = fl_tokenizer_named(m->tokenizer, FL_TOKEN_UNK);
    const char *path   = m->model->lookup.idf;
    int         status = fl_json_read(&root, path, FL_TOKENIZER_BYTES_MAX, error);
    if (status == FLETCH_OK && !fl_json_is(root, FL_JSON_OBJECT))
        status =
            fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE, "%s is no {token: weight, …}.", path);
    FL_JSON_EACH(status == FLETCH_OK ? root : NULL, token, weight) {
        int32_t id = fl_tokenizer_id(m->tokenizer, token);
        if (!fl_json_is(weight, FL_JSON_NUMBER)) {
            status = fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                             "%s: the weight of \"%.60s\" is no number.", path, token);
            break;
        }
        id = id >= 0 ? id : unk;
        if (id >= 0 && (uint32_t)id < m->lookup_count)
            m->lookup[id] = (float)fl_json_f64(weight);
    }
    fl_json_free(root);
    return status;
}

int fl_lookup_open(fletch_model *m, fletch_error *error) {
    const fl_lookup *from  = &m->model->lookup;
    uint32_t         vocab = m->model->encoder.desc.vocab;
    uint32_t         ids   = fl_tokenizer_vocab_size(m->tokenizer);
    m->lookup_count        = from->weight ? from->count : ids;
    if (m->lookup_count < ids || m->lookup_count > vocab)
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: the table of queries has %u weights, but the tokenizer %u tokens and "
                       "the documents' network %u: the files do not belong together.",
                       m->model->folder, m->lookup_count, ids, vocab);
    m->lookup = fl_alloc_zero(m->lookup_count, sizeof *m->lookup);
    if (!m->lookup)
        return fl_fail_nomem(error, m->lookup_count * sizeof *m->lookup, "a table of weights");
    if (from->weight)
        memcpy(m->lookup, from->weight, m->lookup_count * sizeof *m->lookup);
    else
        FL_TRY(read_idf(m, error));
    if (!fl_all_finite(m->lookup, m->lookup_count))
        return fl_fail(error, FLETCH_EMODEL, FLETCH_NOWHERE,
                       "%s: the table of queries holds weights that are not finite.",
                       m->model->folder);
    return FLETCH_OK;
}

static int by_id(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int fl_lookup_text(fl_request *r, size_t text, int32_t *ids, size_t count, fl_terms *terms,
                   fletch_error *error) {
    const fletch_model *m = r->model;
    terms->count          = 0;
    qsort(ids, count, sizeof *ids, by_id);
    for (size_t i = 0; i < count; i++)
        if ((i == 0 || ids[i] != ids[i - 1]) && (uint32_t)ids[i] < m->lookup_count &&
            !fl_terms_add(terms, ids[i], m->lookup[ids[i]]))
            return fl_lists_refuse(FLETCH_ENOMEM, text, error);
    int status = fl_output_weights(r, text, terms);
    return status == FLETCH_OK ? status : fl_lists_refuse(status, text, error);
}
