"""Whole attempts of the puppet agent in a real sandbox, and what is left of each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from broker.attempts.asking import Approver, NobodyToAsk
from broker.attempts.attempt import Attempt
from broker.attempts.progress import Unwatched, Watcher
from broker.attempts.spec import AttemptResult, AttemptSpec
from broker.evidence.export import records_of
from broker.evidence.verification import VerifiedLedger, verify_ledger
from protocol import records
from protocol.ids import Id
from tests.attempts.steps import Step

PUPPET = Path(__file__).parent / "puppet"
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An attempt that ended, and the folder that it left."""

    result: AttemptResult

    @property
    def out(self) -> Path:
        return self.result.out

    @property
    def document(self) -> dict[str, Any]:
        """``attempt.json``."""
        made: dict[str, Any] = json.loads((self.out / "attempt.json").read_bytes())
        return made

    @property
    def ledger(self) -> list[records.Record]:
        return ledger_of(self.out)

    def of(self, kind: type[Any]) -> list[Any]:
        """The records of one type."""
        return [record for record in self.ledger if isinstance(record, kind)]

    @property
    def stderr(self) -> bytes:
        """What the agent wrote on standard error, as far as it was kept."""
        folder = self.out / "artifacts" / "agent_stderr"
        files = list(folder.iterdir()) if folder.is_dir() else []
        assert len(files) <= 1
        return files[0].read_bytes() if files else b""

    @property
    def seen(self) -> list[dict[str, Any]]:
        """The frames that the agent got after ``task.start``."""
        lines = [line[2:] for line in self.stderr.split(b"\n") if line.startswith(b"< ")]
        return [json.loads(line) for line in lines[1:]]

    def answer(self, request_id: str) -> dict[str, Any]:
        """The one final answer to a request; there must not be another."""
        found = [
            frame for frame in self.seen if frame.get("requestId") == request_id and frame["final"]
        ]
        assert len(found) == 1, (request_id, found)
        return found[0]

    @property
    def cancel(self) -> dict[str, Any] | None:
        """``attempt.cancel`` as the agent got it; at most one."""
        found = [frame for frame in self.seen if frame["type"] == "attempt.cancel"]
        assert len(found) <= 1
        return found[0] if found else None

    def said(self, prefix: str) -> list[str]:
        """What the puppet said of itself."""
        start = f"# {prefix}".encode()
        return [
            line[len(start) :].strip().decode()
            for line in self.stderr.split(b"\n")
            if line.startswith(start)
        ]


def ledger_of(out: Path) -> list[records.Record]:
    """The bodies of a verified ledger."""
    verified = verify_ledger(out / "ledger")
    assert isinstance(verified, VerifiedLedger), verified
    found = list(records_of(out / "ledger"))
    assert all(record is not None for record in found)
    return [record.body for record in found if record is not None]


def make_spec(
    steps: Sequence[Step] | str, *, repo: Path, state: Path, out: Path, **changes: Any
) -> AttemptSpec:
    """An attempt of the puppet; ``changes`` are fields of ``AttemptSpec``."""
    given: dict[str, Any] = {
        "attempt_id": Id(f"at_test_{next(_numbers)}"),
        "repo": repo,
        "ref": None,
        "instruction": steps if isinstance(steps, str) else json.dumps(list(steps)),
        "agent": f"adapter:{PUPPET}",
        "agent_arguments": (),
        "host_catalog": None,
        "inference": None,
        "engine": "auto",
        "approve": "never",
        "listed_recipes": frozenset(),
        "out": out,
        "state": state,
        "deadline_seconds": 60,
        "allow_unpinned": False,
    }
    return AttemptSpec(**(given | changes))


async def play(
    steps: Sequence[Step],
    *,
    repo: Path,
    state: Path,
    out: Path,
    approver: Approver | None = None,
    watcher: Watcher | None = None,
    **changes: Any,
) -> Played:
    """One attempt of the puppet from its start to its result."""
    spec = make_spec(steps, repo=repo, state=state, out=out, **changes)
    attempt = Attempt(spec, approver=approver or NobodyToAsk(), watcher=watcher or Unwatched())
    return Played(result=await attempt.run())


def plain(value: Any) -> Any:
    """A record or a message as plain JSON values."""
    return msgspec.to_builtins(value)
