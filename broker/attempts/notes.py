"""Ledger notes about messages that were not taken: few records, whatever an agent sends.

A refused request is noted by itself, before its answer leaves. Dropped events are noted
at once the first time and then added up, so that a flood cannot fill the ledger.
"""

from typing import Final, final

from broker.attempts.recorder import Recorder
from protocol import records
from protocol.codes import ViolationCode, WireCode
from protocol.digest import digest_bytes
from protocol.record_codes import DiagnosticCode

#: Dropped events are added up for this long.
TALLY_SECONDS: Final = 1.0

_COUNTED: Final = ("limit_exceeded", "too_many_in_flight")


@final
class Notes:
    """The notes of one attempt."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Final = recorder
        self._tally: Final[dict[ViolationCode, tuple[int, int]]] = {}
        self._flushed = 0.0

    def refused(self, code: WireCode, frame: bytes) -> None:
        """A request that is answered with ``code`` and was not looked at further."""
        if code == "cancelled":
            self._append("request_cancelled", frame)
        else:
            self._append("limit_exceeded" if code in _COUNTED else "invalid_message", frame)

    def dropped(self, code: ViolationCode, frame: bytes, now: float) -> None:
        """An event that nobody will see. ``now`` is in seconds."""
        if code not in self._tally:
            self._tally[code] = (0, 0)
            self._flushed = now
            self._append(code, frame)
            return
        count, size = self._tally[code]
        self._tally[code] = (count + 1, size + len(frame))
        if now - self._flushed >= TALLY_SECONDS:
            self._flushed = now
            self.flush()

    def abandoned(self, count: int) -> None:
        """Requests that were open when the attempt stopped or completed."""
        if count:
            self._recorder.append(records.Diagnostic(code="request_cancelled", count=count))

    def noise(self, line: bytes) -> None:
        """A line of text before the first frame, of an image that may print some."""
        self._append("stdout_noise", line)

    def flush(self) -> None:
        """Notes what was added up."""
        for code, (count, size) in self._tally.items():
            if count:
                self._recorder.append(records.Diagnostic(code=code, count=count, bytes=size))
                self._tally[code] = (0, 0)

    def _append(self, code: DiagnosticCode | ViolationCode, frame: bytes) -> None:
        self._recorder.append(
            records.Diagnostic(code=code, bytes=len(frame), digest=digest_bytes(frame))
        )
