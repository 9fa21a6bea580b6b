"""Decide one labelled input. Synchronous, pure and total: what is not a known yes is a no.

Arguments are judged in byte order of their names, so one digest has one reason. An
exception inside is itself a decision: deny, ``evaluation_error``. Nothing is performed
here and nobody is asked.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from broker.policy.canonical import canonical_value
from broker.policy.decision import (
    DECISION_SEAL,
    Decision,
    RequestRef,
    Scope,
    Subject,
    Verdict,
)
from broker.policy.descriptors import DescriptorTable, Effect, ToolDescriptor
from broker.policy.labels import (
    CONTROL_OWNED,
    Labelled,
    Safe,
    SafeBasis,
    Unsafe,
    is_authentic,
)
from broker.policy.policy_input import (
    Context,
    PolicyInput,
    canonical_input,
    plan_id,
)
from broker.policy.readers import Readers
from broker.policy.registry import DestinationRegistry
from protocol.decision_codes import DecisionReason
from protocol.ids import Digest, Id

#: Effects that a person, or a grant that a person gave before, must answer.
APPROVAL_EFFECTS: Final[frozenset[Effect]] = frozenset(
    {"irreversible_mutation", "external_send", "financial", "secret_read", "code_execution"}
)

#: No configuration turns this off: a standing grant answers it instead.
ALWAYS_APPROVED: Final[frozenset[str]] = frozenset({"code_execution"})

#: What may happen when the agent chose it: reads of the stage, changes of the disposable
#: copy, registered recipes without network. Everything else leaves the stage.
UNTRUSTED_EFFECTS: Final[frozenset[str]] = frozenset(
    {"scoped_data_read", "reversible_mutation", "code_execution"}
)

#: The one send that an agent may choose: a prompt to a registered model, which every
#: reader rule still applies to and which the owner's standing grant must answer.
UNTRUSTED_SENDS: Final[frozenset[str]] = frozenset({"inference.send.v1"})

_SAFE: Final[frozenset[SafeBasis | None]] = frozenset(get_args(SafeBasis))

#: Which bases a role takes; None is an Unsafe value. No Unsafe selector is ever confined.
_ADMITTED: Final[Mapping[str, frozenset[SafeBasis | None]]] = {
    "instruction": _SAFE,
    "authority": frozenset(CONTROL_OWNED),
    "destination": frozenset(CONTROL_OWNED),
    "selector": _SAFE,
    "payload": _SAFE | {None},
}

#: Why a value of another basis is refused, by role and by whether it is Unsafe.
_REFUSED: Final[Mapping[tuple[str, bool], DecisionReason]] = {
    ("instruction", True): "unsafe_instruction_argument",
    ("authority", True): "unsafe_authority_argument",
    ("authority", False): "authority_not_control_owned",
    ("destination", True): "unsafe_destination_argument",
    ("destination", False): "destination_not_control_owned",
    ("selector", True): "unsafe_selector_not_confined",
}

_NO_REQUEST: Final = RequestRef(0, Id(""), Digest(""))
_NO_TOOL: Final = ToolDescriptor(
    "", version=0, effect="", policy_id="", input_schema={}, argument_roles={}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the broker knows and no input can say: made once per attempt.

    ``untrusted_control`` is True wherever an agent asks.
    """

    attempt_id: Id
    bundle_digest: Digest
    tools: DescriptorTable
    destinations: tuple[DestinationRegistry, ...]
    untrusted_control: bool
    approval_effects: frozenset[Effect] = APPROVAL_EFFECTS
    scope: Scope = field(init=False, repr=False)

    def __post_init__(self) -> None:
        scope = Scope(self.attempt_id, self.bundle_digest, self.untrusted_control)
        object.__setattr__(self, "scope", scope)


def evaluate(policy_input: PolicyInput, *, facts: Facts) -> Decision:
    """The decision on ``policy_input``. Never raises."""
    try:
        action = hashlib.sha256(canonical_input(policy_input)).hexdigest()
        reason = _reason(policy_input, facts)
        outcome: Verdict = "deny"
        if reason == "allowed":
            outcome = "allow"
        elif reason == "effect_requires_approval":
            outcome = "require_approval"
        tool, request, subject = policy_input.tool, policy_input.request, policy_input.subject
        return _decision(outcome, reason, action, request, tool, subject, facts)
    except Exception:  # noqa: BLE001 - not swallowed: it is a deny, and it is recorded
        return _evaluation_error(policy_input, facts)


