"""Stage a checkout: its files as an immutable tree, filtered; nothing in the checkout changes.

A tracked file whose stat is that of the index is taken by its git id. Any other file is
read once; if it still is what the index names it is taken by id too, else it is new
content. The result depends on content only: stat decides what is read, not what is staged.

What is excluded from the stage is left out of the base tree as well (a secret, a link, a
submodule must not look like a deletion), except what a person took out of the checkout.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.stage.blobs import Blobs, Judged
from broker.stage.bounds import PRODUCT_BOUNDS, StageBounds
from broker.stage.checkout import (
    MODE_GITLINK,
    MODE_SYMLINK,
    Checkout,
    Index,
    IndexRow,
    open_checkout,
)
from broker.stage.commit_tree import list_commit_tree
from broker.stage.content_cache import MARK_PLAIN, ContentCache
from broker.stage.exclusions import needs_content
from broker.stage.names import PathJudge, collisions, folders_of, is_below_any, printable
from broker.stage.openat import read_file
from broker.stage.store import Blob, BlobId, BlobStore
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry, StagedTree
from broker.stage.walking import Found, Walk
from protocol.decision_codes import ExclusionReason
from protocol.errors import Refusal
from protocol.ids import CommitSha, RepoPath

__all__ = ["Excluded", "StageBounds", "Staged", "stage_checkout"]

_TYPE_MASK: Final = 0o170000
_REGULAR: Final = 0o100000
_OWNER_EXECUTES: Final = 0o100


@dataclass(frozen=True, slots=True)
class Excluded:
    """A path of the checkout that is not in the stage. ``path`` is safe to print, not to open."""

    path: str
    reason: ExclusionReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A staged checkout. Both trees are in one store, which the owner closes."""

    tree: StagedTree
    base_commit: CommitSha | None  #: ``None`` on an unborn branch
    base_tree: StagedTree  #: the commit's files under the same filters
    excluded: tuple[Excluded, ...]  #: sorted; a folder stands for all below it
    tracked: int  #: files in ``tree`` that git tracks
    untracked: int  #: files in ``tree`` that it does not
    converted: tuple[RepoPath, ...]  #: unchanged but for line ends or LFS: staged as git holds them
    pointers: tuple[RepoPath, ...]  #: LFS pointers, staged as pointers


def stage_checkout(
    directory: Path,
    *,
    scratch: Path,
    ref: str | None = None,
    bounds: StageBounds = PRODUCT_BOUNDS,
    cache: Path | None = None,
) -> Staged:
    """Stage the checkout whose top level is ``directory``.

    ``scratch`` is an existing folder for new content. With ``ref`` that commit's files are
    staged and the working tree is not looked at (the only way for a bare repository).
    ``cache`` is a folder of the caller's that makes a second staging read only what changed.

    Raises ``Refusal`` (what ``open_checkout`` raises; a bound, with the figure;
    ``ref_not_found``; ``checkout_partial``; ``checkout_changed``) or ``Fault``.
    """
    checkout = open_checkout(directory)
    if checkout.root is None and ref is None:
        raise Refusal("not_a_checkout")
    store = BlobStore.open(scratch, alternates=(checkout.objects,))
    try:
        known = ContentCache.load(cache, checkout.objects)
        staging = _Staging(checkout, store, Blobs(store, known, bounds), bounds)
        staged = staging.of_commit(ref) if ref is not None else staging.of_working_tree()
    except BaseException:
        store.close()
        raise
    known.save()
    return staged


