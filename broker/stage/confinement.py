"""Whether a plan stays where an agent may change things: steps 4 to 10 of confinement.

It reads names and the tree's list of names, never content, and changes nothing. Steps
run one after another over the whole plan, so that the reason of a refusal does not
depend on the order of files. Steps 1 to 3 are the grammar's; step 11, whether targets
are registered, is the gate's.
"""

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from broker.stage.exclusions import exclusion_of_path, exclusion_of_untracked, fold_name
from broker.stage.name_collisions import Names
from broker.stage.patch_plan import BinaryChange, FilePatch, PatchPlan, PatchRefusal, targets
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, StagedTree
from protocol.decision_codes import ExclusionReason, PatchCode
from protocol.ids import MAX_PATH_BYTES

__all__ = ["confine"]

#: What file systems allow for one name; a longer one could never be written out.
MAX_NAME_BYTES: Final = 255

#: Folder under which references appear, as ``fold_name`` spells it.
_REFERENCES: Final = ".odla-references"

#: Names that begin so belong to the tool, now or later.
_PROTECTED_PREFIX: Final = ".odla"

_PROTECTED: Final[frozenset[ExclusionReason]] = frozenset({"git_metadata", "tool_state"})

_MODES: Final = frozenset({MODE_FILE, MODE_EXECUTABLE})


def confine(plan: PatchPlan, tree: StagedTree) -> None:
    """Return when ``plan`` may be judged by the policy; the first failure is the reason.

    Raises ``PatchRefusal`` with, in this order: ``patch_path_not_canonical``,
    ``patch_path_protected``, ``patch_path_secret``, ``patch_path_reference``,
    ``patch_mode_forbidden``, ``patch_binary_too_large``, ``patch_target_duplicate``,
    ``patch_path_collision``. Whether a filtered path exists is never told: the answer
    depends on its name alone.
    """
    judged = _Judged(tree)
    _check_canonical(plan, tree, judged)
    _check_paths(plan, "patch_path_protected", judged.is_protected)
    _check_paths(plan, "patch_path_secret", judged.is_filtered)
    _check_paths(plan, "patch_path_reference", judged.is_reference)
    for index, file in enumerate(plan.files):
        if any(mode is not None and mode not in _MODES for mode in (file.old_mode, file.new_mode)):
            raise PatchRefusal("patch_mode_forbidden", file=index)
    for index, file in enumerate(plan.files):
        if isinstance(file.change, BinaryChange) and file.change.over_bounds:
            raise PatchRefusal("patch_binary_too_large", file=index)
    _check_duplicates(plan)
    _check_collisions(plan, tree)


def _check_canonical(plan: PatchPlan, tree: StagedTree, judged: "_Judged") -> None:
    for index, file in enumerate(plan.files):
        if not file.plain_names:
            raise PatchRefusal("patch_path_not_canonical", file=index)
        for path in _paths(file):
            if not judged.is_plain(path):
                raise PatchRefusal("patch_path_not_canonical", file=index)
            if not unicodedata.is_normalized("NFC", path):
                # The other form of a name of the tree is told apart from a mere bad form.
                twin = Names(tree, removed=frozenset()).collides(path)
                code: PatchCode = "patch_path_collision" if twin else "patch_path_not_canonical"
                raise PatchRefusal(code, file=index)


def _check_paths(plan: PatchPlan, code: PatchCode, is_denied: Callable[[str], bool]) -> None:
    for index, file in enumerate(plan.files):
        if any(is_denied(path) for path in _paths(file)):
            raise PatchRefusal(code, file=index)


def _check_duplicates(plan: PatchPlan) -> None:
    seen: set[str] = set()
    for index, file in enumerate(plan.files):
        for target in file.targets():
            if target.path in seen:
                raise PatchRefusal("patch_target_duplicate", file=index)
            seen.add(target.path)


