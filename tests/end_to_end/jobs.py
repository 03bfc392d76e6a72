"""Several jobs on one gateway: each trains as if it were alone, whoever is killed; who waits, and why."""

import contextlib
import itertools
import json
import os
import re
import random
import signal
import sqlite3
import subprocess
import time

from bad_input import expect
from cluster import ENDLESS, Cluster, free_ports, wait_until
from errors import events, own_data, spoil
from http_view import get
from scenarios import Scenarios

scenario = Scenarios()

KILLS = 12
GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"], "lab-c": ["board-3", "board-4"]}
EIGHT = {f"lab-{number}": [f"board-{number}"] for number in range(1, 9)}

# Other values and another model for each further job. All are of all groups, so that a version follows from the job.
JOBS = {
    "second": {"model": "digits-mlp.onnx", "rounds": 5, "seed": 2},
    "third": {"rounds": 4, "learning_rate": 0.02},
}


class Gateway(Cluster):
    """Its boards stay when a job ends."""

    def start(self, name, *options, environment=None):
        if name == "gateway":
            return super().start(name, *options, environment=environment)
        with open(self.path("logs", f"{name}.log"), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.node, "--log-level", "debug", "run", f"{name}.yaml"], cwd=self.directory, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL)
        return self.processes[name]

    def write_job(self, name, **values):
        """The file of a further job."""
        before = self.job
        text = open(self.path("job.yaml")).read()
        self.job = {**before, **values}
        self.write_profiles()
        os.replace(self.path("job.yaml"), self.path(f"{name}.yaml"))
        self.write("job.yaml", text)
        self.job = before
        self.edit(f"{name}.yaml", ("name: digits", f"name: {name}"))

    def submit(self, name, *options, check=True):
        return self.command(self.aggregator, "job", "submit", "gateway.yaml", f"{name}.yaml", *options, check=check)

    def steer(self, verb, name, *options, check=True):
        return self.command(self.aggregator, "job", verb, "gateway.yaml", name, *options, check=check)

    def jobs(self):
        shown = self.command(self.aggregator, "job", "list", "gateway.yaml", "--json")
        return {job["name"]: job for job in json.loads(shown.stdout)}

    def job_status(self, name):
        shown = self.command(self.aggregator, "status", "--json", f"state/gateway/jobs/{name}/profile.yaml")
        return json.loads(shown.stdout.splitlines()[0])

    def wait_for_jobs(self, *names, timeout=240):
        wait_until(lambda: all(self.jobs()[name]["state"] == "ended" for name in names), f"the end of {names}", timeout)


def alone(build, groups, **values):
    """Digest of the last version of a job that is alone."""
    with Cluster(build, groups, quorum=len(groups), mixed=True, **values) as cluster:
        cluster.start_all()
        cluster.wait_for_end(120)
        return cluster.digest()


def start_together(cluster, *options):
    for name, values in JOBS.items():
        cluster.write_job(name, **values)
    cluster.start_all()
    cluster.wait_for_version(1)
    for name in JOBS:
        expect(cluster.submit(name, "--turn", "1", *options), 0, f"job {name} is in the queue with priority 5")


def check_digests(cluster, build, rounds, groups=GROUPS):
    wanted = {name: alone(build, groups, **values) for name, values in JOBS.items()}
    found = {name: cluster.job_status(name)["digest"] for name in JOBS}
    assert found == wanted, f"versions differ from those of the jobs alone: {found}, {wanted}"
    assert cluster.digest() == alone(build, groups, rounds=rounds), "the profile's job has other versions than alone"
    for name in JOBS:
        lines = cluster.command(cluster.aggregator, "replay", f"state/gateway/jobs/{name}/profile.yaml").stdout
        assert ", 0 differ, 0 not" in lines, lines


@scenario
def three_jobs_train_as_if_alone(build):
    """Three jobs take turns with three groups; the versions of each are those of the job alone."""
    with Gateway(build, GROUPS, rounds=6, quorum=3, mixed=True) as cluster:
        start_together(cluster)
        cluster.wait_for_jobs(*JOBS)
        wait_until(lambda: cluster.version() == 6, "the end of the profile's job")
        assert cluster.processes["gateway"].wait(60) == 0, "the gateway did not end after its last job"
        check_digests(cluster, build, 6)


