"""What staging learned of an index, kept for as long as the index and its commit stay.

It saves reading the index and judging its names again; without it the result is the same.
It is used only for the very bytes of that index, for the commit tree that this index
stands for, under the same rules and bounds. What it says of a folder is held against
the folder's own tree id when somebody looks into it.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from broker.stage.bounds import StageBounds
from broker.stage.cache_files import cache_name, read_sealed, write_sealed
from broker.stage.index_file import IndexRow
from broker.stage.tracking import TrackedFolder
from broker.stage.tree import FolderTotals, StagedTree
from protocol.decision_codes import ExclusionReason

__all__ = ["IndexMemory", "Remembered"]

_FORMAT: Final = b"airlock index 1"
_SUFFIX: Final = ".index"
_DIGEST_BYTES: Final = 32

#: Bytes: the largest stage, with the longest paths.
MAX_BYTES: Final = 256 * 1024 * 1024

#: Checkouts remembered; the oldest go first. Most are of a few MB.
MAX_CHECKOUTS: Final = 16


class _Folder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    path: str
    names: str
    stats: bytes
    contents: bytes
    newest: int
    totals: FolderTotals | None
    rows: dict[str, IndexRow]


class _Memory(msgspec.Struct, frozen=True, array_like=True):
    key: bytes
    hidden: dict[str, ExclusionReason]
    folders: list[_Folder]


class Remembered(msgspec.Struct, frozen=True):
    """What stood in an index: its folders, each after the one above it, and what is hidden."""

    folders: dict[str, TrackedFolder]
    hidden: Mapping[str, ExclusionReason]


class IndexMemory:
    """The memory of one checkout; without a folder it remembers nothing."""

    def __init__(self, path: Path | None, key: bytes) -> None:
        self._path: Final = path
        self._key: Final = key

    @classmethod
    def of(
        cls,
        cache: Path | None,
        git_folder: Path,
        *,
        index: bytes,
        commit_tree: bytes,
        own_modes: bool,
        bounds: StageBounds,
    ) -> "IndexMemory":
        """The memory for the bytes ``index`` in ``git_folder`` on a commit's tree."""
        if cache is None:
            return cls(None, b"")
        facts = repr((commit_tree, own_modes, bounds)).encode()
        key = sha256(facts + b"\0")
        key.update(index)
        return cls(cache / (cache_name(git_folder) + _SUFFIX), key.digest())

    def recall(self) -> Remembered | None:
        """What is remembered of exactly this index, or ``None``."""
        body = None if self._path is None else read_sealed(self._path, _FORMAT, MAX_BYTES)
        if body is None or body[3 : 3 + _DIGEST_BYTES] != self._key:
            return None
        try:
            memory = msgspec.msgpack.decode(body, type=_Memory)
            return Remembered(folders=_unpacked(memory.folders), hidden=memory.hidden)
        except (msgspec.DecodeError, ValueError):
            return None

    def keep(
        self,
        folders: Iterable[TrackedFolder],
        tree: StagedTree,
        hidden: Mapping[str, ExclusionReason],
    ) -> None:
        """Remember ``folders``; ``tree`` is that of their known files, without twins.

        A failure to write is none.
        """
        if self._path is None:
            return
        packed = [
            _Folder(
                folder.path,
                folder.names,
                folder.stats,
                folder.contents,
                folder.newest,
                tree.totals(folder.path),
                folder.rows,
            )
            for folder in folders
        ]
        body = msgspec.msgpack.encode(_Memory(self._key, dict(hidden), packed))
        write_sealed(self._path, _FORMAT, body, most=MAX_CHECKOUTS)


def _unpacked(packed: Iterable[_Folder]) -> dict[str, TrackedFolder]:
    folders: dict[str, TrackedFolder] = {}
    for each in packed:
        if each.path and each.path.rpartition("/")[0] not in folders:
            raise ValueError
        folder = TrackedFolder(each.path, each.rows)
        folder.unpack(each.names, each.stats, each.contents, newest=each.newest, totals=each.totals)
        folders[each.path] = folder
    return folders
