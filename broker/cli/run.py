"""``airlock run``: one attempt of one agent on a local checkout, watched from this terminal."""

import argparse
import os
import secrets
import signal
from pathlib import Path
from typing import Final

import msgspec
import trio

from broker.attempts.asking import Approver, NobodyToAsk
from broker.attempts.attempt import Attempt
from broker.attempts.collect import result_document
from broker.attempts.spec import ApproveMode, AttemptResult, AttemptSpec
from broker.cli import exits
from broker.cli.approving import TerminalApprover
from broker.cli.output import present, print_json, stderr_console
from broker.cli.reading import read_argument_file
from broker.cli.result import show_result
from broker.cli.watching import TerminalWatcher
from broker.locations import make_state, state_folder
from protocol.errors import AirlockError, Refusal
from protocol.ids import Id

_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

#: Longest task, in bytes of UTF-8 (protocol.md 3.3).
MAX_TASK_BYTES: Final = 256 * 1024
_CATALOG_BYTES: Final = 256 * 1024
_APPROVALS_BYTES: Final = 64 * 1024
#: Shortest and longest attempt, in seconds.
_DEADLINES: Final = range(1, 7 * 24 * 3600 + 1)


class _ListedApprovals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``--approve FILE``: the recipes that may run without a question."""

    version: int
    standing_grants: list[str]


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    spec = make_spec(arguments)
    console = stderr_console()
    watcher = TerminalWatcher(console)
    approver: Approver = NobodyToAsk()
    if spec.approve == "ask":
        approver = TerminalApprover(watcher)
    try:
        result = run_to_end(Attempt(spec, approver=approver, watcher=watcher))
    finally:
        watcher.close()
    document = result_document(result)
    present(lambda: print_json(document) if arguments.json else show_result(result))
    return exits.OK if result.outcome == "succeeded" else exits.UNSUCCESSFUL


def run_to_end(attempt: Attempt) -> AttemptResult:
    """Runs ``attempt`` under trio; the first INT or TERM cancels it in order."""

    async def watched() -> AttemptResult:
        result: AttemptResult | None = None
        async with trio.open_nursery() as nursery:
            await nursery.start(_cancel_on_signal, attempt)
            result = await attempt.run()
            nursery.cancel_scope.cancel()
        assert result is not None
        return result

    try:
        return trio.run(watched)
    except BaseExceptionGroup as group:
        ours = group.subgroup(AirlockError)
        if ours is None:
            raise
        raise _first_error(ours) from group


def _first_error(group: BaseExceptionGroup[AirlockError]) -> AirlockError:
    """The first error of ours in ``group``: tasks that it cancelled have nothing to add."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, AirlockError)
    return found


async def _cancel_on_signal(
    attempt: Attempt, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """A terminal that closes is a person who left: its attempt is cancelled in order too."""
    with trio.open_signal_receiver(*_ENDING_SIGNALS) as signals:
        task_status.started()
        async for _ in signals:
            attempt.cancel("user")


def make_spec(arguments: argparse.Namespace) -> AttemptSpec:
    """The attempt that the command line describes, every file on it read and bounded."""
    state = make_state(state_folder())
    attempt_id = Id("at_" + secrets.token_hex(8))
    approve, listed = _approvals(arguments.approve)
    if arguments.deadline not in _DEADLINES:
        raise Refusal("usage")
    catalog = arguments.recipes
    return AttemptSpec(
        attempt_id=attempt_id,
        repo=arguments.repo.absolute(),
        ref=arguments.ref,
        instruction=_instruction(arguments),
        agent=arguments.agent,
        agent_arguments=tuple(arguments.agent_arg),
        host_catalog=None if catalog is None else read_argument_file(catalog, _CATALOG_BYTES),
        inference=arguments.inference,
        engine=arguments.engine,
        approve=approve,
        listed_recipes=listed,
        out=_out(arguments.out, state, attempt_id),
        state=state,
        deadline_seconds=arguments.deadline,
        allow_unpinned=arguments.unsafe_testing and os.environ.get("AIRLOCK_UNSAFE_TESTING") == "1",
    )


def _instruction(arguments: argparse.Namespace) -> str:
    if arguments.task is not None:
        text = str(arguments.task)
    else:
        try:
            text = read_argument_file(arguments.task_file, MAX_TASK_BYTES).decode()
        except UnicodeDecodeError:
            raise Refusal("file_malformed") from None
    if not text.strip() or "\0" in text:
        raise Refusal("usage")
    if len(text.encode()) > MAX_TASK_BYTES:
        raise Refusal("file_too_large", figure=MAX_TASK_BYTES)
    return text


def _out(out: Path | None, state: Path, attempt_id: Id) -> Path:
    if out is not None:
        return out.absolute()
    return make_state(state / "attempts") / attempt_id


def _approvals(mode: str) -> tuple[ApproveMode, frozenset[str]]:
    match mode:
        case "never":
            return "never", frozenset()
        case "ask":
            return "ask", frozenset()
        case _:
            return "listed", _read_listed(Path(mode))


def _read_listed(path: Path) -> frozenset[str]:
    data = read_argument_file(path, _APPROVALS_BYTES)
    try:
        listed = msgspec.json.decode(data, type=_ListedApprovals)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise Refusal("approvals_malformed") from None
    if listed.version != 1:
        raise Refusal("approvals_malformed")
    return frozenset(listed.standing_grants)
