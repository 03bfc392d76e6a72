"""The version of a build says which commit it is of, and a commit compiles one file again.

usage: version.py

A small project with the version's own CMake file is built from a repository, a shallow clone and a tarball.
"""

import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COPIED = ["cmake/CairnVersion.cmake", "runtime/base/build_version.h"]
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(cairn VERSION 0.1.0 LANGUAGES C)
include(cmake/CairnVersion.cmake)
add_library(other STATIC other.c)
add_executable(program main.c $<TARGET_OBJECTS:cairn_build_version>)
target_link_libraries(program PRIVATE other)
target_include_directories(program PRIVATE ${CMAKE_SOURCE_DIR})
"""
MAIN = """\
#include <stdio.h>
#include "runtime/base/build_version.h"
int main(void) { return puts(cn_build_version) < 0; }
"""


def run(*command, cwd):
    # A hook that runs this test has set GIT_DIR and the like for its own repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"
    return result.stdout


def git(folder, *words):
    return run("git", "-c", "user.name=Test", "-c", "user.email=test@cairn.invalid", *words, cwd=folder).strip()


def write_project(folder):
    for name in COPIED:
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        shutil.copy(os.path.join(SOURCE, name), os.path.join(folder, name))
    for name, text in {"CMakeLists.txt": PROJECT, "main.c": MAIN, "other.c": "int other = 1;\n",
                       ".gitignore": "/build/\n"}.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)


def commit(folder, message):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")[:8]


def built(folder):
    """The version that the program prints, and what the build did for it."""
    if not os.path.exists(os.path.join(folder, "build")):
        run("cmake", "-G", "Ninja", "-B", "build", cwd=folder)
    said = run("cmake", "--build", "build", "--verbose", cwd=folder)
    return run(os.path.join(folder, "build", "program"), cwd=folder).strip(), said


def main(folder):
    repository = os.path.join(folder, "repository")
    os.mkdir(repository)
    git(repository, "init", "-q")
    write_project(repository)
    first = commit(repository, "One.")
    assert built(repository)[0] == f"0.1.0+git1.{first}"
    second = commit(repository, "Two.")
    version, said = built(repository)
    assert version == f"0.1.0+git2.{second}", version
    assert "build_version.c" in said and "repository/other.c" not in said and "repository/main.c" not in said, said
    assert "build_version.c" not in built(repository)[1], "the same commit was compiled again"

    worktree = os.path.join(folder, "worktree")
    git(repository, "worktree", "add", "-q", worktree)
    third = commit(worktree, "Three.")
    assert built(worktree)[0] == f"0.1.0+git3.{third}"

    shallow = os.path.join(folder, "shallow")
    git(folder, "clone", "-q", "--depth", "1", f"file://{repository}", shallow)
    assert built(shallow)[0] == "0.1.0"

    tarball = os.path.join(repository, "tarball")  # within another project's repository
    os.mkdir(tarball)
    write_project(tarball)
    assert built(tarball)[0] == "0.1.0"


if __name__ == "__main__":
    if not shutil.which("git") or not shutil.which("ninja"):
        print("skipped: needs git and ninja")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="cairn-version-") as temporary:
        main(temporary)
