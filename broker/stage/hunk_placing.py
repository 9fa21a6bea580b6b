"""Hunks applied to the bytes of one file: exact context, one place, or a refusal.

A hunk stands where it says, or at the only other place where its old lines stand; it is
never put at the first of several. Searching is linear in the file and its sum is
bounded, so no patch makes it slow.
"""

from collections.abc import Sequence
from typing import Final

from broker.stage.context_placing import settled
from broker.stage.line_places import MAX_LINES, LinePlaces
from broker.stage.patch_plan import EVIDENCE_BYTES, Hunk, PatchRefusal

__all__ = ["SearchBudget", "apply_hunks"]

#: Bytes that one patch may have searched for hunks that are not where they say. Twenty
#: such hunks in a file of 1.5 MB fit; a thousand of them in the largest file would take
#: minutes.
SEARCH_BYTES: Final = 64 * 1024 * 1024

_BLOCK: Final = 64 * 1024
_SMALL_BLOCK: Final = 256
_FEW_LINES: Final = 16

#: How much of what should stand at a place is looked for to find the place.
_NEAR_BYTES: Final = 48

#: From this search on in one file, its lines are indexed, which costs as much as so many
#: searches of it.
_FEW_SEARCHES: Final = 6
_INDEX_COST: Final = 8

#: Lines longer than this on average are found in the slower way.
_LINE_BYTES: Final = 96


class SearchBudget:
    """What is left of ``SEARCH_BYTES`` for one patch."""

    def __init__(self) -> None:
        self._left = SEARCH_BYTES

    def spend(self, size: int) -> bool:
        """Whether ``size`` more bytes may be searched."""
        self._left -= size
        return self._left >= 0

    def spend_if_left(self, size: int) -> bool:
        """The same, but nothing is spent when there is not enough."""
        return self._left >= size and self.spend(size)


def apply_hunks(data: bytes, hunks: Sequence[Hunk], *, file: int, budget: SearchBudget) -> bytes:
    """``data`` with each hunk's old lines exchanged for its new ones.

    Raises ``PatchRefusal("patch_conflict")`` for a hunk whose old lines stand nowhere,
    at several places, or not after the hunk before. ``file`` is for the refusal only.
    """
    pieces: list[bytes] = []
    done = 0
    lines = _Lines(data)
    for index, stated in enumerate(hunks):
        hunk = stated
        if hunk.line is None:
            hunk = settled(data, hunk, file=file, index=index, spend=budget.spend)
        at = _place(lines, hunk, budget)
        # Lines that need no line before them can only be the whole of a file.
        if at is None or at < done or (index and not hunk.old):
            raise PatchRefusal(
                "patch_conflict",
                file=file,
                hunk=index,
                expected=hunk.old,
                found=lines.sample(hunk.line or 0, like=hunk.old),
            )
        pieces += (data[done:at], hunk.new)
        done = at + len(hunk.old)
    pieces.append(data[done:])
    return b"".join(pieces)


def _place(lines: "_Lines", hunk: Hunk, budget: SearchBudget) -> int | None:
    """The offset at which ``hunk`` belongs, ``None`` when it has no or no single place."""
    data, old = lines.data, hunk.old
    if not old:
        # Lines without any context belong to an empty file. Git would take the end of
        # any file for a place, wherever the hunk says that it belongs.
        return None if data else 0
    if hunk.at_start:
        whole = not hunk.at_end or len(old) == len(data)
        return 0 if whole and data.startswith(old) else None
    if hunk.at_end:
        return _end_place(lines, hunk, budget)
    if hunk.line is not None and hunk.agreed:
        stated = lines.offset(hunk.line, near=old[:_NEAR_BYTES])
        if stated is not None and data.startswith(old, stated):
            return stated
    return lines.only_place(old, budget)


