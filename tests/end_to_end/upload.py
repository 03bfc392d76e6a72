"""kill -9 in the middle of an upload: what was durable is not sent again.

    upload.py BUILD leader    the board that sends dies for good; another member leads and goes on
    upload.py BUILD gateway   the gateway dies and is started anew
    upload.py BUILD sweep     a small upload; either end dies behind each datagram that carries chunks
"""

import os
import signal
import sys
import time

from cluster import Cluster

RATE = 100_000  # bit/s of each board's link, so thin that the frame takes 13 s
DURABLE = 2.5 * RATE / 8  # bytes that a gateway which dies had and that were not durable yet
VOID = 30_000   # bytes that are sent before a board knows that nobody is there
AROUND = 1.10   # bytes of datagrams for each byte of the frame in them
MORE = 25_000   # bytes: probes of the path, what was under way, and what a busy machine sends again


def parts(cluster):
    files = cluster.path("state/gateway/files")
    return [name for name in os.listdir(files) if ".part-" in name] if os.path.isdir(files) else []


def wait_for_upload(cluster, seconds):
    """Until some of the frame is durable and seconds went by."""
    end = time.monotonic() + 90
    while not parts(cluster):
        assert time.monotonic() < end, "no part of an upload became durable"
        time.sleep(0.05)
    time.sleep(seconds)


def small_run(build, hold, victim):
    """The model of a run whose link is cut behind large datagram number hold, where the victim dies; None: it had fewer."""
    link = {"rate": 10_000_000, "delay": 2, "queue": 200, **({"hold": hold} if hold else {})}
    with Cluster(build, {"lab-a": ["board-1"]}, rounds=1, quorum=1, local_steps=2, link=link,
                 up="{mode: topk, density: 20 %}") as cluster:
        cluster.start_all()
        held = False
        while not held and cluster.processes["gateway"].poll() is None:
            held = "held" in cluster.log("link-board-1")
            time.sleep(0.01)
        if hold and not held:
            return None
        if held:
            time.sleep(0.3)  # what is on its way arrives
            cluster.kill(victim)
            cluster.links["board-1"].send_signal(signal.SIGUSR2)
            cluster.start(victim)
        cluster.wait_for_end(60)
        assert "0 differ" in cluster.replay()[-1]
        return cluster.current_model("board-1")


def sweep(build):
    wanted = small_run(build, 0, None)
    for victim in ("board-1", "gateway"):
        hold, model = 1, wanted
        while model == wanted and hold < 40:
            model = small_run(build, hold, victim)
            hold += 1
        assert model is None, f"{victim} died behind datagram {hold - 1}: another model"
        assert hold > 4, f"{victim}: only {hold - 2} large datagrams"
        print(f"sweep: {victim} died behind each of {hold - 2} datagrams, the model is the same", flush=True)


def main(build, victim):
    assert victim in ("leader", "gateway", "sweep"), f"there is no victim {victim}"
    if victim == "sweep":
        sweep(build)
        return
    link = {"rate": RATE, "delay": 20, "queue": 200}
    with Cluster(build, {"lab-a": ["board-1", "board-2"]}, rounds=1, quorum=1, local_steps=2, up="{mode: raw32}",
                 deadline="300 s", rejoin="2 s", link=link) as cluster:
        cluster.start_all()
        wait_for_upload(cluster, 7)
        assert "update of" not in cluster.log("board-1"), "the upload was over too early"
        if victim == "leader":
            cluster.kill("board-1")
            cluster.wait_for_end(120, ["gateway", "board-2"])
        else:
            cluster.kill("gateway")
            time.sleep(0.3)
            cluster.start("gateway")
            cluster.wait_for_end(120)
        log = cluster.log("board-2" if victim == "leader" else "board-1")
        frame = int(log.split("update of ")[1].split()[0])
        assert "accepted" in log and "0 differ" in cluster.replay()[-1]
        up = cluster.chunk_bytes()
        # A new leader is lent all that the old one has sent. What was not durable in a gateway that dies comes again.
        limit = AROUND * frame + MORE + (AROUND * DURABLE + VOID if victim == "gateway" else 0)
        assert up <= limit, f"{up} bytes of chunks went up for a frame of {frame}; {limit:.0f} would do"
        print(f"{victim}: {up} bytes of chunks up for a frame of {frame}; at most {limit:.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
