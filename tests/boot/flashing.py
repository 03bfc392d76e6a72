"""From a base image to the image of one board, as a user does it, for the boot tests."""

import glob
import os
import re
import shutil
import subprocess
import tempfile

from cluster import DIGITS, SOURCE

BOARD_TYPE = "qemu-virt-arm64"

# The site of one board: the machine that runs the guest is 10.0.2.2 there.
SITE = """\
schema: cairn/site/v1
extends: {source}/boards/qemu-virt-arm64/board.yaml
threads: 2
aggregator: {{address: "10.0.2.2:{port}"}}
data:
  digits: {{inputs: /data/images.npy, labels: /data/labels.npy}}
"""


def make_base(kind, path):
    """The recipe's image, "small" or "full", and its kernel beside it."""
    subprocess.run([os.path.join(SOURCE, "boards", BOARD_TYPE, "image", kind), path], check=True)
    return path


def make_packages(guest_build, folder, *names):
    """The .deb files of the programs named, by name."""
    subprocess.run(["cpack", "--config", os.path.join(guest_build, "CPackConfig.cmake"), "-B", folder],
                   check=True, capture_output=True)
    return {name: glob.glob(os.path.join(folder, f"{name}_*.deb"))[0] for name in names}


def change_package(package, out, version, *changes, files=()):
    """The same package as another version; changes are (control file, pattern, text), files (path, content)."""
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
        for name, pattern, text in (("control", r"^Version: .*", f"Version: {version}"), *changes):
            path = os.path.join(tree, "DEBIAN", name)
            with open(path) as file:
                content, count = re.subn(pattern, text, file.read(), flags=re.MULTILINE)
            assert count == 1, f"{pattern} in {name}"
            with open(path, "w") as file:
                file.write(content)
        for name, content in files:
            path = os.path.join(tree, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(content)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, out], check=True, capture_output=True)
    return out


def path_with(host_bin):
    return {**os.environ, "PATH": f"{host_bin}:{os.environ['PATH']}"}


def flash(cluster, host_bin, base, name, site, packages, group, adds=()):
    """The image of a board with the samples of board-1 or of its own name; cairn-flash's words are printed."""
    image = cluster.path(f"{name}.img")
    samples = name if os.path.exists(os.path.join(DIGITS, f"{name}-images.npy")) else "board-1"
    adds = {os.path.join(DIGITS, f"{samples}-images.npy"): "/data/images.npy",
            os.path.join(DIGITS, f"{samples}-labels.npy"): "/data/labels.npy", **dict(adds)}
    cluster.write(f"{name}.site.yaml", site)
    result = subprocess.run(
        [os.path.join(host_bin, "cairn-flash"), "image", "--base", base, "--site", f"{name}.site.yaml",
         "--board", BOARD_TYPE, "--name", name, "--gateway", "gateway.yaml", "--group", group,
         *(word for package in packages for word in ("--deb", package)),
         *(word for source, to in adds.items() for word in ("--add", f"{source}:{to}")), "-o", image],
        cwd=cluster.directory, env=path_with(host_bin), capture_output=True, text=True)
    print(result.stdout + result.stderr, end="", flush=True)
    assert result.returncode == 0
    assert os.stat(image).st_mode & 0o777 == 0o600, "the image holds a key"
    if os.path.exists(base + ".kernel"):  # an image with two systems has it in its slots
        shutil.copy(base + ".kernel", image + ".kernel")
    return image


def wait_until_joined(cluster, host_bin, name, timeout):
    """By cairn-flash wait; its words are printed."""
    subprocess.run([os.path.join(host_bin, "cairn-flash"), "wait", "--name", name, "--gateway",
                    cluster.path("gateway.yaml"), "--timeout", f"{timeout} s"], check=True, cwd=cluster.directory,
                   env=path_with(host_bin))
