"""Approvals: a grant is for one action, once, in time, on one tree, by who may give it."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from broker.policy.action import RecipeAction, action_document
from broker.policy.answers import wire_code
from broker.policy.approvals import ApprovalBook, Grant, StandingGrant
from broker.policy.budget import AttemptBudget
from broker.policy.decision import Decision
from broker.policy.evaluator import deny, evaluate
from broker.policy.tools import read_input, recipe_input
from protocol import codes
from protocol.decision_codes import DecisionReason
from protocol.ids import Digest, Id, RecipeId
from tests.policy import attempt

MINT = attempt.mint()
FACTS = attempt.facts(MINT)
DEFINITION = Digest("sha256:" + "4" * 64)


def recipe_decision(ordinal: int = 1, tree: Digest = attempt.TREE) -> Decision:
    made = recipe_input(
        MINT, attempt.recipes(), attempt.request(ordinal), source_digest=tree, recipe_id="test"
    )
    return evaluate(made, facts=FACTS)


def read_decision(ordinal: int = 1) -> Decision:
    made = read_input(MINT, attempt.paths(), attempt.request(ordinal), path="src/a.py")
    return evaluate(made, facts=FACTS)


def standing(**change: Any) -> StandingGrant:
    given = {
        "definition_digest": DEFINITION,
        "destination": attempt.IMAGE,
        "bundle_digest": attempt.BUNDLE,
        "owner": attempt.OWNER,
    }
    return StandingGrant(**(given | change))


def book(*grants: StandingGrant, attempt_id: str = "at_01", **change: Any) -> ApprovalBook:
    given = {"bundle_digest": attempt.BUNDLE, "approvers": [attempt.OWNER], "standing": grants}
    return ApprovalBook(Id(attempt_id), **(given | change))


def start(of: ApprovalBook, decision: Any, grant: Any = None, **change: Any) -> DecisionReason:
    given = {"action_digest": decision.action_digest, "source_digest": attempt.TREE, "now": 10}
    return of.start(decision, grant=grant, **(given | change))


def granted(of: ApprovalBook, decision: Decision, expires_at: int = 100) -> Grant:
    of.open(decision, expires_at=expires_at)
    grant = of.decide(decision.action_digest, granted=True, approver=attempt.OWNER, now=5)
    assert isinstance(grant, Grant)
    return grant


def test_an_allowed_effect_starts_once() -> None:
    of, decision = book(), read_decision()

    assert start(of, decision) == "allowed"
    assert start(of, decision) == "approval_consumed"


def test_a_denied_effect_does_not_start() -> None:
    denied = deny(
        "unknown_tool", request=attempt.request(), tool=None, subject=read_decision().subject,
        facts=FACTS,
    )  # fmt: skip

    assert start(book(), denied) == "unknown_tool"


def test_what_needs_an_approval_does_not_start_without() -> None:
    assert start(book(), recipe_decision()) == "effect_requires_approval"


def test_a_person_grants_one_action_once() -> None:
    of, decision = book(), recipe_decision()
    grant = granted(of, decision)

    assert (grant.approver, grant.standing, grant.ordinal) == (attempt.OWNER, None, 1)
    assert start(of, decision, grant) == "allowed"
    assert start(of, decision, grant) == "approval_consumed"


def test_a_standing_grant_answers_for_its_recipe_image_and_bundle() -> None:
    of, decision = book(standing()), recipe_decision()
    grant = of.answer(decision, expires_at=100)

    assert grant is not None
    assert grant.standing == standing().grant_id
    assert start(of, decision, grant) == "allowed"


@pytest.mark.parametrize(
    "change",
    [
        {"definition_digest": Digest("sha256:" + "0" * 64)},
        {"destination": "other@sha256:" + "9" * 64},
        {"bundle_digest": Digest("sha256:" + "0" * 64)},
    ],
)
def test_a_standing_grant_answers_for_nothing_else(change: dict[str, Any]) -> None:
    assert book(standing(**change)).answer(recipe_decision(), expires_at=100) is None
    assert standing(**change).grant_id != standing().grant_id


def test_a_standing_grant_answers_no_read_and_no_deny() -> None:
    assert book(standing()).answer(read_decision(), expires_at=100) is None
    assert book(standing()).standing({"outcome": "allow"}) is None  # type: ignore[arg-type]


def test_only_who_may_approve_decides() -> None:
    of, decision = book(), recipe_decision()
    of.open(decision, expires_at=100)
    answer = {"granted": True, "now": 5}

    digest = decision.action_digest
    assert of.decide(digest, approver="eve", **answer) == "approver_not_authorized"
    assert isinstance(of.decide(digest, approver=attempt.OWNER, **answer), Grant)


def test_a_denial_is_final() -> None:
    of, decision = book(), recipe_decision()
    of.open(decision, expires_at=100)
    digest = decision.action_digest

    assert of.decide(digest, granted=False, approver=attempt.OWNER, now=5) == "approval_denied"
    assert of.decide(digest, granted=True, approver=attempt.OWNER, now=5) == "approval_mismatch"


def test_nobody_approves_what_was_not_asked() -> None:
    answer = book().decide(DEFINITION, granted=True, approver=attempt.OWNER, now=5)

    assert answer == "approval_mismatch"


def test_time_runs_out_for_the_question_and_for_the_grant() -> None:
    of, decision = book(), recipe_decision()
    of.open(decision, expires_at=100)
    late = of.decide(decision.action_digest, granted=True, approver=attempt.OWNER, now=100)
    assert late == "approval_expired"

    grant = granted(of, decision)
    assert start(of, decision, grant, now=100) == "approval_expired"
    assert start(of, decision, grant, now=99) == "allowed"


def test_an_answer_can_shorten_a_grant_and_not_lengthen_it() -> None:
    of, decision = book(), recipe_decision()
    for asked, given in ((50, 50), (500, 100), (None, 100)):
        of.open(decision, expires_at=100)
        grant = of.decide(
            decision.action_digest, granted=True, approver=attempt.OWNER, now=5, expires_at=asked
        )
        assert isinstance(grant, Grant)
        assert grant.expires_at == given


def test_what_nobody_answered_is_taken_out() -> None:
    of, decision = book(), recipe_decision()
    of.open(decision, expires_at=100)

    assert of.expire(now=99) == ()
    assert of.expire(now=100) == (decision,)
    assert of.expire(now=100) == ()


def test_a_grant_can_be_taken_back() -> None:
    of, decision = book(), recipe_decision()
    grant = granted(of, decision)
    of.revoke(decision.request.ordinal)
    assert start(of, decision, grant) == "approval_revoked"

    of, decision = book(), recipe_decision()
    grant = granted(of, decision)
    waiting = recipe_decision(2)
    of.open(waiting, expires_at=100)
    assert of.withdraw() == (waiting,)
    assert start(of, decision, grant) == "approval_revoked"


def test_a_grant_is_for_its_own_action() -> None:
    of = book()
    one, two = recipe_decision(1), recipe_decision(2)
    other_tree = recipe_decision(1, attempt.NEXT_TREE)
    grant = granted(of, one)

    assert start(of, two, grant) == "approval_mismatch"
    assert start(of, other_tree, grant, source_digest=attempt.NEXT_TREE) == "approval_mismatch"
    assert start(of, one, {"approver": attempt.OWNER}) == "approval_mismatch"


def test_a_grant_is_for_its_own_attempt_and_bundle() -> None:
    decision = recipe_decision()
    grant = granted(book(), decision)

    assert start(book(), decision, grant) == "approval_mismatch"
    moved = book(bundle_digest=Digest("sha256:" + "0" * 64))
    assert start(moved, decision, granted(moved, decision)) == "approval_mismatch"
    assert start(book(attempt_id="at_02"), decision, grant) == "decision_not_authentic"


def test_the_effect_is_the_one_that_was_decided() -> None:
    of, decision = book(), recipe_decision()
    grant = granted(of, decision)
    other = Digest("sha256:" + "0" * 64)

    assert start(of, decision, grant, action_digest=other) == "action_digest_mismatch"
    assert start(of, decision, grant, source_digest=attempt.NEXT_TREE) == "source_changed"
    assert start(of, decision, grant) == "allowed"


@pytest.mark.parametrize("forged", [{"outcome": "allow"}, None, "allow", object()])
def test_a_forged_decision_starts_nothing(forged: Any) -> None:
    reason = book().start(
        forged, grant=None, action_digest=DEFINITION, source_digest=attempt.TREE, now=1
    )

    assert reason == "decision_not_authentic"
    assert book().open(forged, expires_at=1) == "decision_not_authentic"


def test_decisions_and_grants_cannot_be_changed() -> None:
    decision = read_decision()
    grant = granted(book(), recipe_decision())
    for value in (decision, grant):
        with pytest.raises(TypeError):
            msgspec.structs.replace(value)
    with pytest.raises(AttributeError):
        decision.outcome = "allow"  # type: ignore[misc]


def test_only_what_requires_an_approval_is_asked_about() -> None:
    assert book().open(read_decision(), expires_at=100) == "allowed"
    of, decision = book(), recipe_decision()
    assert start(of, decision, granted(of, decision)) == "allowed"
    assert of.open(decision, expires_at=100) == "approval_consumed"


class NoEffectWithoutItsDecision(RuleBasedStateMachine):
    """P5: whatever is interleaved, each start has its own decision, and once."""

    def __init__(self) -> None:
        super().__init__()
        self.book = book(standing())
        self.now = 0
        self.granted: dict[int, Grant] = {}
        self.started: set[int] = set()

    ordinals = st.integers(1, 3)

    @rule(ordinal=ordinals, hold=st.integers(1, 3))
    def ask(self, ordinal: int, hold: int) -> None:
        self.book.open(recipe_decision(ordinal), expires_at=self.now + hold)

    @rule(ordinal=ordinals, yes=st.booleans(), who=st.sampled_from([attempt.OWNER, "eve"]))
    def decide(self, ordinal: int, yes: bool, who: str) -> None:
        digest = recipe_decision(ordinal).action_digest
        answer = self.book.decide(digest, granted=yes, approver=who, now=self.now)
        if isinstance(answer, Grant):
            assert yes
            assert who == attempt.OWNER
            self.granted[ordinal] = answer

    @rule(ordinal=ordinals)
    def answer(self, ordinal: int) -> None:
        grant = self.book.answer(recipe_decision(ordinal), expires_at=self.now + 2)
        assert grant is not None
        self.granted[ordinal] = grant

    @rule()
    def wait(self) -> None:
        self.now += 1
        self.book.expire(now=self.now)

    @rule(ordinal=ordinals, used=ordinals, tree=st.sampled_from([attempt.TREE, attempt.NEXT_TREE]))
    def begin(self, ordinal: int, used: int, tree: Digest) -> None:
        decision, grant = recipe_decision(ordinal), self.granted.get(used)
        reason = self.book.start(
            decision, grant=grant, action_digest=decision.action_digest, source_digest=tree,
            now=self.now,
        )  # fmt: skip
        if reason == "allowed":
            assert ordinal not in self.started
            assert grant is not None
            assert grant.ordinal == ordinal
            assert self.now < grant.expires_at
            assert tree == attempt.TREE
            self.started.add(ordinal)


TestNoEffectWithoutItsDecision = NoEffectWithoutItsDecision.TestCase


@pytest.mark.parametrize("tool", ["workspace.read", "workspace.patch", "recipe.run", "", "x"])
@pytest.mark.parametrize("reason", sorted(set(get_args(DecisionReason)) - {"allowed"}))
def test_every_reason_has_a_code(reason: DecisionReason, tool: str) -> None:
    assert wire_code(reason, tool=tool) in get_args(codes.WireCode)


def test_the_wire_does_not_tell_what_a_filter_hid() -> None:
    for tool in ("workspace.read", "workspace.list", "workspace.search"):
        assert wire_code("selector_not_registered", tool=tool) == "not_found"
        assert wire_code("reader_mismatch", tool=tool) == "not_found"
    assert wire_code("selector_not_registered", tool="recipe.run") == "recipe_unknown"
    assert wire_code("selector_not_registered", tool="inference.send") == "unknown_model"
    assert wire_code("patch_path_secret", tool="workspace.patch") == wire_code(
        "patch_path_protected", tool="workspace.patch"
    )


def test_calls_and_rejections_are_counted() -> None:
    budget = AttemptBudget(maximum_calls=3, maximum_rejections=2)
    assert [budget.call() for _ in range(4)] == [None, None, None, "call_limit_exceeded"]

    budget = AttemptBudget(maximum_calls=9, maximum_rejections=2)
    budget.rejected()
    assert budget.call() is None
    budget.rejected()
    assert budget.call() == "conversion_limit_exceeded"


def test_the_action_document_is_closed() -> None:
    decision = recipe_decision()
    recipe = RecipeAction(
        id=RecipeId("test"), recipe_digest=DEFINITION, image_digest=Digest("sha256:" + "9" * 64),
        argv=("make", "test"), timeout_ms=1000, max_output_bytes=2000,
    )  # fmt: skip
    written = msgspec.to_builtins(action_document(decision, recipe=recipe, occurrence=2))

    assert written == {
        "schemaVersion": 1,
        "kind": "action",
        "attemptId": "at_01",
        "effect": "code_execution",
        "tool": "recipe.run",
        "targets": ("recipe:test",),
        "sourceDigest": attempt.TREE,
        "policyDigest": attempt.BUNDLE,
        "recipe": {
            "id": "test",
            "recipeDigest": DEFINITION,
            "imageDigest": "sha256:" + "9" * 64,
            "argv": ("make", "test"),
            "timeoutMs": 1000,
            "maxOutputBytes": 2000,
        },
        "occurrence": 2,
    }
