"""A plan applied to a tree: a new tree with exactly what the plan says, or a refusal.

Every section is read against the tree as it was, so their order means nothing. All is
computed before the first blob is stored, and the old tree is never changed. Afterwards
the difference of the two trees must be the plan, or the new one is thrown away. Names
are not judged here: whoever applies a plan of an agent has confined it first.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from broker.stage.binary_patch import Malformed, apply_part, git_id
from broker.stage.bounds import StageBounds
from broker.stage.exclusions import HEAD_BYTES, exclusion_of_content
from broker.stage.hunk_placing import SearchBudget, apply_hunks
from broker.stage.patch_plan import (
    AGENT_BOUNDS,
    BinaryChange,
    FilePatch,
    PatchBounds,
    PatchPlan,
    PatchRefusal,
    targets,
)
from broker.stage.store import Blob
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry, StagedTree
from protocol.errors import Refusal
from protocol.ids import RepoPath, parse_repo_path

__all__ = ["Result", "apply_plan", "results"]

_STAGE: Final = StageBounds()


class Result(msgspec.Struct, frozen=True):
    """What a file is after a plan: its mode, and new bytes or a blob that it had before."""

    mode: int
    content: bytes | Blob


def apply_plan(
    plan: PatchPlan, tree: StagedTree, *, bounds: PatchBounds = AGENT_BOUNDS
) -> StagedTree:
    """The tree that ``plan`` makes of ``tree``, which stays as it is.

    Raises ``PatchRefusal`` as ``results`` does, and ``patch_path_secret`` when a new
    content is one that is never staged, ``stage_bound_exceeded`` when the tree would
    pass a bound of the stage, ``effect_outside_targets`` when the new tree differs from
    ``tree`` in anything but what the plan says. ``Fault`` when the store fails.
    """
    planned = results(plan, tree, bounds=bounds)
    for path, result in planned.items():
        if result is not None:
            _check_result(path, result, tree)
    try:
        after = tree.replace(_stored(planned, tree))
    except ValueError:  # a path would be a file and a folder
        raise PatchRefusal("patch_path_collision") from None
    if after.files > _STAGE.files or after.bytes > _STAGE.total_bytes:
        raise PatchRefusal("stage_bound_exceeded")
    _check_effect(plan, tree, after)
    return after


def results(
    plan: PatchPlan, tree: StagedTree, *, bounds: PatchBounds
) -> dict[RepoPath, Result | None]:
    """What ``plan`` makes of each path that it changes; ``None`` is removal. Stores nothing.

    Raises ``PatchRefusal``: ``patch_conflict`` when the tree is not what the plan says
    of it, ``patch_no_change``, ``patch_target_duplicate``, ``patch_malformed`` for a
    binary part that lies, ``patch_path_not_canonical``, ``patch_mode_forbidden``,
    ``patch_binary_too_large``, or ``stage_bound_exceeded`` for too much content.
    """
    planned: dict[RepoPath, Result | None] = {}
    application = _Application(tree, bounds)
    for index, file in enumerate(plan.files):
        for path, result in application.file(file, index):
            if path in planned:
                raise PatchRefusal("patch_target_duplicate", file=index)
            planned[path] = result
    return planned


def _stored(
    planned: Mapping[RepoPath, Result | None], tree: StagedTree
) -> dict[RepoPath, Entry | None]:
    """``planned`` with its new bytes in the tree's store."""
    new = {
        path: result.content
        for path, result in planned.items()
        if result is not None and not isinstance(result.content, Blob)
    }
    blobs = dict(zip(new, tree.store.put_all(new.values()), strict=True))
    changes: dict[RepoPath, Entry | None] = {}
    for path, result in planned.items():
        if result is None:
            changes[path] = None
        else:
            content = result.content
            blob = content if isinstance(content, Blob) else blobs[path]
            changes[path] = Entry(result.mode, blob)
    return changes


