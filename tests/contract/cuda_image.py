"""The kernels for GPUs, without one: code for the boards and PTX for later GPUs are in the image; no instruction of
the PTX adds atomically, whose order no run repeats.

usage: cuda_image.py NVCC SOURCE IMAGE...
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "packages"))
from fatbin import CODE, PTX, images_in, name_of  # noqa: E402

BOARDS = {87: "Orin", 90: "Hopper", 110: "Thor"}  # 110 where nvcc knows it


def the_images_have_code_for_the_boards_and_ptx(nvcc, paths):
    known = subprocess.run([nvcc, "--list-gpu-arch"], check=True, capture_output=True, text=True).stdout.split()
    files = []
    for path in paths:
        with open(path, "rb") as file:
            files.append(list(images_in(file.read())))
    print("images:", "; ".join(", ".join(map(name_of, images)) for images in files))
    for number, name in BOARDS.items():
        count = sum((image.kind, image.number) == (CODE, number) for images in files for image in images)
        assert count == (f"compute_{number}" in known), f"{count} times code for sm_{number} ({name})"
    assert any(image.kind == PTX for image in files[0]), "no PTX for later GPUs"
    assert all(image.number != 110 for image in files[0]), "Thor's code is where drivers for CUDA 12 find it"


def no_kernel_adds_atomically(nvcc, source):
    with tempfile.TemporaryDirectory(prefix="cairn-cuda-") as folder:
        path = os.path.join(folder, "kernels.ptx")
        subprocess.run([nvcc, "-ptx", "-arch=compute_80", "-O3", "-I", source, "-o", path,
                        os.path.join(source, "ports", "cuda", "kernels", "kernels.cu")], check=True)
        with open(path) as file:
            text = file.read()
    entries, found = text.count(".entry"), re.findall(r"\b(?:atom|red)\.[\w.]+", text)
    print(f"{entries} kernels, {len(found)} atomic instructions")
    assert entries > 50 and not found, sorted(set(found))


if __name__ == "__main__":
    the_images_have_code_for_the_boards_and_ptx(sys.argv[1], sys.argv[3:])
    no_kernel_adds_atomically(sys.argv[1], sys.argv[2])
