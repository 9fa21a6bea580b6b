"""Exact edits against plain ``bytes.replace`` and stock git; what they refuse, and how soon."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.stage.confinement import confine
from broker.stage.diff import make_patch
from broker.stage.edits import Edit, plan_delete, plan_edits, plan_write
from broker.stage.patch_plan import PatchPlan, PatchRefusal
from broker.stage.patching import apply_plan
from broker.stage.reading import read_text
from broker.stage.store import BlobStore
from broker.stage.tree import MODE_EXECUTABLE, MODE_FILE, StagedTree
from protocol.ids import Digest
from tests.stage.patches import Files, exact, files_of, git_applies, scratch_store, tree_of
from tests.stage.repositories import git

OTHER = Digest("sha256:" + "0" * 64)


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def digest_of(tree: StagedTree, path: str) -> Digest:
    entry = tree.get(path)
    assert entry is not None
    return Digest("sha256:" + entry.blob.digest.hex())


def edit(old: bytes, new: bytes, count: int = 1) -> Edit:
    return Edit(old=old, new=new, count=count)


def edits_of(tree: StagedTree, *edits: Edit, path: str = "x") -> PatchPlan:
    return plan_edits(tree, path, edits, expected_digest=digest_of(tree, path))


def done(plan: PatchPlan, tree: StagedTree) -> StagedTree:
    confine(plan, tree)
    return apply_plan(plan, tree)


def content(tree: StagedTree, *edits: Edit) -> bytes:
    return done(edits_of(tree, *edits), tree).read("x")


def refused(tree: StagedTree, *edits: Edit) -> PatchRefusal:
    with pytest.raises(PatchRefusal) as caught:
        content(tree, *edits)
    return caught.value


# Against the simplest model -------------------------------------------------------------

TEXTS = st.lists(st.sampled_from([b"a", b"b", b"\n", b"ab\n", b"\r\n", b"\xff"]), max_size=30).map(
    b"".join
)
PARTS = st.lists(st.sampled_from([b"a", b"b", b"\n", b"ab"]), max_size=3).map(b"".join)
EDITS = st.lists(st.builds(edit, PARTS, PARTS, st.integers(1, 3)), min_size=1, max_size=4)


def standing(data: bytes, old: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(old, at)]


def model(data: bytes, edits: Sequence[Edit]) -> bytes | None:
    """What the edits make of ``data``, ``None`` where they must be refused."""
    starts: dict[int, Edit] = {}
    taken: set[int] = set()
    for one in edits:
        places = standing(data, one.old) if one.old else []
        if not places or len(places) != one.count or one.old == one.new:
            return None
        for at in places:
            covered = set(range(at, at + len(one.old)))
            if covered & taken:
                return None
            taken |= covered
            starts[at] = one
    made = b"".join(
        starts[at].new if at in starts else b"" if at in taken else data[at : at + 1]
        for at in range(len(data))
    )
    return None if made == data else made


@settings(max_examples=2_000, deadline=None)
@given(data=TEXTS, edits=EDITS)
def test_edits_do_what_the_model_does(store: BlobStore, data: bytes, edits: list[Edit]) -> None:
    tree = tree_of(store, {"x": data})
    try:
        made: bytes | None = content(tree, *edits)
    except PatchRefusal:
        made = None
    assert made == model(data, edits)


@settings(max_examples=500, deadline=None)
@given(data=TEXTS, old=PARTS.filter(bool), new=PARTS)
def test_one_edit_with_its_count_is_bytes_replace(
    store: BlobStore, data: bytes, old: bytes, new: bytes
) -> None:
    places = standing(data, old)
    if old == new or not places or len(places) != data.count(old):
        return
    tree = tree_of(store, {"x": data})
    assert content(tree, edit(old, new, len(places))) == data.replace(old, new)


@settings(max_examples=300, deadline=None)
@given(data=TEXTS, edits=EDITS)
def test_a_plan_of_edits_exchanges_whole_lines_in_order(
    store: BlobStore, data: bytes, edits: list[Edit]
) -> None:
    tree = tree_of(store, {"x": data})
    try:
        plan = edits_of(tree, *edits)
    except PatchRefusal:
        return
    hunks = plan.files[0].change
    assert isinstance(hunks, tuple)
    end = 0
    for hunk in hunks:
        assert hunk.line is not None
        assert hunk.old
        at = len(b"".join(line + b"\n" for line in data.split(b"\n")[: hunk.line]))
        assert data.startswith(hunk.old, at)
        assert at >= end
        end = at + len(hunk.old)
        is_last = end == len(data)
        assert is_last or hunk.old.endswith(b"\n")
        assert is_last or not hunk.new or hunk.new.endswith(b"\n")


@settings(max_examples=60, deadline=None)
@given(data=TEXTS, edits=EDITS)
def test_the_patch_of_an_edit_is_one_to_stock_git(
    store: BlobStore, data: bytes, edits: list[Edit]
) -> None:
    files: Files = {"x": (data, MODE_EXECUTABLE), "y": b"1\n"}
    tree = tree_of(store, files)
    try:
        after = done(edits_of(tree, *edits), tree)
    except PatchRefusal:
        return
    assert git_applies(files, make_patch(tree, after)) == files_of(after)


# What is opaque, what is kept -----------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [b"$&", b"\\1", b"$1", b"%s", b"{}", b"\0", b"\x1b[31m", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@",
     b"diff --git a/x b/x", b"\\", b"\\g<0>", b"*** End Patch", b"\xff\xfe", b"\f",
     "\u2028".encode()],
)  # fmt: skip
def test_replacement_is_opaque(store: BlobStore, text: bytes) -> None:
    tree = tree_of(store, {"x": b"(old).*\nend"})
    assert content(tree, edit(b"(old).*", text)) == text + b"\nend"
    back = tree_of(store, {"x": text + b"\nend"})
    assert content(back, edit(text, b"n")) == b"n\nend"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        pytest.param(b"a\r\nb\r\n", b"a", b"c", b"c\r\nb\r\n", id="carriage returns stay"),
        pytest.param(b"\xef\xbb\xbfa\n", b"a", b"c", b"\xef\xbb\xbfc\n", id="BOM stays"),
        pytest.param(b"caf\xe9\nb\n", b"b", b"c", b"caf\xe9\nc\n", id="Latin-1 stays"),
        pytest.param(b"a\nb", b"a", b"c", b"c\nb", id="no final newline stays"),
        pytest.param(b"a\nb", b"b", b"b\n", b"a\nb\n", id="final newline added"),
        pytest.param(b"a\nb\n", b"b\n", b"b", b"a\nb", id="final newline taken away"),
        pytest.param(b"a\nb\n", b"a\n", b"a", b"ab\n", id="lines joined"),
        pytest.param(b"a\nb\n", b"a\nb\n", b"", b"", id="all taken away"),
        pytest.param(b"a\x0cb\n", b"\x0c", b" ", b"a b\n", id="form feed is no line end"),
        pytest.param(b"\na\0\n", b"\0", b"\1", b"\na\1\n", id="binary"),
    ],
)  # fmt: skip
def test_only_the_bytes_of_the_edit_change(
    store: BlobStore, before: bytes, old: bytes, new: bytes, after: bytes
) -> None:
    files: Files = {"x": (before, MODE_EXECUTABLE)}
    made = done(edits_of(tree_of(store, files), edit(old, new)), tree_of(store, files))
    assert files_of(made) == {"x": (after, MODE_EXECUTABLE)}


def test_a_text_with_other_line_ends_is_not_found_and_the_file_s_are_shown(
    store: BlobStore,
) -> None:
    refusal = refused(tree_of(store, {"x": b"a\r\nb c\r\n"}), edit(b"a\nb c\n", b"n\n"))
    assert refusal.code == "edit_not_found"
    assert (refusal.expected, refusal.found, refusal.found_line) == (
        b"a\nb c\n", b"a\r\nb c\r\n", 1,
    )  # fmt: skip


# Refusals -------------------------------------------------------------------------------


def test_all_edits_or_none_and_the_failing_one_is_named(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"one\ntwo\nthree\n"})
    refusal = refused(tree, edit(b"one", b"1"), edit(b"tow", b"2"), edit(b"three", b"3"))
    assert (refusal.code, refusal.file, refusal.hunk) == ("edit_not_found", 0, 1)
    assert tree.read("x") == b"one\ntwo\nthree\n"


def test_an_edit_is_looked_for_in_the_file_and_not_in_what_others_make(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"a\nb\n"})
    assert content(tree, edit(b"a", b"b"), edit(b"b", b"a")) == b"b\na\n"
    assert refused(tree, edit(b"a", b"new"), edit(b"new", b"c")).code == "edit_not_found"


@pytest.mark.parametrize(
    ("data", "edits", "code", "line"),
    [
        (b"a\nb\na\n", [edit(b"a", b"c")], "edit_ambiguous", 3),
        (b"a\nb\na\n", [edit(b"a", b"c", 3)], "edit_ambiguous", 3),
        (b"a\n" * 4, [edit(b"a", b"c", 2)], "edit_ambiguous", 3),
        (b"\naaa\n", [edit(b"aa", b"c")], "edit_ambiguous", 2),
        (b"\naaaa\n", [edit(b"aa", b"c", 2)], "edit_ambiguous", 2),
        (b"abc\n", [edit(b"ab", b"x"), edit(b"bc", b"y")], "patch_conflict", 1),
        (b"\nabc\n", [edit(b"b", b"x"), edit(b"abc", b"y")], "patch_conflict", 2),
        (b"a\n", [edit(b"a", b"x"), edit(b"a", b"x")], "patch_conflict", 1),
        (b"", [edit(b"a", b"x")], "edit_not_found", None),
        (b"a\n", [edit(b"a\n\n", b"x")], "edit_not_found", 1),
        (b"a\n", [edit(b"A", b"x")], "edit_not_found", None),
        (b"a  b\n", [edit(b"a b", b"x")], "edit_not_found", None),
        (b"a\n", [], "patch_malformed", None),
        (b"a\n", [edit(b"", b"x")], "patch_malformed", None),
        (b"a\n", [edit(b"a", b"x", 0)], "patch_malformed", None),
        (b"a\n", [edit(b"a", b"a")], "patch_no_change", None),
        (b"ab\n", [edit(b"a", b"b"), edit(b"b", b"")], "done", None),
        (b"a\n", [edit(b"a", b"x" * 262_144)], "payload_too_large", None),
        (b"a" * 200, [edit(b"a", b"x" * 200_000, 200)], "stage_bound_exceeded", None),
        (b"a", [edit(b"a", b"x", 1_001)], "patch_too_many_hunks", None),
    ],
)
def test_what_is_not_exactly_said_is_refused(
    store: BlobStore, data: bytes, edits: list[Edit], code: str, line: int | None
) -> None:
    tree = tree_of(store, {"x": data})
    if code == "done":
        assert content(tree, *edits) == b"b\n"
        return
    refusal = refused(tree, *edits)
    assert (refusal.code, refusal.found_line) == (code, line)


def test_edits_next_to_each_other_do_not_overlap(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"abc\ndef\n"})
    assert content(tree, edit(b"c\n", b"C\n"), edit(b"ab", b"AB"), edit(b"def\n", b"")) == b"ABC\n"


# Read before write ----------------------------------------------------------------------


def test_the_digest_is_the_one_that_a_read_gives_and_git_s(
    store: BlobStore, tmp_path: Path
) -> None:
    tree = tree_of(store, {"x": b"a\n"})
    digest = read_text(tree, "x", max_bytes=100).digest
    git(tmp_path, "init", "-q", "--object-format=sha256")
    assert digest == "sha256:" + git(tmp_path, "hash-object", "--stdin", data=b"a\n").strip()
    assert done(plan_delete(tree, "x", expected_digest=digest), tree).files == 0


def stale_plans(tree: StagedTree, path: str, digest: Digest) -> Iterator[PatchRefusal]:
    for plan in (
        lambda: plan_edits(tree, path, [edit(b"secret", b"n")], expected_digest=digest),
        lambda: plan_write(tree, path, b"n", mode=None, expected_digest=digest),
        lambda: plan_delete(tree, path, expected_digest=digest),
    ):
        with pytest.raises(PatchRefusal) as caught:
            plan()
        yield caught.value


def test_a_file_that_was_not_read_is_not_touched_and_nothing_of_it_is_told(
    store: BlobStore,
) -> None:
    for refusal in stale_plans(tree_of(store, {"x": b"secret\n"}), "x", OTHER):
        assert refusal.code == "edit_stale"
        assert (refusal.expected, refusal.found, refusal.found_line) == (None, None, None)


def test_of_two_edits_of_one_reading_the_second_is_stale(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"a\nb\n"})
    digest = digest_of(tree, "x")
    after = done(plan_edits(tree, "x", [edit(b"a", b"1")], expected_digest=digest), tree)
    with pytest.raises(PatchRefusal) as caught:
        plan_edits(after, "x", [edit(b"b", b"2")], expected_digest=digest)
    assert caught.value.code == "edit_stale"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing", "patch_conflict"),
        ("folder", "patch_path_collision"),
        (".git/config", "patch_path_protected"),
        (".GIT/hooks/pre-commit", "patch_path_protected"),
        (".odla-references/lib/x", "patch_path_reference"),
        (".airlock/state", "patch_path_protected"),
        (".env", "patch_path_secret"),
        ("deploy/.env.local", "patch_path_secret"),
        ("id_rsa", "patch_path_secret"),
        ("../x", "patch_path_not_canonical"),
        ("/etc/passwd", "patch_path_not_canonical"),
        ("./x", "patch_path_not_canonical"),
        ("a//x", "patch_path_not_canonical"),
        ("C:\\x", "patch_path_not_canonical"),
        ("", "patch_path_not_canonical"),
        ("x\n", "patch_path_not_canonical"),
        ("x\0", "patch_path_not_canonical"),
        ("\ud800", "patch_path_not_canonical"),
        ("a\u202eb", "patch_path_not_canonical"),
        ("X", "patch_path_collision"),
    ],
)
def test_a_name_is_judged_before_the_file_is_asked_for(
    store: BlobStore, path: str, code: str
) -> None:
    tree = tree_of(store, {"x": b"secret\n", "folder/y": b"1\n"})
    for refusal in stale_plans(tree, path, OTHER):
        assert refusal.code == code
        assert refusal.found is None


@pytest.mark.parametrize("path", [".env", ".git/config", "../x", "folder", "X", "x/y", "a\tb"])
def test_a_new_file_has_no_denied_name(store: BlobStore, path: str) -> None:
    tree = tree_of(store, {"x": b"1\n", "folder/y": b"1\n"})
    with pytest.raises(PatchRefusal) as caught:
        plan_write(tree, path, b"n", mode=None, expected_digest=None)
    assert caught.value.code.startswith("patch_path_")


# Writes and deletes ---------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    before=st.none() | TEXTS,
    after=TEXTS,
    mode=st.sampled_from([None, MODE_FILE, MODE_EXECUTABLE]),
)
def test_a_write_makes_exactly_its_content(
    store: BlobStore, before: bytes | None, after: bytes, mode: int | None
) -> None:
    other: Files = {"y": b"1\n"}
    files = other if before is None else {**other, "x": before}
    tree = tree_of(store, files)
    digest = None if before is None else digest_of(tree, "x")
    if before == after and mode in (None, MODE_FILE):
        with pytest.raises(PatchRefusal, match="changes nothing"):
            plan_write(tree, "x", after, mode=mode, expected_digest=digest)
        return
    plan = plan_write(tree, "x", after, mode=mode, expected_digest=digest)
    made = done(plan, tree)
    assert files_of(made) == exact({**other, "x": (after, mode or MODE_FILE)})
    assert tree.get("x") is None or tree.read("x") == before


def test_a_write_keeps_the_mode_or_sets_it(store: BlobStore) -> None:
    tree = tree_of(store, {"x": (b"a", MODE_EXECUTABLE)})
    digest = digest_of(tree, "x")
    kept = done(plan_write(tree, "x", b"b", mode=None, expected_digest=digest), tree)
    assert files_of(kept) == {"x": (b"b", MODE_EXECUTABLE)}
    other = done(plan_write(tree, "x", b"a", mode=MODE_FILE, expected_digest=digest), tree)
    assert files_of(other) == {"x": (b"a", MODE_FILE)}


@pytest.mark.parametrize("mode", [0o120000, 0o160000, 0o104755, 0o100666, 0o40000])
def test_a_write_makes_ordinary_files_only(store: BlobStore, mode: int) -> None:
    tree = tree_of(store, {"x": b"a"})
    for path, digest in (("n", None), ("x", digest_of(tree, "x"))):
        with pytest.raises(PatchRefusal) as caught:
            plan_write(tree, path, b"b", mode=mode, expected_digest=digest)
        assert caught.value.code == "patch_mode_forbidden"


def test_a_new_file_never_takes_the_place_of_another(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"secret"})
    with pytest.raises(PatchRefusal) as caught:
        plan_write(tree, "x", b"n", mode=None, expected_digest=None)
    assert (caught.value.code, caught.value.found) == ("edit_stale", None)


def test_a_write_that_looks_like_a_credential_is_refused(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"a"})
    key = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
    for path, digest in (("n", None), ("x", digest_of(tree, "x"))):
        with pytest.raises(PatchRefusal) as caught:
            done(plan_write(tree, path, key, mode=None, expected_digest=digest), tree)
        assert caught.value.code == "patch_path_secret"


def test_a_write_is_bounded(store: BlobStore) -> None:
    with pytest.raises(PatchRefusal) as caught:
        plan_write(tree_of(store, {}), "x", b"a" * 262_145, mode=None, expected_digest=None)
    assert caught.value.code == "payload_too_large"


@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"\0\1"])
def test_a_delete_takes_exactly_the_file_that_was_read(store: BlobStore, data: bytes) -> None:
    files: Files = {"x": (data, MODE_EXECUTABLE), "y": b"1\n"}
    tree = tree_of(store, files)
    plan = plan_delete(tree, "x", expected_digest=digest_of(tree, "x"))
    assert files_of(done(plan, tree)) == exact({"y": b"1\n"})
    changed = tree_of(store, {"x": (data + b"more", MODE_EXECUTABLE)})
    with pytest.raises(PatchRefusal) as caught:
        done(plan, changed)
    assert caught.value.code == "patch_conflict"


# Time -----------------------------------------------------------------------------------


def test_a_thousand_edits_take_milliseconds(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"".join(b"line %d;\n" % number for number in range(5_000))})
    edits = [edit(b"line %d;" % (number * 5), b"%d" % number) for number in range(1_000)]
    start = time.thread_time()
    content(tree, *edits)
    assert time.thread_time() - start < 0.5


@pytest.mark.parametrize(
    ("data", "edits"),
    [
        pytest.param(b"a" * (32 << 20), [edit(b"a" * 200_000, b"b")], id="one long line"),
        pytest.param(b"ab" * (16 << 20), [edit(b"ba" * 50_000 + b"c", b"b")], id="periodic"),
        pytest.param(b"a\n" * (16 << 20), [edit(b"a\n" * 2_000 + b"b", b"b")], id="equal lines"),
        pytest.param(b"x" * (32 << 20), [edit(b"%d" % n, b"") for n in range(1_000)], id="many"),
    ],
)
def test_the_largest_file_is_refused_soon(store: BlobStore, data: bytes, edits: list[Edit]) -> None:
    tree = tree_of(store, {"x": data})
    start = time.thread_time()
    refused(tree, *edits)
    assert time.thread_time() - start < 2.0


def test_many_places_in_one_long_line_are_one_hunk_soon(store: BlobStore) -> None:
    tree = tree_of(store, {"x": (b"f(a);" + b"x" * 30_000) * 1_000})
    start = time.thread_time()
    plan = edits_of(tree, edit(b"f(a)", b"g(a, b)", 1_000))
    assert time.thread_time() - start < 1.0
    assert plan.files[0].change is not None
    assert done(plan, tree).read("x") == (b"g(a, b);" + b"x" * 30_000) * 1_000


def test_stock_git_names_the_tree_that_edits_make(store: BlobStore, tmp_path: Path) -> None:
    tree = tree_of(store, {"d/x": b"a\nb\n", "gone": b"1\n", "run": (b"r", MODE_EXECUTABLE)})
    tree = done(edits_of(tree, edit(b"b", b"B\r"), path="d/x"), tree)
    tree = done(plan_write(tree, "n/new", b"\0", mode=None, expected_digest=None), tree)
    tree = done(plan_delete(tree, "gone", expected_digest=digest_of(tree, "gone")), tree)
    folder = tmp_path / "made"
    tree.materialize(folder)
    git(folder, "init", "-q", "--object-format=sha256")
    subprocess.run(["git", "-C", str(folder), "config", "core.autocrlf", "false"], check=True)
    git(folder, "add", "-A", "-f")
    assert tree.digest == "sha256:" + git(folder, "write-tree").strip()
