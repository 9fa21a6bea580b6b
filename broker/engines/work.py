"""Handing a work folder to the uid of a sandbox, and removing what came back.

What lies in a work folder after a run is hostile: nothing here follows a link in it.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

from broker.engines.programs import MINIMAL_ENV, run_program
from protocol.errors import Fault

#: A folder of a million small files on a slow disk.
_TIMEOUT_SECONDS: Final = 300.0


async def give_away(folder: Path, *, uid: int) -> None:
    """Make ``uid`` the owner of ``folder`` and all in it."""
    await _run("chown", "--recursive", "--no-dereference", f"{uid}:{uid}", "--", str(folder))


async def remove_tree(folder: Path) -> None:
    """Remove ``folder`` whatever is in it: any depth, any mode, any name."""
    # A folder without its owner's bits cannot be emptied by an owner who is not root.
    await _run("chmod", "--recursive", "u+rwX", "--", str(folder), may_fail=True)
    await _run("rm", "--recursive", "--force", "--one-file-system", "--", str(folder))


async def measure_tree(folder: Path) -> int:
    """The bytes of disk that ``folder`` takes; what cannot be looked into is not counted."""
    done = await run_program(
        ("du", "--summarize", "--block-size=1", "--one-file-system", "--", str(folder)),
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    size = done.stdout.split(b"\t")[0]
    return int(size) if size.isdigit() else 0


def remove_tree_now(folder: Path) -> bool:
    """The same, blocking, for what a dead process left; whether nothing is left of it.

    Not through Python's own walk: a program inside can nest folders deeper than that goes.
    """
    for argv in (
        ("chmod", "--recursive", "u+rwX", "--", str(folder)),
        ("rm", "--recursive", "--force", "--one-file-system", "--", str(folder)),
    ):
        try:
            subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=MINIMAL_ENV,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return not os.path.lexists(folder)


async def _run(*argv: str, may_fail: bool = False) -> None:
    done = await run_program(argv, timeout_seconds=_TIMEOUT_SECONDS)
    if done.returncode != 0 and not may_fail:
        raise Fault("engine_failed")
