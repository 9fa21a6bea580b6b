"""Reads one attempt back from the database when its ledger is opened again.

Nothing is repaired. Records that a crash can have torn are named, by count, size and
digest, in a record that takes their place; everything else that does not follow is
damage, and the ledger stays closed.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from broker.evidence.chain import Chain, walk
from broker.evidence.database import Database, Row
from broker.evidence.records import EMPTY_HEAD, LedgerRecord, read_leaf
from protocol.errors import Fault
from protocol.ids import Digest, Id
from protocol.records import LedgerRecovered


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The state to go on from, what to note about it, and the positions to cut."""

    number: int
    chain: Chain
    note: LedgerRecovered | None
    doomed: tuple[int, ...]


def recover(
    database: Database, attempt: Id, *, next_position: int, pinned: int, clean: bool
) -> Recovery:
    """Enters ``attempt`` for appending and verifies what is there of it.

    ``pinned`` is the last position that is known to have been durable, ``clean``
    whether the last writer closed the ledger. Raises ``Fault("ledger_corrupt")``.
    """
    number, first = database.enter_attempt(attempt, first=next_position)
    chain = Chain(attempt)
    durable = 0

    def records() -> Iterator[LedgerRecord | None]:
        nonlocal durable
        for position, _, h, leaf in database.rows(number, first=first):
            durable += position <= pinned
            yield read_leaf(leaf, h.hex())

    broken = walk(records(), chain)
    torn: list[Row] = []
    if broken is not None:
        torn = list(database.rows(number, first=first))[broken.seq :]
        if not broken.torn or torn[0][0] <= pinned:
            raise Fault("ledger_corrupt")
    note = None
    if torn or (chain.head != EMPTY_HEAD and not clean):
        note = LedgerRecovered(
            durable=durable,
            torn_records=len(torn),
            torn_bytes=sum(len(row[3]) for row in torn),
            torn_digest=_digest(torn) if torn else None,
        )
    doomed = tuple(row[0] for row in torn)
    return Recovery(number=number, chain=chain, note=note, doomed=doomed)


def _digest(rows: list[Row]) -> Digest:
    hasher = hashlib.sha256()
    for _, _, h, leaf in rows:
        hasher.update(len(leaf).to_bytes(8, "big") + leaf + h)
    return Digest("sha256:" + hasher.hexdigest())
