"""The gateway's page in a real browser: a report, and the page of a running gateway. Pictures go to ../page.

    page.py BUILD [SCENARIO...]
"""

import os
import re
import sqlite3
import time
import urllib.request

import browser as browsers
from browser import Browser
from cluster import ENDLESS, Cluster, free_ports
from errors import own_data, spoil
from jobs import Gateway
from missing import wait_until_told
from report import HOSTILE, ledger_sign, report
from scenarios import Scenarios

GROUPS = {"north": ["board-1"], "south": ["board-2"], "west": ["board-3"], "east": ["board-4"]}
SIGNS = {"●": "a", "◐": "w", "L": "l", "✕": "r", "○": "n"}
MANY = 1000

scenario = Scenarios()


def pictures(build, name):
    folder = os.path.join(build, "..", "page")
    os.makedirs(folder, exist_ok=True)
    return os.path.abspath(os.path.join(folder, name))


def mix_verdicts(cluster):
    """More groups are invited than count, so that some are late in each round."""
    with open(cluster.path("job.yaml")) as file:
        text = file.read()
    cluster.write("job.yaml", text.replace("over_select: 1,", "over_select: 1.5,"))


def break_board(cluster, board):
    """The board has bad labels in a file with a hostile name."""
    labels = own_data(cluster, board)
    spoil(labels)
    os.rename(labels, cluster.path(HOSTILE))
    with open(cluster.path(f"{board}.yaml")) as file:
        text = file.read()
    cluster.write(f"{board}.yaml", text.replace(labels, f'"{HOSTILE}"'))


def check_matrix(page, cluster, closed):
    """Each sign of a closed round is what the ledger says."""
    heads = page.texts("#matrix thead th")[3:]
    rows = page.run("""return [...document.querySelectorAll("#matrix tbody tr")].map((row) => [row.dataset.group,
        ...[...row.querySelectorAll("td:not(.total) > .sign")].map((sign) => sign.textContent)])""")
    assert [row[0] for row in rows] == list(cluster.groups), rows
    assert all(len(signs) == len(heads) for _, *signs in rows), (heads, rows)
    seen = set()
    for group, *signs in rows:
        for number, sign in zip(map(int, heads), signs):
            if number <= closed:
                wanted = ledger_sign(cluster, number, group)
                assert SIGNS[sign] == wanted, f"round {number}, group {group}: {sign}, the ledger says {wanted}"
                seen.add(wanted)
    assert seen, "no closed round is shown"
    return seen


def check_measured(page, cluster):
    """What each group measured last is what the ledger says."""
    assert page.texts("#matrix thead th")[2] == "accuracy"
    for group, shown in page.run("""return [...document.querySelectorAll("#matrix tbody tr")].map((row) => [row.dataset.group,
        row.querySelectorAll("td.total")[1].textContent])"""):
        found = cluster.ledger("SELECT 100.0*held_out_correct/held_out_count FROM contribution WHERE grp=? AND held_out_count>0"
                               " ORDER BY round DESC LIMIT 1", group)
        assert shown == (f"{found[0][0]:.1f} %" if found else "–"), (group, shown, found)


def check_inventory(page, cluster):
    """Each board has a row with the version of the program that runs here, and a disk."""
    build = cluster.command(cluster.node, "--version").stdout.split()[1]
    rows = page.texts("#inventory-table tbody tr")
    assert len(rows) == 4 and all(build in row and "ago" in row and " GB" in row for row in rows), rows
    assert page.text("#inventory-text") == f"{build} on 4 boards", page.text("#inventory-text")
    page.run("document.getElementById('filter').focus()")
    page.press("board-3")
    assert [row.split()[0] for row in page.texts("#inventory-table tbody tr")] == ["board-3"]
    page.press(*["BACKSPACE"] * len("board-3"))
    assert page.count("#inventory-table tbody tr") == 4


def check_quiet(page):
    assert page.messages() == [], page.messages()
    assert page.count("img") == 0, "a text of a board became an image"


def open_report(page, cluster, name="run.html"):
    report(cluster, "-o", name)
    page.open(f"file://{cluster.path(name)}")
    page.wait("the run", lambda: page.text("#tiles"))


