"""The part of a file that is most like a text which does not stand in it.

It helps an agent to repair an edit; nothing is ever placed by it. Lines and words of the
text are looked for, and each place where one stands votes for where the whole would
begin. Work is bounded by bytes looked at and by places counted, whatever is in the file.
"""

import re
from itertools import zip_longest
from typing import Final, NamedTuple

from broker.stage.patch_plan import EVIDENCE_BYTES

__all__ = ["Region", "line_number", "nearest_region", "region_at"]

#: Bytes of a file that are looked at for one answer, added up over all features: about
#: 64 features of a file of 1 MiB, two of the largest file of a stage.
LOOKED_BYTES: Final = 64 * 1024 * 1024

#: How much of the text, and how many of its lines and words, stand for all of it.
_TEXT_BYTES: Final = 64 * 1024
_FEATURES: Final = 64

#: A feature on more lines than these says little about any of them.
_PLACES: Final = 256

#: Lines of the text for which one feature votes; a repeated line fits at all of them.
_VOTES: Final = 4

#: No longer feature is looked for: its beginning is as good.
_FEATURE_BYTES: Final = 120

_WORD: Final = re.compile(rb"[\w\x80-\xff]{3,}")
_BLANKS: Final = b" \t\r"


class Region(NamedTuple):
    """Some lines of a file: the 1-based number of the first, and their bytes."""

    line: int
    text: bytes


def nearest_region(data: bytes, wanted: bytes) -> Region | None:
    """The lines of ``data`` that are most like ``wanted``; ``None`` when none is like it.

    As many lines as ``wanted`` has. A line that is longer than a refusal may carry is
    given from near the place that is alike.
    """
    lines = wanted[:_TEXT_BYTES].split(b"\n")
    if not lines[-1]:
        lines.pop()
    votes: dict[int, float] = {}
    sample: dict[int, tuple[int, int]] = {}
    for feature, at, line in _hits(data, _features(lines)):
        for number in feature.lines:
            start = line - number
            votes[start] = votes.get(start, 0.0) + feature.weight
            sample.setdefault(start, (at, line))
    if not votes:
        return None
    start = max(votes, key=lambda start: (votes[start], -start))
    return _region(data, start, len(lines), near=sample[start])


def line_number(data: bytes, at: int) -> int:
    """The 1-based number of the line of ``data`` on which offset ``at`` lies."""
    return data.count(b"\n", 0, at) + 1


def region_at(data: bytes, at: int, *, like: bytes) -> Region:
    """The lines of ``data`` from that of offset ``at`` on, as many as ``like`` has."""
    lines = like.count(b"\n") + (not like.endswith(b"\n"))
    line = line_number(data, at) - 1
    return _region(data, line, lines, near=(at, line))


class _Feature(NamedTuple):
    """A piece of the text and the 0-based lines of the text on which it stands."""

    text: bytes
    lines: tuple[int, ...]
    weight: float = 0.0


def _features(lines: list[bytes]) -> list[_Feature]:
    """Whole lines and words, the longest first: they are the least likely to mislead."""
    whole: dict[bytes, list[int]] = {}
    words: dict[bytes, list[int]] = {}
    for number, line in enumerate(lines):
        stripped = line.strip(_BLANKS)
        if stripped:
            whole.setdefault(stripped[:_FEATURE_BYTES], []).append(number)
        for word in _WORD.findall(line):
            words.setdefault(word[:_FEATURE_BYTES], []).append(number)
    ranked = [
        [_Feature(text, tuple(table[text][:_VOTES])) for text in sorted(table, key=len)[::-1]]
        for table in (whole, words)
    ]
    pairs = zip_longest(*(features[:_FEATURES] for features in ranked))
    # In turn, because of a large file only few are looked for.
    return [feature for pair in pairs for feature in pair if feature is not None][:_FEATURES]


def _hits(data: bytes, features: list[_Feature]) -> list[tuple[_Feature, int, int]]:
    """Where features stand: with its weight, at which offset, on which 0-based line."""
    found: list[tuple[int, _Feature]] = []
    left = max(LOOKED_BYTES, 2 * len(data))
    for feature in features:
        left -= len(data)
        if left < 0:
            break
        places = _places(data, feature.text)
        if places:
            # One that stands everywhere is weak, one that stands once is strong.
            weighed = feature._replace(weight=len(feature.text) / len(places))
            found += [(at, weighed) for at in places]
    found.sort(key=lambda hit: hit[0])
    hits = []
    line = done = 0
    for at, feature in found:
        line += data.count(b"\n", done, at)
        done = at
        hits.append((feature, at, line))
    return hits


def _places(data: bytes, text: bytes) -> list[int]:
    """The first place of ``text`` on each of the first lines that hold it."""
    places: list[int] = []
    at = data.find(text)
    while at >= 0 and len(places) < _PLACES:
        places.append(at)
        end = data.find(b"\n", at)
        at = data.find(text, end + 1) if end >= 0 else -1
    return places


def _region(data: bytes, start: int, lines: int, *, near: tuple[int, int]) -> Region:
    """``lines`` lines from the 0-based line ``start``, which may lie before the file.

    ``near`` is an offset among them that is to be seen, and its 0-based line.
    """
    offset, line = near
    first = max(start, 0)
    begin = data.rfind(b"\n", 0, offset) + 1
    for _ in range(line - first):
        begin = data.rfind(b"\n", 0, begin - 1) + 1
    end = begin
    for _ in range(lines + min(start, 0)):
        end = data.find(b"\n", end) + 1
        if not end:
            end = len(data)
            break
    if begin + EVIDENCE_BYTES <= offset and b"\n" not in data[begin : begin + EVIDENCE_BYTES]:
        # The beginning of one long line would be all that is shown.
        begin = max(offset - EVIDENCE_BYTES // 4, data.rfind(b"\n", begin, offset) + 1)
        first = line
    return Region(first + 1, data[begin : min(end, begin + EVIDENCE_BYTES)])