class _Application:
    """What the sections of one plan share: the tree, and what they may cost together."""

    def __init__(self, tree: StagedTree, bounds: PatchBounds) -> None:
        self._tree = tree
        self._budget = SearchBudget()
        self._left = bounds.touched_bytes

    def file(self, file: FilePatch, index: int) -> list[tuple[RepoPath, Result | None]]:
        """What one section makes of the paths that it names."""
        old = _parsed(file.old_path, file, index)
        new = old if file.operation == "modify" else _parsed(file.new_path, file, index)
        entry = self._source(file, old, index)
        if new is not None and file.operation != "modify" and self._tree.get(new) is not None:
            raise PatchRefusal("patch_conflict", file=index)
        content = self._content(file, entry, index)
        if new is None:
            assert old is not None
            return [(old, None)]
        mode = file.new_mode or (MODE_FILE if entry is None else entry.mode)
        if mode not in (MODE_FILE, MODE_EXECUTABLE):
            raise PatchRefusal("patch_mode_forbidden", file=index)
        if (
            file.operation == "modify"
            and entry is not None
            and mode == entry.mode
            and isinstance(content, Blob)
        ):
            raise PatchRefusal("patch_no_change", file=index)
        made: list[tuple[RepoPath, Result | None]] = [(new, Result(mode, content))]
        if file.operation == "rename":
            assert old is not None
            made.append((old, None))
        return made

    def _source(self, file: FilePatch, old: RepoPath | None, index: int) -> Entry | None:
        if old is None:
            return None
        entry = self._tree.get(old)
        if entry is None:
            raise PatchRefusal("patch_conflict", file=index)
        if file.old_mode is not None and file.old_mode != entry.mode:
            raise PatchRefusal(
                "patch_conflict",
                file=index,
                expected=b"%06o" % file.old_mode,
                found=b"%06o" % entry.mode,
            )
        return entry

    def _content(self, file: FilePatch, entry: Entry | None, index: int) -> bytes | Blob:
        """The new content: the blob of before where it stays the same."""
        if file.change is None:
            if file.operation == "create" or entry is None:
                return b""
            if file.operation == "delete" and entry.blob.size and file.states_content:
                found = self._loaded(entry, index)
                raise PatchRefusal("patch_conflict", file=index, expected=b"", found=found)
            return entry.blob
        before = b"" if entry is None else self._loaded(entry, index)
        if isinstance(file.change, BinaryChange):
            after = _binary_result(file.change, before, index)
        else:
            after = apply_hunks(before, file.change, file=index, budget=self._budget)
        self._spend(len(after), index)
        if file.operation == "delete" and after:
            raise PatchRefusal("patch_conflict", file=index, expected=b"", found=after)
        return entry.blob if entry is not None and after == before else after

    def _loaded(self, entry: Entry, index: int) -> bytes:
        self._spend(entry.blob.size, index)
        return self._tree.store.load(entry.blob)

    def _spend(self, size: int, index: int) -> None:
        self._left -= size
        if self._left < 0:
            raise PatchRefusal("stage_bound_exceeded", file=index)


def _parsed(path: str | None, file: FilePatch, index: int) -> RepoPath | None:
    if path is None:
        return None
    try:
        parsed = parse_repo_path(path)
    except Refusal:
        raise PatchRefusal("patch_path_not_canonical", file=index) from None
    if not file.plain_names:
        raise PatchRefusal("patch_path_not_canonical", file=index)
    return parsed


def _binary_result(change: BinaryChange, before: bytes, index: int) -> bytes:
    """The content after ``change``: both ids and, where it is there, the way back hold."""
    if change.over_bounds:
        raise PatchRefusal("patch_binary_too_large", file=index)
    if change.old_id.strip(b"0"):
        held = git_id(before, like=change.old_id)
        if held != change.old_id:
            raise PatchRefusal("patch_conflict", file=index, expected=change.old_id, found=held)
    try:
        after = apply_part(change.forward, before)
        back = before if change.reverse is None else apply_part(change.reverse, after)
    except Malformed:
        raise PatchRefusal("patch_malformed", file=index) from None
    absent = not change.new_id.strip(b"0")
    if back != before or (not absent and git_id(after, like=change.new_id) != change.new_id):
        raise PatchRefusal("patch_malformed", file=index)
    return after


def _check_result(path: RepoPath, result: Result, tree: StagedTree) -> None:
    """A stage holds no file, and no content, that staging would have left out."""
    content = result.content
    if isinstance(content, Blob):
        if tree.get(path) is not None:
            return
        content = tree.store.load(content)
    try:
        _STAGE.check_path(path)
        _STAGE.check_size(len(content))
    except Refusal:
        raise PatchRefusal("stage_bound_exceeded") from None
    if exclusion_of_content(path, content[:HEAD_BYTES]) is not None:
        raise PatchRefusal("patch_path_secret")


def _check_effect(plan: PatchPlan, before: StagedTree, after: StagedTree) -> None:
    """The two trees differ at the plan's targets only, in the way that it says."""
    kinds = {target.path: target.kind for target in targets(plan)}
    modes: dict[str, int] = {}
    for file in plan.files:
        source = None if file.old_path is None else before.get(file.old_path)
        if file.new_path is not None:
            modes[file.new_path] = file.new_mode or (source.mode if source else MODE_FILE)
    seen = 0
    for difference in before.differences(after):
        seen += 1
        old, new = difference.before, difference.after
        kind = "create" if old is None else "delete" if new is None else "modify"
        if kinds.get(difference.path) != kind or (
            new is not None and new.mode != modes[difference.path]
        ):
            raise PatchRefusal("effect_outside_targets")
    if seen != len(kinds):
        raise PatchRefusal("effect_outside_targets")
