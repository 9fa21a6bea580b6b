"""How often an attempt may ask, counted per attempt; what was rejected counts too.

The counts only grow. Nothing is decided on content here.
"""

from typing import Final, final

from protocol.decision_codes import DecisionReason

#: Requests of one attempt (protocol.md 3.7, ``maxRequests``).
MAX_CALLS: Final = 10_000

#: Rejected conversions of one attempt. A working agent guesses paths now and then; one
#: that asks a thousand times for what is not there is probing.
MAX_REJECTIONS: Final = 1_000


@final
class AttemptBudget:
    """The counts of one attempt."""

    __slots__ = ("_maximum_calls", "_maximum_rejections", "calls", "rejections")

    def __init__(
        self, *, maximum_calls: int = MAX_CALLS, maximum_rejections: int = MAX_REJECTIONS
    ) -> None:
        self._maximum_calls: Final = maximum_calls
        self._maximum_rejections: Final = maximum_rejections
        self.calls = 0
        self.rejections = 0

    def call(self) -> DecisionReason | None:
        """Count one request; the reason to deny it when there were too many."""
        self.calls += 1
        if self.calls > self._maximum_calls:
            return "call_limit_exceeded"
        if self.rejections >= self._maximum_rejections:
            return "conversion_limit_exceeded"
        return None

    def rejected(self) -> None:
        """Count one rejected conversion."""
        self.rejections += 1
