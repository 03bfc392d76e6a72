# shellcheck shell=sh disable=SC2154
# build.sh - how each library is built from its archive into the new prefix.
#
# All are static, with sections of their own so that the linker drops what a program does not use. The
# caller sets cc, ar, toolchain ("" or cmake's option) for the machine that the libraries are for, work and
# prefix, and then calls choose_flags.

# As cmake/CairnBuild.cmake has them for Cairn itself.
choose_flags()
{
    cflags='-O2 -ffunction-sections -fdata-sections -fPIE -fstack-protector-strong -fstack-clash-protection'
    cflags="$cflags -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3"
    # The same bytes in every folder: __FILE__ starts at the library.
    cflags="$cflags -ffile-prefix-map=$work=. -ffile-prefix-map=$prefix=."
    case $($cc -dumpmachine) in
    aarch64*) cflags="$cflags -mbranch-protection=standard" ;;
    x86_64*) cflags="$cflags -fcf-protection=full" ;;
    esac
}

# Security fixes for libcoap, from Debian's patches to the version before.
libcoap_fixes='CVE-2025-34468 CVE-2025-59391 CVE-2026-29013'

# unpack NAME: into $work/NAME, without the archive's top directory.
unpack()
{
    mkdir -p "$work/$1" && tar -xf "$(archive_of "$1")" -C "$work/$1" --strip-components 1
}

# apply_patch FOLDER FILE: a patch that a newer version already contains is passed over.
apply_patch()
{
    if patch -d "$1" -p1 -N -f -s --dry-run <"$2"; then
        echo "apply ${2##*/}"
        patch -d "$1" -p1 -N -f --no-backup-if-mismatch <"$2"
    elif patch -d "$1" -p1 -R -f -s --dry-run <"$2"; then
        echo "${2##*/} is already in"
    else
        echo "${2##*/} does not apply to $1"
        return 1
    fi
}

run_cmake()
{
    name=$1
    shift
    # shellcheck disable=SC2086 # empty or one option
    cmake -S "$work/$name" -B "$work/$name-build" -G Ninja -DCMAKE_BUILD_TYPE=Release $toolchain \
        -DCMAKE_C_FLAGS="$cflags" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_FIND_ROOT_PATH="$prefix" -DCMAKE_INSTALL_PREFIX="$prefix" \
        -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF "$@" &&
        cmake --build "$work/$name-build" --target install
}

# apply_own NAME: the patches kept here, each with its reason at the top.
apply_own()
{
    for patch in "$here/patches/$1"/*.patch; do
        apply_patch "$work/$1" "$patch" || return 1
    done
}

# Our configuration is part of the installed header: nothing can be compiled against another one.
build_mbedtls()
{
    unpack mbedtls && apply_own mbedtls &&
        cp "$here/cairn_mbedtls_config.h" "$work/mbedtls/include/" &&
        echo '#include "cairn_mbedtls_config.h"' >>"$work/mbedtls/include/mbedtls/mbedtls_config.h" &&
        run_cmake mbedtls -DENABLE_TESTING=OFF -DENABLE_PROGRAMS=OFF -DGEN_FILES=OFF \
            -DMBEDTLS_FATAL_WARNINGS=OFF -DUSE_SHARED_MBEDTLS_LIBRARY=OFF -DUSE_STATIC_MBEDTLS_LIBRARY=ON &&
        cp "$here/cairn_mbedtls_config.h" "$prefix/include/"
}

# A message over TCP has at most 16 KiB, not 8 MiB: whoever has a key could make the other end set so much aside.
build_libcoap()
{
    unpack libcoap && unpack libcoap-fixes || return 1
    for fix in $libcoap_fixes; do
        apply_patch "$work/libcoap" "$work/libcoap-fixes/patches/$fix.patch" || return 1
    done
    apply_own libcoap || return 1
    run_cmake libcoap -DENABLE_DTLS=ON -DDTLS_BACKEND=mbedtls -DENABLE_TCP=ON -DENABLE_WS=OFF \
        -DENABLE_OSCORE=OFF -DENABLE_Q_BLOCK=OFF -DENABLE_ASYNC=ON -DENABLE_THREAD_SAFE=ON \
        -DENABLE_AF_UNIX=OFF -DWITH_EPOLL=ON -DENABLE_DOCS=OFF -DENABLE_EXAMPLES=OFF -DENABLE_TESTS=OFF \
        -DCMAKE_C_FLAGS="$cflags -DCOAP_DEFAULT_MAX_PDU_RX_SIZE=16384UL"
}

# compile NAME FILE...: the sources given into one archive.
compile()
{
    name=$1
    shift
    mkdir -p "$work/$name-build"
    for file; do
        # shellcheck disable=SC2086 # a list of words
        $cc $cflags -c "$file" -o "$work/$name-build/$(basename "$file" .c).o" || return 1
    done
    $ar rcs "$prefix/lib/lib$name.a" "$work/$name-build"/*.o
}

build_tinycbor()
{
    unpack tinycbor || return 1
    src=$work/tinycbor/src
    compile tinycbor "$src/cborencoder.c" "$src/cborencoder_close_container_checked.c" \
        "$src/cborparser.c" "$src/cborerrorstrings.c" "$src/cborvalidation.c" &&
        mkdir -p "$prefix/include/tinycbor" &&
        cp "$src"/cbor*.h "$src/tinycbor-version.h" "$prefix/include/tinycbor/"
}

build_cjson()
{
    unpack cjson && compile cjson "$work/cjson/cJSON.c" &&
        mkdir -p "$prefix/include/cjson" && cp "$work/cjson/cJSON.h" "$prefix/include/cjson/"
}

# Without HTTPS, which would bring GnuTLS, and without all that reads a body, a cookie or a password. No
# messages: its own answers to malformed requests have no body. Without threads 1.0.10 lacks a function.
# The compiler is named after --host so that configure knows a cross build.
build_libmicrohttpd()
{
    unpack libmicrohttpd &&
        (
            cd "$work/libmicrohttpd" &&
                ./configure --host="$($cc -dumpmachine)" --prefix="$prefix" CC="$cc" AR="$ar" CFLAGS="$cflags" \
                    --disable-shared --enable-static --disable-dependency-tracking --with-threads=posix \
                    --enable-epoll=yes --enable-poll=no --enable-https=no --disable-postprocessor --disable-bauth \
                    --disable-dauth --disable-httpupgrade --disable-cookie --disable-messages --disable-sendfile \
                    --disable-curl --disable-doc --disable-examples --disable-tools &&
                make -C src/microhttpd install-libLTLIBRARIES && make -C src/include install
        ) && rm -f "$prefix/lib/libmicrohttpd.la"
}
