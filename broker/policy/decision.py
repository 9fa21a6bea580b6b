"""What the gate said about one request: a value that cannot be forged or changed.

A decision names everything that it depends on by digest and holds no text of the agent.
Only the evaluator makes one; an effect is performed for an authentic one only.
"""

from hashlib import sha256
from typing import Final, Literal, TypeGuard

import msgspec

from broker.policy.canonical import canonical_text, canonical_value
from broker.policy.descriptors import ToolDescriptor
from protocol.decision_codes import DecisionReason
from protocol.ids import Digest, Id

Verdict = Literal["allow", "deny", "require_approval"]

#: Part of every decision id: another evaluator, another decision.
EVALUATOR_VERSION: Final = "airlock.strict.1"


class DecisionSeal:
    """A capability: whoever holds the one ``DECISION_SEAL`` can make decisions."""

    __slots__ = ()


DECISION_SEAL: Final = DecisionSeal()
_BRAND: Final = DecisionSeal()


class RequestRef(msgspec.Struct, frozen=True):
    """Which request: its position in the attempt (from 1), its id, the digest of its frame."""

    ordinal: int
    request_id: Id
    frame_digest: Digest


class Subject(msgspec.Struct, frozen=True):
    """What an effect is done to, in names that are the same on every host and on a retry.

    ``target_ids`` are registered ids (files, directories, a recipe or a model).
    ``source_digest`` is the tree's, None where no tree is touched.
    """

    source_digest: Digest | None = None
    target_ids: tuple[str, ...] = ()
    definition_digest: Digest | None = None
    destination: str | None = None
    payload_digest: Digest | None = None


class Scope(msgspec.Struct, frozen=True, eq=False):
    """What all decisions of an attempt have in common."""

    attempt_id: Id
    bundle_digest: Digest
    untrusted_control: bool
    tail: bytes = b""

    def __post_init__(self) -> None:
        parts = (
            b'","attemptId":',
            canonical_text(self.attempt_id),
            b',"bundleDigest":',
            canonical_text(self.bundle_digest),
            b',"evaluatorVersion":',
            canonical_text(EVALUATOR_VERSION),
            b',"ordinal":',
        )
        msgspec.structs.force_setattr(self, "tail", b"".join(parts))

    def decision_id(self, action_hex: str, ordinal: int) -> str:
        """``decision_`` and 64 hex digits; ``action_hex`` is an action digest without prefix."""
        text = b'{"actionDigest":"sha256:%b%b%d}' % (action_hex.encode(), self.tail, ordinal)
        return "decision_" + sha256(text).hexdigest()


class Decision(msgspec.Struct, frozen=True, eq=False, weakref=False):
    """The gate's answer. ``reason`` is ``allowed`` for an allow, else why not.

    ``decision_id`` covers attempt, ordinal, bundle, evaluator and action digest (all 256
    bits); ``action_digest`` is camel's over the whole input, with labels.
    """

    brand: DecisionSeal
    outcome: Verdict
    reason: DecisionReason
    decision_id: str
    action_digest: Digest
    scope: Scope
    request: RequestRef
    descriptor: ToolDescriptor
    subject: Subject

    def __post_init__(self) -> None:
        if self.brand is not DECISION_SEAL:
            raise TypeError("decisions have no public constructor")
        msgspec.structs.force_setattr(self, "brand", _BRAND)

    @property
    def attempt_id(self) -> Id:
        """The attempt that asked."""
        return self.scope.attempt_id

    @property
    def bundle_digest(self) -> Digest:
        """The policy bundle that was in force."""
        return self.scope.bundle_digest

    @property
    def untrusted_control(self) -> bool:
        """Whether an agent chose that this is asked."""
        return self.scope.untrusted_control

    @property
    def tool(self) -> str:
        """The descriptor's name; empty when no tool of the asked name exists."""
        return self.descriptor.name

    @property
    def effect(self) -> str:
        """The effect class; empty when no tool of the asked name exists."""
        return self.descriptor.effect

    @property
    def descriptor_digest(self) -> Digest:
        """The digest of the whole descriptor."""
        return self.descriptor.digest

    @property
    def target_ids(self) -> tuple[str, ...]:
        """The registered ids that the effect is done to."""
        return self.subject.target_ids

    @property
    def source_digest(self) -> Digest | None:
        """The digest of the tree that was decided on; None where no tree is touched."""
        return self.subject.source_digest

    @property
    def effect_key(self) -> Digest:
        """What was or will be done, without the request: equal on a retry and on any host."""
        subject = self.subject
        text = canonical_value(
            {
                "tool": self.tool,
                "version": self.descriptor.version,
                "policyId": self.descriptor.policy_id,
                "targetIds": subject.target_ids,
                "definitionDigest": subject.definition_digest,
                "destination": subject.destination,
                "sourceDigest": subject.source_digest,
                "payloadDigest": subject.payload_digest,
            }
        )
        return Digest("sha256:" + sha256(text).hexdigest())


def is_authentic_decision(value: object) -> TypeGuard[Decision]:
    """Whether the evaluator made ``value``."""
    return type(value) is Decision and value.brand is _BRAND
