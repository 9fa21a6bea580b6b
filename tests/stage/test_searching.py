"""Search agrees with Python's own search line by line, in linear time and within its bounds."""

import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.stage.searching import MAX_MATCH_BYTES, MAX_QUERY_BYTES, SearchFailure, search
from broker.stage.store import BlobStore
from broker.stage.tree import MODE_FILE, Entry, StagedTree
from protocol.ids import RepoPath


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobStore]:
    store = BlobStore.open(tmp_path_factory.mktemp("scratch"))
    yield store
    store.close()


def tree_of(store: BlobStore, files: dict[str, bytes]) -> StagedTree:
    return StagedTree.build(
        store, {RepoPath(path): Entry(MODE_FILE, store.put(data)) for path, data in files.items()}
    )


TEXT = st.text("abé.\n ", max_size=30)
PATTERNS = ["a", "ab", "^a", "b$", "^$", "a.b", "[^a]b", "(a|b)+é", "a*", r"\s", "é"]


@settings(max_examples=200, deadline=None)
@given(
    files=st.dictionaries(st.sampled_from(["x", "y/z", "y"]), TEXT, max_size=2),
    query=st.sampled_from(PATTERNS),
    regex=st.booleans(),
)
def test_every_matching_line_is_found(
    store: BlobStore, files: dict[str, str], query: str, regex: bool
) -> None:
    if "y" in files and "y/z" in files:
        return
    tree = tree_of(store, {path: text.encode() for path, text in files.items()})
    pattern = re.compile(query if regex else re.escape(query))
    expected = [
        (path, number, line)
        for path in sorted(files)
        for number, line in enumerate(files[path].removesuffix("\n").split("\n"), 1)
        if files[path] and pattern.search(line)
    ]
    found = search(tree, query, regex=regex, max_matches=1000, max_bytes=10_000)
    assert [(hit.path, hit.line, hit.text) for hit in found.matches] == expected
    assert found.complete
    assert found.bytes_examined == tree.bytes


def test_bounds_end_a_search_and_say_so(store: BlobStore) -> None:
    tree = tree_of(store, {"a": b"x\n" * 10, "b": b"x\n" * 10})
    assert search(tree, "x", max_matches=20, max_bytes=100).complete
    some = search(tree, "x", max_matches=5, max_bytes=100)
    assert (len(some.matches), some.complete) == (5, False)
    few = search(tree, "x", max_matches=100, max_bytes=30)
    assert (len(few.matches), few.complete, few.bytes_examined) == (10, False, 20)
    assert [
        hit.path for hit in search(tree, "x", prefix="b", max_matches=1, max_bytes=99).matches
    ] == ["b"]


def test_binary_files_are_skipped_and_counted(store: BlobStore) -> None:
    tree = tree_of(store, {"a": b"x\0x", "b": b"x", "latin": b"x\xe9"})
    found = search(tree, "x", max_matches=9, max_bytes=99)
    assert (found.files_searched, found.files_skipped) == (2, 1)
    assert [hit.text for hit in found.matches] == ["x", "x\ufffd"]


def test_a_long_line_is_cut_around_the_match(store: BlobStore) -> None:
    tree = tree_of(store, {"a": ("é" * 5000 + "needle" + "é" * 5000).encode()})
    (hit,) = search(tree, "needle", max_matches=9, max_bytes=99_999).matches
    assert hit.cut
    assert "needle" in hit.text
    assert len(hit.text.encode()) <= MAX_MATCH_BYTES


@pytest.mark.parametrize(
    ("query", "regex", "code"),
    [
        ("(", True, "query_invalid"),
        ("(a)\\1", True, "query_invalid"),
        ("a(?=b)", True, "query_invalid"),
        ("", False, "query_invalid"),
        ("a\nb", False, "query_invalid"),
        ("\ud800", False, "query_invalid"),
        ("a" * (MAX_QUERY_BYTES + 1), False, "query_too_large"),
        ("(a{1000}){1000}", True, "query_invalid"),
    ],
)
def test_a_query_that_cannot_be_run_is_refused_without_its_text(
    store: BlobStore, query: str, regex: bool, code: str
) -> None:
    with pytest.raises(SearchFailure) as caught:
        search(tree_of(store, {"a": b"x"}), query, regex=regex, max_matches=1, max_bytes=1)
    assert caught.value.code == code
    assert query == "" or query not in str(caught.value)


def test_no_pattern_takes_longer_than_its_input(store: BlobStore) -> None:
    tree = tree_of(store, {"a": b"a" * 100_000 + b"\n"})
    start = time.perf_counter()
    search(tree, "(a*)*b", regex=True, max_matches=1, max_bytes=1_000_000)
    assert time.perf_counter() - start < 2


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(st.sampled_from([b"", b"ab", b"b" * 700, b"x a", b"a"]), max_size=400))
def test_slices_of_a_large_file_hide_no_line(store: BlobStore, lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    expected = [number for number, line in enumerate(data.split(b"\n"), 1) if b"a" in line]

    found = search(
        tree_of(store, {"x": data}), "a|^a$", regex=True, max_matches=1_000, max_bytes=1 << 30
    )

    assert [match.line for match in found.matches] == expected


def test_a_search_ends_at_its_time_and_says_so(store: BlobStore) -> None:
    tree = tree_of(store, {f"f{number}": b"line of text\n" * 20_000 for number in range(8)})
    ticks = iter(range(1_000))

    found = search(
        tree, "nothing", regex=True, max_matches=10, max_bytes=1 << 30,
        max_seconds=3, clock=lambda: float(next(ticks)),
    )  # fmt: skip

    assert not found.complete
    assert found.files_searched < 8
