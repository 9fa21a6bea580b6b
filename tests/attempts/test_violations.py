"""protocol.md 3.9 in a real sandbox: what each violation gets, and what it leaves."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.attempts.asking import NobodyToAsk
from broker.attempts.attempt import Attempt
from broker.attempts.progress import Counters
from broker.engines.hostfacts import processes_with_argument
from protocol import records
from protocol.limits import EventRate, Limits
from tests.attempts.checkouts import change
from tests.attempts.puppetry import Played, make_spec
from tests.attempts.steps import (
    Step,
    answer,
    complete,
    do,
    event,
    infer,
    pattern,
    raw,
    read,
    tool,
)
from tests.protocol.bad_lines import BAD_LINES

pytestmark = pytest.mark.engine

LINES = {line.name: line for line in BAD_LINES}
#: One of each kind of check; all of them run against the conversation without an engine.
FATAL = ("a log line", "a key twice, deep", "version 2", "tool.response", "request id with LF")


@pytest.mark.parametrize("name", FATAL)
async def test_a_fatal_line_ends_the_attempt_and_the_frame_before_it_is_served(
    puppet: Any, name: str
) -> None:
    line = LINES[name]

    played = await puppet([read("r0", "value.txt"), raw(line.data), do("cancel"), do("end")])

    assert played.result.outcome == "protocol_error"
    assert played.answer("r0")["result"]["text"] == "1\n"
    assert played.cancel["reason"] == "protocol_violation"
    assert played.cancel["violation"]["code"] == line.code
    assert played.cancel["graceMs"] == 2000
    assert [(each.code, each.reason, each.fatal) for each in played.of(records.Violation)] == [
        (line.code, line.reason, True)
    ]
    assert played.document["violations"] == [line.code]
    assert played.said("end of input") == [""]


async def test_an_endless_line_is_fatal_in_bounded_memory(puppet: Any) -> None:
    """32 MiB without a line feed: the agent blocks, and is told."""
    played = await puppet(
        [read("r0", "value.txt"), answer("r0"), do("grandchild"), pattern(b"x" * 64, 2**19)]
    )

    assert played.result.outcome == "protocol_error"
    assert played.document["violations"] == ["frame_too_large"]
    assert played.answer("r0")["ok"]


async def test_errors_and_drops_do_not_end_an_attempt(puppet: Any) -> None:
    played = await puppet(
        [
            raw(LINES["an unknown member"].data),
            answer("r1"),
            raw(LINES["an unknown kind"].data),
            infer("i"),
            answer("i"),
            tool("t", "shell"),
            answer("t"),
            complete(),
        ]
    )

    assert played.result.outcome == "succeeded"
    assert played.answer("r1")["error"]["code"] == "invalid_message"
    assert played.answer("i")["error"]["code"] == "unsupported_api"
    assert played.answer("t")["error"]["code"] == "unknown_tool"
    assert [each.code for each in played.of(records.Diagnostic)] == [
        "invalid_message",
        "event_rejected",
    ]
    assert played.document["violations"] == []


@pytest.mark.parametrize(
    "after", [read("late", "value.txt"), complete("failed")], ids=["a request", "a second one"]
)
async def test_what_follows_a_completion_is_flagged_and_the_outcome_stays(
    puppet: Any, after: Step
) -> None:
    played = await puppet([complete(), do("sleep", seconds=0.2), after])

    assert played.result.outcome == "succeeded"
    assert played.result.claim == "succeeded"
    assert played.document["violations"] == ["after_complete"]
    assert [each.code for each in played.of(records.Violation)] == ["after_complete"]
    assert played.seen == []


async def test_a_flood_of_events_is_bounded_and_borne(puppet: Any) -> None:
    limits = Limits(event_rate=EventRate(per_second=50, burst=100), max_events=100_000)
    played = await puppet(
        [do("flood", kind="x.a.b", times=20_000), read("r", "value.txt"), answer("r"), complete()],
        limits=limits,
    )

    assert played.result.outcome == "succeeded"
    seen = len(played.of(records.EventSeen))
    dropped = sum(each.count for each in played.of(records.Diagnostic))
    assert seen + dropped == 20_000
    assert seen < 2_000
    assert len(played.ledger) < seen + 100


async def test_events_at_twice_their_number_are_fatal(puppet: Any) -> None:
    played = await puppet(
        [do("flood", kind="x.a.b", times=50), do("cancel")], limits=Limits(max_events=20)
    )

    assert played.document["violations"] == ["limit_exceeded"]
    assert played.cancel["violation"]["code"] == "limit_exceeded"


async def test_a_flood_on_standard_error_is_drained_bounded_and_noted(puppet: Any) -> None:
    limits = Limits(max_stderr_bytes=100_000)
    played = await puppet(
        [
            do("stderr", text="x" * 1000, times=5000),
            read("r", "value.txt"),
            answer("r"),
            complete(),
        ],
        limits=limits,
    )

    assert played.result.outcome == "succeeded"
    assert len(played.stderr) == 100_000
    (note,) = played.of(records.Diagnostic)
    assert note.code == "stderr_truncated"
    assert note.bytes > 5_000_000


async def test_the_last_words_on_standard_error_are_kept(puppet: Any) -> None:
    played = await puppet(
        [do("stderr", text="y" * 60_000), do("stderr", text="END"), do("exit", code=3)]
    )

    assert played.stderr.endswith(b"END")
    assert played.result.exit_code == 3


@pytest.mark.parametrize(
    ("steps", "code"),
    [([do("exit", code=7)], 7), ([do("exit", code=0)], 0), ([do("die", signal_number=9)], 137)],
    ids=["exit 7", "exit 0", "killed"],
)
async def test_an_agent_that_leaves_is_agent_exited_with_its_code(
    puppet: Any, steps: list[Step], code: int | None
) -> None:
    played = await puppet([read("r", "value.txt"), answer("r"), *steps])

    assert played.result.outcome == "agent_exited"
    assert played.result.exit_code == code
    assert played.document["exitCode"] == code
    assert played.document["violations"] == []
    (completed,) = played.of(records.AttemptCompleted)
    assert (completed.outcome, completed.claim, completed.exit_code) == (
        "agent_exited",
        None,
        code,
    )


async def test_what_an_agent_leaves_behind_does_not_keep_its_attempt_open(puppet: Any) -> None:
    marker = f"marker-{id(puppet)}"
    played = await puppet([do("grandchild"), do("exit", code=5)], agent_arguments=(marker,))

    assert played.result.outcome == "agent_exited"
    assert played.result.exit_code == 5
    assert processes_with_argument(marker.encode()) == {}


async def test_an_agent_that_stays_after_its_claim_is_ended_and_the_claim_counts(
    puppet: Any,
) -> None:
    marker = f"marker-{id(puppet)}"
    played = await puppet(
        [complete(), do("ignore_signals"), do("end"), do("forever")],
        limits=Limits(exit_grace_ms=300),
        agent_arguments=(marker,),
    )

    assert played.result.outcome == "succeeded"
    assert played.said("end of input") == [""]
    assert processes_with_argument(marker.encode()) == {}


async def test_attempts_side_by_side_do_not_meet(puppet: Any, tmp_path: Path) -> None:
    """Each has its own stage and ledger, and none sweeps away what another has."""
    played: dict[int, Played] = {}

    async def one(number: int) -> None:
        steps = [
            tool("p", "apply_patch", patch=change("value.txt", "1", str(number))),
            tool("c", "run_recipe", recipeId="check"),
            answer("c"),
            complete(),
        ]
        played[number] = await puppet(steps, out=tmp_path / f"out{number}")

    async with trio.open_nursery() as nursery:
        for number in (2, 3, 4):
            nursery.start_soon(one, number)

    for number, each in played.items():
        assert each.result.outcome == "succeeded"
        assert each.answer("c")["result"]["stdout"] == f"{number}\n"
    assert len({each.document["candidate"]["treeDigest"] for each in played.values()}) == 3


async def test_half_a_frame_at_the_end_is_never_parsed(puppet: Any) -> None:
    played = await puppet([raw(b'{"v":1,"type":"attempt.complete","status":"succeeded"}')])

    assert played.result.outcome == "agent_exited"
    assert [(each.code, each.reason) for each in played.of(records.Violation)] == [
        ("malformed_frame", "truncated")
    ]


async def test_an_agent_that_says_nothing_is_a_start_timeout(puppet: Any) -> None:
    played = await puppet(
        [do("cancel"), do("end")], limits=Limits(start_timeout_ms=700, cancel_grace_ms=300)
    )

    assert played.result.outcome == "protocol_error"
    assert played.cancel["violation"]["code"] == "start_timeout"
    assert played.document["violations"] == ["start_timeout"]


async def test_an_agent_that_does_not_read_is_stopped(puppet: Any) -> None:
    """Its answers are bounded while it does not; then it is gone."""
    big = [tool(f"r{number}", "read_file", path="lines.txt") for number in range(2000)]
    played = await puppet(
        [*big, do("ignore_signals"), do("forever")],
        limits=Limits(write_stall_ms=300, max_requests=10_000),
    )

    assert played.result.outcome == "protocol_error"
    assert played.document["violations"] == ["agent_not_reading"]


class Cancelling:
    """A watcher that cancels the attempt when the agent's first request was counted."""

    def __init__(self, reason: Any) -> None:
        self.attempt: Attempt | None = None
        self._reason = reason

    def phase(self, phase: str, counters: Counters) -> None:
        pass

    def progress(self, counters: Counters) -> None:
        if counters.requests and self.attempt is not None:
            self.attempt.cancel(self._reason)


