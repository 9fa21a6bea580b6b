"""Round trips of a read: from before a request is written until its answer is read whole.

What is timed, in the asker: one request line of about 160 bytes out, one answer line in,
strictly one after the other, both ends on one CPU, the answer holding a text of 200 bytes
or 64 KiB. Ours and the echoes are asked by the same blocking program; an SDK stands at
both ends of its pipe, and ours is asked by our own SDK too. Ours does the whole work of
a read: typed decode, decision, read of the staged tree, ledger record written, encode;
the ledger lies on disk.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from tests.benchmarks.folders import disk_folder
from tests.benchmarks.model import Goal, Measure, Opening, Row, Sizes, Subject, Unit
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

#: The first frame of an agent that uses no optional feature.
HELLO = (
    '{"v":1,"type":"event","kind":"agent.ready","data":{"protocolVersion":1,'
    '"agent":{"name":"benchmark","version":"1"},"features":[]}}'
)

OURS = "airlock"
OURS_SDK = "airlock, our SDK asks"
C = "C pipe"
BLOCKING = "blocking Python"
TRIO = "trio + msgspec echo"
TRIO_BOTH = "trio + msgspec echo, both ends"


def rows(sizes: Sizes) -> Iterator[Row]:
    """One row for each size of text."""
    yield _row("200 B", 200, sizes.requests, _small_goals())
    yield _row(
        "64 KiB", 64 * 1024, sizes.requests, (Goal(subject=OURS, bound=0.45, against=acp_name()),)
    )


def _small_goals() -> tuple[Goal, ...]:
    return (
        Goal(subject=OURS, bound=0.25, against=acp_name()),
        Goal(subject=OURS_SDK, bound=0.25, against=acp_name()),
        Goal(subject=OURS, bound=0.4, against=acp_name(), statistic="p99"),
        Goal(subject=OURS, bound=12.0, against=C),
        Goal(subject=OURS, bound=1.2, against=TRIO),
        Goal(subject=OURS, bound=1.2, against=TRIO_BOTH),
    )


def _row(name: str, text_bytes: int, times: int, goals: tuple[Goal, ...]) -> Row:
    return Row(
        name=f"read_file round trip, {name}",
        unit=Unit.MICROSECONDS,
        subjects=(
            our_subject(text_bytes, window=1, times=times),
            Subject(name=OURS_SDK, open=partial(_open_sdk, text_bytes, times), ours=True),
            Subject(name=C, open=partial(_open_c, text_bytes, times)),
            *peer_subjects(text_bytes, window=1, times=times),
            Subject(name=TRIO_BOTH, open=partial(_open_trio_both, text_bytes, times)),
        ),
        goals=goals,
        rounds=15,
    )


def our_subject(text_bytes: int, *, window: int, times: int) -> Subject:
    """Ours, asked by the same blocking asker as the echoes."""
    return Subject(name=OURS, open=partial(_open_ours, text_bytes, window, times), ours=True)


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
def _open_ours(text_bytes: int, window: int, times: int) -> Iterator[Measure]:
    asker = raw_asker(window, expected='"ok":true', hello=HELLO)
    with disk_folder() as folder:
        answerer = own_python("airlock_answerer.py", folder, text_bytes, window)
        with pair(asker, answerer, times=times, samples=times if window == 1 else 1) as measure:
            yield measure


@contextmanager
def _open_sdk(text_bytes: int, times: int) -> Iterator[Measure]:
    asker = own_python("sdk_asker.py", text_bytes)
    with disk_folder() as folder:
        answerer = own_python("airlock_answerer.py", folder, text_bytes, 1)
        with pair(asker, answerer, times=times, samples=times) as measure:
            yield measure


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
