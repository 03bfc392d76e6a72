"""What a gateway tells over HTTP: metrics that move, health with its reason, JSON, and nothing to strangers.

usage: http_view.py BUILD [SCENARIO...]
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess

from cluster import ENDLESS, Cluster, free_ports, wait_until
from scenarios import SKIPPED, Scenarios

scenario = Scenarios()

TOKEN = "0123456789abcdef0123456789abcdef"
SAMPLE = re.compile(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


@contextlib.contextmanager
def gateway_with_http(build, listen=None, keys="", **job):
    """A cluster whose gateway listens for clients, at a port of this machine if listen says nothing else."""
    port = free_ports(1)[0]
    with Cluster(build, **job) as cluster:
        cluster.http_port = port
        with open(cluster.path("gateway.yaml"), "a") as file:
            file.write(f'http: {{listen: "{listen or f"127.0.0.1:{port}"}"{keys}}}\n')
        yield cluster


def get(cluster, path, method="GET", host=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", cluster.http_port, timeout=60)
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request(method, path, headers={"Host": host or f"localhost:{cluster.http_port}", **named})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body.decode()


def is_up(cluster):
    try:
        return get(cluster, "/healthz")[0].status == 200
    except OSError:
        return False


def metrics(cluster):
    answer, body = get(cluster, "/metrics")
    assert answer.status == 200, body
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    return {name: float(value) for name, value in SAMPLE.findall(body)}


@scenario
def metrics_follow_a_run_to_its_end(build):
    with gateway_with_http(build) as cluster:
        cluster.start("gateway", "--stay")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        first = metrics(cluster)
        assert first["cairn_version"] == 0 and first['cairn_updates_total{verdict="accepted"}'] == 0, first
        assert first['cairn_boards{state="never"}'] == 4, first
        for board in cluster.boards:
            cluster.start(board)
        cluster.wait_for_end(240, cluster.boards)
        wait_until(lambda: metrics(cluster)['cairn_round_phase{phase="ended"}'] == 1, "the run ends")
        last = metrics(cluster)
        accepted = cluster.ledger("SELECT count(*) FROM contribution")[0][0]
        assert last["cairn_version"] == last["cairn_rounds"] == last["cairn_round"] == 6, last
        assert last['cairn_updates_total{verdict="accepted"}'] == accepted, (last, accepted)
        assert last['cairn_rounds_total{result="merged"}'] == 6, last
        assert last["cairn_merge_seconds_count"] == last["cairn_round_duration_seconds_count"] == 6, last
        assert last["cairn_accept_commit_seconds_count"] == accepted, last
        assert last["cairn_evaluation_seconds_count"] >= 1, last
        assert last['cairn_handshakes_total{result="ok"}'] >= 4 and last['cairn_requests_total{code="2"}'] > 20, last
        assert last['cairn_board_version{board="board-1",group="lab-a"}'] == 6, last
        assert last['cairn_bytes_total{direction="in"}'] > 10000, last
        assert last['cairn_boards{state="live"}'] == 4, last
        assert last['cairn_accuracy_ratio{set="central"}'] > 0.3, last
        assert last['cairn_board_up{board="board-1",group="lab-a"}'] == 1, last
        assert last["cairn_loop_pause_seconds_count"] > 1, last
        for way in ("in", "out"):
            each = [value for name, value in last.items()
                    if name.startswith("cairn_board_bytes_total{") and f'direction="{way}"' in name]
            assert len(each) == 4 and min(each) > 1000, last
            assert abs(sum(each) - last[f'cairn_bytes_total{{direction="{way}"}}']) < 5000, last
        assert last["process_resident_memory_bytes"] > 1e6, last
        state = json.loads(get(cluster, "/v1/state")[1])
        assert state["v"] == 1 and state["run"]["version"] == 6 and state["run"]["phase"] == "ended", state
        assert {board["name"] for board in state["boards"]} == set(cluster.boards), state
        again = json.loads(get(cluster, f"/v1/state?since={state['seq']}")[1])
        assert not again["boards_all"], again
        versions = json.loads(get(cluster, "/v1/versions?from=0")[1])
        digests = {row[0]: row[1].hex() for row in cluster.ledger("SELECT number, digest FROM version")}
        assert {row["version"]: row["digest"] for row in versions["versions"]} == digests, versions
        assert json.loads(get(cluster, "/v1/board/board-3")[1])["board"]["group"] == "lab-b"
        assert get(cluster, "/v1/board/board-9")[0].status == 404
        answer, _ = get(cluster, "/v1/versions?from=0")
        assert get(cluster, "/v1/versions?from=0", If_None_Match=answer.getheader("ETag"))[0].status == 304
        answer, page = get(cluster, "/")
        assert answer.status == 200 and answer.getheader("Content-Type").startswith("text/html"), answer.status
        paths = re.findall(r'(?:src|href)="(/[a-z.]+)"', page)
        assert "/app.js" in paths and "/app.css" in paths, page
        for path in paths:
            answer, _ = get(cluster, path)
            assert answer.status == 200 and answer.getheader("X-Content-Type-Options") == "nosniff", path
            assert get(cluster, path, If_None_Match=answer.getheader("ETag"))[0].status == 304, path
        cluster.signal("gateway", signal.SIGTERM)
        cluster.wait_for_end(60, ["gateway"])
        return f"{accepted} updates"


@scenario
def health_names_what_is_wrong(build):
    with gateway_with_http(build, quorum=3) as cluster:
        with open(cluster.path("gateway.yaml"), "a") as file:
            file.write("storage: {reserve: 60 TiB}\n")
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        answer, body = get(cluster, "/readyz")
        assert answer.status == 503, (answer.status, body)
        assert re.search(r"^disk: \d+ MiB are free, below storage.reserve, 62914560 MiB$", body, re.M), body
        assert "groups: the quorum is 3 groups and 2 are enrolled\n" in body, body
        cluster.kill("gateway")
    with gateway_with_http(build) as cluster:
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        answer, body = get(cluster, "/readyz")
        assert (answer.status, body) == (200, "ok\n"), (answer.status, body)


@scenario
def a_drain_below_the_quorum_is_no_good_health(build):
    """The run stands still: not ready, and an error among the alerts, until the group comes back."""
    with gateway_with_http(build) as cluster:
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        cluster.command(cluster.aggregator, "drain", "gateway.yaml", "lab-a")
        said = "1 group can be invited, the quorum is 2: 1 drained"
        wait_until(lambda: get(cluster, "/readyz")[1] == f"groups: {said}\n", "not ready")
        assert get(cluster, "/readyz")[0].status == 503
        alerts = json.loads(get(cluster, "/v1/state")[1])["alerts"]
        assert ("error", "quorum", said) in [(one["level"], one["kind"], one["text"]) for one in alerts], alerts
        cluster.command(cluster.aggregator, "resume", "gateway.yaml", "lab-a")
        wait_until(lambda: get(cluster, "/readyz")[1] == "ok\n", "ready again")
        cluster.kill("gateway")


def dribble(cluster, text):
    """A connection that has sent this much and then waits."""
    client = socket.create_connection(("127.0.0.1", cluster.http_port), timeout=60)
    client.sendall(text)
    return client


@scenario
def strangers_get_nothing_and_hold_nobody_up(build):
    with gateway_with_http(build, rounds=ENDLESS) as cluster:
        cluster.start_all()
        wait_until(lambda: is_up(cluster), "the gateway answers")
        assert get(cluster, "/metrics", method="POST")[0].status == 405
        assert get(cluster, "/metrics", method="DELETE")[0].status == 405
        assert get(cluster, "/metrics", host=f"evil.example:{cluster.http_port}")[0].status == 421
        assert get(cluster, "/metrics", Origin="http://evil.example")[0].status == 403
        assert get(cluster, "/metrics", Content_Length="5")[0].status == 400
        assert get(cluster, "/../etc/passwd")[0].status == 404
        answer, _ = get(cluster, "/nothing")
        assert answer.status == 404 and "default-src 'none'" in answer.getheader("Content-Security-Policy")
        host = f"Host: localhost:{cluster.http_port}\r\n".encode()
        held = [dribble(cluster, b"GET /metrics HTTP/1.1\r\n" + host) for _ in range(20)]
        held += [dribble(cluster, bytes(range(256)) * 64) for _ in range(4)]
        held += [dribble(cluster, (b"GET /v1/state HTTP/1.1\r\n" + host + b"\r\n") * 50) for _ in range(4)]
        cluster.wait_for_version(cluster.version() + 3)
        wait_until(lambda: is_up(cluster), "the gateway still answers")
        for client in held:
            client.close()
        last = cluster.end_run()
        cluster.wait_for_end(240)
        assert cluster.replay()[-1].startswith(f"{last + 1} versions, 0 differ"), last
        return f"{last} versions"


@scenario
def a_token_is_needed_where_the_profile_names_one(build):
    with gateway_with_http(build, keys=", token_file: http.token") as cluster:
        token, check = cluster.path("http.token"), [cluster.aggregator, "check", "gateway.yaml"]
        for content, mode, said in ((None, 0o600, "there is no such file"), (TOKEN, 0o644, "mode 0600"),
                                    ("short", 0o600, "16 to 256")):
            if content:
                cluster.write("http.token", content + "\n")
                os.chmod(token, mode)
            for command in (check, [cluster.aggregator, "run", "gateway.yaml"]):
                result = cluster.command(*command, check=False)
                assert result.returncode == 1, (command, result.returncode, result.stdout, result.stderr)
                assert "http.token_file: " in result.stderr and said in result.stderr, result.stderr
        cluster.write("http.token", TOKEN + "\n")
        cluster.command(*check)
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        answer, _ = get(cluster, "/metrics")
        assert answer.status == 401 and answer.getheader("WWW-Authenticate").startswith("Bearer"), answer.status
        assert get(cluster, "/v1/state", Authorization="Bearer " + TOKEN[::-1])[0].status == 401
        assert get(cluster, "/")[0].status == 200  # which asks for the token
        assert get(cluster, "/metrics", Authorization="Bearer " + TOKEN)[0].status == 200
        assert TOKEN not in cluster.log("gateway")
        assert "held by the aggregator that runs here" in cluster.command(*check).stdout


@scenario
def an_address_in_use_is_said_at_the_start(build):
    with gateway_with_http(build) as cluster, socket.create_server(("127.0.0.1", cluster.http_port)):
        for command in ("run", "check"):
            result = cluster.command(cluster.aggregator, command, "gateway.yaml", check=False)
            said = f"http.listen 127.0.0.1:{cluster.http_port}: cannot listen: another program uses this address"
            assert result.returncode == 1 and said in result.stderr, (command, result.returncode, result.stderr)


@scenario
def a_socket_file_survives_a_kill(build):
    with gateway_with_http(build, listen="unix:http.sock") as cluster:
        for start in range(2):
            cluster.start("gateway")
            cluster.wait_for_line("gateway", "listening on", count=1 + start)

            def answered():
                client = socket.socket(socket.AF_UNIX)
                client.settimeout(60)
                with client, contextlib.suppress(OSError):
                    client.connect(cluster.path("http.sock"))
                    client.sendall(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    return client.recv(4096).startswith(b"HTTP/1.")
                return False

            wait_until(answered, "the gateway answers")
            assert os.stat(cluster.path("http.sock")).st_mode & 0o777 == 0o660
            cluster.kill("gateway")


@scenario
def promtool_finds_no_mistake(build):
    promtool = shutil.which("promtool")
    if not promtool:
        print("no promtool here (package prometheus)")
        raise SystemExit(SKIPPED)
    with gateway_with_http(build, rounds=2) as cluster:
        cluster.start("gateway", "--stay")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        for board in cluster.boards:
            cluster.start(board)
        for _ in range(2):
            body = get(cluster, "/metrics")[1]
            result = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, text=True, timeout=60)
            assert result.returncode == 0 and not result.stderr + result.stdout, result.stderr + result.stdout
            cluster.wait_for_end(240, cluster.boards)
        return f"{len(SAMPLE.findall(body))} samples"


if __name__ == "__main__":
    scenario.main()
