/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - a read-only view of one array in a mapped file. */
#ifndef FL_MODEL_TENSOR_H
#define FL_MODEL_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fl_dtype {
    FL_DTYPE_F32,
    FL_DTYPE_F16,
    FL_DTYPE_BF16,
    FL_DTYPE_F64,
    FL_DTYPE_I64,
    FL_DTYPE_I32,
    FL_DTYPE_I16,
    FL_DTYPE_I8,
    FL_DTYPE_U8,
    FL_DTYPE_BOOL,
    FL_DTYPE_F8,    /* e4m3: weights only with scales (packed.c) */
    FL_DTYPE_OTHER, /* known to safetensors, unused here */
    FL_DTYPE_Q4_0,  /* GGUF's: values in blocks that share scales */
    FL_DTYPE_Q4_1,
    FL_DTYPE_Q5_0,
    FL_DTYPE_Q5_1,
    FL_DTYPE_Q8_0,
    FL_DTYPE_Q4_K,
    FL_DTYPE_Q5_K,
    FL_DTYPE_Q6_K,
    FL_DTYPE_PACKED, /* integers or bytes with scales in tensors of their own: fl_packed_matrix */
    FL_DTYPE_END
} fl_dtype;

enum { FL_RANK_MAX = 8 };

struct fl_adapter;
struct fl_packed_matrix;

typedef struct fl_tensor {
    const void              *data; /* borrowed from the map; may be unaligned; NULL = absent */
    uint64_t                 bytes;
    fl_dtype                 dtype;
    uint32_t                 rank;
    uint64_t                 shape[FL_RANK_MAX];
    const struct fl_map     *map;     /* that data lies in (base/file.h); NULL: none */
    const struct fl_adapter *adapter; /* added to the elements when they are read; NULL: none */
    uint32_t
        turned; /* rows of a head, whose halves lie in turns in the file (llama.cpp's Llama); 0: in order */
    uint32_t run,
        step; /* `run` rows (a head's) of every `step` in the file are this tensor's; run 0: all in a row */
    uint64_t
        across; /* the file has column after column, this far apart, a whole matrix's; 0: row after row */
    const struct fl_packed_matrix *packed;     /* what a PACKED matrix is made of */
    uint64_t                       packed_row; /* of that matrix, row 0 of this */
} fl_tensor;

/* A matrix as quantisers save it: integers or float8, and in other tensors the scales of runs of a row, so that
 * w = (q - zero) scale, rounded to the type of the scales, as compressed-tensors, GPTQ and AWQ make it again. */
typedef enum fl_packed_layout {
    FL_PACKED_BYTES,  /* [rows, columns] of int8 */
    FL_PACKED_FLOAT8, /* likewise of float8 (e4m3) */
    FL_PACKED_ROWS,   /* [rows, columns / per] of words; `per` integers from the lowest bits up */
    FL_PACKED_STEPS,  /* GPTQ: [columns / per, rows] of words, each of `per` steps of a column */
    FL_PACKED_AWQ     /* [columns, rows / 8] of words, eight rows' nibbles in AWQ's order */
} fl_packed_layout;
typedef struct fl_packed_matrix {
    struct fl_packed_matrix *next; /* of whoever keeps several */
    fl_packed_layout         layout;
    uint32_t                 bits; /* of an integer: 4 or 8 */
    uint64_t                 rows, columns;
    uint64_t                 groups, run; /* of a row; columns that share a scale */
    const unsigned char     *q;           /* borrowed, as all below */
    const unsigned char     *scales;      /* [rows, groups], or turned [groups, rows] */
    fl_dtype                 scale_dtype; /* F32, F16 or BF16 */
    const unsigned char
        *zeros; /* NULL: there are none. As the scales lie, and `rows` packed as q is */
    const unsigned char *group_of;   /* int32 [columns]; NULL: column / run */
    bool                 one_scale;  /* for all rows */
    uint32_t             zeros_less; /* what a word of zeros is saved less */
} fl_packed_matrix;

/* A run of at most FL_PACKED_RUN columns of a row. */
enum { FL_PACKED_RUN = 128 };
typedef struct fl_packed_part {
    float    scale;
    uint16_t scale_bits; /* of a scale in 16 bits */
    int      zero;
    int16_t  q[FL_PACKED_RUN]; /* from 0 on, or of BYTES from -128 on */
} fl_packed_part;

