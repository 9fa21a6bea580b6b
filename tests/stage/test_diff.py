"""The outgoing patch: stock git and our own applier make the same tree of it."""

import os
import random
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.diff import TreeChange, changes, make_patch
from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import RESULT_BOUNDS, PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.store import BlobStore
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE
from tests.stage.patches import (
    Exact,
    exact,
    files_of,
    git_applies,
    git_diff,
    scratch_store,
    tree_of,
)

LINES = st.lists(
    st.sampled_from(
        [b"", b"a", b"b", b"a b\t", b" lead", b"-", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"\\",
         b"\\ No newline at end of file", b"diff --git a/x b/x", b"crlf\r", b"ff\x0c", b"cr\rin",
         "sep\u2028".encode(), b"\xe4\xf6 latin", b"$& \\1 %s {}", b"\x1b[31m", b"\xef\xbb\xbf"]
    ),
    max_size=14,
)  # fmt: skip
TEXT = st.builds(lambda lines, end: b"\n".join(lines) + end, LINES, st.sampled_from([b"", b"\n"]))
BINARY = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda text, at: text[:at] + b"\0" + text[at:], TEXT, st.integers(0, 40)),
    st.builds(lambda seed, cut: random.Random(seed).randbytes(3000)[cut:], st.integers(0, 3),
              st.integers(0, 300)),
)  # fmt: skip
MODES = st.sampled_from([MODE_FILE, MODE_EXECUTABLE])
NAMES = st.sampled_from(
    ["a", "b.txt", "x y", "x b/y", "ä.txt", 'q"uote', "d/one", "d/two", "d/e/f", "t", "t/under",
     "trailing ", " leading", "日本/語.md", "a/b/c", "dev/null", "-dash", "@@ -1 +1 @@", "%s$&"]
)  # fmt: skip


def without_clashes(files: Exact) -> Exact:
    """``files`` without those that need a folder where another is a file."""
    return {
        path: file
        for path, file in files.items()
        if not any(path != other and path.startswith(other + "/") for other in files)
    }


TREES = st.dictionaries(NAMES, st.tuples(st.one_of(TEXT, BINARY), MODES), max_size=6).map(
    without_clashes
)


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def check(store: BlobStore, before: Exact, after: Exact, *, utf8: bool = False) -> bytes:
    old, new = tree_of(store, before), tree_of(store, after)
    patch = make_patch(old, new, utf8=utf8)
    if old.digest == new.digest:
        assert patch == b""
        return patch
    assert apply_plan(parse_patch(patch, bounds=RESULT_BOUNDS), old).digest == new.digest
    assert git_applies(before, patch) == after
    return patch


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=TREES, after=TREES)
def test_git_and_we_make_the_new_tree_of_any_pair(
    store: BlobStore, before: Exact, after: Exact
) -> None:
    check(store, before, after)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=TREES, edits=TREES, kept=st.sets(NAMES))
def test_small_edits_of_a_tree_survive_too(
    store: BlobStore, before: Exact, edits: Exact, kept: set[str]
) -> None:
    after = without_clashes({path: file for path, file in before.items() if path in kept} | edits)
    check(store, before, after)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=TREES, after=TREES)
def test_a_patch_for_a_text_field_is_utf8(store: BlobStore, before: Exact, after: Exact) -> None:
    check(store, before, after, utf8=True).decode()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=TREES, after=TREES, renames=st.sampled_from(["--no-renames", "-M", "-C", "-C -C"]))
