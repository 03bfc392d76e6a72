"""A test that is given the name of a scenario that it does not have fails and says so; it runs nothing.

usage: unknown_names.py BUILD
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
NAME = "a_scenario_that_is_not_there"
# What stands between the folder of the programs and the names of scenarios.
MORE = {"hostile.py": ["program"], "poison.py": ["program"], "variance.py": ["program"], "trusted.py": ["libraries"],
        "optimizers.py": ["python"], "own.py": ["python"], "tutorial.py": [],
        "churn.py": ["20"], "random_kills.py": [], "phases.py": ["6"], "kill.py": ["2"], "thin_link.py": ["4", "1e6", "100", "0.05"]}
TOLD = re.compile(rf"{NAME}|takes (from \d+ to )?\d+ positional arguments? but \d+ were given")


def scripts():
    """The tests of this folder that take the folder of the programs: those that CMakeLists.txt names."""
    text = (FOLDER / "CMakeLists.txt").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"\b(\w+\.py)\b", text)) - {"unknown_names.py"})


def objection(build, script):
    """What is wrong with a script, or None. The programs are not where it is told, so it can run nothing."""
    command = [sys.executable, "-B", str(FOLDER / script), os.path.join(build, "none"), *MORE.get(script, []), NAME]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=build)
    said = result.stdout + result.stderr
    if result.returncode in (0, 77):
        return f"{script}: ends with {result.returncode}: {said[-300:]}"
    return None if TOLD.search(said) else f"{script}: fails with another message: {said[-300:]}"


def main(build):
    found = scripts()
    assert len(found) > 50, found
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wrong = [text for text in pool.map(lambda script: objection(os.path.abspath(build), script), found) if text]
    assert not wrong, "\n".join(wrong)
    print(f"{len(found)} tests refuse an unknown name")


if __name__ == "__main__":
    main(*sys.argv[1:])
