"""Applying: exact context, one place, all or nothing; stock git makes the same files."""

from collections.abc import Iterator

import pytest

from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_plan import AGENT_BOUNDS, EVIDENCE_BYTES, PatchRefusal
from broker.stage.patching import apply_plan
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
    refusal,
    scratch_store,
    tree_of,
)

NUMBERS = b"".join(b"%d\n" % number for number in range(1, 41))
REPEATED = b"head\n" + b"a\nb\nc\n" * 6 + b"tail\n"


@pytest.fixture(scope="module")
def store() -> Iterator[BlobStore]:
    with scratch_store() as store:
        yield store


def sides(path: str = "x") -> bytes:
    return f"--- a/{path}\n+++ b/{path}\n".encode()


def git(path: str = "x") -> bytes:
    return f"diff --git a/{path} b/{path}\n".encode()


def accepted(store: BlobStore, before: Files, patch: bytes) -> Exact:
    """What the patch makes of the files, where stock git makes the same of them."""
    made = files_of(patched(tree_of(store, before), patch))
    assert git_applies(before, patch) == made
    return made


SEVEN = b" 6\n-7\n+seven\n 8\n"
ADDING = b"@@ -21,3 +21,4 @@\n 21\n+x\n 22\n 23\n"
MARK = b"\\ No newline at end of file\n"


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param(NUMBERS, b"@@ -6,3 +6,3 @@ text\n" + SEVEN, (b"\n7\n", b"\nseven\n"),
                     id="at the stated line"),
        pytest.param(NUMBERS, b"@@ -16,3 +16,3 @@\n" + SEVEN, (b"\n7\n", b"\nseven\n"),
                     id="at the only other place"),
        pytest.param(NUMBERS, b"@@ -999,3 +999,3 @@\n" + SEVEN, (b"\n7\n", b"\nseven\n"),
                     id="stated after the end"),
        pytest.param(NUMBERS, b"@@ -6,3 +20,3 @@\n" + SEVEN, (b"\n7\n", b"\nseven\n"),
                     id="sides disagree, one place"),
        pytest.param(REPEATED, b"@@ -9,2 +9,3 @@\n b\n+new\n c\n",
                     (b"a\nb\nc\n" * 2 + b"a\nb\n", b"a\nb\nc\n" * 2 + b"a\nb\nnew\n"),
                     id="repeated context, at the stated of several places"),
        pytest.param(NUMBERS, b"@@ -39,2 +39,3 @@\n 39\n 40\n+41\n", (b"40\n", b"40\n41\n"),
                     id="at the end"),
        pytest.param(NUMBERS, b"@@ -1,1 +1,2 @@\n+0\n 1\n", (b"1\n2\n", b"0\n1\n2\n"),
                     id="at the beginning"),
        pytest.param(NUMBERS, b"@@ -6,3 +6,3 @@\n" + SEVEN + ADDING, (b"", b""),
                     id="several hunks"),
        pytest.param(b"a\nb", b"@@ -1,2 +1,2 @@\n-a\n+A\n b\n" + MARK, (b"a", b"A"),
                     id="no final newline kept"),
        pytest.param(b"a\nb", b"@@ -1,2 +1,2 @@\n a\n-b\n" + MARK + b"+b\n", (b"b", b"b\n"),
                     id="final newline added"),
        pytest.param(b"a\nb\n", b"@@ -1,2 +1,2 @@\n a\n-b\n+b\n" + MARK, (b"b\n", b"b"),
                     id="final newline taken away"),
        pytest.param(b"a\nb", b"@@ -1,2 +1,2 @@\n a\n+c\n" + MARK + b"-b\n" + MARK, (b"b", b"c"),
                     id="added before removed"),
        pytest.param(b"a\nb", b"@@ -1,2 +1,4 @@\n a\n-b\n" + MARK + b"+b\n+c\n+d\n" + MARK,
                     (b"b", b"b\nc\nd"), id="lines after an unterminated one"),
        pytest.param(b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", (b"b", b"c"),
                     id="CRLF"),
        pytest.param(b"a\r\nb\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\n+b\r\n", (b"b\n", b"b\r\n"),
                     id="mixed line ends"),
        pytest.param(b"a\rb\rc", b"@@ -1 +1 @@\n-a\rb\rc\n" + MARK + b"+a\rB\rc\n" + MARK,
                     (b"b", b"B"), id="CR only"),
        pytest.param(b"\xef\xbb\xbfa\nb\n", b"@@ -1,2 +1,2 @@\n \xef\xbb\xbfa\n-b\n+c\n",
                     (b"b", b"c"), id="byte order mark"),
        pytest.param(b"a\x0c\nb\n", b"@@ -1,2 +1,2 @@\n a\x0c\n-b\n+\x0c\n", (b"b", b"\x0c"),
                     id="form feed"),
        pytest.param("a\u2028b\nc\n".encode(), "@@ -1,2 +1,2 @@\n a\u2028b\n-c\n+d\n".encode(),
                     (b"c", b"d"), id="line separator"),
        pytest.param(b"\xe9\nb\n\xef\n", b"@@ -1,3 +1,3 @@\n \xe9\n-b\n+c\n \xef\n", (b"b", b"c"),
                     id="Latin-1"),
        pytest.param(b"a\n\nb\n", b"@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", (b"b", b"c"),
                     id="empty context without its blank"),
        pytest.param(b"a\n$&\n", b"@@ -1,2 +1,2 @@\n a\n-$&\n+\\1 %s {} \x1b[1m\n",
                     (b"$&", b"\\1 %s {} \x1b[1m"), id="content like code"),
        pytest.param(b"", b"@@ -0,0 +1 @@\n+a\n", (b"", b"a\n"), id="empty file filled"),
        pytest.param(b"a\n", b"@@ -1 +0,0 @@\n-a\n", (b"a\n", b""), id="file emptied, not deleted"),
    ],
)  # fmt: skip
def test_a_hunk_changes_just_its_lines(
    store: BlobStore, before: bytes, patch: bytes, after: tuple[bytes, bytes]
) -> None:
    made = accepted(store, {"x": before, "y": before}, sides() + patch)["x"][0]
    if ADDING not in patch:
        assert made == before.replace(after[0], after[1], 1)
    assert accepted(store, {"x": before}, git() + sides() + patch)["x"][0] == made


