"""kill -9 of each rank in each phase of a step, of forming and of storing: the same digest as undisturbed.

    phases.py BUILD LOOPS [SEED] [chains]      chains: of nine boards that hold three parts three times

tests/support/fall.c kills a board inside of its own call number n: in the middle of a record that it sends, behind one
that it received, before a file is on disk. n is drawn, so that deaths fall into the whole life of a process; what it
was doing is read from its stack. Prints how often each phase was hit, and how soon the others noticed.
"""

import bisect
import collections
import contextlib
import os
import random
import re
import statistics
import subprocess
import sys
import time

from cluster import Cluster, same_model_everywhere
from sets import share_samples

GROUP = {"lab": ["board-1", "board-2", "board-3"]}
# Ten buckets a step; long enough that nobody is left out.
SETTINGS = {"rounds": 8, "local_steps": 40, "quorum": 1, "rejoin": "300 s", "form": "300 s", "timeout": "60 s",
            "mixed": True, "group": ", bucket: 16 KiB"}
# Three chains of three parts. A part's messages are sent by the thread that also adds up gradients.
NINE = {"lab": [f"board-{number}" for number in range(1, 10)]}
CHAINS = {**SETTINGS, "mixed": False, "group": "", "held_out": "10 %, scope: shared", "batch": "16, accumulate: 1",
          "extra": 'parallel: {pipeline: 3, replicate: 3, cut: ["2.*", "6.*"]}'}
A_RUN = 12  # deaths in one run
# A call and the most that is drawn: the first is for opening and healing, the others reach some steps further.
CALLS = (("send", 40), ("recv", 60), ("send", 400), ("recv", 600), ("send", 2500), ("recv", 4000),
         ("datagram", 60), ("fsync", 14))

# By the functions of a stack, the most special first.
PHASES = (
    ("epoch to disk", {"cn_epoch_file_save"}),
    ("outbox to disk", {"cn_session_secure_outbox"}),
    ("checkpoint to disk", {"cn_checkpoint_save", "cn_store_replace"}),
    ("handshake of control", {"shake_hands", "do_mbedtls_handshake", "coap_new_client_session_psk2_lkd"}),
    ("message of control", {"cn_node_group_poll"}),
    ("link to the gateway", {"poll_link", "run_errand", "enlist"}),
    ("handshake of data", {"cn_mesh_open", "cn_pair_handshake"}),
    ("barrier of the opening", {"tcp_open", "cn_backend_open"}),
    ("version measured over a chain", {"cn_session_evaluate_chain"}),
    ("sum over replicas", {"cn_session_reduce_chain"}),
    ("state gathered", {"cn_session_store", "cn_session_gather_parts"}),
    ("gradients", {"cn_queue_open", "queue_main", "run_queue", "serve"}),
    ("heal", {"cn_session_take", "heal"}),
    ("facts and sets", {"cn_session_exchange_facts"}),
    ("vote", {"cn_session_step"}),
    ("digest of the update", {"cn_session_finish"}),
    ("new version", {"cn_session_install", "do_base"}),
    ("command", {"cn_epoch_run"}),
)
# Here the others have a collective call under way, or soon: they notice a closed connection.
IN_AN_EPOCH = {"gradients", "heal", "facts and sets", "vote", "digest of the update", "new version", "command",
               "outbox to disk", "checkpoint to disk"}


class Symbols:
    """Names of the functions of a program, also of those that it keeps to itself."""

    def __init__(self, program):
        lines = subprocess.run(["nm", "-n", program], check=True, capture_output=True, text=True).stdout.splitlines()
        found = [line.split() for line in lines if len(line.split()) == 3 and line.split()[1] in "tT"]
        self.addresses = [int(address, 16) for address, _, _ in found]
        self.names = [name.split(".")[0] for _, _, name in found]

    def of_stack(self, path):
        with open(path) as file:
            offsets = [int(text, 16) for text in re.findall(r"cairn-node\(\+(0x[0-9a-f]+)\)", file.read())]
        return [self.names[bisect.bisect(self.addresses, offset - 1) - 1] for offset in offsets]


