/* SPDX-License-Identifier: Apache-2.0 */
/* product.c - the four matrix products of a layer by cublasLt: descriptors, algorithms, calls.
 *
 * Role    cuda_layers.c multiplies through this; cuda_graph.c has a tier planned before it is captured.
 * Method  cublasLt counts by columns. y[t][n] = x[t][k] w[n][k]' in rows is, read by columns,
 *         Y[n, t] = W[k, n]' X[k, t]: the weights are its matrix A, transposed, which is the one
 *         form that every type has fast kernels for. The bias is along Y's rows, as its epilogue
 *         wants it. Sums are float32 whatever the type (int32 for int8), and never TF32.
 *         e4m3: a matrix and its input have one scale each, which alpha puts back. out and down add
 *         to x in place (beta 1), so that no kernel reads a branch again.
 *         A plan is made once per product and tier and kept.
 * Choice  cublasLt proposes algorithms, the best by its own guess first, which is taken. A tier for which it
 *         proposes nothing takes what runs there of those for other tiers: a batch never fails for want of one
 *         algorithm.
 * Bias    qkv, out and down: in the epilogue. up: in the epilogue with the activation where cublasLt
 *         has it: its GELU is the tanh form, which differs from the exact one by less than half of a
 *         16-bit type's last place near 1, so float32 takes fl_bias_act instead. Where a library has
 *         no algorithm with that epilogue (e4m3 on some devices), the bias stays in it and
 *         fl_bias_act activates. Gated MLPs: in fl_glu. int8: in fl_dequantize.
 * Bytes   Deterministic: one algorithm per product for all tiers, none that splits a sum, so that
 *         a row does not depend on the number of rows around it. It is looked for among those for
 *         4096 tokens, then 512, then 64: small tiles run at any size, large ones may not. Otherwise
 *         sums that are split are added up in float32, never in the type of the output.
 * Memory  cublasLt's own host objects. Threads: plans under the engine's lock, read without.
 * Proof   tests/cuda/test_cuda_engine.c. */
#include <string.h>

#include "base/error.h"
#include "engines/cuda/cuda_engine.h"

enum { ALIGNMENT = 256, PROPOSALS = 16 };

/* Which tier's best algorithm stands for all in deterministic mode: products at the first fill a
 * device, and smaller ones are short anyway. */
static const uint32_t fixed_tokens[] = {4096, 512, 64};
enum { FIXED = sizeof fixed_tokens / sizeof *fixed_tokens };

const char *const fl_cuda_product_names[FL_CUDA_PRODUCTS] = {"product qkv", "product out",
                                                             "product up", "product down"};

void fl_cuda_product_size(const fl_engine *e, fl_cuda_product p, uint32_t *n, uint32_t *k) {
    const fl_encoder_desc *d = &e->desc;
    *n = p == FL_CUDA_QKV ? e->qkv_width : p == FL_CUDA_UP ? e->up_width : d->hidden;
    *k = p == FL_CUDA_OUT ? e->inner : p == FL_CUDA_DOWN ? d->intermediate : d->hidden;
}

/* Whether the product of a post-norm model reads what a norm gave. */
static bool is_normed(const fl_engine *e, uint32_t layer, fl_cuda_product p) {
    return p == FL_CUDA_UP || (p == FL_CUDA_QKV && (layer > 0 || e->desc.embed_norm));
}

/* int8: down takes the activation's output, whose few large values stand in other columns for every
 * token: bytes would cost it three quarters of the whole error, so that it stays in 16 bits.
 * e4m3, with its coarser steps, is for what norms give, in the first half of the layers: an error in
 * the last ones reaches the vector undamped. */
static fl_cuda_type type_of(const fl_engine *e, uint32_t layer, fl_cuda_product p) {
    if (e->narrow == FL_CUDA_Q8)
        return p == FL_CUDA_DOWN ? e->type : FL_CUDA_Q8;
    bool early = layer < (e->desc.layers + 1) / 2;
    return early && is_normed(e, layer, p) ? e->narrow : e->type;
}

