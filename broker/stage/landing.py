"""Put the difference of two trees on a checkout: exactly its paths, all of them or none.

Every path is walked by handles, no link is followed, and what stands there must be what
the first tree says, byte for byte; then new files are written beside the old ones and
exchanged. Nothing else in the checkout is touched, the index included: git sees the
result as changes of the working tree.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.stage.bounds import PRODUCT_BOUNDS
from broker.stage.openat import open_folder, read_file
from broker.stage.tree import MODE_EXECUTABLE, Entry, StagedTree
from protocol.errors import Fault, Refusal
from protocol.ids import RepoPath

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXECUTE_BITS: Final = 0o111


@dataclass(frozen=True, slots=True)
class _Step:
    """One path: what stands there, what shall, and where the new bytes wait."""

    path: RepoPath
    before: Entry | None
    after: Entry | None
    waiting: str | None
    kept: str  #: the second name that the old file has until all paths are exchanged


def check_landing(root: Path, before: StagedTree, after: StagedTree) -> tuple[RepoPath, ...]:
    """The paths that ``land`` would touch; ``Refusal("checkout_changed")`` if it may not."""
    paths = []
    with _opened(root) as top:
        for difference in before.differences(after):
            _check(top, difference.path, difference.before, before)
            paths.append(difference.path)
    return tuple(paths)


def land(root: Path, before: StagedTree, after: StagedTree) -> tuple[RepoPath, ...]:
    """Turns ``before`` into ``after`` in the working tree at ``root``; the paths touched.

    Raises ``Refusal("checkout_changed")`` when a path is not what ``before`` says, and
    ``Fault("checkout_unwritable")``; then everything is as it was.
    """
    check_landing(root, before, after)
    steps: list[_Step] = []
    made: list[RepoPath] = []
    with _opened(root) as top:
        try:
            for difference in before.differences(after):
                steps.append(
                    _prepare(top, difference.path, difference.before, difference.after, after, made)
                )
        except BaseException as error:
            _discard(top, steps, made)
            raise _as_fault(error) from error
        _exchange_all(top, steps, before, made)
        for step in steps:
            _forget_kept(top, step)
            if step.after is None:
                _remove_empty_folders(top, step.path)
    return tuple(step.path for step in steps)


def _exchange_all(top: int, steps: list[_Step], before: StagedTree, made: list[RepoPath]) -> None:
    """Every path, deletions first so that a file can make room for a folder; or none."""
    done: list[_Step] = []
    try:
        for step in sorted(steps, key=lambda step: step.after is not None):
            _check(top, step.path, step.before, before)
            try:
                _exchange(top, step)
            except BaseException:
                if step.before is not None:
                    _restore(top, step)
                raise
            done.append(step)
    except BaseException as error:
        for step in reversed(done):
            _restore(top, step)
        _discard(top, [step for step in steps if step not in done], made)
        raise _as_fault(error) from error


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Fault("checkout_unreadable") from error
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _parent(top: int, path: str, made: list[RepoPath] | None = None) -> Iterator[tuple[int, str]]:
    """The handle of ``path``'s folder and its last part; with ``made`` folders are made."""
    *folders, name = path.split("/")
    handle = os.dup(top)
    try:
        for depth, folder in enumerate(folders, 1):
            if made is not None:
                try:
                    os.mkdir(folder, 0o777, dir_fd=handle)
                    made.append(RepoPath("/".join(folders[:depth])))
                except FileExistsError:
                    pass
            deeper = open_folder(handle, folder)
            os.close(handle)
            handle = deeper
        yield handle, name
    finally:
        os.close(handle)


def _check(top: int, path: RepoPath, entry: Entry | None, tree: StagedTree) -> None:
    """``Refusal("checkout_changed")`` unless ``path`` is exactly ``entry``, or absent for None."""
    try:
        with _parent(top, path) as (folder, name):
            if entry is None:
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                raise Refusal("checkout_changed")
            data, found = read_file(folder, name, PRODUCT_BOUNDS)
    except FileNotFoundError:
        return
    except Refusal:
        if entry is None and not _folder_exists(top, path):
            return
        raise
    except OSError as error:
        raise Fault("checkout_unreadable") from error
    executable = bool(found.st_mode & stat.S_IXUSR)
    if data != tree.store.load(entry.blob) or executable != (entry.mode == MODE_EXECUTABLE):
        raise Refusal("checkout_changed")


