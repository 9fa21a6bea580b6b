"""``run`` on a terminal and off: Ctrl-C ends the attempt in order, and approvals are typed."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.evidence.export import records_of
from broker.evidence.verification import VerifiedLedger, verify_ledger
from protocol import records
from protocol.errors import Fault, Refusal
from tests.attempts.checkouts import checkout, survey
from tests.attempts.puppetry import PUPPET
from tests.attempts.steps import Step, answer, complete, do, read, tool
from tests.cli.conftest import RUNNER

pytestmark = pytest.mark.engine


def take_terminal() -> None:
    """The standard input of a new session becomes its controlling terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def read_until(descriptor: int, text: str) -> str:
    shown = ""
    end = time.monotonic() + 60
    while text not in shown:
        assert time.monotonic() < end, shown
        if select.select([descriptor], [], [], 0.1)[0]:
            shown += os.read(descriptor, 65536).decode()
    return shown


@contextmanager
def running(
    steps: list[Step], *options: str, repo: Path, state: Path, out: Path, stdin: Any = None
) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", RUNNER, str(state), "run", "--json", "--repo", str(repo)),
            *("--agent", f"adapter:{PUPPET}", "--task", json.dumps(steps), "--out", str(out)),
            *options,
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(state), "XDG_STATE_HOME": str(state)},
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        start_new_session=True,
        preexec_fn=None if stdin is None else take_terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(process: "subprocess.Popen[str]", out: Path, kind: type[Any]) -> None:
    """Until the ledger of a running attempt has such a record."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None
        try:
            if any(each and isinstance(each.body, kind) for each in records_of(out / "ledger")):
                return
        except (Refusal, Fault):
            pass
        time.sleep(0.02)
    raise AssertionError("no such record came")


def wait_until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "TERM"])
def test_a_signal_ends_the_attempt_as_cancelled_with_its_result(
    tmp_path: Path, state: Path, number: signal.Signals
) -> None:
    repo, out = checkout(tmp_path / "repo"), tmp_path / "out"
    before = survey(repo)
    steps = [
        read("r", "value.txt"),
        answer("r"),
        do("cancel"),
        complete("cancelled", summary="went"),
    ]
    with running(steps, repo=repo, state=state, out=out) as process:
        wait_for(process, out, records.Read)
        process.send_signal(number)
        process.send_signal(number)  # an impatient second one changes nothing
        stdout, stderr = process.communicate(timeout=30)

    assert process.returncode == 1
    document = json.loads((out / "attempt.json").read_text())
    assert json.loads(stdout) == document
    assert (document["outcome"], document["claim"]) == ("cancelled", "cancelled")
    verified = verify_ledger(out / "ledger")
    assert isinstance(verified, VerifiedLedger)
    assert verified.completed is not None
    assert verified.completed.outcome == "cancelled"
    assert document["ledger"] == {"entries": verified.records, "head": verified.head.h}
    assert (out / "events.jsonl").read_bytes().endswith(b"\n")
    assert "Traceback" not in stderr
    assert survey(repo) == before


def test_a_signal_while_a_recipe_runs_ends_the_recipe_too(tmp_path: Path, state: Path) -> None:
    recipe = {"id": "sleeps", "command": ["sleep", "600"]}
    repo = checkout(tmp_path / "repo", {"value.txt": b"1\n"})
    out = tmp_path / "out"
    document = json.loads((repo / "airlock.recipes.json").read_text())
    document["recipes"] = [recipe]
    (repo / "airlock.recipes.json").write_text(json.dumps(document))
    subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qam", "recipes"],
        cwd=repo,
        check=True,
    )
    steps = [tool("c", "run_recipe", recipeId="sleeps"), do("cancel")]
    with running(steps, repo=repo, state=state, out=out) as process:
        wait_for(process, out, records.EffectStarted)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=40)
        took = time.monotonic() - began

    assert process.returncode == 1
    assert took < 20
    bodies = [each.body for each in records_of(out / "ledger") if each is not None]
    (ended,) = [each for each in bodies if isinstance(each, records.EffectFinished)]
    assert ended.status == "cancelled"


@pytest.mark.parametrize(
    ("typed", "runs"), [("yes\n", 1), ("y\n", 0), ("no\n", 0), ("\n", 0), ("yes please\n", 0)]
)
def test_the_person_sees_the_action_and_only_a_typed_yes_runs_it(
    tmp_path: Path, state: Path, typed: str, runs: int
) -> None:
    repo, out = checkout(tmp_path / "repo"), tmp_path / "out"
    steps = [tool("c", "run_recipe", recipeId="check"), answer("c"), complete()]
    ours, theirs = pty.openpty()
    with running(
        steps, "--approve", "ask", repo=repo, state=state, out=out, stdin=theirs
    ) as process:
        os.close(theirs)
        shown = read_until(ours, "to allow: ")
        os.write(ours, typed.encode())
        process.communicate(timeout=30)
    os.close(ours)

    assert process.returncode == 0
    document = json.loads((out / "attempt.json").read_text())
    assert len(document["recipes"]) == runs
    bodies = [each.body for each in records_of(out / "ledger") if each is not None]
    (asked,) = [each for each in bodies if isinstance(each, records.ApprovalRequested)]
    assert "['sh', 'tools/check']" in shown
    for text in (asked.action_digest, document["stage"]["treeDigest"]):
        assert text in shown


def test_without_a_terminal_the_answer_is_no(tmp_path: Path, state: Path) -> None:
    repo, out = checkout(tmp_path / "repo"), tmp_path / "out"
    steps = [tool("c", "run_recipe", recipeId="check"), answer("c"), complete()]
    with running(steps, "--approve", "ask", repo=repo, state=state, out=out) as process:
        process.communicate(timeout=30)

    assert process.returncode == 0
    assert json.loads((out / "attempt.json").read_text())["recipes"] == []


def test_a_signal_while_a_person_is_asked_is_no(tmp_path: Path, state: Path) -> None:
    repo, out = checkout(tmp_path / "repo"), tmp_path / "out"
    steps = [tool("c", "run_recipe", recipeId="check"), do("cancel"), complete("cancelled")]
    ours, theirs = pty.openpty()
    with running(
        steps, "--approve", "ask", repo=repo, state=state, out=out, stdin=theirs
    ) as process:
        os.close(theirs)
        read_until(ours, "to allow: ")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    os.close(ours)

    assert process.returncode == 1
    bodies = [each.body for each in records_of(out / "ledger") if each is not None]
    assert any(isinstance(each, records.ApprovalExpired) for each in bodies)
    assert not any(isinstance(each, records.EffectStarted) for each in bodies)
    assert json.loads((out / "attempt.json").read_text())["outcome"] == "cancelled"
