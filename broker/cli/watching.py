"""Shows an attempt's progress on stderr: a live line on a terminal, a line per phase elsewhere."""

import sys
from collections.abc import Callable
from typing import Final, final

from rich.console import Console
from rich.status import Status

from broker.attempts.progress import AttemptPhase, Counters
from broker.cli.output import figure

_WORDS: Final[dict[AttemptPhase, str]] = {
    "staging": "staging the checkout",
    "starting": "starting the agent",
    "running": "the agent works",
    "awaiting_approval": "waiting for an approval",
    "cancelling": "cancelling",
    "collecting": "collecting the result",
    "done": "done",
}


@final
class TerminalWatcher:
    """A ``Watcher`` that prints. ``close`` ends the live line.

    Whoever reads it may leave at any time: then nothing more is shown, and the attempt
    goes on as if nobody had watched.
    """

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        self._live: Final = sys.stderr is not None and sys.stderr.isatty()
        self._lost: bool = sys.stderr is None
        self._status: Status | None = None
        self._phase: AttemptPhase = "staging"

    def phase(self, phase: AttemptPhase, counters: Counters) -> None:
        """Says that ``phase`` began."""
        self._phase = phase
        if not self._live:
            text = f"airlock: {_WORDS[phase]}{_numbers(phase, counters)}"
            self._try(lambda: self._console.print(text))
        elif phase in ("done", "awaiting_approval"):
            self.close()
        else:
            self._try(lambda: self._show(counters))

    def progress(self, counters: Counters) -> None:
        """Refreshes the live line; prints nothing elsewhere."""
        if self._live and self._status is not None:
            self._try(lambda: self._show(counters))

    def close(self) -> None:
        """Ends the live line."""
        status, self._status = self._status, None
        if status is not None:
            self._try(status.stop)

    def _try(self, show: Callable[[], None]) -> None:
        """Shows something, unless it cannot be shown any more."""
        if self._lost:
            return
        try:
            show()
        except (OSError, ValueError, SystemExit):  # rich exits where a pipe is broken
            self._lost = True

    def _show(self, counters: Counters) -> None:
        text = f"{_WORDS[self._phase]}{_numbers(self._phase, counters)}"
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)


def _numbers(phase: AttemptPhase, counters: Counters) -> str:
    if phase in ("staging", "done") and counters.files == 0:
        return ""
    parts = [f"{figure(counters.files)} files", f"{figure(counters.bytes)} bytes"]
    if counters.requests:
        parts += [
            f"{figure(counters.requests)} requests",
            f"{figure(counters.allow)} allowed, {figure(counters.deny)} denied",
        ]
    if counters.recipes:
        parts.append(f"{figure(counters.recipes)} recipe runs")
    if counters.output_tokens:
        parts.append(f"{figure(counters.input_tokens + counters.output_tokens)} tokens")
    return f" ({', '.join(parts)})"
