"""`cairn-aggregator report`: the page with its data inside, CSV and JSON, beside a run and after it.

    report.py BUILD [SCENARIO...]
"""

import csv
import html.parser
import io
import json

from cluster import ENDLESS, Cluster, wait_until
from errors import own_data, spoil
from missing import told, wait_until_told
from scenarios import Scenarios

SINGLE = {"north": ["board-1"], "south": ["board-2"], "west": ["board-3"]}
HOSTILE = "=<img src=x onerror=alert(1)>.npy"

scenario = Scenarios()


class Page(html.parser.HTMLParser):
    """Collects the tags of a page, its data, and the cells of its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.data, self.cells = [], "", []
        self.inside = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = "data" if dict(attributes).get("id") == "data" else tag
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, _tag):
        self.inside = None

    def handle_data(self, text):
        if self.inside == "data":
            self.data += text
        elif self.inside in ("td", "th"):
            self.cells[-1] += text


def report(cluster, *options):
    return cluster.command(cluster.aggregator, "report", "gateway.yaml", *options).stdout


def ledger_sign(cluster, number, group):
    """What the ledger says of a group in a closed round."""
    if not cluster.ledger("SELECT 1 FROM selection WHERE round=? AND grp=?", number, group):
        return "n"
    if cluster.ledger("SELECT 1 FROM contribution WHERE round=? AND grp=?", number, group):
        return "a"
    return "r" if cluster.ledger("SELECT 1 FROM rejection WHERE round=? AND grp=?", number, group) else "l"


def versions_of(data):
    return [version for answer in data["versions"] for version in answer["versions"]]


def check_versions(cluster, data):
    """Scores, digests and signs are those of the ledger."""
    rows = cluster.ledger("SELECT number,lower(hex(digest)),correct*1.0/count FROM version ORDER BY number")
    versions = versions_of(data)
    assert len(versions) == len(rows), (len(versions), len(rows))
    for version, (number, digest, accuracy) in zip(versions, rows):
        assert version["version"] == number and version["digest"] == digest, version
        assert abs(version["accuracy"] - accuracy) < 1e-5, (version, accuracy)
    groups = data["versions"][0]["groups"]
    assert groups == list(cluster.groups), groups
    for version in versions[1:]:
        wanted = "".join(ledger_sign(cluster, version["version"], group) for group in groups)
        assert version["signs"] == wanted, (version, wanted)
        assert version["opened_ms"] <= version["first_ms"] <= version["last_ms"] <= version["made_ms"], version


@scenario
def a_report_of_a_finished_run_agrees_with_the_ledger(build):
    with Cluster(build, SINGLE, rounds=4) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        assert report(cluster, "-o", "run.html") == "run.html\n"
        with open(cluster.path("run.html"), encoding="utf-8") as file:
            text = file.read()
        page = Page(text)
        assert not [tag for tag in page.tags if "src" in tag[1]], "the report fetches something"
        assert not [tag for tag in page.tags if tag[0] == "link" and tag[1]["href"] != "data:,"]
        data = json.loads(page.data)
        assert data["v"] == 1 and data["state"]["v"] == 1
        run = data["state"]["run"]
        assert (run["phase"], run["round"], run["version"], run["running"]) == ("ended", 4, 4, False), run
        assert data["state"]["end"]["reason"] == "all rounds are done"
        assert data["state"]["alerts"] == [], data["state"]["alerts"]
        assert "rounds.count: 4" in data["settings"]
        check_versions(cluster, data)
        # Without JavaScript the tables have the same.
        for version in versions_of(data):
            assert version["digest"] in text and f'{version["accuracy"]:.10g}' in page.cells, version
        again = json.loads(report(cluster, "--json"))
        assert again["versions"][0]["versions"] == data["versions"][0]["versions"]
        lines = list(csv.DictReader(io.StringIO(report(cluster, "--csv"))))
        assert [line["digest"] for line in lines] == [version["digest"] for version in versions_of(data)]
        assert abs(float(lines[-1]["accuracy"]) - versions_of(data)[-1]["accuracy"]) < 1e-6
        boards = list(csv.DictReader(io.StringIO(report(cluster, "--csv=boards"))))
        assert [(line["name"], line["state"]) for line in boards] == [
            ("board-1", "over"), ("board-2", "over"), ("board-3", "over")], boards


@scenario
def the_score_of_each_version_is_an_event(build):
    for central in (True, False):
        with Cluster(build, SINGLE, rounds=4, quorum=3, central=central) as cluster:
            cluster.start_all()
            cluster.wait_for_end(120)
            data = json.loads(report(cluster, "--json"))
            told = cluster.command(cluster.aggregator, "events", "--json", "gateway.yaml").stdout.splitlines()
            texts = [event["text"] for event in map(json.loads, told) if event["kind"] == "version_measured"]
            wanted = [f"version {version['version']}: accuracy {version['accuracy']:.4f}, loss "
                      for version in versions_of(data)[1:] if "accuracy" in version]
            assert len(texts) == len(wanted) == 4 - (not central), texts
            assert all(text.startswith(start) for text, start in zip(texts, wanted)), (texts, wanted)


@scenario
def what_each_group_measured_is_shown(build):
    """The groups' own measurements, of which the versions show the median."""
    with Cluster(build, SINGLE, rounds=3, quorum=3, central=False) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        data = json.loads(report(cluster, "--json"))
        groups = {group["name"]: group["measured"] for group in data["state"]["groups"]}
        lines = list(csv.DictReader(io.StringIO(report(cluster, "--csv=groups"))))
        assert [(line["version"], line["group"]) for line in lines] == [
            (version, group) for version in "123" for group in sorted(groups)], lines
        for line in lines[-len(groups):]:
            shown = groups[line["group"]]
            assert shown["version"] == 2 == int(line["measured_version"]) and shown["samples"] == int(line["samples"]) > 5
            assert abs(shown["accuracy"] - float(line["accuracy"])) < 1e-5, (shown, line)
            assert abs(shown["loss"] - float(line["loss"])) < 1e-5, (shown, line)
            assert line["counted"] == "yes" and int(line["boards"]) == 1 and int(line["steps"]) > 0 and int(line["update_bytes"]) > 100, line
        for version in versions_of(data)[1:3]:
            of_it = [line for line in lines if int(line["measured_version"]) == version["version"]]
            losses = sorted(float(line["loss"]) for line in of_it)
            assert abs(version["loss"] - losses[1]) < 1e-5, (version, losses)


