/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_onnx.c - any bytes as the .onnx file of a folder that has nothing else.
 *
 * Whatever comes in, an output is found or none is, and its width is one that a model may have. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/model_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char    path[64];
    static int     fd = -1;
    fl_model       model;
    fl_onnx_output out;
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    model = (fl_model){.onnx_file = path};
    fl_onnx_output_read(&model, &out);
    if (out.width > 1 << 24 || (out.width == 0 && out.pooled))
        abort();
    return 0;
}
