# libperfpass_core, static and shared, as other projects find it: find_package(perfpass_core), or pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Whoever links it sees the headers' names; the Python module, which links the same code, shows none.
target_compile_definitions(perfpass_core PRIVATE PERFPASS_LIBRARY)
set(PERFPASS_TARGETS perfpass_core)
set_target_properties(perfpass_core PROPERTIES EXPORT_NAME core_static)

if(NOT WIN32) # where names are shown by declarations of another kind, the static library alone is built
  add_library(perfpass_shared SHARED $<TARGET_OBJECTS:perfpass_core>)
  list(APPEND PERFPASS_TARGETS perfpass_shared)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" PERFPASS_SOVERSION "${PERFPASS_VERSION}") # C++ names last as long as a minor version
  string(REGEX MATCH "^[0-9]+\\.[0-9]+\\.[0-9]+" PERFPASS_FULL_VERSION "${PERFPASS_VERSION}")
  set_target_properties(perfpass_shared PROPERTIES
    OUTPUT_NAME perfpass_core EXPORT_NAME core LINKER_LANGUAGE CXX
    VERSION ${PERFPASS_FULL_VERSION} SOVERSION ${PERFPASS_SOVERSION})
  target_link_libraries(perfpass_shared PRIVATE Threads::Threads)
  target_include_directories(perfpass_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endif()

foreach(target IN LISTS PERFPASS_TARGETS)
  target_compile_features(${target} INTERFACE cxx_std_20) # of the C++ headers; perfpass_core.h asks for C99
endforeach()

install(TARGETS ${PERFPASS_TARGETS} EXPORT perfpass_core COMPONENT library)
install(DIRECTORY cpp_kernels/include/perfpass DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)

set(PERFPASS_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/perfpass_core)
install(EXPORT perfpass_core NAMESPACE perfpass:: DESTINATION ${PERFPASS_PACKAGE}
  FILE perfpass_core-targets.cmake COMPONENT library)
configure_package_config_file(cpp_kernels/cmake/perfpass_core-config.cmake.in perfpass_core-config.cmake
  INSTALL_DESTINATION ${PERFPASS_PACKAGE})
write_basic_package_version_file(perfpass_core-config-version.cmake
  VERSION ${PERFPASS_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/perfpass_core-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/perfpass_core-config-version.cmake
  DESTINATION ${PERFPASS_PACKAGE} COMPONENT library)

configure_file(cpp_kernels/cmake/perfpass_core.pc.in perfpass_core.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/perfpass_core.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
