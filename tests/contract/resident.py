"""What a process that trains holds beyond the plan of its memory: at most 16 MiB, however large the model's file is.

    resident.py BENCH_STEP
"""

import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import wide_model  # noqa: E402

LIMIT = 16 << 20
HIDDEN = [2048, 2048, 2048]  # 34 MB of weights: a second copy shows


def main(bench_step):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "wide.onnx")
        wide_model.main(path, "1,8,8", *HIDDEN, 10)
        assert os.path.getsize(path) > 2 * LIMIT
        for threads in ("1", "2"):
            output = subprocess.run([bench_step, path, "8", threads, "0.1"], capture_output=True, text=True, check=True)
            figures = json.loads(output.stdout)
            beyond = figures["peak_resident_bytes"] - figures["planned_bytes"]
            print(f"{threads} threads: {beyond / 2**20:.1f} MiB beyond {figures['planned_bytes'] / 2**20:.1f} planned")
            if beyond > LIMIT:
                return f"wanted at most {LIMIT >> 20} MiB"
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
