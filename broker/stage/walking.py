"""The working tree, descended by folder handles; tells what may be staged, reads no content.

Each folder is opened in its parent and never by path, so a link or a folder that is
swapped for one leads nowhere. The only files opened here are ignore files.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

import msgspec

from broker.stage.bounds import StageBounds
from broker.stage.checkout import Checkout, Index, IndexRow, is_clean
from broker.stage.exclusions import exclusion_of_untracked
from broker.stage.ignore_files import IgnoreFiles
from broker.stage.ignoring import IgnoreRules
from broker.stage.names import printable
from broker.stage.openat import open_folder
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry
from protocol.decision_codes import ExclusionReason
from protocol.errors import Fault, Refusal
from protocol.ids import RepoPath

_TYPE_MASK: Final = 0o170000
_REGULAR: Final = 0o100000
_OWNER_EXECUTES: Final = 0o100


class Found(msgspec.Struct, frozen=True, gc=False):
    """A regular file that may be staged. ``folder`` is open until the next one is asked for."""

    path: str
    folder: int
    name: str
    stat: os.stat_result
    row: IndexRow | None  #: ``None``: git does not track it
    clean: bool  #: its stat is that of ``row``
    mode: int  #: ``MODE_FILE`` or ``MODE_EXECUTABLE``


class Walk:
    """One descent. ``excluded`` and ``unchanged`` grow while ``files`` is iterated.

    ``prepared`` has the entry of each row whose content is known: such a file, when its
    stat is that of the index, goes to ``unchanged`` and is not one of ``files``.
    """

    def __init__(
        self,
        checkout: Checkout,
        *,
        index: Index,
        rows: Mapping[str, IndexRow],
        prepared: Mapping[RepoPath, Entry],
        folders: frozenset[str],
        settled: Mapping[str, ExclusionReason],
        bounds: StageBounds,
    ) -> None:
        self._root: Final = checkout.root
        self._rows: Final = rows
        self._prepared: Final = prepared
        self._racy_from: Final = index.racy_from
        self._own_modes: Final = checkout.flag("core.fileMode", default=True)
        self._folders: Final = folders
        self._settled: Final = settled
        self._bounds: Final = bounds
        self._ignore_files: Final = IgnoreFiles(checkout)
        self.excluded: Final[dict[str, ExclusionReason]] = {}
        self.unchanged: Final[dict[RepoPath, Entry]] = {}

    def files(self) -> Iterator[Found]:
        """Every regular file that git tracks, or neither tracks nor ignores.

        Raises ``Refusal`` with ``checkout_changed`` or a bound, ``Fault("checkout_unreadable")``.
        """
        assert self._root is not None
        with ExitStack() as stack:
            try:
                root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise Fault("checkout_unreadable") from error
            pending = [_Folder(None, "", root, tracked=True)]
            stack.callback(_close_all, pending)
            while pending:
                folder = pending[-1]
                if folder.entries is None:
                    folder.entries = self._list(folder)
                yield from self._visit(folder, pending)
                if pending[-1] is folder:
                    os.close(pending.pop().handle)

    def _list(self, folder: "_Folder") -> list["os.DirEntry[str]"]:
        try:
            with os.scandir(folder.handle) as found:
                entries = list(found)
        except OSError as error:
            raise Fault("checkout_unreadable") from error
        if not folder.tracked and any(entry.name == ".git" for entry in entries):
            self._exclude(folder.path, "nested_repository")
            return []
        return entries

    def _visit(self, folder: "_Folder", pending: list["_Folder"]) -> Iterator[Found]:
        """Files of ``folder`` until one of its folders must be entered first."""
        entries = folder.entries
        assert entries is not None
        prefix = folder.prefix
        rows = self._rows
        while entries:
            entry = entries.pop()
            name = entry.name
            path = prefix + name
            row = rows.get(path)
            if row is None:
                found = self._judge(folder, entry, path, pending)
                if found is not None:
                    yield found
                if pending[-1] is not folder:
                    return
                continue
            seen = _stat(entry)
            if seen.st_mode & _TYPE_MASK == _REGULAR:
                clean = is_clean(row, seen, self._racy_from)
                mode = self._mode(seen.st_mode if self._own_modes else row.mode)
                ready = self._prepared.get(RepoPath(path)) if clean else None
                if ready is not None and ready.mode == mode:
                    self.unchanged[RepoPath(path)] = ready
                else:
                    yield Found(path, folder.handle, name, seen, row, clean, mode)
            elif stat.S_ISDIR(seen.st_mode):
                # The file was replaced by a folder: its row is a deletion, this is new.
                self._enter(folder, name, path, pending, tracked=path in self._folders)
                if pending[-1] is not folder:
                    return
            else:
                self._exclude(path, "symlink" if stat.S_ISLNK(seen.st_mode) else "special_file")

    def _judge(
        self, folder: "_Folder", entry: "os.DirEntry[str]", path: str, pending: list["_Folder"]
    ) -> Found | None:
        """What to do with a name that is not a file of the index."""
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and path in self._folders:
            self._enter(folder, entry.name, path, pending, tracked=True)
            return None
        if path in self._settled or path == ".git":
            return None
        reason = self._untracked_reason(folder, entry, path, is_folder=is_folder)
        if reason is not None:
            self._exclude(path, reason)
            return None
        self._bounds.check_path(path)
        if is_folder:
            self._enter(folder, entry.name, path, pending, tracked=False)
            return None
        seen = _stat(entry)
        mode = self._mode(seen.st_mode if self._own_modes else 0)
        return Found(path, folder.handle, entry.name, seen, None, False, mode)

    def _untracked_reason(
        self, folder: "_Folder", entry: "os.DirEntry[str]", path: str, *, is_folder: bool
    ) -> ExclusionReason | None:
        raw = os.fsencode(path)
        try:
            reason = exclusion_of_untracked(raw.decode())
        except UnicodeDecodeError:
            return "name_not_utf8"
        if reason is not None:
            return reason
        if entry.is_symlink():
            return "symlink"
        if not is_folder and not entry.is_file(follow_symlinks=False):
            return "special_file"
        return "ignored" if self._is_ignored(folder, raw, is_folder=is_folder) else None

    def _is_ignored(self, folder: "_Folder", raw: bytes, *, is_folder: bool) -> bool:
        if folder.ignored is None:
            above = folder.parent
            folder.ignored = above is not None and self._is_ignored(
                above, os.fsencode(folder.path), is_folder=True
            )
        if folder.ignored:
            return True
        at: _Folder | None = folder
        while at is not None:
            if at.rules is None:
                at.rules = self._ignore_files.of_folder(at.handle)
            verdict = at.rules.verdict(raw[at.prefix_bytes :], is_folder=is_folder)
            if verdict is not None:
                return verdict
            at = at.parent
        return self._ignore_files.is_ignored(raw, is_folder=is_folder)

    @staticmethod
    def _mode(bits: int) -> int:
        return MODE_EXECUTABLE if bits & _OWNER_EXECUTES else MODE_FILE

    def _enter(
        self, folder: "_Folder", name: str, path: str, pending: list["_Folder"], *, tracked: bool
    ) -> None:
        self._bounds.check_path(path)
        try:
            handle = open_folder(folder.handle, name)
        except PermissionError:
            self._exclude(path, "unreadable")
            return
        pending.append(_Folder(folder, path, handle, tracked=tracked))

    def _exclude(self, path: str, reason: ExclusionReason) -> None:
        self.excluded[printable(os.fsencode(path))] = reason
        self._bounds.check_excluded(len(self.excluded))


class _Folder:
    """A folder on the way down; its handle is closed when all below it was visited."""

    __slots__ = (
        "entries",
        "handle",
        "ignored",
        "parent",
        "path",
        "prefix",
        "prefix_bytes",
        "rules",
        "tracked",
    )

    def __init__(self, parent: "_Folder | None", path: str, handle: int, *, tracked: bool) -> None:
        self.parent: Final = parent
        self.path: Final = path
        self.prefix: Final = path and path + "/"
        self.prefix_bytes: Final = len(os.fsencode(self.prefix))
        self.handle: Final = handle
        self.tracked: Final = tracked
        self.entries: list[os.DirEntry[str]] | None = None
        self.rules: IgnoreRules | None = None  #: read when a name first asks for them
        self.ignored: bool | None = None


def _stat(entry: "os.DirEntry[str]") -> os.stat_result:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        raise Refusal("checkout_changed") from error


def _close_all(pending: list[_Folder]) -> None:
    for folder in pending:
        os.close(folder.handle)
