"""The event stream of an attempt as JSON lines: what the agent said, what the broker did.

Every line says whose words it holds; the agent's are untrusted. Bounded in rate, number
and bytes; what is over a bound is counted and dropped.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final, get_args

import msgspec

from protocol.errors import Fault
from protocol.limits import Limits
from protocol.messages import Event
from protocol.record_fields import EventKind

#: All lines of one attempt.
MAX_LOG_BYTES: Final = 64 * 1024 * 1024

_KINDS: Final = frozenset(get_args(EventKind)) - {"extension"}


def _private(path: Path) -> int:
    """A new file that only its owner may read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


@final
class EventLog:
    """Appends to ``events.jsonl``. ``clock`` gives milliseconds since 1970."""

    def __init__(self, path: Path, *, limits: Limits, clock: Callable[[], int]) -> None:
        try:
            self._file: Final = os.fdopen(_private(path), "wb")
        except OSError as error:
            raise Fault("out_unwritable") from error
        self._limits: Final = limits
        self._clock: Final = clock
        self._tokens = float(limits.event_rate.burst)
        self._refilled = 0.0
        self._seq = 0
        self._bytes = 0
        self._admitted = 0
        self._dirty = False
        self.rejected = 0

    def admits(self, now: float) -> bool:
        """Whether one more event of the agent fits its rate and number. Counts it if so."""
        rate = self._limits.event_rate
        gained = (now - self._refilled) * rate.per_second
        self._tokens = min(float(rate.burst), self._tokens + gained)
        self._refilled = now
        if self._tokens < 1 or self._admitted >= self._limits.max_events:
            return False
        self._tokens -= 1
        self._admitted += 1
        return True

    def agent_event(self, event: Event) -> None:
        """Keeps one event of the agent, marked as untrusted."""
        self._append("agent", "untrusted", event.kind, event.data)

    def broker_event(self, kind: str, data: dict[str, Any]) -> None:
        """Keeps one event of the broker: closed values only."""
        self._append("broker", "safe", kind, data)

    def closed_kind(self, kind: str) -> EventKind:
        """The kind as a record may name it."""
        return kind if kind in _KINDS else "extension"  # type: ignore[return-value]

    def flush(self) -> None:
        """Hands what was kept to the system, so that it outlives this process."""
        if self._dirty:
            self._dirty = False
            try:
                self._file.flush()
            except OSError as error:
                raise Fault("out_unwritable") from error

    def close(self) -> None:
        """Closes the file."""
        try:
            self._file.close()
        except OSError as error:
            raise Fault("out_unwritable") from error

    def _append(self, origin: str, trust: str, kind: str, data: Any) -> None:
        self._seq += 1
        line = msgspec.json.encode(
            {
                "seq": self._seq,
                "at": self._clock(),
                "origin": origin,
                "trust": trust,
                "kind": kind,
                "data": data,
            }
        )
        if self._bytes + len(line) + 1 > MAX_LOG_BYTES:
            self.rejected += 1
            return
        self._bytes += len(line) + 1
        self._dirty = True
        try:
            self._file.write(line + b"\n")
        except OSError as error:
            raise Fault("out_unwritable") from error
