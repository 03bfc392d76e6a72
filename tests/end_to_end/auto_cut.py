"""`parallel: auto` with samples that all boards have: pipelines are among the layouts, and the quickest that fits is used.

    auto_cut.py BUILD [SCENARIO...]

Needs network namespaces and tc; ends with 77 without.
"""

import contextlib
import os
import re
import time

import wide_model
from cluster import ENDLESS, Cluster, same_model_everywhere, wait_until
from lan import Lan, allowed
from scenarios import Scenarios
from sets import losses, share_samples, status
from tuning import shape

ONE = {"lab": ["board-1"]}
TWO = {"lab": ["board-1", "board-2"]}
THREE = {"lab": ["board-1", "board-2", "board-3"]}
SETTINGS = {"rounds": 2, "local_steps": 10, "quorum": 1, "learning_rate": 0.001, "up": "{mode: raw32}",
            "held_out": "10 %, scope: shared"}
CHAIN = r"parallel: auto: (\d+) chains? of (\d+) parts, (\d+) micro-batches a step: (.*)"
WHOLE = r"parallel: auto: (\d+) replicas? of (\d+) shards?(?:, stage (\d))?, (\d+) micro-batch(?:es)? a step: (.*)"
SLOW = "for messages and sums, as this board's would take at"
WIDE, SMALL = (768, 8), (128, 10)  # width and number of hidden layers
scenario = Scenarios()


def write_model(cluster, width, layers):
    """Many weights, small activations: of WIDE a chain sends 49 KB for 8 samples, data parallelism 17 MB a step."""
    wide_model.main(cluster.path("wide.onnx"), "1,8,8", *[width] * layers, 10)
    cluster.set_model("wide.onnx")


def digests(cluster):
    cluster.replay()
    same_model_everywhere(cluster)
    return [row[0] for row in cluster.ledger("SELECT digest FROM version ORDER BY number")]


def automatic(build, groups, megabits, memory=None, disturb=None, spoil=None, model=SMALL, **settings):
    """The digests of the versions, the logs, and what a board says of the choice; memory is each board's, in KiB."""
    settings = {**SETTINGS, "batch": 8, "extra": "parallel: auto", **settings}
    with Lan(build, groups, **settings) as lan:
        write_model(lan, *model)
        share_samples(lan)
        if spoil:
            spoil(lan)
        for board in lan.boards if memory else []:
            with open(lan.path(f"{board}.yaml"), "a") as file:
                file.write(f"memory: {{train_max: {memory} KiB}}\n")
        shape(lan, megabits)
        lan.start_all()
        if disturb:
            disturb(lan)
        lan.wait_for_end(200)
        said = [status(lan, board)["group"].get("auto", "") for board in lan.boards]
        return digests(lan), {name: lan.log(name) for name in ["gateway", *lan.boards]}, said


def alone(build, model, batch, result, **settings):
    """The result of one board that trains alone."""
    with Cluster(build, ONE, **{**SETTINGS, "batch": batch, **settings}) as cluster:
        write_model(cluster, *model)
        share_samples(cluster)
        cluster.start_all()
        cluster.wait_for_end(100)
        return result(cluster)


@scenario
def a_thin_link_gets_a_chain_that_makes_the_versions_of_one_board(build):
    found, logs, _ = automatic(build, TWO, 200, model=WIDE, local_steps=4)
    chosen = [re.search(CHAIN, logs[board]).groups() for board in ("board-1", "board-2")]
    assert chosen[0] == chosen[1], chosen
    chains, parts, micro, why = chosen[0]
    assert (chains, parts) == ("1", "2"), chosen
    assert "without a cut: " in why or "next best: " in why, why
    held = [re.search(r"part (\d) of 2, chain 1 of 1 \(board-\d board-\d\)", logs[board]).group(1)
            for board in ("board-1", "board-2")]
    assert sorted(held) == ["1", "2"], held
    work = [int(share) for share in re.search(r"that was found: (\d+) % .* (\d+) % of the work", logs["board-1"]).groups()]
    assert sum(work) in (99, 100, 101), f"parts of {work} % of the work"  # which ones: by the processor's speed
    assert found == alone(build, WIDE, f"8, accumulate: {micro}", digests, local_steps=4), why
    return f"{work} % of the work, {why}"