void fl_cuda_takes(const fl_engine *e, uint32_t layer, fl_cuda_product p, fl_cuda_matrix *m) {
    fl_activation a    = e->desc.activation;
    bool          acts = a == FL_ACT_RELU || (e->type != FL_CUDA_F32 && a != FL_ACT_SILU);
    m->takes           = type_of(e, layer, p);
    m->fused           = p != FL_CUDA_UP || (acts && e->desc.mlp == FL_MLP_PLAIN);
    m->fused           = m->fused && m->takes != FL_CUDA_Q8;
    m->adds            = (p == FL_CUDA_OUT || p == FL_CUDA_DOWN) && m->takes != FL_CUDA_Q8;
}

static int kind_of(fl_cuda_product p, const fl_cuda_matrix *m) {
    return (int)p + (m->takes == FL_CUDA_E4M3 ? FL_CUDA_PRODUCTS : 0);
}

static fl_cuda_product product_of(int kind) {
    return (fl_cuda_product)(kind % FL_CUDA_PRODUCTS);
}

/* ---- Types ----------------------------------------------------------------------------------- */

static const cudaDataType_t data_types[FL_CUDA_TYPES] = {[FL_CUDA_F32]  = CUDA_R_32F,
                                                         [FL_CUDA_F16]  = CUDA_R_16F,
                                                         [FL_CUDA_BF16] = CUDA_R_16BF,
                                                         [FL_CUDA_Q8]   = CUDA_R_8I,
                                                         [FL_CUDA_E4M3] = CUDA_R_8F_E4M3};

static cudaDataType_t in_type(const fl_engine *e, int kind) {
    return data_types[e->first[kind]->takes];
}

