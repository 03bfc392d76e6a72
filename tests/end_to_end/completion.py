"""The completion of a shell: commands and options of --help, names of boards of a gateway, versions.

    completion.py BIN [bash|zsh|fish]...
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile

from cluster import SOURCE

PACKAGE = os.path.join(SOURCE, "cmake", "package")
GATEWAY = """\
schema: cairn/site/v1
name: gateway
state: state  # beside this file
gateway: {listen: "127.0.0.1:5684"}
data: {digits: {inputs: i.npy, labels: l.npy}}
job: {name: digits, model: model.onnx, data: {set: digits}}
"""
# zsh completes in a terminal of its own. compadd tells what fits the word; the mark says that all is told.
ZSH = """\
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PATH=%(path)s PS1= fpath=(%(folder)s/functions $fpath); cd %(folder)s'
zpty -w shell 'autoload -Uz compinit; compinit -D -u; zstyle ":completion:*" menu yes'
zpty -w shell 'compadd() { local -a hits; builtin compadd -O hits "$@"; print -rl -- $hits >>%(folder)s/hits; builtin compadd "$@" }'
zpty -w shell 'tell() { zle complete-word; : >%(folder)s/mark; }; zle -N tell; bindkey "^X^T" tell; : >%(folder)s/ready'
while [[ ! -e %(folder)s/ready ]]; do zpty -r -t shell text; sleep 0.02; done
zpty -w -n shell %(line)s$'\\C-X\\C-T'
while [[ ! -e %(folder)s/mark ]]; do zpty -r -t shell text; sleep 0.02; done
zpty -d shell
"""


def ran(shell, script, folder, path):
    result = subprocess.run([shell, "-c", script], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0 and not result.stderr, (shell, result)
    return result.stdout


def bash(folder, path, words):
    line = " ".join(map(shlex.quote, words))
    return ran("bash", f"source {PACKAGE}/completion.bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
               f"_cairn {words[0]}; printf '%s\\n' \"${{COMPREPLY[@]}}\"", folder, path).split()


def zsh(folder, path, words):
    with tempfile.TemporaryDirectory(prefix="cairn-zsh-") as own:
        os.mkdir(os.path.join(own, "functions"))
        shutil.copy(f"{PACKAGE}/completion.zsh", os.path.join(own, "functions", "_cairn-node"))
        for name in os.listdir(folder):
            os.symlink(os.path.join(folder, name), os.path.join(own, name))
        ran("zsh", ZSH % {"path": path, "folder": own, "line": shlex.quote(" ".join(words))}, folder, path)
        with open(os.path.join(own, "hits"), encoding="utf-8") as file:
            return list(dict.fromkeys(file.read().split()))


def fish(folder, path, words):
    said = ran("fish", f"source {PACKAGE}/completion.fish; complete -C {shlex.quote(' '.join(words))}", folder, path)
    return [line.split("\t")[0] for line in said.splitlines()]


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def make_gateway(folder, program):
    """A gateway with three boards. Versions 0, 1, 2 and 10 stand in its state; of 3 there is only the delta."""
    with open(os.path.join(folder, "gateway.yaml"), "w", encoding="utf-8") as file:
        file.write(GATEWAY)
    shutil.copy(os.path.join(SOURCE, "tests/data/digits/digits-mlp.onnx"), os.path.join(folder, "model.onnx"))
    for board in ("press-1", "press-2", "saw"):
        subprocess.run([program, "enroll", "gateway.yaml", board], cwd=folder, check=True, capture_output=True, timeout=60)
    for name in ("version-0.full", "version-1.full", "version-2.full", "version-10.full", "version-3.delta"):
        with open(os.path.join(folder, "state", name), "w", encoding="utf-8"):
            pass


def check(complete, folder, path):
    """What a shell offers for the last of the words."""
    def offered(*words):
        return complete(folder, path, words)

    assert offered("cairn-aggregator", "exp") == ["export"]
    assert "train" in offered("cairn-node", "")
    assert "--steps" in offered("cairn-node", "train", "--st")
    assert offered("cairn-aggregator", "status", "gate") == ["gateway.yaml"]
    revoke = ("cairn-aggregator", "revoke", "gateway.yaml")
    assert offered(*revoke, "") == ["press-1", "press-2", "saw"]
    assert offered(*revoke, "press-") == ["press-1", "press-2"]
    assert sorted(offered("cairn-aggregator", "rollback", "gateway.yaml", "")) == ["0", "1", "10", "2", "best"]
    assert offered("cairn-flash", "wait", "--gateway", "gateway.yaml", "--name", "s") == ["saw"]
    export = ("cairn-aggregator", "export", "gateway.yaml", "--version")
    assert offered(*export, "b") == ["best"]
    assert sorted(offered(*export, "")) == ["0", "1", "10", "2", "best", "last"], offered(*export, "")
    assert sorted(offered(*export, "1")) == ["1", "10"]
    after = ("cairn-aggregator", "init", "--after", "state", "--version")
    assert sorted(offered(*after, "")) == ["0", "1", "10", "2", "best", "last", "none"], offered(*after, "")
    assert offered("cairn-node", "--log-level", "w") == ["warn"]
    assert offered("cairn-aggregator", "try", "--split", "l") == ["labels"]
    assert offered("cairn-node", "train", "--device", "cu") == ["cuda"]


def main(build, *names):
    names = names or SHELLS
    for name in names:
        assert name in SHELLS, f"there is no shell {name}"
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        print(f"skipped: needs {', '.join(missing)}")
        sys.exit(77)
    path = f"{os.path.abspath(build)}:{os.environ['PATH']}"
    for name in names:
        with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
            make_gateway(folder, os.path.join(os.path.abspath(build), "cairn-aggregator"))
            check(SHELLS[name], folder, path)
        print(f"{name}: commands, options, boards, versions")


if __name__ == "__main__":
    main(*sys.argv[1:])
