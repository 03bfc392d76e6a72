"""Dashboard and alerts of boards/examples/monitoring: right by Prometheus' own checks, and about metrics that exist.

    monitoring.py BUILD [SCENARIO...]
"""

import json
import os
import re
import shutil
import subprocess

from cluster import SOURCE
from http_view import gateway_with_http, get, is_up, wait_until
from scenarios import SKIPPED, Scenarios

MONITORING = os.path.join(SOURCE, "boards", "examples", "monitoring")
NAME = re.compile(r"\b(?:cairn|process)_[a-z0-9_]+")
scenario = Scenarios()


def read(name):
    with open(os.path.join(MONITORING, name)) as file:
        return file.read()


def expressions():
    """Those of the dashboard, with an example of each variable."""
    for panel in json.loads(read("grafana-dashboard.json"))["panels"]:
        for target in panel["targets"]:
            yield re.sub(r"\$(\w+)", r"\1", target["expr"])


def promtool(*arguments):
    if not shutil.which("promtool"):
        print("no promtool here (package prometheus)")
        raise SystemExit(SKIPPED)
    said = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


@scenario
def each_metric_of_dashboard_and_alerts_is_there(build):
    asked = set(NAME.findall(read("alerts.yml"))) | {name for text in expressions() for name in NAME.findall(text)}
    asked = {re.sub(r"_bucket$", "", name) for name in asked}
    with open(os.path.join(SOURCE, "docs", "metrics.md")) as file:
        described = set(NAME.findall(file.read())) | {name for name in asked if name.startswith("process_")}
    assert not asked - described, asked - described
    # Those of single boards, and what a run measures, are not there at the start.
    later = {name for name in asked if name.startswith("cairn_board_")} | {
        "cairn_accuracy_ratio", "cairn_best_version", "cairn_f1_ratio", "cairn_loss"}
    with gateway_with_http(build) as cluster:
        cluster.start("gateway")
        wait_until(lambda: is_up(cluster), "the gateway answers")
        families = set(re.findall(r"^# TYPE (\S+)", get(cluster, "/metrics")[1], re.MULTILINE))
        assert not asked - later - families, asked - later - families
        cluster.stop_all()
    return f"{len(asked)} metrics"


@scenario
def the_dashboard_can_be_imported(build):
    board = json.loads(read("grafana-dashboard.json"))
    assert board["schemaVersion"] >= 38 and board["uid"] and "id" not in board, board["uid"]
    assert [entry["name"] for entry in board["__inputs"]] == ["DS_PROMETHEUS"]
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers) > 10
    names = {entry["name"] for entry in board["templating"]["list"]}
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= names, target
            assert target["datasource"]["uid"] == "${DS_PROMETHEUS}", target


@scenario
def promtool_takes_rules_and_expressions_and_alerts_fire(build):
    promtool("check", "rules", os.path.join(MONITORING, "alerts.yml"))
    promtool("check", "config", os.path.join(MONITORING, "prometheus.yml"))
    with gateway_with_http(build) as cluster:
        rules = [{"record": f"panel:{i}", "expr": text} for i, text in enumerate(expressions())]
        cluster.write("panels.yml", json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
        promtool("check", "rules", cluster.path("panels.yml"))
        with open(os.path.join(SOURCE, "tests", "data", "monitoring", "alerts_test.yml")) as file:
            cluster.write("test.yml", file.read().replace("[ALERTS]", f"[{os.path.join(MONITORING, 'alerts.yml')}]"))
        promtool("test", "rules", cluster.path("test.yml"))
    return f"{len(rules)} expressions"


if __name__ == "__main__":
    scenario.main()
