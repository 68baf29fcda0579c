/* SPDX-License-Identifier: Apache-2.0 */
/* arrow.h - Arrow's C data interface: the published structs, as its specification has them. */
#ifndef FP_ARROW_H
#define FP_ARROW_H
#include <stdint.h>

struct ArrowSchema {
    const char          *format, *name, *metadata;
    int64_t              flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t             length, null_count, offset, n_buffers, n_children;
    const void        **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif
