"""A git checkout through libgit2: opened, its commit, its index; never written, no program run.

Only top levels are opened: a search upwards could pick up a repository that the caller
did not name. libgit2 checks who owns the checkout as git does (``safe.directory``): a
checkout of another user is refused, also to root, for whom only the user that called
``sudo`` counts as itself. Nothing here refreshes the index.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import AttrCheck, RepositoryOpenFlag

from broker.stage.index_file import IndexBytes, read_index
from protocol.errors import Fault, Refusal
from protocol.ids import CommitSha
from protocol.refusal_codes import RefusalCode

MODE_SYMLINK: Final = 0o120000
MODE_GITLINK: Final = 0o160000

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

    def index(self) -> IndexBytes:
        """The index file, read afresh. Raises what ``read_index`` raises."""
        return read_index(self.git_folder / "index")


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
    if any(_is_content(folder, real) for folder in (checkout.git_folder, checkout.common_folder)):
        # Its configuration and hooks would be staged, and a patch of them would land.
        raise Refusal("stage_unsupported")
    return checkout


def _is_content(folder: Path, root: str) -> bool:
    """Whether git's own ``folder`` lies in ``root`` under names that are staged as content."""
    real = Path(os.path.realpath(folder))
    if not real.is_relative_to(root):
        return False
    return all(name.casefold() != ".git" for name in real.relative_to(root).parts)


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
