/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.c - a libcublasLt.so.13 without a GPU: the functions that the module's table names.
 *
 * Role    With driver.c it lets the CUDA engine's host side run in tests.
 * Method  Products in plain float32 or int32 loops on the simulated stream. As strict as the real
 *         library's documents where the product could go wrong: types that go together, leading
 *         dimensions, alignment, workspace, the one transposition that int8 and e4m3 have, a bias of
 *         D's type, e4m3's devices (8.9 and newer) and multiples of 16. The proposed algorithm
 *         depends on the number of columns, and each sums in pieces of another length, so that rows
 *         differ in their last bits between sizes, as they do on a device: deterministic mode must
 *         not be left to luck.
 * Environment  SIM_CUBLASLT_NO_ACTIVATION=1: no algorithm has an activation in its epilogue.
 *         SIM_CUBLASLT_FUSSY=1: the algorithm for many columns refuses few.
 *         SIM_CUBLASLT_NONE_AT=0: a number of columns for which nothing is proposed.
 * Threads any; objects are read-only while products run. */
#include <cublasLt.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define VISIBLE __attribute__((visibility("default")))

enum { MAGIC = 0x51AB, ALGOS = 3, VERSION = 130000 };

struct cublasLtContext {
    int unused;
};

typedef struct desc {
    cublasComputeType_t compute;
    cudaDataType_t      scale, bias_type;
    cublasOperation_t   transa, transb;
    cublasLtEpilogue_t  epilogue;
    void               *bias;
    int8_t              fast; /* sums of e4m3 */
} desc;

typedef struct layout {
    cudaDataType_t type;
    uint64_t       rows, cols;
    int64_t        ld;
} layout;

typedef struct preference {
    uint64_t workspace;
    uint32_t alignment[4], schemes;
} preference;

_Static_assert(sizeof(desc) <= sizeof(cublasLtMatmulDescOpaque_t), "desc");
_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
_Static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");

/* Each algorithm: columns up to which it is proposed, length of a partial sum, split of the sum. */
static const struct {
    uint64_t columns;
    uint64_t piece;
    int32_t  split;
} algos[ALGOS] = {{64, 48, 2}, {160, 40, 1}, {UINT64_MAX, 320, 1}};
enum { FUSSY_LEAST = 1024 };

static atomic_ulong runs[ALGOS], e4m3_runs[2]; /* the second: with fast sums */

VISIBLE unsigned long sim_algo_runs(unsigned id) {
    return atomic_load(&runs[id]);
}

VISIBLE unsigned long sim_e4m3_runs(int fast) {
    return atomic_load(&e4m3_runs[fast != 0]);
}

static long long setting(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoll(text, NULL, 10) : otherwise;
}

/* ---- Objects --------------------------------------------------------------------------------- */

VISIBLE cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    *out = calloc(1, sizeof(struct cublasLtContext));
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE size_t cublasLtGetVersion(void) {
    return VERSION;
}

VISIBLE const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_UNKNOWN";
    }
}

