"""The help is true: README shows what the program prints, and every command has an example."""

import argparse
import re
from pathlib import Path

import pytest

from broker.cli.arguments import COMMANDS, make_parser

README = Path(__file__).parent.parent.parent / "README.md"


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def test_readmes_help_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")

    blocks = re.findall(r"```text\n\$ airlock --help\n(.*?)```", README.read_text(), re.S)

    assert blocks == [make_parser().format_help()]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_an_example(command: str) -> None:
    parser = subparsers(make_parser())[command]

    assert "example:\n  airlock " in parser.format_help()


def test_every_command_is_a_module_with_execute() -> None:
    import importlib

    for module in COMMANDS.values():
        assert callable(importlib.import_module(module).execute)


def test_readme_names_the_two_commands() -> None:
    text = README.read_text()

    assert "    make demo " in text
    assert "    make test " in text
