"""Who bears how much of an amount."""

from collections.abc import Sequence


def split_evenly(cents: int, people: Sequence[str]) -> dict[str, int]:
    """One share per person. The shares add up to ``cents``."""
    if not people:
        raise ValueError("nobody to split among")
    share = cents // len(people)
    return {person: share for person in people}


def balances(payments: Sequence[tuple[str, int]]) -> dict[str, int]:
    """What each payer gets back (positive) or still owes (negative)."""
    people = sorted({payer for payer, _ in payments})
    result = dict.fromkeys(people, 0)
    for payer, cents in payments:
        result[payer] += cents
        for person, share in split_evenly(cents, people).items():
            result[person] -= share
    return result
