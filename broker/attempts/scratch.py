"""Scratch folders: held by a lock while their process lives, swept when it does not.

A lock ends with its process, however that ended, so no pid and no time is compared; only
a folder too young to have its lock yet is left alone.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.locations import make_state
from protocol.errors import Fault

_LOCK: Final = "lock"
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
        descriptor = os.open(
            folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise Fault("store_unwritable") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep(home: Path) -> int:
    """Removes the scratch folders below ``home`` that nobody holds; how many it was."""
    removed = 0
    for folder in home.iterdir():
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
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
