"""How a conversation ends (protocol.md 3.4): cancelled, timed out, left, completed."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol import records
from protocol.limits import EventRate, Limits
from tests.attempts.bench import AgentEnd, Bench, conversing
from tests.attempts.steps import complete, event, read, tool


def of(bench: Bench, kind: type[Any]) -> list[Any]:
    return [record for record in bench.ledger if isinstance(record, kind)]


def cancels(agent: AgentEnd) -> list[dict[str, Any]]:
    return [frame for frame in agent.frames if frame["type"] == "attempt.cancel"]


async def cancelled(agent: AgentEnd) -> dict[str, Any]:
    return await agent.until(lambda frame: frame["type"] == "attempt.cancel")


async def test_a_cancel_answers_what_is_open_and_then_tells_the_agent(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a", hold=True) as (bench, agent):
        agent.send(
            tool("c1", "run_recipe", recipeId="check"), tool("c2", "run_recipe", recipeId="other")
        )
        await bench.until_running(2)
        bench.conversation.stop("user")
        frame = await cancelled(agent)
        agent.send(complete("cancelled"))

    assert frame["reason"] == "user"
    assert frame["graceMs"] == Limits().cancel_grace_ms
    order = [each.get("requestId", each["type"]) for each in agent.frames[1:]]
    assert sorted(order[:2]) == ["c1", "c2"]
    assert order[2:] == ["attempt.cancel"]
    for final in agent.finals().values():
        assert [each["error"]["code"] for each in final] == ["cancelled"]
    assert bench.conversation.ending.outcome == "cancelled"
    # Each run that was started ended in the ledger too.
    assert {each.status for each in of(bench, records.EffectFinished)} == {"cancelled"}
    assert len(of(bench, records.EffectStarted)) == len(of(bench, records.EffectFinished)) == 2


async def test_after_a_cancel_a_claim_and_events_are_still_taken(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(read("r1", "value.txt"))
        await agent.answer("r1")
        bench.conversation.stop("user")
        await cancelled(agent)
        agent.send(event("agent.log", level="info", text="going"), read("r2", "value.txt"))
        late = await agent.answer("r2")
        agent.send(complete("cancelled", summary="gone"))

    assert late["error"]["code"] == "cancelled"
    assert len(cancels(agent)) == 1
    assert bench.conversation.ending.outcome == "cancelled"
    claim = bench.conversation.ending.claim
    assert claim is not None
    assert claim.status == "cancelled"
    assert [each.kind for each in of(bench, records.EventSeen)] == ["agent.log"]
    assert [each.code for each in of(bench, records.Diagnostic)] == ["request_cancelled"]


async def test_an_agent_that_does_not_go_has_only_its_grace(tmp_path: Path) -> None:
    limits = Limits(cancel_grace_ms=200)
    async with conversing(tmp_path / "a", limits=limits) as (bench, agent):
        agent.send(read("r1", "value.txt"))
        await agent.answer("r1")
        began = trio.current_time()
        bench.conversation.stop("deadline")
        await agent.until_closed()
        took = trio.current_time() - began

    assert bench.conversation.ending.outcome == "deadline"
    assert bench.conversation.ending.claim is None
    assert 0.2 <= took < 2


async def test_only_the_first_cause_of_an_end_counts(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(read("r1", "value.txt"))
        await agent.answer("r1")
        bench.conversation.stop("deadline")
        bench.conversation.stop("user")
        await cancelled(agent)
        agent.write(b"not a frame\n")
        await agent.until_closed()

    assert bench.conversation.ending.outcome == "deadline"
    assert [each["reason"] for each in cancels(agent)] == ["deadline"]
    assert bench.conversation.violations == ["malformed_frame"]


async def test_no_frame_in_time_is_a_start_timeout(tmp_path: Path) -> None:
    limits = Limits(start_timeout_ms=150)
    async with conversing(tmp_path / "a", limits=limits) as (bench, agent):
        agent.write(b"\n \n")  # blank lines are no frames
        frame = await cancelled(agent)
        agent.end()

    assert frame["violation"]["code"] == "start_timeout"
    assert bench.conversation.ending.outcome == "protocol_error"
    assert [each.code for each in of(bench, records.Violation)] == ["start_timeout"]


async def test_silence_is_an_idle_timeout(tmp_path: Path) -> None:
    limits = Limits(idle_timeout_ms=300)
    async with conversing(tmp_path / "a", limits=limits) as (bench, agent):
        agent.send(read("r1", "value.txt"))
        await agent.answer("r1")
        began = trio.current_time()
        for _ in range(4):  # blank lines are not activity
            await trio.sleep(0.05)
            agent.write(b"\n")
        frame = await cancelled(agent)
        took = trio.current_time() - began
        agent.end()

    assert frame["violation"]["code"] == "idle_timeout"
    assert 0.29 <= took < 2
    assert bench.conversation.ending.outcome == "protocol_error"


async def test_the_time_of_an_open_request_is_not_idle(tmp_path: Path) -> None:
    limits = Limits(idle_timeout_ms=300)
    async with conversing(tmp_path / "a", hold=True, limits=limits) as (bench, agent):
        agent.send(tool("c1", "run_recipe", recipeId="check"))
        await trio.sleep(0.8)
        assert bench.engine.hold is not None
        bench.engine.hold.set()
        await agent.answer("c1")
        await trio.sleep(0.15)  # the agent thinks about its answer
        assert cancels(agent) == []
        agent.send(complete())

    assert bench.conversation.ending.outcome == "succeeded"


async def test_an_agent_that_does_not_read_is_stalled(tmp_path: Path) -> None:
    limits = Limits(write_stall_ms=200)
    async with conversing(tmp_path / "a", limits=limits, deaf=True) as (bench, agent):
        agent.send(read("r1", "value.txt"))
        await agent.until_served()

    assert bench.conversation.ending.outcome == "protocol_error"
    assert [each.code for each in of(bench, records.Violation)] == ["agent_not_reading"]


async def test_what_waits_for_an_agent_that_does_not_read_is_bounded(tmp_path: Path) -> None:
    """Nine thousand pipelined reads of a tenth of a megabyte: 900 MB, if they were all done."""
    limits = Limits(write_stall_ms=1500)
    files = {"big.txt": b"x" * 100 * 2**10 + b"\n"}
    async with conversing(tmp_path / "a", limits=limits, files=files, deaf=True) as (bench, agent):
        agent.send(*(read(f"r{number}", "big.txt") for number in range(9_000)))
        most = 0
        while not agent.served.is_set():
            most = max(most, bench.pipe.unsent)
            await trio.sleep(0.01)

    assert bench.conversation.violations == ["agent_not_reading"]
    assert most < 2.5 * limits.max_response_frame_bytes
    refused = [each for each in of(bench, records.Diagnostic) if each.code == "limit_exceeded"]
    assert len(refused) > 1_000


@pytest.mark.parametrize("tail", [b"", b"\n", b'{"v":1,"ty'])
async def test_an_end_without_a_claim_is_agent_exited(tmp_path: Path, tail: bytes) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(read("r1", "value.txt"))
        await agent.answer("r1")
        agent.write(tail)
        agent.end()

    assert bench.conversation.ending.outcome == "agent_exited"
    torn = bool(tail.strip())
    assert [(each.code, each.reason) for each in of(bench, records.Violation)] == (
        [("malformed_frame", "truncated")] if torn else []
    )


async def test_a_completion_leaves_open_requests_unanswered_and_their_effects_ended(
    tmp_path: Path,
) -> None:
    async with conversing(tmp_path / "a", hold=True) as (bench, agent):
        agent.send(tool("c1", "run_recipe", recipeId="check"))
        await bench.until_running(1)
        agent.send(complete())

    assert agent.finals() == {}
    assert cancels(agent) == []
    assert bench.conversation.ending.outcome == "succeeded"
    assert [each.status for each in of(bench, records.EffectFinished)] == ["cancelled"]


async def test_events_over_their_rate_are_dropped_counted_and_few_records(tmp_path: Path) -> None:
    limits = Limits(event_rate=EventRate(per_second=1, burst=10))
    async with conversing(tmp_path / "a", limits=limits) as (bench, agent):
        agent.send(*(event("agent.log", level="info", text="x") for _ in range(5000)))
        agent.send(read("r1", "value.txt"))
        await agent.answer("r1")
        agent.send(complete())

    assert bench.conversation.ending.outcome == "succeeded"
    seen = of(bench, records.EventSeen)
    notes = of(bench, records.Diagnostic)
    assert 10 <= len(seen) <= 20
    assert sum(each.count for each in notes) + len(seen) == 5000
    assert len(notes) <= 5
    lines = (bench.folder / "events.jsonl").read_bytes().splitlines()
    agents = [line for line in map(json.loads, lines) if line["origin"] == "agent"]
    assert len(agents) == len(seen)
    assert {line["trust"] for line in agents} == {"untrusted"}
