"""What cairn-flash says of the JetPack that a board's system is, by its /etc/nv_tegra_release.

usage: jetpack.py BIN

The roots are made up; the line is as NVIDIA's releases have it.
"""

import os
import re
import sys

import flash_bench
import machine
from flash_bench import SOURCE, STATUS
from machine import Machine

LINE = "# R{major} (release), REVISION: {rest}, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 2025\n"
NAMES = [("36", "3.0", "36.3.0 (JetPack 6.0)"), ("36", "4.3", "36.4.3 (JetPack 6.2)"),
         ("36", "5.1", "36.5.1 (JetPack 6)"), ("39", "2.0", "39.2.0 (JetPack 7.2)")]
NEEDS = "the driver of CUDA 13, which comes with JetPack 7"


def make_site(bench, name, device):
    with open(bench.path("site.yaml")) as file:
        text = re.sub("^extends: .*", f"extends: {SOURCE}/boards/jetson-orin-nano-8gb/board.yaml", file.read(),
                      flags=re.MULTILINE)
    return bench.write(name, text + f"device: {device}\n")


def order(bench, name, device, package=None):
    site = make_site(bench, f"{device}.yaml", device)
    return ["--site", site, "--name", name, "--deb", package or bench.package, "--gateway", "gateway.yaml"]


def base_of(bench, major, rest):
    return bench.make_base(f"r{major}-{rest}.img", extra=[("etc/nv_tegra_release", LINE.format(major=major, rest=rest))])


def a_plan_names_the_release(bench):
    for major, rest, words in NAMES:
        bench.expect(bench.run("plan", *order(bench, "plan", "auto"), "--base", base_of(bench, major, rest)), 0,
                     "has Jetson Linux " + words)
        assert ("will train on its processor" in bench.said) == (major == "36"), bench.said
        bench.expect(bench.run("plan", *order(bench, "plan", "cpu"), "--base", base_of(bench, major, rest)), 0)
        assert "will train on its processor" not in bench.said, "a profile of the processor was warned"
    bench.expect(bench.run("plan", *order(bench, "plan", "cuda"), "--base", bench.base), 0)
    assert "Jetson Linux" not in bench.said, "a system without the file was called one of Jetson"


def a_gpu_that_cannot_be_used_is_refused(bench):
    old, new = base_of(bench, "36", "4.3"), base_of(bench, "39", "2.0")
    cuda = order(bench, "gpu", "cuda")
    bench.expect(bench.run("plan", *cuda, "--base", old), 1, "'device: cuda'", NEEDS)
    bench.expect(bench.run("image", *cuda, "--base", old, "-o", "gpu.img"), 1, "'device: cuda'", NEEDS)
    assert not os.path.exists(bench.path("gpu.img"))
    bench.write("hall.txt", "gpu /dev/null\n")
    cards = ["cards", "hall.txt", *[word for word in cuda if word not in ("--name", "gpu")], "-o", "hall.img", "--yes"]
    bench.expect(bench.run(*cards, "--base", old), 1, "'device: cuda'", NEEDS)
    bench.write_tree(bench.path("tree"), [("var/lib/dpkg/status", STATUS.format(arch="arm64", libc="2.35")),
                                          ("etc/nv_tegra_release", LINE.format(major="36", rest="4.3"))])
    bench.expect(bench.run("rootfs", bench.path("tree"), *cuda), 1, "'device: cuda'", NEEDS)
    assert bench.enrolled("gpu") is None
    bench.expect(bench.run("plan", *cuda, "--base", new), 0)


def packages_of_cuda_12_use_the_gpu_of_jetpack_6_and_7(bench):
    package = bench.make_package("arm64", 2, provides="cairn-node-cuda (= 12.6.85)")
    cuda = order(bench, "own", "cuda", package)
    bench.expect(bench.run("plan", *cuda, "--base", base_of(bench, "36", "4.3")), 0, "JetPack 6.2")
    bench.expect(bench.run("plan", *cuda, "--base", base_of(bench, "39", "2.0")), 0, "JetPack 7.2")
    bench.expect(bench.run("plan", *cuda, "--base", base_of(bench, "36", "3.0")), 1, "the driver of CUDA 12.6")
    package = bench.make_package("arm64", 3, provides="cairn-node-cuda (= 13.0.88)")
    bench.expect(bench.run("plan", *order(bench, "own", "cuda", package), "--base", base_of(bench, "36", "4.3")), 1,
                 NEEDS)


def a_running_board_is_asked(bench):
    missing = machine.why_not(SOURCE)
    if missing:
        return print(f"left out: a board by ssh needs {missing}")
    with Machine(bench.path("far"), SOURCE, (bench.build,)) as far, far.program("dpkg", "echo arm64"):
        with open(far.path("/etc/nv_tegra_release"), "w") as file:
            file.write(LINE.format(major="36", rest="4.3"))
        bench.expect(bench.run("ssh", "root@board", *order(bench, "far", "auto"), "--dry-run", tools=far.tools), 0,
                     "root@board has Jetson Linux 36.4.3 (JetPack 6.2)", "will train on its processor")
        bench.expect(bench.run("ssh", "root@board", *order(bench, "far", "cuda"), tools=far.tools), 1, NEEDS)
        assert bench.enrolled("far") is None


CASES = [
    a_plan_names_the_release,
    a_gpu_that_cannot_be_used_is_refused,
    packages_of_cuda_12_use_the_gpu_of_jetpack_6_and_7,
    a_running_board_is_asked,
]


if __name__ == "__main__":
    flash_bench.run(sys.argv[1], CASES)