class _Staging:
    """One staging, as far as it is."""

    def __init__(
        self, checkout: Checkout, store: BlobStore, blobs: Blobs, bounds: StageBounds
    ) -> None:
        self._checkout: Final = checkout
        self._store: Final = store
        self._blobs: Final = blobs
        self._bounds: Final = bounds
        self._names: Final = PathJudge(bounds)
        #: Printable path to reason: left out of the stage and of the base.
        self._hidden: Final[dict[str, ExclusionReason]] = self._names.excluded
        #: The same, but left out of the stage only.
        self._absent: Final[dict[str, ExclusionReason]] = {}
        self._files: Final[dict[RepoPath, Entry]] = {}
        self._untracked: Final[set[RepoPath]] = set()
        self._converted: Final[list[RepoPath]] = []
        self._pointers: Final[list[RepoPath]] = []
        self._bytes = 0

    def of_commit(self, ref: str) -> Staged:
        commit = self._checkout.commit(ref)
        assert commit is not None
        listed = list_commit_tree(self._store, commit[1], self._bounds)
        for path, (mode, oid) in self._regular(listed).items():
            self._add_judged(path, mode, self._blobs.of_git(path, oid))
        self._hide_collisions(self._files)
        self._drop_hidden(self._files)
        tree = StagedTree.build(self._store, self._files)
        return self._staged(tree, commit[0], tree)

    def of_working_tree(self) -> Staged:
        commit = self._checkout.commit(None)
        index = self._checkout.index()
        rows = self._rows(index)
        prepared = self._prepared(rows)
        self._take_working_files(index, rows, prepared)
        self._take_missing(rows)
        base: dict[RepoPath, Entry] = {}
        if commit is not None:
            base = self._base_files(commit[1], index, rows, prepared)
            if base.keys() != self._files.keys():
                self._hide_collisions(base)
        self._hide_collisions(self._files)
        self._drop_hidden(self._files)
        self._drop_hidden(base)
        tree = StagedTree.build(self._store, self._files)
        self._bounds.check_count(tree.files)
        self._bounds.check_total(tree.bytes)
        return self._staged(tree, commit and commit[0], _variant(tree, self._files, base))

    def _rows(self, index: Index) -> dict[str, IndexRow]:
        for raw in index.unmerged:
            if self._names.text_of(raw) is not None:
                self._hidden[printable(raw)] = "unmerged"
        listed = {raw: (row.mode, row.oid) for raw, row in index.rows.items()}
        texts = self._regular(listed)
        return {path: index.rows[path.encode()] for path in texts}

    def _regular(self, listed: Mapping[bytes, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
        """The regular files of ``listed`` by text; the others are noted as hidden."""
        regular: dict[str, tuple[int, bytes]] = {}
        for raw, value in listed.items():
            path = self._names.text_of(raw)
            if path is None:
                continue
            kind = value[0] & _TYPE_MASK
            if kind == _REGULAR:
                regular[path] = value
            elif kind == MODE_SYMLINK:
                self._hidden[printable(raw)] = "symlink"
            elif kind == MODE_GITLINK:
                self._hidden[printable(raw)] = "submodule"
            else:
                self._hidden[printable(raw)] = "special_file"
        self._bounds.check_count(len(regular))
        return regular

    def _prepared(self, rows: Mapping[str, IndexRow]) -> dict[RepoPath, Entry]:
        """The index's own entry of each row whose content is known and harmless."""
        prepared: dict[RepoPath, Entry] = {}
        for path, row in rows.items():
            oid = row.oid
            known = self._blobs.known(oid)
            if known is None or known.mark != MARK_PLAIN or known.size != row.size:
                continue
            if known.size > self._bounds.file_bytes:
                continue
            if row.is_plain and not needs_content(path.rpartition("/")[2]):
                blob = Blob(BlobId(oid), known.size, known.digest)
                prepared[RepoPath(path)] = Entry(_mode(row.mode), blob)
        return prepared

    def _take_working_files(
        self, index: Index, rows: Mapping[str, IndexRow], prepared: Mapping[RepoPath, Entry]
    ) -> None:
        walk = Walk(
            self._checkout,
            index=index,
            rows=rows,
            prepared=prepared,
            folders=frozenset(folders_of(rows)),
            settled=self._hidden,
            bounds=self._bounds,
        )
        for found in walk.files():
            row = found.row
            if row is None:
                self._bounds.check_count(len(self._files) + len(walk.unchanged) + 1)
                self._take_untracked(found)
            elif not row.from_index:
                self._take_tracked(found, row)
        self._files.update(walk.unchanged)
        for path, reason in walk.excluded.items():
            untracked_only = reason in ("ignored", "build_output", "dependencies")
            (self._absent if untracked_only else self._hidden).setdefault(path, reason)

    def _take_untracked(self, found: Found) -> None:
        data = self._read(found)
        if data is not None:
            self._untracked.add(RepoPath(found.path))
            self._add_judged(found.path, found.mode, self._blobs.of_new(found.path, data))

    def _take_tracked(self, found: Found, row: IndexRow) -> None:
        path = RepoPath(found.path)
        if found.clean and not row.intent_to_add and self._blobs.known(row.oid) is not None:
            judged = self._blobs.of_git(path, row.oid)
            if judged.blob is not None and judged.blob.size != found.stat.st_size:
                self._converted.append(path)
            self._add_judged(path, found.mode, judged)
            return
        data = self._read(found)
        if data is None:
            return
        if row.intent_to_add:
            judged = self._blobs.of_new(path, data)
        elif self._blobs.is_git(row.oid, data):
            judged = self._blobs.of_same(path, row.oid, data)
        elif found.clean or self._is_converted(path, row, data):
            # Git holds other bytes and yet calls the file unchanged: a conversion.
            self._converted.append(path)
            judged = self._blobs.of_git(path, row.oid)
        else:
            judged = self._blobs.of_new(path, data)
        self._add_judged(path, found.mode, judged)

    def _read(self, found: Found) -> bytes | None:
        self._bounds.check_total(self._bytes + found.stat.st_size)
        try:
            data, _ = read_file(found.folder, found.name, self._bounds)
        except PermissionError:
            self._hidden[printable(found.path.encode())] = "unreadable"
            return None
        return data

    def _is_converted(self, path: str, row: IndexRow, data: bytes) -> bool:
        if b"\r\n" in data and self._blobs.is_git(row.oid, data.replace(b"\r\n", b"\n")):
            text = self._checkout.attribute(path, "text")
            if text is False:
                return False
            automatic = self._checkout.text("core.autocrlf") in ("true", "input")
            ends = self._checkout.attribute(path, "eol")
            return automatic or text is not None or ends is not None
        return self._blobs.is_pointer_to(row.oid, data)

    def _take_missing(self, rows: Mapping[str, IndexRow]) -> None:
        """Rows of the index that the working tree did not give."""
        for path, row in rows.items():
            if path in self._files or is_below_any(path, self._hidden):
                continue
            if row.from_index:
                self._add_judged(path, _mode(row.mode), self._blobs.of_git(path, row.oid))
            else:
                self._absent[path] = "deleted_in_checkout"

    def _base_files(
        self,
        root: bytes,
        index: Index,
        rows: Mapping[str, IndexRow],
        prepared: Mapping[RepoPath, Entry],
    ) -> dict[RepoPath, Entry]:
        if self._blobs.is_bounded(root):
            return self._base_by_difference(root, index, rows, prepared)
        listed = list_commit_tree(self._store, root, self._bounds)
        self._blobs.note_bounded(root, len(listed))
        return self._base_of(listed)

    def _base_by_difference(
        self,
        root: bytes,
        index: Index,
        rows: Mapping[str, IndexRow],
        prepared: Mapping[RepoPath, Entry],
    ) -> dict[RepoPath, Entry]:
        """The same files, by what differs from the index, which is little or nothing."""
        other = self._checkout.index_differences(root) | index.unmerged | index.intended
        listed = self._checkout.tree_entries(root, other)
        base = dict(prepared)
        for raw in other:
            base.pop(RepoPath(os.fsdecode(raw)), None)
        for text, row in rows.items():
            if text not in prepared and (raw := text.encode()) not in other:
                listed[raw] = (row.mode, row.oid)
        base.update(self._base_of(listed))
        return base

    def _base_of(self, listed: Mapping[bytes, tuple[int, bytes]]) -> dict[RepoPath, Entry]:
        base: dict[RepoPath, Entry] = {}
        for text, (git_mode, oid) in self._regular(listed).items():
            path, mode = RepoPath(text), _mode(git_mode)
            staged = self._files.get(path)
            if staged is not None and staged.blob.oid == oid:
                base[path] = staged if staged.mode == mode else Entry(mode, staged.blob)
                continue
            if path in self._hidden:
                continue
            judged = self._blobs.of_git(path, oid)
            if judged.blob is not None:
                base[path] = Entry(mode, judged.blob)
            elif judged.reason is not None:
                self._hidden[path] = judged.reason
        return base

    def _add_judged(self, path: str, mode: int, judged: Judged) -> None:
        if judged.reason is not None or judged.blob is None:
            self._hidden[path] = judged.reason or "unreadable"
            return
        self._bytes += judged.blob.size
        self._bounds.check_total(self._bytes)
        self._files[RepoPath(path)] = Entry(_mode(mode), judged.blob)
        if judged.is_pointer:
            self._pointers.append(RepoPath(path))

    def _hide_collisions(self, files: Mapping[RepoPath, Entry]) -> None:
        for path in collisions(files.keys()):
            self._hidden[path] = "name_collision"

    def _drop_hidden(self, files: dict[RepoPath, Entry]) -> None:
        if not self._hidden:
            return
        for path in [path for path in files if is_below_any(path, self._hidden)]:
            del files[path]

    def _staged(self, tree: StagedTree, commit: CommitSha | None, base: StagedTree) -> Staged:
        reasons = {**self._absent, **self._hidden}
        untracked = sum(path in self._files for path in self._untracked)
        return Staged(
            tree=tree,
            base_commit=commit,
            base_tree=base,
            excluded=tuple(Excluded(path, reasons[path]) for path in sorted(reasons)),
            tracked=tree.files - untracked,
            untracked=untracked,
            converted=tuple(sorted(path for path in self._converted if path in self._files)),
            pointers=tuple(sorted(path for path in self._pointers if path in self._files)),
        )


def _mode(git_mode: int) -> int:
    """The one of two modes that ``git_mode`` (of git or of a stat) stands for."""
    return MODE_EXECUTABLE if git_mode & _OWNER_EXECUTES else MODE_FILE


def _variant(
    tree: StagedTree, files: Mapping[RepoPath, Entry], wanted: Mapping[RepoPath, Entry]
) -> StagedTree:
    """The tree of ``wanted``, made from ``tree`` (of ``files``), which mostly equals it."""
    changes: dict[RepoPath, Entry | None] = {
        path: entry for path, entry in wanted.items() if files.get(path) is not entry
    }
    changes.update((path, None) for path in files if path not in wanted)
    return tree.replace(changes)
