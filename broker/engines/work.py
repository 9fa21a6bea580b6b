"""Handing a work folder to the uid of a sandbox, and removing what came back.

What lies in a work folder after a run is hostile: nothing here follows a link in it.
"""

from pathlib import Path
from typing import Final

from broker.engines.programs import run_program
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


async def _run(*argv: str, may_fail: bool = False) -> None:
    done = await run_program(argv, timeout_seconds=_TIMEOUT_SECONDS)
    if done.returncode != 0 and not may_fail:
        raise Fault("engine_failed")
