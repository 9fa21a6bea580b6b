"""Where hunks go when lines repeat and line numbers lie: never where git would not put them."""

import random
import re
from collections.abc import Iterator

import pygit2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pygit2.enums import DiffOption

from broker.stage.line_places import LinePlaces
from broker.stage.store import BlobStore
from tests.stage.patches import (
    code,
    exact,
    files_of,
    git_applies,
    patched,
    refusal,
    scratch_store,
    tree_of,
)

SIDES = b"--- a/x\n+++ b/x\n"
MARK = b"\\ No newline at end of file\n"


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def drawn(choices: random.Random) -> tuple[bytes, bytes]:
    """A file of few different lines and a patch of about it, with lies in both."""
    alphabet = [b"a", b"b", b"c"][: choices.randint(1, 3)]
    alphabet += [b"z%d" % index for index in range(choices.choice([0, 8]))]
    lines = choices.choices(alphabet, k=choices.randint(0, 14))
    edited = list(lines)
    for _ in range(choices.randint(1, 3)):
        at = choices.randrange(len(edited) + 1)
        new = choices.choices([*alphabet, b"new"], k=choices.randint(0, 2))
        edited[at : at + choices.randint(0, 2)] = new
    old, new_text = (
        b"\n".join(side) + (choices.choice([b"", b"\n"]) if side else b"")
        for side in (lines, edited)
    )
    hunks = _hunks(old, new_text, context=choices.randint(0, 3))
    if choices.random() < 0.5:
        hunks = _with_other_lines(hunks, choices)
    if choices.random() < 0.5:
        old = _with_other_content(old, alphabet, choices)
    return old, choices.choice([b"", b"diff --git a/x b/x\n"]) + SIDES + hunks


def _hunks(old: bytes, new: bytes, *, context: int) -> bytes:
    diff = pygit2.Patch.create_from(old, new, context_lines=context, flag=DiffOption.FORCE_TEXT)
    before, _, hunks = diff.data.partition(b"\n@@ ")
    return b"@@ " + hunks if hunks else before


def _with_other_lines(hunks: bytes, choices: random.Random) -> bytes:
    shift = choices.randint(-3, 4)

    def lie(match: re.Match[bytes]) -> bytes:
        lines = [max(0, int(match[at]) + shift) for at in (1, 3)]
        if choices.random() < 0.2:
            lines[choices.randrange(2)] += 1
        return b"@@ -%d%b +%d%b @@" % (lines[0], match[2] or b"", lines[1], match[4] or b"")

    return re.sub(rb"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@", lie, hunks)


def _with_other_content(text: bytes, alphabet: list[bytes], choices: random.Random) -> bytes:
    lines = text.split(b"\n")
    at = choices.randrange(len(lines) + 1)
    lines[at : at + choices.randint(0, 1)] = choices.choices(alphabet, k=choices.randint(0, 3))
    return b"\n".join(lines)


@settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck))
@given(choices=st.randoms(use_true_random=True))
def test_an_accepted_hunk_is_where_git_puts_it(store: BlobStore, choices: random.Random) -> None:
    content, patch = drawn(choices)
    tree = tree_of(store, {"x": content})
    if refusal(tree, patch) is None:
        assert files_of(patched(tree, patch)) == git_applies({"x": content}, patch), patch


def test_git_joins_lines_at_an_unterminated_context_line_and_we_do_not(store: BlobStore) -> None:
    content = b"a\n" * 8 + b"a"
    patch = SIDES + b"@@ -5,4 +5,3 @@\n a\n a\n-a\n a\n" + MARK
    made = git_applies({"x": content}, patch)
    assert made is not None
    assert b"aa" in made["x"][0]

    assert code(tree_of(store, {"x": content}), patch) == "patch_conflict"
    right = patch.replace(b"-5,4 +5,3", b"-6,4 +6,3")
    assert git_applies({"x": content}, right) == files_of(
        patched(tree_of(store, {"x": content}), right)
    )


def test_lines_are_found_in_large_files_too(store: BlobStore) -> None:
    lines = [b"%d\n" % (number % 7) * (1 + number % 3) for number in range(200_000)]
    content = b"".join(lines)
    numbered = content.split(b"\n")
    for at in (1, 5, 300, 70_001, 250_003, len(numbered) - 8):
        context = numbered[at : at + 3]
        patch = SIDES + b"@@ -%d,3 +%d,4 @@\n %b\n+new\n %b\n %b\n" % (at + 1, at + 1, *context)
        expected = [*numbered[: at + 1], b"new", *numbered[at + 1 :]]
        made = files_of(patched(tree_of(store, {"x": content}), patch))
        assert made["x"][0] == b"\n".join(expected)


@settings(max_examples=300, deadline=None)
@given(
    lines=st.lists(st.sampled_from([b"a", b"b", b"", b"aa", b"\r"]), max_size=40),
    wanted=st.lists(st.sampled_from([b"a", b"b", b"", b"aa", b"\r"]), min_size=1, max_size=4),
    ended=st.booleans(),
)
def test_indexed_lines_stand_where_a_plain_search_finds_them(
    lines: list[bytes], wanted: list[bytes], ended: bool
) -> None:
    data = b"\n".join(lines) + b"\n" * ended
    old = b"\n".join(wanted) + b"\n"
    places = LinePlaces(data)
    found = places.places(old)
    starts = [0, *(match.end() for match in re.finditer(b"\n", data))]
    assert [places.offset(line) for line in range(len(starts) + 1)] == [*starts, None]
    if found is not None:
        assert found == [start for start in starts if data.startswith(old, start)]
    assert places.places(old[:-1]) is None or old.endswith(b"\n\n")


@pytest.mark.parametrize("count", [4, 5, 6, 7, 40])
def test_many_hunks_at_wrong_lines_go_where_one_would(store: BlobStore, count: int) -> None:
    lines = [b"line %d\n" % number for number in range(1000)]
    before, after = b"".join(lines), list(lines)
    hunks = []
    for number in range(1, count + 1):
        at = number * 20
        after[at] = b"new %d\n" % number
        hunks.append(
            b"@@ -%d,3 +%d,3 @@\n %b-%b+%b %b"
            % (at + 7, at + 7, lines[at - 1], lines[at], after[at], lines[at + 1])
        )
    tree = tree_of(store, {"x": before})
    assert files_of(patched(tree, SIDES + b"".join(hunks))) == exact({"x": b"".join(after)})
    twice = tree_of(store, {"x": before + before})
    assert code(twice, SIDES + b"".join(hunks)) == "patch_conflict"
