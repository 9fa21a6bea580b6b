"""Decide one labelled input. Synchronous, pure and total: what is not a known yes is a no.

Arguments are judged in byte order of their names, so one digest has one reason. An
exception inside is itself a decision: deny, ``evaluation_error``. Nothing is performed
here and nobody is asked.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from broker.policy.canonical import canonical_value
from broker.policy.decision import (
    DECISION_SEAL,
    Decision,
    RequestRef,
    Subject,
    Verdict,
    decision_id,
    decision_tail,
)
from broker.policy.descriptors import DescriptorTable, Effect, ToolDescriptor
from broker.policy.labels import CONTROL_OWNED, Safe, Unsafe, is_authentic
from broker.policy.policy_input import Argument, PolicyInput, canonical_input, plan_id
from broker.policy.registry import DestinationRegistry
from protocol.codes import DecisionReason
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
    tail: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tail", decision_tail(self.attempt_id, self.bundle_digest))


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
    tool = tool or _NO_TOOL
    return Decision(
        DECISION_SEAL,
        outcome,
        reason,
        decision_id(action, facts.tail, request.ordinal),
        Digest("sha256:" + action),
        facts.attempt_id,
        facts.bundle_digest,
        request,
        tool.name,
        tool.version,
        tool.policy_id,
        tool.effect,
        tool.digest,
        subject,
        facts.untrusted_control,
    )


def _evaluation_error(policy_input: PolicyInput, facts: Facts) -> Decision:
    """The deny for whatever went wrong, with as much of the record as can be trusted."""
    request: object = getattr(policy_input, "request", None)
    subject: object = getattr(policy_input, "subject", None)
    tool: object = getattr(policy_input, "tool", None)
    return deny(
        "evaluation_error",
        request=request if type(request) is RequestRef else _NO_REQUEST,
        tool=tool if type(tool) is ToolDescriptor else None,
        subject=subject if type(subject) is Subject else Subject(),
        facts=facts,
    )


def _reason(policy_input: PolicyInput, facts: Facts) -> DecisionReason:
    tool, arguments = policy_input.tool, policy_input.arguments
    if policy_input.plan_id == "" or facts.tools.find(tool.name) is not tool:
        return "invalid_descriptor"
    roles = tool.roles
    if len(arguments) != len(roles):
        return "argument_shape_mismatch"
    for argument, (name, _) in zip(arguments, roles, strict=True):
        if argument.name != name:
            return "argument_shape_mismatch"
    restricted = False
    for argument, (_, role) in zip(arguments, roles, strict=True):
        value = argument.value
        if not is_authentic(value):
            return "argument_not_authentic"
        if argument.role != role:
            return "argument_role_mismatch"
        if (reason := _argument(argument, value, facts)) is not None:
            return reason
        restricted = restricted or value.readers.members is not None
    if (reason := _control(policy_input, facts)) is not None:
        return reason
    if (reason := _readers(policy_input, restricted=restricted)) is not None:
        return reason
    effect = tool.effect
    if effect in ALWAYS_APPROVED or effect in facts.approval_effects:
        return "effect_requires_approval"
    return "allowed"


def _argument(argument: Argument, value: Safe | Unsafe, facts: Facts) -> DecisionReason | None:
    """Rows 3b to 3h of camel's table; there is no confined Unsafe selector."""
    basis = value.basis if type(value) is Safe else None
    match argument.role:
        case "selector":
            return "unsafe_selector_not_confined" if basis is None else None
        case "authority":
            if basis is None:
                return "unsafe_authority_argument"
            return None if basis in CONTROL_OWNED else "authority_not_control_owned"
        case "payload":
            return None
        case "instruction":
            return "unsafe_instruction_argument" if basis is None else None
        case "destination":
            if basis is None:
                return "unsafe_destination_argument"
            if basis not in CONTROL_OWNED:
                return "destination_not_control_owned"
            return _destination(argument, value, facts)
        case _:
            return "invalid_descriptor"


def _destination(argument: Argument, value: Safe | Unsafe, facts: Facts) -> DecisionReason | None:
    for registry in facts.destinations:
        if argument.registry == (registry.registry_id, registry.digest):
            return None if value.value in registry else "destination_not_registered"
    return "destination_not_registered"


def _control(policy_input: PolicyInput, facts: Facts) -> DecisionReason | None:
    """What decided that this is asked. Where an agent did, only staged effects may follow."""
    for value in policy_input.control:
        if not is_authentic(value):
            return "argument_not_authentic"
        if type(value) is Unsafe and not facts.untrusted_control:
            return "unsafe_control_dependency"
    if facts.untrusted_control:
        tool = policy_input.tool
        if tool.effect not in UNTRUSTED_EFFECTS and tool.policy_id not in UNTRUSTED_SENDS:
            return "untrusted_control_flow"
    return None


def _readers(policy_input: PolicyInput, *, restricted: bool) -> DecisionReason | None:
    """Rows 6 to 8: a reader is needed wherever not everybody may read, and for every send."""
    principals: list[str] = []
    for reader in policy_input.readers or ():
        if (
            not is_authentic(reader)
            or type(reader) is not Safe
            or reader.basis not in CONTROL_OWNED
            or type(reader.value) is not str
            or reader.value == ""
        ):
            return "invalid_reader"
        principals.append(reader.value)
    if not principals:
        needed = restricted or _sends_unsafe(policy_input)
        return "reader_required" if needed else None
    if not restricted:
        return None
    for argument in policy_input.arguments:
        value = argument.value
        if is_authentic(value):
            readers = value.readers
            for principal in principals:
                if not readers.admit(principal):
                    return "reader_mismatch"
    return None


def _sends_unsafe(policy_input: PolicyInput) -> bool:
    return policy_input.tool.effect == "external_send" and any(
        argument.role == "payload" and type(argument.value) is Unsafe
        for argument in policy_input.arguments
    )
