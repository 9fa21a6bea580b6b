"""Git's index file, read from its own bytes by folder; nothing in it is believed but its form.

Versions 2, 3 and 4 as git documents them. The file is read once, whole, and its checksum
must be right. What cannot be understood is refused and never skipped: a split or sparse
index, or an unknown extension that says it must be understood. Paths are only cut at
their slashes here; whoever uses them judges them.
"""

import os
import stat
from hashlib import sha1
from pathlib import Path
from struct import Struct, error
from typing import Final

import msgspec

from protocol.errors import Fault, Refusal

__all__ = ["Index", "IndexBytes", "IndexFolder", "IndexRow", "parse_index", "read_index"]

#: Twice the files of the largest stage, each with a path of the longest kind, fit.
MAX_INDEX_BYTES: Final = 256 * 1024 * 1024

_ASSUME_UNCHANGED: Final = 0x8000
_EXTENDED: Final = 0x4000
_STAGE: Final = 0x3000
_NAME_LENGTH: Final = 0x0FFF
#: Extended flags stand above the 16 bits of the others.
_SKIP_WORKTREE: Final = 0x4000 << 16
_INTENT_TO_ADD: Final = 0x2000 << 16
_LOW_32: Final = 0xFFFFFFFF

_HEADER: Final = Struct("!4sII")
#: Changed and modified (seconds, nanoseconds), inode, mode, size, git id, flags.
_ENTRY: Final = Struct("!IIII4xII8xI20sH")
_MORE_FLAGS: Final = Struct("!H")
_EXTENSION: Final = Struct("!4sI")
_CHECKSUM_BYTES: Final = 20
_NANO: Final = 1_000_000_000

_MODES: Final = {mode: b"%o " % mode for mode in (0o100644, 0o100755, 0o120000, 0o160000)}


class IndexRow(msgspec.Struct, frozen=True, gc=False):
    """One path at stage 0: what it is, and its stat when it was last seen to be clean."""

    modified: int  #: nanoseconds
    changed: int  #: nanoseconds
    inode: int  #: modulo 2**32
    size: int  #: bytes of the file in the working tree, modulo 2**32
    mode: int
    oid: bytes
    marks: int  #: 0 for nearly all: the working tree decides, the index has the content

    @property
    def from_index(self) -> bool:
        """Skip-worktree or assume-unchanged: the working tree has no say."""
        return bool(self.marks & (_ASSUME_UNCHANGED | _SKIP_WORKTREE))

    @property
    def intent_to_add(self) -> bool:
        """Tracked by name only: the index has no content for it."""
        return bool(self.marks & _INTENT_TO_ADD)

    @property
    def kind(self) -> int:
        """The type part of its mode."""
        return self.mode & 0o170000

    def is_clean(self, found: os.stat_result, racy_from: int) -> bool:
        """Whether ``found`` is the stat of this row, so that nothing changed.

        As git decides it: same size, times and inode, and the file is older than the
        index (a later one could have changed within the same tick, "racily clean").
        """
        return (
            self.modified == found.st_mtime_ns < racy_from
            and self.changed == found.st_ctime_ns
            and self.size == found.st_size & _LOW_32
            and self.inode == found.st_ino & _LOW_32
        )


class IndexFolder:
    """One folder of the index: the rows and the names of the folders directly in it."""

    __slots__ = ("folders", "path", "rows")

    def __init__(self, path: str) -> None:
        self.path: Final = path  #: bytes that are not UTF-8 stand as lone surrogates
        self.rows: Final[dict[str, IndexRow]] = {}  #: stage 0 only, sorted by bytes
        self.folders: Final[list[str]] = []

    @property
    def prefix(self) -> str:
        """What the path of each file in it starts with."""
        return self.path and self.path + "/"


class Index(msgspec.Struct, frozen=True):
    """The index as it was read."""

    folders: dict[str, IndexFolder]  #: by path, each after the one it lies in; ``""`` is first
    unmerged: frozenset[bytes]
    racy_from: int  #: nanoseconds; a file modified at or after it may differ unseen

    def tree_ids(self) -> dict[str, bytes]:
        """The git tree id of each folder as ``git write-tree`` would give it.

        A folder that would be empty has none; names without content are not in trees.
        """
        ids: dict[str, bytes] = {}
        for path, folder in reversed(self.folders.items()):
            prefix = folder.prefix
            lines = {
                name: b"%b%b\0%b" % (_mode_bytes(row.mode), _raw(name), row.oid)
                for name, row in folder.rows.items()
                if not row.marks & _INTENT_TO_ADD
            }
            for name in folder.folders:
                below = ids.get(prefix + name)
                if below is not None:
                    # Git sorts a folder as if its name ended in a slash.
                    lines[name + "/"] = b"40000 %b\0%b" % (_raw(name), below)
            if lines or not path:
                ids[path] = _tree_id(lines, is_sorted=not folder.folders)
        return ids


class IndexBytes(msgspec.Struct, frozen=True):
    """An index file as it was read; an absent one has no bytes."""

    data: bytes
    racy_from: int  #: when it was written, nanoseconds


