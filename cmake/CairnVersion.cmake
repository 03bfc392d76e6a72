# The version of a build: that of VERSION, and with the project's whole history +git<commits>.<commit>, so that
# packages of later commits are newer to apt and every program names its commit. A tarball and a shallow
# clone have the version of VERSION alone. Changes that are not committed do not alter it.
#
# Sets CAIRN_BUILD_VERSION, and has the build configured again after each commit. Only the object library
# cairn_build_version depends on it (and the packages' documents): nothing else is compiled again.

function(cairn_git result)
    execute_process(COMMAND git -c safe.directory=* ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                    OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed)
        set(output "")
    endif()
    set(${result} "${output}" PARENT_SCOPE)
endfunction()

set(CAIRN_BUILD_VERSION ${PROJECT_VERSION})
cairn_git(cairn_top rev-parse --show-toplevel)
cairn_git(cairn_shallow rev-parse --is-shallow-repository)
file(REAL_PATH ${CMAKE_SOURCE_DIR} cairn_here)
if(cairn_top STREQUAL cairn_here AND cairn_shallow STREQUAL false) # not the repository around a tarball
    cairn_git(cairn_count rev-list --count HEAD)
    cairn_git(cairn_commit rev-parse HEAD)
    string(SUBSTRING "${cairn_commit}" 0 8 cairn_commit)
    if(cairn_count AND cairn_commit)
        string(APPEND CAIRN_BUILD_VERSION +git${cairn_count}.${cairn_commit})
    endif()
    cairn_git(cairn_log rev-parse --path-format=absolute --git-path logs/HEAD)
    if(EXISTS "${cairn_log}")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cairn_log})
    endif()
endif()
message(STATUS "Version ${CAIRN_BUILD_VERSION}")

# file(CONFIGURE) leaves a file alone that would not change.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/build_version.c @ONLY CONTENT
     "#include \"runtime/base/build_version.h\"\n\nconst char cn_build_version[] = \"@CAIRN_BUILD_VERSION@\";\n")
add_library(cairn_build_version OBJECT ${CMAKE_BINARY_DIR}/build_version.c)
target_include_directories(cairn_build_version PRIVATE ${CMAKE_SOURCE_DIR})
