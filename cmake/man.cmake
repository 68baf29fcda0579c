# SPDX-License-Identifier: Apache-2.0
# Documentation made from the option and command tables by tools/make_docs.c.
#   man   (part of building the program) fletch.1 and fletch.toml.5 in the build folder, installed
#   docs  docs/options.md in the source tree, which is committed; the test docs_options says when it
#         is stale
include(GNUInstallDirs)

add_executable(make_docs EXCLUDE_FROM_ALL tools/make_docs.c src/cli/flags.c)
target_link_libraries(make_docs PRIVATE fl_flags fl_base fl_config)
target_compile_options(make_docs PRIVATE -Wno-overlength-strings)
set_target_properties(make_docs PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tools)

set(man_folder ${CMAKE_BINARY_DIR}/man)
file(MAKE_DIRECTORY ${man_folder})
foreach(page options fletch.1 fletch.toml.5)
  add_custom_command(OUTPUT ${man_folder}/${page} COMMAND make_docs ${page} > ${man_folder}/${page}
                     DEPENDS make_docs VERBATIM)
endforeach()
add_custom_target(man DEPENDS ${man_folder}/options ${man_folder}/fletch.1 ${man_folder}/fletch.toml.5)
if(TARGET fletch)
  add_dependencies(fletch man) # so that `make install` has them
else()
  add_dependencies(fletch_shared man)
endif()

add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E copy ${man_folder}/options
                               ${PROJECT_SOURCE_DIR}/docs/options.md DEPENDS man)

install(FILES ${man_folder}/fletch.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${man_folder}/fletch.toml.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)

if(FLETCH_TESTS)
  add_test(NAME docs_options
           COMMAND sh -c "cmp \"$1\" \"$2\" || { echo 'docs/options.md is stale: cmake --build build --target docs'; exit 1; }"
                   sh ${man_folder}/options ${PROJECT_SOURCE_DIR}/docs/options.md)
  find_program(GROFF groff)
  if(GROFF)
    add_test(NAME man_pages
             COMMAND sh -c "test -z \"$(\"$@\" 2>&1)\" || { \"$@\"; exit 1; }"
                     sh ${GROFF} -ww -z -man -Tutf8 ${man_folder}/fletch.1 ${man_folder}/fletch.toml.5)
  endif()
endif()
