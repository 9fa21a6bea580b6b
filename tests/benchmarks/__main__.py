"""``python -m tests.benchmarks``: run the named benchmarks, print one table or a document."""

import argparse
import sys
from collections.abc import Callable, Iterable
from types import MappingProxyType

from rich.console import Console

from tests.benchmarks import (
    decode,
    patch_apply,
    pipelined,
    result_patch,
    round_trip,
    staging_cold,
    staging_warm,
)
from tests.benchmarks.figures import RowResult, run_row
from tests.benchmarks.model import FULL, NORMAL, TINY, Row, Sizes
from tests.benchmarks.processes import may_pin
from tests.benchmarks.report import document, machine_facts, print_table

BENCHMARKS: MappingProxyType[str, Callable[[Sizes], Iterable[Row]]] = MappingProxyType(
    {
        "round_trip": round_trip.rows,
        "pipelined": pipelined.rows,
        "decode": decode.rows,
        "staging_cold": staging_cold.rows,
        "staging_warm": staging_warm.rows,
        "patch_apply": patch_apply.rows,
        "result_patch": result_patch.rows,
        "staging_cold_disk": staging_cold.rows_on_disk,
    }
)

SIZES = MappingProxyType({"tiny": TINY, "normal": NORMAL, "full": FULL})

#: The table is as wide as its goals; a pipe has no width of its own.
PIPE_COLUMNS = 180


def main() -> int:
    """Exit code 0, whatever goals were met; 1 when something broke while it was measured."""
    options = _arguments()
    console = Console(
        markup=False, highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS
    )
    progress = Console(stderr=True, markup=False, highlight=False)
    results: list[RowResult] = []
    machine = machine_facts(pinned=may_pin())
    for name in options.names or BENCHMARKS:
        for row in BENCHMARKS[name](SIZES[options.sizes]):
            progress.print(f"{name}: {row.name}")
            results.append(run_row(row, rounds=options.rounds))
    if options.json:
        print(document(results, machine=machine))
    else:
        print_table(results, machine=machine, console=console)
    return int(any(each.broken for result in results for each in result.figures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="print a document, not a table")
    parser.add_argument("--rounds", type=int, metavar="N", help="counted rounds for each row")
    parser.add_argument("--sizes", choices=tuple(SIZES), default="normal", help="amount of work")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
