"""The working tree, descended by folder handles; tells what may be staged, reads no content.

Each folder is opened in its parent and never by path, so a link or a folder that is
swapped for one leads nowhere. The only files opened here are ignore files.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from struct import error as StructError
from typing import Final

import msgspec

from broker.stage.bounds import StageBounds
from broker.stage.checkout import Checkout
from broker.stage.exclusions import exclusion_of_untracked
from broker.stage.ignore_files import IgnoreFiles
from broker.stage.ignoring import IgnoreRules
from broker.stage.index_file import IndexRow
from broker.stage.names import printable
from broker.stage.openat import open_folder
from broker.stage.tracking import STAT, StatForm, TrackedFolder
from protocol.decision_codes import ExclusionReason
from protocol.errors import Fault, Refusal

_REGULAR: Final = 0o100000


class Found(msgspec.Struct, frozen=True, gc=False):
    """A regular file that must be looked at; ``folder`` is open until the next is asked for."""

    path: str
    folder: int
    name: str
    tracked: TrackedFolder | None  #: the folder, where ``row`` is of it
    row: IndexRow | None  #: ``None``: git does not track it


class Walk:
    """One descent. ``excluded`` and ``unchanged`` grow while ``files`` is iterated.

    A known file of ``tracked`` that has the stat it was known with is not one of ``files``.
    """

    def __init__(
        self,
        checkout: Checkout,
        *,
        tracked: Mapping[str, TrackedFolder],
        racy_from: int,
        form: StatForm,
        settled: Mapping[str, ExclusionReason],
        bounds: StageBounds,
    ) -> None:
        self._root: Final = checkout.root
        self._tracked: Final = tracked
        self._racy_from: Final = racy_from
        self._form: Final = form
        self._settled: Final = settled
        self._bounds: Final = bounds
        self._ignore_files: Final = IgnoreFiles(checkout)
        self.excluded: Final[dict[str, ExclusionReason]] = {}
        self.unchanged = 0  #: known files found as they were

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
            pending = [_Folder(None, "", root, self._tracked.get(""))]
            stack.callback(_close_all, pending)
            while pending:
                folder = pending[-1]
                if folder.entries is None:
                    folder.entries = self._list(folder)
                yield from self._visit(folder, pending)
                if pending[-1] is folder:
                    os.close(pending.pop().handle)

    def _list(self, folder: "_Folder") -> list["os.DirEntry[str]"]:
        """What is in ``folder`` and must be looked at one by one."""
        try:
            with os.scandir(folder.handle) as found:
                entries = list(found)
        except OSError as error:
            raise Fault("checkout_unreadable") from error
        tracked = folder.tracked
        if tracked is None:
            if folder.path and any(entry.name == ".git" for entry in entries):
                self._exclude(folder.path, "nested_repository")
                return []
            return entries
        tracked.visited = True
        return self._without_unchanged(tracked, entries) if tracked.names else entries

    def _without_unchanged(
        self, tracked: TrackedFolder, entries: list["os.DirEntry[str]"]
    ) -> list["os.DirEntry[str]"]:
        """``entries`` without the known files that are as they were; others are doubted."""
        by_name = {entry.name: entry for entry in entries}
        names = tracked.names.split("\0")
        pack, mask = STAT.pack, self._form.mask
        try:
            if tracked.newest < self._racy_from:
                seen = [by_name[name].stat(follow_symlinks=False) for name in names]
                stats = b"".join(
                    [
                        pack(
                            each.st_mtime_ns,
                            each.st_ctime_ns,
                            each.st_ino & 0xFFFFFFFF,
                            each.st_size,
                            each.st_mode & mask,
                        )
                        for each in seen
                    ]
                )
                if stats == tracked.stats:
                    self.unchanged += len(names)
                    if len(names) == len(entries):
                        return []
                    for name in names:
                        del by_name[name]
                    return list(by_name.values())
        except (KeyError, OSError, StructError):
            # One of them is absent, or has a time that no index holds.
            pass
        for position, name in enumerate(names):
            entry = by_name.get(name)
            if entry is not None and self._is_unchanged(tracked, position, entry):
                self.unchanged += 1
                del by_name[name]
            else:
                tracked.doubt(position, name)
        return list(by_name.values())

    def _is_unchanged(
        self, tracked: TrackedFolder, position: int, entry: "os.DirEntry[str]"
    ) -> bool:
        known = tracked.stats[position * STAT.size : (position + 1) * STAT.size]
        if STAT.unpack(known)[0] >= self._racy_from:
            return False
        try:
            return self._form.of_file(_stat(entry)) == known
        except StructError:
            return False

    def _visit(self, folder: "_Folder", pending: list["_Folder"]) -> Iterator[Found]:
        """Files of ``folder`` until one of its folders must be entered first."""
        entries, tracked = folder.entries, folder.tracked
        assert entries is not None
        while entries:
            entry = entries.pop()
            name = entry.name
            path = folder.prefix + name
            row = None if tracked is None else tracked.row_to_look_at(name)
            if row is None:
                found = self._judge(folder, entry, path, pending)
                if found is not None:
                    yield found
            elif entry.is_file(follow_symlinks=False):
                yield Found(path, folder.handle, name, tracked, row)
            elif entry.is_dir(follow_symlinks=False):
                # The file was replaced by a folder: its row is a deletion, this is new.
                self._enter(folder, name, path, pending)
            else:
                self._exclude(path, "symlink" if entry.is_symlink() else "special_file")
            if pending[-1] is not folder:
                return

    def _judge(
        self, folder: "_Folder", entry: "os.DirEntry[str]", path: str, pending: list["_Folder"]
    ) -> Found | None:
        """What to do with a name that is not a file of the index."""
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and path in self._tracked:
            self._enter(folder, entry.name, path, pending)
            return None
        if path in self._settled or path == ".git":
            return None
        reason = self._untracked_reason(folder, entry, path, is_folder=is_folder)
        if reason is not None:
            self._exclude(path, reason)
            return None
        self._bounds.check_path(path)
        if is_folder:
            self._enter(folder, entry.name, path, pending)
            return None
        return Found(path, folder.handle, entry.name, None, None)

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

    def _enter(self, folder: "_Folder", name: str, path: str, pending: list["_Folder"]) -> None:
        self._bounds.check_path(path)
        try:
            handle = open_folder(folder.handle, name)
        except PermissionError:
            self._exclude(path, "unreadable")
            return
        pending.append(_Folder(folder, path, handle, self._tracked.get(path)))

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

    def __init__(
        self, parent: "_Folder | None", path: str, handle: int, tracked: TrackedFolder | None
    ) -> None:
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
