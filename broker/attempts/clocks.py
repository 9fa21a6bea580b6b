"""The start and idle time-outs of one agent. The time of an open request is not idle."""

from collections.abc import Callable
from typing import Final, Literal, final

import trio

from protocol.limits import Limits

TimeOut = Literal["start_timeout", "idle_timeout"]


@final
class Clocks:
    """Watches how long an agent says nothing. ``on_time_out`` is called once at most."""

    def __init__(
        self,
        limits: Limits,
        *,
        has_open_requests: Callable[[], bool],
        on_time_out: Callable[[TimeOut], None],
    ) -> None:
        self._limits: Final = limits
        self._has_open_requests: Final = has_open_requests
        self._on_time_out: Final = on_time_out
        self._heard = False
        self._quiet_since = 0.0

    def heard(self) -> None:
        """The agent sent a message."""
        self._heard = True
        self._quiet_since = trio.current_time()

    def answered(self) -> None:
        """A request of the agent got its answer; from now on it is the agent's turn."""
        self._quiet_since = trio.current_time()

    async def watch(self) -> None:
        """Runs until a time-out, or until it is cancelled."""
        self._quiet_since = trio.current_time()
        start = self._quiet_since + self._limits.start_timeout_ms / 1000
        idle = self._limits.idle_timeout_ms / 1000
        while True:
            now = trio.current_time()
            if not self._heard:
                if now >= start:
                    self._on_time_out("start_timeout")
                    return
                due = min(start, now + idle)
            elif self._has_open_requests():
                due = now + idle
            elif now - self._quiet_since >= idle:
                self._on_time_out("idle_timeout")
                return
            else:
                due = self._quiet_since + idle
            await trio.sleep_until(due)