def kill_at_random(build, groups, kills):
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    chance = random.Random(seed)
    print(f"SEED={seed}", flush=True)
    with Gateway(build, groups, rounds=6, quorum=len(groups), mixed=True) as cluster:
        start_together(cluster)
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 2.5))
            victim = chance.choice(["gateway", *cluster.boards])
            if cluster.processes[victim].poll() is None:
                cluster.kill(victim)
                cluster.start(victim)
        cluster.wait_for_jobs(*JOBS, timeout=400)
        wait_until(lambda: cluster.version() == 6, "the end of the profile's job", 400)
        check_digests(cluster, build, 6, groups)


@scenario
def kills_change_nothing(build):
    """Gateway and boards are killed at random; the versions of each job are those of the job alone."""
    kill_at_random(build, GROUPS, KILLS)


@scenario
def kills_change_nothing_of_eight_groups(build):
    """The same with eight groups and as many kills again."""
    kill_at_random(build, EIGHT, 2 * KILLS)


def boards_by_status(cluster, name):
    """Each board's group, whether it was heard, and whether it is said to serve another job."""
    profile = "gateway.yaml" if name == "digits" else f"state/gateway/jobs/{name}/profile.yaml"
    lines = cluster.command(cluster.aggregator, "status", "--json", profile).stdout.splitlines()
    return [(board["group"], board["silent_s"] is not None, "another job" in board["status"])
            for board in map(json.loads, lines) if "board" in board]


def boards_by_page(cluster, name):
    state = json.loads(get(cluster, f"/v1/job-state/{name}")[1])
    assert state["run"]["job"] == name, state
    return [(board["group"], "heard_ms" in board, board["state"] == "elsewhere") for board in state["boards"]]


def check_views(cluster, jobs):
    """status, and the answers for the page, say of each board where it is, for each job."""
    for name in jobs:
        wanted = [(group, True, group not in jobs[name]["groups"]) for group, boards in GROUPS.items() for _ in boards]
        for look in (boards_by_status, boards_by_page):
            wait_until(lambda: look(cluster, name) == wanted, f"{wanted}, {look.__name__}({name})", 10)
    versions = json.loads(get(cluster, "/v1/job-versions/second?from=1")[1])["versions"]
    assert versions[0]["version"] == 1 and len(versions) > 3, versions
    told = json.loads(get(cluster, "/v1/job-events/second")[1])["events"]
    assert told and all(event["job"] == "second" for event in told), told
    own = json.loads(get(cluster, "/v1/job-events/digits")[1])["events"]
    assert own and not any("job" in event for event in own), own
    unknown = ("/v1/job-state/nix", "/v1/job-versions/nix", "/v1/job-events/nix", "/v1/job-state/x%20y")
    assert [get(cluster, path)[0].status for path in unknown] == [404] * len(unknown)
    assert get(cluster, "/v1/job-versions/second?to=1")[0].status == 400


