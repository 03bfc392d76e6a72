"""cairn-flash rollout updates an emulated board over ssh: a bundle that works, then one whose node cannot read the state.
After that failure the rollout stops, and the next board is as it was.

usage: ab_rollout.py HOST_BIN GUEST_BUILD     (root)
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE]

from ab_back import FILES  # noqa: E402
from two_systems import BOARD, Plant, path_with, skip_without_tools  # noqa: E402

NEXT = "board-2"  # enrolled, and not there: nobody may ask for it


def rollout(plant, version, *boards):
    """cairn-flash rollout in waves of one; its exit code and words. ssh is that of this machine, with a configuration."""
    plant.write("hall.txt", "".join(f"{board} root@{board}\n" for board in boards))
    environment = path_with(plant.host_bin)
    environment["PATH"] = f"{plant.path('bin')}:{environment['PATH']}"
    result = subprocess.run(["cairn-flash", "rollout", "hall.txt", "--bundle", f"disk/{version}.raucb", "--version", version,
                             "--gateway", "gateway.yaml", "--timeout", "25 min"], cwd=plant.directory, env=environment,
                            capture_output=True, text=True)
    for line in (result.stdout + result.stderr).splitlines():
        plant.say(f"rollout: {line}")
    return result.returncode, result.stdout + result.stderr


def main(host_bin, guest_build):
    with Plant(host_bin, guest_build) as plant:
        plant.make_image()
        plant.make_bundle("9.0.0", plant.make_package("9.0.0"))
        plant.make_bundle("9.0.2", plant.make_package("9.0.2", files=FILES["later"]))
        plant.command(plant.aggregator, "enroll", "gateway.yaml", NEXT, "--group", "yard", "-o", "keys/next.key")
        plant.start_guest()
        plant.wait_until_trained()
        plant.wait_for_ssh()

        code, said = rollout(plant, "9.0.0", BOARD)
        assert code == 0 and f"{BOARD} runs version 9.0.0" in said and "1 of 1 boards have version 9.0.0" in said, said
        plant.wait_for_update("good", "9.0.0", "B", "9.0.0")
        code, said = rollout(plant, "9.0.0", BOARD)
        assert code == 0 and "has the bundle" not in said, f"done again\n{said}"

        # By ssh to the other slot: it has the host key that this machine knows.
        plant.wait_for_version(plant.version() + 2)
        code, said = rollout(plant, "9.0.2", BOARD, NEXT)
        assert code == 1 and f"{BOARD}: update to 9.0.2: rolled-back" in said, (code, said)
        assert "0 of 2 boards have version 9.0.2" in said and "stopped after 1 failures; 1 boards are as they were" in said, said
        assert f"{NEXT} has the bundle" not in said, said
        plant.wait_for_update("rolled-back", "9.0.2", "B", "9.0.0")
        assert plant.slots_started() == "AB" + "AAA" + "B", plant.slots_started()
        assert "slot B, version 9.0.0; update to 9.0.2: rolled-back" in plant.table_of_boards(), plant.table_of_boards()
        plant.wait_for_version(plant.version() + 2)
        plant.end_as_undisturbed()


if __name__ == "__main__":
    skip_without_tools()
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