@scenario
def a_link_that_is_slow_for_a_chain_is_said(build):
    """A step sends 64 KB over a link of 1 Mbit/s, and computes for some milliseconds."""
    with Lan(build, TWO, **{**SETTINGS, "rounds": ENDLESS, "local_steps": 30, "batch": "8, accumulate: 4",
                            "extra": "parallel: {pipeline: 2}"}) as lan:
        write_model(lan, *SMALL)
        share_samples(lan)
        shape(lan, 1)
        lan.start_all()
        for board in lan.boards:
            lan.wait_for_line(board, SLOW, timeout=120)
            wait_until(lambda: SLOW in status(lan, board)["group"]["chain"].get("slow_link", ""), "status says so")
            said = lan.command(lan.node, "status", f"{board}.yaml").stdout
            assert "members wait " in said and SLOW in said, said
        lan.end_run()
        lan.wait_for_end(100)
        log = lan.log("board-1")
    wait, step, rate = (float(word) for word in re.search(r"members wait ([\d.e+]+) ms of a step of ([\d.e+]+) ms "
                                                          rf"{SLOW} ([\d.e+]+) Mbit/s, both ways together; the cut assumes", log).groups())
    assert wait > step / 2 and 0.3 < rate < 3, (wait, step, rate)
    assert log.count(SLOW) <= log.count("group: epoch "), log
    return f"{wait} ms of {step} ms, as at {rate} Mbit/s"


@scenario
def a_thick_link_gets_replicas(build):
    _, logs, said = automatic(build, TWO, 10000, batch=256)
    replicas, shards, _, _, why = re.search(WHOLE, logs["board-1"]).groups()
    assert (replicas, shards) == ("2", "1"), why
    assert any(why in text for text in said), said
    assert "with a cut: 1 chain of 2 parts" in why or "next best: 1 chain of 2 parts" in why, why
    return why


@scenario
def a_lost_member_leaves_a_whole_model_and_comes_back_to_a_chain(build):
    def disturb(lan):
        lan.wait_for_line("board-1", "version 1: held-out")
        lan.kill("board-2")
        lan.wait_for_line("board-1", "parallel: auto: 1 replica of 1 shard")
        lan.wait_for_line("board-1", "no part of the model: this board holds the whole of it")
        lan.start("board-2")

    _, logs, _ = automatic(build, TWO, 20, disturb=disturb, rounds=4, local_steps=300, rejoin="300 ms")
    chains = [micro for _, _, micro, _ in re.findall(CHAIN, logs["board-1"])]
    assert len(chains) >= 2, f"no chain formed again: {chains}"


@scenario
def a_board_with_other_samples_looks_on(build):
    def spoil(lan):
        text = open(lan.path("board-3.yaml")).read()
        lan.write("board-3.yaml", re.sub(r"all-(images|labels)\.npy", r"other-\1.npy", text))
        for part in ("images", "labels"):
            data = bytearray(open(lan.path(f"all-{part}.npy"), "rb").read())
            if part == "images":
                data[-8:] = data[200:208]
            with open(lan.path(f"other-{part}.npy"), "wb") as file:
                file.write(data)

    _, logs, _ = automatic(build, THREE, 20, spoil=spoil)
    for board in "board-1", "board-2":
        assert re.search(CHAIN, logs[board]), logs[board]
        assert "(board-1 board-2)" in logs[board], logs[board]
    assert "of board-3 has other samples than that of board-1" in logs["board-3"], logs["board-3"]


@scenario
def a_model_of_which_no_share_fits_is_cut_and_waits_for_the_boards_that_it_needs(build):
    """Three layers of 1 MB: a share would need more than 6.6 MB, a part needs 6.1 MB."""
    def disturb(lan):
        lan.wait_for_line("board-1", "version 1: held-out")
        lan.kill("board-2")
        lan.wait_for_line("board-1", "a layout that fits cannot be made of board-1: waiting for board-2")
        wait_until(lambda: status(lan, "board-1")["state"].startswith("a layout that fits waits for board-2"), "status says so")
        lan.start("board-2")
        lan.wait_for_line("board-1", "version 2: held-out")
        wait_until(lambda: "waits for" not in status(lan, "board-1")["state"], "status says so no more")

    _, logs, _ = automatic(build, TWO, 10000, memory=6400, disturb=disturb, model=(512, 3), batch=4, local_steps=200,
                           momentum="0.9, optimizer: adam", rejoin="300 ms")
    why = re.findall(CHAIN, logs["board-1"])[-1][3]
    assert "4 layouts do not fit" in why, why
    return why


