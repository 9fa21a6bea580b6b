"""Asks the person at the terminal about one exact action. The agent's words are not shown.

What is printed is the broker's own action document. Anything but a typed ``yes`` is no;
without a terminal nobody is asked and the answer is no.
"""

import sys
from typing import Final, final

import trio
from rich.console import Console

from broker.attempts.asking import ActionDocument
from broker.cli.output import markup
from broker.cli.watching import TerminalWatcher

#: Longest answer that is looked at, in characters.
_ANSWER_CHARACTERS: Final = 64
#: Targets that are listed before the rest is counted.
_SHOWN_TARGETS: Final = 20


@final
class TerminalApprover:
    """An ``Approver``: the person at this terminal."""

    principal: Final = "owner"

    def __init__(self, console: Console, watcher: TerminalWatcher) -> None:
        self._console: Final = console
        self._watcher: Final = watcher
        self._asking: Final = trio.Lock()

    async def ask(self, action: ActionDocument) -> bool:
        """Whether the person typed ``yes`` to ``action``."""
        async with self._asking:
            self._watcher.close()
            self._show(action)
            # The read cannot be taken back; when the attempt is cancelled its answer is dropped.
            answer = await trio.to_thread.run_sync(_read_answer, abandon_on_cancel=True)
        return answer == "yes"

    def _show(self, action: ActionDocument) -> None:
        print_line = self._console.print
        print_line("\n[bold]The agent asks for an action that needs you.[/bold]")
        print_line(f"  tool      {markup(str(action.get('tool')))}")
        print_line(f"  effect    {markup(str(action.get('effect')))}")
        targets = list(action.get("targets", ()))
        for target in targets[:_SHOWN_TARGETS]:
            print_line(f"  target    {markup(str(target))}")
        if len(targets) > _SHOWN_TARGETS:
            print_line(f"  and {len(targets) - _SHOWN_TARGETS} more targets")
        recipe = action.get("recipe")
        if recipe is not None:
            print_line(f"  recipe    {markup(str(recipe.get('id')))}")
            print_line(f"  command   {markup(repr(list(recipe.get('argv', ()))))}")
            print_line(f"  image     {markup(str(recipe.get('imageDigest')))}")
            print_line(
                f"  limits    {recipe.get('timeoutMs')} ms, {recipe.get('maxOutputBytes')} bytes"
            )
        print_line(f"  tree      {markup(str(action.get('sourceDigest')))}")
        print_line(f"  action    {markup(str(action.get('actionDigest')))}")
        self._console.print("Run it once? Type [bold]yes[/bold] to allow: ", end="")


def _read_answer() -> str:
    if not sys.stdin.isatty():
        return ""
    return sys.stdin.readline(_ANSWER_CHARACTERS).strip()
