"""Results as one table for people and one document for programs; measures nothing."""

import json
import os
import platform
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.benchmarks.figures import Figures, Outcome, RowResult, in_unit


def print_table(results: Sequence[RowResult], *, machine: dict[str, Any], console: Console) -> None:
    """One table, a block per row: subjects with figures, then the goals of the row."""
    table = Table(box=box.ASCII_DOUBLE_HEAD, title=_title(machine), title_justify="left")
    table.add_column("row")
    table.add_column("subject")
    for name in ("n", "median", "p99", "ours / this"):
        table.add_column(name, justify="right")
    table.add_column("goal, measured, or why not")
    for result in results:
        _add_row(table, result)
    console.print(table)


def document(results: Sequence[RowResult], *, machine: dict[str, Any]) -> str:
    """The same as JSON: ``machine`` and ``rows`` with subjects and goals."""
    rows = [
        {
            "name": result.row.name,
            "unit": result.row.unit.value,
            "note": result.row.note,
            "subjects": [
                {"name": each.name, "missing": each.missing}
                if each.missing is not None
                else {
                    "name": each.name,
                    "missing": None,
                    "ours": each.ours,
                    "rounds": len(each.rounds),
                    "samples": each.count,
                    "median": in_unit(each.all("median"), result.row),
                    "p99": in_unit(each.all("p99"), result.row),
                    "ratio": result.ratio(each.name),
                }
                for each in result.figures
            ],
            "goals": [
                {
                    "subject": outcome.goal.subject,
                    "against": outcome.goal.against,
                    "statistic": outcome.goal.statistic,
                    "bound": outcome.goal.bound,
                    "measured": outcome.measured,
                    "met": outcome.met,
                }
                for outcome in result.outcomes
            ],
        }
        for result in results
    ]
    return json.dumps({"machine": machine, "rows": rows}, indent=2)


def machine_facts(*, pinned: bool) -> dict[str, Any]:
    """What a reader must know of the machine to compare two documents."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "latency_rows_pinned": pinned,
    }


def _title(machine: dict[str, Any]) -> str:
    pinned = "latency rows on one CPU" if machine["latency_rows_pinned"] else "NOT pinned"
    return (
        f"Python {machine['python']}, Linux {machine['kernel']}, {machine['cpus']} CPUs, "
        f"load {machine['load']}, {pinned}"
    )


def _add_row(table: Table, result: RowResult) -> None:
    remarks = [
        *(f"{each.name}: {each.missing}" for each in result.figures if each.missing is not None),
        *(_goal_text(outcome, result) for outcome in result.outcomes),
    ]
    titles = [f"{result.row.name} [{result.row.unit.value}]", result.row.note]
    subjects = [_cells(each, result) for each in result.figures]
    for title, cells, remark in zip_longest(titles, subjects, remarks):
        table.add_row(title, *(cells or [""] * 5), remark)
    table.add_section()


def _cells(each: Figures, result: RowResult) -> list[str]:
    if each.missing is not None:
        return [each.name, "-", "-", "-", "-"]
    ratio = result.ratio(each.name)
    return [
        each.name,
        str(each.count),
        _figure(in_unit(each.all("median"), result.row)),
        _figure(in_unit(each.all("p99"), result.row)),
        "-" if ratio is None else f"{ratio:.3g}",
    ]


def _goal_text(outcome: Outcome, result: RowResult) -> str:
    goal, unit = outcome.goal, result.row.unit
    sign = ">=" if unit.more_is_better else "<="
    against = unit.value if goal.against is None else f"x {goal.against}"
    statistic = "" if goal.statistic == "median" else f"{goal.statistic} "
    verdict = {True: "met", False: "MISSED", None: "not measured"}[outcome.met]
    measured = "" if outcome.measured is None else f"{outcome.measured:.3g} "
    several = len({each.goal.subject for each in result.outcomes}) > 1
    subject = f"{goal.subject}: " if several else ""
    return f"{subject}{statistic}{sign} {goal.bound:g} {against}: {measured}{verdict}"


def _figure(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
