"""Open and read below a folder handle: no link followed at any part, no wait on a FIFO."""

import errno
import os
import stat
import time
from typing import Final

from broker.stage.bounds import StageBounds
from protocol.errors import Fault, Refusal

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

#: Reads of one file that keeps changing; an editor's save changes it once.
_ATTEMPTS: Final = 3

#: A file modified this shortly before it was read could change again without its time
#: changing: the kernel's clock for files ticks every 1 to 10 ms.
_TICK_NANOSECONDS: Final = 20_000_000

#: The name is another thing than it was when the folder was listed.
_CHANGED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE})


def open_folder(parent: int, name: str) -> int:
    """A handle of the folder ``name`` in ``parent``. Raises ``PermissionError``.

    Raises ``Refusal("checkout_changed")`` when it is no folder any more.
    """
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        raise
    except OSError as error:
        raise _failure(error) from error


def read_file(parent: int, name: str, bounds: StageBounds) -> tuple[bytes, os.stat_result]:
    """The bytes of the regular file ``name`` in ``parent``, and the stat they belong to.

    The size is checked before anything is read, and the stat is the same before and
    after; a file that was modified just now must also read the same twice. Raises
    ``PermissionError``, ``Refusal`` with ``stage_file_too_large`` or
    ``checkout_changed``, or ``Fault("checkout_unreadable")``.
    """
    last: bytes | None = None
    for _ in range(_ATTEMPTS):
        try:
            handle = os.open(name, _FILE, dir_fd=parent)
            try:
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    raise Refusal("checkout_changed")
                bounds.check_size(before.st_size)
                data = _read(handle, before.st_size)
                after = os.fstat(handle)
            finally:
                os.close(handle)
        except PermissionError:
            raise
        except OSError as error:
            raise _failure(error) from error
        if len(data) == before.st_size and _version(before) == _version(after):
            if data == last or time.time_ns() - after.st_mtime_ns > _TICK_NANOSECONDS:
                return data, after
            last = data
    raise Refusal("checkout_changed")


def read_once(parent: int, name: str, bounds: StageBounds) -> tuple[bytes, os.stat_result]:
    """The bytes of the regular file ``name`` in ``parent``, and its stat before they were read.

    A writer may have been at work meanwhile: this is for who can prove the bytes by
    other means, and calls ``read_file`` otherwise. Raises what that raises.
    """
    try:
        handle = os.open(name, _FILE, dir_fd=parent)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise Refusal("checkout_changed")
            bounds.check_size(found.st_size)
            return os.read(handle, found.st_size + 1), found
        finally:
            os.close(handle)
    except PermissionError:
        raise
    except OSError as error:
        raise _failure(error) from error


def _read(handle: int, size: int) -> bytes:
    """All of a file of ``size`` bytes; one byte more when it has grown."""
    data = os.read(handle, size + 1)
    if len(data) >= size:
        return data
    parts = [data]
    left = size + 1 - len(data)
    while left and (data := os.read(handle, left)):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _failure(error: OSError) -> Refusal | Fault:
    return Refusal("checkout_changed") if error.errno in _CHANGED else Fault("checkout_unreadable")
