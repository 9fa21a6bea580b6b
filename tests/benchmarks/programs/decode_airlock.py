"""Decodes with the codec of the product, all of its checks included.

Usage: decode_airlock.py MESSAGE_FILE BATCH accepted|refused CONTROL_IN CONTROL_OUT
"""

import sys
from pathlib import Path

from decoding import run

from protocol.codec import Dropped, Rejected, decode_from_agent
from protocol.errors import RemoteProtocolError
from protocol.limits import Limits

LIMITS = Limits()


def decode(line: bytes) -> bool:
    """Whether the message was accepted."""
    try:
        return not isinstance(decode_from_agent(line, limits=LIMITS), Rejected | Dropped)
    except RemoteProtocolError:
        return False


if __name__ == "__main__":
    expected = sys.argv[3]
    if decode(Path(sys.argv[1]).read_bytes()) != (expected == "accepted"):
        sys.exit(f"decode_airlock: the line is not {expected}")
    run(decode)
