# SPDX-License-Identifier: Apache-2.0
# The kernels on a machine without a GPU: the product's .cu files compiled for the host as object files
# (fl_cuda_sim: link it as objects, since kernels enter a list when the program starts), and
# fl-cuda-kernels, which compares each kernel with plain loops.
file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/engines/cuda/kernels/*.cu)
set(sim ${CMAKE_CURRENT_SOURCE_DIR}/sim)
add_library(fl_cuda_sim OBJECT ${kernels} ${sim}/lanes.cpp)
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
set_target_properties(fl_cuda_sim PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
                      POSITION_INDEPENDENT_CODE ON)
target_include_directories(fl_cuda_sim PRIVATE ${sim} ${PROJECT_SOURCE_DIR}/src)
# Optimised in any build: a simulated device is slow enough.
target_compile_options(fl_cuda_sim PRIVATE -O2 -Wall -Wextra)
foreach(sanitizer IN LISTS FLETCH_SANITIZE)
  target_compile_options(fl_cuda_sim PRIVATE -fsanitize=${sanitizer} -fno-omit-frame-pointer)
endforeach()

add_executable(fl-cuda-kernels kernels.c kernels_attention.c kernels_device.c kernels_numbers.c
               kernels_perf.c)
target_include_directories(fl-cuda-kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(fl-cuda-kernels PRIVATE fl_flags fl_cuda_sim)
target_compile_options(fl-cuda-kernels PRIVATE -O2 -Wno-conversion -Wno-pedantic -Wno-double-promotion)
set_target_properties(fl-cuda-kernels PROPERTIES LINKER_LANGUAGE CXX)
add_test(NAME cuda_kernels COMMAND fl-cuda-kernels test)
# Blocks, warps and lanes from the last to the first: what a missing barrier would let through forwards.
add_test(NAME cuda_kernels_reversed COMMAND fl-cuda-kernels test)
set_property(TEST cuda_kernels_reversed PROPERTY ENVIRONMENT SIM_REVERSE=1)
set_tests_properties(cuda_kernels cuda_kernels_reversed PROPERTIES LABELS unit TIMEOUT 600)
