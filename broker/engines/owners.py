"""Which daemon a sandbox belongs to, and whether that daemon still lives.

An owner is a random id and a locked file; the lock ends with the process, so no pid,
start time or boot id is ever compared. Never removes what a live owner claims.
"""

import fcntl
import os
import secrets
from pathlib import Path
from typing import Final

from protocol.errors import Fault

#: Every sandbox of every daemon has a name that begins like this.
NAME_PREFIX: Final = "airlock-"
_OWNER_BYTES: Final = 4


class Owner:
    """This daemon, as the sandboxes' names and labels know it."""

    def __init__(self, folder: Path, owner_id: str, descriptor: int) -> None:
        self.id: Final = owner_id
        self._folder: Final = folder
        self._descriptor: Final = descriptor  # held for as long as the process lives

    def new_name(self) -> str:
        """A name for one sandbox, unique on this machine."""
        return f"{NAME_PREFIX}{self.id}-{secrets.token_hex(4)}"

    def is_live(self, owner_id: str | None) -> bool:
        """Whether ``owner_id`` is a daemon of this state folder that still runs."""
        return (
            owner_id is not None
            and (self._folder / owner_id).exists()
            and not (self.is_dead(owner_id))
        )

    def is_dead(self, owner_id: str) -> bool:
        """Whether ``owner_id`` is an owner of this state folder that has ended."""
        path = self._folder / owner_id
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def dead_owners(self) -> tuple[str, ...]:
        """Every owner of this state folder that has ended and was not forgotten."""
        names = sorted(path.name for path in self._folder.iterdir())
        return tuple(name for name in names if name[0] != "." and self.is_dead(name))

    def forget(self, owner_id: str) -> None:
        """Drop a dead owner of whom nothing is left."""
        (self._folder / owner_id).unlink(missing_ok=True)


def claim_owner(folder: Path) -> Owner:
    """A new owner whose lock lies in ``folder``, or ``Fault("store_unwritable")``."""
    owner_id = secrets.token_hex(_OWNER_BYTES)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = folder / f".{owner_id}"
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fresh.rename(folder / owner_id)  # never there without its lock
    except OSError as error:
        raise Fault("store_unwritable") from error
    return Owner(folder, owner_id, descriptor)


def owner_of_name(name: str) -> str | None:
    """The owner id in a sandbox's name; None when it is not one of our names."""
    parts = name.removeprefix(NAME_PREFIX).split("-")
    if not name.startswith(NAME_PREFIX) or len(parts) != 2:
        return None
    return parts[0]
