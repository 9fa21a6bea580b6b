"""What the command prints: results on stdout, everything else on stderr."""

import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from broker.cli.text import untrusted


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


def markup(text: str) -> str:
    """``text`` safe to put between rich's markup."""
    return escape(untrusted(text))


def figure(count: int) -> str:
    """A count with thousands separated."""
    return f"{count:,}"