@scenario
def jobs_that_need_few_groups_train_side_by_side(build):
    """Each of two jobs has a group of its own; what neither wants stays with the first."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=1) as cluster:
        cluster.write_job("second", quorum=1, rounds=ENDLESS)
        cluster.http_port = free_ports(1)[0]
        with open(cluster.path("gateway.yaml"), "a") as file:
            file.write(f'http: {{listen: "127.0.0.1:{cluster.http_port}"}}\n')
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.submit("second")
        before = wait_until(lambda: all(job["text"].startswith("version") and job["groups"] for job in
                                        cluster.jobs().values()) and cluster.jobs(), "groups for both jobs")
        groups = [group for job in before.values() for group in job["groups"]]
        assert sorted(groups) == sorted(GROUPS), before
        versions = [cluster.version(), cluster.job_status("second")["version"]]
        wait_until(lambda: cluster.version() > versions[0] + 3 and cluster.job_status("second")["version"] > versions[1] + 3,
                   "versions of both jobs")
        assert {name: job["groups"] for name, job in cluster.jobs().items()} == {
            name: job["groups"] for name, job in before.items()}, "groups changed their job without need"
        check_views(cluster, before)


@scenario
def a_job_that_nobody_can_train_says_so(build):
    """At once, and it keeps nothing from others; bad input is one clear line."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("many", quorum=8)
        cluster.write_job("big", quorum=2)
        cluster.start_all()
        cluster.wait_for_version(1)
        expect(cluster.submit("many", "--priority", "9"), 0, "needs 8 groups, 3 fit", "the quorum is 8 groups and 3 are enrolled")
        expect(cluster.submit("big", "--needs", "memory >= 900 GiB"), 0, "needs 2 groups, 0 fit: board-",
               "does not meet 'memory >= 900 GiB'")
        expect(cluster.submit("big", "--name", "fast", "--needs", "gpu == cuda and arch >= 8.7"), 0,
               "does not meet 'gpu == cuda and arch >= 8.7'")
        expect(cluster.submit("big", "--name", "plain", "--needs", "gpu == none", "--priority", "0"), 0,
               "waits for groups")
        for name, said in (("many", "needs 8 groups, 3 fit"), ("big", "needs 2 groups, 0 fit")):
            cluster.wait_for_line("gateway", f"job {name} {said}")
        now = cluster.version()
        cluster.wait_for_version(now + 3)
        expect(cluster.submit("big", check=False), 1, "a job big was submitted before and is active")
        expect(cluster.submit("big", "--name", "digits", check=False), 1, "digits is the job of the gateway's profile")
        expect(cluster.submit("big", "--name", "x", "--needs", "link > 1 Mbit/s", check=False), 2,
               "a gateway knows name, memory, cores, gpu and arch")
        expect(cluster.submit("big", "--name", "x", "--needs", "memory >", check=False), 2, "--needs:")
        expect(cluster.submit("big", "--name", "x", "--from", "nix", check=False), 1, "no job of this name")
        expect(cluster.submit("big", "--name", "x", "--from", "digits:900", check=False), 1, "--from: version 900: there is none")
        expect(cluster.submit("big", "--name", "x", "--needs", "foo", check=False), 2, "; a gateway knows name, memory, cores, gpu and arch\n")
        expect(cluster.submit("big", "--priority", "10", check=False), 2, "from 0 to 9")
        expect(cluster.submit("nix", check=False), 3, "nix.yaml")
        expect(cluster.steer("hold", "nix", check=False), 1, "no job nix was submitted")
        expect(cluster.steer("hold", "digits", check=False), 1, "digits is the job of the profile")
        expect(cluster.steer("stop", "big", check=False), 1, "give --yes")
        expect(cluster.steer("stop", "big", "--yes"), 0, "job big is stopped")
        expect(cluster.steer("resume", "big", check=False), 1, "job big is over: stopped")
        left = [name for name in os.listdir(cluster.path("state/gateway/jobs")) if name[0] != "."]
        assert sorted(left) == ["big", "fast", "many", "plain"], "a refused job left files"


