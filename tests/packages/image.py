"""The container images: a valid layout (OCI image specification), the same bytes when made again, programs that run.

usage: image.py BUILD

No container engine is needed: the layer is unpacked into a folder, and the programs run in it as the image's user.
"""

import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from packages import SOURCE, make_packages, package_of, run

MAKE = os.path.join(SOURCE, "cmake/image/make_image")
DIGITS = os.path.join(SOURCE, "tests/data/digits")
NAMES = ["cairn-node", "cairn-aggregator"]
USER = 10001

NODE = """\
schema: cairn/site/v1
extends: generic-x86-64
name: board-1
state: /var/lib/cairn
data:
  digits: {inputs: images.npy, labels: labels.npy}
job: job.yaml
"""
GATEWAY = """\
schema: cairn/site/v1
extends: generic-x86-64
name: gateway
state: /var/lib/cairn-aggregator
gateway: {listen: "0.0.0.0:5684"}
job: job.yaml
"""
JOB = """\
schema: cairn/job/v1
name: digits
model: model.onnx
loss: cross_entropy
data: {set: digits}
train: {learning_rate: 0.05, local_steps: 10}
rounds: {count: 2, quorum: 1}
"""


def make(out, packages, name, *options):
    return run(sys.executable, "-B", MAKE, "-o", out, *options, package_of(packages, name),
               package_of(packages, "cairn-boards"), check=False)


def read_archive(data):
    """The members, in their order, and the bytes of files by name."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
        return members, {m.name: archive.extractfile(m).read() for m in members if m.isreg()}


def blob_of(files, descriptor, media_type):
    assert descriptor["mediaType"] == media_type, descriptor
    assert re.fullmatch("sha256:[0-9a-f]{64}", descriptor["digest"]), descriptor
    data = files.pop("blobs/" + descriptor["digest"].replace(":", "/"))
    assert len(data) == descriptor["size"] and hashlib.sha256(data).hexdigest() == descriptor["digest"][7:], descriptor
    return data


def the_layout_is_valid(path, name):
    """Returns the layer's tar."""
    with open(path, "rb") as file:
        _, files = read_archive(file.read())
    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    index, older = json.loads(files.pop("index.json")), json.loads(files.pop("manifest.json"))
    prefix = "application/vnd.oci.image."
    assert index["schemaVersion"] == 2 and index["mediaType"] == prefix + "index.v1+json", index
    entry, = index["manifests"]
    tagged = entry["annotations"]["org.opencontainers.image.ref.name"]
    assert re.fullmatch(rf"localhost/{name}:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}", tagged), tagged
    manifest = json.loads(blob_of(files, entry, prefix + "manifest.v1+json"))
    assert manifest["schemaVersion"] == 2 and manifest["mediaType"] == prefix + "manifest.v1+json", manifest
    layer, = manifest["layers"]
    paths = ["blobs/" + part["digest"].replace(":", "/") for part in (manifest["config"], layer)]
    assert older == [{"Config": paths[0], "RepoTags": [tagged], "Layers": [paths[1]]}], older
    config = json.loads(blob_of(files, manifest["config"], prefix + "config.v1+json"))
    tar = gzip.decompress(blob_of(files, layer, prefix + "layer.v1.tar+gzip"))
    assert not files, f"{path} has files that nothing names: {list(files)}"
    assert {"architecture": config["architecture"], "os": config["os"]} == entry["platform"], config
    assert config["os"] == "linux" and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", config["created"]), config
    assert config["rootfs"] == {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]}, config
    assert config["config"]["User"] == f"{USER}:{USER}", config["config"]
    assert config["config"]["Entrypoint"] == [f"/usr/bin/{name}"], config["config"]
    return tar


def the_layer_is_confined(tar, name):
    members, files = read_archive(tar)
    names = [member.name for member in members]
    assert names == sorted(set(names)), "the layer is not sorted, or names a file twice"
    assert len({member.mtime for member in members}) == 1, "the layer has times of its own"
    state = {"cairn-node": "var/lib/cairn", "cairn-aggregator": "var/lib/cairn-aggregator"}[name]
    for member in members:
        assert member.isdir() or member.isreg() or member.issym(), member
        assert not member.name.startswith("/") and ".." not in member.name.split("/"), member
        assert os.path.dirname(member.name) in ("", *names), f"{member.name} has no folder"
        assert member.uid == member.gid == (USER if member.name == state else 0), member
        assert not member.mode & 0o6000, f"{member.name} runs as somebody else"
        assert member.issym() or member.name == "tmp" or not member.mode & 0o022, f"{member.name} is not protected"
    assert f":{USER}:{USER}:".encode() in files["etc/passwd"], files["etc/passwd"]
    for wanted in (f"usr/bin/{name}", f"usr/share/doc/{name}/copyright", "usr/share/doc/libc6/copyright",
                   "usr/share/cairn/boards/generic-x86-64/board.yaml"):
        assert wanted in files, f"no {wanted}"


