"""Exact edits, whole-file writes and deletes of one file, as the plan that a patch gives too.

Each is bound to the content that its author has read, by digest: a file that is another
now is not touched, and nothing of it is told. Texts are bytes; nothing is matched loosely,
nothing is placed at the first of several places, and all edits happen or none.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from broker.stage.bounds import PRODUCT_BOUNDS
from broker.stage.confinement import confine
from broker.stage.nearest_region import nearest_region, region_at
from broker.stage.patch_plan import (
    AGENT_BOUNDS,
    FilePatch,
    Hunk,
    PatchBounds,
    PatchPlan,
    PatchRefusal,
)
from broker.stage.tree import MODE_FILE, Entry, StagedTree
from protocol.digest import DIGEST_PREFIX
from protocol.ids import Digest

__all__ = ["Edit", "plan_delete", "plan_edits", "plan_write"]

#: Bytes that all edits of one plan may search: each looks through the whole file, because
#: only so it is known to stand at no other place. 64 edits of a file of 4 MiB.
SEARCH_BYTES: Final = 256 * 1024 * 1024


class Edit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Every one of the ``count`` places at which ``old`` stands becomes ``new``."""

    old: bytes
    new: bytes
    count: int = 1


def plan_edits(
    tree: StagedTree,
    path: str,
    edits: Sequence[Edit],
    *,
    expected_digest: Digest,
    bounds: PatchBounds = AGENT_BOUNDS,
) -> PatchPlan:
    """The plan that makes all ``edits`` in the file at ``path`` of ``tree``.

    Each edit is looked for in the file as it is, not as the others leave it; their order
    means nothing, and no two may touch the same bytes. Raises what ``confine`` raises, and
    ``PatchRefusal`` with ``hunk`` the index of the edit: ``edit_not_found`` (with the
    nearest region), ``edit_ambiguous`` (with one place too many), ``patch_conflict`` (two
    edits overlap, or no such file), ``edit_stale``, ``patch_malformed`` (no edit, an empty
    ``old``, a count below 1), ``patch_no_change``, ``payload_too_large``,
    ``patch_too_many_hunks``, ``stage_bound_exceeded``.
    """
    if sum(len(edit.old) + len(edit.new) for edit in edits) > bounds.text_bytes:
        raise PatchRefusal("payload_too_large", file=0)
    if not edits:
        raise PatchRefusal("patch_malformed", file=0)
    for index, edit in enumerate(edits):
        if not edit.old or edit.count < 1:
            raise PatchRefusal("patch_malformed", file=0, hunk=index)
        if edit.old == edit.new:
            raise PatchRefusal("patch_no_change", file=0, hunk=index)
    entry = _read_before(tree, path, expected_digest)
    data = tree.store.load(entry.blob)
    places = _all_places(data, edits, bounds)
    grown = sum(len(edits[place.edit].new) - (place.end - place.at) for place in places)
    if len(data) + grown > PRODUCT_BOUNDS.file_bytes:
        raise PatchRefusal("stage_bound_exceeded", file=0)
    return _plan("modify", path, change=tuple(_hunks(data, places, edits)))


def plan_write(
    tree: StagedTree,
    path: str,
    content: bytes,
    *,
    mode: int | None,
    expected_digest: Digest | None,
    bounds: PatchBounds = AGENT_BOUNDS,
) -> PatchPlan:
    """The plan that makes ``content`` all of the file at ``path``.

    ``expected_digest`` is ``None`` for a new file only, and is needed for one that is
    there. A ``mode`` of ``None`` keeps the mode, or is that of an ordinary file. Raises
    what ``confine`` raises, and ``PatchRefusal`` with ``edit_stale`` (also for a new file
    that is there already), ``patch_conflict`` (no such file), ``patch_no_change`` or
    ``payload_too_large``.
    """
    if len(content) > bounds.text_bytes:
        raise PatchRefusal("payload_too_large", file=0)
    if expected_digest is None:
        _confine_name("create", path, tree, new_mode=mode)
        if tree.get(path) is not None:
            raise PatchRefusal("edit_stale", file=0)
        hunk = _exchange(0, b"", content, whole=True)
        return _plan(
            "create", path, new_mode=mode or MODE_FILE, change=(hunk,) if content else None
        )
    entry = _read_before(tree, path, expected_digest, new_mode=mode)
    data = tree.store.load(entry.blob)
    if data == content and mode in (None, entry.mode):
        raise PatchRefusal("patch_no_change", file=0)
    return _plan(
        "modify",
        path,
        old_mode=entry.mode,
        new_mode=mode or entry.mode,
        change=None if data == content else (_exchange(0, data, content, whole=True),),
    )


