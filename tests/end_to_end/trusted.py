"""A site that trusts its LAN: large sums of the group travel over NCCL, named and switched on by profiles.

    trusted.py BUILD LIBRARIES [SCENARIO...]

NCCL and the GPU are doubles (tests/support/nccl_host.c, cuda_host.h): no GPU is needed, and none is tested.
"""

import os
import re
import sys
import time

from cluster import ENDLESS, Cluster
from scenarios import chosen
from sets import FOUR, SHARDED, TWO, same_model_everywhere

SETTINGS = {**SHARDED, "rounds": 2, "network": "device: cpu"}


def carried(cluster):
    """Of each communicator that ended: members, elements of 32 bits, of 16 bits."""
    if not os.path.exists(cluster.path("nccl")):
        return []
    with open(cluster.path("nccl")) as file:
        return [tuple(map(int, found)) for found in
                re.findall(r"rank \d+ of (\d+): (\d+) wide, (\d+) narrow", file.read())]


def doubles_of(cluster):
    os.environ["CAIRN_NCCL_HOST"] = cluster.path("nccl")
    os.environ["CAIRN_CUDA_HOST"] = "pageable"  # the sums are in memory of the host
    os.environ["TMPDIR"] = cluster.directory


def start_all(cluster):
    doubles_of(cluster)
    cluster.start_all()


def train(build, boards, **settings):
    """(digest of the last version, what NCCL carried)"""
    with Cluster(build, boards, **{**SETTINGS, **settings}) as cluster:
        start_all(cluster)
        cluster.wait_for_end(120)
        cluster.replay()
        same_model_everywhere(cluster)
        return cluster.digest(), carried(cluster)


def narrow_sums_have_the_bits_of_the_encrypted_ones(build):
    wanted, none = train(build, TWO, group=", wire: bfloat16")
    found, carries = train(build, TWO, group=", wire: bfloat16, lan: trusted")
    assert not none, f"an untrusted LAN, and NCCL carried {none}"
    assert carries and all(size == 2 and narrow > 0 and not wide for size, wide, narrow in carries), carries
    assert found == wanted, f"digest {found} over NCCL, {wanted} over TLS"


def shards_travel_over_the_communicators_of_their_sets(build):
    _, carries = train(build, FOUR, group=", lan: trusted", extra="parallel: {shard: 2, stage: 2}")
    pairs = [wide for size, wide, _ in carries if size == 2]
    assert len(pairs) >= 4 and all(pairs), carries


def a_member_that_is_killed_is_left_out_and_comes_back(build):
    settings = {**SETTINGS, "rounds": ENDLESS, "rejoin": "300 ms"}
    with Cluster(build, TWO, **settings, group=", lan: trusted") as cluster:
        start_all(cluster)
        cluster.wait_for_line("board-1", "version 2: held-out")
        cluster.wait_for_status("board-1", "group", backend="nccl", encrypted=False)
        cluster.kill("board-2")
        cluster.wait_for_line("board-1", "board-2 is lost")
        cluster.start("board-2")
        cluster.wait_for_view("board-1", 2, 2)
        cluster.end_run()
        cluster.wait_for_end(120)
        same_model_everywhere(cluster)


def status_says_what_is_in_use_and_why(build):
    """The communicators of the shards' sets do not form, long after that of the group did."""
    settings = {**SETTINGS, "rounds": 6}
    with Cluster(build, FOUR, **settings, group=", lan: trusted", extra="parallel: {shard: 2}") as cluster:
        os.environ["CAIRN_NCCL_NO_SPLIT"] = "1"
        start_all(cluster)
        del os.environ["CAIRN_NCCL_NO_SPLIT"]
        cluster.wait_for_line("board-1", "this epoch goes without")
        why = "the communicators of its sets did not form"
        cluster.wait_for_status("board-1", "group", backend="tcp", encrypted=True, backend_why=why)
        text = cluster.command(cluster.node, "status", "board-1.yaml").stdout
        assert f"sums over tcp, encrypted; no faster way although lan is trusted: {why}" in text, text
        cluster.wait_for_end(120)
        same_model_everywhere(cluster)


def without_the_library(cluster):
    doubles_of(cluster)
    cluster.start("gateway")
    cluster.start("board-1")
    cluster.start("board-2", environment={"LD_LIBRARY_PATH": ""})


def without_its_consent(cluster):
    with open(cluster.path("board-2.yaml")) as file:
        text = file.read()
    assert text.count(", lan: trusted") == 1
    cluster.write("board-2.yaml", text.replace(", lan: trusted", ""))
    start_all(cluster)


def one_member_keeps_all_on_the_encrypted_wire(build):
    """One whose profile does not say so, one that has no library: the others ask first, none waits for another."""
    for start in (without_its_consent, without_the_library):
        with Cluster(build, TWO, **SETTINGS, group=", lan: trusted") as cluster:
            start(cluster)
            cluster.wait_for_end(120)
            same_model_everywhere(cluster)
            assert not carried(cluster), f"{start.__name__}: NCCL carried {carried(cluster)}"
            named = "nccl: not used: board-2 has no library" in cluster.log("board-1")
            assert named == (start is without_the_library), f"{start.__name__}: board-2 is{'' if named else ' not'} named"
            assert cluster.log("board-1").count("nccl: not used") == named, "board-1 has no library either"
            why = cluster.board_status("board-1")["group"]["backend_why"]
            assert named or why == "board-2 does not have it or does not trust the LAN", why
            for board in cluster.boards:
                assert cluster.views(board, 2) == 1, f"{start.__name__}: {board} formed the group more than once"


SCENARIOS = (narrow_sums_have_the_bits_of_the_encrypted_ones, shards_travel_over_the_communicators_of_their_sets,
             a_member_that_is_killed_is_left_out_and_comes_back, one_member_keeps_all_on_the_encrypted_wire,
             status_says_what_is_in_use_and_why)


def main(build, libraries, names):
    os.environ["LD_LIBRARY_PATH"] = os.path.abspath(libraries)
    for scenario in chosen(SCENARIOS, names):
        begun = time.monotonic()
        scenario(build)
        print(f"{scenario.__name__.replace('_', ' ')}: {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
