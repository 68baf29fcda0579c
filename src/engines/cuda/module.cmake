# SPDX-License-Identifier: Apache-2.0
# The host sources of the CUDA module, which the tests compile for a simulated device too.
set(FL_CUDA_MODULE_SOURCES cuda_calibrate.c check.c convert.c cublaslt.c cuda_describe.c driver.c cuda_engine.c
                           cuda_forward.c cuda_graph.c cuda_layers.c hang.c cuda_memory.c module.c nvml.c pinned.c cuda_profile.c product.c
                           rescue.c tiers.c tile_lists.c cuda_weights.c)
list(TRANSFORM FL_CUDA_MODULE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
