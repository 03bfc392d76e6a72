"""`cairn-aggregator logs`: the newest lines of a board's log, through the gateway, if the board's profile permits it.

    logs.py BUILD [SCENARIO...]
"""

import json
import os
import time

from cluster import ENDLESS, Cluster
from scenarios import Scenarios
from steer import order

scenario = Scenarios()


def permit(cluster, *boards, what="log"):
    for board in boards:
        with open(cluster.path(f"{board}.yaml"), "a") as file:
            file.write(f"remote: {what}\n")


def logs(cluster, *words):
    return cluster.command(cluster.aggregator, "logs", "gateway.yaml", *words, check=False)


@scenario
def the_newest_lines_of_a_board_come_through_the_gateway(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        permit(cluster, "board-1")
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 1: held-out")
        result = logs(cluster, "board-1", "--lines", "7")
        assert result.returncode == 0, result.stderr
        lines = result.stdout.splitlines()
        assert len(lines) == 7, lines
        log = cluster.log("board-1")
        assert all(line.split(" ", 1)[1] in log for line in lines), lines  # cluster.log leaves the times out
        cluster.wait_for_line("board-1", "an operator of the gateway asks for this board's log")
        with open(cluster.path("state/gateway/audit.jsonl")) as file:
            asked = [json.loads(line) for line in file if '"logs"' in line]
        assert [entry["result"].split(":")[0] for entry in asked] == ["asked", "done"], asked
        again = logs(cluster, "board-1", "--lines", "3")
        assert again.returncode == 1 and "board-1 was asked for logs a moment ago: try again in 15" in again.stderr, again.stderr
        time.sleep(15)
        whole = logs(cluster, "board-1", "--lines", "1000").stdout
        assert len(whole) <= 32768 and "registered in group" in whole, whole[:300]
        cluster.end_run()
        cluster.wait_for_end(60)


@scenario
def a_board_that_does_not_permit_it_says_so(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 1: held-out")
        result = logs(cluster, "board-1")
        assert result.returncode == 1 and not result.stdout, result
        assert result.stderr == ("error: board-1 answers: this board's profile does not permit it: it would take "
                                 "`remote: log`\n"), result.stderr
        for words, wanted in ((["board-9"], "board-9 is not enrolled"), (["board-1", "--lines", "0"], "from 1 to 1000"),
                              (["board-1", "--wait", "x"], "from 1 to 3600"), ([], "PROFILE BOARD")):
            result = logs(cluster, *words)
            assert result.returncode and wanted in result.stderr, (words, result.stderr)
        for lines in 0, 1001:
            answer = order(cluster, "logs", check=False, board="board-1", lines=lines)
            assert not answer["ok"] and answer["text"] == "lines: expected 1 to 1000", answer
        cluster.end_run()
        cluster.wait_for_end(60)
        result = logs(cluster, "board-1")
        assert result.returncode == 1 and "no aggregator of this profile runs" in result.stderr, result.stderr


@scenario
def a_board_that_is_away_is_waited_for_and_answers_when_it_is_back(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        permit(cluster, "board-1")
        cluster.start("gateway")
        cluster.wait_for_line("gateway", "round 1 waits for 1 group;")
        result = logs(cluster, "board-1", "--wait", "1")
        assert result.returncode == 1 and "board-1 has not answered: is it there" in result.stderr, result.stderr
        cluster.start("board-1")
        result = logs(cluster, "board-1")
        assert result.returncode == 0 and "registered in group" in result.stdout, (result.stdout, result.stderr)
        cluster.end_run()
        cluster.wait_for_end(60)


@scenario
def a_member_that_does_not_lead_answers_with_its_next_report(build):
    with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=ENDLESS, quorum=1) as cluster:
        permit(cluster, "board-1", "board-2")
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 1: held-out")
        for board in cluster.boards:
            result = logs(cluster, board, "--lines", "1000")
            assert result.returncode == 0 and "registered in group" in result.stdout, (board, result.stderr)
        cluster.end_run()
        cluster.wait_for_end(60)


@scenario
def a_board_tests_itself_while_it_trains(build):
    with Cluster(build, {"lab": ["board-1"]}, rounds=ENDLESS, quorum=1) as cluster:
        permit(cluster, "board-1", what="selftest")
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 1: held-out")
        result = cluster.command(cluster.aggregator, "selftest", "gateway.yaml", "board-1", check=False)
        assert result.returncode == 0, result.stderr
        for key in "cairn_node", "training.cpu", "storage.", "passed":
            assert f"\n{key}" in f"\n{result.stdout}", (key, result.stdout)
        assert cluster.path("") not in result.stdout, result.stdout
        cluster.wait_for_line("board-1", "an operator of the gateway asks for this board's selftest")
        time.sleep(15)
        result = cluster.command(cluster.aggregator, "selftest", "gateway.yaml", "board-1", check=False)
        assert result.returncode == 1 and "does it once an hour" in result.stderr, result.stderr
        cluster.end_run()
        cluster.wait_for_end(60)


if __name__ == "__main__":
    scenario.main()
