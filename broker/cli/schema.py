"""``airlock protocol schema``: the published JSON Schemas of this binary."""

import argparse

from broker.attempts.collect import write_file
from broker.cli import exits
from broker.cli.output import present
from protocol.errors import Fault
from protocol.schema import bundle


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command; a file with other content is not overwritten."""
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Fault("out_unwritable") from error
    written = []
    for name, data in sorted(bundle().items()):
        path = arguments.out / name
        if not path.is_file() or path.read_bytes() != data:
            write_file(path, data, mode=0o644)
        written.append(str(path))
    present(lambda: print("\n".join(written)))
    return exits.OK
