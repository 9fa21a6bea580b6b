"""What survives the death of the process, a loss of power, and a disk that says no."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.evidence.export import export
from broker.evidence.ledger import Ledger
from broker.evidence.pin import PIN_NAME
from broker.evidence.verification import LedgerProblem, VerifiedLedger, verify_ledger
from protocol.errors import Fault
from protocol.ids import Id
from protocol.records import Record

Clock = Callable[[], int]
Make = Callable[[int], Record]

#: Writes records until it is killed and says after each step how far it is promised.
WRITER = """
import sys
from pathlib import Path
from broker.evidence.ledger import Ledger
from protocol.digest import digest_bytes
from protocol.ids import Id
from protocol.records import EventSeen

ledger = Ledger.open(Path(sys.argv[1]), Id("attempt-1"), clock=lambda: 1)
while True:
    for _ in range(1 + ledger.head().seq % 4):
        n = ledger.head().seq + 1
        ledger.append(EventSeen(kind="agent.log", digest=digest_bytes(b"%d" % n), bytes=n))
    ledger.write()
    sys.stdout.write(f"{ledger.head().seq} {ledger.head().h}\\n")
    sys.stdout.flush()
    if n % 7 == 0:
        ledger.sync()
"""


def test_a_killed_writer_loses_nothing_that_it_had_written(tmp_path: Path, attempt: Id) -> None:
    """Killed again and again over one ledger, which goes on from where it was."""
    folder = tmp_path / "ledger"
    for n in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        said = writer.stdout.readline()
        for _ in range(random.Random(n).randrange(400)):
            said = writer.stdout.readline()
        writer.kill()
        rest = [line for line in writer.stdout.read().splitlines() if len(line.split()) == 2]
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        promised = rest[-1] if rest else said
        seq, h = promised.split()

        chain = list(export(folder))
        assert len(chain) > int(seq)
        assert f'"h":"{h}"'.encode() in chain[int(seq)]
        verified = verify_ledger(folder)
        assert isinstance(verified, VerifiedLedger)
        assert verified.epoch == n + 1
        assert verified.records == len(chain)
    assert sum(b'"t":"ledger.recovered"' in line for line in chain) == 11


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")
    }


def after_power_loss(
    durable: dict[str, bytes], cached: dict[str, bytes], *, dice: random.Random
) -> dict[str, bytes]:
    """Of every sector that differs, the old or the new content; a file as long as either."""
    left = {}
    for name, new in cached.items():
        old = durable.get(name, b"")
        size = dice.choice([len(old), len(new), len(new)]) if len(new) >= len(old) else len(old)
        old, new = old.ljust(size, b"\x00")[:size], new.ljust(size, b"\x00")[:size]
        ratio = dice.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        left[name] = b"".join(
            (new if dice.random() < ratio else old)[at : at + 512] for at in range(0, size, 512)
        )
    return left


def test_a_power_loss_keeps_what_was_synced_and_is_never_called_damage(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    """The files as the last sync left them, with any of the later sectors, in any order."""
    folder = tmp_path / "ledger"
    ledger = Ledger.open(folder, attempt, clock=clock)
    note = (folder / PIN_NAME).read_bytes()
    for n in range(20):
        ledger.append(body(n))
        ledger.write()
    ledger.sync()
    # The note of what is durable is itself not synced: its last synced form is the first.
    synced, durable = ledger.head(), files_of(folder) | {PIN_NAME: note}
    for n in range(20, 40):
        ledger.append(body(n), body(n))
        ledger.write()
    head, cached = ledger.head(), files_of(folder)
    whole = list(export(folder))
    ledger.close()

    lengths = set()
    for seed in range(150):
        lost = tmp_path / f"lost-{seed}"
        lost.mkdir()
        left = after_power_loss(durable, cached, dice=random.Random(seed))
        for name, data in left.items():
            (lost / name).write_bytes(data)
        reopened = Ledger.open(lost, attempt, clock=clock)
        reopened.close()
        chain = list(export(lost))
        kept = len(chain) - 1  # the last one tells of the recovery
        assert synced.seq < kept <= head.seq + 1
        assert chain[:kept] == whole[:kept]
        assert isinstance(verify_ledger(lost, head=synced), VerifiedLedger)
        lengths.add(kept)
        shutil.rmtree(lost)
    assert len(lengths) > 2


def test_a_ledger_without_its_synced_records_is_corrupt(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    """An older copy of the database, or none, beside a note of what was durable."""
    folder = tmp_path / "ledger"
    ledger = Ledger.open(folder, attempt, clock=clock)
    ledger.append(body(0))
    ledger.close()
    old = (folder / "ledger.sqlite").read_bytes()
    ledger = Ledger.open(folder, attempt, clock=clock)
    ledger.append(body(1))
    ledger.close()

    (folder / "ledger.sqlite").write_bytes(old)
    with pytest.raises(Fault) as caught:
        Ledger.open(folder, attempt, clock=clock)
    assert caught.value.code == "ledger_corrupt"
    assert (folder / "ledger.sqlite").read_bytes() == old
    assert verify_ledger(folder, head=ledger.head()) == LedgerProblem("rolled_back", 1)

    (folder / "ledger.sqlite").unlink()
    with pytest.raises(Fault) as caught:
        Ledger.open(folder, attempt, clock=clock)
    assert caught.value.code == "ledger_corrupt"
    assert not (folder / "ledger.sqlite").exists()


def spoil(folder: Path, *, seq: int) -> None:
    """Overwrites the leaf of one record where it lies in the closed database."""
    file = folder / "ledger.sqlite"
    data = file.read_bytes()
    leaf = next(line for line in export(folder) if f'"seq":{seq},'.encode() in line)
    mark = leaf[leaf.index(b'"digest"') : leaf.index(b'"digest"') + 60]
    assert data.count(mark) == 1
    file.write_bytes(data.replace(mark, b"\xff" * len(mark)))


@pytest.fixture
def half_synced(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> Callable[..., LedgerProblem | VerifiedLedger | str]:
    """Six records, the last three never synced; one is spoilt, and the ledger opened again."""

    def reopen(*, spoilt: int, pinned: bool) -> LedgerProblem | VerifiedLedger | str:
        ledger = Ledger.open(tmp_path, attempt, clock=clock)
        ledger.append(*(body(3 * n) for n in range(3)))
        ledger.write()
        ledger.sync()
        note = (tmp_path / PIN_NAME).read_bytes()
        ledger.append(*(body(3 * n) for n in range(3, 6)))
        ledger.close()
        spoil(tmp_path, seq=spoilt)
        (tmp_path / PIN_NAME).write_bytes(note if pinned else b"")
        try:
            Ledger.open(tmp_path, attempt, clock=clock).close()
        except Fault as fault:
            return fault.code
        return verify_ledger(tmp_path)

    return reopen


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("spoilt", range(3))
def test_a_spoilt_record_that_was_durable_is_damage(
    half_synced: Callable[..., object], spoilt: int, pinned: bool
) -> None:
    assert half_synced(spoilt=spoilt, pinned=pinned) == "ledger_corrupt"


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("spoilt", range(3, 6))
def test_a_spoilt_record_that_was_never_durable_is_cut_and_the_cut_is_recorded(
    tmp_path: Path, half_synced: Callable[..., object], spoilt: int, pinned: bool
) -> None:
    verified = half_synced(spoilt=spoilt, pinned=pinned)

    assert isinstance(verified, VerifiedLedger)
    assert (verified.records, verified.epoch) == (spoilt + 1, 2)
    last = json.loads(list(export(tmp_path))[-1])
    assert last["t"] == "ledger.recovered"
    assert last["durable"] == (3 if pinned else 0)
    assert last["tornRecords"] == 6 - spoilt
    assert last["tornBytes"] > 100


POISON = """
import resource, sys
from pathlib import Path
from broker.evidence.ledger import Ledger
from protocol.digest import digest_bytes
from protocol.errors import Fault
from protocol.ids import Id
from protocol.records import EventSeen

