"""The ledger against the simplest model of it: a list that never loses what was promised."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.evidence.export import records_of
from broker.evidence.ledger import Ledger
from broker.evidence.verification import VerifiedLedger, verify_ledger
from protocol.digest import digest_bytes
from protocol.ids import Id
from protocol.records import Diagnostic, EventSeen, LedgerRecovered, Record

ATTEMPT = Id("attempt-1")
NUMBERS = st.integers(0, 2**53 - 1)
BODIES: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        EventSeen,
        kind=st.sampled_from(["agent.ready", "extension"]),
        digest=st.binary(max_size=4).map(digest_bytes),
        bytes=NUMBERS,
    ),
    st.builds(Diagnostic, code=st.just("agent_exited"), count=NUMBERS),
)


class LedgerIsAppendOnly(RuleBasedStateMachine):
    """``written`` is promised to outlive the process, ``appended`` is not yet."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "0"
        self.copies = 0
        self.now = 1_764_000_000_000
        self.appended: list[Record] = []
        self.written: list[Record] = []
        self.ledger = self.reopened()

    def reopened(self) -> Ledger:
        clock: Callable[[], int] = lambda: self.now  # noqa: E731
        return Ledger.open(self.folder, ATTEMPT, clock=clock)

    @rule(bodies=st.lists(BODIES, max_size=5), step=st.integers(-5, 50))
    def append(self, bodies: list[Record], step: int) -> None:
        self.now += step
        last = self.ledger.append(*bodies)
        self.appended += bodies
        assert last == len(self.written) + len(self.appended) - 1

    @rule()
    def write(self) -> None:
        self.ledger.write()
        self.written += self.appended
        self.appended.clear()

    @rule()
    def sync(self) -> None:
        before = len(self.written)
        self.ledger.sync()
        assert self.ledger.durable == before

    @rule()
    def close_and_open_again(self) -> None:
        self.written += self.appended
        self.appended.clear()
        self.ledger.close()
        self.ledger = self.reopened()

    @precondition(lambda self: self.copies < 3)
    @rule()
    def lose_the_process(self) -> None:
        """A copy of the files as they are is what a new process would find after a kill."""
        self.copies += 1
        old, self.folder = self.folder, self.root / str(self.copies)
        shutil.copytree(old, self.folder, ignore=shutil.ignore_patterns("*-shm"))
        self.ledger.close()
        self.appended.clear()
        self.ledger = self.reopened()
        if self.written:
            self.written.append(self.last_record())
            assert isinstance(self.written[-1], LedgerRecovered)
            assert self.written[-1].torn_records == 0

    def last_record(self) -> Record:
        *_, last = records_of(self.folder)
        assert last is not None
        return last.body

    @invariant()
    def what_was_written_reads_back(self) -> None:
        found = [record.body for record in records_of(self.folder) if record is not None]
        assert found == self.written

    @invariant()
    def the_chain_holds(self) -> None:
        if self.written and not self.appended:
            assert isinstance(verify_ledger(self.folder, head=self.ledger.head()), VerifiedLedger)

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.root)


TestLedgerIsAppendOnly = LedgerIsAppendOnly.TestCase
TestLedgerIsAppendOnly.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
