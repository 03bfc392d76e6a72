"""A cluster whose gateway and boards each have a network namespace, joined by bridges that can be cut.

    with Lan(build, GROUPS, job) as lan:
        lan.start_all()
        lan.cut("board-2")             # its link goes down: no RST, no FIN, nothing
        lan.split(["board-3"])         # to a bridge of its own, until lan.merge()
        lan.part(["board-1"], ["board-2"])  # cannot reach each other, but the gateway; until lan.join()

Needs the right to make namespaces: allowed() says when it is not there.
"""

import itertools
import os
import signal
import subprocess
import time

from cluster import Cluster


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def allowed():
    """Also where namespaces may be made, a kernel may have no bridges or no limits of a rate."""
    name = f"cn{os.getpid()}try"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "whole", "type", "bridge", "forward_delay", "0")
            ip("-n", name, "link", "add", "p0", "type", "veth", "peer", "name", "lan")
            subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "lan", "root", "tbf",
                            "rate", "1mbit", "burst", "32kb", "latency", "50ms"], check=True, capture_output=True)
        finally:
            ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: network namespaces with bridges and limited links are not possible here ({error})")
        return False
    return True


class Lan(Cluster):
    def __init__(self, build, groups=None, keep=False, **job):
        super().__init__(build, groups, keep, **job)
        self.names = ["gateway", *self.boards]
        self.hosts = {name: f"10.77.0.{index + 1}" for index, name in enumerate(self.names)}
        self.switch = self.space("switch")
        self.parted = []

    def space(self, name):
        return f"cn{os.getpid()}{name}"

    def port_of(self, name):
        return f"p{self.names.index(name)}"

    def host_of(self, name):
        return self.hosts[name]

    def enter(self, name):
        return ["ip", "netns", "exec", self.space(name)]

    def __enter__(self):
        try:
            self.wire()
        except subprocess.CalledProcessError as error:
            self.unwire()
            raise AssertionError(error.stderr) from error
        try:
            return super().__enter__()
        except BaseException:
            self.unwire()
            raise

    def __exit__(self, *reason):
        super().__exit__(*reason)
        self.unwire()

    def in_switch(self, *words):
        ip("-n", self.switch, *words)

    def wire(self):
        ip("netns", "add", self.switch)
        for bridge in ("whole", "part"):
            self.in_switch("link", "add", bridge, "type", "bridge", "forward_delay", "0")
            self.in_switch("link", "set", bridge, "up")
        for name in self.names:
            space, port = self.space(name), self.port_of(name)
            ip("netns", "add", space)
            self.in_switch("link", "add", port, "type", "veth", "peer", "name", "lan", "netns", space)
            self.in_switch("link", "set", port, "master", "whole", "up")
            ip("-n", space, "address", "add", f"{self.hosts[name]}/24", "dev", "lan")
            ip("-n", space, "link", "set", "lan", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def unwire(self):
        for name in [*self.names, "switch"]:
            subprocess.run(["ip", "netns", "del", self.space(name)], capture_output=True, check=False)

    def cut(self, name):
        """The board still believes that it has a link: nothing it sends arrives, nothing comes."""
        self.in_switch("link", "set", self.port_of(name), "nomaster")

    def mend(self, name):
        self.in_switch("link", "set", self.port_of(name), "master", "whole")

    def split(self, names):
        for name in names:
            self.in_switch("link", "set", self.port_of(name), "master", "part")

    def merge(self):
        for name in self.names:
            self.mend(name)

    def part(self, some, others):
        """Frames from one to the other go to an address that nobody has."""
        for name, other in [*itertools.product(some, others), *itertools.product(others, some)]:
            ip("-n", self.space(name), "neighbour", "replace", self.hosts[other], "lladdr", "02:00:00:00:00:01",
               "dev", "lan", "nud", "permanent")
            self.parted.append((name, other))

    def join(self):
        for name, other in self.parted:
            ip("-n", self.space(name), "neighbour", "delete", self.hosts[other], "dev", "lan")
        self.parted = []

    def limit(self, name, rate):
        """What the board sends, in tc's words: "20mbit"; None: as much as it can."""
        if rate:
            self.command(*self.enter(name), "tc", "qdisc", "replace", "dev", "lan", "root", "tbf", "rate", rate,
                         "burst", "32kb", "latency", "50ms")
        else:
            self.command(*self.enter(name), "tc", "qdisc", "delete", "dev", "lan", "root")

    def pid(self, name):
        return self.processes[name].pid  # ip exec's itself away

    def freeze(self, name):
        os.kill(self.pid(name), signal.SIGSTOP)

    def thaw(self, name):
        os.kill(self.pid(name), signal.SIGCONT)

    def seconds_until(self, name, text, count=1, timeout=60):
        begun = time.monotonic()
        self.wait_for_line(name, text, count, timeout)
        return time.monotonic() - begun
