"""Both packages are upgraded while a run goes on, and the services restarted, as their maintainer scripts do:
the run ends as one that nothing disturbed. A package that cannot read the state it finds is refused.

usage: upgrade.py BUILD

Packages are installed into a folder (dpkg --root); "tests/boot/upgrade.py" does the same with systemd in a guest.
"""

import os
import shutil
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "end_to_end"), os.path.join(os.path.dirname(HERE), "boot")]

from cluster import Cluster  # noqa: E402
from flashing import change_package  # noqa: E402
from packages import SERVICES, Root, make_packages, package_of  # noqa: E402

GROUPS = {"gate": ["board-1"]}
JOB = {"rounds": 12, "quorum": 1, "model": "digits-mlp.onnx", "local_steps": 20}
PROCESSES = {"cairn-aggregator": "gateway", "cairn-node": "board-1"}


def undisturbed(build):
    with Cluster(os.path.join(build, "bin"), GROUPS, **JOB) as cluster:
        cluster.start_all()
        cluster.wait_for_end(60)
        return cluster.digest()


def install(cluster, root, packages):
    root.dpkg("-i", *packages.values())
    cluster.node, cluster.aggregator = root.path("usr/bin/cairn-node"), root.path("usr/bin/cairn-aggregator")


def main(build):
    wanted = undisturbed(build)
    with Cluster(os.path.join(build, "bin"), GROUPS, **JOB) as cluster:
        made = make_packages(build, cluster.path("packages"))
        packages = {name: package_of(made, name) for name in SERVICES}
        newer = {name: change_package(package, cluster.path(f"newer-{name}.deb"), "9.0.0")
                 for name, package in packages.items()}
        root = Root(cluster.path("root"))
        for name, process in PROCESSES.items():
            os.makedirs(cluster.path("state", process), exist_ok=True)
            os.symlink(cluster.path("state", process), root.path(SERVICES[name]))
        install(cluster, root, packages)
        cluster.start_all()
        cluster.wait_for_line("board-1", "version 3:")
        for process in PROCESSES.values():
            cluster.signal(process, signal.SIGSTOP)  # or a quick run is over before dpkg is
        install(cluster, root, newer)
        for process in PROCESSES.values():
            cluster.signal(process, signal.SIGTERM)
            cluster.signal(process, signal.SIGCONT)
            cluster.processes[process].wait()
        interrupted_at = cluster.status()["version"]
        assert interrupted_at < JOB["rounds"], "the run was over before the upgrade"
        cluster.start_all()
        cluster.wait_for_end(60)
        print(f"upgraded at version {interrupted_at} of {JOB['rounds']}")
        assert cluster.digest() == wanted, "the run did not end as an undisturbed one does"
        for name, package in packages.items():
            older = change_package(package, cluster.path(f"older-{name}.deb"), "0.0.1",
                                   ("preinst", r"^newest=\d+", "newest=0"))
            result = root.dpkg("-i", older, check=False)
            assert result.returncode and "has format" in result.stderr, result.stderr
        assert cluster.digest() == wanted


if __name__ == "__main__":
    if not shutil.which("cpack") or not shutil.which("dpkg"):
        print("skipped: needs cpack and dpkg")
        sys.exit(77)
    main(os.path.abspath(sys.argv[1]))
