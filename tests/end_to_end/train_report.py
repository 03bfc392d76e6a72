"""`cairn-node train --report`: the rounds as a page, CSV and JSON, over a kill, a round trained again and a new start.

    train_report.py BUILD [SCENARIO...]
"""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from bad_models import npy, plain, profile, write  # noqa: E402
from scenarios import Scenarios  # noqa: E402

scenario = Scenarios()


def train(build, folder, *options, code=0):
    done = subprocess.run([os.path.join(build, "cairn-node"), "train", *options, "site.yaml"], cwd=folder, timeout=60,
                          capture_output=True, text=True)
    assert done.returncode == code, done
    return [json.loads(line) for line in done.stdout.splitlines()] if "--json" in options else done.stderr


def read(folder, name):
    with open(os.path.join(folder, name)) as file:
        return file.read()


@scenario
def a_report_has_each_round_once(build):
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
        npy(os.path.join(folder, "x.npy"), 8, 4, [0.25 * (i % 7) for i in range(32)])
        npy(os.path.join(folder, "y.npy"), 8, 2, [0.5] * 16)
        write(os.path.join(folder, "model.onnx"), plain())
        profile(folder)
        said = train(build, folder, "--report", "run.txt", code=2)
        assert "ends neither in .html" in said, said
        said = train(build, folder, "--report", "nowhere/run.csv", code=2)
        assert "--report nowhere/run.csv: No such file or directory" in said and "round" not in said, said
        before = train(build, folder, "--json", "--steps", "60", "--report", "run.json")
        history = os.path.join(folder, "state", "history.csv")
        with open(history, "a") as file:  # rounds of a program that was killed before its checkpoint, and half a line
            file.write(f"{before[-1]['round'] + 1},9,9,9,9,9,9,9,9,9\n{before[-1]['round'] + 2},8,8,8,8,8,8,8,8,8\nnonsense\n7,")
        after = train(build, folder, "--json", "--steps", "120", "--report", "run.csv")
        rounds = [entry["round"] for entry in before + after]
        assert rounds == list(range(1, len(rounds) + 1)) and len(after) > 1, rounds
        assert [entry["round"] for entry in json.loads(read(folder, "run.json"))["rounds"]] == rounds[:len(before)]
        rows = list(csv.DictReader(io.StringIO(read(folder, "run.csv"))))
        assert [int(row["round"]) for row in rows] == rounds, rows
        for row, entry in zip(rows, before + after):
            assert abs(float(row["train_loss"]) - entry["train_loss"]) <= 1e-5 * abs(entry["train_loss"]), (row, entry)
        train(build, folder, "--steps", "140", "--report", "run.html")
        page = read(folder, "run.html")
        assert page.count("<tr>") > len(rounds) and "<polyline" in page and "default-src 'none'" in page, page
        assert "http:" not in page.replace("http-equiv", "") and "<script" not in page, page
        again = train(build, folder, "--json", "--anew", "--steps", "20", "--report", "run.json")
        assert [entry["round"] for entry in json.loads(read(folder, "run.json"))["rounds"]] == [
            entry["round"] for entry in again]


if __name__ == "__main__":
    scenario.main()
