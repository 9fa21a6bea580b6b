"""What git tracks, by folder: the files whose content is known, and the rows to look at.

Known files are packed, one run of bytes for the stats of a whole folder, so that a folder
in which nothing changed is compared at once and costs no object for each of its files.
Nothing here looks at the working tree.
"""

import os
from collections.abc import Collection, Mapping
from struct import Struct
from typing import Final

from broker.stage.index_file import IndexRow
from broker.stage.store import Blob, BlobId
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry, FolderTotals

__all__ = ["STAT", "TrackedFolder", "mode_of"]

#: Modified and changed (nanoseconds), inode (modulo 2**32), size, and type with mode.
STAT: Final = Struct("<qqIqI")

#: Git id, sha256 id, size, and whether it is executable.
CONTENT: Final = Struct("<20s32sQ?")

_REGULAR: Final = 0o100000
_OWNER_EXECUTES: Final = 0o100
_LOW_32: Final = 0xFFFFFFFF


def mode_of(bits: int) -> int:
    """The one of two modes that ``bits`` (of git or of a stat) stand for."""
    return MODE_EXECUTABLE if bits & _OWNER_EXECUTES else MODE_FILE


class StatForm:
    """What of a stat says that a file is unchanged; ``own_modes`` is ``core.fileMode``."""

    __slots__ = ("mask",)

    def __init__(self, *, own_modes: bool) -> None:
        self.mask: Final = 0o170000 | (_OWNER_EXECUTES if own_modes else 0)

    def of_row(self, row: IndexRow) -> bytes:
        """The stat of a clean file of ``row``."""
        mode = (_REGULAR | row.mode & _OWNER_EXECUTES) & self.mask
        return STAT.pack(row.modified, row.changed, row.inode, row.size, mode)

    def of_file(self, found: os.stat_result) -> bytes:
        """The same of a file as it was found; raises ``struct.error`` for absurd times."""
        return STAT.pack(
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_ino & _LOW_32,
            found.st_size,
            found.st_mode & self.mask,
        )


class TrackedFolder:
    """One folder with tracked files directly in it or below it.

    ``doubtful`` and ``learned`` are filled while the working tree is looked at.
    """

    __slots__ = (
        "_contents",
        "_entries",
        "doubtful",
        "learned",
        "names",
        "newest",
        "path",
        "rows",
        "stats",
        "suspects",
        "totals",
        "visited",
    )

    def __init__(self, path: str, rows: dict[str, IndexRow]) -> None:
        self.path: Final = path
        self.rows: Final = rows  #: files whose content must be judged, or read
        self.suspects: Collection[str] = rows  #: of which alone ``needs_content`` may be true
        self.names = ""  #: known files, sorted, joined by NUL
        self.stats = b""  #: theirs, in the same order
        self.newest = 0  #: when the last of them was modified, nanoseconds
        self.totals: FolderTotals | None = None
        self.doubtful: Final[dict[str, IndexRow]] = {}  #: known, but not found as they were
        self.learned: Final[dict[str, Entry]] = {}  #: of ``rows``, now known
        self.visited = False
        self._contents = b""
        self._entries: dict[str, Entry] | None = {}

    @property
    def prefix(self) -> str:
        """What the path of each file in it starts with."""
        return self.path and self.path + "/"

    @property
    def contents(self) -> bytes:
        """What the known files are, packed in the order of ``names``."""
        if not self._contents and self._entries:
            self._contents = b"".join(
                CONTENT.pack(
                    entry.blob.oid,
                    entry.blob.digest,
                    entry.blob.size,
                    entry.mode == MODE_EXECUTABLE,
                )
                for entry in self._entries.values()
            )
        return self._contents

    def unpack(
        self, names: str, stats: bytes, contents: bytes, *, newest: int, totals: FolderTotals | None
    ) -> None:
        """Take what ``names``, ``stats`` and ``contents`` of such a folder were.

        Raises ``ValueError`` when they do not fit each other.
        """
        count = names.count("\0") + 1 if names else 0
        if len(stats) != count * STAT.size or len(contents) != count * CONTENT.size:
            raise ValueError
        self.names, self.stats, self.newest, self.totals = names, stats, newest, totals
        self._contents, self._entries = contents, None if contents else {}

    def know(
        self, known: Mapping[str, Entry], rows: Mapping[str, IndexRow], form: StatForm
    ) -> None:
        """Add files: each has its entry and its row. The rows to look at lose them."""
        if not known:
            return
        entries = {**self.entries, **known}
        stats = {**self._stats_by_name(), **{name: form.of_row(rows[name]) for name in known}}
        names = sorted(entries)
        self.names = "\0".join(names)
        self.stats = b"".join([stats[name] for name in names])
        self.newest = max(self.newest, *(rows[name].modified for name in known))
        self._entries, self._contents = {name: entries[name] for name in names}, b""
        self.totals = None

    @property
    def entries(self) -> dict[str, Entry]:
        """The known files, by name, sorted; not to be changed."""
        if self._entries is None:
            self._entries = {
                name: Entry(
                    MODE_EXECUTABLE if executable else MODE_FILE, Blob(BlobId(oid), size, digest)
                )
                for name, (oid, digest, size, executable) in zip(
                    self.names.split("\0"), CONTENT.iter_unpack(self._contents), strict=True
                )
            }
        return self._entries

    def row_to_look_at(self, name: str) -> IndexRow | None:
        """The row of the file ``name``, unless the file is known and was found as it was."""
        return self.rows.get(name) or self.doubtful.get(name)

    def doubt(self, position: int, name: str) -> None:
        """The known file ``name``, at ``position``, is not as it was when it was known."""
        modified, changed, inode, size, _ = STAT.unpack_from(self.stats, position * STAT.size)
        entry = self.entries[name]
        self.doubtful[name] = IndexRow(
            modified, changed, inode, size, entry.mode, entry.blob.oid, marks=0
        )

    def doubt_all(self) -> None:
        """None of the known files was found: the folder is not there any more."""
        for position, name in enumerate(self.names.split("\0") if self.names else ()):
            self.doubt(position, name)

    def _stats_by_name(self) -> dict[str, bytes]:
        names = self.names.split("\0") if self.names else []
        size = STAT.size
        return {name: self.stats[at * size : (at + 1) * size] for at, name in enumerate(names)}


def _packed(entry: Entry) -> bytes:
    blob = entry.blob
    return CONTENT.pack(blob.oid, blob.digest, blob.size, entry.mode == MODE_EXECUTABLE)
