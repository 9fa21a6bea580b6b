"""Prints how an attempt ended: the patch, the recipes, the decisions, where everything lies."""

from typing import Final

from broker.attempts.collect import AGENT_PATCH, RESULT_PATCH
from broker.attempts.spec import AttemptResult
from broker.cli.output import figure, stdout_console
from broker.cli.text import untrusted_bytes

#: A patch longer than this is named, not printed.
_SHOWN_PATCH_BYTES: Final = 32 * 1024


def show_result(result: AttemptResult) -> None:
    """The result on stdout, for a person."""
    console = stdout_console()
    colour = "green" if result.outcome == "succeeded" else "red"
    _show_patch(result)
    console.print(f"attempt    {result.attempt_id}")
    console.print(f"outcome    [{colour}]{result.outcome}[/{colour}]")
    if result.exit_kind is not None and result.outcome != "succeeded":
        code = "" if result.exit_code is None else f" {result.exit_code}"
        console.print(f"agent      {result.exit_kind}{code}")
    for violation in result.violations:
        console.print(f"violation  {violation}")
    for run in result.recipes:
        code = "" if run.exit_code is None else f", exit {run.exit_code}"
        console.print(f"recipe     {run.id}: {run.status}{code}, {figure(run.duration_ms)} ms")
    console.print(
        f"decisions  {figure(result.allow)} allowed, {figure(result.deny)} denied,"
        f" {figure(result.require_approval)} needed an approval"
    )
    console.print(f"base       {result.base_commit or 'no commit'}")
    console.print(f"stage      {result.source_digest or 'none'}")
    console.print(f"candidate  {result.candidate_digest or 'none'}")
    if result.patch is not None:
        state = "verified" if result.verified else "[red]not verified[/red]"
        console.print(
            f"patch      {result.patch.digest}, {figure(result.patch.files)} files,"
            f" {figure(result.patch.bytes)} bytes, {state}"
        )
    else:
        console.print("patch      none")
    console.print(
        f"ledger     {figure(result.ledger_head[0] + 1)} records, head {result.ledger_head[1]}"
    )
    if result.engine is not None:
        console.print(f"engine     {result.engine} {result.engine_version}")
    console.print(f"result     {result.out}", soft_wrap=True)
    if result.agent_patch is not None:
        console.print(f"next       airlock apply {result.out} --dry-run", soft_wrap=True)


def _show_patch(result: AttemptResult) -> None:
    if result.agent_patch is None:
        return
    name = RESULT_PATCH if result.local_patch is None else AGENT_PATCH
    path = result.out / name
    console = stdout_console()
    if result.agent_patch.bytes > _SHOWN_PATCH_BYTES:
        console.print(f"The patch is {figure(result.agent_patch.bytes)} bytes long; see {path}.\n")
        return
    for line in untrusted_bytes(path.read_bytes()).splitlines():
        style = None
        if line.startswith("+") and not line.startswith("+++"):
            style = "green"
        elif line.startswith("-") and not line.startswith("---"):
            style = "red"
        console.print(line, style=style, markup=False)
    console.print()
