"""Read a trip and say who owes what."""

import csv
import sys
from collections.abc import Iterable

from tally.money import format_amount, parse_amount
from tally.split import balances


def read_payments(lines: Iterable[str]) -> list[tuple[str, int]]:
    """The payer and the cents of each line; the first line is the header."""
    return [(row["payer"], parse_amount(row["amount"])) for row in csv.DictReader(lines)]


def report(lines: Iterable[str]) -> str:
    """One line per person, sorted by name."""
    result = []
    for person, cents in sorted(balances(read_payments(lines)).items()):
        verb = "gets back" if cents >= 0 else "owes"
        result.append(f"{person} {verb} {format_amount(abs(cents))}")
    return "\n".join(result)


def main(arguments: list[str]) -> int:
    """Print the report of the file that is named."""
    if len(arguments) != 1:
        print("usage: tally FILE", file=sys.stderr)
        return 64
    with open(arguments[0], encoding="utf-8", newline="") as lines:
        print(report(lines))
    return 0
