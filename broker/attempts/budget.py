"""What an attempt may still spend on inference, exact for requests that overlap.

Synchronous on purpose: there is no point between the check and the reservation at which
another task could run. Knows no price and sends nothing.
"""

from dataclasses import dataclass
from typing import Final, final


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceBudget:
    """The most of each that one attempt may use; ``None`` is no bound of its own."""

    requests: int | None
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Requests and tokens: used, or held for requests that are under way."""

    requests: int
    input_tokens: int
    output_tokens: int


NOTHING: Final = Spending(requests=0, input_tokens=0, output_tokens=0)


@final
class Reservation:
    """Tokens held for one request: ``BudgetCounter.reserve`` makes it, ``settle`` ends it."""

    __slots__ = ("held",)

    def __init__(self, held: Spending) -> None:
        self.held: Final = held


@final
class BudgetCounter:
    """One attempt's account: ``used`` plus what is held never passes a bound by a reservation.

    What a provider reports can differ from what was held; the account then says the report,
    and a bound that it passes refuses every later request.
    """

    def __init__(self, budget: InferenceBudget) -> None:
        self._budget: Final = budget
        self._used = NOTHING
        self._open: set[Reservation] = set()

    @property
    def used(self) -> Spending:
        """What was settled."""
        return self._used

    @property
    def committed(self) -> Spending:
        """What was settled and what is held."""
        total = self._used
        for reservation in self._open:
            total = _add(total, reservation.held)
        return total

    def output_left(self, wanted: int) -> int:
        """``wanted`` output tokens, or as many as are neither used nor held."""
        bound = self._budget.output_tokens
        return (
            wanted if bound is None else max(0, min(wanted, bound - self.committed.output_tokens))
        )

    def reserve(self, *, input_tokens: int, output_tokens: int) -> Reservation | None:
        """Hold one request and its tokens, or ``None`` when a bound would be passed."""
        held = Spending(requests=1, input_tokens=input_tokens, output_tokens=output_tokens)
        wanted = _add(self.committed, held)
        budget = self._budget
        if (
            _passes(wanted.requests, budget.requests)
            or _passes(wanted.input_tokens, budget.input_tokens)
            or _passes(wanted.output_tokens, budget.output_tokens)
        ):
            return None
        reservation = Reservation(held)
        self._open.add(reservation)
        return reservation

    def settle(self, reservation: Reservation, *, input_tokens: int, output_tokens: int) -> None:
        """Replace what was held by what was used. The request itself stays counted."""
        self._open.remove(reservation)
        spent = Spending(requests=1, input_tokens=input_tokens, output_tokens=output_tokens)
        self._used = _add(self._used, spent)


def _add(one: Spending, other: Spending) -> Spending:
    return Spending(
        requests=one.requests + other.requests,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
    )


def _passes(value: int, bound: int | None) -> bool:
    return bound is not None and value > bound
