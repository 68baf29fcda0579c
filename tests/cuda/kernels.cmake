# SPDX-License-Identifier: Apache-2.0
# The kernels on a machine without a GPU: the product's .cu files compiled for the host as object files
# (fl_cuda_sim: link it as objects, since kernels enter a list when the program starts), and
# fl-cuda-kernels, which compares each kernel with plain loops.
file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/engines/cuda/kernels/*.cu)
set(sim ${CMAKE_CURRENT_SOURCE_DIR}/sim)
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")

# fl_host_kernels(name sources…): objects of the kernels' host form. Optimised in any build: a simulated
# device is slow enough.
function(fl_host_kernels name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
                        POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${sim} ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${name} PRIVATE -O2 -Wall -Wextra)
endfunction()

fl_host_kernels(fl_cuda_sim ${kernels} ${sim}/lanes.cpp)
foreach(sanitizer IN LISTS FLETCH_SANITIZE)
  target_compile_options(fl_cuda_sim PRIVATE -fsanitize=${sanitizer} -fno-omit-frame-pointer)
endforeach()

# fl_kernels_test(name): the conformance tool on the simulated device that the targets behind it make.
function(fl_kernels_test name)
  set(host ${PROJECT_SOURCE_DIR}/src/engines/cuda)
  add_executable(${name} kernels.c kernels_attention.c kernels_device.c kernels_few.c kernels_numbers.c kernels_perf.c
                 ${host}/convert.c ${host}/tile_lists.c)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE fl_flags ${ARGN})
  target_compile_options(${name} PRIVATE -O2 -Wno-conversion -Wno-pedantic -Wno-double-promotion)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(TARGET unit_tests)
    add_dependencies(unit_tests ${name})
  endif()
endfunction()

fl_kernels_test(fl-cuda-kernels fl_cuda_sim)
add_test(NAME cuda_kernels COMMAND fl-cuda-kernels test)
# Blocks, warps and lanes from the last to the first: what a missing barrier would let through forwards.
# Brief: every barrier with a round before it and one behind.
add_test(NAME cuda_kernels_reversed COMMAND fl-cuda-kernels test --brief)
set_property(TEST cuda_kernels_reversed PROPERTY ENVIRONMENT SIM_ORDER=1)
set_tests_properties(cuda_kernels cuda_kernels_reversed PROPERTIES LABELS unit TIMEOUT 600 COST 15)

# Kernels that tell races.cpp each access to memory, by the calls of -fsanitize=thread; the sanitizer's own
# library would be in its way.
if(FLETCH_SANITIZE OR FLETCH_MINIMAL OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  return()
endif()
fl_host_kernels(fl_cuda_told ${kernels})
target_compile_options(fl_cuda_told PRIVATE -fsanitize=thread)
fl_host_kernels(fl_cuda_races ${sim}/lanes.cpp ${sim}/races.cpp)
fl_kernels_test(fl-cuda-races fl_cuda_told fl_cuda_races)
add_test(NAME cuda_kernels_races COMMAND fl-cuda-races test --brief)
set_property(TEST cuda_kernels_races PROPERTY ENVIRONMENT SIM_ORDER=7)
set_tests_properties(cuda_kernels_races PROPERTIES LABELS unit TIMEOUT 3000 COST 24)
