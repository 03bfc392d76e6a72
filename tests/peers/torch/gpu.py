#!/usr/bin/env python3
"""Times training steps of the zoo on a GPU: Cairn beside eager and compiled PyTorch. Prints Markdown tables.

    gpu.py CAIRN_NODE [--exported FOLDER] [--models NAME,...] [--precision P,...] [--rounds N] [--seconds S]
                      [--until S] [--torch PYTHON] [--device cpu]

CAIRN_NODE is build/release/bin/cairn-node. FOLDER is what `gpu_worker.py export FOLDER` left, on any machine with
PyTorch; without it the models are exported first. A row is a model in a precision. It is printed as soon as it is
measured: first all rows with eager PyTorch, those that tell most at the beginning, then compiled PyTorch, which
compiles for up to a minute each. After --until seconds nothing goes on: what was not measured is named.

Cairn's steps are timed by `cairn-node bench`, in a process for each row, from the copy of the batch to the end of
the step; PyTorch's as gpu_worker.py says, in one process for all rows, which is started again when it dies. A figure
is the median of N rounds. Memory: what PyTorch allocated at most, what Cairn planned. PYTHON is the Python that has
PyTorch; without PyTorch Cairn's figures stand alone. --device cpu tries the script itself.

Ends with 0, with 1 where a row lacks Cairn's figure or was not begun in time, and with 77 and a line that says why
where nothing could be measured. Standard library only.
"""
import argparse
import json
import pathlib
import select
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# What tells most. A row comes before another when a word of its name stands earlier here.
FIRST = ("ResNet-50", "GPT", "ViT", "MobileNetV2", "LSTM", "MLP")
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
ANSWER_S = 300  # longest wait for an answer of PyTorch, which may compile
BENCH_S = 120  # longest run of `cairn-node bench`, which measures for 10 s
LATE = "did not end in time"
PROFILE = """schema: cairn/site/v1
state: state
device: {device}
{compute}data: {{d: {{inputs: none.npy, labels: none.npy}}}}
job:
  name: d
  model: {model}
  loss: {loss}
  data: {{set: d}}
  train: {{batch: {batch}, local_steps: 1}}
  rounds: {{count: 1}}
"""


def refuse(why):
    print(f"gpu.py: {why}", file=sys.stderr)
    sys.exit(77)


def last_line(text, otherwise):
    lines = text.strip().splitlines()
    return lines[-1] if lines else otherwise


class Clock:
    """How long the comparison may still take."""

    def __init__(self, seconds):
        self.end = float("inf") if seconds is None else time.monotonic() + seconds

    def left(self, most):
        return min(most, self.end - time.monotonic())

    def is_over(self):
        return self.left(1) <= 0


class Torch:
    """PyTorch in a process of its own, started when it is first asked and again after it died."""

    def __init__(self, python, errors):
        self.command = [python, "-W", "ignore", str(HERE / "gpu_worker.py"), "serve"]
        self.errors, self.process = errors, None

    def ask(self, request, seconds):
        """The answer, or an object that says why there is none."""
        try:
            if not self.process:
                with open(self.errors, "wb") as errors:
                    self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                    stderr=errors, bufsize=0)
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError as error:
            self.stop()
            return {"why": f"no answer: {error}"}
        if not select.select([self.process.stdout], [], [], max(seconds, 0))[0]:
            self.stop()
            return {"why": LATE}
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.stop()
        return {"why": last_line(self.errors.read_text(errors="replace"), "the process ended")}

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
        self.process = None


# One figure: (milliseconds, bytes), or a text that says why there is none.


def measure_cairn(row, precision, options, folder, clock):
    compute = f"compute: {{precision: {precision}}}\n" if precision != "float32" else ""
    profile = folder / "bench.yaml"
    profile.write_text(PROFILE.format(device=options.device, compute=compute, model=row["path"], loss=row["loss"],
                                      batch=row["batch"]))
    try:
        done = subprocess.run([str(options.node), "bench", "--json", str(profile)], cwd=folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=max(clock.left(BENCH_S), 0), check=False)
    except subprocess.TimeoutExpired:
        return LATE
    except OSError as error:
        return str(error)
    if done.returncode:
        return last_line(done.stderr + done.stdout, f"exit code {done.returncode}")
    found = json.loads(last_line(done.stdout, "{}"))
    return found["step_ms_median"], found["planned_bytes"]


def measure_torch(torch, side, row, precision, options, clock):
    found = torch.ask({"model": row["name"], "precision": precision, "side": side, "seconds": options.seconds,
                       "device": options.device}, clock.left(ANSWER_S))
    return (found["ms"], found["bytes"]) if "ms" in found else found["why"]


def median_of(figures):
    """Median milliseconds and the most bytes of some figures, or why there is none."""
    good = [figure for figure in figures if isinstance(figure, tuple)]
    return (statistics.median(ms for ms, _ in good), max(size for _, size in good)) if good else figures[0]


# The tables


def text_of(figure):
    return f"{figure[0]:.3f}" if isinstance(figure, tuple) else "-"


def ratio_of(theirs, ours):
    return f"{theirs[0] / ours[0]:.2f}" if isinstance(theirs, tuple) and isinstance(ours, tuple) else "-"


