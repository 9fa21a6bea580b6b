"""The one writer of a ledger folder: commits for all its attempts, flushes for all waiters.

``write`` belongs to one thread. ``sync`` may be called from any thread, does not hold
``write`` up, and serves every caller that waits with one flush. The first error of
either is final: whether the bytes arrived is then unknown, so nothing is tried again,
the files are not touched any more, and every later call fails.
"""

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from broker.evidence.database import DATABASE_NAME, Database, Row, flush_folder
from broker.evidence.pin import Pin
from broker.evidence.recovery import Recovery, recover
from protocol.errors import Fault
from protocol.ids import Id


class Mark:
    """How far one attempt is durable: every record before ``durable`` is."""

    __slots__ = ("durable",)

    def __init__(self, durable: int) -> None:
        self.durable = durable


class LedgerWriter:
    """A ledger folder that is open for writing; made by ``open`` only."""

    def __init__(self, database: Database, pin: Pin) -> None:
        self._database: Final = database
        self._pin: Final = pin
        last = database.last_position()
        self._clean: Final = pin.found.clean and last <= pin.found.position
        self._lock: Final = threading.Lock()
        self._sync_lock: Final = threading.Lock()
        self._guard: Final = _Guard(self)
        self.poisoned = False  #: an error happened; nothing works any more
        self._closed = False
        self.next_position = last + 1
        self._pending: list[Row] = []
        self._touched: dict[Mark, int] = {}
        # Shared with sync, under the lock: what is committed and not yet flushed.
        self._written: tuple[int, bytes] = (pin.found.position, bytes.fromhex(pin.found.h))
        self._unsynced: dict[Mark, int] = {}
        self._synced = pin.found.position

    @classmethod
    def open(cls, folder: Path) -> "LedgerWriter":
        """Opens or makes the ledger in ``folder`` for the only writer it can have.

        Raises ``Fault``: ``ledger_locked`` when there is another writer,
        ``ledger_corrupt`` when what was durable is not there, ``ledger_unwritable``.
        """
        try:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True)
                flush_folder(folder.parent)
            pin = Pin.take(folder)
        except OSError as error:
            raise Fault("ledger_unwritable") from error
        try:
            return cls._opened(folder, pin)
        except (sqlite3.OperationalError, OSError) as error:
            pin.close()
            raise Fault("ledger_unwritable") from error
        except sqlite3.DatabaseError as error:
            pin.close()
            raise Fault("ledger_corrupt") from error
        except BaseException:
            pin.close()
            raise

    @classmethod
    def _opened(cls, folder: Path, pin: Pin) -> "LedgerWriter":
        found = pin.found
        if found.position and not (folder / DATABASE_NAME).is_file():
            raise Fault("ledger_corrupt")
        database = Database.open(folder)
        try:
            # Before anything is written: what is missing may still be there to be looked at.
            if found.position and database.hash_at(found.position) != bytes.fromhex(found.h):
                raise Fault("ledger_corrupt")
            writer = cls(database, pin)
            pin.note(position=found.position, h=found.h, clean=False)
            pin.flush()
            database.start()
        except BaseException:
            with suppress(sqlite3.Error, OSError):
                database.abandon()
            database.release()
            raise
        return writer

    def enter(self, attempt: Id) -> Recovery:
        """Reads ``attempt`` back, or begins it; see ``recover``. Cuts nothing yet."""
        with self._guard:
            return recover(
                self._database,
                attempt,
                next_position=self.next_position,
                pinned=self._pin.found.position,
                clean=self._clean,
            )

    def leave(self, number: int, *, last: int) -> None:
        """Notes that the attempt has no records after position ``last``."""
        with self._guard:
            self._database.leave_attempt(number, last=last)

    @property
    def usable(self) -> bool:
        """Whether there was neither an error nor ``close``."""
        return not (self.poisoned or self._closed)

    def check(self) -> None:
        """Raises ``Fault("ledger_unwritable")`` after an error or after ``close``."""
        if self.poisoned or self._closed:
            raise Fault("ledger_unwritable")

    def add(self, rows: list[Row], *, mark: Mark, seq: int) -> None:
        """Takes the rows of one attempt, up to its record ``seq``, for the next ``write``."""
        self._pending += rows
        self.next_position += len(rows)
        self._touched[mark] = seq

    def write(self, *, doomed: tuple[int, ...] = ()) -> None:
        """Commits everything that was added; it then survives the death of the process."""
        with self._guard:
            if not self._pending:
                return
            self._database.commit(self._pending, doomed=doomed)
            position, _, h, _ = self._pending[-1]
            self._written = (position, h)
            self._unsynced.update(self._touched)
            self._touched.clear()
            self._pending.clear()

    def sync(self) -> None:
        """Makes what was written before the call survive a power loss."""
        with self._sync_lock:
            with self._guard:
                (position, h), marks, self._unsynced = self._written, self._unsynced, {}
            if position == self._synced:
                return
            self._flush(position, h)
            with self._guard:
                # Another thread may have failed meanwhile: then this flush proves nothing.
                for mark, seq in marks.items():
                    mark.durable = seq + 1
                self._synced = position
                if self._database.wants_checkpoint:
                    self._database.checkpoint()

    def close(self) -> None:
        """Writes, syncs and closes; gives the lock back in any case. Twice is once."""
        if self._closed:
            return
        try:
            if not self.poisoned:
                self.write()
                self.sync()
                with self._sync_lock, self._guard:
                    position, h = self._written
                    self._database.close()
                    self._pin.note(position=position, h=h.hex(), clean=True)
                    self._pin.flush()
        finally:
            with self._sync_lock:
                self._closed = True
                self._database.release()
                self._pin.close()

    def _flush(self, position: int, h: bytes) -> None:
        done = False
        try:
            self._database.flush()
            self._pin.note(position=position, h=h.hex(), clean=False)
            done = True
        except OSError as error:
            raise Fault("ledger_unwritable") from error
        finally:
            if not done:
                with self._lock:
                    self._poison()

    def _poison(self) -> None:
        """Ends the writer for ever. The lock is held."""
        if not self.poisoned:
            self.poisoned = True
            # Giving up may fail as well; nothing depends on it.
            with suppress(sqlite3.Error, OSError):
                self._database.abandon()


class _Guard:
    """Holds the connection; whatever escapes from inside is final."""

    __slots__ = ("_writer",)

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._writer._lock.acquire()
        try:
            self._writer.check()
        except BaseException:
            self._writer._lock.release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                return
            self._writer._poison()
            if type(error) is sqlite3.DatabaseError:
                raise Fault("ledger_corrupt") from error
            if isinstance(error, sqlite3.Error | OSError):
                raise Fault("ledger_unwritable") from error
        finally:
            self._writer._lock.release()
