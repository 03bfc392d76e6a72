"""cairn-flash profile: running boards get another profile, and keep the old one if the new one is no good there.

usage: profile.py BIN

The board is this machine's root under an overlay, reached by a real ssh; systemctl is a double there. Without root or a
tool that it needs the test says so and is left out.
"""

import os
import shutil
import subprocess
import sys

import flash_bench
import machine
from flash_bench import SOURCE
from machine import Machine

DIGITS = os.path.join(SOURCE, "tests/data/digits")
SITE = """\
schema: cairn/site/v1
extends: {source}/boards/generic-x86-64/board.yaml
state: /var/lib/cairn
threads: {threads}
aggregator: {{address: "10.7.0.1:5684"}}
data:
  digits: {{inputs: {inputs}, labels: /data/labels.npy}}
"""
# Counts restarts. A node of three threads ends at once; with "broken" there, none runs.
SYSTEMCTL = """\
case $1 in
restart) echo >>/run/restarts ;;
is-active) ! grep -q 'threads: 3' /etc/cairn/node.yaml && [ ! -e /run/broken ] ;;
esac"""


def content(path):
    with open(path) as file:
        return file.read()


class Fleet:
    def __init__(self, bench, far):
        self.bench, self.far = bench, far
        os.makedirs(far.path("/data"))
        os.makedirs(far.path("/etc/cairn"), exist_ok=True)
        for kind in ("images", "labels"):
            shutil.copy(os.path.join(DIGITS, f"board-1-{kind}.npy"), far.path(f"/data/{kind}.npy"))
        os.makedirs(far.path("/var/lib/cairn"), exist_ok=True)
        bench.cluster.command(bench.cluster.aggregator, "enroll", "gateway.yaml", "hall-1", "-o", far.path("/etc/cairn/node.key"))
        bench.write("hall.txt", "hall-1 root@board\n")
        bench.write("two.txt", "hall-1 root@board\nhall-2 root@board\n")

    def push(self, *more, boards="hall.txt", threads=1, inputs="/data/images.npy"):
        self.bench.write("hall.yaml", SITE.format(source=SOURCE, threads=threads, inputs=inputs))
        return self.bench.run("profile", boards, "--site", "hall.yaml", *more, tools=self.far.tools)

    def profile(self, name="node.yaml"):
        return content(self.far.path(f"/etc/cairn/{name}"))

    def restarts(self):
        path = self.far.path("/run/restarts")
        return len(content(path)) if os.path.exists(path) else 0

    def settled(self):
        assert not os.path.exists(self.far.path("/etc/cairn/node.yaml.new")), "a new profile stays"


def a_board_gets_another_profile(bench, fleet, far):
    bench.expect(fleet.push(), 1, "put Cairn on it first")
    fleet.settled()
    shutil.copy(bench.write("old.yaml", "schema: cairn/site/v1\nname: hall-1\n"), far.path("/etc/cairn/node.yaml"))
    bench.expect(fleet.push("--dry-run"), 0, "hall-1 would get hall.yaml")
    assert fleet.profile() == content(bench.path("old.yaml")) and fleet.restarts() == 0
    bench.expect(fleet.push(), 0, "hall-1 runs with the new profile", "1 of 1 boards")
    assert "name: hall-1" in fleet.profile() and "threads: 1\n" in fleet.profile()
    assert fleet.profile("node.yaml.old") == content(bench.path("old.yaml")) and fleet.restarts() == 1
    assert os.stat(far.path("/etc/cairn/node.yaml")).st_mode & 0o777 == 0o644
    bench.expect(fleet.push(), 0, "hall-1 has this profile")
    assert fleet.restarts() == 1, "a board that has the profile was restarted"
    fleet.settled()


def a_profile_that_is_no_good_there_changes_nothing(bench, fleet, far):
    before = fleet.profile()
    bench.expect(fleet.push(inputs="/data/missing.npy"), 1, "hall-1: ", "missing.npy", "nothing has changed there")
    bench.expect(fleet.push(boards="two.txt", inputs="/data/missing.npy"), 1, "0 of 2 boards")
    assert "hall-2" not in bench.said, "went on after a failure"
    bench.expect(fleet.push(inputs="relative.npy"), 3, "a path on this machine")
    assert fleet.profile() == before and fleet.restarts() == 1
    fleet.settled()


def a_node_that_does_not_run_with_it_gets_the_old_one_back(bench, fleet, far):
    before = fleet.profile()
    bench.expect(fleet.push(threads=3), 1, "it runs with the old profile again")
    assert fleet.profile() == before and fleet.restarts() == 3
    with open(far.path("/run/broken"), "w"):
        pass
    bench.expect(fleet.push(threads=2), 1, "with the old profile either")
    os.unlink(far.path("/run/broken"))
    assert fleet.profile() == before
    fleet.settled()


def a_try_that_a_power_cut_ended_is_made_again(bench, fleet, far):
    good, restarts = fleet.profile(), fleet.restarts()
    shutil.copy(far.path("/etc/cairn/node.yaml"), far.path("/etc/cairn/node.yaml.old"))
    with open(far.path("/etc/cairn/node.yaml.trying"), "w"), open(far.path("/etc/cairn/node.yaml"), "w") as file:
        file.write(good.replace("threads: 1", "threads: 3"))  # it was put in place, and the power failed
    bench.expect(fleet.push(threads=3), 1, "it runs with the old profile again")
    assert fleet.profile() == good and fleet.restarts() == restarts + 2
    assert not os.path.exists(far.path("/etc/cairn/node.yaml.trying"))
    fleet.settled()


def what_does_not_arrive_whole_or_alone_changes_nothing(bench, fleet, far):
    before, restarts = fleet.profile(), fleet.restarts()
    real = content(os.path.join(far.tools, "ssh"))
    with open(os.path.join(far.tools, "ssh"), "w") as file:
        file.write(real.replace("exec ", "head -c 300 | ", 1))
    bench.expect(fleet.push(threads=2), 1, "the profile did not arrive whole")
    far.use_key("user")
    holder = subprocess.Popen(["flock", far.path("/run/lock/cairn-profile"), "sh", "-c", "echo held; read _"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    bench.expect(fleet.push(threads=2), 1, "another run changes its profile")
    holder.communicate()
    assert fleet.profile() == before and fleet.restarts() == restarts
    fleet.settled()


def wrong_orders_are_refused(bench, fleet, far):
    bench.expect(bench.run("profile", "hall.txt"), 2, "Usage")
    bench.expect(bench.run("profile", "none.txt", "--site", "site.yaml"), 1, "none.txt")
    far.stop()
    bench.expect(fleet.push(threads=2), 1, "hall-1: ", "Connection refused")


def all_cases(bench):
    missing = machine.why_not(SOURCE)
    if missing:
        return print(f"left out: a board by ssh needs {missing}")
    with Machine(bench.path("far"), SOURCE, (bench.build,)) as far, far.program("systemctl", SYSTEMCTL):
        fleet = Fleet(bench, far)
        for case in (a_board_gets_another_profile, a_profile_that_is_no_good_there_changes_nothing,
                     a_node_that_does_not_run_with_it_gets_the_old_one_back,
                     a_try_that_a_power_cut_ended_is_made_again,
                     what_does_not_arrive_whole_or_alone_changes_nothing, wrong_orders_are_refused):
            print("  " + case.__name__.replace("_", " "), flush=True)
            case(bench, fleet, far)
    assert not os.path.exists("/etc/cairn/node.yaml"), "the test wrote to this machine"


if __name__ == "__main__":
    flash_bench.run(sys.argv[1], [all_cases])