@scenario
def a_report_shows_what_the_ledger_has(build):
    with Cluster(build, GROUPS, rounds=8, quorum=2) as cluster, Browser() as page:
        mix_verdicts(cluster)
        cluster.start_all()
        cluster.wait_for_end(180)
        open_report(page, cluster)
        assert page.text("#job") == "digits"
        assert "8 of 8" in page.text("#tiles") and "all rounds are done" in page.text("#tiles"), page.text("#tiles")
        [(accuracy,)] = cluster.ledger("SELECT correct*1.0/count FROM version WHERE number=8")
        assert f"{100 * accuracy:.1f} %" in page.text("#tiles"), page.text("#tiles")
        seen = check_matrix(page, cluster, 8)
        check_measured(page, cluster)
        assert {"a", "l", "n"} <= seen, f"the run had only {seen}"
        [(digest,)] = cluster.ledger("SELECT lower(hex(digest)) FROM version WHERE number=8")
        assert digest[:12] in page.text("#versions-table")
        assert page.text("#alerts-none").startswith("●") and page.count("#alerts-list li") == 0
        check_quiet(page)
        page.shot(pictures(build, "report-light.png"))
        page.dark(True)
        page.shot(pictures(build, "report-dark.png"))
        page.dark(False)
        page.shot(pictures(build, "report-360.png"), width=360)
        page.resize(360)
        assert page.sideways() == 0, f"{page.sideways()} pixels too wide at 360"
        page.resize(640)  # a window of 1280 at 200 %
        assert page.sideways() == 0, f"{page.sideways()} pixels too wide at 200 %"


@scenario
def a_report_without_a_central_set_says_what_was_not_measured(build):
    with Cluster(build, GROUPS, rounds=3, quorum=2, central=False, down="{mode: auto}") as cluster, Browser() as page:
        cluster.start_all()
        cluster.wait_for_end(180)
        open_report(page, cluster)
        assert "version 2, median of the boards" in page.text("#tiles"), page.text("#tiles")
        assert "version 3, the last one, has no score: boards measure" in page.text("#tiles"), page.text("#tiles")
        assert re.search(r"Versions go down as \w+, [\d.]+ k?B for version 3, since version \d: (the slowest quarter of the links"
                         r" takes [\d.]+ [kM]?B a second|no group has measured its link)\.", page.text("#cost-text")), page.text("#cost-text")
        page.click("#cost .toggle")
        assert page.count("#cost-table tbody tr") == 3 and "–" not in page.texts("#cost-table td"), page.texts("#cost-table td")
        page.resize(360)
        assert page.sideways() == 0, f"{page.sideways()} pixels too wide at 360"
        check_quiet(page)


