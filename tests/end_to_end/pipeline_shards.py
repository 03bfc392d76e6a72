"""Pipelines whose parts are held in shares: P parts, R replicas and S shards train to the bits of R replicas of S shards.

    pipeline_shards.py BUILD [SCENARIO...]
"""

import wide_model
from cluster import Cluster, run_to_end
from pipeline import FOUR, SETTINGS, TWO, losses
from scenarios import Scenarios
from sets import share_samples

scenario = Scenarios()
EIGHT = {"lab": [f"board-{number}" for number in range(1, 9)]}
LAYERS = [128] * 6  # a part has several buckets, each on its way to all members of the part


def digests_of(build, groups, parallel, accumulate, disturb=None, model=None, train="", **settings):
    """Of all versions, after a replay, and the logs of the boards and the gateway."""
    settings = {**SETTINGS, "batch": f"8, accumulate: {accumulate}{train}", "extra": f"parallel: {{{parallel}}}", **settings}
    with Cluster(build, groups, **settings) as cluster:
        share_samples(cluster)
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", *LAYERS, 10, **(model or {}))
        cluster.set_model("wide.onnx")
        run_to_end(cluster, disturb)
        rows = cluster.ledger("SELECT digest FROM version ORDER BY number")
        logs = {name: cluster.log(name) for name in ["gateway", *cluster.boards]}
        return [row[0] for row in rows], logs


def same_bits(build, whole, cut, **settings):
    """Boards in shards, and chains whose parts are in shards, train the same micro-batches in the same order."""
    (groups, parallel, accumulate), (more, chains, fewer) = whole, cut
    wanted, _ = digests_of(build, groups, parallel, accumulate, **settings)
    found, logs = digests_of(build, more, chains, fewer, **settings)
    assert len(wanted) == 4, wanted
    assert wanted == found, f"{parallel} made {wanted}, {chains} {found}"
    return logs


@scenario
def two_parts_in_two_shares_make_the_versions_of_two_boards(build):
    """In stage 1 also those of two boards that hold everything, since two numbers have one sum."""
    wanted, _ = digests_of(build, TWO, "replicate: 2", 4)
    found, logs = digests_of(build, FOUR, "pipeline: 2, shard: 2", 2)
    assert len(wanted) == 4 and wanted == found, f"whole boards made {wanted}, two parts in two shares {found}"
    for number in range(1, 5):
        line = f"share {2 - number % 2} of 2 of this part ({'board-1 board-2' if number < 3 else 'board-3 board-4'}): "
        assert line in logs[f"board-{number}"], f"board-{number} did not say '{line}'"
    for stage in 2, 3:
        same_bits(build, (TWO, f"shard: 2, stage: {stage}", 4), (FOUR, f"pipeline: 2, shard: 2, stage: {stage}", 2))


@scenario
def what_a_step_adds_up_is_what_whole_parts_add_up(build):
    """Tied tensors, norms, both rows of Adam that are kept between rounds, statistics: as without shards."""
    for train, model in ((", clip: 1", {"tied": True}),
                         (", clip: 0.5, optimizer: adam, weight_decay: 0.01, keep_optimizer: true", {}),
                         (", bn: train", {"norm": True, "tied": True})):
        wanted, _ = digests_of(build, FOUR, "pipeline: 2, replicate: 2", 2, train=train, model=model)
        found, logs = digests_of(build, FOUR, "pipeline: 2, shard: 2", 2, train=train, model=model)
        assert len(wanted) == 4 and wanted == found, f"{train}, {model}: whole parts made {wanted}, shares {found}"
        assert "share 2 of 2 of this part (board-3 board-4): " in logs["board-4"], logs["board-4"]


@scenario
def two_replicas_of_two_shares_of_two_parts(build):
    for stage in 1, 2, 3:
        same_bits(build, (FOUR, f"shard: 2, stage: {stage}", 4),
                  (EIGHT, f"pipeline: 2, shard: 2, stage: {stage}", 2))


if __name__ == "__main__":
    scenario.main()
