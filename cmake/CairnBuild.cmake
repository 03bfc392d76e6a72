# Compiler settings and the few functions that every CMakeLists.txt here uses.

set(CAIRN_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize=")
option(CAIRN_FUZZ "Build the fuzz targets against libFuzzer (Clang)" OFF)
option(CAIRN_WERROR "Treat warnings as errors" ON)

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")

add_compile_definitions(_GNU_SOURCE)
# Boards and gateway must agree to the bit, so no compiler may contract a*b+c on its own.
# A table may leave its last fields zero.
add_compile_options(-Wall -Wextra -Wconversion -Wshadow -Wno-missing-field-initializers
                    -ffp-contract=off -fno-strict-aliasing)
if(CAIRN_WERROR)
    add_compile_options(-Werror)
endif()
if(CAIRN_SANITIZE)
    add_compile_options(-fsanitize=${CAIRN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${CAIRN_SANITIZE})
    find_program(CAIRN_LLD ld.lld)
    if(CAIRN_LLD AND CMAKE_C_COMPILER_ID STREQUAL Clang) # half the time for hundreds of programs
        add_link_options(-fuse-ld=lld)
    endif()
else()
    # tests/hardening looks for the traces of these options in programs and objects. The set-up's build.sh has the same.
    string(APPEND CMAKE_C_FLAGS " -fPIE") # before the -fPIC of a shared module, which counts
    string(APPEND CMAKE_EXE_LINKER_FLAGS " -pie")
    add_compile_options(-fstack-protector-strong -fstack-clash-protection)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
        add_compile_options(-mbranch-protection=standard)
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        add_compile_options(-fcf-protection=full)
    endif()
    add_compile_options("$<$<CONFIG:Release>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>") # a compiler may set another
    add_link_options(LINKER:-z,relro,-z,now LINKER:-z,noexecstack LINKER:--gc-sections)
    add_compile_options(-ffunction-sections -fdata-sections)
endif()
if(CAIRN_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# cairn_library(NAME SOURCES... [LIBS ...]): a static library whose includes start at the root.
function(cairn_library name)
    cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
    add_library(${name} STATIC ${arg_UNPARSED_ARGUMENTS})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${arg_LIBS})
endfunction()

# cairn_test(NAME SOURCES... [LABELS ...]): a cmocka program that may include any layer.
function(cairn_test name)
    cmake_parse_arguments(arg "" "TIMEOUT" "LABELS" ${ARGN})
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 180) # for what hangs, on a machine with other work
    endif()
    if(CMAKE_CROSSCOMPILING OR CAIRN_SANITIZE STREQUAL thread) # an emulator runs it, or each access is looked at
        math(EXPR arg_TIMEOUT "6 * ${arg_TIMEOUT}")
    endif()
    add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
    target_link_libraries(${name} PRIVATE cairn_all ${CMOCKA_LIBRARIES} m)
    target_include_directories(${name} SYSTEM PRIVATE ${CMOCKA_INCLUDE_DIR})
    target_compile_definitions(${name} PRIVATE CAIRN_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# cairn_left_out(NAME LABEL REASON): in place of a test that this machine cannot build or run. It counts as skipped,
# so that ctest and the end of check list it with its reason.
function(cairn_left_out name label reason)
    add_test(NAME ${name} COMMAND sh -c "echo \"$1\"; exit 77" sh ${reason})
    set_tests_properties(${name} PROPERTIES LABELS ${label} SKIP_RETURN_CODE 77)
endfunction()

# cairn_program(NAME SOURCES... [LIBS ...]): one of the programs, in bin/ of the build and of an install.
function(cairn_program name)
    cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
    add_executable(${name} ${arg_UNPARSED_ARGUMENTS} $<TARGET_OBJECTS:cairn_build_version>)
    target_link_libraries(${name} PRIVATE ${arg_LIBS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
    install(TARGETS ${name} COMPONENT ${name})
endfunction()
