"""``airlock stage``: what would be staged of a checkout, and why the rest is not."""

import argparse
import secrets
from collections import Counter
from typing import Any, Final

from broker.attempts.effects import plan_patch
from broker.attempts.scratch import scratch_folder
from broker.cli import exits
from broker.cli.output import figure, markup, present, print_json, stdout_console
from broker.cli.reading import read_argument_file
from broker.locations import make_state, state_folder
from broker.stage.diff import changes
from broker.stage.patch_plan import PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.snapshot import Staged, stage_checkout

#: The largest patch that is looked at.
_PATCH_BYTES: Final = 8 * 1024 * 1024
#: Excluded paths that are listed for a person before the rest is counted.
_SHOWN: Final = 200


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    patch = None if arguments.patch is None else read_argument_file(arguments.patch, _PATCH_BYTES)
    state = make_state(state_folder())
    with scratch_folder(state, f"stage-{secrets.token_hex(8)}") as scratch:
        staged = stage_checkout(
            arguments.directory.absolute(),
            scratch=scratch,
            ref=arguments.ref,
            cache=make_state(state / "cache"),
        )
        try:
            document = _document(staged)
            code = exits.OK
            if patch is not None:
                code = _judge_patch(patch, staged, document)
        finally:
            staged.tree.store.close()
    present(lambda: print_json(document) if arguments.json else _show(document))
    return code


def _document(staged: Staged) -> dict[str, Any]:
    return {
        "treeDigest": staged.tree.digest,
        "files": staged.tree.files,
        "bytes": staged.tree.bytes,
        "tracked": staged.tracked,
        "untracked": staged.untracked,
        "base": {"commit": staged.base_commit, "treeDigest": staged.base_tree.digest},
        "excluded": [{"path": item.path, "reason": item.reason} for item in staged.excluded],
        "converted": list(staged.converted),
        "lfsPointers": list(staged.pointers),
    }


def _judge_patch(patch: bytes, staged: Staged, document: dict[str, Any]) -> int:
    """Adds ``candidate`` or ``refusal`` to ``document``."""
    try:
        candidate = apply_plan(plan_patch(patch, staged.tree), staged.tree)
    except PatchRefusal as refusal:
        document["refusal"] = {
            "code": refusal.code,
            "file": refusal.file,
            "hunk": refusal.hunk,
        }
        return exits.REFUSED
    document["candidate"] = {
        "treeDigest": candidate.digest,
        "changed": [
            {"path": change.path, "change": change.change}
            for change in changes(staged.tree, candidate)
        ],
    }
    return exits.OK


def _show(document: dict[str, Any]) -> None:
    console = stdout_console()
    console.print(f"tree      {document['treeDigest']}")
    console.print(
        f"files     {figure(document['files'])} ({figure(document['tracked'])} tracked,"
        f" {figure(document['untracked'])} untracked), {figure(document['bytes'])} bytes"
    )
    console.print(f"base      {document['base']['commit'] or 'none'}")
    excluded = document["excluded"]
    reasons = Counter(item["reason"] for item in excluded)
    console.print(f"excluded  {figure(len(excluded))}")
    for reason, count in reasons.most_common():
        console.print(f"  {reason}: {figure(count)}")
    for item in excluded[:_SHOWN]:
        console.print(f"    {item['reason']}  {markup(item['path'])}")
    if len(excluded) > _SHOWN:
        console.print(f"    and {figure(len(excluded) - _SHOWN)} more; --json lists all")
    for path in document["converted"][:_SHOWN]:
        console.print(f"  staged as git holds it (line ends or LFS): {markup(path)}")
    if "candidate" in document:
        console.print(f"candidate {document['candidate']['treeDigest']}")
        for change in document["candidate"]["changed"]:
            console.print(f"  {change['change']}  {markup(change['path'])}")
    if "refusal" in document:
        refusal = document["refusal"]
        console.print(
            f"refused   {refusal['code']} (file {refusal['file']}, hunk {refusal['hunk']})"
        )
