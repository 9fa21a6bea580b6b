"""The index reader agrees with libgit2 and stock git, and refuses what it cannot understand."""

from hashlib import sha1
from pathlib import Path

import pygit2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.stage.index_file import Index, IndexBytes, parse_index, read_index
from protocol.errors import Refusal
from tests.stage.repositories import git, repository, write

NAME = st.text(st.sampled_from("ab-.é /"), min_size=1, max_size=12)
NAMES = st.sets(NAME.filter(lambda name: _is_path(name)), min_size=1, max_size=25)
FILES = {"a": b"a", "a-b/c": b"c", "a.d/x/y": b"y", "b/x": b"x", "b/x.y/z": b"z", "é/é": b"e"}


def _is_path(name: str) -> bool:
    return all(part.strip("./ ") for part in name.split("/"))


def paths_of(index: Index) -> dict[str, tuple[int, bytes, int, int]]:
    return {
        folder.prefix + name: (row.mode, row.oid, row.size, row.modified)
        for folder in index.folders.values()
        for name, row in folder.rows.items()
    }


def as_libgit2_reads_it(checkout: Path) -> dict[str, tuple[int, bytes]]:
    index = pygit2.Repository(str(checkout)).index
    return {entry.path: (int(entry.mode), entry.id.raw) for entry in index}


def sealed(body: bytes) -> IndexBytes:
    return IndexBytes(body + sha1(body).digest(), 0)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(names=NAMES, version=st.sampled_from(["2", "4"]))
def test_every_row_is_what_libgit2_reads(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], version: str
) -> None:
    checkout = repository(tmp_path_factory.mktemp("c"), {})
    kept = {
        name: name.encode()
        for name in names
        if not any(other != name and other.startswith(name + "/") for other in names)
    }
    write(checkout, kept)
    git(checkout, "add", "-A", "-f")
    git(checkout, "update-index", "--index-version", version)
    index = parse_index(read_index(checkout / ".git/index"))
    rows = paths_of(index)
    assert {path: row[:2] for path, row in rows.items()} == as_libgit2_reads_it(checkout)
    for path, (_, _, size, modified) in rows.items():
        found = (checkout / path).stat()
        assert (size, modified) == (found.st_size, found.st_mtime_ns)
    assert index.tree_ids()[""].hex() == git(checkout, "write-tree").strip()


def test_folder_ids_are_those_of_git(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", FILES)
    (checkout / "link").symlink_to("a")
    (checkout / "b/run").write_bytes(b"#!")
    (checkout / "b/run").chmod(0o755)
    git(checkout, "add", "-A")
    (checkout / "new/only").mkdir(parents=True)
    (checkout / "new/only/intended").write_bytes(b"")
    git(checkout, "add", "-N", "new/only/intended")
    ids = parse_index(read_index(checkout / ".git/index")).tree_ids()
    tree = git(checkout, "write-tree").strip()
    assert ids.pop("").hex() == tree
    listed = git(checkout, "ls-tree", "-r", "-t", "-z", tree).split("\0")
    folders = [line.split() for line in listed if " tree " in line]
    assert {path: oid.hex() for path, oid in ids.items()} == {line[3]: line[2] for line in folders}


def test_flags_are_read_in_version_3(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", FILES)
    git(checkout, "update-index", "--skip-worktree", "b/x")
    git(checkout, "update-index", "--assume-unchanged", "a")
    (checkout / "n").write_bytes(b"")
    git(checkout, "add", "-N", "n")
    for version in ("3", "4"):
        git(checkout, "update-index", "--index-version", version)
        folders = parse_index(read_index(checkout / ".git/index")).folders
        assert folders["b"].rows["x"].from_index
        assert folders[""].rows["a"].from_index
        assert folders[""].rows["n"].intent_to_add
        assert folders["a-b"].rows["c"].marks == 0


def test_an_absent_index_is_empty_and_an_index_without_checksum_is_one(tmp_path: Path) -> None:
    assert paths_of(parse_index(read_index(tmp_path / "none"))) == {}
    checkout = repository(tmp_path / "c", FILES)
    data = (checkout / ".git/index").read_bytes()
    without = IndexBytes(data[:-20] + bytes(20), 0)
    assert paths_of(parse_index(without)).keys() == FILES.keys()


def test_an_index_cut_anywhere_or_with_any_byte_changed_is_refused(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", FILES)
    data = (checkout / ".git/index").read_bytes()
    for at in range(1, len(data)):
        with pytest.raises(Refusal):
            parse_index(IndexBytes(data[:at], 0))
        with pytest.raises(Refusal):
            parse_index(IndexBytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 0))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_sealed_index_of_any_bytes_is_read_or_refused(data: st.DataObject) -> None:
    body = bytearray(INDEX)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["set", "cut", "add"])):
            case "set":
                body[at] = data.draw(st.integers(0, 255))
            case "cut":
                del body[at : at + data.draw(st.integers(1, 80))]
            case _:
                body[at:at] = data.draw(st.binary(max_size=80))
        body = body or bytearray(b"D")
    try:
        index = parse_index(sealed(bytes(body)))
    except Refusal:
        return
    assert not any("\0" in path for path in paths_of(index))
    assert len(index.tree_ids()[""]) == 20


def test_names_that_cannot_stand_together_are_refused() -> None:
    for names in ([b"a", b"a"], [b"a", b"a/b"], [b"a/b", b"a"], [b"a\0b"]):
        with pytest.raises(Refusal):
            parse_index(sealed(_index(names)))
    assert paths_of(parse_index(sealed(_index([b"a", b"b/c"])))).keys() == {"a", "b/c"}


def test_what_a_reader_must_understand_is_refused_and_what_it_may_skip_is_skipped() -> None:
    may = b"ZZZZ\0\0\0\4wxyz"
    assert paths_of(parse_index(sealed(_index([b"a"]) + may))).keys() == {"a"}
    for bad in (b"link\0\0\0\4wxyz", b"sdir\0\0\0\0", b"ZZZZ\0\0\0\5wxyz", b"ZZ"):
        with pytest.raises(Refusal):
            parse_index(sealed(_index([b"a"]) + bad))


def test_a_split_index_is_refused(tmp_path: Path) -> None:
    checkout = repository(tmp_path / "c", FILES)
    git(checkout, "update-index", "--split-index")
    with pytest.raises(Refusal):
        parse_index(read_index(checkout / ".git/index"))


def _index(names: list[bytes]) -> bytes:
    entries = b""
    for name in names:
        entry = bytes(24) + (0o100644).to_bytes(4) + bytes(12) + b"\7" * 20
        entry += len(name).to_bytes(2) + name
        entries += entry + bytes(8 - len(entry) % 8)
    return b"DIRC" + (2).to_bytes(4) + len(names).to_bytes(4) + entries


INDEX = _index([b"a", b"b/c", b"b/d/e", b"f-g"]) + b"TREE\0\0\0\4wxyz"
