# shellcheck shell=sh disable=SC2154
# cuda.sh - what the CUDA port needs in the arm64 build, in build/deps/cuda-arm64: nvcc and an older NVRTC for this
# machine, NVIDIA's headers for aarch64, and in "exports" the names that their aarch64 libraries export.
#
# pip fetches the packages of cuda.lock (680 MB, nearly all of it cuBLAS) and checks their digests. The
# libraries are not kept: a board opens its own while the program runs.

cuda_folder=$deps/cuda-arm64

cuda_key()
{
    cat "$here/cuda.lock" "$here/cuda.sh" | sha256sum | cut -d ' ' -f 1
}

# True when it is there, not asked for, or impossible: the lock has a compiler for x86-64 only.
cuda_is_current()
{
    case $kinds in *boards*) ;; *) return 0 ;; esac
    [ "$(uname -m)" = x86_64 ] || return 0
    [ "$(cat "$cuda_folder/stamp" 2>/dev/null)" = "$(cuda_key)" ]
}

# fetch_wheels WHERE TAG...: the lock's packages for host or board.
fetch_wheels()
{
    where=$1
    shift
    awk -v where="$where" '$1 == where { print $2 "==" $3 " --hash=sha256:" $4 }' "$here/cuda.lock" \
        >"$deps/fetch/$where.txt"
    for tag; do set -- "$@" --platform "$tag" && shift; done
    if [ -n "$sources" ]; then set -- "$@" --no-index --find-links "$sources"; fi
    python3 -m pip download --disable-pip-version-check --no-deps --only-binary :all: --require-hashes "$@" \
        --retries 2 --no-cache-dir -d "$deps/fetch/$where" -r "$deps/fetch/$where.txt"
}

fetch_cuda()
{
    rm -rf "$deps/fetch" "$cuda_folder.new"
    mkdir -p "$deps/fetch" "$cuda_folder.new" || return 1
    fetch_wheels host manylinux_2_17_x86_64 manylinux_2_12_x86_64 manylinux2014_x86_64 manylinux2010_x86_64 &&
        fetch_wheels board manylinux_2_27_aarch64 manylinux_2_17_aarch64 manylinux2014_aarch64 || return 1
    for wheel in "$deps/fetch"/*/*.whl; do
        unzip -q -o "$wheel" 'nvidia/*' -d "$deps/fetch/all" || return 1
    done
    for part in bin nvvm include; do mv "$deps/fetch/all/nvidia/cu13/$part" "$cuda_folder.new/" || return 1; done
    cp -R "$cuda_folder.new/include/cccl/nv" "$cuda_folder.new/include/" && rm -r "$cuda_folder.new/include/cccl" &&
        mv "$deps/fetch/all/nvidia/cuda_nvrtc/lib" "$cuda_folder.new/nvrtc" &&
        mv "$deps/fetch/all/nvidia/cudnn_jit/include"/* "$cuda_folder.new/include/" &&
        list_exports "$deps/fetch/all/nvidia" >"$cuda_folder.new/exports" &&
        cuda_key >"$cuda_folder.new/stamp" &&
        rm -rf "$cuda_folder" "$deps/fetch" && mv "$cuda_folder.new" "$cuda_folder"
}

# Of the libraries that ports/cuda opens, as far as there are packages of them: the driver's comes with the board.
list_exports()
{
    aarch64-linux-gnu-nm -D --defined-only --format=posix "$1/cu13/lib/libcublasLt.so.13" \
        "$1/cudnn_jit/lib/libcudnn_graph.so.9" | sed -n 's/[@ ].*//; /^cu/p'
}

build_cuda()
{
    step "fetch CUDA for arm64 (680 MB)" setup-cuda fetch_cuda || {
        rm -rf "$deps/fetch" "$cuda_folder.new"
        echo "The arm64 build goes on without the CUDA port: pip did not get its packages. The next"
        echo "set-up tries again; --sources DIR takes the files from a folder."
    }
}