static cudaDataType_t out_type(const fl_engine *e, int kind) {
    return e->first[kind]->takes == FL_CUDA_Q8 ? CUDA_R_32I : data_types[e->type];
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static cublasLtEpilogue_t epilogue_of(const fl_engine *e, fl_cuda_product p) {
    if (p != FL_CUDA_UP)
        return CUBLASLT_EPILOGUE_BIAS;
    return e->desc.activation == FL_ACT_RELU ? CUBLASLT_EPILOGUE_RELU_BIAS
                                             : CUBLASLT_EPILOGUE_GELU_BIAS;
}

static cublasStatus_t make_desc(const fl_engine *e, fl_cuda_product p, fl_cuda_matrix *m) {
    const fl_cuda_lt_calls *lt        = &e->cuda->lt;
    cublasOperation_t       transpose = CUBLAS_OP_T;
    cublasLtEpilogue_t      epilogue  = epilogue_of(e, p);
    bool                    is_q8     = m->takes == FL_CUDA_Q8;
    int8_t                  fast      = 1;
    cublasStatus_t s = lt->desc_create(&m->desc, is_q8 ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                       is_q8 ? CUDA_R_32I : CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->desc_set(m->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose);
    /* Otherwise Hopper moves partial sums of e4m3 to float32 registers all the time. */
    if (s == CUBLAS_STATUS_SUCCESS && m->takes == FL_CUDA_E4M3)
        s = lt->desc_set(m->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    if (s == CUBLAS_STATUS_SUCCESS && m->fused) {
        s = lt->desc_set(m->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        if (s == CUBLAS_STATUS_SUCCESS)
            s = lt->desc_set(m->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &m->bias, sizeof m->bias);
    }
    return s;
}

static cublasStatus_t make_descs(fl_engine *e) {
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < FL_CUDA_PRODUCTS * (int)e->desc.layers && s == CUBLAS_STATUS_SUCCESS; i++) {
        fl_cuda_product p    = product_of(i);
        fl_cuda_matrix *m    = &e->layers[i / FL_CUDA_PRODUCTS].product[p];
        int             kind = kind_of(p, m);
        uint32_t        n, k;
        s = make_desc(e, p, m);
        if (s != CUBLAS_STATUS_SUCCESS || e->first[kind] != NULL)
            continue;
        e->first[kind] = m;
        fl_cuda_product_size(e, p, &n, &k);
        s = e->cuda->lt.layout_create(&e->weight_layout[kind], in_type(e, kind), k, n, k);
    }
    return s;
}

/* Zero is a no-op. */
static void close_plan(const fl_engine *e, fl_cuda_plan *plan) {
    if (plan->in != NULL)
        e->cuda->lt.layout_destroy(plan->in);
    if (plan->out != NULL)
        e->cuda->lt.layout_destroy(plan->out);
    *plan = (fl_cuda_plan){0};
}

void fl_cuda_products_close(fl_engine *e) {
    const fl_cuda_lt_calls *lt = &e->cuda->lt;
    for (uint32_t i = 0; e->layers != NULL && i < e->desc.layers; i++)
        for (int p = 0; p < FL_CUDA_PRODUCTS; p++)
            if (e->layers[i].product[p].desc != NULL)
                lt->desc_destroy(e->layers[i].product[p].desc);
    for (int kind = 0; kind < FL_CUDA_KINDS; kind++) {
        for (uint32_t i = 0; i < FL_CUDA_TIERS; i++)
            close_plan(e, &e->tiers[i].plan[kind]);
        if (e->weight_layout[kind] != NULL)
            lt->layout_destroy(e->weight_layout[kind]);
    }
    if (e->lt != NULL)
        lt->destroy(e->lt);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The layouts of a product at so many tokens. */
static cublasStatus_t open_plan(const fl_engine *e, int kind, uint32_t tokens, fl_cuda_plan *plan) {
    uint32_t n, k;
    fl_cuda_product_size(e, product_of(kind), &n, &k);
    /* The gate's half of a row is down's input. */
    uint32_t       apart = product_of(kind) == FL_CUDA_DOWN ? e->up_width : k;
    cublasStatus_t s     = e->cuda->lt.layout_create(&plan->in, in_type(e, kind), k, tokens, apart);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = e->cuda->lt.layout_create(&plan->out, out_type(e, kind), n, tokens, n);
    return s;
}

static cublasStatus_t make_preference(const fl_engine *e, cublasLtMatmulPreference_t *out) {
    const fl_cuda_lt_calls *lt        = &e->cuda->lt;
    uint64_t                workspace = e->workspace_bytes;
    uint32_t                alignment = ALIGNMENT;
    uint32_t                schemes =
        e->deterministic ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t s = lt->preference_create(out);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->preference_set(*out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                               sizeof workspace);
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++)
        s = lt->preference_set(*out, aligned[i], &alignment, sizeof alignment);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->preference_set(*out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                               sizeof schemes);
    return s;
}

/* Whether an algorithm runs a product by a plan's layouts. */
static bool runs_by(const fl_engine *e, int kind, const fl_cuda_plan *plan,
                    const cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulHeuristicResult_t checked;
    return e->cuda->lt.algo_check(e->lt, e->first[kind]->desc, e->weight_layout[kind], plan->in,
                                  plan->out, plan->out, algo, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= e->workspace_bytes;
}

static bool runs_at(const fl_engine *e, int kind, uint32_t tier, const cublasLtMatmulAlgo_t *algo) {
    fl_cuda_plan plan = {0};
    bool         runs = open_plan(e, kind, e->tiers[tier].tokens, &plan) == CUBLAS_STATUS_SUCCESS &&
                runs_by(e, kind, &plan, algo);
    close_plan(e, &plan);
    return runs;
}

/* Deterministic: it splits no sum, and every tier can run it. */
static bool is_steady(const fl_engine *e, int kind, const cublasLtMatmulAlgo_t *algo) {
    int32_t        split   = 0;
    size_t         written = 0;
    cublasStatus_t s =
        e->cuda->lt.algo_get(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &written);
    bool steady = s == CUBLAS_STATUS_SUCCESS && split <= 1;
    for (uint32_t tier = 0; steady && tier < e->tier_count; tier++)
        steady = runs_at(e, kind, tier, algo);
    return steady;
}

/* At most PROPOSALS; NOT_SUPPORTED for none. */
static cublasStatus_t propose(const fl_engine *e, int kind, const fl_cuda_plan *plan, int most,
                              cublasLtMatmulAlgo_t *out, int *count) {
    const fl_cuda_lt_calls         *lt = &e->cuda->lt;
    cublasLtMatmulHeuristicResult_t found[PROPOSALS];
    cublasLtMatmulPreference_t      preference = NULL;
    int                             all        = 0;
    cublasStatus_t                  s          = make_preference(e, &preference);
    *count                                     = 0;
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->heuristic(e->lt, e->first[kind]->desc, e->weight_layout[kind], plan->in, plan->out,
                          plan->out, preference, most, found, &all);
    if (preference != NULL)
        lt->preference_destroy(preference);
    for (int i = 0; s == CUBLAS_STATUS_SUCCESS && i < all; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            out[(*count)++] = found[i].algo;
    return s == CUBLAS_STATUS_SUCCESS && *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : s;
}

/* Deterministic: the algorithm of a product for all tiers, from the proposals at so many tokens. */
static cublasStatus_t fix_at(fl_engine *e, int kind, uint32_t tokens) {
    cublasLtMatmulAlgo_t proposals[PROPOSALS];
    fl_cuda_plan         plan  = {0};
    int                  count = 0;
    cublasStatus_t       s     = open_plan(e, kind, tokens, &plan);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = propose(e, kind, &plan, PROPOSALS, proposals, &count);
    close_plan(e, &plan);
    for (int i = 0; s == CUBLAS_STATUS_SUCCESS && i < count; i++) {
        if (!is_steady(e, kind, &proposals[i]))
            continue;
        e->fixed[kind] = proposals[i];
        return CUBLAS_STATUS_SUCCESS;
    }
    return s == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : s;
}

static cublasStatus_t fix_algorithm(fl_engine *e, int kind) {
    cublasStatus_t s = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < FIXED && s == CUBLAS_STATUS_NOT_SUPPORTED; i++)
        s = fix_at(e, kind, fixed_tokens[i]);
    return s;
}

/* Of other tiers the first whose own algorithm runs by this plan. */
static cublasStatus_t borrow(const fl_engine *e, int kind, fl_cuda_plan *plan) {
    cublasStatus_t s = CUBLAS_STATUS_NOT_SUPPORTED;
    for (uint32_t tier = 0; tier < e->tier_count && s == CUBLAS_STATUS_NOT_SUPPORTED; tier++) {
        fl_cuda_plan other = {0};
        int          count = 0;
        s                  = open_plan(e, kind, e->tiers[tier].tokens, &other);
        if (s == CUBLAS_STATUS_SUCCESS)
            s = propose(e, kind, &other, 1, &plan->algo, &count);
        if (s == CUBLAS_STATUS_SUCCESS && !runs_by(e, kind, plan, &plan->algo))
            s = CUBLAS_STATUS_NOT_SUPPORTED;
        close_plan(e, &other);
    }
    return s;
}

static cublasStatus_t choose(const fl_engine *e, int kind, fl_cuda_plan *plan) {
    int            count = 0;
    cublasStatus_t s     = propose(e, kind, plan, 1, &plan->algo, &count);
    return s == CUBLAS_STATUS_NOT_SUPPORTED ? borrow(e, kind, plan) : s;
}

static cublasStatus_t plan_product(const fl_engine *e, int kind, uint32_t tokens,
                                   fl_cuda_plan *plan) {
    cublasStatus_t s = open_plan(e, kind, tokens, plan);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!e->deterministic)
        return choose(e, kind, plan);
    plan->algo = e->fixed[kind];
    return runs_by(e, kind, plan, &plan->algo) ? CUBLAS_STATUS_SUCCESS
                                               : CUBLAS_STATUS_NOT_SUPPORTED;
}

int fl_cuda_plan_tier(fl_engine *e, uint32_t tier, fletch_error *error) {
    fl_cuda_tier  *t = &e->tiers[tier];
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    if (atomic_load_explicit(&t->ready, memory_order_acquire))
        return FLETCH_OK;
    pthread_mutex_lock(&e->lock);
    bool made = atomic_load(&t->ready);
    for (int kind = 0; !made && kind < FL_CUDA_KINDS && s == CUBLAS_STATUS_SUCCESS; kind++) {
        close_plan(e, &t->plan[kind]); /* of an attempt that failed */
        if (e->first[kind] != NULL)
            s = plan_product(e, kind, t->tokens, &t->plan[kind]);
    }
    atomic_store_explicit(&t->ready, s == CUBLAS_STATUS_SUCCESS, memory_order_release);
    pthread_mutex_unlock(&e->lock);
    return fl_cuda_lt_check(e->cuda, s, FLETCH_EPROVIDER, error, "no algorithm for a product");
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Whether cublasLt proposes anything for a product at so many tokens. */
static cublasStatus_t ask_at(const fl_engine *e, int kind, uint32_t tokens) {
    cublasLtMatmulAlgo_t first;
    fl_cuda_plan         plan  = {0};
    int                  count = 0;
    cublasStatus_t       s     = open_plan(e, kind, tokens, &plan);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = propose(e, kind, &plan, 1, &first, &count);
    close_plan(e, &plan);
    return s;
}

/* fl_bias_act activates, and the bias alone stays in the epilogue. */
static cublasStatus_t set_apart(fl_engine *e, int kind) {
    cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t     s    = CUBLAS_STATUS_SUCCESS;
    for (uint32_t i = 0; i < e->desc.layers && s == CUBLAS_STATUS_SUCCESS; i++) {
        fl_cuda_matrix *m = &e->layers[i].product[FL_CUDA_UP];
        if (kind_of(FL_CUDA_UP, m) != kind)
            continue;
        m->act_apart = true;
        s = e->cuda->lt.desc_set(m->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias);
    }
    return s;
}

/* Where there is no algorithm with up's activation in its epilogue, at the smallest size or the
 * largest, the bias alone stays there. */
static cublasStatus_t settle_activation(fl_engine *e, int kind) {
    if (e->first[kind] == NULL || !e->first[kind]->fused)
        return CUBLAS_STATUS_SUCCESS;
    cublasStatus_t s =
        e->deterministic ? fix_algorithm(e, kind) : ask_at(e, kind, e->tiers[0].tokens);
    if (s == CUBLAS_STATUS_SUCCESS && !e->deterministic)
        s = ask_at(e, kind, e->tiers[e->tier_count - 1].tokens);
    return s == CUBLAS_STATUS_NOT_SUPPORTED ? set_apart(e, kind) : s;
}

int fl_cuda_products_open(fl_engine *e, fletch_error *error) {
    FL_TRY(fl_cuda_lt_check(e->cuda, e->cuda->lt.create(&e->lt), FLETCH_EPROVIDER, error,
                            "cublasLt does not start"));
    cublasStatus_t s = make_descs(e);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = settle_activation(e, FL_CUDA_UP);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = settle_activation(e, FL_CUDA_PRODUCTS + FL_CUDA_UP);
    int status =
        fl_cuda_lt_check(e->cuda, s, FLETCH_EPROVIDER, error, "a product cannot be described");
    if (status < 0 || !e->deterministic)
        return status;
    for (int kind = 0; kind < FL_CUDA_KINDS && s == CUBLAS_STATUS_SUCCESS; kind++)
        if (e->first[kind] != NULL)
            s = fix_algorithm(e, kind);
    return fl_cuda_lt_check(e->cuda, s, FLETCH_EPROVIDER, error,
                            "provider.deterministic: no algorithm of a product runs at every size");
}

/* ---- The call -------------------------------------------------------------------------------- */

static void *pointer(CUdeviceptr at) {
    return (void *)(uintptr_t)at; /* NOLINT: an address of the device */
}

int fl_cuda_multiply(const fl_engine *e, const fl_cuda_slot *slot, uint32_t tier,
                     const fl_cuda_layer *layer, fl_cuda_product p, CUdeviceptr in, CUdeviceptr out,
                     fletch_error *error) {
    static const float    zero = 0.0f, one = 1.0f;
    static const int32_t  one_q8 = 1, zero_q8 = 0;
    const fl_cuda_matrix *m     = &layer->product[p];
    int                   kind  = kind_of(p, m);
    const fl_cuda_plan   *plan  = &e->tiers[tier].plan[kind];
    bool                  is_q8 = m->takes == FL_CUDA_Q8;
    const void           *alpha = is_q8 ? (const void *)&one_q8 : &m->alpha;
    const void           *beta  = is_q8 ? (const void *)&zero_q8 : m->adds ? &one : &zero;
    cublasStatus_t        s;
    s = e->cuda->lt.matmul(e->lt, m->desc, alpha, pointer(m->weights), e->weight_layout[kind],
                           pointer(in), plan->in, beta, pointer(out), plan->out, pointer(out),
                           plan->out, &plan->algo, pointer(slot->workspace), e->workspace_bytes,
                           slot->stream);
    fl_cuda_mark(e, slot, fl_cuda_product_names[p]);
    return fl_cuda_lt_check(e->cuda, s, FLETCH_EINTERNAL, error, "a product failed");
}
