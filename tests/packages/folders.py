"""Packages of one commit are the same, byte for byte, whichever folder they were built in.

usage: folders.py

Clones this repository's commit twice, into folders whose names differ in length. The libraries, too, are built in
each, from the archives that the set-up has fetched.
"""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
SKIPPED = 77
FOLDERS = ("a", os.path.join("another", "folder-with-a-longer-name"))


def run(*command, cwd):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("GIT_") and not name.endswith("_LAUNCHER")}
    environment.update(CCACHE_DISABLE="1")  # each folder compiles all by itself
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-4000:]}{result.stderr[-4000:]}"


def build(folder):
    """The packages by their names."""
    run("git", "clone", "-q", SOURCE, folder, cwd=SOURCE)
    archives = os.path.join(SOURCE, "build", "deps", "archives")
    run("cmake/setup/setup", "--yes", "--sources", archives, cwd=folder)
    run("cmake", "--preset", "release", "-D", "BUILD_TESTING=OFF", cwd=folder)
    run("cmake", "--build", "--preset", "release", cwd=folder)
    made = os.path.join(folder, "made")
    run("cpack", "--config", "build/release/CPackConfig.cmake", "-B", made, cwd=folder)
    contents = {}
    for name in sorted(os.listdir(made)):
        if name.endswith(".deb"):
            with open(os.path.join(made, name), "rb") as file:
                contents[name] = file.read()
    return contents


def main():
    if not os.path.exists(os.path.join(SOURCE, ".git")):
        print("no git repository here")
        sys.exit(SKIPPED)
    scratch = tempfile.mkdtemp(prefix="cairn-test-")
    try:
        one, other = (build(os.path.join(scratch, folder)) for folder in FOLDERS)
        assert len(one) == 5 and list(one) == list(other), (list(one), list(other))
        different = [name for name in one if one[name] != other[name]]
        assert not different, f"these differ: {different}"
        print(f"{len(one)} packages are the same")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
