"""Over TCP, paths that lose large packets without a word carry a run all the same, in smaller segments.

    black_hole.py BUILD [SCENARIO...]

The members of the run are in two network namespaces; the relay between them drops every packet above MTU bytes.
"""

import os
import subprocess

from cluster import Cluster
from scenarios import Scenarios

MTU = 1200
NEAR, FAR = "10.78.0.1", "10.78.0.2"
DEVICES = {NEAR: "cnnear", FAR: "cnfar"}

scenario = Scenarios()


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hole(Cluster):
    """The boards of near on one side of the hole, the gateway and the others on the other."""

    def __init__(self, build, groups, near, **job):
        super().__init__(build, groups, **job)
        self.near = near
        self.hole = None

    def host_of(self, name):
        return NEAR if name in self.near else FAR

    def space(self, host):
        return f"cn{os.getpid()}{DEVICES[host]}"

    def device(self, host):
        return f"{DEVICES[host]}{os.getpid() % 10_000_000}"

    def enter(self, name):
        return ["ip", "netns", "exec", self.space(self.host_of(name))]

    def __enter__(self):
        super().__enter__()
        self.hole = subprocess.Popen([self.relay, self.device(NEAR), self.device(FAR), f"mtu={MTU}"],
                                     stdout=subprocess.PIPE, text=True)
        assert self.hole.stdout.readline() == "ready\n", "the relay has no interfaces"
        for host in DEVICES:
            ip("netns", "add", self.space(host))
            ip("link", "set", self.device(host), "netns", self.space(host))
            ip("-n", self.space(host), "address", "add", f"{host}/24", "dev", self.device(host))
            ip("-n", self.space(host), "link", "set", self.device(host), "up")
            ip("-n", self.space(host), "link", "set", "lo", "up")
        return self

    def __exit__(self, *reason):
        super().__exit__(*reason)
        if self.hole:
            self.hole.kill()
            self.hole.wait()
        for host in DEVICES:
            subprocess.run(["ip", "netns", "del", self.space(host)], capture_output=True, check=False)

    def lost(self):
        """Ends the relay; packets that were too large, up and down."""
        self.hole.terminate()
        out, _ = self.hole.communicate()
        return [int(line.split(" too_large ")[1].split()[0]) for line in out.splitlines() if " too_large " in line]


def allowed():
    """Whether namespaces and interfaces may be made here."""
    name = f"cn{os.getpid()}try"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "tuntap", "add", "t", "mode", "tun")
        finally:
            ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: network namespaces with interfaces of a process are not possible here ({error})")
        return False
    return True


def finish(hole):
    """Both ways lost packets; what they were."""
    hole.wait_for_end(90)
    assert "0 differ" in hole.replay()[-1]
    up, down = hole.lost()
    assert up + down, "no packet was too large: this shows nothing"
    return f"{up} packets up and {down} down were too large until the segments became smaller"


@scenario
def a_board_reaches_its_gateway(build):
    network = "network: {transport: tcp}"
    with Hole(build, {"lab-a": ["board-1"]}, ["board-1"], rounds=2, quorum=1, up="{mode: raw32}", network=network) as hole:
        hole.start("gateway")
        hole.start("board-1", "--log-level", "debug")
        said = finish(hole)
        log = hole.log("board-1")
        assert log.count("smaller segments") == 1, log
    return said


@scenario
def members_of_a_group_reach_each_other(build):
    """The first epoch ends once nothing has moved for 3 s, long before the time-out of the group."""
    with Hole(build, {"lab": ["board-1", "board-2"]}, ["board-2"], rounds=2, quorum=1, timeout="300 s") as hole:
        hole.start_all()
        said = finish(hole)
        logs = hole.log("board-1") + hole.log("board-2")
        assert 1 <= logs.count("smaller segments") <= 2, logs
    return said


if __name__ == "__main__":
    scenario.main(possible=allowed)
