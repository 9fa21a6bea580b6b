"""The append-only, hash-chained ledger of one attempt, in three steps of durability.

``append`` makes records in memory. ``write`` commits what was appended; from then on it
survives the death of the process, and answers to reads may leave. ``sync`` makes what
was written survive a power loss; effects and their answers wait for it. No record is
ever changed, and none is dropped: a ledger that has reached its bound says so in a
record and takes only what ends the attempt.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from broker.evidence.database import Row
from broker.evidence.records import (
    LEAF_ALPHABET,
    LINE_OVERHEAD,
    MAX_LEDGER_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    Head,
    leaf_hash,
    make_leaf,
)
from broker.evidence.writer import LedgerWriter, Mark
from protocol.errors import Fault
from protocol.ids import Id
from protocol.records import CLOSING, LedgerFull, Record

#: Kept free below the bounds, so that an attempt that has reached one can end in order.
RESERVED_RECORDS: Final = 256
RESERVED_BYTES: Final = 1024 * 1024
SOFT_RECORDS: Final = MAX_RECORDS - RESERVED_RECORDS
SOFT_BYTES: Final = MAX_LEDGER_BYTES - RESERVED_BYTES


class Ledger:
    """The ledger of one attempt, open for appending; made by ``open`` or ``enter`` only.

    ``append`` and ``write`` belong to one thread; ``sync`` may be called from any.
    """

    def __init__(
        self, writer: LedgerWriter, attempt: Id, *, clock: Callable[[], int], owned: bool
    ) -> None:
        recovery = writer.enter(attempt)
        chain = recovery.chain
        self._writer: Final = writer
        self._owned: Final = owned
        self._clock: Final = clock
        self._number: Final = recovery.number
        # What all records of this writer share; the rest is set for each.
        self._envelope: Final[dict[str, int | str]] = {
            "v": 1,
            "attempt": attempt,
            "epoch": chain.epoch + 1,
        }
        self._seq, self._h = chain.head
        self._bytes = chain.bytes
        self._full = chain.full
        self._last_position = 0
        # Opening flushed the log, so all that was read back is durable.
        self._mark: Final = Mark(self._seq + 1)
        if recovery.note is not None:
            self.append(recovery.note)
            writer.write(doomed=recovery.doomed)
            writer.sync()

    @classmethod
    def open(cls, folder: Path, attempt_id: Id, *, clock: Callable[[], int]) -> "Ledger":
        """Opens or makes the ledger of ``attempt_id`` in ``folder``, alone in it.

        ``clock`` gives milliseconds since 1970. Raises ``Fault``: ``ledger_locked``,
        ``ledger_corrupt`` or ``ledger_unwritable``. Blocks: it reads every record back.
        """
        writer = LedgerWriter.open(folder)
        try:
            return cls(writer, attempt_id, clock=clock, owned=True)
        except BaseException:
            writer.close()
            raise

    @classmethod
    def enter(cls, writer: LedgerWriter, attempt_id: Id, *, clock: Callable[[], int]) -> "Ledger":
        """The ledger of ``attempt_id`` in a folder that several attempts write to at once."""
        return cls(writer, attempt_id, clock=clock, owned=False)

    def append(self, *bodies: Record) -> int:
        """Chains one record for each body, all or none; the last one's sequence number.

        Touches no file. Raises ``Fault("ledger_full")`` at a bound, of which a record is
        then there already, and ``Fault("ledger_unwritable")`` after an error.
        """
        writer = self._writer
        writer.check()
        envelope = self._envelope
        envelope["at"], envelope["b"] = self._clock(), self._mark.durable
        seq, h, size, position = self._seq, self._h, self._bytes, writer.next_position
        rows: list[Row] = []
        for body in bodies:
            seq += 1
            envelope["seq"], envelope["prev"] = seq, h
            leaf = make_leaf(body, envelope)
            size += len(leaf) + LINE_OVERHEAD
            if len(leaf) + LINE_OVERHEAD > MAX_RECORD_BYTES or leaf.translate(None, LEAF_ALPHABET):
                raise AssertionError("a record is not of its closed form")
            digest = leaf_hash(leaf)
            h = digest.hex()
            rows.append((position, self._number, digest, leaf))
            position += 1
        if seq >= SOFT_RECORDS or size > SOFT_BYTES or self._full:
            self._judge_room(bodies, seq, size)
        if rows:
            self._seq, self._h, self._bytes = seq, h, size
            self._last_position = position - 1
            writer.add(rows, mark=self._mark, seq=seq)
        return seq

    def write(self) -> None:
        """Commits what was appended. It then survives the death of the process.

        Raises ``Fault("ledger_unwritable")``; the ledger is then unusable for good.
        """
        self._writer.write()

    def sync(self) -> None:
        """Makes what was written before the call survive a power loss. Blocks on the disk.

        Raises ``Fault("ledger_unwritable")``; the ledger is then unusable for good.
        """
        self._writer.sync()

    def head(self) -> Head:
        """Sequence number and hash of the last record; ``(-1, 64 zeros)`` before the first."""
        return Head(self._seq, self._h)

    @property
    def durable(self) -> int:
        """How many records are known to survive a power loss."""
        return self._mark.durable

    def close(self) -> None:
        """Writes, syncs and closes. After an error it only lets go."""
        writer = self._writer
        if not writer.usable:
            writer.close()
            return
        try:
            writer.write()
            if self._last_position:
                writer.leave(self._number, last=self._last_position)
            writer.sync()
        finally:
            if self._owned:
                writer.close()

    def _judge_room(self, bodies: tuple[Record, ...], seq: int, size: int) -> None:
        """Lets only what ends an attempt into the last part, and nothing past the bound."""
        over = seq >= MAX_RECORDS or size > MAX_LEDGER_BYTES
        if not over and all(isinstance(body, CLOSING) for body in bodies):
            return
        if not self._full:
            self._full = True
            bound: Literal["records", "bytes"] = "records" if seq >= SOFT_RECORDS else "bytes"
            self.append(LedgerFull(bound=bound, records=self._seq + 1, bytes=self._bytes))
        raise Fault("ledger_full")
