"""What an attempt leaves behind: patches, checked before they leave, and ``attempt.json``.

A patch file is read back from disk, parsed and applied to its base; it leaves only when
that gives the candidate.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from broker.attempts.spec import AttemptResult, PatchSummary
from broker.stage.diff import changes, make_patch
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import RESULT_BOUNDS, PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.snapshot import Staged
from broker.stage.tree import StagedTree
from protocol.digest import digest_bytes
from protocol.errors import Fault

#: The result, base to candidate; the agent's part of it; what the checkout had changed before.
RESULT_PATCH: Final = "patch.diff"
AGENT_PATCH: Final = "agent.diff"
LOCAL_PATCH: Final = "local.patch"
DOCUMENT: Final = "attempt.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """The patches of one attempt; None where there is no difference or it is too large."""

    result: PatchSummary | None
    agent: PatchSummary | None
    local: PatchSummary | None
    verified: bool  #: every file that was written gives its tree again


def write_patches(staged: Staged, candidate: StagedTree, out: Path) -> Patches:
    """Writes the three patches below ``out``. Blocking. Raises ``Fault("out_unwritable")``."""
    pairs = (
        (RESULT_PATCH, staged.base_tree, candidate),
        (AGENT_PATCH, staged.tree, candidate),
        (LOCAL_PATCH, staged.base_tree, staged.tree),
    )
    summaries: list[PatchSummary | None] = []
    verified = True
    for name, before, after in pairs:
        summary = _write_patch(out / name, before, after)
        if summary is not None:
            verified = verified and _gives(out / name, before, after)
        elif before != after:
            verified = False
        summaries.append(summary)
    result, agent, local = summaries
    return Patches(result=result, agent=agent, local=local, verified=verified)


def _write_patch(path: Path, before: StagedTree, after: StagedTree) -> PatchSummary | None:
    if before == after:
        return None
    try:
        data = make_patch(before, after)
    except PatchRefusal:
        # Above 8 MiB there is no patch; the candidate's digest still names the result.
        return None
    write_file(path, data)
    return PatchSummary(
        digest=digest_bytes(data), bytes=len(data), files=len(changes(before, after))
    )


def _gives(path: Path, before: StagedTree, after: StagedTree) -> bool:
    try:
        data = path.read_bytes()
        plan = parse_patch(data, bounds=RESULT_BOUNDS)
        return apply_plan(plan, before, bounds=RESULT_BOUNDS).digest == after.digest
    except (OSError, PatchRefusal):
        return False


def write_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """``data`` as a new file, durable; raises ``Fault("out_unwritable")``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(path, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Fault("out_unwritable") from error


def write_document(result: AttemptResult) -> None:
    """``attempt.json``: the result as one document, written last."""
    data = msgspec.json.format(msgspec.json.encode(result_document(result)), indent=2)
    write_file(result.out / DOCUMENT, data + b"\n")


def result_document(result: AttemptResult) -> dict[str, Any]:
    """The ``run`` document of cli.md, for ``--json`` and for ``attempt.json``."""
    return {
        "attemptId": result.attempt_id,
        "outcome": result.outcome,
        "claim": result.claim,
        "exitCode": result.exit_code,
        "exitKind": result.exit_kind,
        "out": _path(result.out),
        "repo": _path(result.repo),
        "base": {"commit": result.base_commit, "treeDigest": result.base_digest},
        "stage": {"treeDigest": result.source_digest},
        "candidate": {"treeDigest": result.candidate_digest, "verified": result.verified},
        "patch": _patch(result.patch),
        "agentPatch": _patch(result.agent_patch),
        "localPatch": _patch(result.local_patch),
        "recipes": [
            {
                "id": recipe.id,
                "status": recipe.status,
                "exitCode": recipe.exit_code,
                "durationMs": recipe.duration_ms,
                "sourceDigest": recipe.source_digest,
            }
            for recipe in result.recipes
        ],
        "decisions": {
            "allow": result.allow,
            "deny": result.deny,
            "requireApproval": result.require_approval,
        },
        "violations": list(result.violations),
        "receipts": list(result.receipts),
        "usage": {"inputTokens": result.input_tokens, "outputTokens": result.output_tokens},
        "engine": {"name": result.engine, "version": result.engine_version},
        "recipeCatalog": result.catalog_source,
        "ledger": {"entries": result.ledger_head[0] + 1, "head": result.ledger_head[1]},
    }


def _path(path: Path) -> str:
    """A path of this machine as text; what is not UTF-8 in it is replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def _patch(summary: PatchSummary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {"digest": summary.digest, "bytes": summary.bytes, "files": summary.files}
