# shellcheck shell=sh disable=SC2154,SC2034
# cross.sh - what the preset arm64 needs: a sysroot, the libraries built for it, and a kernel for guests.
#
# The compiler and libc are the distribution's cross packages. The other arm64 packages are fetched by
# apt with lists of its own (the system gets no foreign architecture), unpacked and never installed:
#   build/deps/sysroot-arm64   libyaml, SQLite, zlib, cmocka: headers and libraries
#   build/deps/guest-arm64     kernel, its modules, busybox: what a small image boots with
#   build/deps/prefix-arm64    the libraries of build.sh
#   build/deps/ssh             an ssh server for this machine, not installed: tests put it into a root of theirs

cross_sysroot=$deps/sysroot-arm64
cross_guest=$deps/guest-arm64
cross_prefix=$deps/prefix-arm64

cross_key()
{
    {
        echo "$key"
        cat "$here/cross.sh" "$root/cmake/arm64.cmake"
    } | sha256sum | cut -d ' ' -f 1
}

# True when the cross build is up to date, or not asked for.
cross_is_current()
{
    case $kinds in *boards*) ;; *) return 0 ;; esac
    [ "$(cat "$cross_prefix/stamp" 2>/dev/null)" = "$(cross_key)" ]
}

# apt for arm64: the machine's own sources, other lists and another status file.
start_cross_apt()
{
    mkdir -p "$deps/apt-arm64/lists/partial" "$deps/apt-arm64/cache/archives/partial"
    : >"$deps/apt-arm64/status"
    cat >"$deps/apt-arm64/apt.conf" <<-END
	APT::Architecture "arm64";
	APT::Architectures { "arm64"; };
	Dir::State::lists "$deps/apt-arm64/lists";
	Dir::State::status "$deps/apt-arm64/status";
	Dir::Cache "$deps/apt-arm64/cache";
	Acquire::Retries "3";
	Acquire::Languages "none";
	APT::Sandbox::User "$(id -un)";
	END
    APT_CONFIG=$deps/apt-arm64/apt.conf apt-get -q update
}

cross_apt()
{
    APT_CONFIG=$deps/apt-arm64/apt.conf "$@"
}

# unpack_packages FOLDER PACKAGE...: fetched, checked by apt against the signed index, unpacked.
unpack_packages()
{
    folder=$1
    shift
    rm -rf "$folder.new" "$deps/fetch"
    mkdir -p "$folder.new" "$deps/fetch" &&
        (cd "$deps/fetch" && cross_apt apt-get -q download "$@") || return 1
    for package in "$deps/fetch"/*.deb; do
        # shellcheck disable=SC2016 # dpkg's own words
        dpkg -x "$package" "$folder.new" &&
            dpkg-deb --show --showformat '${Package} ${Version}\n' "$package" >>"$folder.new/packages" || return 1
    done
    rm -rf "$folder" "$deps/fetch" && mv "$folder.new" "$folder"
}

fetch_cross()
{
    start_cross_apt || return 1
    # The package without a version depends on the newest kernel.
    kernel=$(cross_apt apt-cache show --no-all-versions linux-image-cloud-arm64 |
        sed -n 's/^Depends: \([^ ]*\).*/\1/p')
    unpack_packages "$cross_sysroot" libyaml-dev libsqlite3-dev zlib1g-dev libcmocka-dev libcmocka0 &&
        unpack_packages "$cross_guest" "$kernel" busybox-static &&
        mkdir -p "$deps/ssh" && (cd "$deps/ssh" && apt-get -q download openssh-server libwrap0)
}

build_cross()
{
    echo "Setting up the cross build for arm64 (once; about a minute)"
    step "fetch arm64 packages" setup-fetch-arm64 fetch_cross ||
        die "the arm64 packages did not come from this machine's Debian mirror" "Is the network up?"
    cc=aarch64-linux-gnu-gcc
    ar=aarch64-linux-gnu-ar
    toolchain=-DCMAKE_TOOLCHAIN_FILE=$root/cmake/arm64.cmake
    rm -rf "$work" "$prefix"
    mkdir -p "$work" "$prefix/lib" "$prefix/include"
    build_libraries "$cross_prefix" "$(cross_key)"
}
