"""The kernels for GPUs, without one: code for the boards and PTX for later GPUs are in the image; no instruction of
the PTX adds atomically, whose order no run repeats.

usage: cuda_image.py NVCC SOURCE IMAGE
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "packages"))
from cuda import CODE, PTX, images_in  # noqa: E402

BOARDS = {87: "Orin", 90: "Hopper", 110: "Thor"}  # 110 where nvcc knows it


def the_image_has_code_for_the_boards_and_ptx(nvcc, image):
    known = subprocess.run([nvcc, "--list-gpu-arch"], check=True, capture_output=True, text=True).stdout.split()
    with open(image, "rb") as file:
        images = set(images_in(file.read()))
    print("images:", ", ".join(f"{'PTX' if kind == PTX else 'sm'} {number}" for kind, number in sorted(images)))
    for number, name in BOARDS.items():
        assert f"compute_{number}" not in known or (CODE, number) in images, f"no code for sm_{number} ({name})"
    assert any(kind == PTX for kind, _ in images), "no PTX for later GPUs"


def no_kernel_adds_atomically(nvcc, source):
    with tempfile.TemporaryDirectory(prefix="cairn-cuda-") as folder:
        path = os.path.join(folder, "kernels.ptx")
        subprocess.run([nvcc, "-ptx", "-arch=compute_80", "-O3", "-I", source, "-o", path,
                        os.path.join(source, "ports", "cuda", "kernels.cu")], check=True)
        with open(path) as file:
            text = file.read()
    entries, found = text.count(".entry"), re.findall(r"\b(?:atom|red)\.[\w.]+", text)
    print(f"{entries} kernels, {len(found)} atomic instructions")
    assert entries > 50 and not found, sorted(set(found))


if __name__ == "__main__":
    the_image_has_code_for_the_boards_and_ptx(sys.argv[1], sys.argv[3])
    no_kernel_adds_atomically(sys.argv[1], sys.argv[2])
