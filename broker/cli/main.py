"""Entry of the command: finds the subcommand, runs it, and turns errors into exit codes.

A subcommand's module is loaded by name when it is asked for, so that ``--help`` does
not pay for engines and git.
"""

import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from broker.cli import exits
from broker.cli.arguments import COMMANDS, parse_arguments
from broker.provenance import check_modules
from protocol.engine_codes import ENGINE_TEXT
from protocol.errors import AirlockError, Refusal


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``airlock`` with ``argv`` (default: the process's own) and gives its exit code."""
    _make_printable()
    try:
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
        command = importlib.import_module(COMMANDS[arguments.command])
        check_modules()
        return int(command.execute(arguments))
    except AirlockError as error:
        _report(error)
        return exits.exit_code(error)
    except KeyboardInterrupt:
        return exits.UNSUCCESSFUL
    except Exception as error:  # noqa: BLE001 - a bug of ours: said, located, exit 70
        _report_bug(error)
        return exits.BUG


def _make_printable() -> None:
    """A character that a stream cannot carry is shown as an escape, and no name stops us."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _say(text: str) -> None:
    """One line on stderr, if anybody still reads it."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _report(error: AirlockError) -> None:
    code = getattr(error, "code", "bug")
    _say(f"airlock: {error}{_place(error)} [{code}]")
    for name, reason in getattr(error, "reasons", ()):
        _say(f"  {name}: {ENGINE_TEXT[reason]}")
    hint = _HINTS.get(code)
    if hint is not None:
        _say(f"hint: {hint}")


def _place(error: AirlockError) -> str:
    """Where in the input it is, and what: numbers and closed words."""
    if not isinstance(error, Refusal):
        return ""
    if error.code.startswith("catalog"):
        recipe = None if error.figure is None else f"recipe {error.figure + 1}"
        words = [word for word in (recipe, error.field, error.fault) if word is not None]
        return f" ({', '.join(words)})" if words else ""
    return "" if error.figure is None else f" ({error.figure:,})"


def _report_bug(error: Exception) -> None:
    """Where it happened and what kind it was; its text could be somebody else's."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    _say(f"airlock: internal error, {type(error).__name__} [bug]")
    for frame in traceback.extract_tb(error.__traceback__)[-12:]:
        _say(f"  {frame.filename}:{frame.lineno} {frame.name}")


_HINTS = {
    "engine_unavailable": "airlock doctor says which engines are usable and how to repair one.",
    "not_a_checkout": "name the top folder of a git checkout with --repo DIR.",
    "checkout_not_owned": "git config --global --add safe.directory DIR, if you trust it.",
    "out_not_empty": "name a new folder with --out DIR.",
    "out_inside_checkout": "name a folder outside of the checkout with --out DIR.",
    "image_unpinned": "name the image by digest: NAME@sha256:... or sha256:...",
    "agent_unknown": "airlock image list shows the local agents.",
    "base_moved": "check out the base commit of the attempt, or start a new attempt.",
    "ledger_locked": "another airlock writes to that folder.",
    "catalog_malformed": "the list is --recipes FILE, or airlock.recipes.json or odla.recipes.json"
    " at the base commit.",
}
