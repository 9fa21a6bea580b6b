"""One unprivileged uid of the host per sandbox, when the daemon is root.

Two sandboxes with one uid could signal and trace each other if a namespace failed, and
would share every per-uid limit. A lease is a file lock, so it ends with the daemon
however that ends. Changes no account file of the host.
"""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from protocol.errors import Fault

#: Above every range that useradd, systemd and subuid allocation hand out, below 2^31.
FIRST_UID: Final = 1_900_000_000
#: More sandboxes than one machine runs; each costs one empty file.
UID_COUNT: Final = 4096
#: Uids belong to the machine, not to one state folder, and so do their locks.
LOCK_FOLDER: Final = Path("/run/airlock/uids")


class UidLease:
    """A uid that no other sandbox of this machine has until ``close``."""

    def __init__(self, uid: int, descriptor: int) -> None:
        self.uid: Final = uid
        self._descriptor = descriptor

    def close(self) -> None:
        """Give the uid back. Call it when nothing runs under it any more."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def lease_uid(folder: Path = LOCK_FOLDER) -> UidLease:
    """The lowest uid that is not leased and under which nothing runs.

    Raises ``Fault("engine_failed")`` when there is none, or no place for the locks.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        busy = _uids_in_use()
        for uid in range(FIRST_UID, FIRST_UID + UID_COUNT):
            if uid not in busy and (descriptor := _lock(folder / str(uid))) is not None:
                return UidLease(uid, descriptor)
    except OSError as error:
        raise Fault("engine_failed") from error
    raise Fault("engine_failed")


def _lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno == errno.EWOULDBLOCK:
            return None
        raise
    return descriptor


def _uids_in_use() -> frozenset[int]:
    """Owners of the running processes: a lock can end before what ran under it."""
    uids = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                try:
                    uids.add(entry.stat().st_uid)
                except FileNotFoundError:
                    continue
    return frozenset(uids)
