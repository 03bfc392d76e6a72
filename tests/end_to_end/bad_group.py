"""Bad input to a group: one clear line that names the board, and the others go on.

    bad_group.py BUILD [CASE...]

A set that names a board that is not there and shards that do not divide are cases of sets.py.
"""

import os
import shutil
import socket
import sqlite3
import subprocess
import threading
import time

from cluster import ENDLESS, Cluster, free_ports, read_npy, same_model_everywhere, write_npy
from scenarios import Scenarios

THREE = {"lab": ["board-1", "board-2", "board-3"]}
# With "form", a board that meets nobody trains alone. Without end it still does so when the others meet it.
SETTINGS = {"rounds": ENDLESS, "local_steps": 20, "quorum": 1, "mixed": True, "form": "2 s", "rejoin": "300 ms"}
# All members wait for each other, so a few rounds are the same rounds for all.
TOGETHER = {**SETTINGS, "rounds": 4, "form": "30 s", "rejoin": "30 s"}
case = Scenarios()


def support(build, name):
    return os.path.join(build, "..", "tests", "support", name)


def ends_with(cluster, name, *words, code=1, timeout=30):
    """The process ends by itself and has said the words in one line."""
    assert cluster.processes[name].wait(timeout) == code, f"{name} ended with {cluster.processes[name].returncode}"
    assert any(all(word in line for word in words) for line in cluster.log(name).splitlines()), \
        f"{name} has no line with {words}"


def finish(cluster, names):
    """These come to the end with one model, and replay agrees."""
    if cluster.job["rounds"] == ENDLESS:
        cluster.end_run()
    cluster.wait_for_end(120, names)
    cluster.replay()
    same_model_everywhere(cluster, [name for name in names if name != "gateway"])


def end_at_once(build, spoil, *words):
    """board-3 ends with these words, the others go on and name it."""
    with Cluster(build, THREE, **SETTINGS) as cluster:
        spoil(cluster)
        cluster.start_all()
        ends_with(cluster, "board-3", *words)
        for name in ("board-1", "board-2"):
            cluster.wait_for_line(name, "without board-3")
        finish(cluster, ["gateway", "board-1", "board-2"])


@case
def a_board_with_another_type_of_data_is_missed_by_name(build):
    def spoil(cluster):
        path = cluster.path("data", "board-3-images.npy")
        header, samples = read_npy(path)
        write_npy(path, header.replace("|u1", "<f8"), [sample.ljust(512, b"\0")[:64] * 8 for sample in samples])

    end_at_once(build, spoil, "board-3-images.npy", "float64")


@case
def a_board_whose_interface_is_not_there_is_missed_by_name(build):
    def spoil(cluster):
        port = cluster.board_ports["board-3"]
        cluster.edit("board-3.yaml", (f'listen: "127.0.0.1:{port}"', f'listen: "192.0.2.1:{port}"'))

    end_at_once(build, spoil, "board-3", "192.0.2.1")


def write_other_gateway(cluster):
    """Its port."""
    port, = free_ports(1)
    with open(cluster.path("gateway.yaml")) as file:
        text = file.read()
    cluster.write("other.yaml", text.replace("state/gateway", "state/other").replace(str(cluster.port), str(port)))
    return port


