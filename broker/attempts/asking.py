"""Who answers when the policy asks for a person. Decides nothing itself.

An approver sees the broker's own action document and says yes or no to exactly that
action; silence, an error or an unknown answer is no.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, final

ActionDocument = Mapping[str, Any]


class Approver(Protocol):
    """Somebody who may answer approvals during an attempt."""

    @property
    def principal(self) -> str:
        """The id that the ledger names."""

    async def ask(self, action: ActionDocument) -> bool:
        """Whether exactly ``action`` may happen, once."""


@final
class NobodyToAsk:
    """Answers no at once: the attempt runs on standing grants alone."""

    principal: Final = "nobody"

    async def ask(self, action: ActionDocument) -> bool:
        """No."""
        return False
