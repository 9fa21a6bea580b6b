"""The nearest region is a part of the file, is where a person would look, and comes soon."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.stage.nearest_region import nearest_region, region_at
from broker.stage.patch_plan import EVIDENCE_BYTES

MIB = 1024 * 1024


def source(lines: int) -> list[bytes]:
    """Lines like those of a program: many alike, each block with names of its own."""
    choices = random.Random(7)
    names = [b"".join(choices.choices([b"%c" % c for c in b"abcdefgh"], k=6)) for _ in range(400)]
    body = []
    for number in range(lines):
        match number % 5:
            case 0:
                body.append(b"    def %s_%d(self):" % (choices.choice(names), number))
            case 1:
                body.append(b"        value = self.%s" % choices.choice(names))
            case 2:
                body.append(b"        if value is None:")
            case 3:
                body.append(b"            return %d" % (number % 7))
            case _:
                body.append(b"")
    return body


def worn(lines: list[bytes], choices: random.Random) -> list[bytes]:
    """The lines as a model may remember them."""
    kept = list(lines)
    for _ in range(max(len(kept) // 8, 1)):
        at = choices.randrange(len(kept))
        match choices.randrange(4):
            case 0:
                kept[at] = kept[at].lstrip()
            case 1:
                kept[at] = kept[at] + b"  # note"
            case 2:
                kept[at] = kept[at].replace(b"value", b"result")
            case _:
                kept[at] = kept[at].replace(b"return", b"yield")
    return kept


@pytest.mark.parametrize("size", [5, 12, 80])
def test_a_text_that_is_almost_right_is_found_where_it_was_taken_from(size: int) -> None:
    lines = source(1_000)
    data = b"\n".join(lines) + b"\n"
    choices = random.Random(size)
    for _ in range(40):
        at = choices.randrange(len(lines) - size)
        wanted = b"\n".join(worn(lines[at : at + size], choices)) + b"\n"
        found = nearest_region(data, wanted)
        assert found is not None
        assert found.line == at + 1
        assert data.startswith(found.text, len(b"\n".join(lines[:at])) + (at > 0))


def test_text_with_other_line_ends_shows_those_of_the_file() -> None:
    found = nearest_region(b"a\r\none two\r\nthree four\r\nb\r\n", b"one two\nthree four\n")
    assert found == (2, b"one two\r\nthree four\r\n")


def test_nothing_alike_is_nothing() -> None:
    assert nearest_region(b"one\ntwo\n", b"xyz\n") is None
    assert nearest_region(b"", b"xyz\n") is None
    assert nearest_region(b"one\n", b"\n\n") is None


def test_a_text_longer_than_the_file_is_cut_to_the_file() -> None:
    assert nearest_region(b"two\n", b"one\ntwo\nthree\n") == (1, b"two\n")


def test_of_a_long_line_the_part_that_is_alike_is_shown() -> None:
    data = b"first\n" + b"x" * 50_000 + b"function total(a, b)" + b"y" * 50_000
    found = nearest_region(data, b"function totals(a, b)")
    assert found is not None
    assert found.line == 2
    assert b"function total(a, b)" in found.text


@settings(max_examples=400, deadline=None)
@given(
    data=st.lists(st.sampled_from([b"ab", b"abc", b" ab", b"", b"xyz", b"\xff\xfe"])).map(
        b"\n".join
    ),
    wanted=st.lists(st.sampled_from([b"abc", b"ab ", b"", b"zz xyz"])).map(b"\n".join),
)
def test_a_region_is_whole_lines_of_the_file(data: bytes, wanted: bytes) -> None:
    found = nearest_region(data, wanted)
    if found is not None:
        lines = data.split(b"\n")
        assert 1 <= found.line <= len(lines)
        assert found.text.count(b"\n") <= wanted.count(b"\n") + 1
        assert data[len(b"".join(line + b"\n" for line in lines[: found.line - 1])) :].startswith(
            found.text
        )


@given(data=st.binary(max_size=60), at=st.integers(0, 59))
def test_a_region_at_a_place_begins_with_its_line(data: bytes, at: int) -> None:
    at = min(at, len(data))
    found = region_at(data, at, like=b"x\n")
    assert found.line == data[:at].count(b"\n") + 1
    assert data[data.rfind(b"\n", 0, at) + 1 :].startswith(found.text)


def seconds(data: bytes, wanted: bytes) -> float:
    took = []
    for _ in range(3):
        start = time.thread_time()
        nearest_region(data, wanted)
        took.append(time.thread_time() - start)
    return min(took)


def test_a_miss_of_80_lines_in_1000_takes_milliseconds() -> None:
    lines = source(1_000)
    wanted = b"\n".join(worn(lines[400:480], random.Random(1)))
    assert seconds(b"\n".join(lines), wanted) < 0.02


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        pytest.param(b"a" * 32 * MIB, b"a" * 200_000 + b"b", id="one line"),
        pytest.param(b"\n" * 32 * MIB, b"\n" * 200_000, id="empty lines"),
        pytest.param(b"ab\n" * (10 * MIB), b"ab\n" * 80_000 + b"abc\n", id="equal lines"),
        pytest.param((b"a" * 60 + b"b") * 500_000, b"\n".join(b"a" * n for n in range(1, 600)),
                     id="almost periodic"),
        pytest.param(b"a b\n" * (8 * MIB), b"a  b\n" * 50_000, id="equal misses"),
        pytest.param(b"\n".join(source(700_000)), b"\n".join(source(2_000)[1_000:]), id="program"),
    ],
)  # fmt: skip
def test_the_largest_file_does_not_make_it_slow(data: bytes, wanted: bytes) -> None:
    assert seconds(data, wanted) < 1.0


def test_a_region_is_never_larger_than_a_refusal_carries() -> None:
    found = nearest_region(b"abcdef\n" * 5_000, b"abcdef\n" * 4_000 + b"x\n")
    assert found is not None
    assert len(found.text) <= EVIDENCE_BYTES
