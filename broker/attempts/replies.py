"""The final answers of the gate as messages: closed codes, digests, and labelled payload.

Payload is what the agent may read anyway: file content, recipe output, the lines of its
own patch. No error text is made here; each comes from its code.
"""

from typing import Any, Final

from broker.attempts.effects import Applied, ReadOutcome, blob_digest
from broker.policy.answers import wire_code
from broker.policy.decision import Decision
from broker.recipes.run import RecipeRun
from broker.stage.patch_plan import PatchRefusal
from protocol.codes import WireCode
from protocol.decision_codes import DecisionReason, PatchCode
from protocol.messages import (
    InferenceRequest,
    InferenceResponse,
    ToolRequest,
    ToolResponse,
    Truncation,
    WireDecision,
    wire_error,
)
from protocol.tools import ApplyPatchResult, ChangedFile, RunRecipeResult

#: What a patch's refusal is on the wire; the exact code goes along as ``reason``.
_PATCH_WIRE: Final[dict[PatchCode, WireCode]] = {
    "patch_malformed": "patch_malformed",
    "patch_too_many_files": "patch_too_large",
    "patch_too_many_hunks": "patch_too_large",
    "patch_path_not_canonical": "patch_path_denied",
    "patch_path_protected": "patch_path_denied",
    "patch_path_secret": "patch_path_denied",
    "patch_path_reference": "patch_path_denied",
    "patch_mode_forbidden": "patch_path_denied",
    "patch_binary_too_large": "patch_too_large",
    "patch_target_duplicate": "patch_malformed",
    "patch_path_collision": "patch_path_denied",
    "patch_conflict": "patch_conflict",
    "patch_no_change": "patch_malformed",
    "edit_stale": "source_changed",
    "edit_not_found": "patch_conflict",
    "edit_ambiguous": "patch_conflict",
    "payload_too_large": "patch_too_large",
    "effect_outside_targets": "patch_conflict",
    "stage_bound_exceeded": "patch_too_large",
}
#: What an answer holds of each output of a recipe; all of it is an artifact. Escaped, a
#: byte becomes six at most, so that both fit one frame of the broker (8 MiB).
RECIPE_TEXT_BYTES: Final = 512 * 1024
#: Reasons that say no more than the code, so that nothing tells what a filter hid.
_COARSE: Final[frozenset[DecisionReason]] = frozenset(
    {"selector_not_registered", "reader_mismatch"}
)


def denied(
    request: ToolRequest,
    decision: Decision,
    reason: DecisionReason | None = None,
    *,
    pointer: str | None = None,
) -> ToolResponse:
    """The answer to a request that may not happen. ``reason`` overrides the decision's."""
    said = reason or decision.reason
    details: dict[str, Any] = {"decisionId": decision.decision_id}
    if said not in _COARSE:
        details["reason"] = said
    if pointer is not None:
        details["pointer"] = pointer
    code: WireCode = "unknown_tool" if decision.tool == "" else wire_code(said, tool=decision.tool)
    return _failed(request, decision, code, details)


def read_answer(request: ToolRequest, decision: Decision, outcome: ReadOutcome) -> ToolResponse:
    """The answer to a read that was allowed."""
    if outcome.result is None:
        assert outcome.code is not None
        return _failed(request, decision, outcome.code, {}, outcome_word="allowed")
    return _done(request, decision, "allowed", outcome.result, outcome.cut)


def patch_refused(request: ToolRequest, decision: Decision, refusal: PatchRefusal) -> ToolResponse:
    """The answer to a patch that was not applied: where it failed, and the lines there."""
    details: dict[str, Any] = {"reason": refusal.code, "decisionId": decision.decision_id}
    numbers = {"file": refusal.file, "hunk": refusal.hunk, "line": refusal.line}
    for name, number in {**numbers, "foundLine": refusal.found_line}.items():
        if number is not None:
            details[name] = number
    for name in ("expected", "found"):
        data = getattr(refusal, name)
        if data is not None:
            details[name] = data.decode("utf-8", "replace")
    word = "denied" if decision.outcome == "deny" else "allowed"
    return _failed(request, decision, _PATCH_WIRE[refusal.code], details, outcome_word=word)


def patch_applied(request: ToolRequest, decision: Decision, applied: Applied) -> ToolResponse:
    """The answer to a patch that was applied."""
    changed = []
    for change in applied.changes:
        entry = applied.tree.get(change.path)
        changed.append(
            ChangedFile(
                path=change.path,
                change=change.change,
                digest=None if entry is None else blob_digest(entry.blob.digest),
            )
        )
    result = ApplyPatchResult(changed=tuple(changed), source_digest=applied.tree.digest)
    return _done(request, decision, "allowed", result)


def recipe_answer(request: ToolRequest, decision: Decision, run: RecipeRun) -> ToolResponse:
    """The answer to a recipe that ran, whether it passed or not."""
    stdout, stderr = run.stdout[:RECIPE_TEXT_BYTES], run.stderr[:RECIPE_TEXT_BYTES]
    result = RunRecipeResult(
        status=run.status,
        exit_code=run.exit_code,
        duration_ms=run.duration_ms,
        stdout=stdout.decode("utf-8", "replace"),
        stderr=stderr.decode("utf-8", "replace"),
        source_digest=run.source_digest,
    )
    cut = tuple(
        Truncation(field=name, total_bytes=len(whole))
        for name, whole in (("stdout", run.stdout), ("stderr", run.stderr))
        if len(whole) > RECIPE_TEXT_BYTES
    )
    return _done(request, decision, "approved", result, cut)


def effect_failed(request: ToolRequest, decision: Decision) -> ToolResponse:
    """The answer to an effect that was allowed and could not be done; nothing changed."""
    details = {"decisionId": decision.decision_id}
    return _failed(request, decision, "internal_error", details, outcome_word="allowed")


def recipe_failed(request: ToolRequest, decision: Decision) -> ToolResponse:
    """The answer to a recipe that could not be run."""
    details = {"reason": "container_unavailable", "decisionId": decision.decision_id}
    return _failed(request, decision, "engine_unavailable", details, outcome_word="approved")


def inference_failed(request: InferenceRequest, code: WireCode) -> InferenceResponse:
    """The answer to a prompt that goes nowhere."""
    return InferenceResponse(
        request_id=request.request_id, index=0, final=True, ok=False, error=wire_error(code)
    )


def inference_denied(
    request: InferenceRequest, decision: Decision, reason: DecisionReason
) -> InferenceResponse:
    """The answer to a prompt that the policy did not let out."""
    return inference_failed(request, wire_code(reason, tool=decision.tool))


def _done(
    request: ToolRequest,
    decision: Decision,
    word: str,
    result: Any,
    cut: tuple[Truncation, ...] = (),
) -> ToolResponse:
    return ToolResponse(
        request_id=request.request_id,
        index=0,
        final=True,
        ok=True,
        decision=_wire_decision(decision, word),
        result=result,
        truncated=cut,
    )


def _failed(
    request: ToolRequest,
    decision: Decision,
    code: WireCode,
    details: dict[str, Any],
    *,
    outcome_word: str = "denied",
) -> ToolResponse:
    return ToolResponse(
        request_id=request.request_id,
        index=0,
        final=True,
        ok=False,
        decision=_wire_decision(decision, outcome_word),
        error=wire_error(code, details=details or None),
    )


def _wire_decision(decision: Decision, word: Any) -> WireDecision:
    return WireDecision(
        outcome=word,
        action_digest=decision.action_digest,
        policy_digest=decision.bundle_digest,
    )
