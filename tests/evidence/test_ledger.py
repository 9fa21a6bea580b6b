"""What the ledger promises its writer, short of a crash."""

import json
import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from broker.evidence.export import attempts_of, export
from broker.evidence.ledger import Ledger
from broker.evidence.records import MAX_LEDGER_BYTES, MAX_RECORDS, NO_HASH
from broker.evidence.verification import LedgerProblem, VerifiedLedger, verify_ledger
from broker.evidence.writer import LedgerWriter
from protocol.errors import Fault
from protocol.ids import Digest, Id, ToolName
from protocol.records import AttemptCompleted, Decision, Record, Request

Clock = Callable[[], int]
Make = Callable[[int], Record]


def lines(folder: Path, attempt: Id | None = None) -> list[dict[str, object]]:
    return [json.loads(line) for line in export(folder, attempt=attempt)]


def test_what_was_appended_is_what_is_exported(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path / "deep" / "ledger", attempt, clock=clock)
    assert ledger.head() == (-1, NO_HASH)

    assert ledger.append(*(body(n) for n in range(10))) == 9
    head = ledger.head()
    ledger.close()

    exported = lines(tmp_path / "deep" / "ledger")
    assert [line["seq"] for line in exported] == list(range(10))
    assert [line["prev"] for line in exported] == [NO_HASH, *(line["h"] for line in exported[:-1])]
    assert head == (9, exported[-1]["h"])
    assert exported[1] | {"h": "", "prev": ""} == {
        "v": 1, "attempt": "attempt-1", "seq": 1, "b": 0, "epoch": 1, "prev": "", "h": "",
        "at": 1_764_000_000_000, "t": "event", "kind": "agent.log", "bytes": 1,
        "digest": "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
    }  # fmt: skip
    assert verify_ledger(tmp_path / "deep" / "ledger", head=head) == VerifiedLedger(
        attempt=attempt,
        records=10,
        bytes=sum(len(line) for line in export(tmp_path / "deep" / "ledger")),
        head=head,
        epoch=1,
        completed=None,
        pinned=True,
    )


