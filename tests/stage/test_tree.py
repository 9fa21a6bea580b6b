"""The tree digest is git's own, stays so under change, and nothing changes a tree."""

import os
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.store import BlobStore, blob_digest
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry, StagedTree
from protocol.errors import Fault
from protocol.ids import RepoPath
from tests.stage.repositories import judged_digest

#: Names that sort differently as a file and as a folder, and beyond ASCII.
PARTS = ["a", "a.b", "a-b", "a0", "aa", "b", "é", "日本", "😀", " ", "-", "a b"]
PATHS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join)
FILES = st.dictionaries(
    PATHS,
    st.tuples(st.sampled_from([MODE_FILE, MODE_EXECUTABLE]), st.binary(max_size=40)),
    max_size=12,
)


def without_clashes(files: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """A path that is also a folder of another is left out."""
    folders = {path[:at] for path in files for at in range(len(path)) if path[at] == "/"}
    return {path: value for path, value in files.items() if path not in folders}


def tree_of(store: BlobStore, files: dict[str, tuple[int, bytes]]) -> StagedTree:
    return StagedTree.build(
        store,
        {RepoPath(path): Entry(mode, store.put(data)) for path, (mode, data) in files.items()},
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobStore]:
    store = BlobStore.open(tmp_path_factory.mktemp("scratch"))
    yield store
    store.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=FILES.map(without_clashes))
def test_stock_git_computes_the_same_digest(
    store: BlobStore, tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[int, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("judge") / "repository"
    assert tree_of(store, files).digest == judged_digest(files, folder)


@settings(max_examples=300, deadline=None)
@given(before=FILES.map(without_clashes), after=FILES.map(without_clashes))
def test_replacing_gives_what_building_gives(
    store: BlobStore, before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]
) -> None:
    old, new = tree_of(store, before), tree_of(store, after)
    changes: dict[RepoPath, Entry | None] = {item.path: item.after for item in old.differences(new)}
    digest = old.digest
    made = old.replace(changes)
    assert made == new
    assert made.digest == new.digest
    assert (made.files, made.bytes) == (new.files, new.bytes)
    assert tuple(made.paths) == tuple(sorted(after, key=str.encode))
    assert old.digest == digest
    assert tuple(old.paths) == tuple(sorted(before, key=str.encode))
    assert {item.path for item in old.differences(new)} == {
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    }


@settings(max_examples=50, deadline=None)
@given(files=FILES.map(without_clashes))
def test_what_was_built_reads_back(store: BlobStore, files: dict[str, tuple[int, bytes]]) -> None:
    tree = tree_of(store, files)
    assert {path: (tree.get(path).mode, tree.read(path)) for path in tree.paths} == files  # type: ignore[union-attr]
    assert tree.files == len(files)
    assert tree.bytes == sum(len(data) for _, data in files.values())
    for path in files:
        assert tree.is_directory(path) is False
        assert tree.is_directory(path.rpartition("/")[0])
        assert tree.get(path + "/") is None
        assert tree.get("./" + path) is None
        assert tree.get("/" + path) is None
    with pytest.raises(KeyError):
        tree.read("absent")


def test_a_path_is_not_both_a_file_and_a_folder(store: BlobStore) -> None:
    entry = Entry(MODE_FILE, store.put(b"x"))
    a, below = RepoPath("a"), RepoPath("a/b")
    with pytest.raises(ValueError, match="both"):
        StagedTree.build(store, {a: entry, below: entry})
    with pytest.raises(ValueError, match="both"):
        StagedTree.build(store, {below: entry, a: entry})
    tree = StagedTree.build(store, {a: entry})
    with pytest.raises(ValueError, match="both"):
        tree.replace({below: entry})
    with pytest.raises(KeyError):
        tree.replace({RepoPath("b"): None})
    moved = tree.replace({a: None, below: entry})
    assert moved.paths == ("a/b",)
    assert moved.replace({below: None, a: entry}) == tree
    assert moved.replace({below: None}).files == 0


def test_an_empty_tree_has_the_id_that_git_gives_it(store: BlobStore) -> None:
    expected = "sha256:" + sha256(b"tree 0\0").hexdigest()
    assert StagedTree.build(store, {}).digest == expected


def test_materializing_writes_fresh_files_of_the_right_mode(
    store: BlobStore, tmp_path: Path
) -> None:
    files = {"a/b/c.sh": (MODE_EXECUTABLE, b"#!"), "a/d": (MODE_FILE, b""), "é": (MODE_FILE, b"\0")}
    tree = tree_of(store, files)
    mask = os.umask(0o077)
    try:
        tree.materialize(tmp_path / "out")
    finally:
        os.umask(mask)
    for path, (mode, data) in files.items():
        found = (tmp_path / "out" / path).stat()
        assert found.st_mode & 0o777 == mode & 0o777
        assert found.st_nlink == 1
        assert (tmp_path / "out" / path).read_bytes() == data
    assert (tmp_path / "out" / "a").stat().st_mode & 0o777 == 0o755


def test_materializing_never_follows_a_link_or_overwrites(store: BlobStore, tmp_path: Path) -> None:
    tree = tree_of(store, {"a/b": (MODE_FILE, b"new")})
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(Fault):
        tree.materialize(tmp_path / "link")
    full = tmp_path / "full"
    full.mkdir()
    (full / "a").symlink_to(outside)
    with pytest.raises(Fault):
        tree.materialize(full)
    assert list(outside.iterdir()) == []


def test_the_store_keeps_the_same_content_once_and_leaves_no_file(tmp_path: Path) -> None:
    store = BlobStore.open(tmp_path)
    one, other = store.put(b"content"), store.put(b"content")
    assert one == other
    assert one.digest == blob_digest(b"content")
    assert store.read(one.oid) == b"content"
    assert list(tmp_path.iterdir()) == []
    store.close()
    store.close()


def test_bytes_that_are_not_those_of_the_digest_are_never_given(tmp_path: Path) -> None:
    store = BlobStore.open(tmp_path)
    blob = store.put(b"content")
    os.pwrite(store._descriptor, b"C", 0)
    with pytest.raises(Fault):
        store.load(blob)
    store.close()


def test_contents_that_come_together_are_kept_as_if_one_by_one(tmp_path: Path) -> None:
    store = BlobStore.open(tmp_path)
    contents = [b"a", b"", os.urandom(700_000), b"a", os.urandom(700_000), b"b" * 3_000_000, b"c"]
    store.put(b"c")
    blobs = store.put_all(contents)
    assert blobs == [store.put(data) for data in contents]
    assert [store.load(blob) for blob in blobs] == contents
    assert [store.read(blob.oid) for blob in blobs] == contents
    assert store.put_all([]) == []
    store.close()


def test_a_full_disk_is_a_fault_and_changes_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small],
        check=False,
        capture_output=True,
    ).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        store = BlobStore.open(small)
        kept = store.put(b"kept")
        with pytest.raises(Fault) as caught:
            store.put_all([b"small", *(os.urandom(1024 * 512) for _ in range(4))])
        assert caught.value.code == "store_unwritable"
        assert store.load(kept) == b"kept"
        after = store.put(b"after")
        assert store.load(after) == b"after"
        store.close()
    finally:
        subprocess.run(["umount", small], check=True)