@scenario
def a_board_that_holds_only_a_share_waits_for_the_other(build):
    """Two boards hold a half each; one of them alone cannot hold the whole."""
    def disturb(lan):
        lan.wait_for_line("board-1", "version 1: held-out")
        lan.kill("board-2")
        lan.wait_for_line("board-1", "a layout that fits cannot be made of board-1: waiting for board-2")
        lan.start("board-2")

    automatic(build, TWO, 10000, memory=6400, disturb=disturb, model=(512, 3), batch=4, local_steps=200, rejoin="300 ms")


def shares(log):
    """Of the work, by part, of each cut that was found."""
    return [[int(share) for share in re.findall(r"(\d+) %", cut)]
            for cut in re.findall(r"parallel.cut auto, the quickest that was found: (.*) of the work", log)]


@contextlib.contextmanager
def paced(build, paces, **settings):
    """Two boards that compute as slowly as files say (tests/support/paced_port.c), on a link of 20 Mbit/s."""
    with Lan(build, TWO, **{**SETTINGS, "batch": 8, "extra": "parallel: auto", **settings}) as lan:
        write_model(lan, *SMALL)
        share_samples(lan)
        lan.node = os.path.join(build, "..", "tests", "support", "node_paced")
        shape(lan, 20)
        lan.start("gateway")
        for board, pace in zip(lan.boards, paces):
            lan.write(f"{board}.pace", f"{pace}\n")
            os.environ["CAIRN_PACE"] = f"@{lan.path(board)}.pace"
            lan.start(board)
        yield lan


@scenario
def parts_in_another_order_than_the_boards_are_clipped_by_the_norm_of_the_model(build):
    """The second board computes faster, so it gets the first part; the norm of all parts is that of one board."""
    with paced(build, ("3e8", "1e9"), batch="8, clip: 0.02", learning_rate=0.1, rounds=3) as lan:
        lan.wait_for_end(100)
        micro = re.search(CHAIN, lan.log("board-1")).group(3)
        held = re.search(r"part (\d) of 2", lan.log("board-1")).group(1)
        found = losses(lan)
    assert held == "2", f"board-1 holds part {held}"
    wanted = alone(build, SMALL, f"8, clip: 0.02, accumulate: {micro}", losses, learning_rate=0.1, rounds=3)
    assert len(found) == len(wanted) == 4, (found, wanted)
    for a, b in zip(found, wanted):
        assert abs(a - b) < 1e-4 * b, f"{found}, one board has {wanted}"
    return f"{found}"


@scenario
def a_board_that_becomes_slow_gets_a_smaller_part(build):
    with paced(build, ("1e9", "1e9"), rounds=ENDLESS, local_steps=20) as lan:
        lan.wait_for_line("board-1", "version 2: held-out")
        lan.write("board-2.pace", "3e8\n")
        lan.wait_for_line("board-1", "parallel: auto: board-2 takes ", timeout=120)
        lan.wait_for_line("board-1", "that was found: ", count=2)
        time.sleep(25)  # another cut would be possible by then
        assert len(shares(lan.log("board-1"))) == 2, lan.log("board-1")
        lan.end_run()
        lan.wait_for_end(100)
        digests(lan)
        log = lan.log("board-1")
    found, parts = shares(log), re.findall(r"part (\d) of 2, chain 1 of 1", log)
    before, after = (cut[int(part) - 1] for cut, part in zip(found[:2], parts))
    assert 35 <= before <= 65 and after > 65, f"board-1 had {before} % of the work, then {after} %"
    return f"{before} % of the work for board-1, then {after} %"


@scenario
def a_link_that_becomes_slow_is_said_and_auto_chooses_again(build):
    with paced(build, ("1e9", "1e9"), rounds=ENDLESS, local_steps=40) as lan:
        lan.wait_for_line("board-1", "version 2: held-out")
        assert SLOW not in lan.log("board-1"), lan.log("board-1")
        shape(lan, 1)
        for board in lan.boards:
            lan.wait_for_line(board, "ms when the chain formed, as this board's would take at ", timeout=120)
        lan.wait_for_line("board-1", "parallel: auto: a link has become slow: choosing again", timeout=120)
        lan.wait_for_line("board-1", "the link of board-2 has ", timeout=120)
        lan.wait_for_line("board-1", " predicted, of which boards wait ", count=2, timeout=120)
        lan.end_run()
        lan.wait_for_end(100)
        digests(lan)
        log = lan.log("board-1")
    now, before = (float(rate) for rate in re.search(r"has ([\d.e+]+) Mbit/s; it had ([\d.e+]+) Mbit/s when", log).groups())
    assert now < 2 and before > 10, (now, before)
    return f"{now} Mbit/s measured, {before} assumed"


if __name__ == "__main__":
    scenario.main(possible=allowed)