@scenario
def people_steer_jobs(build):
    """next, hold and resume say who has the groups; also while no aggregator runs."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("second", rounds=ENDLESS)
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.submit("second", "--priority", "2")
        has = lambda name: wait_until(lambda: len(cluster.jobs()[name]["groups"]) == 3, f"groups of {name}")  # noqa: E731
        has("digits")
        expect(cluster.steer("next", "second"), 0, "comes before all others, for a turn of 10 rounds")
        has("second")
        refused = cluster.command(cluster.aggregator, "pause", "state/gateway/jobs/second/profile.yaml", check=False)
        expect(refused, 1, "this is the profile of job second; the gateway with the state ", "'cairn-aggregator job hold GATEWAY.yaml second'")
        has("digits")  # after the turn
        cluster.command(cluster.aggregator, "pause", "gateway.yaml")
        has("second")
        cluster.steer("hold", "second")
        cluster.command(cluster.aggregator, "resume", "gateway.yaml")
        has("digits")
        cluster.kill("gateway")
        cluster.steer("resume", "second")
        assert cluster.jobs()["second"]["state"] == "active" and "no aggregator runs" in cluster.jobs()["second"]["text"]
        expect(cluster.steer("next", "second"), 0, "comes before all others")
        cluster.start("gateway")
        has("second")


def hold_round(cluster):
    """Stops board-2. Returns the round of the second job that then waits for it alone."""
    os.kill(cluster.processes["board-2"].pid, signal.SIGSTOP)
    seen = []

    def waits():
        state = cluster.job_status("second")
        seen.append((state["state"], state["round"], state["accepted"]))
        return seen[-1][0] == "open" and seen[-1][2] == 2 and seen[-6:] == 6 * seen[-1:]

    wait_until(waits, "a round without board-2")
    return seen[-1][1]


@scenario
def people_steer_the_round_of_a_submitted_job(build):
    """Its profile, or --job, says which run a round or values belong to; the gateway's own stays as it is."""
    profile = "state/gateway/jobs/second/profile.yaml"
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        run = lambda *command, check=True: cluster.command(cluster.aggregator, *command, check=check)  # noqa: E731
        cluster.write_job("second", rounds=ENDLESS)
        cluster.start_all()
        cluster.wait_for_version(1)
        run("pause", "gateway.yaml")
        cluster.submit("second")
        wait_until(lambda: cluster.job_status("second")["version"] > 0, "a version of the job")
        number = hold_round(cluster)
        expect(run("extend-round", "gateway.yaml", "10min", check=False), 1, "no round is open")
        expect(run("extend-round", profile, "10min"), 0, f"job second: round {number} has ")
        expect(run("close-round", "gateway.yaml", "--job", "second", check=False), 1,
               f"job second: round {number} would be closed with 2 updates; the quorum is 3")
        for _ in range(2):  # the second answer is that of the first
            expect(run("close-round", profile, "--yes", "--id", "close-1"), 0,
                   f"job second: round {number} is closed with 2 updates")
        expect(run("close-round", "gateway.yaml", "--job", "third", "--yes", check=False), 1,
               "the run of job third is not open now")
        wait_until(lambda: cluster.job_status("second")["version"] >= number, "the version of the closed round")
        cluster.edit("state/gateway/jobs/second/submitted.yaml", ("deadline: 1 min", "deadline: 2 min"))
        said = run("reload", "--socket", "state/gateway/admin.sock", profile).stdout
        assert said.startswith("job second: from round ") and "rounds.deadline: 1 min, now 2 min" in said, said
        cluster.edit("state/gateway/jobs/second/submitted.yaml", ("deadline: 2 min", "deadline: 3 min"))
        said = run("reload", profile).stdout
        assert said.startswith("job second of the gateway with the state ") and "2 min, now 3 min" in said, said
        assert not os.path.exists(cluster.path("state/gateway/jobs/second/audit.jsonl")), "the audit is not the gateway's"
        said = run("reload", "gateway.yaml").stdout
        assert "nothing changes" in said, said
        os.kill(cluster.processes["board-2"].pid, signal.SIGCONT)
        wait_until(lambda: cluster.job_status("second")["version"] > number, "another version")
        run("audit", "gateway.yaml", "--verify")
        asked = [json.loads(line) for line in open(cluster.path("state", "gateway", "audit.jsonl"))]
        assert [line["arguments"].get("job") for line in asked if line["what"] == "reload" and line["result"] == "asked"
                ] == ["second", "second", None], asked
        check_job_events(cluster, run, profile, number)


