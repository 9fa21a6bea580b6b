"""Hostile patches: refused with a code or exactly what stock git does, in bounded time."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import AGENT_BOUNDS, PatchRefusal
from broker.stage.store import BlobStore
from broker.stage.tree import MODE_EXECUTABLE, StagedTree
from tests.stage.patches import (
    Files,
    code,
    files_of,
    git_applies,
    git_diff,
    patched,
    refusal,
    scratch_store,
    tree_of,
)

BEFORE: Files = {
    "a.txt": b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n",
    "d/b.py": b"x = 1\n\n\ny = 2\n" + b"pass\n" * 8 + b"z",
    "run": (b"#!/bin/sh\nexit\n", MODE_EXECUTABLE),
    "ä ö": b"\xe4\n\xf6\r\n",
    "bin": b"\0\1\2" * 40,
    "empty": b"",
    "gone": b"g\n",
}
AFTER: Files = {
    "a.txt": b"one\nTWO\nthree\nfour\nfive\nsix\nseven\neight\n9\nten",
    "d/b.py": b"x = 1\n\n\ny = 3\n" + b"pass\n" * 9 + b"z\n",
    "run": b"#!/bin/sh\nexit 1\n",
    "ä ö": b"\xe4\nnew\n\xf6\r\n",
    "bin": b"\0\1\2" * 30 + b"\3" + b"\0\1\2" * 10,
    "new/empty": b"",
    "moved": b"g\n",
}
PIECES = [
    b"diff --git a/a.txt b/a.txt\n", b"--- a/a.txt\n", b"+++ b/a.txt\n", b"--- /dev/null\n",
    b"+++ /dev/null\n", b"+++ b/d/b.py\n", b"rename from a.txt\n", b"rename to z\n", b"\n", b" \n",
    b"copy from a.txt\n", b"copy to z\n", b"new file mode 100644\n", b"deleted file mode 100644\n",
    b"old mode 100644\n", b"new mode 100755\n", b"@@ -1,3 +1,3 @@\n", b"@@ -1 +0,0 @@\n", b"-one\n",
    b"@@ -0,0 +1 @@\n", b"\\ No newline at end of file\n", b" one\n", b"+added\n", b" pass\n",
    b"-pass\n",
    b"GIT binary patch\n", b"literal 0\nHcmV?d00001\n\n", b"index 0000000..1234567\n",
]  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


@pytest.fixture(scope="module")
def patches() -> list[bytes]:
    whole = [git_diff(BEFORE, AFTER, option) for option in ("-M", "--no-renames", "-U1", "-C")]
    bare = [
        b"".join(
            line
            for line in patch.splitlines(keepends=True)
            if not line.startswith((b"diff --git", b"index", b"old mode", b"new mode"))
        )
        for patch in (git_diff({"a.txt": BEFORE["a.txt"]}, {"a.txt": AFTER["a.txt"]}),
                      git_diff({"d/b.py": BEFORE["d/b.py"]}, {"d/b.py": AFTER["d/b.py"]}))
    ]  # fmt: skip
    return [*whole, *bare, b"".join(bare)]


def check(tree: StagedTree, patch: bytes) -> bool:
    """Whether the patch is accepted; then git accepts it, with the same result."""
    refused = refusal(tree, patch)
    if refused is not None:
        return False
    assert git_applies(BEFORE, patch) == files_of(patched(tree, patch)), patch
    return True


def mutated(patch: bytes, choices: random.Random) -> bytes:
    lines = patch.splitlines(keepends=True)
    for _ in range(choices.randint(1, 3)):
        at = choices.randrange(len(lines) + 1)
        match choices.randrange(8):
            case 0:
                del lines[at : at + 1]
            case 1:
                lines[at:at] = lines[at : at + 1]
            case 2:
                lines.insert(at, choices.choice(PIECES))
            case 3:
                lines[at : at + 1] = [choices.choice(PIECES)]
            case 4:
                lines[at : at + 2] = reversed(lines[at : at + 2])
            case 5 if at < len(lines):
                lines[at] = _with_another_number(lines[at], choices)
            case 6 if at < len(lines):
                place = choices.randrange(len(lines[at]))
                byte = bytes((choices.choice(b' +-\\@/ab019\n\r\t"\x00\xff'),))
                lines[at] = lines[at][:place] + byte + lines[at][place + 1 :]
            case _:
                other = choices.randrange(len(lines) + 1)
                lines[other:other] = lines[at : at + choices.randint(1, 12)]
    return b"".join(lines)


def _with_another_number(line: bytes, choices: random.Random) -> bytes:
    digits = [at for at, byte in enumerate(line) if 0x30 <= byte <= 0x39]
    if not digits:
        return line
    at = choices.choice(digits)
    return line[:at] + b"%d" % choices.randrange(12) + line[at + 1 :]


@settings(max_examples=1_500, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_mutated_patch_is_refused_or_means_what_it_means_to_git(
    store: BlobStore, patches: list[bytes], data: st.DataObject
) -> None:
    choices = data.draw(st.randoms(use_true_random=True))
    check(tree_of(store, BEFORE), mutated(choices.choice(patches), choices))


def test_the_patches_that_are_mutated_are_good_ones(store: BlobStore, patches: list[bytes]) -> None:
    tree = tree_of(store, BEFORE)
    assert [check(tree, patch) for patch in patches] == [True] * len(patches)


@settings(max_examples=300, deadline=None)
@given(patch=st.one_of(st.binary(max_size=300), st.lists(st.sampled_from(PIECES)).map(b"".join)))
def test_any_bytes_are_a_plan_or_a_refusal(patch: bytes) -> None:
    with suppress(PatchRefusal):
        assert parse_patch(patch).files


def seconds(tree: StagedTree, patch: bytes, expected: str | None) -> float:
    assert len(patch) <= AGENT_BOUNDS.text_bytes
    start = time.perf_counter()
    assert code(tree, patch) == expected
    return time.perf_counter() - start


MARK = b"\\ No newline at end of file\n"
SIDES = b"--- a/x\n+++ b/x\n"
#: Far above what these take on a slow machine, far below what a search that starts over
#: for each hunk or each line would take.
SOON = 4.0


def test_a_thousand_misplaced_hunks_in_a_large_file_are_refused_soon(store: BlobStore) -> None:
    lines = [b"%d\n" % number for number in range(2_000_000)]
    tree = tree_of(store, {"x": b"".join(lines)})
    hunks = [
        b"@@ -%d,3 +%d,3 @@\n %b-%b+new\n %b"
        % (900_000 + at * 10, 900_000 + at * 10, *lines[at * 10 + 5 : at * 10 + 8])
        for at in range(1_000)
    ]
    assert seconds(tree, SIDES + b"".join(hunks), "patch_conflict") < SOON


def test_ambiguous_context_in_a_large_file_is_refused_soon(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"a\n" * 4_000_000})
    hunk = b"@@ -%d,90 +%d,91 @@\n" + b" a\n" * 45 + b"+b\n" + b" a\n" * 44 + b" c\n"
    patch = SIDES + b"".join(hunk % (at, at) for at in range(100, 80_000, 100))
    assert seconds(tree, patch, "patch_conflict") < SOON


def test_hunks_stated_far_behind_the_end_are_refused_soon(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"".join(b"%d\n" % number for number in range(1_000_000))})
    hunks = [
        b"@@ -%d,3 +%d,4 @@\n %d\n+n\n %d\n %d\n"
        % (at * 1_000_000, at * 1_000_000, at, at + 1, at + 2)
        for at in range(5, 900, 5)
    ]
    assert seconds(tree, SIDES + b"".join(hunks), "patch_conflict") < SOON


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(SIDES + b"@@ -1,99999 +1,99999 @@\n" + b" a\n" * 80_000, id="body cut short"),
        pytest.param(SIDES + b"@@ -1,9 +1,10 @@\n" + b"\n" * 250_000, id="empty lines"),
        pytest.param(SIDES + b"@@ -1,2 +1,2 @@\n-" + b"a" * 250_000 + b"\n", id="one long line"),
        pytest.param(b"diff --git " + b'"a/\\303\\244' * 20_000 + b"\n", id="quotes"),
        pytest.param(b"diff --git " + b" b/x" * 60_000 + b"\n", id="names that look like two"),
        pytest.param(b"diff --git a/x b/x\n" * 13_000, id="headers"),
        pytest.param(b"diff --git a/x b/x\nindex " + b"0" * 250_000 + b"\n", id="long id"),
        pytest.param(SIDES + b"@@ -" + b"1" * 250_000 + b" +1 @@\n", id="long number"),
        pytest.param(SIDES + b"@@ -1 +1 @@\n-a\n" + MARK * 9_000, id="marks"),
        pytest.param(b"\n" * 262_000, id="nothing"),
    ],
)
def test_hostile_text_is_refused_soon(store: BlobStore, patch: bytes) -> None:
    assert seconds(tree_of(store, {"x": b"a\n"}), patch, "patch_malformed") < SOON / 4
