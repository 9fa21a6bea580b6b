"""Windows of files: whole lines, exact totals, nothing cut without saying so."""

import base64
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.stage.reading import (
    MAX_LINE_BYTES,
    ReadFailure,
    list_files,
    read_bytes,
    read_text,
)
from broker.stage.store import BlobStore, blob_digest
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


TEXT = st.text(st.sampled_from(["a", "é", "😀", "\n", "\r", "\f", "\u2028", "\ufeff"]), max_size=60)


@settings(max_examples=200, deadline=None)
@given(text=TEXT, size=st.integers(4, 30), lines=st.none() | st.integers(1, 4))
def test_windows_put_together_are_the_file(
    store: BlobStore, text: str, size: int, lines: int | None
) -> None:
    data = text.encode()
    tree = tree_of(store, {"f": data})
    expected = data.split(b"\n")
    expected = [line + b"\n" for line in expected[:-1]] + ([expected[-1]] if expected[-1] else [])
    start = 1
    got: list[str] = []
    cut = False
    while True:
        window = read_text(tree, "f", start_line=start, max_lines=lines, max_bytes=size)
        assert len(window.text.encode()) <= size
        assert window.total_bytes == len(data)
        assert window.total_lines == len(expected)
        assert window.digest == "sha256:" + blob_digest(data).hex()
        assert lines is None or window.lines <= lines
        if window.lines == 0:
            break
        cut = cut or window.cut_lines > 0
        got.append(window.text)
        start += window.lines
    assert start == len(expected) + 1
    assert cut == any(len(line) > size for line in expected)
    if not cut:
        assert "".join(got) == text


def test_a_long_line_is_cut_and_counted(store: BlobStore) -> None:
    long = "é" * MAX_LINE_BYTES
    tree = tree_of(store, {"f": f"one\n{long}\nthree".encode()})
    window = read_text(tree, "f", max_bytes=10 * MAX_LINE_BYTES)
    assert window.text == f"one\n{'é' * (MAX_LINE_BYTES // 2)}\nthree"
    assert (window.lines, window.cut_lines, window.total_lines) == (3, 1, 3)


def test_text_that_is_not_utf8_is_read_as_bytes_only(store: BlobStore) -> None:
    data = b"\xe9t\xe9\nplain\n"
    tree = tree_of(store, {"f": data})
    with pytest.raises(ReadFailure) as caught:
        read_text(tree, "f", start_line=2, max_bytes=100)
    assert caught.value.code == "not_text"
    window = read_bytes(tree, "f", offset=2, max_bytes=3)
    assert (window.data, window.total_bytes) == (data[2:5], len(data))
    assert read_bytes(tree, "f", offset=100, max_bytes=3).data == b""
    assert base64.b64encode(read_bytes(tree, "f", max_bytes=1).data) == b"6Q=="


def test_an_alias_of_a_path_is_not_found(store: BlobStore) -> None:
    tree = tree_of(store, {"d/f": b"x"})
    for alias in ("d", "d/", "./d/f", "d//f", "D/f", "/d/f", "d/f/", "d/f\0", "", "..", "d/../d/f"):
        with pytest.raises(ReadFailure) as caught:
            read_text(tree, alias, max_bytes=10)
        assert caught.value.code == "not_found"


PATHS = st.lists(st.text("ab/é", min_size=1, max_size=6), unique=True, max_size=20).map(
    lambda paths: [path.replace("/", "-") + "/f" for path in paths]
)


@settings(max_examples=100, deadline=None)
@given(
    paths=PATHS, prefix=st.sampled_from(["", "a", "ab", "é", "a/", "z"]), limit=st.integers(1, 5)
)
def test_pages_put_together_are_the_listing(
    store: BlobStore, paths: list[str], prefix: str, limit: int
) -> None:
    tree = tree_of(store, dict.fromkeys(paths, b"x"))
    expected = sorted((path for path in set(paths) if path.startswith(prefix)), key=str.encode)
    got: list[str] = []
    cursor = None
    while True:
        page = list_files(tree, prefix=prefix, cursor=cursor, limit=limit)
        assert len(page.files) <= limit
        assert page.total == len(expected)
        got += [file.path for file in page.files]
        cursor = page.cursor
        if cursor is None:
            break
    assert got == expected
