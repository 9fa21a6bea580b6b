"""``airlock doctor``: the engines of this machine and what each really enforces here."""

import argparse
import os
import platform
import shutil
from typing import Any

import msgspec
import trio

from broker.cli import exits
from broker.cli.output import markup, present, print_json, stdout_console
from broker.engines.survey import EngineReport, survey
from broker.locations import make_state, state_folder


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command; exit 0 when at least one engine is usable."""
    state = make_state(state_folder())
    reports = trio.run(survey, state)
    usage = shutil.disk_usage(state)
    document: dict[str, Any] = {
        "engines": msgspec.to_builtins(reports),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "root": os.geteuid() == 0,
        "state": str(state),
        "disk": {"freeBytes": usage.free, "totalBytes": usage.total},
    }
    present(lambda: print_json(document) if arguments.json else _show(document, reports))
    return exits.OK if any(report.usable for report in reports) else exits.UNAVAILABLE


def _show(document: dict[str, Any], reports: list[EngineReport]) -> None:
    console = stdout_console()
    console.print(
        f"kernel {document['kernel']} {document['machine']}, Python {document['python']},"
        f" {'root' if document['root'] else 'not root'}"
    )
    console.print(f"state  {document['state']}, {document['disk']['freeBytes']:,} bytes free")
    for report in reports:
        state = "[green]usable[/green]" if report.usable else "[red]not usable[/red]"
        version = f" {report.version}" if report.version else ""
        kind = "" if not report.enforces else ", rootless" if report.rootless else ", as root"
        console.print(f"\n[bold]{report.name}[/bold]{markup(version)}{kind}: {state}")
        if report.text is not None:
            console.print(f"  {report.text}")
        if report.hint is not None:
            console.print(f"  hint: {report.hint}")
        for name, mechanism in sorted(report.enforces.items()):
            colour = "red" if mechanism == "none" else "green"
            console.print(f"  {name}: [{colour}]{mechanism}[/{colour}]")
        failed = [probe for probe in report.probes if probe.must and not probe.ok]
        passed = sum(probe.ok for probe in report.probes)
        if report.probes:
            console.print(f"  probes: {passed} of {len(report.probes)} hold")
        for probe in failed:
            console.print(
                f"    [red]{markup(probe.id)}[/red]: expected {markup(str(probe.expected))}"
            )
