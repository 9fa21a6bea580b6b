"""Reads files that the command line names: bounded, and refused by code."""

from pathlib import Path

from protocol.errors import Refusal


def read_argument_file(path: Path, limit: int) -> bytes:
    """The file's bytes; ``Refusal`` with ``file_not_found`` or ``file_too_large``."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError:
        raise Refusal("file_not_found") from None
    if len(data) > limit:
        raise Refusal("file_too_large", figure=limit)
    return data
