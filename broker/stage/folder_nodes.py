"""Folder nodes of a staged tree: what git calls a tree object, with its sha256 id; immutable.

A node may be a promise: its id and totals are known, and its children are loaded when
somebody looks into it. They must then be those that the id names. No path is known here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from typing import Final, final

import msgspec

from broker.stage.store import Blob
from protocol.errors import Fault

__all__ = [
    "EMPTY",
    "MODE_EXECUTABLE",
    "MODE_FILE",
    "Entry",
    "Folder",
    "FolderTotals",
    "folders_apart",
    "in_order",
    "merged",
]

MODE_FILE: Final = 0o100644
MODE_EXECUTABLE: Final = 0o100755

_MODE_BYTES: Final = {MODE_FILE: b"100644 ", MODE_EXECUTABLE: b"100755 "}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One file of a tree: ``MODE_FILE`` or ``MODE_EXECUTABLE``, and its content."""

    mode: int
    blob: Blob


class FolderTotals(msgspec.Struct, frozen=True, gc=False):
    """What a folder is as a whole: its git sha256 tree id, and what lies at any depth below."""

    digest: bytes
    files: int
    bytes: int


@final
class Folder:
    """One folder: children in git's order, its id, and what lies below it."""

    __slots__ = ("_children", "_load", "bytes", "digest", "files")

    def __init__(self, children: "dict[str, Entry | Folder]") -> None:
        body, files, total = _written(children)
        self._children: dict[str, Entry | Folder] | None = children
        self._load: Callable[[], dict[str, Entry | Folder]] | None = None
        self.digest: bytes = _tree_digest(body)
        self.files = files
        self.bytes = total

    @classmethod
    def promised(
        cls, totals: FolderTotals, load: "Callable[[], dict[str, Entry | Folder]]"
    ) -> "Folder":
        """A folder of ``totals`` whose children are loaded when they are first asked for."""
        folder = cls.__new__(cls)
        folder._children, folder._load = None, load
        folder.digest, folder.files, folder.bytes = totals.digest, totals.files, totals.bytes
        return folder

    @property
    def is_loaded(self) -> bool:
        """Whether somebody has looked into it."""
        return self._children is not None

    @property
    def children(self) -> "dict[str, Entry | Folder]":
        """By name, in git's order. Raises ``Fault`` when they are not what was promised."""
        children = self._children
        if children is None:
            load = self._load
            # Another thread may have been here in between; what it loaded is the same.
            try:
                children = self._children if load is None else load()
            except ValueError as error:
                raise Fault("checkout_unreadable") from error
            assert children is not None
            body, files, total = _written(children)
            if (_tree_digest(body), files, total) != (self.digest, self.files, self.bytes):
                raise Fault("checkout_unreadable")
            self._children, self._load = children, None
        return children


def _written(children: dict[str, Entry | Folder]) -> tuple[bytes, int, int]:
    """The body of git's tree object, and how many files and bytes lie below."""
    lines: list[bytes] = []
    files = total = 0
    for name, child in children.items():
        if type(child) is Entry:
            blob = child.blob
            lines.append(_MODE_BYTES[child.mode] + b"%b\0%b" % (name.encode(), blob.digest))
            files += 1
            total += blob.size
        else:
            assert type(child) is Folder
            lines.append(b"40000 %b\0%b" % (name.encode(), child.digest))
            files += child.files
            total += child.bytes
    return b"".join(lines), files, total


def _tree_digest(body: bytes) -> bytes:
    return sha256(b"tree %d\0%b" % (len(body), body)).digest()


def merged(
    entries: Mapping[str, Entry], folders: Mapping[str, Folder]
) -> dict[str, Entry | Folder]:
    """The children of a folder. Raises ``ValueError`` for a name that is in both."""
    if not folders.keys().isdisjoint(entries):
        raise ValueError("a path is both a file and a folder")
    return in_order({**entries, **folders})


def folders_apart(folder: Folder, other: Folder | None) -> Iterator[Collection[str]]:
    """The names in each loaded folder that is not also in ``other`` at the same place."""
    if folder is other or not folder.is_loaded:
        return
    yield folder.children.keys()
    twins = other.children if other is not None and other.is_loaded else {}
    for name, child in folder.children.items():
        if type(child) is Folder:
            twin = twins.get(name)
            yield from folders_apart(child, twin if type(twin) is Folder else None)


def in_order(children: dict[str, Entry | Folder]) -> dict[str, Entry | Folder]:
    """``children`` in git's order."""
    # Code point order is UTF-8 byte order; git sorts a folder as if its name ended in "/".
    keys = [name if type(child) is Entry else name + "/" for name, child in children.items()]
    ordered = sorted(keys)
    if ordered == keys:
        return children
    return {(name := key.rstrip("/")): children[name] for key in ordered}


EMPTY: Final = Folder({})
