/* SPDX-License-Identifier: Apache-2.0 */
/* test_cublaslt.c - the engine's products against NVIDIA's own libcublasLt, on any machine.
 *
 * What must never break: every function that driver.h names is in the library, and what product.c
 * says of its products (types, layouts, epilogues, preferences, with the sizes of our types) is
 * taken. The library checks all of that without a device; it gives no handle and no algorithm
 * there, so that those two are made up. The simulated library of the other tests proves the rest.
 * Where the toolkit came without the library the test is skipped by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "engines/cuda/cuda_engine.h"

/* Of hang.c: nothing here has a device to wait for. */
CUresult fl_cuda_await(fl_engine *e, CUstream stream, CUevent event, uint64_t poll_ns) {
    (void)e, (void)stream, (void)event, (void)poll_ns;
    return CUDA_ERROR_NO_DEVICE;
}
int fl_cuda_awaited(const fl_engine *e, CUresult result, int code, fletch_error *error,
                    const char *what) {
    return fl_cuda_check(e->cuda, result, code, error, what);
}

static cublasStatus_t no_handle(cublasLtHandle_t *out) {
    *out = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t one_algorithm(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                    cublasLtMatmulPreference_t preference, int asked,
                                    cublasLtMatmulHeuristicResult_t *out, int *count) {
    (void)handle;
    cr_assert(desc && a && b && c && d && preference && asked >= 1);
    *out   = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t is_good(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t      *algo,
                              cublasLtMatmulHeuristicResult_t *out) {
    (void)handle;
    cr_assert(desc && a && b && c && d && algo);
    *out = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
}

static void open_library(fl_cuda *cuda) {
    fletch_error error = {0};
    const char  *file  = getenv("FLETCH_TEST_CUBLASLT");
    if (file == NULL || file[0] == '\0')
        cr_skip_test("no libcublasLt beside the toolkit's headers");
    *cuda = (fl_cuda){0};
    cr_assert_eq(fl_cuda_lt_open(cuda, file, NULL, &error), FLETCH_OK, "%s", error.message);
    cr_assert_geq(cuda->lt_version, 120000);
}

/* Version 12 of it, although the loader may find 13: who sets the variable means it. */
Test(cublaslt, is_taken_first_from_the_toolkit_of_cuda_path) {
    const char *file     = getenv("FLETCH_TEST_CUBLASLT");
    char        folder[] = "/tmp/fletch-toolkit-XXXXXX", lib[64], link[96];
    if (file == NULL || file[0] == '\0')
        cr_skip_test("no libcublasLt beside the toolkit's headers");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(lib, sizeof lib, "%s/lib64", folder);
    snprintf(link, sizeof link, "%s/libcublasLt.so.12", lib);
    cr_assert(mkdir(lib, 0700) == 0 && symlink(file, link) == 0);
    setenv("CUDA_PATH", folder, 1);
    fletch_error error  = {0};
    fl_cuda      cuda   = {0};
    int          status = fl_cuda_lt_open(&cuda, "", NULL, &error);
    cr_expect(unlink(link) == 0 && rmdir(lib) == 0 && rmdir(folder) == 0);
    cr_assert_eq(status, FLETCH_OK, "%s", error.message);
    cr_assert_str_eq(cuda.lt_path, link);
}

/* Otherwise what it takes below would prove nothing. */
Test(cublaslt, refuses_sizes_that_are_not_its_own) {
    fl_cuda              cuda;
    cublasLtMatmulDesc_t desc;
    uint64_t             value = 0;
    open_library(&cuda);
    cr_assert_eq(cuda.lt.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    cr_assert_neq(cuda.lt.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &value, 8),
                  CUBLAS_STATUS_SUCCESS);
    cr_assert_neq(cuda.lt.desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &value, 4),
                  CUBLAS_STATUS_SUCCESS);
    cuda.lt.desc_destroy(desc);
}

static void check_products(fl_cuda *cuda, fl_cuda_type type, fl_cuda_type narrow, bool steady) {
    enum { LAYERS = 2 };
    static fl_engine     e;
    static fl_cuda_layer layers[LAYERS];
    static fl_layer_desc descs[LAYERS];
    fletch_error         error = {0};
    memset(layers, 0, sizeof layers);
    memset(&e, 0, sizeof e);
    e.cuda            = cuda;
    e.layers          = layers;
    e.type            = type;
    e.narrow          = narrow;
    e.desc            = (fl_encoder_desc){.layers       = LAYERS,
                                          .layer        = descs,
                                          .hidden       = 384,
                                          .heads        = 12,
                                          .kv_heads     = 12,
                                          .head_dim     = 32,
                                          .intermediate = 1536,
                                          .vocab        = 32,
                                          .embed_norm   = true};
    e.inner           = 384;
    e.qkv_width       = 3 * 384;
    e.up_width        = 1536;
    e.element         = type == FL_CUDA_F32 ? 4 : 2;
    e.deterministic   = steady;
    e.workspace_bytes = 1 << 20;
    e.tier_count      = 1;
    e.tiers[0].tokens = 48;
    pthread_mutex_init(&e.lock, NULL);
    fl_cuda_weights_bytes(&e); /* says of each matrix what it takes */
    cr_assert_eq(fl_cuda_products_open(&e, &error), FLETCH_OK, "type %d, %d: %s", (int)type,
                 (int)narrow, error.message);
    cr_assert_eq(fl_cuda_plan_tier(&e, 0, &error), FLETCH_OK, "type %d, %d: %s", (int)type,
                 (int)narrow, error.message);
    fl_cuda_products_close(&e);
    pthread_mutex_destroy(&e.lock);
}

Test(cublaslt, takes_what_product_c_says) {
    static const fl_cuda_type types[][2] = {{FL_CUDA_F32, FL_CUDA_F32},
                                            {FL_CUDA_F16, FL_CUDA_F16},
                                            {FL_CUDA_BF16, FL_CUDA_BF16},
                                            {FL_CUDA_BF16, FL_CUDA_Q8},
                                            {FL_CUDA_BF16, FL_CUDA_E4M3}};
    fl_cuda                   cuda;
    open_library(&cuda);
    cuda.lt.create     = no_handle;
    cuda.lt.heuristic  = one_algorithm;
    cuda.lt.algo_check = is_good;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int steady = 0; steady < 2; steady++)
            check_products(&cuda, types[i][0], types[i][1], steady);
}