@scenario
def without_a_central_set_the_last_version_has_no_score(build):
    """Boards measure a version in the round after it: that is said, with the newest measured version."""
    with Cluster(build, SINGLE, rounds=3, quorum=3, central=False) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        status = cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        assert "; newest measurement, of version 2: accuracy 0." in status, status
        lag = "version 3 has no score: boards measure a version in the round after it"
        assert lag in status, status
        assert lag in " ".join(cluster.log("gateway").split()), cluster.log("gateway")
        first = json.loads(cluster.command(cluster.aggregator, "status", "--json", "gateway.yaml").stdout.splitlines()[0])
        assert (first["version"], first["measured"]) == (3, 2), first
        data = json.loads(Page(report(cluster)).data)
        assert data["state"]["newest"]["version"] == 2 and data["state"]["newest"]["by"] == "boards", data["state"]["newest"]
        assert [version.get("encoding") for version in versions_of(data)] == [None, "q8", "q8", "q8"], data


@scenario
def a_report_beside_a_run_names_a_board_and_its_hostile_error(build):
    with Cluster(build, SINGLE, rounds=ENDLESS, quorum=1, local_steps=20) as cluster:
        labels = own_data(cluster, "board-2")
        spoil(labels)
        with open(cluster.path("board-2.yaml")) as file:
            text = file.read()
        with open(labels, "rb") as source, open(cluster.path(HOSTILE), "wb") as target:
            target.write(source.read())
        cluster.write("board-2.yaml", text.replace(labels, f'"{HOSTILE}"'))
        for name in ("gateway", "board-1", "board-2"):
            cluster.start(name)
        wait_until_told(cluster, "board-2", "onerror")
        wait_until(lambda: told(cluster, "board-2")["status"].startswith("error "), "an error of a board that was heard")
        text = report(cluster)
        assert "<img" not in text, "a text of a board is HTML"
        state = json.loads(Page(text).data)["state"]
        assert state["run"]["running"] and state["run"]["phase"] != "ended", state["run"]
        alert = next(alert for alert in state["alerts"] if alert.get("board") == "board-2")
        assert (alert["level"], alert["kind"]) == ("error", "failed"), alert
        assert HOSTILE in alert["text"] and "has the label 77" in alert["text"], alert
        board = next(board for board in state["boards"] if board["name"] == "board-2")
        assert board["state"] == "failed" and board["error"] in board["why"], board
        never = next(board for board in state["boards"] if board["name"] == "board-3")
        assert never["state"] == "expected", never


@scenario
def mistakes_get_one_line(build):
    with Cluster(build, SINGLE) as cluster:
        for options, words in ((("--csv", "--json"), "exclude each other"), (("--csv=all",), "there are rounds, groups and boards"),
                               (("-o", "none/run.html"), "none/run.html: No such file or directory")):
            result = cluster.command(cluster.aggregator, "report", "gateway.yaml", *options, check=False)
            assert result.returncode in (1, 2) and words in result.stderr, result
            assert len(result.stderr.splitlines()) == 1, result.stderr


if __name__ == "__main__":
    scenario.main()