def deny(
    reason: DecisionReason,
    *,
    request: RequestRef,
    tool: ToolDescriptor | None,
    subject: Subject,
    facts: Facts,
) -> Decision:
    """The decision on a request that did not become an input: unknown, malformed, rejected.

    Its action digest covers the digest of the frame, so what was refused can be shown
    later. ``tool`` is None when no tool of the asked name exists.
    """
    text = canonical_value(
        {
            "frameDigest": request.frame_digest,
            "planId": plan_id(facts.attempt_id),
            "refused": reason,
            "tool": None if tool is None else tool.name,
        }
    )
    action = hashlib.sha256(text).hexdigest()
    return _decision("deny", reason, action, request, tool, subject, facts)


def _decision(
    outcome: Verdict,
    reason: DecisionReason,
    action: str,
    request: RequestRef,
    tool: ToolDescriptor | None,
    subject: Subject,
    facts: Facts,
) -> Decision:
    scope = facts.scope
    return Decision(
        DECISION_SEAL,
        outcome,
        reason,
        scope.decision_id(action, request.ordinal),
        Digest("sha256:" + action),
        scope,
        request,
        tool or _NO_TOOL,
        subject,
    )


def _evaluation_error(policy_input: PolicyInput, facts: Facts) -> Decision:
    """The deny for whatever went wrong, with as much of the record as can be trusted."""
    request, tool, subject = _NO_REQUEST, None, Subject()
    if type(policy_input) is PolicyInput:
        if type(policy_input.request) is RequestRef:
            request = policy_input.request
        if type(policy_input.tool) is ToolDescriptor:
            tool = policy_input.tool
        if type(policy_input.subject) is Subject:
            subject = policy_input.subject
    return deny("evaluation_error", request=request, tool=tool, subject=subject, facts=facts)


def _reason(policy_input: PolicyInput, facts: Facts) -> DecisionReason:
    context, tool, arguments = policy_input.context, policy_input.tool, policy_input.arguments
    if context.plan_id == "" or facts.tools.find(tool.name) is not tool:
        return "invalid_descriptor"
    if [argument.name for argument in arguments] != tool.names:
        return "argument_shape_mismatch"
    restricted: list[Readers] = []
    for argument, (_, role) in zip(arguments, tool.roles, strict=True):
        value = argument.value
        if not is_authentic(value):
            return "argument_not_authentic"
        if argument.role != role:
            return "argument_role_mismatch"
        basis = value.basis if type(value) is Safe else None
        if basis not in _ADMITTED[role]:
            return _REFUSED[role, basis is None]
        if role == "destination" and not _is_registered(argument.registry, value, facts):
            return "destination_not_registered"
        if value.readers.members is not None:
            restricted.append(value.readers)
    if (reason := _control(context, tool, facts)) is not None:
        return reason
    if (reason := _readers(policy_input, restricted)) is not None:
        return reason
    if tool.effect in ALWAYS_APPROVED or tool.effect in facts.approval_effects:
        return "effect_requires_approval"
    return "allowed"


def _is_registered(bound: tuple[str, str] | None, value: Labelled, facts: Facts) -> bool:
    """Whether a destination is in the registry that its argument names by id and digest."""
    for registry in facts.destinations:
        if bound == (registry.registry_id, registry.digest):
            return value.value in registry
    return False


def _control(context: Context, tool: ToolDescriptor, facts: Facts) -> DecisionReason | None:
    """What decided that this is asked. Where an agent did, only staged effects may follow."""
    if not context.is_authentic:
        return "argument_not_authentic"
    if not facts.untrusted_control:
        return "unsafe_control_dependency" if context.is_unsafe else None
    if tool.effect in UNTRUSTED_EFFECTS or tool.policy_id in UNTRUSTED_SENDS:
        return None
    return "untrusted_control_flow"


def _readers(policy_input: PolicyInput, restricted: list[Readers]) -> DecisionReason | None:
    """Rows 6 to 8: a reader is needed wherever not everybody may read, and for every send."""
    principals = policy_input.context.principals
    if principals is None:
        return "invalid_reader"
    for readers in restricted:
        for principal in principals:
            if not readers.admit(principal):
                return "reader_mismatch"
    if not principals and (restricted or _sends_unsafe(policy_input)):
        return "reader_required"
    return None


def _sends_unsafe(policy_input: PolicyInput) -> bool:
    return policy_input.tool.effect == "external_send" and any(
        argument.role == "payload" and type(argument.value) is Unsafe
        for argument in policy_input.arguments
    )
