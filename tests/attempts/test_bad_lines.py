"""Every bad line against the conversation: its class, its code, and what goes on after it."""

from pathlib import Path

import pytest

from protocol import records
from protocol.limits import MAX_INVALID, Limits
from tests.attempts.bench import as_line, conversing
from tests.attempts.steps import complete, event, infer, read, tool
from tests.protocol.bad_lines import BAD_LINES, BadLine

GOOD = as_line(read("good", "value.txt"))
#: What the bad lines call themselves when they are requests.
BAD_ID = "r1"


def parameters(kind: str) -> pytest.MarkDecorator:
    lines = [line for line in BAD_LINES if line.kind == kind]
    return pytest.mark.parametrize("line", lines, ids=[line.name for line in lines])


@parameters("F")
async def test_a_fatal_line_ends_the_attempt_after_the_frame_before_it(
    tmp_path: Path, line: BadLine
) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.write(GOOD + line.data + as_line(read("after", "value.txt")))
        await agent.until_closed()

    assert bench.conversation.ending.outcome == "protocol_error"
    assert [frame["type"] for frame in agent.frames] == [
        "task.start",
        "tool.response",
        "attempt.cancel",
    ]
    assert agent.frames[1]["result"]["text"] == "1\n"
    cancel = agent.frames[2]
    assert cancel["reason"] == "protocol_violation"
    assert cancel["violation"]["code"] == line.code
    assert cancel["violation"]["at"]["frame"] in (1, 2)
    violations = [each for each in bench.ledger if isinstance(each, records.Violation)]
    assert [(each.code, each.reason, each.fatal) for each in violations] == [
        (line.code, line.reason, True)
    ]
    assert bench.conversation.violations == [line.code]


@parameters("E")
async def test_a_bad_request_is_answered_and_the_attempt_goes_on(
    tmp_path: Path, line: BadLine
) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.write(GOOD + line.data + as_line(read("after", "value.txt")))
        await agent.answer("after")
        agent.send(complete())

    assert bench.conversation.ending.outcome == "succeeded"
    finals = agent.finals()
    assert finals["good"][0]["ok"]
    assert finals["after"][0]["ok"]
    (bad,) = finals[BAD_ID]
    assert not bad["ok"]
    assert bad["error"]["code"] == line.code
    assert set(bad["error"].get("details", {})) <= {"pointer"}
    # One note, before the answer; no request, decision or effect.
    assert [each.bytes for each in bench.ledger if isinstance(each, records.Diagnostic)] == [
        len(line.data) - 1
    ]
    assert bench.counters.requests == 2


@parameters("D")
async def test_a_bad_event_is_dropped_and_noted(tmp_path: Path, line: BadLine) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.write(GOOD + line.data + as_line(read("after", "value.txt")))
        await agent.answer("after")
        agent.send(complete())

    assert bench.conversation.ending.outcome == "succeeded"
    assert [each["ok"] for final in agent.finals().values() for each in final] == [True, True]
    assert [each for each in bench.ledger if isinstance(each, records.EventSeen)] == []
    notes = [each for each in bench.ledger if isinstance(each, records.Diagnostic)]
    assert [(each.code, each.count) for each in notes] == [("event_rejected", 1)]


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_a_fatal_line_in_pieces_is_the_same(tmp_path: Path, size: int) -> None:
    line = next(line for line in BAD_LINES if line.name == "a key twice, deep")
    data = GOOD + line.data
    async with conversing(tmp_path / "a") as (bench, agent):
        for start in range(0, len(data), size):
            agent.write(data[start : start + size])
        await agent.until_closed()

    assert [frame["type"] for frame in agent.frames[1:]] == ["tool.response", "attempt.cancel"]
    assert bench.conversation.violations == ["malformed_frame"]


