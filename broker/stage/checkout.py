"""A git checkout through libgit2: opened, its commit, its index; never written, no program run.

Only top levels are opened: a search upwards could pick up a repository that the caller
did not name. libgit2 checks who owns the checkout as git does (``safe.directory``): a
checkout of another user is refused, also to root, for whom only the user that called
``sudo`` counts as itself. Nothing here refreshes the index.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec
import pygit2
from pygit2.enums import AttrCheck, RepositoryOpenFlag
from pygit2.ffi import C, ffi

from protocol.errors import Fault, Refusal
from protocol.ids import CommitSha
from protocol.refusal_codes import RefusalCode

MODE_SYMLINK: Final = 0o120000
MODE_GITLINK: Final = 0o160000

_STAGE_MASK: Final = 0x3000
_ASSUME_UNCHANGED: Final = 0x8000
_SKIP_WORKTREE: Final = 1 << 14
_INTENT_TO_ADD: Final = 1 << 13
_LOW_32: Final = 0xFFFFFFFF

#: libgit2 tells these apart only by its message; the words are fixed in its source.
_OPEN_REFUSALS: Final[tuple[tuple[str, RefusalCode], ...]] = (
    ("not owned by current user", "checkout_not_owned"),
    ("extensions.partialclone", "checkout_partial"),
    ("unsupported extension", "stage_unsupported"),
    ("unsupported repository version", "stage_unsupported"),
    ("object format", "stage_unsupported"),
    ("epository not found", "not_a_checkout"),
    ("ould not find repository", "not_a_checkout"),
)


class IndexRow(msgspec.Struct, frozen=True, gc=False):
    """One path of the index at stage 0, as git stores it: what it is and its stat when clean."""

    changed_seconds: int
    changed_nanoseconds: int
    modified_seconds: int
    modified_nanoseconds: int
    device: int
    inode: int  #: modulo 2**32
    mode: int
    user: int
    group: int
    size: int  #: bytes of the file in the working tree, modulo 2**32
    oid: bytes
    flags: int
    extended_flags: int

    @property
    def is_plain(self) -> bool:
        """Neither of the two below: the working tree decides, the index has the content."""
        return not (self.extended_flags or self.flags & _ASSUME_UNCHANGED)

    @property
    def from_index(self) -> bool:
        """Skip-worktree or assume-unchanged: the working tree has no say."""
        return bool(self.flags & _ASSUME_UNCHANGED or self.extended_flags & _SKIP_WORKTREE)

    @property
    def intent_to_add(self) -> bool:
        """Tracked by name only: the index has no content for it."""
        return bool(self.extended_flags & _INTENT_TO_ADD)


#: ``git_index_entry`` of libgit2's public header up to its path, in machine order.
_ENTRY: Final = Struct("=iIiIIIIIII20sHH")
assert ffi.offsetof("git_index_entry", "path") == _ENTRY.size
assert ffi.offsetof("git_index_entry", "id") == 40


class Index(msgspec.Struct, frozen=True):
    """The index as it was read. Keys are path bytes; nothing about them was checked."""

    rows: dict[bytes, IndexRow]
    unmerged: frozenset[bytes]
    intended: frozenset[bytes]  #: keys of ``rows`` whose content the index does not have
    racy_from: int  #: nanoseconds; a file modified at or after it may differ unseen


class Checkout:
    """An open checkout. ``root`` is ``None`` for a bare repository."""

    def __init__(self, repository: pygit2.Repository) -> None:
        self._repository: Final = repository
        # pygit2 types it as a text; a bare repository has none.
        work: str | None = repository.workdir
        self.root: Final = Path(os.path.realpath(work)) if work else None
        self.git_folder: Final = Path(repository.path)
        self.common_folder: Final = _common_folder(self.git_folder)
        self.objects: Final = self.common_folder / "objects"

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean of git's configuration, such as ``core.fileMode``."""
        try:
            return self._repository.config.get_bool(name)
        except (KeyError, ValueError, pygit2.GitError):
            return default

    def text(self, name: str) -> str | None:
        """A text of git's configuration, or ``None``."""
        try:
            return self._repository.config[name]
        except (KeyError, ValueError, pygit2.GitError):
            return None

    def attribute(self, path: str, name: str) -> str | bool | None:
        """A git attribute of ``path`` as the index has it; it is read and never acted on.

        The working tree's attribute files are not opened: libgit2 would open them by path,
        through a link and for ever on a FIFO.
        """
        with _reading():
            return self._repository.get_attr(path, name, AttrCheck.INDEX_ONLY)

    def commit(self, ref: str | None) -> tuple[CommitSha, bytes] | None:
        """The commit that ``ref`` (``None``: HEAD) names, and its tree's id.

        ``None`` when HEAD is an unborn branch. Raises ``Refusal("ref_not_found")``, or
        ``Refusal("checkout_partial")`` when HEAD's commit is missing.
        """
        if ref is None:
            return self._head()
        try:
            commit = self._repository.revparse_single(ref).peel(pygit2.Commit)
        except (KeyError, ValueError, pygit2.GitError) as error:
            raise Refusal("ref_not_found") from error
        return CommitSha(str(commit.id)), commit.tree_id.raw

    def _head(self) -> tuple[CommitSha, bytes] | None:
        with _reading():
            if self._repository.head_is_unborn:
                return None
            target = self._repository.head.target
            found: object = self._repository.get(target)
        if not isinstance(found, pygit2.Commit):
            raise Refusal("checkout_partial")
        return CommitSha(str(found.id)), found.tree_id.raw

    def index_differences(self, tree: bytes) -> set[bytes]:
        """The paths at which the index (as last read) and a commit's tree differ.

        The whole tree is unfolded, so the caller must know that it is bounded.
        """
        with _reading():
            found = self._repository.index.diff_to_tree(self._tree(tree))
            return {
                path
                for delta in found.deltas
                for path in (delta.old_file.raw_path, delta.new_file.raw_path)
            }

    def tree_entries(self, tree: bytes, paths: Iterable[bytes]) -> dict[bytes, tuple[int, bytes]]:
        """Path to (mode, git id) for those of ``paths`` that a commit's tree has."""
        entries: dict[bytes, tuple[int, bytes]] = {}
        with _reading():
            root = self._tree(tree)
            for path in paths:
                try:
                    entry = root[os.fsdecode(path)]
                except KeyError:
                    continue
                entries[path] = (int(entry.filemode), entry.id.raw)
        return entries

    def _tree(self, oid: bytes) -> pygit2.Tree:
        tree = self._repository[pygit2.Oid(raw=oid)]
        if not isinstance(tree, pygit2.Tree):
            raise KeyError(oid)
        return tree

    def index(self) -> Index:
        """The index, read afresh. Raises ``Refusal("stage_unsupported")`` (split, sparse)."""
        # The time is taken first: a later write of the index only makes more files racy.
        racy_from = _modified(self.git_folder / "index")
        try:
            index = self._repository.index
        except (pygit2.GitError, OSError) as error:
            raise Refusal("stage_unsupported") from error
        rows: dict[bytes, IndexRow] = {}
        unmerged: set[bytes] = set()
        intended: set[bytes] = set()
        pointer, text, memory = index._index, ffi.string, ffi.buffer
        for position in range(len(index)):
            entry = C.git_index_get_byindex(pointer, position)
            row = IndexRow(*_ENTRY.unpack_from(memory(entry)))
            if row.flags & _STAGE_MASK:
                unmerged.add(text(entry.path))
            else:
                rows[path := text(entry.path)] = row
                if row.extended_flags & _INTENT_TO_ADD:
                    intended.add(path)
        return Index(
            rows=rows,
            unmerged=frozenset(unmerged),
            intended=frozenset(intended),
            racy_from=racy_from,
        )


