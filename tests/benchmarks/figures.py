"""Run rows in interleaved rounds and reduce their samples; prints nothing.

Every subject of a row is measured once in each round, in an order that moves on by one
each time, so a disturbance of the machine meets all of them. A ratio is the median of
the ratios of the rounds, which such a disturbance leaves alone. The first round warms
up and is not counted.
"""

import statistics
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from tests.benchmarks.model import Broken, Goal, Measure, Row, Statistic, Subject, Unavailable, Unit

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One subject's samples, by round, in seconds; none and a reason when it could not run."""

    name: str
    ours: bool
    rounds: tuple[tuple[float, ...], ...]
    missing: str | None = None
    broken: bool = False  #: it started and failed

    @property
    def count(self) -> int:
        """Samples of all counted rounds."""
        return sum(map(len, self.rounds))

    def all(self, statistic: Statistic) -> float:
        """The statistic over all samples, in seconds."""
        return reduced([sample for samples in self.rounds for sample in samples], statistic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A goal beside what was measured; ``measured`` is None when a side is missing."""

    goal: Goal
    measured: float | None
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """All that one row showed."""

    row: Row
    figures: tuple[Figures, ...]
    outcomes: tuple[Outcome, ...]

    def ratio(self, name: str) -> float | None:
        """Our first subject's figure through ``name``'s, the median of the rounds."""
        first = next((each for each in self.figures if each.ours), None)
        other = next((each for each in self.figures if each.name == name), None)
        return _ratio(self.row, first, other, "median")


def run_row(row: Row, *, rounds: int | None = None) -> RowResult:
    """Measure every subject of ``row`` in ``rounds`` counted rounds (the row's own by default)."""
    running: dict[str, _Running] = {each.name: _Running() for each in row.subjects}
    with ExitStack() as stack:
        for subject in row.subjects:
            running[subject.name].open(subject, stack)
        for number in range(1 + (rounds or row.rounds)):
            for each in rotated(list(running.values()), number):
                each.measure_round(counted=number > 0)
    figures = tuple(
        Figures(
            name=subject.name,
            ours=subject.ours,
            rounds=tuple(running[subject.name].rounds),
            missing=running[subject.name].missing,
            broken=running[subject.name].broken,
        )
        for subject in row.subjects
    )
    return RowResult(row=row, figures=figures, outcomes=tuple(_outcomes(row, figures)))


class _Running:
    """One subject while its row runs. Once it is missing it is not asked again."""

    def __init__(self) -> None:
        self.rounds: list[tuple[float, ...]] = []
        self.missing: str | None = None
        self.broken = False
        self._measure: Measure | None = None

    def open(self, subject: Subject, stack: ExitStack) -> None:
        try:
            self._measure = stack.enter_context(subject.open())
        except Unavailable as reason:
            self.missing = str(reason)

    def measure_round(self, *, counted: bool) -> None:
        if self._measure is None:
            return
        try:
            taken = tuple(self._measure())
        except Broken as reason:
            self._measure, self.missing, self.broken = None, str(reason), True
            self.rounds.clear()
            return
        if counted:
            self.rounds.append(taken)


def rotated(subjects: Sequence[T], by: int) -> list[T]:
    """``subjects`` starting ``by`` places further on."""
    start = by % len(subjects)
    return [*subjects[start:], *subjects[:start]]


def reduced(samples: Sequence[float], statistic: Statistic) -> float:
    """The median, or the smallest sample that 99 of 100 samples do not exceed."""
    if statistic == "median":
        return statistics.median(samples)
    ranked = sorted(samples)
    return ranked[-(-len(ranked) * 99 // 100) - 1]


def in_unit(seconds: float, row: Row) -> float:
    """``seconds`` for one sample of ``row`` as a person reads it."""
    match row.unit:
        case Unit.MICROSECONDS:
            return seconds * 1e6 / row.work
        case Unit.MILLISECONDS:
            return seconds * 1e3 / row.work
        case Unit.PER_SECOND:
            return row.work / seconds
        case Unit.MEGABYTES_PER_SECOND:
            return row.work / 1e6 / seconds


def _outcomes(row: Row, figures: Iterable[Figures]) -> Iterable[Outcome]:
    by_name = {each.name: each for each in figures}
    for goal in row.goals:
        subject = by_name[goal.subject]
        if goal.against is None:
            value = in_unit(subject.all(goal.statistic), row) if subject.rounds else None
        else:
            value = _ratio(row, subject, by_name[goal.against], goal.statistic)
        met: bool | None = None
        if value is not None:
            met = value >= goal.bound if row.unit.more_is_better else value <= goal.bound
        yield Outcome(goal=goal, measured=value, met=met)


def _ratio(
    row: Row, one: Figures | None, other: Figures | None, statistic: Statistic
) -> float | None:
    if one is None or other is None or not one.rounds or not other.rounds:
        return None
    times = statistics.median(
        reduced(ours, statistic) / reduced(theirs, statistic)
        for ours, theirs in zip(one.rounds, other.rounds, strict=True)
    )
    return 1 / times if row.unit.more_is_better else times
