"""The control pipe of a timed program, from its side; standard library only."""

import array
import os
import sys
from collections.abc import Iterable, Iterator


class Control:
    """Orders from the runner; the two descriptors are the last two arguments."""

    def __init__(self) -> None:
        self._orders, self._durations = int(sys.argv[-2]), int(sys.argv[-1])

    def rounds(self) -> Iterator[int]:
        """How often each round asks for the work, until the runner closes the pipe."""
        while order := os.read(self._orders, 8):
            yield int.from_bytes(order, "little")

    def report(self, nanoseconds: Iterable[int]) -> None:
        """Answer a round with its durations."""
        view = memoryview(array.array("q", nanoseconds).tobytes())
        while view:
            view = view[os.write(self._durations, view) :]
