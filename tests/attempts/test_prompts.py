"""Prompts in an attempt: decided, recorded before they leave, answered by one final frame."""

import json
from pathlib import Path
from typing import Any

import pytest

from protocol import records
from tests.attempts.bench import Bench, conversing
from tests.attempts.ledger_rules import assert_effects_follow_their_decisions, assert_ends
from tests.attempts.steps import Step, complete, event, infer, send

READY = event(
    "agent.ready",
    protocolVersion=1,
    agent={"name": "test", "version": "1"},
    features=["inference_streaming"],
)


def streamed(request_id: str, **changes: Any) -> Step:
    frame = infer(request_id)["frame"]
    body = {**frame["body"], "stream": True, **changes}
    return send(**{**frame, "stream": True, "body": body})


@pytest.fixture
def script(tmp_path: Path) -> str:
    rules = [
        {"match": {"contains": "hello"}, "answer": {"text": "one two three " * 200}},
        {"match": {"contains": "busy"}, "answer": {"error": "upstream_overloaded"}},
    ]
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    return f"scripted:{path}"


def of(bench: Bench, kind: type[Any]) -> list[Any]:
    return [record for record in bench.ledger if isinstance(record, kind)]


async def test_a_streamed_answer_is_contiguous_and_ends_once(tmp_path: Path, script: str) -> None:
    async with conversing(tmp_path / "a", inference=script) as (bench, agent):
        agent.send(READY, streamed("s"))
        final = await agent.answer("s")
        agent.send(complete())

    frames = [frame for frame in agent.frames if frame.get("requestId") == "s"]
    assert [frame["index"] for frame in frames] == list(range(len(frames)))
    assert [frame["final"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert len(frames) > 1
    assert final["ok"]
    (started,), (finished,) = (
        of(bench, records.InferenceStarted),
        of(bench, records.InferenceFinished),
    )
    assert finished.status == "ok"
    assert finished.output_tokens == final["usage"]["outputTokens"] == bench.counters.output_tokens
    assert started.request == finished.request
    assert_effects_follow_their_decisions(bench.ledger)
    assert_ends(bench.ledger)


async def test_a_stream_that_nobody_agreed_on_is_refused(tmp_path: Path, script: str) -> None:
    async with conversing(tmp_path / "a", inference=script) as (bench, agent):
        agent.send(streamed("s"))
        final = await agent.answer("s")
        agent.send(complete())

    assert final["error"]["code"] == "unsupported_feature"
    assert of(bench, records.InferenceStarted) == []


async def test_what_a_provider_would_run_is_taken_out_and_counted(
    tmp_path: Path, script: str
) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    async with conversing(tmp_path / "a", inference=script) as (bench, agent):
        step = infer("i")
        step["frame"]["body"]["tools"] = tools
        agent.send(step)
        final = await agent.answer("i")
        agent.send(complete())

    assert final["ok"]
    assert [each.stripped_tools for each in of(bench, records.InferenceStarted)] == [1]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model": "gpt-of-somebody"}, "unknown_model"),
        ({"text": "busy"}, "upstream_overloaded"),
        ({"text": "nothing matches"}, "upstream_error"),
    ],
)
async def test_a_prompt_that_fails_is_recorded_with_its_code(
    tmp_path: Path, script: str, change: dict[str, str], code: str
) -> None:
    async with conversing(tmp_path / "a", inference=script) as (bench, agent):
        agent.send(infer("i", **change))
        final = await agent.answer("i")
        agent.send(infer("j"))
        assert (await agent.answer("j"))["ok"]
        agent.send(complete())

    assert final["error"]["code"] == code
    ended = {each.request: each.code for each in of(bench, records.InferenceFinished)}
    if code == "unknown_model":
        assert 1 not in ended
        assert of(bench, records.Decision)[0].outcome == "deny"
    else:
        assert ended[1] == code
    assert_ends(bench.ledger)


async def test_a_prompt_names_no_route(tmp_path: Path, script: str) -> None:
    """ATK-118: where a prompt goes is not the agent's to say."""
    async with conversing(tmp_path / "a", inference=script) as (bench, agent):
        frame = {**infer("i")["frame"], "route": "https://attacker.example"}
        agent.send(send(**frame))
        final = await agent.answer("i")
        agent.send(complete())

    assert final["error"]["code"] == "invalid_message"
    assert of(bench, records.InferenceStarted) == []
