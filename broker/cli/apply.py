"""``airlock apply``: puts a finished attempt's patch on the checkout, once a person has seen it.

The checkout must still be at the attempt's base commit, and every path that the patch
touches must be what the patch says; other local changes stay as they are.
"""

import argparse
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec

from broker.attempts.collect import AGENT_PATCH, DOCUMENT, RESULT_PATCH
from broker.attempts.scratch import scratch_folder
from broker.cli import exits
from broker.cli.output import markup, present, print_json, stdout_console
from broker.cli.reading import read_argument_file
from broker.locations import make_state, state_folder
from broker.stage.diff import changes
from broker.stage.landing import check_landing, land
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import RESULT_BOUNDS, PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.snapshot import Staged, stage_checkout
from broker.stage.tree import StagedTree
from protocol.digest import digest_bytes
from protocol.errors import Refusal
from protocol.limits import MAX_RESULT_PATCH_BYTES

_DOCUMENT_BYTES: Final = 4 * 1024 * 1024


class _Patch(msgspec.Struct, frozen=True):
    digest: str
    files: int


class _Base(msgspec.Struct, frozen=True, rename="camel"):
    commit: str | None
    tree_digest: str | None = None


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    """What ``apply`` needs of ``attempt.json``, and what it says again; the rest is passed over."""

    attempt_id: str
    repo: str
    base: _Base
    agent_patch: _Patch | None
    patch: msgspec.Raw = msgspec.Raw(b"null")
    recipes: msgspec.Raw = msgspec.Raw(b"[]")
    decisions: msgspec.Raw = msgspec.Raw(b"{}")
    violations: msgspec.Raw = msgspec.Raw(b"[]")
    receipts: msgspec.Raw = msgspec.Raw(b"[]")


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    out: Path = arguments.out.absolute()
    document = _read_document(out)
    if document.agent_patch is None:
        raise Refusal("nothing_to_apply")
    patch = _read_patch(out, document.agent_patch)
    repo = Path(document.repo) if arguments.repo is None else arguments.repo.absolute()
    state = make_state(state_folder())
    with scratch_folder(state, f"apply-{secrets.token_hex(8)}") as scratch:
        staged = stage_checkout(repo, scratch=scratch, cache=make_state(state / "cache"))
        try:
            candidate = _candidate(document, patch, staged)
            act = check_landing if arguments.dry_run else land
            act(repo, staged.tree, candidate)
            present(lambda: _report(arguments, document, staged.tree, candidate))
        finally:
            staged.tree.store.close()
    return exits.OK


def _read_document(out: Path) -> _Document:
    try:
        data = read_argument_file(out / DOCUMENT, _DOCUMENT_BYTES)
        return msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, Refusal, RecursionError):
        raise Refusal("attempt_not_complete") from None


def _read_patch(out: Path, summary: _Patch) -> bytes:
    name = AGENT_PATCH if (out / AGENT_PATCH).exists() else RESULT_PATCH
    data = read_argument_file(out / name, MAX_RESULT_PATCH_BYTES)
    if digest_bytes(data) != summary.digest:
        raise Refusal("attempt_not_complete")
    return data


def _candidate(document: _Document, patch: bytes, staged: Staged) -> StagedTree:
    if staged.base_commit != document.base.commit:
        raise Refusal("base_moved")
    try:
        plan = parse_patch(patch, bounds=RESULT_BOUNDS)
        return apply_plan(plan, staged.tree, bounds=RESULT_BOUNDS)
    except PatchRefusal:
        # The commit is the same, so a path that the patch touches is not as it was staged.
        raise Refusal("target_changed") from None


def _report(
    arguments: argparse.Namespace, document: _Document, before: StagedTree, after: StagedTree
) -> None:
    changed = changes(before, after)
    result: dict[str, Any] = {
        "attemptId": document.attempt_id,
        "outcome": "checked" if arguments.dry_run else "applied",
        "out": str(arguments.out.absolute()),
        "base": document.base,
        "stage": {"treeDigest": before.digest},
        "candidate": {"treeDigest": after.digest},
        "changed": [{"path": change.path, "change": change.change} for change in changed],
        "patch": document.patch,
        "recipes": document.recipes,
        "decisions": document.decisions,
        "violations": document.violations,
        "receipts": document.receipts,
    }
    if arguments.json:
        print_json(result)
        return
    console = stdout_console()
    for change in changed:
        console.print(f"{change.change}  {markup(change.path)}")
    word = "would change" if arguments.dry_run else "changed"
    console.print(f"{word} {len(changed)} files; the tree is then {after.digest}")