def read_index(path: Path) -> IndexBytes:
    """The index file at ``path``.

    Raises ``Refusal("stage_unsupported")`` or ``Fault("checkout_unreadable")``.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return IndexBytes(b"", 0)
    except OSError as reason:
        raise Fault("checkout_unreadable") from reason
    try:
        with open(handle, "rb", buffering=0) as file:
            # Git replaces the file and never writes into it, so this stat is of these bytes.
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= MAX_INDEX_BYTES:
                raise Refusal("stage_unsupported")
            data = file.readall()
    except OSError as reason:
        raise Fault("checkout_unreadable") from reason
    if not data:
        raise Refusal("stage_unsupported")
    return IndexBytes(data, found.st_mtime_ns)


def parse_index(file: IndexBytes) -> Index:
    """The index that ``file`` holds. Raises ``Refusal("stage_unsupported")``."""
    if not file.data:
        return Index(folders={"": IndexFolder("")}, unmerged=frozenset(), racy_from=0)
    try:
        return _Reader(file.data).index(file.racy_from)
    except (error, ValueError, IndexError) as reason:
        raise Refusal("stage_unsupported") from reason


class _Reader:
    """Reads one index; ``ValueError`` or ``struct.error`` for what is not one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = len(data) - _CHECKSUM_BYTES
        self._folders = {"": IndexFolder("")}
        self._unmerged: set[bytes] = set()

    def index(self, racy_from: int) -> Index:
        data, end = self._data, self._end
        name, version, count = _HEADER.unpack_from(data)
        if name != b"DIRC" or version not in (2, 3, 4) or end < _HEADER.size:
            raise ValueError
        checksum = sha1(memoryview(data)[:end], usedforsecurity=False).digest()
        # Git leaves it out where ``index.skipHash`` is set.
        if data[end:] not in (checksum, bytes(_CHECKSUM_BYTES)):
            raise ValueError
        self._check_extensions(self._read_entries(count, version))
        return Index(folders=self._folders, unmerged=frozenset(self._unmerged), racy_from=racy_from)

    def _read_entries(self, count: int, version: int) -> int:
        data, unpack, fixed = self._data, _ENTRY.unpack_from, _ENTRY.size
        at, merged = _HEADER.size, 0
        raw = folder_raw = b""
        rows = self._folders[""].rows
        for _ in range(count):
            changed, changed_part, modified, modified_part, inode, mode, size, oid, flags = unpack(
                data, at
            )
            start = at + fixed
            marks = flags & ~_NAME_LENGTH
            if marks & _EXTENDED:
                if version == 2:
                    raise ValueError
                marks += (_MORE_FLAGS.unpack_from(data, start)[0] << 16) - _EXTENDED
                start += 2
            if version == 4:
                raw, at = self._compressed(raw, start)
            else:
                length = flags & _NAME_LENGTH
                stop = start + length if length < _NAME_LENGTH else data.index(0, start)
                raw = data[start:stop]
                # One to eight NULs fill the entry up to a multiple of eight bytes.
                at += (stop - at + 8) & ~7
            if marks & _STAGE:
                self._unmerged.add(raw)
                continue
            above, _, name = raw.rpartition(b"/")
            if above != folder_raw:
                folder_raw, rows = above, self._folder(_text(above)).rows
            modified = modified * _NANO + modified_part
            changed = changed * _NANO + changed_part
            name_text = name.decode("utf-8", "surrogateescape")
            merged += 1
            rows[name_text] = IndexRow(modified, changed, inode, size, mode, oid, marks)
        self._check_names(merged)
        return at

    def _compressed(self, before: bytes, at: int) -> tuple[bytes, int]:
        """A path that keeps the start of the one before, and where the next entry begins."""
        data = self._data
        byte = data[at]
        dropped = byte & 0x7F
        while byte & 0x80:
            at += 1
            if at > self._end or dropped > len(before):
                raise ValueError
            byte = data[at]
            dropped = ((dropped + 1) << 7) | (byte & 0x7F)
        if dropped > len(before):
            raise ValueError
        stop = data.index(0, at + 1)
        return before[: len(before) - dropped] + data[at + 1 : stop], stop + 1

    def _folder(self, path: str) -> IndexFolder:
        made: list[str] = []
        while path not in self._folders:
            made.append(path)
            path = path.rpartition("/")[0]
        for missing in reversed(made):
            above, _, name = missing.rpartition("/")
            self._folders[above].folders.append(name)
            self._folders[missing] = IndexFolder(missing)
        return self._folders[made[0] if made else path]

    def _check_names(self, merged: int) -> None:
        """Each path stands once, is no folder at the same time, and has no NUL in it."""
        for folder in self._folders.values():
            merged -= len(folder.rows)
            if "\0" in "".join(folder.rows) or "\0" in "".join(folder.folders):
                raise ValueError
            if folder.folders and not folder.rows.keys().isdisjoint(folder.folders):
                raise ValueError
        if merged or any(0 in raw for raw in self._unmerged):
            raise ValueError

    def _check_extensions(self, at: int) -> None:
        while at < self._end:
            name, size = _EXTENSION.unpack_from(self._data, at)
            # A small first letter says that a reader must understand the extension.
            if not b"A" <= name[:1] <= b"Z":
                raise ValueError
            at += _EXTENSION.size + size
        if at != self._end:
            raise ValueError


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _mode_bytes(mode: int) -> bytes:
    return _MODES.get(mode) or b"%o " % mode


def _tree_id(lines: dict[str, bytes], *, is_sorted: bool) -> bytes:
    if is_sorted:
        body = b"".join(lines.values())
    else:
        body = b"".join(
            line for _, line in sorted((_raw(key), line) for key, line in lines.items())
        )
    return sha1(b"tree %d\0%b" % (len(body), body), usedforsecurity=False).digest()
