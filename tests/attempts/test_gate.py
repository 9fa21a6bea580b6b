"""The gate says no by default: a broken, forged or misplaced decision starts nothing."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.attempts.gate import EVALUATE
from broker.policy.decision import Decision, DecisionSeal
from protocol import records
from tests.attempts.bench import AgentEnd, Bench, conversing
from tests.attempts.checkouts import FILES, change
from tests.attempts.ledger_rules import assert_effects_follow_their_decisions
from tests.attempts.steps import Step, complete, infer, read, tool

#: One good request of every kind that a gate decides on.
REQUESTS: tuple[Step, ...] = (
    read("read", "value.txt"),
    tool("base64", "read_file", path="image.bin", encoding="base64"),
    tool("list", "list_files"),
    tool("search", "search_files", query="line"),
    tool("patch", "apply_patch", patch=change("value.txt", "1", "2")),
    tool("recipe", "run_recipe", recipeId="check"),
    infer("infer"),
)
NAMES = [step["frame"]["requestId"] for step in REQUESTS]


def raising(*_: Any, **__: Any) -> Decision:
    raise RuntimeError("canary-of-the-evaluator")


def recursing(*args: Any, **kwargs: Any) -> Decision:
    return recursing(*args, **kwargs)


def answering(value: Any) -> Callable[..., Any]:
    """An evaluator whose answer is no decision at all."""
    return lambda *_, **__: value


def with_another_brand(policy_input: Any, **facts: Any) -> Decision:
    """The right decision, made by somebody else."""
    forged = copy.copy(EVALUATE(policy_input, **facts))
    msgspec.structs.force_setattr(forged, "brand", DecisionSeal())
    return forged


def turned_to_yes(policy_input: Any, **facts: Any) -> Decision:
    """The right decision with another outcome; the brand was not made for it."""
    forged = copy.copy(EVALUATE(policy_input, **facts))
    msgspec.structs.force_setattr(forged, "outcome", "allow")
    msgspec.structs.force_setattr(forged, "brand", DecisionSeal())
    return forged


class OfAnotherAction:
    """Gives each request the authentic decision that the one before it got."""

    def __init__(self) -> None:
        self.last: Decision | None = None

    def __call__(self, policy_input: Any, **facts: Any) -> Decision:
        last, self.last = self.last, EVALUATE(policy_input, **facts)
        return last or raising()


class AlwaysTheFirst:
    """Gives every request the decision on the first one: an authentic yes."""

    def __init__(self) -> None:
        self.first: Decision | None = None

    def __call__(self, policy_input: Any, **facts: Any) -> Decision:
        if self.first is None:
            self.first = EVALUATE(policy_input, **facts)
        return self.first


EVALUATORS: dict[str, Callable[[], Callable[..., Any]]] = {
    "raises": lambda: raising,
    "never ends": lambda: recursing,
    "none": lambda: answering(None),
    "true": lambda: answering(True),
    "a text": lambda: answering("allow"),
    "another brand": lambda: with_another_brand,
    "turned to yes": lambda: turned_to_yes,
    "of another action": OfAnotherAction,
}


async def ask_all(agent: AgentEnd) -> None:
    for step in REQUESTS:
        agent.send(step)
        await agent.answer(step["frame"]["requestId"])
    agent.send(complete())


def assert_nothing_happened(bench: Bench) -> None:
    assert bench.engine.runs == []
    assert {path: bench.world.gate.tree.read(path) for path in FILES} == FILES
    effects = (records.EffectStarted, records.InferenceStarted, records.ApprovalGranted)
    assert not any(isinstance(record, effects) for record in bench.ledger)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.jsonl"
    path.write_bytes(b'{"match":{},"answer":{"text":"yes"}}\n')
    return f"scripted:{path}"


async def test_every_request_of_the_list_is_served_by_the_real_evaluator(
    tmp_path: Path, script: str
) -> None:
    async with conversing(tmp_path / "a", inference=script) as (bench, agent):
        await ask_all(agent)

    assert {name: final[0]["ok"] for name, final in agent.finals().items()} == dict.fromkeys(
        NAMES, True
    )
    assert len(bench.engine.runs) == 1


@pytest.mark.parametrize("name", EVALUATORS)
async def test_no_effect_happens_and_every_request_is_a_recorded_deny(
    tmp_path: Path, script: str, name: str
) -> None:
    async with conversing(tmp_path / "a", inference=script, evaluate=EVALUATORS[name]()) as (
        bench,
        agent,
    ):
        await ask_all(agent)

    finals = agent.finals()
    assert [finals[each][0]["ok"] for each in NAMES] == [False] * len(NAMES)
    assert {finals[each][0]["error"]["code"] for each in NAMES} == {"internal_error"}
    assert_nothing_happened(bench)
    decided = [
        record for record in bench.ledger if isinstance(record, records.Decision | records.Read)
    ]
    assert [record.request for record in decided] == list(range(1, len(NAMES) + 1))
    assert {record.outcome for record in decided} == {"deny"}
    reasons = {record.reason for record in decided}
    assert reasons <= {"evaluation_error", "decision_not_authentic"}
    if name == "raises":
        assert reasons == {"evaluation_error"}
        # What the exception said is nowhere.
        assert b"canary" not in b"".join(
            path.read_bytes() for path in bench.folder.rglob("*") if path.is_file()
        )
    assert (bench.counters.allow, bench.counters.deny) == (0, len(NAMES))


async def test_one_yes_does_not_let_the_rest_through(tmp_path: Path, script: str) -> None:
    async with conversing(tmp_path / "a", inference=script, evaluate=AlwaysTheFirst()) as (
        bench,
        agent,
    ):
        await ask_all(agent)

    finals = agent.finals()
    assert [name for name in NAMES if finals[name][0]["ok"]] == [NAMES[0]]
    assert_nothing_happened(bench)


async def test_a_tree_that_changed_after_the_decision_is_not_overwritten(tmp_path: Path) -> None:
    """Two patches at once, which the conversation never does: one of them must not win."""
    async with conversing(tmp_path / "a") as (bench, agent):
        gate = bench.world.gate
        before = gate.tree
        other = before.replace({})

        def swapping(policy_input: Any, **facts: Any) -> Decision:
            gate.tree = other
            return EVALUATE(policy_input, **facts)

        gate._evaluate = swapping  # type: ignore[misc]
        agent.send(tool("p", "apply_patch", patch=change("value.txt", "1", "2")))
        final = await agent.answer("p")
        agent.send(complete())

    assert final["error"]["code"] == "source_changed"
    assert bench.world.gate.tree is other
    ends = [each for each in bench.ledger if isinstance(each, records.EffectFinished)]
    assert [(each.status, each.code) for each in ends] == [("refused", "source_changed")]
    assert_effects_follow_their_decisions(bench.ledger)


async def test_an_answer_says_which_decision_it_is_of(tmp_path: Path) -> None:
    async with conversing(tmp_path / "a") as (bench, agent):
        agent.send(
            read("r", "value.txt"),
            tool("p", "apply_patch", patch=change("value.txt", "1", "2")),
            tool("c", "run_recipe", recipeId="check"),
        )
        for name in "rpc":
            await agent.answer(name)
        agent.send(complete())

    said = [agent.finals()[name][0]["decision"] for name in "rpc"]
    decided = [
        record for record in bench.ledger if isinstance(record, records.Decision | records.Read)
    ]
    assert [each["actionDigest"] for each in said] == [each.action_digest for each in decided]
    assert [each["outcome"] for each in said] == ["allowed", "allowed", "approved"]
    assert {each["policyDigest"] for each in said} == {decided[0].policy_digest}