def plan_delete(tree: StagedTree, path: str, *, expected_digest: Digest) -> PatchPlan:
    """The plan that takes away the file at ``path``.

    Raises what ``confine`` raises, and ``PatchRefusal`` with ``edit_stale`` or
    ``patch_conflict`` (no such file).
    """
    entry = _read_before(tree, path, expected_digest)
    data = tree.store.load(entry.blob)
    change = (_exchange(0, data, b"", whole=True),) if data else None
    return _plan("delete", path, old_mode=entry.mode, change=change)


class _Place(NamedTuple):
    """Where an edit stands: two offsets and its index."""

    at: int
    end: int
    edit: int


def _read_before(
    tree: StagedTree, path: str, expected: Digest, *, new_mode: int | None = None
) -> Entry:
    """The file at ``path``, which is the one that was read."""
    _confine_name("modify", path, tree, new_mode=new_mode)
    entry = tree.get(path)
    if entry is None:
        raise PatchRefusal("patch_conflict", file=0)
    if DIGEST_PREFIX + entry.blob.digest.hex() != expected:
        raise PatchRefusal("edit_stale", file=0)
    return entry


def _confine_name(
    operation: Literal["create", "modify"], path: str, tree: StagedTree, *, new_mode: int | None
) -> None:
    # A name that is denied must give its own answer before the tree is asked for the file.
    confine(_plan(operation, path, new_mode=new_mode, change=None), tree)


def _all_places(data: bytes, edits: Sequence[Edit], bounds: PatchBounds) -> list[_Place]:
    """Where all edits stand, in order and apart from each other."""
    places: list[_Place] = []
    left = SEARCH_BYTES
    for index, edit in enumerate(edits):
        left -= len(data)
        if left < 0 or len(places) + edit.count > bounds.hunks:
            raise PatchRefusal("patch_too_many_hunks", file=0, hunk=index)
        places += [_Place(at, at + len(edit.old), index) for at in _places(data, edit, index)]
    places.sort()
    for one, other in pairwise(places):
        if other.at < one.end:
            late = max(one.edit, other.edit)
            region = region_at(data, other.at, like=edits[late].old)
            raise PatchRefusal(
                "patch_conflict", file=0, hunk=late, expected=edits[late].old,
                found=region.text, found_line=region.line,
            )  # fmt: skip
    return places


def _places(data: bytes, edit: Edit, index: int) -> list[int]:
    """The places of one edit: just as many as it says, none over another."""
    places: list[int] = []
    at = data.find(edit.old)
    while at >= 0 and len(places) <= edit.count:
        if places and at < places[-1] + len(edit.old):
            # Which of the two is meant cannot be known.
            places.append(at)
            break
        places.append(at)
        at = data.find(edit.old, at + 1)
    else:
        if len(places) == edit.count:
            return places
    region = region_at(data, places[-1], like=edit.old) if places else None
    region = region or nearest_region(data, edit.old)
    raise PatchRefusal(
        "edit_ambiguous" if places else "edit_not_found",
        file=0,
        hunk=index,
        expected=edit.old,
        found=None if region is None else region.text,
        found_line=None if region is None else region.line,
    )


def _hunks(data: bytes, places: list[_Place], edits: Sequence[Edit]) -> list[Hunk]:
    """The edits as exchanges of whole lines; those that share a line are one."""
    hunks: list[Hunk] = []
    line = counted = 0
    number = 0
    while number < len(places):
        start = data.rfind(b"\n", 0, places[number].at) + 1
        end = done = start
        pieces: list[bytes] = []
        while number < len(places) and (not pieces or places[number].at < end):
            place = places[number]
            new = edits[place.edit].new
            pieces += (data[done : place.at], new)
            done = place.end
            if done > end or (done == end and not _ends_line(pieces)):
                whole = data[done - 1] == 0x0A and _ends_line(pieces)
                end = done if whole else _line_end(data, done)
            number += 1
        pieces.append(data[done:end])
        line += data.count(b"\n", counted, start)
        counted = start
        hunks.append(_exchange(line, data[start:end], b"".join(pieces)))
    return hunks


def _ends_line(pieces: list[bytes]) -> bool:
    """Whether the text that ``pieces`` make ends a line, or is none."""
    last = next((piece for piece in reversed(pieces) if piece), b"\n")
    return last.endswith(b"\n")


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end + 1


def _exchange(line: int, old: bytes, new: bytes, *, whole: bool = False) -> Hunk:
    return Hunk(line=line, agreed=True, old=old, new=new, at_start=whole, at_end=whole,
                added=_lines(new), removed=_lines(old))  # fmt: skip


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def _plan(
    operation: Literal["create", "modify", "delete"],
    path: str,
    *,
    change: tuple[Hunk, ...] | None,
    old_mode: int | None = None,
    new_mode: int | None = None,
) -> PatchPlan:
    file = FilePatch(
        operation=operation,
        old_path=None if operation == "create" else path,
        new_path=None if operation == "delete" else path,
        old_mode=old_mode,
        new_mode=new_mode,
        plain_names=True,
        change=change,
    )
    return PatchPlan(files=(file,))
