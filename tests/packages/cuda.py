"""The arm64 package of cairn-node has kernels for the boards' GPUs, and NVIDIA's libraries for aarch64 have
the functions that ports/cuda looks up by name.

usage: cuda.py BUILD EXPORTS HEADER
"""

import glob
import os
import re
import struct
import subprocess
import sys
import tempfile

BOARDS = {87: "Orin", 110: "Thor"}
PTX, CODE = 1, 2
MAGIC = struct.pack("<I", 0xBA55ED50)


def images_in(data):
    """(kind, architecture) of each image of each fat binary in data; as "cuobjdump -lelf -lptx" lists them."""
    at = data.find(MAGIC)
    while at >= 0:
        _, version, header, size = struct.unpack_from("<IHHQ", data, at)
        image, end = at + header, at + header + size
        while version == 1 and image < end:
            kind, _, skip, length = struct.unpack_from("<HHIQ", data, image)
            yield kind, struct.unpack_from("<I", data, image + 28)[0]
            image += skip + length
        at = data.find(MAGIC, at + 4)


def the_package_has_kernels_for_the_boards(build, folder):
    subprocess.run(["cpack", "--config", os.path.join(build, "CPackConfig.cmake"), "-B", folder], check=True,
                   capture_output=True)
    package, = glob.glob(os.path.join(folder, "cairn-node_*_arm64.deb"))
    provides = subprocess.run(["dpkg-deb", "--field", package, "Provides"], check=True, capture_output=True, text=True)
    assert re.fullmatch(r"cairn-node-cuda \(= 1[23]\.[0-9.]+\)\n", provides.stdout), f"Provides: {provides.stdout}"
    subprocess.run(["dpkg", "-x", package, os.path.join(folder, "root")], check=True)
    with open(os.path.join(folder, "root/usr/bin/cairn-node"), "rb") as file:
        images = set(images_in(file.read()))
    print("images:", ", ".join(f"{'PTX' if kind == PTX else 'sm'} {number}" for kind, number in sorted(images)))
    for number, name in BOARDS.items():
        assert (CODE, number) in images, f"no code for sm_{number} ({name}) in {os.path.basename(package)}"
    assert any(kind == PTX for kind, _ in images), "no PTX for later GPUs"


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
        the_package_has_kernels_for_the_boards(sys.argv[1], temporary)
    the_libraries_for_aarch64_have_the_functions(sys.argv[2], sys.argv[3])
