"""What a group sends is chosen for its link: bytes stay within the profile's limit, a killed round is resumed.

    rate.py BUILD [SCENARIO...]
"""

import json
import re
import time

from cluster import Cluster
from scenarios import Scenarios

LIMIT = 3000
AUTO = {"up": "{mode: auto}", "rounds": 12, "local_steps": 20, "network": f"network: {{round_max: {LIMIT} B}}"}
FRAME = re.compile(r"round (\d+): update of (\d+) bytes accepted")
scenario = Scenarios()


@scenario
def an_update_is_as_large_as_the_profile_allows(build):
    with Cluster(build, **AUTO) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        sizes = [int(size) for _, size in FRAME.findall(cluster.log("board-1"))]
        chosen = cluster.log("board-1").count("topk, density")
        assert len(sizes) >= 11, sizes
        # The expected size is a few per cent off.
        assert all(0.7 * LIMIT < size < 1.08 * LIMIT for size in sizes[1:]), sizes
        assert chosen >= 11, chosen
        assert cluster.accuracy() > 0.95, cluster.accuracy()
        cluster.replay()


@scenario
def a_round_is_resumed_with_the_same_order(build):
    with Cluster(build, **{**AUTO, "rounds": 4, "local_steps": 300, "update": ", residual: bf16"}) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", "round 2: topk")
        time.sleep(0.3)
        for board in cluster.boards:
            cluster.kill(board)
        for board in cluster.boards:
            cluster.start(board)
        cluster.wait_for_end(120)
        # Planned once, though the group was killed in it.
        assert cluster.log("board-1").count("round 2: topk") == 1
        with open(cluster.path("state", "board-1", "checkpoint.a"), "rb") as file:
            assert file.read(8) == b"cairnck4"  # with a residual in halves
        models = {cluster.current_model(board) for board in cluster.boards}
        assert len(models) == 1
        cluster.replay()


@scenario
def a_thin_link_skips_and_goes_on(build):
    with Cluster(build, **{**AUTO, "rounds": 2, "network": "network: {round_max: 1 KiB}"}) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        assert "skip, density" in cluster.log("board-1")
        assert cluster.status()["version"] == 2


@scenario
def a_board_that_missed_versions_takes_the_deltas(build):
    groups = {"lab-a": ["board-1"], "lab-b": ["board-2"]}
    with Cluster(build, groups, quorum=1, rounds=8, local_steps=50, deadline="2 s",
                 down="{mode: topk, density: 10 %}") as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-2", "version 2:")
        cluster.kill("board-2")
        cluster.wait_for_line("board-1", "version 5:")
        cluster.start("board-2")
        cluster.wait_for_end(120)
        taken = [int(number) for number in re.findall(r"version (\d+): held-out", cluster.log("board-2"))]
        assert taken == list(range(taken[0], 9)), taken  # each by its delta, none left out
        assert cluster.current_model("board-1") == cluster.current_model("board-2")
        cluster.replay()


@scenario
def a_board_that_was_away_for_long_takes_a_snapshot(build):
    groups = {"lab-a": ["board-1"], "lab-b": ["board-2"]}
    with Cluster(build, groups, quorum=1, rounds=18, local_steps=30, deadline="2 s",
                 down="{mode: topk, density: 10 %}", update=", snapshot_every: 4") as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-2", "version 2:")
        cluster.kill("board-2")
        cluster.wait_for_line("board-1", "version 14:")
        cluster.start("board-2")
        cluster.wait_for_end(120)
        taken = [int(number) for number in re.findall(r"version (\d+): held-out", cluster.log("board-2"))]
        taken = taken[[i for i, number in enumerate(taken) if number > 10][0]:]
        assert taken[0] % 4 == 0 and taken == list(range(taken[0], 19)), taken  # a snapshot, then each delta
        # The full version has 153 kB, the snapshot a quarter, a delta 4 kB.
        down = json.loads(open(cluster.path("state", "board-2", "status.json")).read())["link"]["bytes_down"]
        assert down < 100_000, down
        assert cluster.current_model("board-1") == cluster.current_model("board-2")
        cluster.replay()


@scenario
def a_tensor_may_have_a_density_of_its_own(build):
    up = "{mode: topk, density: 1 %}"
    with Cluster(build, up=up, rounds=2, update=', densities: ["2.weight=50%"]') as cluster:
        cluster.start_all()
        cluster.wait_for_end(60)
        sizes = [int(size) for _, size in FRAME.findall(cluster.log("board-1"))]
        # Half of 4608 values beside 1 % of the others.
        assert sizes and all(2500 < size < 4000 for size in sizes), sizes
        cluster.replay()
    with Cluster(build, up=up, update=', densities: ["head.*=50%"]') as cluster:
        result = cluster.command(cluster.aggregator, "run", "gateway.yaml", check=False)
        assert result.returncode == 1 and "no trained tensor 'head.*'" in result.stderr, result


