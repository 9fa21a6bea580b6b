"""What the command prints: results on stdout, everything else on stderr."""

import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from broker.cli.text import untrusted
from protocol.errors import Fault


def stderr_console() -> Console:
    """The console for progress, questions and errors; colour follows NO_COLOR."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def stdout_console() -> Console:
    """The console for results."""
    return Console(highlight=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    sys.stdout.flush()


def present(show: Callable[[], None]) -> None:
    """Runs ``show``, which prints a result. A reader who left changes no exit code.

    Raises ``Fault("output_unwritable")`` when the result could not be written.
    """
    if sys.stdout is None:
        return
    try:
        show()
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich exits where a pipe is broken
        _silence(sys.stdout.fileno())
    except OSError as error:
        _silence(sys.stdout.fileno())
        raise Fault("output_unwritable") from error


def _silence(descriptor: int) -> None:
    """Points a stream that cannot be written to nowhere, so that Python's own flush succeeds."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def markup(text: str) -> str:
    """``text`` safe to put between rich's markup."""
    return escape(untrusted(text))


def figure(count: int) -> str:
    """A count with thousands separated."""
    return f"{count:,}"
