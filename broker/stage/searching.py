"""Search the text of a staged tree: linear time, bounded, and the same answer everywhere.

Lines are searched as bytes, in the order of path bytes. Patterns are RE2's (no
back-references, no look-around), so that no pattern can take longer than its input.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import re2

from broker.stage.reading import cut_text, prefix_range
from broker.stage.tree import StagedTree
from protocol.ids import RepoPath

__all__ = ["MAX_MATCH_BYTES", "MAX_QUERY_BYTES", "Match", "SearchFailure", "SearchResult", "search"]

SearchCode = Literal["query_invalid", "query_too_large"]

#: A query, bytes of UTF-8: a pattern of the largest useful size compiles in milliseconds.
MAX_QUERY_BYTES: Final = 1024

#: One line of a result, bytes of UTF-8: enough to recognise a line, little in sum.
MAX_MATCH_BYTES: Final = 512

#: What a compiled pattern may take; RE2 refuses a pattern that needs more.
_PATTERN_MEMORY: Final = 8 * 1024 * 1024


class SearchFailure(Exception):
    """A query cannot be run: ``query_invalid`` (no RE2 pattern, empty) or ``query_too_large``."""

    def __init__(self, code: SearchCode) -> None:
        super().__init__(_TEXT[code])
        self.code: Final = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One line in which the query was found."""

    path: RepoPath
    line: int  #: 1-based
    text: str  #: without its end; bytes that are not UTF-8 are shown as U+FFFD
    cut: bool  #: ``text`` is only the part of the line around the match


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What was found, and how much was looked at."""

    matches: tuple[Match, ...]
    files_searched: int
    files_skipped: int  #: binary: a NUL byte in the first 8,000
    bytes_examined: int
    complete: bool  #: ``False``: a bound was met, there may be more


class _Pattern(Protocol):
    def search(self, text: bytes, pos: int, endpos: int) -> "_Hit | None": ...


class _Hit(Protocol):
    def start(self) -> int: ...


#: Lines are searched in slices of about this size; the clock is read between them. The
#: costliest pattern that RE2 takes needs seconds for a megabyte.
_SLICE_BYTES: Final = 32 * 1024

#: Git's own measure of what is binary, in bytes from the start.
_BINARY_HEAD: Final = 8_000


def search(
    tree: StagedTree,
    query: str,
    *,
    regex: bool = False,
    prefix: str = "",
    max_matches: int,
    max_bytes: int,
    max_seconds: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Every line below ``prefix`` (as text, see ``list_files``) that holds ``query``.

    ``query`` is literal unless ``regex``; it never spans lines. At most ``max_matches``
    lines are given; a file that would take the bytes examined over ``max_bytes`` ends the
    search before it is read, and so does ``max_seconds`` between two slices of a file.
    Raises ``SearchFailure``, and ``ValueError`` for a bound below 1.
    """
    if max_matches < 1 or max_bytes < 1:
        raise ValueError("a bound of a search is below one")
    pattern = _compiled(query, regex=regex)
    deadline = clock() + max_seconds
    needle = b"" if regex else query.encode()
    matches: list[Match] = []
    searched = skipped = examined = 0
    complete = True
    first, end = prefix_range(tree, prefix)
    for path in tree.paths[first:end]:
        entry = tree.get(path)
        assert entry is not None
        if examined + entry.blob.size > max_bytes:
            complete = False
            break
        data = tree.store.load(entry.blob)
        examined += len(data)
        if data.find(b"\0", 0, _BINARY_HEAD) >= 0:
            skipped += 1
            continue
        searched += 1
        if needle and needle not in data:
            continue
        for match in _matches_in(path, data, pattern):
            if match is not None:
                matches.append(match)
            if len(matches) > max_matches or clock() > deadline:
                complete = False
                break
        if not complete:
            break
    return SearchResult(
        matches=tuple(matches[:max_matches]),
        files_searched=searched,
        files_skipped=skipped,
        bytes_examined=examined,
        complete=complete,
    )


def _compiled(query: str, *, regex: bool) -> _Pattern:
    try:
        raw = query.encode()
    except UnicodeEncodeError:
        raise SearchFailure("query_invalid") from None
    if len(raw) > MAX_QUERY_BYTES:
        raise SearchFailure("query_too_large")
    if not raw or (not regex and b"\n" in raw):
        raise SearchFailure("query_invalid")
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.literal = not regex
    options.max_mem = _PATTERN_MEMORY
    # One line at a time: "^" and "$" are its ends.
    options.one_line = False
    try:
        pattern: _Pattern = re2.compile(b"(?m)" + raw if regex else raw, options=options)
    except re2.error:
        raise SearchFailure("query_invalid") from None
    return pattern


def _matches_in(path: RepoPath, data: bytes, pattern: _Pattern) -> Iterator[Match | None]:
    """Each line that holds the pattern, and ``None`` after each slice that was searched."""
    line = 1
    at = counted = 0
    for end in _slices(data):
        while at <= end and (hit := pattern.search(data, at, end)) is not None:
            start = data.rfind(b"\n", 0, hit.start()) + 1
            if start == len(data):
                # An empty match after the last line feed, or in an empty file, is in no line.
                return
            stop = data.find(b"\n", start)
            stop = len(data) if stop < 0 else stop
            line += data.count(b"\n", counted, start)
            counted = start
            yield _match(path, line, data[start:stop], hit.start() - start)
            at = stop + 1
        at = max(at, end + 1)
        yield None


def _slices(data: bytes) -> Iterator[int]:
    """The ends of runs of whole lines: each is a line feed's place, or the end of ``data``."""
    end = -1
    while end < len(data):
        end = data.find(b"\n", end + 1 + _SLICE_BYTES)
        if end < 0:
            end = len(data)
        yield end


def _match(path: RepoPath, line: int, text: bytes, at: int) -> Match:
    text = text.removesuffix(b"\r")
    cut = len(text) > MAX_MATCH_BYTES
    if cut:
        begin = max(0, min(at - MAX_MATCH_BYTES // 4, len(text) - MAX_MATCH_BYTES))
        while begin < len(text) and text[begin] & 0xC0 == 0x80:
            begin += 1
        text = cut_text(text[begin:], MAX_MATCH_BYTES)
    return Match(path=path, line=line, text=text.decode("utf-8", "replace"), cut=cut)


_TEXT: Final[dict[SearchCode, str]] = {
    "query_invalid": "The query is not one that can be searched for.",
    "query_too_large": "The query is longer than its limit.",
}
