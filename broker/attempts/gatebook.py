"""The ledger records of one attempt's requests: made here, in one place, from decisions.

Numbers, ids, digests and closed codes only. Counts what was decided, for whoever watches.
"""

from typing import Final, final

import msgspec
import trio

from broker.attempts.effects import ReadOutcome
from broker.attempts.inference import InferenceCall
from broker.attempts.inference_side import InferenceEnding
from broker.attempts.offered import DESCRIPTORS
from broker.attempts.progress import Counters
from broker.attempts.recorder import Recorder
from broker.policy.decision import Decision, RequestRef, Verdict
from broker.recipes.run import RecipeRun
from protocol import records
from protocol.decision_codes import DecisionReason
from protocol.ids import Digest, Id, ModelAlias, ToolName
from protocol.messages import InferenceRequest, ToolRequest, Usage
from protocol.record_fields import EffectCode, EffectStatus

#: The number of ``airlock.strict.1`` in records.
EVALUATOR_NUMBER: Final = 1

_NO_USAGE: Final = Usage(input_tokens=0, output_tokens=0)


class Asked(msgspec.Struct, frozen=True, eq=False):
    """One admitted request: what the agent asked, and how policy and ledger refer to it."""

    request: ToolRequest | InferenceRequest
    ref: RequestRef
    frame_bytes: int

    @property
    def tool_request(self) -> ToolRequest:
        """The request, which is one for a tool."""
        assert isinstance(self.request, ToolRequest)
        return self.request

    @property
    def tool(self) -> ToolName | None:
        """The offered tool's name, or None."""
        request = self.request
        if isinstance(request, ToolRequest) and request.tool in DESCRIPTORS:
            return ToolName(request.tool)
        return None


