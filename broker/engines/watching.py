"""The daemon's side of the watchdog: tells it which containers to guard.

The watchdog is started by the first container and ends with the daemon. It is told of a
container before that is started, so there is no moment at which one is unguarded.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final, final

from broker.engines import watchdog as program
from broker.engines.programs import MINIMAL_ENV, find_program
from protocol.errors import Fault


@final
class Watchdog:
    """A process that removes what is guarded when this process is gone."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        groups: Sequence[str],
        pause_pid_file: str | None,
    ) -> None:
        """``groups``: folders in which a container's control groups lie, if they are ours."""
        self._setting: Final = json.dumps(
            {
                "command": list(command),
                "env": dict(env),
                "groups": list(groups),
                "pausePidFile": pause_pid_file,
            }
        )
        self._guarded: Final[set[str]] = set()
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process that watches, if one was started."""
        return None if self._popen is None else self._popen.pid

    def guard(self, name: str) -> None:
        """Guard ``name`` from now on, or ``Fault("engine_failed")``."""
        self._guarded.add(name)
        if self._popen is not None and self._popen.poll() is None:
            self._tell(f"+{name}\n")
            return
        # The first one, or something ended it: start (again) and tell everything.
        try:
            self._popen = self._start()
        except OSError as error:
            raise Fault("engine_failed") from error
        self._tell("".join(f"+{one}\n" for one in sorted(self._guarded)))

    def release(self, name: str) -> None:
        """``name`` was removed."""
        self._guarded.discard(name)
        if self._popen is not None and self._popen.poll() is None:
            self._tell(f"-{name}\n")

    def _tell(self, lines: str) -> None:
        assert self._popen is not None
        assert self._popen.stdin is not None
        try:
            # A name is far shorter than what a pipe takes at once, and it is read at once.
            self._popen.stdin.write(lines.encode())
        except OSError as error:
            raise Fault("engine_failed") from error

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            (_interpreter(), "-I", "-S", "-B", os.path.abspath(program.__file__), self._setting),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            start_new_session=True,
            cwd="/",
            env=dict(MINIMAL_ENV),
        )


def _interpreter() -> str:
    """Our own, or the system's for a daemon that gave up the right to read its own."""
    own = sys.executable
    return own if os.access(own, os.X_OK) else find_program("python3") or own