def _folder_exists(top: int, path: str) -> bool:
    """Whether the first part of ``path``'s folders that is there is not all of them."""
    here = ""
    for part in path.split("/")[:-1]:
        here = f"{here}/{part}" if here else part
        try:
            found = os.stat(here, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(found.st_mode):
            return True
    return True


def _prepare(
    top: int,
    path: RepoPath,
    before: Entry | None,
    after: Entry | None,
    tree: StagedTree,
    made: list[RepoPath],
) -> _Step:
    """Writes the new bytes of ``path`` beside it, durable, under a name of ours."""
    token = secrets.token_hex(8)
    kept = f".airlock-{token}.old"
    if after is None:
        return _Step(path, before, None, None, kept)
    waiting = f".airlock-{token}.new"
    with _parent(top, path, made) as (folder, name):
        mode = 0o666
        if before is not None:
            mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            mode &= ~_EXECUTE_BITS
        if after.mode == MODE_EXECUTABLE:
            mode |= (mode & 0o444) >> 2
        handle = os.open(waiting, _NEW, mode, dir_fd=folder)
        try:
            with open(handle, "wb", closefd=False) as file:
                file.write(tree.store.load(after.blob))
            if before is not None:
                os.fchmod(handle, mode)
            os.fsync(handle)
        except BaseException:
            os.unlink(waiting, dir_fd=folder)
            raise
        finally:
            os.close(handle)
    return _Step(path, before, after, waiting, kept)


def _exchange(top: int, step: _Step) -> None:
    """The new file takes the name; the old one keeps a name of ours, so nothing is lost."""
    with _parent(top, step.path) as (folder, name):
        if step.before is None:
            # A link fails where something has come to stand; a rename would replace it.
            assert step.waiting is not None
            _link(step.waiting, name, folder)
            os.unlink(step.waiting, dir_fd=folder)
            return
        _link(name, step.kept, folder)
        if step.waiting is None:
            os.unlink(name, dir_fd=folder)
        else:
            os.rename(step.waiting, name, src_dir_fd=folder, dst_dir_fd=folder)


def _link(name: str, second: str, folder: int) -> None:
    os.link(name, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)


def _restore(top: int, step: _Step) -> None:
    """Gives the old file its name back: the same file, with its mode, times and other links."""
    with suppress(OSError, Refusal, Fault), _parent(top, step.path) as (folder, name):
        if step.before is None:
            os.unlink(name, dir_fd=folder)
            return
        os.rename(step.kept, name, src_dir_fd=folder, dst_dir_fd=folder)
    _forget_kept(top, step)  # two names of one file: a rename leaves both


def _forget_kept(top: int, step: _Step) -> None:
    if step.before is not None:
        with suppress(OSError, Refusal, Fault), _parent(top, step.path) as (folder, _):
            os.unlink(step.kept, dir_fd=folder)


def _discard(top: int, steps: list[_Step], made: list[RepoPath]) -> None:
    """Removes what waits and the folders that were made for it."""
    for step in steps:
        if step.waiting is not None:
            with suppress(OSError, Refusal), _parent(top, step.path) as (folder, _):
                os.unlink(step.waiting, dir_fd=folder)
    for path in reversed(made):
        with suppress(OSError, Refusal), _parent(top, path) as (folder, name):
            os.rmdir(name, dir_fd=folder)


def _remove_empty_folders(top: int, path: str) -> None:
    """As git does: a folder goes with its last file."""
    folder = path.rpartition("/")[0]
    while folder:
        try:
            with _parent(top, folder) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        except (OSError, Refusal):
            return
        folder = folder.rpartition("/")[0]


def _as_fault(error: BaseException) -> BaseException:
    return Fault("checkout_unwritable") if isinstance(error, OSError) else error
