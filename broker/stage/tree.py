"""A staged tree: paths to blobs, immutable, named by the id that git gives it.

A tree is made of folder nodes that are never changed. ``replace`` makes new nodes on
the way from the touched paths to the root and shares all others, so the old tree stays
whole and a change costs what it touches. The digest is git's own tree id under
``--object-format=sha256``; anyone can check it with stock git. Nothing here looks a
path up in a file system; only ``materialize`` writes to one.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final, Self, final

import msgspec

from broker.stage.materializing import write_files
from broker.stage.store import Blob, BlobStore
from protocol.digest import DIGEST_PREFIX
from protocol.ids import Digest, RepoPath

MODE_FILE: Final = 0o100644
MODE_EXECUTABLE: Final = 0o100755

_MODE_BYTES: Final = {MODE_FILE: b"100644 ", MODE_EXECUTABLE: b"100755 "}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One file of a tree: ``MODE_FILE`` or ``MODE_EXECUTABLE``, and its content."""

    mode: int
    blob: Blob


class TreeDifference(msgspec.Struct, frozen=True):
    """One path at which two trees differ; ``None`` is absence."""

    path: RepoPath
    before: Entry | None
    after: Entry | None


@final
class _Folder:
    """One folder: children in git's order, its id, and what lies below it."""

    __slots__ = ("bytes", "children", "digest", "files")

    def __init__(self, children: "dict[str, Entry | _Folder]") -> None:
        lines: list[bytes] = []
        files = total = 0
        for name, child in children.items():
            if type(child) is Entry:
                blob = child.blob
                lines.append(b"%b%b\0%b" % (_MODE_BYTES[child.mode], name.encode(), blob.digest))
                files += 1
                total += blob.size
            else:
                assert type(child) is _Folder
                lines.append(b"40000 %b\0%b" % (name.encode(), child.digest))
                files += child.files
                total += child.bytes
        body = b"".join(lines)
        self.children: Final = children
        self.digest: Final[bytes] = sha256(b"tree %d\0%b" % (len(body), body)).digest()
        self.files: Final[int] = files
        self.bytes: Final[int] = total


@final
class StagedTree:
    """An immutable tree of files. Equal trees have equal digests and the reverse."""

    def __init__(self, store: BlobStore, root: _Folder) -> None:
        self.store: Final = store
        self._root: Final = root
        self.digest: Final = Digest(DIGEST_PREFIX + root.digest.hex())
        self.files: Final = root.files
        self.bytes: Final = root.bytes

    @classmethod
    def build(cls, store: BlobStore, entries: Mapping[RepoPath, Entry]) -> Self:
        """The tree of ``entries``; their blobs must be of ``store``.

        Raises ``ValueError`` when one path is both a file and a folder.
        """
        return cls(store, _built(entries))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StagedTree) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def paths(self) -> Sequence[RepoPath]:
        """Every path, sorted by its UTF-8 bytes."""
        return tuple(path for path, _ in _walk(self._root, ""))

    def items(self, folder: str = "") -> Iterator[tuple[RepoPath, Entry]]:
        """Every file below ``folder`` (``""`` is the root), sorted by the path's bytes.

        A folder that does not exist has no files.
        """
        node = self._node(folder)
        if isinstance(node, _Folder):
            yield from _walk(node, folder and folder + "/")

    def get(self, path: str) -> Entry | None:
        """The file at exactly ``path``, or ``None``: no alias of a path is known."""
        node: Entry | _Folder | None = self._root
        for name in path.split("/"):
            if type(node) is not _Folder:
                return None
            node = node.children.get(name)
        return node if type(node) is Entry else None

    def read(self, path: str) -> bytes:
        """The bytes of the file at ``path``; ``KeyError`` if there is none.

        Raises ``Fault("checkout_unreadable")`` when the store lost them.
        """
        entry = self.get(path)
        if entry is None:
            raise KeyError(path)
        return self.store.load(entry.blob)

    def is_directory(self, path: str) -> bool:
        """Whether files lie below ``path``. The root (``""``) always is a folder."""
        return type(self._node(path)) is _Folder

    def replace(self, changes: Mapping[RepoPath, Entry | None]) -> "StagedTree":
        """This tree with each path set to its entry, or taken out where it is ``None``.

        Raises ``KeyError`` when a path to take out is no file of the tree, and
        ``ValueError`` when a path would be both a file and a folder.
        """
        removed = {path: None for path, entry in changes.items() if entry is None}
        added = {path: entry for path, entry in changes.items() if entry is not None}
        root = _replaced(self._root, _by_folder(removed)) if removed else self._root
        # Removal is first, so that a file can make room for a folder of its name.
        if added:
            root = _replaced(root or _EMPTY, _by_folder(added))
        return StagedTree(self.store, root or _EMPTY)

    def differences(self, other: "StagedTree") -> Iterator[TreeDifference]:
        """Each path at which ``other`` (after) differs from this tree (before), sorted.

        Equal folders are passed over by their ids.
        """
        found = _differences(self._root, other._root, "")
        return iter(sorted(found, key=lambda difference: difference.path))

    def materialize(self, folder: Path) -> None:
        """Write every file into ``folder``, which is made if absent and must be empty.

        Files are new (never linked) with mode 0644 or 0755, folders 0755, whatever the
        umask; no link is followed and nothing is overwritten. Raises
        ``Fault("store_unwritable")`` or what ``read`` raises; the folder is then partial.
        """
        write_files(
            folder,
            (
                (path, entry.mode == MODE_EXECUTABLE, self.store.load(entry.blob))
                for path, entry in _walk(self._root, "")
            ),
        )

    def _node(self, path: str) -> Entry | _Folder | None:
        node: Entry | _Folder | None = self._root
        for name in path.split("/") if path else ():
            if type(node) is not _Folder:
                return None
            node = node.children.get(name)
        return node