def wait_for_pause(cluster, board):
    """The status once it says that the day's bytes are used; it is written some time after the log says so."""
    end = time.monotonic() + 30
    status = {}
    while status.get("pause") != "enough was sent and received for today":
        assert time.monotonic() < end, status
        time.sleep(0.1)
        status = json.loads(cluster.command(cluster.node, "status", "--json", f"{board}.yaml").stdout)
    return status


@scenario
def a_board_that_used_its_bytes_pauses_and_stays_so_after_a_restart(build):
    groups = {"lab-a": ["board-1"], "lab-b": ["board-2"]}
    with Cluster(build, groups, quorum=1, rounds=400, local_steps=5, deadline="5 s",
                 network="network: {day_max: 300 KiB}") as cluster:
        cluster.start_all()
        pause = "training pauses: enough was sent and received for today"
        cluster.wait_for_line("board-1", pause)
        status = wait_for_pause(cluster, "board-1")
        # What was under way may end: a version and an update have 65 kB.
        assert 300 * 1024 <= status["link"]["bytes_today"] < 380 * 1024, status["link"]
        cluster.kill("board-1")
        cluster.start("board-1")
        cluster.wait_for_line("board-1", pause, count=2)
        status = wait_for_pause(cluster, "board-1")
        assert status["link"]["bytes_today"] >= 297 * 1024, status["link"]  # a kill forgets a hundredth


@scenario
def an_update_that_the_day_has_no_room_for_waits(build):
    with Cluster(build, {"lab-a": ["board-1"]}, quorum=1, rounds=3, local_steps=5, up="{mode: raw32}",
                 network="network: {day_max: 400 KiB}") as cluster:
        cluster.start_all()
        cluster.wait_for_end(60)
        assert "is more than the" in cluster.log("board-1") and "it waits" in cluster.log("board-1")
        cluster.replay()


@scenario
def a_link_that_costs_is_left_alone(build):
    # In a board's own time zone it is always between 0 h and 24 h.
    with Cluster(build, {"lab-a": ["board-1"]}, quorum=1, rounds=3,
                 network="network: {metered: {from: 0, to: 24 h}}") as cluster:
        cluster.start("gateway")
        cluster.start("board-1")
        cluster.wait_for_line("board-1", "training pauses: the link costs at this time")
    with Cluster(build, {"lab-a": ["board-1"]}, quorum=1, rounds=3, up="{mode: auto}",
                 network="network: {metered: {from: 0, to: 24 h, round_max: 2500 B}}") as cluster:
        cluster.start_all()
        cluster.wait_for_end(60)
        sizes = [int(size) for _, size in FRAME.findall(cluster.log("board-1"))]
        assert sizes and all(1500 < size < 2700 for size in sizes), sizes


@scenario
def the_bench_measures_the_link_and_says_what_it_would_choose(build):
    link = {"rate": "1e6", "delay": "50", "loss": "0", "queue": "200"}
    with Cluster(build, {"lab-a": ["board-1"]}, link=link, deadline="2 s", up="{mode: auto}", local_steps=3,
                 central=False, rounds=2, quorum=1) as cluster:
        cluster.start("gateway")
        lines = cluster.command(cluster.node, "bench", "--link", "--json", "board-1.yaml").stdout.splitlines()
        rules, chosen = [json.loads(line) for line in lines[:-1]], json.loads(lines[-1])
        # After one transfer about half of what it reached counts; float32 takes 153 kB.
        assert 300e3 < chosen["goodput_bps"] < 1e6 and 95 < chosen["rtt_ms"] < 250, chosen
        assert chosen["chosen"] == "q8" and chosen["bytes"] <= chosen["budget"] < 170e3, chosen
        assert {rule["mode"] for rule in rules} == {"raw32", "bf16", "q8", "q4", "sign", "topk"}
        assert all(rule["fits"] == (rule["bytes"] <= chosen["budget"]) for rule in rules)
        # Nothing of it was taken for an update, and the board takes part as ever.
        cluster.start("board-1")
        cluster.wait_for_line("board-1", "version 1:")
        busy = cluster.command(cluster.node, "bench", "--link", "board-1.yaml", check=False)
        assert busy.returncode == 1 and "cairn-node runs here" in busy.stderr, busy
        cluster.wait_for_end(60)
        cluster.replay()


@scenario
def a_slow_link_makes_rounds_longer(build):
    link = {"rate": "200e3", "delay": "20", "loss": "0", "queue": "300"}
    with Cluster(build, {"lab-a": ["board-1"]}, link=link, quorum=1, rounds=4, deadline="30 s", up="{mode: auto}",
                 down="{mode: topk, density: 5 %}", central=False, local_steps=5,
                 momentum="0.9, local_steps_max: 300", network="network: {round_max: 4000 B}") as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        steps = [int(number) for number in re.findall(r"; (\d+) steps \(", cluster.log("board-1"))]
        # Nothing is known of the time of a step in the first round; 3 kB take a tenth of a second.
        assert steps[0] == 5 and all(30 < each <= 300 for each in steps[1:]), steps
        cluster.replay()


if __name__ == "__main__":
    scenario.main()