VISIBLE cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                                cublasComputeType_t compute, cudaDataType_t scale) {
    desc *d     = calloc(1, sizeof(cublasLtMatmulDescOpaque_t));
    *d          = (desc){.compute = compute, .scale = scale, .bias_type = (cudaDataType_t)-1};
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out        = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t size, const void *from, size_t bytes) {
    if (size != bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t           opaque,
                                                      cublasLtMatmulDescAttributes_t attribute,
                                                      const void *value, size_t bytes) {
    desc *d = (desc *)(void *)opaque;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&d->transa, sizeof d->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&d->transb, sizeof d->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&d->epilogue, sizeof d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&d->bias, sizeof d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(&d->bias_type, sizeof d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return set(&d->fast, sizeof d->fast, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

VISIBLE cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                                  uint64_t rows, uint64_t cols, int64_t ld) {
    layout *l = calloc(1, sizeof(cublasLtMatrixLayoutOpaque_t));
    *l        = (layout){type, rows, cols, ld};
    *out      = (cublasLtMatrixLayout_t)(void *)l;
    return ld < (int64_t)rows ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    preference *p = calloc(1, sizeof(cublasLtMatmulPreferenceOpaque_t));
    *p            = (preference){.alignment = {256, 256, 256, 256}, .schemes = UINT32_MAX};
    *out          = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

VISIBLE cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t opaque, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes) {
    preference *p = (preference *)(void *)opaque;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace, sizeof p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->schemes, sizeof p->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 4, value,
                   bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static size_t size_of(cudaDataType_t type) {
    switch (type) {
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3: return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    default: return 4;
    }
}

static bool device_knows_e4m3(void) {
    int major = 0, minor = 0;
    cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    return major > 8 || (major == 8 && minor >= 9);
}

/* Both scale pointers stay unset, which means 1. */
static bool e4m3_fits(const desc *d, const layout *a, const layout *b, const layout *y) {
    return device_knows_e4m3() && y->type == CUDA_R_16BF && d->compute == CUBLAS_COMPUTE_32F &&
           d->scale == CUDA_R_32F && a->rows % 16 == 0 && y->rows % 16 == 0 && y->cols % 16 == 0 &&
           a->ld % 16 == 0 && b->ld % 16 == 0 && y->ld % 16 == 0 &&
           (d->bias_type == (cudaDataType_t)-1 || d->bias_type == CUDA_R_16BF);
}

static bool types_fit(const desc *d, const layout *a, const layout *b, const layout *c,
                      const layout *y) {
    bool same = a->type == b->type && c->type == y->type;
    if (a->type == CUDA_R_8I)
        return same && y->type == CUDA_R_32I && d->compute == CUBLAS_COMPUTE_32I &&
               d->scale == CUDA_R_32I && d->epilogue == CUBLASLT_EPILOGUE_DEFAULT &&
               y->rows % 4 == 0 && a->rows % 4 == 0 && a->ld % 4 == 0 && b->ld % 4 == 0;
    if (a->type == CUDA_R_8F_E4M3)
        return same && e4m3_fits(d, a, b, y);
    bool is_float = a->type == CUDA_R_32F || a->type == CUDA_R_16F || a->type == CUDA_R_16BF;
    return same && is_float && y->type == a->type && d->compute == CUBLAS_COMPUTE_32F &&
           d->scale == CUDA_R_32F &&
           (d->bias_type == (cudaDataType_t)-1 || d->bias_type == y->type);
}

static cublasStatus_t check(const desc *d, const layout *a, const layout *b, const layout *c,
                            const layout *y) {
    bool known =
        d->epilogue == CUBLASLT_EPILOGUE_DEFAULT || d->epilogue == CUBLASLT_EPILOGUE_BIAS ||
        d->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS || d->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
    bool biased = d->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    bool lacked = setting("SIM_CUBLASLT_NO_ACTIVATION", 0) && d->epilogue != CUBLASLT_EPILOGUE_BIAS;
    if (d->transa != CUBLAS_OP_T || d->transb != CUBLAS_OP_N || !known || (biased && lacked) ||
        !types_fit(d, a, b, c, y))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a->rows != b->rows || a->cols != y->rows || b->cols != y->cols || c->rows != y->rows ||
        c->cols != y->cols || (biased && d->bias == NULL))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- Algorithms ------------------------------------------------------------------------------ */

static void make_algo(uint64_t id, cublasLtMatmulAlgo_t *out) {
    *out = (cublasLtMatmulAlgo_t){{MAGIC, id}};
}

static size_t workspace_of(uint64_t id) {
    return algos[id].split > 1 ? 1 << 20 : 0;
}

VISIBLE cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y,
    cublasLtMatmulPreference_t opaque, int asked, cublasLtMatmulHeuristicResult_t results[],
    int *count) {
    const preference *p   = (const preference *)(void *)opaque;
    const layout     *out = (const layout *)(void *)y;
    cublasStatus_t    s   = check((desc *)(void *)d, (layout *)(void *)a, (layout *)(void *)b,
                                  (layout *)(void *)c, (layout *)(void *)y);
    *count                = 0;
    if (s == CUBLAS_STATUS_SUCCESS && (long long)out->cols == setting("SIM_CUBLASLT_NONE_AT", 0))
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (handle == NULL || asked < 1 || s != CUBLAS_STATUS_SUCCESS)
        return s != CUBLAS_STATUS_SUCCESS ? s : CUBLAS_STATUS_INVALID_VALUE;
    for (uint64_t id = 0; id < ALGOS && *count < asked; id++) {
        bool splits = algos[id].split > 1;
        if (out->cols > algos[id].columns || workspace_of(id) > p->workspace ||
            (splits && p->schemes == CUBLASLT_REDUCTION_SCHEME_NONE))
            continue;
        cublasLtMatmulHeuristicResult_t *r = &results[(*count)++];
        memset(r, 0, sizeof *r);
        r->workspaceSize = workspace_of(id);
        r->state         = CUBLAS_STATUS_SUCCESS;
        make_algo(id, &r->algo);
    }
    return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

VISIBLE cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y,
                                               const cublasLtMatmulAlgo_t      *algo,
                                               cublasLtMatmulHeuristicResult_t *result) {
    if (handle == NULL || algo->data[0] != MAGIC || algo->data[1] >= ALGOS)
        return CUBLAS_STATUS_INVALID_VALUE;
    uint64_t cols = ((const layout *)(const void *)y)->cols;
    memset(result, 0, sizeof *result);
    if (setting("SIM_CUBLASLT_FUSSY", 0) && algo->data[1] == ALGOS - 1 && cols < FUSSY_LEAST)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = workspace_of(algo->data[1]);
    result->algo          = *algo;
    return check((desc *)(void *)d, (layout *)(void *)a, (layout *)(void *)b, (layout *)(void *)c,
                 (layout *)(void *)y);
}

VISIBLE cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
    size_t bytes, size_t *written) {
    if (attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM || bytes != sizeof(int32_t) ||
        algo->data[0] != MAGIC)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &algos[algo->data[1]].split, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- The product ----------------------------------------------------------------------------- */

typedef struct product {
    desc        d;
    layout      a, b, y;
    const void *weights, *in;
    void       *out;
    uint64_t    piece, id;
    float       alpha, beta;
} product;

static float e4m3_float(uint8_t code) {
    int   binade = code >> 3 & 15, steps = code & 7;
    float size = binade > 0 ? ldexpf((float)(8 + steps), binade - 10) : ldexpf((float)steps, -9);
    size       = (code & 0x7F) == 0x7F ? NAN : size;
    return code & 0x80 ? -size : size;
}

static float read_float(const void *at, uint64_t i, cudaDataType_t type) {
    if (type == CUDA_R_32F)
        return ((const float *)at)[i];
    if (type == CUDA_R_16F)
        return (float)((const _Float16 *)at)[i];
    if (type == CUDA_R_8F_E4M3)
        return e4m3_float(((const uint8_t *)at)[i]);
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void write_float(void *at, uint64_t i, cudaDataType_t type, float value) {
    uint32_t bits;
    if (type == CUDA_R_32F) {
        ((float *)at)[i] = value;
    } else if (type == CUDA_R_16F) {
        ((_Float16 *)at)[i] = (_Float16)value;
    } else {
        memcpy(&bits, &value, sizeof bits);
        bool nan            = value != value;
        ((uint16_t *)at)[i] = (uint16_t)(nan ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
}

/* Sixteen sums side by side within a piece, pieces added up in order. */
static float dot(const float *x, const float *w, uint64_t k, uint64_t piece) {
    enum { LANES = 16 };
    float total = 0.0f;
    for (uint64_t first = 0; first < k; first += piece) {
        uint64_t last = first + piece < k ? first + piece : k, i = first;
        float    sum[LANES] = {0}, rest = 0.0f;
        for (; i + LANES <= last; i += LANES)
            for (int l = 0; l < LANES; l++)
                sum[l] += x[i + (uint64_t)l] * w[i + (uint64_t)l];
        for (; i < last; i++)
            rest += x[i] * w[i];
        for (int l = 0; l < LANES; l++)
            rest += sum[l];
        total += rest;
    }
    return total;
}

static float finish(const product *p, uint64_t row, float value) {
    if (p->d.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return value;
    value += read_float(p->d.bias, row, p->y.type);
    if (p->d.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        return value > 0.0f ? value : 0.0f;
    if (p->d.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
        return 0.5f * value *
               (1.0f + tanhf(0.79788456f * (value + 0.044715f * value * value * value)));
    return value;
}

static float *floats_of(const void *at, const layout *l) {
    float *out = malloc(l->rows * l->cols * sizeof *out);
    for (uint64_t c = 0; c < l->cols; c++)
        for (uint64_t r = 0; r < l->rows; r++)
            out[c * l->rows + r] = read_float(at, c * (uint64_t)l->ld + r, l->type);
    return out;
}

static void run_floats(const product *p) {
    uint64_t k = p->a.rows;
    float   *w = floats_of(p->weights, &p->a), *x = floats_of(p->in, &p->b);
    for (uint64_t n = 0; n < p->y.rows; n++)
        for (uint64_t t = 0; t < p->y.cols; t++) {
            uint64_t at    = t * (uint64_t)p->y.ld + n;
            float    value = p->alpha * dot(x + t * k, w + n * k, k, p->piece);
            if (p->beta != 0.0f) /* C is not read otherwise: it may be NaN */
                value += p->beta * read_float(p->out, at, p->y.type);
            write_float(p->out, at, p->y.type, finish(p, n, value));
        }
    free(w);
    free(x);
}

static void run_bytes(const product *p) {
    for (uint64_t n = 0; n < p->y.rows; n++)
        for (uint64_t t = 0; t < p->y.cols; t++) {
            const int8_t *w   = (const int8_t *)p->weights + n * (uint64_t)p->a.ld;
            const int8_t *x   = (const int8_t *)p->in + t * (uint64_t)p->b.ld;
            int32_t       sum = 0;
            for (uint64_t i = 0; i < p->a.rows; i++)
                sum += w[i] * x[i];
            ((int32_t *)p->out)[t * (uint64_t)p->y.ld + n] = sum;
        }
}

static int run(void *arg) {
    const product *p = arg;
    atomic_fetch_add(&runs[p->id], 1);
    if (p->a.type == CUDA_R_8F_E4M3)
        atomic_fetch_add(&e4m3_runs[p->d.fast != 0], 1);
    if (p->a.type == CUDA_R_8I)
        run_bytes(p);
    else
        run_floats(p);
    return 0;
}

static bool lies_well(const void *at, const layout *l) {
    size_t bytes = ((l->cols - 1) * (uint64_t)l->ld + l->rows) * size_of(l->type);
    return (uintptr_t)at % 16 == 0 && sim_is_device(at, bytes);
}

VISIBLE cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque,
                                      const void *alpha, const void *a, cublasLtMatrixLayout_t la,
                                      const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                                      const void *c, cublasLtMatrixLayout_t lc, void *y,
                                      cublasLtMatrixLayout_t ly, const cublasLtMatmulAlgo_t *algo,
                                      void *workspace, size_t workspace_bytes, CUstream stream) {
    cublasLtMatmulHeuristicResult_t checked;
    cublasStatus_t s = cublasLtMatmulAlgoCheck(handle, opaque, la, lb, lc, ly, algo, &checked);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    product p        = {.d       = *(const desc *)(const void *)opaque,
                        .a       = *(const layout *)(const void *)la,
                        .b       = *(const layout *)(const void *)lb,
                        .y       = *(const layout *)(const void *)ly,
                        .weights = a,
                        .in      = b,
                        .out     = y,
                        .piece   = algos[algo->data[1]].piece,
                        .id      = algo->data[1]};
    bool    is_bytes = p.a.type == CUDA_R_8I;
    bool    plain    = is_bytes ? *(const int32_t *)alpha == 1 && *(const int32_t *)beta == 0
                                : *(const float *)beta == 0.0f || *(const float *)beta == 1.0f;
    if (!is_bytes) {
        p.alpha = *(const float *)alpha;
        p.beta  = *(const float *)beta;
    }
    bool biased = p.d.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    if (!plain || checked.workspaceSize > workspace_bytes ||
        (checked.workspaceSize > 0 && !sim_is_device(workspace, checked.workspaceSize)) ||
        !lies_well(a, &p.a) || !lies_well(b, &p.b) || !lies_well(y, &p.y) || c != y ||
        (biased && !sim_is_device(p.d.bias, p.y.rows * size_of(p.y.type))))
        return CUBLAS_STATUS_INVALID_VALUE;
    return sim_enqueue(stream, run, &p, sizeof p) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                                                  : CUBLAS_STATUS_EXECUTION_FAILED;
}
