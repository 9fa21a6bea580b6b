"""Times one decoder on one message in batches; standard library only.

Usage of every program that calls ``run``: PROGRAM MESSAGE_FILE BATCH CONTROL_IN CONTROL_OUT

A sample is one batch: the clock is too coarse for a single short message.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from control import Control


def run(decode: Callable[[bytes], Any]) -> None:
    """Serve rounds with ``decode``, which gets the line without its line feed."""
    line = Path(sys.argv[1]).read_bytes()
    batch = range(int(sys.argv[2]))
    control = Control()
    for times in control.rounds():
        durations = []
        for _ in range(times):
            start = perf_counter_ns()
            for _ in batch:
                decode(line)
            durations.append(perf_counter_ns() - start)
        control.report(durations)
