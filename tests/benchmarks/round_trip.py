"""Round trips of a read: from before a request is written until its answer is read whole.

What is timed, in the asker: one request line of about 160 bytes out, one answer line in,
strictly one after the other, both ends on one CPU, the answer holding a text of 200 bytes
or 64 KiB.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from tests.benchmarks.model import Measure, Opening, Row, Sizes, Subject, Unit
from tests.benchmarks.processes import (
    compiled,
    own_python,
    pair,
    peer_python,
    peer_version,
    single,
)

#: A read as an agent asks for it; ``%d`` is the number of the request.
REQUEST = (
    '{"v":1,"type":"tool.request","requestId":"request-%07d","tool":"read_file",'
    '"input":{"path":"src/package/module.txt"}}'
)

#: What an answer has besides the text in our protocol: ids, digests, sizes (bytes).
ENVELOPE_BYTES = 400

#: Texts to read: the name in the row and its size in bytes.
TEXTS = (("200 B", 200), ("64 KiB", 64 * 1024))

C = "C pipe"
BLOCKING = "blocking Python"
TRIO = "trio + msgspec echo"
TRIO_BOTH = "trio + msgspec echo, both ends"


def rows(sizes: Sizes) -> Iterator[Row]:
    """One row for each size of text."""
    for name, text_bytes in TEXTS:
        peers = tuple(peer_subjects(text_bytes, window=1, times=sizes.requests))
        floor = Subject(name=C, open=partial(_open_c, text_bytes, sizes.requests))
        both = Subject(name=TRIO_BOTH, open=partial(_open_trio_both, text_bytes, sizes.requests))
        yield Row(
            name=f"read_file round trip, {name}",
            unit=Unit.MICROSECONDS,
            subjects=(floor, *peers, both),
            goals=(),
            rounds=15,
        )


def peer_subjects(text_bytes: int, *, window: int, times: int) -> Iterator[Subject]:
    """The peers that are Python programs, with ``window`` requests in flight."""

    def subject(name: str, opening: Opening) -> Subject:
        return Subject(name=name, open=opening)

    yield subject(BLOCKING, partial(_open_blocking, text_bytes, window, times))
    yield subject(TRIO, partial(_open_trio, text_bytes, window, times))
    yield subject(acp_name(), partial(_open_acp, text_bytes, window, times))
    yield subject(mcp_name(), partial(_open_mcp, text_bytes, window, times))


def acp_name() -> str:
    """The ACP SDK as it stands in the table."""
    return f"ACP SDK {peer_version('agent-client-protocol')}".strip()


def mcp_name() -> str:
    """The MCP SDK as it stands in the table."""
    return f"MCP SDK {peer_version('mcp')}".strip()


def raw_asker(window: int, *, expected: str, hello: str = "") -> list[str]:
    """The blocking asker that ours and the echoes are asked by."""
    return own_python("asker.py", REQUEST, window, hello, expected)


@contextmanager
def _open_c(text_bytes: int, times: int) -> Iterator[Measure]:
    answer_bytes = str(text_bytes + ENVELOPE_BYTES)
    request_bytes = str(len(REQUEST % 0) + 1)
    with (
        compiled("pipe_asker.c", "pipe_answerer.c") as (asker, answerer),
        pair(
            [asker, request_bytes, answer_bytes],
            [answerer, answer_bytes],
            times=times,
            samples=times,
        ) as measure,
    ):
        yield measure


def _open_blocking(text_bytes: int, window: int, times: int) -> AbstractContextManager[Measure]:
    answerer = own_python("blocking_answerer.py", text_bytes + ENVELOPE_BYTES)
    asker = raw_asker(window, expected="xxx")
    return pair(asker, answerer, times=times, samples=times if window == 1 else 1)


def _open_trio(text_bytes: int, window: int, times: int) -> AbstractContextManager[Measure]:
    answerer = own_python("trio_answerer.py", text_bytes)
    asker = raw_asker(window, expected='"ok":true')
    return pair(asker, answerer, times=times, samples=times if window == 1 else 1)


def _open_trio_both(text_bytes: int, times: int) -> AbstractContextManager[Measure]:
    answerer = own_python("trio_answerer.py", text_bytes)
    asker = own_python("trio_asker.py", text_bytes)
    return pair(asker, answerer, times=times, samples=times)


def _open_acp(text_bytes: int, window: int, times: int) -> AbstractContextManager[Measure]:
    needs = "agent-client-protocol"
    answerer = peer_python("acp_answerer.py", text_bytes, needs=needs)
    asker = peer_python("acp_asker.py", text_bytes, window, needs=needs)
    return pair(asker, answerer, times=times, samples=times if window == 1 else 1)


def _open_mcp(text_bytes: int, window: int, times: int) -> AbstractContextManager[Measure]:
    asker = peer_python("mcp_asker.py", text_bytes, window, needs="mcp")
    return single(asker, times=times, samples=times if window == 1 else 1)