def _check_collisions(plan: PatchPlan, tree: StagedTree) -> None:
    removed = frozenset(target.path for target in targets(plan) if target.kind == "delete")
    names = Names(tree, removed=removed)
    for index, file in enumerate(plan.files):
        new = None if file.operation == "modify" else file.new_path
        if any(names.collides(path) for path in _paths(file)) or (
            new is not None and not names.add(new)
        ):
            raise PatchRefusal("patch_path_collision", file=index)


def _paths(file: FilePatch) -> tuple[str, ...]:
    if file.old_path is None or file.new_path is None or file.old_path == file.new_path:
        return (file.new_path or file.old_path or "",)
    return (file.old_path, file.new_path)


class _Verdict(NamedTuple):
    """What is wrong with a path, or with one part of it, by the tables of names."""

    unsafe: bool
    protected: bool
    filtered: bool
    reference: bool


_NOTHING: Final = _Verdict(unsafe=False, protected=False, filtered=False, reference=False)


class _Judged:
    """Paths judged part by part, each folder once: a patch names the same ones often."""

    def __init__(self, tree: StagedTree) -> None:
        self._tree = tree
        self._folders: dict[str, _Verdict] = {}
        self._paths: dict[str, _Verdict] = {}

    def is_plain(self, path: str) -> bool:
        """Relative, of plain parts, without control, format or bidirectional characters."""
        try:
            size = len(path.encode())
        except UnicodeEncodeError:
            return False
        return size <= MAX_PATH_BYTES and not self._verdict(path).unsafe

    def is_protected(self, path: str) -> bool:
        """Whether a part is git's or the tool's own."""
        return self._verdict(path).protected

    def is_reference(self, path: str) -> bool:
        """Whether ``path`` lies in a read-only reference."""
        return self._verdict(path).reference

    def is_filtered(self, path: str) -> bool:
        """Whether the name of ``path`` is one that is never staged.

        What the tree has is tracked, so a project that keeps its ``dist`` may change and
        add to it; names that a patch brings are held to all rows of the table.
        """
        if self._verdict(path).filtered:
            return True
        if self._tree.get(path) is not None:
            return False
        parts = path.split("/")
        known = 0
        while known < len(parts) - 1 and self._tree.is_directory("/".join(parts[: known + 1])):
            known += 1
        return _denies(exclusion_of_untracked("/".join(parts[known:])))

    def _verdict(self, path: str) -> _Verdict:
        verdict = self._paths.get(path)
        if verdict is None:
            parts = path.split("/")
            folder = path[: len(path) - len(parts[-1])]
            above = self._folders.get(folder)
            if above is None:
                above = self._folders[folder] = _judged(parts[:-1])
            # The last two parts together may be what the table denies.
            verdict = self._paths[path] = _either(above, _judged(parts[-2:]))
        return verdict


def _judged(parts: list[str]) -> _Verdict:
    """The verdict on each of ``parts`` and on each two that follow each other."""
    found = _NOTHING
    for part in parts:
        found = _either(found, _judged_name(part))
    if any(_is_filtered(f"{one}/{other}") for one, other in pairwise(parts)):
        found = found._replace(filtered=True)
    return found


@lru_cache(maxsize=16_384)
def _judged_name(part: str) -> _Verdict:
    reason = exclusion_of_path(part)
    folded = fold_name(part)
    reference = folded == _REFERENCES
    return _Verdict(
        unsafe=reason == "name_unsafe" or len(part.encode()) > MAX_NAME_BYTES,
        protected=not reference and (reason in _PROTECTED or folded.startswith(_PROTECTED_PREFIX)),
        filtered=_is_filtered(part),
        reference=reference,
    )


def _either(one: _Verdict, other: _Verdict) -> _Verdict:
    if one == _NOTHING:
        return other
    return _Verdict(*(first or second for first, second in zip(one, other, strict=True)))


@lru_cache(maxsize=16_384)
def _is_filtered(names: str) -> bool:
    return _denies(exclusion_of_path(names))


def _denies(reason: ExclusionReason | None) -> bool:
    """Whether ``reason`` is one of the filters; the other reasons have steps of their own."""
    return reason is not None and reason != "name_unsafe" and reason not in _PROTECTED
