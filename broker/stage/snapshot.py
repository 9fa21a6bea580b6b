"""Stage a checkout: its files as an immutable tree, filtered; nothing in the checkout changes.

A tracked file whose stat is that of the index is taken by its git id. Any other file is
read once; if it still is what the index names it is taken by id too, else it is new
content. The result depends on content only: stat decides what is read, not what is staged.

What is excluded from the stage is left out of the base tree as well (a secret, a link, a
submodule must not look like a deletion), except what a person took out of the checkout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from broker.stage.blobs import Blobs
from broker.stage.bounds import PRODUCT_BOUNDS, StageBounds
from broker.stage.checkout import Checkout, open_checkout
from broker.stage.commit_tree import CommitTree, list_commit_tree
from broker.stage.content_cache import ContentCache
from broker.stage.exclusions import needs_content
from broker.stage.index_file import IndexBytes, parse_index
from broker.stage.index_judging import IndexJudge, reason_of_kind
from broker.stage.index_memory import IndexMemory
from broker.stage.names import PathJudge, collisions, is_below_any, printable, twins_in
from broker.stage.store import BlobStore
from broker.stage.taking import Taken, WorkingFiles
from broker.stage.tracking import StatForm, TrackedFolder, mode_of
from broker.stage.tree import Entry, FolderSource, StagedTree
from protocol.decision_codes import ExclusionReason
from protocol.errors import Refusal
from protocol.ids import CommitSha, RepoPath

__all__ = ["Excluded", "StageBounds", "Staged", "stage_checkout"]


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
        staging = _Staging(checkout, store, Blobs(store, known, bounds), bounds, cache)
        staged = staging.of_commit(ref) if ref is not None else staging.of_working_tree()
    except BaseException:
        store.close()
        raise
    known.save()
    return staged


class _Tracked(msgspec.Struct, frozen=True):
    """What the index says, and the git tree ids of its folders."""

    folders: Mapping[str, TrackedFolder]
    hidden: dict[str, ExclusionReason]
    tree_ids: Mapping[str, bytes]
    remembered: bool


class _Staging:
    """One staging, as far as it is."""

    def __init__(
        self,
        checkout: Checkout,
        store: BlobStore,
        blobs: Blobs,
        bounds: StageBounds,
        cache: Path | None,
    ) -> None:
        self._checkout: Final = checkout
        self._store: Final = store
        self._blobs: Final = blobs
        self._bounds: Final = bounds
        self._cache: Final = cache
        self._taken: Final = Taken(bounds)
        self._hidden: Final = self._taken.hidden
        self._names: Final = PathJudge(bounds, self._hidden)

    def of_commit(self, ref: str) -> Staged:
        commit = self._checkout.commit(ref)
        assert commit is not None
        listed = list_commit_tree(self._store, commit[1], self._bounds).files
        for path, (mode, oid) in self._regular(listed).items():
            self._taken.add(path, mode, self._blobs.of_git(path, oid))
        tree = StagedTree.build(self._store, self._taken.files)
        self._hide_collisions((tree, None))
        tree = self._without_hidden(tree)
        return self._staged(tree, commit[0], tree)

    def of_working_tree(self) -> Staged:
        commit = self._checkout.commit(None)
        root = None if commit is None else commit[1]
        file = self._checkout.index()
        own_modes = self._checkout.flag("core.fileMode", default=True)
        form = StatForm(own_modes=own_modes)
        memory = self._memory(file, root, own_modes=own_modes)
        index = self._tracked(file, memory, root, form)
        folders = index.folders
        WorkingFiles(
            self._checkout,
            self._blobs,
            self._taken,
            own_modes=own_modes,
            racy_from=file.racy_from,
            bounds=self._bounds,
        ).take(folders, form)
        listing = CommitTree(files={}, same=frozenset())
        if root is not None:
            listing = list_commit_tree(self._store, root, self._bounds, known=index.tree_ids)
        whole = "" in listing.same
        if whole:
            self._learn_changed(folders)
        learned = _settle(folders, form)
        indexed = _tree_of(self._store, folders)
        tree = indexed.replace(self._changes(folders))
        base = self._base_tree(listing, indexed, folders)
        collide = self._hide_collisions((indexed, None), (tree, indexed), (base, indexed))
        if whole and not collide and (learned or not index.remembered):
            memory.keep(folders.values(), indexed, index.hidden)
        return self._staged(
            self._without_hidden(tree), commit and commit[0], self._without_hidden(base)
        )

    def _memory(self, file: IndexBytes, root: bytes | None, *, own_modes: bool) -> IndexMemory:
        return IndexMemory.of(
            None if root is None else self._cache,
            self._checkout.git_folder,
            index=file.data,
            commit_tree=root or b"",
            own_modes=own_modes,
            bounds=self._bounds,
        )

    def _tracked(
        self, file: IndexBytes, memory: IndexMemory, root: bytes | None, form: StatForm
    ) -> _Tracked:
        remembered = memory.recall()
        if remembered is not None and root is not None:
            self._hidden.update(remembered.hidden)
            # Only an index that is all of its commit is remembered.
            return _Tracked(remembered.folders, {}, {"": root}, remembered=True)
        index = parse_index(file)
        judge = IndexJudge(
            self._names, self._blobs, hidden=self._hidden, form=form, bounds=self._bounds
        )
        folders = judge.folders(index)
        return _Tracked(folders, dict(self._hidden), index.tree_ids(), remembered=False)

    def _regular(self, listed: Mapping[bytes, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
        """The regular files of ``listed`` by text; the others are noted as hidden."""
        regular: dict[str, tuple[int, bytes]] = {}
        for raw, value in listed.items():
            path = self._names.text_of(raw)
            if path is None:
                continue
            reason = reason_of_kind(value[0])
            if reason is None:
                regular[path] = value
            else:
                self._hidden[printable(raw)] = reason
        self._bounds.check_count(len(regular))
        return regular

    def _learn_changed(self, folders: Mapping[str, TrackedFolder]) -> None:
        """Know what the index has of files that were changed, which the base needs too."""
        for folder in folders.values():
            for name, row in folder.rows.items():
                path = folder.prefix + name
                if row.marks or name in folder.learned or needs_content(name):
                    continue
                if path in self._hidden or path not in self._taken.files:
                    continue
                judged = self._blobs.of_git(path, row.oid)
                if judged.blob is None or judged.is_pointer or judged.blob.size != row.size:
                    continue
                folder.learned[name] = Entry(mode_of(row.mode), judged.blob)
                folder.doubtful[name] = row

    def _changes(self, folders: Mapping[str, TrackedFolder]) -> dict[RepoPath, Entry | None]:
        """What makes the stage of the index's known files."""
        changes: dict[RepoPath, Entry | None] = {
            RepoPath(folder.prefix + name): None
            for folder in folders.values()
            for name in folder.doubtful
        }
        changes.update(self._taken.files)
        return changes

    def _base_tree(
        self, listing: CommitTree, indexed: StagedTree, folders: Mapping[str, TrackedFolder]
    ) -> StagedTree:
        """The commit's files: those of the index, but for what ``listing`` has otherwise."""
        changes: dict[RepoPath, Entry | None] = {}
        wanted = dict(listing.files)
        for path, folder in folders.items():
            if "" in listing.same or is_below_any(path, listing.same):
                wanted.update(
                    ((folder.prefix + name).encode(), (row.mode, row.oid))
                    for name, row in folder.rows.items()
                    if not row.intent_to_add
                )
                continue
            for name, entry in folder.entries.items():
                file = folder.prefix + name
                if wanted.get(file.encode()) == (entry.mode, entry.blob.oid):
                    del wanted[file.encode()]
                else:
                    changes[RepoPath(file)] = None
        changes.update(self._base_of(wanted))
        return indexed.replace(changes)

    def _base_of(self, listed: Mapping[bytes, tuple[int, bytes]]) -> dict[RepoPath, Entry]:
        base: dict[RepoPath, Entry] = {}
        for text, (git_mode, oid) in self._regular(listed).items():
            path, mode = RepoPath(text), mode_of(git_mode)
            staged = self._taken.files.get(path)
            if staged is not None and staged.blob.oid == oid:
                base[path] = Entry(mode, staged.blob)
                continue
            if path in self._hidden:
                continue
            judged = self._blobs.of_git(path, oid)
            if judged.blob is not None:
                base[path] = Entry(mode, judged.blob)
            elif judged.reason is not None:
                self._hidden[path] = judged.reason
        return base

    def _hide_collisions(self, *trees: tuple[StagedTree, StagedTree | None]) -> bool:
        """Whether there are any; each tree comes with one that was looked at before it."""
        collide = False
        for tree, before in trees:
            collide = collide or any(map(twins_in, tree.folders_apart(before)))
        if collide:
            # The last two are those that will be used.
            for tree, _ in trees[-2:]:
                for path in collisions(tree.paths):
                    self._hidden[path] = "name_collision"
        return collide

    def _without_hidden(self, tree: StagedTree) -> StagedTree:
        gone: dict[RepoPath, Entry | None] = {}
        for path in self._hidden:
            if tree.get(path) is not None:
                gone[RepoPath(path)] = None
            else:
                gone.update((below, None) for below, _ in tree.items(path))
        return tree.replace(gone) if gone else tree

    def _staged(self, tree: StagedTree, commit: CommitSha | None, base: StagedTree) -> Staged:
        self._bounds.check_count(tree.files)
        self._bounds.check_total(tree.bytes)
        reasons = {**self._taken.absent, **self._hidden}
        untracked = sum(tree.get(path) is not None for path in self._taken.untracked)
        return Staged(
            tree=tree,
            base_commit=commit,
            base_tree=base,
            excluded=tuple(Excluded(path, reasons[path]) for path in sorted(reasons)),
            tracked=tree.files - untracked,
            untracked=untracked,
            converted=tuple(sorted(filter(tree.get, self._taken.converted))),
            pointers=tuple(sorted(filter(tree.get, self._taken.pointers))),
        )


def _settle(folders: Mapping[str, TrackedFolder], form: StatForm) -> bool:
    """Count what was learned to what is known; whether anything was."""
    settled = False
    for folder in folders.values():
        if folder.learned:
            settled = True
            folder.know(folder.learned, folder.rows, form)
            for name in folder.learned:
                del folder.rows[name]
    if settled:
        # The totals of the folders above are those of before.
        for folder in folders.values():
            folder.totals = None
    return settled


def _tree_of(store: BlobStore, folders: Mapping[str, TrackedFolder]) -> StagedTree:
    """The tree of all known files."""
    return StagedTree.of_folders(
        store,
        [
            FolderSource(path, partial(_entries_of, folder), folder.totals)
            for path, folder in folders.items()
        ],
    )


def _entries_of(folder: TrackedFolder) -> Mapping[str, Entry]:
    return folder.entries
