"""How much faster 1, 2, 4 and 8 boards are together: ResNet-50 at 1 and 10 Gbit/s, scaled down by a hundred.

    scaling.py PROGRAM [LINK [WIRE [SIZES...]]]        PROGRAM is bench_scaling

LINK is 1 or 10 Gbit/s, both by default; WIRE is float32 (default) or bfloat16; SIZES are 1 2 4 8. CAIRN_BENCH_PREFIX
is put before each member's command (chrt -f 10).

ResNet-50 has 25.6 million parameters, 102.4 MB of gradients; a micro-batch is taken to last 320 ms on a board (batch
32 at 100 images a second). Bytes and rates are a hundredth of that, times are not, so the ratio of computing to the
wire stays and two cores are not the limit: a timer computes, the sockets, keys and token buckets (tbf in network
namespaces) are real. Speed-up: members times the milliseconds of a micro-batch alone over those in the group.
"""

import os
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "bench", "group"))

from allreduce import Wires  # noqa: E402

STEP_MS, BYTES, BUCKETS = 320, 1_024_000, 16
LINKS = {"1 Gbit/s": "10mbit", "10 Gbit/s": "100mbit"}
# micro-batches of a step, local steps between two sums, sums that are measured
WAYS = {"each step": (1, 1, 16), "accumulation 4": (4, 1, 6), "accumulation 16": (16, 1, 3),
        "20 local steps": (1, 20, 3)}


def micro_batch_ms(program, wires, wire, way):
    micro, local, sums = way
    words = [str(n) for n in (STEP_MS, BYTES, BUCKETS, int(wire == "bfloat16"), micro, local, sums)]
    prefix = os.environ.get("CAIRN_BENCH_PREFIX", "").split()
    processes = [subprocess.Popen([*wires.enter(rank), *prefix, program, str(rank), *words, *wires.addresses],
                                  stdout=subprocess.PIPE, text=True) for rank in range(wires.ranks)]
    output = processes[0].communicate()[0]
    if any([process.wait() for process in processes]):
        raise RuntimeError("a member failed")
    return float(output)


def main(program, chosen="both", wire="float32", *sizes):
    sizes = [int(size) for size in sizes] or [1, 2, 4, 8]
    for title, link in LINKS.items():
        if chosen not in ("both", title.split()[0]):
            continue
        print(f"\n{title} (run as {link}), {wire} on the wire; speed-up, of {STEP_MS} ms a micro-batch alone; "
              f"{os.cpu_count()} processors for all, load {os.getloadavg()[0]:.1f}\n")
        print(f"| boards | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}")
        for size in sizes:
            with Wires(link if size > 1 else "loopback", size) as wires:
                cells = [f"{size * STEP_MS / micro_batch_ms(program, wires, wire, way):.2f}" for way in WAYS.values()]
            print(f"| {size} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
