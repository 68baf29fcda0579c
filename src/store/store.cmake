# SPDX-License-Identifier: Apache-2.0
# The store's sources. They are linked with the server's, which is above them, as one.
set(FL_STORE_SOURCES store.c sqlite_rows.c store_move.c word_index.c word_query.c vectors.c dot.c filter.c)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND FL_STORE_SOURCES dot_avx2.c)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/dot_avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2")
endif()
list(TRANSFORM FL_STORE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
