"""What must hold for every input: the Unsafe text decides nothing and shows nowhere."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.policy.action import action_document
from broker.policy.decision import Decision
from broker.policy.evaluator import deny, evaluate
from broker.policy.labels import is_authentic
from broker.policy.policy_input import canonical_input
from broker.policy.readers import intersect_readers
from broker.policy.tools import (
    ConversionRejected,
    inference_input,
    patch_input,
    read_input,
    recipe_input,
    search_input,
)
from protocol.ids import Digest
from tests.policy import attempt

MINT = attempt.mint("provider:primary")
FACTS = attempt.facts(MINT)
PATHS = attempt.paths()
TARGETS = st.lists(
    st.sampled_from(
        [("src/a.py", "modified"), ("README.md", "deleted"), ("src/n.py", "added"), ("n", "added")]
    ),
    min_size=1,
    max_size=4,
    unique=True,
)


def patched(targets: Any, text: str) -> Decision:
    made = patch_input(
        MINT,
        PATHS,
        attempt.request(),
        source_digest=attempt.TREE,
        targets=targets,
        patch_digest=Digest("sha256:" + "0" * 64),
        patch_bytes=text.encode(),
    )
    return evaluate(made, facts=FACTS)


def record(decision: Decision) -> dict[str, Any]:
    """What the ledger keeps of a decision, without digests of content."""
    return {
        "outcome": decision.outcome,
        "reason": decision.reason,
        "targets": decision.target_ids,
        "tool": decision.tool,
        "effect": decision.effect,
        "descriptor": decision.descriptor_digest,
        "bundle": decision.bundle_digest,
        "untrusted": decision.untrusted_control,
        "source": decision.source_digest,
        "effectKey": decision.effect_key,
    }


@given(TARGETS, st.text(), st.text())
def test_the_text_of_a_patch_decides_nothing(targets: Any, one: str, two: str) -> None:
    first, second = patched(targets, one), patched(targets, two)

    assert record(first) == record(second)
    assert (first.action_digest == second.action_digest) == (one == two)


@given(TARGETS, st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9))
def test_the_name_of_a_created_file_decides_nothing_but_its_folder(
    targets: Any, one: str, two: str
) -> None:
    def named(name: str) -> list[Any]:
        return [*targets, ("src/" + name.replace("/", "_"), "added")]

    assert record(patched(named(one), "x")) == record(patched(named(two), "x"))


@given(st.text(max_size=50), st.text(max_size=50), st.booleans())
def test_what_is_searched_for_decides_nothing(one: str, two: str, regex: bool) -> None:
    first, second = (
        evaluate(
            search_input(MINT, PATHS, attempt.request(), query=query, regex=regex, prefix="src"),
            facts=FACTS,
        )
        for query in (one, two)
    )

    assert record(first) == record(second)


@given(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from("abc"), st.sampled_from("abc"))
def test_what_a_prompt_holds_decides_nothing(one: int, two: int, first: str, second: str) -> None:
    outcomes = {
        evaluate(
            inference_input(
                MINT,
                attempt.routes(),
                attempt.request(),
                model="main",
                body_digest=Digest("sha256:" + digit * 64),
                body_bytes=size,
                readers=MINT.request_readers,
            ),
            facts=FACTS,
        ).reason
        for size, digit in ((one, first), (two, second))
    }

    assert outcomes == {"effect_requires_approval"}


@given(TARGETS)
def test_nobody_reads_an_output_who_may_not_read_its_inputs(targets: Any) -> None:
    made = patch_input(
        MINT, PATHS, attempt.request(), source_digest=attempt.TREE, targets=targets,
        patch_digest=Digest("sha256:" + "0" * 64), patch_bytes=b"x",
    )  # fmt: skip
    for argument in made.arguments:
        value = argument.value
        assert is_authentic(value)
        if argument.name in ("targets", "patch"):
            assert value.readers.within(intersect_readers([MINT.request_readers]))


CANARY = "CANARY-0123456789"


@pytest.mark.parametrize(
    "shown",
    [CANARY, CANARY.encode().hex(), base64.b64encode(CANARY.encode()).decode(), CANARY[:12]],
)
def test_no_text_of_the_agent_is_in_a_record(shown: str) -> None:
    decisions = [patched([("src/" + CANARY, "added"), ("src/a.py", "modified")], CANARY)]
    for ask in (
        lambda: read_input(MINT, PATHS, attempt.request(), path=CANARY),
        lambda: read_input(MINT, PATHS, attempt.request(), path="src/a.py", offset=CANARY),
        lambda: recipe_input(
            MINT, attempt.recipes(), attempt.request(), source_digest=attempt.TREE,
            recipe_id=CANARY,
        ),
        lambda: search_input(MINT, PATHS, attempt.request(), query="x", prefix=CANARY),
    ):  # fmt: skip
        with pytest.raises(ConversionRejected) as refused:
            ask()
        assert shown not in f"{refused.value!s}{refused.value!r}{refused.value.args}"
        assert refused.value.__cause__ is None
        decisions.append(
            deny(refused.value.reason, request=attempt.request(), tool=None,
                 subject=decisions[0].subject, facts=FACTS)
        )  # fmt: skip
    for decision in decisions:
        document = action_document(decision, recipe=None, occurrence=1)
        assert shown not in f"{record(decision)}{decision!r}{document!r}"


def test_a_recorded_input_is_decided_the_same_again() -> None:
    made = read_input(MINT, PATHS, attempt.request(), path="src/a.py", offset=1)
    again = read_input(MINT, PATHS, attempt.request(), path="src/a.py", offset=1)
    one, two = evaluate(made, facts=FACTS), evaluate(again, facts=attempt.facts(MINT))

    assert (one.decision_id, one.outcome, one.reason) == (two.decision_id, two.outcome, two.reason)
    assert json.loads(canonical_input(made)) == json.loads(canonical_input(again))


@given(st.integers(1, 2**53 - 1), st.integers(1, 2**53 - 1))
def test_a_decision_id_is_of_one_request(one: int, two: int) -> None:
    first, second = (
        deny("evaluation_error", request=attempt.request(number), tool=None,
             subject=record_subject(), facts=FACTS)
        for number in (one, two)
    )  # fmt: skip

    assert (first.decision_id == second.decision_id) == (one == two)


def record_subject() -> Any:
    return patched([("src/a.py", "modified")], "x").subject
