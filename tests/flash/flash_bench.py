"""What the tests of cairn-flash share: a gateway, a site, a package, a vendor's image and the command."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(SOURCE, "tests", "end_to_end")]

from cluster import Cluster  # noqa: E402

ROOT_AT = 1 << 20
SITE = """\
schema: cairn/site/v1
extends: {source}/boards/qemu-virt-arm64/board.yaml
aggregator: {{address: "10.7.0.1:5684"}}
data:
  digits: {{inputs: /data/images.npy, labels: /data/labels.npy}}
"""
STATUS = "Package: libc6\nStatus: install ok installed\nArchitecture: {arch}\nVersion: {libc}\n\n"


class Bench:
    """A gateway, a site, a package and a vendor's image; commands run beside them."""

    def __init__(self, cluster, build):
        self.cluster, self.build, self.started = cluster, build, set()
        self.folder = cluster.directory
        self.write("site.yaml", SITE.format(source=SOURCE))
        self.package = self.make_package("arm64")
        self.base = self.make_base("base.img")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def make_package(self, architecture, version=1, provides=None):
        tree = tempfile.mkdtemp(dir=self.folder)
        os.chmod(tree, 0o755)
        os.makedirs(os.path.join(tree, "DEBIAN"))
        os.makedirs(os.path.join(tree, "usr/share/cairn-test"))
        os.makedirs(os.path.join(tree, "etc"))
        with open(os.path.join(tree, "etc/cairn-test.conf"), "w") as file:
            file.write(f"of version {version}\n")
        with open(os.path.join(tree, "DEBIAN/conffiles"), "w") as file:
            file.write("/etc/cairn-test.conf\n")
        with open(os.path.join(tree, "usr/share/cairn-test/noise"), "wb") as file:
            file.write(os.urandom(50000))
        with open(os.path.join(tree, "DEBIAN/control"), "w") as file:
            file.write(f"Package: cairn-test\nVersion: {version}\nArchitecture: {architecture}\n"
                       "Maintainer: nobody <nobody@cairn.invalid>\nDescription: a test\nInstalled-Size: 60\n"
                       + (f"Provides: {provides}\n" if provides else ""))
        package = self.path(f"cairn-test{version if version > 1 else ''}_{architecture}.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, capture_output=True)
        return package

    def make_root(self, extra=(), arch="arm64", libc="2.36-9", size=16):
        """An ext4 file system with a package database and the (path, text) of extra; its bytes."""
        tree, root = tempfile.mkdtemp(dir=self.folder), self.path("root.ext4")
        files = [("var/lib/dpkg/status", STATUS.format(arch=arch, libc=libc)), ("etc/hostname", "board\n"), *extra]
        self.write_tree(tree, files)
        with open(root, "wb") as file:
            file.truncate(size << 20)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, root], check=True)
        with open(root, "rb") as file:
            return file.read()

    def write_tree(self, tree, files):
        for path, text in files:
            os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
            with open(os.path.join(tree, path), "w") as file:
                file.write(text)

    def make_base(self, name, partitioned=True, **root):
        """A vendor's image with a GPT, or without any table."""
        content = self.make_root(**root)
        with open(self.path(name), "wb") as file:
            file.seek(ROOT_AT if partitioned else 0)
            file.write(content)
            file.truncate(len(content) + (2 << 20))
        if partitioned:
            self.write_table(name, f"label: gpt\nstart=1MiB, size={len(content) >> 20}MiB, name=APP\n")
        return self.path(name)

    def make_card(self, name, parts):
        """An image with an MBR and 16 MiB for each (kind, content); FAT gets a cmdline.txt."""
        table = "label: dos\n"
        with open(self.path(name), "wb") as file:
            for number, (kind, content) in enumerate(parts):
                file.seek((1 + 16 * number) << 20)
                file.write(content or self.make_fat())
                table += f"start={1 + 16 * number}MiB, size=16MiB, type={'c' if kind == 'fat' else '83'}\n"
            file.truncate((2 + 16 * len(parts)) << 20)
        self.write_table(name, table)
        return self.path(name)

    def make_fat(self):
        image = self.path("part.fat")
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        subprocess.run(["mkfs.vfat", image], check=True, capture_output=True)
        subprocess.run(["mcopy", "-i", image, self.write("cmdline", "as it was\n"), "::/cmdline.txt"], check=True)
        with open(image, "rb") as file:
            return file.read()

    def write_table(self, name, text):
        subprocess.run(["sfdisk", "-q", self.path(name)], check=True, capture_output=True, text=True, input=text)

    def run(self, *arguments, tools=None, text=None, signals=(), **more):
        """signals: pairs of seconds and a signal, which the program gets alone."""
        process = self.begin(*arguments, tools=tools, text=True, stdin=None if text is None else subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        for delay, number in signals:
            time.sleep(delay)
            process.send_signal(number)
        self.said = "".join(process.communicate(text))
        return process.returncode

    def begin(self, *arguments, tools=None, **more):
        path = f"{tools + ':' if tools else ''}{self.build}:{os.environ['PATH']}:/usr/sbin:/sbin"
        process = subprocess.Popen([os.path.join(self.build, "cairn-flash"), *arguments],
                                   env={**os.environ, "PATH": path}, **{"cwd": self.folder, **more})
        self.started.add(process.pid)
        return process

    def left_in_memory(self):
        """The folders of cairn-flash in memory, of the runs here: others may run beside them."""
        found = glob.glob("/dev/shm/cairn-flash-*") + glob.glob("/tmp/cairn-flash-*")
        return [path for path in found if int(path.split("-")[2]) in self.started]

    def order(self, name="node-1"):
        return ["--site", "site.yaml", "--name", name, "--deb", self.package, "--gateway", "gateway.yaml"]

    def image(self, name="node-1", out=None, base=None, tools=None, more=()):
        out = out or self.path(f"{name}.img")
        return self.run("image", "--base", base or self.base, *self.order(name), "-o", out, *more, tools=tools)

    def broken_tools(self, others=None):
        """A folder for PATH whose debugfs writes nothing and says nothing."""
        tools = tempfile.mkdtemp(dir=self.folder)
        self.make_tool(tools, "debugfs", '[ "$1" != -w ] || exit 0')
        return f"{tools}:{others}" if others else tools

    def make_tool(self, folder, name, lines):
        """A script before the real program: its lines, then the program."""
        real = shutil.which(name, path=f"{self.build}:{os.environ['PATH']}:/usr/sbin:/sbin")
        with open(os.path.join(folder, name), "w") as file:
            file.write(f'#!/bin/sh\n{lines}\nexec {real} "$@"\n')
        os.chmod(os.path.join(folder, name), 0o755)

    def expect(self, code, wanted, *words):
        assert code == wanted, f"exit code {code}, expected {wanted}\n{self.said}"
        for word in words:
            assert word in self.said, f"'{word}' was not said\n{self.said}"

    def enrolled(self, name):
        """Not at all, or 'revoked', or 'enrolled'."""
        result = subprocess.run([os.path.join(self.build, "cairn-aggregator"), "status", "--json", "gateway.yaml"],
                                cwd=self.folder, capture_output=True, text=True)
        for line in result.stdout.splitlines():
            board = json.loads(line)
            if board.get("board") == name:
                return "revoked" if board["revoked"] else "enrolled"
        return None

    def revoke(self, name):
        subprocess.run([os.path.join(self.build, "cairn-aggregator"), "revoke", "gateway.yaml", name], cwd=self.folder,
                       check=True, capture_output=True)


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def debugfs(image, command):
    return subprocess.run(["debugfs", "-R", command, f"{image}?offset={ROOT_AT}"], capture_output=True,
                          text=True).stdout


def run(build, cases):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [tool for tool in ("debugfs", "mke2fs", "e2fsck", "sfdisk", "dpkg-deb") if not shutil.which(tool)]
    if missing:
        print("skipped: needs " + ", ".join(missing))
        sys.exit(77)
    with Cluster(build, {}) as cluster:
        bench = Bench(cluster, os.path.abspath(build))
        for case in cases:
            print(case.__name__.replace("_", " "), flush=True)
            case(bench)
