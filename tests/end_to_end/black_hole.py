"""Over TCP, a path that loses large packets without a word carries a run all the same, in smaller segments.

    black_hole.py BUILD

Gateway and board each have a network namespace; the relay between them drops every packet above MTU bytes.
"""

import os
import subprocess
import sys

from cluster import Cluster

MTU = 1200
HOSTS = {"gateway": "10.78.0.2", "board-1": "10.78.0.1"}
DEVICES = {"gateway": "cnfar", "board-1": "cnnear"}


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hole(Cluster):
    def __init__(self, build, **job):
        super().__init__(build, {"lab-a": ["board-1"]}, **job)
        self.hole = None

    def space(self, name):
        return f"cn{os.getpid()}{name}"

    def device(self, name):
        return f"{DEVICES[name]}{os.getpid() % 10_000_000}"

    def host_of(self, name):
        return HOSTS[name]

    def enter(self, name):
        return ["ip", "netns", "exec", self.space(name)]

    def __enter__(self):
        super().__enter__()
        self.hole = subprocess.Popen([self.relay, self.device("board-1"), self.device("gateway"), f"mtu={MTU}"],
                                     stdout=subprocess.PIPE, text=True)
        assert self.hole.stdout.readline() == "ready\n", "the relay has no interfaces"
        for name, host in HOSTS.items():
            ip("netns", "add", self.space(name))
            ip("link", "set", self.device(name), "netns", self.space(name))
            ip("-n", self.space(name), "address", "add", f"{host}/24", "dev", self.device(name))
            ip("-n", self.space(name), "link", "set", self.device(name), "up")
            ip("-n", self.space(name), "link", "set", "lo", "up")
        return self

    def __exit__(self, *reason):
        super().__exit__(*reason)
        if self.hole:
            self.hole.kill()
            self.hole.wait()
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", self.space(name)], capture_output=True, check=False)

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


def main(build):
    network = "network: {transport: tcp}"
    with Hole(build, rounds=2, quorum=1, up="{mode: raw32}", network=network) as cluster:
        cluster.start("gateway")
        cluster.start("board-1", "--log-level", "debug")
        cluster.wait_for_end(90)
        assert "0 differ" in cluster.replay()[-1]
        log = cluster.log("board-1")
        assert log.count("smaller segments") == 1, log
        up, down = cluster.lost()
        assert up + down, "no packet was too large: this shows nothing"
        print(f"{up} packets up and {down} down were too large until the segments became smaller")


if __name__ == "__main__":
    if not allowed():
        sys.exit(77)
    main(*sys.argv[1:])
