"""The completion of bash: commands and options of --help, names of boards of a gateway, versions.

    completion.py BIN
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile

from cluster import SOURCE

COMPLETION = os.path.join(SOURCE, "cmake", "package", "completion.bash")
GATEWAY = """\
schema: cairn/site/v1
name: gateway
state: state
gateway: {listen: "127.0.0.1:5684"}
data: {digits: {inputs: i.npy, labels: l.npy}}
job: {name: digits, model: model.onnx, data: {set: digits}}
"""


def completed(build, folder, *words):
    """What bash offers for the last of the words."""
    program = os.path.join(os.path.abspath(build), words[0])
    line = " ".join(map(shlex.quote, [program, *words[1:]]))
    script = (f"source {shlex.quote(COMPLETION)}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
              f"_cairn {shlex.quote(program)}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    result = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stderr, result
    return result.stdout.split()


def main(build):
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
        with open(os.path.join(folder, "gateway.yaml"), "w") as file:
            file.write(GATEWAY)
        shutil.copy(os.path.join(SOURCE, "tests/data/digits/digits-mlp.onnx"), os.path.join(folder, "model.onnx"))
        for board in ("press-1", "press-2", "saw"):
            subprocess.run([os.path.join(os.path.abspath(build), "cairn-aggregator"), "enroll", "gateway.yaml", board],
                           cwd=folder, check=True, capture_output=True, timeout=60)
        assert completed(build, folder, "cairn-aggregator", "exp") == ["export"]
        assert "train" in completed(build, folder, "cairn-node", "")
        assert "--steps" in completed(build, folder, "cairn-node", "train", "--st")
        assert completed(build, folder, "cairn-aggregator", "status", "gate") == ["gateway.yaml"]
        revoke = ("cairn-aggregator", "revoke", "gateway.yaml")
        assert completed(build, folder, *revoke, "") == ["press-1", "press-2", "saw"]
        assert completed(build, folder, *revoke, "press-") == ["press-1", "press-2"]
        assert completed(build, folder, "cairn-aggregator", "export", "gateway.yaml", "--version", "b") == ["best"]


if __name__ == "__main__":
    main(*sys.argv[1:])
