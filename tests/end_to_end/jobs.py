"""Several jobs on one gateway: each trains as if it were alone, whoever is killed; who waits, and why."""

import json
import os
import random
import subprocess
import time

from bad_input import expect
from cluster import DIGITS, Cluster, wait_until
from scenarios import Scenarios

scenario = Scenarios()

KILLS = 12
GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"], "lab-c": ["board-3", "board-4"]}

# Other values and another model for each further job. All are of three groups, so that a version follows from the job.
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


def alone(build, **values):
    """Digest of the last version of a job that is alone."""
    with Cluster(build, GROUPS, quorum=3, **values) as cluster:
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


def check_digests(cluster, build, rounds):
    wanted = {name: alone(build, **values) for name, values in JOBS.items()}
    found = {name: cluster.job_status(name)["digest"] for name in JOBS}
    assert found == wanted, f"versions differ from those of the jobs alone: {found}, {wanted}"
    assert cluster.digest() == alone(build, rounds=rounds), "the profile's job has other versions than alone"
    for name in JOBS:
        lines = cluster.command(cluster.aggregator, "replay", f"state/gateway/jobs/{name}/profile.yaml").stdout
        assert ", 0 differ, 0 not" in lines, lines


@scenario
def three_jobs_train_as_if_alone(build):
    """Three jobs take turns with three groups; the versions of each are those of the job alone."""
    with Gateway(build, GROUPS, rounds=6, quorum=3) as cluster:
        start_together(cluster)
        cluster.wait_for_jobs(*JOBS)
        wait_until(lambda: cluster.version() == 6, "the end of the profile's job")
        assert cluster.processes["gateway"].wait(60) == 0, "the gateway did not end after its last job"
        check_digests(cluster, build, 6)


@scenario
def kills_change_nothing(build):
    """Gateway and boards are killed at random; the versions of each job are those of the job alone."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    chance = random.Random(seed)
    print(f"SEED={seed}", flush=True)
    with Gateway(build, GROUPS, rounds=6, quorum=3) as cluster:
        start_together(cluster)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.2, 2.5))
            victim = chance.choice(["gateway", *cluster.boards])
            if cluster.processes[victim].poll() is None:
                cluster.kill(victim)
                cluster.start(victim)
        cluster.wait_for_jobs(*JOBS, timeout=400)
        wait_until(lambda: cluster.version() == 6, "the end of the profile's job", 400)
        check_digests(cluster, build, 6)


if __name__ == "__main__":
    scenario.main()
