#!/usr/bin/env python3
"""PyTorch's side of tests/bench/bench_products: the matrix products of a Transformer, as torch.mm does them.

    products.py TOKENS WIDTH CLASSES [PRECISION]     float32 (default) or tf32

A line for each product has its milliseconds and TFLOP/s; the last line has the sum over a model of 12 layers.
Ends with 77 and a line that says why where there is no PyTorch or no GPU.
"""
import statistics
import sys

LAYERS, RUNS = 12, 20


def layers(width, classes):
    """What a layer is, its inputs and outputs, and how often it is in the model."""
    return (("query, key and value", width, 3 * width, LAYERS), ("output of attention", width, width, LAYERS),
            ("wider", width, 4 * width, LAYERS), ("back", 4 * width, width, LAYERS), ("classes", width, classes, 1))


def time_ms(torch, product):
    times = []
    for _ in range(RUNS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        product()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    tokens, width, classes = map(int, sys.argv[1:4])
    try:
        import torch
    except ImportError as error:
        print(f"no PyTorch: {error}")
        return 77
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        return 77
    torch.backends.cuda.matmul.allow_tf32 = sys.argv[4:5] == ["tf32"]
    total = 0
    for name, inputs, outputs, times in layers(width, classes):
        x, y, weight = (torch.randn(shape, device="cuda") for shape in ((tokens, inputs), (tokens, outputs), (outputs, inputs)))
        print(f"{name}:")
        for what, product in (("forward", lambda: x @ weight.T), ("gradient of input", lambda: y @ weight),
                              ("gradient of weight", lambda: y.T @ x)):
            ms = time_ms(torch, product)
            print(f"{what}: {ms:.3f} ms, {2e-9 * tokens * inputs * outputs / ms:.1f} TFLOP/s", flush=True)
            total += times * ms
    print(f"a step has {total:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