@scenario
def every_chart_is_a_table_too_and_keys_are_enough(build):
    with Cluster(build, GROUPS, rounds=3, quorum=2) as cluster, Browser() as page:
        cluster.start_all()
        cluster.wait_for_end(180)
        open_report(page, cluster)
        assert page.count("canvas") == 3
        for name, column in (("learning", "accuracy, gateway's set"), ("rounds", "merge and store"),
                             ("cost", "from boards")):
            assert page.text(f"#{name}-table") == ""
            page.run("document.querySelector(arguments[0]).focus()", f"#{name} .toggle")
            page.press("ENTER")
            assert column in page.text(f"#{name}-table"), page.text(f"#{name}-table")
            assert page.count(f"#{name}-table tbody tr") >= 3
        page.run("document.querySelector('#boards-table button').focus()")
        page.press("ENTER")
        assert "most samples a round" in page.text("#boards-table")
        assert page.run("return document.activeElement.dataset.board") == "board-1", "the focus was lost"
        page.press("ENTER")
        assert "most samples a round" not in page.text("#boards-table")
        page.run("document.getElementById('filter').focus()")
        page.press("south")
        assert page.count("#boards-table tbody tr") == 1 and "board-2" in page.text("#boards-table")
        check_quiet(page)
        # Curves of a board's sensors: in two pieces where it said nothing for long, and their range as text.
        curves = page.run(
            "return Cairn.sensorCurves({ at_ms: [0, 60000, 9e6, 9.06e6], temperature_c: [50, 61.5, 48, 52],"
            " power_w: [null, null, null, null], samples_per_s: [null, 10, 20, null] })"
            ".map(([name, value]) => { document.body.append(value); return [name, value.textContent,"
            " value.querySelectorAll('polyline').length, value.querySelector('svg').getBoundingClientRect().height] })")
        assert [curve[:3] for curve in curves] == [["temperature so far", "48.0 to 61.5 °C in 2 h 31 min", 2],
                                                   ["speed so far", "10 to 20 samples a second in 2 h 31 min", 2]], curves
        assert all(20 < curve[3] < 80 for curve in curves), curves
        check_quiet(page)
        # Without Chart.js the tables are there at once.
        with open(cluster.path("run.html"), encoding="utf-8") as file:
            text = file.read()
        begin = text.index("<script>", text.index('id="data"'))
        assert "Chart.js" in text[begin:begin + 200]
        with open(cluster.path("plain.html"), "w", encoding="utf-8") as file:
            file.write(text[:begin] + text[text.index("</script>", begin) + len("</script>"):])
        page.open(f"file://{cluster.path('plain.html')}")
        page.wait("the run", lambda: page.text("#tiles"))
        assert "merge and store" in page.text("#rounds-table") and page.text("#rounds .toggle") == ""
        check_quiet(page)


def enroll_many(cluster):
    """Enrols boards with a row each, in an instant: groups of five."""
    with sqlite3.connect(cluster.path("state/gateway/ledger.sqlite")) as ledger:
        ledger.executemany("INSERT INTO board(name,grp,secret,max_weight,revoked) VALUES(?,?,?,0,0)", [
            (f"field-{i:04}", f"hall-{i // 5:03}", bytes([i % 251]) * 32) for i in range(MANY)])


@scenario
def a_thousand_boards_are_groups_worst_first(build):
    with Cluster(build, GROUPS, rounds=ENDLESS, quorum=1) as cluster, Browser() as page:
        enroll_many(cluster)
        break_board(cluster, "board-2")
        for name in ("gateway", "board-1", "board-2"):
            cluster.start(name)
        wait_until_told(cluster, "board-2", "onerror")
        open_report(page, cluster)
        assert "1,004 boards" in page.text("#boards-text"), page.text("#boards-text")
        assert page.count("tr") < 400, f"{page.count('tr')} rows"
        first = page.texts("#boards-table tbody tr")[0]
        assert "south" in first and HOSTILE in first and "label 77" in first, first
        page.run("document.getElementById('filter').focus()")
        page.press("hall-007")
        assert page.count("#boards-table tbody tr") == 5, page.text("#boards-table")
        check_quiet(page)
        ms = page.run("const begin = performance.now(); document.getElementById('filter').dispatchEvent("
                      "new Event('input')); return performance.now() - begin")
        page.shot(pictures(build, "report-1000-boards.png"))
        return f"{ms:.0f} ms to filter"


# --- the page of a running gateway ---

TOKEN = "0123456789abcdef0123456789abcdef"


def serve(cluster, keys=""):
    """The gateway shows the page; returns its address."""
    port = free_ports(1)[0]
    with open(cluster.path("gateway.yaml"), "a") as file:
        file.write(f'http: {{listen: "127.0.0.1:{port}"{keys}}}\n')
    return f"http://localhost:{port}/"


def open_served(page, address):
    """Opens the page as soon as the gateway answers."""
    deadline = time.monotonic() + 90
    while True:
        try:
            urllib.request.urlopen(address, timeout=30).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the gateway does not answer"
            time.sleep(0.1)
    page.open(address)


def shown_version(page):
    return int(page.run("const row = document.querySelector('#versions-table tbody th');"
                        "return row ? row.textContent : -1"))


def check_quiet_but(page, words):
    """The browser's log has only messages with these words."""
    loud = [message for message in page.messages() if words not in message]
    assert loud == [], loud
    assert page.count("img") == 0, "a text of a board became an image"


