"""The container images in a real engine: podman loads them, and the commands of docs/run-a-site.md train a model.

usage: engine.py BUILD

Needs root, podman and runc. The engine keeps all it has in a temporary folder.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from image import DIGITS, GATEWAY, JOB, NAMES, NODE, USER, make
from packages import make_packages, run

# Limits of their own, because the engine's may be above those of this machine.
CONFINED = ["--network", "host", "--read-only", "--cap-drop", "all", "--ulimit", "nofile=1024:1024",
            "--ulimit", "nproc=1024:1024"]


class Engine:
    def __init__(self, folder):
        self.base = ["podman", "--root", os.path.join(folder, "images"), "--runroot", os.path.join(folder, "run"),
                     "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
                     "--runtime", "runc"]
        self.started = []

    def __call__(self, *arguments, **options):
        return run(*self.base, *arguments, timeout=120, **options)

    def start(self, name, *arguments):
        self.started.append(name)
        self("run", "-d", "--name", name, *CONFINED, *arguments)

    def end(self):
        for name in self.started:
            self("rm", "-f", "-t", "1", name, check=False)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def give(path, text=None, copy=None):
    """A file that the programs in the image may read."""
    if copy:
        shutil.copy(copy, path)
    else:
        with open(path, "w") as file:
            file.write(text)
    os.chmod(path, 0o644)


def main(build):
    with tempfile.TemporaryDirectory(prefix="cairn-engine-") as folder:
        packages = make_packages(build, os.path.join(folder, "packages"))
        engine = Engine(folder)
        images = {}
        for name in NAMES:
            path = os.path.join(folder, f"{name}.tar")
            result = make(path, packages, name)
            assert result.returncode == 0, result.stderr
            said = engine("load", "-i", path).stdout
            images[name] = said.split()[-1]
            assert images[name].startswith(f"localhost/{name}:"), said
        settings, keys = os.path.join(folder, "settings"), os.path.join(folder, "keys")
        os.mkdir(settings)
        os.chmod(settings, 0o755)
        run("install", "-d", "-m", "700", "-o", str(USER), "-g", str(USER), keys)
        port = free_port()
        give(os.path.join(settings, "job.yaml"), JOB)
        give(os.path.join(settings, "model.onnx"), copy=os.path.join(DIGITS, "digits-mlp.onnx"))
        give(os.path.join(settings, "gateway.yaml"), GATEWAY.replace("0.0.0.0:5684", f"127.0.0.1:{port}"))
        give(os.path.join(settings, "node.yaml"), NODE + f"aggregator: {{address: \"127.0.0.1:{port}\"}}\n")
        for part in ("images", "labels"):
            give(os.path.join(settings, f"{part}.npy"), copy=os.path.join(DIGITS, f"board-1-{part}.npy"))
        try:
            engine.start("gateway", "-v", f"{settings}:/etc/cairn:ro", "-v", f"{keys}:/keys",
                         "-v", "cairn-aggregator:/var/lib/cairn-aggregator", images["cairn-aggregator"])
            engine("exec", "gateway", "cairn-aggregator", "enroll", "/etc/cairn/gateway.yaml", "board-1",
                   "-o", "/keys/board-1.key")
            key = os.path.join(settings, "node.key")
            shutil.copy(os.path.join(keys, "board-1.key"), key)
            os.chown(key, USER, USER)
            os.chmod(key, 0o600)
            engine.start("board", "-v", f"{settings}:/etc/cairn:ro", "-v", "cairn-node:/var/lib/cairn", images["cairn-node"])
            wait_for_end(engine)
        finally:
            for name in engine.started:
                logs = engine("logs", name, check=False)
                print(f"--- {name}\n{(logs.stdout + logs.stderr)[-2000:]}")
            engine.end()


def wait_for_end(engine):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        status = engine("exec", "gateway", "cairn-aggregator", "status", "/etc/cairn/gateway.yaml").stdout
        assert "the aggregator is running" in status, status  # as process 1
        if "round 2 of 2 (ended)" in status:
            return
        time.sleep(0.5)
    raise AssertionError(f"the run did not end:\n{status}")


if __name__ == "__main__":
    if os.getuid() != 0 or not all(map(shutil.which, ("podman", "runc", "cpack", "dpkg-deb"))):
        print("skipped: needs root, podman, runc, cpack and dpkg-deb")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]))
