"""Scratch folders: held by a lock while their process lives, swept when it does not.

A lock ends with its process, however that ended, so no pid and no time is compared; only
a folder too young to have its lock yet is left alone.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from broker.engines.work import remove_tree_now
from broker.locations import make_state
from protocol.errors import Fault

_LOCK: Final = "lock"
_UNNAMED: Final = "lock.new"
#: A folder without a lock is another process's that is just being made, for this long.
_YOUNG_SECONDS: Final = 60.0


@contextmanager
def scratch_folder(state: Path, name: str) -> Iterator[Path]:
    """A new folder ``state/scratch/name``, gone when the block is left. Blocking.

    Removes what processes that died have left beside it. Raises ``Fault("store_unwritable")``.
    """
    home = make_state(state / "scratch")
    sweep(home)
    folder = home / name
    try:
        folder.mkdir(mode=0o711)
        descriptor = _locked(folder)
    except OSError as error:
        raise Fault("store_unwritable") from error
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(descriptor)


def _locked(folder: Path) -> int:
    """The lock of ``folder``, held. It gets its name last: nobody finds it free."""
    unnamed = folder / _UNNAMED
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    unnamed.rename(folder / _LOCK)
    return descriptor


def _remove(folder: Path) -> None:
    """Removes ``folder``, its lock last: what could not be removed is found by the next sweep."""
    for entry in folder.iterdir():
        if entry.name != _LOCK and not _is_removed(entry):
            return
    _is_removed(folder)


def _is_removed(folder: Path) -> bool:
    """Removes a folder: by Python where it can, else by a program that goes any depth."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        return remove_tree_now(folder)
    return True


def sweep(home: Path) -> int:
    """Removes the scratch folders below ``home`` that nobody holds; how many it was.

    Never fails: what cannot be removed now stays for the next one.
    """
    removed = 0
    for folder in home.iterdir():
        with suppress(OSError):
            if _is_abandoned(folder):
                _remove(folder)
                removed += 1
    return removed


def _is_abandoned(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return folder.is_dir() and time.time() - folder.stat().st_mtime > _YOUNG_SECONDS
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
