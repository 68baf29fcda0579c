/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - inside fl-cuda-kernels: a device to launch on, numbers of three types, a verdict.
 *
 * Role    kernels.c has the row kernels' tests, kernels_attention.c attention and its work lists,
 *         kernels_device.c the two devices: the simulated one (sim.h) and a real one through the
 *         driver's C interface, opened at run time.
 * Method  A tensor keeps the test's own numbers in double, rounded to the type, and their copy on
 *         the device. Outputs start as NaN, and so does what stands behind the batch's last row, so
 *         that a value that was not written, or was read and should not have been, shows. */
#ifndef FL_TESTS_CUDA_KERNELS_H
#define FL_TESTS_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engines/cuda/kernels/cuda_kernels.h"

typedef enum type { F32, F16, BF16, TYPES } type;

typedef struct tensor {
    type    type;
    size_t  count;
    double *v; /* what the device has, as numbers; after fetch: what it has now */
    void   *device;
} tensor;

/* A batch: texts of given lengths behind each other, and how many rows are allocated behind
 * them. */
typedef struct batch {
    uint32_t      texts, tokens, rows; /* rows >= tokens: the tier */
    uint32_t     *cu;
    fl_cuda_meta *meta_device;
    uint32_t     *cu_device;
    fl_cuda_tile *short_tiles, *long_tiles; /* on the device; their counts are in meta */
} batch;

/* The device. A memory is freed by release_all at the end of a case. */
bool  device_open(const char *image, char *why, size_t why_size); /* NULL: the simulated one */
bool  device_bf16(void);                                          /* knows it in the tensor core */
bool  device_e4m3(void);
void *upload(const void *data, size_t bytes); /* NULL data: poison */
void  download(void *data, const void *device, size_t bytes);
bool  launch(const char *name, uint32_t grid_x, uint32_t grid_y, uint32_t block, const void *param,
             size_t param_size);
void  release_all(void);

/* Seconds per launch of `times` launches behind each other. */
double launch_many(const char *name, uint32_t grid_x, uint32_t grid_y, uint32_t block,
                   const void *param, unsigned times);

/* Memory of the case's own, freed by release_all too. */
void *scratch(size_t bytes);

/* Numbers. */
extern const char *const type_name[TYPES];
extern const size_t      type_size[TYPES];
extern const double      type_unit[TYPES]; /* half a unit in the last place, relative */
extern type              types_tested;     /* those below it */
extern uint32_t          longest_text;     /* of mixed batches */
double                   uniform(void);    /* (-1, 1) */
uint32_t                 below(uint32_t limit);
double                   rounded(type t, double value);
double                   e4m3_rounded(double value); /* 8-bit float, cut off at 448 */
double                   e4m3_value(uint8_t code);
tensor                   numbers(type t, size_t count, double spread);
tensor                   constants(type t, size_t count, double value);
tensor                   poison(type t, size_t count);
void                     fetch(tensor *t); /* from the device to v */
void                     send(tensor *t);  /* v, rounded, to the device */
float                   *floats(const tensor *t);

batch batch_of(const uint32_t *lengths, uint32_t texts, uint32_t spare_rows);
batch mixed_batch(uint32_t most); /* the odd lengths up to `most`, in an odd order */

batch reversed(const batch *b); /* the same texts from the last to the first */

/* Rows of the batch, what stands behind them NaN; the same rows for the reversed batch; and whether
 * two results say the same of every text, to the bit. */
tensor activations(type t, const batch *b, size_t width, double spread);
tensor reversed_rows(const tensor *t, const batch *from, const batch *to, size_t width);
void   expect_same_rows(const tensor *one, const batch *b, const tensor *other, const batch *back,
                        size_t width, const char *what);

/* Verdict. `allowed` is absolute. */
void begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void expect(bool truth, const char *format, ...) __attribute__((format(printf, 2, 3)));
void expect_near(double got, double want, double allowed, const char *what, size_t row,
                 size_t column);

/* LayerNorm or RMS norm of `v` compared with a row of the result; rows behind the batch are NaN still. */
void   expect_norm(const double *v, const tensor *w, const tensor *bias, double eps, size_t width,
                   bool rms, const tensor *out, size_t row);
void   expect_untouched(const tensor *t, const batch *b, size_t width);
double activation_of(int kind, double x); /* -1: none */

void test_tiles(void);
void test_attention(void);
void test_rotate(void);
void perf(void);

#endif