/* A product of low rank that goes on top of a matrix: scale * left[rows, rank] * right[rank, columns]. */
enum { FL_ADAPTER_RANK_MAX = 256 };
typedef struct fl_adapter {
    struct fl_adapter *next; /* of whoever keeps several */
    fl_tensor          left; /* rows of the matrix, [rank] each */
    uint32_t           rank, columns;
    float              scale;
    float              right[];
} fl_adapter;

/* The format's types, those of fl_dtype first and in its order; the last has no name. */
typedef struct fl_dtype_row {
    const char *name;
    fl_dtype    dtype;
    uint32_t    bits; /* of an element */
} fl_dtype_row;
extern const fl_dtype_row fl_dtypes[];

const char *fl_dtype_name(fl_dtype dtype); /* "F32" */

/* One of those that weights may have. */
static inline bool fl_dtype_is_real(fl_dtype dtype) {
    return dtype == FL_DTYPE_F32 || dtype == FL_DTYPE_F16 || dtype == FL_DTYPE_BF16 ||
           dtype > FL_DTYPE_OTHER;
}

/* Bytes of `count` elements; whole blocks where the type has blocks. */
uint64_t fl_dtype_bytes(fl_dtype dtype, uint64_t count);

/* Weights in fewer bits than float32. In groups: small integers q of which `run` neighbours in a row share a scale, and
 * where there is a least value, that too: scale q + least. Scales are halves; coded, a half of a longer stretch times a
 * byte of each run. Rounded, they are (q - zero) scale in 16 bits, which the scales have too. In 16 bits each is for
 * itself. */
typedef struct fl_groups {
    uint8_t bits; /* 16, 8, or 4: -8 … 7, with a least value 0 … 15; 0: float32 */
    uint8_t run;  /* 128, 64, 32 or 16; of 16 bits 0 */
    bool    least, coded;
    bool    rounded, zero; /* without a zero q is from -8 or -128 on */
    bool    half;          /* 16 bits are halves, not bfloat16 */
} fl_groups;

/* blocks.c: a type of blocks, and a block taken apart. What a type has not is left as it was. */
enum { FL_BLOCK_VALUES_MAX = 256, FL_BLOCK_RUNS_MAX = 16 };
typedef struct fl_block_parts {
    uint16_t scale,
        least; /* halves; of a coded type with a least value, that is -(least * least_code) */
    int8_t scale_code[FL_BLOCK_RUNS_MAX], least_code[FL_BLOCK_RUNS_MAX];
    int8_t q[FL_BLOCK_VALUES_MAX];
} fl_block_parts;
typedef struct fl_block_row {
    const char *name;
    uint32_t    values, bytes; /* of a block; values divide FL_BLOCK_VALUES_MAX */
    fl_groups   groups;
    void (*split)(const unsigned char *block, fl_block_parts *out);
} fl_block_row;
const fl_block_row *fl_block_of(fl_dtype dtype); /* NULL: it has no blocks */
void                fl_block_widen(const fl_block_row *row, const unsigned char *block, float *out);

/* packed.c: columns [column, column + count) of a row, which share a scale; how many of `most` there are. */
uint64_t fl_packed_read(const fl_tensor *tensor, uint64_t row, uint64_t column, uint64_t most,
                        fl_packed_part *out);
/* Elements [first, first + count) as float32. */
void fl_packed_to_f32(const fl_tensor *tensor, uint64_t first, uint64_t count, float *out);
/* Of all that decides its values but for q: the sizes, what config.json says, the bytes of scales and zeros. */
uint64_t fl_packed_checksum(const fl_packed_matrix *packed);
/* How such a matrix stays in few bits; no bits: it does not. */
fl_groups fl_packed_groups(const fl_packed_matrix *packed);

/* Whether `count` elements are there. */
bool fl_tensor_holds(const fl_tensor *tensor, uint64_t count);

/* quantize.c: whole blocks of finite values as F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1, with the gguf package's
 * bytes. */
void fl_tensor_from_f32(fl_dtype dtype, const float *values, uint64_t count, unsigned char *out);

/* Where row `row` lies in the file, and whether all lie in a row there. */
uint64_t           fl_tensor_row(const fl_tensor *tensor, uint64_t row);
static inline bool fl_tensor_in_order(const fl_tensor *t) {
    return t->turned == 0 && t->run == 0 && t->across == 0;
}
/* Bytes of the file from its first element to its last. */
uint64_t fl_tensor_span(const fl_tensor *tensor);

/* Convert elements [first, first + count) of a real or I8 tensor to float32 (unaligned-safe), its adapter
 * added. */
void fl_tensor_to_f32(const fl_tensor *tensor, uint64_t first, uint64_t count, float *out);

#endif