_EMPTY: Final = _Folder({})

#: Changes below one folder: a name leads to an entry, ``None`` (take out) or a folder's changes.
_Changes = dict[str, "Entry | _Changes | None"]


def _walk(folder: _Folder, prefix: str) -> Iterator[tuple[RepoPath, Entry]]:
    # Git's order of names in a folder makes the whole walk sorted by path bytes.
    for name, child in folder.children.items():
        if type(child) is Entry:
            yield RepoPath(prefix + name), child
        else:
            assert type(child) is _Folder
            yield from _walk(child, f"{prefix}{name}/")


def _built(entries: Mapping[RepoPath, Entry]) -> _Folder:
    changes = _by_folder(entries)
    return _new_folder(changes) if changes else _EMPTY


def _by_folder(entries: Mapping[RepoPath, Entry | None]) -> _Changes:
    root: _Changes = {}
    folders: dict[str, _Changes] = {"": root}

    def folder_of(path: str) -> _Changes:
        known = folders.get(path)
        if known is not None:
            return known
        parent, _, name = path.rpartition("/")
        above = folder_of(parent)
        if name in above:
            raise ValueError("a path is both a file and a folder")
        made: _Changes = {}
        above[name] = made
        folders[path] = made
        return made

    for path, entry in entries.items():
        parent, _, name = path.rpartition("/")
        folder = folders.get(parent)
        if folder is None:
            folder = folder_of(parent)
        if name in folder:
            raise ValueError("a path is both a file and a folder")
        folder[name] = entry
    return root


def _new_folder(changes: _Changes) -> _Folder:
    children: dict[str, Entry | _Folder] = {}
    for name, change in changes.items():
        if type(change) is dict:
            children[name] = _new_folder(change)
        else:
            assert type(change) is Entry
            children[name] = change
    return _Folder(_sorted(children))


def _replaced(folder: _Folder, changes: _Changes) -> _Folder | None:
    """``folder`` with ``changes`` made, or ``None`` when nothing is left in it."""
    children = dict(folder.children)
    for name, change in changes.items():
        old = children.get(name)
        if change is None:
            if type(old) is not Entry:
                raise KeyError("a path to take out is not a file of the tree")
            del children[name]
        elif type(change) is Entry:
            if type(old) is _Folder:
                raise ValueError("a path is both a file and a folder")
            children[name] = change
        else:
            assert type(change) is dict
            _replace_below(children, name, change)
    return _Folder(_sorted(children)) if children else None


def _replace_below(children: dict[str, Entry | _Folder], name: str, changes: _Changes) -> None:
    old = children.get(name, _EMPTY)
    if type(old) is not _Folder:
        if None in changes.values():
            raise KeyError("a path to take out is not a file of the tree")
        raise ValueError("a path is both a file and a folder")
    new = _replaced(old, changes)
    if new is None:
        children.pop(name, None)
    else:
        children[name] = new


def _sorted(children: dict[str, Entry | _Folder]) -> dict[str, Entry | _Folder]:
    # Code point order is UTF-8 byte order; git sorts a folder as if its name ended in "/".
    keys = [name if type(child) is Entry else name + "/" for name, child in children.items()]
    keys.sort()
    return {(name := key.rstrip("/")): children[name] for key in keys}


def _differences(before: _Folder, after: _Folder, prefix: str) -> Iterator[TreeDifference]:
    for name in before.children.keys() | after.children.keys():
        old = before.children.get(name)
        new = after.children.get(name)
        old_folder = old if type(old) is _Folder else _EMPTY
        new_folder = new if type(new) is _Folder else _EMPTY
        if old_folder.digest != new_folder.digest:
            yield from _differences(old_folder, new_folder, f"{prefix}{name}/")
        old_file = old if type(old) is Entry else None
        new_file = new if type(new) is Entry else None
        if not _same_file(old_file, new_file):
            yield TreeDifference(RepoPath(prefix + name), old_file, new_file)


def _same_file(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.mode == other.mode and one.blob.digest == other.blob.digest
