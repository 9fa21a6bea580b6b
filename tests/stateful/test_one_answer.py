"""Exactly one final answer per accepted request, whatever happens around it.

Many short attempts with everything at once: reads, patches, recipes that are held up,
prompts, bad requests, and an end at any moment. The judge of what the agent got is its
own side of the protocol, which refuses an answer that is not due.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from protocol.connection import NEED_DATA, AgentConnection
from protocol.limits import Limits
from protocol.messages import AttemptCancel, AttemptComplete, InferenceRequest, ToolRequest
from tests.attempts.bench import AgentEnd, Bench, conversing
from tests.attempts.checkouts import change, creation
from tests.attempts.ledger_rules import assert_effects_follow_their_decisions, assert_ends

CASES = 60
ENDS = ("complete", "user", "deadline", "shutdown", "end", "bad line")
SCRIPT = b'{"match":{},"answer":{"text":"yes"}}\n'


@dataclass
class Judge:
    """The agent's side: makes the frames, and hears every frame that comes back."""

    agent: AgentEnd
    connection: AgentConnection = field(default_factory=AgentConnection)
    asked: list[str] = field(default_factory=list)
    final: dict[str, bool] = field(default_factory=dict)
    cancelled: bool = False
    heard: int = 0

    def ask(self, message: ToolRequest | InferenceRequest) -> None:
        self.hear()
        self.asked.append(message.request_id)
        self.agent.write(self.connection.send(message))

    def complete(self) -> None:
        self.hear()
        self.agent.write(self.connection.send(AttemptComplete(status="failed")))

    def hear(self) -> None:
        """What has come so far. Raises when a frame was not due."""
        for frame in self.agent.frames[self.heard :]:
            self.connection.receive_data(msgspec.json.encode(frame) + b"\n")
        self.heard = len(self.agent.frames)
        while (message := self.connection.next_event()) is not NEED_DATA:
            if isinstance(message, AttemptCancel):
                self.cancelled = True
            elif getattr(message, "final", False):
                self.final[message.request_id] = message.ok  # type: ignore[union-attr]


def tool(request_id: str, name: str, **given: Any) -> ToolRequest:
    return ToolRequest(request_id=request_id, tool=name, input=given)


def anything(chance: random.Random, name: str) -> ToolRequest | InferenceRequest:
    """One request of any kind."""
    match chance.randrange(9):
        case 0 | 1:
            return tool(name, "read_file", path=chance.choice(("value.txt", "lines.txt", ".env")))
        case 2:
            return tool(name, "list_files")
        case 3:
            return tool(name, "search_files", query="line")
        case 4:
            return tool(name, "apply_patch", patch=creation(f"new/{name}.txt", "text"))
        case 5:
            number = chance.randrange(3)
            return tool(name, "apply_patch", patch=change("value.txt", str(number), "1"))
        case 6 | 7:
            return tool(name, "run_recipe", recipeId=chance.choice(("check", "other", "none")))
        case _:
            body = {
                "model": "scripted",
                "max_tokens": 8,
                "messages": [{"role": "user", "content": "x"}],
            }
            return InferenceRequest(
                request_id=name,
                api="anthropic.messages",
                model="scripted",
                stream=False,
                body=body,
            )


async def converse(bench: Bench, agent: AgentEnd, chance: random.Random) -> tuple[Judge, str]:
    """One attempt; how it ended."""
    judge = Judge(agent)
    await agent.until(lambda frame: frame["type"] == "task.start")
    judge.hear()
    end = chance.choice(ENDS)
    assert bench.engine.hold is not None
    for number in range(chance.randrange(1, 14)):
        judge.ask(anything(chance, f"q{number}"))
        if chance.random() < 0.3:
            await trio.sleep(chance.choice((0, 0.001, 0.01)))
        if chance.random() < 0.1:
            bench.engine.hold.set()
    match end:
        case "complete":
            judge.complete()
        case "end":
            agent.end()
        case "bad line":
            agent.write(b"oops\n")
        case _:
            # All that was sent has been taken before the stop.
            await trio.testing.wait_all_tasks_blocked()
            bench.conversation.stop(end)  # type: ignore[arg-type]
            await agent.until(lambda frame: frame["type"] == "attempt.cancel")
            if chance.random() < 0.5:
                judge.ask(anything(chance, "late"))
                await agent.answer("late")
            if chance.random() < 0.7:
                judge.complete()
    await agent.until_closed()
    judge.hear()
    return judge, end


@pytest.mark.parametrize("seed", range(CASES))
async def test_every_request_gets_at_most_one_final_answer(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    script = tmp_path / "script.jsonl"
    script.write_bytes(SCRIPT)

    async with conversing(
        tmp_path / "a",
        hold=True,
        limits=Limits(cancel_grace_ms=100),
        inference=f"scripted:{script}",
        approve=chance.choice(("never", "listed")),
        listed=frozenset({"check"}),
    ) as (bench, agent):
        judge, end = await converse(bench, agent, chance)

    counts = {name: len(finals) for name, finals in agent.finals().items()}
    assert set(counts) <= set(judge.asked)
    assert set(counts.values()) <= {1}
    if end in ("user", "deadline", "shutdown"):
        # A cancelled attempt answers everything that it took.
        assert set(counts) == set(judge.asked)
        assert judge.cancelled
    ledger = bench.ledger
    assert_effects_follow_their_decisions(ledger)
    assert_ends(ledger)
    for run in bench.engine.runs:
        assert run["value.txt"] in (b"1\n",)
