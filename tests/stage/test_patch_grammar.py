"""One strict grammar: what is refused before any tree is looked at, and what is read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.stage.patch_grammar import parse_patch
from broker.stage.patch_hunks import read_hunks
from broker.stage.patch_plan import (
    AGENT_BOUNDS,
    RESULT_BOUNDS,
    PatchPlan,
    PatchRefusal,
    PatchTarget,
    sources,
    targets,
)
from broker.stage.patch_section import SectionHeader, section_of, usual_header
from broker.stage.patch_text import PatchText

HUNK = b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
SIDES = b"--- a/x\n+++ b/x\n"
GIT = b"diff --git a/x b/x\n"
NEW = GIT + b"new file mode 100644\n"
GONE = GIT + b"deleted file mode 100644\n"
PLAIN = SIDES + HUNK


def refused(patch: bytes) -> PatchRefusal:
    with pytest.raises(PatchRefusal) as caught:
        parse_patch(patch)
    return caught.value


def test_a_section_without_git_header_is_read() -> None:
    plan = parse_patch(PLAIN)

    (file,) = plan.files
    assert (file.operation, file.old_path, file.new_path) == ("modify", "x", "x")
    assert isinstance(file.change, tuple)
    assert (file.change[0].old, file.change[0].new) == (b"a\nb\n", b"a\nc\n")
    assert (plan.added, plan.removed) == (1, 1)


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\n\n", id="empty lines only"),
        pytest.param(b"I changed the file as you asked.\n", id="prose only"),
        pytest.param(b"Here is the patch:\n" + PLAIN, id="prose before"),
        pytest.param(PLAIN + b"That was it.\n", id="prose after"),
        pytest.param(b"```diff\n" + PLAIN + b"```\n", id="code fence"),
        pytest.param(PLAIN + b"-- \n2.39.5\n", id="mail signature"),
        pytest.param(b"From 0 Mon\nSubject: x\n\n" + PLAIN, id="mail header"),
        pytest.param(b"Index: x\n=====\n" + PLAIN, id="svn header"),
        pytest.param(b"*** Begin Patch\n*** End Patch\n", id="another dialect"),
        pytest.param(PLAIN[:-1], id="last line not ended"),
        pytest.param(PLAIN.replace(b"a\n", b"a\0\n", 1), id="NUL"),
        pytest.param(SIDES, id="no hunk"),
        pytest.param(b"--- a/x\n" + HUNK, id="no new side"),
        pytest.param(b"--- /dev/null\n+++ /dev/null\n" + HUNK, id="both sides absent"),
        pytest.param(b"--- a/src/a.py\n+++ b/src/b.py\n" + HUNK, id="sides name two files"),
        pytest.param(HUNK, id="hunk without header"),
        pytest.param(GIT + SIDES + HUNK + PLAIN.replace(b"x", b"y"), id="mixed headers, git first"),
        pytest.param(PLAIN.replace(b"x", b"y") + GIT + SIDES + HUNK, id="mixed headers, git last"),
        pytest.param(GIT, id="header alone"),
        pytest.param(GIT + b"index 1234567..1234568 100644\n", id="index alone"),
        pytest.param(GIT + b"Binary files a/x and b/x differ\n", id="binary without content"),
        pytest.param(b"diff --cc x\n" + PLAIN, id="combined"),
        pytest.param(GIT + b"index 123..456\n" + SIDES + HUNK, id="short ids"),
        pytest.param(GIT + b"index 1234567..1234568 644\n" + SIDES + HUNK, id="short mode"),
        pytest.param(GIT + b"unknown header\n" + SIDES + HUNK, id="unknown header"),
        pytest.param(GIT + b"old mode 100644\n" + SIDES + HUNK, id="one mode"),
        pytest.param(GIT + b"old mode 100644\nnew mode 100644\n", id="mode to itself"),
        pytest.param(GIT + b"old mode 100644\nold mode 100644\nnew mode 100755\n", id="mode twice"),
        pytest.param(NEW[:-1] + b"\r\n", id="CR after mode"),
        pytest.param(GIT + b"new file mode 100644\n" + SIDES + HUNK, id="new file with old side"),
        pytest.param(
            GIT + b"new file mode 100644\n--- /dev/null\n+++ b/x\n" + HUNK,
            id="new file with context",
        ),
        pytest.param(
            GIT + b"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n", id="absent side of a change"
        ),
        pytest.param(
            GIT + b"deleted file mode 100644\n" + SIDES + HUNK, id="deleted with new side"
        ),
        pytest.param(
            GIT + b"new file mode 100644\ndeleted file mode 100644\n", id="new and deleted"
        ),
        pytest.param(GIT + b"similarity index 90%\n" + SIDES + HUNK, id="similar to nothing"),
        pytest.param(b"diff --git a/x b/y\n" + SIDES + HUNK, id="git header names another file"),
        pytest.param(GIT + b"--- a/x\n+++ b/e\n" + HUNK, id="new side names another file"),
        pytest.param(GIT + b"rename from x\nrename to y\n", id="rename under another header"),
        pytest.param(b"diff --git a/x b/y\nrename from x\n", id="rename to nowhere"),
        pytest.param(b"diff --git a/x b/y\nrename from x\ncopy to y\n", id="rename and copy"),
        pytest.param(b"diff --git a/x b/x\nrename from x\nrename to x\n", id="rename to itself"),
        pytest.param(
            b"diff --git a/x b/y\nrename from x\nrename to y\n--- a/x\n+++ b/z\n" + HUNK,
            id="rename and side disagree",
        ),
    ],
)
def test_text_outside_of_the_grammar_is_malformed(patch: bytes) -> None:
    assert refused(patch).code == "patch_malformed"


@pytest.mark.parametrize(
    ("hunk", "line"),
    [
        pytest.param(b"@@ -1,2 +1,1 @@\n a\n-b\n+c\n", 6, id="new count too small"),
        pytest.param(b"@@ -1,1 +1,2 @@\n a\n-b\n+c\n", 5, id="old count too small"),
        pytest.param(b"@@ -1,2 +1,3 @@\n a\n-b\n+c\n", 6, id="new count too large"),
        pytest.param(b"@@ -1,3 +1,2 @@\n a\n-b\n+c\n", 6, id="old count too large"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n+hidden\n", 7, id="added after the body"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n-hidden\n", 7, id="removed after the body"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n hidden\n", 7, id="context after the body"),
        pytest.param(b"@@ -0,2 +1,2 @@\n a\n-b\n+c\n", 3, id="lines before the first"),
        pytest.param(b"@@ -1,2 +1,2 @@x\n a\n-b\n+c\n", 3, id="glued text"),
        pytest.param(b"@@ -01,2 +1,2 @@\n a\n-b\n+c\n", 3, id="leading zero"),
        pytest.param(b"@@ -1,2 +1,2 @\n a\n-b\n+c\n", 3, id="not closed"),
        pytest.param(b"@@ -1,9999999999 +1,2 @@\n a\n-b\n+c\n", 3, id="count without end"),
        pytest.param(b"@@\n a\n-b\n+c\n", 3, id="no numbers"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n"
                     b"\\ No newline at end of file\n+c\n", 7, id="mark twice"),
        pytest.param(b"@@ -1,2 +1,2 @@\n\\ No newline at end of file\n a\n-b\n+c\n", 4,
                     id="mark before any line"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n\\ No newline at end of file\n-b\n+c\n", 6,
                     id="mark within context"),
        pytest.param(b"@@ -1,2 +1,2 @@\n-a\n\\ No newline at end of file\n b\n+c\n", 6,
                     id="old lines after the mark"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ no newline\n", 7, id="another mark"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\\n", 7, id="a backslash alone"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\r-b\n+c\n", 5, id="CR hides a line"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n@@ -2,1 +2,2 @@\n b\n+d\n", 7, id="overlap"),
        pytest.param(b"@@ -9,2 +9,2 @@\n a\n-b\n+c\n@@ -5 +5,2 @@\n b\n+d\n", 7, id="out of order"),
        pytest.param(b"@@ -1,2 +1,2 @@\n a\n-b\n+c\n\n@@ -9 +9,2 @@\n b\n+d\n", 8,
                     id="empty line between hunks"),
    ],
)  # fmt: skip
def test_a_body_that_is_not_what_the_counts_say_is_malformed(hunk: bytes, line: int) -> None:
    refusal = refused(SIDES + hunk)

    assert (refusal.code, refusal.file, refusal.line) == ("patch_malformed", 0, line)


def test_a_hunk_of_context_alone_changes_nothing() -> None:
    refusal = refused(SIDES + b"@@ -1,2 +1,2 @@\n a\n b\n")

    assert (refusal.code, refusal.hunk) == ("patch_no_change", 0)


def test_empty_lines_may_stand_around_sections_and_for_empty_context() -> None:
    hunk = b"@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n"
    plan = parse_patch(b"\n" + SIDES + hunk + b"\n\n" + PLAIN.replace(b"x", b"y") + b"\n")

    first, second = plan.files
    assert isinstance(first.change, tuple)
    assert first.change[0].old == b"a\n\nc\n"
    assert second.old_path == "y"


def test_the_header_of_the_next_section_is_not_a_removed_line() -> None:
    plan = parse_patch(SIDES + b"@@ -1 +0,0 @@\n-a\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n")

    assert [file.old_path for file in plan.files] == ["x", "y"]


def test_lines_that_look_like_headers_are_content_within_the_counts() -> None:
    body = b"---- a/y\n-diff --git a/x b/x\n+++ b/y\n+@@ -1 +1 @@\n+\\\n"
    body += b"+\\ No newline at end of file\n"
    (file,) = parse_patch(SIDES + b"@@ -1,2 +1,4 @@\n" + body).files

    assert isinstance(file.change, tuple)
    assert file.change[0].old == b"--- a/y\ndiff --git a/x b/x\n"
    assert file.change[0].new == b"++ b/y\n@@ -1 +1 @@\n\\\n\\ No newline at end of file\n"


@pytest.mark.parametrize("names", ["x b/y", "x b/x", "b/b/b", " ", "dev/null", "a/a b/a"])
def test_a_name_may_look_like_two(names: str) -> None:
    name = names.encode()
    patch = b"diff --git a/%b b/%b\nold mode 100644\nnew mode 100755\n" % (name, name)

    assert targets(parse_patch(patch)) == (PatchTarget(names, "modify"),)


def test_targets_of_each_operation() -> None:
    patch = b"".join(
        [
            b"diff --git a/new b/new\nnew file mode 100644\n",
            b"diff --git a/gone b/gone\ndeleted file mode 100644\n",
            b"diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n",
            b"diff --git a/r1 b/r2\nsimilarity index 100%\nrename from r1\nrename to r2\n",
            b"diff --git a/c1 b/c2\nsimilarity index 100%\ncopy from c1\ncopy to c2\n",
        ]
    )
    plan = parse_patch(patch)

    assert targets(plan) == (
        PatchTarget("new", "create"),
        PatchTarget("gone", "delete"),
        PatchTarget("mode", "modify"),
        PatchTarget("r1", "delete"),
        PatchTarget("r2", "create"),
        PatchTarget("c2", "create"),
    )
    assert sources(plan) == ("r1", "c1")


def many(count: int) -> bytes:
    return b"".join(
        b"diff --git a/%d b/%d\nold mode 100644\nnew mode 100755\n" % (index, index)
        for index in range(count)
    )


def test_counts_are_bounded_and_the_bounds_are_exact() -> None:
    hunks = b"".join(b"@@ -%d +%d @@\n-a\n+b\n" % (n, n) for n in range(1, 1_002))
    assert len(parse_patch(many(AGENT_BOUNDS.files)).files) == AGENT_BOUNDS.files
    assert refused(many(AGENT_BOUNDS.files + 1)).code == "patch_too_many_files"
    assert refused(SIDES + hunks).code == "patch_too_many_hunks"
    assert len(parse_patch(many(1_000), bounds=RESULT_BOUNDS).files) == 1_000


def test_size_is_bounded_before_anything_is_read() -> None:
    fitting = SIDES + b"@@ -0,0 +1 @@\n+"
    text = fitting + b"x" * (AGENT_BOUNDS.text_bytes - len(fitting) - 1) + b"\n"
    assert isinstance(parse_patch(text), PatchPlan)
    assert refused(text + b"\n").code == "payload_too_large"
    assert refused(b"\0" * (AGENT_BOUNDS.text_bytes + 1)).code == "payload_too_large"


def test_grammar_comes_before_counts_and_counts_before_names() -> None:
    assert refused(many(65) + b"prose\n").code == "patch_malformed"
    assert refused(many(64) + GIT.replace(b"x", b"../x") + b"rename from").code == "patch_malformed"
    hostile = many(64) + b"diff --git a/../x b/../x\nold mode 100644\nnew mode 100755\n"
    assert refused(hostile).code == "patch_too_many_files"


def test_a_refusal_holds_no_text_of_the_patch() -> None:
    refusal = refused(b"CANARY-1234\n")
    assert "CANARY" not in str(refusal) + repr(refusal.args)


@settings(max_examples=300, deadline=None)
@given(
    name=st.text(st.sampled_from('ab/. "\\é\t-'), min_size=1, max_size=8),
    ids=st.sampled_from(
        [b"aaaa..bbbb", b"0" * 40 + b".." + b"1" * 40, b"aaa..bbbb", b"aaaa..BBBB"]
    ),
    mode=st.sampled_from([b"", b" 100644", b" 100755", b" 120000", b" 644", b" 100644 "]),
)
def test_the_usual_header_is_read_as_its_lines_are(name: str, ids: bytes, mode: bytes) -> None:
    hunk = b"@@ -1 +1 @@\n-a\n+b\n"
    raw = name.encode()
    patch = b"diff --git a/%b b/%b\nindex %b%b\n--- a/%b\n+++ b/%b\n" % (
        raw, raw, ids, mode, raw, raw,
    ) + hunk  # fmt: skip
    text = PatchText(patch)
    usual = usual_header(text)
    if usual is None:
        return
    hunks = read_hunks(text, file=0)
    lines = patch.split(b"\n")
    header = SectionHeader(lines[0].removeprefix(b"diff --git "))
    assert header.take(lines[1])
    header.old_side, header.new_side = lines[2][4:], lines[3][4:]
    assert usual(hunks) == section_of(header, hunks)
    assert parse_patch(patch).files == (usual(hunks),)