ledger = Ledger.open(Path(sys.argv[1]), Id("attempt-1"), clock=lambda: 1)
body = EventSeen(kind="agent.log", digest=digest_bytes(b""), bytes=1)
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, limit[1]))
promised, codes = -1, []
try:
    while promised < 100_000:
        ledger.append(body)
        ledger.write()
        promised = ledger.head().seq
except Fault as fault:
    codes.append(fault.code)
resource.setrlimit(resource.RLIMIT_FSIZE, limit)
for again in (lambda: ledger.append(body), ledger.write, ledger.sync):
    try:
        again()
    except Fault as fault:
        codes.append(fault.code)
ledger.close()
print(promised, *codes)
"""


def test_a_full_disk_ends_the_ledger_for_good_and_keeps_what_was_promised(
    tmp_path: Path, clock: Clock, attempt: Id
) -> None:
    folder = tmp_path / "ledger"
    said = subprocess.run(
        [sys.executable, "-c", POISON, str(folder)], capture_output=True, text=True, check=True
    ).stdout.split()

    assert said[1:] == ["ledger_unwritable"] * 4
    assert int(said[0]) > 10
    assert len(list(export(folder))) == int(said[0]) + 1
    Ledger.open(folder, attempt, clock=clock).close()
    assert isinstance(verify_ledger(folder), VerifiedLedger)


def test_a_failed_sync_ends_the_ledger_and_nothing_touches_the_files_after_it(
    tmp_path: Path, clock: Clock, attempt: Id, body: Make
) -> None:
    """A descriptor that cannot be synced stands in for a disk that reports an error."""
    ledger = Ledger.open(tmp_path, attempt, clock=clock)
    ledger.append(body(0))
    ledger.write()
    wal = ledger._writer._database._wal
    assert wal is not None
    reading, writing = os.pipe()
    os.dup2(reading, wal)
    before = files_of(tmp_path)

    for act in (ledger.sync, ledger.sync, ledger.write, lambda: ledger.append(body(1))):
        with pytest.raises(Fault) as caught:
            act()
        assert caught.value.code == "ledger_unwritable"
    ledger.close()
    os.close(reading)
    os.close(writing)

    # No checkpoint at the close: the log is still there, byte for byte.
    assert files_of(tmp_path) == before
    reopened = Ledger.open(tmp_path, attempt, clock=clock)
    reopened.close()
    assert [b"ledger.recovered" in line for line in export(tmp_path)] == [False, True]


SYNCS = """
import sys
from pathlib import Path
from broker.evidence.ledger import Ledger
from protocol.digest import digest_bytes
from protocol.ids import Id
from protocol.records import EventSeen

ledger = Ledger.open(Path(sys.argv[1]), Id("attempt-1"), clock=lambda: 1)
body = EventSeen(kind="agent.log", digest=digest_bytes(b""), bytes=1)
for round in range(6):
    sys.stderr.write("write\\n")
    for _ in range(500):
        ledger.append(body)
        ledger.write()
    sys.stderr.write("sync\\n")
    ledger.sync()
sys.stderr.write("end\\n")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_write_never_waits_for_the_disk_and_a_sync_does(tmp_path: Path) -> None:
    log = tmp_path / "strace.log"
    subprocess.run(
        ["strace", "-f", "-o", str(log), "-e", "trace=fsync,fdatasync,write"]  # noqa: RUF005
        + [sys.executable, "-c", SYNCS, str(tmp_path / "ledger")],
        check=True,
        capture_output=True,
    )
    phases: dict[str, int] = {}
    phase = "open"
    for line in log.read_text().splitlines():
        if "write(2," in line:
            phase = line.split('"')[1].removesuffix("\\n")
        elif "sync(" in line:
            phases[phase] = phases.get(phase, 0) + 1

    assert phases["sync"] >= 6
    assert "write" not in phases