@scenario
def each_job_has_its_page(build):
    """A click on a job shows its versions and boards; an address keeps it; a job that is over is shown, too."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=4) as cluster, Browser() as page:
        cluster.write_job("second", model="digits-mlp.onnx", quorum=4, rounds=3)
        cluster.write_job("many", quorum=9)
        address = serve(cluster)
        cluster.start_all()
        open_served(page, address)
        page.wait("the run", lambda: page.text("#tiles"))
        assert page.count("#jobs:not([hidden])") == 0, "one job needs no table of jobs"
        cluster.submit("second", "--turn", "2")
        cluster.submit("many")
        page.wait("the jobs", lambda: page.texts("#jobs-table tbody th") == ["digits", "second", "many"])
        page.wait("what many lacks", lambda: "needs 9 groups, 4 fit" in page.text("#jobs-table"))
        page.wait("a version of second", lambda: cluster.job_status("second")["version"] >= 1)
        assert page.text("#jobs-table a[aria-current]") == "digits" and page.text("#job") == "digits"
        page.click("#jobs-table a[href='#job=second']")
        page.wait("the page of second", lambda: page.text("#job") == "second" and shown_version(page) >= 1)
        assert page.text("#jobs-table a[aria-current]") == "second"
        page.wait("its end", lambda: cluster.jobs()["second"]["state"] == "ended" and shown_version(page) == 3)
        page.wait("what happened in its run", lambda: "round 3 made version 3" in page.text("#events-list"))
        assert "gateway runs" not in page.text("#events-list"), page.text("#events-list")
        assert page.count("#matrix tbody tr td.a") == 3 * len(GROUPS), "not each group has an accepted update in each round"
        page.wait("boards that are well", lambda: "4 of 4 well" in page.text("#tiles"))
        assert page.text("#alerts-none"), page.text("#alerts-list")
        assert cluster.job_status("second")["digest"].startswith(page.text("#versions-table tbody tr code"))
        page.shot(pictures(build, "page-job.png"))
        page.resize(360)
        page.wait("nothing beyond 360 pixels", lambda: page.sideways() == 0)
        page.resize(1280)
        page.open(address + "#job=second")  # as from a bookmark
        page.wait("the page of second again", lambda: page.text("#job") == "second" and shown_version(page) == 3)
        cluster.kill("gateway")
        page.wait("that it is gone", lambda: "does not answer; last seen" in page.text("#link"))
        cluster.start("gateway")
        page.wait("the page of a job that is over", lambda: page.text("#link") == "live" and shown_version(page) == 3)
        assert "0 of 4 well" not in page.text("#tiles") and "never heard" not in page.text("#alerts-list"), page.text("body")
        # While a job's versions cannot be had, another job is shown again.
        page.run("window.whole = window.fetch; window.fetch = (path, more) =>"
                 " path.startsWith('/v1/versions') ? Promise.reject(new Error('cut')) : window.whole(path, more)")
        page.click("#jobs-table a[href='#']")
        page.wait("a page that is old", lambda: page.count("body.stale"))
        page.click("#jobs-table a[href='#job=second']")
        page.wait("its versions again", lambda: page.text("#link") == "live" and shown_version(page) == 3)
        page.run("window.fetch = window.whole")
        page.click("#jobs-table a[href='#']")
        page.wait("the profile's job", lambda: page.text("#job") == "digits" and shown_version(page) > 3)
        page.open(address + "#job=nix")
        page.wait("the profile's job for a job that is none", lambda: page.text("#job") == "digits")
        check_quiet_but(page, "Failed to load resource")


@scenario
def the_page_follows_a_run_and_a_restart_of_its_gateway(build):
    with Cluster(build, GROUPS, rounds=ENDLESS, quorum=2, local_steps=60) as cluster, Browser() as page:
        mix_verdicts(cluster)
        break_board(cluster, "board-4")
        address = serve(cluster)
        cluster.start_all()
        open_served(page, address)
        page.wait("the run", lambda: page.text("#tiles"))
        page.wait("the broken board", lambda: "board-4 (east): error:" in page.text("#alerts-list"))
        assert HOSTILE in page.text("#alerts-list") and "has the label 77" in page.text("#alerts-list")
        assert page.run("return document.title").startswith("(1) digits"), "the title counts no error"
        page.wait("six versions", lambda: shown_version(page) >= 6)
        assert page.text("#boards-table thead th:nth-child(6)") == "samples"
        page.wait("samples of a board", lambda: int(page.text("#boards-table tbody tr:last-child td:nth-child(6)")) > 20)
        assert " samples" in page.text("#tiles"), page.text("#tiles")
        check_matrix(page, cluster, 6)
        check_inventory(page, cluster)
        page.wait("all events", lambda: "version made" in page.text("#events-list"))
        page.run("document.getElementById('alarms').click()")
        page.wait("alarms only", lambda: "version made" not in page.text("#events-list"))
        assert "board failed" in page.text("#events-list"), page.text("#events-list")
        page.run("document.getElementById('alarms').click()")
        page.wait("a live page", lambda: page.text("#link") == "live")
        check_quiet(page)
        page.shot(pictures(build, "page-light.png"))
        page.dark(True)
        page.shot(pictures(build, "page-dark.png"))
        page.dark(False)
        page.shot(pictures(build, "page-360.png"), width=360)
        page.resize(360)
        assert page.sideways() == 0, f"{page.sideways()} pixels too wide at 360"
        page.resize(1280)

        cluster.kill("gateway")
        page.wait("that it is gone", lambda: "does not answer; last seen" in page.text("#link"))
        before = shown_version(page)
        assert page.count("body.stale") == 1 and before >= 6, "what was known is gone"
        page.shot(pictures(build, "page-gone.png"))
        cluster.start("gateway")
        page.wait("that it is back", lambda: page.text("#link") == "live" and page.count("body.stale") == 0)
        page.wait("more versions", lambda: shown_version(page) > before + 1)
        check_matrix(page, cluster, before)
        check_quiet_but(page, "net::ERR_")


@scenario
def a_token_is_asked_for_once(build):
    with Cluster(build, GROUPS, rounds=ENDLESS) as cluster, Browser() as page:
        with open(os.open(cluster.path("http.token"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(TOKEN + "\n")
        address = serve(cluster, ", token_file: http.token")
        cluster.start("gateway")
        open_served(page, address)
        page.wait("the form", lambda: page.text("#login"))
        page.press("wrong", "ENTER")
        page.wait("a refusal", lambda: "refused" in page.text("#login-error"))
        page.press(TOKEN, "ENTER")
        page.wait("the run", lambda: page.text("#tiles"))
        assert page.text("#login") == ""
        page.open(address)
        page.wait("the run again", lambda: page.text("#tiles"))
        assert page.text("#login") == "" and TOKEN not in page.run("return document.documentElement.outerHTML")
        check_quiet_but(page, "401")


@scenario
def a_gateway_of_a_thousand_boards_shows_them(build):
    with Cluster(build, GROUPS, rounds=ENDLESS, quorum=1) as cluster, Browser() as page:
        enroll_many(cluster)
        address = serve(cluster)
        for name in ("gateway", "board-1"):
            cluster.start(name)
        open_served(page, address)
        page.wait("the run", lambda: page.text("#tiles"))
        page.run("const show = Cairn.show; window.spent = []; Cairn.show = (store) => {"
                 "const begin = performance.now(); show(store); window.spent.push(performance.now() - begin); }")
        page.wait("five answers", lambda: page.run("return window.spent.length >= 5"))
        assert "1,004 boards" in page.text("#boards-text"), page.text("#boards-text")
        assert page.count("tr") < 400, f"{page.count('tr')} rows"
        # They have two minutes to come after the start, so they are no alert yet.
        assert "not heard yet" in page.text("#boards-table") and page.count("#alerts-list li") == 0, page.text("#alerts-list")
        check_quiet(page)
        return f"{max(page.run('return window.spent')):.0f} ms of script after an answer at most"


if __name__ == "__main__":
    scenario.main(browsers.find)
