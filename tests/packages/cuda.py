"""The arm64 package of cairn-node has kernels for the boards' GPUs, those of an Orin in a form that also the drivers of
JetPack 6 load; and NVIDIA's libraries for aarch64 have the functions that ports/cuda looks up by name.

usage: cuda.py BUILD EXPORTS HEADER
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

from fatbin import CODE, PTX, ZSTD, images_in, name_of, ptx_version_of, release_of

BOARDS = {87: "Orin", 110: "Thor"}
ONLY_13 = 110  # the GPUs whose drivers are all for CUDA 13

# What drivers for CUDA 12.6 load (JetPack 6.1 and 6.2): code of CUDA 12 up to their own release, PTX of that release,
# and the compression that this release writes.
RELEASE, PTX_VERSION = 126, 85


def the_package_has_kernels_for_the_boards(build, kernels, folder):
    subprocess.run(["cpack", "--config", os.path.join(build, "CPackConfig.cmake"), "-B", folder], check=True,
                   capture_output=True)
    package, = glob.glob(os.path.join(folder, "cairn-node_*_arm64.deb"))
    provides = subprocess.run(["dpkg-deb", "--field", package, "Provides"], check=True, capture_output=True, text=True)
    assert re.fullmatch(r"cairn-node-cuda \(= 12\.6\.[0-9.]+\)\n", provides.stdout), f"Provides: {provides.stdout}"
    subprocess.run(["dpkg", "-x", package, os.path.join(folder, "root")], check=True)
    with open(os.path.join(folder, "root/usr/bin/cairn-node"), "rb") as file:
        images = list(images_in(file.read()))
    print("images:", ", ".join(map(name_of, images)))
    for number, name in BOARDS.items():
        assert any((image.kind, image.number) == (CODE, number) for image in images), f"no code for {name} (sm_{number})"
    assert any(image.kind == PTX and image.number <= 80 for image in images), "no PTX for later GPUs"
    drivers_of_jetpack_6_load(images, kernels)


def drivers_of_jetpack_6_load(images, kernels):
    """Only the versions are looked at. No driver is here."""
    assert len(kernels) > 50
    apart = {image.binary for image in images if image.number == ONLY_13}
    for image in images:
        name = name_of(image)
        if image.binary in apart:
            assert image.number == ONLY_13, f"{name} is in one fat binary with code that only CUDA 13 knows"
            continue
        assert image.compression != ZSTD, f"{name} is compressed as CUDA 12.6 does not do it"
        if image.kind == PTX:
            found, most = ptx_version_of(image), PTX_VERSION
        else:
            found, most = release_of(image), RELEASE
        names = set(re.findall(rb"\bcuda_kernel_\w+", image.data))
        missing = [kernel for kernel in kernels if f"cuda_kernel_{kernel}".encode() not in names]
        print(f"{name}: version {found / 10}, {len(kernels) - len(missing)} of {len(kernels)} kernels")
        assert not missing, f"{name} lacks {missing}"
        assert found <= most, f"{name} is of version {found / 10}, wanted {most / 10} at most"


def kernels_in(header):
    with open(header) as file:
        listed = re.search(r"#define CUDA_KERNELS\(X\)(.*?)\n\n", file.read(), re.DOTALL)
    return re.findall(r"X\((\w+)\)", listed[1])


def the_libraries_for_aarch64_have_the_functions(exports, header):
    with open(exports) as file:
        known = set(file.read().split())
    with open(header) as file:
        wanted = re.findall(r"X\(\w+, (c\w+)\)", file.read())
    checked = [name for name in wanted if not re.match("cu[A-Z]", name)]  # the driver's comes with the board
    missing = [name for name in checked if name not in known]
    print(f"{len(checked)} of {len(wanted)} functions looked up, {len(missing)} missing")
    assert checked and not missing, f"not in NVIDIA's libraries for aarch64: {missing}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="cairn-cuda-") as temporary:
        kernels = kernels_in(os.path.join(os.path.dirname(sys.argv[3]), "kernels", "kernels.h"))
        the_package_has_kernels_for_the_boards(sys.argv[1], kernels, temporary)
    the_libraries_for_aarch64_have_the_functions(sys.argv[2], sys.argv[3])
