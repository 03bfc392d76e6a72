"""The scenarios of an end-to-end test: functions whose names are sentences, and the command line that runs them.

    scenario = Scenarios()

    @scenario
    def a_link_is_cut(build):
        return "a line for people, or nothing"

    if __name__ == "__main__":
        scenario.main()  # TEST.py BUILD [SCENARIO...]; without names all of them
"""

import os
import sys
import time

SKIPPED = 77  # as ctest reads it


class Scenarios:
    def __init__(self):
        self.functions = {}

    def __call__(self, function):
        self.functions[function.__name__] = function
        return function

    def main(self, possible=None):
        """Where they are not possible here, possible() says so."""
        build, *names = sys.argv[1:]
        for name in names:
            assert name in self.functions, f"there is no scenario {name}"
        if possible and not possible():
            sys.exit(SKIPPED)
        for name in names or self.functions:
            begun = time.monotonic()
            said = self.functions[name](os.path.abspath(build))
            print(f"{name.replace('_', ' ')}: {time.monotonic() - begun:.1f} s{f', {said}' if said else ''}",
                  flush=True)
