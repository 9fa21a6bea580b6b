"""Verifies a ledger offline: a folder, an exported file, or lines that came from anywhere.

Nothing is believed but the bytes and a head that the caller already had. The answer is
the verified chain or one closed code with the sequence number; nothing is repaired.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.evidence.chain import Break, Chain, walk
from broker.evidence.export import records_of
from broker.evidence.records import EMPTY_HEAD, MAX_RECORD_BYTES, Head, LedgerRecord, read_line
from protocol.errors import Fault, Refusal
from protocol.ids import Id
from protocol.record_codes import LedgerProblemCode
from protocol.records import AttemptCompleted


@dataclass(frozen=True, slots=True)
class LedgerProblem:
    """Why a ledger does not verify, and at which sequence number, where one is at fault."""

    code: LedgerProblemCode
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedLedger:
    """A chain in which every record follows from the first. ``pinned``: a known head was met."""

    attempt: Id
    records: int
    bytes: int  #: of the JSONL form
    head: Head
    epoch: int
    completed: AttemptCompleted | None
    pinned: bool


def verify_ledger(
    source: Path | Iterable[bytes], *, head: Head | None = None, attempt: Id | None = None
) -> VerifiedLedger | LedgerProblem:
    """Verifies the chain of one attempt.

    ``source`` is a ledger folder, a JSONL file, or lines, with or without line feeds.
    ``head`` was kept elsewhere (in a receipt, by the control plane): the chain must
    contain it. ``attempt`` is whose chain it must be; a folder with several needs it.
    """
    chain = Chain(attempt, watched=None if head is None else head.seq)
    try:
        broken = walk(_records(source, attempt), chain)
    except OSError:
        return LedgerProblem("ledger_unreadable")
    except Refusal as refusal:
        missing = refusal.code == "attempt_not_in_ledger"
        return LedgerProblem("attempt_not_found" if missing else "ledger_unreadable")
    except Fault:
        return LedgerProblem("ledger_unreadable", chain.head.seq + 1)
    problem = _problem(chain, broken, head)
    if problem is not None:
        return problem
    if chain.attempt is None or chain.head == EMPTY_HEAD:
        return LedgerProblem("ledger_empty")
    return VerifiedLedger(
        attempt=chain.attempt,
        records=chain.head.seq + 1,
        bytes=chain.bytes,
        head=chain.head,
        epoch=chain.epoch,
        completed=chain.completed,
        pinned=head is not None,
    )


def _problem(chain: Chain, broken: Break | None, head: Head | None) -> LedgerProblem | None:
    """What is wrong after the walk; a torn tail ends before the known head or is damage."""
    if broken is not None:
        pinned = head is not None and broken.seq <= head.seq
        return LedgerProblem(broken.code if pinned or not broken.torn else "torn_tail", broken.seq)
    if head is None or head == EMPTY_HEAD:
        return None
    if chain.head.seq < head.seq:
        return LedgerProblem("rolled_back", chain.head.seq + 1)
    return LedgerProblem("head_mismatch", head.seq) if chain.watched_h != head.h else None


def _records(source: Path | Iterable[bytes], attempt: Id | None) -> Iterator[LedgerRecord | None]:
    if not isinstance(source, Path):
        for line in source:
            yield read_line(line.removesuffix(b"\n"))
    elif source.is_dir():
        yield from records_of(source, attempt=attempt)
    else:
        with source.open("rb") as file:
            # A line that is too long or does not end is no record; the bound is on memory.
            while line := file.readline(MAX_RECORD_BYTES + 1):
                yield read_line(line[:-1]) if line.endswith(b"\n") else None