def open_checkout(directory: Path) -> Checkout:
    """The checkout (or bare repository) whose top level is exactly ``directory``.

    Raises ``Refusal`` with ``not_a_directory``, ``not_a_checkout``, ``checkout_not_owned``,
    ``checkout_partial`` or ``stage_unsupported``, or ``Fault("checkout_unreadable")``.
    """
    real = os.path.realpath(directory)
    if not os.path.isdir(real):
        raise Refusal("not_a_directory")
    try:
        repository = pygit2.Repository(real, RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, ValueError, KeyError, OSError) as error:
        raise _open_failure(str(error)) from error
    checkout = Checkout(repository)
    if checkout.root is None:
        return checkout
    if os.path.realpath(checkout.git_folder) == real:
        # The ``.git`` folder itself was named; its checkout is another folder.
        raise Refusal("not_a_checkout")
    if str(checkout.root) != real:
        # ``core.worktree`` names another folder than the one that was asked for.
        raise Refusal("stage_unsupported")
    return checkout


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (pygit2.GitError, OSError, ValueError, KeyError) as error:
        raise Fault("checkout_unreadable") from error


def _open_failure(message: str) -> Refusal | Fault:
    for words, code in _OPEN_REFUSALS:
        if words in message:
            return Refusal(code)
    return Fault("checkout_unreadable")


def _common_folder(git_folder: Path) -> Path:
    """Where a linked worktree shares objects and ``info`` with its repository."""
    try:
        text = (git_folder / "commondir").read_bytes()
    except FileNotFoundError:
        return git_folder
    except OSError as error:
        raise Fault("checkout_unreadable") from error
    return Path(os.path.normpath(git_folder / os.fsdecode(text.rstrip(b"\r\n"))))


def _modified(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise Fault("checkout_unreadable") from error


def is_clean(row: IndexRow, found: os.stat_result, racy_from: int) -> bool:
    """Whether ``found`` is the stat that ``row`` was recorded with, so that nothing changed.

    As git decides it: same size, times and inode, and the file is older than the index
    (a later one could have been changed within the same tick, "racily clean").
    """
    modified = found.st_mtime_ns
    return (
        row.modified_seconds * 1_000_000_000 + row.modified_nanoseconds == modified
        and modified < racy_from
        and row.size == found.st_size & _LOW_32
        and row.changed_seconds * 1_000_000_000 + row.changed_nanoseconds == found.st_ctime_ns
        and row.inode == found.st_ino & _LOW_32
    )
