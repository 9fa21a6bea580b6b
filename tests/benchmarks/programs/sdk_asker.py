"""Our single-file SDK: times its ``read_file`` calls, one after the other.

Usage: sdk_asker.py TEXT_BYTES CONTROL_IN CONTROL_OUT
"""

import sys
from time import perf_counter_ns

from control import Control

from protocol import adapter


def main() -> None:
    size = int(sys.argv[1])
    control = Control()
    with adapter.connect(name="benchmark", version="1") as agent:

        def ask() -> int:
            start = perf_counter_ns()
            answer = agent.read_file("src/package/module.txt")
            taken = perf_counter_ns() - start
            if len(answer["text"]) != size:
                sys.exit("sdk_asker: unexpected answer")
            return taken

        for times in control.rounds():
            control.report([ask() for _ in range(times)])


if __name__ == "__main__":
    main()
