"""Answers a decision that needs an approval: a standing grant, else a person, else no.

Every step is a ledger record. A grant that comes out of here was given for exactly the
decision that went in; whether it may still be used is asked again when the effect starts.
"""

from collections.abc import Callable
from typing import Final, final

import msgspec
import trio

from broker.attempts.asking import Approver
from broker.attempts.recorder import Recorder
from broker.policy.action import ActionDocument
from broker.policy.approvals import ApprovalBook, Grant
from broker.policy.decision import Decision
from protocol.decision_codes import DecisionReason
from protocol.ids import parse_id
from protocol.records import (
    ApprovalConsumed,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
)

#: How long a person may take. The attempt's own deadline usually comes first.
APPROVAL_MS: Final = 60 * 60 * 1000


@final
class Approvals:
    """The approvals of one attempt. ``clock`` gives milliseconds since 1970."""

    def __init__(
        self,
        book: ApprovalBook,
        *,
        approver: Approver,
        recorder: Recorder,
        clock: Callable[[], int],
        on_waiting: Callable[[bool], None],
    ) -> None:
        self.book: Final = book
        self._approver: Final = approver
        self._recorder: Final = recorder
        self._clock: Final = clock
        self._on_waiting: Final = on_waiting

    async def obtain(
        self, decision: Decision, document: ActionDocument | None
    ) -> Grant | DecisionReason:
        """The grant for ``decision``, or why there is none. Waits for a person if it must.

        ``document`` None: no person is asked about such an action.
        """
        expires_at = self._clock() + APPROVAL_MS
        standing = self.book.answer(decision, expires_at=expires_at)
        if standing is not None:
            self._record_grant(standing)
            return standing
        if document is None:
            return self._denied(decision, "effect_requires_approval")
        opened = self.book.open(decision, expires_at=expires_at)
        if isinstance(opened, str):
            return self._denied(decision, opened)
        self._recorder.append(
            ApprovalRequested(
                request=decision.request.ordinal,
                action_digest=decision.action_digest,
                expires_at=expires_at,
            )
        )
        await self._recorder.sync()
        granted = await self._ask(decision, document)
        answer = self.book.decide(
            decision.action_digest,
            granted=granted,
            approver=self._approver.principal,
            now=self._clock(),
        )
        if isinstance(answer, Grant):
            self._record_grant(answer)
            return answer
        return self._denied(decision, answer)

    def used(self, decision: Decision, reason: DecisionReason) -> None:
        """Records what became of the grant for ``decision``: used up, or no grant for it."""
        digest = decision.action_digest
        self._recorder.append(
            ApprovalConsumed(action_digest=digest, request=decision.request.ordinal)
            if reason == "allowed"
            else ApprovalDenied(action_digest=digest, reason=reason)
        )

    def withdraw(self) -> None:
        """Takes back everything that waits, because the attempt ends."""
        for decision in self.book.withdraw():
            self._recorder.append(ApprovalExpired(action_digest=decision.action_digest))

    async def _ask(self, decision: Decision, document: ActionDocument) -> bool:
        shown = msgspec.to_builtins(document) | {"actionDigest": decision.action_digest}
        self._on_waiting(True)
        try:
            with trio.move_on_after(APPROVAL_MS / 1000):
                return await self._approver.ask(shown) is True
        except Exception:  # noqa: BLE001 - an approver that fails has not said yes
            return False
        finally:
            self._on_waiting(False)
        return False

    def _record_grant(self, grant: Grant) -> None:
        self._recorder.append(
            ApprovalGranted(
                action_digest=grant.action_digest,
                principal=parse_id(grant.approver),
                standing=grant.standing is not None,
                expires_at=grant.expires_at,
            )
        )

    def _denied(self, decision: Decision, reason: DecisionReason) -> DecisionReason:
        self._recorder.append(
            ApprovalDenied(
                action_digest=decision.action_digest,
                principal=parse_id(self._approver.principal),
                reason=reason,
            )
        )
        return reason
