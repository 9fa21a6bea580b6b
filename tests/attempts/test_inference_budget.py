"""No order of overlapping requests spends more than the budget, and nothing held is lost."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.attempts.budget import BudgetCounter, InferenceBudget, Reservation

BOUNDS = {"requests": 5, "input_tokens": 100, "output_tokens": 50}


class BudgetIsNeverPassed(RuleBasedStateMachine):
    """Against the simplest model: two lists of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = BudgetCounter(InferenceBudget(**BOUNDS))
        self.open: list[tuple[Reservation, int, int]] = []
        self.done: list[tuple[int, int]] = []

    def total(self) -> tuple[int, int, int]:
        spent = self.done + [(one, other) for _, one, other in self.open]
        return len(spent), sum(one for one, _ in spent), sum(other for _, other in spent)

    @rule(one=st.integers(0, 60), other=st.integers(0, 30))
    def reserve(self, one: int, other: int) -> None:
        requests, inputs, outputs = self.total()
        fits = requests < 5 and inputs + one <= 100 and outputs + other <= 50
        reservation = self.counter.reserve(input_tokens=one, output_tokens=other)

        assert (reservation is not None) is fits
        if reservation is not None:
            self.open.append((reservation, one, other))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.open) - 1))
        reservation, one, other = self.open.pop(index)
        used = data.draw(st.integers(0, one)), data.draw(st.integers(0, other))
        self.counter.settle(reservation, input_tokens=used[0], output_tokens=used[1])
        self.done.append(used)

    @invariant()
    def the_account_is_the_model(self) -> None:
        committed = self.counter.committed
        assert self.total() == (
            committed.requests,
            committed.input_tokens,
            committed.output_tokens,
        )
        assert committed.requests <= 5
        assert committed.input_tokens <= 100
        assert committed.output_tokens <= 50
        assert self.counter.output_left(1000) == 50 - committed.output_tokens


TestBudgetIsNeverPassed = BudgetIsNeverPassed.TestCase


def test_a_report_above_what_was_held_is_believed_and_ends_the_budget() -> None:
    counter = BudgetCounter(InferenceBudget(**BOUNDS))
    reservation = counter.reserve(input_tokens=10, output_tokens=10)
    assert reservation is not None

    counter.settle(reservation, input_tokens=500, output_tokens=10)

    assert counter.used.input_tokens == 500
    assert counter.reserve(input_tokens=0, output_tokens=0) is None


def test_a_reservation_is_settled_once() -> None:
    counter = BudgetCounter(InferenceBudget(**BOUNDS))
    reservation = counter.reserve(input_tokens=1, output_tokens=1)
    assert reservation is not None
    counter.settle(reservation, input_tokens=1, output_tokens=1)

    with pytest.raises(KeyError):
        counter.settle(reservation, input_tokens=1, output_tokens=1)


def test_no_bound_is_no_bound() -> None:
    counter = BudgetCounter(InferenceBudget(requests=None, input_tokens=None, output_tokens=None))

    assert counter.reserve(input_tokens=10**12, output_tokens=10**12) is not None
    assert counter.output_left(7) == 7