async def test_a_line_without_an_end_is_fatal_before_it_ends(tmp_path: Path) -> None:
    limits = Limits(max_frame_bytes=1000, max_inference_frame_bytes=2000)
    async with conversing(tmp_path / "a", limits=limits) as (bench, agent):
        agent.write(GOOD + b"x" * 1000)
        await agent.until_closed()

    assert agent.finals()["good"][0]["ok"]
    assert bench.conversation.violations == ["frame_too_large"]


@pytest.mark.parametrize(
    "bad", [as_line(event("agent.dance", a=1)), None], ids=["events", "requests"]
)
async def test_a_hundred_invalid_messages_are_borne_and_one_more_is_not(
    tmp_path: Path, bad: bytes | None
) -> None:
    def line(number: int) -> bytes:
        return bad or as_line(tool(f"q{number}", "Read"))

    async with conversing(tmp_path / "a") as (bench, agent):
        agent.write(b"".join(line(number) for number in range(MAX_INVALID)))
        agent.send(read("r", "value.txt"))
        assert (await agent.answer("r"))["ok"]
        agent.write(line(MAX_INVALID))
        await agent.until_closed()

    assert bench.conversation.ending.outcome == "protocol_error"
    assert bench.conversation.violations == ["too_many_invalid"]
    assert agent.frames[-1]["violation"]["code"] == "too_many_invalid"


async def test_a_request_id_is_used_once_for_both_kinds(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(read("r", "value.txt"), infer("r"))
        await agent.until_closed()

    assert agent.finals()["r"][0]["ok"]
    assert bench.conversation.violations == ["duplicate_request_id"]


async def test_what_nobody_offers_is_answered_and_the_denial_recorded(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(
            tool("t", "shell", command="ls"),
            tool("i", "read_file", way="value.txt"),
            tool("c", "run_recipe", recipeId="deploy"),
            read("n", ".env"),
            infer("m"),
        )
        for name in "ticnm":
            await agent.answer(name)
        agent.send(complete())

    codes = {name: final[0]["error"]["code"] for name, final in agent.finals().items()}
    assert codes == {
        "t": "unknown_tool",
        "i": "invalid_input",
        "c": "recipe_unknown",
        "n": "not_found",
        "m": "unsupported_api",
    }
    assert agent.finals()["i"][0]["error"]["details"]["pointer"] == ""
    assert bench.counters.deny == 5
    assert bench.engine.runs == []


async def test_over_in_flight_is_an_error_for_that_request_only(tmp_path: Path) -> None:
    limits = Limits(max_in_flight=2)
    async with conversing(tmp_path / "a", hold=True, limits=limits) as (bench, agent):
        agent.send(*(tool(f"c{number}", "run_recipe", recipeId="check") for number in range(3)))
        refused = await agent.answer("c2")
        assert bench.engine.hold is not None
        bench.engine.hold.set()
        await agent.answer("c0")
        await agent.answer("c1")
        agent.send(read("r", "value.txt"))
        assert (await agent.answer("r"))["ok"]
        agent.send(complete())

    assert refused["error"]["code"] == "too_many_in_flight"
    assert refused["error"]["retryable"] is True
    assert len(bench.engine.runs) == 2
    notes = [each.code for each in bench.ledger if isinstance(each, records.Diagnostic)]
    assert notes == ["limit_exceeded"]


async def test_over_the_number_of_requests_is_an_error_each_and_fatal_at_twice(
    tmp_path: Path,
) -> None:
    async with conversing(tmp_path / "a", limits=Limits(max_requests=5)) as (bench, agent):
        agent.send(*(read(f"r{number}", "value.txt") for number in range(11)))
        await agent.until_closed()

    finals = agent.finals()
    assert [finals[f"r{number}"][0]["ok"] for number in range(10)] == [True] * 5 + [False] * 5
    assert finals["r7"][0]["error"]["code"] == "limit_exceeded"
    assert "r10" not in finals
    assert bench.conversation.violations == ["limit_exceeded"]
