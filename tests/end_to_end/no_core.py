"""No program leaves its keys in a core dump, or open to another process of its user.

    no_core.py BIN

Both follow from one mark of a process, which shows in /proc: files for its owner's eyes only belong to root. So the
programs run as another user than root here, whoever runs the test.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bad_models import npy, plain, profile, write  # noqa: E402

OTHER = 12345  # a user whom nobody is


def start(program, *arguments, folder, **environment):
    """Runs a program in a folder of its user's, its output in the file "log"."""
    user = {"user": OTHER, "group": OTHER, "extra_groups": []} if os.geteuid() == 0 else {}
    with open(os.path.join(folder, "log"), "w") as log:
        return subprocess.Popen([program, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, env=dict(os.environ, **environment), **user)


def until(what, condition, process):
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, f"{what}: the program ended with {process.returncode}"
        assert time.monotonic() < deadline, f"not in 60 s: {what}"
        time.sleep(0.02)


def hidden(process):
    """Of a process that runs its program: what begins it as another user is hidden, too."""
    with open(f"/proc/{process.pid}/comm") as file:
        begun = file.read().startswith("cairn-")
    return begun and os.stat(f"/proc/{process.pid}/environ").st_uid == 0


def end(process):
    process.kill()
    process.wait()


def every_program_hides_its_memory(folder):
    os.mkfifo(os.path.join(folder, "fifo"))  # which is opened, and waited for, when a command has begun
    for name, *arguments in (("cairn-node", "check"), ("cairn-aggregator", "run"),
                             ("cairn-flash", "wait", "--name", "x", "--gateway")):
        process = start(os.path.join(folder, name), *arguments, "fifo", folder=folder)
        try:
            until(f"{name} hides its memory", lambda: hidden(process), process)
        finally:
            end(process)


def a_board_that_trains_hides_its_memory_but_not_from_developers(folder):
    npy(os.path.join(folder, "x.npy"), 8, 4, [0.25 * (i % 7) for i in range(32)])
    npy(os.path.join(folder, "y.npy"), 8, 2, [0.5] * 16)
    write(os.path.join(folder, "model.onnx"), plain())
    profile(folder, rounds=1000000)
    for environment, wanted in (({}, True), ({"CAIRN_CORE_DUMPS": "1"}, False)):
        process = start(os.path.join(folder, "cairn-node"), "train", "site.yaml", folder=folder, **environment)
        try:
            until("it has a checkpoint", lambda: os.path.exists(os.path.join(folder, "state", "model.current.onnx")),
                  process)
            assert hidden(process) == wanted, environment
        finally:
            end(process)
        shutil.rmtree(os.path.join(folder, "state"))


def main(build):
    if os.geteuid() != 0 and not os.access("/proc/self/environ", os.R_OK):
        print("skipped: /proc is not to be read here")
        return 77
    for case in (every_program_hides_its_memory, a_board_that_trains_hides_its_memory_but_not_from_developers):
        with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
            for name in ("cairn-node", "cairn-aggregator", "cairn-flash"):  # the build may be in a home that is closed
                shutil.copy(os.path.join(build, name), folder)
            os.chmod(folder, 0o777)
            case(folder)
        print(case.__name__.replace("_", " "), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
