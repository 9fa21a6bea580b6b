"""Reads a ledger folder without changing it: the attempts in it, their records, their lines.

What comes out is what is stored. Whether it holds together is the business of
``verification``; a reader may run while the writer is at work.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from broker.evidence.database import ReadOnly
from broker.evidence.records import LedgerRecord, make_line, read_leaf
from protocol.errors import Fault, Refusal
from protocol.ids import Id


def attempts_of(folder: Path) -> tuple[Id, ...]:
    """The attempts of the ledger in ``folder``, oldest first.

    Raises ``Refusal("file_not_found")`` and ``Fault("ledger_corrupt")``.
    """
    try:
        with closing(ReadOnly(folder)) as reader:
            return reader.attempts()
    except sqlite3.Error as error:
        raise Fault("ledger_corrupt") from error


def records_of(folder: Path, *, attempt: Id | None = None) -> Iterator[LedgerRecord | None]:
    """The records of one attempt in order; None for what is stored and is no record.

    ``attempt`` may be left out where the folder has one. Raises
    ``Refusal("file_not_found")``, ``Refusal("attempt_not_in_ledger")`` and
    ``Fault("ledger_corrupt")``.
    """
    try:
        with closing(ReadOnly(folder)) as reader:
            known = reader.attempts()
            if attempt is None and len(known) == 1:
                attempt = known[0]
            if attempt is None or attempt not in known:
                raise Refusal("attempt_not_in_ledger")
            for _, _, h, leaf in reader.rows(attempt):
                yield read_leaf(leaf, h.hex())
    except sqlite3.Error as error:
        raise Fault("ledger_corrupt") from error


def export(folder: Path, *, attempt: Id | None = None) -> Iterator[bytes]:
    """The JSONL lines of one attempt, each with its line feed; raises as ``records_of`` does."""
    for record in records_of(folder, attempt=attempt):
        if record is None:
            raise Fault("ledger_corrupt")
        yield make_line(record.leaf, record.h)