@scenario
def a_round_of_a_job_is_closed_once_whenever_the_gateway_is_killed(build):
    """The command is sent again with its id, and closes the round that it was about, and no later one."""
    profile, chance = "state/gateway/jobs/second/profile.yaml", random.Random(int(os.environ.get("SEED") or 5))
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("second", rounds=ENDLESS)
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.command(cluster.aggregator, "pause", "gateway.yaml")
        cluster.submit("second")
        wait_until(lambda: cluster.job_status("second")["version"] > 0, "a version of the job")
        for i in range(6):
            number = hold_round(cluster)
            command = [cluster.aggregator, "close-round", profile, "--yes", "--id", f"close-{i}"]
            first = subprocess.Popen(command, cwd=cluster.directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            time.sleep(chance.uniform(0, 0.08))
            cluster.kill("gateway")
            said = [first.communicate(timeout=60)[0]]
            cluster.start("gateway")
            wait_until(lambda: said.append(cluster.command(*command, check=False).stdout) or said[-1], "an answer")
            wanted = f"job second: round {number} is closed with 2 updates"
            assert {text.strip() for text in said if text.strip()} == {wanted}, (said, wanted)
            os.kill(cluster.processes["board-2"].pid, signal.SIGCONT)
            wait_until(lambda: cluster.job_status("second")["version"] > number, "versions after the closed round")
        with sqlite3.connect(cluster.path("state/gateway/jobs/second/ledger.sqlite")) as ledger:
            [(closed,)] = ledger.execute("SELECT count(*) FROM steered_round WHERE closed_with>0").fetchall()
        assert closed == 6, f"{closed} rounds were closed by 6 commands"
        lines = cluster.command(cluster.aggregator, "replay", profile).stdout
        assert ", 0 differ" in lines, lines


@scenario
def a_profile_at_fault_is_named(build):
    """The list names the file and the key at fault, the log also the path and the value; the job can be tried again."""
    file, good = "state/gateway/jobs/second/submitted.yaml", ("deadline: 1 min", "deadline: 1 parsec")
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("second", rounds=ENDLESS)
        cluster.start("gateway", "--log-format", "json")
        cluster.submit("second")
        cluster.wait_for_line("gateway", "job second is open: version 0 of ")
        cluster.edit(file, good)
        cluster.kill("gateway")
        cluster.start("gateway", "--log-format", "json")
        wait_until(lambda: cluster.jobs()["second"]["state"] == "failed", "the end of the job")
        shown = cluster.jobs()["second"]["text"]
        assert "failed at version 0: submitted.yaml:" in shown and ": job.rounds.deadline: expected a time" in shown, shown
        assert "parsec" not in shown and "/" not in shown, shown
        lines = [json.loads(line) for line in cluster.log("gateway").splitlines() if "parsec" in line]
        assert any(f"job second: {file}:" in line["message"] for line in lines), lines
        cluster.edit(file, good[::-1])
        cluster.steer("resume", "second")
        wait_until(lambda: cluster.jobs()["second"]["state"] == "active", "the job goes on")


def check_job_events(cluster, run, profile, number):
    """Its profile, or --job, leaves out what happened in other runs; the list of the gateway names the job."""
    made = f"round {number} made version {number} of 2 updates"
    wait_until(lambda: f" version_made: {made}\n" in run("events", profile).stdout, "an event of the version")
    assert f" version_made (job second): {made}\n" in run("events", "gateway.yaml").stdout
    by_name = run("events", "--json", "--job", "second", "gateway.yaml").stdout
    assert by_name and run("events", "--json", profile).stdout.startswith(by_name), by_name  # others may have come since
    own = run("events", "--job", "digits", "gateway.yaml").stdout
    assert " version_made: " in own and "job second" not in own and made not in own, own
    for of in ("gateway.yaml", profile):
        expect(run("events", "--job", "secnod", of, check=False), 2, "no job secnod was submitted to the gateway with the state ")
    told = events(cluster)
    assert all(event["job"] == "second" for event in told if event["text"] == made), told
    assert any(event["kind"] == "version_made" and "job" not in event for event in told), told


@scenario
def equal_jobs_take_turns(build):
    """Each has the groups for its turn and lets the other have them, however short the rounds are."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("second", rounds=ENDLESS)
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.submit("second", "--turn", "3")
        wait_until(lambda: cluster.job_status("second")["version"] >= 12, "four turns of the second job")
        made = []
        for name, folder in (("digits", "state/gateway"), ("second", "state/gateway/jobs/second")):
            with contextlib.closing(sqlite3.connect(cluster.path(folder, "ledger.sqlite"))) as ledger:
                made += [(when, name) for when, in ledger.execute("SELECT made_ms FROM version WHERE number > 0")]
        turns = [(name, len(list(same))) for name, same in itertools.groupby(name for _, name in sorted(made))]
        inner = turns[1:-1]  # the first began before there was another job, the last one goes on
        # A turn counts the round under way when it begins; a job with the smaller share has two turns in a row.
        most = {"second": 2 * 4, "digits": 2 * 11}
        assert len(inner) >= 4 and all(count <= most[name] for name, count in inner), turns


@scenario
def what_people_hold_stays(build):
    """A job that is held makes no version, also when nobody else wants its groups; nor does one without a drained group."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("second", rounds=ENDLESS)
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.command(cluster.aggregator, "pause", "gateway.yaml")
        cluster.submit("second")
        version = lambda: cluster.job_status("second")["version"]  # noqa: E731

        def stands_still():
            before = version()
            time.sleep(1.5)
            return version() <= before + 1

        wait_until(lambda: version() >= 2, "versions of the second job")
        cluster.steer("hold", "second")
        assert stands_still(), "a job that is held goes on"
        cluster.steer("resume", "second")
        held = version()
        wait_until(lambda: version() > held + 1, "later versions")
        cluster.command(cluster.aggregator, "drain", "gateway.yaml", "lab-a")
        wait_until(stands_still, "a round without the drained group")
        cluster.command(cluster.aggregator, "resume", "gateway.yaml", "lab-a")
        drained = version()
        wait_until(lambda: version() > drained + 1, "versions after the drain")
        cluster.command(cluster.aggregator, "drain", "gateway.yaml")
        assert cluster.processes["gateway"].wait(30) == 0, "the gateway did not end after `drain`"


@scenario
def a_job_begins_with_what_another_trained(build):
    """Its version 0 has the weights of the other's version; nothing of the other run changes."""
    with Gateway(build, GROUPS, rounds=3, quorum=3) as cluster:
        cluster.write_job("second", rounds=2, learning_rate=0.01)
        cluster.start("gateway", "--stay")
        for board in cluster.boards:
            cluster.start(board)
        cluster.wait_for_version(3)
        digest = cluster.digest()
        cluster.submit("second", "--from", "digits:3")
        cluster.wait_for_jobs("second")
        files = [open(cluster.path(state, "files", name), "rb").read() for state, name in
                 (("state/gateway", "version-3.full"), ("state/gateway/jobs/second", "version-0.full"))]
        assert files[0][88:] == files[1][88:], "version 0 has other weights than version 3 of the profile's job"
        assert cluster.digest() == digest
        cluster.submit("second", "--from", "second", "--name", "third")
        cluster.wait_for_jobs("third")
        expect(cluster.command(cluster.aggregator, "export", "state/gateway/jobs/third/profile.yaml", "-o", "third"), 0)


@scenario
def the_end_of_the_profiles_run_is_told_while_other_jobs_remain(build):
    """Log, status and list say that it is over and what the gateway stays for; later none shows an older end."""
    with Gateway(build, GROUPS, rounds=3, quorum=3) as cluster:
        cluster.write_job("second", rounds=2)
        cluster.start_all()
        cluster.submit("second", "--needs", "memory >= 4096 GiB")
        cluster.wait_for_line("gateway", "the aggregator stays for 1 other job: second (needs 3 groups, 0 fit")
        log = cluster.log("gateway")
        assert "the run is over: all rounds are done" in log and "model: version 3, digest" in log, log
        status = cluster.command(cluster.aggregator, "status", "gateway.yaml").stdout
        assert "round 3 of 3 (ended: all rounds are done)" in status, status
        wait_until(lambda: cluster.jobs()["digits"]["state"] == "ended", "the end of the profile's job in the list")
        assert cluster.jobs()["digits"]["text"] == "ended at version 3: all rounds are done", cluster.jobs()
        expect(cluster.steer("stop", "second", "--yes"), 0)
        assert cluster.processes["gateway"].wait(60) == 0
        log = cluster.log("gateway")
        assert "all jobs are over: the aggregator ends" in log and log.count("model: version 3, digest") == 1, log
        # With more rounds the run goes on, and no other job is left.
        cluster.edit("job.yaml", ("count: 3", f"count: {ENDLESS}"))
        cluster.command(cluster.aggregator, "reload", "gateway.yaml")
        cluster.start("gateway")
        cluster.wait_for_version(4)
        wait_until(lambda: re.match(r"version \d+ of ", cluster.jobs()["digits"]["text"]), "how the job stands now", 20)


@scenario
def the_only_job_that_is_over_is_listed_as_ended(build):
    """With --stay, and no other job."""
    with Gateway(build, GROUPS, rounds=2, quorum=3) as cluster:
        cluster.start("gateway", "--stay")
        for board in cluster.boards:
            cluster.start(board)
        cluster.wait_for_line("gateway", "the aggregator stays: boards and people can fetch the last version")
        assert "model: version 2, digest" in cluster.log("gateway"), cluster.log("gateway")
        wait_until(lambda: cluster.jobs()["digits"]["text"] == "ended at version 2: all rounds are done", "the end")


@scenario
def a_silent_group_does_not_hold_the_others(build):
    """After the deadline of a round that waits for it, they serve another job."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3, deadline="5 s") as cluster:
        cluster.write_job("second", quorum=2, rounds=3)
        cluster.start_all()
        cluster.wait_for_version(2)
        cluster.kill("board-1")
        cluster.submit("second", "--priority", "1")
        cluster.wait_for_jobs("second", timeout=100)
        stopped = cluster.version()
        cluster.start("board-1")
        cluster.wait_for_version(stopped + 2)


@scenario
def boards_that_cannot_train_a_job_serve_another(build):
    """Without its data set they never get it; when they find that they cannot train it, they go on with another."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("elsewhere")
        cluster.edit("elsewhere.yaml", ("set: digits,", "set: letters,"))
        cluster.write_job("wrong", model="../text/char-gpt.onnx", central=False)
        cluster.start_all()
        cluster.wait_for_version(1)
        expect(cluster.submit("elsewhere", "--priority", "9"), 0, "needs 3 groups, 0 fit", "has no data set letters")
        cluster.submit("wrong", "--priority", "9")
        back = "the aggregator has job 'digits' for this board, which goes on with it"
        wait_until(lambda: any(back in cluster.log(board) for board in cluster.boards), "a board that serves digits again")
        now = cluster.version()
        cluster.wait_for_version(now + 3)
        told = cluster.jobs()["wrong"]["text"]
        assert " fit: board-" in told and "a sample has the shape (8, 8)" in told, told
        cluster.command(cluster.aggregator, "enroll", "gateway.yaml", "absent", "-o", "absent.key")
        cluster.write_job("alone", quorum=1)
        cluster.edit("alone.yaml", ("set: digits,", "set: letters,"))
        cluster.submit("alone", "--priority", "9")
        why = re.compile(r"; board-\d has no data set letters$")
        wait_until(lambda: why.search(cluster.jobs()["alone"]["text"]), "the reason of those that are here")
        assert all(process.poll() is None for process in cluster.processes.values()), "a program ended"


@scenario
def events_go_on_after_the_end_of_the_profiles_job(build):
    """A board that fails while only a submitted job goes on is told; so is the end of each job."""
    with Gateway(build, GROUPS, rounds=2, quorum=3) as cluster:
        cluster.write_job("second", quorum=1, rounds=ENDLESS)
        cluster.write_job("short", quorum=1, rounds=3)
        cluster.start("gateway", "--stay")
        for board in cluster.boards:
            cluster.start(board)
        wait_until(lambda: cluster.version() == 2, "the end of the profile's job")
        cluster.submit("second")
        cluster.submit("short", "--priority", "9")
        wait_until(lambda: [event["subject"] for event in events(cluster) if event["kind"] == "job_ended"] == ["short"],
                   "an event of the end of a job")
        cluster.kill("board-1")
        spoil(own_data(cluster, "board-1"))
        cluster.start("board-1")
        wait_until(lambda: [event for event in events(cluster) if event["kind"] == "board_failed"
                            and event["subject"] == "board-1"], "an event of a board that fails")
        state = json.loads(cluster.command(cluster.aggregator, "status", "--json",
                                           "state/gateway/jobs/second/profile.yaml").stdout.splitlines()[0])
        assert state["version"] > 0, state


@scenario
def a_backup_has_the_jobs(build):
    """A snapshot goes on with all jobs, wherever it is put; boards that are ahead give that up."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        cluster.write_job("second", rounds=ENDLESS)
        cluster.write_job("waits", quorum=8)
        cluster.start_all()
        cluster.wait_for_version(1)
        cluster.submit("second", "--turn", "1")
        cluster.submit("waits")
        wait_until(lambda: cluster.job_status("second")["version"] > 1, "versions of the second job")
        said = cluster.command(cluster.aggregator, "snapshot", "gateway.yaml", "safe").stdout
        assert "and 2 submitted jobs: " in said, said
        made = cluster.job_status("second")["version"]
        wait_until(lambda: cluster.job_status("second")["version"] > made + 2, "later versions of the second job")
        cluster.kill("gateway")
        os.rename(cluster.path("state/gateway"), cluster.path("state/lost"))
        os.rename(cluster.path("safe"), cluster.path("state/elsewhere"))
        cluster.edit("gateway.yaml", ("state/gateway", "state/elsewhere"))
        cluster.start("gateway", "--restored")
        profile = "state/elsewhere/jobs/second/profile.yaml"
        newest = lambda: json.loads(cluster.command(  # noqa: E731
            cluster.aggregator, "status", "--json", profile).stdout.splitlines()[0])["version"]
        before = newest()
        wait_until(lambda: newest() > before + 2, "versions of the restored job")
        assert ", 0 differ, 0 not" in cluster.command(cluster.aggregator, "replay", profile).stdout


if __name__ == "__main__":
    scenario.main()
