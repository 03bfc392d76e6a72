"""How long a group of four takes to notice that a board is gone, and to go on without it: a distribution.

    reform.py BIN [TIMES [WAYS...]]       BIN: build/release/bin; WAYS: member leader frozen cut; all by default

The boards train in network namespaces (tests/end_to_end/lan.py). A board is killed, frozen or cut off, another one
each time, and taken in again before the next; "leader" kills the one that leads. Noticed: one of the others says in
its log that a board is lost. Formed: all of them have a new epoch; group.rejoin, which waits for the lost board, is
100 ms here. Logs are looked at every 2 ms.
"""

import os
import re
import statistics
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

import lan  # noqa: E402
from scenarios import usage  # noqa: E402

BOARDS = [f"board-{i + 1}" for i in range(4)]
JOB = {"rounds": 100000, "local_steps": 60, "rejoin": "100 ms", "form": "10 s", "timeout": "60 s", "quorum": 1,
       "mixed": True}


def wait_until(condition, begun, timeout=30):
    while not condition():
        if time.monotonic() - begun > timeout:
            raise AssertionError("nothing happened")
        time.sleep(0.002)
    return 1000 * (time.monotonic() - begun)


def views(cluster, name, size):
    return len(re.findall(rf"rank \d of {size}\b", cluster.log(name)))


def lose(cluster, victim, how, back):
    others = [name for name in BOARDS if name != victim]
    told = {name: cluster.log(name).count("is lost") for name in others}
    formed = {name: views(cluster, name, 3) for name in others}
    begun = time.monotonic()
    how(victim)
    noticed = wait_until(lambda: any(cluster.log(n).count("is lost") > told[n] for n in others), begun)
    went_on = wait_until(lambda: all(views(cluster, n, 3) > formed[n] for n in others), begun)
    whole = {name: views(cluster, name, 4) for name in others}
    back(victim)
    wait_until(lambda: all(views(cluster, n, 4) > whole[n] for n in others), time.monotonic())
    time.sleep(1)
    return noticed, went_on


def spread(values):
    ordered = sorted(values)
    return (f"{ordered[0]:.0f} | {statistics.median(ordered):.0f} | {ordered[int(0.9 * (len(ordered) - 1))]:.0f} | "
            f"{ordered[-1]:.0f}")


def main(build, times="20", *chosen):
    if not lan.allowed():
        print("skipped: network namespaces are not allowed here")
        return 77
    with lan.Lan(build, {"lab": BOARDS}, **JOB) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 1: held-out")
        # board-1 leads, as the lowest of those that are there
        ways = {"member": ("a member is killed (kill -9)", BOARDS[1:], cluster.kill, cluster.start),
                "leader": ("the leader is killed (kill -9)", BOARDS[:1], cluster.kill, cluster.start),
                "frozen": ("frozen (SIGSTOP)", BOARDS, cluster.freeze, cluster.thaw),
                "cut": ("cut off (no RST, no FIN)", BOARDS, cluster.cut, cluster.mend)}
        print(f"four boards, {times} times each; ms; {os.cpu_count()} processors for all")
        print("| what happens | noticed: least | median | 90 % | most | formed: least | median | 90 % | most |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in chosen or ways:
            title, victims, how, back = ways[name]
            found = [lose(cluster, victims[i % len(victims)], how, back) for i in range(int(times))]
            print(f"| {title} | {spread([f[0] for f in found])} | {spread([f[1] for f in found])} |", flush=True)
        print(f"load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    usage(__doc__)
    sys.exit(main(*sys.argv[1:]))
