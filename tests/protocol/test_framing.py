"""Lines: limits that count the LF, blank lines, the end, and a cost that stays linear."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.framing import LineBuffer

LIMIT = 64
COMMON = 32
INFERENCE = b'{"v":1,"type":"inference.request","a":"'


def take(buffer: LineBuffer) -> list[bytes]:
    """The lines that are there."""
    lines = []
    while (line := buffer.next_line()) is not None:
        lines.append(line)
    return lines


def buffer(limit: int = LIMIT, common: int | None = None) -> LineBuffer:
    return LineBuffer(limit, common_limit=limit if common is None else common)


@pytest.mark.parametrize("size", [LIMIT - 2, LIMIT - 1])
def test_a_line_within_the_limit_counts_its_line_feed(size: int) -> None:
    lines = buffer()

    lines.receive(b"x" * size + b"\n")

    assert take(lines) == [b"x" * size]


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1, 10 * LIMIT])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_over_the_limit_is_refused_finished_or_not(size: int, end: bytes) -> None:
    lines = buffer()

    lines.receive(b"ok\n" + b"x" * size + end)

    assert lines.next_line() == b"ok"
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as caught:
            lines.next_line()
        assert caught.value.code == "frame_too_large"


def test_what_cannot_be_inference_is_over_at_the_common_limit() -> None:
    for start in (b"x", b"[", b'{"type":"event"', b' {"v": 1, "type": "tool.request"'):
        lines = buffer(common=COMMON)
        lines.receive(start + b"x" * COMMON)
        with pytest.raises(RemoteProtocolError):
            lines.next_line()


@pytest.mark.parametrize(("start", "limit"), [(b"x", COMMON), (INFERENCE, LIMIT)])
def test_an_unfinished_line_is_over_at_the_size_that_its_line_feed_would_pass(
    start: bytes, limit: int
) -> None:
    lines = buffer(common=COMMON)
    lines.receive(start.ljust(limit - 1, b"x"))
    assert lines.next_line() is None

    lines.receive(b"x")

    with pytest.raises(RemoteProtocolError):
        lines.next_line()


@pytest.mark.parametrize("start", [INFERENCE, b'{"a":"', b' {"type": "inference.request","a":"'])
def test_what_may_be_inference_may_grow_to_the_limit(start: bytes) -> None:
    lines = buffer(common=COMMON)
    line = start + b"x" * (LIMIT - 1 - len(start))

    for byte in line:
        lines.receive(bytes([byte]))
        assert lines.next_line() is None
    lines.receive(b"\n")

    assert take(lines) == [line]


def test_memory_stays_bounded_under_a_flood_without_line_feeds() -> None:
    lines = buffer()

    for _ in range(1000):
        lines.receive(b"x" * 1000)

    assert len(lines._tail) <= LIMIT + 1000


@pytest.mark.parametrize("blank", [b"\n", b" \n", b"\t\r\n", b"\r\n"])
def test_blank_lines_are_nothing_but_bytes(blank: bytes) -> None:
    lines = buffer()

    lines.receive(blank + b"a\n" + blank)

    assert take(lines) == [b"a"]
    assert (lines.lines, lines.bytes) == (1, 2 + 2 * len(blank))


def test_a_blank_line_over_the_limit_is_refused() -> None:
    lines = buffer()
    lines.receive(b" " * LIMIT + b"\n")
    with pytest.raises(RemoteProtocolError):
        lines.next_line()


@pytest.mark.parametrize("tail", [b"{}", b" {", b"\r{"])
def test_a_line_cut_by_the_end_is_never_given_out(tail: bytes) -> None:
    lines = buffer()
    lines.receive(b"a\n" + tail)
    lines.receive(b"")

    assert lines.next_line() == b"a"
    with pytest.raises(RemoteProtocolError) as caught:
        lines.next_line()
    assert (caught.value.code, caught.value.reason) == ("malformed_frame", "truncated")


def test_blanks_before_the_end_are_an_end() -> None:
    lines = buffer()
    lines.receive(b"a\n \r")
    lines.receive(b"")

    assert take(lines) == [b"a"]
    assert lines.is_drained


def test_nothing_comes_after_the_end() -> None:
    lines = buffer()
    lines.receive(b"")
    for data in (b"", b"x"):
        with pytest.raises(LocalProtocolError):
            lines.receive(data)


@given(
    st.lists(st.binary(max_size=LIMIT - 1).map(lambda line: line.replace(b"\n", b".")), max_size=8),
    st.lists(st.integers(0, 600), max_size=10),
)
def test_however_it_is_cut_the_lines_are_those_of_split(
    parts: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(part + b"\n" for part in parts)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    lines = buffer()
    taken = []

    for start, end in pairwise(places):
        lines.receive(data[start:end])
        taken += take(lines)

    assert taken == [part for part in parts if part.strip(b" \t\r")]
    assert lines.bytes == len(data)


def test_the_cost_of_a_long_line_is_linear_in_its_chunks() -> None:
    def cost(chunks: int) -> float:
        lines = buffer(limit=64 * 1024 * 1024)
        start = time.perf_counter()
        for _ in range(chunks):
            lines.receive(b"x" * 64)
            lines.next_line()
        return time.perf_counter() - start

    cost(1000)
    small, large = min(cost(5_000) for _ in range(3)), min(cost(40_000) for _ in range(3))

    assert large < small * 8 * 4