def start_other_gateway(cluster):
    cluster.processes["other"] = subprocess.Popen(
        [cluster.aggregator, "run", "other.yaml"], cwd=cluster.directory, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


@case
def a_member_of_another_run_and_model_is_left_out_by_name(build):
    """A second gateway with the keys of the first, as of a copied disk."""
    with Cluster(build, THREE, **SETTINGS) as cluster:
        shutil.copytree(cluster.path("state/gateway"), cluster.path("state/other"))
        with sqlite3.connect(cluster.path("state/other/ledger.sqlite")) as ledger:
            ledger.execute("UPDATE meta SET run = run + 1")
        port = write_other_gateway(cluster)
        cluster.edit("other.yaml", ("job.yaml", "other-job.yaml"))
        text = open(cluster.path("job.yaml")).read()
        cluster.write("other-job.yaml", text.replace("digits-cnn", "digits-mlp"))
        cluster.edit("board-3.yaml", (f'address: "127.0.0.1:{cluster.port}"', f'address: "127.0.0.1:{port}"'))
        start_other_gateway(cluster)
        cluster.start_all()
        for name in ("board-1", "board-2"):
            cluster.wait_for_line(name, "board-3 works on another job or run, or names other members: board-3 is left out")
        finish(cluster, ["gateway", "board-1", "board-2"])


@case
def a_member_with_another_list_of_members_is_left_out_by_name(build):
    with Cluster(build, THREE, **SETTINGS) as cluster:
        cluster.edit("board-3.yaml", ("board-2: ", "board-9: "))
        cluster.start_all()
        for name, other in (("board-1", "board-3"), ("board-3", "board-1")):
            cluster.wait_for_line(name, f"{other} works on another job or run, or names other members: {other} is left out")
        finish(cluster, ["gateway", "board-1", "board-2"])


@case
def a_port_for_gradients_that_is_taken_is_said(build):
    with Cluster(build, THREE, **SETTINGS) as cluster, socket.socket() as other:
        listen = f"127.0.0.1:{cluster.board_ports['board-3']}"
        other.bind(("127.0.0.1", cluster.board_ports["board-3"]))
        other.listen()
        cluster.start_all()
        cluster.wait_for_line("board-3", f"group.listen {listen}: another program uses this TCP port")
        for name in ("board-1", "board-2"):
            cluster.wait_for_line(name, "board-3 is heard, but no connection for gradients comes about")
        finish(cluster, ["gateway", "board-1", "board-2"])


class Forwarder(threading.Thread):
    """The TCP half of a mapped port; relay.c is the other."""

    def __init__(self, port, target):
        super().__init__(daemon=True)
        self.target, self.count = target, 0
        self.listener = socket.create_server(("127.0.0.1", port))

    @staticmethod
    def pump(source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, to):
                end.close()

    def run(self):
        while True:
            caller, _ = self.listener.accept()
            try:
                called = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                caller.close()
                continue
            self.count += 1
            for pair in ((caller, called), (called, caller)):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()


@case
def boards_behind_mapped_ports_are_a_group(build):
    """Each is called at its port in group.members and listens at the next one."""
    with Cluster(build, {"lab": ["board-1", "board-2"]}, **TOGETHER) as cluster:
        forwarders = []
        for name, port in cluster.board_ports.items():
            cluster.edit(f"{name}.yaml", (f'listen: "127.0.0.1:{port}"', f'listen: "0.0.0.0:{port + 1}"'))
            result = cluster.command(cluster.node, "check", f"{name}.yaml", check=False)
            assert result.returncode == 3 and "or group.mapped: true" in result.stderr, result
            cluster.edit(f"{name}.yaml", (f'0.0.0.0:{port + 1}"', f'0.0.0.0:{port + 1}", mapped: true'))
            forwarders.append(Forwarder(port, port + 1))
            forwarders[-1].start()
            cluster.links[name] = subprocess.Popen([cluster.relay, str(port), str(port + 1)],
                                                   stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        cluster.start_all()
        finish(cluster, ["gateway", "board-1", "board-2"])
        for name in cluster.boards:
            assert cluster.views(name, 2) and not cluster.views(name, 1), f"{name} was alone"
        assert sum(forwarder.count for forwarder in forwarders), "no gradient came through a mapped port"


@case
def a_board_with_keys_of_another_gateway_is_not_heard(build):
    """It has the right name, and for every pair another key."""
    with Cluster(build, THREE, **SETTINGS) as cluster:
        port = write_other_gateway(cluster)
        for board in cluster.boards:
            cluster.command(cluster.aggregator, "enroll", "other.yaml", board, "--group", "lab",
                            "-o", f"keys/other-{board}.key")
        cluster.edit("board-3.yaml", (f'address: "127.0.0.1:{cluster.port}", key: keys/board-3.key',
                                      f'address: "127.0.0.1:{port}", key: keys/other-board-3.key'))
        start_other_gateway(cluster)
        cluster.start_all()
        for name in ("board-1", "board-2"):
            cluster.wait_for_line(name, "board-3 refuses this board")
            cluster.wait_for_line("board-3", f"{name} refuses this board")
        finish(cluster, ["gateway", "board-1", "board-2"])
        assert not cluster.views("board-1", 3), "a board with wrong keys was let in"


@case
def a_member_of_another_release_is_left_out_by_name(build):
    with Cluster(build, THREE, **SETTINGS) as cluster:
        node = cluster.node
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.start("board-2")
        cluster.node = support(build, "node_of_another_release")
        cluster.start("board-3")
        cluster.node = node
        for name in ("board-1", "board-2"):
            cluster.wait_for_line(name, "board-3 runs release 15.63.63, this board ")
        cluster.wait_for_line("board-3", "runs release 0.1.0, this board 15.63.63")
        finish(cluster, ["gateway", "board-1", "board-2"])


@case
def two_boards_of_one_name_are_left_out(build):
    with Cluster(build, THREE, **{**SETTINGS, "local_steps": 60}) as cluster:
        text = open(cluster.path("board-2.yaml")).read()
        cluster.write("twin.yaml", text.replace('listen: "127.0.0.1:', 'listen: "127.0.0.2:')
                      .replace("state/board-2", "state/twin"))
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 1: held-out")
        cluster.start("twin")
        line = f"two boards call themselves board-2, one is to be at 127.0.0.1:{cluster.board_ports['board-2']}"
        for name in ("board-1", "board-3"):
            cluster.wait_for_line(name, line)
        epochs = cluster.log("board-1").count("group: epoch ")
        time.sleep(4)
        assert cluster.log("board-1").count("group: epoch ") <= epochs + 1, "the group is disturbed on and on"
        finish(cluster, ["gateway", "board-1", "board-3"])


def digest_of(build, environments):
    with Cluster(build, THREE, **TOGETHER) as cluster:
        for name in ["gateway", *cluster.boards]:
            cluster.start(name, environment=environments.get(name))
        finish(cluster, list(cluster.processes))
        return cluster.digest(), {name: cluster.log(name) for name in cluster.processes}


@case
def a_clock_in_1970_changes_nothing(build):
    shim = {"LD_PRELOAD": support(build, "clock_1970.so")}
    wanted, _ = digest_of(build, {})
    digest, logs = digest_of(build, {"gateway": shim, "board-2": shim})
    assert digest == wanted, f"digest {digest}, with clocks that are right {wanted}"
    assert "board-2: the clock was never set" in logs["board-2"], logs["board-2"]
    assert "clock" not in logs["board-1"]


def fill(path):
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


@case
def a_board_with_a_full_disk_takes_part_and_another_leads(build):
    """A full disk takes no epoch, so that another board leads to the next; nor an update, which the others have."""
    with Cluster(build, THREE, **{**SETTINGS, "local_steps": 60}) as cluster:
        state = cluster.path("state", "board-1")
        os.makedirs(state)
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", state]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            print("  skipped, mounting a tmpfs is not allowed here")
            return
        try:
            with open(cluster.path("board-1.yaml"), "a") as profile:
                profile.write("storage: {reserve: 0 B}\n")
            cluster.start_all()
            cluster.wait_for_line("board-1", "version 1: held-out")
            fill(os.path.join(state, "filler"))
            cluster.wait_for_line("board-1", "bytes cannot be stored: the disk is full")
            epochs = cluster.views("board-2", 3)
            cluster.kill("board-3")
            cluster.start("board-3")
            cluster.wait_for_line("board-1", "board-1 cannot lead others: epoch ")
            cluster.wait_for_view("board-2", 3, epochs + 1)
            versions = cluster.log("board-1").count(": held-out")
            cluster.wait_for_line("board-1", ": held-out", versions + 3)  # nobody waits for the disk
            os.remove(os.path.join(state, "filler"))
            finish(cluster, list(cluster.processes))
        finally:
            cluster.stop_all()
            subprocess.run(["umount", state], check=True)


if __name__ == "__main__":
    case.main()
