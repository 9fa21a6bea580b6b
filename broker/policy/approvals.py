"""Who may let an effect start, and that it starts at most once.

A decision to allow is used once. A decision that requires an approval needs a grant: a
person's for exactly this action, or one that a standing grant of the owner answers. A
grant is bound to attempt, ordinal, action digest, source digest and expiry, is consumed
before the effect, and is not given back when the effect fails. Time is a number that
the caller passes in; signatures are checked before anything gets here.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

import msgspec

from broker.policy.canonical import canonical_value
from broker.policy.decision import Decision, is_authentic_decision
from protocol.decision_codes import DecisionReason
from protocol.ids import Digest, Id

_GRANT_SEAL: Final = object()


class StandingGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's yes, given when the attempt starts, to one definition at one destination.

    For a recipe: its definition's digest and its image. For a model: its definition's
    digest and its route. It holds under one policy bundle only.
    """

    definition_digest: Digest
    destination: str
    bundle_digest: Digest
    owner: str

    @property
    def grant_id(self) -> Digest:
        """What the ledger keeps of it."""
        text = canonical_value(
            {
                "bundleDigest": self.bundle_digest,
                "definitionDigest": self.definition_digest,
                "destination": self.destination,
                "owner": self.owner,
            }
        )
        return Digest("sha256:" + hashlib.sha256(text).hexdigest())


class Grant(msgspec.Struct, frozen=True, eq=False, weakref=False):
    """The yes to exactly one effect. Only an ``ApprovalBook`` makes one.

    ``expires_at`` is on the caller's clock. ``standing`` is the standing grant's id when
    one answered, and ``approver`` is then its owner.
    """

    brand: object
    attempt_id: Id
    ordinal: int
    action_digest: Digest
    source_digest: Digest | None
    expires_at: int
    approver: str
    standing: Digest | None

    def __post_init__(self) -> None:
        if self.brand is not _GRANT_SEAL:
            raise TypeError("grants have no public constructor")
        msgspec.structs.force_setattr(self, "brand", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An action that waits for a person."""

    decision: Decision
    expires_at: int


@final
class ApprovalBook:
    """The approvals of one attempt.

    ``approvers`` are the principals that may decide. Every method that can say no
    returns the reason; none raises for what a peer did.
    """

    def __init__(
        self,
        attempt_id: Id,
        *,
        bundle_digest: Digest,
        approvers: Iterable[str],
        standing: Iterable[StandingGrant] = (),
    ) -> None:
        self._attempt_id: Final = attempt_id
        self._bundle_digest: Final = bundle_digest
        self._approvers: Final = frozenset(approvers)
        self._standing: Final = {
            (grant.definition_digest, grant.destination): grant
            for grant in standing
            if grant.bundle_digest == bundle_digest
        }
        self._pending: Final[dict[Digest, Pending]] = {}
        self._issued: Final[dict[int, Grant]] = {}
        self._revoked: Final[set[int]] = set()
        self._started: Final[set[int]] = set()

    def standing(self, decision: Decision) -> StandingGrant | None:
        """The standing grant that answers ``decision``, or None."""
        if not is_authentic_decision(decision) or decision.bundle_digest != self._bundle_digest:
            return None
        subject = decision.subject
        if subject.definition_digest is None or subject.destination is None:
            return None
        return self._standing.get((subject.definition_digest, subject.destination))

    def answer(self, decision: Decision, *, expires_at: int) -> Grant | None:
        """The grant for ``decision`` that a standing grant gives, or None."""
        found = self.standing(decision)
        if found is None or decision.outcome != "require_approval":
            return None
        return self._issue(decision, expires_at, approver=found.owner, standing=found.grant_id)

    def open(self, decision: Decision, *, expires_at: int) -> Pending | DecisionReason:
        """Ask a person about ``decision`` until ``expires_at``."""
        if not is_authentic_decision(decision) or decision.attempt_id != self._attempt_id:
            return "decision_not_authentic"
        if decision.outcome != "require_approval":
            return decision.reason
        if decision.request.ordinal in self._started:
            return "approval_consumed"
        pending = Pending(decision=decision, expires_at=expires_at)
        self._pending[decision.action_digest] = pending
        return pending

    def decide(
        self,
        action_digest: Digest,
        *,
        granted: bool,
        approver: str,
        now: int,
        expires_at: int | None = None,
    ) -> Grant | DecisionReason:
        """A person's answer about the action of this digest.

        ``expires_at`` can only shorten the grant. Who may not decide changes nothing; a
        denial is final.
        """
        pending = self._pending.get(action_digest)
        if pending is None:
            return "approval_mismatch"
        if approver not in self._approvers:
            return "approver_not_authorized"
        del self._pending[action_digest]
        if now >= pending.expires_at:
            return "approval_expired"
        if not granted:
            return "approval_denied"
        last = pending.expires_at if expires_at is None else min(expires_at, pending.expires_at)
        return self._issue(pending.decision, last, approver=approver, standing=None)

    def expire(self, *, now: int) -> tuple[Decision, ...]:
        """Take out what nobody answered in time; each is ``approval_expired`` now."""
        late = [pending for pending in self._pending.values() if now >= pending.expires_at]
        for pending in late:
            del self._pending[pending.decision.action_digest]
        return tuple(pending.decision for pending in late)

    def withdraw(self) -> tuple[Decision, ...]:
        """Take out everything that waits, because the attempt ends; grants are revoked."""
        waiting = tuple(pending.decision for pending in self._pending.values())
        self._pending.clear()
        self._revoked.update(self._issued)
        return waiting

    def revoke(self, ordinal: int) -> None:
        """Take back the grant of one request; too late once its effect started."""
        self._revoked.add(ordinal)

    def start(
        self,
        decision: Decision,
        *,
        grant: Grant | None,
        action_digest: Digest,
        source_digest: Digest | None,
        now: int,
    ) -> DecisionReason:
        """``allowed`` when the effect may start now, once; else why it may not.

        ``action_digest`` and ``source_digest`` are of what is about to be done: computed
        again, not copied from the decision.
        """
        if not is_authentic_decision(decision) or decision.attempt_id != self._attempt_id:
            return "decision_not_authentic"
        if decision.outcome == "deny":
            return decision.reason
        ordinal = decision.request.ordinal
        if ordinal in self._started:
            return "approval_consumed"
        if decision.outcome == "require_approval":
            refused = self._refused(decision, grant, now)
            if refused is not None:
                return refused
        if action_digest != decision.action_digest:
            return "action_digest_mismatch"
        if source_digest != decision.subject.source_digest:
            return "source_changed"
        self._started.add(ordinal)
        self._issued.pop(ordinal, None)
        return "allowed"

    def _refused(self, decision: Decision, grant: Grant | None, now: int) -> DecisionReason | None:
        if grant is None:
            return "effect_requires_approval"
        ordinal = decision.request.ordinal
        if (
            self._issued.get(ordinal) is not grant
            or grant.action_digest != decision.action_digest
            or decision.bundle_digest != self._bundle_digest
        ):
            return "approval_mismatch"
        if ordinal in self._revoked:
            return "approval_revoked"
        return "approval_expired" if now >= grant.expires_at else None

    def _issue(
        self, decision: Decision, expires_at: int, *, approver: str, standing: Digest | None
    ) -> Grant:
        grant = Grant(
            _GRANT_SEAL,
            self._attempt_id,
            decision.request.ordinal,
            decision.action_digest,
            decision.subject.source_digest,
            expires_at,
            approver,
            standing,
        )
        self._issued[decision.request.ordinal] = grant
        return grant
