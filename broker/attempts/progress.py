"""What an attempt tells whoever watches it. Watching changes nothing."""

from dataclasses import dataclass, field
from typing import Protocol, final

from protocol.codes import ViolationCode
from protocol.record_fields import AttemptState

AttemptPhase = AttemptState


@dataclass(slots=True)
class Counters:
    """What happened so far; numbers only."""

    files: int = 0
    bytes: int = 0
    requests: int = 0
    allow: int = 0
    deny: int = 0
    require_approval: int = 0
    recipes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    violations: list[ViolationCode] = field(default_factory=list)


class Watcher(Protocol):
    """Told of each phase and after each request; must not block and must not fail."""

    def phase(self, phase: AttemptPhase, counters: Counters) -> None:
        """The attempt entered ``phase``."""

    def progress(self, counters: Counters) -> None:
        """Something was counted."""


@final
class Unwatched:
    """Watches nothing."""

    def phase(self, phase: AttemptPhase, counters: Counters) -> None:
        """Nothing."""

    def progress(self, counters: Counters) -> None:
        """Nothing."""