def phase_of(stack):
    for phase, functions in PHASES:
        if functions & set(stack):
            return phase
    return "? " + " ".join(stack)


@contextlib.contextmanager
def cluster_of(build, chains):
    with Cluster(build, NINE if chains else GROUP, **(CHAINS if chains else SETTINGS)) as cluster:
        if chains:
            share_samples(cluster)
        yield cluster


class Falls:
    def __init__(self, build, seed, chains):
        self.build = build
        self.chains = chains
        self.random = random.Random(seed)
        self.shim = os.path.join(build, "..", "tests", "support", "fall.so")
        assert os.path.exists(self.shim), f"{self.shim} is not built"
        self.symbols = Symbols(os.path.join(build, "cairn-node"))
        self.phases = collections.Counter()
        self.ranks = collections.Counter()
        self.noticed = []
        self.completed = 0  # steps, by those who held the sums and had not applied them
        self.count = 0

    def lost_lines(self, cluster):
        return sum(cluster.log(name).count("is lost") + cluster.log(name).count("the epoch ended")
                   + cluster.log(name).count("no connection with") for name in cluster.boards)

    def fall(self, cluster):
        """One board is started anew and dies by itself. False when the run was over before."""
        victim = self.random.choice(cluster.boards)
        call, most = self.random.choice(CALLS)
        number, stack = self.random.randint(1, most), cluster.path(f"stack-{self.count}")
        if any(process.poll() is not None for process in cluster.processes.values()):
            return False
        cluster.kill(victim)
        cluster.start(victim, environment={"LD_PRELOAD": self.shim, "CAIRN_FALL": f"{call}:{number}:{stack}"})
        process, lost = cluster.processes[victim], self.lost_lines(cluster)
        while process.poll() is None:
            lost = max(lost, self.lost_lines(cluster)) if not os.path.exists(stack) else lost
            time.sleep(0.005)
        if process.returncode != -9:
            assert process.returncode == 0, f"{victim} ended with {process.returncode}"
            return False
        died = time.monotonic()
        self.count += 1
        phase = phase_of(self.symbols.of_stack(stack))
        self.phases[phase] += 1
        self.ranks[victim] += 1
        while phase in IN_AN_EPOCH and time.monotonic() < died + 2:
            if self.lost_lines(cluster) > lost:
                self.noticed.append(1000 * (time.monotonic() - died))
                break
            time.sleep(0.002)
        cluster.start(victim)
        return True

    def run(self, wanted, deaths):
        """Many deaths in one run. False when it ended before."""
        before = self.count
        with cluster_of(self.build, self.chains) as cluster:
            cluster.start_all()
            cluster.wait_for_line("board-1", f"rank 0 of {len(cluster.boards)}")
            while self.count < before + deaths and self.fall(cluster):
                pass
            cluster.wait_for_end(200)
            cluster.replay()
            assert cluster.digest() == wanted, f"digest {cluster.digest()}, undisturbed {wanted}"
            same_model_everywhere(cluster)
            self.completed += sum(cluster.log(name).count("is completed with the sums") for name in cluster.boards)


def undisturbed(build, chains):
    with cluster_of(build, chains) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        return cluster.digest()


def main(build, loops, seed=1, chains=False):
    wanted = undisturbed(build, chains)
    falls = Falls(os.path.abspath(build), seed, chains)
    while falls.count < loops:
        falls.run(wanted, min(A_RUN, loops - falls.count))
        print(f"{falls.count} deaths, the same digest", flush=True)
    for phase, count in falls.phases.most_common():
        print(f"  {count:4} in {phase}")
    print(f"  ranks: {dict(sorted(falls.ranks.items()))}; {falls.completed} times a step was completed afterwards")
    if falls.noticed:
        times = sorted(falls.noticed)
        print(f"  noticed after {times[0]:.0f}, {statistics.median(times):.0f}, {times[-1]:.0f} ms "
              f"(least, median, most of {len(times)})")


if __name__ == "__main__":
    main(sys.argv[1], *(word == "chains" or int(word) for word in sys.argv[2:]))