def size_of(figure):
    return f"{figure[1] / 2**20:.0f}" if isinstance(figure, tuple) else "-"


class Comparison:
    def __init__(self, rows, torch, options, folder, clock):
        self.rows, self.torch, self.options, self.folder, self.clock = rows, torch, options, folder, clock
        self.ours, self.notes, self.late = {}, [], []

    def note(self, row, precision, side, figure):
        if not isinstance(figure, tuple):
            self.notes.append(f"{row['name']}, {precision}, {side}: {figure}")

    def each(self, side):
        """The rows for a side, as long as there is time."""
        for row in self.rows:
            for precision in self.options.precisions:
                if self.clock.is_over():
                    self.late.append(f"{row['name']}, {precision}, {side}")
                else:
                    yield row, precision

    def compare_eager(self):
        print("| model, batch | precision | Cairn ms | eager ms | eager / Cairn | Cairn MiB | eager MiB |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for row, precision in self.each("eager"):
            ours, theirs = [], []
            for _ in range(self.options.rounds):
                ours.append(measure_cairn(row, precision, self.options, self.folder, self.clock))
                theirs.append(measure_torch(self.torch, "eager", row, precision, self.options, self.clock)
                              if self.torch else "no PyTorch")
            ours, theirs = median_of(ours), median_of(theirs)
            self.ours[row["name"], precision] = ours
            self.note(row, precision, "Cairn", ours)
            if self.torch:
                self.note(row, precision, "eager", theirs)
            print(f"| {row['name']}, {row['batch']} | {precision} | {text_of(ours)} | {text_of(theirs)} "
                  f"| {ratio_of(theirs, ours)} | {size_of(ours)} | {size_of(theirs)} |", flush=True)

    def compare_compiled(self):
        print("\n| model, batch | precision | Cairn ms | compiled ms | compiled / Cairn |")
        print("|---|---|---|---|---|", flush=True)
        for row, precision in self.each("compiled"):
            ours = self.ours.get((row["name"], precision), "-")
            theirs = median_of([measure_torch(self.torch, "compiled", row, precision, self.options, self.clock)
                                for _ in range(self.options.rounds)])
            self.note(row, precision, "compiled", theirs)
            print(f"| {row['name']}, {row['batch']} | {precision} | {text_of(ours)} | {text_of(theirs)} "
                  f"| {ratio_of(theirs, ours)} |", flush=True)

    def finish(self):
        """Names what is missing. Returns the exit code."""
        for title, lines in (("Not measured:", self.notes), ("Not begun in time:", self.late)):
            if lines:
                print(f"\n{title}\n\n- " + "\n- ".join(lines), flush=True)
        measured = [figure for figure in self.ours.values() if isinstance(figure, tuple)]
        if self.ours and not measured:
            refuse(f"cairn-node trains no model on {self.options.device}: {next(iter(self.ours.values()))}")
        return 1 if self.late or len(measured) < len(self.rows) * len(self.options.precisions) else 0


def value_of(row):
    return next((i for i, word in enumerate(FIRST) if word in row["name"]), len(FIRST))


def read_rows(options, folder, clock):
    if not options.exported:
        done = subprocess.run([options.torch, "-W", "ignore", str(HERE / "gpu_worker.py"), "export", str(folder),
                               options.models], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              timeout=clock.left(3600), check=False)
        if done.returncode:
            refuse(f"the models are not exported: {last_line(done.stderr, f'exit code {done.returncode}')}")
        options.exported = folder
    try:
        rows = json.loads((options.exported / "rows.json").read_text())
    except OSError as error:
        refuse(f"no exported models: {error}")
    for row in rows:
        row["path"] = options.exported / row["file"]
    return sorted((row for row in rows if any(part in row["name"] for part in options.models.split(","))), key=value_of)


def compare(options):
    clock = Clock(options.until)
    with tempfile.TemporaryDirectory(prefix="cairn-gpu-") as directory:
        folder = pathlib.Path(directory)
        rows, torch = read_rows(options, folder, clock), Torch(options.torch, folder / "torch.log")
        told = torch.ask({"about": options.device}, clock.left(ANSWER_S))
        print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {told.get('text') or 'no PyTorch: ' + told['why']}; "
              f"{options.rounds} x {options.seconds:g} s for each figure.\n", flush=True)
        comparison = Comparison(rows, torch if "text" in told else None, options, folder, clock)
        comparison.compare_eager()
        if comparison.torch:
            comparison.compare_compiled()
        torch.stop()
        return comparison.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("node", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--exported", type=lambda path: pathlib.Path(path).resolve(), metavar="FOLDER")
    parser.add_argument("--models", default="", help="only rows whose name contains one of these")
    parser.add_argument("--precision", default=",".join(PRECISIONS), help="some of " + ",".join(PRECISIONS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--until", type=float, help="seconds after which nothing goes on")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    options.precisions = options.precision.split(",")
    if not set(options.precisions) <= set(PRECISIONS):
        parser.error(f"--precision {options.precision}: wanted some of {','.join(PRECISIONS)}")
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
