# find_package(retrial): the targets retrial::retrial (shared) and retrial::static.
get_filename_component(retrial_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET retrial::retrial)
  add_library(retrial::retrial SHARED IMPORTED)
  set_target_properties(retrial::retrial PROPERTIES
    IMPORTED_LOCATION "${retrial_prefix}/lib/libretrial.so.0"
    IMPORTED_SONAME "libretrial.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${retrial_prefix}/include")
  add_library(retrial::static STATIC IMPORTED)
  set_target_properties(retrial::static PROPERTIES
    IMPORTED_LOCATION "${retrial_prefix}/lib/libretrial.a"
    INTERFACE_INCLUDE_DIRECTORIES "${retrial_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
unset(retrial_prefix)
