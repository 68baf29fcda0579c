# SPDX-License-Identifier: Apache-2.0
# The store's sources. They are linked with the server's, which is above them, as one.
set(FL_STORE_VECTORS vectors.c dot.c coarse.c)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND FL_STORE_VECTORS dot_avx2.c coarse_avx2.c coarse_avx512.c)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/dot_avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/coarse_avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2;-mpopcnt")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/coarse_avx512.c PROPERTIES
    COMPILE_OPTIONS "-mavx512bw;-mavx512vl;-mavx512vpopcntdq;-mpopcnt")
endif()
list(TRANSFORM FL_STORE_VECTORS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
set(FL_STORE_SOURCES store.c sqlite_rows.c store_move.c word_index.c word_query.c filter.c)
list(TRANSFORM FL_STORE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(APPEND FL_STORE_SOURCES ${FL_STORE_VECTORS})
