"""A group on a LAN whose rate changes while it trains: buckets and window follow what is measured.

    tuning.py BUILD [SCENARIO...]

Needs network namespaces and tc; ends with 77 without.
"""

import re
import subprocess

import wide_model
from cluster import same_model_everywhere
from lan import Lan, allowed
from scenarios import Scenarios
from timeline import spans_of

TWO = {"lab": ["board-1", "board-2"]}
CHOSE = r"the link carries ([\d.e+]+) Mbit/s, a call costs ([\d.e+-]+) ms: buckets of (\d+) KiB, (\d+) in each call"
CHANGED = r"the link changed from ([\d.e+]+) to ([\d.e+]+) Mbit/s: measuring it again"
scenario = Scenarios()


def shape(lan, megabits):
    """What each board sends."""
    for name in lan.boards:
        subprocess.run(["ip", "netns", "exec", lan.space(name), "tc", "qdisc", "replace", "dev", "lan", "root", "tbf",
                        "rate", f"{megabits}mbit", "burst", "32kb", "latency", "200ms"], check=True,
                       capture_output=True)


@scenario
def buckets_and_window_follow_a_link_that_changes(build):
    # 140000 values: 0.56 MB of gradients a step.
    with Lan(build, TWO, rounds=2, local_steps=50, batch=1024, quorum=1, group=", bucket: auto") as lan:
        wide_model.main(lan.path("wide.onnx"), "1,8,8", 256, 256, 256, 10)
        lan.set_model("wide.onnx")
        shape(lan, 300)
        lan.start("gateway")
        lan.start("board-1")
        lan.start("board-2", "--timeline", "timeline.json")
        lan.wait_for_line("board-1", " KiB, ")
        shape(lan, 30)
        lan.wait_for_line("board-1", "measuring it again")
        lan.wait_for_line("board-1", " KiB, ", lan.log("board-1").split("measuring it again")[0].count(" KiB, ") + 1)
        lan.wait_for_end(150)
        lan.replay()
        same_model_everywhere(lan)
        log = lan.log("board-1")
        spans, _ = spans_of(lan.path("timeline.json"))
    before, after = (float(rate) for rate in re.search(CHANGED, log).groups())
    chosen = [(float(m[1]), int(m[3]), int(m[4])) for m in re.finditer(CHOSE, log)]
    assert after < before / 3, (before, after)
    assert after < 30 * 1.3, f"{after} Mbit/s measured on a link of 30"
    assert chosen[0][1] < 1024, f"the first size was kept: {chosen}"
    assert abs(chosen[1][0] - after) < 0.5 * after, f"the second choice is not that of the new link: {chosen}"
    calls = [size for _, _, size in spans[0, max(step for _, step, _ in spans), "bucket"]]
    assert (len(calls) > 1) == (chosen[-1][1] * 1024 < sum(calls)), f"calls of {calls} bytes: {chosen} was not taken"
    return "; ".join(f"{link:.0f} Mbit/s: {size} KiB, window {window}" for link, size, window in chosen)


if __name__ == "__main__":
    scenario.main(possible=allowed)
