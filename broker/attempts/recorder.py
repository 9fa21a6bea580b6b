"""The one writer of an attempt's ledger: written before an answer, synced before an effect's.

Reads are written with the batch that they belong to and synced at most
``SYNC_SECONDS`` later; effects wait for the disk (evidence.md, durability classes).
Waiters share one flush: whoever was written before it began is covered by it.
"""

from typing import Final

import trio

from broker.evidence.ledger import SOFT_RECORDS, Ledger
from broker.evidence.records import Head
from broker.evidence.store import ArtifactStore
from protocol.ids import Digest
from protocol.records import Artifact, ArtifactLabel, Record

#: Longest time that a written record may wait to be synced.
SYNC_SECONDS: Final = 0.05
#: Events of the agent are recorded up to here; what is left is for its requests, so that
#: an agent that talks a lot can still finish its work.
EVENT_RECORDS: Final = SOFT_RECORDS * 3 // 4


class Recorder:
    """Appends to a ledger; ``write`` and ``sync`` say what is safe when they return."""

    def __init__(self, ledger: Ledger, store: ArtifactStore) -> None:
        self._ledger: Final = ledger
        self._store: Final = store
        self._flushing: Final = trio.Lock()
        self._written = 0
        self._synced = 0
        self._dirty = trio.Event()

    def append(self, *bodies: Record) -> None:
        """Chains ``bodies`` to the ledger in memory; nothing may be disclosed yet."""
        self._ledger.append(*bodies)

    def write(self) -> None:
        """Everything appended survives the death of this process."""
        self._ledger.write()
        self._written += 1
        self._dirty.set()

    async def sync(self) -> None:
        """Everything appended survives a power loss. Cannot be cancelled: it is one flush."""
        self.write()
        with trio.CancelScope(shield=True):
            await self._flush(self._written)

    async def _flush(self, target: int) -> None:
        async with self._flushing:
            if self._synced >= target:
                return
            covered = self._written
            await trio.to_thread.run_sync(self._ledger.sync)
            self._synced = covered

    async def keep_synced(self) -> None:
        """Syncs what reads have written, a moment later; runs until it is cancelled."""
        while True:
            await self._dirty.wait()
            await trio.sleep(SYNC_SECONDS)
            self._dirty = trio.Event()
            await self._flush(self._written)

    async def keep(
        self, label: ArtifactLabel, data: bytes, *, request: int | None = None
    ) -> Digest:
        """Keeps ``data`` as a labelled artifact, and records its digest."""
        digest = await trio.to_thread.run_sync(self._store.put, data, label)
        self.append(Artifact(label=label, digest=digest, bytes=len(data), request=request))
        return digest

    def has_room_for_events(self) -> bool:
        """Whether one more event of the agent may be recorded."""
        return self._ledger.head().seq < EVENT_RECORDS

    def head(self) -> Head:
        """Sequence number and hash of the newest record."""
        return self._ledger.head()

    async def close(self) -> None:
        """Syncs and closes the ledger."""
        with trio.CancelScope(shield=True):
            await self.sync()
            await trio.to_thread.run_sync(self._ledger.close)
