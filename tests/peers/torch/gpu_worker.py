#!/usr/bin/env python3
"""PyTorch's side of gpu.py: exports the models of its rows, and times training steps of them.

    gpu_worker.py export FOLDER [NAME,...]   writes a .onnx for each row, and rows.json, which lists them
    gpu_worker.py serve                      answers each line of its input, an object in JSON, with such a line

A request names what is wanted: {"about": DEVICE} is answered with {"text"}, the versions and the device, and
{"model", "precision", "side", "seconds", "device"} with {"ms", "bytes"}: the median step, and the memory that PyTorch
held at most. What fails is answered with {"why"}. Steps are timed by events of the GPU, ten between two of them, or
by the clock on the CPU. float32 is without TF32, which is a precision of its own; in 16 bits the step runs under autocast, in float16 with its gradient
scaler.
"""
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "zoo")]
STEPS_BETWEEN = 10


PERIOD = 4093  # after so many weights a tensor repeats itself: less than what gzip looks back


def repeat_weights(torch, model):
    """Weights become powers of two that repeat: a step takes as long, and the files pack to next to nothing."""
    with torch.no_grad():
        for weight in model.parameters():
            few = weight.reshape(-1)[:PERIOD]
            few = few.sign() * few.abs().clamp_min(2.0 ** -20).log2().round().exp2()
            weight.copy_(few.repeat(-(-weight.numel() // len(few)))[:weight.numel()].view_as(weight))


def gpu_rows():
    """The rows of the comparison on the CPU, and two of the size that people train on a card."""
    from compare import rows
    from models import GPT, Family, classes, images, tokens
    from models_attention import Fused
    from models_conv import Bottleneck, ResNet, imagenet_stem

    def gpt():
        """As GPT-2's smallest: 124 million weights, the embedding is the output's weight, too."""
        model = GPT(50257, 1024, 768, 12, 12, tied=True)
        for block in model.blocks:
            block.attention = Fused(768, 12, 1024, True)
        return model

    def resnet50():
        return ResNet(Bottleneck, imagenet_stem(), (64, 128, 256, 512), (3, 4, 6, 3), 1000)

    return {**rows(),
            "GPT 124M, 1024 tokens": (Family(gpt, tokens(50257, 1024), classes(50257, 1024)), 4),
            "ResNet-50, 224x224": (Family(resnet50, images(3, 224, 224), classes(1000)), 32)}


def export_rows(folder, wanted):
    import torch
    from record import export

    listed = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, (family, batch) in gpu_rows().items():
        if wanted and not any(part in name for part in wanted.split(",")):
            continue
        model, file = family.build(), f"{len(listed)}.onnx"
        repeat_weights(torch, model)
        export(model, family.inputs(2), folder / file)
        listed.append({"name": name, "file": file, "batch": batch,
                       "loss": "mse" if family.loss == "mse" else "cross_entropy"})
        (folder / "rows.json").write_text(json.dumps(listed, indent=1) + "\n")


def make_step(torch, request):
    """One training step as a function without arguments."""
    from record import loss_of

    device, precision = request["device"], request["precision"]
    family, batch = gpu_rows()[request["model"]]
    model = family.build().train().to(device)
    inputs, labels = family.inputs(batch).to(device), family.labels(batch).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=precision == "float16" and device == "cuda")
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision, torch.float32)
    forward = torch.compile(model) if request["side"] == "compiled" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=kind, enabled=kind != torch.float32):
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


def measure(torch, request):
    on_gpu = request["device"] == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = request["precision"] == "tf32"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step, timer = make_step(torch, request), time_by_events if on_gpu else time_by_clock
    for _ in range(3):
        step()  # compiles, chooses kernels
    times, until = [], time.monotonic() + request["seconds"]
    while time.monotonic() < until or len(times) < 3:
        times.append(timer(torch, step))
    return {"ms": statistics.median(times), "bytes": torch.cuda.max_memory_allocated() if on_gpu else 0}


def about(torch, device):
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} finds no GPU (built for CUDA {torch.version.cuda or 'none'})")
    where = torch.cuda.get_device_name() if device == "cuda" else "the CPU: a trial of the script"
    return {"text": f"{where}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}"}


def serve():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what PyTorch prints is no answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            import torch

            answer = about(torch, request["about"]) if "about" in request else measure(torch, request)
        except Exception as error:  # of any library, and the next row is to be measured all the same
            answer = {"why": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "export":
        export_rows(pathlib.Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
    elif sys.argv[1:] == ["serve"]:
        serve()
    else:
        sys.exit(__doc__)