def test_what_git_writes_we_apply(
    store: BlobStore, before: Exact, after: Exact, renames: str
) -> None:
    patch = git_diff(before, after, *renames.split())
    if patch:
        plan = parse_patch(patch, bounds=RESULT_BOUNDS)
        assert files_of(apply_plan(plan, tree_of(store, before))) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"e": b""}, id="empty file added"),
        pytest.param({"e": b""}, {}, id="empty file deleted"),
        pytest.param({"e": b""}, {"e": b"x\n"}, id="empty file filled"),
        pytest.param({"e": b"x\n"}, {"e": b""}, id="file emptied"),
        pytest.param({"e": b"\0"}, {"e": b""}, id="binary file emptied"),
        pytest.param({"a": (b"x", MODE_FILE)}, {"a": (b"x", MODE_EXECUTABLE)}, id="mode"),
        pytest.param({"a": (b"x", MODE_EXECUTABLE)}, {"a": (b"y\0", MODE_FILE)}, id="mode, binary"),
        pytest.param({"t": b"1\n"}, {"t/u": b"1\n"}, id="file to folder"),
        pytest.param({"t/u": b"1\n"}, {"t": b"1\n"}, id="folder to file"),
        pytest.param({"t": b"\0"}, {"t/u/v": b"\0"}, id="binary file to folder"),
        pytest.param({"a": b"x" * 9000 + b"\0\n"}, {"a": b"x" * 9000 + b"\0\ny"}, id="late NUL"),
        pytest.param({"a": "ä".encode("utf-16")}, {"a": "ö".encode("utf-16")}, id="UTF-16"),
        pytest.param({"a": b"\r\n1\r\n"}, {"a": b"\r\n2\r\n3\n"}, id="line ends"),
        pytest.param({"a": b"one\rtwo\rthree"}, {"a": b"one\rTWO\rthree"}, id="CR only"),
        pytest.param({"a": b"\xef\xbb\xbfx\n"}, {"a": b"x\n"}, id="byte order mark"),
    ],
)
def test_a_named_difference_survives(store: BlobStore, before: Exact, after: Exact) -> None:
    check(store, exact(before), exact(after))
    check(store, exact(before), exact(after), utf8=True)


def test_small_edits_of_large_binary_files_go_as_deltas(store: BlobStore) -> None:
    data = random.Random(5).randbytes(3_000_000)
    changed = data[:1_000_000] + b"hello" + data[1_000_010:] + b"end"
    patch = check(store, {"a": (data, MODE_FILE)}, {"a": (changed, MODE_FILE)})
    assert b"\ndelta " in patch
    assert len(patch) < 10_000


def test_a_patch_above_its_bound_is_refused(store: BlobStore) -> None:
    data = random.Random(6).randbytes(8 * 1024 * 1024)
    with pytest.raises(PatchRefusal) as refused:
        make_patch(tree_of(store, {}), tree_of(store, {"a": data}))
    assert refused.value.code == "payload_too_large"


def test_changes_name_each_path_once_and_sorted(store: BlobStore) -> None:
    before = {"a": b"1", "b": b"2", "c/d": b"3", "z": b"4"}
    after = {"a": b"1", "b": (b"2", MODE_EXECUTABLE), "c/d": b"33", "ä": b"5"}

    assert changes(tree_of(store, before), tree_of(store, after)) == (
        TreeChange("b", "mode"),
        TreeChange("c/d", "modified"),
        TreeChange("z", "deleted"),
        TreeChange("ä", "added"),
    )


def test_patch_bytes_do_not_depend_on_configuration(
    store: BlobStore, tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = tree_of(store, {"a b": b"1\n2\n3\n"}), tree_of(store, {"a b": b"1\n3\n"})
    plain = make_patch(before, after)
    configuration = os.path.join(tmp_path, "config")
    for key, value in (
        ("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"), ("diff.context", "0"),
        ("core.quotePath", "false"), ("diff.algorithm", "patience"), ("color.ui", "always"),
    ):  # fmt: skip
        subprocess.run(["git", "config", "--file", configuration, key, value], check=True)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", configuration)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert make_patch(before, after) == plain


def test_names_are_quoted_as_git_quotes_them(store: BlobStore) -> None:
    before: Exact = {}
    after = exact({"ä b/c": b"1\n", 'q"': b"2\n", "plain": b"3\n", "s p": b"4\n"})

    assert make_patch(tree_of(store, before), tree_of(store, after)) == git_diff(before, after)
