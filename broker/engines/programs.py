"""Where the programs of the host are that the engines start, and in which environment.

Looks in the system's own folders only: a program of ours is never found through the
caller's ``PATH``, which a checkout may have been put on.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from protocol.errors import Fault

SYSTEM_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
#: All that a program of ours ever gets, unless an engine says more.
MINIMAL_ENV: Final[Mapping[str, str]] = {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
#: What is kept of a program's output. Lists and inspections are far smaller.
_OUTPUT_BYTES: Final = 4 * 1024 * 1024


def find_program(name: str) -> str | None:
    """The absolute path of a system program, or None."""
    for folder in SYSTEM_PATH.split(":"):
        path = f"{folder}/{name}"
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


async def run_program(
    argv: Sequence[str], *, env: Mapping[str, str] = MINIMAL_ENV, timeout_seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a short program of the host to its end. Raises ``Fault("engine_failed")``.

    Blocking work in a worker thread: nothing here relies on the parent-death signal.
    """
    return await trio.to_thread.run_sync(_run, tuple(argv), dict(env), timeout_seconds)


def _run(
    argv: tuple[str, ...], env: dict[str, str], timeout_seconds: float
) -> subprocess.CompletedProcess[bytes]:
    try:
        done = subprocess.run(
            argv,
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault("engine_failed") from error
    if len(done.stdout) > _OUTPUT_BYTES:
        raise Fault("engine_failed")
    return done
