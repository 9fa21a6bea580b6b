"""The one module that evaluates a request and performs its effect; nothing else does either.

A request becomes a labelled input, the input a decision, the decision a record, and only
an authentic allow, or a grant for exactly this action, lets the effect start, on the tree
that was decided on. Whatever goes wrong on the way is a deny, recorded. The bodies of
effects live in ``effects``; none of them decides anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import trio

from broker.attempts import effects, inputs, replies
from broker.attempts.approving import Approvals
from broker.attempts.gatebook import Asked, GateBook
from broker.attempts.inference_side import InferenceSide
from broker.attempts.offered import DESCRIPTORS
from broker.attempts.recipes import RecipeRunner
from broker.attempts.relay import Send
from broker.attempts.request_rules import RequestDenied
from broker.policy.action import action_document
from broker.policy.approvals import Grant
from broker.policy.budget import AttemptBudget
from broker.policy.conversions import ConversionRejected
from broker.policy.decision import Decision, RequestRef, Subject, is_authentic_decision
from broker.policy.descriptors import ToolDescriptor
from broker.policy.effect_inputs import inference_input, patch_input, recipe_input
from broker.policy.evaluator import Facts, deny, evaluate
from broker.policy.mint import AttemptMint
from broker.policy.paths import PathRegistry
from broker.policy.policy_input import PolicyInput, canonical_input
from broker.policy.registry import RecipeRegistry
from broker.policy.tool_table import INFERENCE, PATCH, READ, RECIPE
from broker.stage.patch_plan import PatchPlan, PatchRefusal
from broker.stage.tree import StagedTree
from protocol.decision_codes import DecisionReason
from protocol.digest import digest_bytes
from protocol.errors import Fault
from protocol.ids import Digest, Id
from protocol.messages import InferenceRequest, ToolResponse
from protocol.tools import (
    ApplyPatchInput,
    ChangeInput,
    InputRejected,
    ReadFileInput,
    RunRecipeInput,
    ToolInput,
    decode_tool_input,
)

Evaluate = Callable[..., Decision]
EVALUATE: Final[Evaluate] = evaluate


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision and the input it was made on; a deny may have none."""

    decision: Decision
    policy_input: PolicyInput | None


