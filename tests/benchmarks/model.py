"""What a benchmark is made of: rows, the subjects that a row compares, goals and sizes.

Values only: nothing is measured or printed here. A sample is always seconds for one
piece of work; a row says in which unit a person reads it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

#: One call measures one round and returns its samples.
Measure = Callable[[], Sequence[float]]

#: Prepares a subject for as long as the context is entered.
Opening = Callable[[], AbstractContextManager[Measure]]

Statistic = Literal["median", "p99"]


class Unavailable(Exception):
    """A subject cannot run here. The text says why and stands in the table."""


class Broken(Exception):
    """A subject failed while it was measured: a fault to repair, not a figure."""


class Unit(Enum):
    """How a row's samples are read by a person."""

    MICROSECONDS = "us"
    MILLISECONDS = "ms"
    PER_SECOND = "/s"
    MEGABYTES_PER_SECOND = "MB/s"

    @property
    def more_is_better(self) -> bool:
        """True for a rate, false for a duration."""
        return self in (Unit.PER_SECOND, Unit.MEGABYTES_PER_SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One implementation that does the row's work."""

    name: str
    open: Opening
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound from the design's table for one of our subjects.

    With ``against`` the bound is a ratio to that subject's figure, without it a figure
    in the row's unit. Which way is better follows from the unit.
    """

    subject: str
    bound: float
    against: str | None = None
    statistic: Statistic = "median"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Subjects that do the same work, measured side by side."""

    name: str
    unit: Unit
    subjects: tuple[Subject, ...]
    goals: tuple[Goal, ...]
    rounds: int
    work: float = 1.0  #: what one sample did: requests, or bytes for MB/s
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much work a run does. The proportions are the point, so only these change."""

    requests: int  #: per round of a latency row
    pipelined: int  #: requests per round of a pipelined row
    batches: int  #: timed batches per round of a decode row
    large_message: int  #: bytes of the large message to decode
    checkouts: tuple[int, ...]  #: files of the generated checkouts to stage
    patched_files: int  #: files that the large patch touches
    patch_checkout: int  #: files of the checkout that patches are made for


NORMAL: Final = Sizes(
    requests=200,
    pipelined=2_000,
    batches=40,
    large_message=1_000_000,
    checkouts=(236, 5_000),
    patched_files=500,
    patch_checkout=5_000,
)

#: Also the size at which ``cp -a`` takes seconds.
FULL: Final = Sizes(
    requests=NORMAL.requests,
    pipelined=NORMAL.pipelined,
    batches=NORMAL.batches,
    large_message=NORMAL.large_message,
    checkouts=(236, 5_000, 57_000),
    patched_files=NORMAL.patched_files,
    patch_checkout=NORMAL.patch_checkout,
)

#: For the smoke test: everything runs once and nothing takes long.
TINY: Final = Sizes(
    requests=3,
    pipelined=64,
    batches=2,
    large_message=20_000,
    checkouts=(20,),
    patched_files=6,
    patch_checkout=20,
)
