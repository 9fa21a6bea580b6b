"""Walks the records of one attempt and says where they stop following from each other.

The same walk serves recovery and offline verification. A bad record at the end is a
torn tail only when nothing after it was written later than a sync that covered it: a
record whose batch start ``b`` lies beyond the bad one proves that the bad one had been
durable, so the region is damage and not a crash. A chain cannot show a change of its
own last record or a cut of its end; only a head that was kept elsewhere can.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.evidence.records import (
    EMPTY_HEAD,
    MAX_LEDGER_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    Head,
    LedgerRecord,
    leaf_hash,
)
from protocol.ids import Id
from protocol.record_codes import LedgerProblemCode
from protocol.records import AttemptCompleted, LedgerFull


@dataclass(frozen=True, slots=True)
class Break:
    """The first record that does not follow, and whether a crash can explain it."""

    code: LedgerProblemCode
    seq: int
    torn: bool


class Chain:
    """The state of a walk over one attempt's records, in order from its first.

    ``watched`` is a sequence number whose hash is kept as ``watched_h``.
    """

    def __init__(self, attempt: Id | None, *, watched: int | None = None) -> None:
        self.attempt = attempt
        self.watched = watched
        self.watched_h: str | None = None
        self.head = EMPTY_HEAD
        self.bytes = 0
        self.b = 0
        self.epoch = 0
        self.full = False  #: a bound had been reached
        self.completed: AttemptCompleted | None = None

    def accept(self, record: LedgerRecord | None) -> LedgerProblemCode | None:
        """Takes the next record, or says why it is not the next; then nothing changed.

        ``record`` is None where the bytes are no record at all.
        """
        if record is None:
            return "record_malformed"
        problem = self._problem(record)
        if problem is not None:
            return problem
        envelope = record.envelope
        self.attempt = envelope.attempt
        self.head = Head(envelope.seq, record.h)
        self.bytes += record.line_bytes
        self.b, self.epoch = envelope.b, envelope.epoch
        if envelope.seq == self.watched:
            self.watched_h = record.h
        if isinstance(record.body, AttemptCompleted):
            self.completed = record.body
        self.full = self.full or isinstance(record.body, LedgerFull)
        return None

    def _problem(self, record: LedgerRecord) -> LedgerProblemCode | None:
        envelope = record.envelope
        checks: tuple[tuple[bool, LedgerProblemCode], ...] = (
            (is_whole(record), "hash_mismatch"),
            (self.attempt in (None, envelope.attempt), "attempt_mismatch"),
            (envelope.seq == self.head.seq + 1, "sequence_broken"),
            (envelope.prev == self.head.h, "chain_broken"),
            (self.b <= envelope.b <= envelope.seq, "batch_broken"),
            (self.epoch <= envelope.epoch, "epoch_broken"),
            (record.line_bytes <= MAX_RECORD_BYTES, "record_too_large"),
            (envelope.seq < MAX_RECORDS, "too_many_records"),
            (self.bytes + record.line_bytes <= MAX_LEDGER_BYTES, "ledger_too_large"),
        )
        return next((code for holds, code in checks if not holds), None)


def is_whole(record: LedgerRecord) -> bool:
    """Whether the record's hash is the hash of its leaf."""
    return leaf_hash(record.leaf).hex() == record.h


def walk(records: Iterable[LedgerRecord | None], chain: Chain) -> Break | None:
    """Takes ``records`` into ``chain`` up to the first that does not follow, if any.

    What comes after a bad record is read too, because it decides whether the bad one
    is a torn tail. A whole record in the wrong place is never torn: a crash loses or
    spoils bytes, it does not write other ones.
    """
    items = iter(records)
    for record in items:
        code = chain.accept(record)
        if code is not None:
            seq = chain.head.seq + 1
            torn = record is None or not is_whole(record)
            torn = torn and not any(_proves_synced(later, seq, chain.attempt) for later in items)
            return Break(code, seq, torn)
    return None


def _proves_synced(record: LedgerRecord | None, seq: int, attempt: Id | None) -> bool:
    """Whether ``record`` can only have been made after record ``seq`` was durable."""
    return (
        record is not None
        and is_whole(record)
        and attempt in (None, record.envelope.attempt)
        and record.envelope.b > seq
    )
