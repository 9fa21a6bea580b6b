"""Files of a working tree taken into a stage: read at most once, named by git where it has them.

A file whose content is that of its row in the index is taken by its git id, others are
new content. What a file is depends on its bytes; its stat only decides whether they are
read. Nothing in the checkout is written.
"""

import os
from collections.abc import Mapping
from typing import Final

from broker.stage.blobs import Blobs, Judged
from broker.stage.bounds import StageBounds
from broker.stage.checkout import Checkout
from broker.stage.content_cache import MARK_PLAIN
from broker.stage.exclusions import needs_content
from broker.stage.index_file import IndexRow
from broker.stage.names import is_below_any, printable
from broker.stage.openat import read_file, read_once
from broker.stage.store import Blob, BlobId
from broker.stage.tracking import StatForm, TrackedFolder, mode_of
from broker.stage.tree import Entry
from broker.stage.walking import Found, Walk
from protocol.decision_codes import ExclusionReason
from protocol.errors import Refusal
from protocol.ids import RepoPath

__all__ = ["Taken", "WorkingFiles"]


class Taken:
    """What is taken so far, and what is left out and why, by printable path."""

    def __init__(self, bounds: StageBounds) -> None:
        self._bounds: Final = bounds
        self._bytes = 0
        self.count = 0  #: files, but for those that needed no look
        #: What is staged but for files that are as the index has them.
        self.files: Final[dict[RepoPath, Entry]] = {}
        #: Left out of the stage and of the base.
        self.hidden: Final[dict[str, ExclusionReason]] = {}
        #: Left out of the stage only.
        self.absent: Final[dict[str, ExclusionReason]] = {}
        self.untracked: Final[set[RepoPath]] = set()
        self.converted: Final[list[RepoPath]] = []
        self.pointers: Final[list[RepoPath]] = []

    def add(self, path: str, mode: int, judged: Judged) -> None:
        """Take a file, or note why not. Raises ``Refusal`` for the bound on all bytes."""
        if judged.reason is not None or judged.blob is None:
            self.hidden[path] = judged.reason or "unreadable"
            return
        self.add_size(judged.blob.size)
        self.files[RepoPath(path)] = Entry(mode_of(mode), judged.blob)
        if judged.is_pointer:
            self.pointers.append(RepoPath(path))

    def add_size(self, size: int) -> None:
        """Count one more file of ``size`` bytes."""
        self.count += 1
        self._bytes += size
        self._bounds.check_total(self._bytes)


