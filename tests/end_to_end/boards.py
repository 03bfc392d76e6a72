"""What a user asks of a board: which one is it, do the examples fit it, what does its report say.

Boards are folders made of the records in tests/data/sysfs; none is hardware.
"""

import glob
import json
import os
import shutil
import sys
import time

from bad_input import expect
from cluster import ENDLESS, SOURCE, Cluster
from life import Board, status, train, until, write_alone

BOARDS = os.path.join(SOURCE, "boards")
RECORDS = ["jetson-orin-nano-8gb", "jetson-orin-nx-16gb", "jetson-agx-orin-64gb", "jetson-agx-thor",
           "raspberrypi-5", "gateway-x86", "qemu-virt-arm64"]


def check(cluster, *arguments):
    return cluster.command(cluster.node, "check", *arguments, check=False)


def every_board_is_recognised(cluster):
    for record in RECORDS:
        board = Board(cluster.path("roots", record), record)
        result = check(cluster, "--board", "auto", "--boards", BOARDS, "--sysroot", board.directory)
        assert result.returncode == 0 and f"board: {record}\n" in result.stdout, result.stdout + result.stderr
        result = cluster.command(cluster.node, "selftest", "--json", "--boards", BOARDS,
                                 "--sysroot", board.directory, check=False)
        report = json.loads(result.stdout)
        assert report["board"]["type"] == record, report
        # The GPU of the machine that runs this stands for the one of a Jetson, where it has one.
        missing = record.startswith("jetson") and "step_ms" not in report["training"].get("cuda", {})
        assert report["passed"] is not missing and result.returncode == int(missing), report
        assert ("jetson-gpu.conf" in report["training"].get("error", "")) == missing, report
        assert ("power_w" in report["sensors"]) == record.startswith("jetson"), report["sensors"]

    # A folder of the site's, elsewhere; a more specific name goes before a general one.
    elsewhere = cluster.path("boards")
    shutil.copytree(BOARDS, elsewhere, ignore=shutil.ignore_patterns("flash", "examples"))
    shutil.copytree(os.path.join(BOARDS, "gateway-x86"), os.path.join(elsewhere, "xr12"))
    with open(os.path.join(elsewhere, "xr12", "compatible"), "w") as file:
        file.write("dmi:Dell Inc. PowerEdge XR12\n")
    with open(os.path.join(elsewhere, "xr12", "board.yaml"), "w") as file:
        file.write("schema: cairn/board/v1\nboard: xr12\n")
    root = cluster.path("roots", "gateway-x86")
    assert "board: xr12\n" in check(cluster, "--board", "auto", "--boards", elsewhere, "--sysroot", root).stdout
    os.remove(os.path.join(elsewhere, "xr12", "compatible"))
    os.remove(os.path.join(elsewhere, "gateway-x86", "compatible"))
    expect(check(cluster, "--board", "auto", "--boards", elsewhere, "--sysroot", root), 1,
           "dmi:Dell Inc. PowerEdge XR12", "compatible")

    os.makedirs(cluster.path("bare", "proc"))
    expect(check(cluster, "--board", "auto", "--boards", BOARDS, "--sysroot", cluster.path("bare")), 1,
           "does not say what it is")
    expect(check(cluster, "--board", "auto", "--boards", BOARDS, "--sysroot", cluster.path("keys")), 2,
           "has neither sys/ nor proc/")
    expect(check(cluster, "--board", "auto", "--boards", cluster.path("nowhere")), 1, "--boards")
    expect(check(cluster, "--board", "no-such-board", "--boards", BOARDS), 3, "no-such-board")
    print(f"{len(RECORDS)} boards recognised")


