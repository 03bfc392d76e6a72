"""What chains that train on their boards' own samples in turns learn, beside data parallelism: digits, four boards.

    own_turns.py BUILD

Boards have their own kinds of digits, or all of them ("mixed"). Each layout trains as many samples: rounds x steps are the
same. The accuracy is that of the last version on the gateway's samples.
"""

import os
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "end_to_end"))

from cluster import Cluster  # noqa: E402
from scenarios import usage  # noqa: E402

FOUR = {"lab": ["board-1", "board-2", "board-3", "board-4"]}
LAYOUTS = ("", "parallel: {pipeline: 2}", "parallel: {pipeline: 4}")
SETTINGS = {"quorum": 1, "batch": "16, accumulate: 2", "held_out": "10 %, scope: own", "learning_rate": 0.02,
            "up": "{mode: raw32}", "down": "{mode: raw32}"}


def main(build):
    for mixed in False, True:
        for steps, rounds in (120, 8), (20, 48), (5, 192):
            for layout in LAYOUTS:
                with Cluster(build, FOUR, **SETTINGS, mixed=mixed, rounds=rounds, local_steps=steps, extra=layout) as cluster:
                    cluster.start_all()
                    cluster.wait_for_end(300)
                    print(f"{'mixed' if mixed else 'own kinds'}, {rounds} rounds of {steps} steps, "
                          f"{layout or 'data parallel'}: {100 * cluster.accuracy():.1f} %", flush=True)


if __name__ == "__main__":
    usage(__doc__)
    main(*sys.argv[1:])
