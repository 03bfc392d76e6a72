"""A run with a reload, a refusal of the gate and a rollback is made again by the second implementation.

    peer_rulings.py BIN
"""

import os
import sys

from cluster import Cluster, DIGITS, SOURCE
from reload import FAST, GROUPS, finish, reload
from rollback import CALM, GATE, LIMITS, REFUSED, ROLLED_BACK, WILD, aggregator, rulings, wait_for_ruling

sys.path.append(os.path.join(SOURCE, "tests", "peers"))
import replay  # noqa: E402
from update import Refused  # noqa: E402

ADAM, YOGI = "server: {optimizer: fedadam}\n", "server: {optimizer: fedyogi, learning_rate: 0.02}\n"


def main(build):
    model = os.path.join(DIGITS, FAST["model"])
    with Cluster(build, GROUPS, **{**FAST, "local_steps": 2}, extra=LIMITS + ADAM + GATE) as cluster:
        with open(cluster.path("gateway.yaml"), encoding="utf-8") as file:
            cluster.write("gateway.yaml", file.read().replace("gateway: {", "gateway: {keep_versions: all, keep_rounds: all, "))
        cluster.start_all()
        cluster.wait_for_version(2)
        cluster.edit("job.yaml", *WILD)
        reload(cluster)
        wait_for_ruling(cluster, REFUSED)
        cluster.edit("job.yaml", *CALM, (ADAM, YOGI))
        reload(cluster)
        aggregator(cluster, "rollback", "gateway.yaml", "1", "--reason", "a test")
        wait_for_ruling(cluster, ROLLED_BACK)
        last = finish(cluster)
        count, digest = replay.replay(cluster.path("state/gateway"), model, "ledger")
        assert count == last and digest.hex() == cluster.digest(), (count, last)
        # One job for all rounds does not make these versions.
        try:
            replay.replay(cluster.path("state/gateway"), model, 10.0)
        except Refused:
            pass
        else:
            raise AssertionError("the reloads changed nothing")
        print(f"{last} versions, {len(rulings(cluster, REFUSED))} refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
