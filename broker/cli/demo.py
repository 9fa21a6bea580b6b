"""``airlock demo``: the main job on a small repository that ships with the package."""

import argparse
import secrets
import shutil
from pathlib import Path
from typing import Final

import pygit2

from broker.attempts.asking import NobodyToAsk
from broker.attempts.attempt import Attempt
from broker.attempts.collect import result_document
from broker.attempts.spec import DEFAULT_DEADLINE_SECONDS, AttemptSpec
from broker.cli import exits
from broker.cli.output import present, print_json, stderr_console
from broker.cli.result import show_result
from broker.cli.run import run_to_end
from broker.cli.watching import TerminalWatcher
from broker.locations import bundled, make_state, state_folder
from protocol.ids import Id

TASK: Final = "The tests of this project fail. Find out why, fix the code, and show that they pass."
#: The scripted model of the demo lies beside the repository's folder.
_SCRIPT: Final = "demo-inference.jsonl"
#: Fixed, so that the demo's commit has the same id everywhere.
_COMMITTED_AT: Final = 1_700_000_000


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    state = make_state(state_folder())
    attempt_id = Id("at_" + secrets.token_hex(8))
    console = stderr_console()
    watcher = TerminalWatcher(console)
    checkout = make_checkout(make_state(state / "demo" / attempt_id) / "tally")
    console.print(f"airlock: made the demo checkout in {checkout}", soft_wrap=True)
    spec = AttemptSpec(
        attempt_id=attempt_id,
        repo=checkout,
        ref=None,
        instruction=TASK,
        agent="fixture",
        agent_arguments=(),
        host_catalog=None,
        inference=f"scripted:{bundled('demo').parent / _SCRIPT}",
        engine=arguments.engine,
        approve="never",
        listed_recipes=frozenset(),
        out=arguments.out.absolute()
        if arguments.out is not None
        else make_state(state / "attempts") / attempt_id,
        state=state,
        deadline_seconds=DEFAULT_DEADLINE_SECONDS,
        allow_unpinned=False,
    )
    try:
        result = run_to_end(Attempt(spec, approver=NobodyToAsk(), watcher=watcher))
    finally:
        watcher.close()
    document = result_document(result)
    present(lambda: print_json(document) if arguments.json else show_result(result))
    statuses = [run.status for run in result.recipes]
    shown = result.outcome == "succeeded" and statuses == ["failed", "passed"] and result.verified
    return exits.OK if shown else exits.UNSUCCESSFUL


def make_checkout(folder: Path) -> Path:
    """The demo's files as a git checkout with one commit."""
    shutil.copytree(bundled("demo"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    repository = pygit2.init_repository(folder, initial_head="main")
    repository.index.add_all()
    repository.index.write()
    author = pygit2.Signature("airlock demo", "demo@localhost", _COMMITTED_AT, 0)
    repository.create_commit(
        "HEAD", author, author, "A ledger that loses a cent\n", repository.index.write_tree(), []
    )
    repository.free()
    return folder
