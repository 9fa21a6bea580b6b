"""Damage is noticed; a crash is not called damage; a known head is the last word."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from broker.evidence.export import export
from broker.evidence.ledger import Ledger
from broker.evidence.records import Head, leaf_hash, make_leaf, make_line, read_line
from broker.evidence.verification import LedgerProblem, VerifiedLedger, verify_ledger
from protocol.errors import Fault
from protocol.ids import Id
from protocol.record_codes import LEDGER_PROBLEM_TEXT, LedgerProblemCode
from protocol.records import Record

Clock = Callable[[], int]
Make = Callable[[int], Record]


@pytest.fixture
def live(tmp_path: Path, clock: Clock, attempt: Id, body: Make) -> Iterator[Ledger]:
    """An open ledger of twelve records, synced after every third."""
    ledger = Ledger.open(tmp_path / "live", attempt, clock=clock)
    for n in range(12):
        ledger.append(body(n))
        ledger.write()
        if n % 3 == 2:
            ledger.sync()
    yield ledger
    ledger.close()


@pytest.fixture
def lines(live: Ledger, tmp_path: Path) -> list[bytes]:
    return list(export(tmp_path / "live"))


def flips(data: bytes, *, positions: list[int]) -> Iterator[bytes]:
    for position in positions:
        changed = bytearray(data)
        changed[position] ^= 1 << random.Random(position).randrange(8)
        yield bytes(changed)


def verify_file(path: Path, data: bytes, head: Head | None) -> VerifiedLedger | LedgerProblem:
    path.write_bytes(data)
    return verify_ledger(path, head=head)


def test_a_flipped_bit_anywhere_in_an_exported_ledger_is_noticed(
    live: Ledger, lines: list[bytes], tmp_path: Path
) -> None:
    data = b"".join(lines)
    file = tmp_path / "ledger.jsonl"
    assert isinstance(verify_file(file, data, live.head()), VerifiedLedger)

    for changed in flips(data, positions=list(range(len(data)))):
        answer = verify_file(file, changed, live.head())
        assert isinstance(answer, LedgerProblem)
        assert answer.code != "torn_tail"


def test_without_a_head_a_flip_looks_torn_only_in_the_last_unsynced_batch(
    lines: list[bytes], tmp_path: Path
) -> None:
    file = tmp_path / "ledger.jsonl"
    last_batch = sum(len(line) for line in lines[:9])
    data = b"".join(lines)

    for position in range(0, len(data), 3):
        changed = next(flips(data, positions=[position]))
        answer = verify_file(file, changed, None)
        assert isinstance(answer, LedgerProblem)
        assert (answer.code == "torn_tail") == (position >= last_batch), position


def test_a_tail_cut_at_any_byte_is_torn_or_shorter_and_never_past_a_known_head(
    live: Ledger, lines: list[bytes], tmp_path: Path
) -> None:
    file = tmp_path / "ledger.jsonl"
    data = b"".join(lines)
    whole = {sum(len(line) for line in lines[:n]) for n in range(1, 13)}

    for end in range(1, len(data)):
        alone = verify_file(file, data[:end], None)
        assert isinstance(alone, VerifiedLedger) == (end in whole)
        if isinstance(alone, LedgerProblem):
            assert alone.code == "torn_tail"
        pinned = verify_file(file, data[:end], live.head())
        assert isinstance(pinned, LedgerProblem)
        assert pinned.code in ("rolled_back", "record_malformed")


@pytest.mark.parametrize(
    ("order", "code", "seq"),
    [
        ([0, 1, 2, 4, 5], "sequence_broken", 3),
        ([0, 1, 1, 2], "sequence_broken", 2),
        ([0, 2, 1], "sequence_broken", 1),
        ([1, 2, 3], "sequence_broken", 0),
        ([], "ledger_empty", None),
    ],
)
def test_missing_repeated_and_swapped_records_are_named(
    lines: list[bytes], order: list[int], code: str, seq: int | None
) -> None:
    assert verify_ledger(lines[n] for n in order) == LedgerProblem(code, seq)  # type: ignore[arg-type]


def test_a_garbage_line_that_is_terminated_is_damage_once_it_was_synced(lines: list[bytes]) -> None:
    garbage = [*lines[:4], b"garbage\n", *lines[5:]]

    assert verify_ledger(garbage) == LedgerProblem("record_malformed", 4)


def rewritten(lines: list[bytes], n: int, **changes: object) -> list[bytes]:
    """Record ``n`` changed, with a hash that fits it, and all after it chained again."""
    made = lines[:n]
    h = json.loads(made[-1])["h"] if made else "0" * 64
    for index, line in enumerate(lines[n:]):
        record = read_line(line[:-1])
        assert record is not None
        envelope: dict[str, object] = {
            name: getattr(record.envelope, name) for name in record.envelope.__struct_fields__
        }
        envelope["prev"] = h
        if index == 0:
            envelope.update(changes)
        leaf = make_leaf(record.body, envelope)  # type: ignore[arg-type]
        h = leaf_hash(leaf).hex()
        made.append(make_line(leaf, h))
    return made


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"attempt": "attempt-2"}, "attempt_mismatch"),
        ({"prev": "0" * 64}, "chain_broken"),
        ({"b": 0}, "batch_broken"),
        ({"b": 8}, "batch_broken"),
        ({"epoch": 0}, "epoch_broken"),
        ({"seq": 6}, "sequence_broken"),
    ],
)
def test_a_whole_record_that_does_not_follow_is_never_called_torn(
    lines: list[bytes], changes: dict[str, object], code: str
) -> None:
    forged = rewritten(lines, 7, **changes)

    assert verify_ledger(forged) == LedgerProblem(code, 7)  # type: ignore[arg-type]
    assert verify_ledger(forged[:8]) == LedgerProblem(code, 7)  # type: ignore[arg-type]


def test_only_a_known_head_shows_a_history_that_was_written_again(
    live: Ledger, lines: list[bytes]
) -> None:
    forged = rewritten(lines, 5, at=1)
    earlier = read_line(lines[8][:-1])
    assert earlier is not None

    assert isinstance(verify_ledger(forged), VerifiedLedger)
    assert verify_ledger(forged, head=live.head()) == LedgerProblem("head_mismatch", 11)
    assert verify_ledger(forged, head=Head(8, earlier.h)) == LedgerProblem("head_mismatch", 8)
    assert isinstance(verify_ledger(lines, head=Head(8, earlier.h)), VerifiedLedger)
    assert verify_ledger(lines[:8], head=Head(8, earlier.h)) == LedgerProblem("rolled_back", 8)
    assert verify_ledger([], head=live.head()) == LedgerProblem("rolled_back", 0)


def test_lines_may_come_without_line_feeds_but_a_file_must_end_in_one(
    live: Ledger, lines: list[bytes], tmp_path: Path
) -> None:
    bare = [line[:-1] for line in lines]
    assert isinstance(verify_ledger(bare, head=live.head()), VerifiedLedger)

    answer = verify_file(tmp_path / "x.jsonl", b"\n".join(bare), None)
    assert answer == LedgerProblem("torn_tail", 11)


def test_a_line_without_end_costs_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with file.open("wb") as sparse:
        sparse.truncate(64 * 1024 * 1024)

    assert verify_ledger(file) == LedgerProblem("torn_tail", 0)


def test_what_is_not_there_is_said_so(live: Ledger, tmp_path: Path) -> None:
    assert verify_ledger(tmp_path / "absent") == LedgerProblem("ledger_unreadable")
    assert verify_ledger(tmp_path) == LedgerProblem("ledger_unreadable")
    assert verify_ledger(tmp_path / "live", attempt=Id("other")) == LedgerProblem(
        "attempt_not_found"
    )


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite-wal"])
def test_a_flipped_bit_in_the_live_files_is_noticed_or_changes_nothing(
    live: Ledger, lines: list[bytes], tmp_path: Path, clock: Clock, attempt: Id, name: str
) -> None:
    """Both for the verifier with a head and for the next writer without one."""
    source = tmp_path / "live"
    if name == "ledger.sqlite":
        live.close()
    data = (source / name).read_bytes()
    head = live.head()
    positions = sorted({*range(100), *random.Random(name).sample(range(len(data)), 200)})
    noticed = set()
    for number, changed in enumerate(flips(data, positions=positions)):
        copy = tmp_path / f"copy-{number}"
        copy.mkdir()
        for path in source.iterdir():
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy)
        (copy / name).write_bytes(changed)
        try:
            answer = verify_ledger(copy, head=head)
            if isinstance(answer, VerifiedLedger):
                assert list(export(copy)) == lines
            Ledger.open(copy, attempt, clock=clock).close()
            assert list(export(copy))[:12] == lines
        except Fault as fault:
            noticed.add(fault.code)
        shutil.rmtree(copy)
    assert "ledger_corrupt" in noticed <= {"ledger_corrupt", "ledger_unwritable"}


def test_every_problem_has_one_text() -> None:
    assert set(get_args(LedgerProblemCode)) == set(LEDGER_PROBLEM_TEXT)
