#!/usr/bin/env python3
"""Tries tests/peers/torch/gpu.py with doubles of cairn-node and of PyTorch: order, printing, deadline, failures.

    bench_rows.py [slow]          the quick cases, or the one that waits for a deadline
    bench_rows.py node ...        is the double of cairn-node
    bench_rows.py torch ...       is the double of the Python that has PyTorch

The doubles wait or fail where a file in the folder of the models says so, so that no case depends on speed.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SCRIPT = pathlib.Path(__file__).resolve()
GPU = SCRIPT.parent.parent / "peers/torch/gpu.py"
NAMES = ("autoencoder", "MLP", "LSTM", "ResNet-50")  # of the exported rows, the other way round
PATIENCE_S = 60  # for what must come
ANSWERS = {"Cairn": {"step_ms_median": 2.0, "planned_bytes": 2**20}, "eager": {"ms": 3.0, "bytes": 3 * 2**20},
           "compiled": {"ms": 1.0, "bytes": 2**20}}


def play_node():
    """`cairn-node bench --json PROFILE`: its model's file says what happens."""
    profile = pathlib.Path(sys.argv[4]).read_text()
    model = pathlib.Path(next(line.split(": ")[1] for line in profile.splitlines() if "model:" in line))
    wish = model.read_text()
    if wish == "fail":
        sys.exit("this model cannot be trained")
    if wish == "wait":
        until = time.monotonic() + PATIENCE_S
        while not (model.parent / "go").exists() and time.monotonic() < until:
            time.sleep(0.01)
    print(json.dumps(ANSWERS["Cairn"]))


def play_torch():
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("model") == "MLP" and request["side"] == "eager":
            sys.exit("out of memory")
        print(json.dumps({"text": "a GPU; PyTorch 0"} if "about" in request else ANSWERS[request["side"]]), flush=True)


def make_folder(directory):
    """What gpu_worker.py exports, and the two doubles as programs."""
    folder = pathlib.Path(directory)
    rows = [{"name": name, "file": f"{name}.onnx", "batch": 8, "loss": "mse"} for name in NAMES]
    (folder / "rows.json").write_text(json.dumps(rows))
    for name in NAMES:
        (folder / f"{name}.onnx").write_text("run")
    for double in ("node", "torch"):
        path = folder / double
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -B "{SCRIPT}" {double} "$@"\n')
        path.chmod(0o755)
    return folder


def begin(folder, *options):
    command = [sys.executable, "-B", str(GPU), str(folder / "node"), "--exported", str(folder), "--torch",
               str(folder / "torch"), "--precision", "float32", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process):
    """(exit code, lines) of a comparison that ends by itself."""
    text = process.communicate(timeout=PATIENCE_S)[0]
    return process.returncode, text.splitlines()


def expect(truth, what):
    if not truth:
        sys.exit(f"bench_rows.py: {what}")


def rows_are_printed_by_value_and_each_when_it_is_measured(folder):
    (folder / "MLP.onnx").write_text("wait")
    with begin(folder) as process:
        names = []
        for line in process.stdout:  # before the MLP's double may end
            names += [line.split(",")[0][2:]] if " | float32 | " in line else []
            if len(names) == 2:
                break
        expect(names == ["ResNet-50", "LSTM"], f"the first rows are {names}")
        (folder / "go").touch()
        code, lines = end(process)
    expect(code == 0, f"exit code {code}: {lines}")
    expect("| ResNet-50, 8 | float32 | 2.000 | 1.000 | 0.50 |" in lines, f"no row of compiled PyTorch: {lines}")


def a_side_that_dies_costs_one_figure(folder):
    with begin(folder) as process:
        code, lines = end(process)
    expect(code == 0, f"exit code {code}: {lines}")
    expect("| LSTM, 8 | float32 | 2.000 | 3.000 | 1.50 | 1 | 3 |" in lines, f"no row of the LSTM: {lines}")
    expect("| MLP, 8 | float32 | 2.000 | - | - | 1 | - |" in lines, f"no row of the MLP: {lines}")
    expect("| autoencoder, 8 | float32 | 2.000 | 3.000 | 1.50 | 1 | 3 |" in lines, f"nothing after it: {lines}")
    expect("- MLP, float32, eager: out of memory" in lines, f"no reason: {lines}")


def a_model_that_fails_is_named_and_fails_the_run(folder):
    (folder / "LSTM.onnx").write_text("fail")
    with begin(folder, "--models", "LSTM,Auto,auto") as process:
        code, lines = end(process)
    expect(code == 1, f"exit code {code}: {lines}")
    expect("- LSTM, float32, Cairn: this model cannot be trained" in lines, f"no reason: {lines}")
    expect(any("autoencoder" in line and "3.000" in line for line in lines), f"nothing after it: {lines}")


def nothing_begins_after_the_deadline(folder):
    with begin(folder, "--until", "0") as process:
        code, lines = end(process)
    expect(code == 1, f"exit code {code}: {lines}")
    expect("- ResNet-50, float32, eager" in lines, f"the row is not named: {lines}")


def a_machine_without_a_gpu_is_left_out(folder):
    for name in NAMES:
        (folder / f"{name}.onnx").write_text("fail")
    with begin(folder) as process:
        code, lines = end(process)
    expect(code == 77, f"exit code {code}: {lines}")
    expect("cannot be trained" in lines[-1], f"the last line has no reason: {lines}")


def a_row_that_hangs_ends_at_the_deadline(folder):
    (folder / "LSTM.onnx").write_text("wait")
    with begin(folder, "--until", "20") as process:
        code, lines = end(process)
    expect(code == 1, f"exit code {code}: {lines}")
    expect(any("ResNet-50" in line and "2.000" in line for line in lines), f"the first row is lost: {lines}")
    expect("- LSTM, float32, Cairn: did not end in time" in lines, f"the row that hangs is not named: {lines}")


CASES = (rows_are_printed_by_value_and_each_when_it_is_measured, a_side_that_dies_costs_one_figure,
         a_model_that_fails_is_named_and_fails_the_run, nothing_begins_after_the_deadline,
         a_machine_without_a_gpu_is_left_out)
SLOW = (a_row_that_hangs_ends_at_the_deadline,)  # it waits for the deadline


def main():
    if sys.argv[1:2] == ["node"]:
        return play_node()
    if sys.argv[1:2] == ["torch"]:
        return play_torch()
    if sys.argv[1:] not in ([], ["slow"]):
        return f"there is no set of cases {sys.argv[1:]}"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for case in SLOW if sys.argv[1:] == ["slow"] else CASES:
        with tempfile.TemporaryDirectory() as directory:
            case(make_folder(directory))
        print(case.__name__.replace("_", " "))
    return 0


if __name__ == "__main__":
    sys.exit(main())
