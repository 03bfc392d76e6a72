# Third-party libraries, all linked statically. CAIRN_DEPS holds those that the set-up builds from
# source (mbedTLS, libcoap, tinycbor, cJSON, libmicrohttpd); the others come from the distribution.

set(CAIRN_DEPS ${CMAKE_SOURCE_DIR}/build/deps/prefix CACHE PATH "Where the set-up installed the libraries")
if(NOT EXISTS ${CAIRN_DEPS}/lib/libcoap-3.a OR NOT EXISTS ${CAIRN_DEPS}/lib/libmicrohttpd.a)
    message(FATAL_ERROR "Libraries are missing in ${CAIRN_DEPS}. Run ./check or ./demo once: both set them up. "
                        "For another processor: cmake/setup/setup --for boards.")
endif()

# What mbedTLS was configured with is in its installed headers: cmake/setup/cairn_mbedtls_config.h.
find_package(Threads REQUIRED)

function(cairn_import name archive)
    cmake_parse_arguments(arg "" "" "INCLUDE;LIBS" ${ARGN})
    add_library(${name} STATIC IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${archive})
    target_include_directories(${name} SYSTEM INTERFACE ${arg_INCLUDE})
    target_link_libraries(${name} INTERFACE ${arg_LIBS})
endfunction()

cairn_import(deps::everest ${CAIRN_DEPS}/lib/libeverest.a)
cairn_import(deps::p256m ${CAIRN_DEPS}/lib/libp256m.a)
cairn_import(deps::mbedcrypto ${CAIRN_DEPS}/lib/libmbedcrypto.a INCLUDE ${CAIRN_DEPS}/include
             LIBS deps::everest deps::p256m Threads::Threads)
cairn_import(deps::mbedx509 ${CAIRN_DEPS}/lib/libmbedx509.a LIBS deps::mbedcrypto)
cairn_import(deps::mbedtls ${CAIRN_DEPS}/lib/libmbedtls.a LIBS deps::mbedx509)
cairn_import(deps::coap ${CAIRN_DEPS}/lib/libcoap-3.a INCLUDE ${CAIRN_DEPS}/include
             LIBS deps::mbedtls Threads::Threads)
cairn_import(deps::tinycbor ${CAIRN_DEPS}/lib/libtinycbor.a INCLUDE ${CAIRN_DEPS}/include)
cairn_import(deps::cjson ${CAIRN_DEPS}/lib/libcjson.a INCLUDE ${CAIRN_DEPS}/include LIBS m)
cairn_import(deps::microhttpd ${CAIRN_DEPS}/lib/libmicrohttpd.a INCLUDE ${CAIRN_DEPS}/include)

# Takes OpenBLAS from Debian's libopenblas-pthread-dev: several threads must not call the build without threads.
option(CAIRN_OPENBLAS "Take the CPU port's products of matrices from the distribution's OpenBLAS" OFF)
if(CAIRN_OPENBLAS)
    find_library(openblas_archive libopenblas.a PATH_SUFFIXES openblas-pthread REQUIRED)
    find_path(openblas_include cblas.h PATH_SUFFIXES openblas-pthread REQUIRED)
    cairn_import(deps::openblas ${openblas_archive} INCLUDE ${openblas_include} LIBS Threads::Threads m)
endif()

find_library(yaml_archive libyaml.a REQUIRED)
find_library(sqlite_archive libsqlite3.a REQUIRED)
find_library(zlib_archive libz.a REQUIRED)
find_path(yaml_include yaml.h REQUIRED)
find_path(sqlite_include sqlite3.h REQUIRED)
find_path(zlib_include zlib.h REQUIRED)
cairn_import(deps::yaml ${yaml_archive} INCLUDE ${yaml_include})
cairn_import(deps::sqlite ${sqlite_archive} INCLUDE ${sqlite_include} LIBS Threads::Threads m ${CMAKE_DL_LIBS})
cairn_import(deps::zlib ${zlib_archive} INCLUDE ${zlib_include})
