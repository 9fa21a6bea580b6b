"""The file beside the ledger that locks it and remembers how far it was durable.

Whoever holds the lock is the one writer. After every sync the last durable position and
its hash are noted here, never before: a ledger that does not have them was damaged or
put back from an older copy, which SQLite itself does not notice (a flipped bit in its
log silently ends the log). The note is not synced on the way, so it may be older than
the ledger but never newer.
"""

import fcntl
import os
from pathlib import Path
from typing import Annotated, Final

import msgspec

from broker.evidence.records import NO_HASH
from protocol.digest import canonical_json
from protocol.errors import Fault
from protocol.record_fields import Count, Hash

PIN_NAME: Final = "ledger.pin"
#: One sector holds the whole note, so that it is replaced whole.
PIN_BYTES: Final = 256


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known to be durable. ``clean`` says that the writer closed the ledger."""

    v: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    position: Count  #: 0 when there is no record
    h: Hash
    clean: bool


NOTHING: Final = Note(position=0, h=NO_HASH, clean=True)


class Pin:
    """The lock, held until ``close``, and the note."""

    def __init__(self, descriptor: int, note: Note) -> None:
        self._descriptor: Final = descriptor
        self.found: Final = note  #: as it was when the lock was taken

    @classmethod
    def take(cls, folder: Path) -> "Pin":
        """Takes the lock of the ledger in ``folder``.

        Raises ``Fault("ledger_locked")`` when somebody holds it and
        ``Fault("ledger_corrupt")`` when the note is not one.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(folder / PIN_NAME, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(descriptor, _parse(os.pread(descriptor, PIN_BYTES, 0)))
        except BlockingIOError as error:
            os.close(descriptor)
            raise Fault("ledger_locked") from error
        except BaseException:
            os.close(descriptor)
            raise

    def note(self, *, position: int, h: str, clean: bool) -> None:
        """Replaces the note."""
        text = canonical_json(Note(position=position, h=h, clean=clean))
        os.pwrite(self._descriptor, text.ljust(PIN_BYTES - 1) + b"\n", 0)

    def flush(self) -> None:
        """Makes the note durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Gives the lock back."""
        os.close(self._descriptor)


def _parse(data: bytes) -> Note:
    # A power loss can leave a file that was just made without its content.
    if not data.strip(b"\x00"):
        return NOTHING
    try:
        return msgspec.json.decode(data, type=Note)
    except msgspec.DecodeError as error:
        raise Fault("ledger_corrupt") from error
