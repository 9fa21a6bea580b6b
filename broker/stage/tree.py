"""A staged tree: paths to blobs, immutable, named by the id that git gives it.

A tree is made of folder nodes that are never changed. ``replace`` makes new nodes on
the way from the touched paths to the root and shares all others, so the old tree stays
whole and a change costs what it touches. The digest is git's own tree id under
``--object-format=sha256``; anyone can check it with stock git. Nothing here looks a
path up in a file system; only ``materialize`` writes to one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Self, final

import msgspec

from broker.stage.folder_nodes import (
    EMPTY,
    MODE_EXECUTABLE,
    MODE_FILE,
    Entry,
    Folder,
    FolderTotals,
    folders_apart,
    in_order,
    merged,
)
from broker.stage.materializing import write_files
from broker.stage.store import BlobStore
from protocol.digest import DIGEST_PREFIX
from protocol.ids import Digest, RepoPath

__all__ = [
    "MODE_EXECUTABLE",
    "MODE_FILE",
    "Entry",
    "FolderSource",
    "FolderTotals",
    "StagedTree",
    "TreeDifference",
]


class TreeDifference(msgspec.Struct, frozen=True):
    """One path at which two trees differ; ``None`` is absence."""

    path: RepoPath
    before: Entry | None
    after: Entry | None


class FolderSource(msgspec.Struct, frozen=True):
    """One folder that a tree is made of: its own files, and its totals if they are known.

    With ``totals`` the files are asked for when somebody looks into the folder, and must
    then be those that the totals name.
    """

    path: str
    entries: Callable[[], Mapping[str, Entry]]
    totals: FolderTotals | None


@final
class StagedTree:
    """An immutable tree of files. Equal trees have equal digests and the reverse."""

    def __init__(self, store: BlobStore, root: Folder) -> None:
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

    @classmethod
    def of_folders(cls, store: BlobStore, sources: Sequence[FolderSource]) -> Self:
        """The tree of ``sources``: the root is first, and each comes after the one above it.

        Folders without files are left out.
        """
        below: dict[str, dict[str, Folder]] = {source.path: {} for source in sources}
        root = EMPTY
        for source in reversed(sources):
            folders = below.pop(source.path)
            totals = source.totals
            if totals is None:
                folder = Folder(merged(source.entries(), folders))
            else:
                folder = Folder.promised(totals, partial(_loaded, source.entries, folders))
            above, _, name = source.path.rpartition("/")
            if not source.path:
                root = folder
            elif folder.files:
                below[above][name] = folder
        return cls(store, root)

    def totals(self, folder: str) -> FolderTotals | None:
        """What ``folder`` is as a whole, ``None`` when it does not exist."""
        node = self._node(folder)
        if type(node) is not Folder:
            return None
        return FolderTotals(node.digest, node.files, node.bytes)

    def folders_apart(self, other: "StagedTree | None") -> Iterator[Collection[str]]:
        """The names in each folder that is not also one of ``other`` at the same place.

        Folders that were promised and never looked into are left out.
        """
        yield from folders_apart(self._root, None if other is None else other._root)

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
        if isinstance(node, Folder):
            yield from _walk(node, folder and folder + "/")

    def get(self, path: str) -> Entry | None:
        """The file at exactly ``path``, or ``None``: no alias of a path is known."""
        node: Entry | Folder | None = self._root
        for name in path.split("/"):
            if type(node) is not Folder:
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
        return type(self._node(path)) is Folder

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
            root = _replaced(root or EMPTY, _by_folder(added))
        return StagedTree(self.store, root or EMPTY)

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

    def _node(self, path: str) -> Entry | Folder | None:
        node: Entry | Folder | None = self._root
        for name in path.split("/") if path else ():
            if type(node) is not Folder:
                return None
            node = node.children.get(name)
        return node


def _loaded(
    entries: Callable[[], Mapping[str, Entry]], folders: Mapping[str, Folder]
) -> dict[str, Entry | Folder]:
    return merged(entries(), folders)


#: Changes below one folder: a name leads to an entry, ``None`` (take out) or a folder's changes.
_Changes = dict[str, "Entry | _Changes | None"]


def _walk(folder: Folder, prefix: str) -> Iterator[tuple[RepoPath, Entry]]:
    # Git's order of names in a folder makes the whole walk sorted by path bytes.
    for name, child in folder.children.items():
        if type(child) is Entry:
            yield RepoPath(prefix + name), child
        else:
            assert type(child) is Folder
            yield from _walk(child, f"{prefix}{name}/")


def _built(entries: Mapping[RepoPath, Entry]) -> Folder:
    changes = _by_folder(entries)
    return _new_folder(changes) if changes else EMPTY


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


def _new_folder(changes: _Changes) -> Folder:
    children: dict[str, Entry | Folder] = {}
    for name, change in changes.items():
        if type(change) is dict:
            children[name] = _new_folder(change)
        else:
            assert type(change) is Entry
            children[name] = change
    return Folder(in_order(children))


def _replaced(folder: Folder, changes: _Changes) -> Folder | None:
    """``folder`` with ``changes`` made, or ``None`` when nothing is left in it."""
    children = dict(folder.children)
    for name, change in changes.items():
        old = children.get(name)
        if change is None:
            if type(old) is not Entry:
                raise KeyError("a path to take out is not a file of the tree")
            del children[name]
        elif type(change) is Entry:
            if type(old) is Folder:
                raise ValueError("a path is both a file and a folder")
            children[name] = change
        else:
            assert type(change) is dict
            _replace_below(children, name, change)
    if not children:
        return None
    # Where each name is still what it was, the order is too.
    kept = len(children) == len(folder.children) and all(
        type(children[name]) is type(folder.children.get(name)) for name in changes
    )
    return Folder(children if kept else in_order(children))


def _replace_below(children: dict[str, Entry | Folder], name: str, changes: _Changes) -> None:
    old = children.get(name, EMPTY)
    if type(old) is not Folder:
        if None in changes.values():
            raise KeyError("a path to take out is not a file of the tree")
        raise ValueError("a path is both a file and a folder")
    new = _replaced(old, changes)
    if new is None:
        children.pop(name, None)
    else:
        children[name] = new


def _differences(before: Folder, after: Folder, prefix: str) -> Iterator[TreeDifference]:
    old_children, new_children = before.children, after.children
    for name, new in new_children.items():
        old = old_children.get(name)
        # A tree that was made from another one shares what it did not change.
        if old is not new:
            yield from _difference(old, new, prefix, name)
    if old_children.keys() != new_children.keys():
        for name, old in old_children.items():
            if name not in new_children:
                yield from _difference(old, None, prefix, name)


def _difference(
    old: Entry | Folder | None, new: Entry | Folder | None, prefix: str, name: str
) -> Iterator[TreeDifference]:
    old_folder = old if type(old) is Folder else EMPTY
    new_folder = new if type(new) is Folder else EMPTY
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
