"""What stock git, libgit2 or unidiff get wrong, each shown doing so, and refused or done right."""

from collections.abc import Iterator
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ApplyLocation
from unidiff import PatchSet

from broker.stage.store import BlobStore
from broker.stage.tree import MODE_EXECUTABLE
from tests.stage.patches import (
    Exact,
    Files,
    code,
    exact,
    files_of,
    git_applies,
    patched,
    scratch_store,
    tree_of,
)
from tests.stage.repositories import git

HUNK = b"@@ -1 +1 @@\n-a\n+b\n"
COPY = b"diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n"
EMPTY = b"diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n"
HIDDEN = b"--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n a\n+b\n+hidden\n"


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def libgit2_applies(folder: Path, before: Files, patch: bytes) -> Exact | None:
    """What libgit2 makes of the files of a working tree; ``None`` when it refuses."""
    git(folder, "init", "-q")
    for path, (data, mode) in exact(before).items():
        Path(folder, path).write_bytes(data)
        Path(folder, path).chmod(mode & 0o777)
    git(folder, "add", "-A")
    try:
        pygit2.Repository(str(folder)).apply(pygit2.Diff.parse_diff(patch), ApplyLocation.BOTH)
    except (pygit2.GitError, KeyError):
        return None
    return {
        file.name: (file.read_bytes(), 0o100000 | file.stat().st_mode & 0o755)
        for file in folder.iterdir()
        if file.is_file()
    }


def test_unidiff_leaves_quoted_names_quoted(store: BlobStore) -> None:
    patch = b'--- "a/\\303\\244"\n+++ "b/\\303\\244"\n' + HUNK
    assert PatchSet(patch.decode())[0].path != "ä"
    assert files_of(patched(tree_of(store, {"ä": b"a\n"}), patch)) == exact({"ä": b"b\n"})


def test_unidiff_finds_nothing_in_prose(store: BlobStore) -> None:
    assert list(PatchSet("I changed the file.\n")) == []
    assert code(tree_of(store, {"x": b"a\n"}), b"I changed the file.\n") == "patch_malformed"


def test_unidiff_passes_paths_that_lead_out(store: BlobStore) -> None:
    patch = b"--- a/../../x\n+++ b/../../x\n" + HUNK
    assert PatchSet(patch.decode())[0].path == "../../x"
    assert code(tree_of(store, {"x": b"a\n"}), patch) == "patch_path_not_canonical"


def test_unidiff_ignores_a_rename_that_disagrees(store: BlobStore) -> None:
    patch = b"diff --git a/x b/x\nrename from x\nrename to y\n--- a/x\n+++ b/x\n" + HUNK
    assert PatchSet(patch.decode())[0].path == "x"
    assert code(tree_of(store, {"x": b"a\n"}), patch) == "patch_malformed"


def test_libgit2_deletes_the_source_of_a_copy(store: BlobStore, tmp_path: Path) -> None:
    before = {"x": b"a\n"}
    assert libgit2_applies(tmp_path, before, COPY) == exact({"y": b"a\n"})
    made = files_of(patched(tree_of(store, before), COPY))
    assert made == git_applies(before, COPY) == exact({"x": b"a\n", "y": b"a\n"})


def test_libgit2_cannot_read_an_empty_file_that_is_added(store: BlobStore) -> None:
    with pytest.raises(pygit2.GitError):
        pygit2.Diff.parse_diff(EMPTY)
    assert files_of(patched(tree_of(store, {}), EMPTY)) == exact({"e": b""})
    assert git_applies({}, EMPTY) == exact({"e": b""})


def test_libgit2_deletes_a_file_whose_content_is_another(store: BlobStore, tmp_path: Path) -> None:
    patch = b"diff --git a/x b/x\ndeleted file mode 100644\nindex 7898192..0000000\n"
    patch += b"--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-other\n"
    assert libgit2_applies(tmp_path, {"x": b"a\n"}, patch) == {}
    assert code(tree_of(store, {"x": b"a\n"}), patch) == "patch_conflict"


def test_libgit2_takes_the_executable_bit_away(store: BlobStore, tmp_path: Path) -> None:
    before: Files = {"x": (b"a\n", MODE_EXECUTABLE)}
    patch = b"diff --git a/x b/x\nindex 7898192..6178079\n--- a/x\n+++ b/x\n" + HUNK
    kept = exact({"x": (b"b\n", MODE_EXECUTABLE)})
    assert libgit2_applies(tmp_path, before, patch) != kept
    assert files_of(patched(tree_of(store, before), patch)) == kept


def test_libgit2_takes_hunks_out_of_order(store: BlobStore, tmp_path: Path) -> None:
    content = b"".join(b"%d\n" % number for number in range(1, 31))
    late = b"@@ -20,3 +20,3 @@\n 20\n-21\n+x\n 22\n"
    early = b"@@ -5,3 +5,3 @@\n 5\n-6\n+y\n 7\n"
    patch = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n" + late + early
    assert libgit2_applies(tmp_path, {"x": content}, patch) is not None
    assert code(tree_of(store, {"x": content}), patch) == "patch_malformed"


def test_everyone_drops_lines_that_a_small_count_hides(store: BlobStore) -> None:
    short = HIDDEN.replace(b"+1,2", b"+1,1").replace(b" a\n+b\n", b"-a\n+b\n")
    assert git_applies({"x": b"a\n"}, short) == exact({"x": b"b\n"})
    assert PatchSet(short.decode())[0].added == 1
    assert code(tree_of(store, {"x": b"a\n"}), short) == "patch_malformed"


def test_git_obeys_a_side_that_the_header_does_not_name(store: BlobStore) -> None:
    before = {"x": b"a\n", "e": b"e\n"}
    patch = b"diff --git a/x b/x\n--- a/x\n+++ b/e\n" + HUNK
    assert git_applies(before, patch) == exact({"e": b"b\n"})
    assert code(tree_of(store, before), patch) == "patch_malformed"


def test_git_takes_the_mode_of_a_setuid_program(store: BlobStore) -> None:
    patch = b"diff --git a/x b/x\nold mode 100644\nnew mode 104755\n"
    assert git_applies({"x": b"a\n"}, patch) is not None
    assert code(tree_of(store, {"x": b"a\n"}), patch) == "patch_mode_forbidden"


def test_a_link_of_the_checkout_is_no_file_of_the_stage(store: BlobStore) -> None:
    patch = b"diff --git a/link b/link\n--- a/link\n+++ b/link\n@@ -1 +1 @@\n-x\n"
    patch += b"\\ No newline at end of file\n+/etc\n\\ No newline at end of file\n"
    assert code(tree_of(store, {"x": b"a\n"}), patch) == "patch_conflict"
