#!/usr/bin/env python3
"""Tries run.py as with limited time on a GPU, with doubles for the GPU, the tests and compute-sanitizer.

Shown are the order of the tests, what the summary says of libraries, what the sanitizers are asked for, and what the
benches get. The doubles are shell scripts; the GPU is an answer.
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import run as runbook  # noqa: E402

TESTS = ("port_compute_layers_cuda", "port_compute_cuda", "trainer_stages_cuda", "port_compute_norm_cuda", "precision_cuda")
ORDER = ["precision_cuda", "port_compute_norm_cuda", "port_compute_cuda", "trainer_stages_cuda",
         "port_compute_layers_cuda"]
FOUND = ["cuBLASLt: libcublasLt.so.13, version 130400", "cuDNN: libcudnn.so.9, version 92600",
         "NCCL: **not found**: nothing below is about it"]
SANITIZER = """#!/bin/sh
echo "$CAIRN_TRIAL $*" >> "{folder}/sanitized"
"""


def expect(truth, what):
    if not truth:
        sys.exit(f"run_rules.py: {what}")


def make_build(folder):
    """What --pack leaves, with tests that say one line each."""
    tests = [{"name": name, "environment": [], "timeout": 300, "several": False,
              "command": ["/bin/sh", "-c", f"echo {name} >> {folder}/begun; echo ' warn  cuda: no plan for {name}'"]}
             for name in TESTS]
    (folder / runbook.LIST).write_text(json.dumps(tests))
    (folder / runbook.EXPORTED).mkdir()
    (folder / runbook.EXPORTED / "rows.json").write_text("[]")
    (folder / "compute-sanitizer").write_text(SANITIZER.format(folder=folder))
    (folder / "compute-sanitizer").chmod(0o755)
    return folder


def run(folder, libraries, *options):
    """(exit code, text of the summary)."""
    runbook.find_gpu = lambda: (("a GPU", "9.0", "13.0"), 1)
    runbook.find_libraries = lambda _build: libraries
    sys.argv = ["run.py", str(folder), str(folder / "results"), *options]
    return runbook.main(), (folder / "results/summary.md").read_text()


def tests_run_by_value_and_the_summary_lists_what_was_refused(folder):
    code, summary = run(folder, FOUND, "--part", "tests")
    expect(code == 0, f"exit code {code}: {summary}")
    begun = (folder / "begun").read_text().split()
    expect(begun == ORDER, f"the order is {begun}")
    expect("- warn  cuda: no plan for precision_cuda (precision_cuda)" in summary, f"no refusal in {summary}")


def a_library_that_is_missing_fails_the_run(folder):
    code, summary = run(folder, ["cuBLASLt: **not found**: nothing below is about it", *FOUND[1:]], "--part", "tests")
    expect(code == 1, f"exit code {code}")
    expect("| cuBLASLt | failed: the library was not found |" in summary, summary)


def what_does_not_begin_in_time_is_named(folder):
    code, summary = run(folder, FOUND, "--part", "tests", "--seconds", "0.5")
    expect(code == 1, f"exit code {code}")
    expect(all(f"| {name} | did not begin in time |" in summary for name in TESTS), summary)


def sanitizers_look_at_own_kernels_and_run_each_case_once(folder):
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    code, summary = run(folder, FOUND, "--part", "sanitizers")
    lines = (folder / "sanitized").read_text().splitlines()
    expect(code == 0, f"exit code {code}: {summary}")
    expect(all(line.startswith("once --tool ") and "--kernel-name kns=cuda_kernel_" in line for line in lines), lines)
    tools = [line.split()[2] for line in lines]
    expect(tools == ["racecheck"] * 2 + ["memcheck"] * 3 + ["initcheck"], f"the tools are {tools}")


def benches_get_the_time_that_is_left_and_the_models_that_were_carried(folder):
    (folder / "build/bin").mkdir(parents=True)
    (folder / "build/bin/cairn-node").touch()
    made = runbook.Run(folder, folder / "results", folder, 300)
    command = runbook.bench_command(made, folder / "build/bin/cairn-node")
    expect(command[command.index("--exported") + 1] == str(folder / runbook.EXPORTED), f"not carried: {command}")
    expect(0 < float(command[command.index("--until") + 1]) <= 300 - runbook.BENCH_END_S, f"not bounded: {command}")
    code, summary = run(folder, FOUND, "--part", "benches")  # no row: nothing fails
    expect(code == 0 and "| benches | passed |" in summary, f"exit code {code}: {summary}")
    expect("| model, batch |" in (folder / "results/bench.md").read_text(), "no table is left")


CASES = (tests_run_by_value_and_the_summary_lists_what_was_refused, a_library_that_is_missing_fails_the_run,
         what_does_not_begin_in_time_is_named, sanitizers_look_at_own_kernels_and_run_each_case_once,
         benches_get_the_time_that_is_left_and_the_models_that_were_carried)


def main():
    for case in CASES:
        with tempfile.TemporaryDirectory() as directory:
            case(make_build(pathlib.Path(directory)))
        print(case.__name__.replace("_", " "))


if __name__ == "__main__":
    main()