def the_image_is_the_same_when_made_again(path, packages, name):
    again = path + ".again"
    assert make(again, packages, name).returncode == 0
    with open(path, "rb") as one, open(again, "rb") as two:
        assert one.read() == two.read(), f"{name}: two images differ"
    os.remove(again)


def unpack(tar, root):
    """With owners; the rest is as an engine does it."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        archive.extractall(root, numeric_owner=True, **({"filter": "fully_trusted"}
                                                        if hasattr(tarfile, "data_filter") else {}))


def inside(root, program, *arguments, code=0):
    """Runs a program of the image as its user, with /proc and nothing else of this machine."""
    script = 'mount -t proc proc "$0/proc" && exec chroot --userspec=%d:%d --groups= "$0" "$@"' % (USER, USER)
    result = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "sh", "-c", script, root,
                             f"/usr/bin/{program}", *arguments], capture_output=True, text=True, timeout=60, check=False,
                            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}, stdin=subprocess.DEVNULL)
    text = result.stdout + result.stderr
    assert result.returncode == code, f"{program} {' '.join(arguments)}: {result.returncode}\n{text}"
    return text


def write(root, name, text):
    with open(os.path.join(root, "etc/cairn", name), "w") as file:
        file.write(text)


def the_programs_run_in_the_image(root, name, version):
    assert version in inside(root, name, "--version")
    inside(root, name, "--help")
    write(root, "job.yaml", JOB)
    shutil.copy(os.path.join(DIGITS, "digits-mlp.onnx"), os.path.join(root, "etc/cairn/model.onnx"))
    if name == "cairn-node":
        print(inside(root, name, "selftest").splitlines()[0])
        write(root, "node.yaml", NODE)
        for part in ("images", "labels"):
            shutil.copy(os.path.join(DIGITS, f"board-1-{part}.npy"), os.path.join(root, f"etc/cairn/{part}.npy"))
        inside(root, name, "train", "/etc/cairn/node.yaml")
        wanted = "var/lib/cairn/model.current.onnx"
    else:
        write(root, "gateway.yaml", GATEWAY)
        inside(root, name, "enroll", "/etc/cairn/gateway.yaml", "board-1", "-o", "/tmp/board-1.key")
        assert "board-1" in inside(root, name, "status", "/etc/cairn/gateway.yaml")
        wanted = "var/lib/cairn-aggregator/ledger.sqlite"
    state = os.stat(os.path.join(root, wanted))
    assert state.st_uid == USER, f"{wanted} belongs to {state.st_uid}"


def what_gives_no_image_is_refused(folder, packages):
    out = os.path.join(folder, "refused.tar")
    wrong = os.path.join(folder, "wrong")
    copies = os.path.join(wrong, "usr/lib/x86_64-linux-gnu")
    os.makedirs(copies)
    node, flash = package_of(packages, "cairn-node"), package_of(packages, "cairn-flash")

    def refused(reason, *arguments):
        result = run(sys.executable, "-B", MAKE, "-o", out, *arguments, check=False)
        assert result.returncode == 1 and reason in result.stderr, f"wanted '{reason}': {result.stderr}"
        assert "Traceback" not in result.stderr and not os.path.exists(out), result.stderr

    refused("the first is one of cairn-node", flash)
    refused("not a Debian format archive", __file__)
    refused("--libc names a root folder that has libc6", "--libc", wrong, node)
    with open("/bin/sh", "rb") as file:
        program = file.read()
    for data, reason in ((program[:18] + b"\xff\xff" + program[20:], "is not of the package's architecture"),
                         (program[:30], "is not of the package's architecture")):
        with open(os.path.join(copies, "libc.so.6"), "wb") as file:
            file.write(data)
        refused(reason, "--libc", wrong, node)
    older = program[:64] + b"\0GLIBC_2.17\0"
    for name in ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"):
        with open(os.path.join(copies, name), "wb") as file:
            file.write(older)
    refused("glibc 2.17, usr/bin/cairn-node needs 2.", "--libc", wrong, node)


def main(build):
    if not shutil.which("cpack") or not shutil.which("dpkg-deb"):
        print("skipped: needs cpack and dpkg-deb")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="cairn-image-") as folder:
        packages = make_packages(build, os.path.join(folder, "packages"))
        version = re.search("_(.*)_", os.path.basename(packages[0])).group(1)
        probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "true"], capture_output=True, check=False)
        for name in NAMES:
            path = os.path.join(folder, f"{name}.tar")
            result = make(path, packages, name)
            assert result.returncode == 0, result.stderr
            print(result.stdout.strip())
            tar = the_layout_is_valid(path, name)
            the_layer_is_confined(tar, name)
            the_image_is_the_same_when_made_again(path, packages, name)
            assert not glob.glob(path + ".*"), "a part was left"
            if probe.returncode:
                print(f"left out: this user cannot run a program in the image: {probe.stderr.decode().strip()}")
                continue
            root = os.path.join(folder, name)
            unpack(tar, root)
            the_programs_run_in_the_image(root, name, version)
        if os.uname().machine == "x86_64":
            what_gives_no_image_is_refused(folder, packages)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