def memory_that_a_board_lacks_is_refused(cluster):
    """A T4000 is taken for an AGX Thor, whose train_max is more than it has."""
    board = Board(cluster.path("roots", "t4000"), "jetson-agx-thor")
    board.put("sys/firmware/devicetree/base/compatible", "nvidia,p4071-0000+p3834-0000\0nvidia,p3834-0000\0nvidia,tegra264\0")
    arguments = ["--board", "auto", "--boards", BOARDS, "--sysroot", board.directory]
    for kib, code in ((64 << 20, 1), (128 << 20, 0)):
        board.put("proc/meminfo", f"MemTotal:       {kib} kB\nMemFree:        1000 kB\n")
        result = check(cluster, *arguments)
        assert result.returncode == code and "board: jetson-agx-thor\n" in result.stdout, result.stderr
        assert ("memory.train_max: 96.0 GiB, but this machine has 64.0 GiB" in result.stderr) == bool(code), result.stderr
    with open(cluster.path("large.yaml"), "w") as file:
        file.write("schema: cairn/site/v1\nmemory: {train_max: 60000 GiB}\n")
    expect(check(cluster, "large.yaml"), 1, "memory.train_max: 60000.0 GiB, but this machine has")
    expect(check(cluster, "--profile-only", "large.yaml"), 0)


def every_example_fits(cluster):
    profiles = sorted(glob.glob(os.path.join(BOARDS, "examples", "*", "*.yaml")))
    names = {os.path.relpath(profile, os.path.join(BOARDS, "examples")) for profile in profiles}
    assert {"plant/gateway.yaml", "plant/job.yaml", "plant/press-01.yaml", "plant/press-04.yaml",
            "fleet/gateway.yaml", "fleet/job.yaml", "fleet/vehicle.yaml"} <= names, names
    for profile in profiles:
        result = check(cluster, "--profile-only", profile)
        # Models and data are the user's own.
        wrong = [line for line in result.stderr.splitlines() if not line.endswith("No such file or directory")]
        assert result.returncode == 0 and not wrong, f"{profile}:\n{result.stderr}"
    groups = {}
    for number in range(1, 5):
        text = check(cluster, "--profile-only", os.path.join(BOARDS, "examples", "plant", f"press-0{number}.yaml")).stdout
        members = tuple(f"press-0{i}" for i in range(1, 5) if f"press-0{i}: " in text)
        groups.setdefault(members, []).append(number)
    assert groups == {("press-01", "press-02"): [1, 2], ("press-03", "press-04"): [3, 4]}, groups
    print(f"{len(profiles)} profiles of examples fit")


def a_mode_is_set_by_name_or_said(cluster):
    """As root the vendor's program sets the mode; else the log says how."""
    board = Board(cluster.path("roots", "modes"), "jetson-agx-orin-64gb")
    with open(os.path.join(SOURCE, "tests/data/sysfs/jetson-agx-orin-64gb.nvpmodel.conf")) as file:
        board.put("etc/nvpmodel.conf", file.read())
    board.put("var/lib/nvpmodel/status", "pmode:0000\n")
    board.put("usr/sbin/nvpmodel", "#!/bin/sh\n[ $1 = -m ] || exit 1\n"
              f"printf 'pmode:%04d' $2 >{board.directory}/var/lib/nvpmodel/status\n")
    os.chmod(os.path.join(board.directory, "usr/sbin/nvpmodel"), 0o755)
    for name, mode in (("set", "30W"), ("unknown", "25W")):
        write_alone(cluster, name, f"power: {{mode: {mode}}}\n")
        train(cluster, name, board, "--steps", "3")
        assert cluster.processes[name].wait(30) == 0, cluster.log(name)
    assert "power.mode: this board has no mode '25W'; it has MAXN, MODE_15W, MODE_30W, MODE_50W" \
        in cluster.log("unknown"), cluster.log("unknown")
    if os.geteuid() == 0:
        assert "power.mode: MODE_30W is set" in cluster.log("set"), cluster.log("set")
        assert status(cluster, "set.yaml")["sensors"]["power_mode"] == "MODE_30W"
    else:
        assert "MAXN holds, MODE_30W is wanted; setting it needs root: sudo nvpmodel -m 2" in cluster.log("set")
        assert status(cluster, "set.yaml")["sensors"]["power_mode"] == "MAXN"
    expect(cluster.command(cluster.node, "train", "--sysroot", cluster.path("nowhere"), "set.yaml", check=False), 2,
           "has neither sys/ nor proc/")


