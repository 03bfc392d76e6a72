"""Plays a page of docs/: its files are written, its commands run in one shell, their output compared.

    tutorial.py BIN PAGE [PYTHON]        PYTHON stands for the page's python3

A ```yaml block begins with a comment that names its file. In a ```console block a line with "$ " is a command, the lines
below it are its output. Every number and digest of the page stands for any other one, and "…" for any text or any lines.
A command that looks on (`LOOKING`) runs again until it says what the page says. Where more may be said than the page has, as in
a log or a status, lines and words between those of the page do not matter.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cluster import SOURCE, free_ports

LOOKING = ("cairn-aggregator status", "cairn-node status", "tail ")
LOGGING = ("cairn-aggregator run", "cairn-aggregator try", "cairn-node train")
PORTS = ("5684", "7100", "7102", "8684")  # of the pages; others are free here
PATIENCE = 120  # seconds, for a command to end or to say what the page says
MARK = "--- the command is done ---"
TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\S+ +|\+[\d.]+s +)")  # at the start of a log line
DIGEST = re.compile(r"\b[0-9a-f]{12,64}\b")
NUMBER = re.compile(r"(?<![\w.])(?<!board-)\d[\d.]*")
UNIT = re.compile(r"# ([kM]?B)\b")
NOTICE = re.compile(r"^\S*bash: line \d+: +\d+ ")  # the shell's word about a process that was killed


class Command:
    def __init__(self, text, line):
        self.text = text
        self.line = line
        self.wanted = []

    def looks_on(self):
        return self.text.startswith(LOOKING)

    def told(self, output):
        compare = says if self.looks_on() or self.text.startswith(LOGGING) else equals
        return compare(plain(output), plain(self.wanted))


def plain(lines):
    """Lines without what varies: times of a log, digests, numbers, units of bytes, spaces."""
    result = []
    for line in lines:
        if NOTICE.match(line):
            continue
        line = DIGEST.sub("#", TIME.sub("", line))
        line = UNIT.sub("# B", NUMBER.sub("#", line))
        if line.strip():
            result.append(" ".join(line.split()))
    return result


def equals(lines, wanted):
    """Line by line; the line "…" is any number of lines."""
    if not wanted:
        return not lines
    if wanted[0] == "…":
        return any(equals(lines[i:], wanted[1:]) for i in range(len(lines) + 1))
    return bool(lines) and pattern(wanted[0]).fullmatch(lines[0]) is not None and equals(lines[1:], wanted[1:])


def says(lines, wanted):
    """Lines in this order that have the wanted words in this order, whatever else there is."""
    at = 0
    for want in wanted:
        if want == "…":
            continue
        words = re.compile(".*".join(pattern(word).pattern for word in want.split()))
        while at < len(lines) and not words.search(lines[at]):
            at += 1
        if at == len(lines):
            return False
        at += 1
    return True


def pattern(text):
    return re.compile(".*".join(map(re.escape, text.split("…"))))


def read_page(text):
    """The files and commands of the page in their order: (name, content) or a Command."""
    steps, block = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            block = line[3:] if block is None else None
            if block == "yaml":
                steps.append(None)
        elif block == "yaml" and steps[-1] is None:
            steps[-1] = (re.fullmatch(r"# (\S+\.yaml)", line).group(1), "")
        elif block == "yaml":
            steps[-1] = (steps[-1][0], steps[-1][1] + line + "\n")
        elif block == "console" and line.startswith("$ "):
            steps.append(Command(line[2:], number))
        elif block == "console":
            steps[-1].wanted.append(line)
    return steps


class Shell:
    """One bash that runs the page's commands, in the folder that stands for the clone."""

    def __init__(self, folder):
        path = os.path.join(folder, "python") + os.pathsep + os.environ["PATH"]
        self.process = subprocess.Popen(["bash"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                        env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"})

    def run(self, command):
        """Lines that it wrote, and its exit code."""
        watch = threading.Timer(PATIENCE, self.end)
        watch.start()
        self.process.stdin.write(f"{command}\ncode=$?; echo; echo '{MARK}' $code\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith(MARK):
                watch.cancel()
                return lines, int(line.split()[-1])
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"'{command}' did not end in {PATIENCE} s:\n" + "\n".join(lines))

    def folder(self):
        return self.run("pwd")[0][0]

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def play(shell, page, command):
    deadline = time.monotonic() + PATIENCE
    while True:
        output, code = shell.run(command.text)
        if code == 0 and command.told(output):
            return output
        if not command.looks_on() or time.monotonic() > deadline:
            raise AssertionError(f"{page}:{command.line}: '{command.text}' ended with {code} and said\n    " +
                                 "\n    ".join(output) + "\nin place of\n    " + "\n    ".join(command.wanted))
        time.sleep(0.1)


def stand_in_for_clone(folder, build, python):
    """What the pages use of a clone and of a user's machine."""
    os.makedirs(os.path.join(folder, "build", "release"))
    os.symlink(os.path.abspath(build), os.path.join(folder, "build", "release", "bin"))
    os.symlink(os.path.join(SOURCE, "tests"), os.path.join(folder, "tests"))
    os.mkdir(os.path.join(folder, "python"))
    with open(os.path.join(folder, "python", "python3"), "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec "{python}" "$@"\n')
    os.chmod(file.name, 0o755)


def play_all(shell, page, steps):
    """What each command said."""
    said = {}
    for step in steps:
        if isinstance(step, Command):
            said[step.text] = play(shell, page, step)
            continue
        with open(os.path.join(shell.folder(), step[0]), "w", encoding="utf-8") as file:
            file.write(step[1])
    return said


def main():
    build, page, python = sys.argv[1], sys.argv[2], (sys.argv + [sys.executable])[3]
    with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
        text = file.read()
    for port, free in zip(PORTS, free_ports(len(PORTS))):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    steps = read_page(text)
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
        stand_in_for_clone(folder, build, python)
        shell = Shell(folder)
        try:
            said = play_all(shell, page, steps)
        finally:
            shell.end()
    for line in said.get("cairn-aggregator replay gateway.yaml", []):
        assert "differ" not in line or " 0 differ, 0 not checked" in line, line
    commands = sum(isinstance(step, Command) for step in steps)
    print(f"{commands} commands, {len(steps) - commands} files")


if __name__ == "__main__":
    main()
