# SPDX-License-Identifier: Apache-2.0
# Helpers for the rooms: fl_room (a folder of src/ as an object library), fl_test (a Criterion program),
# fl_fuzz (a libFuzzer program).

add_library(fl_flags INTERFACE)
target_include_directories(fl_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(fl_flags INTERFACE _GNU_SOURCE)
target_compile_options(fl_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -Wundef -Wformat=2 -Wno-unknown-warning-option -Wno-format-truncation -Wwrite-strings
  -Wpointer-arith -Wcast-qual
  # clang 17 and later: enumerators are this house's constants, and some strings have no end on purpose
  -Wno-enum-float-conversion -Wno-unterminated-string-initialization
  -fno-math-errno -ffp-contract=off -fno-strict-aliasing)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64") # as where the tests run
  target_compile_options(fl_flags INTERFACE -fsigned-char)
endif()
if(FLETCH_WERROR)
  target_compile_options(fl_flags INTERFACE -Werror)
endif()
foreach(sanitizer IN LISTS FLETCH_SANITIZE)
  target_compile_options(fl_flags INTERFACE -fsanitize=${sanitizer} -fno-omit-frame-pointer -g)
  target_link_options(fl_flags INTERFACE -fsanitize=${sanitizer})
  if(sanitizer STREQUAL "undefined")
    target_compile_options(fl_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endforeach()
if(FLETCH_FUZZ)
  target_compile_options(fl_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_libraries(fl_flags INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})
set(FL_WINDOWS ${PROJECT_SOURCE_DIR}/src/base/windows)
if(WIN32) # posix.h declares what is in these headers elsewhere; here they are there and empty
  set(absent dirent.h dlfcn.h fnmatch.h ftw.h glob.h sys/file.h sys/mman.h sys/statvfs.h sys/utsname.h)
  foreach(header IN LISTS absent)
    file(WRITE ${CMAKE_BINARY_DIR}/posix/${header} "")
  endforeach()
  foreach(header netdb.h netinet/in.h netinet/tcp.h poll.h sys/socket.h sys/uio.h sys/un.h)
    file(WRITE ${CMAKE_BINARY_DIR}/posix/${header} "#include \"base/windows/sockets.h\"\n")
  endforeach()
  target_include_directories(fl_flags BEFORE INTERFACE ${CMAKE_BINARY_DIR}/posix)
  target_compile_definitions(fl_flags INTERFACE _WIN32_WINNT=0x0A00 _FILE_OFFSET_BITS=64)
  # -Wno-format: printf is mingw-w64's own, which knows %zu; gcc checks against Microsoft's. -Wno-shadow: a local
  # named link is posix_link. -Wno-float-conversion: its isfinite. Unaligned moves: gcc keeps 32-byte vectors on a
  # stack that Windows aligns to 16 (gcc bug 54412).
  target_compile_options(fl_flags INTERFACE -include ${FL_WINDOWS}/posix.h -Wno-format -Wno-attributes
                         -Wno-shadow -Wno-float-conversion -Wa,-muse-unaligned-vector-move)
  target_link_libraries(fl_flags INTERFACE -static synchronization psapi ws2_32)
endif()

# fl_program(fletch main.c): what a program needs beside its main on this system.
function(fl_program target main)
  if(WIN32)
    target_sources(${target} PRIVATE ${FL_WINDOWS}/windows_program.c ${FL_WINDOWS}/windows_service.c)
    set_source_files_properties(${main} PROPERTIES COMPILE_DEFINITIONS main=posix_main)
    target_link_options(${target} PRIVATE -municode)
  endif()
endfunction()
set(FL_ALONE ${PROJECT_SOURCE_DIR}/bench/gpu/alone) # what stands in for libraries in a minimal build
if(NOT FLETCH_MINIMAL)
  target_include_directories(fl_flags INTERFACE ${CURL_INCLUDE_DIRS}) # the library is opened at run time
  target_link_libraries(fl_flags INTERFACE PkgConfig::PCRE2)
  if(FLETCH_STATIC_CURL)
    target_compile_definitions(fl_flags INTERFACE FLETCH_STATIC_CURL)
    target_link_libraries(fl_flags INTERFACE PkgConfig::CURL)
  endif()
endif()

# fl_room(base error.c log.c …): the object library fl_base.
function(fl_room name)
  if(FLETCH_MINIMAL)
    list(REMOVE_ITEM ARGN libcurl.c)
    list(TRANSFORM ARGN REPLACE "^(download|regex)[.]c$" "${FL_ALONE}/\\1.c")
  endif()
  add_library(fl_${name} OBJECT ${ARGN})
  target_link_libraries(fl_${name} PUBLIC fl_flags)
endfunction()

# Criterion where it can run; the stand-in says where not.
add_library(fl_criterion INTERFACE)
if("thread" IN_LIST FLETCH_SANITIZE OR CMAKE_CROSSCOMPILING)
  target_include_directories(fl_criterion BEFORE INTERFACE ${PROJECT_SOURCE_DIR}/tests/unit/without_criterion)
  target_compile_options(fl_criterion INTERFACE -Wno-clobbered -Wno-sign-compare -Wno-unused-parameter) # setjmp; no messages
else()
  target_link_libraries(fl_criterion INTERFACE criterion)
endif()

set(FL_HANGS 600) # seconds after which a test counts as one that hangs
if(FLETCH_SANITIZE OR CMAKE_CROSSCOMPILING) # where a minute's work takes many on a busy machine
  set(FL_HANGS 3600)
endif()

# ninja unit_tests, thread_tests, fuzzers: what the sanitizer and fuzz presets build, and no more.
add_custom_target(unit_tests)
add_custom_target(thread_tests)
add_custom_target(fuzzers)

# fl_test(test_json [THREADS] [BARE] [POSIX] ROOMS base SOURCES test_json.c): a Criterion program and a ctest of the
# same name, labelled unit. THREADS, or <pthread.h> in a source, labels it threads too: `make tsan` runs those.
# POSIX: it makes links, pipes with a name, other processes or a /proc of its own, so that Windows has none.
# BARE: it counts the memory of its process, so that no build for a sanitizer or an emulator has it.
function(fl_test name)
  cmake_parse_arguments(arg "THREADS;BARE;POSIX" "" "ROOMS;SOURCES" ${ARGN})
  if((arg_BARE AND (FLETCH_SANITIZE OR CMAKE_CROSSCOMPILING)) OR (arg_POSIX AND WIN32))
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  foreach(source IN LISTS arg_SOURCES)
    file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/${source} found REGEX "#include <pthread.h>")
    if(found)
      set(arg_THREADS TRUE)
    endif()
  endforeach()
  target_link_libraries(${name} PRIVATE fl_criterion)
  target_link_libraries(${name} PRIVATE fl_flags)
  foreach(room IN LISTS arg_ROOMS)
    target_link_libraries(${name} PRIVATE fl_${room})
  endforeach()
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes -Wno-conversion -Wno-pedantic)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set(labels unit)
  add_dependencies(unit_tests ${name})
  if(arg_THREADS)
    list(APPEND labels threads)
    add_dependencies(thread_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${FL_HANGS})
endfunction()

# fl_fuzz(fuzz_toml ROOMS base config SOURCES fuzz_toml.c): only with FLETCH_FUZZ and clang.
function(fl_fuzz name)
  if(NOT FLETCH_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "ROOMS;SOURCES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE fl_flags)
  foreach(room IN LISTS arg_ROOMS)
    target_link_libraries(${name} PRIVATE fl_${room})
  endforeach()
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  add_dependencies(fuzzers ${name})
endfunction()
