"""Pipelines whose parts are held in shares: P parts, R replicas and S shards train to the bits of R replicas of S shards.

    pipeline_shards.py BUILD [SCENARIO...]
"""

import re
import time

import pipeline_own
import wide_model
from cluster import Cluster, run_to_end
from pipeline import FOUR, SETTINGS, THREE, TWO, kill_at_drawn_times, losses, refused
from scenarios import Scenarios
from sets import share_samples, status
from timeline import spans_of

scenario = Scenarios()
SIX = {"lab": [f"board-{number}" for number in range(1, 7)]}
EIGHT = {"lab": [f"board-{number}" for number in range(1, 9)]}
RAW = {"up": "{mode: raw32}", "down": "{mode: raw32}"}  # no rounding hides a difference
LAYERS = [128] * 6  # a part has several buckets, each on its way to all members of the part


def trained(build, groups, parallel, accumulate, disturb=None, model=None, train="", layers=LAYERS, train_max=0,
            **settings):
    """The digests of all versions, after a replay, the logs of the boards and the gateway, and the model that was made."""
    settings = {**SETTINGS, "batch": f"8, accumulate: {accumulate}{train}", "extra": f"parallel: {{{parallel}}}", **settings}
    with Cluster(build, groups, **settings) as cluster:
        share_samples(cluster)
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", *layers, 10, **(model or {}))
        cluster.set_model("wide.onnx")
        if train_max:
            with open(cluster.path("board-1.yaml"), "a") as file:
                file.write(f"memory: {{train_max: {train_max >> 10} KiB}}\n")
        run_to_end(cluster, disturb)
        rows = cluster.ledger("SELECT digest FROM version ORDER BY number")
        logs = {name: cluster.log(name) for name in ["gateway", *cluster.boards]}
        return [row[0] for row in rows], logs, cluster.current_model("board-1")


def digests_of(build, groups, parallel, accumulate, disturb=None, **settings):
    return trained(build, groups, parallel, accumulate, disturb, **settings)[:2]


def same_bits(build, whole, cut, **settings):
    """Boards in shards, and chains whose parts are in shards, train the same micro-batches in the same order."""
    (groups, parallel, accumulate), (more, chains, fewer) = whole, cut
    settings.update(RAW)
    wanted, _ = digests_of(build, groups, parallel, accumulate, **settings)
    found, logs = digests_of(build, more, chains, fewer, **settings)
    assert len(wanted) == 4, wanted
    assert wanted == found, f"{parallel} made {wanted}, {chains} {found}"
    return logs


