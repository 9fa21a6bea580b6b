"""``airlock protocol schema``: the published JSON Schemas of this binary."""

import argparse
import sys

from broker.attempts.collect import write_file
from broker.cli import exits
from protocol.errors import Fault
from protocol.schema import bundle


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command; files that exist already are not overwritten."""
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fault("out_unwritable") from error
    for name, data in sorted(bundle().items()):
        write_file(arguments.out / name, data)
        sys.stdout.write(f"{arguments.out / name}\n")
    return exits.OK
