#!/usr/bin/env python3
"""Times training steps of the zoo on a GPU: Cairn, eager and compiled PyTorch, in turn. Prints a Markdown table.

    gpu.py CAIRN_NODE [--rounds N] [--seconds S] [--models NAME,...] [--precision float32|bfloat16|float16]
                      [--device cpu]

CAIRN_NODE is build/release/bin/cairn-node. Every figure is from a process of its own and the median of N rounds,
in each of which all three run every row once. PyTorch's steps are timed by events of the device, ten between two
of them; Cairn's by `cairn-node bench`, from the copy of the batch to the end of the step. float32 is without TF32
on both sides; in 16 bits PyTorch runs under autocast (float16 with its gradient scaler). Memory: what PyTorch
allocated at most, what Cairn planned. Ends with 77 and a line that says what is missing where there is no GPU, no
PyTorch for it, or a cairn-node that does not find it. --device cpu tries the script itself, by the clock.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "zoo")]
SIDES = ("Cairn", "eager", "compiled")
STEPS_BETWEEN = 10
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


def need_torch(device):
    try:
        import torch
    except ImportError as error:
        refuse(f"no PyTorch: {error}")
    if device == "cuda" and not torch.cuda.is_available():
        refuse(f"PyTorch {torch.__version__} finds no GPU (built for CUDA {torch.version.cuda or 'none'})")
    return torch


# The PyTorch side, in a process of its own.


def make_step(torch, family, batch, options):
    """One training step as a function without arguments."""
    from record import loss_of

    model = family.build().train().to(options.device)
    inputs, labels = family.inputs(batch).to(options.device), family.labels(batch).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6, momentum=0.9)
    scaler = torch.cuda.amp.GradScaler(enabled=options.precision == "float16")
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(options.precision, torch.float32)
    forward = torch.compile(model) if options.side == "compiled" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(options.device, dtype=kind, enabled=kind != torch.float32):
            loss = loss_of(family, forward(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def time_by_events(torch, step):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(STEPS_BETWEEN):
        step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / STEPS_BETWEEN


def time_by_clock(_torch, step):
    begun = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - begun)


def work(options):
    import torch
    from compare import rows

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    family, batch = rows()[options.model]
    step = make_step(torch, family, batch, options)
    for _ in range(3):
        step()  # compiles, chooses kernels
    on_gpu = options.device == "cuda"
    measure = time_by_events if on_gpu else time_by_clock
    times, until = [], time.monotonic() + options.seconds
    while time.monotonic() < until or len(times) < 3:
        times.append(measure(torch, step))
    memory = torch.cuda.max_memory_allocated() if on_gpu else 0
    print(json.dumps({"ms": statistics.median(times), "bytes": memory}))


# The comparison.


def run(command, folder):
    """The last line of a command, as an object; or why there is none."""
    done = subprocess.run([str(word) for word in command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines()
        return None, lines[-1] if lines else f"exit code {done.returncode}"
    return json.loads(done.stdout.strip().splitlines()[-1]), ""


def write_profile(folder, model, family, batch, options):
    compute = f"compute: {{precision: {options.precision}}}\n" if options.precision != "float32" else ""
    loss = "mse" if family.loss == "mse" else "cross_entropy"
    path = folder / f"{model.stem}.yaml"
    path.write_text(PROFILE.format(device=options.device, compute=compute, model=model, loss=loss, batch=batch))
    return path


def measure(side, name, profile, options, folder):
    if side == "Cairn":
        found, why = run([options.node, "bench", "--json", profile], folder)
        return (found["step_ms_median"], found["planned_bytes"]) if found else why
    found, why = run([sys.executable, "-W", "ignore", HERE / "gpu.py", "worker", "--side", side, "--model", name,
                      "--seconds", options.seconds, "--precision", options.precision, "--device", options.device],
                     folder)
    return (found["ms"], found["bytes"]) if found else why


def cell(results):
    """Median milliseconds and largest memory of a side, or None."""
    good = [result for result in results if isinstance(result, tuple)]
    return (statistics.median(ms for ms, _ in good), max(size for _, size in good) / 2**20) if good else None


def print_table(results, batches, torch, options):
    where = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU: a trial of the script"
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {where}; PyTorch {torch.__version__}, CUDA "
          f"{torch.version.cuda}; {options.precision}; {options.rounds} rounds of {options.seconds:g} s.\n")
    print("| model, batch | Cairn ms | eager ms | compiled ms | eager / Cairn | compiled / Cairn | Cairn MiB | eager MiB |")
    print("|---|---|---|---|---|---|---|---|")
    notes = []
    for name, sides in results.items():
        ours, eager, compiled = (cell(sides[side]) for side in SIDES)
        text = [f"{side[0]:.3f}" if side else "-" for side in (ours, eager, compiled)]
        text += [f"{side[0] / ours[0]:.2f}" if side and ours else "-" for side in (eager, compiled)]
        text += [f"{side[1]:.0f}" if side else "-" for side in (ours, eager)]
        print(f"| {name}, {batches[name]} | {' | '.join(text)} |")
        notes += [f"{name}, {side}: {why}" for side in SIDES for why in set(sides[side]) if isinstance(why, str)]
    if notes:
        print("\nNot measured:\n\n- " + "\n- ".join(sorted(notes)))


def compare(options):
    torch = need_torch(options.device)
    from compare import rows
    from record import export

    table = {name: row for name, row in rows().items()
             if not options.models or any(part in name for part in options.models.split(","))}
    results = {name: {side: [] for side in SIDES} for name in table}
    with tempfile.TemporaryDirectory(prefix="cairn-gpu-") as directory:
        folder, profiles = pathlib.Path(directory), {}
        for index, (name, (family, batch)) in enumerate(table.items()):
            path = folder / f"{index}.onnx"
            export(family.build(), family.inputs(2), path)
            profiles[name] = write_profile(folder, path, family, batch, options)
        first, why = run([options.node, "bench", "--json", next(iter(profiles.values()))], folder)
        if not first:
            refuse(f"cairn-node does not train on {options.device}: {why}")
        for _ in range(options.rounds):
            for name, sides in results.items():
                for side in SIDES:
                    sides[side].append(measure(side, name, profiles[name], options, folder))
    print_table(results, {name: batch for name, (_, batch) in table.items()}, torch, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("node", help="cairn-node, or 'worker'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--models", help="only rows whose name contains one of these")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node == "worker":
        work(options)
    else:
        options.node = pathlib.Path(options.node).resolve()
        compare(options)


if __name__ == "__main__":
    main()
