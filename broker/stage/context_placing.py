"""Where a hunk without a line number belongs: at its one place, or nowhere.

A place is one at which all old lines stand, byte for byte. Anchors narrow the file to the
blocks that they name; of two places that are left neither is taken. Work is linear in the
file for each search and its sum is what the caller lets it spend.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from broker.stage.nearest_region import Region, line_number, nearest_region, region_at
from broker.stage.patch_plan import Hunk, PatchRefusal

__all__ = ["settled"]

#: An anchor that stands on more lines than these names nothing.
_ANCHOR_LINES: Final = 256

#: What it costs to look at one line that may be an anchor, in bytes searched.
_LINE_COST: Final = 1024

#: Blocks are told apart by the blanks before them, if these are not absurdly many.
_INDENT_BYTES: Final = 200

_BLANKS: Final = b" \t\r"

#: Whether so many more bytes may be searched.
Spend = Callable[[int], bool]

#: Part of a file from the beginning of a line up to (not with) an offset.
_Span = tuple[int, int]


def settled(data: bytes, hunk: Hunk, *, file: int, index: int, spend: Spend) -> Hunk:
    """``hunk``, of which no line is stated, with the line at which it belongs in ``data``.

    Its old lines are then exactly those of the file: a last line without line feed stays
    one, because hunks of this kind cannot say what follows it. Raises
    ``PatchRefusal("patch_conflict")`` with ``file`` and ``index`` for a hunk that stands
    nowhere or at several places.
    """
    places = _places(data, hunk, spend)
    if len(places) != 1:
        region = _region(data, hunk, places)
        raise PatchRefusal(
            "patch_conflict",
            file=file,
            hunk=index,
            expected=hunk.old,
            found=None if region is None else region.text,
            found_line=None if region is None else region.line,
        )
    at, old, new = places[0], hunk.old, hunk.new
    if not old and data:
        # Lines that are added to the end are stated with the line before them.
        at = data.rfind(b"\n", 0, len(data) - 1) + 1
        old, new = data[at:], data[at:] + new
    elif at + len(old) > len(data):
        old, new = old[:-1], new.removesuffix(b"\n")
    return msgspec.structs.replace(
        hunk, line=line_number(data, at) - 1, agreed=True, old=old, new=new,
        at_start=False, at_end=False, anchors=(),
    )  # fmt: skip


def _region(data: bytes, hunk: Hunk, places: list[int]) -> Region | None:
    """What to show of a file in which ``hunk`` has no place, or ``places``."""
    if places:
        return region_at(data, places[1], like=hunk.old)
    if hunk.at_end and data:
        return region_at(data, max(len(data) - max(len(hunk.old), 1), 0), like=hunk.old)
    return nearest_region(data, hunk.old or b"\n".join(hunk.anchors))


def _places(data: bytes, hunk: Hunk, spend: Spend) -> list[int]:
    """Offsets at which ``hunk`` may belong: all if there is one or none, else two of them."""
    whole = [(0, len(data) + 1)]
    if not hunk.anchors:
        return _standing(data, hunk, whole) if spend(len(data)) else []
    for to_end in (False, True):
        # The text may lie after the block of its anchor: a heading has no block.
        spans = whole
        for anchor in hunk.anchors:
            spans = _blocks(data, anchor, spans, spend, to_end=to_end)
        if not spend(len(data)):
            return []
        places = _standing(data, hunk, spans)
        if places:
            return places
    return []


def _standing(data: bytes, hunk: Hunk, spans: list[_Span]) -> list[int]:
    places: list[int] = []
    for span in spans:
        for at in _ends(data, hunk.old) if hunk.at_end else _matches(data, hunk.old, span):
            if span[0] <= at < span[1]:
                places.append(at)
            if len(places) == 2:
                return places
    return places


def _ends(data: bytes, old: bytes) -> Iterator[int]:
    """The offset at which ``old`` ends the file, if there is one."""
    at = _open_end(data, old)
    if at is None and data.endswith(old):
        at = len(data) - len(old)
    if at is not None and _begins_line(data, at):
        yield at


def _open_end(data: bytes, old: bytes) -> int | None:
    """Where ``old`` ends a file that has no line feed at its end."""
    if not data or data.endswith(b"\n") or not old or not data.endswith(old[:-1]):
        return None
    return len(data) - len(old) + 1


def _matches(data: bytes, old: bytes, span: _Span) -> Iterator[int]:
    start, end = span
    if not old:
        # Added lines without context belong to an empty file, or to a stated end.
        if not data:
            yield 0
        return
    if data.startswith(old, start):
        yield start
    # With the line feed before it, a match begins a line; it may end behind the span.
    needle = b"\n" + old
    at = data.find(needle, start, end - 2 + len(needle))
    while at >= 0:
        yield at + 1
        at = data.find(needle, at + 1, end - 2 + len(needle))
    last = _open_end(data, old)
    if last is not None and _begins_line(data, last):
        yield last


def _begins_line(data: bytes, at: int) -> bool:
    return at == 0 or data[at - 1] == 0x0A


def _blocks(
    data: bytes, anchor: bytes, spans: list[_Span], spend: Spend, *, to_end: bool
) -> list[_Span]:
    """The blocks that ``anchor`` begins in ``spans``, apart from each other, in order.

    A block is the anchor's line and what follows it up to the next line that is not
    blank and not further in, or with ``to_end`` up to the end of the span.
    """
    blocks: list[_Span] = []
    if not spend(len(data)):
        return blocks
    lines = 0
    for start, end in spans:
        for line, text in _anchor_lines(data, anchor, (start, end), spend):
            lines += 1
            if lines > _ANCHOR_LINES:
                return []
            if blocks and line < blocks[-1][1]:
                continue  # within the block before, which has all of it
            stop = end if to_end else min(end, _block_end(data, line, text))
            if not spend(stop - line):
                return []
            blocks.append((line, stop))
    return blocks


def _anchor_lines(
    data: bytes, anchor: bytes, span: _Span, spend: Spend
) -> Iterator[tuple[int, int]]:
    """Where lines begin that are ``anchor`` but for blanks around it, and where it stands."""
    at, end = span
    while (hit := data.find(anchor, at, end)) >= 0 and spend(_LINE_COST):
        line = max(data.rfind(b"\n", at, hit) + 1, at)
        line_end = data.find(b"\n", hit)
        stop = line_end if line_end >= 0 else len(data)
        if data[line:stop].strip(_BLANKS) == anchor:
            yield line, hit
        at = stop + 1


def _block_end(data: bytes, line: int, text: int) -> int:
    indent = data[line:text]
    if len(indent) > _INDENT_BYTES:
        return line
    outside = re.compile(rb"\n(?!%b[ \t]|[ \t\r]*+(?:\n|\Z))" % re.escape(indent))
    end = outside.search(data, text)
    return len(data) + 1 if end is None else end.end()