@final
class GateBook:
    """Appends the records of requests; effects' records are synced before it returns."""

    def __init__(self, recorder: Recorder, counters: Counters) -> None:
        self._recorder: Final = recorder
        self._counters: Final = counters

    def request(self, asked: Asked) -> None:
        """A request was admitted."""
        self._recorder.append(
            records.Request(
                request=asked.ref.ordinal,
                kind="tool" if isinstance(asked.request, ToolRequest) else "inference",
                tool=asked.tool,
                frame_digest=asked.ref.frame_digest,
                frame_bytes=asked.frame_bytes,
            )
        )

    def decision(
        self,
        asked: Asked,
        decision: Decision,
        tree: Digest,
        start: DecisionReason | None = None,
    ) -> None:
        """A request was decided; ``tree`` is the attempt's tree at that moment.

        ``start`` is what was said when the effect was to start: anything but ``allowed``
        makes it a deny, whatever the decision was.
        """
        refused = start if start not in (None, "allowed") else None
        outcome: Verdict = "deny" if refused is not None else decision.outcome
        self._count(outcome)
        self._recorder.append(
            records.Decision(
                request=asked.ref.ordinal,
                decision_id=Id(decision.decision_id),
                outcome=outcome,
                reason=refused or decision.reason,
                action_digest=decision.action_digest,
                effect_key=decision.effect_key,
                tool=asked.tool,
                tool_digest=decision.descriptor_digest,
                targets=_targets(decision),
                source_digest=decision.source_digest or tree,
                policy_digest=decision.bundle_digest,
                untrusted_control=decision.untrusted_control,
                evaluator_version=EVALUATOR_NUMBER,
            )
        )

    def read(
        self,
        asked: Asked,
        decision: Decision,
        tree: Digest,
        *,
        outcome: ReadOutcome | None = None,
        reason: DecisionReason | None = None,
    ) -> None:
        """A read: its request, decision and effect in one record. No outcome is a denial."""
        self._count("deny" if outcome is None else "allow")
        tool = asked.tool
        assert tool is not None
        self._recorder.append(
            records.Read(
                request=asked.ref.ordinal,
                tool=tool,
                frame_digest=asked.ref.frame_digest,
                frame_bytes=asked.frame_bytes,
                decision_id=Id(decision.decision_id),
                outcome="deny" if outcome is None else decision.outcome,
                reason=reason or decision.reason,
                action_digest=decision.action_digest,
                targets=_targets(decision),
                source_digest=tree,
                policy_digest=decision.bundle_digest,
                untrusted_control=decision.untrusted_control,
                evaluator_version=EVALUATOR_NUMBER,
                status="refused" if outcome is None else outcome.status,
                code=None if outcome is None else outcome.code,
                result_digest=None if outcome is None else outcome.digest,
                result_bytes=0 if outcome is None else outcome.disclosed_bytes,
                truncated=outcome is not None and outcome.truncated,
            )
        )

    async def start(self, decision: Decision, tree: Digest) -> None:
        """Log before act: what authorizes the effect is durable before it begins."""
        self._recorder.append(
            records.EffectStarted(
                request=decision.request.ordinal,
                decision_id=Id(decision.decision_id),
                action_digest=decision.action_digest,
                effect_key=decision.effect_key,
                source_digest=tree,
            )
        )
        await self._recorder.sync()

    async def end(
        self,
        decision: Decision,
        before: Digest,
        after: Digest,
        *,
        status: EffectStatus,
        code: EffectCode | None = None,
        changed: int = 0,
        result_digest: Digest | None = None,
    ) -> None:
        """The effect's end, durable before its answer leaves."""
        self._recorder.append(
            records.EffectFinished(
                request=decision.request.ordinal,
                effect_key=decision.effect_key,
                status=status,
                code=code,
                before_digest=before,
                after_digest=after,
                changed_paths=changed,
                result_digest=result_digest,
            )
        )
        await self._recorder.sync()

    async def no_change(
        self, decision: Decision, tree: Digest, status: EffectStatus, code: EffectCode
    ) -> None:
        """The end of an effect that left the tree as it was, also when all is cancelled."""
        with trio.CancelScope(shield=True):
            await self.end(decision, tree, tree, status=status, code=code)

    async def recipe(self, asked: Asked, run: RecipeRun) -> None:
        """What a recipe run gave; its outputs are kept as artifacts."""
        self._counters.recipes += 1
        self._recorder.append(
            records.RecipeFinished(
                request=asked.ref.ordinal,
                recipe=run.recipe.id,
                definition_digest=run.recipe.definition_digest,
                source_digest=run.source_digest,
                status=run.status,
                exit_code=run.exit_code,
                duration_ms=run.duration_ms,
                stdout_bytes=len(run.stdout),
                stderr_bytes=len(run.stderr),
                output_digest=run.output_digest,
            )
        )
        await self._recorder.keep("recipe_stdout", run.stdout, request=asked.ref.ordinal)
        await self._recorder.keep("recipe_stderr", run.stderr, request=asked.ref.ordinal)

    async def inference_start(self, asked: Asked, call: InferenceCall) -> None:
        """A prompt is about to leave."""
        self._recorder.append(
            records.InferenceStarted(
                request=asked.ref.ordinal,
                ordinal=1,
                api=call.api,
                model=ModelAlias(call.model),
                body_digest=call.body_digest,
                body_bytes=call.body_bytes,
                stripped_tools=sum(count for kind, count in call.stripped if kind == "hosted_tool"),
            )
        )
        await self._recorder.sync()

    async def inference_end(self, asked: Asked, ending: InferenceEnding) -> None:
        """How a prompt was answered, durable before its last frame leaves."""
        code, usage = ending.code, ending.usage or _NO_USAGE
        self._counters.input_tokens += usage.input_tokens
        self._counters.output_tokens += usage.output_tokens
        self._recorder.append(
            records.InferenceFinished(
                request=asked.ref.ordinal,
                ordinal=1,
                status="ok" if code is None else "cancelled" if code == "cancelled" else "error",
                code=code,
                response_digest=ending.response_digest,
                response_bytes=ending.response_bytes,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_input_tokens=usage.cached_input_tokens,
                duration_ms=ending.duration_ms,
            )
        )
        await self._recorder.sync()

    def _count(self, outcome: Verdict) -> None:
        counters = self._counters
        counters.requests += 1
        match outcome:
            case "allow":
                counters.allow += 1
            case "deny":
                counters.deny += 1
            case "require_approval":
                counters.require_approval += 1


def _targets(decision: Decision) -> tuple[Id, ...]:
    # A model's alias may hold a slash, which a record's ids do not; the record names it apart.
    return tuple(Id(target) for target in decision.target_ids if "/" not in target)
