# SPDX-License-Identifier: Apache-2.0
# The simulated libcuda.so.1, libcublasLt.so.13 and libnvidia-ml.so.1 (tests/cuda/sim of the build folder:
# put it into LD_LIBRARY_PATH and `fletch embed --provider cuda` runs on them), and the engine's tests.
if(NOT TARGET fletch_cuda OR NOT TARGET fl_cuda_sim)
  return() # kernels or module are not there yet
endif()

# fl_simulated(name file sources…): the shared library FILE, by its product's name.
function(fl_simulated name file)
  add_library(${name} SHARED ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX "" C_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/cuda/sim)
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

foreach(subject engine memory faults)
  set(name test_cuda_${subject})
  fl_test(${name} THREADS ROOMS base config tokenizer model engines SOURCES ${name}.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(${name} SYSTEM PRIVATE ${FL_CUDA_INCLUDE})
  # Linked even where no symbol is used, so that the module's dlopen finds these and no others.
  target_link_options(${name} PRIVATE LINKER:--no-as-needed)
  target_link_libraries(${name} PRIVATE fl_sim_cuda fl_sim_cublaslt fl_sim_nvml)
  add_dependencies(${name} fletch_cuda)
  set_property(TEST ${name} PROPERTY ENVIRONMENT FLETCH_CUDA_MODULE=$<TARGET_FILE:fletch_cuda>)
endforeach()

# The real library, which needs no device for the most of what the engine asks of it.
if(FLETCH_SANITIZE)
  return() # it was not built for one
endif()
set(host ${PROJECT_SOURCE_DIR}/src/engines/cuda)
file(GLOB libraries ${FL_CUDA_INCLUDE}/../lib64/libcublasLt.so.1[23] ${FL_CUDA_INCLUDE}/../lib/libcublasLt.so.1[23])
list(POP_FRONT libraries library)
fl_test(test_cublaslt ROOMS base config tokenizer model engines SOURCES test_cublaslt.c)
target_sources(test_cublaslt PRIVATE ${host}/convert.c ${host}/cublaslt.c ${host}/driver.c ${host}/nvml.c
               ${host}/cuda_profile.c ${host}/product.c ${host}/cuda_weights.c)
target_include_directories(test_cublaslt SYSTEM PRIVATE ${FL_CUDA_INCLUDE})
set_property(TEST test_cublaslt PROPERTY ENVIRONMENT FLETCH_TEST_CUBLASLT=${library})
