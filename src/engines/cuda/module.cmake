# SPDX-License-Identifier: Apache-2.0
# The host sources of the CUDA module, which the tests compile for a simulated device too.
set(FL_CUDA_MODULE_SOURCES calibrate.c check.c convert.c cublaslt.c describe.c driver.c engine.c
                           forward.c graph.c layers.c memory.c module.c nvml.c pinned.c product.c
                           rescue.c tiers.c weights.c)
list(TRANSFORM FL_CUDA_MODULE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