@pytest.mark.parametrize(
    ("before", "patch"),
    [
        pytest.param(NUMBERS, b"@@ -6,3 +6,3 @@\n 6\n-seven\n+7\n 8\n", id="other lines"),
        pytest.param(NUMBERS, b"@@ -6,3 +6,3 @@\n 6 \n-7\n+seven\n 8\n", id="blank at a line end"),
        pytest.param(b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n", id="LF patch, CRLF file"),
        pytest.param(b"a\nb\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", id="CRLF patch, LF file"),
        pytest.param(REPEATED, b"@@ -30,2 +30,3 @@\n b\n+new\n c\n", id="several other places"),
        pytest.param(REPEATED, b"@@ -9,2 +6,3 @@\n b\n+new\n c\n", id="sides state two places"),
        pytest.param(b"a\nb", b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n", id="unterminated, not marked"),
        pytest.param(b"a\nb\n", b"@@ -1,2 +1,2 @@\n a\n-b\n" + MARK + b"+c\n", id="marked only"),
        pytest.param(b"a\nb\nc\n", b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n" + MARK, id="mark within"),
        pytest.param(NUMBERS, b"@@ -7 +7 @@\n-7\n+seven\n", id="no context"),
        pytest.param(NUMBERS, b"@@ -6,2 +6,2 @@\n 6\n-7\n+seven\n", id="no context below"),
        pytest.param(NUMBERS, b"@@ -1,3 +1,3 @@\n" + SEVEN, id="line 1 is the beginning"),
        pytest.param(b"", b"@@ -1 +1 @@\n-a\n+b\n", id="empty file"),
        pytest.param(
            NUMBERS,
            b"@@ -6,3 +6,3 @@\n" + SEVEN + b"@@ -21,3 +21,3 @@\n 2\n-3\n+three\n 4\n",
            id="found before the hunk before",
        ),
        pytest.param(
            NUMBERS,
            b"@@ -16,3 +16,3 @@\n" + SEVEN + b"@@ -21,3 +21,3 @@\n 8\n-9\n+nine\n 10\n",
            id="touches the hunk before",
        ),
    ],
)  # fmt: skip
def test_a_hunk_without_its_place_is_a_conflict(
    store: BlobStore, before: bytes, patch: bytes
) -> None:
    tree = tree_of(store, {"x": before})

    assert code(tree, sides() + patch) == "patch_conflict"


def test_insertion_without_context_is_not_put_at_the_end(store: BlobStore) -> None:
    patch = sides() + b"@@ -2,0 +3 @@\n+new\n"
    assert git_applies({"x": b"a\nb\nc\n"}, patch) == exact({"x": b"a\nb\nc\nnew\n"})
    assert code(tree_of(store, {"x": b"a\nb\nc\n"}), patch) == "patch_conflict"


def test_operations_do_what_they_say_and_git_agrees(store: BlobStore) -> None:
    before: Files = {
        "keep": b"k\n", "gone": b"1\n2\n", "empty": b"", "run.sh": (b"s\n", MODE_EXECUTABLE),
        "old": b"o\n", "source": b"s1\ns2\n", "ä": b"u\n",
    }  # fmt: skip
    patch = b"".join(
        [
            git("gone") + b"deleted file mode 100644\nindex 1191247..0000000\n",
            b"--- a/gone\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n",
            git("empty") + b"deleted file mode 100644\n",
            git("new/empty") + b"new file mode 100755\nindex 0000000..e69de29\n",
            git("new/text") + b"new file mode 100644\n--- /dev/null\n+++ b/new/text\n",
            b"@@ -0,0 +1 @@\n+t\n" + MARK,
            git("run.sh") + b"index 1234567..1234568\n" + sides("run.sh"),
            b"@@ -1 +1 @@\n-s\n+S\n",
            b"diff --git a/old b/moved/old\nsimilarity index 50%\nrename from old\n",
            b"rename to moved/old\n--- a/old\n+++ b/moved/old\n@@ -1 +1 @@\n-o\n+O\n",
            b"diff --git a/source b/copy\nold mode 100644\nnew mode 100755\n",
            b"similarity index 100%\ncopy from source\ncopy to copy\n",
            git("source") + sides("source") + b"@@ -1,2 +1,2 @@\n-s1\n+S1\n s2\n",
            b'diff --git "a/\\303\\244" "b/\\303\\244"\nold mode 100644\nnew mode 100755\n',
        ]
    )

    assert accepted(store, before, patch) == exact(
        {
            "keep": b"k\n", "new/empty": (b"", MODE_EXECUTABLE), "new/text": b"t",
            "run.sh": (b"S\n", MODE_EXECUTABLE), "moved/old": b"O\n", "source": b"S1\ns2\n",
            "copy": (b"s1\ns2\n", MODE_EXECUTABLE), "ä": (b"u\n", MODE_EXECUTABLE),
        }
    )  # fmt: skip


def test_sides_alone_create_and_delete(store: BlobStore) -> None:
    patch = (
        b"--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+a\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
    )

    assert accepted(store, {"x": b"b\n"}, patch) == exact({"n": b"a\n"})


def created(path: str) -> bytes:
    return f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+new\n".encode()


DELETED = b"--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param(created("x"), "patch_conflict", id="create over a file"),
        pytest.param(created("d"), "patch_path_collision", id="create over a folder"),
        pytest.param(sides("none") + b"@@ -1 +1 @@\n-a\n+b\n", "patch_conflict", id="no such file"),
        pytest.param(b"diff --git a/x b/y\nrename from x\nrename to y\n", "patch_conflict",
                     id="rename over a file"),
        pytest.param(b"diff --git a/x b/y\ncopy from x\ncopy to y\n", "patch_conflict",
                     id="copy over a file"),
        pytest.param(b"diff --git a/none b/z\nrename from none\nrename to z\n", "patch_conflict",
                     id="rename of nothing"),
        pytest.param(DELETED.replace(b"-x", b"-other"), "patch_conflict",
                     id="delete of other content"),
        pytest.param(DELETED.replace(b"x", b"long").replace(b"-long", b"-1"), "patch_conflict",
                     id="delete of a part"),
        pytest.param(git("x") + b"deleted file mode 100644\n", "patch_conflict",
                     id="delete of content as if empty"),
        pytest.param(git("x") + b"deleted file mode 100755\n" + DELETED, "patch_conflict",
                     id="delete under another mode"),
        pytest.param(git("x") + b"old mode 100755\nnew mode 100644\n", "patch_conflict",
                     id="mode that it has not"),
        pytest.param(git("x") + b"index 1234567..1234568 100755\n" + sides() +
                     b"@@ -1 +1 @@\n-x\n+y\n", "patch_conflict", id="index mode that it has not"),
        pytest.param(sides() + b"@@ -1 +1 @@\n-x\n+x\n", "patch_no_change", id="line by itself"),
        pytest.param(created("n") + sides() + b"@@ -1 +1 @@\n-x\n+x\n", "patch_no_change",
                     id="one section without a change"),
        pytest.param(created("n") + sides() + b"@@ -1 +1 @@\n-other\n+x\n", "patch_conflict",
                     id="one section that fails"),
    ],
)  # fmt: skip
def test_a_refused_patch_changes_nothing_at_all(
    store: BlobStore, patch: bytes, expected: str
) -> None:
    tree = tree_of(store, {"x": b"x\n", "y": b"y\n", "d/e": b"e\n", "long": b"1\n2\n"})

    assert code(tree, patch) == expected


def test_an_executable_file_stays_one_when_no_mode_is_given(store: BlobStore) -> None:
    before: Files = {"x": (b"a\n", MODE_EXECUTABLE)}
    assert accepted(store, before, sides() + b"@@ -1 +1 @@\n-a\n+b\n") == exact(
        {"x": (b"b\n", MODE_EXECUTABLE)}
    )


def test_a_conflict_shows_what_was_expected_and_found(store: BlobStore) -> None:
    tree = tree_of(store, {"w": b"w\n", "x": NUMBERS})
    patch = created("n") + sides() + b"@@ -6,3 +6,3 @@\n" + SEVEN
    patch += b"@@ -21,3 +21,3 @@\n 21\n-twenty-two\n+22\n 23\n"
    refused = refusal(tree, patch)

    assert refused is not None
    assert (refused.code, refused.file, refused.hunk) == ("patch_conflict", 1, 1)
    assert refused.expected == b"21\ntwenty-two\n23\n"
    assert refused.found == b"21\n22\n23\n"
    assert "twenty" not in str(refused)


def test_evidence_is_bounded(store: BlobStore) -> None:
    line = b"y" * 100_000
    refused = refusal(tree_of(store, {"x": line}), sides() + b"@@ -1 +1 @@\n-%b\n+b\n" % line)

    assert refused is not None
    assert refused.expected == refused.found == line[:EVIDENCE_BYTES]


def test_content_that_one_patch_touches_is_bounded(store: BlobStore) -> None:
    files = AGENT_BOUNDS.touched_bytes // (2 * 24 * 1024 * 1024) + 1
    content = b"a\nb\n" + bytes(24 * 1024 * 1024)
    tree = tree_of(store, {f"f{index}": content for index in range(files)})
    patch = [sides(f"f{index}") + b"@@ -1,2 +1,2 @@\n-a\n+A\n b\n" for index in range(files)]

    assert code(tree, b"".join(patch[:-1])) is None
    assert code(tree, b"".join(patch)) == "stage_bound_exceeded"


def test_a_plan_that_was_not_confined_still_names_plain_paths(store: BlobStore) -> None:
    tree = tree_of(store, {"x": b"x\n"})
    for path in ("../y", "/y", ".git/y", "a//y", "a/./y"):
        with pytest.raises(PatchRefusal) as refused:
            apply_plan(parse_patch(created(path)), tree)
        assert refused.value.code == "patch_path_not_canonical"
    for patch in (created("y") + created("y/z"), created("x/z")):
        with pytest.raises(PatchRefusal) as refused:
            apply_plan(parse_patch(patch), tree)
        assert refused.value.code == "patch_path_collision"
