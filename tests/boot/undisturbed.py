"""The run of a board that nothing disturbs, for the boot tests to compare with: the cross-built cairn-node itself, by QEMU's
user mode. The last bits of a run may differ between processors and numbers of threads."""

import os

from cluster import Cluster

EMULATOR = ["qemu-aarch64-static", "-cpu", "cortex-a57", "-L", "/usr/aarch64-linux-gnu"]
SECONDS = 600
THREADS = 2  # as in flashing.SITE


def undisturbed(host_bin, guest_build, board, **job):
    """The digest of the last version."""
    with Cluster(host_bin, {"gate": [board]}, **job) as cluster:
        cluster.edit(f"{board}.yaml", ("threads: 1", f"threads: {THREADS}"))
        cluster.node = cluster.path("cairn-node")
        program = os.path.join(guest_build, "bin", "cairn-node")
        cluster.write("cairn-node", f"#!/bin/sh\nexec {' '.join(EMULATOR)} '{program}' \"$@\"\n")
        os.chmod(cluster.node, 0o755)
        cluster.start_all()
        cluster.wait_for_end(SECONDS)
        return cluster.digest()
