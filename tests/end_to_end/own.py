"""A user's own model and data: exported by PyTorch, trained by cairn-node, loaded back into PyTorch.

    own.py BIN PYTHON        PYTHON has NumPy and PyTorch
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(directory, *command):
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, f"{' '.join(command)}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def main(build, python):
    node = os.path.join(build, "cairn-node")
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as base:
        directory = os.path.join(base, "own")
        shutil.copytree(os.path.join(SOURCE, "tests", "examples", "own"), directory)
        run(directory, python, "make_data.py")
        run(directory, python, "export.py")
        run(directory, node, "check", "model.onnx")
        run(directory, node, "check", "site.yaml")
        rounds = [json.loads(line) for line in run(directory, node, "train", "--json", "site.yaml").splitlines()]
        assert rounds[-1]["held_out_accuracy"] >= 0.9, rounds[-1]
        # The profile that init writes names the same files: it trains as it is.
        run(directory, node, "init", "--alone", "first.yaml")
        run(directory, node, "check", "first.yaml")
        run(directory, node, "bench", "first.yaml")
        predicted = json.loads(run(directory, node, "bench", "--predict", "--json", "first.yaml"))
        steps = {device["device"]: device["step_ms"] for device in predicted["devices"]}
        assert predicted["calls"] and 0 < steps["H100 SXM"] < steps["Jetson Orin Nano 8GB"], predicted
        measured = run(directory, python, "load_back.py", "state/model.safetensors")
        assert float(measured.split()[1]) >= 0.9, measured
        print(f"held-out accuracy {rounds[-1]['held_out_accuracy']}, in PyTorch on all samples {measured.split()[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