def selftest(cluster, *arguments, code=0):
    result = cluster.command(cluster.node, "selftest", "--json", *arguments, check=False)
    assert result.returncode == code, f"{result.returncode}: {result.stdout}{result.stderr}"
    return json.loads(result.stdout)


def a_report_says_what_works_and_no_secret(cluster):
    report = selftest(cluster, "board-1.yaml", code=1)  # nobody listens
    assert report["link"]["state"] == "no answer" and report["passed"] is False, report["link"]
    cluster.start("gateway")
    report = selftest(cluster, "board-1.yaml")
    link = report["link"]
    assert link["state"] == "registered" and link["register_ms"] > 0 and link["rtt_ms"] > 0, link
    assert link["fetched_bytes"] > 150000 and link["down_mbit_s"] > 0, link
    assert report["training"]["cpu"]["samples_per_s"] > 0 and report["passed"] is True, report
    assert report["storage"]["durable_write_mb_s"] > 0 and report["storage"]["small_write_ms"] > 0
    assert report["clock"]["utc"].startswith(time.strftime("%Y-", time.gmtime()))
    assert "nccl" in report["gpu"] and "driver" in report["gpu"]
    assert not os.path.exists(cluster.path("state", "board-1", "selftest")), "a file was left behind"

    text = cluster.command(cluster.node, "selftest", "board-1.yaml").stdout
    for line in ("link.state", "training.cpu.samples_per_s", "storage.durable_write_mb_s", "passed"):
        assert line in text, text
    with open(cluster.path("keys", "board-1.key")) as file:
        secret = file.read().split()[2]
    for word in (secret, secret[:16], "board-1", "127.0.0.1", str(cluster.port), cluster.directory):
        assert word not in text and word not in json.dumps(report), f"'{word}' is in the report"

    given = selftest(cluster, "--model", os.path.join(SOURCE, "tests/data/digits/digits-cnn.onnx"))
    assert given["training"]["model"] == "given" and given["training"]["cpu"]["samples_per_s"] > 0
    broken = selftest(cluster, "--model", "job.yaml", code=1)
    assert "this is no ONNX file" in broken["training"]["cpu"]["error"] and broken["passed"] is False, broken
    assert cluster.command(cluster.node, "selftest", "--model", "none.onnx", check=False).returncode == 1

    shutil.copy(cluster.path("keys", "board-2.key"), cluster.path("keys", "kept"))
    with open(cluster.path("keys", "board-2.key"), "w") as file:
        file.write(f"cairn-key-1 board-2 {'0' * 64}\n")
    report = selftest(cluster, "board-2.yaml", code=1)
    assert report["link"]["state"] == "refused" and "0" * 64 not in json.dumps(report), report["link"]
    shutil.copy(cluster.path("keys", "kept"), cluster.path("keys", "board-2.key"))

    cluster.start("board-1")
    cluster.start("board-2")
    until("the node runs", lambda: status(cluster, "board-1.yaml").get("version", 0) >= 1)
    report = selftest(cluster, "board-1.yaml")
    assert "a node is running" in report["link"]["state"] and "a node is running" in report["storage"]["error"]
    cluster.end_run()
    cluster.wait_for_end(60)  # the report disturbed nobody
    print("the report:", len(text.splitlines()), "lines")


def main(build):
    with Cluster(build, {"lab": ["board-1", "board-2"]}, rounds=ENDLESS, quorum=1) as cluster:
        every_board_is_recognised(cluster)
        memory_that_a_board_lacks_is_refused(cluster)
        every_example_fits(cluster)
        a_mode_is_set_by_name_or_said(cluster)
        for name in ("set", "unknown"):
            del cluster.processes[name]
        a_report_says_what_works_and_no_secret(cluster)


if __name__ == "__main__":
    main(*sys.argv[1:])
