"""When the world fails: the request or the attempt ends in order, and the ledger says so."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.attempts.progress import Counters
from broker.attempts.recorder import EVENT_RECORDS
from protocol import records
from protocol.limits import EventRate, Limits
from tests.attempts.bench import conversing
from tests.attempts.checkouts import survey
from tests.attempts.ledger_rules import assert_effects_follow_their_decisions
from tests.attempts.steps import answer, complete, do, read, tool


@pytest.mark.parametrize("fails", ["spawn", "wait", "start"])
async def test_a_recipe_that_cannot_be_run_is_an_error_of_its_request_only(
    tmp_path: Path, fails: str
) -> None:
    async with conversing(tmp_path / "a", fails=fails) as (bench, agent):
        agent.send(tool("c", "run_recipe", recipeId="check"), read("r", "value.txt"))
        failed = await agent.answer("c")
        await agent.answer("r")
        agent.send(complete())

    assert failed["error"]["code"] == "engine_unavailable"
    assert failed["error"]["retryable"] is True
    assert failed["decision"]["outcome"] == "approved"
    assert agent.finals()["r"][0]["ok"]
    assert bench.conversation.ending.outcome == "succeeded"
    (ended,) = [each for each in bench.ledger if isinstance(each, records.EffectFinished)]
    assert ended.status == "failed"
    assert ended.code in ("engine_failed", "sandbox_never_ran")
    assert_effects_follow_their_decisions(bench.ledger)
    assert list((tmp_path / "a/runs").iterdir()) == []


class Breaking:
    """A watcher that takes the place of artifacts away when the agent has been heard."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "artifacts"

    def phase(self, phase: str, counters: Counters) -> None:
        pass

    def progress(self, counters: Counters) -> None:
        if counters.requests and self._folder.is_dir():
            shutil.rmtree(self._folder)
            self._folder.write_text("in the way")


@pytest.mark.engine
async def test_an_attempt_whose_results_cannot_be_kept_ends_as_infrastructure(
    puppet: Any, repo: Path, tmp_path: Path
) -> None:
    before = survey(repo)
    steps = [
        read("r", "value.txt"),
        answer("r"),
        do("ignore_signals"),
        tool("c", "run_recipe", recipeId="check"),
        do("forever"),
    ]

    played = await puppet(steps, watcher=Breaking(tmp_path / "out"))

    assert played.result.outcome == "infrastructure"
    assert played.document["outcome"] == "infrastructure"
    assert [each.code for each in played.of(records.Diagnostic)] == ["artifact_unwritable"]
    (completed,) = played.of(records.AttemptCompleted)
    assert completed.outcome == "infrastructure"
    assert survey(repo) == before


MANY = Limits(
    event_rate=EventRate(per_second=10**7, burst=10**7), max_events=10**6, max_requests=10**6
)


@pytest.mark.engine
async def test_an_agent_that_talks_a_lot_can_still_finish_its_work(puppet: Any) -> None:
    """More events than a ledger has records: the last ones are dropped, counted and noted."""
    played = await puppet(
        [do("flood", kind="x.a.b", times=110_000), read("r", "value.txt"), answer("r"), complete()],
        limits=MANY,
    )

    assert played.result.outcome == "succeeded"
    assert played.answer("r")["ok"]
    ledger = played.ledger
    seen = [each for each in ledger if isinstance(each, records.EventSeen)]
    notes = [each for each in ledger if isinstance(each, records.Diagnostic)]
    assert len(seen) + sum(each.count for each in notes) == 110_000
    assert {each.code for each in notes} == {"limit_exceeded"}
    assert len(ledger) < EVENT_RECORDS + 1000


@pytest.mark.engine
async def test_a_full_ledger_ends_its_attempt_in_order(puppet: Any) -> None:
    """Events and then requests, each of which is a record, until there is no room."""
    played = await puppet(
        [do("flood", kind="x.a.b", times=80_000), do("requests", times=30_000), do("end")],
        limits=MANY,
        deadline_seconds=40,
    )

    assert played.result.outcome == "infrastructure"
    ledger = played.ledger
    assert len([each for each in ledger if isinstance(each, records.LedgerFull)]) == 1
    assert isinstance(ledger[-1], records.AttemptCompleted)
    assert played.document["outcome"] == "infrastructure"
