"""Boards say how they are: temperature, power and why they pause, on every way that a gateway tells it.

    health.py BUILD [SCENARIO...]

The board's sensors are those of a recorded Jetson below --sysroot.
"""

import json
import os
import shutil
import signal
import subprocess
import time

from cluster import ENDLESS, free_ports
from errors import own_data, spoil
from http_view import gateway_with_http, get, is_up, metrics, wait_until
from life import Board
from scenarios import Scenarios

scenario = Scenarios()


def of(cluster, name):
    """A board as the gateway's JSON has it, and its health."""
    board = json.loads(get(cluster, f"/v1/board/{name}")[1])["board"]
    return board, board.get("health", {})


def line_of(cluster):
    lines = cluster.command(cluster.aggregator, "status", "--json", "gateway.yaml").stdout.splitlines()
    return json.loads(next(line for line in lines if line.startswith('{"board"')))


def add(cluster, name, text):
    with open(cluster.path(f"{name}.yaml"), "a") as file:
        file.write(text)


@scenario
def a_hot_board_says_so_and_goes_on_when_it_is_cool(build):
    with gateway_with_http(build, groups={"hall": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        board = Board(cluster.path("root"), "jetson-orin-nano-8gb")
        board.heat(61)
        board.put("sys/class/thermal/cooling_device1/cur_state", "0\n")
        add(cluster, "board-1", "power: {sensor: VDD_IN}\nthermal: {zone: tj-thermal, pause_above: 80 C}\n")
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        cluster.start("board-1", "--sysroot", cluster.path("root"))
        wait_until(lambda: "temperature_c" in of(cluster, "board-1")[1], "the board says its temperature")
        _, health = of(cluster, "board-1")
        assert health["temperature_c"] == 61 and not health["throttled"], health
        assert health["power_w"] > 1 and health["resident_mib"] > 1, health
        assert health["told_ms"] > 0 and health["round"] >= 0, health
        sensors = lambda: json.loads(get(cluster, "/v1/board/board-1")[1]).get("sensors", {})  # noqa: E731
        wait_until(lambda: 61 in sensors().get("temperature_c", []), "a curve with the temperature", 10)
        shown = metrics(cluster)
        series = '{board="board-1",group="hall"}'
        assert shown[f"cairn_board_temperature_celsius{series}"] == 61, shown
        assert shown[f"cairn_board_power_watts{series}"] == health["power_w"], shown
        assert shown[f"cairn_board_throttled{series}"] == 0, shown

        board.heat(85)
        wait_until(lambda: of(cluster, "board-1")[0]["state"] == "paused", "the pause is told")
        told, health = of(cluster, "board-1")
        assert told["why"] == "it pauses: too hot" and health["pause"] == "heat", told
        assert metrics(cluster)['cairn_boards{state="paused"}'] == 1
        wait_until(lambda: line_of(cluster)["status"] == "it pauses: too hot", "status knows, too")
        assert line_of(cluster)["health"]["temperature_c"] == 85, line_of(cluster)

        board.heat(60)
        wait_until(lambda: of(cluster, "board-1")[0]["state"] in ("awaited", "accepted", "waiting"), "it goes on")
        cluster.stop_all()


@scenario
def the_last_error_outlives_board_and_gateway(build):
    with gateway_with_http(build, rounds=ENDLESS, quorum=1) as cluster:
        spoil(own_data(cluster, "board-1"))
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        cluster.start("board-1")
        wait_until(lambda: cluster.ledger("SELECT count(*) FROM last_error")[0][0] == 1, "the error is stored")
        cluster.kill("board-1")
        cluster.kill("gateway")
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers again")
        answer = json.loads(get(cluster, "/v1/board/board-1")[1])
        assert answer["board"]["state"] == "never", answer
        assert "label 77" in answer["last_error"]["text"], answer
        assert answer["last_error"]["count"] == 1, answer
        assert abs(answer["last_error"]["date_ms"] / 1000 - time.time()) < 3600, answer
        assert "last_error" not in json.loads(get(cluster, "/v1/board/board-2")[1])
        cluster.stop_all()


@scenario
def a_board_has_metrics_of_its_own_if_its_profile_says_so(build):
    with gateway_with_http(build, groups={"hall": ["board-1"], "yard": ["board-2"]}, rounds=ENDLESS, quorum=1) as cluster:
        board = Board(cluster.path("root"), "jetson-orin-nano-8gb")
        board.heat(61)
        port = free_ports(1)[0]
        path = cluster.path("cairn.prom")
        add(cluster, "board-1", "power: {sensor: VDD_IN}\nthermal: {zone: tj-thermal, pause_above: 80 C}\n"
                                f'http: {{listen: "127.0.0.1:{port}", metrics_file: {path}}}\n')
        # Of two programs at one address the second one trains without.
        add(cluster, "board-2", f'http: {{listen: "127.0.0.1:{port}"}}\n')
        cluster.start("gateway")
        cluster.start("board-1", "--sysroot", cluster.path("root"))
        gateway, cluster.http_port = cluster.http_port, port
        wait_until(lambda: is_up(cluster), "the board answers")
        wait_until(lambda: metrics(cluster).get("cairn_node_version", 0) >= 1, "the board trains")
        shown = metrics(cluster)
        assert shown["cairn_node_temperature_celsius"] == 61 and shown["cairn_node_power_watts"] > 1, shown
        assert shown["cairn_node_link_up"] == 1 and shown['cairn_node_link_bytes_total{direction="out"}'] > 1000, shown
        assert shown['cairn_node_paused{rule="heat"}'] == 0 and shown["process_resident_memory_bytes"] > 1e6, shown
        assert sum(shown[key] for key in shown if key.startswith("cairn_node_state{")) == 1, shown
        wait_until(lambda: metrics(cluster)["cairn_node_energy_joules_total"] > 0, "energy is counted")
        assert get(cluster, "/v1/state")[0].status == 404 and get(cluster, "/metrics", method="POST")[0].status == 405
        assert get(cluster, "/metrics", host="evil.example")[0].status == 421
        cluster.start("board-2")
        cluster.wait_for_line("board-2", "the board goes on without metrics there")
        cluster.wait_for_line("board-2", ": held-out loss")
        assert os.stat(path).st_mode & 0o777 == 0o644
        with open(path) as file:
            text = file.read()
        assert text.startswith("# HELP cairn_node_build_info ") and text.endswith("\n"), text
        checked = [text, get(cluster, "/metrics")[1]]
        board.heat(85)
        wait_until(lambda: metrics(cluster)['cairn_node_paused{rule="heat"}'] == 1, "the pause is a metric")
        assert metrics(cluster)['cairn_node_state{state="paused"}'] == 1
        cluster.http_port = gateway
        cluster.signal("board-1", signal.SIGTERM)
        cluster.processes["board-1"].wait(60)
        cluster.stop_all()
        assert not os.path.exists(path), "the file of a board that has stopped is still there"
        if not shutil.which("promtool"):
            return "not checked with promtool, which is not here"
        for text in checked:
            said = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
            assert said.returncode == 0 and not said.stdout + said.stderr, said


if __name__ == "__main__":
    scenario.main()
