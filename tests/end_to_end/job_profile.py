"""Commands that are given the profile of a submitted job, and its folder when it is damaged: boards belong to the gateway."""

import json
import os
import sqlite3

from bad_input import expect
from cluster import ENDLESS, free_ports, wait_until
from http_view import get
from jobs import Gateway
from scenarios import Scenarios

scenario = Scenarios()
GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"], "lab-c": ["board-3"]}
GATEWAY, JOB = "state/gateway", "state/gateway/jobs/second"


def rows(cluster, state, query):
    with sqlite3.connect(cluster.path(state, "ledger.sqlite")) as ledger:
        return ledger.execute(query).fetchall()


def revoked(cluster, state):
    return [name for name, in rows(cluster, state, "SELECT name FROM board WHERE revoked ORDER BY name")]


def audit(cluster, state=GATEWAY):
    with open(cluster.path(state, "audit.jsonl")) as file:
        return [json.loads(line) for line in file]


def open_job(cluster):
    cluster.write_job("second", rounds=ENDLESS, quorum=2)
    [cluster.http_port] = free_ports(1)
    with open(cluster.path("gateway.yaml"), "a") as file:
        file.write(f'http: {{listen: "127.0.0.1:{cluster.http_port}"}}\n')
    cluster.start_all()
    cluster.submit("second", "--priority", "9")
    wait_until(lambda: cluster.jobs()["second"]["state"] == "active" and os.path.exists(cluster.path(JOB, "ledger.sqlite"))
               and cluster.job_status("second")["version"] > 1, "versions of the job")


@scenario
def commands_for_the_gateway_refuse_the_profile_of_a_job(build):
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        open_job(cluster)
        profile = f"{JOB}/profile.yaml"
        lines = len(audit(cluster))
        for running in True, False:
            for words in (("revoke", profile, "board-2"), ("enroll", profile, "board-9", "--group", "lab-b"), ("pause", profile),
                          ("resume", profile), ("drain", profile, "lab-b"), ("move", profile, "board-2", "--group", "lab-a"),
                          ("revocations", profile), ("job", "submit", profile, "second.yaml", "--name", "third"),
                          ("job", "hold", profile, "second"), ("audit", profile, "--verify")):
                expect(cluster.command(cluster.aggregator, *words, check=False), 1,
                       "this is the profile of job second; the gateway with the state ", "give its profile")
            assert revoked(cluster, GATEWAY) == revoked(cluster, JOB) == [], f"running: {running}"
            if running:
                cluster.kill("gateway")
        expect(cluster.command(cluster.aggregator, "run", profile, check=False), 1, "this is the profile of job second")
        assert len(audit(cluster)) == lines and not os.path.exists(cluster.path("board-9.key"))
        assert not os.path.exists(cluster.path(JOB, "audit.jsonl")) and not os.path.exists(cluster.path(JOB, "jobs"))


@scenario
def a_group_that_is_removed_from_a_job_is_revoked_at_the_gateway(build):
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        open_job(cluster)
        profile = f"{JOB}/profile.yaml"
        [(group,)] = rows(cluster, JOB, "SELECT grp FROM contribution ORDER BY round DESC LIMIT 1")
        board = GROUPS[group][0]
        expect(cluster.command(cluster.aggregator, "remove", profile, group, "--reason", "labels are wrong", "--yes"), 0,
               f"revoked {board}")
        assert revoked(cluster, GATEWAY) == [board]
        removed = cluster.job_status("second")["version"]
        # Writing to the gateway's ledger makes the gateway copy its boards into those of the jobs.
        cluster.command(cluster.aggregator, "enroll", "gateway.yaml", "board-9", "--group", group)
        wait_until(lambda: cluster.job_status("second")["version"] > removed + 2, "versions of the others")
        assert revoked(cluster, GATEWAY) == revoked(cluster, JOB) == [board]
        later = f"SELECT count(*) FROM contribution WHERE grp='{group}' AND round>{removed + 1}"
        assert rows(cluster, JOB, later) == [(0,)], "an update of the group was taken afterwards"
        lines = [line for line in audit(cluster) if line["what"] == "remove"]
        assert [line["arguments"] for line in lines] == 2 * [{"name": group, "job": "second"}], lines
        assert not os.path.exists(cluster.path(JOB, "audit.jsonl"))
        cluster.command(cluster.aggregator, "audit", "gateway.yaml", "--verify")
        expect(cluster.command(cluster.aggregator, "replay", profile), 0, ", 0 differ")


@scenario
def a_run_that_cannot_be_read_fills_no_log(build):
    """Whoever may read the page can ask for it again and again."""
    with Gateway(build, GROUPS, rounds=ENDLESS, quorum=3) as cluster:
        open_job(cluster)
        cluster.steer("stop", "second", "--yes")
        path = "/v1/job-versions/second?from={}"
        wait_until(lambda: get(cluster, path.format(0))[0].status == 200, "the versions of the job that is over")
        assert get(cluster, "/v1/job-board/second/nobody")[0].status == 404  # and it can be read all the same
        assert get(cluster, path.format(1))[0].status == 200
        for name in "ledger.sqlite-wal", "ledger.sqlite-shm":
            if os.path.exists(cluster.path(JOB, name)):
                os.remove(cluster.path(JOB, name))
        with open(cluster.path(JOB, "ledger.sqlite"), "r+b") as file:
            file.write(b"no ledger" * 100)
        before = len(cluster.log("gateway").splitlines())
        statuses = {get(cluster, path.format(number))[0].status for number in range(2, 202)}  # the answers before are kept
        assert statuses == {404}, statuses
        assert 0 < len(cluster.log("gateway").splitlines()) - before < 10, cluster.log("gateway")


if __name__ == "__main__":
    scenario.main()
