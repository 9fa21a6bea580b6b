"""Faults that other tools had in applying patches, each tried on ours.

Each test is named for what went wrong elsewhere, or for the rule that prevents it. What
an accepted patch means is what stock git makes of it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.stage.begin_patch import parse_any_patch
from broker.stage.confinement import confine
from broker.stage.diff import make_patch
from broker.stage.edits import Edit, plan_edits
from broker.stage.landing import land
from broker.stage.patching import apply_plan
from broker.stage.snapshot import stage_checkout
from broker.stage.store import BlobStore, blob_digest
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, Entry, StagedTree
from protocol.errors import Refusal
from protocol.ids import Digest, RepoPath
from tests.stage.patches import (
    Files,
    code,
    exact,
    files_of,
    git_applies,
    patched,
    refusal,
    scratch_store,
    tree_of,
)
from tests.stage.repositories import git, repository, write

MARK = b"\\ No newline at end of file\n"


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def sides(path: str, body: bytes) -> bytes:
    name = path.encode()
    return b"--- a/%b\n+++ b/%b\n%b" % (name, name, body)


def applied(store: BlobStore, before: Files, patch: bytes) -> Files:
    """What our engine makes of it, which is what stock git makes of it."""
    made = files_of(patched(tree_of(store, before), patch))
    assert made == git_applies(before, patch)
    return made


ENDS = {"LF": (b"\n", b"\n"), "CRLF": (b"\r\n", b"\r\n"), "mixed": (b"\n", b"\r\n")}


@pytest.mark.parametrize("file_ends", ENDS)
@pytest.mark.parametrize("patch_ends", ENDS)
def test_line_ends_are_matched_exactly_and_kept(
    store: BlobStore, file_ends: str, patch_ends: str
) -> None:
    one, other = ENDS[file_ends]
    content = b"a" + one + b"b" + other + b"c" + one + b"d" + other
    one, other = ENDS[patch_ends]
    body = b" a%b-b%b+B%b c%b" % (one, other, other, one)
    patch = sides("x", b"@@ -1,3 +1,3 @@\n" + body)
    tree = tree_of(store, {"x": content})
    if file_ends == patch_ends:
        assert applied(store, {"x": content}, patch) == exact({"x": content.replace(b"b", b"B")})
    else:
        assert code(tree, patch) == "patch_conflict"


def test_a_file_of_carriage_returns_is_one_line(store: BlobStore) -> None:
    content = b"one\rtwo\rthree"
    patch = sides("x", b"@@ -1 +1 @@\n-%b\n%b+one\rTWO\rthree\n%b" % (content, MARK, MARK))
    assert applied(store, {"x": content}, patch) == exact({"x": b"one\rTWO\rthree"})
    assert code(tree_of(store, {"x": content}), sides("x", b"@@ -2 +2 @@\n-two\n+TWO\n")) == (
        "patch_conflict"
    )


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("line", ["first", "last"])
def test_the_end_of_a_file_is_kept_unless_the_patch_says_otherwise(
    store: BlobStore, line: str, marked: bool
) -> None:
    before: Files = {"x": b"1\n2\n3\n4\n5\n6\n7"}
    mark = MARK if marked else b""
    if line == "first":
        patch = sides("x", b"@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n")
        assert applied(store, before, patch) == exact({"x": b"one\n2\n3\n4\n5\n6\n7"})
        return
    patch = sides("x", b"@@ -4,4 +4,4 @@\n 4\n 5\n 6\n-7\n%b+seven\n%b" % (mark, mark))
    if marked:
        assert applied(store, before, patch) == exact({"x": b"1\n2\n3\n4\n5\n6\nseven"})
    else:
        assert code(tree_of(store, before), patch) == "patch_conflict"
        assert git_applies(before, patch) is None


def test_a_newline_is_added_and_taken_by_the_mark_alone(store: BlobStore) -> None:
    added = sides("x", b"@@ -1,2 +1,2 @@\n a\n-b\n%b+b\n" % MARK)
    taken = sides("x", b"@@ -1,2 +1,2 @@\n a\n-b\n+b\n%b" % MARK)
    assert applied(store, {"x": b"a\nb"}, added) == exact({"x": b"a\nb\n"})
    assert applied(store, {"x": b"a\nb\n"}, taken) == exact({"x": b"a\nb"})


def test_of_repeated_lines_the_stated_ones_are_changed(store: BlobStore) -> None:
    block = b"if x:\n    a\nend\n\n"
    before = {"x": block * 5}
    hunk = b"@@ -%d,4 +%d,4 @@\n if x:\n-    a\n+    b\n end\n \n"
    for number in range(5):
        line = number * 4 + 1
        made = applied(store, before, sides("x", hunk % (line, line)))
        parts = [block] * 5
        parts[number] = block.replace(b"a", b"b")
        assert made == exact({"x": b"".join(parts)})
    # Off by one, the five places are all as good: none of them is taken.
    for line in (2, 6, 16, 18):
        assert code(tree_of(store, before), sides("x", hunk % (line, line))) == "patch_conflict"


def test_an_insertion_at_the_end_goes_to_the_last_of_equal_places(store: BlobStore) -> None:
    before = {"x": b"a\nz\na\nz\n"}
    patch = sides("x", b"@@ -3,2 +3,3 @@\n a\n z\n+end\n")
    assert applied(store, before, patch) == exact({"x": b"a\nz\na\nz\nend\n"})


TAKEN: Files = {"x": b"x\n", "d/f": b"f\n", "y": (b"y\n", MODE_EXECUTABLE), "empty": b""}


@pytest.mark.parametrize(
    ("path", "expected"),
    [("x", "patch_conflict"), ("y", "patch_conflict"), ("empty", "patch_conflict"),
     ("d", "patch_path_collision"), ("d/f", "patch_conflict"), ("x/below", "patch_path_collision"),
     (".env", "patch_path_secret")],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["sides", "git", "empty", "rename", "copy", "begin"])
def test_nothing_is_added_over_what_is_there(
    store: BlobStore, dialect: str, path: str, expected: str
) -> None:
    before = {**TAKEN, "from": b"from\n"}
    name = path.encode()
    git_form = b"diff --git a/%b b/%b\nnew file mode 100644\n" % (name, name)
    create = b"--- /dev/null\n+++ b/%b\n@@ -0,0 +1 @@\n+new\n" % name
    move = b"diff --git a/from b/%b\n%%b from from\n%%b to %b\n" % (name, name)
    patch = {
        "sides": create,
        "git": git_form + create,
        "empty": git_form,
        "rename": move % (b"rename", b"rename"),
        "copy": move % (b"copy", b"copy"),
        "begin": b"*** Begin Patch\n*** Add File: %b\n+new\n*** End Patch\n" % name,
    }[dialect]
    tree = tree_of(store, before)
    if dialect != "begin":
        assert code(tree, patch) == expected
        assert expected == "patch_path_secret" or git_applies(before, patch) is None
        return
    refused = None
    try:
        plan = parse_any_patch(patch)
        confine(plan, tree)
        apply_plan(plan, tree)
    except Exception as error:
        refused = error
    assert getattr(refused, "code", None) == expected


def test_a_new_file_does_not_land_over_one_that_the_stage_left_out(tmp_path: Path) -> None:
    """What is filtered by its content has an ordinary name; an agent cannot know that."""
    checkout = repository(tmp_path / "c", {"a": b"a\n"})
    key = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB\n"
    write(checkout, {"notes.txt": key, "build/out.js": b"made\n"})
    (checkout / "link").symlink_to("a")
    (tmp_path / "scratch").mkdir()
    staged = stage_checkout(checkout, scratch=tmp_path / "scratch")
    assert set(staged.tree.paths) == {"a"}
    for path in ("notes.txt", "link"):
        patch = b"--- /dev/null\n+++ b/%b\n@@ -0,0 +1 @@\n+new\n" % path.encode()
        after = patched(staged.tree, patch)
        with pytest.raises(Refusal) as caught:
            land(checkout, staged.tree, after)
        assert caught.value.code == "checkout_changed"
    assert (checkout / "notes.txt").read_bytes() == key
    assert (checkout / "link").is_symlink()
    assert (checkout / "a").read_bytes() == b"a\n"


def test_of_three_files_a_failing_second_is_named_and_none_is_changed(store: BlobStore) -> None:
    before = tree_of(store, dict.fromkeys(("a", "b", "c"), b"1\n"))
    change = b"@@ -1 +1 @@\n-%b\n+2\n"
    patch = b"".join(
        sides(name, change % old) for name, old in (("a", b"1"), ("b", b"9"), ("c", b"1"))
    )
    refused = refusal(before, patch)
    assert refused is not None
    assert (refused.code, refused.file, refused.hunk) == ("patch_conflict", 1, 0)
    assert (refused.expected, refused.found) == (b"9\n", b"1\n")
    moved = b"diff --git a/a b/b\nrename from a\nrename to b\n"
    good = b"diff --git a/c b/c\n" + sides("c", change % b"1")
    refused = refusal(before, good + moved)
    assert refused is not None
    assert (refused.code, refused.file) == ("patch_conflict", 1)


def test_a_patch_lands_in_a_checkout_inside_of_another(tmp_path: Path) -> None:
    """Where ``git apply`` would skip every path and say nothing."""
    outer = repository(tmp_path / "outer", {"x": b"outer\n", "inner/x": b"tracked outside\n"})
    inner = repository(outer / "inner", {"x": b"inner\n"})
    (tmp_path / "scratch").mkdir()
    staged = stage_checkout(inner, scratch=tmp_path / "scratch")
    after = patched(staged.tree, sides("x", b"@@ -1 +1 @@\n-inner\n+changed\n"))

    assert land(inner, staged.tree, after) == ("x",)

    assert (inner / "x").read_bytes() == b"changed\n"
    assert (outer / "x").read_bytes() == b"outer\n"
    assert git(inner, "status", "--porcelain") == " M x\n"


def test_a_copy_is_of_the_file_as_it_was_whatever_becomes_of_it(store: BlobStore) -> None:
    before = {"x": b"1\n2\n3\n4\n5\n"}
    copy = b"diff --git a/x b/y\nsimilarity index 80%\ncopy from x\ncopy to y\n"
    copy += b"--- a/x\n+++ b/y\n@@ -1,4 +1,4 @@\n 1\n-2\n+two\n 3\n 4\n"
    edit = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -2,4 +2,4 @@\n 2\n 3\n-4\n+four\n 5\n"
    expected = exact({"x": b"1\n2\n3\nfour\n5\n", "y": b"1\ntwo\n3\n4\n5\n"})
    for patch in (copy + edit, edit + copy):
        assert files_of(patched(tree_of(store, before), patch)) == expected
    assert git_applies(before, copy + edit) == expected


def test_a_mailed_patch_is_refused_and_its_diff_alone_is_taken(
    store: BlobStore, tmp_path: Path
) -> None:
    checkout = repository(tmp_path / "c", {"x": b"a\x0cb\r\n\xe2\x80\xa8\n1\n"})
    before = {"x": (checkout / "x").read_bytes()}
    write(checkout, {"x": b"a\x0cb\r\n\xe2\x80\xa8\n2\n"})
    git(checkout, "commit", "-q", "-a", "-m", "subject\n\nA body.\n---\nnotes")
    mail = git(checkout, "format-patch", "--stdout", "-1").encode()
    diff = git(checkout, "diff", "HEAD~", "HEAD").encode()
    tree = tree_of(store, before)

    assert code(tree, mail) == "patch_malformed"
    assert code(tree, diff + b"-- \n2.39.5\n\n") == "patch_malformed"
    assert applied(store, before, diff) == exact({"x": b"a\x0cb\r\n\xe2\x80\xa8\n2\n"})


OPAQUE = (
    b"$& \\1 $1 %s {} \\n \\0", b"\x1b[31mred\x1b[0m", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@",
    b"diff --git a/x b/x", b"\\", b"\\ No newline at end of file", b"*** End Patch", b"", b" ",
    b"\x01\x02\x7f", b"GIT binary patch", b"rename to y", b"\xc2\x85\xe2\x80\xa8",
)  # fmt: skip


@pytest.mark.parametrize("text", OPAQUE)
def test_what_a_patch_adds_and_takes_is_opaque(store: BlobStore, text: bytes) -> None:
    before = {"x": b"1\n2\n3\n"}
    there = sides("x", b"@@ -1,3 +1,3 @@\n 1\n-2\n+%b\n 3\n" % text)
    back = sides("x", b"@@ -1,3 +1,3 @@\n 1\n-%b\n+2\n 3\n" % text)
    made = applied(store, before, there)
    assert made == exact({"x": b"1\n%b\n3\n" % text})
    assert applied(store, made, back) == exact(before)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"caf\xe9\nplain\nna\xefve\n", id="Latin-1"),
        pytest.param("é\nplain\nï\n".encode("utf-16-le"), id="UTF-16"),
        pytest.param("é\nplain\nï\n".encode("utf-16"), id="UTF-16 with a mark"),
        pytest.param(b"\xef\xbb\xbfone\nplain\ntwo\n", id="UTF-8 with a mark"),
        pytest.param(b"\x80\x81\nplain\n\0\xff\n", id="no text"),
    ],
)
def test_bytes_around_an_edit_are_not_touched(store: BlobStore, content: bytes) -> None:
    old, new = b"plain", b"PLAIN"
    if b"p\0l\0" in content:
        old, new = b"p\0l\0a\0", b"P\0L\0A\0"
    tree = tree_of(store, {"x": content})
    digest = Digest("sha256:" + blob_digest(content).hex())
    edits = [Edit(old=old, new=new, count=1)]
    after = apply_plan(plan_edits(tree, "x", edits, expected_digest=digest), tree)

    assert after.read("x") == content.replace(old, new)
    for utf8 in (False, True):
        patch = make_patch(tree, after, utf8=utf8)
        assert git_applies({"x": content}, patch) == files_of(after)
        if utf8:
            patch.decode()


def test_a_refusal_at_the_last_file_leaves_every_byte_and_mode(store: BlobStore) -> None:
    before: Files = {
        "bin": b"\0\xff" * 50, "run": (b"#!/bin/sh\n", MODE_EXECUTABLE), "empty": b"", "z": b"z\n",
    }  # fmt: skip
    tree = tree_of(store, before)
    target = tree.replace(
        {
            RepoPath("bin"): Entry(MODE_EXECUTABLE, store.put(b"\0other")),
            RepoPath("run"): Entry(MODE_FILE, store.put(b"#!/bin/sh\nexit\n")),
            RepoPath("empty"): None,
        }
    )
    good = make_patch(tree, target)
    assert files_of(patched(tree, good)) == files_of(target)
    # ``refusal`` asserts that nothing of the tree has changed.
    refused = refusal(tree, good + b"diff --git a/z b/z\n" + sides("z", b"@@ -1 +1 @@\n-y\n+x\n"))
    assert refused is not None
    assert (refused.code, refused.file) == ("patch_conflict", 3)


def only(tree: StagedTree, path: str) -> bytes:
    assert tree.paths == (path,)
    return tree.read(path)


def test_counts_that_hide_lines_are_refused_whichever_side_lies(store: BlobStore) -> None:
    before = tree_of(store, {"x": b"a\nb\n"})
    body = b" a\n+c\n+d\n b\n"
    assert only(patched(before, sides("x", b"@@ -1,2 +1,4 @@\n" + body)), "x") == b"a\nc\nd\nb\n"
    for counts in (b"-1,2 +1,3", b"-1,2 +1,5", b"-1,1 +1,4", b"-1,3 +1,4", b"-1 +1", b"-1,2 +1,2"):
        assert code(before, sides("x", b"@@ %b @@\n%b" % (counts, body))) == "patch_malformed"
    stripped = sides("x", b"@@ -1,2 +1,4 @@\n" + body)[:-1]
    assert code(before, stripped) == "patch_malformed"
