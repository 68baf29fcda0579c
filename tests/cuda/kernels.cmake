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
  add_executable(${name} kernels.c kernels_attention.c kernels_device.c kernels_numbers.c kernels_perf.c
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
set_tests_properties(cuda_kernels cuda_kernels_reversed PROPERTIES LABELS unit TIMEOUT ${FL_HANGS} COST 15)

# What nvcc makes of the kernels, as PTX, which sim/ptx.cpp runs: kernels_ptx, without the two files of attention,
# which take longest to compile. `make check-full` has them too (tools/ptx.sh).
if(NOT FLETCH_SANITIZE)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/ptx)
  file(MAKE_DIRECTORY ${folder})
  set(flags ${FL_CUDA_NVCC_FLAGS})
  list(REMOVE_ITEM flags -lineinfo)
  set(quick "")
  set(slow "")
  foreach(source IN LISTS kernels)
    cmake_path(GET source STEM name)
    set(ptx ${folder}/${name}.ptx)
    add_custom_command(OUTPUT ${ptx}
      COMMAND ${FLETCH_NVCC} ${flags} -ptx -arch=compute_90a -MD -MT ${ptx} -MF ${ptx}.d -o ${ptx} ${source}
      DEPENDS ${source} DEPFILE ${ptx}.d COMMENT "nvcc ${name} to PTX" VERBATIM)
    if(name MATCHES attention)
      list(APPEND slow ${ptx})
    else()
      list(APPEND quick ${ptx})
    endif()
  endforeach()
  add_custom_target(fl_ptx_quick DEPENDS ${quick})
  add_custom_target(fl_ptx DEPENDS ${quick} ${slow})
  fl_host_kernels(fl_cuda_ptx ${sim}/ptx.cpp)
  target_compile_definitions(fl_cuda_ptx PRIVATE SIM_PTX_FOLDER="${folder}")
  fl_kernels_test(fl-cuda-ptx fl_cuda_ptx)
  set_target_properties(fl-cuda-ptx PROPERTIES EXCLUDE_FROM_ALL $<BOOL:${FLETCH_MINIMAL}>)
  add_dependencies(fl-cuda-ptx fl_ptx_quick)
  set(words embed pool residual_norm bias_act int8 rotate)
  add_test(NAME kernels_ptx COMMAND fl-cuda-ptx test --brief ${words})
  # Warps take turns, so that what a missing barrier lets through comes out wrong.
  add_test(NAME kernels_ptx_in_turns COMMAND fl-cuda-ptx test --brief ${words})
  set_property(TEST kernels_ptx_in_turns PROPERTY ENVIRONMENT SIM_ORDER=7)
  set_tests_properties(kernels_ptx kernels_ptx_in_turns PROPERTIES LABELS unit TIMEOUT ${FL_HANGS} COST 10)
endif()

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
