"""After ``kill -9`` of the daemon: what was answered is in the ledger, and nothing still runs."""

import json
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.attempts.attempt import now_ms
from broker.engines.engine import Engine
from broker.engines.hostfacts import processes_with_argument
from broker.engines.selection import EngineUnavailable, select_engine
from broker.engines.spec import HostRoot, ImageRoot
from broker.evidence.export import records_of
from broker.evidence.ledger import Ledger
from broker.evidence.verification import VerifiedLedger, verify_ledger
from protocol import records
from protocol.digest import digest_bytes
from protocol.errors import Fault, Refusal
from protocol.ids import Id
from tests.attempts.bench import as_line
from tests.attempts.checkouts import change, checkout, creation, survey
from tests.attempts.ledger_rules import assert_effects_follow_their_decisions
from tests.attempts.puppetry import ledger_of
from tests.attempts.steps import Step, answer, do, event, infer, read, tool
from tests.engine_presence import require

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]


@contextmanager
def daemon(*arguments: str, **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """``tests.attempts.daemon`` as a process; killed when the block is left."""
    process = subprocess.Popen(
        (sys.executable, "-m", "tests.attempts.daemon", *arguments), cwd=ROOT, **streams
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def bodies(out: Path) -> list[records.Record]:
    """The records of a ledger whose writer is at work or was killed."""
    try:
        return [each.body for each in records_of(out / "ledger") if each is not None]
    except (Refusal, Fault):
        return []


def requests(chance: random.Random) -> list[Step]:
    """A mixed course of one at a time."""
    steps: list[Step] = []
    for number in range(40):
        steps.append(
            chance.choice(
                (
                    read(f"q{number}", "value.txt"),
                    tool(f"q{number}", "search_files", query="line"),
                    tool(f"q{number}", "apply_patch", patch=creation(f"n/{number}.txt", "x")),
                    tool(f"q{number}", "apply_patch", patch=change("value.txt", "9", "8")),
                    tool(f"q{number}", "run_recipe", recipeId="check"),
                    tool(f"q{number}", "nothing"),
                    infer(f"q{number}"),
                )
            )
        )
    return steps


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_that_the_agent_got_is_in_the_ledger(tmp_path: Path, seed: int) -> None:
    """The test is the agent: it knows what it got at the moment of the kill."""
    chance = random.Random(seed)
    folder = tmp_path / "a"
    steps = requests(chance)
    received: list[dict[str, Any]] = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with daemon("converse", str(folder), **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # task.start
        ahead = chance.randrange(1, 8)
        last = chance.randrange(3, 33)
        for number in range(last):
            new = steps[number : number + 1] if number else steps[:ahead]
            if number:
                new = steps[number + ahead - 1 : number + ahead]
            process.stdin.write(b"".join(map(as_line, new)))
            process.stdin.flush()
            received.append(json.loads(process.stdout.readline()))
        process.kill()
        process.wait()
        received += map(json.loads, process.stdout.read().splitlines())

    assert len(received) >= last
    ledger = bodies(folder)
    assert isinstance(verify_ledger(folder / "ledger"), VerifiedLedger)
    assert_effects_follow_their_decisions(ledger, killed=True)
    by_frame = {digest_bytes(as_line(step)[:-1]): step["frame"]["requestId"] for step in steps}
    known = {
        by_frame[each.frame_digest]: each.request
        for each in ledger
        if isinstance(each, records.Read | records.Request)
    }
    decisions = {
        each.request: each for each in ledger if isinstance(each, records.Read | records.Decision)
    }
    effects = {each.request: each for each in ledger if isinstance(each, records.EffectFinished)}
    for frame in received:
        name = frame["requestId"]
        if frame.get("error", {}).get("code") == "unknown_tool":
            continue  # its decision is there, but no request of a tool
        decision = decisions[known[name]]
        if "decision" in frame:
            assert decision.action_digest == frame["decision"]["actionDigest"]
        if frame["ok"] and not isinstance(decision, records.Read):
            assert effects[known[name]].status == "done"
            assert effects[known[name]].after_digest == frame["result"]["sourceDigest"]
    # The next writer takes it up and says so.
    attempt = next(iter(records_of(folder / "ledger"))).envelope.attempt  # type: ignore[union-attr]
    with_new = Ledger.open(folder / "ledger", Id(attempt), clock=now_ms)
    with_new.close()
    assert isinstance(ledger_of(folder)[len(ledger)], records.LedgerRecovered)


async def usable(name: str, state: Path) -> Engine:
    """The engine, or a counted skip; bubblewrap must be there."""
    root = ImageRoot("sha256:" + "0" * 64) if name == "podman" else HostRoot(None, Id("x"))  # type: ignore[arg-type]
    require(name)
    try:
        return await select_engine(name, root, state=state)  # type: ignore[arg-type]
    except EngineUnavailable as unavailable:
        if name == "bubblewrap":
            raise
        pytest.skip(f"{name} is not usable here: {unavailable.reasons}")


@pytest.mark.parametrize("name", ["bubblewrap", "podman"])
async def test_nothing_of_an_attempt_is_left_ten_seconds_after_the_daemon(
    tmp_path: Path, state: Path, name: str
) -> None:
    engine = await usable(name, state)
    marker = f"marker-{secrets.token_hex(8)}"
    recipe = {
        "id": "sleeps",
        "command": ["python3", "-c", "import time; print('up'); time.sleep(600)", marker],
    }
    repo = checkout(tmp_path / "repo")
    (repo / "airlock.recipes.json").write_text(json.dumps({"version": 1, "recipes": [recipe]}))
    subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qam", "recipes"],
        cwd=repo,
        check=True,
    )
    before = survey(repo)
    out = tmp_path / "out"
    steps = [
        *(read(f"r{number}", "value.txt") for number in range(5)),
        *(answer(f"r{number}") for number in range(5)),
        tool("p", "apply_patch", patch=change("value.txt", "1", "2")),
        answer("p"),
        do("ignore_signals"),
        do("grandchild"),
        tool("c", "run_recipe", recipeId="sleeps"),
        event("agent.log", level="info", text="seven answers"),
        do("forever"),
    ]
    given = {
        "steps": steps,
        "repo": str(repo),
        "state": str(state),
        "out": str(out),
        "engine": name,
        "agent_arguments": [marker],
        "deadline_seconds": 300,
    }
    with daemon("attempt", json.dumps(given)) as process:
        end = time.monotonic() + 90
        while True:
            started = [each for each in bodies(out) if isinstance(each, records.EffectStarted)]
            seen = [each for each in bodies(out) if isinstance(each, records.EventSeen)]
            running = len(processes_with_argument(marker.encode()))
            if len(started) == 2 and seen and running >= 3:
                break
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        process.kill()
        process.wait()

    end = time.monotonic() + 10
    while (left := processes_with_argument(marker.encode())) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == {}
    assert survey(repo) == before
    ledger = bodies(out)
    assert isinstance(verify_ledger(out / "ledger"), VerifiedLedger)
    assert_effects_follow_their_decisions(ledger, killed=True)
    reads = [each for each in ledger if isinstance(each, records.Read)]
    assert [each.status for each in reads] == ["done"] * 5
    (patched,) = [each for each in ledger if isinstance(each, records.EffectFinished)]
    assert patched.status == "done"
    assert not any(isinstance(each, records.AttemptCompleted) for each in ledger)
    await engine.sweep()
    assert await engine.sweep() == 0
