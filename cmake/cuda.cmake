# SPDX-License-Identifier: Apache-2.0
# cuda.cmake - the kernels of the CUDA engine: from .cu files to one image inside the module.
#
# The project itself stays a C project: nvcc is called by custom commands, a file and an architecture at a
# time, so that Ninja runs them side by side and a change of one file compiles that file alone.
#   a.cu -> a.sm_90a.cubin --.
#   b.cu -> b.sm_90a.cubin --+-- nvlink -> sm_90a.cubin --.
#   all .cu in one unit  -> compute_100.ptx               --+-- fatbinary -> kernels.fatbin -> image.c
# FLETCH_CUDA        AUTO: built where nvcc is found, but not with a sanitizer (the simulated device of the
#                    tests switches stacks); ON: an error where nvcc is not found; OFF: not built.
# FLETCH_CUDA_ARCHS  as CMAKE_CUDA_ARCHITECTURES writes them: 90a machine code, 100-virtual PTX, which
#                    the driver compiles for every later device. A driver takes the nearest of them.
#                    The default is short, since every `make check` compiles it; `make cuda` takes all.
# Sets FL_CUDA (whether the module is built), FL_CUDA_WHY_NOT and FL_CUDA_INCLUDE (cuda.h and its like).
set(FLETCH_CUDA AUTO CACHE STRING "build the CUDA engine: AUTO, ON or OFF")
set_property(CACHE FLETCH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(FLETCH_CUDA_ARCHS "80;90a" CACHE STRING "devices to compile for: 90a machine code, 100-virtual PTX")
set(FLETCH_CUDA_FLAGS "" CACHE STRING "more flags for nvcc, as -Xptxas;-v")

set(FL_CUDA FALSE)
set(FL_CUDA_WHY_NOT "")
if(NOT FLETCH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FLETCH_CUDA is AUTO, ON or OFF, not \"${FLETCH_CUDA}\"")
elseif(FLETCH_CUDA STREQUAL "OFF")
  set(FL_CUDA_WHY_NOT "FLETCH_CUDA is OFF")
elseif(FLETCH_CUDA STREQUAL "AUTO" AND FLETCH_SANITIZE)
  set(FL_CUDA_WHY_NOT "a sanitizer's build has the CUDA engine only with FLETCH_CUDA=ON")
else()
  find_program(FLETCH_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
               PATHS /usr/local/cuda/bin /opt/cuda/bin)
  if(FLETCH_NVCC)
    file(REAL_PATH ${FLETCH_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH FL_CUDA_BIN)
    cmake_path(GET FL_CUDA_BIN PARENT_PATH toolkit)
    # A toolkit may have the compiler alone, and a Python the headers: its packages nvidia-cublas and
    # nvidia-cuda-runtime.
    find_program(python3 python3 NO_CACHE)
    cmake_path(GET python3 PARENT_PATH python)
    file(GLOB packages ${python}/../lib/python3*/*-packages/nvidia/cu13/include)
    find_path(FLETCH_CUDA_HEADERS NAMES cublasLt.h NO_DEFAULT_PATH
              PATHS ${toolkit}/include ${toolkit}/targets/x86_64-linux/include
                    ${toolkit}/targets/sbsa-linux/include ${packages} /usr/include)
    set(FL_CUDA_INCLUDE ${FLETCH_CUDA_HEADERS})
  endif()
  if(NOT FLETCH_NVCC)
    set(FL_CUDA_WHY_NOT "nvcc was not found (CUDA toolkit 12 or later; name it with FLETCH_NVCC)")
  elseif(NOT FLETCH_CUDA_HEADERS)
    set(FL_CUDA_WHY_NOT "${toolkit} has nvcc but not cublasLt.h (the toolkit's cuBLAS development part)")
  else()
    set(FL_CUDA TRUE)
  endif()
  if(FLETCH_CUDA STREQUAL "ON" AND NOT FL_CUDA)
    message(FATAL_ERROR "FLETCH_CUDA is ON, but ${FL_CUDA_WHY_NOT}")
  endif()
endif()
if(FL_CUDA)
  message(STATUS "CUDA engine: ${FLETCH_NVCC}, for ${FLETCH_CUDA_ARCHS}")
else()
  message(STATUS "CUDA engine: not built: ${FL_CUDA_WHY_NOT}")
endif()

set(FL_CUDA_NVCC_FLAGS -std=c++17 -O3 --extra-device-vectorization -lineinfo
    -Xcompiler=-Wall,-Wextra -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
    -I${PROJECT_SOURCE_DIR}/src/engines/cuda/kernels) # <lanes.cuh>: the simulated device has its own
if(FLETCH_WERROR)
  list(APPEND FL_CUDA_NVCC_FLAGS -Werror all-warnings)
endif()

# The machine code of all sources for one device: out receives "kind=elf,sm=90a,file=…".
function(fl_cuda_machine_code out arch folder)
  set(objects "")
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM name)
    set(object ${folder}/${name}.sm_${arch}.cubin)
    add_custom_command(OUTPUT ${object}
      COMMAND ${FLETCH_NVCC} ${FL_CUDA_NVCC_FLAGS} ${FLETCH_CUDA_FLAGS} -cubin -rdc=true -arch=sm_${arch}
              -MD -MT ${object} -MF ${object}.d -o ${object} ${source}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${name} for sm_${arch}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(linked ${folder}/sm_${arch}.cubin)
  add_custom_command(OUTPUT ${linked} COMMAND ${FL_CUDA_BIN}/nvlink -arch=sm_${arch} ${objects} -o ${linked}
                     DEPENDS ${objects} VERBATIM)
  set(${out} "kind=elf,sm=${arch},file=${linked}" PARENT_SCOPE)
endfunction()

# PTX cannot be linked, so that it is compiled from one unit that includes every source.
function(fl_cuda_ptx out arch folder)
  set(unit "")
  foreach(source IN LISTS ARGN)
    string(APPEND unit "#include \"${source}\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/all.cu CONTENT "${unit}" @ONLY)
  set(ptx ${folder}/compute_${arch}.ptx)
  add_custom_command(OUTPUT ${ptx}
    COMMAND ${FLETCH_NVCC} ${FL_CUDA_NVCC_FLAGS} ${FLETCH_CUDA_FLAGS} -ptx -arch=compute_${arch}
            -MD -MT ${ptx} -MF ${ptx}.d -o ${ptx} ${folder}/all.cu
    DEPENDS ${folder}/all.cu ${ARGN} DEPFILE ${ptx}.d COMMENT "nvcc to PTX for compute_${arch}" VERBATIM)
  set(${out} "kind=ptx,sm=${arch},file=${ptx}" PARENT_SCOPE)
endfunction()

# fl_cuda_image(kernels.fatbin a.cu b.cu …): rules that make the image for FLETCH_CUDA_ARCHS.
function(fl_cuda_image fatbin)
  cmake_path(GET fatbin PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  set(images "")
  set(files "")
  foreach(entry IN LISTS FLETCH_CUDA_ARCHS)
    if(entry MATCHES "^([0-9]+[af]?)-virtual$")
      fl_cuda_ptx(image ${CMAKE_MATCH_1} ${folder} ${ARGN})
    elseif(entry MATCHES "^([0-9]+[af]?)(-real)?$")
      fl_cuda_machine_code(image ${CMAKE_MATCH_1} ${folder} ${ARGN})
    else()
      message(FATAL_ERROR "FLETCH_CUDA_ARCHS: \"${entry}\" is neither 90a nor 90a-virtual")
    endif()
    string(REGEX REPLACE ".*,file=" "" file ${image})
    list(APPEND images --image3=${image})
    list(APPEND files ${file})
  endforeach()
  add_custom_command(OUTPUT ${fatbin}
    COMMAND ${FL_CUDA_BIN}/fatbinary --create=${fatbin} -64 --compress-all ${images}
    DEPENDS ${files} COMMENT "CUDA image for ${FLETCH_CUDA_ARCHS}" VERBATIM)
endfunction()
