"""What a process that trains holds beyond the plan of its memory: at most 16 MiB, however large the model's file is.

    resident.py BENCH_STEP CAIRN_NODE
"""

import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import wide_model  # noqa: E402

LIMIT = 16 << 20
HIDDEN = [2048, 2048, 2048]  # 34 MB of weights: a second copy shows
DIGITS = os.path.join(SOURCE, "tests", "data", "digits", "board-1")

JOB = """schema: cairn/job/v1
name: wide
model: wide.onnx
loss: cross_entropy
data: {set: digits, scale: 0.0625}
train: {batch: 8, local_steps: 2, optimizer: adam, learning_rate: 0.0003}
rounds: {count: 2}
"""
SITE = """schema: cairn/site/v1
state: state
threads: 1
data:
  digits: {inputs: %s-images.npy, labels: %s-labels.npy}
job: job.yaml
""" % (DIGITS, DIGITS)

# Starts a program and says what it held at most: the peak of all children of one process is that of the largest.
RUN = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
sys.exit(code)
"""


def compare(what, peak, planned):
    print(f"{what}: {(peak - planned) / 2**20:.1f} MiB beyond {planned / 2**20:.1f} planned")
    if peak - planned > LIMIT:
        sys.exit(f"wanted at most {LIMIT >> 20} MiB")


def bench(bench_step, path):
    for threads in ("1", "2"):
        output = subprocess.run([bench_step, path, "8", threads, "0.1"], capture_output=True, text=True, check=True)
        figures = json.loads(output.stdout)
        compare(f"{threads} threads", figures["peak_resident_bytes"], figures["planned_bytes"])


def train(node, folder, what, *options):
    run = subprocess.run([sys.executable, "-c", RUN, node, "train", "site.yaml", *options], cwd=folder, capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
    compare(what, int(run.stdout), int(re.search(r"memory: (\d+) bytes planned", run.stderr)[1]))


def main(bench_step, node):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "wide.onnx")
        wide_model.main(path, "1,8,8", *HIDDEN, 10)
        assert os.path.getsize(path) > 2 * LIMIT
        bench(bench_step, path)
        for name, text in (("job.yaml", JOB), ("site.yaml", SITE)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        train(node, folder, "training, stopped within a round", "--steps", "1")
        train(node, folder, "resumed, saved as ONNX", "--save", "out.onnx")
        train(node, folder, "resumed at the end, saved as safetensors", "--save", "out.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