def _end_place(lines: "_Lines", hunk: Hunk, budget: SearchBudget) -> int | None:
    data, old = lines.data, hunk.old
    at = len(data) - len(old)
    begins_line = at == 0 or (at > 0 and data[at - 1] == 0x0A)
    if not begins_line or not data.endswith(old):
        return None
    if old.endswith(b"\n") or (hunk.agreed and hunk.line == _line_number(data, at, budget)):
        return at
    # Without a line feed git may take the beginning of a longer text for the place.
    return at if lines.only_place(old, budget) == at else None


def _line_number(data: bytes, at: int, budget: SearchBudget) -> int | None:
    return data.count(b"\n", 0, at) if budget.spend(len(data)) else None


def _only_place(data: bytes, old: bytes, budget: SearchBudget) -> int | None:
    if not budget.spend(len(data)):
        return None
    # With the line feed before it, a match begins a line; ``old`` itself ends one.
    needle = b"\n" + old
    if data.startswith(old):
        return None if data.find(needle) >= 0 else 0
    first = data.find(needle)
    if first < 0 or data.find(needle, first + 1) >= 0:
        return None
    return first + 1


class _Lines:
    """The offsets of lines of ``data``, found as they are asked for, in rising order."""

    def __init__(self, data: bytes) -> None:
        self.data: Final = data
        self._line = 0
        self._offset = 0
        self._beyond: int | None = None  #: a line that the file does not have
        self._searches = 0
        self._places: LinePlaces | None = None

    def offset(self, line: int, *, near: bytes = b"") -> int | None:
        """Where line ``line`` (0-based) begins, ``None`` when the file is shorter.

        ``near`` is what is likely to stand there; it only makes the answer quicker.
        """
        if self._places is not None:
            return self._places.offset(line)
        if self._beyond is not None and line >= self._beyond:
            return None
        if line < self._line:
            self._line = self._offset = 0
        start, lines = self._offset, line - self._line
        if near and 0 < lines < _SMALL_BLOCK:
            at = self.data.find(near, start, start + lines * _LINE_BYTES + len(near))
            # A guess: right if what is near begins a line and just so many lie before it.
            if (
                at > start
                and self.data[at - 1] == 0x0A
                and self.data.count(b"\n", start, at) == lines
            ):
                self._line, self._offset = line, at
                return at
        found = _skipped(self.data, start, lines)
        if found is None:
            self._beyond = line
        else:
            self._line, self._offset = line, found
        return found

    def only_place(self, old: bytes, budget: SearchBudget) -> int | None:
        """The one offset at which ``old`` stands and begins a line; spends of ``budget``."""
        data = self.data
        self._searches += 1
        if self._searches == _FEW_SEARCHES and data.count(b"\n") < MAX_LINES:
            cost = len(data) * _INDEX_COST
            self._places = LinePlaces(data) if budget.spend_if_left(cost) else None
        found = None if self._places is None else self._places.places(old)
        if found is None:
            return _only_place(data, old, budget)
        # What was compared: no more than the places of one line, which are few.
        if not budget.spend(len(old) * (len(found) + 1)):
            return None
        return found[0] if len(found) == 1 else None

    def sample(self, line: int, *, like: bytes) -> bytes:
        """As many lines from ``line`` on as ``like`` has, for a refusal."""
        start = self.offset(line)
        if start is None:
            return b""
        end = _skipped(self.data, start, max(like.count(b"\n"), 1))
        return self.data[start : min(start + EVIDENCE_BYTES, end or len(self.data))]


def _skipped(data: bytes, offset: int, lines: int) -> int | None:
    """The offset ``lines`` line feeds after ``offset``; counts blocks before lines."""
    # No larger than so many lines are likely to be: each block is counted whole.
    block = _BLOCK
    while block > _SMALL_BLOCK and block >= lines * 2 * _LINE_BYTES:
        block //= 4
    while lines > 0:
        if lines <= _FEW_LINES or block <= _SMALL_BLOCK:
            for _ in range(lines):
                offset = data.find(b"\n", offset) + 1
                if offset == 0:
                    return None
            return offset
        held = data.count(b"\n", offset, offset + block)
        if held >= lines:
            block //= 4
        elif offset + block >= len(data):
            return None
        else:
            offset += block
            lines -= held
    return offset
