"""The ledger's SQLite file: rows in, commits and flushes out; knows no chain.

Two halves of ``synchronous=FULL`` are two calls here. ``commit`` runs with
``synchronous=NORMAL``: the transaction is in the write-ahead log, in the page cache, so
it survives the death of the process. ``flush`` is the ``fdatasync`` of that log that
FULL would have added, on a descriptor of our own, from any thread and without the
connection, so that commits go on meanwhile. It is enough because of what NORMAL keeps
in WAL mode: a commit is either in the log, whose bytes the flush makes durable from the
header on, or a checkpoint has moved it into the database file, and SQLite syncs the log
before it copies and the database before it starts the log anew. The log's own directory
entry is made durable once, when it is opened. A log that is read back after a power loss
ends at the first frame whose checksum fails: always whole transactions, in order.

One connection writes and checkpoints (SQLite before 3.51.3 can corrupt a log that two
do); readers open ``mode=ro``. Checkpoints never happen inside ``commit``, which would
put a disk flush on the path of a read.
"""

import fcntl
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from protocol.errors import Fault, Refusal
from protocol.ids import Id

DATABASE_NAME: Final = "ledger.sqlite"
WAL_NAME: Final = DATABASE_NAME + "-wal"
#: Tells the file apart from any other SQLite file ("alck").
APPLICATION_ID: Final = 0x616C636B
SCHEMA_VERSION: Final = 1
#: A reader that opens at the same moment may hold the recovery lock for this long.
BUSY_SECONDS: Final = 1.0
#: The log is moved into the database when about this many pages were logged (4 MiB).
CHECKPOINT_PAGES: Final = 1024
PAGE_BYTES: Final = 4096

_SCHEMA: Final = (
    "CREATE TABLE attempts (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " first INTEGER NOT NULL, last INTEGER) STRICT",
    # In order of arrival over all attempts: appending touches one page, whoever appends.
    "CREATE TABLE records (position INTEGER PRIMARY KEY, attempt INTEGER NOT NULL,"
    " h BLOB NOT NULL, leaf BLOB NOT NULL) STRICT",
    "CREATE TABLE log (starts INTEGER NOT NULL) STRICT",
    "INSERT INTO log VALUES (0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

#: Position, number of the attempt, hash, leaf.
Row = tuple[int, int, bytes, bytes]

_INSERT: Final = "INSERT INTO records VALUES (?, ?, ?, ?)"


