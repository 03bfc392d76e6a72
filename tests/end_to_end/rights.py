"""Root's commands on the state of a service that runs as another user: they use it with that user's rights, so links that
this user puts there lead root nowhere. Skipped without root.

usage: rights.py BIN [CASE...]
"""

import json
import os
import subprocess
import sys

from bad_input import expect
from cluster import DIGITS, Cluster

USER = 65534  # of the service
GROUPS = {"lab-a": ["board-1"], "lab-b": ["board-2"]}


class Site(Cluster):
    """A gateway that has run, whose state belongs to USER. hidden: USER cannot enter the folder above, as with systemd's
    DynamicUser."""

    def prepare(self, hidden):
        self.start_all()
        self.wait_for_end(120)
        os.chmod(self.directory, 0o711)
        for name in ("gateway.yaml", "job.yaml"):
            os.chmod(self.path(name), 0o600)
        for folder, folders, files in os.walk(self.path("state/gateway")):
            for path in [folder] + [os.path.join(folder, name) for name in files]:
                os.lchown(path, USER, USER)
        os.chmod(self.path("state"), 0o700 if hidden else 0o711)
        os.mkdir(self.path("root"), 0o700)
        self.write("root/secret", "of root\n")
        os.chmod(self.path("root/secret"), 0o600)
        with open(self.path("job.yaml")) as file:
            self.write("second.yaml", file.read().replace("name: digits", "name: second"))
        os.chmod(self.path("second.yaml"), 0o600)

    def root(self, *words, code=0, says=()):
        result = self.command(self.aggregator, *words, check=False)
        expect(result, code, *says)
        return result.stdout

    def owners(self, folder):
        return {os.lstat(os.path.join(place, name)).st_uid for place, folders, files in os.walk(self.path(folder))
                for name in folders + files}

    def replace(self, name, target):
        """Does what USER can do: puts a link in place of what is there."""
        os.rename(self.path("state/gateway", name), self.path("state/gateway", name + ".old"))
        os.symlink(self.path(target), self.path("state/gateway", name))
        os.lchown(self.path("state/gateway", name), USER, USER)

    def check_root(self, *names):
        """Nothing of root was touched."""
        assert sorted(os.listdir(self.path("root"))) == sorted(("secret", *names)), os.listdir(self.path("root"))
        assert self.owners("root") == {0} and open(self.path("root/secret")).read() == "of root\n"


def commands_of_root_leave_only_files_of_the_owner(build):
    for hidden in (False, True):
        with Site(build, GROUPS, rounds=2, quorum=2, local_steps=2) as site:
            site.prepare(hidden)
            site.root("enroll", "gateway.yaml", "late", "-o", "root/late.key")
            site.root("revoke", "gateway.yaml", "late")
            site.root("job", "submit", "gateway.yaml", "second.yaml", "--from", "digits:1", says=("job second is in the queue",))
            site.root("job", "submit", "gateway.yaml", "second.yaml", "--name", "third")
            shown = json.loads(site.root("job", "show", "gateway.yaml", "second", "--json"))
            assert shown[0]["profile"] == "state/gateway/jobs/second/profile.yaml", shown
            site.root("reload", "gateway.yaml")
            site.root("check", "gateway.yaml", says=("ok",))
            site.root("drain", "gateway.yaml", "lab-a")
            site.root("status", "gateway.yaml")
            assert "late" in site.root("revocations", "gateway.yaml")
            site.root("export", "gateway.yaml", "-o", "root/model")
            site.root("report", "gateway.yaml", "-o", "root/report.html")
            site.root("replay", "gateway.yaml", says=("0 differ",))
            site.root("snapshot", "gateway.yaml", "root/copy", says=("2 submitted jobs",))
            site.root("audit", "gateway.yaml", "--verify")
            assert site.owners("state/gateway") == {USER}, "root's files are in the state"
            assert site.owners("root") == {0} and os.stat(site.path("state/gateway.revocations")).st_uid == 0
            with open(site.path("state/gateway/audit.jsonl")) as file:
                assert {json.loads(line)["who"]["uid"] for line in file if '"by":"command"' in line} == {0}, "not who asked"
            site.write("next.yaml", open(site.path("gateway.yaml")).read().replace("state/gateway", "state/next"))
            site.root("init", "--after", "state/gateway", "--version", "1", "next.yaml", says=("version 0 is version 1",))
            assert site.owners("state/next") == {0} and site.owners("state/gateway") == {USER}


def links_lead_root_nowhere(build):
    for hidden in (False, True):
        with Site(build, GROUPS, rounds=2, quorum=2, local_steps=2) as site:
            site.prepare(hidden)
            site.root("job", "submit", "gateway.yaml", "second.yaml", "--name", "third")
            site.replace("jobs", "root")
            site.root("job", "submit", "gateway.yaml", "second.yaml", code=1)
            site.check_root()
            os.mkdir(site.path("root/second"))
            site.root("job", "submit", "gateway.yaml", "second.yaml", code=1)
            site.check_root("second")
            os.rmdir(site.path("root/second"))
            site.replace("files", "root")
            site.root("init", "--after", "state/gateway", "--version", "none", "gateway.yaml", code=1)
            site.replace("ledger.sqlite", "root/ledger")
            site.root("enroll", "gateway.yaml", "late", "-o", "late.key", code=1)
            site.root("job", "submit", "gateway.yaml", "second.yaml", code=1)
            site.check_root()


def the_gateway_of_a_job_is_read_with_the_rights_of_its_owner(build):
    """A command with a job's profile looks into the gateway's ledger first: is the job there?"""
    for hidden in (False, True):
        with Site(build, GROUPS, rounds=2, quorum=2, local_steps=2) as site:
            site.prepare(hidden)
            site.root("job", "submit", "gateway.yaml", "second.yaml")
            job = "state/gateway/jobs/second/profile.yaml"
            site.root("revoke", job, "board-1", code=1, says=("this is the profile of job second",))
            site.write("root/empty", "")
            site.replace("ledger.sqlite", "root/empty")
            for words in ("close-round", job, "--yes"), ("extend-round", job, "1 min"), ("reload", job), ("revoke", job, "board-1"):
                site.root(*words, code=1)
                assert os.stat(site.path("root/empty")).st_size == 0, f"{words[0]} wrote into a file of root"
            site.check_root("empty")


CASES = (commands_of_root_leave_only_files_of_the_owner, links_lead_root_nowhere,
         the_gateway_of_a_job_is_read_with_the_rights_of_its_owner)


def main(build, *names):
    unknown = set(names) - {case.__name__ for case in CASES}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    if os.geteuid() != 0 or subprocess.run(["cat", os.path.join(DIGITS, "digits-cnn.onnx")], user=USER, group=USER,
                                           extra_groups=[], capture_output=True).returncode:
        print("skipped: it needs root, and a model that another user can read")
        sys.exit(77)
    for case in CASES:
        if not names or case.__name__ in names:
            case(build)
            print(case.__name__, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
