"""Approvals (policy.md part 4): exactly this action, once, by a yes; everything else is no."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from protocol import records
from tests.attempts.bench import Bench, conversing
from tests.attempts.checkouts import change
from tests.attempts.ledger_rules import assert_effects_follow_their_decisions
from tests.attempts.steps import complete, tool


class Scripted:
    """An approver that answers with what ``say`` gives, and remembers what it was shown."""

    principal = "owner"

    def __init__(self, say: Callable[[Mapping[str, Any]], Any]) -> None:
        self._say = say
        self.shown: list[dict[str, Any]] = []

    async def ask(self, action: Mapping[str, Any]) -> bool:
        self.shown.append(dict(action))
        given = self._say(action)
        if isinstance(given, trio.Event):
            await given.wait()
            return True
        if isinstance(given, Exception):
            raise given
        return given  # type: ignore[no-any-return]


def of(bench: Bench, *kinds: type[Any]) -> list[Any]:
    return [record for record in bench.ledger if isinstance(record, kinds)]


CHECK = tool("c", "run_recipe", recipeId="check")


async def test_a_yes_runs_the_recipe_once_and_shows_the_exact_action(tmp_path: Path) -> None:
    approver = Scripted(lambda _: True)
    async with conversing(tmp_path / "a", approve="ask", approver=approver) as (bench, agent):
        agent.send(CHECK)
        final = await agent.answer("c")
        agent.send(complete())

    assert final["decision"]["outcome"] == "approved"
    assert len(bench.engine.runs) == 1
    (shown,) = approver.shown
    recipe = bench.world.runner._recipe("recipe:check").recipe
    assert shown["kind"] == "action"
    assert shown["sourceDigest"] == bench.world.gate.tree.digest
    assert shown["policyDigest"] == bench.world.bundle_digest
    assert shown["actionDigest"] == final["decision"]["actionDigest"]
    assert shown["recipe"] == {
        "id": "check",
        "recipeDigest": recipe.definition_digest,
        "imageDigest": recipe.image.removeprefix("host@"),
        "argv": ("sh", "tools/check"),
        "timeoutMs": 20000,
        "maxOutputBytes": 4096,
    }
    (granted,) = of(bench, records.ApprovalGranted)
    assert (granted.principal, granted.standing) == ("owner", False)
    assert len(of(bench, records.ApprovalRequested)) == 1
    assert len(of(bench, records.ApprovalConsumed)) == 1
    assert_effects_follow_their_decisions(bench.ledger)


@pytest.mark.parametrize(
    "said",
    [False, None, "no", "yes", 1, [], RuntimeError("canary"), TimeoutError()],
    ids=["no", "nothing", "a no", "a text", "a number", "a list", "an error", "a time-out"],
)
async def test_anything_but_true_is_no(tmp_path: Path, said: Any) -> None:
    approver = Scripted(lambda _: said)
    async with conversing(tmp_path / "a", approve="ask", approver=approver) as (bench, agent):
        agent.send(CHECK)
        final = await agent.answer("c")
        agent.send(complete())

    assert final["error"]["code"] == "approval_denied"
    assert final["decision"]["outcome"] == "denied"
    assert bench.engine.runs == []
    assert [each.reason for each in of(bench, records.ApprovalDenied)] == ["approval_denied"]
    assert of(bench, records.EffectStarted, records.ApprovalGranted) == []


async def test_an_approval_is_for_one_run_of_one_tree(tmp_path: Path) -> None:
    """The same recipe again, and after a patch, is asked about again, with its own digest."""
    answers = iter([True, False, True])
    approver = Scripted(lambda _: next(answers))
    async with conversing(tmp_path / "a", approve="ask", approver=approver) as (bench, agent):
        agent.send(tool("c1", "run_recipe", recipeId="check"))
        await agent.answer("c1")
        agent.send(tool("c2", "run_recipe", recipeId="check"))
        await agent.answer("c2")
        agent.send(tool("p", "apply_patch", patch=change("value.txt", "1", "2")))
        agent.send(tool("c3", "run_recipe", recipeId="check"))
        await agent.answer("c3")
        agent.send(complete())

    finals = agent.finals()
    assert [finals[name][0]["ok"] for name in ("c1", "c2", "c3")] == [True, False, True]
    assert [run["value.txt"] for run in bench.engine.runs] == [b"1\n", b"2\n"]
    assert len({each["actionDigest"] for each in approver.shown}) == 3
    assert [each["occurrence"] for each in approver.shown] == [1, 2, 1]
    assert len({each["sourceDigest"] for each in approver.shown}) == 2


async def test_a_slow_yes_is_for_the_tree_that_was_asked_about(tmp_path: Path) -> None:
    """A patch that comes while the person thinks changes nothing of what was approved."""
    late = trio.Event()
    approver = Scripted(lambda _: late)
    async with conversing(tmp_path / "a", approve="ask", approver=approver) as (bench, agent):
        agent.send(CHECK, tool("p", "apply_patch", patch=change("value.txt", "1", "2")))
        await agent.answer("p")
        late.set()
        final = await agent.answer("c")
        agent.send(complete())

    assert final["ok"]
    assert bench.engine.runs[0]["value.txt"] == b"1\n"
    assert final["result"]["sourceDigest"] == approver.shown[0]["sourceDigest"]
    assert bench.world.gate.tree.read("value.txt") == b"2\n"


async def test_two_questions_at_once_are_two_questions(tmp_path: Path) -> None:
    late = trio.Event()
    answers = iter([late, False])
    approver = Scripted(lambda _: next(answers))
    async with conversing(tmp_path / "a", approve="ask", approver=approver) as (bench, agent):
        agent.send(
            tool("c1", "run_recipe", recipeId="check"), tool("c2", "run_recipe", recipeId="check")
        )
        await agent.until(lambda frame: frame.get("final", False))
        late.set()
        for name in ("c1", "c2"):
            await agent.answer(name)
        agent.send(complete())

    assert sorted(final[0]["ok"] for final in agent.finals().values()) == [False, True]
    assert len(bench.engine.runs) == 1
    assert_effects_follow_their_decisions(bench.ledger)


async def test_a_question_ends_with_its_attempt(tmp_path: Path) -> None:
    never = trio.Event()
    approver = Scripted(lambda _: never)
    async with conversing(tmp_path / "a", approve="ask", approver=approver) as (bench, agent):
        agent.send(CHECK)
        while not approver.shown:
            await trio.sleep(0.005)
        bench.conversation.stop("user")
        final = await agent.answer("c")
        never.set()
        agent.send(complete("cancelled"))

    assert final["error"]["code"] == "cancelled"
    assert bench.engine.runs == []
    assert len(of(bench, records.ApprovalExpired)) == 1
    assert of(bench, records.EffectStarted, records.ApprovalGranted) == []


@pytest.mark.parametrize(
    ("approve", "listed", "runs"),
    [
        ("never", frozenset(), ["check", "other"]),
        ("listed", frozenset({"check"}), ["check"]),
        ("listed", frozenset({"nothing"}), []),
        ("ask", frozenset({"check"}), []),
    ],
)
async def test_a_standing_grant_is_for_the_recipes_that_it_names(
    tmp_path: Path, approve: str, listed: frozenset[str], runs: list[str]
) -> None:
    """The approver says no, so what runs was granted when the attempt started."""
    approver = Scripted(lambda _: False)
    async with conversing(tmp_path / "a", approve=approve, listed=listed, approver=approver) as (
        bench,
        agent,
    ):
        for name in ("check", "other"):
            agent.send(tool(name, "run_recipe", recipeId=name))
            await agent.answer(name)
        agent.send(complete())

    assert [run.id for run in bench.world.runner.finished] == runs
    assert len(approver.shown) == 2 - len(runs)
    assert [each.standing for each in of(bench, records.ApprovalGranted)] == [True] * len(runs)
    assert_effects_follow_their_decisions(bench.ledger)