@final
class Gate:
    """The gate of one attempt: it holds the tree, and every request passes through it.

    ``evaluate`` is a parameter so that a test can break it; the answer is then no.
    Methods must be called in admission order; two patches never run at once.
    """

    def __init__(
        self,
        *,
        mint: AttemptMint,
        facts: Facts,
        tree: StagedTree,
        registry: PathRegistry,
        recipes: RecipeRegistry,
        runner: RecipeRunner,
        approvals: Approvals,
        budget: AttemptBudget,
        book: GateBook,
        clock: Callable[[], int],
        max_read_bytes: int,
        evaluate: Evaluate = EVALUATE,
    ) -> None:
        self._mint: Final = mint
        self._facts: Final = facts
        self._recipes: Final = recipes
        self._runner: Final = runner
        self._approvals: Final = approvals
        self._budget: Final = budget
        self.book: Final = book
        self._clock: Final = clock
        self._max_read_bytes: Final = max_read_bytes
        self._evaluate: Final = evaluate
        self._ordinal = 0
        self._occurrences: Final[dict[Digest, int]] = {}
        self.tree = tree
        self.registry = registry

    def admit(self, request_id: str, frame: bytes) -> RequestRef:
        """Numbers one request, in order of arrival."""
        self._ordinal += 1
        return RequestRef(self._ordinal, Id(request_id), digest_bytes(frame))

    def unknown_tool(self, asked: Asked) -> ToolResponse:
        """The answer to a tool that is not offered."""
        decision = self._refuse("unknown_tool", asked, None)
        self.book.decision(asked, decision, self.tree.digest)
        return replies.denied(asked.tool_request, decision)

    # Reads --------------------------------------------------------------------

    def read(self, asked: Asked) -> ToolResponse:
        """Decides and performs one read at once; its record is appended, not yet written."""
        tree, permitted = self.tree, self._permit_read(asked)
        if isinstance(permitted, ToolResponse):
            return permitted
        decision, given = permitted
        # Nothing can run between this decision and its effect, and a tree never changes;
        # every other effect is asked about once more when it starts.
        outcome = effects.perform_read(given, tree, max_bytes=self._max_read_bytes)
        self.book.read(asked, decision, tree.digest, outcome=outcome)
        return replies.read_answer(asked.tool_request, decision, outcome)

    def _permit_read(self, asked: Asked) -> ToolResponse | tuple[Decision, ToolInput]:
        """The allow for a read and what was asked, or the answer that says no, recorded."""
        tool = DESCRIPTORS[asked.tool_request.tool]
        try:
            given = decode_tool_input(asked.tool_request.tool, asked.tool_request.input)
        except InputRejected as error:
            decision = self._refuse("argument_schema_invalid", asked, tool)
            self.book.read(asked, decision, self.tree.digest)
            return replies.denied(asked.tool_request, decision, pointer=error.pointer)
        decision = self._decide(
            asked, tool, lambda: inputs.of_read(self._mint, self.registry, asked.ref, given)
        ).decision
        if decision.outcome != "allow":
            self.book.read(asked, decision, self.tree.digest)
            return replies.denied(asked.tool_request, decision)
        return decision, given

    async def search(self, asked: Asked) -> ToolResponse:
        """Decides one search at once and performs it in a thread: it may take seconds."""
        tree, permitted = self.tree, self._permit_read(asked)
        if isinstance(permitted, ToolResponse):
            return permitted
        decision, given = permitted
        outcome = await trio.to_thread.run_sync(
            partial(effects.perform_read, given, tree, max_bytes=self._max_read_bytes)
        )
        self.book.read(asked, decision, tree.digest, outcome=outcome)
        return replies.read_answer(asked.tool_request, decision, outcome)

    # Patches ------------------------------------------------------------------

    async def patch(self, asked: Asked) -> ToolResponse:
        """Decides one change of any form and, if allowed, makes it the tree, all or nothing."""
        try:
            given = decode_tool_input(asked.tool_request.tool, asked.tool_request.input)
            assert isinstance(given, ChangeInput)
        except InputRejected as error:
            return self._deny(asked, "argument_schema_invalid", PATCH, pointer=error.pointer)
        tree, data = self.tree, effects.change_payload(asked.tool_request.tool, given)
        if effects.change_base(given) not in (None, tree.digest):
            return self._deny(asked, "source_changed", PATCH)
        try:
            plan = await trio.to_thread.run_sync(effects.plan_change, given, data, tree)
        except PatchRefusal as refusal:
            told = self._told(asked, given, refusal)
            return self._deny(asked, effects.deny_reason(told.code), PATCH, refusal=told)
        except Exception:  # noqa: BLE001 - it is not swallowed: it is a deny, and is recorded
            return self._deny(asked, "evaluation_error", PATCH)
        ruling = self._decide(
            asked,
            PATCH,
            lambda: patch_input(
                self._mint, self.registry, asked.ref,
                source_digest=tree.digest, targets=effects.policy_targets(plan),
                patch_digest=digest_bytes(data), patch_bytes=data,
            ),
        )  # fmt: skip
        if (reason := await self._authorize(asked, ruling, tree.digest)) != "allowed":
            return replies.denied(asked.tool_request, ruling.decision, reason)
        return await self._apply(asked, ruling.decision, plan, tree)

    def _told(self, asked: Asked, given: ChangeInput, refusal: PatchRefusal) -> PatchRefusal:
        """``refusal`` with lines of the file only for an agent that may read them now."""
        if refusal.found is None or isinstance(given, ApplyPatchInput):
            return refusal
        wanted = ReadFileInput(path=given.path)
        ruling = self._decide(
            asked, READ, lambda: inputs.of_read(self._mint, self.registry, asked.ref, wanted)
        )
        return refusal if ruling.decision.outcome == "allow" else refusal.without_found()

    async def _apply(
        self, asked: Asked, decision: Decision, plan: PatchPlan, tree: StagedTree
    ) -> ToolResponse:
        await self.book.start(decision, tree.digest)
        try:
            applied = await trio.to_thread.run_sync(effects.apply_patch, plan, tree)
        except PatchRefusal as refusal:
            await self.book.no_change(decision, tree.digest, "refused", refusal.code)
            return replies.patch_refused(asked.tool_request, decision, refusal)
        except Fault as fault:
            await self.book.no_change(decision, tree.digest, "failed", fault.code)
            return replies.effect_failed(asked.tool_request, decision)
        except trio.Cancelled:
            await self.book.no_change(decision, tree.digest, "cancelled", "cancelled")
            raise
        if self.tree is not tree:
            await self.book.no_change(decision, tree.digest, "refused", "source_changed")
            return replies.denied(asked.tool_request, decision, "source_changed")
        # No await from here to the assignment: nobody sees a tree without its registry.
        self.registry = self.registry.replace(
            applied.registry_changes, tree_digest=applied.tree.digest
        )
        self.tree = applied.tree
        await self.book.end(
            decision, tree.digest, applied.tree.digest, status="done", changed=len(applied.changes)
        )
        return replies.patch_applied(asked.tool_request, decision, applied)

    # Recipes ------------------------------------------------------------------

    async def recipe(self, asked: Asked, tree: StagedTree) -> ToolResponse:
        """Decides one recipe run on ``tree`` and, if approved, runs it on a fresh copy."""
        try:
            given = decode_tool_input(asked.tool_request.tool, asked.tool_request.input)
            assert isinstance(given, RunRecipeInput)
        except InputRejected as error:
            return self._deny(asked, "argument_schema_invalid", RECIPE, pointer=error.pointer)
        if given.expected_source_digest not in (None, tree.digest):
            return self._deny(asked, "source_changed", RECIPE)
        ruling = self._decide(
            asked,
            RECIPE,
            lambda: recipe_input(
                self._mint, self._recipes, asked.ref,
                source_digest=tree.digest, recipe_id=given.recipe_id,
            ),
        )  # fmt: skip
        if (reason := await self._authorize(asked, ruling, tree.digest)) != "allowed":
            return replies.denied(asked.tool_request, ruling.decision, reason)
        return await self._run(asked, ruling.decision, tree)

    async def _obtain(self, decision: Decision) -> Grant | DecisionReason:
        if decision.tool != RECIPE.name:
            return await self._approvals.obtain(decision, None)
        key = decision.effect_key
        self._occurrences[key] = self._occurrences.get(key, 0) + 1
        document = action_document(
            decision,
            recipe=self._runner.action(decision.target_ids[0]),
            occurrence=self._occurrences[key],
        )
        return await self._approvals.obtain(decision, document)

    async def _run(self, asked: Asked, decision: Decision, tree: StagedTree) -> ToolResponse:
        await self.book.start(decision, tree.digest)
        try:
            run = await self._runner.run(decision.target_ids[0], tree)
        except Fault as fault:
            await self.book.no_change(decision, tree.digest, "failed", fault.code)
            return replies.recipe_failed(asked.tool_request, decision)
        except BaseException:  # a cancellation, in as many groups as there are nurseries
            await self.book.no_change(decision, tree.digest, "cancelled", "cancelled")
            raise
        try:
            with trio.CancelScope(shield=True):
                await self.book.recipe(asked, run)
        except Fault as fault:
            await self.book.no_change(decision, tree.digest, "failed", fault.code)
            return replies.recipe_failed(asked.tool_request, decision)
        with trio.CancelScope(shield=True):
            await self.book.end(
                decision, tree.digest, tree.digest, status="done", result_digest=run.output_digest
            )
        return replies.recipe_answer(asked.tool_request, decision, run)

    # Inference ----------------------------------------------------------------

    async def infer(self, asked: Asked, *, side: InferenceSide | None, send: Send) -> None:
        """Decides one prompt and, if granted, has it answered; ``send`` gets every frame.

        ``side`` None: this attempt has no model, and the prompt goes nowhere.
        """
        request = asked.request
        assert isinstance(request, InferenceRequest)
        if side is None:
            decision = self._refuse("destination_not_registered", asked, INFERENCE)
            self.book.decision(asked, decision, self.tree.digest)
            send(replies.inference_failed(request, "unsupported_api"))
            return
        call = side.prepare(request, self._mint.attempt_id)
        if isinstance(call, RequestDenied):
            decision = self._refuse("argument_schema_invalid", asked, INFERENCE)
            self.book.decision(asked, decision, self.tree.digest)
            send(replies.inference_failed(request, call.code))
            return
        ruling = self._decide(
            asked,
            INFERENCE,
            lambda: inference_input(
                self._mint, side.routes, asked.ref,
                model=request.model, body_digest=call.body_digest, body_bytes=call.body_bytes,
                readers=self._mint.request_readers,
            ),
        )  # fmt: skip
        if (reason := await self._authorize(asked, ruling, None)) != "allowed":
            send(replies.inference_denied(request, ruling.decision, reason))
            return
        await self.book.inference_start(asked, call)
        await side.serve(call, lambda ending: self.book.inference_end(asked, ending), send)

    # Deciding -----------------------------------------------------------------

    def _decide(
        self, asked: Asked, tool: ToolDescriptor, make: Callable[[], PolicyInput]
    ) -> Ruling:
        """The decision on one request. Never raises for what a peer did."""
        try:
            if (spent := self._budget.call()) is not None:
                return Ruling(self._refuse(spent, asked, tool), None)
            try:
                policy_input = make()
            except ConversionRejected as error:
                self._budget.rejected()
                return Ruling(self._refuse(error.reason, asked, tool), None)
            decision = self._evaluate(policy_input, facts=self._facts)
            if not is_authentic_decision(decision) or decision.request is not asked.ref:
                return Ruling(self._refuse("decision_not_authentic", asked, tool), None)
        except Exception:  # noqa: BLE001 - it is not swallowed: it is a deny, and is recorded
            return Ruling(self._refuse("evaluation_error", asked, tool), None)
        return Ruling(decision, policy_input)

    async def _authorize(
        self, asked: Asked, ruling: Ruling, source: Digest | None
    ) -> DecisionReason:
        """``allowed`` when the effect may start now; the decision and its grant are recorded."""
        decision = ruling.decision
        if decision.outcome != "require_approval":
            reason = self._start(ruling, grant=None, source=source)
            self.book.decision(asked, decision, self.tree.digest, reason)
            return reason
        self.book.decision(asked, decision, self.tree.digest)
        grant = await self._obtain(decision)
        if isinstance(grant, str):
            return grant
        reason = self._start(ruling, grant=grant, source=source)
        self._approvals.used(decision, reason)
        return reason

    def _refuse(
        self, reason: DecisionReason, asked: Asked, tool: ToolDescriptor | None
    ) -> Decision:
        return deny(
            reason,
            request=asked.ref,
            tool=tool,
            subject=Subject(self.tree.digest),
            facts=self._facts,
        )

    def _start(
        self, ruling: Ruling, *, grant: Grant | None, source: Digest | None
    ) -> DecisionReason:
        """``allowed`` when the effect may start now; asked again from the input itself."""
        decision, policy_input = ruling.decision, ruling.policy_input
        if policy_input is None:
            return decision.reason
        action = digest_bytes(canonical_input(policy_input))
        return self._approvals.book.start(
            decision,
            grant=grant,
            action_digest=action,
            source_digest=source,
            now=self._clock(),
        )

    def _deny(
        self,
        asked: Asked,
        reason: DecisionReason,
        tool: ToolDescriptor,
        *,
        pointer: str | None = None,
        refusal: PatchRefusal | None = None,
    ) -> ToolResponse:
        decision = self._refuse(reason, asked, tool)
        self.book.decision(asked, decision, self.tree.digest)
        if refusal is not None:
            return replies.patch_refused(asked.tool_request, decision, refusal)
        return replies.denied(asked.tool_request, decision, pointer=pointer)