class Database:
    """One writing connection. Any error of it is final; the caller must not use it again."""

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._connection: Final = connection
        self._folder: Final = folder
        self._wal: int | None = None
        self._pages = 0

    @classmethod
    def open(cls, folder: Path) -> "Database":
        """Opens or makes the database in ``folder``; one that is there is only read so far.

        Raises ``sqlite3.Error`` as it comes, and ``Fault`` where the file is not a ledger
        of this version.
        """
        connection = sqlite3.connect(
            folder / DATABASE_NAME,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return cls(connection, folder)

    def start(self) -> None:
        """Begins writing, and makes durable whatever an earlier writer had committed."""
        # The first commit makes the log, and syncs its header here rather than later.
        self._connection.execute("UPDATE log SET starts = starts + 1")
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        self._wal = os.open(self._folder / WAL_NAME, flags)
        self.flush()
        flush_folder(self._folder)

    def commit(self, rows: Sequence[Row], *, doomed: Sequence[int] = ()) -> None:
        """Adds ``rows`` and removes the positions ``doomed``, all or nothing, unsynced."""
        self._pages += 1 + sum(len(row[3]) for row in rows) // PAGE_BYTES
        execute = self._connection.execute
        if len(rows) == 1 and not doomed:
            # One statement is a transaction by itself: a lone read pays one call, not three.
            execute(_INSERT, rows[0])
            return
        execute("BEGIN IMMEDIATE")
        if doomed:
            self._connection.executemany(
                "DELETE FROM records WHERE position = ?", [(position,) for position in doomed]
            )
        self._connection.executemany(_INSERT, rows)
        execute("COMMIT")

    def flush(self) -> None:
        """Makes durable what was committed before the call. Needs no lock."""
        assert self._wal is not None
        if sys.platform == "darwin":
            fcntl.fcntl(self._wal, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self._wal)

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the log has grown enough to be moved into the database."""
        return self._pages >= CHECKPOINT_PAGES

    def checkpoint(self) -> None:
        """Moves the log into the database file; syncs both. The next commit starts it anew."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        # Starting the log anew syncs its header: do it here and not in the next commit.
        self._connection.execute("UPDATE log SET starts = starts + 1")
        self._pages = 0

    def enter_attempt(self, attempt: Id, *, first: int) -> tuple[int, int]:
        """Opens the attempt for appending: its number and its first position.

        A new attempt gets ``first`` as the position from which its records are looked for.
        """
        execute = self._connection.execute
        execute(
            "INSERT INTO attempts (id, first) VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET last = NULL",
            (attempt, first),
        )
        row = execute("SELECT number, first FROM attempts WHERE id = ?", (attempt,)).fetchone()
        if not isinstance(row[1], int):
            raise sqlite3.DatabaseError("a row is not of its form")
        return int(row[0]), row[1]

    def leave_attempt(self, number: int, *, last: int) -> None:
        """Notes the position after which there is nothing more of the attempt."""
        self._connection.execute("UPDATE attempts SET last = ? WHERE number = ?", (last, number))

    def rows(self, number: int, *, first: int) -> Iterator[Row]:
        """The attempt's rows in order."""
        return _rows(
            self._connection,
            "SELECT position, attempt, h, leaf FROM records"
            " WHERE position >= ? AND attempt = ? ORDER BY position",
            (first, number),
        )

    def last_position(self) -> int:
        """The newest position, 0 when there are no records."""
        row = self._connection.execute("SELECT max(position) FROM records").fetchone()
        return int(row[0] or 0)

    def hash_at(self, position: int) -> bytes | None:
        """The hash of the record at ``position``, if there is one."""
        row = self._connection.execute(
            "SELECT h FROM records WHERE position = ?", (position,)
        ).fetchone()
        return row[0] if row is not None and isinstance(row[0], bytes) else None

    def close(self) -> None:
        """Moves the whole log into the database, synced, and removes it."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._connection.close()
        flush_folder(self._folder)

    def abandon(self) -> None:
        """Gives the connection up without letting it touch the files again.

        The last connection to close would checkpoint, and so trust pages whose sync has
        failed or overwrite what an operator should see. While a reader is there the
        writer is not the last, and a reader cannot checkpoint.
        """
        with closing(_connect_reader(self._folder)) as reader:
            reader.execute("SELECT starts FROM log").fetchone()
            self._connection.close()

    def release(self) -> None:
        """Lets go of the log, after ``close`` or ``abandon`` and when nobody flushes."""
        if self._wal is not None:
            os.close(self._wal)
            self._wal = None


class ReadOnly:
    """A reading connection: sees what was committed when a reading began, changes nothing."""

    def __init__(self, folder: Path) -> None:
        """Raises ``Refusal("file_not_found")`` where there is no ledger in ``folder``."""
        if not (folder / DATABASE_NAME).is_file():
            raise Refusal("file_not_found")
        self._connection: Final = _connect_reader(folder)
        try:
            _check(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def attempts(self) -> tuple[Id, ...]:
        """The ids of all attempts, oldest first."""
        rows = self._connection.execute("SELECT id FROM attempts ORDER BY number").fetchall()
        if not all(isinstance(row[0], str) for row in rows):
            raise sqlite3.DatabaseError("a row is not of its form")
        return tuple(Id(row[0]) for row in rows)

    def rows(self, attempt: Id) -> Iterator[Row]:
        """The attempt's rows in order; none when it is not there."""
        return _rows(
            self._connection,
            "SELECT position, attempt, h, leaf FROM records,"
            " (SELECT number, first, ifnull(last, (SELECT max(position) FROM records)) AS last"
            "  FROM attempts WHERE id = ?)"
            " WHERE position BETWEEN first AND last AND attempt = number ORDER BY position",
            (attempt,),
        )

    def close(self) -> None:
        """Ends the reading."""
        self._connection.close()


def flush_folder(folder: Path) -> None:
    """Makes the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(connection: sqlite3.Connection) -> None:
    """Makes sure that every record that is there is found; records prove themselves."""
    for pragma in ("quick_check(1)", "integrity_check(attempts)"):
        if connection.execute(f"PRAGMA {pragma}").fetchall() != [("ok",)]:
            raise sqlite3.DatabaseError("a page is damaged")


def _rows(connection: sqlite3.Connection, sql: str, values: tuple[object, ...]) -> Iterator[Row]:
    """Rows of the form they were written in; a damaged page can hold other ones."""
    for row in connection.execute(sql, values):
        if not (isinstance(row[2], bytes) and isinstance(row[3], bytes)):
            raise sqlite3.DatabaseError("a row is not of its form")
        yield row


def _connect_reader(folder: Path) -> sqlite3.Connection:
    uri = (folder / DATABASE_NAME).absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Sets the rules of the connection, and makes the tables where there are none."""
    execute = connection.execute
    execute("PRAGMA trusted_schema = OFF")
    execute("PRAGMA mmap_size = 0")
    execute("PRAGMA wal_autocheckpoint = 0")
    execute("PRAGMA fullfsync = ON")
    execute("PRAGMA checkpoint_fullfsync = ON")
    # The file and its tables are made under FULL; only appending is split in two.
    execute("PRAGMA synchronous = FULL")
    if execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise Fault("ledger_unwritable")
    versions = tuple(
        execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    tables = execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if versions == (0, 0) and tables == 0:
        execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            execute(statement)
        execute("COMMIT")
    elif versions != (APPLICATION_ID, SCHEMA_VERSION):
        raise Fault("ledger_corrupt")
    _check(connection)
    execute("PRAGMA synchronous = NORMAL")