def test_b_is_the_first_record_that_was_not_durable(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    ledger.append(body(0), body(1))
    ledger.write()
    ledger.append(body(2))
    ledger.sync()  # covers what was written: two records
    assert ledger.durable == 2
    ledger.append(body(3))
    ledger.write()
    ledger.sync()
    assert ledger.durable == 4
    ledger.append(body(4))
    ledger.close()

    assert [line["b"] for line in lines(tmp_path)] == [0, 0, 0, 2, 4]


def test_written_records_are_seen_by_a_reader_and_appended_ones_are_not(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    ledger.append(body(0))
    assert lines(tmp_path) == []
    ledger.write()
    assert len(lines(tmp_path)) == 1
    ledger.close()


def test_a_second_writer_is_refused_and_harms_nothing(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    for other in (attempt, Id("attempt-2")):
        with pytest.raises(Fault) as caught:
            Ledger.open(tmp_path, other, clock=clock)
        assert caught.value.code == "ledger_locked"

    ledger.append(body(0))
    ledger.close()

    assert isinstance(verify_ledger(tmp_path, head=ledger.head()), VerifiedLedger)
    Ledger.open(tmp_path, attempt, clock=clock).close()


def test_a_clean_reopening_continues_the_chain_in_a_new_epoch(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    for n in range(3):
        ledger = Ledger.open(tmp_path, attempt, clock=clock)
        assert ledger.append(body(n)) == n
        ledger.close()
        ledger.close()

    exported = lines(tmp_path)
    assert [line["epoch"] for line in exported] == [1, 2, 3]
    assert {line["t"] for line in exported} == {"event", "diagnostic"}
    assert isinstance(verify_ledger(tmp_path, head=ledger.head()), VerifiedLedger)


def test_nothing_can_be_appended_after_the_end(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    ledger.close()

    for act in (lambda: ledger.append(body(0)), ledger.write, ledger.sync):
        with pytest.raises(Fault) as caught:
            act()
        assert caught.value.code == "ledger_unwritable"


def test_text_in_a_record_is_a_bug_and_leaves_no_trace(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    digest = Digest("sha256:" + "a" * 64)
    prose = Request(
        request=1, kind="tool", tool=ToolName("rm -rf /"), frame_digest=digest, frame_bytes=1
    )

    with pytest.raises(AssertionError):
        ledger.append(body(0), prose)

    assert ledger.head().seq == -1
    assert ledger.append(body(0)) == 0
    ledger.close()
    assert len(lines(tmp_path)) == 1


def test_many_attempts_share_one_folder_and_keep_their_own_chains(
    tmp_path: Path, clock: Clock, body: Make
) -> None:
    names = [Id(f"attempt-{n}") for n in range(5)]
    writer = LedgerWriter.open(tmp_path)
    ledgers = [Ledger.enter(writer, name, clock=clock) for name in names]
    for n in range(20):
        for ledger in ledgers[n % 3 :]:
            ledger.append(body(n))
        writer.write()
        if n % 4 == 0:
            ledgers[0].sync()
    heads = [ledger.head() for ledger in ledgers]
    ledgers[2].close()
    ledgers[4].append(body(1))
    ledgers[4].close()
    writer.close()

    assert attempts_of(tmp_path) == tuple(names)
    for name, head in zip(names, heads, strict=True):
        verified = verify_ledger(tmp_path, attempt=name, head=head)
        assert isinstance(verified, VerifiedLedger)
        assert verified.attempt == name
    assert verify_ledger(tmp_path) == LedgerProblem("attempt_not_found")


def fill(ledger: Ledger, make: Make) -> int:
    """Appends until the ledger is full, writing on the way; how many it took."""
    for n in count():
        if n % 1000 == 0:
            ledger.write()
        try:
            ledger.append(make(n))
        except Fault as fault:
            return n if fault.code == "ledger_full" else -1
    raise AssertionError


def large(n: int) -> Record:
    digest = Digest("sha256:" + "a" * 64)
    return Decision(
        request=n,
        decision_id=Id("d" * 128),
        outcome="deny",
        reason="evaluation_error",
        action_digest=digest,
        targets=(Id("t" * 128),) * 64,
        source_digest=digest,
        policy_digest=digest,
        untrusted_control=True,
        evaluator_version=1,
    )


@pytest.mark.parametrize("bound", ["records", "bytes"])
def test_a_bound_ends_the_attempt_with_a_record_and_room_for_the_end(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make, bound: str
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    taken = fill(ledger, body if bound == "records" else large)
    with pytest.raises(Fault):
        ledger.append(body(1))
    ledger.append(AttemptCompleted(outcome="infrastructure"))
    ledger.close()

    exported = lines(tmp_path)
    assert len(exported) == taken + 2 <= MAX_RECORDS
    assert exported[-2]["t"] == "ledger.full"
    assert exported[-2]["bound"] == bound
    assert exported[-2]["records"] == taken
    verified = verify_ledger(tmp_path, head=ledger.head())
    assert isinstance(verified, VerifiedLedger)
    assert verified.bytes <= MAX_LEDGER_BYTES
    assert verified.completed == AttemptCompleted(outcome="infrastructure")


def test_what_ends_an_attempt_cannot_pass_the_bound_either(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    fill(ledger, body)

    assert fill(ledger, lambda n: AttemptCompleted(outcome="infrastructure")) > 0
    assert ledger.head().seq == MAX_RECORDS - 1
    ledger.close()


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(
    tmp_path: Path, clock: Clock, attempt: Id
) -> None:
    for content in (b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 200):
        (tmp_path / "ledger.sqlite").write_bytes(content)
        with pytest.raises(Fault) as caught:
            Ledger.open(tmp_path, attempt, clock=clock)
        assert caught.value.code == "ledger_corrupt"
        assert (tmp_path / "ledger.sqlite").read_bytes() == content


def test_another_application_s_database_is_refused(
    tmp_path: Path, clock: Clock, attempt: Id
) -> None:
    other = sqlite3.connect(tmp_path / "ledger.sqlite")
    other.execute("CREATE TABLE theirs (x)")
    other.close()

    with pytest.raises(Fault) as caught:
        Ledger.open(tmp_path, attempt, clock=clock)

    assert caught.value.code == "ledger_corrupt"


def test_the_store_has_the_settings_that_the_claims_rest_on(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    ledger.append(body(0))
    ledger.write()
    reader = sqlite3.connect(tmp_path / "ledger.sqlite")

    assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    for (sql,) in reader.execute("SELECT sql FROM sqlite_schema WHERE type = 'table'"):
        assert sql.endswith("STRICT")
    reader.close()
    ledger.close()
    assert {path.name for path in tmp_path.iterdir()} == {"ledger.sqlite", "ledger.pin"}
