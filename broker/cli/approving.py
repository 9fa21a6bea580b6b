"""Asks the person at the terminal about one exact action. The agent's words are not shown.

What is printed is the broker's own action document, on the controlling terminal whatever
the standard streams are. Only ``yes``, typed after the question stood there, is a yes;
what was typed before it is thrown away, and without a terminal the answer is no.
"""

import os
import select
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

import trio
from rich.console import Console

from broker.attempts.asking import ActionDocument
from broker.cli.output import markup
from broker.cli.watching import TerminalWatcher

#: Longest line that is an answer at all, in bytes.
_ANSWER_BYTES: Final = 64
#: How often the reader looks whether the question was taken back.
_POLL_SECONDS: Final = 0.2
#: Targets that are listed before the rest is counted.
_SHOWN_TARGETS: Final = 20


@final
class TerminalApprover:
    """An ``Approver``: the person at this terminal."""

    principal: Final = "owner"

    def __init__(self, watcher: TerminalWatcher) -> None:
        self._watcher: Final = watcher
        self._asking: Final = trio.Lock()

    async def ask(self, action: ActionDocument) -> bool:
        """Whether the person typed ``yes`` to ``action``."""
        async with self._asking:
            self._watcher.close()
            withdrawn = threading.Event()
            try:
                return await trio.to_thread.run_sync(
                    _ask, action, withdrawn, abandon_on_cancel=True
                )
            finally:
                withdrawn.set()


def _ask(action: ActionDocument, withdrawn: threading.Event) -> bool:
    try:
        with _terminal() as descriptor, os.fdopen(os.dup(descriptor), "w") as stream:
            console = Console(file=stream, highlight=False, soft_wrap=True)
            show_action(console, action)
            stream.flush()
            # What was typed until now was typed without having seen this action.
            termios.tcflush(descriptor, termios.TCIFLUSH)
            console.print("Run it once? Type [bold]yes[/bold] to allow: ", end="")
            stream.flush()
            return _read_line(descriptor, withdrawn) == b"yes"
    except (OSError, termios.error):
        return False  # nobody can be asked


@contextmanager
def _terminal() -> Iterator[int]:
    descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_line(descriptor: int, withdrawn: threading.Event) -> bytes:
    """One typed line; empty when it is too long, more than one, or no longer asked for."""
    typed = b""
    while b"\n" not in typed and len(typed) <= _ANSWER_BYTES:
        if withdrawn.is_set():
            return b""
        if not select.select([descriptor], [], [], _POLL_SECONDS)[0]:
            continue
        chunk = os.read(descriptor, 4096)
        if not chunk:
            return b""
        typed += chunk
    line, _, more = typed.partition(b"\n")
    if more or len(line) > _ANSWER_BYTES:
        termios.tcflush(descriptor, termios.TCIFLUSH)
        return b""
    return line.strip()


def show_action(console: Console, action: ActionDocument) -> None:
    """The broker's document of ``action``."""
    line = console.print
    line("\n[bold]The agent asks for an action that needs you.[/bold]")
    line(f"  tool      {markup(str(action.get('tool')))}")
    line(f"  effect    {markup(str(action.get('effect')))}")
    targets = list(action.get("targets", ()))
    for target in targets[:_SHOWN_TARGETS]:
        line(f"  target    {markup(str(target))}")
    if len(targets) > _SHOWN_TARGETS:
        line(f"  and {len(targets) - _SHOWN_TARGETS} more targets")
    recipe = action.get("recipe")
    if recipe is not None:
        line(f"  recipe    {markup(str(recipe.get('id')))}")
        line(f"  command   {markup(repr(list(recipe.get('argv', ()))))}")
        line(f"  image     {markup(str(recipe.get('imageDigest')))}")
        line(f"  limits    {recipe.get('timeoutMs')} ms, {recipe.get('maxOutputBytes')} bytes")
    line(f"  tree      {markup(str(action.get('sourceDigest')))}")
    line(f"  action    {markup(str(action.get('actionDigest')))}")
    line(f"  time      number {action.get('occurrence')} of this action")
