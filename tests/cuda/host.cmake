# SPDX-License-Identifier: Apache-2.0
# The engine's tests on the simulated device of simulated.cmake.
if(NOT TARGET fletch_cuda)
  return() # the module is not there yet
endif()

foreach(subject engine memory faults wait)
  set(name test_cuda_${subject})
  fl_test(${name} THREADS ROOMS base config tokenizer model engines SOURCES ${name}.c)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(${name} SYSTEM PRIVATE ${FL_CUDA_INCLUDE})
  # Linked even where no symbol is used, so that the module's dlopen finds these and no others.
  target_link_options(${name} PRIVATE LINKER:--no-as-needed)
  target_link_libraries(${name} PRIVATE fl_sim_cuda fl_sim_cublaslt fl_sim_nvml)
  add_dependencies(${name} fletch_cuda)
  set_tests_properties(${name} PROPERTIES COST 20 ENVIRONMENT FLETCH_CUDA_MODULE=$<TARGET_FILE:fletch_cuda>)
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