def nearly_same(build, whole, *cuts, **settings):
    """Where sums are added in another order: all weights agree, except for rounding. Returns their largest difference."""
    settings.update(RAW)
    wanted, *found = (wide_model.weights_of(trained(build, *layout, **settings)[2]) for layout in (whole, *cuts))
    apart = [max(abs(a - b) for a, b in zip(wanted, weights)) / max(map(abs, wanted)) for weights in found]
    assert all(len(weights) == len(wanted) > 10000 for weights in found), len(wanted)
    assert max(apart) < 1e-5, f"{cuts}, {settings}: weights differ by {apart}"
    return max(apart)


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
    for train, model in ((", clip: 0.02", {"tied": True}),
                         (", clip: 0.02, optimizer: adam, weight_decay: 0.01, no_decay: w1, keep_optimizer: true", {}),
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


@scenario
def what_stages_two_and_three_add_up_is_the_same(build):
    """Rows of Adam that are kept, a proximal term, a first part that is not trained, large or of one granule only."""
    for train, cut, layers in ((", optimizer: adam, weight_decay: 0.01, keep_optimizer: true, proximal: 0.1", "", LAYERS),
                               (", freeze: [w0, b0, w1, b1, w2, b2]", ", cut: w3", LAYERS),
                               (", freeze: [w0, b0]", ", cut: w1", [16, 128, 128])):
        for stage in 2, 3:
            same_bits(build, (TWO, f"shard: 2, stage: {stage}", 4),
                      (FOUR, f"pipeline: 2, shard: 2, stage: {stage}{cut}", 2), train=train, layers=layers)


@scenario
def norms_and_tied_tensors_of_stages_two_and_three_are_those_of_whole_parts(build):
    """They are added up in another order. Dropout draws as without shards. A tied tensor may lie in any bucket."""
    apart = []
    for train, model in ((", clip: 0.02", {"tied": True, "drops": True}), ("", {"tied": [4]}),
                         (", clip: 0.02, optimizer: adam, weight_decay: 0.01, keep_optimizer: true", {})):
        apart.append(nearly_same(build, (FOUR, "pipeline: 2, replicate: 2", 2),
                                 *((FOUR, f"pipeline: 2, shard: 2, stage: {stage}", 2) for stage in (2, 3)),
                                 train=train, model=model))
    return f"weights differ by {max(apart):.1e} at most"


@scenario
def shares_of_unequal_size_are_added_up(build):
    """Layers of odd widths, some tiny; of three parts one has less than a bucket. The order of three numbers follows
    from their place in a bucket, so three shares agree but for rounding, and in stages 2 and 3 to the bit.
    """
    layers, apart = [131, 5, 127, 131, 3], []
    for train, stage in ("", 1), (", optimizer: adam", 3):
        same_bits(build, (TWO, f"shard: 2, stage: {stage}", 3),
                  (SIX, f"pipeline: 3, shard: 2, stage: {stage}, cut: [w1, w3]", 1), train=train, layers=layers)
    for stage in 1, 3:
        apart.append(nearly_same(build, (THREE, f"shard: 3, stage: {stage}", 4),
                                 (SIX, f"pipeline: 2, shard: 3, stage: {stage}", 2), layers=layers))
    same_bits(build, (SIX, "pipeline: 2, shard: 3, stage: 2", 2), (SIX, "pipeline: 2, shard: 3, stage: 3", 2),
              train=", optimizer: adam", layers=layers)
    return f"weights differ by {max(apart):.1e} at most"


@scenario
def a_gradient_is_clipped_by_the_norm_of_all_shares_of_all_parts(build):
    """Each step is as long as the limit, so what is learned tells the norm; the sums of stage 1 have another order."""
    settings = {"train": ", clip: 0.05", "momentum": 0, "learning_rate": 0.5, "up": "{mode: raw32}", "down": "{mode: raw32}",
                "layers": [128] * 3}
    learned = []
    for groups, parallel, accumulate in ((TWO, "replicate: 2", 4), *((FOUR, f"pipeline: 2, shard: 2, stage: {stage}", 2)
                                                                     for stage in (1, 2, 3))):
        _, logs = digests_of(build, groups, parallel, accumulate, **settings)
        found = losses(logs)
        learned.append(found[0] - found[-1])
    assert all(0.05 < learned[0] and abs(gain - learned[0]) < 0.01 * learned[0] for gain in learned), learned
    return f"losses fell by {learned}"


@scenario
def each_stage_takes_less_memory(build):
    """A log names all bytes of a step."""
    wanted, taken = {"rounds": 1, "local_steps": 4}, []
    layers = [128] * 24  # a bucket each
    for parallel in ("pipeline: 2", *(f"pipeline: 2, shard: 2, stage: {stage}" for stage in (1, 2, 3))):
        _, logs = digests_of(build, FOUR, parallel, 2, layers=layers, **wanted)
        taken.append([int(re.search(r"part \d of 2, .* (\d+) bytes in all", logs[f"board-{number}"]).group(1))
                      for number in range(1, 5)])
    whole, one, two, three = taken
    weights = 12 * 128 * 128 * 4  # of a part, about
    for number in range(4):
        assert 0.45 * weights < whole[number] - one[number] < 0.55 * weights, taken
        assert one[number] - two[number] > 0.1 * weights and two[number] - three[number] > 0.1 * weights, taken


def check_timeline(path, boards, steps, micro):
    """Each pass and message of two parts, once; a message has come before the pass that reads it begins.
    In stage 3 each bucket is fetched for both passes and its gradient reduced, in the last pass over replicas, too.
    """
    spans, names = spans_of(path)
    assert sorted(names.values()) == sorted(boards), names
    for member, step, batch in ((m, s, b) for m in range(len(boards)) for s in range(1, steps + 1) for b in range(micro)):
        def span(name):
            (found,) = spans[member, step, f"{name} {batch}"]
            return found

        first = member < len(boards) // 2
        assert all(span(name)[2] > 0 for name in (("send F", "receive B") if first else ("receive F", "send B")))
        assert span("receive B" if first else "receive F")[1] <= span("B" if first else "F")[0], (member, step, batch)
        assert span("F")[1] <= span("B")[0], (member, step, batch)
        fetched, reduced, added = (spans.get((member, step, f"{name} {batch}"), [])
                                   for name in ("fetch weights", "reduce gradients", "add replicas"))
        assert len(fetched) == 2 * len(reduced) and len(reduced) > 10, (member, step, batch, len(fetched), len(reduced))
        assert all(span[2] > 0 for span in fetched + reduced + added), (member, step, batch)
        assert len(added) == (len(reduced) if batch + 1 == micro else 0), (member, step, batch, len(added))


@scenario
def a_timeline_has_each_message_among_the_exchanges_and_status_the_share(build):
    """In the last pass of a step more calls than the queue holds: 32 buckets come, are added up, and added up again."""
    with Cluster(build, EIGHT, **{**SETTINGS, "rounds": 1, "local_steps": 6, "batch": "8, accumulate: 1",
                                  "extra": "parallel: {pipeline: 2, shard: 2, stage: 3}"}) as cluster:
        share_samples(cluster)
        wide_model.main(cluster.path("wide.onnx"), "1,8,8", *[128] * 64, 10)
        cluster.set_model("wide.onnx")
        for name in ("gateway", *cluster.boards[:-1]):
            cluster.start(name)
        cluster.start("board-8", "--timeline", "timeline.json")
        cluster.wait_for_end(100)
        check_timeline(cluster.path("timeline.json"), cluster.boards, 6, 2)
        for number, board in enumerate(cluster.boards):
            part, share, chain = number // 4 + 1, number % 2 + 1, number % 4 + 1
            said = status(cluster, board)["group"]["chain"]
            assert (said["part"], said["share"], said["shares"], said["chain"]) == (part, share, 2, chain), said
            lines = " ".join(cluster.command(cluster.node, "status", f"{board}.yaml").stdout.split())
            assert f"holds part {part} of 2, share {share} of 2, chain {chain} of 4; 2 micro-batches a step" in lines, lines


@scenario
def a_timeline_has_the_sums_and_the_weights_of_stage_1(build):
    with Cluster(build, FOUR, **{**SETTINGS, "rounds": 1, "local_steps": 4, "batch": "8, accumulate: 1",
                                 "extra": "parallel: {pipeline: 2, shard: 2}"}) as cluster:
        share_samples(cluster)
        for name in ("gateway", *cluster.boards[:-1]):
            cluster.start(name)
        cluster.start("board-4", "--timeline", "timeline.json")
        cluster.wait_for_end(60)
        spans, _ = spans_of(cluster.path("timeline.json"))
        for member, step in ((member, step) for member in range(4) for step in range(1, 5)):
            ((_, summed, _),), ((begun, gathered, _),) = spans[member, step, "sum"], spans[member, step, "gather weights"]
            assert summed <= begun < gathered, (member, step, spans)


@scenario
def own_samples_are_trained_in_turns_whoever_holds_a_share(build):
    """Places move on from round to round, so a share of a part is another member's in each."""
    settings = {"rounds": 3, **pipeline_own.TOPK, "batch": "16, accumulate: 2, optimizer: adam, keep_optimizer: true"}
    wanted, _, _ = pipeline_own.train(build, FOUR, extra="parallel: {pipeline: 2, replicate: 2}", **settings)
    found, _, logs = pipeline_own.train(build, FOUR, extra="parallel: {pipeline: 2, shard: 2, replicate: 1}",
                                          **settings)
    assert len(wanted) == 4 and wanted == found, f"whole parts made {wanted}, shares {found}"
    parts = set(re.findall(r"part (\d) of 2, chain \d of 2", logs["board-2"]))
    assert parts == {"1", "2"}, parts


@scenario
def what_cannot_be_divided_gets_one_clear_line(build):
    everybody = ("board-1", "board-2", "gateway")
    refused(build, THREE, "parallel.pipeline: 2 and parallel.shard: 2 of job 'digits' need 4 boards, and 3 are in "
            "group.members of this profile", everybody, extra="parallel: {pipeline: 2, shard: 2}")
    refused(build, FOUR, "a model cut into 2 parts that normalizes over its batches cannot divide gradients", ("gateway",),
            lambda cluster: (wide_model.main(cluster.path("norm.onnx"), "1,8,8", 64, 64, 10, norm=True),
                             cluster.set_model("norm.onnx")),
            batch="16, bn: train", extra="parallel: {pipeline: 2, shard: 2, stage: 2}")
    with Cluster(build, TWO, **SETTINGS) as cluster:
        with open(cluster.path("job.yaml")) as file:
            job = file.read()
        for parallel, wanted in (
                ("pipeline: 4, shard: 5", "parallel.pipeline: 4 parts in 5 shards need 20 members; expected at most 16"),
                ("pipeline: 2, stage: 2", "parallel.stage: nothing is shared out; expected parallel.shard, too")):
            cluster.write("job.yaml", f"{job}parallel: {{{parallel}}}\n")
            result = cluster.command(cluster.aggregator, "check", "gateway.yaml", check=False)
            said = result.stdout + result.stderr
            assert result.returncode and "job.yaml:" in said and wanted in said, f"{parallel}: wanted '{wanted}': {said}"


@scenario
def each_member_is_killed_and_the_versions_are_the_same(build):
    for stage in 1, 3:
        settings = {"local_steps": 200, "rounds": 5, "rejoin": "20 s"}
        parallel = f"pipeline: 2, shard: 2, stage: {stage}"
        wanted, _ = digests_of(build, FOUR, parallel, 2, **settings)

        def disturb(cluster):
            for version, board in enumerate(("board-2", "board-3", "board-1", "board-4")):
                cluster.wait_for_line("board-1", f"version {version}: held-out")
                time.sleep(0.3)
                cluster.kill(board)
                cluster.start(board)

        found, logs = digests_of(build, FOUR, parallel, 2, disturb, **settings)
        assert len(wanted) == 6 and found == wanted, f"stage {stage}: undisturbed {wanted}, killed {found}"
        assert logs["board-1"].count("part 1 of 2") > 3, "nobody was killed while chains trained"


@scenario
def eight_members_are_killed_at_drawn_times_and_the_versions_are_the_same(build):
    settings = {"local_steps": 100, "rounds": 5, "rejoin": "20 s", "train": ", optimizer: adam, clip: 0.02"}
    parallel = "pipeline: 2, replicate: 2, shard: 2, stage: 3"
    wanted, _ = digests_of(build, EIGHT, parallel, 1, **settings)
    killed = []
    found, logs = digests_of(build, EIGHT, parallel, 1,
                             lambda cluster: killed.extend(kill_at_drawn_times(cluster, 8, 31)), **settings)
    assert len(wanted) == 6 and found == wanted, f"undisturbed {wanted}, after the deaths of {killed} {found}"
    formed = logs["board-5"].count("part 2 of 2")
    assert len(killed) > 4 and formed > 2, f"{killed} were killed, chains formed {formed} times"
    return f"{len(killed)} boards killed, chains formed {formed} times"


@scenario
def without_a_member_the_rest_trains_in_fewer_shares(build):
    """Of three boards two hold a part each, and one looks on; when the fourth is back the state is divided again."""
    def disturb(cluster):
        cluster.wait_for_line("board-1", "version 0: held-out")
        cluster.kill("board-2")
        cluster.wait_for_line("board-1", "parallel.shard is 2, but 3 members (board-1 board-3 board-4) hold 2 parts: "
                              "1 shares of each")
        cluster.wait_for_line("board-1", "version 2: held-out")
        cluster.start("board-2")

    _, logs = digests_of(build, FOUR, "pipeline: 2, shard: 2, stage: 3", 2, disturb, rounds=6, local_steps=150,
                         rejoin="300 ms")
    formed = re.findall(r"part 1 of 2, chain 1 of (\d)", logs["board-1"])
    assert formed[0] == formed[-1] == "2" and "1" in formed, formed


@scenario
def members_that_hold_weights_together_compute_the_same_again(build):
    """What a pass computes again decides which weights of stage 3 it fetches, and boards have unlike memory."""
    settings = {"layers": [128] * 10, "batch": "256, accumulate: 2", "rounds": 2, "local_steps": 10, "momentum": 0.9}
    for groups, parallel, holds in ((TWO, "shard: 2, stage: 3", r"shard 1 of 2: "),
                                    (FOUR, "pipeline: 2, shard: 2, stage: 3", r"part 1 of 2, ")):
        wanted, logs = digests_of(build, groups, parallel, 2, **settings)
        needs = int(re.search(holds + r".* (\d+) bytes in all", logs["board-1"]).group(1))
        found, logs = digests_of(build, groups, parallel, 2, train_max=needs - 1024, **settings)
        assert len(wanted) == 3 and wanted == found, f"{parallel}: with equal memory {wanted}, with less on board-1 {found}"
        again = "are computed again, as memory.train_max of board-1 needs it"
        assert again in logs["board-2"] and "are computed again, 256 of 256 samples" in logs["board-1"], logs["board-1"]
        assert again not in logs["board-1"] and all(again not in logs[board] for board in groups["lab"][2:]), logs


@scenario
def all_wait_for_a_member_where_a_larger_share_does_not_fit(build):
    settings = {"rounds": 4, "local_steps": 60, "rejoin": "300 ms", "train": ", optimizer: adam"}
    layers, parallel = [256] * 12, "pipeline: 2, shard: 2, stage: 1"
    wanted, logs = digests_of(build, FOUR, parallel, 2, layers=layers, **settings)
    needs = int(re.search(r"part 1 of 2, .* (\d+) bytes in all", logs["board-1"]).group(1))

    def disturb(cluster):
        cluster.wait_for_line("board-1", "version 0: held-out")
        cluster.kill("board-2")
        for board in "board-1", "board-4":
            cluster.wait_for_line(board, "a share that fits cannot be made of board-1 board-3 board-4: waiting for board-2")
            cluster.wait_for_line(board, "board-1 lacks memory: part 1 of 2 in 1 share takes ")
        cluster.start("board-2")

    found, logs = digests_of(build, FOUR, parallel, 2, disturb, layers=layers, train_max=needs + (512 << 10), **settings)
    assert wanted == found, f"undisturbed {wanted}, waiting {found}"


if __name__ == "__main__":
    scenario.main()