class WorkingFiles:
    """Takes the files of one working tree into ``taken``."""

    def __init__(
        self,
        checkout: Checkout,
        blobs: Blobs,
        taken: Taken,
        *,
        own_modes: bool,
        racy_from: int,
        bounds: StageBounds,
    ) -> None:
        self._checkout: Final = checkout
        self._blobs: Final = blobs
        self._taken: Final = taken
        self._own_modes: Final = own_modes
        self._racy_from: Final = racy_from
        self._bounds: Final = bounds

    def take(self, folders: Mapping[str, TrackedFolder], form: StatForm) -> None:
        """Take every file that git tracks, or neither tracks nor ignores, and note the rest.

        Files that are as the index has them are left to ``folders``, which learn what was
        read of them. Raises what a ``Walk`` raises, and ``Refusal`` for a bound.
        """
        taken = self._taken
        walk = Walk(
            self._checkout,
            tracked=folders,
            racy_from=self._racy_from,
            form=form,
            settled=taken.hidden,
            bounds=self._bounds,
        )
        for found in walk.files():
            if found.row is None or found.tracked is None:
                self._bounds.check_count(taken.count + walk.unchanged + 1)
                self._take_untracked(found)
            elif not found.row.from_index:
                self._take_tracked(found, found.row, found.tracked)
        for path, reason in walk.excluded.items():
            untracked_only = reason in ("ignored", "build_output", "dependencies")
            (taken.absent if untracked_only else taken.hidden).setdefault(path, reason)
        self._take_missing(folders)

    def _take_untracked(self, found: Found) -> None:
        try:
            data, stat = read_file(found.folder, found.name, self._bounds)
        except PermissionError:
            self._hide_unreadable(found)
            return
        self._taken.untracked.add(RepoPath(found.path))
        mode = stat.st_mode if self._own_modes else 0
        self._taken.add(found.path, mode, self._blobs.of_new(found.path, data))

    def _take_tracked(self, found: Found, row: IndexRow, folder: TrackedFolder) -> None:
        if found.name not in folder.doubtful and self._take_known(found, row):
            return
        try:
            data, stat = read_once(found.folder, found.name, self._bounds)
            known = None if row.intent_to_add else self._blobs.learn(row.oid, data)
            if known is None:
                data, stat = read_file(found.folder, found.name, self._bounds)
                known = None if row.intent_to_add else self._blobs.learn(row.oid, data)
        except PermissionError:
            self._hide_unreadable(found)
            return
        mode = mode_of(stat.st_mode if self._own_modes else row.mode)
        if known is None:
            self._take_other(RepoPath(found.path), row, data, stat, mode)
        elif (
            # All that its row says: it need not be read again.
            known.mark == MARK_PLAIN
            and known.size == row.size
            and mode == mode_of(row.mode)
            and not row.marks
            and found.name not in folder.doubtful
            and not (found.name in folder.suspects and needs_content(found.name))
        ):
            self._taken.add_size(known.size)
            folder.learned[found.name] = Entry(
                mode, Blob(BlobId(row.oid), known.size, known.digest)
            )
        else:
            self._taken.add(found.path, mode, self._blobs.of_same(found.path, row.oid, known, data))

    def _take_known(self, found: Found, row: IndexRow) -> bool:
        """Take a clean file whose content is known, though its name or kind must be judged."""
        if row.intent_to_add or self._blobs.known(row.oid) is None:
            return False
        try:
            stat = os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
        except OSError as error:
            raise Refusal("checkout_changed") from error
        if not row.is_clean(stat, self._racy_from):
            return False
        judged = self._blobs.of_git(found.path, row.oid)
        if judged.blob is not None and judged.blob.size != stat.st_size:
            self._taken.converted.append(RepoPath(found.path))
        self._taken.add(found.path, stat.st_mode if self._own_modes else row.mode, judged)
        return True

    def _take_other(
        self, path: RepoPath, row: IndexRow, data: bytes, stat: os.stat_result, mode: int
    ) -> None:
        """Take a tracked file that holds other bytes than its row names."""
        if not row.intent_to_add and (
            row.is_clean(stat, self._racy_from) or self._is_converted(path, row, data)
        ):
            # Git holds other bytes and yet calls the file unchanged: a conversion.
            self._taken.converted.append(path)
            self._taken.add(path, mode, self._blobs.of_git(path, row.oid))
        else:
            self._taken.add(path, mode, self._blobs.of_new(path, data))

    def _is_converted(self, path: str, row: IndexRow, data: bytes) -> bool:
        if b"\r\n" in data and self._blobs.is_git(row.oid, data.replace(b"\r\n", b"\n")):
            text = self._checkout.attribute(path, "text")
            if text is False:
                return False
            automatic = self._checkout.text("core.autocrlf") in ("true", "input")
            ends = self._checkout.attribute(path, "eol")
            return automatic or text is not None or ends is not None
        return self._blobs.is_pointer_to(row.oid, data)

    def _take_missing(self, folders: Mapping[str, TrackedFolder]) -> None:
        """Rows of the index that the working tree did not give."""
        taken = self._taken
        for folder in folders.values():
            if not folder.visited:
                folder.doubt_all()
            for name, row in (*folder.rows.items(), *folder.doubtful.items()):
                path = folder.prefix + name
                if name in folder.learned or path in taken.files:
                    continue
                if is_below_any(path, taken.hidden):
                    continue
                if row.from_index:
                    taken.add(path, row.mode, self._blobs.of_git(path, row.oid))
                else:
                    taken.absent[path] = "deleted_in_checkout"

    def _hide_unreadable(self, found: Found) -> None:
        self._taken.hidden[printable(found.path.encode())] = "unreadable"
