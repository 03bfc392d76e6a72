"""People steer a run over the control sockets: pause, drain, close a round, move a board; killed meanwhile.

    steer.py BUILD [SCENARIO...]
"""

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from cluster import Cluster, ENDLESS, same_model_everywhere, wait_until
from scenarios import Scenarios

GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-3"]}
FAST = {"rounds": ENDLESS, "local_steps": 4, "model": "digits-mlp.onnx"}
LIMIT = 120  # seconds for what takes a few

scenario = Scenarios()


def wait(what, condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {LIMIT} s"
        time.sleep(0.02)


def rounds(cluster):
    """The newest round and its state: 0 open, 1 closing, 2 merged."""
    if not os.path.exists(cluster.path("state/gateway/ledger.sqlite")):
        return 0, 2
    found = cluster.ledger("SELECT number,state FROM round ORDER BY number DESC LIMIT 1")
    return found[0] if found else (0, 2)


def wait_for_round(cluster, number):
    wait(f"round {number}", lambda: rounds(cluster)[0] >= number)


def wait_for_socket(cluster):
    def answers():
        return order(cluster, "status", check=False)["ok"]
    wait("the control socket", answers)


def wait_until_heard(cluster):
    """Until a running gateway has heard all boards."""
    def heard():
        answer = order(cluster, "status", check=False)
        boards = answer.get("state", {}).get("boards", [])
        return answer["ok"] and all("heard_ms" in board for board in boards)
    wait("all boards", heard)


def steer(cluster, command, *arguments, check=True):
    return cluster.command(cluster.aggregator, command, "gateway.yaml", *arguments, check=check)


def connect(cluster):
    """To the socket in the state directory; its path may be too long for an address."""
    place = os.open(cluster.path("state/gateway"), os.O_PATH)
    try:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(LIMIT)
        client.connect(f"/proc/self/fd/{place}/admin.sock")
        return client
    finally:
        os.close(place)


def ask(client, line):
    client.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    with client.makefile("rb") as answers:
        answer = answers.readline()
    return json.loads(answer) if answer else None


def order(cluster, command, check=True, **members):
    """A request by hand, for the id and for what the programs do not send."""
    try:
        with connect(cluster) as client:
            answer = ask(client, {"id": os.urandom(8).hex(), "command": command, **members})
    except OSError as error:
        answer = {"ok": False, "text": str(error)}
    assert answer["ok"] or not check, answer
    return answer


def audit(cluster):
    with open(cluster.path("state/gateway/audit.jsonl")) as file:
        return [json.loads(line) for line in file]


def finish(cluster, more=2, names=None):
    """Lets the run end some rounds from now; every version is made again with the same bits."""
    last = rounds(cluster)[0] + more
    with open(cluster.path("job.yaml")) as file:
        text = file.read()
    cluster.write("job.yaml", text.replace(f"count: {ENDLESS}", f"count: {last}"))
    steer(cluster, "reload")
    cluster.wait_for_end(LIMIT, names)
    assert cluster.replay()[-1] == f"{last + 1} versions, 0 differ, 0 not checked", cluster.replay()[-1]
    same_model_everywhere(cluster, names and [name for name in names if name != "gateway"])
    verified = steer(cluster, "audit", "--verify").stdout
    assert verified.startswith(f"{len(audit(cluster))} lines, 1 to ") and ": ok; " in verified, verified


@scenario
def a_paused_run_stays_paused_over_a_restart(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        wait_for_round(cluster, 2)
        said = steer(cluster, "pause").stdout
        assert said.startswith("paused until `resume`: "), said
        number = rounds(cluster)[0]
        wait("the open round's end", lambda: rounds(cluster)[1] == 2)
        assert cluster.status()["paused"] == "rounds", cluster.status()
        cluster.kill("gateway")
        cluster.start("gateway")
        wait_until_heard(cluster)
        state = order(cluster, "status")["state"]
        assert state["run"]["paused"] == "rounds" and state["run"]["phase"] == "gather", state["run"]
        assert "left_ms" not in state["end"], state["end"]
        assert {board["state"] for board in state["boards"]} == {"run_paused"}, state["boards"]
        assert [alert["kind"] for alert in state["alerts"]] == ["paused"], state["alerts"]
        assert "paused: no other round is opened" in cluster.command(
            cluster.aggregator, "status", "gateway.yaml").stdout
        assert steer(cluster, "pause").returncode == 0  # once more changes nothing
        assert rounds(cluster) == (number, 2), "a round was opened in the pause"
        assert "the run goes on" in steer(cluster, "resume").stdout
        assert "was not paused" in steer(cluster, "resume").stdout
        wait_for_round(cluster, number + 2)
        finish(cluster)
        lines = [line for line in audit(cluster) if line["what"] in ("pause", "resume")]
        assert [line["what"] for line in lines if line["result"] == "asked"] == ["pause", "pause", "resume", "resume"]
        assert all(line["who"]["uid"] == os.getuid() and line["who"]["pid"] for line in lines), lines


@scenario
def a_round_is_extended_and_closed_by_hand(build):
    """The second group is gone: its round would wait. A restart keeps the extension."""
    with Cluster(build, GROUPS, **{**FAST, "deadline": "1000 s"}) as cluster:
        number = leave_alone(cluster)
        request = {"id": "extend-1", "command": "extend-round", "duration_ms": 500_000}
        for _ in range(3):  # once, however often it is sent
            assert ask(connect(cluster), request)["text"] == ask(connect(cluster), request)["text"]
        refused = ask(connect(cluster), {**request, "duration_ms": 1000})
        assert not refused["ok"] and "another command" in refused["text"], refused
        assert steer(cluster, "extend-round", "10min").stdout.startswith(f"round {number} has ")
        assert cluster.ledger("SELECT round,extended_ms FROM steered_round") == [(number, 1_100_000)]
        cluster.kill("gateway")
        cluster.start("gateway")
        wait_for_socket(cluster)
        assert ask(connect(cluster), request)["ok"]
        assert cluster.ledger("SELECT extended_ms FROM steered_round") == [(1_100_000,)], "done again after a restart"
        left = order(cluster, "status")["state"]["run"]["remaining_ms"]
        assert 1_500_000 < left <= 2_100_000, left
        result = steer(cluster, "close-round", check=False)
        assert result.returncode == 1 and f"round {number} would be closed with 1 update;" in result.stderr, result
        assert f"round {number} is closed with 1 updates" in steer(cluster, "close-round", "--yes").stdout
        wait("the version", lambda: cluster.ledger("SELECT count(*) FROM version WHERE number=?", number) == [(1,)])
        cluster.start("board-3")
        wait_for_round(cluster, number + 2)
        report = json.loads(cluster.command(cluster.aggregator, "report", "gateway.yaml", "--json").stdout)
        told = {version["version"]: version for part in report["versions"] for version in part["versions"]}
        assert told[number]["closed_with"] == 1 and told[number]["extended_ms"] == 1_100_000, told[number]
        assert "closed_with" not in told[number - 1], told[number - 1]
        finish(cluster)


def leave_alone(cluster):
    """Starts all, then ends board-3 until the open round waits for its group alone. Returns the round."""
    cluster.start_all()
    wait_for_round(cluster, 2)
    cluster.kill("board-3")

    def waits():
        number, state = rounds(cluster)
        alone = state == 0 and cluster.ledger("SELECT grp FROM contribution WHERE round=?", number) == [("lab-a",)]
        return number if alone else 0

    def waits_for_good():
        """Nothing of board-3 is on its way any more: the gateway looked at its socket before each answer."""
        number = waits()
        for _ in range(20 if number else 0):
            order(cluster, "status")
        return number and number == waits()
    wait("an update that waits alone", waits_for_good)
    return rounds(cluster)[0]


@scenario
def a_held_round_is_closed_after_the_pause(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        wait_for_round(cluster, 2)
        while True:  # until the pause meets an open round
            steer(cluster, "pause", "--now")
            if rounds(cluster)[1] == 0:
                break
            steer(cluster, "resume")
        number = rounds(cluster)[0]
        wait("both updates", lambda: cluster.ledger("SELECT count(*) FROM contribution WHERE round=?", number) == [(2,)])
        cluster.kill("gateway")
        cluster.start("gateway")
        wait_until_heard(cluster)
        assert rounds(cluster) == (number, 0), "a held round was closed"
        assert cluster.status()["paused"] == "now", cluster.status()
        result = steer(cluster, "drain", check=False)
        assert result.returncode == 1 and "resume" in result.stderr, result
        steer(cluster, "resume")
        wait_for_round(cluster, number + 1)
        finish(cluster)


def board_of(cluster, name):
    answer = order(cluster, "status", check=False)
    found = [board for board in answer.get("state", {}).get("boards", []) if board["name"] == name]
    return found[0] if found else {}


@scenario
def a_drained_group_is_not_invited(build):
    groups = {"lab-a": ["board-1"], "lab-b": ["board-3"], "lab-c": ["board-2", "board-4"]}
    with Cluster(build, groups, **FAST) as cluster:
        running = ["gateway", "board-1", "board-3"]
        for name in running:
            cluster.start(name)
        wait_for_round(cluster, 1)
        result = steer(cluster, "drain", "board-2", check=False)
        assert result.returncode == 1 and "trains with 1 other in group lab-c" in result.stderr, result
        result = steer(cluster, "drain", "lab-x", check=False)
        assert result.returncode == 1 and "no group and no board" in result.stderr, result
        assert "group lab-c is not invited" in steer(cluster, "drain", "lab-c").stdout
        said = steer(cluster, "drain", "board-3").stdout
        assert "group lab-b is not invited" in said and "1 group is left and the quorum is 2" in said, said
        number = rounds(cluster)[0]
        wait("the open round's end", lambda: rounds(cluster)[1] == 2)
        cluster.kill("gateway")
        cluster.start("gateway")
        wait("board-3 to be heard", lambda: "heard_ms" in board_of(cluster, "board-3"))
        assert board_of(cluster, "board-3")["state"] == "drained", board_of(cluster, "board-3")
        assert "group lab-b is drained" in cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        assert rounds(cluster) == (number, 2), "a round was opened without a quorum"
        assert "invited again" in steer(cluster, "resume", "lab-b").stdout
        wait_for_round(cluster, number + 2)
        assert cluster.ledger("SELECT count(*) FROM selection WHERE grp='lab-c'") == [(0,)]
        finish(cluster, names=running)


@scenario
def a_drained_gateway_ends_after_its_round(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        wait_for_round(cluster, 2)
        assert "the aggregator ends" in steer(cluster, "drain").stdout
        assert cluster.processes["gateway"].wait(LIMIT) == 0
        number, state = rounds(cluster)
        assert state == 2, "the round was not finished"
        assert not os.path.exists(cluster.path("state/gateway/admin.sock")), "the socket is still there"
        result = steer(cluster, "stop", check=False)
        assert result.returncode == 1 and "no aggregator runs" in result.stderr, result
        with open(cluster.path("state/gateway/files/.lock"), "a") as lock:  # it needs none, which a start could be without
            fcntl.flock(lock, fcntl.LOCK_EX)
            result = steer(cluster, "close-round", "--yes", check=False)
        assert result.returncode == 1 and "no aggregator runs" in result.stderr, result
        cluster.start("gateway")  # goes on, and is stopped
        wait_for_round(cluster, number + 1)
        assert "the aggregator ends now" in steer(cluster, "stop").stdout
        assert cluster.processes["gateway"].wait(LIMIT) == 130
        assert "paused until" in steer(cluster, "pause").stdout  # for the next start
        cluster.start("gateway")
        wait_until_heard(cluster)
        assert order(cluster, "status")["state"]["run"]["paused"] == "rounds"
        steer(cluster, "resume")
        wait_for_round(cluster, number + 3)
        finish(cluster)
        kinds = [line["what"] for line in audit(cluster) if line["what"] in ("start", "end", "stop")]
        assert kinds == ["start", "end", "start", "stop", "stop", "end", "start", "end"], kinds


@scenario
def a_board_is_moved_enrolled_and_revoked_over_the_socket(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        wait_for_round(cluster, 2)
        where = ("--socket", "state/gateway/admin.sock")
        steer(cluster, "pause")
        wait("the open round's end", lambda: rounds(cluster)[1] == 2)
        said = steer(cluster, "move", "board-3", "--group", "lab-z", *where).stdout
        assert said == "board-3 is in group lab-z now; it was in lab-b\n", said
        cluster.wait_for_line("board-3", "registered in group 'lab-z'")
        steer(cluster, "resume")
        wait("an update of lab-z", lambda: cluster.ledger("SELECT count(*) FROM contribution WHERE grp='lab-z'")[0][0])
        assert dict(cluster.ledger("SELECT grp,raised FROM key_epoch")) == {"lab-b": 1, "lab-z": 1}
        assert "already" in steer(cluster, "move", "board-3", "--group", "lab-z").stdout

        steer(cluster, "enroll", "board-9", "--group", "lab-n", "-o", "keys/board-9.key", *where)
        with open(cluster.path("keys/board-9.key")) as file:
            secret = file.read().split()[2]
        result = steer(cluster, "enroll", "board-9", "-o", "keys/again.key", *where, check=False)
        assert result.returncode == 1 and "board-9 is enrolled already, in group lab-n" in result.stderr, result
        assert not os.path.exists(cluster.path("keys/again.key")), "the key of a board that was not enrolled"
        assert steer(cluster, "revoke", "board-9", *where).stdout == "revoked board-9\n"
        with open(cluster.path("state/gateway/audit.jsonl")) as file:
            assert secret not in file.read(), "a key is in the audit"
        assert secret not in cluster.log("gateway"), "a key is in the log"
        steer(cluster, "revoke", "board-3", *where)
        cluster.wait_for_line("gateway", "board-3 is revoked")
        cluster.wait_for_line("board-3", "refuses this board")
        result = steer(cluster, "move", "board-3", "--group", "lab-a", check=False)
        assert result.returncode == 1 and "board-3 is not enrolled" in result.stderr, result
        revoked = cluster.ledger("SELECT name FROM board WHERE revoked=1 ORDER BY name")
        assert revoked == [("board-3",), ("board-9",)], revoked
        with open(cluster.path("state/gateway.revocations")) as file:
            assert file.read().count("\n") == 2, "the list of revoked keys"
        steer(cluster, "audit", "--verify")


@scenario
def a_snapshot_of_a_running_gateway_goes_on(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        wait_for_round(cluster, 3)
        said = steer(cluster, "snapshot", "safe").stdout
        assert said.startswith("safe has version "), said
        version = int(said.split()[3])
        result = steer(cluster, "snapshot", "safe", check=False)
        assert result.returncode == 1 and "exists already" in result.stderr, result
        assert os.stat(cluster.path("safe")).st_mode & 0o777 == 0o700
        assert os.stat(cluster.path("safe/ledger.sqlite")).st_mode & 0o777 == 0o600
        for _ in range(10):  # each of them whole, whatever the run does meanwhile
            steer(cluster, "snapshot", "other")
            shutil.rmtree(cluster.path("other"))
        wait_for_round(cluster, version + 4)
        cluster.kill("gateway")
        shutil.rmtree(cluster.path("state/gateway"))
        os.rename(cluster.path("safe"), cluster.path("state/gateway"))
        assert cluster.ledger("SELECT max(number) FROM version") == [(version,)]
        cluster.start("gateway", "--restored")
        wait_for_round(cluster, version + 3)
        finish(cluster)


def handed_gateway(cluster):
    """Starts the gateway with three sockets, as its units do. Returns the folder of the sockets."""
    names = ("view", "operator", "admin")
    folder = tempfile.mkdtemp(prefix="cairn-steer-")  # short enough for an address
    copies = []
    for number, name in enumerate(names):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{folder}/{name}.sock")
            listening.listen()
            copies.append(os.dup2(listening.fileno(), 60 + number))
    script = 'exec 3<&60 4<&61 5<&62 60<&- 61<&- 62<&-; LISTEN_PID=$$ exec "$@"'
    with open(cluster.path("logs", "gateway.log"), "ab") as log:
        cluster.processes["gateway"] = subprocess.Popen(
            ["bash", "-c", script, "bash", cluster.aggregator, "run", "gateway.yaml"], cwd=cluster.directory, stdout=log,
            stderr=log, stdin=subprocess.DEVNULL, pass_fds=copies,
            env={**os.environ, "LISTEN_FDS": "3", "LISTEN_FDNAMES": ":".join(names)})
    for copy in copies:
        os.close(copy)
    return folder


@scenario
def a_role_is_the_socket(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        folder = handed_gateway(cluster)
        for board in cluster.boards:
            cluster.start(board)
        wait_for_round(cluster, 1)
        assert not os.path.exists(cluster.path("state/gateway/admin.sock")), "another socket than those handed over"

        def said(role, *arguments):
            result = steer(cluster, *arguments, "--socket", f"{folder}/{role}.sock", check=False)
            return result.returncode, result.stdout + result.stderr
        without = steer(cluster, "pause", check=False)
        assert without.returncode == 1 and "name it with --socket" in without.stderr, without.stderr
        code, text = said("view", "status")
        assert code == 0 and text.startswith("run of job digits: version ") and "board board-3 in group " in text, text
        code, text = said("view", "status", "--json")
        assert code == 0 and json.loads(text)["run"]["job"] == "digits", text
        code, text = said("operator", "reload")
        assert code == 1 and "reload needs the role admin" in text, text
        code, text = said("admin", "reload")
        assert code == 0, text
        assert said("view", "pause") == (1, "error: pause needs the role operator; this socket gives the role view\n")
        assert said("operator", "pause")[0] == 0
        code, text = said("operator", "move", "board-3", "--group", "x")
        assert code == 1 and "move needs the role admin" in text, text
        assert said("operator", "resume")[0] == 0
        # An operator cannot fill the audit; nobody but an admin has more than 30 commands a minute.
        answers = b""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(f"{folder}/operator.sock")
            asking.sendall(b"".join(b'{"id":"again%d","command":"resume"}\n' % number for number in range(70)))
            while answers.count(b"\n") < 70:
                answers += asking.recv(65536)
        assert 38 <= answers.count(b"commands a minute") <= 70, answers
        assert len([line for line in audit(cluster) if line["who"]["by"] == "operator.sock"]) <= 2 * 2 * 30
        assert said("admin", "stop")[0] == 0
        assert cluster.processes["gateway"].wait(LIMIT) == 130
        own = ("start", "end", "enroll")
        by = {(line["what"], line["who"]["by"]) for line in audit(cluster) if line["what"] not in own}
        assert by == {("pause", "operator.sock"), ("resume", "operator.sock"), ("reload", "admin.sock"), ("stop", "admin.sock")}, by
        shutil.rmtree(folder)


HOSTILE = [
    b"\n", b"{}\n", b"null\n", b"[1]\n", b"\xff\xfe\n", b"[" * 60000 + b"\n", b"x" * 65536 + b"\n", b"x" * 70000 + b"\n",
    b'{"id":1,"command":"pause"}\n', b'{"id":"a","command":"pause","now":"yes"}\n',
    b'{"id":"a","command":"pause","now":true,"now":true}\n', b'{"id":"a","command":"pause","x":{}}\n',
    b'{"id":"a","command":"pause"} {}\n', b'{"id":"a","command":"pa\0use"}\n', b'{"id":"a b","command":"pause"}\n',
    b'{"id":"a","command":"unheard-of"}\n', b'{"id":"a","command":"revoke","board":"../../etc"}\n',
    b'{"id":"a","command":"revoke"}\n', b'{"id":"a","command":"stop","board":"board-1"}\n',
    b'{"id":"a","command":"extend-round","duration_ms":1e300}\n', b'{"id":"a","command":"extend-round","duration_ms":-1}\n',
    b'{"id":"a","command":"pause","state":"/elsewhere"}\n',
]


def accepted(cluster):
    """A connection that has its place; the gateway may not have noticed yet that earlier ones are closed."""
    clients = []

    def has_place():
        clients.append(connect(cluster))
        try:
            return "too many connections" not in ask(clients[-1], {"id": "a", "command": "unheard-of"})["text"]
        except OSError:
            return False
    wait_until(has_place, "a place for a connection")
    return clients[-1]


@scenario
def hostile_clients_change_nothing_and_hold_nobody_up(build):
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start_all()
        wait_for_round(cluster, 1)
        before = len(audit(cluster))
        for line in HOSTILE:
            answer = ask(connect(cluster), line)
            assert answer and not answer["ok"] and answer["text"], (line[:80], answer)
        assert len(audit(cluster)) == before, "what no command can be is in the audit"
        idle = [accepted(cluster) for _ in range(8)]
        assert "too many connections" in ask(connect(cluster), b"")["text"]
        for client in idle:
            client.close()
        wait_for_socket(cluster)
        many = connect(cluster)  # several lines at once: an answer each, in their order
        many.sendall(b"".join(json.dumps({"id": f"n{i}", "command": "status"}).encode() + b"\n" for i in range(20)))
        with many.makefile("rb") as answers:
            assert [json.loads(answers.readline())["id"] for _ in range(20)] == [f"n{i}" for i in range(20)]
        finish(cluster)


@scenario
def two_operators_at_once_are_served_in_order(build):
    with Cluster(build, GROUPS, **{**FAST, "deadline": "1000 s"}) as cluster:
        leave_alone(cluster)

        def extend(name):
            for i in range(20):
                order(cluster, "extend-round", duration_ms=1000, id=f"{name}-{i}")
        operators = [threading.Thread(target=extend, args=(name,)) for name in ("ann", "bob")]
        for thread in operators:
            thread.start()
        for thread in operators:
            thread.join()
        assert cluster.ledger("SELECT extended_ms FROM steered_round") == [(40_000,)]
        newest = steer(cluster, "audit", "--verify").stdout.split()[-1]
        steer(cluster, "audit", "--verify", "--expect", newest)
        result = steer(cluster, "audit", "--verify", "--expect", "0" * 64, check=False)
        assert result.returncode == 1 and "no line has the digest" in result.stderr, result
        with open(cluster.path("state/gateway/audit.jsonl")) as file:
            text = file.read()
        cluster.write("state/gateway/audit.jsonl", text.replace('"duration_ms":1000', '"duration_ms":9000', 1))
        result = steer(cluster, "audit", "--verify", check=False)
        assert result.returncode == 1 and "not the digest of the line before" in result.stderr, result


@scenario
def a_board_of_an_asynchronous_run_is_moved_after_its_update(build):
    mode = ", mode: asynchronous, async: {buffer: 1}"
    training = "SELECT round FROM training WHERE grp='lab-b'"
    with Cluster(build, GROUPS, **{**FAST, "quorum": f"2{mode}", "local_steps": 2000}) as cluster:
        def send(what, *boards):
            for board in boards:
                cluster.processes[board].send_signal(what)

        def is_stopped_in_training():
            before = cluster.ledger(training)
            send(signal.SIGSTOP, "board-1", "board-3")
            time.sleep(0.3)  # what they sent before arrives
            if before and cluster.ledger(training) == before:
                return True
            send(signal.SIGCONT, "board-1", "board-3")
            return False
        cluster.start_all()
        wait("lab-b to train", is_stopped_in_training)
        result = steer(cluster, "move", "board-3", "--group", "lab-z", check=False)
        assert result.returncode == 1 and "group lab-b trains from version" in result.stderr, result
        assert "group lab-b is not invited" in steer(cluster, "drain", "lab-b").stdout
        send(signal.SIGCONT, "board-3")
        wait("the outcome of lab-b", lambda: not cluster.ledger(training))
        steer(cluster, "move", "board-3", "--group", "lab-z")
        send(signal.SIGCONT, "board-1")
        wait("an update of lab-z", lambda: cluster.ledger("SELECT count(*) FROM contribution WHERE grp='lab-z'")[0][0])
        finish(cluster)


class FalseGateway:
    """A control socket that reads a request, and says nothing, or what it was given."""

    def __init__(self, path, answer=None):
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(path)
        self.listening.listen()
        self.answer = answer
        self.requests = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        client, _ = self.listening.accept()
        with client, client.makefile("rb") as lines:
            self.requests.append(json.loads(lines.readline()))
            if self.answer:
                client.sendall(json.dumps(self.answer).encode() + b"\n")

    def close(self):
        self.thread.join()
        self.listening.close()


@scenario
def a_key_outlives_a_lost_answer(build):
    folder = tempfile.mkdtemp(prefix="cairn-steer-")  # short enough for an address
    with Cluster(build, GROUPS, **FAST) as cluster:
        cluster.start("gateway")
        wait_for_socket(cluster)
        enroll = ("enroll", "board-9", "--group", "lab-n", "-o", "keys/board-9.key", "--id", "once")
        where = ("--socket", "state/gateway/admin.sock")
        silent = FalseGateway(f"{folder}/silent")
        result = steer(cluster, *enroll, "--socket", f"{folder}/silent", check=False)
        silent.close()
        assert result.returncode == 1 and "gave no answer" in result.stderr, result
        assert "--id once" in result.stderr and "keys/board-9.key stays" in result.stderr, result
        with open(cluster.path("keys/board-9.key")) as file:
            secret = file.read().split()[2]
        assert silent.requests[0]["key"] == secret, "another key than that in the file"

        order(cluster, **silent.requests[0])  # it was carried out, and only its answer was lost
        assert steer(cluster, *enroll, *where).stdout.startswith("enrolled board-9 in group lab-n\n")
        enrolled = cluster.ledger("SELECT hex(secret) FROM board WHERE name='board-9'")
        assert enrolled == [(secret.upper(),)], "not the key in the file"
        later = (*enroll[:-1], "later")  # the aggregator has forgotten the first id
        steer(cluster, *later, *where)
        steer(cluster, *later[:-1], "beside")  # beside the aggregator, without a socket
        result = steer(cluster, "enroll", "board-8", *later[2:], check=False)
        assert result.returncode == 1 and "is the key of board-9, not of board-8" in result.stderr, result

        refusing = FalseGateway(f"{folder}/refusing", {"ok": False, "text": "no"})
        result = steer(cluster, *later, "--socket", f"{folder}/refusing", check=False)
        refusing.close()
        assert result.returncode == 1 and os.path.exists(cluster.path("keys/board-9.key")), "the key of another call"
        refusing = FalseGateway(f"{folder}/again", {"ok": False, "text": "no"})
        result = steer(cluster, "enroll", "board-8", "-o", "keys/board-8.key", "--socket", f"{folder}/again", check=False)
        refusing.close()
        assert result.returncode == 1 and not os.path.exists(cluster.path("keys/board-8.key")), result
        steer(cluster, "stop")
        shutil.rmtree(folder)


@scenario
def killed_in_a_command_it_happened_or_not(build):
    """The gateway is killed while it carries a command out; the same command is then sent again."""
    seed = random.randrange(1 << 30)
    draw = random.Random(seed)
    with Cluster(build, GROUPS, **{**FAST, "deadline": "1000 s"}) as cluster:
        number = leave_alone(cluster)
        commands = [{"command": "extend-round", "duration_ms": 1000}, {"command": "pause", "now": True},
                    {"command": "drain", "group": "lab-b"}, {"command": "resume"},
                    {"command": "extend-round", "duration_ms": 1000}, {"command": "close-round", "yes": True},
                    {"command": "enroll", "board": "board-9", "group": "lab-n", "key": "5a" * 32},
                    {"command": "revoke", "board": "board-9"},
                    {"command": "move", "board": "board-3", "group": "lab-z"}]
        refused = order(cluster, "move", board="board-3", group="lab-z", check=False)
        assert "waits for the update of group lab-b" in refused["text"], refused
        for index, command in enumerate(commands):
            if command["command"] == "move":
                wait("the closed round's version", lambda: rounds(cluster) == (number, 2))
            request = {"id": f"kill-{index}", **command}
            client = connect(cluster)
            client.sendall(json.dumps(request).encode() + b"\n")
            time.sleep(draw.uniform(0, 0.08))
            cluster.kill("gateway")
            cluster.start("gateway")
            wait_for_socket(cluster)
            answer = ask(connect(cluster), request)
            assert answer["ok"], (seed, request, answer)
        done = cluster.ledger("SELECT extended_ms,closed_with FROM steered_round WHERE round=?", number)
        assert done == [(2000, 1)], (seed, done)
        assert cluster.ledger("SELECT what,name FROM steering") == [("drain", "lab-b")], seed
        assert cluster.ledger("SELECT grp FROM board WHERE name='board-3'") == [("lab-z",)], seed
        raised = dict(cluster.ledger("SELECT grp,raised FROM key_epoch"))
        assert raised == {"lab-b": 1, "lab-n": 1, "lab-z": 1}, (seed, raised)
        assert cluster.ledger("SELECT grp,revoked FROM board WHERE name='board-9'") == [("lab-n", 1)], seed
        cluster.start("board-3")
        wait_for_round(cluster, number + 2)
        finish(cluster)
        return f"seed {seed}"


if __name__ == "__main__":
    scenario.main()
