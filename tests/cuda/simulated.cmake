# SPDX-License-Identifier: Apache-2.0
# The simulated libcuda.so.1, libcublasLt.so.13 and libnvidia-ml.so.1 (tests/cuda/sim of the build folder:
# put it into LD_LIBRARY_PATH and `fletch embed --provider cuda` runs on them). A minimal build has them when they are
# asked for: bench/gpu/run.sh on a machine without a GPU.

# fl_simulated(name file sources…): the shared library FILE, by its product's name.
function(fl_simulated name file)
  add_library(${name} SHARED ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX "" C_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda/sim
                        EXCLUDE_FROM_ALL $<BOOL:${FLETCH_MINIMAL}>)
  target_include_directories(${name} SYSTEM PRIVATE ${FL_CUDA_INCLUDE})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  # Optimised in any build: a simulated device is slow enough.
  target_compile_options(${name} PRIVATE -O3 -Wall -Wextra -Wshadow)
  target_link_libraries(${name} PRIVATE Threads::Threads m)
  foreach(sanitizer IN LISTS FLETCH_SANITIZE)
    target_compile_options(${name} PRIVATE -fsanitize=${sanitizer} -fno-omit-frame-pointer -g)
    target_link_options(${name} PRIVATE -fsanitize=${sanitizer})
  endforeach()
endfunction()

fl_simulated(fl_sim_cuda libcuda.so.1 sim/driver.c sim/memory.c $<TARGET_OBJECTS:fl_cuda_sim>)
set_target_properties(fl_sim_cuda PROPERTIES LINKER_LANGUAGE CXX)
fl_simulated(fl_sim_cublaslt libcublasLt.so.13 sim/cublaslt.c)
target_link_libraries(fl_sim_cublaslt PRIVATE fl_sim_cuda)
fl_simulated(fl_sim_nvml libnvidia-ml.so.1 sim/nvml.c)

# The same driver with the kernels as nvcc's PTX (sim/ptx.cpp), in tests/cuda/ptx with links to the other two.
if(TARGET fl_cuda_ptx)
  fl_simulated(fl_ptx_cuda libcuda.so.1 sim/driver.c sim/memory.c $<TARGET_OBJECTS:fl_cuda_ptx>)
  set(folder ${CMAKE_BINARY_DIR}/tests/cuda/ptx)
  set_target_properties(fl_ptx_cuda PROPERTIES LINKER_LANGUAGE CXX EXCLUDE_FROM_ALL ON LIBRARY_OUTPUT_DIRECTORY ${folder})
  add_dependencies(fl_ptx_cuda fl_ptx fl_sim_cublaslt fl_sim_nvml)
  foreach(library libcublasLt.so.13 libnvidia-ml.so.1)
    add_custom_command(TARGET fl_ptx_cuda POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink ../sim/${library} ${folder}/${library})
  endforeach()
endif()
