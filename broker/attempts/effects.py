"""The bodies of effects on a tree: read, list, search, plan a patch, apply it. None decides.

Each takes the tree that was decided on and gives a value; nothing here looks at who
asked, records, or answers.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from broker.policy.effect_inputs import TargetKind
from broker.stage.begin_patch import parse_any_patch
from broker.stage.confinement import confine
from broker.stage.diff import TreeChange, changes
from broker.stage.edits import Edit, plan_delete, plan_edits, plan_write
from broker.stage.patch_plan import AGENT_BOUNDS, PatchPlan, PatchRefusal, targets
from broker.stage.patching import apply_plan
from broker.stage.reading import ReadFailure, list_files, read_bytes, read_text
from broker.stage.searching import SearchFailure, search
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, StagedTree
from protocol.codes import WireCode
from protocol.decision_codes import DecisionReason, PatchCode
from protocol.errors import Fault
from protocol.ids import Digest, RepoPath
from protocol.messages import Truncation
from protocol.tools import (
    ApplyPatchInput,
    ChangeInput,
    DeleteFileInput,
    EditFileInput,
    ListedFile,
    ListFilesInput,
    ListFilesResult,
    ReadFileInput,
    ReadFileResult,
    SearchFilesInput,
    SearchFilesResult,
    SearchMatch,
    ToolInput,
    WriteFileInput,
)

#: Entries and matches of one answer when the agent names no number, and at most.
DEFAULT_ENTRIES: Final = 1_000
MAX_ENTRIES: Final = 5_000
DEFAULT_MATCHES: Final = 100
MAX_MATCHES: Final = 1_000
#: What one search looks at; a larger stage is searched by prefix.
SEARCH_BYTES: Final = 64 * 1024 * 1024

_KINDS: Final[dict[str, TargetKind]] = {
    "create": "added",
    "modify": "modified",
    "delete": "deleted",
}

_MODES: Final = {None: None, False: MODE_FILE, True: MODE_EXECUTABLE}

#: Refusals of a patch that have another name as the reason of a decision.
_REASONS: Final[dict[PatchCode, DecisionReason]] = {
    "patch_too_many_hunks": "patch_too_many_files",
    "patch_no_change": "patch_malformed",
    "patch_conflict": "patch_does_not_apply",
    "edit_stale": "source_changed",
    "edit_not_found": "patch_does_not_apply",
    "edit_ambiguous": "patch_does_not_apply",
    "stage_bound_exceeded": "payload_too_large",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A patch that was applied: the new tree and what it did to each path."""

    tree: StagedTree
    changes: tuple[TreeChange, ...]
    registry_changes: dict[RepoPath, tuple[int, Digest] | None]


class ReadOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a read gave: a result to disclose, or a code; and what the ledger keeps of it."""

    status: Literal["done", "failed"]
    code: WireCode | None = None
    result: ReadFileResult | ListFilesResult | SearchFilesResult | None = None
    cut: tuple[Truncation, ...] = ()
    digest: Digest | None = None  #: of the file that was read
    disclosed_bytes: int = 0
    truncated: bool = False


def perform_read(given: ToolInput, tree: StagedTree, *, max_bytes: int) -> ReadOutcome:
    """The read that was decided on. Never raises for what a file or a query is.

    A file that the store cannot give (any more) fails this read only.
    """
    try:
        match given:
            case ReadFileInput(encoding="utf8"):
                return _read_text(given, tree, max_bytes)
            case ReadFileInput():
                return _read_bytes(given, tree, max_bytes)
            case ListFilesInput():
                return _list(given, tree)
            case SearchFilesInput():
                return _search(given, tree)
            case _:
                raise AssertionError("not a read")
    except ReadFailure as failure:
        return ReadOutcome(status="failed", code=failure.code)
    except SearchFailure:
        return ReadOutcome(status="failed", code="invalid_input")
    except Fault:
        return ReadOutcome(status="failed", code="internal_error")


def _read_text(given: ReadFileInput, tree: StagedTree, max_bytes: int) -> ReadOutcome:
    window = read_text(
        tree,
        given.path,
        start_line=given.start_line or 1,
        max_lines=given.max_lines,
        max_bytes=max_bytes,
    )
    ended = window.start_line + window.lines > window.total_lines
    truncated = window.cut_lines > 0 or not (ended or given.max_lines == window.lines)
    return ReadOutcome(
        status="done",
        result=ReadFileResult(
            digest=window.digest,
            total_bytes=window.total_bytes,
            text=window.text,
            start_line=window.start_line,
            lines=window.lines,
            cut_lines=window.cut_lines or None,
            total_lines=window.total_lines,
        ),
        cut=(Truncation(field="text", total_bytes=window.total_bytes),) if truncated else (),
        digest=window.digest,
        disclosed_bytes=len(window.text if window.text.isascii() else window.text.encode()),
        truncated=truncated,
    )


def _read_bytes(given: ReadFileInput, tree: StagedTree, max_bytes: int) -> ReadOutcome:
    wanted = given.max_bytes or max_bytes
    window = read_bytes(
        tree, given.path, offset=given.start_byte or 0, max_bytes=min(wanted, max_bytes)
    )
    left = window.total_bytes - window.offset - len(window.data)
    truncated = left > 0 and len(window.data) < wanted
    return ReadOutcome(
        status="done",
        result=ReadFileResult(
            digest=window.digest,
            total_bytes=window.total_bytes,
            base64=b64encode(window.data).decode(),
            start_byte=window.offset,
        ),
        cut=(Truncation(field="base64", total_bytes=window.total_bytes),) if truncated else (),
        digest=window.digest,
        disclosed_bytes=len(window.data),
        truncated=truncated,
    )


def _list(given: ListFilesInput, tree: StagedTree) -> ReadOutcome:
    limit = min(given.limit or DEFAULT_ENTRIES, MAX_ENTRIES)
    page = list_files(tree, prefix=given.prefix, cursor=given.cursor, limit=limit)
    files = tuple(
        ListedFile(path=file.path, bytes=file.size, executable=file.executable)
        for file in page.files
    )
    return ReadOutcome(
        status="done",
        result=ListFilesResult(files=files, total=page.total, cursor=page.cursor),
        disclosed_bytes=sum(len(file.path.encode()) for file in page.files),
        truncated=page.cursor is not None,
    )


def _search(given: SearchFilesInput, tree: StagedTree) -> ReadOutcome:
    found = search(
        tree,
        given.query,
        regex=given.regex,
        prefix=given.prefix,
        max_matches=min(given.max_matches or DEFAULT_MATCHES, MAX_MATCHES),
        max_bytes=SEARCH_BYTES,
    )
    matches = tuple(
        SearchMatch(path=match.path, line=match.line, text=match.text, cut=match.cut)
        for match in found.matches
    )
    return ReadOutcome(
        status="done",
        result=SearchFilesResult(
            matches=matches,
            complete=found.complete,
            files_searched=found.files_searched,
            files_skipped=found.files_skipped,
        ),
        disclosed_bytes=sum(len(match.text.encode()) for match in found.matches),
        truncated=not found.complete,
    )


def change_payload(tool: str, given: ChangeInput) -> bytes:
    """What the policy decides on beside the targets: the patch, or the input of another tool.

    UTF-8. The name of that tool is part of it, so that no two tools have one payload.
    """
    if isinstance(given, ApplyPatchInput):
        return given.patch.encode()
    return msgspec.json.encode({tool: given})


def change_base(given: ChangeInput) -> str | None:
    """The digest that the whole tree must have, where the agent names one."""
    return given.base_digest if isinstance(given, ApplyPatchInput) else None


def plan_patch(data: bytes, tree: StagedTree) -> PatchPlan:
    """The plan of a patch, confined to what an agent may touch; raises ``PatchRefusal``."""
    plan = parse_any_patch(data)
    confine(plan, tree)
    return plan


def plan_change(given: ChangeInput, payload: bytes, tree: StagedTree) -> PatchPlan:
    """The plan of a change, confined to what an agent may touch; raises ``PatchRefusal``.

    ``payload`` is that of ``change_payload``.
    """
    if isinstance(given, ApplyPatchInput):
        return plan_patch(payload, tree)
    if len(payload) > AGENT_BOUNDS.text_bytes:
        raise PatchRefusal("payload_too_large")
    plan = _plan_of_file(given, tree)
    confine(plan, tree)
    return plan


def _plan_of_file(
    given: EditFileInput | WriteFileInput | DeleteFileInput, tree: StagedTree
) -> PatchPlan:
    digest = None if given.digest is None else Digest(given.digest)
    if isinstance(given, WriteFileInput):
        mode = _MODES[given.executable]
        return plan_write(tree, given.path, given.data(), mode=mode, expected_digest=digest)
    assert digest is not None
    if isinstance(given, DeleteFileInput):
        return plan_delete(tree, given.path, expected_digest=digest)
    edits = [
        Edit(old=edit.old.encode(), new=edit.new.encode(), count=edit.count) for edit in given.edits
    ]
    return plan_edits(tree, given.path, edits, expected_digest=digest)


def policy_targets(plan: PatchPlan) -> tuple[tuple[str, TargetKind], ...]:
    """What the policy decides on: every path of the plan and what becomes of it."""
    return tuple((target.path, _KINDS[target.kind]) for target in targets(plan))


def apply_patch(plan: PatchPlan, tree: StagedTree) -> Applied:
    """The plan on ``tree``, all or nothing; raises ``PatchRefusal``."""
    after = apply_plan(plan, tree)
    found = changes(tree, after)
    registry: dict[RepoPath, tuple[int, Digest] | None] = {}
    for change in found:
        entry = after.get(change.path)
        registry[change.path] = (
            None if entry is None else (entry.blob.size, blob_digest(entry.blob.digest))
        )
    return Applied(tree=after, changes=found, registry_changes=registry)


def blob_digest(raw: bytes) -> Digest:
    """A blob's 32-byte git id as a digest."""
    return Digest("sha256:" + raw.hex())


def deny_reason(code: PatchCode) -> DecisionReason:
    """The decision's reason for a patch that was refused before it was decided on."""
    return _REASONS.get(code) or code  # type: ignore[return-value]


def folder_of(prefix: str) -> str:
    """The folder that holds every path beginning with ``prefix``: what a read of it may tell."""
    return prefix.rpartition("/")[0]
