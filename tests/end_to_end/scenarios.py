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


def usage(text):
    """Ends a program that was started without a build, with its text."""
    if sys.argv[1:2] in ([], ["-h"], ["--help"]):
        print(text)
        sys.exit(not sys.argv[1:])


def chosen(functions, names):
    """The functions of these names in their order, all of them without names. An unknown name ends the test."""
    known = [function.__name__ for function in functions]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"there is no scenario {', '.join(unknown)}; there are: {', '.join(known)}")
    return [function for function in functions if not names or function.__name__ in names]


class Scenarios:
    def __init__(self):
        self.functions = {}

    def __call__(self, function):
        self.functions[function.__name__] = function
        return function

    def main(self, possible=None):
        """Where they are not possible here, possible() says so."""
        usage(f"{os.path.basename(sys.argv[0])} BUILD [SCENARIO...], of:\n  " + "\n  ".join(self.functions))
        build, *names = sys.argv[1:]
        functions = chosen(self.functions.values(), names)
        if possible and not possible():
            sys.exit(SKIPPED)
        for function in functions:
            begun = time.monotonic()
            said = function(os.path.abspath(build))
            print(f"{function.__name__.replace('_', ' ')}: {time.monotonic() - begun:.1f} s{f', {said}' if said else ''}",
                  flush=True)