async def play_cancelled(puppet: partial[Any], steps: list[Step], **changes: Any) -> Played:
    watcher = Cancelling("user")
    spec = make_spec(steps, **puppet.keywords, **changes)
    watcher.attempt = Attempt(spec, approver=NobodyToAsk(), watcher=watcher)
    return Played(result=await watcher.attempt.run())


async def test_an_agent_that_resists_is_gone_when_its_grace_is_over(puppet: Any) -> None:
    marker = f"marker-{id(puppet)}"
    limits = Limits(cancel_grace_ms=400)
    began = trio.current_time()

    played = await play_cancelled(
        puppet,
        [do("ignore_signals"), do("grandchild"), read("r", "value.txt"), do("forever")],
        limits=limits,
        agent_arguments=(marker,),
    )

    assert played.result.outcome == "cancelled"
    assert played.result.claim is None
    assert processes_with_argument(marker.encode()) == {}
    assert trio.current_time() - began < 8
    assert played.document["outcome"] == "cancelled"


async def test_an_agent_that_is_told_to_stop_can_still_say_how_it_ended(puppet: Any) -> None:
    played = await play_cancelled(
        puppet,
        [read("r", "value.txt"), do("cancel"), complete("cancelled", summary="stopped")],
    )

    assert played.result.outcome == "cancelled"
    assert played.result.claim == "cancelled"
    assert played.cancel == {
        "v": 1,
        "type": "attempt.cancel",
        "reason": "user",
        "graceMs": Limits().cancel_grace_ms,
    }
    (kept,) = (played.out / "artifacts" / "agent_result").iterdir()
    assert json.loads(kept.read_bytes())["summary"] == "stopped"


async def test_the_deadline_ends_an_attempt_as_deadline(puppet: Any) -> None:
    played = await puppet(
        [read("r", "value.txt"), do("cancel"), complete("failed")], deadline_seconds=1
    )

    assert played.result.outcome == "deadline"
    assert played.cancel["reason"] == "deadline"


async def test_what_the_agent_can_reach_from_inside(puppet: Any, repo: Any) -> None:
    played = await puppet([do("probe"), event("agent.log", level="info", text="x"), complete()])

    (said,) = played.said("probe")
    found = json.loads(said)
    assert found["uid"] != 0
    assert found["cwd"] == []
    assert found["interfaces"] == ["lo"]
    assert found["network"] != "connected"
    assert (found["root"], found["adapter"], found["tmp"]) == ("refused", "refused", "written")
    assert str(repo) not in found["mounts"]
    own = {"AGENT_PROTOCOL_VERSION", "HOME", "LANG", "PATH", "TMPDIR"}
    assert own <= set(found["env"]) <= own | {"LC_CTYPE", "PWD"}
