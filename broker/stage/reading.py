"""Read and list files of a staged tree, in bounded windows; a file is never cut silently.

A window is whole lines of UTF-8 text or a range of bytes, and comes with the totals of
the file, so that a reader can tell what it has not seen. Nothing is decoded loosely:
what is not UTF-8 is said to be not text and can be read as bytes.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final, Literal

from broker.stage.tree import StagedTree
from protocol.digest import DIGEST_PREFIX
from protocol.ids import Digest, RepoPath

__all__ = [
    "MAX_LINE_BYTES",
    "BytesWindow",
    "Listing",
    "ReadFailure",
    "TextWindow",
    "list_files",
    "read_bytes",
    "read_text",
]

ReadCode = Literal["not_found", "not_text"]

#: One line of a text window, bytes of UTF-8 without its end. Longer ones are minified
#: or generated; as bytes they can be read whole.
MAX_LINE_BYTES: Final = 8 * 1024


class ReadFailure(Exception):
    """A read cannot be answered; ``code`` is the wire's. A filtered path is ``not_found``."""

    def __init__(self, code: ReadCode) -> None:
        super().__init__(_TEXT[code])
        self.code: Final = code


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWindow:
    """Lines ``start_line`` to ``start_line + lines - 1`` of a text file.

    Lines end with LF only, which stays in ``text``; a CR before it is content.
    """

    text: str
    start_line: int  #: 1-based
    lines: int  #: lines in ``text``
    cut_lines: int  #: of these, how many were cut at ``MAX_LINE_BYTES``
    total_lines: int  #: a last line without LF counts
    total_bytes: int
    digest: Digest  #: git's sha256 blob id of the whole file


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesWindow:
    """Bytes ``offset`` to ``offset + len(data) - 1`` of a file."""

    data: bytes
    offset: int
    total_bytes: int
    digest: Digest  #: git's sha256 blob id of the whole file


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One line of a listing."""

    path: RepoPath
    size: int  #: bytes
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One page of the files of a tree, sorted by path bytes."""

    files: tuple[ListedFile, ...]
    cursor: RepoPath | None  #: pass it on for the next page; ``None``: this is the last
    total: int  #: files under the prefix, on all pages


def read_text(
    tree: StagedTree,
    path: str,
    *,
    start_line: int = 1,
    max_lines: int | None = None,
    max_bytes: int,
) -> TextWindow:
    """Whole lines of ``path`` from ``start_line`` (1-based), at most ``max_bytes`` of UTF-8.

    A line that does not fit any more is left for the next window; one that is longer than
    ``MAX_LINE_BYTES`` is cut at a character and counted. Only when the first line alone is
    over ``max_bytes`` is it cut there. A start after the last line gives no lines.
    Raises ``ReadFailure`` (``not_found``, ``not_text``) and ``ValueError`` for a bound below 1.
    """
    if start_line < 1 or max_bytes < 1 or (max_lines is not None and max_lines < 1):
        raise ValueError("a bound of a read is below one")
    data, digest = _content(tree, path)
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        raise ReadFailure("not_text") from None
    total = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    if start_line == 1 and max_lines is None and len(data) <= max_bytes and _fits(data):
        # The usual read: a whole file in which no line is too long.
        text, lines, cut = whole, total, 0
    else:
        window, lines, cut = _lines(data, start_line, max_lines, max_bytes)
        text = window.decode()
    return TextWindow(
        text=text,
        start_line=start_line,
        lines=lines,
        cut_lines=cut,
        total_lines=total,
        total_bytes=len(data),
        digest=digest,
    )


def read_bytes(tree: StagedTree, path: str, *, offset: int = 0, max_bytes: int) -> BytesWindow:
    """At most ``max_bytes`` bytes of ``path`` from ``offset``; none after the end.

    Raises ``ReadFailure("not_found")`` and ``ValueError`` for a bound below its least.
    """
    if offset < 0 or max_bytes < 1:
        raise ValueError("a bound of a read is below its least")
    data, digest = _content(tree, path)
    return BytesWindow(
        data=data[offset : offset + max_bytes],
        offset=offset,
        total_bytes=len(data),
        digest=digest,
    )


def list_files(
    tree: StagedTree, *, prefix: str = "", cursor: str | None = None, limit: int
) -> Listing:
    """At most ``limit`` files whose path starts with ``prefix``, after ``cursor``.

    ``prefix`` is compared as text: ``src/`` is a folder, ``src`` also ``src.txt``. A cursor
    need not be a path of this tree, so pages go on over a change. Raises ``ValueError``
    for a limit below 1.
    """
    if limit < 1:
        raise ValueError("a listing has at least one file a page")
    paths = tree.paths
    first, end = prefix_range(tree, prefix)
    start = first if cursor is None else max(first, bisect_right(paths, cursor))
    page = paths[start : min(end, start + limit)]
    files = []
    for path in page:
        entry = tree.get(path)
        assert entry is not None
        files.append(
            ListedFile(path=path, size=entry.blob.size, executable=bool(entry.mode & 0o100))
        )
    more = start + limit < end
    return Listing(files=tuple(files), cursor=page[-1] if more else None, total=end - first)


def prefix_range(tree: StagedTree, prefix: str) -> tuple[int, int]:
    """The slice of ``tree.paths`` whose paths start with ``prefix``."""
    paths = tree.paths
    first = bisect_left(paths, prefix)
    if not prefix:
        return 0, len(paths)
    return first, bisect_left(paths, True, lo=first, key=lambda path: not path.startswith(prefix))


def _content(tree: StagedTree, path: str) -> tuple[bytes, Digest]:
    entry = tree.get(path)
    if entry is None:
        raise ReadFailure("not_found")
    return tree.store.load(entry.blob), Digest(DIGEST_PREFIX + entry.blob.digest.hex())


def _fits(data: bytes) -> bool:
    """Whether no line of ``data`` has to be cut: from line to line in the longest legal steps."""
    at = 0
    while len(data) - at > MAX_LINE_BYTES:
        end = data.rfind(b"\n", at, at + MAX_LINE_BYTES + 1)
        if end < 0:
            return False
        at = end + 1
    return True


def _lines(
    data: bytes, start_line: int, max_lines: int | None, max_bytes: int
) -> tuple[bytes, int, int]:
    """The window's bytes, its lines, and how many of them were cut."""
    at = 0
    for _ in range(start_line - 1):
        end = data.find(b"\n", at)
        if end < 0:
            return b"", 0, 0
        at = end + 1
    parts: list[bytes] = []
    size = cut = 0
    while at < len(data) and (max_lines is None or len(parts) < max_lines):
        end = data.find(b"\n", at)
        line_end = end if end >= 0 else len(data)
        line = data[at:line_end]
        ending = b"\n" if end >= 0 else b""
        is_cut = len(line) > MAX_LINE_BYTES
        kept = (cut_text(line, MAX_LINE_BYTES) if is_cut else line) + ending
        if size + len(kept) > max_bytes:
            if parts:
                break
            kept, is_cut = cut_text(kept, max_bytes), True
        parts.append(kept)
        size += len(kept)
        cut += is_cut
        at = line_end + 1
    return b"".join(parts), len(parts), cut


def cut_text(text: bytes, size: int) -> bytes:
    """The first ``size`` bytes of UTF-8 ``text``, less what would split a character."""
    end = min(size, len(text))
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]


_TEXT: Final[dict[ReadCode, str]] = {
    "not_found": "No such file.",
    "not_text": "The file is not UTF-8 text.",
}
