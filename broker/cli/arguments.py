"""The command line: every subcommand, its options, and one example for each."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from broker.cli.text import untrusted
from protocol.errors import Refusal

#: Subcommand -> the module whose ``execute(arguments) -> int`` it is.
COMMANDS: Final[dict[str, str]] = {
    "apply": "broker.cli.apply",
    "demo": "broker.cli.demo",
    "doctor": "broker.cli.doctor",
    "image": "broker.cli.image",
    "protocol": "broker.cli.schema",
    "run": "broker.cli.run",
    "stage": "broker.cli.stage",
}

ENGINES: Final = ("auto", "podman", "docker", "bubblewrap", "apple")
#: Longest argument that is a text and not a path, in bytes.
MAX_TEXT_BYTES: Final = 256 * 1024


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are our refusals; what it quotes is made visible."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        sys.stderr.write(f"{self.prog}: {untrusted(message)}\n")
        raise Refusal("usage")


def _parser(subparsers: Any, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def _json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")


def _engine_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", choices=ENGINES, default="auto", help="isolation engine (default: auto)"
    )


def _add_demo(subparsers: Any) -> None:
    parser = _parser(
        subparsers,
        "demo",
        "Run one attempt on a small repository that ships with airlock.",
        "airlock demo",
    )
    _engine_flag(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="the result folder (new or empty)")
    _json_flag(parser)


def _add_run(subparsers: Any) -> None:
    parser = _parser(
        subparsers,
        "run",
        "Run one attempt of one agent on a checkout.",
        "airlock run --repo . --task 'Fix the failing test' --agent fixture --approve ask",
    )
    parser.add_argument("--repo", type=Path, required=True, metavar="DIR", help="the checkout")
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--task", metavar="TEXT", help="what the agent is to do")
    task.add_argument("--task-file", type=Path, metavar="FILE", help="the same, from a file")
    parser.add_argument(
        "--agent",
        required=True,
        metavar="REF",
        help="a local agent name, adapter:DIR, a digest-pinned image, or a root file system folder",
    )
    parser.add_argument(
        "--agent-arg", action="append", default=[], metavar="A", help="one argument for the agent"
    )
    parser.add_argument("--ref", metavar="REF", help="stage this commit, not the working tree")
    parser.add_argument("--recipes", type=Path, metavar="FILE", help="the host's recipe catalog")
    parser.add_argument(
        "--inference", metavar="SPEC", help="who answers the model: scripted:FILE (default: nobody)"
    )
    _engine_flag(parser)
    parser.add_argument(
        "--approve",
        default="never",
        metavar="ask|never|FILE",
        help="ask for each recipe run; never ask (registered recipes run); or a file of the recipes"
        " that may run",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the result folder (new or empty)")
    parser.add_argument(
        "--deadline", type=int, default=3600, metavar="SECONDS", help="longest attempt (3600)"
    )
    parser.add_argument(
        "--unsafe-testing",
        action="store_true",
        help="accept unpinned images; needs AIRLOCK_UNSAFE_TESTING=1 too",
    )
    _json_flag(parser)


def _add_stage(subparsers: Any) -> None:
    parser = _parser(
        subparsers,
        "stage",
        "Show what would be staged of a checkout, and why the rest is not.",
        "airlock stage . --json",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the checkout")
    parser.add_argument("--ref", metavar="REF", help="this commit, not the working tree")
    parser.add_argument("--patch", type=Path, metavar="FILE", help="what this patch would do to it")
    _json_flag(parser)


def _add_apply(subparsers: Any) -> None:
    parser = _parser(
        subparsers,
        "apply",
        "Put a finished attempt's patch on the checkout.",
        "airlock apply OUT --repo . --dry-run",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the attempt's result folder")
    parser.add_argument(
        "--repo", type=Path, metavar="DIR", help="the checkout (default: the staged one)"
    )
    parser.add_argument("--dry-run", action="store_true", help="check it all, change nothing")
    _json_flag(parser)


def _add_others(subparsers: Any) -> None:
    doctor = _parser(
        subparsers,
        "doctor",
        "Show which engines are usable here and what they really enforce.",
        "airlock doctor --json",
    )
    _json_flag(doctor)
    image = _parser(
        subparsers, "image", "Build and list local agent images.", "airlock image build fixture"
    )
    actions = image.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = _parser(
        actions, "build", "Build a content-addressed image offline.", "airlock image build fixture"
    )
    build.add_argument("name", metavar="NAME", help="a bundled agent, or recipe")
    _json_flag(build)
    listing = _parser(actions, "list", "List the local images.", "airlock image list")
    _json_flag(listing)
    protocol = _parser(
        subparsers,
        "protocol",
        "Show the protocol of this binary.",
        "airlock protocol schema --out D",
    )
    kinds = protocol.add_subparsers(dest="action", required=True, metavar="ACTION")
    schema = _parser(
        kinds, "schema", "Write the published JSON Schemas.", "airlock protocol schema --out D"
    )
    schema.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to")


class _Version(argparse.Action):
    """Prints the installed version; what reads it is loaded by name, for it costs a start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        metadata = importlib.import_module("importlib.metadata")
        sys.stdout.write(f"airlock {metadata.version('airlockd')}\n")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="airlock",
        description="Let a coding agent work on a repository without giving it the repository.",
        epilog="example:\n  airlock demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    _add_demo(subparsers)
    _add_run(subparsers)
    _add_stage(subparsers)
    _add_apply(subparsers)
    _add_others(subparsers)
    return parser


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """``argv`` as a namespace, or ``Refusal("usage")`` after the usage went to stderr."""
    for text in argv:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise Refusal("usage") from None
        if size > MAX_TEXT_BYTES or "\0" in text:
            raise Refusal("usage")
    return make_parser().parse_args(argv)
