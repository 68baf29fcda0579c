# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` (make install) lays down: program, shared and static library, header, pkg-config
# file, CMake package, man pages, shell completions and systemd units; the CUDA module where `make cuda` made one. pkg-config
# file and CMake package find the prefix from where they lie, so DESTDIR, --prefix and a moved tree all work.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(${CMAKE_CURRENT_LIST_DIR}/man.cmake OPTIONAL)

if(TARGET fletch)
  install(TARGETS fletch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(RELATIVE_PATH to_lib "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(fletch PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
endif()
install(TARGETS fletch_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS fletch_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/libfletch_cuda.so DESTINATION ${CMAKE_INSTALL_LIBDIR}/fletch OPTIONAL
        PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
install(FILES ${PROJECT_SOURCE_DIR}/include/fletch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fletch)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH FLETCH_PREFIX_FROM_PC "/${pkgconfig_dir}" "/")
file(RELATIVE_PATH FLETCH_PREFIX_FROM_CMAKE "/${package_dir}" "/")
configure_file(${CMAKE_CURRENT_LIST_DIR}/fletch.pc.in ${CMAKE_BINARY_DIR}/fletch.pc @ONLY)
# Not at the top of the build tree: find_package looks there when PATH names it, and would find a package
# whose files lie elsewhere.
set(package ${CMAKE_BINARY_DIR}/to-install)
file(REMOVE ${CMAKE_BINARY_DIR}/fletchConfig.cmake ${CMAKE_BINARY_DIR}/fletchConfigVersion.cmake)
configure_file(${CMAKE_CURRENT_LIST_DIR}/fletchConfig.cmake.in ${package}/fletchConfig.cmake @ONLY)
write_basic_package_version_file(${package}/fletchConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/fletch.pc DESTINATION ${pkgconfig_dir})
install(FILES ${package}/fletchConfig.cmake ${package}/fletchConfigVersion.cmake
        DESTINATION ${package_dir})

# The systemd units name the program where it is installed.
if(TARGET fletch)
  install(CODE "
    foreach(unit fletch.service fletch.socket)
      file(READ \"${PROJECT_SOURCE_DIR}/deploy/systemd/\${unit}\" text)
      string(REPLACE /usr/bin/fletch \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/fletch\" text \"\${text}\")
      file(WRITE \"${CMAKE_BINARY_DIR}/systemd/\${unit}\" \"\${text}\")
      file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\"
           TYPE FILE FILES \"${CMAKE_BINARY_DIR}/systemd/\${unit}\")
    endforeach()")
endif()

# Shell completions as the sources have them: a program for another processor cannot be asked.
if(TARGET fletch)
  install(FILES completions/fletch.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME fletch)
  install(FILES completions/_fletch DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES completions/fletch.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
